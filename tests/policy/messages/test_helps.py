"""Helps, applied to the letter: the finding is gone and nothing worse stands in its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hivemind_trio.policy import Checked, Diagnostic, MemoryFiles, Severity, check
from hivemind_trio.policy.syntax.lexer import lexemes
from tests.policy.drawn import Drawn
from tests.policy.drawn import policies as drawn_policies
from tests.policy.regenerate import FOLDER

ANTHROPIC = "provider anthropic { }\n"


def checked(text: str) -> Checked:
    return check("team.hmp", MemoryFiles({"team.hmp": text}))


def mended(text: str, found: Diagnostic) -> str:
    assert found.replacement is not None
    return text[: found.span.start] + found.replacement + text[found.span.end :]


def errors(policy: Checked) -> list[Diagnostic]:
    return [one for one in policy.diagnostics if one.severity is Severity.ERROR]


def assert_it_mends(text: str, found: Diagnostic) -> None:
    """The finding is gone, and no error is on its lines that was not there before."""
    assert found.replacement is not None
    before, after = checked(text), checked(mended(text, found))
    places = text.count("\n", 0, found.span.start), text.count("\n", 0, found.span.end)
    more = found.replacement.count("\n")

    def count(policy: Checked) -> int:
        return sum((one.code, one.message) == (found.code, found.message) for one in policy.diagnostics)

    assert count(after) < count(before), (found, mended(text, found))
    known = Counter((one.code, one.message) for one in errors(before))
    for one in errors(after):
        known[one.code, one.message] -= 1
        line = after.sources[0].text.count("\n", 0, one.span.start)
        if known[one.code, one.message] < 0:
            assert not places[0] <= line <= places[1] + more, (found, one, mended(text, found))


# ---- each slip ----

MENDED = {
    "a rate with a length behind it": (
        'test "t" { load work { arrive 9/min for 2m }; run 2m; expect work.failed == 0% }\n',
        'test "t" { load work { arrive 9/min }; run 2m; expect work.failed == 0% }\n',
    ),
    "a rate with a length behind a comma": (
        'test "t" { load work { arrive 9/min, 2m }; run 2m; expect work.failed == 0% }\n',
        'test "t" { load work { arrive 9/min 2m }; run 2m; expect work.failed == 0% }\n',
    ),
    "a glob without its first quote before more of its line": (
        'provider anthropic { serves [*"]; concurrency 4 }\n',
        'provider anthropic { serves ["*"]; concurrency 4 }\n',
    ),
    "a name without its first quote before more of its line": (
        'provider anthropic { serves [claude"]; concurrency 4 }\n',
        'provider anthropic { serves ["claude"]; concurrency 4 }\n',
    ),
    "a glob without its first quote": (
        'provider anthropic { serves ["*-mini", claude-*"] }\n',
        'provider anthropic { serves ["*-mini", "claude-*"] }\n',
    ),
    "and of other languages": (
        "rule r when stream&&tools { priority 2 }\n",
        "rule r when stream and tools { priority 2 }\n",
    ),
    "or of other languages": (
        "rule r when stream || tools { priority 2 }\n",
        "rule r when stream or tools { priority 2 }\n",
    ),
    "not of other languages": (
        "rule r when tools and !(stream or images) { priority 2 }\n",
        "rule r when tools and not (stream or images) { priority 2 }\n",
    ),
    "three equals signs": ('rule r when model === "a" { priority 2 }\n', 'rule r when model == "a" { priority 2 }\n'),
    "a matching sign": ('rule r when model =~ "a*" { priority 2 }\n', 'rule r when model ~ "a*" { priority 2 }\n'),
    "a sign of what does not match": (
        'rule r when model !~ "a*" { priority 2 }\n',
        'rule r when not model ~ "a*" { priority 2 }\n',
    ),
    "unequal": ('rule r when model <> "a" { priority 2 }\n', 'rule r when model != "a" { priority 2 }\n'),
    "an equals sign in a condition": (
        'rule r when model="a" { priority 2 }\n',
        'rule r when model=="a" { priority 2 }\n',
    ),
    "an equals sign in a setting": ("lane default { weight=2 }\n", "lane default { weight 2 }\n"),
    "two equals signs in a let": (
        'let a == "x*"\nrule r when model ~ a { priority 2 }\n',
        'let a = "x*"\nrule r when model ~ a { priority 2 }\n',
    ),
    "a colon behind a name": ("lane default: { weight 2 }\n", "lane default { weight 2 }\n"),
    "a colon behind a setting": ("lane default { weight:2 }\n", "lane default { weight 2 }\n"),
    "a colon before a condition": ("rule r: when stream { priority 2 }\n", "rule r when stream { priority 2 }\n"),
    "a key as in JSON": ('lane default { "weight": 2 }\n', "lane default { weight 2 }\n"),
    "a block by indentation": (
        "lane default:\n  weight 2\n\n  queue 5\nteam t { }\nagent a { team t }\n",
        "lane default {\n  weight 2\n\n  queue 5\n}\nteam t { }\nagent a { team t }\n",
    ),
    "a chain with the field in the middle": (
        "rule r when 1k < tokens.in < 5k { priority 2 }\n",
        "rule r when tokens.in > 1k and tokens.in < 5k { priority 2 }\n",
    ),
    "thousands": (
        "provider openai { limits { input 1,450,000/min } }\n",
        "provider openai { limits { input 1_450_000/min } }\n",
    ),
    "thousands in a condition": (
        "rule r when tokens.in > 100,000 { priority 2 }\n",
        "rule r when tokens.in > 100_000 { priority 2 }\n",
    ),
    "statuses with a comma and no blank": ("retry r { on 429,529 }\n", "retry r { on [429,529] }\n"),
    "options in a block": (
        "provider openai { timeout { connect 5s; total 10m } }\n",
        "provider openai { timeout connect 5s total 10m }\n",
    ),
    "a base by LiteLLM's name": (
        'provider p { api openai; api_base "https://api.example.com" }\n',
        'provider p { api openai; base "https://api.example.com" }\n',
    ),
    "a concurrency limit by LiteLLM's name": (
        "provider openai { max_parallel_requests 8 }\n",
        "provider openai { concurrency 8 }\n",
    ),
    "tokens by the providers' name": (
        "provider openai { limits { input_tokens 450k/min } }\n",
        "provider openai { limits { input 450k/min } }\n",
    ),
    "a comma between settings": ("lane default { weight 2, queue 5 }\n", "lane default { weight 2; queue 5 }\n"),
    "a comma at the end": ("lane default {\n  weight 2,\n  queue 5\n}\n", "lane default {\n  weight 2\n  queue 5\n}\n"),
    "a list without brackets": (
        'provider openai { serves "gpt-*", "o3*" }\n',
        'provider openai { serves ["gpt-*", "o3*"] }\n',
    ),
    "a list of words without brackets": ("server { identify url, user }\n", "server { identify [url, user] }\n"),
    "a comment of C": ("// don't { \"x\nlane default { }\n", "# don't { \"x\nlane default { }\n"),
    "a comment of C behind a statement": ("lane default { } // see { above\n", "lane default { } # see { above\n"),
    "a comment of SQL": ("-- why\nlane default { }\n", "# why\nlane default { }\n"),
    "a long comment of C": ("/* why\n * this */\nlane default { }\n", "# why\n# this\nlane default { }\n"),
    "a no-break space": ("lane\N{NO-BREAK SPACE}default { }\n", "lane default { }\n"),
    "no-break spaces in front": (
        "lane default {\n\N{NO-BREAK SPACE}\N{NO-BREAK SPACE}weight 2\n}\n",
        "lane default {\n weight 2\n}\n",
    ),
    "a space of no width": ("lane default { \N{ZERO WIDTH SPACE}weight 2 }\n", "lane default { weight 2 }\n"),
    "less than nothing": ("lane default { priority -5 }\n", "lane default { priority 0 }\n"),
    "two signs": ("rule r { priority --0 }\n", "rule r { priority 0 }\n"),
    "a range with a long dash of two": (
        "rule r when hour in 9--17 { priority 2 }\n",
        "rule r when hour in 9..17 { priority 2 }\n",
    ),
    "less than nothing, of a weight": ("lane default { weight -5 }\n", "lane default { weight 1 }\n"),
    "less than nothing, in a condition": (
        "rule r when tokens.in > -5 { priority 2 }\n",
        "rule r when tokens.in > 0 { priority 2 }\n",
    ),
    "a range with a dash": ("rule r when hour in 9-17 { priority 2 }\n", "rule r when hour in 9..17 { priority 2 }\n"),
    "a blank before per cent": (
        "budget b { cost $5/day; at 80 % { warn } }\n",
        "budget b { cost $5/day; at 80% { warn } }\n",
    ),
    "euros": ("budget b { cost €5/day }\n", "budget b { cost $5/day }\n"),
    "a regular expression": (
        "rule r when model ~ /^claude-.*/ { priority 2 }\n",
        'rule r when model ~ "claude-*" { priority 2 }\n',
    ),
    "a path without quotes": (
        "rule r when path == /v1/messages { priority 2 }\n",
        'rule r when path == "/v1/messages" { priority 2 }\n',
    ),
    "a URL without quotes": (
        "provider lab { api vllm; base http://127.0.0.1:8000/v1 }\n",
        'provider lab { api vllm; base "http://127.0.0.1:8000/v1" }\n',
    ),
    "a glob without quotes": (
        "provider openai { serves [gpt-*, o3*] }\n",
        'provider openai { serves ["gpt-*", o3*] }\n',
    ),
    "other quotes": ("rule r { deny 'no {' }\n", 'rule r { deny "no {" }\n'),
    "a text without its end": ('rule r { deny "no }\n', 'rule r { deny "no" }\n'),
    "a text without its end in a list": (
        'provider openai { serves ["gpt-*] }\n',
        'provider openai { serves ["gpt-*"] }\n',
    ),
    "a text that another one ends": (
        'provider openai { serves ["gpt-*, "o3*"] }\n',
        'provider openai { serves ["gpt-*", "o3*"] }\n',
    ),
    "a text without its end before a block": (
        'rule r when model ~ "gpt-* {\n  priority 2\n}\n',
        'rule r when model ~ "gpt-*" {\n  priority 2\n}\n',
    ),
    "a text without its beginning": ('rule r { deny no" }\n', 'rule r { deny "no" }\n'),
    "else": (
        "rule r when stream { priority 2 } else { priority 1 }\n",
        "rule r when stream { priority 2 } ; rule otherwise { priority 1 }\n",
    ),
    "else on its line": (
        "rule r when stream { priority 2 }\nelse if tools { priority 1 }\n",
        "rule r when stream { priority 2 }\nrule otherwise when tools { priority 1 }\n",
    ),
    "if": ("if stream { priority 2 }\n", "rule first when stream { priority 2 }\n"),
    "if with a comparison": ('if model == "a" { priority 2 }\n', 'rule first when model == "a" { priority 2 }\n'),
    "then": ("rule r when stream then { priority 2 }\n", "rule r when stream { priority 2 }\n"),
    "two statements on a line": (
        "lane default { } team t { }\nagent a { team t }\n",
        "lane default { } ; team t { }\nagent a { team t }\n",
    ),
    "a variable": ("provider openai { key $OPENAI_API_KEY }\n", "provider openai { key env(OPENAI_API_KEY) }\n"),
    "a variable in braces": (
        "provider openai { key ${OPENAI_API_KEY} }\n",
        "provider openai { key env(OPENAI_API_KEY) }\n",
    ),
    "a variable in quotes": (
        'provider openai { key "$OPENAI_API_KEY" }\n',
        "provider openai { key env(OPENAI_API_KEY) }\n",
    ),
    "the name of a variable": (
        "provider openai { key OPENAI_API_KEY }\n",
        "provider openai { key env(OPENAI_API_KEY) }\n",
    ),
    "a sum of tokens": (
        "rule r when tokens.in + tokens.max-out > 5k { priority 2 }\n",
        "rule r when tokens.total > 5k { priority 2 }\n",
    ),
    "the plural of a setting": ("agent ci { tokens env(CI) }\n", "agent ci { token env(CI) }\n"),
    "rpm": ("provider openai { rpm 50 }\n", "provider openai { limits { requests 50/min } }\n"),
    "rpm in limits": ("provider openai { limits { RPM 50 } }\n", "provider openai { limits { requests 50/min } }\n"),
    "itpm": ("provider openai { limits { itpm 50k } }\n", "provider openai { limits { input 50k/min } }\n"),
    "otpm": ("provider openai { otpm 8k/min }\n", "provider openai { limits { output 8k/min } }\n"),
    "a step without its braces": (
        "budget b { cost $5/day; at 80% warn }\n",
        "budget b { cost $5/day; at 80% { warn } }\n",
    ),
    "two settings of a step without its braces": (
        "lane a { }\nbudget b { cost $5/day; at 80% lane a warn }\n",
        "lane a { }\nbudget b { cost $5/day; at 80% { lane a; warn } }\n",
    ),
    "a step of nothing": ("budget b { cost $5/day; at 80% { } }\n", "budget b { cost $5/day; at 80% { warn } }\n"),
    "a model's name": ("rule r when model == gpt-5 { priority 2 }\n", 'rule r when model == "gpt-5" { priority 2 }\n'),
    "a model's beginning": (
        "rule r when model ~ claude { priority 2 }\n",
        'rule r when model ~ "claude*" { priority 2 }\n',
    ),
    "a let that was misspelt": (
        'let cheap = ["gpt-*"]\nrule r when model ~ chaep { priority 2 }\n',
        'let cheap = ["gpt-*"]\nrule r when model ~ cheap { priority 2 }\n',
    ),
    "a bracket that a brace ends": ('provider openai { serves ["gpt-*" }\n', 'provider openai { serves ["gpt-*"] }\n'),
    "and in capitals": (
        "rule r when stream AND tools { priority 2 }\n",
        "rule r when stream and tools { priority 2 }\n",
    ),
    "not in capitals": (
        "rule r when NOT stream { priority 2 }\n",
        "rule r when not stream { priority 2 }\n",
    ),
    "in in capitals": (
        'rule r when model IN ["a"] { priority 2 }\n',
        'rule r when model in ["a"] { priority 2 }\n',
    ),
    "is": (
        "agent ci { }\nrule r when agent is ci { priority 2 }\n",
        "agent ci { }\nrule r when agent == ci { priority 2 }\n",
    ),
    "is not": (
        "agent ci { }\nrule r when agent is not ci { priority 2 }\n",
        "agent ci { }\nrule r when agent != ci { priority 2 }\n",
    ),
    "between": (
        "rule r when tokens.in between 1k and 5k and stream { priority 2 }\n",
        "rule r when tokens.in in 1k..5k and stream { priority 2 }\n",
    ),
    "from to": (
        "rule r when time from 22:00 to 06:30 { priority 2 }\n",
        "rule r when time in 22:00..06:30 { priority 2 }\n",
    ),
    "in a to b": (
        "rule r when hour in 9 to 17 { priority 2 }\n",
        "rule r when hour in 9..17 { priority 2 }\n",
    ),
    "a range of days": (
        "rule r when weekday in 1..Friday { priority 2 }\n",
        "rule r when weekday in 1..5 { priority 2 }\n",
    ),
    "an address without quotes": (
        'rule r when client.address in [10.0.0.0/8, "::1"] { priority 2 }\n',
        'rule r when client.address in ["10.0.0.0/8", "::1"] { priority 2 }\n',
    ),
    "an address and a port": ("server { listen 127.0.0.2:9000 }\n", 'server { listen "127.0.0.2:9000" }\n'),
    "a host and a port": ("server { listen localhost:9000 }\n", 'server { listen "localhost:9000" }\n'),
    "a port behind a colon": ("server { listen :9000 }\n", 'server { listen "127.0.0.1:9000" }\n'),
    "a port": ("server { listen 9000 }\n", 'server { listen "127.0.0.1:9000" }\n'),
    "an arrow": (
        'provider local { api openai; base "http://127.0.0.1:1"; fallback -> anthropic }\n',
        'provider local { api openai; base "http://127.0.0.1:1"; fallback anthropic }\n',
    ),
    "a field in brackets": (
        'rule r when header["x-role"] == "a" { priority 2 }\n',
        'rule r when header.x-role == "a" { priority 2 }\n',
    ),
    "a family of models": (
        "rule r when model ~ opus { priority 2 }\n",
        'rule r when model ~ "*opus*" { priority 2 }\n',
    ),
    "contains": (
        'rule r when model contains "opus" { priority 2 }\n',
        'rule r when model ~ "*opus*" { priority 2 }\n',
    ),
    "starts with": (
        'rule r when model startsWith "opus" { priority 2 }\n',
        'rule r when model ~ "opus*" { priority 2 }\n',
    ),
    "like": (
        'rule r when model like "%opus%" { priority 2 }\n',
        'rule r when model ~ "*opus*" { priority 2 }\n',
    ),
    "a list in parentheses": (
        'rule r when model in ("a", "b") { priority 2 }\n',
        'rule r when model in ["a", "b"] { priority 2 }\n',
    ),
    "nothing": (
        "rule r when model == null { priority 2 }\n",
        'rule r when model == "" { priority 2 }\n',
    ),
    "a date without quotes": (
        "rule r when date == 2026-12-25 { priority 2 }\n",
        'rule r when date == "2026-12-25" { priority 2 }\n',
    ),
    "a date of single digits": (
        "rule r when date in [2026-1-1] { priority 2 }\n",
        'rule r when date in ["2026-01-01"] { priority 2 }\n',
    ),
    "a time of one digit": (
        "rule r when time in 6:5..7:00 { priority 2 }\n",
        "rule r when time in 06:05..7:00 { priority 2 }\n",
    ),
    "an hour for a time": (
        "rule r when time >= 8 { priority 2 }\n",
        "rule r when time >= 08:00 { priority 2 }\n",
    ),
    "a date in another order": (
        'rule r when date == "25.12.2026" { priority 2 }\n',
        'rule r when date == "2026-12-25" { priority 2 }\n',
    ),
    "a day of the week": (
        "rule r when weekday == friday { priority 2 }\n",
        "rule r when weekday == 5 { priority 2 }\n",
    ),
    "two keys": (
        "provider openai { key env(A), env(B) }\n",
        "provider openai { key env(A) }\n",
    ),
    "two tokens": (
        "agent ci { token env(A), env(B) }\n",
        "agent ci { token [env(A), env(B)] }\n",
    ),
    "a variable behind a colon": (
        "provider openai { key env:A }\n",
        "provider openai { key env(A) }\n",
    ),
    "a variable behind a dot": (
        "provider openai { key env.A }\n",
        "provider openai { key env(A) }\n",
    ),
    "a variable in quotes and parentheses": (
        'provider openai { key env("A") }\n',
        "provider openai { key env(A) }\n",
    ),
    "a path without quotes in parentheses": (
        "provider openai { key file(secrets) }\n",
        'provider openai { key file("secrets") }\n',
    ),
    "a dollar sign behind": (
        "budget b { cost 5$/day }\n",
        "budget b { cost $5/day }\n",
    ),
    "an amount without a window": (
        "budget b { cost $5 }\n",
        "budget b { cost $5/day }\n",
    ),
    "a window in words": (
        "budget b { cost $5 per minute }\n",
        "budget b { cost $5/min }\n",
    ),
    "a unit behind a blank": (
        "lane default { deadline 30 seconds }\n",
        "lane default { deadline 30s }\n",
    ),
    "a size with a blank": (
        "server { max-body 32 MiB }\n",
        "server { max-body 32MiB }\n",
    ),
    "a short name of a price's side": (
        'model "x*" { price in $3/Mtok output $5/Mtok }\n',
        'model "x*" { price input $3/Mtok output $5/Mtok }\n',
    ),
    "a short name of a price's other side": (
        'model "x*" { price input $3/Mtok out $5/Mtok }\n',
        'model "x*" { price input $3/Mtok output $5/Mtok }\n',
    ),
    "another quote before a text with quotes in it": (
        'rule r { deny \'no \\"such\\" day" }\n',
        'rule r { deny "no \\"such\\" day" }\n',
    ),
    "a name in quotes": (
        'lane a { }\nrule r { lane "a" }\n',
        "lane a { }\nrule r { lane a }\n",
    ),
    "a list without a comma": ("server { identify [url user] }\n", "server { identify [url, user] }\n"),
}


@pytest.mark.parametrize(("text", "after"), MENDED.values(), ids=MENDED)
def test_a_slip_carries_the_edit_that_mends_it(text: str, after: str) -> None:
    found = next(one for one in checked(ANTHROPIC + text).diagnostics if one.replacement is not None)

    result = mended(ANTHROPIC + text, found).removeprefix(ANTHROPIC)

    assert "".join(result.split()) == "".join(after.split())
    assert_it_mends(ANTHROPIC + text, found)


SAID = {
    "the let that is missing": (
        "rule r when model ~ cheap { priority 2 }\n",
        "no `let` is named `cheap`",
        'let cheap = ["claude-haiku-*"]',
    ),
    "an agent that is missing": ("rule r when agent == bot { priority 2 }\n", "unknown agent `bot`", "agent bot { }"),
    "a lane that is missing": ("rule r { lane bacth }\n", "unknown lane `bacth`", "lane bacth { }"),
    "a provider that is missing": (
        "rule r { provider lab }\n",
        "unknown provider `lab`",
        'provider lab { api anthropic; base "https://llm.internal.example" }',
    ),
}


@pytest.mark.parametrize(("text", "message", "declaration"), SAID.values(), ids=SAID)
def test_a_declaration_that_a_help_names_mends_the_file(text: str, message: str, declaration: str) -> None:
    (found,) = errors(checked(ANTHROPIC + text))

    assert found.message == message
    assert f"`{declaration}`" in found.help
    assert errors(checked(ANTHROPIC + text + declaration + "\n")) == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("cost $5/day per team", "`cost` takes no `per`"),
        ("requests 50/day per team", "`requests` takes no `per`"),
        ("cost $5/day; per team", "`budget` has no setting `per`"),
    ],
)
def test_a_partition_in_the_block_of_a_budget_is_sent_before_it(body: str, message: str) -> None:
    (found,) = errors(checked(f"{ANTHROPIC}budget b {{ {body} }}\n"))

    assert found.message == message
    assert "`budget NAME per team { ... }`" in found.help
    assert errors(checked(f"{ANTHROPIC}budget b per team {{ {body.partition(' per')[0].rstrip(';')} }}\n")) == []


@pytest.mark.parametrize("word", ["xor", "unless", "where"])
def test_a_word_that_begins_no_declaration_gets_no_separator(word: str) -> None:
    found = errors(checked(f"{ANTHROPIC}rule r when stream {word} tools {{ priority 2 }}\n"))

    assert [one.code for one in found] == ["HM003"]
    assert found[0].replacement is None
    assert ";" not in found[0].help


def test_an_invisible_character_is_named() -> None:
    (found,) = checked("provider\N{NO-BREAK SPACE}anthropic { }\n").diagnostics

    assert found.message == "a no-break space (U+00A0) is not in the language"


def test_every_slip_of_a_statement_is_reported_and_hides_nothing() -> None:
    text = "lane a { }\nrule r when stream && tools || images { lane b, priority -1 }\n" + ANTHROPIC

    assert [(one.code, text[one.span.start : one.span.end]) for one in checked(text).diagnostics] == [
        ("HM308", "a"),
        ("HM001", "&&"),
        ("HM001", "||"),
        ("HM107", "b"),
        ("HM003", ","),
        ("HM001", "-1"),
    ]


# ---- every finding with an edit ----


def offered(text: str) -> Iterator[Diagnostic]:
    return (one for one in checked(text).diagnostics if one.replacement is not None)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.hmp")), ids=lambda path: path.stem)
def test_every_edit_of_a_golden_file_mends_it(path: Path) -> None:
    if not path.is_file():
        return
    text = path.read_text(encoding="utf-8")

    for found in offered(text):
        assert_it_mends(text, found)


SLIPS = (
    (" and ", " && "),
    (" or ", "||"),
    ("not ", "!"),
    (" == ", " = "),
    (" == ", "==="),
    (" {", ": {"),
    ("; ", ", "),
    ('"', "'"),
    ('"', ""),
    (" ", "\N{NO-BREAK SPACE}"),
    ("\n", "\n// why\n"),
    ("\n", ",\n"),
    ("]", ""),
    ("}\n", "\n"),
    ("lane ", "laen "),
    ("priority ", "priority -"),
    (" { ", " = { "),
    ("env(", "$"),
    ("..", "-"),
    (", ", " "),
    ("\n", " "),
    ("limits ", "rpm 5; limits "),
    ("rule ", "else "),
    (" ~ ", " =~ "),
    (" in ", " < 3 < "),
    ("model ", "moodel "),
    ("provider ", "provider: "),
)


@st.composite
def broken(draw: st.DrawFn) -> str:
    """A policy without errors, some of its words written as in other languages."""
    policy: Drawn = draw(drawn_policies())
    text = policy.text
    for old, new in draw(st.lists(st.sampled_from(SLIPS), min_size=1, max_size=2)):
        places = [at for at in range(len(text)) if text.startswith(old, at)]
        if old == '"':
            # Without its first quote a text with escapes or options is as many mistakes as it has words and escapes.
            lines = {at: text[:at].rpartition("\n")[2] + text[at:].partition("\n")[0] for at in places}
            places = [at for at, line in lines.items() if "\\" not in line and " -" not in line]
        if places:
            at = draw(st.sampled_from(places))
            text = text[:at] + new + text[at + len(old) :]
    return text


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(broken())
def test_every_edit_of_a_broken_policy_mends_it(text: str) -> None:
    for found in list(offered(text))[:6]:
        assert_it_mends(text, found)


GARBAGE = ("^", "? ?", "^ =", "@ @ 4", "\\")


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn_policies(), st.data())
def test_a_statement_that_cannot_be_read_makes_no_other_finding(policy: Drawn, data: st.DataObject) -> None:
    pieces = [one for one in lexemes(policy.text, 0) if one.type not in ("WS", "_NL", "COMMENT")]
    before = {(one.code, one.message) for one in checked(policy.text).diagnostics}
    assume(not errors(checked(policy.text)))
    text = policy.text
    at = data.draw(st.sampled_from([one.span.start for one in pieces]))
    garbage = data.draw(st.sampled_from(GARBAGE))
    text = f"{text[:at]} {garbage} {text[at:]}"

    for one in checked(text).diagnostics:
        assert one.code.startswith("HM00") or (one.code, one.message) in before, (text, one)


HIDDEN = {
    "a name declared in what is damaged": "lane a ^ { }\nrule r { lane a }\n",
    "a name used in what is damaged": "lane a { }\nrule r when ^ { lane a }\n",
    "an agent compared with": "agent a ^ { }\nrule r when agent == a { priority 2 }\n",
    "a required setting": "provider lab { api vllm; base ^ }\n",
    "a token": 'server { listen "0.0.0.0:1" }\nagent a { token ^ }\n',
    "a step": "budget b { cost $5/day; at 80% { ^ } }\n",
    "what is expected": 'test "t" { given { hour 3 }; expect ^ }\n',
    "an include": 'include ^ "lanes.hmp"\nrule r { lane a }\n',
    "a let": "let a = ^\nrule r when model ~ a { priority 2 }\n",
    "a block that nothing closes": "lane b { weight 2\n  lane a { }\nrule r { lane a }\nagent x { lane b }\n",
}


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
def test_what_could_not_be_read_may_settle_what_is_missing(text: str) -> None:
    codes = {one.code for one in checked(ANTHROPIC + text).diagnostics}

    assert codes & {"HM001", "HM003", "HM004"}
    assert not codes & {"HM106", "HM107", "HM112", "HM212", "HM213", "HM214", "HM307", "HM308", "HM502", "HM601"}


def test_a_syntax_error_hides_no_undefined_name_and_no_unused_lane() -> None:
    text = "lane unused { }\nlane broken ^ { }\nrule r { lane nosuch }\nrule s when agent == nobody { lane broken }\n"

    found = [(one.code, one.message) for one in checked(ANTHROPIC + text).diagnostics]

    assert ("HM308", "lane `unused` is never used") in found
    assert ("HM107", "unknown lane `nosuch`") in found
    assert ("HM214", "unknown agent `nobody`") in found
    assert "HM001" in [code for code, _ in found]


def test_an_allow_in_a_policy_with_errors_is_not_said_to_be_of_no_use() -> None:
    text = "rule a { priority 1 }\nrule b { priority 1 }  # hmp: allow HM305 why\n"

    assert checked(ANTHROPIC + text).diagnostics == ()
    assert [one.code for one in checked(ANTHROPIC + text + "rule c { priority ^ }\n").diagnostics] == ["HM001"]


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "hmp 1\n", "\N{ZERO WIDTH NO-BREAK SPACE}"])
def test_an_empty_policy_is_an_error_that_says_what_to_write(text: str) -> None:
    (found,) = checked(text).diagnostics

    assert (found.code, found.severity) == ("HM307", Severity.ERROR)
    assert errors(checked(text + "provider anthropic { }\n")) == []
    assert errors(checked(mended(text.lstrip("\N{ZERO WIDTH NO-BREAK SPACE}"), found))) == []


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    with_mark, without = (
        check("team.hmp", MemoryFiles({"team.hmp": mark + b"rule r { lane a }\nprovider anthropic { }\n"}))
        for mark in (b"\xef\xbb\xbf", b"")
    )

    assert with_mark.diagnostics == without.diagnostics
    assert with_mark.sources == without.sources
