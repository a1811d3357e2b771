"""One response, out of the bytes that come. What is as usual is read here, what is odd by h11, which is slower.

It may begin here and go on there: at the first thing out of the ordinary, h11 is given everything from that on, and
stays with it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, final

import attrs
import h11

from .response_head import read_head

HEAD_BYTES_MAX: Final = 64 * 1024
"""Largest head of a response; a read under way may exceed it by one receive."""

_INFORMATIONAL_MAX: Final = 16
"""1xx heads in one receive. There is no reason for more than two; the first-byte deadline bounds the receives."""

_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,16})\r\n")
_PART_OF_CHUNK: Final = re.compile(rb"[0-9A-Fa-f]{0,16}\r?")
_CRLF: Final = b"\r\n"
_CHUNKS_FOLLOW: Final = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@lru_cache(maxsize=32)
def _stand_in(method: bytes) -> h11.Request:
    # h11 needs only the method of a request to read its response; `OutgoingRequest` writes the bytes.
    return h11.Request(method=method, target=b"/", headers=[(b"host", b"upstream")])


@final
@attrs.define(eq=False)
class ResponseParser:
    """A response as far as it has come."""

    _method: bytes
    status: int = attrs.field(default=0, init=False)
    """0: the head has not come."""
    reason: bytes = attrs.field(default=b"", init=False)
    headers: list[tuple[bytes, bytes]] = attrs.field(factory=list, init=False)
    trailers: list[tuple[bytes, bytes]] = attrs.field(factory=list, init=False)
    over: bool = attrs.field(default=False, init=False)
    """The body has come to its end."""
    clean: bool = attrs.field(default=False, init=False)
    """Then: the server goes on, and nothing came behind the end. Such bytes belong to no request of ours: whatever they
    are, they are no answer to the next one."""
    _keep: bool = attrs.field(default=True, init=False)
    _chunked: bool = attrs.field(default=False, init=False)
    _left: int = attrs.field(default=0, init=False)
    """Bytes left of the body, or of a chunk with its CRLF."""
    _rest: bytes = attrs.field(default=b"", init=False)
    """Bytes that have arrived and are not read yet."""
    h11_connection: h11.Connection | None = attrs.field(default=None, init=False)

    def begin(self, data: bytes) -> bool:
        """Bytes of the head, and maybe of more; whether it is complete. 1xx are passed over.

        Raises:
            h11.RemoteProtocolError: This is no response.
        """
        if self.h11_connection is None:
            head = read_head(data, self._method)
            if head is not None:
                self.status, self.reason, self.headers = head.status, head.reason, head.headers
                self._keep, self._chunked, self._left = head.keeps_alive, head.length is None, head.length or 0
                self._rest = data[head.end :]
                return True
            self.h11_connection = self._reader()
        self.h11_connection.receive_data(data)
        for _ in range(_INFORMATIONAL_MAX):
            event = self.h11_connection.next_event()
            if type(event) is h11.Response:
                self.status, self.reason, self.headers = event.status_code, event.reason, event.headers.raw_items()
                return True
            if event is h11.NEED_DATA:
                return False
        raise h11.RemoteProtocolError("too many 1xx responses")

    def body(self, data: bytes | None = None) -> bytes:
        """All of the body that has come, with these bytes, which are none at the end of the stream.

        Raises:
            EOFError: The stream ended before the body did.
            h11.RemoteProtocolError: This is no body.
        """
        if self.h11_connection is not None:
            return self._body_by_h11(self.h11_connection, data)
        if data == b"":
            raise EOFError("the connection was closed before the end of the body")
        if data is None or self._rest:
            data, self._rest = self._rest + (data or b""), b""
        if self._chunked:
            return self._chunks(data)
        piece = data[: self._left]
        self._left -= len(piece)
        if not self._left:
            self._end(len(piece) == len(data))
        return piece

    def _end(self, alone: bool) -> None:
        self.over = True
        self.clean = self._keep and alone

    def _chunks(self, data: bytes) -> bytes:
        pieces: list[bytes] = []
        at = 0
        while at < len(data):
            if self._left > len(_CRLF):
                piece = data[at : at + self._left - len(_CRLF)]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
            elif self._left:
                end = data[at : at + self._left]
                if end != _CRLF[-self._left :][: len(end)]:
                    raise h11.RemoteProtocolError("a chunk is longer than it said")
                at += len(end)
                self._left -= len(end)
            elif (chunk := _CHUNK.match(data, at)) is None:
                self._rest = data[at:]
                if not _PART_OF_CHUNK.fullmatch(self._rest):
                    pieces.append(self._hand_over())
                break
            elif size := int(chunk[1], 16):
                at = chunk.end()
                self._left = size + len(_CRLF)
            elif data.startswith(_CRLF, chunk.end()):
                self._end(chunk.end() + len(_CRLF) == len(data))
                break
            else:  # trailers, or they have not come yet
                self._rest = data[at:]
                pieces.append(self._hand_over())
                break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    # ---- h11 ----

    def _reader(self) -> h11.Connection:
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
        http.send(_stand_in(self._method))
        http.send(h11.EndOfMessage())
        return http

    def _hand_over(self) -> bytes:
        """From the beginning of a chunk on h11 reads."""
        self.h11_connection = self._reader()
        self.h11_connection.receive_data(_CHUNKS_FOLLOW)
        self.h11_connection.next_event()
        rest, self._rest = self._rest, b""
        return self._body_by_h11(self.h11_connection, rest)

    def _body_by_h11(self, http: h11.Connection, data: bytes | None) -> bytes:
        if data is not None:
            http.receive_data(data)
        pieces: list[bytes] = []
        try:
            while (event := http.next_event()) is not h11.NEED_DATA:
                if type(event) is h11.Data:
                    pieces.append(event.data)
                    continue
                assert type(event) is h11.EndOfMessage, event
                self.trailers = event.headers.raw_items()
                self._keep &= http.their_state is h11.DONE
                self._end(http.trailing_data == (b"", False))
                break
        except h11.RemoteProtocolError as exc:
            if data != b"":
                raise
            raise EOFError("the connection was closed before the end of the body") from exc
        return b"".join(pieces)
