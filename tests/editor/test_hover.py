"""What a word means, beside it; the outline; and who decides what a test expects."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from hivemind_trio.editor import Role, hints, hover, occurrences, outline, roles
from hivemind_trio.editor.field_descriptions import FIELDS, OUTCOMES, TESTS, WORDS
from hivemind_trio.policy import (
    FAULTS,
    RUN_OPTIONS,
    TEST_STATEMENTS,
    Checked,
    Lexeme,
    MemoryFiles,
    Span,
    check,
    lexemes,
    outcome_fields,
    request_fields,
)
from hivemind_trio.policy.schema import LINKS

FOLDER: Final = Path(__file__).parents[2] / "policies"
FILES: Final = {path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.hmp")}
EXPLAINED: Final = (Role.DECLARATION, Role.DECLARED, Role.SETTING, Role.OPTION, Role.FIELD, Role.FUNCTION, Role.LOGIC)


def checked(text: str) -> Checked:
    return check("team.hmp", MemoryFiles({"team.hmp": text}))


def said(marked: str) -> str:
    """Of the word that the `|` stands in."""
    offset, text = marked.index("|"), marked.replace("|", "")
    policy = checked(text)
    found = hover(policy, 0, offset, occurrences(policy))
    return found[1] if found is not None else ""


def test_the_texts_are_about_what_there_is() -> None:
    names: dict[str, list[str]] = {kind: [] for kind in ("agent", "team", "provider", "lane", "retry", "budget")}

    assert set(FIELDS) == set(request_fields([], [], []))
    assert set(OUTCOMES) == set(outcome_fields(names))
    assert set(TESTS) == set(TEST_STATEMENTS)
    for word in set(WORDS) - set(LINKS):
        (piece,) = lexemes(word, 0)
        assert piece.type != "NAME"


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_word_with_a_meaning_is_explained_in(name: str) -> None:
    policy = check(name, MemoryFiles(FILES))
    names, text = occurrences(policy), policy.sources[0].text
    words = [piece for piece, role in roles(text) if role in EXPLAINED]
    for piece in words[::3]:
        if piece.text not in ("any", "latency", "fail", "from", "to", *FAULTS, *RUN_OPTIONS):
            found = hover(policy, 0, piece.span.start, names)
            assert found is not None, f"{piece.text} at {piece.span.start}"
            assert found[0].start == piece.span.start


SAID: Final = {
    "a setting": ("lane a { wei|ght 2 }", ["`weight` a count", "Share of the slots", "Default: `1`"]),
    "of a block": ('provider p { limits "x" { head|room 2% } }', ["`headroom` a ratio"]),
    "an option": ("provider p { timeout con|nect 5s }", ["`connect` a duration", "of `timeout`"]),
    "an option of a declaration": ('model "m" o|n p { }', ["`on` the name of a provider", "of `model`"]),
    "a declaration": ("|lane a { }", ["A queue with its share"]),
    "a field": ("rule r when tokens.|in > 2 { }", ["as estimated"]),
    "a header": ("rule r when header.x|-a != \"\" { }", ["a request header"]),
    "a word": ("rule r wh|en stream { }", ["The condition"]),
    "an outcome": ('test "t" { expect de|nied }', ["denies the call"]),
    "a secret": ("agent a { token en|v(A) }", ["a secret from a variable"]),
    "a name": (
        "lane a {\n  weight 2\n}\nrule r { lane |a }\nrule s { lane a }",
        ["```hmp\nlane a {\n  weight 2\n}\n```", "Named 2 times"],
    ),
    "a let": ("let big = 5k\nrule r when tokens.in > b|ig { }", ["let big = 5k", "Named 1 time."]),
}  # fmt: skip


@pytest.mark.parametrize(("marked", "parts"), SAID.values(), ids=SAID)
def test_what_is_said_of(marked: str, parts: list[str]) -> None:
    found = said(marked)

    assert all(part in found for part in parts), found


@pytest.mark.parametrize(
    "marked", ["lane a { weight |2 }", "# la|ne", "lane a { wei|ght2 2 }", 'rule r { deny "la|ne" }', "|"]
)
def test_nothing_is_said_of_what_means_nothing(marked: str) -> None:
    assert said(marked) == ""


def test_only_the_statement_at_the_place_is_divided_into_words(monkeypatch: pytest.MonkeyPatch) -> None:
    divided: list[int] = []

    def counted(text: str, source: int) -> list[Lexeme]:
        divided.append(len(text))
        return lexemes(text, source)

    monkeypatch.setattr("hivemind_trio.editor.hover_text.lexemes", counted)
    rules = "".join(f"rule r{n} when stream {{ priority 2 }}\n" for n in range(100))
    text = f"provider anthropic {{ }}\nlane a {{ }}\n{rules}rule last when tools {{ lane a }}\n"
    policy, at = checked(text), text.rindex("lane a")

    assert hover(policy, 0, at, occurrences(policy)) == (Span(0, at, at + 4), said("rule r { la|ne default }"))
    assert hover(policy, 0, at + 5, occurrences(policy)) == (
        Span(0, at + 5, at + 6), "```hmp\nlane a { }\n```\nNamed 1 time.",
    )  # fmt: skip
    assert max(divided) < 100


def test_a_key_is_not_shown() -> None:
    key = "sk-ant-api03-" + "A" * 40

    assert key not in said(f'provider p {{ key "{key}" }}\nrule r {{ provider |p }}')


def test_a_long_declaration_is_cut() -> None:
    lines = "\n".join(f'  limits "m{number}" {{ concurrency 1 }}' for number in range(40))

    found = said(f"provider anthropic {{\n{lines}\n}}\nrule r {{ provider |anthropic }}")

    assert "m5" in found
    assert "m35" not in found
    assert "..." in found


def test_an_outline_has_every_declaration_that_can_be_read() -> None:
    text = (
        'hmp 1\nserver { }\nlane a { }\nlane\nlet b = 5\nagent c when stream\n  and tools { }\nmodel "m*" { }\nrule {'
    )
    found = list(outline(checked(text), 0))

    assert [(one.kind, one.name) for one in found] == [
        ("server", "server"), ("lane", "a"), ("lane", "lane"), ("let", "b"), ("agent", "c"), ("model", "m*"),
        ("rule", "rule"),
    ]  # fmt: skip
    assert found[4].detail == "agent when stream and tools"
    for one in found:
        assert one.span.start <= one.name_span.start < one.name_span.end <= one.span.end


POLICY: Final = (
    "provider anthropic { }\nlane a { priority 3 }\nagent ci { token env(T); lane a }\nrule r when tools { deny }\n"
)


@pytest.mark.parametrize(
    ("test", "hint"),
    [
        ("given { agent ci }; expect lane == a", ["  lane: agent ci (team.hmp:3)"]),
        (
            "given { agent ci }; expect priority == 3 and admitted",
            ["  priority: lane a (team.hmp:2), verdict: built-in"],
        ),
        ("given { tools true }; expect denied; expect not admitted", ["  verdict: rule r (team.hmp:4)"] * 2),
        ("given { hour 14; model \"m\"; tokens.in 12k }; expect model == \"m\"", []),
        ("given any; expect denied or admitted", []),
        ("load w { arrive 60/min }; run 5m; expect w.failed <= 1%", []),
    ],
)  # fmt: skip
def test_who_decides_stands_behind_what_is_expected(test: str, hint: list[str]) -> None:
    policy = check("dir/team.hmp", MemoryFiles({"dir/team.hmp": POLICY + f'test "t" {{ {test} }}\n'}))
    text = policy.sources[0].text

    assert policy.program is not None
    found = list(hints(policy, 0))
    assert [shown for _, shown in found] == hint
    assert all(text[:offset].rpartition("expect")[2].strip() for offset, _ in found)
    assert list(hints(checked("lane a {"), 0)) == []
