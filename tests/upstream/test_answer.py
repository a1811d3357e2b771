"""Whatever a server says, and however it comes in pieces, we read of it what h11 reads."""

from __future__ import annotations

import re

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hivemind_trio.upstream.response import ResponseParser
from hivemind_trio.upstream.response_head import read_head

Read = tuple[int, list[tuple[bytes, bytes]], bytes, list[tuple[bytes, bytes]], bool]
"""Status, headers, body, trailers, and whether the connection may be used again."""


def by_h11(method: bytes, pieces: list[bytes]) -> Read | str:
    """What h11 alone makes of it; a word if it does not like it or if it has no end."""
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=64 * 1024)
    http.send(h11.Request(method=method, target=b"/", headers=[(b"host", b"x")]))
    http.send(h11.EndOfMessage())
    head: h11.Response | None = None
    body = b""
    try:
        for piece in [*pieces, b""]:
            http.receive_data(piece)
            while (event := http.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Response):
                    head = event
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    assert head is not None
                    clean = http.their_state is h11.DONE and http.trailing_data == (b"", False)
                    return head.status_code, head.headers.raw_items(), body, event.headers.raw_items(), clean
                elif isinstance(event, h11.ConnectionClosed):
                    return "wrong"
    except h11.RemoteProtocolError:
        return "wrong"
    return "wrong"


def by_us(method: bytes, pieces: list[bytes]) -> Read | str:
    answer, body = ResponseParser(method), b""
    left = list(pieces)
    try:
        while not answer.status:
            if not left:
                return "wrong"
            answer.begin(left.pop(0))
        body += answer.body()
        while not answer.over:
            body += answer.body(left.pop(0) if left else b"")
    except (h11.RemoteProtocolError, EOFError):
        return "wrong"
    return answer.status, answer.headers, body, answer.trailers, answer.clean


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
STATUS_LINES = (
    *(b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK", b"HTTP/1.1 429 Too Many Requests", b"HTTP/1.1 200", b"HTTP/1.1 200 "),
    *(b"HTTP/1.0 200 OK", b"HTTP/1.1 204 No", b"HTTP/1.1 304 Not", b"HTTP/1.1 100 Continue", b"HTTP/1.1 20 OK"),
    *(b"HTTP/1.1 700 X", b"http/1.1 200 OK", b"HTTP/1.1 200 \xe9\x01", b"HTTP/1.1  200 OK", b"HTTP/2.0 200 OK"),
)
FIELDS = (
    *(b"content-type: text/event-stream", b"Set-Cookie: a=b", b"set-cookie: c", b"empty:", b"x: \xe9", b"x:y"),
    *(
        b"connection: close",
        b"Connection: keep-alive",
        b"connection: close, x",
        b"x:  y\t",
        b"x: y ",
        b"x : y",
        b" fold",
    ),
    *(b"content-length: 3", b"Content-Length: 3", b"content-length: 03", b"content-length: 3, 3", b"content-length: x"),
    *(b"transfer-encoding: chunked", b"Transfer-Encoding: Chunked", b"transfer-encoding: gzip, chunked"),
    *(b"x: a\x00b", b"x: a\x01b", b"x: a\x0bb", b"x: a\x7fb", b"", b"no colon", b": y", b"upgrade: h2c"),
)
CHUNKS = (
    *(b"3\r\nabc\r\n", b"1\r\nx\r\n", b"A\r\n0123456789\r\n", b"a\r\n0123456789\r\n", b"003\r\nabc\r\n"),
    *(
        b"3;x=y\r\nabc\r\n",
        b"3 \r\nabc\r\n",
        b"3\r\nabcd\r\n",
        b"3\r\nabc",
        b"3\r\nabcxy",
        b"x\r\nabc\r\n",
        b"3\nabc\r\n",
        b"\r\n",
    ),
)
ENDS = (
    b"0\r\n\r\n",
    b"0\r\n\r\n",
    b"0\r\na: b\r\n\r\n",
    b"00\r\n\r\n",
    b"0;x\r\n\r\n",
    b"0\r\nbad\r\n\r\n",
    b"0\r\n",
    b"",
)
BEHIND = (b"", b"", b"HTTP/1.1 200 OK\r\n\r\n", b"\r\n", b"x")


@st.composite
def responses(draw: st.DrawFn) -> list[bytes]:
    """A response with something odd here and there, in pieces."""
    framing = draw(
        st.sampled_from((b"content-length: 3", b"transfer-encoding: chunked", b"transfer-encoding: chunked"))
    )
    common = draw(st.lists(st.sampled_from(FIELDS[:6]), max_size=3))
    odd = draw(st.one_of(st.just([]), st.lists(st.sampled_from(FIELDS), max_size=2)))
    lines = [draw(st.sampled_from(STATUS_LINES)), *draw(st.permutations([framing, *common, *odd]))]
    if draw(st.integers(0, 3)):
        lines[0] = STATUS_LINES[0]
    end_of_line = draw(st.sampled_from((b"\r\n", b"\r\n", b"\r\n", b"\n")))
    head = end_of_line.join(lines) + end_of_line * 2
    if framing.startswith(b"content"):
        body = draw(st.sampled_from((b"abc", b"abc", b"ab", b"", b"abcd")))
    else:
        body = b"".join(
            draw(st.lists(st.sampled_from(CHUNKS[: draw(st.sampled_from((4, 5, len(CHUNKS))))]), max_size=4))
        )
        body += draw(st.sampled_from(ENDS))
    body += draw(st.sampled_from(BEHIND))
    whole = head + body
    if not draw(st.integers(0, 5)):
        at = draw(st.integers(0, len(whole) - 1))
        whole = whole[:at] + draw(st.sampled_from((b"", b"\r", b"\n", b"\x00", b" ", b"0"))) + whole[at + 1 :]
    first = min(draw(st.sampled_from((0, len(head)))), len(whole))  # a byte less may have left no body
    cuts = sorted({first, *draw(st.lists(st.integers(first, len(whole)), max_size=4)), len(whole)} - {0})
    pieces = [whole[begin:end] for begin, end in zip([0, *cuts], cuts, strict=False)]
    return [piece for piece in pieces if piece]


@pytest.mark.parametrize("method", [b"POST", b"HEAD"])
@pytest.mark.parametrize("line", STATUS_LINES, ids=repr)
def test_each_odd_head_is_read_as_h11_reads_it(line: bytes, method: bytes) -> None:
    for framing, body in ((b"content-length: 3", b"abc"), (b"transfer-encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n")):
        for odd in FIELDS:
            head = b"\r\n".join((line, b"x: y", odd, framing, b"z: y", b"", b""))
            for pieces in ([head + body], [head, body], [head + body + b"x"]):
                assert by_us(method, pieces) == by_h11(method, pieces), pieces


@pytest.mark.parametrize("chunk", CHUNKS, ids=repr)
def test_each_odd_chunk_is_read_as_h11_reads_it(chunk: bytes) -> None:
    for before, after in ((b"", b""), (CHUNKS[0], CHUNKS[2])):
        for end in ENDS:
            for behind in (b"", b"x"):
                body = before + chunk + after + end + behind
                for cut in range(0, len(body), 1 + len(before)):
                    pieces = [piece for piece in (CHUNKED + body[:cut], body[cut:]) if piece]
                    assert by_us(b"POST", pieces) == by_h11(b"POST", pieces), pieces


@pytest.mark.slow
@given(st.sampled_from((b"POST", b"POST", b"GET", b"HEAD")), responses())
@example(b"POST", [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab", b"c\r", b"\n0", b"\r\n\r\n"])
@example(
    b"POST", [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"3\r\nabc\r\n0\r\n", b"a: b\r\n", b"\r\n"]
)
def test_we_read_what_h11_reads(method: bytes, pieces: list[bytes]) -> None:
    assert by_us(method, pieces) == by_h11(method, pieces)


@pytest.mark.parametrize(
    "framing", [b"content-length: 3\r\n\r\nabc", b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"]
)
def test_the_usual_is_read_without_h11(framing: bytes) -> None:
    answer = ResponseParser(b"POST")

    assert answer.begin(b"HTTP/1.1 200 OK\r\nX-Request-Id:  req_1\r\nconnection: keep-alive\r\n" + framing)
    assert answer.headers[0] == (b"X-Request-Id", b"req_1")
    assert answer.body() == b"abc"
    assert answer.over
    assert answer.clean
    assert answer.h11_connection is None


@pytest.mark.parametrize(
    "head",
    [OK + b"a:" * 30_000 + b"\x00", OK + b"a: \r\n" * 12_000 + b" ", b"HTTP/1.1 200 " + b" " * 60_000],
    ids=["one long line", "many lines", "a long reason"],
)
def test_a_head_that_is_almost_right_does_not_take_long(head: bytes) -> None:
    # A regular expression with two ways to read a line would never return from some of these.
    assert read_head(head, b"POST") is None
    assert not re.search(rb"\r\n\r\n", head)
