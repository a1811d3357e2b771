"""Pages of limits, budgets, timeouts and queues: HM401 to HM420."""

from __future__ import annotations

from typing import Final

from .page import Page, not_reported

PAGES: Final = (
    Page(
        "HM401",
        "more reserved than there is",
        "Reserves hold at every provider. Together they may not take more slots than the smallest one has.",
        wrong="lane a { reserve 3 }\n"
        "lane b { reserve 2 }\n"
        "rule r when stream { lane a }\n"
        "rule s { lane b }\n"
        "provider anthropic { concurrency 4 }",
        right="lane a { reserve 2 }\n"
        "lane b { reserve 1 }\n"
        "rule r when stream { lane a }\n"
        "rule s { lane b }\n"
        "provider anthropic { concurrency 4 }",
    ),
    Page(
        "HM402",
        "a cap that can never bind",
        "A step of a budget that stands above the one where calls stop is never reached; steps count by their share, "
        "whatever their order in the text. And a `limits` block that has more slots than its provider caps nothing.",
        wrong="budget b { tokens 1M/day; at 80% { deny }; at 90% { warn } }\nprovider anthropic { }",
        right="budget b { tokens 1M/day; at 80% { warn }; at 90% { deny } }\nprovider anthropic { }",
    ),
    Page(
        "HM403",
        "more concurrency than the rate limit sustains",
        "Even if every call took as long as `timeout total` allows, the request limits would let fewer begin in that "
        "time than there are slots. The rest of the slots is never taken.",
        wrong="provider anthropic { concurrency 40; timeout total 1m; limits { requests 10/min } }",
        right="provider anthropic { concurrency 20; timeout total 1m; limits { requests 10/min } }",
    ),
    Page(
        "HM404",
        "a prompt larger than a limit's window",
        "A `model` declaration says what the model reads, and a `limits` block of its own lets less than that pass in "
        "a whole window. A call that large fits no window however long it waits, so it is refused at once, with 413. "
        "Blocks for all models are not looked at: most are smaller than the largest model's context, rightly.",
        wrong='model "claude-opus-*" { context 200k }\n'
        'provider anthropic { limits "claude-opus-*" { input 100k/min } }',
        right='model "claude-opus-*" { context 200k }\n'
        'provider anthropic { limits "claude-opus-*" { input 400k/min } }',
    ),
    Page(
        "HM405",
        "a budget that cannot be reached",
        "The providers' limits together let less pass in the budget's window than it allows, however fast calls come. "
        "Looked at where every provider that can serve its calls limits the same as the budget: requests, or output "
        "tokens.",
        wrong="provider anthropic { limits { requests 10/min } }\nbudget b { requests 2k/hour }",
        right="provider anthropic { limits { requests 10/min } }\nbudget b { requests 500/hour }",
    ),
    Page(
        "HM406",
        "a budget above the one it is part of",
        "Every call that this budget counts is counted by the other one too, which allows less of the same in the same "
        "window and stops calls when it is used up. This one cannot come to its end.",
        wrong="budget all { cost $20/day }\nbudget ci when stream { cost $50/day }\nprovider anthropic { }",
        right="budget all { cost $50/day }\nbudget ci when stream { cost $20/day }\nprovider anthropic { }",
    ),
    Page(
        "HM407",
        "a money budget, and a model without a price",
        "Calls of a model whose price nobody declared would count as nothing.",
        wrong='budget b { cost $5/day }\nprovider openai { serves ["my-own-*"] }',
        right="budget b { cost $5/day }\n"
        'model "my-own-*" { price input $1/Mtok output $2/Mtok }\n'
        'provider openai { serves ["my-own-*"] }',
    ),
    not_reported(
        "HM408",
        "one request can become many",
        "A call's attempts are counted over all the providers that it goes to, so it never becomes more upstream calls "
        "than `attempts` of its retry class says, whatever falls back on what.",
    ),
    Page(
        "HM409",
        "a back-off that outlasts the deadline",
        "No attempt begins at or after the deadline of its call, so a call whose first pause is longer is not tried "
        "again, however many attempts its retry class allows. With jitter a pause may be drawn shorter.",
        wrong="retry slow { backoff 1m..5m }\nrule r when stream { retry slow; deadline 30s }\nprovider anthropic { }",
        right="retry slow { backoff 1s..1m }\nrule r when stream { retry slow; deadline 30s }\nprovider anthropic { }",
    ),
    Page(
        "HM410",
        "timeouts the wrong way round",
        "`total` ends an attempt whatever it is waiting for, so a part of it cannot be waited for longer. A deadline "
        "that is shorter than `connect` passes before a connection that is not made has been given up, and one that is "
        "shorter than `affinity model max` before a call's model has its turn.",
        wrong="provider anthropic { timeout first-byte 10m total 5m }",
        right="provider anthropic { timeout first-byte 5m total 10m }",
    ),
    Page(
        "HM411",
        "AIMD that cannot move, or cannot settle",
        "`aimd` moves the slots between the two bounds of `concurrency`; with one number there is nothing to move. A "
        "`decrease` of 95% or more shuts a provider for one bad answer.",
        wrong="provider anthropic { concurrency 8; aimd decrease 30% }",
        right="provider anthropic { concurrency 2..8; aimd decrease 30% }",
    ),
    Page(
        "HM412",
        "a breaker that can never trip",
        "It judges once `of` attempts have ended within `over`. More than it remembers (4,096), or more than the "
        "provider's limit on requests lets begin in that time, is never reached. Connections that cannot be made trip "
        "it all the same.",
        wrong="provider anthropic { limits { requests 20/min }; breaker of 50 over 30s }",
        right="provider anthropic { limits { requests 20/min }; breaker of 10 over 30s }",
    ),
    not_reported(
        "HM413",
        "a lane that could starve",
        "None does for good: lanes share by weight, and in each one grant in four goes to the call that has waited "
        "longest, once that is 120 s, whatever the priorities. `aging` on the lane makes it sooner.",
    ),
    Page(
        "HM414",
        "queues that could hold more than the memory",
        "A waiting call's body is kept in memory. With the defaults nobody is told; where a policy raises `max-body` "
        "or `max-waiting` and the two together come to more than 1 GiB, this is what the worst case would take. "
        "Queues of lanes count if every lane has one, `default` too.",
        wrong="server { max-body 256MiB }\nprovider anthropic { }",
        right="server { max-body 256MiB; max-waiting 4 }\nprovider anthropic { }",
    ),
    Page(
        "HM415",
        "several nodes that share nothing",
        "Proxies share limits and budgets through a store that all of them see; `memory` and `sqlite` are one node's "
        "own, and `store redis` is not yet in force. And a lease that is renewed no earlier than half of its time "
        "lapses if one renewal comes late.",
        wrong="server { nodes 2 }\nprovider anthropic { }",
        right="server { nodes 1 }\nprovider anthropic { }",
    ),
    Page(
        "HM416",
        "fallbacks in a circle",
        "The note shows it. A call that nobody can take would go round for ever.",
        wrong="provider anthropic { fallback second }\n"
        'provider second { api anthropic; base "https://llm.internal.example"; fallback anthropic }',
        right="provider anthropic { fallback second }\n"
        'provider second { api anthropic; base "https://llm.internal.example" }',
    ),
    Page(
        "HM417",
        "two limits of which one never binds",
        "In the time of one window the other limit lets less pass, whichever way the provider counts, so this one is "
        "never reached.",
        wrong="provider anthropic { limits { requests 10/min; requests 5k/hour } }",
        right="provider anthropic { limits { requests 10/min; requests 300/hour } }",
    ),
    Page(
        "HM418",
        "one key in two providers",
        "A provider limits keys. Two declarations with one key each believe that they have its whole limit.",
        wrong="provider anthropic { key env(K) }\n"
        'provider second { api anthropic; key env(K); serves ["claude-opus-*"] }',
        right='provider anthropic { key env(K); limits "claude-opus-*" { concurrency 2 } }',
    ),
    Page(
        "HM419",
        "a fallback that speaks another dialect",
        "A call goes to the fallback as it is, body and all, so the two must have a dialect in common.",
        wrong="provider anthropic { fallback openai }\nprovider openai { }",
        right="provider anthropic { fallback second }\n"
        'provider second { api anthropic; base "https://llm.internal.example" }',
    ),
    Page(
        "HM420",
        "affinity, and nothing is known of models in memory",
        "Calls ride with those whose model is in memory, which is known of providers that have `resident`. Without it "
        "a provider is thought to serve every model at any time, and `affinity` does nothing.",
        wrong="provider ollama { }\nrule r { affinity model max 1m }",
        right="provider ollama { resident 1 swap 20s }\nrule r { affinity model max 1m }",
    ),
    Page(
        "HM427",
        "budgets that end with the process",
        "With `store memory` a restart begins every budget at zero: a budget of a day can be spent twice in one. "
        "The default, SQLite, keeps what was spent.",
        wrong="store memory { }\nbudget team { cost $25/day }\nprovider anthropic { }",
        right="budget team { cost $25/day }\nprovider anthropic { }",
    ),
)
