"""Floor of the error: estimates by whoever knows a drawing's parameters, and not what chance makes of them.

A copy of the whole world goes on from the moment of an estimate: the provider with its limits, windows and true state,
the agents, and the scheduler. What is chance is drawn anew, as far as it has not shown yet: failures, the ends of
storms that go on and all of those to come, moves of the cap to come, lengths of answers, pauses and turns of agents. So
nobody who watches the provider from outside can do better, but for luck.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from heapq import heapify
from io import BytesIO
from random import Random
from typing import Any, Final, final

import attrs

from bench.adversaries.draw import NAMED, values_of
from bench.adversaries.provider import SECOND_NS, Ask, Exchange, Stage, Storm, Traits, planned
from bench.adversaries.run import Agent, Job, Ours, Turn, World
from hivemind_trio.runtime.scheduler_copies import CopyReader, CopyWriter
from hivemind_trio.scheduler import CallCancelled, CallId, Command, Event, Grant, Reject

FUTURES: Final = 24
HORIZON_NS: Final = 1_800 * SECOND_NS
DRAWS_MAX: Final = 200
"""Draws until one agrees with what is known."""
STORM_S: Final = (3.0, 40.0)
"""Lengths of storms, their logarithms spread evenly (`adversaries/draw.py`)."""
STORMS_UNTIL_NS: Final = 60 * SECOND_NS
"""Begins of storms."""
ENDS: Final = (Stage.END, Stage.ERROR, Stage.CUT, Stage.NO_END)


@final
@attrs.define(eq=False)
class OracleFuture:
    """One future of a world, with chance of its own."""

    world: World
    chance: Random
    starts_ns: dict[CallId, int | None] = attrs.field(factory=dict, init=False)
    """From the moment of the estimate; None: it was rejected, or its client had left."""
    _awaited: set[CallId] = attrs.field(factory=set, init=False)
    _from_ns: int = attrs.field(default=0, init=False)

    def run(self, awaited: Sequence[CallId]) -> Mapping[CallId, int | None]:
        """Let time pass until those calls have started, or are given up; return when, from now."""
        world = self.world
        self._awaited, self._from_ns = set(awaited), world.loop.now_ns
        redraw(world, self.chance)
        world.observe = self._observe
        world.loop.run(self._from_ns + HORIZON_NS)
        return self.starts_ns

    def _observe(self, now_ns: int, event: Event, commands: Sequence[Command]) -> None:
        if isinstance(event, CallCancelled) and event.call_id in self._awaited:
            self._settle(event.call_id, None)
        for command in commands:
            if isinstance(command, Grant | Reject) and command.call_id in self._awaited:
                self._settle(command.call_id, now_ns - self._from_ns if isinstance(command, Grant) else None)
        if not self._awaited:
            self.world.loop.over = True

    def _settle(self, call_id: CallId, start_ns: int | None) -> None:
        self._awaited.discard(call_id)
        self.starts_ns[call_id] = start_ns


def futures(world: World, awaited: Sequence[CallId], seed: str) -> list[Mapping[CallId, int | None]]:
    """Return starts of calls that wait, in several futures. The world is left as it is."""
    assert isinstance(world.road, Ours)
    scheduler = world.road.scheduler
    shared = [world._hash, scheduler.state.turns, *scheduler.constants(), world.drawing.jobs]
    file, observe, world.observe = BytesIO(), world.observe, None
    CopyWriter(file, shared).dump(world)
    world.observe = observe
    found = []
    for number in range(FUTURES):
        own = (hashlib.blake2b(digest_size=8), *shared[1:])
        copy: World = CopyReader(BytesIO(file.getvalue()), own).load()
        found.append(OracleFuture(copy, Random(f"oracle/{seed}/{number}")).run(awaited))
    return found


# ---- chance ----


def redraw(world: World, chance: Random) -> None:
    """Draw what has not shown yet."""
    provider, loop, drawing = world.provider, world.loop, world.drawing
    provider.advance(loop.now_ns)
    provider.traits = attrs.evolve(
        provider.traits,
        storms=_storms(provider.traits, loop.now_ns, chance),
        caps=_caps(provider.traits, loop.now_ns, chance),
    )
    provider.seed = chance.getrandbits(32)
    loop.jitter = Random(chance.random())
    values = None if drawing.name in NAMED else values_of(drawing.name)
    assert isinstance(world.road, Ours)
    for agent in world.agents:
        agent.chance = Random(chance.random())
        if values is not None and agent.had < len(agent.job.turns) and not agent.died_of:
            agent.job = _job(agent, values, chance)
    for talk in world.road.talks.values():
        if talk.attempt is not None:
            exchange = talk.attempt.exchange
            if exchange is not None and exchange.admitted and not exchange.over:
                _progress(world, exchange, talk.agent, values, talk.attempt.content_ns is not None, chance)
            talk.attempt.ask = talk.agent.turn.ask
    if values is not None:
        _pauses(world, values, chance)


def _storms(traits: Traits, now_ns: int, chance: Random) -> tuple[Storm, ...]:
    drawn = []
    for storm in traits.storms:
        from_ns, to_ns = storm.from_ns, storm.to_ns
        if from_ns > now_ns:
            from_ns = now_ns + round(chance.random() * max(0, STORMS_UNTIL_NS - now_ns))
        if to_ns > now_ns:
            least_s = max(STORM_S[0], (now_ns - from_ns) / SECOND_NS)
            most_s = max(STORM_S[1], least_s)
            to_ns = max(now_ns, from_ns + round(least_s * (most_s / least_s) ** chance.random() * SECOND_NS))
        drawn.append(attrs.evolve(storm, from_ns=from_ns, to_ns=to_ns))
    return tuple(drawn)


def _caps(traits: Traits, now_ns: int, chance: Random) -> tuple[tuple[int, int], ...]:
    if not traits.caps:
        return ()
    drawn, base = [], traits.caps[0][1]
    for from_ns, cap in traits.caps:
        if from_ns <= now_ns:
            drawn.append((from_ns, cap))
            continue
        before_ns = drawn[-1][0]
        least_s = max(5.0, (now_ns - before_ns) / SECOND_NS)
        at_ns = before_ns + round(chance.uniform(least_s, max(40.0, least_s)) * SECOND_NS)
        drawn.append((at_ns, max(1, round(base * chance.choice((0.3, 0.5, 1.0, 2.0))))))
    return tuple(drawn)


def _job(agent: Agent, values: Mapping[str, Any], chance: Random) -> Job:
    """Return a job with the same past: the length of the answer of now and the turns after it are drawn."""
    job, had = agent.job, agent.had
    now = attrs.evolve(job.turns[had], ask=_ask(job.turns[had].ask, values, chance))
    count = chance.randint(had + 1, max(had + 1, 2 * values["turns"] - 1)) if values["uneven"] else len(job.turns)
    later = []
    for turn in range(had + 1, count):
        ask = attrs.evolve(now.ask, key=f"{job.agent}/{turn + 1}", tokens_in=_size(values, "tokens_in", chance))
        think_ns = round(values["think_s"] * chance.uniform(0.5, 1.5) * SECOND_NS)
        later.append(Turn(ask=_ask(ask, values, chance), think_ns=think_ns))
    return attrs.evolve(job, turns=(*job.turns[:had], now, *later))


def _ask(ask: Ask, values: Mapping[str, Any], chance: Random) -> Ask:
    return attrs.evolve(ask, tokens_out=_size(values, "tokens_out", chance))


def _size(values: Mapping[str, Any], name: str, chance: Random) -> int:
    mean, spread = float(values[name]), float(values["spread"])
    most = mean * 3 if name == "tokens_in" else float(values["tokens_max"])
    return max(1, round(min(most, mean * math.exp(chance.gauss(-spread * spread / 2, spread)))))


def _progress(
    world: World, exchange: Exchange, agent: Agent, values: Mapping[str, Any] | None, contented: bool, chance: Random
) -> None:
    """Draw how an answer goes on, in agreement with how far it has come."""
    done = world.provider.work_ns - exchange.started
    for _ in range(DRAWS_MAX):
        ask = exchange.ask if values is None else _ask(exchange.ask, values, chance)
        plan = planned(world.provider.traits, ask, chance)
        passed = [stage for at, stage in plan if at <= done]
        if not any(stage in ENDS for stage in passed) and (Stage.CONTENT in passed) == contented:
            world.provider.replan(exchange, ask, [one for one in plan if one[0] > done])
            break
    turns, had = agent.job.turns, agent.had
    now = attrs.evolve(turns[had], ask=exchange.ask)
    agent.job = attrs.evolve(agent.job, turns=(*turns[:had], now, *turns[had + 1 :]))


def _pauses(world: World, values: Mapping[str, Any], chance: Random) -> None:
    """Draw when agents begin, and end to think."""
    now_ns, heap = world.loop.now_ns, world.loop.heap
    for entry in heap:
        agent = getattr(entry[2], "__self__", None)
        if not isinstance(agent, Agent) or entry[0] <= now_ns:
            continue
        if entry[2] == agent.think:
            entry[0] = now_ns + round(chance.random() * max(0, values["start_s"] * SECOND_NS - now_ns))
        elif not agent.retried:
            began_ns = entry[0] - agent.turn.think_ns
            least = max(0.5, (now_ns - began_ns) / max(1.0, values["think_s"] * SECOND_NS))
            entry[0] = began_ns + round(values["think_s"] * chance.uniform(least, max(1.5, least)) * SECOND_NS)
    heapify(heap)
