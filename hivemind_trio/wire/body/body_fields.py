"""Fields of a request's body, each raw: decoded by msgspec if the body is short, found in steps if it is long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, TypeVar

import msgspec

from .json_members import members
from .steps import Steps, Text

S = TypeVar("S", bound=msgspec.Struct)

WHOLE_BYTES_MAX: Final = 1024 * 1024
"""Largest body that msgspec reads in one step: at most 4 ms."""

ABSENT: Final = msgspec.Raw()

FAULTS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of msgspec for bad JSON, bad UTF-8 in a text that it reads, and nesting deeper than Python's stack."""


def union(names: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Return each name once, in order."""
    return tuple(dict.fromkeys(name for some in names for name in some))


def raw_struct(name: str, members: Iterable[str]) -> type[msgspec.Struct]:
    """Return a struct of these members, each raw: a wrong type in one must not hide the others."""
    return msgspec.defstruct(name, [(member, msgspec.Raw, ABSENT) for member in members])


def values_of(names: Sequence[str]) -> Callable[[Any], tuple[msgspec.Raw, ...]]:
    """Return a function that reads these members of a struct, at least two."""
    assert len(names) > 1, "attrgetter of one name returns no tuple"
    return attrgetter(*names)


def fields_of(kind: type[S], decoder: msgspec.json.Decoder[S], text: Text) -> Steps[S | None]:
    """Find the fields of a struct whose fields are all `msgspec.Raw`; None: the text is no JSON object.

    Raises:
        TooManyMembers: It is not worth reading.
    """
    if len(text) <= WHOLE_BYTES_MAX:
        try:
            return decoder.decode(text)
        except FAULTS:
            return None
    spans = yield from members(text, kind.__struct_fields__)
    if spans is None:
        return None
    view = memoryview(text)
    return kind(**{name: msgspec.Raw(view[slice(*each[-1])]) for name, each in spans.items()})


def len_of(raw: msgspec.Raw) -> int:
    """Bytes of JSON, without making a copy of them."""
    return memoryview(raw).nbytes
