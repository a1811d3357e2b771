"""Errors as JSON and as server-sent events, for the dialects that write them."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

ErrorBody: TypeAlias = dict[str, Any]
"""An error as the plain answers of a dialect have it, decoded."""


def dump(value: object) -> bytes:
    """Return a value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def error_fields(error: ErrorBody) -> dict[str, Any]:
    """Return what an error says of itself: its `message`, and the other fields beside it."""
    fields = error.get("error", error)
    return fields if isinstance(fields, dict) else {"message": fields}


def data_event(value: object) -> bytes:
    """Return a server-sent event without a name."""
    return b"data: " + dump(value) + b"\n\n"


def named_event(name: str, value: object) -> bytes:
    """Return a server-sent event with a name."""
    return b"event: " + name.encode() + b"\n" + data_event(value)
