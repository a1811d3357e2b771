"""Pages of types, units and values: HM201 to HM219."""

from __future__ import annotations

from typing import Final

from .page import Page

PAGES: Final = (
    Page(
        "HM201",
        "value of the wrong kind",
        "The message says which kind is expected.",
        wrong='provider anthropic { concurrency "four" }',
        right="provider anthropic { concurrency 4 }",
    ),
    Page(
        "HM202",
        "unknown unit",
        "Each unit has one spelling: `ms s m h d w`, `k M G` (thousands), `B kB MB GB KiB MiB GiB`, `%`, `$`. `m` "
        "is always minutes and `M` always million.",
        wrong="defaults lane { deadline 30sec }\nprovider anthropic { }",
        right="defaults lane { deadline 30s }\nprovider anthropic { }",
    ),
    Page(
        "HM203",
        "missing unit",
        "No value has a default unit: five what? Counts have no unit.",
        wrong="provider anthropic { timeout connect 5 }",
        right="provider anthropic { timeout connect 5s }",
    ),
    Page(
        "HM204",
        "unknown rate window or price unit",
        "A rate is `50/min`, per `s`, `min`, `hour`, `day`, or per a duration, `50/10m`. A price is per `Mtok` or "
        "`ktok`.",
        wrong="provider anthropic { limits { requests 50/minute } }",
        right="provider anthropic { limits { requests 50/min } }",
    ),
    Page(
        "HM205",
        "value out of range",
        "The message has the range. A time, a share or a rate of zero is out of range where it would stop all calls.",
        wrong="defaults lane { weight 0 }\nprovider anthropic { }",
        right="defaults lane { weight 1 }\nprovider anthropic { }",
    ),
    Page(
        "HM206",
        "empty range",
        "The smaller bound comes first, and both bounds belong to the range. Only `time`, `hour` and `weekday` go "
        "round: `hour in 22..5` is the night.",
        wrong="rule large when tokens.in in 200k..100k { priority 6 }\nprovider anthropic { }",
        right="rule large when tokens.in in 100k..200k { priority 6 }\nprovider anthropic { }",
    ),
    Page(
        "HM207",
        "value that is too large or rounds to zero",
        "Amounts are exact: whole nanoseconds, bytes, tokens and micro-dollars. This value does not fit.",
        wrong="defaults lane { deadline 0.0000001ms }\nprovider anthropic { }",
        right="defaults lane { deadline 1ms }\nprovider anthropic { }",
    ),
    Page(
        "HM208",
        "secret in the policy",
        "A policy is kept in git, so a key in it, even in a comment, has leaked. Write its location instead: "
        '`env(NAME)` or `file("path")`. Then rotate the key.',
        wrong='provider anthropic { key "hunter2" }',
        right="provider anthropic { key env(ANTHROPIC_API_KEY) }",
    ),
    Page(
        "HM209",
        "missing secret",
        "`check --env` warns; `serve` does not start, or keeps the running policy. A value of more than one line is "
        "an error for both, because no header can carry it; `check` without `--env` reports it of files that are "
        "there. The value itself is never shown.",
    ),
    Page(
        "HM210",
        "secret where none is allowed",
        "`env()` and `file()` are allowed for a key, a token or a URL. Elsewhere `explain` would print the value.",
        wrong="rule no { deny env(WHY) }\nprovider anthropic { }",
        right='rule no { deny "not today" }\nprovider anthropic { }',
    ),
    Page(
        "HM211",
        "not a condition",
        "A condition is a comparison or a flag. Text and numbers are not booleans.",
        wrong="rule r when model { priority 2 }\nprovider anthropic { }",
        right='rule r when model != "" { priority 2 }\nprovider anthropic { }',
    ),
    Page(
        "HM212",
        "operands of different types",
        "The field is on the left, a literal of its type on the right. `<` compares numbers, `~` matches text with "
        "globs, and names of agents, teams and providers have no quotes.",
        wrong="rule r when model > 5 { priority 2 }\nprovider anthropic { }",
        right="rule r when tokens.in > 5 { priority 2 }\nprovider anthropic { }",
    ),
    Page(
        "HM213",
        "unknown field",
        "The reference lists the fields. `header.NAME` and `meta.NAME` are the headers and the metadata of the "
        "request.",
        wrong="rule r when tokens.input > 5 { priority 2 }\nprovider anthropic { }",
        right="rule r when tokens.in > 5 { priority 2 }\nprovider anthropic { }",
    ),
    Page(
        "HM214",
        "unknown value",
        "There is no such agent, team, provider or word. A comparison with it can never be true.",
        wrong="agent ci { }\nrule r when agent == cy { priority 2 }\nprovider anthropic { }",
        right="agent ci { }\nrule r when agent == ci { priority 2 }\nprovider anthropic { }",
    ),
    Page(
        "HM215",
        "glob in an exact comparison, or the reverse",
        "`==` compares exactly, `~` matches `*` and `?`.",
        wrong='rule r when model == "claude-*" { priority 2 }\nprovider anthropic { }',
        right='rule r when model ~ "claude-*" { priority 2 }\nprovider anthropic { }',
    ),
    Page(
        "HM216",
        "rule that tests and sets the provider",
        "`provider` in a condition is the default provider, before rules apply. A rule cannot test it and set it.",
        wrong="rule r when provider == openai { provider anthropic }\nprovider anthropic { }\nprovider openai { }",
        right='rule r when model ~ "gpt-*" { provider anthropic }\nprovider anthropic { }\nprovider openai { }',
    ),
    Page(
        "HM217",
        "malformed URL or address",
        'A base is `"https://host[:port][/path]"` without query or credentials, an address `"host:port"`. '
        "A base that ends with a path of a call, or with what all of them begin with, is a warning: calls append their "
        "own path. A version in it (`https://openrouter.ai/api/v1`) is right, and calls leave out theirs; before other "
        "segments it is a warning, for it may be of something else (`https://gateway/v2/llm`).",
        wrong='provider lab { api vllm; base "127.0.0.1:8000" }',
        right='provider lab { api vllm; base "http://127.0.0.1:8000" }',
    ),
    Page(
        "HM218",
        "retry of a request that cannot succeed",
        "The request is malformed or not allowed, so the same request fails again. That holds for statuses and for "
        'error types: `"invalid_request_error"`.',
        wrong="retry r { on [400, 429] }\nprovider anthropic { retry r }",
        right="retry r { on [429] }\nprovider anthropic { retry r }",
    ),
    Page(
        "HM219",
        "unknown time zone",
        'Write an IANA name such as `"Europe/Paris"` or `"UTC"`.',
        wrong='server { timezone "Europe/Pariss" }\nprovider anthropic { }',
        right='server { timezone "Europe/Paris" }\nprovider anthropic { }',
    ),
    Page(
        "HM220",
        "not a date",
        'A date is `"YYYY-MM-DD"`, and a day of the calendar. `~` takes globs that match some day: `"*-12-25"`.',
        wrong='rule r when date == "25.12.2026" { priority 2 }\nprovider anthropic { }',
        right='rule r when date == "2026-12-25" { priority 2 }\nprovider anthropic { }',
    ),
)
