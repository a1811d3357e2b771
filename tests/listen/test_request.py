"""What we read of a request's head is what h11 reads of it; what we do not read is left to h11."""

from __future__ import annotations

import h11
import pytest

from hivemind_trio.listen._request import Head, read_head

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


def by_h11(data: bytes) -> tuple[Head, bytes] | None:
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
    return Head(request.method, request.target, request.http_version, headers, length, end), body


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
