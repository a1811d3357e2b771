"""Pages of exposed addresses and credentials: HM601 to HM610."""

from __future__ import annotations

from typing import Final

from .page import Page

PAGES: Final = (
    Page(
        "HM601",
        "open to the network, without tokens",
        "Whoever reaches the proxy spends its keys. `serve` does not listen there until an agent has a token. From "
        "then on callers that are no declared agent are rejected, unless `unknown-agent allow` says otherwise; an "
        "agent without a token is anybody who says that they are it.",
        wrong='server { listen "0.0.0.0:8787" }\nprovider anthropic { }',
        right='server { listen "0.0.0.0:8787"; hosts ["llm.example.com"] }\nagent ci { token env(CI_TOKEN) }\n'
        "provider anthropic { key env(ANTHROPIC_API_KEY) }",
    ),
    Page(
        "HM602",
        "an operators' door open to the network",
        "Keep `admin` on loopback.",
        wrong='server { admin "0.0.0.0:8788" }\nprovider anthropic { }',
        right='server { admin "127.0.0.1:8788" }\nprovider anthropic { }',
    ),
    Page(
        "HM603",
        "a wall made of a header",
        "The agent that this rule or budget is about, or one of its team, is known only by what the caller says of "
        "itself: by a header, or by its name in the base URL. So any caller can step round it. Give the agent a "
        "`token`, or allow the warning with the reason why that does not matter.",
        wrong='agent ci when header.x-ci != "" { }\nrule no when agent == ci { deny }\nprovider anthropic { }',
        right="agent ci { token env(CI_TOKEN) }\nrule no when agent == ci { deny }\n"
        "provider anthropic { key env(ANTHROPIC_API_KEY) }",
    ),
    Page(
        "HM604",
        "a key over plain HTTP",
        "Everybody on the way can read it. Loopback is exempt.",
        wrong='provider lab { api vllm; base "http://10.0.0.7:8000"; key env(K) }',
        right='provider lab { api vllm; base "https://10.0.0.7:8000"; key env(K) }',
    ),
    Page(
        "HM605",
        "a secret file that everybody can read",
        "`chmod 600` it. Seen by `check --env` and by `serve`.",
    ),
    Page(
        "HM606",
        "no host name for callers",
        "A web page can make DNS point its own name here, and so pass for this proxy. So the name in a request's "
        "`Host` must be an IP address, a name without a dot, one under `.localhost` or `.internal`, or one in `hosts`; "
        "any other is answered with 421.",
        wrong='server { listen "0.0.0.0:8787" }\nagent ci { token env(CI_TOKEN) }\n'
        "provider anthropic { key env(ANTHROPIC_API_KEY) }",
        right='server { listen "0.0.0.0:8787"; hosts ["llm.example.com"] }\nagent ci { token env(CI_TOKEN) }\n'
        "provider anthropic { key env(ANTHROPIC_API_KEY) }",
    ),
    Page(
        "HM610",
        "agents with tokens, and a provider without a key",
        "An agent's token proves who it is to the proxy, and is never sent upstream. So a call of such an agent has no "
        "credential for a provider that has no `key`, and is refused with 403.",
        wrong="agent ci { token env(CI_TOKEN) }\nprovider anthropic { }",
        right="agent ci { token env(CI_TOKEN) }\nprovider anthropic { key env(ANTHROPIC_API_KEY) }",
    ),
)
