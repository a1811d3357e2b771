"""Growth at first content: at once where more at once wait no longer for each other, and back where they do."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

import pytest

from hivemind_trio.model import Outcome
from hivemind_trio.policy import AimdSettings
from hivemind_trio.scheduler.health.aimd import Aimd
from hivemind_trio.scheduler.health.early_growth import LATE, STEP, EarlyGrowth
from hivemind_trio.scheduler.health.throughput_search import STAY_SHARE
from hivemind_trio.scheduler.protocol.call import CallId
from tests.support.programs import SECOND_NS

START, HIGH = 8, 64
MORE = 12
"""After the first step."""
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


def test_where_content_comes_as_soon_the_limit_grows_by_half_and_then_doubles_with_each_round_of_it() -> None:
    provider = Provider(lambda _: 2.0).run(9)

    assert provider.limits == [8, 12, 24, 48, 64]


def test_where_it_comes_a_little_later_the_limit_goes_on_by_half() -> None:
    provider = Provider(lambda served: 2.0 * (served / START) ** 0.4).run(8)

    assert provider.limits[:4] == [8, 12, 18, 27], "it pays, and not in proportion"


def test_where_more_do_not_pay_the_limit_goes_back() -> None:
    provider = Provider(lambda served: 2.0 * served / START).run(9)

    assert provider.limits == [8, 12, 8]


def slower(served: int) -> float:
    """Return the time to first content of a provider at which less is finished the more are served at once."""
    return 2.0 * (served / START) ** 3


def test_where_more_finish_plainly_less_half_of_the_first_limit_is_compared_with_it() -> None:
    provider = Provider(slower).run(69)

    assert provider.limits == [8, 12, 4], "and half of it finishes more"


def test_where_half_of_the_first_limit_finishes_less_that_limit_comes_back_at_first_content() -> None:
    def knee(served: int) -> float:
        return 2.0 if served <= START else slower(served)

    provider = Provider(knee, goes_on_s=lambda _: 10.0).run(25)

    assert provider.limits == [8, 12, 4, 8]


def test_after_that_whole_answers_look_below_and_not_above() -> None:
    provider = Provider(slower, goes_on_s=lambda served: 2 * slower(served)).run(60)

    assert provider.limits[:3] == [8, 12, 4]
    assert max(provider.limits[3:]) < START


def test_where_fewer_pay_in_proportion_it_looks_above_again_at_once() -> None:
    calls = iter(range(1_000_000))

    def late_once(_: int) -> float:
        return 9.0 if START <= next(calls) < 3 * START else 2.0

    provider = Provider(late_once, goes_on_s=lambda _: 4.0).run(55)

    assert provider.limits[:2] == [8, 12]
    assert min(provider.limits[2:]) < START
    assert provider.limits[-1] > START, "within a minute of the first"


def test_it_looks_above_again_after_a_multiple_of_what_the_trial_took() -> None:
    provider = Provider(lambda served: 60.0 * (served / START) ** 3).run(262)
    assert provider.limits == [8, 12], "since 60 s"

    provider.run(263)

    assert provider.limits == [8, 12, 4]
    trial_ns = provider.now_ns - 60 * SECOND_NS
    assert provider.limiter.snapshot(provider.now_ns).stays_until_ns == provider.now_ns + STAY_SHARE * trial_ns


def test_it_does_not_grow_past_those_who_ask() -> None:
    provider = Provider(lambda _: 2.0, agents=10).run(50)

    assert provider.limits == [8, 12]


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
    """Return one that has just raised `limit` by half, for content after a second."""
    early = EarlyGrowth()
    for level in range(1, limit + 1):
        early.on_granted(limit, 0)
        to = early.on_begun(0, level, SECOND_NS, limit_is_binding=True)
        if to is not None:
            break
    assert to == limit * STEP == MORE
    return early


def test_too_few_that_come_in_twice_the_time_are_an_answer_too() -> None:
    early = grown()
    for _ in range(START):
        early.on_granted(MORE, SECOND_NS)
    late_ns = SECOND_NS + int(LATE * SECOND_NS)

    assert early.on_begun(0, START, late_ns - 1_000, limit_is_binding=True) is None
    assert early.on_begun(0, START, late_ns + 1_000, limit_is_binding=True) == START // 2
    assert early.falls


def test_those_who_failed_are_not_waited_for() -> None:
    early = grown()
    for _ in range(START):
        early.on_granted(MORE, SECOND_NS)
    for _ in range(3):
        early.on_failed(SECOND_NS)

    assert early.on_begun(0, START, 100 * SECOND_NS, limit_is_binding=True) is None


def test_content_of_calls_that_went_when_few_were_in_flight_says_nothing_of_the_limit() -> None:
    early = grown()
    for level in range(1, START):
        early.on_granted(MORE, SECOND_NS)
        assert early.on_begun(SECOND_NS, level, 2 * SECOND_NS, limit_is_binding=True) is None


def test_nothing_is_judged_while_the_limit_does_not_bind() -> None:
    early = grown()
    for _ in range(MORE):
        early.on_granted(MORE, SECOND_NS)
        assert early.on_begun(SECOND_NS, MORE, 2 * SECOND_NS, limit_is_binding=False) is None
    early.on_granted(MORE, 2 * SECOND_NS)

    assert early.on_begun(2 * SECOND_NS, MORE, 3 * SECOND_NS, limit_is_binding=True) == 2 * MORE


def doubtful(early: EarlyGrowth, limit: int) -> list[int | None]:
    """Let content come to four calls in times that say neither that more at once pay nor that they do not."""
    for _ in range(limit // 2):
        early.on_granted(limit, SECOND_NS)
    return [
        early.on_begun(SECOND_NS, limit, SECOND_NS + int(seconds * SECOND_NS), limit_is_binding=True)
        for seconds in (1, 1, 4, 4)
    ]


def test_a_first_step_that_is_not_plain_is_followed_by_another() -> None:
    early = grown()

    assert 18 in doubtful(early, MORE)


def test_where_the_next_is_not_plain_the_limit_stays_for_whole_answers_to_measure() -> None:
    early = grown()
    for _ in range(MORE // 2):
        early.on_granted(MORE, SECOND_NS)
    told = [early.on_begun(SECOND_NS, MORE, 2_300_000_000, limit_is_binding=True) for _ in range(3)]
    assert told == [None, None, 18], "it pays, and not in proportion"
    for _ in range(9):
        early.on_granted(18, SECOND_NS)

    told = [
        early.on_begun(SECOND_NS, 18, SECOND_NS + seconds * SECOND_NS, limit_is_binding=True)
        for seconds in (1, 1, 1, 9, 9)
    ]

    assert told == [None] * 5
    assert early.is_over
