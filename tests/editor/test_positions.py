"""Places as editors count them."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.editor import Positions, declaration_around, line_before

TEXTS: Final = st.lists(st.sampled_from(["a", "é", "界", "🙂", "\n", "\r\n", "\r", "\u2028", "\t"]), max_size=12).map(
    "".join
)
CODECS: Final = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


def by_hand(text: str, offset: int, encoding: str) -> tuple[int, int]:
    """The place as the protocol's words have it: cut into lines, and count code units."""
    codec, width = CODECS[encoding]
    before = text[:offset].replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return len(before) - 1, len(before[-1].encode(codec)) // width


@given(TEXTS, st.sampled_from(sorted(CODECS)))
def test_every_place_is_there_and_back(text: str, encoding: str) -> None:
    positions = Positions(text, encoding)

    for offset in range(len(text) + 1):
        if text[offset - 1 : offset + 1] == "\r\n":
            assert positions.place(offset) == positions.place(offset - 1)
            continue
        assert positions.place(offset) == by_hand(text, offset, encoding)
        assert positions.offset(*positions.place(offset)) == offset


@pytest.mark.parametrize(
    ("line", "character", "offset"),
    [(0, 99, 3), (0, 1, 1), (0, 2, 1), (0, 3, 2), (1, 0, 4), (1, 9, 4), (2, 0, 5), (7, 0, 6), (2, 5, 6)],
)
def test_a_place_beyond_the_text_or_within_a_letter_is_the_nearest_before(
    line: int, character: int, offset: int
) -> None:
    assert Positions("a🙂b\n\nc").offset(line, character) == offset


LINES: Final = st.lists(st.sampled_from(["", "a", "b", "lane"]), max_size=8)


@given(LINES, LINES, LINES, LINES, st.integers(0, 30))
def test_a_line_that_did_not_change_is_found_in_the_text_before(
    above: list[str], before: list[str], now: list[str], below: list[str], line: int
) -> None:
    old, new = [*above, *before, *below, ""], [*above, *now, *below, ""]
    found = line_before("\n".join(old), "\r\n".join(new), line) if old != new else line

    if line >= len(new):
        return
    if found is not None:
        assert old[found] == new[line]
    if line < len(above) or line >= len(above) + len(now):
        assert found is not None


@given(
    st.lists(st.sampled_from(["", "lane", "}"]), min_size=4, max_size=20),
    st.lists(st.tuples(st.integers(0, 19), st.sampled_from(["changed", "above", "gone"])), max_size=4),
)
def test_a_line_between_changes_is_found_in_the_text_before(words: list[str], changes: list[tuple[int, str]]) -> None:
    before = [f"{number} {word}" for number, word in enumerate(words)]
    what = dict(changes)
    now: list[str] = []
    for number, text in enumerate(before):
        if what.get(number) == "gone":
            continue
        now += ["new"] * (what.get(number) == "above")
        now.append("other" if what.get(number) == "changed" else text)

    for line, text in enumerate(now):
        found = line_before("\n".join(before), "\n".join(now), line)
        assert found == (before.index(text) if text in before else None)


def test_a_line_that_is_there_often_is_that_beside_its_neighbour() -> None:
    old = ["a", "x", "b", "x", "c", "x", "d"]
    new = ["a", "new", "x", "b", "x", "c", "x", "changed"]

    assert [line_before("\n".join(old), "\n".join(new), line) for line in range(8)] == [0, None, 1, 2, 3, 4, 5, None]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (0, (0, "lane a { }\n")),
        (1, (1, "agent b {\n  lane a\n}\n\n# more\n")),
        (3, (1, "agent b {\n  lane a\n}\n\n# more\n")),
        (6, (6, "rule c {\n\n")),
        (9, None),
    ],
)
def test_a_declaration_is_found_around_its_lines(line: int, found: tuple[int, str] | None) -> None:
    text = "lane a { }\nagent b {\n  lane a\n}\n\n# more\nrule c {\n"

    assert declaration_around(text, line) == found
    assert declaration_around("\n" * 500 + text, line + 500) == (found and (found[0] + 500, found[1]))
    assert declaration_around("lane a {" + "\n" * 500 + "}\n", 250) is None
