"""Admission by loop lag: measured over turns, refused early, and without losing an answer."""

from __future__ import annotations

import math
import os

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.listen import Bounds
from hivemind_trio.listen.overload import LoopLag, is_whole

from .house import GET, echoes, header, post, serving


async def lag_of(*turns: tuple[float, float], busy_s: float = 10.0) -> LoopLag:
    lag = LoopLag(0.020)
    lag.idle_at_s = lag.ended_s - busy_s
    for turn_s, work_s in turns:
        lag.turned(turn_s, work_s)
    return lag


@pytest.mark.parametrize(
    ("turns", "busy_s", "overloaded"),
    [
        ([(0.002, 0.002)] * 2_000, 10.0, False),  # a few callers as fast as it can
        ([(0.060, 0.060)] * 40, 10.0, True),
        ([(0.060, 0.060)] * 40, 0.1, False),  # it was idle just now
        ([(0.060, 0.060)] * 40 + [(0.001, 0.001)] * 500, 10.0, False),  # what was in progress is done
        ([(0.090, 0.002)] * 40, 10.0, False),  # it is stopped for most of the time, and has little to do
        ([(0.100, 0.022)] * 40, 10.0, True),  # the same with much to do
        ([(0.002, 0.002)] * 2_000 + [(0.045, 0.045)], 10.0, False),  # one long turn
    ],
)
async def test_a_loop_is_overloaded_if_it_is_never_idle_and_its_turns_are_long(
    turns: list[tuple[float, float]], busy_s: float, overloaded: bool
) -> None:
    assert (await lag_of(*turns, busy_s=busy_s)).is_overloaded is overloaded


async def test_a_loop_that_waits_is_idle() -> None:
    lag = await lag_of(*[(0.06, 0.06)] * 40)
    assert lag.is_overloaded
    trio.lowlevel.add_instrument(lag)
    await trio.sleep(0.01)
    trio.lowlevel.remove_instrument(lag)

    assert not lag.is_overloaded


async def test_callers_are_told_to_come_back_later_the_longer_the_lag_is_and_not_together() -> None:
    some, much = await lag_of(*[(0.06, 0.0)] * 40), await lag_of(*[(0.9, 0.0)] * 40)

    told = [header_of(some.refusal()) for _ in range(8)]
    assert len(set(told)) == 4
    assert min(told) >= 1
    assert max(told) < header_of(much.refusal()) <= 60


def header_of(answer: bytes) -> int:
    return int(answer.partition(b"retry-after: ")[2].partition(b"\r\n")[0])


@given(st.binary(max_size=50), st.integers(0, 60))
def test_a_request_is_whole_when_all_of_its_body_is_there(body: bytes, cut: int) -> None:
    whole = post(body)

    assert is_whole(whole)
    assert not is_whole(whole + b"x")
    assert not is_whole(whole[: -1 - cut])
    assert not is_whole(b"PRI * HTTP/2.0\r\n\r\n")
    assert not is_whole(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")


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


def overload(lag: LoopLag) -> None:
    """As if it had not been idle for long, and any turn were too long."""
    lag.limit_s = 0.0
    trio.lowlevel.remove_instrument(lag)  # else each wait for the test's client would count as idle
    lag.idle_at_s = -math.inf


async def test_a_request_that_has_not_come_whole_is_answered_without_a_reset() -> None:
    async with serving(echoes) as house:
        overload(house.listener.lag)
        client = await house.client()
        await client.say(post(b"x" * 100_000)[:50_000])
        status, _, _ = await client.answer()
        await client.say(b"x" * 50_000)

        assert status == 503
        assert await client.rest() == b""


async def test_a_resting_connection_whose_next_request_has_come_makes_no_room() -> None:
    async with serving(echoes, Bounds(connections=2)) as house:
        first, second = await house.client(), await house.client()
        await first.ask()
        await second.ask()
        os.write(first.stream.socket.fileno(), GET)  # the loop has not looked yet

        house.listener.close_idle()

        assert (await first.answer())[0] == 200
        assert await second.rest() == b""
