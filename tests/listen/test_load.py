"""Admission by loop lag: measured over turns, refused early, and without losing an answer."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from contextlib import suppress

import h2.connection
import h2.events
import pytest
import trio
import trio.lowlevel
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.listen import Bounds, Listener, bind
from hivemind_trio.listen.overload import RETRY_AFTER_MAX_S, LoopLag
from hivemind_trio.listen.refusing import Porch, framed

from .house import GET, Client, echoes, header, post, serving

LIMIT_S = 0.020


async def lag_of(*turns: tuple[float, float]) -> LoopLag:
    lag = LoopLag(LIMIT_S)
    for turn_s, work_s in turns:
        lag.turned(turn_s, work_s)
    return lag


@pytest.mark.parametrize(
    ("turns", "overloaded"),
    [
        ([(0.002, 0.002)] * 2_000, False),  # a few callers as fast as it can
        ([(0.060, 0.060)] * 40, True),
        ([(0.060, 0.060)] * 10, False),  # it was idle just now
        ([(0.060, 0.060)] * 40 + [(0.001, 0.001)] * 500, False),  # what was in progress is done
        ([(0.090, 0.002)] * 400, False),  # it is stopped for most of the time, and has little to do
        ([(0.100, 0.022)] * 40, True),  # the same with much to do
        ([(0.002, 0.002)] * 2_000 + [(2.0, 2.0)], False),  # one long turn
        ([(0.002, 0.002)] * 2_000 + [(2.0, 2.0)] + [(0.002, 0.002)] * 20, False),
        ([(3_600.0, 0.060)] * 3, False),  # the machine was suspended
        ([(0.060, 0.060)] * 8 + [(3_600.0, 0.060)], False),  # within a burst
        ([(0.060, 0.060)] * 40 + [(3_600.0, 0.001)] + [(0.002, 0.002)] * 100, False),
    ],
)
async def test_a_loop_is_overloaded_if_it_is_never_idle_and_its_turns_are_long(
    turns: list[tuple[float, float]], overloaded: bool
) -> None:
    assert (await lag_of(*turns)).is_overloaded is overloaded


def test_a_turn_after_an_idle_wait_is_lag_and_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = trio.testing.MockClock()
    asked: list[float] = []

    def thread_time() -> float:
        asked.append(0.0)
        return 0.25 * len(asked)

    async def turns() -> LoopLag:
        lag = LoopLag(LIMIT_S)
        for waited_s in (1.0, 1.0, 0.0):
            assert (lag.turn_s, asked) == (0.0, [])
            clock.jump(waited_s)
            lag.after_io_wait(waited_s)
            clock.jump(0.25)
            lag.before_io_wait(0)
        return lag

    monkeypatch.setattr(time, "thread_time", thread_time)
    lag = trio.run(turns, clock=clock)

    assert lag.busy_s == 0.5
    assert lag.turn_s == pytest.approx(3 * LIMIT_S)
    assert len(asked) == 2
    assert lag.lag_s > 0.1


SHORT = st.floats(0.0001, LIMIT_S * 0.9)
STOPPED = st.floats(0.0, 600.0)
"""Wall-clock time of a turn beyond its work: by a quota, by neighbours, by a machine that was suspended."""


@pytest.mark.parametrize(("limit_s", "wary"), [(LIMIT_S, False), (LIMIT_S, True), (0.05, True)])
@given(st.lists(st.tuples(SHORT, STOPPED), min_size=1, max_size=300), st.floats(0.0, 60.0), st.integers(0, 300))
async def test_no_call_is_refused_for_short_turns_nor_for_one_long_one(
    limit_s: float, wary: bool, turns: list[tuple[float, float]], long_s: float, place: int
) -> None:
    lag = LoopLag(limit_s)
    if wary:
        lag.noted(trio.current_time())
    for turn_s in [0.002] * 200:
        lag.turned(turn_s, turn_s)
    for number, (of_limit, stopped_s) in enumerate(turns):
        work_s = of_limit * limit_s / LIMIT_S * (0.5 if wary else 1.0)
        if number == place:
            lag.turned(long_s, long_s)
            assert not lag.is_overloaded
        # Turns near the limit that follow a long one may be taken for more of the same.
        lag.turned(work_s / (4 if number > place else 1) + stopped_s, work_s / (4 if number > place else 1))
        assert not lag.is_overloaded


@given(st.lists(st.floats(LIMIT_S * 1.01, 0.5), min_size=150, max_size=200), st.integers(1, 20))
async def test_turns_that_stay_long_are_an_overload_within_seconds_until_the_loop_is_idle(
    works: list[float], slowed: int
) -> None:
    lag = await lag_of(*[(work_s * slowed, work_s) for work_s in works])
    assert lag.is_overloaded

    lag.idled()
    assert not lag.is_overloaded


async def test_a_loop_that_waits_is_idle() -> None:
    lag = await lag_of(*[(0.06, 0.06)] * 40)
    assert lag.is_overloaded
    trio.lowlevel.add_instrument(lag)
    await trio.sleep(0.01)
    trio.lowlevel.remove_instrument(lag)

    assert not lag.is_overloaded


@pytest.mark.parametrize(
    ("refused_ago_s", "turns", "overloaded"),
    [
        (1.0, [(0.011, 0.011)] * 10, True),  # more than half of the limit, and no queue has stood for long
        (1.0, [(0.009, 0.009)] * 10, False),
        (61.0, [(0.011, 0.011)] * 10, False),
        (1.0, [(0.011, 0.011)] * 5, False),
        (1.0, [(0.060, 0.060)] * 10 + [(0.001, 0.001)] * 500, False),  # what was in progress is done
        (1.0, [(0.011, 0.011)], False),  # one long turn, as of the garbage collector
        (1.0, [(2.0, 2.0)], False),
        (1.0, [(0.002, 0.002)] * 2_000 + [(2.0, 2.0)] + [(0.002, 0.002)] * 20, False),
    ],
)
async def test_a_loop_that_has_refused_calls_lately_refuses_sooner(
    refused_ago_s: float, turns: list[tuple[float, float]], overloaded: bool, autojump_clock: trio.testing.MockClock
) -> None:
    lag = LoopLag(LIMIT_S)
    lag.noted(trio.current_time() - refused_ago_s)
    for turn_s, work_s in turns:
        lag.turned(turn_s, work_s)

    assert lag.is_overloaded is overloaded


async def test_turns_before_an_idle_wait_are_forgotten() -> None:
    lag = LoopLag(LIMIT_S)
    lag.noted(trio.current_time())
    for _ in range(5):
        lag.turned(0.060, 0.060)
    assert lag.is_overloaded

    lag.idled()
    lag.turned(0.001, 0.001)
    assert lag.turn_s == pytest.approx(0.001)
    assert not lag.is_overloaded


async def test_refusals_are_those_of_one_overload_until_a_minute_passes_without_one() -> None:
    lag = LoopLag(0.01)
    assert lag.refuses_s(5.0) is None
    for at_s in (10.0, 60.0, 115.0):
        lag.noted(at_s)
    assert lag.refuses_s(120.0) == 110.0
    assert lag.refuses_s(176.0) is None
    lag.noted(180.0)
    assert lag.refuses_s(181.0) == 1.0


async def test_callers_are_told_to_come_back_later_the_longer_the_lag_is() -> None:
    some, much = await lag_of(*[(0.06, 0.06)] * 40), await lag_of(*[(0.9, 0.06)] * 40)

    assert max(some.refuse() for _ in range(20)) < min(much.refuse() for _ in range(20))


@given(st.integers(40, 2_000), st.integers(1, 500), st.floats(0.05, 2.0))
async def test_callers_do_not_come_back_together(turns: int, refused: int, turn_s: float) -> None:
    lag = await lag_of(*[(turn_s, 0.05)] * turns)
    told = Counter(lag.refuse() for _ in range(refused))

    assert all(1 <= seconds <= RETRY_AFTER_MAX_S for seconds in told)
    spread = min(max(4.0, lag.busy_s), RETRY_AFTER_MAX_S - min(told))
    assert max(told.values()) <= 2 * refused / max(1.0, spread) + 3


METHODS = st.sampled_from([b"POST", b"GET", b"DELETE"])


@given(METHODS, st.binary(max_size=50), st.integers(0, 60), st.sampled_from([b"Content-Length", b"content-length"]))
def test_a_request_is_whole_when_all_of_its_body_is_there(method: bytes, body: bytes, cut: int, name: bytes) -> None:
    head = b"%b /v1/x HTTP/1.1\r\nhost: x\r\n%b:  %d \r\n\r\n" % (method, name, len(body))

    found = framed(head + body)
    assert found is not None
    assert (found[0], found[2]) == (b"%b /v1/x HTTP/1.1" % method, True)
    for other in (head + body + b"x", (head + body)[: -1 - cut]):
        part = framed(other)
        assert part is None or not part[2]


@pytest.mark.parametrize(
    "fields",
    [
        b"Transfer-Encoding: chunked",
        b"content-length: 0\r\ncontent-length: 0",
        b"content-length: +0",
        b"content-length: 0_0",
        b"content-length: 0, 0",
        b"content-length:\xb2",
    ],
)
def test_nothing_is_taken_for_whole_whose_framing_is_odd(fields: bytes) -> None:
    found = framed(b"POST / HTTP/1.1\r\nhost: x\r\n%b\r\n\r\n" % fields)
    assert found is None or not found[2]


async def test_while_the_loop_lags_new_calls_get_503_at_once_and_those_in_progress_go_on() -> None:
    async with serving(echoes) as house:
        begun, resting = await house.client(), await house.client()
        assert (await resting.ask())[0] == 200
        await begun.say(post(b"x" * 100)[:-50])
        await trio.testing.wait_all_tasks_blocked(0.01)
        overload(house.listener.lag)
        fresh = await house.client()
        await fresh.say(post(b"x" * 1_000))
        with trio.fail_after(5):
            status, headers, body = await fresh.answer()
            assert await fresh.rest() == b""  # closed, and not reset
        await resting.say(GET)
        kept, kept_headers, _ = await resting.answer()
        await begun.say(b"x" * 50)

        assert (status, kept) == (503, 503)
        assert b"proxy-overloaded" in body
        assert header(headers, b"retry-after") != [] != header(kept_headers, b"retry-after")
        assert await begun.answer() == (200, [(b"content-length", b"100")], b"x" * 100)
        assert house.listener.lag.refused == 2
        assert house.listener.lag.refuses_s(trio.current_time()) is not None


async def test_a_request_that_has_begun_before_an_overload_is_served() -> None:
    async with serving(echoes) as house:
        client = await house.client()
        await client.say(post(b"x" * 100)[:20])
        await trio.testing.wait_all_tasks_blocked(0.01)
        overload(house.listener.lag)
        await client.say(post(b"x" * 100)[20:])

        assert await client.answer() == (200, [(b"content-length", b"100")], b"x" * 100)
        assert (await client.ask())[0] == 503, "the next one is not"


async def test_a_call_is_served_whose_connection_was_accepted_to_be_served() -> None:
    async with serving(echoes) as house:
        listener = house.listener
        listener.lag.noted(trio.current_time())
        listener.on_connections = lambda number: overload(listener.lag) if number else None
        with socket.create_connection(("127.0.0.1", house.port)) as sock:
            sock.sendall(post(b"call"))  # the loop has not looked yet
            client = Client(trio.SocketStream(trio.socket.from_stdlib_socket(sock)))
            assert (await client.answer())[::2] == (200, b"call")
            assert (await client.ask())[0] == 503


async def test_a_connection_whose_call_was_refused_serves_the_next() -> None:
    async with serving(echoes) as house:
        client, leaving = await house.client(), await house.client()
        assert (await client.ask())[0] == (await leaving.ask())[0] == 200
        overload(house.listener.lag)
        assert (await client.ask(post(b"first")))[0] == (await client.ask(post(b"second")))[0] == 503
        await leaving.say(b"GET / HTTP/1.1\r\nhost: x\r\nConnection: close\r\n\r\n")
        assert (await leaving.answer())[0] == 503
        assert await leaving.rest() == b""
        house.listener.lag.is_overloaded = False

        assert await client.ask(post(b"third")) == (200, b"third")


def overload(lag: LoopLag) -> None:
    """As if it had not been idle for long, and turns were too long."""
    with suppress(KeyError):
        trio.lowlevel.remove_instrument(lag)  # else each wait for the test's client would count as idle
    lag.is_overloaded = True


async def test_a_request_that_has_not_come_whole_is_answered_without_a_reset() -> None:
    async with serving(echoes) as house:
        overload(house.listener.lag)
        client = await house.client()
        await client.say(post(b"x" * 3_000_000)[:50_000])
        status, _, _ = await client.answer()
        await client.say(b"x" * 2_950_000)

        assert status == 503
        assert await client.rest() == b""
        assert house.listener.connections == 0


@pytest.mark.parametrize("asks_within_overload", [True, False])
async def test_a_connection_that_asks_later_is_answered_then(asks_within_overload: bool) -> None:
    async with serving(echoes) as house:
        overload(house.listener.lag)
        client = await house.client()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert house.listener.connections == 0  # no task waits for it
        house.listener.lag.is_overloaded = asks_within_overload

        assert (await client.ask(post(b"x")))[0] == (503 if asks_within_overload else 200)


async def test_whatever_the_load_is_the_process_says_that_it_is_alive() -> None:
    async with serving(echoes) as house:
        overload(house.listener.lag)
        client = await house.client()
        alive = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"

        assert [(await client.ask(alive))[0] for _ in range(2)] == [200, 200]
        assert (await client.ask(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n"))[0] == 503


async def test_a_head_is_refused_without_a_body_and_an_upgrade_too() -> None:
    async with serving(echoes) as house:
        overload(house.listener.lag)
        client, upgrading = await house.client(), await house.client()
        await client.say(b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n")
        upgrade = (
            b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: eA==\r\n"
        )

        assert (await client.answer(b"HEAD"))[::2] == (503, b"")
        assert await client.rest() == b""
        assert (await upgrading.ask(b"GET / HTTP/1.1\r\nhost: x\r\n" + upgrade + b"\r\n"))[0] == 503


async def test_http2_calls_are_told_as_well_and_their_connection_goes_on() -> None:
    async with serving(echoes) as house:
        stream = await trio.open_tcp_stream("127.0.0.1", house.port)
        client = h2.connection.H2Connection()
        client.initiate_connection()
        overload(house.listener.lag)
        heard = []
        for path in (b"/v1/messages", b"/healthz"):
            number = client.get_next_available_stream_id()
            fields = [(b":method", b"POST"), (b":path", path), (b":scheme", b"http"), (b":authority", b"x")]
            client.send_headers(number, fields)
            client.send_data(number, b"hello", end_stream=True)
            await stream.send_all(client.data_to_send())
            got: list[h2.events.Event] = []
            while not any(isinstance(event, h2.events.StreamEnded) for event in got):
                got += client.receive_data(await stream.receive_some())
                await stream.send_all(client.data_to_send())
            heard.append(got)
        [refused, served] = [
            dict(event.headers) for got in heard for event in got if isinstance(event, h2.events.ResponseReceived)
        ]
        said = b"".join(event.data for event in heard[0] if isinstance(event, h2.events.DataReceived))
        stream.socket.close()

        assert refused[b":status"] == b"503"
        assert 1 <= int(refused[b"retry-after"]) <= RETRY_AFTER_MAX_S
        assert int(refused[b"content-length"]) == len(said)
        assert b"proxy-overloaded" in said
        assert served[b":status"] == b"200"


async def test_the_body_of_a_refusal_is_by_what_was_asked() -> None:
    async with trio.open_nursery() as nursery:
        sockets = bind("127.0.0.1", 0)
        listener = Listener(echoes, overload_body=lambda target: b"no " + target)
        await nursery.start(listener.run, sockets)
        overload(listener.lag)
        for target in (b"/v1/messages", b"/v1beta/models/x:generateContent?alt=sse", b"/v1/messages"):
            client = Client(await trio.open_tcp_stream("127.0.0.1", sockets[0].getsockname()[1]))
            assert await client.ask(b"POST %b HTTP/1.1\r\nhost: x\r\n\r\n" % target) == (503, b"no " + target)
            client.stream.socket.close()
        nursery.cancel_scope.cancel()


async def test_the_porch_reads_what_was_refused_and_shows_in_what_was_not(autojump_clock: object) -> None:
    shown: list[socket.socket] = []
    porch = Porch(100, 5.0, 3, shown.append)
    pairs = [socket.socketpair() for _ in range(3)]
    for (near, _), refused in zip(pairs, (True, True, False), strict=True):
        near.setblocking(False)
        porch.take(near, refused=refused)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(porch.run)
        assert porch.is_full
        pairs[0][1].send(b"x" * 101)  # more than is read of one
        await trio.sleep(1)
        assert [near.fileno() == -1 for near, _ in pairs] == [True, False, False]
        await trio.sleep(4.5)  # the time of the others is over
        assert [near.fileno() == -1 for near, _ in pairs] == [True, True, False]
        assert shown == [pairs[2][0]]
        assert len(porch) == 0
        pairs.append(socket.socketpair())
        porch.take(pairs[3][0], refused=True)
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert pairs[3][0].fileno() == -1  # nothing is left open
    for pair in pairs:
        for end in pair:
            end.close()


async def test_a_resting_connection_whose_next_request_has_come_makes_no_room() -> None:
    async with serving(echoes, Bounds(connections=2)) as house:
        first, second = await house.client(), await house.client()
        await first.ask()
        await second.ask()
        os.write(first.stream.socket.fileno(), GET)  # the loop has not looked yet

        house.listener.close_idle()

        assert (await first.answer())[0] == 200
        assert await second.rest() == b""
