"""Throughput by the number in flight, whether or not a limit binds, and what the limiter makes of it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Outcome
from hivemind_trio.policy import AimdSettings
from hivemind_trio.scheduler.health.aimd import Aimd
from hivemind_trio.scheduler.health.load_curve import FEW, KEPT_NS, STEP_DOWN, UNTRIED_MIN, LoadCurve
from hivemind_trio.scheduler.protocol.call import CallId
from tests.support.programs import SECOND_NS


def answered(curve: LoadCurve, level: float, lasts_s: float, count: int = 8, **more: int) -> LoadCurve:
    """Let so many answers end at a level."""
    for number in range(count):
        lasted_ns = int(lasts_s * (1 + 0.01 * number) * SECOND_NS)
        curve.add(level, more.get("tokens", 100), lasted_ns, more.get("now_ns", SECOND_NS))
    return curve


def test_a_level_that_finishes_plainly_more_is_better() -> None:
    curve = answered(answered(LoadCurve(), 3, 1.0), 9, 9.0)

    assert curve.better(9, SECOND_NS) == pytest.approx(3)


def test_of_several_the_one_with_the_highest_throughput_is_the_best() -> None:
    curve = answered(answered(answered(LoadCurve(), 2, 1.0), 4, 1.0), 16, 16.0)

    assert curve.better(16, SECOND_NS) == pytest.approx(4)


def test_a_level_above_is_not_asked_for() -> None:
    curve = answered(answered(LoadCurve(), 3, 9.0), 9, 1.0)

    assert curve.better(3, SECOND_NS) is None


def test_few_answers_say_nothing() -> None:
    curve = answered(answered(LoadCurve(), 3, 1.0, count=FEW - 1), 9, 9.0)

    assert curve.better(9, SECOND_NS) is None


def test_old_answers_say_nothing() -> None:
    curve = answered(answered(LoadCurve(), 3, 1.0), 9, 9.0, now_ns=KEPT_NS + 2 * SECOND_NS)

    assert curve.better(9, KEPT_NS + 2 * SECOND_NS) is None


def test_longer_answers_do_not_pass_for_slowness() -> None:
    curve, random = LoadCurve(), Random(1)
    for level in (3, 9):
        for _ in range(12):
            tokens = random.randrange(100, 300) * level
            curve.add(level, tokens, (500 + 10 * tokens) * 1_000_000, SECOND_NS)

    assert curve.better(9, SECOND_NS) is None


@given(st.integers(0, 10_000), st.floats(0.05, 0.6), st.floats(0, 1))
def test_where_more_at_once_finish_no_less_fewer_are_hardly_ever_better(seed: int, spread: float, power: float) -> None:
    # Between a provider that slows nobody down and one that is used up by the first.
    random, said = Random(seed), 0
    for _ in range(20):
        curve = LoadCurve()
        for level in (2, 3, 4, 6, 8):
            for _ in range(12):
                curve.add(level, 0, int(level**power * random.lognormvariate(0, spread) * SECOND_NS), SECOND_NS)
        said += curve.better(8, SECOND_NS) is not None

    assert said <= 2


def test_fewer_are_worth_a_trial_once_many_have_answered_and_nothing_is_known_of_fewer() -> None:
    curve = answered(LoadCurve(), 3, 1.0, count=UNTRIED_MIN - 1)
    assert curve.untried(3, SECOND_NS) is None

    answered(curve, 3, 1.0, count=1)
    assert curve.untried(3, SECOND_NS) == pytest.approx(3 * STEP_DOWN)

    answered(curve, 1, 1.0, count=FEW)
    assert curve.untried(3, SECOND_NS) is None


# ---- in the limiter ----


class Fleet:
    """Agents that ask, think and ask again of a provider whose speed depends on how many it serves."""

    def __init__(
        self, agents: int, slowdown: Callable[[int], float], *, thinks_s: float = 0.0, seed: int = 0, low: int = 2
    ) -> None:
        self.limiter = Aimd(AimdSettings(low=low, start=8), 64)
        self.slowdown, self.thinks_s, self.random = slowdown, thinks_s, Random(seed)
        self.now_s, self.calls, self.served = 0.0, 0, 0
        self.waiting = agents
        self.thinking: list[float] = []
        self.serving: dict[int, list[float]] = {}
        """Work that is left and time of the grant, in seconds, by call."""
        self.limits: list[int] = []

    def run(self, until_s: float) -> Fleet:
        while self.now_s < until_s:
            self._grant()
            slow = self.slowdown(len(self.serving))
            ends_s = min((left * slow for left, _ in self.serving.values()), default=1e9)
            asks_s = min(self.thinking, default=1e9) - self.now_s
            step_s = min(ends_s, asks_s)
            self.now_s += step_s
            for one in self.serving.values():
                one[0] -= step_s / slow
            if asks_s <= ends_s:
                self.thinking.remove(min(self.thinking))
                self.waiting += 1
            else:
                self._end(min(self.serving, key=lambda call: self.serving[call][0]))
        return self

    def _grant(self) -> None:
        while self.waiting and len(self.serving) < self.limiter.limit:
            self.calls, self.waiting = self.calls + 1, self.waiting - 1
            self.serving[self.calls] = [self.random.uniform(2, 4), self.now_s]
            self.limiter.on_granted(CallId(self.calls), len(self.serving), self._now_ns)

    def _end(self, call: int) -> None:
        inflight = len(self.serving)
        _, granted_s = self.serving.pop(call)
        self.served += 1
        self.limiter.on_ended(
            CallId(call),
            Outcome.SUCCEEDED,
            granted_ns=int(granted_s * SECOND_NS),
            now_ns=self._now_ns,
            inflight=inflight,
            limit_is_binding=self.waiting > 0,
        )
        if not self.limits or self.limiter.limit != self.limits[-1]:
            self.limits.append(self.limiter.limit)
        if self.thinks_s:
            self.thinking.append(self.now_s + self.random.expovariate(1 / self.thinks_s))
        else:
            self.waiting += 1

    @property
    def _now_ns(self) -> int:
        return int(self.now_s * SECOND_NS)


def quadratic(knee: int) -> Callable[[int], float]:
    """Nothing slows down up to the knee; beyond it, more at once finish less."""
    return lambda served: max(1.0, (served / knee) ** 2)


@pytest.mark.parametrize("seed", range(4))
def test_a_fleet_below_the_limit_is_held_back_where_fewer_finish_more(seed: int) -> None:
    fleet = Fleet(7, quadratic(3), thinks_s=6, seed=seed).run(600)
    assert fleet.limiter.limit <= 5

    before = fleet.served
    fleet.run(1_200)
    assert fleet.served - before > 0.8 * 600 * 7 / (6 + 3), "as if none waited and none slowed down"


@pytest.mark.parametrize("seed", range(4))
def test_a_fleet_below_the_limit_is_left_alone_where_fewer_finish_less(seed: int) -> None:
    fleet = Fleet(7, lambda _: 1.0, thinks_s=6, seed=seed).run(1_200)

    assert min(fleet.limits) >= 7


def until_fewer_are_tried() -> Fleet:
    fleet = Fleet(7, quadratic(3), thinks_s=6)
    while not fleet.limits or fleet.limits[-1] >= 7:
        fleet.run(fleet.now_s + 1)
    fleet.limits.clear()
    return fleet


def test_where_fewer_turn_out_not_to_finish_as_much_the_limit_of_before_comes_back() -> None:
    # Something else was the cause: the provider was slow, and the more were in flight the longer it lasted.
    fleet = until_fewer_are_tried()
    fleet.slowdown, fleet.waiting = lambda _: 4.0, fleet.waiting + 20

    fleet.run(fleet.now_s + 120)

    assert 8 in fleet.limits


def test_a_limit_that_is_cut_during_the_trial_does_not_come_back_after_it() -> None:
    fleet = until_fewer_are_tried()
    limit, now_ns = fleet.limiter.limit, int(fleet.now_s * SECOND_NS)
    for call in (10_001, 10_002, 10_003):
        fleet.limiter.on_granted(CallId(call), limit + 1, now_ns)
        fleet.limiter.on_ended(
            CallId(call), Outcome.CONCURRENCY, granted_ns=now_ns, now_ns=now_ns + 1, inflight=limit + 1
        )
    fleet.slowdown, fleet.waiting = lambda _: 4.0, fleet.waiting + 20

    fleet.run(fleet.now_s + 120)

    assert fleet.limits[1] < 8


def test_where_one_at_a_time_finishes_the_most_one_goes() -> None:
    fleet = Fleet(1, lambda served: served**1.8, low=1).run(60)
    fleet.waiting += 2
    fleet.run(400)
    fleet.limits.clear()

    fleet.run(1_000)

    assert max(fleet.limits, default=fleet.limiter.limit) <= 2, "which is tried now and then"


def test_a_trial_whose_load_has_gone_does_not_hold_up_those_who_come_later() -> None:
    fleet = until_fewer_are_tried()
    fleet.thinks_s = 1e6
    fleet.thinking.clear()
    fleet.run(fleet.now_s + 3_600)
    assert not fleet.serving

    fleet.now_s, fleet.waiting, fleet.thinks_s, fleet.slowdown = fleet.now_s + 3_600, 1, 6, lambda _: 1.0
    fleet.run(fleet.now_s + 1)

    assert fleet.limiter.limit == 8


@pytest.mark.parametrize("outcome", [Outcome.CONCURRENCY, Outcome.SLOW])
def test_what_a_cut_during_the_trial_keeps_for_after_an_outage_is_the_limit_of_before(outcome: Outcome) -> None:
    fleet = until_fewer_are_tried()
    assert fleet.limiter.limit < 8
    assert fleet.limiter.lasting == 8

    now_ns = int(fleet.now_s * SECOND_NS)
    for call in range(10_001, 10_004):
        fleet.limiter.on_granted(CallId(call), 3, now_ns)
    for call in range(10_001, 10_004):
        fleet.limiter.on_ended(CallId(call), outcome, granted_ns=now_ns, now_ns=now_ns + 1, inflight=3)

    assert fleet.limiter.uncut(now_ns + 1) == 8


def test_an_attempt_that_is_heard_of_at_its_end_counts_at_the_number_of_then() -> None:
    limiter = Aimd(AimdSettings(low=2, start=8), 64)
    for call in range(40):
        at_ns, is_far = (call + 1) * SECOND_NS, call % 2
        lasted_ns = SECOND_NS // 10 if is_far else SECOND_NS
        limiter.on_granted(CallId(call), 5, at_ns if is_far else at_ns - lasted_ns)
        limiter.on_ended(CallId(call), Outcome.SUCCEEDED, granted_ns=at_ns - lasted_ns, now_ns=at_ns, inflight=5)
        assert limiter.limit == 8, "one at once would have looked ten times as fast"
