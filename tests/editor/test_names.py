"""Where names stand, and how they are changed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.editor import RenameError, Symbol, occurrence_at, occurrences, rename
from hivemind_trio.policy import Checked, MemoryFiles, applied, check
from tests.policy.drawn import Drawn
from tests.policy.drawn import policies as drawn_policies

FOLDER: Final = Path(__file__).parents[2] / "policies"
FILES: Final = {path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.hmp")}


def checked(text: str, **files: str) -> Checked:
    return check("team.hmp", MemoryFiles({"team.hmp": text, **{f"{name}.hmp": one for name, one in files.items()}}))


def named(policy: Checked) -> list[str]:
    """`kind name` of each place in order, a declaration with a `+`."""
    return [f"{'+' * one.declares}{one.symbol.kind} {one.symbol.name}" for one in occurrences(policy)]


def assert_all_uses_are_found(policy: Checked) -> None:
    found = occurrences(policy)
    used = {(one.symbol.kind, one.symbol.name) for one in found if not one.declares}
    for kind, name in policy.declarations.reader.used:
        assert (kind, name) in used, f"{kind} {name} is used, and not found"
    for one in found:
        assert policy.sources[one.span.source].text[one.span.start : one.span.end] == one.symbol.name


@pytest.mark.parametrize("name", FILES)
def test_every_use_that_the_checker_sees_is_found_in(name: str) -> None:
    assert_all_uses_are_found(check(name, MemoryFiles(FILES)))


@pytest.mark.slow
@settings(max_examples=12)
@given(drawn_policies(), st.data())
def test_a_policy_means_the_same_with_a_name_changed_and_changed_back(drawn: Drawn, data: st.DataObject) -> None:
    before = check("team.hmp", drawn.files)
    assert_all_uses_are_found(before)
    symbols = [
        one.symbol for one in occurrences(before) if one.declares and one.symbol.kind not in ("provider", "retry")
    ]
    symbol = data.draw(st.sampled_from([one for one in symbols if one.name != "default"]))

    text = applied(drawn.text, rename(before, symbol, "quite-new", drawn.files))
    after = checked(text)

    assert (after.program is None) == (before.program is None)
    assert [one.code for one in after.diagnostics] == [one.code for one in before.diagnostics]
    back = rename(after, Symbol(symbol.kind, "quite-new"), symbol.name, MemoryFiles({"team.hmp": text}))
    assert applied(text, back) == drawn.text


PLACES: Final = {
    "settings": (
        "defaults agent { lane a }\nlane a { }\nagent x { team t; lane a }\nagent y extends x { }\nteam t { }\n",
        "lane a|+lane a|+agent x|team t|lane a|+agent y|agent x|+team t",
    ),
    "options and blocks": (
        'model "m" on p { }\nprovider p { retry r; fallback p }\nretry r { }\n'
        "budget b { cost $1/day; at 80% { lane a } }\n",
        "provider p|+provider p|retry r|provider p|+retry r|+budget b|lane a",
    ),
    "conditions": (
        "agent a { }\nrule r when agent == a or not (team in [t, none] and provider != p) { }\n",
        "+agent a|+rule r|agent a|team t|team none|provider p",
    ),
    "lets": (
        "let a = [b, c]\nlet d = agent in a and e\nlet e = stream\nagent b { }\n"
        "rule r when d or agent == f { }\nlet f = b\n",
        "+let a|agent b|agent c|+let d|let a|let e|+let e|+agent b|+rule r|let d|let f|+let f|agent b",
    ),
    "a let and an agent of one name": (
        "let b = a\nagent a { }\nagent b { }\nrule r when agent == b or agent in [b] { }\n",
        "+let b|agent a|+agent a|+agent b|+rule r|agent b|let b",
    ),
    "values": (
        'let big = 5s\nlet m = "x"\nlane a { deadline big }\nprovider p { serves [m, "y"]; key env(big) }\n',
        "+let big|+let m|+lane a|let big|+provider p|let m",
    ),
    "tests": (
        'test "t" { given { agent a }; load l { agent a }; upstream p { }; expect lane == b and l.wait.p95 < 1s and '
        "p.breaker.opened == 0 and w.spent < $1 and p.status-429 == 0 }\n"
        "provider p { }\nbudget w { }\nlane l { }\n",
        "agent a|+load l|agent a|provider p|lane b|load l|provider p|budget w|provider p|+provider p|+budget w|+lane l",
    ),
    "accounts": (
        "provider p { account a { key env(A) }; account b { key env(B); shares a } }\n"
        'test "t" { upstream p.a { }; expect account.b and not p.a.concurrency.max > 3 }\n',
        "+provider p|+account a|+account b|account a|provider p|account a|account b|provider p|account a",
    ),
    "what is wrong around it": (
        "lane a { wieght 2 }\nrule r when agent = 5 { lane a; lane a }\nrule s { lane a",
        "+lane a|+rule r|lane a|lane a|+rule s|lane a",
    ),
}


@pytest.mark.parametrize(("text", "found"), PLACES.values(), ids=PLACES)
def test_names_stand_in(text: str, found: str) -> None:
    assert "|".join(named(checked(text))) == found


def test_a_name_is_found_over_files() -> None:
    policy = checked('include "lanes.hmp"\nprovider anthropic { }\nrule r { lane a }\n', lanes="lane a { }\n")

    (use, declared) = [one for one in occurrences(policy) if one.symbol == Symbol("lane", "a")]
    assert (use.span.source, declared.span.source) == (0, 1)
    assert occurrence_at(occurrences(policy), 0, policy.sources[0].text.index("a }") + 1) == use
    assert occurrence_at(occurrences(policy), 1, 0) is None


REFUSED: Final = {
    "no name": ("lane a { }", Symbol("lane", "a"), "b c", "is no name"),
    "a reserved one": ("agent a { }", Symbol("agent", "a"), "unknown", "is a reserved agent name"),
    "another of its kind": ("lane a { }\nlane b { }", Symbol("lane", "a"), "b", "declared twice"),
    "a keyword": ("lane a { }", Symbol("lane", "a"), "when", "there would be an error"),
    "what says its api": ("provider openai { }", Symbol("provider", "openai"), "mine", "has no `api`"),
    "a field": ("let a = 5", Symbol("let", "a"), "model", "is the name of a field"),
    "declared nowhere": ("rule r { lane a }", Symbol("lane", "a"), "b", "declared nowhere"),
    "what stands for something else": (
        "let a = ci\nagent ci { }\nagent b { }\nrule r when agent in [b, a] { }",
        Symbol("let", "a"), "b", "means something else",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "symbol", "name", "why"), REFUSED.values(), ids=REFUSED)
def test_a_name_is_not_changed_to(text: str, symbol: Symbol, name: str, why: str) -> None:
    with pytest.raises(RenameError, match=why):
        rename(checked(text), symbol, name, MemoryFiles({"team.hmp": text}))
