"""Agents of one kind, and the jobs that they set out to do."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from types import MappingProxyType
from typing import Final, final

import attrs

from hivemind_trio.model.addresses import LOOPBACK
from hivemind_trio.sim.provider.latency_and_faults import draw
from hivemind_trio.sim.provider.profile import SECOND_NS, Shape

from .agent import AgentJob, Turn
from .client import FRAGILE, ClientBehaviour

AGENTS_MAX: Final = 1_000_000


@final
@attrs.frozen
class Amount:
    """A quantity that is drawn anew each time: exact, or with a spread."""

    mean: float
    spread: float = 0.0
    """The standard deviation; of a uniform one half of its width."""
    shape: Shape = Shape.UNIFORM

    def draw(self, chance: Random) -> int:
        """Not below 0."""
        if not self.spread:
            return round(self.mean)
        return max(0, round(draw(self.shape, self.mean, self.spread, chance)))


@final
@attrs.frozen(kw_only=True)
class Arrivals:
    """Agents that come one by one at chance times, so many per second on average, for a while."""

    per_second: float
    for_ns: int
    from_ns: int = 0
    """When they begin."""


@final
@attrs.frozen(kw_only=True)
class Fleet:
    """Agents of one kind. Each takes its turns one after another and thinks in between."""

    name: str
    count: int = 1
    """Not looked at where they arrive."""
    turns: Amount = Amount(1)
    start_ns: Amount = Amount(0)
    think_ns: Amount = Amount(0)
    """Between an answer and the next question."""
    arrive: Arrivals | None = None
    identities: tuple[str, ...] | None = None
    """Declared agents of the policy that they are, in turn; empty: unknown callers; None: all that the policy has."""
    models: tuple[str, ...] = ()
    """In turn; empty: the usual one of the policy's first provider."""
    tokens_in: Amount = Amount(50)
    grows: int = 0
    """Tokens by which the prompt grows with every turn."""
    prefix: int = 0
    """Tokens on top, with which all prompts of the fleet begin."""
    tokens_max_out: int = 1024
    tokens_out: int | None = None
    """Mean length of an answer; None: the provider's usual one."""
    stream: float = 0.0
    """The share of turns that are streamed."""
    client: ClientBehaviour = FRAGILE
    headers: Mapping[str, str] = MappingProxyType({})
    """Lower-case names."""
    path: str = ""
    """Empty: the usual one of the dialect."""
    address: int = LOOPBACK
    """Address of the callers, as a number."""
    says_remaining: Amount | None = None
    """Each agent says with every call how many it has still to make, this one included: so many times the truth, which
    is drawn once for each. None: it does not say."""
    recorded: tuple[AgentJob, ...] = ()
    """Recorded jobs that are repeated, whatever the fields above say of number and requests."""

    def jobs(self, seed: int) -> list[AgentJob]:
        """Return the jobs of the fleet; the same for the same seed, whoever schedules it."""
        if self.recorded:
            return list(self.recorded)
        if self.arrive is None:
            return [self._job(number, seed, None) for number in range(1, self.count + 1)]
        chance = Random(f"{seed}/arrivals/{self.name}")  # noqa: S311 - a simulation wants to be repeatable
        jobs: list[AgentJob] = []
        at_s = chance.expovariate(self.arrive.per_second)
        while at_s * SECOND_NS < self.arrive.for_ns and len(jobs) < AGENTS_MAX:
            jobs.append(self._job(len(jobs) + 1, seed, self.arrive.from_ns + round(at_s * SECOND_NS)))
            at_s += chance.expovariate(self.arrive.per_second)
        return jobs

    def misjudges(self, agent: str, seed: int) -> float | None:
        """Return the factor by which an agent misstates how many calls remain; None: it does not say."""
        if self.says_remaining is None:
            return None
        said = self.says_remaining
        chance = Random(f"{seed}/remaining/{agent}")  # noqa: S311 - as above
        return draw(said.shape, said.mean, said.spread, chance) if said.spread else said.mean

    def _job(self, number: int, seed: int, start_ns: int | None) -> AgentJob:
        agent = f"{self.name}-{number}"
        chance = Random(f"{seed}/{agent}")  # noqa: S311 - as above
        turns: list[Turn] = []
        for turn in range(1, max(1, self.turns.draw(chance)) + 1):
            think_ns = self.think_ns.draw(chance) if turn > 1 else start_ns
            turns.append(
                Turn(
                    number=turn,
                    think_ns=self.start_ns.draw(chance) if think_ns is None else think_ns,
                    stream=self.stream > 0 and chance.random() < self.stream,
                    prompt=f"{agent}, turn {turn}",
                    tokens_max_out=self.tokens_max_out,
                    tokens_out=self.tokens_out,
                    tokens_in=self.prefix + max(1, self.tokens_in.draw(chance) + self.grows * (turn - 1)),
                    conversation=agent,
                    prefix=self.name if self.prefix else "",
                    prefix_tokens=self.prefix,
                )
            )
        return AgentJob(agent=agent, turns=tuple(turns))
