"""Globs, held against the plainest matcher there is."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Request, Verdict
from hivemind_trio.policy import MemoryFiles, check
from hivemind_trio.policy.language.condition_eval import field_values, holds
from hivemind_trio.policy.language.globs import (
    any_matcher,
    is_glob,
    matcher,
    most_specific,
    overlap,
    pattern,
    specificity,
)

# Few letters, so that something matches; those that mean something in a regular expression, and a line end.
LETTERS = "ab*?.\n[]^$\\-é"
TEXTS = st.text(st.sampled_from(LETTERS), max_size=8)
GLOBS = st.text(st.sampled_from("ab.\n[\\é" + "*?" * 3), max_size=8)
ANY = st.one_of(GLOBS, st.text(max_size=6))


def naive(glob: str, text: str) -> bool:
    """By definition, in exponential time."""
    if not glob:
        return not text
    if glob[0] == "*":
        return any(naive(glob[1:], text[skipped:]) for skipped in range(len(text) + 1))
    return bool(text) and glob[0] in ("?", text[0]) and naive(glob[1:], text[1:])


# ---- a glob ----


@given(glob=ANY, text=st.one_of(TEXTS, st.text(max_size=6)))
def test_a_glob_matches_what_the_definition_says(glob: str, text: str) -> None:
    wanted = naive(glob, text)

    assert matcher(glob)(text) is wanted
    assert (re.fullmatch(pattern(glob), text) is not None) is wanted


def test_every_short_glob_over_every_short_text() -> None:
    texts = ["".join(letters) for size in range(5) for letters in product("ab", repeat=size)]

    for size in range(5):
        for letters in product("ab?*", repeat=size):
            glob = "".join(letters)
            match, full = matcher(glob), re.compile(pattern(glob)).fullmatch
            for text in texts:
                wanted = naive(glob, text)
                assert match(text) is wanted, (glob, text)
                assert (full(text) is not None) is wanted, (glob, text)


@given(glob=GLOBS, data=st.data())
def test_a_glob_matches_what_is_made_of_it(glob: str, data: st.DataObject) -> None:
    drawn = {"*": st.text(max_size=4), "?": st.characters()}
    text = "".join(data.draw(drawn.get(letter, st.just(letter))) for letter in glob)

    assert matcher(glob)(text)


MATCHES = {
    "a whole text": ("gpt-5", ["gpt-5"], ["gpt-5o", "xgpt-5", "GPT-5", "gpt-", ""]),
    "a star at the end": ("claude-*", ["claude-", "claude-haiku-4", "claude-\n"], ["claude", "Claude-x", "x-claude-"]),
    "a star at the beginning": ("*-mini", ["-mini", "gpt-5-mini"], ["gpt-5-mini-x", "mini"]),
    "a star within": ("gpt-*-mini", ["gpt-5-mini", "gpt--mini", "gpt-a-mini-b-mini"], ["gpt-mini", "gpt-5-mini-2"]),
    "two stars": ("*haiku*", ["haiku", "claude-haiku-4"], ["haik", "HAIKU"]),
    "stars side by side": ("a**b", ["ab", "a*b", "axxb"], ["a", "b", "abc"]),
    "nothing but stars": ("**", ["", "x", "\n"], []),
    "a question mark is one letter": ("gpt-?", ["gpt-5", "gpt-\n", "gpt-界"], ["gpt-", "gpt-55"]),
    "a question mark and a star": ("?*", ["a", "ab"], [""]),
    "letters that it has in common with a regular expression": ("a.b+[c]", ["a.b+[c]"], ["axb+[c]", "a.bb[c]"]),
    "letters beyond the first plane": ("?🙂*", ["🙂🙂", "a🙂b"], ["🙂"]),
    "overlapping ends": ("aba*aba", ["abaaba", "aba-aba"], ["aba", "ababa"]),
    "nothing": ("", [""], ["a"]),
}  # fmt: skip


@pytest.mark.parametrize(("glob", "yes", "no"), MATCHES.values(), ids=MATCHES)
def test_a_glob_is_of_the_whole_text_and_case_sensitive(glob: str, yes: list[str], no: list[str]) -> None:
    assert [text for text in [*yes, *no] if matcher(glob)(text)] == yes


@pytest.mark.parametrize(
    ("glob", "text"),
    [("*a" * 30 + "*b", "a" * 3_000), ("*a?" * 20 + "b", "a" * 3_000), ("*" * 3_000 + "b", "a" * 3_000)],
)
def test_a_glob_with_many_stars_comes_to_an_answer(glob: str, text: str) -> None:
    # A backtracking matcher would be at it for longer than there is time.
    assert not matcher(glob)(text)
    assert matcher(glob)(text + "b")


@given(globs=st.lists(GLOBS, min_size=1, max_size=4), text=TEXTS)
def test_a_list_of_globs_matches_where_one_does(globs: list[str], text: str) -> None:
    assert any_matcher(globs)(text) is any(naive(glob, text) for glob in globs)


def test_no_globs_match_nothing() -> None:
    assert not any_matcher([])("")


# ---- in a policy ----


WRITTEN = st.text(st.sampled_from("ab*?."), min_size=1, max_size=6)


@given(globs=st.lists(WRITTEN, min_size=1, max_size=3), text=st.text(st.sampled_from("ab."), max_size=6))
def test_a_rule_matches_what_its_globs_do_compiled_and_interpreted(globs: list[str], text: str) -> None:
    listed = ", ".join(f'"{glob}"' for glob in globs)
    policy = f"rule r when path ~ [{listed}] {{ deny }}\nprovider anthropic {{ }}\n"
    checked = check("team.hmp", MemoryFiles({"team.hmp": policy}))
    condition = checked.conditions["rule"]["r"]
    assert condition is not None
    assert checked.program is not None
    request = Request(path=text)

    wanted = any(naive(glob, text) for glob in globs)
    assert holds(condition, field_values(request, agent="unknown", team="none", provider=None)) is wanted
    assert (checked.program.decide(request).verdict is Verdict.DENY) is wanted


# ---- of several ----


@given(globs=st.lists(GLOBS, max_size=5), text=TEXTS)
def test_the_most_specific_of_those_that_match_is_chosen_and_of_equals_the_first(globs: list[str], text: str) -> None:
    chosen = most_specific(globs, text)

    matching = [glob for glob in globs if naive(glob, text)]
    if not matching:
        assert chosen is None
    else:
        assert chosen in matching
        best = max(specificity(glob) for glob in matching)
        assert chosen == next(glob for glob in matching if specificity(glob) == best)


@pytest.mark.parametrize("globs", [["a*", "*a"], ["*a", "a*"], ["?a*", "*?a"], ["*a", "b", "a*", "*"], ["a", "a"]])
def test_of_two_that_are_equally_specific_the_first_is_chosen(globs: list[str]) -> None:
    text = "xa" if "?a*" in globs else "a"

    assert most_specific(globs, text) is globs[0]


@pytest.mark.parametrize(
    ("better", "worse"),
    [("gpt-5", "gpt-*-mini-2026"), ("gpt-5-*", "gpt-*"), ("gpt-?", "gpt*"), ("a*b", "*a"), ("a", "?"), ("a", "*")],
)
def test_a_name_is_more_specific_than_a_glob_and_more_letters_than_fewer(better: str, worse: str) -> None:
    assert specificity(better) > specificity(worse)


@pytest.mark.parametrize(
    ("text", "glob"), [("gpt-5", False), ("gpt-*", True), ("gpt-?", True), ("", False), ("[a]", False)]
)
def test_a_star_or_a_question_mark_makes_a_glob(text: str, glob: bool) -> None:
    assert is_glob(text) is glob


# ---- of two ----


@given(one=GLOBS, other=GLOBS, text=TEXTS)
def test_two_globs_that_match_the_same_text_overlap(one: str, other: str, text: str) -> None:
    assert overlap(one, other) is overlap(other, one)
    if naive(one, text) and naive(other, text):
        assert overlap(one, other)


def test_short_globs_overlap_exactly_if_a_short_text_matches_both() -> None:
    # Of globs so short, two that have a text in common have one of at most five letters.
    globs = ["".join(letters) for size in range(4) for letters in product("ab?*", repeat=size)]
    texts = ["".join(letters) for size in range(6) for letters in product("ab", repeat=size)]
    matched = {glob: {text for text in texts if naive(glob, text)} for glob in globs}

    for one, other in product(globs, repeat=2):
        assert overlap(one, other) is bool(matched[one] & matched[other]), (one, other)


@pytest.mark.parametrize("glob", ["a?b", "a*b", "*?b"])
def test_a_wildcard_stands_for_a_line_break_too(glob: str) -> None:
    assert matcher(glob)("a\nb")
