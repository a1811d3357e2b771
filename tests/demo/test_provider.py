"""What tests can make the simulated provider do, seen from the other end of a plain socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import attrs
import httpx2
import pytest
import trio
import trio.testing

from hivemind_trio.demo import INSTANT, ParsedRequest, ScriptedReply, SimulatedProvider
from hivemind_trio.model import Usage
from hivemind_trio.sim import Ask, Provider, Traits

EVENTS = 15
"""Of every streamed answer here: 150 tokens, ten each."""


@pytest.fixture
async def provider(nursery: trio.Nursery) -> AsyncIterator[SimulatedProvider]:
    traits = Traits(concurrency=2, latency_mean_ns=0, latency_sigma_ns=0, latency_min_ns=0, tokens_out_sigma=0)
    provider = SimulatedProvider(traits)
    await nursery.start(provider.run)
    yield provider
    nursery.cancel_scope.cancel()


async def connect(provider: SimulatedProvider) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", int(provider.url.rpartition(":")[2]))


def request(*, stream: bool = False, path: str = "/v1/messages", extra: bytes = b"") -> bytes:
    body = json.dumps({"model": "m", "max_tokens": 999, "stream": stream, "messages": [{"content": "hi"}]}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\ncontent-length: {len(body)}\r\n".encode()
    return head + extra + b"\r\n" + body


async def receive_until(stream: trio.SocketStream, what: bytes, times: int = 1) -> bytes:
    got = b""
    with trio.fail_after(60):  # a broken provider fails the test rather than hangs it
        while got.count(what) < times:
            data = await stream.receive_some()
            assert data, f"the connection ended before {what!r} came: {got!r}"
            got += data
    return got


async def test_an_answer_is_held_until_the_test_lets_it_go(provider: SimulatedProvider) -> None:
    gate = trio.Event()
    provider.replies.append(ScriptedReply(hold=gate))
    async with await connect(provider) as stream:
        await stream.send_all(request())
        await provider.until(lambda: provider.world.inflight == 1)
        with trio.move_on_after(0.02) as silence:
            await stream.receive_some()
        assert silence.cancelled_caught

        gate.set()

        assert (await receive_until(stream, b'"stop_reason":"end_turn"')).startswith(b"HTTP/1.1 200")
    assert provider.hangups == 0


async def test_a_stream_stops_being_generated_when_the_client_hangs_up(provider: SimulatedProvider) -> None:
    provider.replies.append(ScriptedReply(hold_after=(4, trio.Event())))
    async with await connect(provider) as stream:
        await stream.send_all(request(stream=True))
        await receive_until(stream, b"event: content_block_delta", times=4)
        assert provider.world.inflight == 1

    with trio.fail_after(60):
        await provider.until(lambda: provider.hangups == 1)
    assert (provider.world.inflight, provider.world.tokens_out) == (0, 40)


async def test_the_slot_of_a_client_that_hung_up_is_free_for_the_very_next_arrival(
    provider: SimulatedProvider,
) -> None:
    provider.default = ScriptedReply(hold=trio.Event())
    gone = [await connect(provider) for _ in range(2)]
    for stream in gone:
        await stream.send_all(request())
    await provider.until(lambda: provider.world.inflight == 2)
    provider.default = ScriptedReply()
    async with await connect(provider) as late:
        await late.send_all(request(path="/warm"))
        await receive_until(late, b"not served")
        await trio.testing.wait_all_tasks_blocked()

        # No checkpoint between hanging up and asking again: whichever the provider reads first, it must get it right.
        for stream in gone:
            stream.socket.close()
        await late.send_all(request())

        assert (await receive_until(late, b'"stop_reason"')).startswith(b"HTTP/1.1 200")
    assert provider.world.inflight_max == 2
    await provider.until(lambda: provider.hangups == 2)


@pytest.mark.parametrize("reset", [False, True])
async def test_it_dies_mid_stream(provider: SimulatedProvider, reset: bool) -> None:
    provider.replies.append(ScriptedReply(die_after=3, reset=reset))
    async with await connect(provider) as stream:
        await stream.send_all(request(stream=True))
        got = b""
        try:
            while data := await stream.receive_some():
                got += data
        except trio.BrokenResourceError:
            assert reset
        else:
            assert not reset
            assert got.count(b"content_block_delta\n") == 3
    assert b"message_stop" not in got
    assert not got.endswith(b"0\r\n\r\n")
    assert provider.world.inflight == provider.hangups == 0


async def test_it_resets_before_the_first_byte(provider: SimulatedProvider) -> None:
    provider.replies.append(ScriptedReply(reset=True))
    async with await connect(provider) as stream:
        await stream.send_all(request())
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
    assert provider.world.attempts == 0


async def test_a_scripted_status_passes_as_it_is_and_the_connection_lives_on(provider: SimulatedProvider) -> None:
    odd = ((b"X-Odd", b"1"), (b"x-odd", b"2"))
    provider.replies.append(ScriptedReply(status=502, headers=odd, body=b"<html>bad gateway"))
    async with await connect(provider) as stream:
        await stream.send_all(request())
        first = await receive_until(stream, b"bad gateway")
        await stream.send_all(request())
        second = await receive_until(stream, b"end_turn")
    assert first.startswith(b"HTTP/1.1 502")
    assert b"X-Odd: 1\r\nx-odd: 2\r\n" in first
    assert second.startswith(b"HTTP/1.1 200")
    assert provider.connections_made == 1


async def test_pipelined_requests_are_answered_in_turn(provider: SimulatedProvider) -> None:
    async with await connect(provider) as stream:
        await stream.send_all(request(stream=True) + request(stream=True))
        got = await receive_until(stream, b"event: message_stop", times=2)
    assert got.count(b"event: content_block_delta") == 2 * EVENTS
    assert provider.world.inflight_max == 1


async def test_a_client_that_has_its_answer_may_ask_again_at_once(provider: SimulatedProvider) -> None:
    async def converse() -> None:
        # Two connections by turns, as a pool may use them: the second is read while the first is still winding down.
        async with await connect(provider) as one, await connect(provider) as two:
            for turn in range(20):
                stream = (one, two)[turn % 2]
                await stream.send_all(request(stream=turn % 3 == 1))
                await receive_until(stream, b"event: message_stop" if turn % 3 == 1 else b'"stop_reason":"end_turn"')

    async with trio.open_nursery() as clients:
        for _ in range(2):
            clients.start_soon(converse)

    assert provider.world.refused == provider.hangups == 0
    assert provider.world.attempts == 40


async def test_it_remembers_requests_as_they_came(provider: SimulatedProvider) -> None:
    async with await connect(provider) as stream:
        await stream.send_all(request(path="/v1/messages?beta=true", extra=b"X-Key: a\r\nx-key: b\r\n"))
        await receive_until(stream, b"end_turn")
    (seen,) = provider.seen
    assert seen.target == b"/v1/messages?beta=true"
    assert [header for header in seen.headers if header[0].lower() == b"x-key"] == [(b"X-Key", b"a"), (b"x-key", b"b")]
    assert json.loads(seen.body)["max_tokens"] == 999


async def test_nonsense_is_told_off_and_harms_nobody_else(provider: SimulatedProvider) -> None:
    async with await connect(provider) as stream:
        await stream.send_all(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert (await receive_until(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 400")
    async with await connect(provider) as stream:
        await stream.send_all(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await receive_until(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
async def test_who_has_vanished_cannot_be_reached_until_it_is_back(nursery: trio.Nursery) -> None:
    """An answer under way is ended; what is idle is closed, and nobody can connect."""
    provider = SimulatedProvider(attrs.evolve(INSTANT, latency_mean_ns=300_000_000))
    await nursery.start(provider.run)
    async with await connect(provider) as idle, await connect(provider) as busy:
        await busy.send_all(request())
        await provider.until(lambda: provider.world.inflight == 1)

        provider.vanish()

        with trio.fail_after(60):
            assert await idle.receive_some() == b""
            with pytest.raises(OSError, match="127"):
                await connect(provider)
            answer = b""
            while piece := await busy.receive_some():
                answer += piece
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.endswith(b"}")

    provider.come_back()
    with trio.fail_after(60):
        while provider.vanished:
            await trio.testing.wait_all_tasks_blocked()
    await (await connect(provider)).aclose()
    nursery.cancel_scope.cancel()


async def test_several_providers_behind_one_port_are_told_apart_and_say_what_each_answer_costs(
    nursery: trio.Nursery,
) -> None:
    worlds = {name: Provider(traits=attrs.evolve(INSTANT, cache_ns=10**12)) for name in ("small", "large")}
    bills: list[tuple[str, Usage]] = []

    def reads(asked: ParsedRequest) -> tuple[Provider, Ask]:
        return worlds[asked.model], attrs.evolve(asked.ask, tokens_in=70, conversation="one")

    provider = SimulatedProvider(reads=reads, billed=lambda asked, usage: bills.append((asked.model, usage)))
    await nursery.start(provider.run)

    async with httpx2.AsyncClient() as client:
        for model in ("small", "large", "large"):
            asked = {"model": model, "max_tokens": 99, "messages": [{"role": "user", "content": "x"}]}
            answer = await client.post(provider.url + "/v1/messages", json=asked)

    assert [worlds[name].attempts for name in ("small", "large")] == [1, 2]
    assert [(model, usage.input, usage.cache_read) for model, usage in bills] == [
        ("small", 70, 0),
        ("large", 70, 0),
        ("large", 0, 70),
    ]
    said = answer.json()["usage"]
    assert (said["input_tokens"], said["cache_read_input_tokens"]) == (0, 70)
    assert said["output_tokens"] == bills[-1][1].output > 0
    nursery.cancel_scope.cancel()
