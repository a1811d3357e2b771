"""A scenario over loopback sockets, in real time: the same jobs, the same providers behind sockets, and the real door.

Agents and providers live in this process, the proxy in one of its own (`bench.sockets.house`), as in life. What a
provider does is decided by the virtual world's own `Provider`, and when a client asks again by the virtual world's own
`Client`; between them are real bytes and real time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any, Final, final

import attrs
import trio

from bench.simulated.worlds import text_of
from hivemind_trio.demo import ParsedRequest, SimulatedProvider
from hivemind_trio.model import Api, Usage
from hivemind_trio.policy import Program
from hivemind_trio.sim import (
    Ask,
    ClientReply,
    Provider,
    Scenario,
    SimulatedCaller,
    Spread,
    Turn,
    Way,
    Weather,
    populate,
    providers,
)

from .clients import PAD, Caller, session
from .house import identity
from .measured import Measured

TELLING: Final = (Api.ANTHROPIC, Api.OPENAI, Api.AZURE)
"""APIs that have words for how quotas stand."""

LIMITED: Final = "429 "

NOTICED_S: Final = 2.0
"""In which a provider has noticed that the last of its clients is gone."""


@final
@attrs.define(eq=False)
class Stage:
    """Providers that listen and, on the way through us, a proxy that is warm; nothing has happened yet."""

    program: Program
    scenario: Scenario
    seed: int
    way: Way
    _worlds: Mapping[tuple[str, str | None], Provider]
    _faces: Mapping[str, SimulatedProvider]
    _house: _House | None
    _asks: Mapping[str, Ask]
    _billed: Counter[str]
    _living: list[SimulatedCaller] = attrs.field(init=False)
    _turns_ns: list[int] = attrs.field(init=False, factory=list)
    _calls: int = attrs.field(init=False, default=0)
    _ended: int = attrs.field(init=False, default=0)
    _took_s: float = attrs.field(init=False, default=0.0)
    reported: Mapping[str, Any] = attrs.field(init=False, factory=dict)
    """Report of the proxy's process, at the end."""

    def __attrs_post_init__(self) -> None:
        self._living = list(populate(self.program, self.scenario, self.seed))

    async def run(self) -> Measured:
        """Let it happen; takes as long as it says."""
        began_s = trio.current_time()
        for face in self._faces.values():
            face.begin()
        with trio.move_on_after(self.scenario.until_ns / 1e9):
            async with trio.open_nursery() as weather:
                for name, face in self._faces.items():
                    weather.start_soon(self._shut, name, face, began_s)
                async with trio.open_nursery() as fleet:
                    for living in self._living:
                        fleet.start_soon(self._live, living, began_s)
                weather.cancel_scope.cancel()
        lasted_s = trio.current_time() - began_s
        with trio.move_on_after(NOTICED_S):
            for face in self._faces.values():
                await face.until(lambda: not any(world.inflight for world in self._worlds.values()))
        whole = self._ended == len(self._living)
        if self._house is not None:
            self.reported = await self._house.report()
        return self._measured(self._took_s if whole else lasted_s, self.reported)

    @property
    def progress(self) -> str:
        """In words, while it runs."""
        done = sum(one.agent.turns_done for one in self._living)
        everything = sum(len(one.agent.job.turns) for one in self._living)
        return f"{self._ended} of {len(self._living)} agents, {done:,} of {everything:,} turns"

    async def _live(self, living: SimulatedCaller, began_s: float) -> None:
        """What `sim`'s world does with an agent, with its own client."""
        agent, fleet = living.agent, living.fleet
        name, credential = identity(self.program, living)
        caller = Caller(
            client=fleet.client,
            api=living.apis[0],
            model=living.model,
            path=living.path,
            credential=credential,
        )
        chance = Random(f"{self.seed}/client/{agent.job.agent}")
        ready_s = began_s
        for turn in agent.turns():
            await trio.sleep_until(ready_s + turn.think_ns / 1e9)
            await self._take(living, caller, name, turn, chance)
            ready_s = trio.current_time()
        self._ended += 1
        self._took_s = max(self._took_s, ready_s - began_s)
        await caller.aclose()

    async def _take(self, living: SimulatedCaller, caller: Caller, name: str, turn: Turn, chance: Random) -> None:
        agent = living.agent
        asked_s = trio.current_time()
        retried = broken = 0
        while True:
            base = self._where(living, turn) if self._house is None else f"{self._house.url}/@{name}"
            self._calls += 1
            reply = ClientReply(status=404, why="no provider serves it")
            if base is not None:
                reply = await caller.ask(base, turn, retried, self._says(living, turn))
            if reply.whole:
                agent.succeeded(reply.tokens)
                living.tokens_good += reply.tokens
                self._turns_ns.append(round((trio.current_time() - asked_s) * 1e9))
                return
            pause_ns = caller.client.pause_ns(reply, retried, broken, chance)
            if pause_ns is None:
                agent.failed(reply.why, tokens=reply.tokens)
                return
            agent.tokens += reply.tokens
            retried += 1
            broken += reply.broken
            await trio.sleep(pause_ns / 1e9)

    def _says(self, living: SimulatedCaller, turn: Turn) -> dict[str, str]:
        """The headers that the scenario has it send, and its session if it says one."""
        said = living.request(self.program, self.scenario, turn, 0).headers
        return {**said, **session(living.fleet.client, living.agent.job.agent)}

    def _where(self, living: SimulatedCaller, turn: Turn) -> str | None:
        """Without us each client knows where its call goes."""
        provider = self.program.decide(living.request(self.program, self.scenario, turn, 0)).provider
        return None if provider is None else self._faces[provider].url

    async def _shut(self, name: str, face: SimulatedProvider, began_s: float) -> None:
        """While nobody can connect, its port is closed."""
        storms = self.scenario.upstream(name).traits.storms
        shut = sorted((each.from_ns, each.to_ns) for each in storms if each.weather is Weather.UNREACHABLE)
        for from_ns, to_ns in shut:
            await trio.sleep_until(began_s + from_ns / 1e9)
            face.vanish()
            await trio.sleep_until(began_s + to_ns / 1e9)
            face.come_back()

    def _measured(self, seconds: float, report: Mapping[str, Any]) -> Measured:
        agents = [one.agent for one in self._living]
        own = list({id(world): world for world in self._worlds.values()}.values())
        met: Counter[str] = Counter()
        for world in own:
            met.update({trouble.value: count for trouble, count in world.met.items()})
        tokens = sum(world.tokens_in + world.tokens_out for world in own)
        unfinished = sum(world.tokens_unfinished for world in own)
        waits: defaultdict[str, list[int]] = defaultdict(list)
        calls = report.get("calls", [])
        for call in calls:
            if call["refused"] or not call["attempts"]:
                continue  # as in the virtual world, waits are of calls that were served
            waits[call["lane"]].append(call["waited_ms"] * 1_000_000)
        good = sum(one.tokens_good for one in self._living if not one.agent.dead)
        return Measured(
            agents=len(agents),
            dead=sum(agent.dead for agent in agents),
            undone=len(agents) - self._ended,
            turns=sum(len(agent.job.turns) for agent in agents),
            turns_done=sum(agent.turns_done for agent in agents),
            calls=self._calls,
            attempts=sum(world.attempts for world in own),
            limited=sum(count for name, count in met.items() if name.startswith(LIMITED)),
            refused=dict(Counter(call["refused"] for call in calls if call["refused"])),
            tokens=tokens,
            tokens_wasted=tokens - good - unfinished,
            cost_microusd=self._billed[""],
            seconds=seconds,
            wait=Spread.of(wait_ns for times in waits.values() for wait_ns in times),
            turn=Spread.of(self._turns_ns),
            lanes={lane: Spread.of(times) for lane, times in sorted(waits.items())},
            met=dict(met),
            died_of=dict(Counter(agent.died_of for agent in agents if agent.died_of is not None)),
            proxy_cpu_ns=report.get("cpu_ns", 0),
        )


@asynccontextmanager
async def staged(
    program: Program,
    scenario: Scenario,
    seed: int,
    way: Way,
    child: trio.Process | None = None,
    *,
    forecasts: bool = False,
) -> AsyncIterator[Stage]:
    """Everything up and warm, for one run.

    Args:
        scenario: Without `obstacles`.
        child: For the proxy, from `house_process`; None: one is started if it is needed.
        forecasts: The proxy estimates starts, and reports what came of it.
    """
    worlds = providers(program, scenario, seed)
    for (name, _), world in worlds.items():
        if program.providers[name].api not in TELLING:
            world.traits = attrs.evolve(world.traits, tells=False)
    asks = {turn.prompt: turn.ask for one in populate(program, scenario, seed) for turn in one.agent.job.turns}
    billed: Counter[str] = Counter()
    faces = {name: _face(program, name, worlds, asks, billed) for name in program.providers}
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        for face in faces.values():
            await nursery.start(face.run)
        house = None
        if way is Way.PROXY:
            bases = {name: face.url for name, face in faces.items()}
            if child is None:
                child = await stack.enter_async_context(house_process())
            house = await _move_in(child, text_of(program), bases, forecasts=forecasts)
        yield Stage(program, scenario, seed, way, worlds, faces, house, asks, billed)
        nursery.cancel_scope.cancel()


def _face(
    program: Program,
    name: str,
    worlds: Mapping[tuple[str, str | None], Provider],
    asks: Mapping[str, Ask],
    billed: Counter[str],
) -> SimulatedProvider:
    """A provider of the policy behind a socket. It draws for what a prompt is called, without what fills it up."""
    declared = program.providers[name]

    def reads(asked: ParsedRequest) -> tuple[Provider, Ask]:
        return worlds[name, declared.group_of(asked.model)], asks[asked.ask.key.rstrip(PAD)]

    def bill(asked: ParsedRequest, usage: Usage) -> None:
        price = program.price(asked.model, name)
        billed[""] += price.cost_of(usage) if price is not None else 0

    return SimulatedProvider(reads=reads, billed=bill)


# ---- the proxy's process ----


@final
@attrs.define(eq=False)
class _House:
    url: str
    _child: trio.Process
    _rest: bytes = b""

    async def report(self) -> dict[str, Any]:
        """End it; what it has to say."""
        assert self._child.stdin is not None
        await self._child.stdin.send_all(b"\n")
        said: dict[str, Any] = json.loads(await _line(self._child))
        return said


@asynccontextmanager
async def house_process() -> AsyncIterator[trio.Process]:
    """A proxy's process, which warms itself up until it is told what to serve; ended on the way out."""
    child = await trio.lowlevel.open_process(
        [sys.executable, "-m", "bench.sockets.house"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield child
    finally:
        child.kill()
        with trio.CancelScope(shield=True):
            await child.wait()
            for pipe in (child.stdin, child.stdout):
                assert pipe is not None
                await pipe.aclose()


async def _move_in(child: trio.Process, policy: str, bases: Mapping[str, str], *, forecasts: bool = False) -> _House:
    assert child.stdin is not None
    order = {"policy": policy, "bases": bases, "forecasts": forecasts}
    await child.stdin.send_all(json.dumps(order).encode() + b"\n")
    return _House(json.loads(await _line(child))["url"], child)


async def _line(child: trio.Process) -> bytes:
    """The next line that it prints; it prints one at a time."""
    assert child.stdout is not None
    said = b""
    while not said.endswith(b"\n"):
        piece = await child.stdout.receive_some(1 << 16)
        assert piece, f"the proxy's process has ended with status {await child.wait()}"
        said += piece
    return said
