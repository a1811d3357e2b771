"""Any sequence of calls of a few models at one machine, against a mirror of its memory kept by brute force.

The mirror is a list of models by last use and a list of calls, and shares nothing with `caching/model_residency.py`
but the words. Held against it is what a user relies on: no model is thrown out under its calls, nobody rides past one
who has waited for its `max`, and nobody waits who could go, but for the holds that are documented.
"""

from __future__ import annotations

from random import Random

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hivemind_trio.policy import Program, Resident
from hivemind_trio.scheduler import Call, CallArrived, CallId, Grant
from hivemind_trio.scheduler.limits.rate_limits import CLAIM_AFTER_NS
from tests.scheduler.driver import Driver
from tests.support.programs import SECOND_NS, lane, program, provider, wish

LANES = (lane("chat", weight=3, reserve=1), lane("batch"))


def machine(models: int, limit: int) -> Program:
    return program(providers=[provider("gpu", limit=limit, resident=Resident(models))], lanes=LANES)


@attrs.define(eq=False)
class Asked:
    """A call as the mirror knows it."""

    model: str
    lane: str
    arrived_ns: int
    affinity_ns: int | None


@attrs.define(eq=False)
class Memory:
    """What the machine would see."""

    models: int
    limit: int
    loaded: list[str] = attrs.field(factory=list)
    """By last use."""
    away_ns: dict[str, int] = attrs.field(factory=dict)
    waiting: dict[int, Asked] = attrs.field(factory=dict)
    running: dict[int, Asked] = attrs.field(factory=dict)

    def inflight(self, model: str) -> int:
        return sum(call.model == model for call in self.running.values())

    def can_change(self) -> bool:
        return len(self.loaded) < self.models or any(not self.inflight(model) for model in self.loaded)

    def trim(self, now_ns: int) -> None:
        for model in list(self.loaded):
            if len(self.loaded) > self.models and not self.inflight(model):
                self.loaded.remove(model)
                self.away_ns[model] = now_ns

    def reserved(self, lane: str) -> bool:
        """The last free slot is `chat`'s while it has none."""
        held = sum(call.lane == "chat" for call in self.running.values())
        kept = 1 if self.limit > 1 else 0
        return lane != "chat" and self.limit - len(self.running) - max(0, kept - held) <= 0

    def claims(self, now_ns: int) -> set[str]:
        """Models that have been waited for too long, for certain."""
        return {
            call.model
            for call in self.waiting.values()
            if call.model not in self.loaded
            and call.affinity_ns is not None
            and max(call.arrived_ns, self.away_ns.get(call.model, 0)) + call.affinity_ns <= now_ns
        }

    def may_claim(self, now_ns: int) -> set[str]:
        """These, and those that may have been passed in their turn for too long."""
        passed = {
            call.model
            for call in self.waiting.values()
            if call.affinity_ns is None and call.arrived_ns + CLAIM_AFTER_NS <= now_ns
        }
        return self.claims(now_ns) | (passed - set(self.loaded))

    def granted(self, number: int, now_ns: int) -> None:
        call = self.running[number] = self.waiting.pop(number)
        assert len(self.running) <= self.limit
        assert not self.reserved("batch") or self.limit - len(self.running) >= 0
        if call.model in self.loaded:
            claimed = {model for model in self.claims(now_ns) if self.could_claim(model, without=number)}
            if self.models == 1 and len(self.loaded) == 1:
                assert not claimed, f"rode past {claimed}, which has waited for its max"
            self.loaded.remove(call.model)
        else:
            if call.affinity_ns is not None and call.model not in self.may_claim_with(call, now_ns):
                for other in self.waiting.values():
                    rides = other.model in self.loaded and not self.would_be_reserved(other.lane, number)
                    assert not rides, f"{call.model} was loaded while a call of {other.model} could go"
            if len(self.loaded) >= self.models:
                idle = [model for model in self.loaded if not self.inflight(model)]
                assert idle, f"{call.model} was loaded, and every model in memory is in use"
                self.loaded.remove(idle[0])
                self.away_ns[idle[0]] = now_ns
        self.loaded.append(call.model)

    def may_claim_with(self, call: Asked, now_ns: int) -> set[str]:
        self.waiting[-1] = call
        try:
            return self.may_claim(now_ns)
        finally:
            del self.waiting[-1]

    def would_be_reserved(self, lane: str, number: int) -> bool:
        """Before that call went."""
        call = self.running.pop(number)
        try:
            return self.reserved(lane)
        finally:
            self.running[number] = call

    def could_claim(self, model: str, without: int) -> bool:
        """Some call of it lacks nothing else."""
        return any(
            call.model == model and not self.would_be_reserved(call.lane, without) for call in self.waiting.values()
        )

    def check_rest(self, now_ns: int) -> None:
        assert self.running or not self.waiting, "nothing is in flight, and somebody waits"
        assert len(set(self.loaded)) == len(self.loaded)
        if len(self.running) >= self.limit:
            return
        fewest = min((self.inflight(model) for model in self.loaded), default=0)
        for number, call in self.waiting.items():
            if self.reserved(call.lane):
                continue
            if call.model not in self.loaded:
                assert not self.can_change(), f"call {number} of {call.model} could be loaded for"
            else:
                held = bool(self.may_claim(now_ns)) and self.inflight(call.model) == fewest and not self.can_change()
                assert held, f"call {number} of {call.model} fits and waits"


class ResidentsMachine(RuleBasedStateMachine):
    @initialize(models=st.integers(1, 3), limit=st.integers(1, 5))
    def start(self, models: int, limit: int) -> None:
        self.driver = Driver(machine(models, limit))
        self.memory = Memory(models, limit)
        self.seen = 0

    def follow(self) -> None:
        for number in self.driver.granted[self.seen :]:
            self.memory.granted(number, self.driver.now_ns)
        self.seen = len(self.driver.granted)

    @rule(
        model=st.sampled_from("abcd"),
        lane=st.sampled_from(["chat", "batch"]),
        affinity_s=st.sampled_from([None, 5, 30, 90]),
        caller=st.sampled_from("xyz"),
        times=st.integers(1, 3),
    )
    def arrive(self, model: str, lane: str, affinity_s: int | None, caller: str, times: int) -> None:
        affinity_ns = affinity_s * SECOND_NS if affinity_s is not None else None
        for _ in range(times):
            number = self.driver.next_id
            self.memory.waiting[number] = Asked(model, lane, self.driver.now_ns, affinity_ns)
            self.driver.ask(wish(model=model, lane=lane, affinity_ns=affinity_ns), caller)
            self.follow()

    @precondition(lambda self: self.memory.running)
    @rule(pick=st.integers(0, 9))
    def end(self, pick: int) -> None:
        numbers = list(self.memory.running)
        number = numbers[pick % len(numbers)]
        del self.memory.running[number]
        self.memory.trim(self.driver.now_ns)
        self.driver.end(number)
        self.follow()

    @precondition(lambda self: self.memory.waiting)
    @rule(pick=st.integers(0, 9))
    def cancel(self, pick: int) -> None:
        numbers = list(self.memory.waiting)
        number = numbers[pick % len(numbers)]
        del self.memory.waiting[number]
        self.driver.cancel(number)
        self.follow()

    @rule(passed_s=st.sampled_from([1, 6, 25, 90]))
    def time_passes(self, passed_s: int) -> None:
        self.driver.at(self.driver.now_ns + passed_s * SECOND_NS)
        self.follow()

    @rule(models=st.integers(1, 3))
    def load(self, models: int) -> None:
        self.memory.models = models
        self.memory.trim(self.driver.now_ns)
        self.driver.load(machine(models, self.memory.limit))
        self.follow()

    @invariant()
    def check(self) -> None:
        self.memory.check_rest(self.driver.now_ns)
        assert list(self.driver.scheduler.state.pools["gpu"].residents.loaded) == self.memory.loaded

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        while self.memory.running:
            self.end(0)
            self.check()
        residents = self.driver.scheduler.state.pools["gpu"].residents
        assert set(residents.models) == set(self.memory.loaded), "of who is gone nothing is left"
        assert not residents.holding


TestResidents = pytest.mark.slow(ResidentsMachine.TestCase)


# ---- what it is for ----


@attrs.define(eq=False)
class Machine:
    """One GPU that counts how often it has to load a model, and takes its time for it. A fleet of agents asks for two
    models in turn and comes back with the next call a moment after each answer."""

    driver: Driver
    affinity_ns: int | None
    agents: int = 12
    seed: int = 1
    swaps: int = 0
    served: int = 0
    longest_ns: int = 0

    def run(self, until_ns: int) -> None:
        random = Random(self.seed)
        ready = [(agent * SECOND_NS, agent) for agent in range(self.agents)]
        ending: list[tuple[int, int]] = []
        asked: dict[int, tuple[int, int]] = {}
        loaded, loaded_ns, seen = "", 0, 0
        while True:
            now_ns = min(ready + ending)[0]
            if now_ns > until_ns:
                return
            self.driver.now_ns = now_ns
            if ending and ending[0][0] == now_ns:
                call = ending.pop(0)[1]
                agent = asked[call][0]
                ready.append((now_ns + random.randrange(5 * SECOND_NS), agent))
                self.served += 1
                self.driver.end(call)
            else:
                ready.sort()
                agent = ready.pop(0)[1]
                model = "qwen" if agent % 2 else "llama"
                number = self.driver.next_id
                asked[number] = agent, now_ns
                self.driver.post(
                    CallArrived(
                        Call(
                            id=CallId(number),
                            request=wish(model=model, affinity_ns=self.affinity_ns),
                            caller=f"{agent}",
                        )
                    )
                )
                self.driver.next_id += 1
            for call in self.driver.granted[seen:]:
                agent, since_ns = asked[call]
                model = "qwen" if agent % 2 else "llama"
                self.longest_ns = max(self.longest_ns, now_ns - since_ns)
                if model != loaded:
                    self.swaps, loaded, loaded_ns = self.swaps + 1, model, now_ns + 20 * SECOND_NS
                ending.append((max(now_ns, loaded_ns) + random.randrange(2, 6) * SECOND_NS, call))
                ending.sort()
            seen = len(self.driver.granted)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_with_affinity_a_machine_changes_its_model_seldom_and_serves_more(seed: int) -> None:
    hour_ns = 3_600 * SECOND_NS
    runs = {}
    for affinity_ns in (None, 90 * SECOND_NS):
        runs[affinity_ns] = Machine(Driver(machine(1, 2)), affinity_ns, seed=seed)
        runs[affinity_ns].run(hour_ns)
    without, riding = runs.values()

    assert riding.swaps <= 3_600 // 90 + 2, "each of two models comes in once in 90 s at most"
    assert without.swaps > 2 * riding.swaps
    assert riding.served > 1.3 * without.served
    assert riding.longest_ns < without.longest_ns + 90 * SECOND_NS
    assert all(isinstance(riding.driver.answers[call], Grant) for call in riding.driver.granted)
