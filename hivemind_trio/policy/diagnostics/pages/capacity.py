"""Pages of limits, budgets, timeouts and queues: HM401 to HM421."""

from __future__ import annotations

from typing import Final

from .page import Page, not_reported

PAGES: Final = (
    Page(
        "HM401",
        "more slots reserved than available",
        "Reserves apply to every provider. Their sum must not exceed the slots of the smallest one.",
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
        "limit that is never reached",
        "A step of a budget above the step that stops calls is never reached; steps are ordered by their share, not "
        "by their place in the text. A `limits` block with more slots than its provider or account limits nothing, "
        "and neither does a limit of an agent above what all providers together allow, a `max` of a lane above the "
        "slots of every provider, or a `max-output` of a rule above that of every model it is for.",
        wrong="budget b { tokens 1M/day; at 80% { deny }; at 90% { warn } }\nprovider anthropic { }",
        right="budget b { tokens 1M/day; at 80% { warn }; at 90% { deny } }\nprovider anthropic { }",
    ),
    Page(
        "HM403",
        "more concurrency than the rate limits allow",
        "Even if every call took as long as `timeout total` allows, the request limits would let fewer calls begin "
        "in that time than there are slots. The other slots are never used.",
        wrong="provider anthropic { concurrency 40; timeout total 1m; limits { requests 10/min } }",
        right="provider anthropic { concurrency 20; timeout total 1m; limits { requests 10/min } }",
    ),
    Page(
        "HM404",
        "context larger than the window of a rate limit",
        "A `model` declaration has a context, and a `limits` block of that model allows fewer tokens in a whole "
        "window. A prompt of that size fits no window, so it is rejected at once with 413, or by the provider if it "
        "is only estimated and less than 1.5 times as large. Blocks for all models are not checked: most are smaller "
        "than the largest context, rightly.",
        wrong='model "claude-opus-*" { context 200k }\n'
        'provider anthropic { limits "claude-opus-*" { input 100k/min } }',
        right='model "claude-opus-*" { context 200k }\n'
        'provider anthropic { limits "claude-opus-*" { input 400k/min } }',
    ),
    Page(
        "HM405",
        "budget that cannot be exhausted",
        "The limits of the providers together allow less in the window of the budget than the budget does. Checked "
        "if every provider that can serve its calls limits the same measure (requests, or output tokens) for their "
        "models.",
        wrong="provider anthropic { limits { requests 10/min } }\nbudget b { requests 2k/hour }",
        right="provider anthropic { limits { requests 10/min } }\nbudget b { requests 500/hour }",
    ),
    Page(
        "HM406",
        "budget larger than the one that contains it",
        "Every call of this budget also counts for the other one, which allows less of the same measure in the same "
        "window and stops calls when it is exhausted. So this budget is never exhausted.",
        wrong="budget all { cost $20/day }\nbudget ci when stream { cost $50/day }\nprovider anthropic { }",
        right="budget all { cost $50/day }\nbudget ci when stream { cost $20/day }\nprovider anthropic { }",
    ),
    Page(
        "HM407",
        "cost budget, and a model without a price",
        "Calls of a model without a price would cost nothing.",
        wrong='budget b { cost $5/day }\nprovider openai { serves ["my-own-*"] }',
        right="budget b { cost $5/day }\n"
        'model "my-own-*" { price input $1/Mtok output $2/Mtok }\n'
        'provider openai { serves ["my-own-*"] }',
    ),
    not_reported(
        "HM408",
        "one request that becomes many",
        "The attempts of a call are counted over all providers that it is sent to, so it never causes more upstream "
        "calls than `attempts` of its retry class, whatever the fallbacks.",
    ),
    Page(
        "HM409",
        "back-off longer than the deadline",
        "No attempt begins at or after the deadline of its call. If the first back-off is longer, the call is never "
        "retried, whatever `attempts` says. With jitter a back-off can be shorter.",
        wrong="retry slow { backoff 1m..5m }\nrule r when stream { retry slow; deadline 30s }\nprovider anthropic { }",
        right="retry slow { backoff 1s..1m }\nrule r when stream { retry slow; deadline 30s }\nprovider anthropic { }",
    ),
    Page(
        "HM410",
        "contradicting timeouts",
        "`total` ends an attempt whatever it waits for, so no part of it can last longer. A deadline shorter than "
        "`connect` expires before a slow connection is given up, and one shorter than `affinity model max` expires "
        "before the model of the call is loaded.",
        wrong="provider anthropic { timeout first-byte 10m total 5m }",
        right="provider anthropic { timeout first-byte 5m total 10m }",
    ),
    Page(
        "HM411",
        "AIMD without effect, or unstable",
        "`aimd` moves the concurrency between the two bounds of `concurrency`; one number leaves nothing to move. A "
        "`decrease` of 95% or more nearly stops a provider after one error.",
        wrong="provider anthropic { concurrency 8; aimd decrease 30% }",
        right="provider anthropic { concurrency 2..8; aimd decrease 30% }",
    ),
    Page(
        "HM412",
        "circuit breaker that can never trip",
        "The breaker decides once `of` attempts have ended within `over`. A number above its memory (4,096), or "
        "above what the request limit lets begin in that time, is never reached. Failed connections trip it "
        "nevertheless.",
        wrong="provider anthropic { limits { requests 20/min }; breaker of 50 over 30s }",
        right="provider anthropic { limits { requests 20/min }; breaker of 10 over 30s }",
    ),
    not_reported(
        "HM413",
        "lane that could starve",
        "No lane starves: lanes share by weight, and in each lane one grant in four goes to the call that has "
        "waited longest, once it has waited 120 s, whatever the priorities. `aging` on the lane makes it sooner.",
    ),
    Page(
        "HM414",
        "queues that could exceed the memory",
        "The body of a queued call is kept in memory. The defaults are not reported. If a policy raises `max-body` "
        "or `max-waiting`, and the two together exceed 1 GiB, the message has the worst case. Queues of lanes count "
        "if every lane has one, `default` too.",
        wrong="server { max-body 256MiB }\nprovider anthropic { }",
        right="server { max-body 256MiB; max-waiting 4 }\nprovider anthropic { }",
    ),
    Page(
        "HM415",
        "several nodes or workers without a shared store",
        "Proxies share `concurrency` through a store that all of them reach, `store redis`; `memory` and `sqlite` "
        "are local to one node. Workers of one host share `sqlite`, and not `memory`; `jobs` are run by one process. "
        "A node that reports too seldom, or whose lease is too short, loses its share when "
        "one report is late.",
        wrong="server { nodes 2 }\nprovider anthropic { }",
        right="server { nodes 2 }\nstore redis { url env(REDIS_URL) }\nprovider anthropic { }",
    ),
    Page(
        "HM416",
        "circular fallback",
        "The note shows the cycle. A call that no provider can serve would loop forever.",
        wrong="provider anthropic { fallback second }\n"
        'provider second { api anthropic; base "https://llm.internal.example"; fallback anthropic }',
        right="provider anthropic { fallback second }\n"
        'provider second { api anthropic; base "https://llm.internal.example" }',
    ),
    Page(
        "HM417",
        "redundant limit",
        "Another limit is always reached first, whichever way the provider counts.",
        wrong="provider anthropic { limits { requests 10/min; requests 5k/hour } }",
        right="provider anthropic { limits { requests 10/min; requests 300/hour } }",
    ),
    Page(
        "HM418",
        "one key in two providers",
        "A provider limits by key. Two declarations with one key each assume the whole limit.",
        wrong="provider anthropic { key env(K) }\n"
        'provider second { api anthropic; key env(K); serves ["claude-opus-*"] }',
        right='provider anthropic { key env(K); limits "claude-opus-*" { concurrency 2 } }',
    ),
    Page(
        "HM419",
        "fallback with another dialect",
        "A call is sent to the fallback unchanged, body and all, so the two providers must have a dialect in common.",
        wrong="provider anthropic { fallback openai }\nprovider openai { }",
        right="provider anthropic { fallback second }\n"
        'provider second { api anthropic; base "https://llm.internal.example" }',
    ),
    Page(
        "HM420",
        "`affinity` without `resident`",
        "Calls are grouped by the model that is loaded, which is known only of providers with `resident`. Without "
        "it a provider is assumed to serve every model at any time, and `affinity` has no effect.",
        wrong="provider ollama { }\nrule r { affinity model max 1m }",
        right="provider ollama { resident 1 swap 20s }\nrule r { affinity model max 1m }",
    ),
    Page(
        "HM421",
        "plan settings that never apply",
        "Plans are of logins: their windows are reported to whoever is logged in, and not to an API key. With `key` "
        "every call is sent with it.",
        wrong="provider anthropic { key env(K); plan { overage deny } }",
        right="provider anthropic { plan { overage deny } }",
    ),
    Page(
        "HM422",
        "hold that outlasts the deadline",
        "`deadline` counts from arrival, so calls that a rule holds for longer are rejected while they are held.",
        wrong="provider anthropic { }\nrule r when time in 8:00..18:00 { hold; deadline 5m }",
        right="provider anthropic { }\nrule r when time in 8:00..18:00 { hold }",
    ),
    Page(
        "HM423",
        "hold that never ends",
        "A held call starts when a time, a date or a reading of its plan changes the verdict. For some calls of this "
        "rule none of them can.",
        wrong="provider anthropic { }\nrule r when session.turns > 300 { hold }",
        right='provider anthropic { }\nrule r when session.turns > 300 { deny "start a new session" }',
    ),
    Page(
        "HM424",
        "a lane without an account",
        "With `for` in every `account`, calls of a lane that none of them names could go nowhere. The lane `default` "
        "exists without being declared.",
        wrong="provider anthropic { account a { key env(A); for work } }\nlane work { }\nlane batch { }\n"
        "rule r when tools { lane batch }\nrule s when stream { lane work }",
        right="provider anthropic { account a { key env(A); for [work, batch, default] } }\nlane work { }\n"
        "lane batch { }\nrule r when tools { lane batch }\nrule s when stream { lane work }",
    ),
    Page(
        "HM425",
        "less than one slot without the store",
        "While the store of several nodes cannot be reached, all of them together use the share `outage local` of "
        "`concurrency`, each an equal part of it. A part of less than one slot is none: calls wait until the store "
        "is back.",
        wrong="server { nodes 4 }\nstore redis { url env(REDIS_URL) }\nprovider anthropic { concurrency 8 }",
        right="server { nodes 4 }\nstore redis { url env(REDIS_URL); outage local 50% }\n"
        "provider anthropic { concurrency 8 }",
    ),
    Page(
        "HM426",
        "more nodes than slots",
        "`nodes` times `workers` is more than the `concurrency` of a provider. At every moment some of them have no "
        "slot, so that each of their calls waits for a trip to the store. Fewer are as fast.",
        wrong="server { workers 16 }\nprovider anthropic { concurrency 8 }",
        right="server { workers 4 }\nprovider anthropic { concurrency 8 }",
    ),
    Page(
        "HM427",
        "budgets that end with the process",
        "With `store memory` a restart begins every budget at zero: a budget of a day can be spent twice in one. "
        "The default, SQLite, keeps what was spent.",
        wrong="store memory { }\nbudget team { cost $25/day }\nprovider anthropic { }",
        right="budget team { cost $25/day }\nprovider anthropic { }",
    ),
    Page(
        "HM428",
        "shared store without an address",
        "Nodes that share must reach the same Redis.",
        wrong="server { nodes 2 }\nstore redis { }\nprovider anthropic { }",
        right="server { nodes 2 }\nstore redis { url env(REDIS_URL) }\nprovider anthropic { }",
    ),
    Page(
        "HM429",
        "counted by each node for itself",
        "`store redis` and `workers` share budgets, and `concurrency` and rate limits of providers. `max` of "
        "lanes in slots, `concurrency` of `limits`, and `concurrency` and `limits` of agents are counted "
        "by each node and worker, `capacity` of resources and of `jobs` by each node: with N of them up to N times as "
        "much is used. Write an Nth of each, or allow it with `# hmp: allow HM429 reason` on the line above. Facts of "
        "sessions (`session.turns`, `session.cost`) are of the calls that a node or worker has served itself.",
        wrong="server { nodes 2 }\nstore redis { url env(REDIS_URL) }\n"
        "provider anthropic { concurrency 8 }\nagent ci { concurrency 4 }",
        right="server { nodes 2 }\n# hmp: allow HM429 half of 4\nstore redis { url env(REDIS_URL) }\n"
        "provider anthropic { concurrency 8 }\nagent ci { concurrency 2 }",
    ),
    Page(
        "HM431",
        "`spread` without accounts",
        "`spread` orders the accounts of a provider. With one key, or none, there is nothing to choose.",
        wrong="provider anthropic { key env(K); spread even }",
        right="provider anthropic { account a { key env(A) }; account b { key env(B) }; spread even }",
    ),
    Page(
        "HM432",
        "an estimate that this provider cannot give",
        "`estimate tokenizer` counts tokens of OpenAI's models (`openai`, `azure`), whose tokenizers are public; "
        "`estimate exact` asks the free endpoint for counts of `anthropic` and `gemini`. Elsewhere calls are estimated "
        "as with `estimate learned`.",
        wrong="provider openai { estimate exact }",
        right="provider openai { estimate tokenizer }",
    ),
)
