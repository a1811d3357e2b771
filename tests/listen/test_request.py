"""What we read of a request's head is what h11 reads of it; what we do not read is left to h11."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import MethodType
from typing import Any

import attrs
import h11
import pytest
from hypercorn.protocol.h11 import H2ProtocolAssumedError
from hypercorn.trio.worker_context import WorkerContext
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hivemind_trio.listen import App, Bounds, http1
from hivemind_trio.listen.http1 import AsgiExchange, Http1
from hivemind_trio.listen.hypercorn_worker import config_for
from hivemind_trio.listen.request_head import ParsedHead, read_head

from .house import echoes

LINES = (
    *(b"POST /v1/messages HTTP/1.1", b"GET /a?b=%20 HTTP/1.1", b"post / HTTP/1.1", b"OPTIONS * HTTP/1.1"),
    *(b"POST / HTTP/1.0", b"PRI * HTTP/2.0", b"CONNECT a:1 HTTP/1.1", b"POST  / HTTP/1.1", b"POST / HTTP/1.1 "),
    *(b"POST /\xe9 HTTP/1.1", b"POST / http/1.1", b"P@ST / HTTP/1.1", b"POST /", b"", b" POST / HTTP/1.1"),
)
FIELDS = (
    *(b"X-Api-Key: k", b"x: a  b", b"empty:", b"x: \xe9", b"x:y", b"x:  y\t", b"x: y ", b"x : y", b" fold", b"\tfold"),
    *(b"Host: b", b"content-length: 3", b"Content-Length: 03", b"content-length: 3, 3", b"content-length: x"),
    *(b"content-length: -1", b"content-length: 99999999999999999999999", b"content-length:"),
    *(b"transfer-encoding: chunked", b"Transfer-Encoding: gzip", b"expect: 100-continue", b"upgrade: websocket"),
    *(b"connection: close", b"connection: upgrade", b"x: a\x00b", b"x: a\x01b", b"x: a\x0bb", b"x: a\x7fb"),
    *(b"", b"no colon", b": y", b"x: a\rb", b"x: a\nb", b"x@y: z", b"(x): z"),
)
BODY = b"abcdef"


def by_h11(data: bytes) -> tuple[ParsedHead, bytes] | None:
    """The head, and the body as far as it has come; None: h11 does not like it, or waits for more."""
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=64 * 1024)
    http.receive_data(data)
    try:
        request = http.next_event()
        if not isinstance(request, h11.Request):
            return None
        body, event = b"", http.next_event()
        while isinstance(event, h11.Data):
            body, event = body + event.data, http.next_event()
    except h11.RemoteProtocolError:
        return None
    headers = [(name.lower(), value) for name, value in request.headers.raw_items()]
    end = data.find(b"\r\n\r\n") + 4
    length = next((int(value) for name, value in headers if name == b"content-length"), 0)
    return ParsedHead(request.method, request.target, request.http_version, headers, length, end), body


@pytest.mark.parametrize("line", LINES, ids=repr)
def test_what_is_read_is_what_h11_reads(line: bytes) -> None:
    for odd in FIELDS:
        for host in (b"host: a", b"x: y"):
            for length in (b"content-length: 4", b"y: z"):
                data = b"\r\n".join((line, host, odd, length, b"", b"")) + BODY
                head = read_head(data)
                if head is not None:
                    assert by_h11(data) == (head, data[head.end : head.end + head.length]), data


def test_the_usual_is_read_without_h11() -> None:
    data = b"POST /v1/messages?beta=true HTTP/1.1\r\nHost: a\r\nX-Api-Key:  k\r\nContent-Length: 6\r\n\r\n" + BODY

    head = read_head(data)

    assert head is not None
    assert head.headers == [(b"host", b"a"), (b"x-api-key", b"k"), (b"content-length", b"6")]
    assert (head.target, head.length, data[head.end :]) == (b"/v1/messages?beta=true", 6, BODY)


@pytest.mark.parametrize("cut", [1, 20, 40, -1])
def test_a_head_that_has_not_come_whole_is_left_to_h11(cut: int) -> None:
    assert read_head(b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n"[:cut]) is None


@pytest.mark.parametrize(
    "rest",
    [b"a:" * 30_000 + b"\x00", b"a: \r\n" * 12_000 + b" ", b"a:" + b" " * 60_000],
    ids=["one long line", "many lines", "blanks"],
)
def test_a_head_that_is_almost_right_does_not_take_long(rest: bytes) -> None:
    # A regular expression with two ways to read a line would never return from some of these.
    assert read_head(b"GET / HTTP/1.1\r\n" + rest) is None


# ---- a whole connection, with our reader and without it ----


@attrs.define(eq=False)
class Line:
    """A connection without a socket, and an app that answers as soon as a request is whole."""

    app: App = attrs.field(default=echoes)
    bounds: Bounds = attrs.field(default=Bounds(header_bytes=400))
    closing: bool = False
    over: bool = False
    """Whatever else the client sends is read and forgotten."""
    told: list[object] = attrs.field(factory=list)
    exchange: AsgiExchange | None = None
    wire: Any = attrs.field(init=False)
    """Itself: it has the methods of a wire that HTTP/1 uses."""
    resets: Any = attrs.field(init=False, default=None)
    """Only HTTP/2 has them."""

    def __attrs_post_init__(self) -> None:
        self.wire = self

    def write_now(self, data: bytes) -> None:
        self.told.append(data)

    def close(self) -> None:
        self.over = True

    def within(self, limit_ns: int | None) -> None: ...

    def rest(self) -> None: ...

    def refused(self, status: int, bytes_out: int) -> None: ...

    def unread_answer(self, status: int) -> tuple[bytes, bytes]:
        return b"", b""

    def refusal(self, target: bytes) -> None: ...

    def refuse_unread(self, data: bytes) -> bool:
        return False

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def finish(self) -> None:
        self.over = True

    def report(self, error: BaseException) -> None:
        raise AssertionError(error)

    def start(self, run: Callable[..., Any], *args: object) -> None:
        if args:
            self.told.append("websocket")
            self.over = True
        else:
            assert isinstance(run, MethodType)
            assert isinstance(run.__self__, AsgiExchange)
            self.exchange = run.__self__

    def answer(self, http: Http1) -> None:
        while (exchange := self.exchange) is not None and exchange.whole and not self.over:
            self.exchange = None
            self.tell(exchange)
            exchange.end()
            http.answered(exchange)

    def tell(self, exchange: AsgiExchange) -> None:
        scope = {name: value for name, value in exchange.scope.items() if name not in ("extensions", "asgi", "state")}
        self.told.append((scope, b"".join(exchange.body), exchange.whole, exchange.keep, exchange.expects))


def served(pieces: list[bytes], *, by_us: bool) -> list[object]:
    """What is made of what a client sends: requests, refusals, and what had begun and not ended."""
    line = Line()
    arguments = (line.app, config_for(line.bounds), WorkerContext(None), None, None, False, None, None, None)
    http = Http1(line, *arguments)
    with pytest.MonkeyPatch.context() as patch:
        if not by_us:
            patch.setattr(http1, "read_head", lambda data: None)
        for piece in pieces:
            if line.over:
                break
            try:
                http.feed(piece)
            except H2ProtocolAssumedError:
                line.told.append("HTTP/2")
                break
            line.answer(http)
    if line.exchange is not None and not line.over:
        line.tell(line.exchange)
    return [*line.told, line.over]


@st.composite
def pipelined(draw: st.DrawFn) -> list[bytes]:
    """Requests one behind the other, something odd here and there, in pieces, of which some begin with a request."""
    whole, begins = b"", []
    for _ in range(draw(st.integers(1, 3))):
        begins.append(len(whole))
        body = draw(st.sampled_from((b"", BODY, b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n")))
        length = b"content-length: %d" % len(body)
        framing = draw(st.sampled_from((length, length, length, b"y: z", b"Transfer-Encoding: chunked", b"expect: x")))
        odd = draw(st.lists(st.sampled_from(FIELDS[:3]) | st.sampled_from(FIELDS), max_size=2))
        line = draw(st.sampled_from(LINES[:2]) | st.sampled_from(LINES))
        end_of_line = draw(st.sampled_from((b"\r\n", b"\r\n", b"\r\n", b"\n")))
        lines = (line, *draw(st.permutations([b"host: a", framing, *odd])), b"", b"")
        whole += end_of_line.join(lines)
        whole += b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if framing.endswith(b"chunked") and body else body
    if not draw(st.integers(0, 2)):
        at = draw(st.integers(0, len(whole) - 1))
        put = draw(st.sampled_from((b"", b"\r", b"\n", b"\r\n", b"\x00", b" ", b":", b"9", b"\r\n\r\n", b"\xff")))
        whole = whole[:at] + put + whole[at + draw(st.integers(0, 1)) :]
    at_random = draw(st.lists(st.integers(0, len(whole)), max_size=3))
    cuts = sorted({0, *draw(st.sets(st.sampled_from(begins))), *at_random, len(whole)})
    return [piece for begin, end in pairwise(cuts) if (piece := whole[begin:end])]


@pytest.mark.slow
@settings(max_examples=400)
@given(pipelined())
@example([b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nabcdGET", b" /b HTTP/1.1\r\nhost: a\r\n\r\n"])
@example([b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 40\r\n\r\n", b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"])
@example([b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"])
@example([b"GET /a HTTP/1.1\r\nx: ", b"GET /b HTTP/1.1\r\nhost: x\r\n\r\n"])
@example([b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n"])
@example([b"GET / HTTP/1.1\r\nhost : a\r\n\r\n", b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"])
@example([b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 500 + b"\r\n\r\n", b"GET /b HTTP/1.1\r\nhost: x\r\n\r\n"])
def test_a_connection_comes_to_the_same_as_if_h11_had_read_all_of_it(pieces: list[bytes]) -> None:
    assert served(pieces, by_us=True) == served(pieces, by_us=False)
