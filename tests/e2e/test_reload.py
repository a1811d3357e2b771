"""A policy is replaced while agents stream: no call fails, no cap is exceeded, and nobody loses his place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs
import openai
import pytest
import trio

from hivemind_trio.demo import ScriptedReply
from hivemind_trio.model import SecretRef, SecretSource
from hivemind_trio.sim import Traits
from tests.e2e.house import CAP_1, PATIENCE_S, Place, compiled, messages, standing, until

# openai-python leaves its async generators half read at the end of every stream.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator '(openai|httpx2|httpcore2):ResourceWarning")

MS: Final = 1_000_000
STREAMS: Final = Traits(latency_mean_ns=20 * MS, latency_sigma_ns=10 * MS, latency_min_ns=5 * MS)
AGENTS: Final = 15


def capped(cap: int, rest: str = "", *, provider: str = "sim") -> str:
    return f"hmp 1\nprovider {provider} {{ api generic; base env(UPSTREAM); concurrency {cap} }}\n{rest}"


RELOADS: Final = {
    "a lower cap": (capped(6), capped(2)),
    "a higher cap": (capped(2), capped(6)),
    "a renamed lane": (
        capped(4, "lane fleet { weight 1; max 3 }\nrule all { lane fleet }\n"),
        capped(4, "lane crew { weight 1; max 2 }\nrule all { lane crew }\n"),
    ),
    "a removed rule": (
        capped(4, 'lane slow { weight 1; max 1 }\nrule some when model ~ "gpt-*" { lane slow }\n'),
        capped(4, "lane slow { weight 1; max 1 }\n"),
    ),
    "a renamed provider": (capped(4), capped(4, provider="other")),
}


async def stream(client: openai.AsyncOpenAI, text: str) -> str:
    answer = await client.chat.completions.create(model="gpt-x", messages=messages(text), stream=True)
    chunks = [chunk async for chunk in answer]
    assert chunks[-1].choices[0].finish_reason == "stop"
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def client_of(place: Place) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=place.v1, api_key="k", max_retries=0)


@attrs.define(eq=False)
class Fleet:
    """Agents that stream one answer after another until told to stop; the first failure is the test's."""

    place: Place
    client: openai.AsyncOpenAI
    answers: int = attrs.field(init=False, default=0)
    stopping: bool = attrs.field(init=False, default=False)

    async def agent(self, number: int) -> None:
        while not self.stopping:
            assert await stream(self.client, f"I am number {number}")
            self.answers += 1

    async def more(self, count: int) -> None:
        """Wait for so many answers from here on."""
        wanted = self.answers + count
        await until(lambda: self.answers >= wanted)


async def under_load(place: Place, act: Callable[[], None]) -> None:
    """Let the fleet stream, `act`, let it stream on, and stop it."""
    async with client_of(place) as client:
        fleet = Fleet(place, client)
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as agents:
                for number in range(AGENTS):
                    agents.start_soon(fleet.agent, number)
                await fleet.more(AGENTS)
                act()
                await fleet.more(AGENTS)
                fleet.stopping = True


@pytest.mark.parametrize(
    ("change", "transport"),
    # The transport hears only of providers that go.
    [*((change, "pool") for change in RELOADS), ("a renamed provider", "stock")],
)
async def test_no_call_fails_when_the_policy_changes_under_load(change: str, transport: str) -> None:
    before, after = RELOADS[change]
    async with standing(before, transport=transport, traits=STREAMS) as place:
        await under_load(place, lambda: place.use(after))
        world = place.provider.world

    assert {one.status for one in place.records} == {200}
    assert (world.refused, place.provider.hangups) == (0, 0)


async def test_a_lowered_cap_drains_and_is_never_exceeded_again() -> None:
    async with standing(capped(6), traits=STREAMS) as place:
        world = place.provider.world
        async with client_of(place) as client, trio.open_nursery() as agents:
            fleet = Fleet(place, client)
            for number in range(AGENTS):
                agents.start_soon(fleet.agent, number)
            await fleet.more(AGENTS)
            assert world.inflight_max == 6
            place.use(capped(2))
            # What was in flight ends in its own time; from the moment that it has, the new cap is the provider's own.
            await until(lambda: place.inflight <= 2)
            place.provider.traits = world.traits = attrs.evolve(STREAMS, concurrency=2)
            world.inflight_max = world.inflight
            await fleet.more(2 * AGENTS)
            fleet.stopping = True

        most = world.inflight_max

    assert most == 2
    assert world.refused == 0


async def test_a_raised_cap_is_used_at_once() -> None:
    async with standing(capped(1)) as place, client_of(place) as client, trio.open_nursery() as agents:
        gate = trio.Event()
        place.provider.default = ScriptedReply(hold=gate)
        for number in range(5):
            agents.start_soon(stream, client, f"I am number {number}")
        await until(lambda: place.waiting == 4)

        place.use(capped(4))
        await until(lambda: place.provider.world.inflight == 4)
        waiting = place.waiting
        gate.set()

    assert waiting == 1


async def test_who_waits_keeps_his_age_and_his_place_in_another_lane() -> None:
    lanes = "lane a { weight 1 }\nlane b { weight 1 }\n"
    split = CAP_1 + lanes + 'rule first when model == "gpt-x" { lane a }\nrule rest { lane b }\n'
    merged = CAP_1 + lanes + "rule all { lane b }\n"
    async with standing(split) as place, client_of(place) as client, trio.open_nursery() as agents:
        gate = trio.Event()
        place.provider.replies.append(ScriptedReply(hold=gate))
        agents.start_soon(stream, client, "holds the slot")
        await until(lambda: place.provider.world.inflight == 1)
        agents.start_soon(stream, client, "came first")
        await until(lambda: place.waiting == 1)
        waiting_since_ns = place.house.engine.now_ns()
        await until(lambda: place.house.engine.now_ns() - waiting_since_ns > 50 * MS)

        place.use(merged)
        agents.start_soon(partial(client.chat.completions.create, model="other", messages=messages("came later")))
        await until(lambda: place.waiting == 2)
        gate.set()

    assert [b"came first" in seen.body for seen in place.provider.seen] == [False, True, False]
    assert place.records[1].waited_ms >= 50
    assert [one.lane for one in place.records] == ["a", "b", "b"]


async def test_who_waits_for_what_the_new_policy_denies_is_told_so() -> None:
    async with standing(CAP_1) as place, client_of(place) as client, trio.open_nursery() as agents:
        gate = trio.Event()
        place.provider.replies.append(ScriptedReply(hold=gate))
        agents.start_soon(stream, client, "streams on")
        await until(lambda: place.provider.world.inflight == 1)

        async def denied() -> None:
            with pytest.raises(openai.PermissionDeniedError, match="not any more"):
                await stream(client, "waits")

        async with trio.open_nursery() as waiting:
            waiting.start_soon(denied)
            await until(lambda: place.waiting == 1)
            place.use(CAP_1 + 'rule none { deny "not any more" }\n')
        gate.set()

    assert [one.status for one in place.records] == [403, 200]


async def test_a_rotated_key_is_used_from_the_next_call_on() -> None:
    policy = CAP_1.replace("concurrency 1", "concurrency 1; key env(KEY)")
    async with standing(policy, secrets={"KEY": "old"}) as place, client_of(place) as client:
        await stream(client, "before")
        place.house.use(compiled(policy), {**place.secrets, SecretRef(SecretSource.ENV, "KEY"): "new"})
        await stream(client, "after")

        keys = [place.sent(number)[b"authorization"] for number in range(2)]

    assert keys == [b"Bearer old", b"Bearer new"]


async def test_a_base_that_is_corrected_is_not_called_unreachable_any_more() -> None:
    async with standing(CAP_1, secrets={"UPSTREAM": "http://127.0.0.1:1"}) as place, client_of(place) as client:
        with pytest.raises(openai.InternalServerError, match="unreachable"):
            await stream(client, "lost")
        before = dict(place.house.tally.unreached)
        place.house.use(compiled(CAP_1 + 'rule none { deny "no" }\n'), place.secrets)
        same = dict(place.house.tally.unreached)
        there = SecretRef(SecretSource.ENV, "UPSTREAM")
        place.house.use(compiled(CAP_1), {**place.secrets, there: "http://127.0.0.1:2"})

    assert list(before) == ["sim"]
    assert (same, place.house.tally.unreached) == (before, {})
