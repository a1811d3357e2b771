"""Does a decision stay cheap while thousands wait?

Budget: with 10,000 waiting a decision takes at most twice as long as with 100. Nothing is asserted about time;
`tests/core/test_scaling.py` holds the same scenario to the same factor by counting what is executed.

    python -m bench.decision [--rounds 20000] [--seed 1]

A round ends one attempt, which grants the next call, and lets a new one arrive; one in eight hangs up while it waits
and is replaced. The digest is over all commands: a scheduler that is faster and decides differently is no faster one.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Iterator
from random import Random
from time import perf_counter_ns
from typing import NamedTuple

from hivemind_trio.core import (
    AttemptEnded,
    Call,
    CallArrived,
    CallCancelled,
    CallId,
    Command,
    Ended,
    Grant,
    Scheduler,
)
from hivemind_trio.model import Api, Outcome, Request, Treatment, Verdict
from hivemind_trio.policy import Agent, Group, Lane, Program, Provider, Server, Share, Timeouts

WAITING = (100, 1_000, 10_000)
INFLIGHT = 32
SECOND_NS = 1_000_000_000
SUCCEEDED = Ended(outcome=Outcome.SUCCEEDED, status=200, committed=True)


class Measured(NamedTuple):
    waiting: int
    decision_ns: float
    """Mean over all events of all rounds."""
    digest: str


def policy() -> Program:
    """Two providers, three lanes, a limits group; every tenth agent is capped at one call."""
    timeouts = Timeouts(connect_ns=SECOND_NS, first_byte_ns=SECOND_NS, idle_ns=SECOND_NS, total_ns=SECOND_NS)
    providers = [
        Provider(
            name=name,
            api=Api.ANTHROPIC,
            base="http://127.0.0.1:9",
            keys=(),
            serves=(),
            limit=INFLIGHT // 2,
            groups=(Group(glob="opus", concurrency=4),),
            queue=None,
            timeouts=timeouts,
            at="",
        )
        for name in ("p", "q")
    ]
    lanes = [
        Lane(
            name=name,
            weight=weight,
            reserve=Share(slots=reserve),
            max=None,
            deadline_ns=3_600 * SECOND_NS,
            queue=None,
            shed_oldest=False,
            priority=0,
            aging_ns=30 * SECOND_NS,
            at="",
        )
        for name, weight, reserve in (("interactive", 8, 4), ("batch", 1, 0), ("default", 2, 0))
    ]
    anybody = Agent(name="unknown", team="none", tokens=(), concurrency=None, queue=None, at="")
    agents = [
        Agent(name=f"agent {n}", team="none", tokens=(), concurrency=1 if n % 10 == 0 else None, queue=None, at="")
        for n in range(1_000)
    ]
    declared = {agent.name for agent in agents}

    def decide(request: Request) -> Treatment:
        lane, _, priority = request.path.partition(" ")
        return Treatment(
            agent=request.claimed if request.claimed in declared else "unknown",
            team="none",
            provider=request.method,
            group=request.model or None,
            lane=lane,
            priority=int(priority),
            deadline_ns=3_600 * SECOND_NS,
            retry=None,
            verdict=Verdict.ALLOW,
        )

    return Program(
        hash="bench",
        server=Server(
            host="",
            port=0,
            timezone="",
            drain_ns=0,
            max_body=0,
            max_header=0,
            max_waiting=100_000,
            refuse_unknown=False,
        ),
        providers={provider.name: provider for provider in providers},
        lanes={lane.name: lane for lane in lanes},
        teams={},
        agents={agent.name: agent for agent in agents},
        unknown=anybody,
        models=(),
        decide=decide,
        pending=(),
        secrets=(),
    )


class Crowd:
    """A scheduler with so many waiting, and the rounds that keep it so."""

    def __init__(self, waiting: int, *, seed: int, clock: Callable[[int], int] = int) -> None:
        """`clock` makes the times that the scheduler is given, so that a test can count how often they are compared."""
        self._random = Random(seed)
        self._scheduler = Scheduler(policy(), seed)
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
            claimed=f"agent {draw.randrange(1_200)}",
            method=draw.choice(("p", "q")),
            model=draw.choice(("", "", "opus")),
            path=f"{draw.choice(('interactive', 'batch', 'default'))} {draw.randrange(4)}",
        )
        call = Call(id=CallId(self._calls), request=request, caller=request.claimed or "")
        self._calls += 1
        self._waiting[call.id] = None
        self._post(CallArrived(call))

    def _post(self, event: CallArrived | CallCancelled | AttemptEnded) -> None:
        self._now_ns += self._random.randrange(1_000_000)
        commands: list[Command] = self._scheduler.handle(event, self._clock(self._now_ns))
        self.events += 1
        for command in commands:
            self._waiting.pop(command.call_id, None)
            if isinstance(command, Grant):
                self._running.append(command.call_id)
            self._digest.update(f"{type(command).__name__} {command.call_id} {command.reason} ".encode())


def measure(waiting: int, *, rounds: int, seed: int) -> Measured:
    crowd = Crowd(waiting, seed=seed)
    before = crowd.events
    began_ns = perf_counter_ns()
    for _ in crowd.rounds(rounds):
        pass
    return Measured(waiting, (perf_counter_ns() - began_ns) / (crowd.events - before), crowd.digest)


def main(arguments: list[str] | None = None) -> list[Measured]:
    parser = argparse.ArgumentParser(description="Time per decision with 100, 1,000 and 10,000 calls waiting.")
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)

    results = [measure(waiting, rounds=options.rounds, seed=options.seed) for waiting in WAITING]
    for each in results:
        ratio = each.decision_ns / results[0].decision_ns
        print(f"{each.waiting:>7,} waiting  {each.decision_ns / 1_000:6.1f} µs/event  x{ratio:4.2f}  {each.digest}")
    print(f"budget: x2.00 at {WAITING[-1]:,}; the harness itself is in the figures, at every size alike")
    return results


if __name__ == "__main__":
    main()
