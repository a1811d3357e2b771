"""Thirty streaming agents that die of their first error, one key, and a provider that has every fault: none dies.

Half speak Anthropic Messages with the demo's unforgiving client, half OpenAI Chat with the SDK and without its retries.
What no proxy can mend is a stream that breaks after its first byte: then an agent is told so, and asks again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import openai
import pytest
import trio
from openai.types import CompletionUsage

from hivemind_trio.demo.client import AgentConnection, TurnError
from hivemind_trio.sim import Agent, AgentJob, Quota, Traits, Trouble, Turn
from tests.e2e.house import Place, standing, until

# openai-python leaves its async generators half read at the end of every stream.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator '(openai|httpx2|httpcore2):ResourceWarning")

MS: Final = 1_000_000
AGENTS: Final = 30
PROMPT_TOKENS: Final = 5_000
CAP: Final = 6

FAULTY: Final = Traits(
    latency_mean_ns=80 * MS,
    latency_sigma_ns=30 * MS,
    latency_min_ns=20 * MS,
    concurrency=CAP,
    requests=Quota(limit=1_800, burst=150),
    input=Quota(limit=9_000_000, burst=750_000),
    output=Quota(limit=360_000, burst=30_000),
    bad_gateways=0.06,
    resets=0.06,
    breaks=0.05,
)
"""What fails at random is the seed's, so it is the same in every run: at least one of each kind."""

RETRY: Final = "retry patient { attempts 30; backoff 100ms..400ms; ratio 100% }"


@attrs.frozen(kw_only=True)
class Case:
    """A provider, what the policy knows of it, and what the fleet cannot but meet there."""

    traits: Traits
    policy: str
    cap: int
    """Of the policy: what the provider may see at once, what it refuses included."""
    met: frozenset[Trouble]
    never: frozenset[Trouble] = frozenset()
    turns: int = 3


ALWAYS: Final = frozenset({Trouble.BAD_GATEWAY, Trouble.RESET, Trouble.BREAK})
QUOTAS: Final = frozenset({Trouble.REQUESTS, Trouble.INPUT, Trouble.OUTPUT})

CASES: Final = {
    # The outage is four times as long as the circuit stays open, so some probe meets it on a machine of any speed.
    "declared": Case(
        traits=attrs.evolve(FAULTY, outages=((500 * MS, 1_700 * MS),)),
        policy=f"""
hmp 1
provider sim {{
  api generic
  base env(UPSTREAM)
  concurrency {CAP}
  limits {{ requests 1800/min; input 9M/min; output 360k/min }}
  breaker trip 50% of 6 over 500ms open 300ms probes 1
  retry patient
}}
{RETRY}
""",
        cap=CAP,
        met=ALWAYS | {Trouble.OUTAGE},
        never=QUOTAS | {Trouble.OVERLOAD},
    ),
    "hidden": Case(
        traits=attrs.evolve(FAULTY, requests=Quota(limit=450, burst=8)),
        policy=f"""
hmp 1
provider sim {{
  api generic
  base env(UPSTREAM)
  concurrency 2..8 start 8
  headers ignore
  aimd cooldown 300ms
  breaker trip 80% of 20 over 5s open 300ms probes 1
  retry patient
}}
{RETRY}
""",
        cap=8,
        met=ALWAYS | {Trouble.OVERLOAD, Trouble.REQUESTS},
        turns=2,
    ),
}


class BrokeOff(Exception):  # noqa: N818 - news of the provider's, not an error of the test's
    """The answer had begun, and its stream said in its own dialect that there will be no end."""


Ask = Callable[[Turn], Awaitable[int]]
"""One turn; the tokens it cost. Raises BrokeOff, or anything else to die of."""


def anthropic(place: Place, name: str) -> Ask:
    async def ask(turn: Turn) -> int:
        connection = await AgentConnection.open(f"{place.url}/@{name}")
        try:
            return await connection.take(turn)
        except TurnError as error:
            if str(error).startswith("mid-stream"):
                raise BrokeOff from error
            raise
        finally:
            connection.stream.socket.close()

    return ask


def openai_chat(client: openai.AsyncOpenAI, name: str) -> Ask:
    async def ask(turn: Turn) -> int:
        begun = False
        try:
            stream = await client.chat.completions.create(
                model="gpt-x",
                max_tokens=turn.tokens_max_out,
                messages=[{"role": "user", "content": turn.prompt}],
                stream=True,
                stream_options={"include_usage": True},
                extra_headers={"x-hivemind-agent": name},
            )
            begun = True
            usage: CompletionUsage | None = None
            async for chunk in stream:
                usage = chunk.usage
        except openai.APIError as error:
            if begun and type(error) is openai.APIError:  # an error event, and not a status or a broken connection
                raise BrokeOff from error
            raise
        assert usage is not None, "the stream ended without its last chunk"
        return usage.total_tokens

    return ask


@attrs.define(eq=False)
class Fleet:
    """What became of it."""

    agents: list[Agent]
    broke_off: int = 0

    @property
    def deaths(self) -> list[str | None]:
        return [agent.died_of for agent in self.agents if agent.dead]


async def work(agent: Agent, fleet: Fleet, ask: Ask) -> None:
    """Take turns; what broke off after it had begun is asked again, of everything else the agent dies."""
    for turn in agent.turns():
        await trio.sleep(turn.think_ns / 1e9)
        try:
            tokens = await ask(turn)
        except BrokeOff:
            fleet.broke_off += 1
        except (TurnError, openai.APIError, OSError, trio.BrokenResourceError) as error:
            agent.failed(f"{type(error).__name__}: {error}")
        else:
            agent.succeeded(tokens)


async def send(place: Place, turns: int) -> Fleet:
    """All of them, all at once."""
    fleet = Fleet(
        [
            Agent(
                AgentJob.draw(
                    f"agent-{number:02}",
                    seed=7,
                    turns=turns,
                    start_max_ns=0,
                    think_ns=(0, 50 * MS),
                    stream_every=1,
                    prompt_chars=4 * PROMPT_TOKENS,
                )
            )
            for number in range(AGENTS)
        ]
    )
    async with (
        openai.AsyncOpenAI(base_url=place.v1, api_key="the one key", max_retries=0) as client,
        trio.open_nursery() as nursery,
    ):
        for number, agent in enumerate(fleet.agents):
            name = agent.job.agent
            ask = anthropic(place, name) if number % 2 else openai_chat(client, name)
            nursery.start_soon(work, agent, fleet, ask)
    return fleet


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_no_agent_dies_whatever_the_provider_does(case: Case) -> None:
    async with standing(case.policy, traits=case.traits) as place:
        fleet = await send(place, case.turns)
        await until(lambda: place.inflight == 0)
        world, snapshot = place.provider.world, place.house.engine.snapshot()

    assert fleet.deaths == []
    assert all(agent.done for agent in fleet.agents)

    # It was as bad as it was meant to be, and what a policy that knows the provider can avoid was avoided.
    assert {trouble for trouble in case.met if not world.met[trouble]} == set()
    assert {trouble: world.met[trouble] for trouble in case.never if world.met[trouble]} == {}
    assert world.inflight_max <= case.cap

    # Every attempt came to a whole answer that an agent has, or met one of those troubles: none was made twice.
    assert world.attempts == AGENTS * case.turns + world.met.total()
    # A stream that broke off after it had begun is all that is lost, and its agent was told so.
    assert fleet.broke_off == world.met[Trouble.BREAK]
    assert sum(agent.tokens for agent in fleet.agents) == world.tokens_in + world.tokens_out - world.tokens_lost
    assert world.tokens_lost <= fleet.broke_off * (PROMPT_TOKENS + 1_024)

    # Everything that was taken has been given back, on both sides.
    (pool,) = snapshot.pools.values()
    assert (snapshot.waiting, snapshot.agents, pool.inflight, world.inflight) == (0, 0, 0, 0)
    assert set(pool.lanes_inflight.values()) | set(pool.groups_inflight.values()) == {0}
