"""Hostile input for the door bench: the bytes that one caller sends, built once, and how it sends them."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, final

import attrs
import h2.config
import h2.connection
import h2.settings

TIMEOUT_S: Final = 60.0
_HEAD: Final = b'{"model":"bench-json","max_tokens":5,'
_FIELDS: Final = [
    (":method", "POST"),
    (":path", "/v1/chat/completions"),
    (":authority", "127.0.0.1"),
    (":scheme", "http"),
]


@final
@attrs.frozen(kw_only=True)
class Attack:
    """What one caller does; several may do it side by side."""

    name: str
    says: str
    build: Callable[[int], Sequence[bytes]]
    """Given a divisor, for the small mode: what is sent on one connection, in this order."""
    connections: int = 1
    speaks_http2: bool = False


_LAST_WORD: Final = b"lastword"
_LAST_PING: Final = b"\0\0\x08\x06\0\0\0\0\0" + _LAST_WORD


def send(port: int, attack: Attack, pieces: Sequence[bytes]) -> None:
    """Send on a connection of its own, and read until all has been seen to or the other side hangs up. Blocks."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as sock, suppress(OSError):
        for piece in pieces:
            sock.sendall(piece)
        heard, last = b"", b"\r\n\r\n"
        if attack.speaks_http2:
            sock.sendall(_LAST_PING)
            last = _LAST_WORD
        while last not in heard and (piece := sock.recv(65_536)):
            heard = heard[-64:] + piece


def post(body: bytes, *headers: bytes) -> list[bytes]:
    """A call over HTTP/1.1."""
    lines = [b"POST /v1/chat/completions HTTP/1.1", b"host: 127.0.0.1", b"content-length: %d" % len(body), *headers]
    return [b"\r\n".join([*lines, b"", b""]), body]


def _json(unit: bytes, before: bytes, after: bytes, size: int) -> bytes:
    count = (size - len(_HEAD) - len(before) - len(after)) // len(unit)
    return _HEAD + before + unit * count + after


def _words(count: int) -> bytes:
    return _HEAD + b'"metadata":{' + b",".join(b'"k%d":"v"' % number for number in range(count)) + b"}}"


def _text(size: int) -> bytes:
    return _json(b"word ", b'"messages":[{"role":"user","content":"', b'"}]}', size)


def _chunks(size: int) -> list[bytes]:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"
    return [head, b"1\r\nx\r\n" * (size // 6) + b"0\r\n\r\n"]


def _http2(frames: Callable[[h2.connection.H2Connection], None]) -> list[bytes]:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
    connection.initiate_connection()
    # What a server would have said: without it the library would hold back what it is asked to send.
    connection.remote_settings.acknowledge()
    frames(connection)
    return [connection.data_to_send()]


def _resets(count: int) -> list[bytes]:
    def frames(connection: h2.connection.H2Connection) -> None:
        for _ in range(count):
            stream = connection.get_next_available_stream_id()
            connection.send_headers(stream, _FIELDS)
            connection.reset_stream(stream)

    return _http2(frames)


def _raw(frame: bytes, count: int, *, opened: bool = False) -> list[bytes]:
    def frames(connection: h2.connection.H2Connection) -> None:
        if opened:
            connection.send_headers(1, _FIELDS)

    return [*_http2(frames), frame * count]


_EMPTY_DATA: Final = b"\0\0\0\0\0\0\0\0\1"
_PING: Final = b"\0\0\x08\x06\0\0\0\0\0" + b"12345678"
_SETTINGS: Final = b"\0\0\x06\x04\0\0\0\0\0" + b"\0\x04\0\0\xff\xff"
_WINDOW: Final = b"\0\0\x04\x08\0\0\0\0\0" + b"\0\0\0\1"

_LISTS: Final = b'"messages":['
_PICTURE: Final = b'"messages":[{"type":"image","data":"'

ATTACKS: Final = (
    Attack(
        name="words",
        says="32 MB, of it 2.2 million keys of `metadata`",
        build=lambda n: post(_words(2_200_000 // n)),
    ),
    Attack(
        name="lists",
        says="32 MiB of nested empty lists",
        build=lambda n: post(_json(b"[[[[[[]]]]]],", _LISTS, b"1]}", (32 << 20) // n)),
    ),
    Attack(name="text", says="50 MB of text", build=lambda n: post(_text(50_000_000 // n))),
    Attack(
        name="picture",
        says="32 MiB of base64",
        build=lambda n: post(_json(b"QUJD", _PICTURE, b'"}]}', (32 << 20) // n)),
    ),
    Attack(
        name="packed",
        says="60 MB of text, packed with gzip",
        build=lambda n: post(gzip.compress(_text(60_000_000 // n), 1), b"content-encoding: gzip"),
    ),
    Attack(name="chunks", says="2 MB in chunks of one byte", build=lambda n: _chunks(2_000_000 // n)),
    Attack(
        name="resets",
        says="HTTP/2: 900 HEADERS and RST_STREAM",
        speaks_http2=True,
        build=lambda n: _resets(900 // n),
    ),
    Attack(
        name="resets of four",
        says="the same on four connections",
        speaks_http2=True,
        connections=4,
        build=lambda n: _resets(900 // n),
    ),
    Attack(
        name="empty DATA",
        says="HTTP/2: 50,000 empty DATA",
        speaks_http2=True,
        build=lambda n: _raw(_EMPTY_DATA, 50_000 // n, opened=True),
    ),
    Attack(name="PING", says="HTTP/2: 20,000 PING", speaks_http2=True, build=lambda n: _raw(_PING, 20_000 // n)),
    Attack(
        name="SETTINGS",
        says="HTTP/2: 20,000 SETTINGS",
        speaks_http2=True,
        build=lambda n: _raw(_SETTINGS, 20_000 // n),
    ),
    Attack(
        name="WINDOW_UPDATE",
        says="HTTP/2: 20,000 WINDOW_UPDATE",
        speaks_http2=True,
        build=lambda n: _raw(_WINDOW, 20_000 // n),
    ),
)
