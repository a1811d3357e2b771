"""The real proxy in a process of its own, as `bench.sockets` runs it: `serve`'s composition, warm, under any policy.

Run as `python -m bench.sockets.house`. Reads one line of JSON, the policy's text and where its providers are, prints
one with its URL, and at the next line, or at the end of its input, one with what came of every call and what it took.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from time import process_time_ns
from typing import Any, Final

import attrs
import trio

from bench.forecasts.watch import Watch
from bench.simulated.worlds import compiled
from hivemind_trio.demo import INSTANT, SimulatedProvider
from hivemind_trio.listen import bind
from hivemind_trio.model import Api, SecretRef
from hivemind_trio.policy import Program
from hivemind_trio.proxy import CallRecord
from hivemind_trio.serve import open_house
from hivemind_trio.sim import CLIENTS, AgentJob, SimulatedCaller

from .clients import CREDENTIAL, Caller

WARM_UP: Final = 60
"""Calls to nobody before it says that it is there: the first hundred take an interpreter twice as long."""

WARMING: Final = 'provider warm { api anthropic; base "http://127.0.0.1:9"; concurrency 64 }'


def placed(program: Program, bases: Mapping[str, str]) -> Program:
    """The same with its providers where they are."""
    there = {name: attrs.evolve(one, base=bases[name]) for name, one in program.providers.items()}
    return attrs.evolve(program, providers=there)


def secrets(program: Program) -> dict[SecretRef, str]:
    """Something for everything that it wants to know: an agent's token is named after it."""
    known = dict.fromkeys(program.secrets, CREDENTIAL)
    return known | {ref: token_of(name) for name, agent in program.agents.items() for ref in agent.tokens}


def token_of(agent: str) -> str:
    """What a declared agent proves itself with."""
    return f"token-of-{agent}"


def identity(program: Program, living: SimulatedCaller) -> tuple[str, str]:
    """An agent's name in its URL, and its credential."""
    declared = program.agents.get(living.identity or "")
    if declared is None:
        return living.agent.job.agent, CREDENTIAL
    if declared.tokens:
        return declared.name, token_of(declared.name)
    return declared.name, CREDENTIAL


async def main() -> None:
    """Serve until told to stop."""
    await _warm_up()
    order: dict[str, Any] = json.loads(await _line())
    program = placed(compiled(order["policy"]), order["bases"])
    calls: list[CallRecord] = []
    async with (
        open_house(program, secrets(program), bind("127.0.0.1", 0), on_call=calls.append) as house,
        trio.open_nursery() as nursery,
    ):
        watch = Watch(conduct=house.conduct, calibration=house.starts.calibration)
        if order.get("forecasts"):
            nursery.start_soon(watch.live, house.engine)
        began_ns = process_time_ns()
        print(json.dumps({"url": house.url}), flush=True)
        await _line()
        took_ns = process_time_ns() - began_ns
        nursery.cancel_scope.cancel()
    rows = [attrs.asdict(row) for row in watch.rows()]
    report = {"cpu_ns": took_ns, "calls": [_said(call) for call in calls], "forecasts": rows}
    print(json.dumps(report), flush=True)


async def _line() -> str:
    return await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)


def _said(call: CallRecord) -> dict[str, Any]:
    return {
        "waited_ms": call.waited_ms,
        "lane": call.lane or "",
        "status": call.status,
        "refused": str(call.reason) if call.rejected else "",
        "attempts": call.attempts,
    }


async def _warm_up() -> None:
    """Calls through a house of the same make, plain and streamed."""
    job = AgentJob.draw("warm", seed=0, turns=WARM_UP, start_max_ns=0, think_ns=(0, 0))
    provider = SimulatedProvider(INSTANT)
    caller = Caller(client=CLIENTS["none"], api=Api.ANTHROPIC, model="claude", path="/v1/messages")
    async with trio.open_nursery() as nursery:
        await nursery.start(provider.run)
        program = placed(compiled(WARMING), {"warm": provider.url})
        async with open_house(program, {}, bind("127.0.0.1", 0)) as house:
            for turn in job.turns:
                reply = await caller.ask(house.url, turn)
                assert reply.whole, reply
            await caller.aclose()
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
