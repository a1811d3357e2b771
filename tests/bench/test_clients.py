"""Clients over sockets read an answer for what it is, and the proxy knows them for what the virtual world says."""

from __future__ import annotations

from collections.abc import AsyncIterator

import attrs
import pytest
import trio

from bench.sockets.clients import Caller, session
from hivemind_trio.demo import ScriptedReply as Script
from hivemind_trio.demo import SimulatedProvider
from hivemind_trio.model import Api
from hivemind_trio.proxy.request.caller_identity import job
from hivemind_trio.proxy.request.client_profile import ClientProfile as Known
from hivemind_trio.sim import CLIENTS, ClientReply, Traits, Turn

ANSWER_FORMATS = {
    "/v1/messages": Api.ANTHROPIC,
    "/v1/chat/completions": Api.OPENAI,
    "/v1/responses": Api.OPENAI,
    "/openai/v1/chat/completions": Api.AZURE,
}
SHORT_NS = 300_000_000


@pytest.fixture
async def provider(nursery: trio.Nursery) -> AsyncIterator[SimulatedProvider]:
    """150 tokens out, ten at a time, at once."""
    traits = Traits(latency_mean_ns=0, latency_sigma_ns=0, latency_min_ns=0, tokens_out_sigma=0)
    one = SimulatedProvider(traits)
    await nursery.start(one.run)
    yield one
    nursery.cancel_scope.cancel()


def turn(*, stream: bool) -> Turn:
    return Turn(number=1, think_ns=0, stream=stream, prompt="a, turn 1", tokens_max_out=900, tokens_in=80)


async def asked(provider: SimulatedProvider, path: str, *, stream: bool, hasty: bool = False) -> ClientReply:
    client = CLIENTS["none"]
    if hasty:
        client = attrs.evolve(client, silence_ns=SHORT_NS)
    caller = Caller(client=client, api=ANSWER_FORMATS[path], model="m", path=path)
    try:
        with trio.fail_after(20):
            return await caller.ask(provider.url, turn(stream=stream))
    finally:
        await caller.aclose()


@pytest.mark.parametrize("path", ANSWER_FORMATS)
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
async def test_a_whole_answer_is_one_and_has_cost_what_is_billed(
    provider: SimulatedProvider, path: str, stream: bool
) -> None:
    reply = await asked(provider, path, stream=stream)

    assert reply == ClientReply(status=200, whole=True, tokens=80 + 150)
    assert (provider.world.tokens_in, provider.world.tokens_out) == (80, 150)


@pytest.mark.parametrize("path", ANSWER_FORMATS)
async def test_a_stream_that_breaks_has_cost_what_had_come(provider: SimulatedProvider, path: str) -> None:
    provider.replies.append(Script(die_after=4, reset=True))

    reply = await asked(provider, path, stream=True)

    said_at_first = 80 if path == "/v1/messages" else 0  # of the input only Anthropic speaks before the end
    assert reply == ClientReply(status=200, broken=True, tokens=said_at_first + 40, why="the stream broke")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "stream", "expected"),
    [
        (Script(status=429, headers=[(b"retry-after", b"7")]), True, ClientReply(status=429, retry_after_ns=7 * 10**9)),
        (Script(status=529), False, ClientReply(status=529)),
        (Script(status=403, headers=[(b"x-should-retry", b"false")]), True, ClientReply(status=403, final=True)),
        (Script(reset=True), True, ClientReply(status=0)),
        (Script(hold=trio.Event()), True, ClientReply(status=0, timed_out=True)),
        (Script(hold=trio.Event()), False, ClientReply(status=0, timed_out=True)),
        (
            Script(hold_after=(2, trio.Event())),
            True,
            ClientReply(status=0, timed_out=True, broken=True, tokens=80 + 20),
        ),
        (Script(die_after=3), True, ClientReply(status=200, broken=True, tokens=80 + 30)),
        (Script(die_after=3), False, ClientReply(status=0)),
    ],
    ids=["429", "529", "final", "reset", "silence", "silence, plain", "a stall", "an early end", "half a body"],
)
async def test_what_is_no_answer_is_told_apart(
    provider: SimulatedProvider, script: Script, stream: bool, expected: ClientReply
) -> None:
    provider.replies.append(script)

    reply = await asked(provider, "/v1/messages", stream=stream, hasty=expected.timed_out)

    assert attrs.evolve(reply, why="") == expected
    assert reply.why


async def test_nobody_there_is_no_connection() -> None:
    caller = Caller(client=CLIENTS["none"], api=Api.ANTHROPIC, model="m", path="/v1/messages")

    assert await caller.ask("http://127.0.0.1:9", turn(stream=False)) == ClientReply(status=0, why="no connection")


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("retried", [0, 1])
async def test_the_proxy_knows_each_kind_for_what_the_virtual_world_says(
    provider: SimulatedProvider, kind: str, retried: int
) -> None:
    client = CLIENTS[kind]
    caller = Caller(client=client, api=Api.ANTHROPIC, model="m", path="/v1/messages")

    await caller.ask(provider.url, turn(stream=False), retried, session(client, "a"))
    await caller.aclose()

    headers = {name.lower().decode(): value.decode() for name, value in provider.seen[-1].headers}
    known = Known.of(headers)
    assert known.waits_s == (None if client.known_ns is None else client.known_ns / 1e9)
    assert known.dies_of_429 is client.limits_are_fatal
    assert bool(job(headers, "")) is client.says_job
    if not client.limits_are_fatal:  # for them the door does not count
        assert known.tries_left == max(0, client.known_tries - retried)
