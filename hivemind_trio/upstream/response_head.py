"""The head of a response as almost all are, read by two expressions; h11 takes three calls for each header.

What is read here h11 would have read alike. Everything that is odd in the least is left to h11, which knows what is
legal and what is not: a head that has not come whole, old versions, 1xx, answers without a body or with one that ends
with the connection, folded lines, lengths said twice.
"""

from __future__ import annotations

import re
from typing import Final, final

import attrs

from .outgoing import TOKEN

_STATUS: Final = re.compile(rb"HTTP/1\.1 ([2-5][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*+))?\r\n")
# Possessive, and no two ways to read a line: it cannot be made to take long.
_FIELDS: Final = re.compile(rb"(?:" + TOKEN + rb":[\t\x20-\x7e\x80-\xff]*+\r\n)*+\r\n")
_FIELD: Final = re.compile(rb"([^:\r\n]++):[ \t]*+([^\r\n]*+)\r\n")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")

_BODYLESS: Final = frozenset({b"204", b"304"})
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"connection"})


@final
@attrs.frozen
class ResponseHead:
    """Status, headers, and how the body is told from what follows it."""

    status: int
    reason: bytes
    headers: list[tuple[bytes, bytes]]
    length: int | None
    """Length of the body; None: it is chunked."""
    keeps_alive: bool
    """The server goes on after it."""
    end: int
    """Offset of the body in the bytes read."""


def read_head(data: bytes, method: bytes) -> ResponseHead | None:
    """Return the head with which these bytes begin; None: it is for h11 to read.

    Args:
        method: Of the request.
    """
    status = _STATUS.match(data)
    if status is None or status[1] in _BODYLESS or method in (b"HEAD", b"CONNECT"):
        return None
    block = _FIELDS.match(data, status.end())
    if (
        block is None
        or data.find(b" \r\n", block.start(), block.end()) >= 0
        or data.find(b"\t\r\n", block.start(), block.end()) >= 0
    ):
        return None
    headers = _FIELD.findall(data, block.start(), block.end())
    said: dict[bytes, bytes] = {}
    for raw, value in headers:
        name = raw.lower()
        if name in _FRAMING:
            if name in said:
                return None
            said[name] = value.lower() if name == b"connection" else value
    length, coding, connection = (said.get(name) for name in (b"content-length", b"transfer-encoding", b"connection"))
    if connection not in (None, b"keep-alive", b"close"):
        return None
    if length is None:
        if coding != b"chunked":
            return None
    elif coding is not None or not _LENGTH.fullmatch(length):
        return None
    return ResponseHead(
        int(status[1]),
        status[2] or b"",
        headers,
        None if length is None else int(length),
        connection != b"close",
        block.end(),
    )
