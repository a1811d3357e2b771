"""HTTP/1.1 as a client sees it, and as an app does."""

from __future__ import annotations

import json

import h11
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.listen import Bounds, Message, Receive, Scope, Send
from hivemind_trio.listen.http1 import AsgiExchange
from hivemind_trio.listen.wire import InboundWire

from .house import GET, body_of, echoes, header, listens, post, refuses, respond, serving


async def test_a_connection_is_kept_for_the_next_request() -> None:
    async with serving(echoes) as house:
        client = await house.client()

        answers = [await client.ask(post(b"%d" % n)) for n in range(5)]

        assert answers == [(200, b"%d" % n) for n in range(5)]
        assert house.listener.connections == 1


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async with serving(echoes) as house:
        client = await house.client()
        await client.say(b"".join(post(b"%d" % n) for n in range(20)))

        assert [(await client.answer())[2] for _ in range(20)] == [b"%d" % n for n in range(20)]


async def test_a_plain_request_may_be_followed_by_one_in_chunks_that_comes_slowly() -> None:
    async with serving(echoes) as house:
        client = await house.client()
        await client.ask(post(b"plain"))
        for part in (
            b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n",
            b"3\r\nabc\r\n",
            b"0\r\n\r\n",
        ):
            await client.say(part)
            await trio.testing.wait_all_tasks_blocked()

        assert (await client.answer())[2] == b"abc"
        assert await client.ask(post(b"plain again")) == (200, b"plain again")


async def test_the_second_half_of_a_head_is_no_request_however_much_it_looks_like_one() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["path"])
        await respond(send)

    async with serving(app) as house:
        client = await house.client()
        await client.say(b"GET /a HTTP/1.1\r\nx: ")
        await trio.testing.wait_all_tasks_blocked()
        await client.ask(b"GET /b HTTP/1.1\r\nhost: x\r\n\r\n")

    assert seen == ["/a"]


async def test_the_rest_of_a_body_that_was_refused_is_no_request_however_much_it_looks_like_one() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["path"])
        await refuses(scope, receive, send)

    async with serving(app) as house:
        client = await house.client()
        assert await client.ask(b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n") == (429, b"later")
        await client.say(b"GET /b HTTP/1.1\r\nhost: x\r\n\r\n")
        await client.stream.send_eof()

        assert await client.rest() == b""
    assert seen == ["/a"]


async def test_a_client_that_sends_a_thousand_requests_ahead_is_answered_in_full(clock: trio.abc.Clock) -> None:
    async with serving(echoes, Bounds(body_buffer_bytes=1000)) as house:
        client = await house.client()
        house.nursery.start_soon(client.say, GET * 1000)

        for _ in range(1000):
            assert (await client.answer())[0] == 200


async def test_the_scope_is_what_asgi_says() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)
        await respond(send)

    async with serving(app) as house:
        client = await house.client()
        await client.ask(b"GET /a%20b?q=%31 HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nx-a: 2\r\n\r\n")

        (scope,) = seen
        assert scope["type"] == "http"
        assert scope["method"] == "GET"
        assert scope["path"] == "/a b"
        assert scope["raw_path"] == b"/a%20b"
        assert scope["query_string"] == b"q=%31"
        assert scope["headers"] == [(b"host", b"x"), (b"x-a", b"1"), (b"x-a", b"2")]
        assert scope["client"] == client.stream.socket.getsockname()
        assert scope["server"] == ("127.0.0.1", house.port)


async def test_headers_keep_their_case_order_and_duplicates_and_none_is_added() -> None:
    given_headers = [(b"X-B", b"1"), (b"Date", b"then"), (b"x-a", b"2"), (b"X-B", b"3"), (b"Content-Length", b"0")]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": given_headers})
        await send({"type": "http.response.body"})

    async with serving(app) as house:
        client = await house.client()
        await client.say(GET)

        assert (await client.answer())[1] == given_headers


async def test_a_body_without_a_length_goes_out_in_chunks() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"a", b"", b"bc"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"d"})

    async with serving(app) as house:
        client = await house.client()
        await client.say(GET)
        raw = b""
        while not raw.endswith(b"0\r\n\r\n"):
            raw += await client.raw()

        assert raw == b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n1\r\nd\r\n0\r\n\r\n"


@pytest.mark.parametrize("request_line", [b"GET / HTTP/1.1", b"GET / HTTP/1.0", b"HEAD / HTTP/1.1"])
async def test_trailers_follow_a_body_in_chunks_and_are_dropped_where_there_is_none(request_line: bytes) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["extensions"]["http.response.trailers"] == {}
        await send({"type": "http.response.start", "status": 200, "headers": [], "trailers": True})
        await send({"type": "http.response.body", "body": b"abc"})
        await send({"type": "http.response.trailers", "headers": [(b"X-Sum", b"1")], "more_trailers": True})
        await send({"type": "http.response.trailers", "headers": [(b"x-sum", b"2")]})

    async with serving(app) as house:
        client = await house.client()
        await client.say(request_line + b"\r\nhost: x\r\n\r\n")
        await trio.testing.wait_all_tasks_blocked(0.01)
        raw = await client.raw()

        body = raw.partition(b"\r\n\r\n")[2]
        assert (
            body
            == {
                b"GET / HTTP/1.1": b"3\r\nabc\r\n0\r\nX-Sum: 1\r\nx-sum: 2\r\n\r\n",
                b"GET / HTTP/1.0": b"abc",
                b"HEAD / HTTP/1.1": b"",
            }[request_line]
        )
        assert house.reports == []


async def test_an_http_1_0_client_gets_the_body_and_then_the_end() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"abc"})

    async with serving(app) as house:
        client = await house.client()
        await client.say(b"GET / HTTP/1.0\r\n\r\n")

        assert await client.rest() == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nabc"


@pytest.mark.parametrize(
    ("method", "status", "length"), [(b"HEAD", 200, b"5"), (b"GET", 304, b"5"), (b"GET", 204, None)]
)
async def test_an_answer_that_has_no_body_is_followed_by_the_next(
    method: bytes, status: int, length: bytes | None
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, b"hello", status)

    async with serving(app) as house:
        client = await house.client()
        for _ in range(2):
            await client.say(method + b" / HTTP/1.1\r\nhost: x\r\n\r\n")
            got, headers, body = await client.answer(method)

            assert (got, body) == (status, b"")
            assert header(headers, b"content-length") == ([length] if length else [])


async def test_the_head_shares_a_write_with_a_body_that_follows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    send = InboundWire.send_some

    def counted(wire: InboundWire, data: bytes) -> int:
        writes.append(bytes(data))
        return send(wire, data)

    monkeypatch.setattr(InboundWire, "send_some", counted)
    async with serving(echoes) as house:
        client = await house.client()
        await client.ask(post(b"abc"))

        (write,) = writes
        assert write.endswith(b"\r\n\r\nabc")


async def test_the_head_of_a_stream_does_not_wait_for_its_first_event() -> None:
    async with serving(listens) as house:
        client = await house.client()
        await client.say(GET)

        assert (await client.raw()).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_the_100_is_sent_when_the_app_asks_for_the_body() -> None:
    asked = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asked.wait()
        await echoes(scope, receive, send)

    async with serving(app) as house:
        client = await house.client()
        await client.say(post(b"", b"expect: 100-continue").replace(b"length: 0", b"length: 3"))
        await trio.testing.wait_all_tasks_blocked(0.01)
        asked.set()

        assert await client.raw() == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert await client.ask(b"abc") == (200, b"abc")


async def test_a_client_that_waits_for_100_and_is_refused_need_not_send_its_body() -> None:
    async with serving(refuses) as house:
        client = await house.client()
        await client.say(post(b"", b"expect: 100-continue").replace(b"length: 0", b"length: 3000000"))

        status, headers, _ = await client.answer()

        assert status == 429
        assert header(headers, b"connection") == [b"close"]
        assert await client.rest() == b""


async def test_a_chunked_body_arrives_whole_and_the_connection_is_kept() -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    async with serving(echoes) as house:
        client = await house.client()
        for _ in range(2):
            await client.say(head + b"3;ext=1\r\nabc\r\n")
            assert await client.ask(b"2\r\nde\r\n0\r\ntrailer: 1\r\n\r\n") == (200, b"abcde")


async def test_a_large_body_arrives_whole_though_the_app_is_slow() -> None:
    body = bytes(range(256)) * 8_000

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        got = b""
        while True:
            await trio.testing.wait_all_tasks_blocked()
            message = await receive()
            assert len(message["body"]) <= 10_000 + 65_536
            got += message["body"]
            if not message["more_body"]:
                break
        await respond(send, b"same" if got == body else b"different")

    async with serving(app, Bounds(body_buffer_bytes=10_000)) as house:
        client = await house.client()

        assert await client.ask(post(body)) == (200, b"same")


# -- ends that are not clean ------------------------------------------------------------


async def half_an_answer(send: Send, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})


@pytest.mark.parametrize("ahead", [False, True], ids=["at once", "behind another request"])
async def test_a_body_in_tiny_chunks_is_read_some_at_a_time(ahead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[int] = [0]
    feed = AsgiExchange.feed

    def counted(exchange: AsgiExchange, data: bytes) -> None:
        fed[-1] += 1
        feed(exchange, data)

    class Turns(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            fed.append(0)

    monkeypatch.setattr(AsgiExchange, "feed", counted)
    head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    async with serving(echoes) as house:
        client = await house.client()
        trio.lowlevel.add_instrument(Turns())
        await client.say((GET if ahead else b"") + head + b"1\r\nx\r\n" * 2_000 + b"0\r\n\r\n")
        if ahead:
            assert (await client.answer())[2] == b""
        status, _, body = await client.answer()

        assert (status, body) == (200, b"x" * 2_000)
        assert sum(fed) == 2_000
        assert max(fed) <= 32
        assert await client.ask() == (200, b"")


@pytest.mark.parametrize("how", ["abort", "raise", "return"])
@pytest.mark.parametrize("length", [[], [(b"content-length", b"9")]], ids=["chunked", "length"])
async def test_half_an_answer_does_not_look_whole(how: str, length: list[tuple[bytes, bytes]]) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await half_an_answer(send, length)
        if how == "abort":
            scope["extensions"]["hivemind.abort"]()
            await respond(send)  # too late, and harmless
        elif how == "raise":
            raise ValueError("the app's bug")

    async with serving(app) as house:
        client = await house.client()
        await client.say(GET)

        with pytest.raises((h11.RemoteProtocolError, trio.BrokenResourceError)):
            await client.answer()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert house.listener.connections == 0
        assert [line.rpartition(": ")[2] for line in house.reports] == (["the app's bug"] if how == "raise" else [])


async def test_half_an_answer_that_only_the_end_of_the_connection_would_end_is_reset() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await half_an_answer(send, [])
        await trio.testing.wait_all_tasks_blocked(0.01)
        scope["extensions"]["hivemind.abort"]()

    async with serving(app) as house:
        client = await house.client()
        await client.say(b"GET / HTTP/1.0\r\n\r\n")

        with pytest.raises(trio.BrokenResourceError):
            await client.rest()


@pytest.mark.parametrize("extra", [b"", b"too long"])
async def test_a_body_of_another_length_than_promised_does_not_look_whole(extra: bytes) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
        await send({"type": "http.response.body", "body": b"a" + extra})

    async with serving(app) as house:
        client = await house.client()
        await client.say(GET)

        with pytest.raises((h11.RemoteProtocolError, trio.BrokenResourceError)):
            await client.answer()
        assert len(house.reports) == 1


@pytest.mark.parametrize(
    "start",
    [
        {"status": 200, "headers": [(b"x", b"a\r\nset-cookie: stolen")]},
        {"status": 200, "headers": [(b"x: a\nset-cookie", b"stolen")]},
        {"status": 200, "headers": [(b"content-length", b"1"), (b"content-length", b"2")]},
        {"status": 101, "headers": []},
    ],
)
async def test_a_head_that_would_split_or_blur_the_answer_is_a_500(start: Message) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", **start})

    async with serving(app) as house:
        client = await house.client()

        assert await client.ask() == (500, b"")
        assert len(house.reports) == 1


async def test_an_app_that_fails_before_its_answer_is_a_500_and_the_next_connection_is_served() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/bad":
            raise RuntimeError("on purpose")
        await respond(send)

    async with serving(app) as house:
        bad, good = await house.client(), await house.client()

        assert await bad.ask(b"GET /bad HTTP/1.1\r\nhost: x\r\n\r\n") == (500, b"")
        assert await good.ask() == (200, b"ok")
        (line,) = house.reports
        peer = f"127.0.0.1:{bad.stream.socket.getsockname()[1]}"
        assert line == f"connection_crashed: {peer}: RuntimeError: on purpose"


async def test_an_app_cancelled_in_mid_answer_does_not_leave_its_connection_to_the_next_request() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with trio.CancelScope() as attempt:
            await half_an_answer(send, [])
            attempt.cancel()
            await trio.sleep_forever()

    async with serving(app) as house:
        client = await house.client()
        await client.say(GET + GET)

        with pytest.raises((h11.RemoteProtocolError, trio.BrokenResourceError)):
            await client.answer()


# -- properties ------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(bodies=st.lists(st.binary(max_size=40), min_size=1, max_size=4), chunked=st.booleans(), data=st.data())
def test_however_the_requests_are_cut_the_answers_are_the_same(
    bodies: list[bytes], chunked: bool, data: st.DataObject
) -> None:
    def request(body: bytes) -> bytes:
        if not chunked:
            return post(body)
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:7], body[7:]) if part)
        return b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"

    wire = b"".join(request(body) for body in bodies)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(wire) - 1), max_size=12)))

    async def main() -> None:
        async with serving(echoes, Bounds(body_buffer_bytes=16)) as house:
            client = await house.client()
            for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
                await client.say(wire[start:end])
                await trio.testing.wait_all_tasks_blocked()

            assert [(await client.answer())[2] for _ in bodies] == bodies
            assert not house.reports

    trio.run(main)


async def test_receive_hands_out_the_body_once_and_then_waits() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert await body_of(receive) == b"abc"
        with trio.move_on_after(0.05):
            await receive()
            seen.append("something")
        await respond(send)
        seen.append((await receive())["type"])

    async with serving(app) as house:
        client = await house.client()
        await client.ask(post(b"abc"))
        await trio.testing.wait_all_tasks_blocked()

        assert seen == ["http.disconnect"]


@pytest.mark.parametrize("blank", [b"\r\n", b"\r\n\r\n\r\n"])
async def test_blank_lines_before_a_request_are_skipped(blank: bytes) -> None:
    async with serving(echoes) as house:
        client = await house.client()
        assert (await client.ask(blank + GET))[0] == 200
        assert (await client.ask(blank + post(b"body")))[0] == 200
        await client.say(blank)
        assert (await client.ask(post(b"again")))[0] == 200
        await client.say(post(b"one") + blank + post(b"two") + blank + GET)
        answers = [(await client.answer())[0] for _ in range(3)]

    assert answers == [200, 200, 200]
    assert house.reports == []


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"a" * 9_000 + b"\r\n\r\n", 431, "header-too-large"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nnonsense\r\n\r\n", 400, "bad-request"),
    ],
)
async def test_a_request_that_no_app_sees_is_rejected_with_a_code_and_words(
    request_: bytes, status: int, code: str
) -> None:
    async with serving(echoes, Bounds(header_bytes=8_192)) as house:
        client = await house.client()
        await client.say(request_)

        answered, headers, body = await client.answer()

    error = json.loads(body)["error"]
    assert (answered, error["code"]) == (status, code)
    assert (b"x-hivemind-reason", code.encode()) in [(name.lower(), value) for name, value in headers]
    assert error["message"].startswith("hivemind-trio: the request")
