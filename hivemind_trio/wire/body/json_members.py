"""Resumable reader of a JSON object's top-level members, for bodies of tens of megabytes.

msgspec reads a body at one go: 4 ms for a megabyte in the worst case, 120 ms for 32, in which nothing else runs. This
reader finds where the wanted members begin and end, in steps of `STEP_BYTES`. It skips values by counting brackets and
quotes with operations on whole pieces of text, so a step takes about as long for dense text as for prose. It does not
check what it skips: the provider does.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

import attrs
import msgspec

from .steps import STEP_BYTES, Steps, Text

Spans = dict[str, list[tuple[int, int]]]
"""Name -> where its values begin and end, in order: a name may be said twice."""

MEMBERS_MAX: Final = 10_000
"""At the top level. An API has a few dozen; one that is not simple costs 20 microseconds."""

_FAULTS: Final = (msgspec.DecodeError, UnicodeDecodeError)

_SPACE: Final = rb"[ \t\r\n]*+"
_QUICK: Final = re.compile(
    _SPACE
    + rb'"([^"\\]*+)"'
    + _SPACE
    + b":"
    + _SPACE
    + rb'("[^"\\]*+"|[^"\[\]{},\s]++|[\[{][^"\[\]{}]*+[\]}])'
    + _SPACE
    + rb"([,}])"
)
"""A member whose value is short and simple, as nearly all are. Possessive: it never tries a second way."""
_SPACES: Final = re.compile(_SPACE)
_SCALAR: Final = re.compile(rb'[^"\[\]{},\s]++')
_RUN: Final = re.compile(rb"\[++|\]++")

_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")

_PASSES: Final = 16
"""Number of passes in which innermost pairs of brackets are removed together. What is nested deeper than that is then
counted in
runs, of which there can be no more than one for each `_PASSES` bytes."""

TINY_BYTES: Final = 64
"""Bytes that are looked at one by one; also the first look at a value, and the next ones are twice as long each."""

_LOOK_BYTES: Final = 256
"""Cost of one look, beside the bytes that it passes."""


class TooManyMembers(ValueError):  # noqa: N818 - it becomes an answer
    """The object has over `MEMBERS_MAX` members."""


class _Odd(Exception):  # noqa: N818 - it becomes None
    """Text that is not a JSON object."""


def members(text: Text, wanted: Container[str]) -> Steps[Spans | None]:
    """Find the members of these names in a JSON object; None: it is none.

    Args:
        text: The whole body.
        wanted: Names of members; all others are skipped.

    Raises:
        TooManyMembers: It is not worth reading.
    """
    try:
        return (yield from _members(text, wanted))
    except _Odd:
        return None


def _members(text: Text, wanted: Container[str]) -> Steps[Spans]:
    spans: Spans = {}
    at = yield from _spaces(text, 0)
    if text[at : at + 1] != b"{":
        raise _Odd
    at = yield from _spaces(text, at + 1)
    if text[at : at + 1] == b"}":
        more, at = False, at + 1
    else:
        more = True
    left, count = STEP_BYTES, 0
    while more:
        count += 1
        if count > MEMBERS_MAX:
            raise TooManyMembers(f"its object has over {MEMBERS_MAX:,} members")
        began = at
        quick = _QUICK.match(text, at, at + STEP_BYTES)
        if quick is not None:
            name = bytes(quick[1]).decode("utf-8", "replace")
            span, more, at = quick.span(2), quick[3] == b",", quick.end()
        else:
            name, span, at = yield from _member(text, at)
            more = text[at : at + 1] == b","
            if not more and text[at : at + 1] != b"}":
                raise _Odd
            at += 1
        if name in wanted:
            spans.setdefault(name, []).append(span)
        left -= min(at - began, STEP_BYTES) + _LOOK_BYTES
        if left <= 0:
            left = STEP_BYTES
            yield
    at = yield from _spaces(text, at)
    if at != len(text):
        raise _Odd
    return spans


def _member(text: Text, at: int) -> Steps[tuple[str, tuple[int, int], int]]:
    """Name, where the value is, and what comes behind it."""
    begin = yield from _spaces(text, at)
    if text[begin : begin + 1] != b'"':
        raise _Odd
    at = yield from _value(text, begin)
    try:
        name = msgspec.json.decode(memoryview(text)[begin:at], type=str)
    except _FAULTS:
        raise _Odd from None
    at = yield from _spaces(text, at)
    if text[at : at + 1] != b":":
        raise _Odd
    begin = yield from _spaces(text, at + 1)
    end = yield from _value(text, begin)
    at = yield from _spaces(text, end)
    return name, (begin, end), at


def _spaces(text: Text, at: int) -> Steps[int]:
    return (yield from _run(_SPACES, text, at))


def _run(expression: re.Pattern[bytes], text: Text, at: int) -> Steps[int]:
    """Return the end of what consists of nothing else."""
    while True:
        found = expression.match(text, at, at + STEP_BYTES)
        if found is None or found.end() < at + STEP_BYTES:
            return at if found is None else found.end()
        at = found.end()
        yield


def _value(text: Text, at: int) -> Steps[int]:
    """Return the end of the value that begins here."""
    first = text[at : at + 1]
    if first not in (b'"', b"[", b"{"):
        end = yield from _run(_SCALAR, text, at)
        if end == at:
            raise _Odd
        return end
    place = _Place(in_string=first == b'"', depth=int(first != b'"'))
    at += 1
    look = TINY_BYTES
    while at < len(text):
        end = _whole(text, at, min(at + look, len(text)))
        after = place.after(text[at:end])
        if after is None:
            return _end(text, at, end, place)
        at, place = end, after
        if look < STEP_BYTES:
            look *= 2
        else:
            yield
    raise _Odd


@attrs.frozen
class _Place:
    """State in which a piece of text begins."""

    in_string: bool
    depth: int
    """Brackets that are open; 0: the value is a string."""

    def after(self, piece: Text) -> _Place | None:
        """Return the place behind this piece, which no escape crosses; None: the value ends within it."""
        if b"\\" in piece:
            # In this order: what is left of a backslash is one that stands before what it escapes.
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        if not self.depth:
            return None if len(parts) > 1 else self
        outside = b"".join(parts[int(self.in_string) :: 2])
        closed, opened = _unpaired(outside.translate(_SQUARE, _NO_BRACKETS))
        if closed >= self.depth:
            return None
        return _Place(self.in_string ^ (len(parts) % 2 == 0), self.depth - closed + opened)


def _unpaired(brackets: bytes) -> tuple[int, int]:
    """Count closing brackets without an opening one before them, and opening ones without a closing one after."""
    for _ in range(_PASSES):
        if b"[]" not in brackets:
            opened = len(brackets.lstrip(b"]"))
            return len(brackets) - opened, opened
        brackets = brackets.replace(b"[]", b"")
    closed = opened = 0
    for run in _RUN.findall(brackets):
        if run[0] == 0x5B:
            opened += len(run)
        else:
            closed += max(0, len(run) - opened)
            opened = max(0, opened - len(run))
    return closed, opened


def _whole(text: Text, begin: int, end: int) -> int:
    """`end`, or one less: no piece ends between a backslash and what it escapes."""
    if end == len(text) or text[end - 1] != 0x5C:
        return end
    piece = text[begin:end]
    if (len(piece) - len(piece.rstrip(b"\\"))) % 2 == 0:
        return end
    return end - 1 if end - 1 > begin else end + 1


def _end(text: Text, begin: int, end: int, place: _Place) -> int:
    """Return the end of the value within this piece, by bisection."""
    while end - begin > TINY_BYTES:
        middle = _whole(text, begin, (begin + end) // 2)
        after = place.after(text[begin:middle])
        if after is None:
            end = middle
        else:
            begin, place = middle, after
    in_string, depth = place.in_string, place.depth
    at = begin
    while True:
        match text[at]:
            case 0x5C if in_string:
                at += 1
            case 0x22:
                in_string = not in_string
                if not depth:
                    return at + 1
            case 0x5B | 0x7B if not in_string:
                depth += 1
            case 0x5D | 0x7D if not in_string:
                depth -= 1
                if not depth:
                    return at + 1
        at += 1
