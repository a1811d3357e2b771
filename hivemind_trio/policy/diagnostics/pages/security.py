"""Pages of exposed addresses and credentials: HM601 to HM611."""

from __future__ import annotations

from typing import Final

from .page import Page

PAGES: Final = (
    Page(
        "HM601",
        "address open to the network without tokens",
        "Any caller that reaches the proxy spends its keys. `serve` does not listen there until an agent has a "
        "token. Then callers that are not a declared agent are rejected, unless `unknown-agent allow` is set. Any "
        "caller can claim to be an agent without a token.",
        wrong='server { listen "0.0.0.0:8787" }\nprovider anthropic { }',
        right='server { listen "0.0.0.0:8787"; hosts ["llm.example.com"] }\nagent ci { token env(CI_TOKEN) }\n'
        "provider anthropic { key env(ANTHROPIC_API_KEY) }",
    ),
    Page(
        "HM602",
        "`admin` without a token",
        "Whoever reaches the control API can pause, cancel and reload. At an address every user and program of the "
        "machine reaches it, so each request needs a token (`Authorization: Bearer`), on loopback too. Without "
        "`admin` it has a Unix socket, which only the user who runs the proxy may connect to.",
        wrong='server { admin "127.0.0.1:8788" }\nprovider anthropic { }',
        right='server { admin "127.0.0.1:8788" token env(HIVEMIND_ADMIN_TOKEN) }\nprovider anthropic { }',
    ),
    Page(
        "HM603",
        "access rule that relies on a header",
        "The agent of this rule or budget, or one of its team, is identified only by data that the caller sends: a "
        "header, or a name in the base URL. So any caller can evade it. Give the agent a `token`, or allow the "
        "warning with the reason why that does not matter. A budget `per header` or `per meta` relies on callers, too: "
        "who proves nothing has a share for each credential (or address) and value. So does one that depends on a team "
        "whose `when` reads a header.",
        wrong='agent ci when header.x-ci != "" { }\nrule no when agent == ci { deny }\nprovider anthropic { }',
        right="agent ci { token env(CI_TOKEN) }\nrule no when agent == ci { deny }\n"
        "provider anthropic { key env(ANTHROPIC_API_KEY) }",
    ),
    Page(
        "HM604",
        "key over plain HTTP",
        "Every host between the proxy and the provider can read the key. Loopback is exempt.",
        wrong='provider lab { api vllm; base "http://10.0.0.7:8000"; key env(K) }',
        right='provider lab { api vllm; base "https://10.0.0.7:8000"; key env(K) }',
    ),
    Page(
        "HM605",
        "secret file that every user can read",
        "Run `chmod 600` on it. Reported by `check --env` and by `serve`.",
    ),
    Page(
        "HM606",
        "no host name for callers",
        "A web page can point its own DNS name at the proxy and so send requests to it. So the name in the `Host` "
        "of a request must be an IP address, a name without a dot, one under `.localhost` or `.internal`, or one in "
        "`hosts`; any other is answered with 421.",
        wrong='server { listen "0.0.0.0:8787" }\nagent ci { token env(CI_TOKEN) }\n'
        "provider anthropic { key env(ANTHROPIC_API_KEY) }",
        right='server { listen "0.0.0.0:8787"; hosts ["llm.example.com"] }\nagent ci { token env(CI_TOKEN) }\n'
        "provider anthropic { key env(ANTHROPIC_API_KEY) }",
    ),
    Page(
        "HM607",
        "an agent that may ask, and proves nothing",
        "`allow` says which agents may lease a resource, or submit jobs. An agent without a token is whoever claims "
        "its name, so the list would keep nobody out.",
        wrong="agent grader { }\nresource gpu { allow grader }\nprovider anthropic { key env(ANTHROPIC_API_KEY) }",
        right="agent grader { token env(GRADER_TOKEN) }\nresource gpu { allow grader }\n"
        "provider anthropic { key env(ANTHROPIC_API_KEY) }",
    ),
    Page(
        "HM608",
        "a personal login used as a key",
        "The token of a login to a plan (`sk-ant-oat...`) belongs to one person and one client. Sent for other "
        "callers, or in turn with others, it breaks the terms of the plan. A provider without `key` passes each "
        "caller's own login through, unchanged.",
    ),
    Page(
        "HM609",
        "forwarded addresses believed from every peer",
        "`forwarded-by` names the proxies whose `X-Forwarded-For` is believed. A caller that is one of them chooses "
        "its own `client.address`.",
        wrong='server { forwarded-by ["0.0.0.0/0"] }\nprovider anthropic { }',
        right='server { forwarded-by ["10.0.0.2"] }\nprovider anthropic { }',
    ),
    Page(
        "HM610",
        "agents with tokens, and a provider without a key",
        "The token of an agent identifies it to the proxy and is never sent upstream. So a call of such an agent "
        "has no credential for a provider without a `key`, and is rejected with 403.",
        wrong="agent ci { token env(CI_TOKEN) }\nprovider anthropic { }",
        right="agent ci { token env(CI_TOKEN) }\nprovider anthropic { key env(ANTHROPIC_API_KEY) }",
    ),
    Page(
        "HM611",
        "shared store over plain TCP",
        "Every host between the proxy and Redis can read its password, the names of agents and what they spend, and "
        "can change the slots and budgets that nodes share. Write `rediss://`, for which Redis needs `tls-port` and a "
        "certificate. Loopback is exempt. On a network that only the nodes and Redis are on, such as that of a compose "
        "file, allow the warning. `check --env` and `serve` look at a URL of the environment, too.",
        wrong='server { nodes 2 }\nstore redis { url "redis://10.0.0.5:6379" }\nprovider anthropic { }',
        right='server { nodes 2 }\nstore redis { url "rediss://10.0.0.5:6379" }\nprovider anthropic { }',
    ),
)
