"""What is proposed where."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hivemind_trio.editor import Role, complete, occurrences, roles
from hivemind_trio.editor.cursor_context import last_block_end, spots
from hivemind_trio.policy import Lexeme, MemoryFiles, check, lexemes
from tests.policy.drawn import Drawn
from tests.policy.drawn import policies as drawn_policies
from tests.policy.syntax.test_lexer import TEXTS

FOLDER: Final = Path(__file__).parents[2] / "policies"
FILES: Final = {path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.hmp")}

BASE: Final = (
    'provider anthropic { concurrency 2..8 }\nlane people { }\nlane batch { }\nteam t { }\nlet cheap = ["x"]\n'
    "agent ci { team t; lane batch; token env(T) }\nrule r when model ~ cheap { lane people }\n"
)


def proposed(typed: str) -> list[str]:
    """Of a text whose `|` is the cursor, after some declarations."""
    before, _, after = typed.partition("|")
    text = BASE + before + after
    policy = check("team.hmp", MemoryFiles({"team.hmp": text}))
    return [one.text for one in complete(text, len(BASE + before), policy).proposals]


WHOLE: Final = {
    "names of its kind": ("rule q { lane |", ["people", "batch"]),
    "names of agents": ("rule q when agent == |", ["ci", "unknown", "cheap"]),
    "settings of an account": ("provider p { account a { |", ["key", "for", "shares", "concurrency", "limits"]),
    "accounts to share": ("provider p { account a { }; account b { }; account c { shares | } }", ["a", "b", "cheap"]),
    "lanes of an account": ("provider p { account a { for |", ["people", "batch"]),
    "names in a list": ("rule q when team in [t, |", ["t", "none", "cheap"]),
    "parents": ("agent b extends |", ["ci"]),
    "choices": ("lane x { queue 5 overflow |", ["deny", "shed-oldest"]),
    "kinds of defaults": ("defaults |", ["provider", "agent", "lane", "budget"]),
    "options that are left": ("provider p { aimd increase 1 decrease 5% |", ["cooldown", "slow", "first-byte"]),
    "failures": ("retry q { on [429, |", ["connect", "reset", "first-byte", "timeout", "idle", "cheap"]),
    "operators": ("rule q when model |", ["in", "not", "and", "or"]),
    "joints": ("rule q when model == \"x\" |", ["and", "or"]),
    "joints after a flag": ("rule q when stream |", ["and", "or"]),
    "steps of a budget": ("budget b { at 80% { |", ["warn", "lane", "priority", "model", "hold", "deny"]),
    "statements of a test": ('test "x" { |', ["given", "load", "upstream", "fault", "run", "expect"]),
    "subjects of a fault": ('test "x" { fault |', ["store", "node", "link"]),
    "times of a fault of the store": ('test "x" { fault store |', ["from", "to"]),
    "times of a fault of a node": ('test "x" { fault node 2 from 5m |', ["from", "to"]),
    "options of a run": ('test "x" { run 5m |', ["seed", "nodes"]),
    "the other option of a run": ('test "x" { run 5m nodes 2 |', ["seed"]),
    "behaviour of an upstream": ('test "x" { upstream anthropic { |', ["latency", "fail"]),
    "values of a flag": ('test "x" { given { stream |', ["true", "false"]),
    "nothing for a new name": ("lane |", []),
    "nothing in a text": ('rule q { deny "la|', []),
    "nothing in a comment": ("# la|", []),
    "nothing in a number": ("lane x { weight 5|", []),
    "nothing for an unknown setting": ("lane x { wieght |", []),
    "nothing in a secret's brackets": ("provider p { key env(|", []),
}  # fmt: skip


@pytest.mark.parametrize(("typed", "all_of_it"), WHOLE.values(), ids=WHOLE)
def test_exactly_this_is_proposed(typed: str, all_of_it: list[str]) -> None:
    assert proposed(typed) == all_of_it


AMONG: Final = {
    "declarations": ("|", {"provider", "rule", "let", "include"}, {"weight", "when"}),
    "settings": ("lane x { |", {"weight", "deadline"}, {"concurrency", "provider"}),
    "settings of a block": ('provider p { limits "x" { |', {"requests", "headroom"}, {"timeout"}),
    "settings of defaults": ("defaults lane { |", {"weight"}, {"concurrency"}),
    "fields": ("rule q when |", {"agent", "tokens.in", "header.", "not", "cheap"}, {"lane", "admitted"}),
    "fields after a joint": ("rule q when stream and |", {"agent", "model"}, {"and"}),
    "fields of who calls": ("agent b when |", {"model", "header."}, {"agent", "team", "provider"}),
    "outcomes": ('test "x" { expect |', {"lane", "denied", "agent"}, {"weight"}),
    "fields of a team": ("team b when |", {"model", "header.", "agent"}, {"team", "provider", "plan.week"}),
    "names of outcomes": (
        'provider x { account one { key env(A) } }\nbudget day { cost $1/day }\nrule t { tag big }\n'
        'test "x" { expect |', {"account.one", "budget.day", "tag.big"}, set(),
    ),
    "accounts of an upstream": (
        'provider x { account one { key env(A) } }\ntest "x" { upstream |', {"x", "x.one"}, {"one"},
    ),
    "a default": ("lane x { weight |", {"1"}, set()),
    "a default of options": ("provider p { reaper |", {"idle", "first-byte 4x idle 10x"}, set()),
    "secrets": ("provider p { key |", {"env(NAME)", 'file("path")'}, set()),
    "when": ("rule q |", {"when"}, {"lane"}),
    "extends, was and when": ("agent b |", {"extends", "was", "when"}, set()),
    "extends behind was": ("agent b was a |", {"extends", "when"}, {"was"}),
    "between other lines": ("lane x {\n  |\n  weight 2\n}\nlane y { }\n", {"deadline"}, {"provider"}),
    "within a word": ("lane x { dead|line 5s }", {"deadline"}, set()),
    "behind an option": ("provider p { concurrency 2..8 |", {"start"}, {"8"}),
}  # fmt: skip


@pytest.mark.parametrize(("typed", "there", "not_there"), AMONG.values(), ids=AMONG)
def test_this_is_proposed_among_others(typed: str, there: set[str], not_there: set[str]) -> None:
    found = set(proposed(typed))

    assert there <= found
    assert not not_there & found


def test_the_whole_word_is_replaced() -> None:
    text = BASE + "lane x { dead-lime 5s }"
    start = text.index("dead-lime")
    completion = complete(text, start + 4, check("team.hmp", MemoryFiles({"team.hmp": text})))

    assert text[completion.start : completion.end] == "dead-lime"


def assert_words_are_proposed_where_they_stand(name: str, files: MemoryFiles) -> None:
    policy = check(name, files)
    text = policy.sources[0].text
    references = {one.span.start for one in occurrences(policy) if one.span.source == 0 and not one.declares}
    for piece, role in roles(text):
        known = role in (Role.DECLARATION, Role.SETTING, Role.OPTION) or (
            role is Role.FIELD and piece.text[:6] != "header"
        )
        if (known and not piece.text.startswith("meta.")) or (piece.span.start in references and "." not in piece.text):
            for typed in (0, 1):  # before its first letter, and behind it
                found = [one.text for one in complete(text, piece.span.start + typed, policy).proposals]
                assert piece.text in found, text[: piece.span.start] + "|"


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_word_of_a_shipped_policy_would_have_been_proposed(name: str) -> None:
    assert_words_are_proposed_where_they_stand(name, MemoryFiles(FILES))


@pytest.mark.slow
@settings(max_examples=3)
@given(drawn_policies())
def test_every_word_of_any_policy_would_have_been_proposed(drawn: Drawn) -> None:
    assert_words_are_proposed_where_they_stand("team.hmp", drawn.files)


@settings(max_examples=40)
@given(TEXTS, st.integers(0, 60))
def test_any_text_can_be_completed_anywhere(text: str, offset: int) -> None:
    offset = min(offset, len(text))
    policy = check("team.hmp", MemoryFiles({"team.hmp": ""}))

    completion = complete(text, offset, policy)

    assert completion.start <= offset <= completion.end <= len(text)
    assert not set(text[completion.start : completion.end]) & set(' \t\n"#{}')


BRACES: Final = st.lists(st.sampled_from(["{", "}", "\n", '"', "#", "[ when", "lane"]), max_size=12).map(" ".join)


@settings(max_examples=300)
@given(BRACES)
@example("} { { }")
@example('{ "}"')
@example("{ # }")
def test_nothing_before_the_last_whole_block_matters_behind_it(text: str) -> None:
    def last(begun: str) -> list[list[str]] | None:
        pieces = lexemes(begun, 0)
        if pieces[-1].text != "x":
            return None  # within a text or a comment
        *_, (_, spot) = spots(pieces)
        heads: list[list[Lexeme]] = [*map(list, spot.path), spot.before]
        return [[piece.text for piece in head] for head in heads]

    assert last(text[last_block_end(text, len(text)) :] + " x") == last(text + " x")


def test_a_block_that_is_whole_is_not_divided_into_words_again() -> None:
    before = 'rule "a {" when tokens > 5 { lane x } # {\nprovider p { account a { } }\n'

    assert last_block_end(before + "rule r { lane ", len(before) + 14) == len(before) - 1
