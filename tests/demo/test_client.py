"""The demo's agents: what they take for an answer, and what they die of."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from hivemind_trio.demo import ScriptedReply, SimulatedProvider
from hivemind_trio.demo.client import live
from hivemind_trio.sim import Agent, AgentJob, Traits


@pytest.fixture
async def provider(nursery: trio.Nursery) -> AsyncIterator[SimulatedProvider]:
    traits = Traits(concurrency=2, latency_mean_ns=0, latency_sigma_ns=0, latency_min_ns=0, tokens_out_sigma=0)
    provider = SimulatedProvider(traits)
    await nursery.start(provider.run)
    yield provider
    nursery.cancel_scope.cancel()


def agent(*, turns: int = 4, stream_every: int = 2) -> Agent:
    return Agent(AgentJob.draw("a", seed=1, turns=turns, start_max_ns=0, think_ns=(0, 0), stream_every=stream_every))


async def test_an_agent_does_its_job_over_one_connection(provider: SimulatedProvider) -> None:
    one = agent()

    await live(one, provider.url)

    assert one.done
    assert not one.dead
    assert one.tokens == provider.world.tokens_in + provider.world.tokens_out == 4 * (50 + 150)
    assert provider.connections_made == 1
    assert [b'"stream": true' in seen.body for seen in provider.seen] == [False, True, False, True]


async def test_a_prefix_of_the_base_url_comes_before_v1(provider: SimulatedProvider) -> None:
    one = agent(turns=1)

    await live(one, f"{provider.url}/@ci")

    assert provider.seen[0].target == b"/@ci/v1/messages"
    assert one.died_of == "404 not_found_error"


async def test_an_agent_dies_of_an_overload_and_has_wasted_what_it_did_before(provider: SimulatedProvider) -> None:
    one = agent()
    overloaded = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    provider.replies.extend([ScriptedReply(), ScriptedReply(), ScriptedReply(status=529, body=overloaded)])

    await live(one, provider.url)

    assert one.died_of == "529 overloaded_error"
    assert one.turns_done == 2
    assert one.tokens_wasted == 2 * (50 + 150)


@pytest.mark.parametrize(
    ("reply", "died_of", "tokens"),
    [
        (ScriptedReply(die_after=3), "the stream broke", 50 + 30),
        (ScriptedReply(reset=True), "connection", 0),
        (ScriptedReply(status=502, body=b"<html>"), "502, and a body that is no answer", 0),
        (ScriptedReply(status=200, body=b"data: {}\n\n"), "the stream ended early", 0),
        (
            ScriptedReply(status=200, body=b'data: {"type":"error","error":{"type":"overloaded_error"}}\n\n'),
            "mid-stream: overloaded_error",
            0,
        ),
    ],
)
async def test_what_a_streaming_turn_dies_of(
    provider: SimulatedProvider, reply: ScriptedReply, died_of: str, tokens: int
) -> None:
    one = agent(stream_every=1)
    provider.replies.append(reply)

    await live(one, provider.url)

    assert one.died_of is not None
    assert one.died_of.startswith(died_of)
    assert one.tokens_wasted == tokens
    assert provider.hangups == 0


async def test_an_agent_dies_if_nobody_listens() -> None:
    one = agent()

    await live(one, "http://127.0.0.1:1")

    assert one.died_of is not None
    assert one.died_of.startswith("connection")
