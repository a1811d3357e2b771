"""Formats of streams: which of a stream's events hold an answer, and which one ends it."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, TypeAlias, final

import attrs

Event: TypeAlias = dict[str, Any]
"""An event of a stream, or a line of NDJSON, decoded."""


class EventKind(Enum):
    """Part of the stream to which an event belongs."""

    PREAMBLE = auto()
    """Nothing of the answer, so a client notices no other attempt until it is over."""
    CONTENT = auto()
    CLOSING = auto()


@final
@attrs.frozen(kw_only=True, eq=False)
class StreamFormat:
    """Format of one kind of stream."""

    kind: Callable[[str, Event], EventKind | None]
    """Classifies an event by its type, which is its name where it has no `type`; None: it is of another format."""
    closing: re.Pattern[bytes]
    """The closing event as it goes by. A quotation mark within a text stands behind a backslash, so texts do not
    match."""
    names: str | None = None
    """Beginning of the names of its events, for a preamble that is too long to be read."""


def object_of(value: Any) -> dict[str, Any]:
    """Return a value that is an object; else an empty one."""
    return value if isinstance(value, dict) else {}


def objects_of(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a value that is a list; else none."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
