"""Pages of conditions and rules that have no effect: HM301 to HM390."""

from __future__ import annotations

from typing import Final

from .page import Page

PAGES: Final = (
    Page(
        "HM301",
        "a condition that is never true",
        "No call can meet it: it contradicts itself, or what a call can be. That `tokens.total` is the sum of its "
        "parts, which provider serves a model, what tokens cost and who is in a team is taken into account. The "
        "smallest part that is never true is shown.",
        wrong="rule r when hour < 5 and hour > 22 { priority 2 }\nprovider anthropic { }",
        right="rule r when hour < 5 or hour > 22 { priority 2 }\nprovider anthropic { }",
    ),
    Page(
        "HM302",
        "a condition that is always true",
        "Every call meets it, so it says nothing. Often `or` was written for `and`, or `!=` twice for a list.",
        wrong='rule r when model != "a" or model != "b" { priority 2 }\nprovider anthropic { }',
        right='rule r when model not in ["a", "b"] { priority 2 }\nprovider anthropic { }',
    ),
    Page(
        "HM303",
        "a rule that decides nothing",
        "The first rule that matches and names a setting decides that setting. Every call that this rule matches has "
        "all of its settings decided by rules above it, or is refused. The rules that are shown suffice for that, and "
        "none of them can be spared.",
        wrong="rule long when tokens.in > 50k { priority 2 }\n"
        "rule huge when tokens.in > 100k { priority 1 }\n"
        "provider anthropic { }",
        right="rule huge when tokens.in > 100k { priority 1 }\n"
        "rule long when tokens.in > 50k { priority 2 }\n"
        "provider anthropic { }",
    ),
    Page(
        "HM304",
        "a setting of a rule or an agent that never takes effect",
        "The rule does something, and this part of it never does: rules above decide the setting for every call that "
        "the rule matches, or such calls are refused. So it is with the `lane` or `priority` of an agent that rules "
        "decide for each of its calls.",
        wrong="rule long when tokens.in > 50k { priority 2 }\n"
        "rule huge when tokens.in > 100k { priority 1; deadline 1m }\n"
        "provider anthropic { }",
        right="rule long when tokens.in > 50k { priority 2 }\n"
        "rule huge when tokens.in > 100k { deadline 1m }\n"
        "provider anthropic { }",
    ),
    Page(
        "HM305",
        "two rules that say the same",
        "They match the same calls, however that is written, and give them the same settings.",
        wrong="rule a when not (stream or tools) { priority 2 }\n"
        "rule b when not stream and not tools { priority 2 }\n"
        "provider anthropic { }",
        right="rule a when not (stream or tools) { priority 2 }\nprovider anthropic { }",
    ),
    Page(
        "HM306",
        "an agent that no call can be identified as",
        "Agents are tried in the order of the file, and the first whose condition a caller meets is that caller. An "
        "agent with a token is had by the token alone, so its condition is never asked; and a token that two agents "
        "have is that of the first one in the file.",
        wrong='agent job when header.x-job != "" { }\n'
        'agent night when header.x-job == "night" { }\n'
        "provider anthropic { }",
        right='agent night when header.x-job == "night" { }\n'
        'agent job when header.x-job != "" { }\n'
        "provider anthropic { }",
    ),
    Page(
        "HM307",
        "a model that no provider serves",
        "A call that no provider takes is refused with 404. An empty policy is an error. A policy without any provider "
        "refuses every call; one that "
        "is only there to be included may say so, `# hmp: allow HM307 reason` on its first line. A file of nothing but "
        "`model`s is taken for that.",
        wrong="lane batch { }\nrule all { lane batch }",
        right="lane batch { }\nrule all { lane batch }\nprovider anthropic { }",
    ),
    Page(
        "HM308",
        "declared, and never used",
        "No rule, agent or other declaration names it.",
        wrong='let cheap = ["claude-haiku-*"]\nprovider anthropic { }',
        right='let cheap = ["claude-haiku-*"]\nrule r when model ~ cheap { priority 2 }\nprovider anthropic { }',
    ),
    Page(
        "HM309",
        "the same as what would be inherited",
        "What is extended, or the `defaults` of the kind, says so already.",
        wrong="defaults provider { concurrency 4 }\nprovider anthropic { concurrency 4 }",
        right="defaults provider { concurrency 4 }\nprovider anthropic { concurrency 6 }",
    ),
    Page(
        "HM310",
        "an override that drops inherited entries",
        "A setting is inherited whole or replaced whole: options and blocks do not merge. What the replacement leaves "
        "out has the language's own default again, or does not hold at all.",
        wrong="defaults provider { timeout connect 5s total 10m }\nprovider anthropic { timeout connect 2s }",
        right="defaults provider { timeout connect 5s total 10m }\nprovider anthropic { timeout connect 2s total 10m }",
    ),
    Page(
        "HM311",
        "a rule that no test exercises",
        "`check --coverage` looks at every call that a test asks about: this rule decides nothing for any of them, so "
        "no test would fail without it. Of a simulated test the calls as they first arrive are looked at.",
        wrong='rule ci when header.x-ci != "" { priority 2 }\nprovider anthropic { }',
        right='rule ci when header.x-ci != "" { priority 2 }\nprovider anthropic { }\n'
        'test "CI is not urgent" {\n  given any when header.x-ci != ""\n  expect priority == 2\n}',
    ),
    Page(
        "HM390",
        "too entangled to decide reachability",
        "Whether a rule can still decide something is worked out exactly or not at all, within a bound on the work. "
        "Beyond it nothing is said of the rule, so nothing wrong is. A dozen globs that begin and end with a star "
        "are the usual cause. Of a `given any` it says that nothing is proven: so many calls were tried, and all met "
        "the expectation.",
    ),
)
