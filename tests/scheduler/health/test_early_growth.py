"""Growth at first content: at once where more at once wait no longer for each other, and back where they do."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

import pytest

from hivemind_trio.model import Outcome
from hivemind_trio.policy import AimdSettings
from hivemind_trio.scheduler.health.aimd import Aimd
from hivemind_trio.scheduler.health.early_growth import LATE, EarlyGrowth
from hivemind_trio.scheduler.health.throughput_search import STAY_SHARE
from hivemind_trio.scheduler.protocol.call import CallId
from tests.support.programs import SECOND_NS

START, HIGH = 8, 64
WHOLE_S = 60.0
"""Long answers: none ends while the limit grows."""


class Provider:
    """A backlog at a limit, whose answers begin after a time that depends on how many are served."""

    def __init__(
        self,
        begins_s: Callable[[int], float],
        agents: int = 1_000,
        goes_on_s: Callable[[int], float] = lambda _: WHOLE_S,
    ) -> None:
        self.limiter = Aimd(AimdSettings(low=2, start=START), HIGH)
        self.begins_s, self.agents, self.goes_on_s = begins_s, agents, goes_on_s
        self.now_ns = 0
        self.limits = [START]
        self._running = 0
        self._calls = 0
        self._due: list[tuple[int, int, int, bool]] = []

    def run(self, seconds: float) -> Provider:
        until_ns = int(seconds * SECOND_NS)
        while True:
            while self._running < min(self.limiter.limit, self.agents):
                self._begin()
            at_ns, call, granted_ns, whole = heappop(self._due)
            if at_ns > until_ns:
                return self
            self.now_ns = at_ns
            binding = self.agents > self.limiter.limit
            if whole:
                self._running -= 1
                self.limiter.on_ended(
                    CallId(call),
                    Outcome.SUCCEEDED,
                    granted_ns=granted_ns,
                    now_ns=at_ns,
                    inflight=self._running + 1,
                    limit_is_binding=binding,
                )
            else:
                self.limiter.on_good(CallId(call), at_ns, inflight=self._running, limit_is_binding=binding)
            if self.limiter.limit != self.limits[-1]:
                self.limits.append(self.limiter.limit)

    def _begin(self) -> None:
        call, self._calls = self._calls, self._calls + 1
        self._running += 1
        self.limiter.on_granted(CallId(call), self._running, self.now_ns)
        # All that are let in together are served together.
        served = min(self.limiter.limit, self.agents)
        begins_ns = self.now_ns + int(self.begins_s(served) * SECOND_NS)
        heappush(self._due, (begins_ns, call, self.now_ns, False))
        heappush(self._due, (begins_ns + int(self.goes_on_s(served) * SECOND_NS), call, self.now_ns, True))


def test_where_content_comes_as_soon_the_limit_doubles_with_each_round_of_it() -> None:
    provider = Provider(lambda _: 2.0).run(7)

    assert provider.limits == [8, 16, 32, 64]


def test_where_it_comes_twice_as_late_the_limit_goes_back() -> None:
    provider = Provider(lambda served: 2.0 * (served / START) ** 2).run(20)

    assert provider.limits == [8, 16, 8]


def test_after_that_whole_answers_look_below_and_not_above() -> None:
    def slower(served: int) -> float:
        return 2.0 * (served / START) ** 2

    provider = Provider(slower, goes_on_s=lambda served: 2 * slower(served)).run(60)

    assert provider.limits[:3] == [8, 16, 8]
    assert max(provider.limits[3:]) < START


def test_where_fewer_pay_in_proportion_it_looks_above_again_at_once() -> None:
    calls = iter(range(1_000_000))

    def late_once(_: int) -> float:
        return 9.0 if START <= next(calls) < 3 * START else 2.0

    provider = Provider(late_once, goes_on_s=lambda _: 4.0).run(50)

    assert provider.limits[:4] == [8, 16, 8, 5]
    assert provider.limits[-1] == HIGH, "within a minute of the first"


def test_it_looks_above_again_after_a_multiple_of_what_the_trial_took() -> None:
    provider = Provider(lambda served: 60.0 * (served / START) ** 2).run(299)
    assert provider.limits == [8, 16], "since 60 s"

    provider.run(301)

    assert provider.limits == [8, 16, 8]
    assert provider.limiter.snapshot(provider.now_ns).stays_until_ns == (300 + STAY_SHARE * 240) * SECOND_NS


def test_it_does_not_grow_past_those_who_ask() -> None:
    provider = Provider(lambda _: 2.0, agents=10).run(50)

    assert provider.limits == [8, 16]


@pytest.mark.parametrize(("spread", "grow", "go_back"), [(0.3, 40, 0), (0.6, 40, 0), (1.0, 36, 1)])
def test_times_of_very_different_inputs_seldom_stop_it_and_hardly_ever_take_it_back(
    spread: float, grow: int, go_back: int
) -> None:
    def limits(seed: int) -> list[int]:
        random = Random(seed)
        return Provider(lambda _: random.lognormvariate(0, spread)).run(30).limits

    reached = [limits(seed) for seed in range(40)]

    assert sum(one[-1] == HIGH for one in reached) >= grow
    assert sum(one[-1] < max(one) for one in reached) <= go_back


def test_a_limit_that_was_cut_grows_by_whole_answers_only() -> None:
    provider = Provider(lambda _: 2.0)
    provider.run(1)
    provider.limiter.on_granted(CallId(10_000), 9, provider.now_ns)
    provider.limiter.on_ended(CallId(10_000), Outcome.CONCURRENCY, granted_ns=0, now_ns=provider.now_ns, inflight=9)

    provider.run(9)

    assert provider.limiter.limit == START


# ---- the part by itself ----


def grown(limit: int = START) -> EarlyGrowth:
    """It has just gone from `limit` to twice as much, for content after a second."""
    early = EarlyGrowth()
    for level in range(1, limit + 1):
        early.on_granted(limit, 0)
        to = early.on_begun(0, level, SECOND_NS, limit_is_binding=True)
        if to is not None:
            break
    assert to == 2 * limit
    return early


def test_too_few_that_come_in_twice_the_time_are_an_answer_too() -> None:
    early = grown()
    for _ in range(START):
        early.on_granted(2 * START, SECOND_NS)
    late_ns = SECOND_NS + int(LATE * SECOND_NS)

    assert early.on_begun(0, START, late_ns - 1_000, limit_is_binding=True) is None
    assert early.on_begun(0, START, late_ns + 1_000, limit_is_binding=True) == START
    assert early.is_over


def test_those_who_failed_are_not_waited_for() -> None:
    early = grown()
    for _ in range(START):
        early.on_granted(2 * START, SECOND_NS)
    early.on_failed(SECOND_NS)

    assert early.on_begun(0, START, 100 * SECOND_NS, limit_is_binding=True) is None


def test_content_of_calls_that_went_when_few_were_in_flight_says_nothing_of_the_limit() -> None:
    early = grown()
    for level in range(1, START):
        early.on_granted(2 * START, SECOND_NS)
        assert early.on_begun(SECOND_NS, level, 2 * SECOND_NS, limit_is_binding=True) is None


def test_nothing_is_judged_while_the_limit_does_not_bind() -> None:
    early = grown()
    for _ in range(2 * START):
        early.on_granted(2 * START, SECOND_NS)
        assert early.on_begun(SECOND_NS, 2 * START, 2 * SECOND_NS, limit_is_binding=False) is None
    early.on_granted(2 * START, 2 * SECOND_NS)

    assert early.on_begun(2 * SECOND_NS, 2 * START, 3 * SECOND_NS, limit_is_binding=True) == 4 * START


def test_where_it_is_not_plain_the_limit_stays_for_whole_answers_to_measure() -> None:
    early = grown()
    for _ in range(4):
        early.on_granted(2 * START, SECOND_NS)

    told = [
        early.on_begun(SECOND_NS, START, SECOND_NS + seconds * SECOND_NS, limit_is_binding=True)
        for seconds in (1, 1, 9, 9)
    ]

    assert told == [None] * 4
    assert early.is_over
