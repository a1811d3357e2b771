"""The page of each diagnostic code: what it says, why, and an example of wrong and right.

Codes are append-only and a retired one is never used again. The examples are checked by the tests: what stands under
"wrong" gives this code, and what stands under "right" does not.
"""

from __future__ import annotations

import textwrap
from typing import Final, final

import attrs

PAGE_WIDTH: Final = 100


@final
@attrs.frozen
class Page:
    """Page of `hivemind-trio explain CODE`."""

    code: str
    title: str
    why: str
    wrong: str = ""
    """A policy that gives this code; empty where it takes more than a text to show."""
    right: str = ""
    reported: bool = True
    """False: the code is spoken for, and this version does not look for it."""


def _later(code: str, title: str, because: str = "") -> Page:
    return Page(code, title, f"This version does not look for it.{because and ' '}{because}", reported=False)


_PAGES: Final = (
    # ---- syntax and files ----
    Page(
        "HM001",
        "a character that is not in the language",
        "Operators are the words `and`, `or`, `not`; text stands in double quotes; settings take no `:` and no "
        "`=`; a comment begins with `#`. A spelling of another language is read as what it stands for, so it hides no "
        "other problem.",
        wrong="provider anthropic { concurrency: 4 }",
        right="provider anthropic { concurrency 4 }",
    ),
    Page(
        "HM002",
        "a text that does not end",
        "A quoted text ends on the line it begins on. The help closes it before the brackets that are open.",
        wrong='provider openai { serves ["gpt-*] }',
        right='provider openai { serves ["gpt-*"] }',
    ),
    Page(
        "HM003",
        "something else was expected here",
        "The parser says what could have stood here. It leaves out the statement and goes on with the next: one run "
        "shows every such place, and every other problem that the left-out text cannot explain.",
        wrong="provider anthropic { concurrency = 4 }",
        right="provider anthropic { concurrency 4 }",
    ),
    Page(
        "HM004",
        "a bracket that is never closed",
        "The second place is where it was opened. A brace or a new declaration ends every open bracket, so that a "
        "missing `]` spoils one setting and not the file.",
        wrong='provider openai { serves ["gpt-*", "o3*" }',
        right='provider openai { serves ["gpt-*", "o3*"] }',
    ),
    Page(
        "HM005",
        "a bracket without its beginning",
        "A closing bracket or brace that nothing opened: usually one `}` too many.",
        wrong="provider anthropic { concurrency 4 } }",
        right="provider anthropic { concurrency 4 }",
    ),
    Page(
        "HM006",
        "an unknown language version",
        "`hmp 1` is the first version, and what a file without the line means for ever. A later one is written so "
        "that an old proxy refuses it instead of misreading it.",
        wrong="hmp 2\nprovider anthropic { }",
        right="hmp 1\nprovider anthropic { }",
    ),
    Page(
        "HM007",
        "a file that cannot be read",
        "It is not there, not UTF-8, holds NUL, is larger than 4 MiB, or nests "
        "deeper than 64, its includes and `let`s counted; a `let` stands for 10 000 words at most. Where there is no "
        "text at all, `check` ends with status 2.",
    ),
    Page(
        "HM008",
        "an include that matches nothing",
        "Paths are relative to the file that includes. A pattern that matches nothing is more often a typing "
        "error than a wish.",
        wrong='include "comon/*.hmp"\nprovider anthropic { }',
    ),
    Page(
        "HM009",
        "files that include each other",
        "The note shows the circle. Move what both need into a third file.",
    ),
    Page(
        "HM010",
        "an unknown escape",
        'In a quoted text there are `\\"`, `\\\\`, `\\n` and `\\t`.',
        wrong='rule no { deny "C:\\users" }\nprovider anthropic { }',
        right='rule no { deny "C:\\\\users" }\nprovider anthropic { }',
    ),
    Page(
        "HM011",
        "an include outside the policy's folder, or of no policy",
        "A policy includes files of its own folder and below. A proxy or a CI job reads policies that others wrote, "
        "and a diagnostic quotes lines: an include of any file would show it. `hivemind-trio --allow-include FOLDER` "
        "before the command allows one more folder. Of a file without a declaration nothing is quoted.",
        wrong='include "../common/models.hmp"\nprovider anthropic { }',
    ),
    # ---- structure and names ----
    Page(
        "HM101",
        "an unknown declaration",
        "At the top of a file stand the declarations: `server`, `provider`, `lane`, `agent`, `rule` and the "
        "others of the reference.",
        wrong="provder anthropic { }",
        right="provider anthropic { }",
    ),
    Page(
        "HM102",
        "an unknown setting",
        "This declaration has no such setting. Where another has, the help names it.",
        wrong="provider anthropic { concurency 4 }",
        right="provider anthropic { concurrency 4 }",
    ),
    Page(
        "HM103",
        "not allowed here",
        "A statement, a `when` or a block where it means nothing.",
        wrong="provider anthropic when stream { concurrency 4 }",
        right="provider anthropic { concurrency 4 }",
    ),
    Page(
        "HM104",
        "declared twice",
        "Kind and name are a thing's identity, over all included files: there is no overriding by order. To vary "
        "one, use `extends`.",
        wrong="team a { }\nteam a { }\nagent x { team a }\nprovider anthropic { }",
        right="team a { }\nteam b { }\nagent x { team a }\nagent y { team b }\nprovider anthropic { }",
    ),
    Page(
        "HM105",
        "set twice",
        "Nothing says which of the two was meant.",
        wrong="provider anthropic { concurrency 4; concurrency 8 }",
        right="provider anthropic { concurrency 8 }",
    ),
    Page(
        "HM106",
        "a required setting is missing",
        "There is no default that would be right: a provider of a name that is not well known must say what it "
        "speaks and where it is.",
        wrong="provider lab { concurrency 4 }",
        right='provider lab { api vllm; base "http://127.0.0.1:8000"; concurrency 4 }',
    ),
    Page(
        "HM107",
        "a name that nobody declares",
        "A reference to a lane, team, provider or retry class that is nowhere in the file or what it includes. The "
        "lane and the retry class `default` need not be declared.",
        wrong="lane batch { }\nrule ci { lane bach }\nprovider anthropic { }",
        right="lane batch { }\nrule ci { lane batch }\nprovider anthropic { }",
    ),
    Page(
        "HM108",
        "extends itself",
        "The note shows the circle.",
        wrong="provider anthropic extends openai { }\nprovider openai extends anthropic { }",
        right="provider anthropic { concurrency 4 }\nprovider openai { concurrency 4 }",
    ),
    Page(
        "HM109",
        "extends something of another kind",
        "A provider extends a provider, an agent an agent.",
        wrong="lane fast { }\nprovider anthropic extends fast { }",
        right="defaults provider { concurrency 4 }\nprovider anthropic { }",
    ),
    Page(
        "HM110",
        "a `let` defined through itself",
        "The note shows the circle.",
        wrong="let a = b\nlet b = a\nprovider anthropic { }",
        right='let a = ["claude-*"]\nrule r when model ~ a { priority 2 }\nprovider anthropic { }',
    ),
    Page(
        "HM111",
        "a reserved name",
        "`unknown` is the agent that nobody declared and `none` the team of those without one; fields of "
        "expressions cannot be hidden by a `let`.",
        wrong="agent unknown { }\nprovider anthropic { }",
        right="agent visitor { }\nprovider anthropic { }",
    ),
    Page(
        "HM112",
        "a missing or unknown argument",
        "Values come first, then pairs of option and value, then the block. The help lists what there is.",
        wrong="provider anthropic { timeout 5s }",
        right="provider anthropic { timeout connect 5s }",
    ),
    Page(
        "HM113",
        "two that are equally specific",
        "Two `limits` blocks or two `model` declarations for the same glob: for a model that matches both, "
        "neither is the more specific.",
        wrong='provider anthropic { limits "claude-*" { concurrency 2 }; limits "claude-*" { concurrency 3 } }',
        right='provider anthropic { limits "claude-*" { concurrency 3 }; limits "claude-opus-*" { concurrency 2 } }',
    ),
    Page(
        "HM114",
        "a rename of what is still there",
        "`was OLD` says that something is what ran under another name, so that a reload keeps what was counted and "
        "learned of it. That can be so if the old name is no longer declared, and of one thing only. Where names "
        "change places, change them one after the other, with a reload in between.",
        wrong="lane chat { }\nlane talk was chat { }\nrule a when stream { lane talk }\nrule b { lane chat }\n"
        "provider anthropic { }",
        right="lane talk was chat { }\nrule a when stream { lane talk }\nprovider anthropic { }",
    ),
    Page(
        "HM190",
        "known, and not yet in force",
        "The language has this setting, and this version of the proxy does not act on it. A policy that relies on "
        "it would be weaker than it looks, so it is said by `check` and at the start of `serve`. Delete it, or "
        "allow it with `# hmp: allow HM190 reason` on the line above.",
        wrong="resource sandbox { capacity 4 }\nprovider anthropic { }",
        right="provider anthropic { }",
    ),
    # ---- types, units, values ----
    Page(
        "HM201",
        "a value of the wrong kind",
        "The message says what was expected.",
        wrong='provider anthropic { concurrency "four" }',
        right="provider anthropic { concurrency 4 }",
    ),
    Page(
        "HM202",
        "an unknown unit",
        "There is one spelling for each: `ms s m h d w`, `k M G` (thousands), `B kB MB GB KiB MiB GiB`, `%`, `$`. "
        "`m` is always minutes and `M` always million.",
        wrong="defaults lane { deadline 30sec }\nprovider anthropic { }",
        right="defaults lane { deadline 30s }\nprovider anthropic { }",
    ),
    Page(
        "HM203",
        "a unit is missing",
        "Nothing has a default unit: five what? Counts have none.",
        wrong="provider anthropic { timeout connect 5 }",
        right="provider anthropic { timeout connect 5s }",
    ),
    Page(
        "HM204",
        "an unknown rate",
        "A rate is `50/min`, per `s`, `min`, `hour`, `day`, or per a duration, `50/10m`; a price is per `Mtok` or "
        "`ktok`.",
        wrong="provider anthropic { limits { requests 50/minute } }",
        right="provider anthropic { limits { requests 50/min } }",
    ),
    Page(
        "HM205",
        "out of range",
        "The message says which values there are. A time, a share or a rate of nothing is out of range where it would "
        "stop everything.",
        wrong="defaults lane { weight 0 }\nprovider anthropic { }",
        right="defaults lane { weight 1 }\nprovider anthropic { }",
    ),
    Page(
        "HM206",
        "an empty range",
        "The smaller bound comes first, and both belong to the range. Hours over midnight are two ranges.",
        wrong="rule night when hour in 22..5 { priority 6 }\nprovider anthropic { }",
        right="rule night when hour in 22..23 or hour in 0..5 { priority 6 }\nprovider anthropic { }",
    ),
    Page(
        "HM207",
        "too large, or it rounds to nothing",
        "Amounts are kept exactly, in nanoseconds, bytes, tokens and micro-dollars; this one does not fit.",
        wrong="defaults lane { deadline 0.0000001ms }\nprovider anthropic { }",
        right="defaults lane { deadline 1ms }\nprovider anthropic { }",
    ),
    Page(
        "HM208",
        "an inline secret",
        "A policy is kept in git, so a key in it, in a comment too, is a key that has leaked. Name where it is "
        'kept instead: `env(NAME)` or `file("path")`. Then replace the key, for it has been written down.',
        wrong='provider anthropic { key "hunter2" }',
        right="provider anthropic { key env(ANTHROPIC_API_KEY) }",
    ),
    Page(
        "HM209",
        "a secret that is not there",
        "`check --env` warns; `serve` will not start, or keeps the running policy. A value of more than one line is an "
        "error for both, since no header can carry it. The value itself is never shown.",
    ),
    Page(
        "HM210",
        "a secret in a place that is not secret",
        "`env()` and `file()` stand where a key, a token or a URL is wanted. Elsewhere a value would be printed "
        "by `explain`.",
        wrong="rule no { deny env(WHY) }\nprovider anthropic { }",
        right='rule no { deny "not today" }\nprovider anthropic { }',
    ),
    Page(
        "HM211",
        "not a condition",
        "A condition compares a field, or is a flag. There is no truth in a text or a number.",
        wrong="rule r when model { priority 2 }\nprovider anthropic { }",
        right='rule r when model != "" { priority 2 }\nprovider anthropic { }',
    ),
    Page(
        "HM212",
        "operands that do not fit",
        "The field stands on the left and a literal of its type on the right. `<` compares numbers, `~` matches "
        "text with globs, names of agents, teams and providers are written without quotes.",
        wrong="rule r when model > 5 { priority 2 }\nprovider anthropic { }",
        right="rule r when tokens.in > 5 { priority 2 }\nprovider anthropic { }",
    ),
    Page(
        "HM213",
        "an unknown field",
        "The fields are in the reference. `header.NAME` and `meta.NAME` are whatever the caller sends.",
        wrong="rule r when tokens.input > 5 { priority 2 }\nprovider anthropic { }",
        right="rule r when tokens.in > 5 { priority 2 }\nprovider anthropic { }",
    ),
    Page(
        "HM214",
        "a value that there is not",
        "This comparison can never be true: no such agent, team, provider or word exists.",
        wrong="agent ci { }\nrule r when agent == cy { priority 2 }\nprovider anthropic { }",
        right="agent ci { }\nrule r when agent == ci { priority 2 }\nprovider anthropic { }",
    ),
    Page(
        "HM215",
        "a glob where letters are compared, or the reverse",
        "`==` compares letter for letter, `~` matches `*` and `?`.",
        wrong='rule r when model == "claude-*" { priority 2 }\nprovider anthropic { }',
        right='rule r when model ~ "claude-*" { priority 2 }\nprovider anthropic { }',
    ),
    Page(
        "HM216",
        "a rule that sets what it reads",
        "Rules read where a call would go before any rule decided it; one that both reads and sets the provider "
        "would mean two things by one word.",
        wrong="rule r when provider == openai { provider anthropic }\nprovider anthropic { }\nprovider openai { }",
        right='rule r when model ~ "gpt-*" { provider anthropic }\nprovider anthropic { }\nprovider openai { }',
    ),
    Page(
        "HM217",
        "not a URL, or not an address",
        'A base is `"https://host[:port][/path]"` without query or credentials, an address `"host:port"`.',
        wrong='provider lab { api vllm; base "127.0.0.1:8000" }',
        right='provider lab { api vllm; base "http://127.0.0.1:8000" }',
    ),
    Page(
        "HM218",
        "retrying what cannot succeed",
        "The request is wrong or not allowed, and will be so the next time.",
        wrong="retry r { on [400, 429] }\nprovider anthropic { retry r }",
        right="retry r { on [429] }\nprovider anthropic { retry r }",
    ),
    Page(
        "HM219",
        "an unknown time zone",
        'An IANA name such as `"Europe/Paris"` or `"UTC"`.',
        wrong='server { timezone "Europe/Pariss" }\nprovider anthropic { }',
        right='server { timezone "Europe/Paris" }\nprovider anthropic { }',
    ),
    # ---- reachability ----
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
    # ---- capacity and money ----
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
    _later(
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
    _later(
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
    # ---- tests ----
    Page(
        "HM501",
        "an expectation that fails",
        "The call of the test is decided by the policy as it is compiled, and what is expected is not so. The message "
        "says what the call got, and points at who decided that. Of a `given any` it also has the call, ready to be "
        "pasted as a test of its own; it was decided too, so it is really possible. A call that is denied has no lane, "
        "no priority and no provider: where calls may be denied, write `expect lane == batch or denied`.",
        wrong="rule night when hour in 22..23 { priority 6 }\nrule others { priority 2 }\nprovider anthropic { }\n"
        'test "nobody goes before others" {\n  given any when stream\n  expect priority == 2\n}',
        right="rule night when hour in 22..23 { priority 6 }\nrule others { priority 2 }\nprovider anthropic { }\n"
        'test "nobody goes before others by day" {\n  given any when hour in 7..21\n  expect priority == 2\n}',
    ),
    Page(
        "HM502",
        "a test that is ill-formed, or expects nothing",
        "A test is about calls (`given { ... }`, `given any when ...`) or about a run (`load NAME { ... }`), and "
        "expects something of them. One whose `given any` is met by no call that a provider serves cannot fail, which "
        "is a warning.",
        wrong='test "t" { given { hour 3 } }\nprovider anthropic { }',
        right='test "t" { given { hour 3 }; expect admitted }\nprovider anthropic { }',
    ),
    Page(
        "HM503",
        "a simulated expectation that fails",
        "The scheduler of the proxy ran in virtual time against a simulated provider, and what is expected of the run "
        "is not so. The message has the value, what was wanted, and the seed: the same seed is the same run on every "
        "machine. What the simulated provider is like is said by the policy's `limits` and `concurrency`, and by the "
        "test's `upstream`; `hivemind-trio simulate` shows more of a run.",
        wrong="provider anthropic { concurrency 1 }\n"
        'test "nobody waits" {\n  load work { model "claude-haiku-4-5"; arrive 60/min }\n'
        "  upstream anthropic { latency 2s..2s }\n  run 2m seed 1\n  expect work.wait.max < 1s\n}",
        right="provider anthropic { concurrency 8 }\n"
        'test "nobody waits" {\n  load work { model "claude-haiku-4-5"; arrive 60/min }\n'
        "  upstream anthropic { latency 2s..2s }\n  run 2m seed 1\n  expect work.wait.max < 1s\n}",
    ),
    Page(
        "HM504",
        "a test over its time",
        "A simulated test may take 30 s of the processor. A shorter `run`, or calls that `arrive` less often, say the "
        "same in less.",
    ),
    Page(
        "HM505",
        "waits of a load that was mostly rejected",
        "Waits are of calls that were served. Where more than 3% of a load's calls were rejected, or given up in the "
        "queue, a short wait says little: with a short `queue` or `deadline` it is short because the others are sent "
        "away. Say in the same test what part may be lost.",
        wrong="provider anthropic { concurrency 1 }\nlane default { queue 1 }\n"
        'test "short waits" {\n  load work { model "claude-haiku-4-5"; arrive 60/min }\n'
        "  upstream anthropic { latency 2s..2s }\n  run 2m seed 1\n  expect work.wait.p95 <= 10s\n}",
        right="provider anthropic { concurrency 1 }\nlane default { queue 1 }\n"
        'test "short waits" {\n  load work { model "claude-haiku-4-5"; arrive 60/min }\n'
        "  upstream anthropic { latency 2s..2s }\n  run 2m seed 1\n"
        "  expect work.wait.p95 <= 10s and work.denied <= 60%\n}",
    ),
    # ---- security ----
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
    # ---- reload ----
    Page(
        "HM701",
        "state that a reload would reset",
        "`diff`, and `serve` when it takes up a new policy, say so: what was counted or learned is known by its kind "
        "and name, a count by its window too, and this change gives it another identity. A budget of another window "
        "or measure begins at 0. Change the amount instead, or do it when the window turns.",
    ),
    Page(
        "HM702",
        "a change that needs a restart",
        "A running proxy keeps its sockets. Nothing of the new policy is taken up until it is restarted.",
    ),
    Page(
        "HM703",
        "a name that changed",
        "`diff`, and `serve` when it takes up a new policy, say so: something is gone, and something very like it is "
        "new. If it is the same under another name, say so with `was OLD` behind the new name: then a reload keeps "
        "what was spent of it, what was learned of the provider, and who holds which slots. Without it the one ends "
        "and the other begins at nothing. A `was` that has done its work does nothing any more, and may stay.",
    ),
    # ---- style ----
    _later("HM901", "not formatted; `hivemind-trio fmt --check` looks for it"),
    _later("HM902", "deprecated"),
    Page(
        "HM903",
        "longer than needed",
        "A flag is a condition.",
        wrong="rule r when stream == true { priority 2 }\nprovider anthropic { }",
        right="rule r when stream { priority 2 }\nprovider anthropic { }",
    ),
    Page(
        "HM904",
        "an `allow` that nothing came of",
        "What it allowed is no longer there. Errors cannot be allowed.",
        wrong="# hmp: allow HM308 kept for later\nprovider anthropic { }",
        right="# kept for later\nprovider anthropic { }",
    ),
)

PAGES: Final = {page.code: page for page in _PAGES}


def title(code: str) -> str:
    """Return the title of a code."""
    return PAGES[code].title


def page_text(page: Page) -> str:
    """The page as `explain` prints it."""
    parts = [f"{page.code}: {page.title}", textwrap.fill(page.why, PAGE_WIDTH, break_on_hyphens=False)]
    for word, example in (("Wrong", page.wrong), ("Right", page.right)):
        if example:
            parts.append(f"{word}:\n\n" + "\n".join(f"  {line}" for line in example.splitlines()))
    return "\n\n".join(parts) + "\n"
