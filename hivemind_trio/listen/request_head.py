"""The head of a request as almost all are, read by two expressions; h11 takes three calls for each header.

What is read here h11 would have read alike. Everything that is odd in the least is left to h11, which knows what is
legal and what is not: a head that has not come whole, old versions, bodies in chunks, upgrades, expectations, folded
lines, a length or a host said twice or not at all.
"""

from __future__ import annotations

import re
from typing import Final, final

import attrs

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_LINE: Final = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]++) HTTP/1\.1\r\n")
# Possessive, and no two ways to read a line: it cannot be made to take long.
_FIELDS: Final = re.compile(rb"(?:" + _TOKEN + rb":[\t\x20-\x7e\x80-\xff]*+\r\n)*+\r\n")
_FIELD: Final = re.compile(rb"([^:\r\n]++):[ \t]*+([^\r\n]*+)\r\n")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")

_ONCE: Final = frozenset({b"host", b"content-length"})
_ODD: Final = frozenset({b"transfer-encoding", b"expect", b"upgrade"})


@final
@attrs.frozen
class ParsedHead:
    """Request line, headers, and how long the body is."""

    method: bytes
    target: bytes
    version: bytes
    headers: list[tuple[bytes, bytes]]
    """Lower-case names, in the order and as often as they came."""
    length: int
    """Length of the body."""
    end: int
    """Offset of the body in the bytes read."""


def read_head(data: bytes) -> ParsedHead | None:
    """Return the head with which these bytes begin; None: it is for h11 to read."""
    line = _LINE.match(data)
    if line is None:
        return None
    block = _FIELDS.match(data, line.end())
    if (
        block is None
        or data.find(b" \r\n", block.start(), block.end()) >= 0
        or data.find(b"\t\r\n", block.start(), block.end()) >= 0
    ):
        return None
    headers = [(name.lower(), value) for name, value in _FIELD.findall(data, block.start(), block.end())]
    said: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _ODD or name in said:
            return None
        if name in _ONCE:
            said[name] = value
    length = said.get(b"content-length", b"0")
    if b"host" not in said or not _LENGTH.fullmatch(length):
        return None
    return ParsedHead(line[1], line[2], b"1.1", headers, int(length), block.end())
