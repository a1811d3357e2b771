"""Does a decision stay cheap while thousands wait?

Budget: with 10,000 waiting a decision takes at most twice as long as with 100. Nothing is asserted about time;
`tests/scheduler/test_scaling.py` holds the same scenario to the same factor by counting what is executed.

    python -m bench.decision [--rounds 20000] [--seed 1] [--json bench/results/decision.json]

Under two policies: one that asks for all that there is, and a plain one. Besides the time, which depends on who else
uses the machine, the calls of functions per event are counted, Python's and C's, those of the harness left out.

A round ends one attempt, which grants the next call, and lets a new one arrive; one in eight hangs up while it waits
and is replaced. The digest is over all commands: a scheduler that is faster and decides differently is no faster one.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from time import process_time_ns
from types import FrameType
from typing import Any, NamedTuple

from hivemind_trio.model import Api, Outcome, Request, Usage
from hivemind_trio.policy import MemoryFiles, Program, check
from hivemind_trio.scheduler import (
    AskBudgets,
    AskLearning,
    AttemptEnded,
    AttemptResult,
    Call,
    CallArrived,
    CallCancelled,
    CallId,
    Command,
    Correction,
    Draw,
    DrawWindow,
    Grant,
    LimitChanged,
    Reject,
    Scheduler,
)

from .tables import Table, provenance, write

WAITING = (100, 1_000, 10_000)
SUCCEEDED = AttemptResult(
    outcome=Outcome.SUCCEEDED, status=200, committed=True, usage=Usage(input=20_000, output=400), first_byte_ns=10**9
)


class Measured(NamedTuple):
    policy: str
    waiting: int
    decision_ns: float
    """CPU, mean over all events of all rounds."""
    calls: float
    """Of functions, per event, counted in rounds of their own."""
    digest: str


AGENTS = 1_000
"""Declared; a sixth of the calls come from others."""

POLICY = """
provider p { api anthropic; base "http://127.0.0.1:9"; fallback q; %s }
provider q { api anthropic; base "http://127.0.0.1:9"; serves ["q-*"]; objective mean-completion; %s }
lane interactive { weight 8; reserve 4; deadline 1h; aging 1 every 30s }
lane batch { max 12; deadline 1h; aging 1 every 30s; sticky agent; steal above 4 }
lane default { weight 2; deadline 1h; aging 1 every 30s }
team red { weight 3 }
team blue { }
budget each per agent { requests 1M/day; at 50%% { priority 1 } }
budget all { tokens 100G/day; at 80%% { warn }; at 100%% { deny "spent" } }
rule interactive when path == "/interactive" { lane interactive }
rule batch when path == "/batch" { lane batch }
rule first when meta.rank == "1" { priority 1 }
rule second when meta.rank == "2" { priority 2 }
rule third when meta.rank == "3" { priority 3 }
"""
SHARED = """
  concurrency 2..16 start 16; aimd increase 1; breaker trip 50% of 20 over 30s open 5s
  limits "*-opus" { concurrency 4; requests 1M/min; input 1G/min }
  limits { requests 10M/min; input 10G/min; output 10G/min }
"""

PLAIN = 'provider p { api anthropic; base "http://127.0.0.1:9"; concurrency 16 }'

COUNTED_ROUNDS = 300
HARNESS = (__name__, "random")


def policy() -> Program:
    """All that a policy can ask of a decision: quotas that are counted and do not bind, budgets, teams, a fallback,
    lanes of three kinds, an objective; every tenth agent is capped at one call."""
    agents = [
        f"agent agent-{n} {{ team {('red', 'blue')[n % 2]}; weight {n % 3 + 1}{'; concurrency 1' * (n % 10 == 0)} }}"
        for n in range(AGENTS)
    ]
    return _program(POLICY % (SHARED, SHARED) + "\n".join(agents))


def plain() -> Program:
    """One provider with so many slots: no quotas, no budgets, one lane."""
    return _program(PLAIN)


POLICIES = {"all": policy, "plain": plain}


def _program(text: str) -> Program:
    program = check("bench.hmp", MemoryFiles({"bench.hmp": text})).program
    assert program is not None
    return program


class Crowd:
    """A scheduler with so many waiting, and the rounds that keep it so."""

    def __init__(
        self, waiting: int, *, seed: int, clock: Callable[[int], int] = int, program: Program | None = None
    ) -> None:
        """`clock` makes the times that the scheduler is given, so that a test can count how often they are compared."""
        self._random = Random(seed)
        self._scheduler = Scheduler(program or policy(), seed)
        self._clock = clock
        self._now_ns = 0
        self._calls = 0
        self._running: list[CallId] = []
        self._waiting: dict[CallId, None] = {}
        self._digest = hashlib.sha256()
        self.events = 0
        while len(self._waiting) < waiting:
            self._arrive()

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()[:16]

    def rounds(self, count: int) -> Iterator[None]:
        """Play them, one at a time."""
        for number in range(count):
            self._post(AttemptEnded(self._running.pop(self._random.randrange(len(self._running))), SUCCEEDED))
            self._arrive()
            if number % 8 == 0:
                # One of the youngest: to find a random one in a dict would cost more than the decision.
                call_id, _ = self._waiting.popitem()
                self._post(CallCancelled(call_id))
                self._arrive()
            yield

    def _arrive(self) -> None:
        draw = self._random
        request = Request(
            apis=(Api.ANTHROPIC,),
            claimed=f"agent-{draw.randrange(AGENTS * 6 // 5)}",
            model=f"{draw.choice(('p', 'q'))}-{draw.choice(('haiku', 'sonnet', 'opus'))}",
            path=f"/{draw.choice(('interactive', 'batch', 'default'))}",
            meta={"rank": f"{draw.randrange(4)}"},
            tokens_in=draw.randrange(1, 100_000),
            tokens_max_out=1_000,
        )
        caller = request.claimed or ""
        call = Call(id=CallId(self._calls), request=request, caller=caller, job=f"{caller} {draw.randrange(3)}")
        self._calls += 1
        self._waiting[call.id] = None
        self._post(CallArrived(call))

    def _post(self, event: CallArrived | CallCancelled | AttemptEnded) -> None:
        self._now_ns += self._random.randrange(1_000_000)
        commands: list[Command] = self._scheduler.handle(event, self._clock(self._now_ns))
        self._scheduler.wakeup_ns()  # as every driver does
        self.events += 1
        for command in commands:
            if isinstance(command, LimitChanged | Draw | DrawWindow | Correction | AskBudgets | AskLearning):
                continue
            self._waiting.pop(command.call_id, None)
            if isinstance(command, Grant):
                self._running.append(command.call_id)
            reason = command.reason if isinstance(command, Grant | Reject) else ""
            self._digest.update(f"{type(command).__name__} {command.call_id} {reason} ".encode())


def calls(crowd: Crowd) -> float:
    """Of functions, per event."""
    called = 0

    def count(frame: FrameType, kind: str, _argument: Any) -> None:
        nonlocal called
        called += kind in ("call", "c_call") and frame.f_globals.get("__name__") not in HARNESS

    before = crowd.events
    sys.setprofile(count)
    for _ in crowd.rounds(COUNTED_ROUNDS):
        pass
    sys.setprofile(None)
    return called / (crowd.events - before)


def measure(name: str, waiting: int, *, rounds: int, seed: int) -> Measured:
    crowd = Crowd(waiting, seed=seed, program=POLICIES[name]())
    before = crowd.events
    began_ns = process_time_ns()
    for _ in crowd.rounds(rounds):
        pass
    decision_ns = (process_time_ns() - began_ns) / (crowd.events - before)
    digest = crowd.digest
    return Measured(name, waiting, decision_ns, calls(crowd), digest)


def main(arguments: list[str] | None = None) -> list[Measured]:
    parser = argparse.ArgumentParser(description="What a decision costs with 100, 1,000 and 10,000 calls waiting.")
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)

    results = []
    for name in POLICIES:
        few_ns = None
        for waiting in WAITING:
            each = measure(name, waiting, rounds=options.rounds, seed=options.seed)
            results.append(each)
            few_ns = few_ns or each.decision_ns
            print(
                f"{name:>5} {waiting:>7,} waiting  {each.decision_ns / 1_000:6.1f} µs/event  "
                f"x{each.decision_ns / few_ns:4.2f}  {each.calls:5.0f} calls  {each.digest}",
                flush=True,
            )
    if options.json is not None:
        rows = [{"policy": one.policy, "waiting": one.waiting, "calls": round(one.calls, 3)} for one in results]
        table = Table(title="Function calls per event", head=(), rows=(), figures=rows)
        write(
            [table], provenance(seed=options.seed, rounds=options.rounds), title="Decision", md=None, data=options.json
        )
    print(f"budget: x2.00 at {WAITING[-1]:,}; the harness itself is in the times, at every size alike")
    return results


if __name__ == "__main__":
    main()
