"""Pages of types, units and values: HM201 to HM219."""

from __future__ import annotations

from typing import Final

from .page import Page

PAGES: Final = (
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
)
