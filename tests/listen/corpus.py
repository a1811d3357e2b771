"""What a careless or hostile client sends, as data: what it says, and the status it is told if the app reads bodies."""

from __future__ import annotations

import struct
from typing import Final

import attrs
import h2.config
import h2.connection
import trio
import trio.testing

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DRIP: Final = "drip"
EOF: Final = "eof"


@attrs.frozen
class Hostile:
    name: str
    said: tuple[bytes, ...]
    status: int | None
    """Of the first answer in HTTP/1.1; None: no answer in HTTP/1.1, or none that matters."""
    manner: frozenset[str] = frozenset()
    """`drip`: one byte at a time; `eof`: half-closed at the end."""

    async def attack(self, stream: trio.SocketStream) -> bytes:
        """Say it, piece by piece, and take what comes until the listener is done or quiet."""
        heard = bytearray()
        try:
            for part in self.said:
                pieces = [part[n : n + 1] for n in range(len(part))] if DRIP in self.manner else [part]
                for piece in pieces:
                    await stream.send_all(piece)
                    await trio.lowlevel.checkpoint()
                await trio.testing.wait_all_tasks_blocked(0.002)
            if EOF in self.manner:
                await stream.send_eof()
            with trio.move_on_after(1):
                async for data in stream:
                    heard += data
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        return bytes(heard)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def opening(path: bytes = b"/", method: bytes = b"POST", end: bool = False) -> bytes:
    """An HTTP/2 client's preface and the head of its first request."""
    client = h2.connection.H2Connection(
        h2.config.H2Configuration(header_encoding=None, validate_outbound_headers=False)
    )
    client.initiate_connection()
    fields = [(b":method", method), (b":path", path), (b":authority", b"x"), (b":scheme", b"http")]
    client.send_headers(1, fields, end_stream=end)
    return client.data_to_send()


def upgrade(*headers: bytes, path: bytes = b"/") -> bytes:
    """A WebSocket handshake; a header given replaces the one of its name, `name:` removes it."""
    fields = {
        b"host": b"x",
        b"upgrade": b"websocket",
        b"connection": b"Upgrade",
        b"sec-websocket-key": b"dGhlIHNhbXBsZSBub25jZQ==",
        b"sec-websocket-version": b"13",
    }
    for name, _, value in (item.partition(b":") for item in headers):
        fields[name] = value.strip()
    lines = [name + b": " + value for name, value in fields.items() if value]
    return b"GET " + path + b" HTTP/1.1\r\n" + b"\r\n".join(lines) + b"\r\n\r\n"


H: Final = b"POST / HTTP/1.1\r\nhost: x\r\n"
CHUNKED: Final = H + b"transfer-encoding: chunked\r\n\r\n"
H2C: Final = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: "
HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2

SERVER_KILLERS: Final = (
    Hostile("h2c-malformed-settings", (H2C + b"AAAA\r\n\r\n",), 200),
    Hostile("websocket-trailing-bytes", (upgrade() + b"x" * 100,), 400),
    Hostile("websocket-trailing-bytes-accepted", (upgrade(path=b"/accept") + b"\xff" * 100,), 400),
    Hostile("websocket-http-trails-refusal", (upgrade() + b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",), 400),
    Hostile(
        "h2-data-after-answer", (opening(), frame(0, 0, 1, b"x" * 1000), frame(0, 0, 1, b"x"), frame(0, 1, 1)), None
    ),
)

HOSTILE: Final = (
    *SERVER_KILLERS,
    # HTTP/1.1: heads
    Hostile("nothing", (), None, frozenset({EOF})),
    Hostile("only-eof-after-a-byte", (b"G",), None, frozenset({EOF})),
    Hostile("garbage", (b"\x00\x01\x02\x03\r\n\r\n",), 400),
    Hostile("tls-hello", (HELLO,), 400),
    Hostile("ssh-banner", (b"SSH-2.0-OpenSSH_9.2\r\n\r\n",), 400),
    Hostile("http-0.9", (b"GET /\r\n\r\n",), 400),
    Hostile("http-1.2-is-not-ours", (b"GET / HTTP/1.2\r\nhost: x\r\n\r\n",), 505),
    Hostile("http-3.0", (b"GET / HTTP/3.0\r\nhost: x\r\n\r\n",), 505),
    Hostile("no-host", (b"GET / HTTP/1.1\r\n\r\n",), 400),
    Hostile("two-hosts", (b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",), 400),
    Hostile("space-before-colon", (b"GET / HTTP/1.1\r\nhost : x\r\n\r\n",), 400),
    Hostile("control-in-value", (b"GET / HTTP/1.1\r\nhost: x\r\na: \x00\r\n\r\n",), 400),
    Hostile("control-in-target", (b"GET /\x01 HTTP/1.1\r\nhost: x\r\n\r\n",), 400),
    Hostile("percent-nonsense-in-target", (b"GET /%zz%ff%00 HTTP/1.1\r\nhost: x\r\n\r\n",), 200),
    Hostile("non-ascii-target", ("GET /é HTTP/1.1\r\nhost: x\r\n\r\n".encode(),), 400),
    Hostile("absolute-target", (b"GET http://evil/ HTTP/1.1\r\nhost: x\r\n\r\n",), 200),
    Hostile("connect", (b"CONNECT evil:443 HTTP/1.1\r\nhost: x\r\n\r\n",), 200),
    Hostile("header-too-large", (b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"a" * 9_000,), 431),
    Hostile("header-too-large-at-once", (b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"a" * 9_000 + b"\r\n\r\n",), 431),
    Hostile("too-many-headers", (b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 5_000 + b"\r\n",), 431),
    Hostile("target-too-large", (b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",), 431),
    Hostile("dripped-get", (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",), 200, frozenset({DRIP})),
    Hostile("dripped-post", (H + b"content-length: 9\r\n\r\nabcdefghi",), 200, frozenset({DRIP})),
    Hostile("half-a-head-half-closed", (H,), None, frozenset({EOF})),
    Hostile("half-a-head-and-silence", (H,), None),
    Hostile("blank-lines-for-ever", (b"\r\n" * 6_000,), None),  # skipped (RFC 9112, 2.2), and no request comes
    # HTTP/1.1: framing
    Hostile("length-and-chunked", (H + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",), 400),
    Hostile("two-lengths", (H + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd",), 400),
    Hostile("negative-length", (H + b"content-length: -1\r\n\r\n",), 400),
    Hostile("length-with-plus", (H + b"content-length: +1\r\n\r\na",), 400),
    Hostile("length-beyond-any-integer", (H + b"content-length: " + b"9" * 40 + b"\r\n\r\n",), 400),
    Hostile("unknown-coding", (H + b"transfer-encoding: gzip, chunked\r\n\r\n",), 501),
    Hostile("chunk-size-not-hex", (CHUNKED + b"xyz\r\nabc\r\n",), 400),
    Hostile("chunk-size-negative", (CHUNKED + b"-1\r\nabc\r\n",), 400),
    Hostile("chunk-size-endless", (CHUNKED + b"f" * 100 + b"\r\n",), 400),
    Hostile("chunk-longer-than-said", (CHUNKED + b"3\r\nabcdef\r\n",), 400),
    Hostile("chunk-extension-endless", (CHUNKED + b"3;" + b"a" * 20_000,), 431),
    Hostile("trailers-endless", (CHUNKED + b"0\r\n" + b"a: b\r\n" * 5_000,), 431),
    Hostile("bad-chunk-after-a-good-one", (CHUNKED + b"3\r\nabc\r\n", b"!\r\n"), 400),
    Hostile("body-cut-and-half-closed", (H + b"content-length: 9\r\n\r\nabc",), None, frozenset({EOF})),
    Hostile("body-cut-and-silence", (H + b"content-length: 9\r\n\r\nabc",), None),
    Hostile("half-closed-after-the-request", (H + b"content-length: 1\r\n\r\na",), None, frozenset({EOF})),
    Hostile("pipelined-garbage", (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n\x00\x00\r\n\r\n",), 200),
    Hostile(
        "bytes-after-connection-close", (b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" + b"x" * 999,), 200
    ),
    Hostile("preface-as-second-request", (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" + PREFACE,), 200),
    # h2c, which we do not do
    Hostile("h2c-good-settings", (H2C + b"AAMAAABkAAQAAP__\r\n\r\n",), 200),
    Hostile("h2c-empty-settings", (H2C + b"\r\n\r\n",), 200),
    Hostile("h2c-then-preface", (H2C + b"AAMAAABk\r\n\r\n" + PREFACE,), 200),
    # HTTP/2
    Hostile("h2-preface-cut", (PREFACE[:-4],), None, frozenset({EOF})),
    Hostile("h2-preface-wrong", (b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",), None),
    Hostile("h2-garbage-after-preface", (PREFACE + b"\xff" * 100,), None),
    Hostile("h2-dripped", (opening(end=True),), None, frozenset({DRIP})),
    Hostile("h2-frame-too-large", (PREFACE + frame(0, 0, 1, length=2**24 - 1),), None),
    Hostile("h2-settings-of-wrong-size", (PREFACE + frame(4, 0, 0, b"12345"),), None),
    Hostile("h2-data-on-idle-stream", (PREFACE + frame(4, 0, 0), frame(0, 0, 7, b"x")), None),
    Hostile("h2-headers-not-hpack", (PREFACE + frame(4, 0, 0), frame(1, 5, 1, b"\xff" * 20)), None),
    Hostile("h2-headers-never-finished", (PREFACE + frame(4, 0, 0), frame(1, 0, 1, b"\x82")), None),
    Hostile("h2-continuations", (PREFACE + frame(4, 0, 0), frame(1, 0, 1, b"\x82") + frame(9, 0, 1) * 500), None),
    Hostile("h2-window-overflow", (opening(), frame(8, 0, 0, b"\x7f\xff\xff\xff") * 2), None),
    Hostile("h2-window-increment-zero", (opening(), frame(8, 0, 1, b"\x00\x00\x00\x00")), None),
    Hostile("h2-reset-at-once", (opening() + frame(3, 0, 1, b"\x00\x00\x00\x08"),), None),
    Hostile("h2-pings", (opening() + frame(6, 0, 0, b"12345678") * 200,), None),
    Hostile("h2-goaway", (opening() + frame(7, 0, 0, b"\x00" * 8),), None),
    Hostile("h2-path-not-ascii", (opening(path=b"/\xff", end=True),), None),
    Hostile("h2-connect", (opening(method=b"CONNECT"),), None),
    Hostile("h2-body-cut", (opening() + frame(0, 0, 1, b"abc"),), None, frozenset({EOF})),
    # WebSocket
    Hostile("websocket-refused", (upgrade(),), 403),
    Hostile("websocket-no-key", (upgrade(b"sec-websocket-key:"),), 400),
    Hostile("websocket-old-version", (upgrade(b"sec-websocket-version: 8"),), 400),
    Hostile("websocket-no-version", (upgrade(b"sec-websocket-version:"),), 400),
    Hostile("websocket-half-closed", (upgrade(),), None, frozenset({EOF})),
    Hostile("websocket-dripped", (upgrade(),), 403, frozenset({DRIP})),
    Hostile("websocket-accepted-then-garbage", (upgrade(path=b"/accept"), b"\xff" * 200), 101),
    Hostile("websocket-accepted-then-endless", (upgrade(path=b"/accept"), b"\x82\xff" + b"\x7f" * 8), 101),
    Hostile("websocket-post", (upgrade().replace(b"GET", b"POST"),), 200),
)
