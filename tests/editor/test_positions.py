"""Places as editors count them."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.editor import Positions, line_before

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
