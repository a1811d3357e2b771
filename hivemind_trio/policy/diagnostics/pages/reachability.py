"""Pages of conditions and rules that have no effect: HM301 to HM390."""

from __future__ import annotations

from typing import Final

from .page import Page

PAGES: Final = (
    Page(
        "HM301",
        "condition that is never true",
        "No call can match it: it contradicts itself, or the properties of calls. The check knows that "
        "`tokens.total` is the sum of its parts, which provider serves a model, what tokens cost and which agents "
        "are in a team. The smallest part that is never true is marked.",
        wrong="rule r when hour < 5 and hour > 22 { priority 2 }\nprovider anthropic { }",
        right="rule r when hour < 5 or hour > 22 { priority 2 }\nprovider anthropic { }",
    ),
    Page(
        "HM302",
        "condition that is always true",
        "Every call matches it, so it has no effect. Often `or` was written for `and`, or `!=` twice for a list.",
        wrong='rule r when model != "a" or model != "b" { priority 2 }\nprovider anthropic { }',
        right='rule r when model not in ["a", "b"] { priority 2 }\nprovider anthropic { }',
    ),
    Page(
        "HM303",
        "rule without effect",
        "The first rule that matches and names a setting decides that setting. Earlier rules decide all settings of "
        "every call that this rule matches, or reject the call. The marked rules are enough to prove it, and all of "
        "them are needed.",
        wrong="rule long when tokens.in > 50k { priority 2 }\n"
        "rule huge when tokens.in > 100k { priority 1 }\n"
        "provider anthropic { }",
        right="rule huge when tokens.in > 100k { priority 1 }\n"
        "rule long when tokens.in > 50k { priority 2 }\n"
        "provider anthropic { }",
    ),
    Page(
        "HM304",
        "setting of a rule or an agent that never takes effect",
        "Earlier rules decide this setting for every call that the rule matches, or reject those calls. Other "
        "settings of the rule have an effect. The `lane` or `priority` of an agent has none if rules decide it for "
        "each call of the agent.",
        wrong="rule long when tokens.in > 50k { priority 2 }\n"
        "rule huge when tokens.in > 100k { priority 1; deadline 1m }\n"
        "provider anthropic { }",
        right="rule long when tokens.in > 50k { priority 2 }\n"
        "rule huge when tokens.in > 100k { deadline 1m }\n"
        "provider anthropic { }",
    ),
    Page(
        "HM305",
        "duplicate rule",
        "Both rules match the same calls, in the same or in other words, and give them the same settings.",
        wrong="rule a when not (stream or tools) { priority 2 }\n"
        "rule b when not stream and not tools { priority 2 }\n"
        "provider anthropic { }",
        right="rule a when not (stream or tools) { priority 2 }\nprovider anthropic { }",
    ),
    Page(
        "HM306",
        "agent that never matches",
        "Agents are tried in the order of the file, and the first match wins. An agent with a token is matched only "
        "by that token. If two agents share a token, the first in the file wins. Teams with a `when` are tried in the "
        "order of the file, too, for calls of agents that name no team.",
        wrong='agent job when header.x-job != "" { }\n'
        'agent night when header.x-job == "night" { }\n'
        "provider anthropic { }",
        right='agent night when header.x-job == "night" { }\n'
        'agent job when header.x-job != "" { }\n'
        "provider anthropic { }",
    ),
    Page(
        "HM307",
        "model that no provider serves",
        "A call that no provider serves is rejected with 404. An empty policy is an error. A policy without a "
        "provider rejects every call; one that is only included by others can say so with `# hmp: allow HM307 "
        "reason` on its first line. A file with nothing but `model`s is taken as such.",
        wrong="lane batch { }\nrule all { lane batch }",
        right="lane batch { }\nrule all { lane batch }\nprovider anthropic { }",
    ),
    Page(
        "HM308",
        "unused declaration",
        "No rule, agent or other declaration refers to it.",
        wrong='let cheap = ["claude-haiku-*"]\nprovider anthropic { }',
        right='let cheap = ["claude-haiku-*"]\nrule r when model ~ cheap { priority 2 }\nprovider anthropic { }',
    ),
    Page(
        "HM309",
        "setting that repeats the inherited value",
        "The parent, or the `defaults` of the kind, has the same value.",
        wrong="defaults provider { concurrency 4 }\nprovider anthropic { concurrency 4 }",
        right="defaults provider { concurrency 4 }\nprovider anthropic { concurrency 6 }",
    ),
    Page(
        "HM310",
        "override that drops inherited entries",
        "A setting is inherited whole or replaced whole: options and blocks do not merge. An entry that the "
        "replacement leaves out has the default of the language again, or does not apply.",
        wrong="defaults provider { timeout connect 5s total 10m }\nprovider anthropic { timeout connect 2s }",
        right="defaults provider { timeout connect 5s total 10m }\nprovider anthropic { timeout connect 2s total 10m }",
    ),
    Page(
        "HM311",
        "rule that no test exercises",
        "`check --coverage` looks at every call of the tests: this rule decides nothing for any of them, so no test "
        "would fail without it. Of a simulated test it looks at the calls as they first arrive.",
        wrong='rule ci when header.x-ci != "" { priority 2 }\nprovider anthropic { }',
        right='rule ci when header.x-ci != "" { priority 2 }\nprovider anthropic { }\n'
        'test "CI is not urgent" {\n  given any when header.x-ci != ""\n  expect priority == 2\n}',
    ),
    Page(
        "HM390",
        "conditions too complex to analyse",
        "Reachability is decided exactly or not at all, within a bound on the work. Beyond the bound nothing is "
        "reported about the rule. A dozen globs that begin and end with a star are the usual cause. For a `given "
        "any` the expectation is not proven, but holds for every call that was tried.",
    ),
)
