"""Limit of the output tokens that a request asks for, kept at or below the one of the policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from hivemind_trio.dialects import IN_ORDER, dialect_of
from hivemind_trio.model import Api
from hivemind_trio.wire.body.bodies import decoding
from hivemind_trio.wire.body.json_members import Spans, members
from hivemind_trio.wire.body.steps import STEP_BYTES, Steps, Text, done

from .endpoints import endpoint

_PLAIN: Final = frozenset(name for dialect in IN_ORDER for name in dialect.request.output_max)
_WITHIN: Final[Mapping[str, frozenset[str]]] = {
    outer: frozenset(name for dialect in IN_ORDER for it, name in dialect.request.output_max_within if it == outer)
    for dialect in IN_ORDER
    for outer, _ in dialect.request.output_max_within
}
_WANTED: Final = _PLAIN | _WITHIN.keys()

_NUMBER_BYTES_MAX: Final = 64

Edit: TypeAlias = tuple[int, int, bytes]
"""Text from here to there becomes this."""


def limiting(path: str, body: Text, encoding: str, most: int, served_as: Api | None) -> Steps[Text | None]:
    """Body of a request that asks for at most so many output tokens; None: it does so as it is. In steps.

    Every other byte of the body stays as it is; a compressed body comes back without its coding. A path that is known
    to generate text without a limit gets one.

    Args:
        path: Without query, and without a prefix of ours.
        encoding: The body's `content-encoding`; empty: none.
        served_as: Dialect of the provider that is to get it.

    Raises:
        TooManyMembers: The body is not worth reading.
    """
    text = yield from decoding(body, encoding)
    spans = yield from members(text, _WANTED)
    if spans is None:
        return None
    written = b"%d" % most
    edits = [
        (begin, end, written)
        for name in _PLAIN
        for begin, end in spans.get(name, ())
        if _is_above(text[begin:end], most)
    ]
    limited = any(name in spans for name in _PLAIN)
    for outer, names in _WITHIN.items():
        for begin, end in spans.get(outer, ()):
            inner = yield from members(text[begin:end], names)
            for span in (one for name in names for one in (inner or {}).get(name, ())):
                limited = True
                if _is_above(text[begin + span[0] : begin + span[1]], most):
                    edits.append((begin + span[0], begin + span[1], written))
    if not limited:
        edits += _added(text, spans, _named(endpoint(path, {}).output_max, served_as), written)
    return (yield from _edited(text, sorted(edits))) if edits else None


def with_output_limit(path: str, body: Text, encoding: str, most: int, served_as: Api | None) -> Text | None:
    """Return the same at once."""
    return done(limiting(path, body, encoding, most, served_as))


def _is_above(raw: Text, most: int) -> bool:
    """Return True if a value asks for more, or for no limit; what a provider rejects is left for it to reject."""
    if len(raw) > _NUMBER_BYTES_MAX:
        return bytes(raw[:_NUMBER_BYTES_MAX]).isdigit()
    try:
        value = msgspec.json.decode(raw)
        if isinstance(value, str):
            value = float(value)  # Gemini takes numbers as texts
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
        return False
    if value is None:
        return True
    # Ollama takes -1 for no limit.
    return isinstance(value, int | float) and not isinstance(value, bool) and not 0 <= value <= most


def _named(member: Sequence[str], served_as: Api | None) -> Sequence[str]:
    """Return the member of a path, by the names that the server of another dialect has for it."""
    renamed = dialect_of(served_as).request.renamed
    return [renamed.get(name, name) for name in member]


def _added(text: Text, spans: Spans, member: Sequence[str], value: bytes) -> Iterator[Edit]:
    """Yield what adds a member, as the first of its object."""
    if not member:
        return
    name, *within = (b'"%s":' % one.encode() for one in member)
    outer = spans.get(member[0], [])
    if not within or not outer:
        begin = bytes(text[:STEP_BYTES]).find(b"{") + 1
        if begin:
            yield begin, begin, name + (b"{" + within[0] + value + b"}" if within else value) + b","
        return
    for begin, end in outer:
        kept = bytes(text[begin:end])
        if kept == b"null":
            yield begin, end, b"{" + within[0] + value + b"}"
        elif kept.startswith(b"{"):
            more = b"," if kept[1:-1].strip() else b""
            yield begin + 1, begin + 1, within[0] + value + more


def _edited(text: Text, edits: Sequence[Edit]) -> Steps[Text]:
    changed, at = bytearray(), 0
    for begin, end, value in [*edits, (len(text), len(text), b"")]:
        for piece in range(at, begin, STEP_BYTES):
            changed += text[piece : min(begin, piece + STEP_BYTES)]
            if piece > at:
                yield
        changed += value
        at = end
    return bytes(changed) if len(changed) <= STEP_BYTES else changed
