"""Adaptive limit: up while throughput grows, down to what the provider accepts, once for each piece of bad news."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.model import Outcome
from hivemind_trio.policy import AimdSettings, CircuitBreakerSettings, Jitter, LaneSettings, Program, RetrySettings
from hivemind_trio.scheduler import AttemptEnded, AttemptResult, CallId, Circuit, Command, LimitChanged
from hivemind_trio.scheduler.health.aimd import ABANDONED_NS, CAP_NS, DOUBT_NS, TRIES_MIN
from hivemind_trio.scheduler.health.aimd import Aimd as Limiter
from tests.scheduler.driver import Driver
from tests.support.ends import SUCCEEDED
from tests.support.programs import NEVER_TRIPS, SECOND_NS, lane, program, provider

COOLDOWN_NS = 5 * SECOND_NS
OVERLOADED = AttemptResult(outcome=Outcome.OVERLOADED, status=529)
SLOW = AttemptResult(outcome=Outcome.SLOW, status=200, committed=True)
FAILED = AttemptResult(outcome=Outcome.FAILED, status=500)


def adaptive(
    *, low: int = 2, start: int = 40, high: int = 100, breaker: CircuitBreakerSettings = NEVER_TRIPS, **settings: Any
) -> Program:
    aimd = AimdSettings(low=low, start=start, **{"cooldown_ns": COOLDOWN_NS, **settings})
    return program(providers=[provider("p", limit=high, breaker=breaker, aimd=aimd)])


class Crowd:
    """More is waiting for a provider than it has slots, so all of them are taken. First begun, first ended."""

    def __init__(self, policy: Program, calls: int = 400) -> None:
        self.driver = Driver(policy)
        self.driver.calls(calls)
        self._ended = 0

    @property
    def limit(self) -> int:
        return self.driver.rest.pools["p"].limit

    @property
    def inflight(self) -> int:
        return self.driver.rest.inflight

    def end(self, times: int = 1, ended: AttemptResult = SUCCEEDED) -> list[Command]:
        """Return what came of the last."""
        commands: list[Command] = []
        for _ in range(times):
            call = self.driver.granted[self._ended]
            self._ended += 1
            commands = self.driver.post(AttemptEnded(CallId(call), ended))
        return commands

    def renew(self) -> None:
        """All that are in flight end, and say nothing; others take their places."""
        self.end(self.inflight, AttemptResult(outcome=Outcome.IGNORED, committed=True))

    def cut(self, ended: AttemptResult = OVERLOADED) -> None:
        """A new piece of bad news."""
        self.driver.now_ns += COOLDOWN_NS
        self.renew()
        self.driver.now_ns += COOLDOWN_NS
        self.end(1, ended)


# ---- up ----


def test_it_begins_where_the_policy_says() -> None:
    crowd = Crowd(adaptive(start=7))

    assert (crowd.limit, crowd.inflight) == (7, 7)


# ---- a world of its own ----


class World:
    """A provider with a backlog, on a clock of its own: some attempts are refused at once, others take their time."""

    def __init__(
        self,
        limiter: Limiter,
        accepts: Callable[[int], bool],
        lasts_ns: Callable[[int], int] = lambda _: SECOND_NS,
        outcome: Outcome = Outcome.CONCURRENCY,
    ) -> None:
        self.limiter, self.accepts, self.lasts_ns, self.outcome = limiter, accepts, lasts_ns, outcome
        self.now_ns = 0
        self.served: list[int] = []
        """When each success ended."""
        self.refused: list[int] = []
        self._running: list[tuple[int, int, int, bool]] = []
        self._calls = 0

    def run(self, seconds: float) -> World:
        until_ns = self.now_ns + int(seconds * SECOND_NS)
        while True:
            while len(self._running) < self.limiter.limit:
                self._begin()
            ends_ns, call, granted_ns, good = heappop(self._running)
            if ends_ns > until_ns:
                heappush(self._running, (ends_ns, call, granted_ns, good))
                self.now_ns = until_ns
                return self
            self.now_ns = ends_ns
            (self.served if good else self.refused).append(ends_ns)
            self.limiter.on_ended(
                CallId(call),
                Outcome.SUCCEEDED if good else self.outcome,
                granted_ns=granted_ns,
                now_ns=ends_ns,
                inflight=len(self._running) + 1,
                limit_is_binding=True,
            )
            limit = self.limiter.limit
            assert limit <= self.limiter.high
            assert limit >= self.limiter.settings.low or self.limiter.snapshot(ends_ns).cap == limit >= 1

    def _begin(self) -> None:
        call, self._calls = self._calls, self._calls + 1
        level = len(self._running) + 1
        self.limiter.on_granted(CallId(call), level, self.now_ns)
        good = self.accepts(level)
        lasts_ns = self.lasts_ns(level) if good else SECOND_NS // 20
        heappush(self._running, (self.now_ns + lasts_ns, call, self.now_ns, good))


def limiter(low: int = 2, start: int = 4, high: int = 64, **settings: Any) -> Limiter:
    return Limiter(AimdSettings(low=low, start=start, **{"cooldown_ns": COOLDOWN_NS, **settings}), high)


@pytest.mark.slow
@given(
    cap=st.integers(1, 60),
    start=st.integers(2, 64),
    seed=st.integers(0, 99),
    outcome=st.sampled_from([Outcome.CONCURRENCY, Outcome.OVERLOADED]),
)
@settings(max_examples=40)
def test_a_cap_is_found_exactly(cap: int, start: int, seed: int, outcome: Outcome) -> None:
    random = Random(seed)
    world = World(
        limiter(start=start),
        lambda level: level <= cap,
        lambda _: int(random.uniform(0.8, 1.2) * SECOND_NS),
        outcome,
    )

    world.run(240)

    # In the last two minutes nearly all of the cap is used, and little is refused at it.
    served = sum(at_ns > 120 * SECOND_NS for at_ns in world.served)
    refused = sum(at_ns > 120 * SECOND_NS for at_ns in world.refused)
    assert served >= 0.75 * 120 * cap
    assert refused <= 0.1 * served + 20


class Pair:
    """A provider that has one call at a time in flight, and is asked for a second one."""

    def __init__(self, low: int = 2) -> None:
        self.limiter = limiter(low=low, start=low)
        self.now_ns = 0
        self._calls = 0

    def ask(self, level: int, *, accepted: bool, times: int = 1, outcome: Outcome = Outcome.OVERLOADED) -> None:
        """Grant attempts one after the other, each as the last of `level` in flight."""
        for _ in range(times):
            self._calls += 1
            granted_ns, self.now_ns = self.now_ns, self.now_ns + SECOND_NS // 20
            self.limiter.on_granted(CallId(self._calls), level, granted_ns)
            self.limiter.on_ended(
                CallId(self._calls),
                Outcome.SUCCEEDED if accepted else outcome,
                granted_ns=granted_ns,
                now_ns=self.now_ns,
                inflight=level,
                limit_is_binding=True,
            )


@pytest.mark.parametrize("outcome", [Outcome.CONCURRENCY, Outcome.OVERLOADED])
@pytest.mark.parametrize("low", [2, 3])
def test_a_cap_below_the_lower_bound_is_kept_when_attempts_show_it(low: int, outcome: Outcome) -> None:
    pair = Pair(low)
    pair.ask(low - 1, accepted=True)

    pair.ask(low, accepted=False, times=2, outcome=outcome)
    assert pair.limiter.limit == low, "two refusals may be chance"
    pair.ask(low, accepted=False, times=3, outcome=outcome)
    assert pair.limiter.limit == low - 1

    pair.now_ns += CAP_NS
    pair.ask(low - 1, accepted=True)
    assert pair.limiter.limit == low, "one more is tried when its time is over"


@pytest.mark.parametrize("within", [0, 3], ids=["none was alone", "none was accepted alone"])
@pytest.mark.parametrize("outcome", [Outcome.CONCURRENCY, Outcome.OVERLOADED])
def test_a_storm_shows_no_cap_below_the_lower_bound(outcome: Outcome, within: int) -> None:
    pair = Pair()
    pair.ask(1, accepted=False, times=within, outcome=outcome)

    pair.ask(2, accepted=False, times=20, outcome=outcome)

    assert pair.limiter.limit == 2


def test_a_storm_that_comes_later_contradicts_a_cap_below_the_lower_bound() -> None:
    pair = Pair()
    pair.ask(1, accepted=True)
    pair.ask(2, accepted=False, times=5)
    assert pair.limiter.limit == 1

    pair.ask(1, accepted=False, times=3)  # fewer at once are refused as well

    assert pair.limiter.limit == 2


class Overloads:
    """Thirty calls wait at each time; some are refused at once with a 529, the others are served in four seconds."""

    def __init__(self, refuses: Callable[[int, float], bool]) -> None:
        self.limiter, self.refuses, self.now_ns = Limiter(AimdSettings(low=2, start=30), 64), refuses, 0
        self._calls, self._running = 0, 0
        self._due: list[tuple[int, int, int, bool]] = []

    def run(self, until_s: float) -> Overloads:
        while self.now_ns < until_s * SECOND_NS:
            while self._running < min(30, self.limiter.limit):
                self._calls, self._running = self._calls + 1, self._running + 1
                self.limiter.on_granted(CallId(self._calls), self._running, self.now_ns)
                refused = self.refuses(self._running, self.now_ns / SECOND_NS)
                lasts_ns = SECOND_NS // 5 if refused else 4 * SECOND_NS + self._calls % 7 * SECOND_NS // 10
                heappush(self._due, (self.now_ns + lasts_ns, self._calls, self.now_ns, refused))
            self.now_ns, call, granted_ns, refused = heappop(self._due)
            self.limiter.on_ended(
                CallId(call),
                Outcome.OVERLOADED if refused else Outcome.SUCCEEDED,
                granted_ns=granted_ns,
                now_ns=self.now_ns,
                inflight=self._running,
                limit_is_binding=self.limiter.limit < 30,
            )
            self._running -= 1
        return self


@pytest.mark.parametrize("seed", range(5))
def test_after_a_storm_of_overloads_the_limit_goes_back_to_what_was_served_before_it(seed: int) -> None:
    random = Random(seed)
    world = Overloads(lambda _, now_s: 10 <= now_s < 20 and random.random() < 0.9).run(20)
    assert world.limiter.limit <= 10, "in the storm itself little is sent"

    world.run(45)

    assert world.limiter.limit >= 25


@pytest.mark.parametrize("cap", [3, 5, 10])
def test_a_cap_that_says_no_more_than_a_storm_is_kept_all_the_same(cap: int) -> None:
    world = Overloads(lambda running, now_s: now_s >= 10 and running > cap).run(20)

    for second in range(20, 60):
        world.run(second)
        assert world.limiter.limit <= cap + 2


def test_a_cap_below_the_lower_bound_keeps_the_limit_from_before_for_after_an_outage() -> None:
    pair = Pair()
    pair.limiter.hint(8, doubling=True)
    pair.ask(2, accepted=False)
    pair.now_ns += DOUBT_NS
    pair.ask(1, accepted=True)
    assert pair.limiter.limit == 3, "one more than the number in doubt"

    pair.ask(3, accepted=False)
    pair.ask(2, accepted=False, times=5)

    assert pair.limiter.limit == 1
    assert pair.limiter.uncut(pair.now_ns) == 8


def test_a_reload_keeps_a_cap_below_the_lower_bound_unless_it_raises_that() -> None:
    pair = Pair(low=3)
    pair.ask(1, accepted=True)
    pair.ask(2, accepted=False, times=5)
    assert pair.limiter.limit == 1

    pair.limiter.load(AimdSettings(low=3, start=8), 32)
    assert pair.limiter.limit == 1
    pair.limiter.load(AimdSettings(low=4, start=8), 32)
    assert pair.limiter.limit == 4


def test_refusals_at_random_leave_nearly_all_of_the_limit() -> None:
    random = Random(1)
    world = World(limiter(), lambda _: random.random() >= 0.1, outcome=Outcome.OVERLOADED)

    world.run(300)

    # Fewer at once would not be refused less: a limit of 64 finishes 64 a second.
    served = sum(at_ns > 180 * SECOND_NS for at_ns in world.served)
    assert served >= 0.4 * 120 * 64


@pytest.mark.slow
def test_a_number_that_was_believed_once_is_not_believed_again_for_one_refusal() -> None:
    used = []
    for seed in (1, 2, 3):
        random = Random(seed)
        world = World(
            limiter(start=8, high=40),
            lambda _, random=random: random.random() >= 0.22,  # type: ignore[misc]
            lambda _, random=random: int(random.uniform(1, 3) * SECOND_NS),  # type: ignore[misc]
            Outcome.OVERLOADED,
        )
        world.run(1_200)
        used.append(sum(at_ns > 300 * SECOND_NS for at_ns in world.served) / (900 * 40 / 2))

    # Some refusals at random come at the same number.
    assert sum(used) / 3 >= 0.5


def test_refusals_that_may_be_by_chance_do_not_cut() -> None:
    one = limiter(start=40, high=100)
    calls = 0

    def attempts(level: int, at_s: int, refused: int, accepted: int) -> None:
        nonlocal calls
        for number in range(accepted + refused):
            calls += 1
            one.on_granted(CallId(calls), level, at_s * SECOND_NS)
            one.on_ended(
                CallId(calls),
                Outcome.SUCCEEDED if number < accepted else Outcome.OVERLOADED,
                granted_ns=at_s * SECOND_NS,
                now_ns=at_s * SECOND_NS + 1_000,
                inflight=level,
            )

    attempts(10, 1, refused=1, accepted=10)
    attempts(30, 90, refused=0, accepted=16)
    before = one.limit

    attempts(30, 100, refused=4, accepted=0)  # a fifth of them, beside an eleventh below

    assert one.limit == before


def test_a_refusal_keeps_what_remains_in_flight() -> None:
    crowd = Crowd(adaptive(start=40))

    crowd.end(5, AttemptResult(outcome=Outcome.CONCURRENCY, status=429))

    assert crowd.limit == 35


def test_refusals_of_one_batch_are_one_piece_of_evidence_of_a_cap() -> None:
    at_once, later = Crowd(adaptive(start=40)), Crowd(adaptive(start=40))

    for _ in range(10):
        at_once.end(1, AttemptResult(outcome=Outcome.CONCURRENCY, status=429))
        later.end(1, AttemptResult(outcome=Outcome.CONCURRENCY, status=429))
        later.driver.now_ns += SECOND_NS // 10  # however late it is told

    assert at_once.limit == later.limit == 30


def test_a_cap_is_not_exceeded_while_it_is_believed_and_tried_again_then() -> None:
    one = limiter(start=20)
    world = World(one, lambda level: level <= 10)
    world.run(CAP_NS / SECOND_NS - 1)
    assert one.limit == 10
    before = len(world.refused)

    world.run(120)

    assert len(world.refused) > before, "it is tried again"
    assert len(world.refused) - before <= 60, "and found again"


def test_answers_from_before_a_cap_do_not_measure_the_throughput_at_it() -> None:
    one = limiter(start=20)

    def begins(calls: range, at_ns: int) -> None:
        for number, call in enumerate(calls, start=1):
            one.on_granted(CallId(call), number, at_ns)

    def end(calls: range, outcome: Outcome, granted_ns: int, now_ns: int, inflight: int) -> None:
        for call in calls:
            one.on_ended(
                CallId(call),
                outcome,
                granted_ns=granted_ns,
                now_ns=now_ns,
                inflight=inflight,
                limit_is_binding=True,
            )
            inflight -= 1

    begins(range(20), 0)
    end(range(12), Outcome.CONCURRENCY, 0, SECOND_NS, 20)
    assert one.limit == 8
    end(range(12, 20), Outcome.SUCCEEDED, 0, 2 * SECOND_NS, 8)

    begins(range(20, 28), 3 * SECOND_NS)
    end(range(20, 28), Outcome.SUCCEEDED, 3 * SECOND_NS, 5 * SECOND_NS, 8)

    # A cap has been measured once, so it is not yet compared with fewer.
    assert one.limit == 8


def test_a_cap_that_has_gone_is_forgotten() -> None:
    one = limiter(start=20)
    world = World(one, lambda level: level <= 10)
    world.run(30)

    world.accepts = lambda _: True
    world.run(300)

    assert one.limit >= 40


def test_the_limit_climbs_while_more_at_once_finish_more() -> None:
    one = limiter()

    World(one, lambda _: True).run(120)

    assert one.limit == 64


@pytest.mark.parametrize("capacity", [6, 12])
def test_growth_stops_where_throughput_does(capacity: int) -> None:
    random = Random(1)
    one = limiter()
    world = World(
        one,
        lambda _: True,
        lambda level: int(max(1.0, (level / capacity) ** 2) * random.uniform(0.9, 1.1) * SECOND_NS),
    )

    world.run(300)

    # Twice as many at once take four times as long.
    served = sum(at_ns > 180 * SECOND_NS for at_ns in world.served)
    assert served >= 0.6 * 120 * capacity


@pytest.mark.parametrize(
    ("kept", "waits", "grows"),
    [
        (lane("b", reserve="75%"), "default", True),
        (lane("b", max="25%"), "b", True),
        (lane("b", max=2), "b", False),
        (lane("b", reserve="75%"), None, False),
    ],
    ids=["a reserve keeps them", "a part of them is all it may have", "a cap of its own", "nobody waits"],
)
def test_it_grows_too_where_slots_that_are_free_are_not_for_those_who_wait(
    kept: LaneSettings, waits: str | None, grows: bool
) -> None:
    driver = Driver(program(providers=[provider("p", limit=64, aimd=AimdSettings(low=1, start=8))], lanes=[kept]))
    driver.calls(2, lane=waits or "default")
    if waits is not None:
        driver.calls(300, lane=waits)

    limits = set()
    for round_ in range(60):
        running = driver.granted[-driver.rest.inflight :] if driver.rest.inflight else []
        driver.now_ns = (round_ + 1) * SECOND_NS
        for call in running:
            driver.end(call)
        limits.add(driver.rest.pools["p"].limit)

    # Where it is not the constraint it is not even measured.
    assert max(limits) > 8 if grows else limits == {8}


def test_it_climbs_to_the_upper_bound_and_no_further() -> None:
    crowd = Crowd(adaptive(start=2, high=12))

    crowd.end(50)

    assert (crowd.limit, crowd.inflight) == (12, 12)


# ---- down ----


LIMIT_AFTER: Final = {
    Outcome.SUCCEEDED: 40,
    Outcome.IGNORED: 40,
    Outcome.SLOW: 36,
    Outcome.QUOTA: 40,
    Outcome.BURST: 40,
    Outcome.TOO_FAST: 40,
    Outcome.CONCURRENCY: 39,
    Outcome.OVERLOADED: 39,
    Outcome.FAILED: 40,
    Outcome.DEGRADED: 40,
    Outcome.UNREACHABLE: 40,
    Outcome.TERMINAL: 40,
}


@pytest.mark.parametrize(("outcome", "leaves"), LIMIT_AFTER.items())
def test_what_each_outcome_does_to_a_limit_of_forty(outcome: Outcome, leaves: int) -> None:
    crowd = Crowd(adaptive(start=40))

    crowd.end(1, AttemptResult(outcome=outcome, committed=True))

    assert crowd.limit == leaves


def test_the_table_leaves_no_outcome_out() -> None:
    assert set(LIMIT_AFTER) == set(Outcome)


@pytest.mark.parametrize("decrease", [0.25, 0.5, 1.0])
def test_an_overload_whatever_the_number_cuts_in_proportion(decrease: float) -> None:
    one = limiter(start=40, high=100, decrease=decrease)
    for number in range(40):
        one.on_granted(CallId(number), 40, 0)
    for number in range(19):
        one.on_good(CallId(number), 1, inflight=1, limit_is_binding=False)

    one.on_ended(CallId(39), Outcome.OVERLOADED, granted_ns=0, now_ns=2, inflight=40)

    # One of the twenty that are known was refused.
    assert one.limit == int(40 * (1 - decrease / 20))


def test_a_number_without_evidence_is_not_cut() -> None:
    one = limiter(start=40, high=100)
    for number in range(TRIES_MIN - 2):
        one.on_granted(CallId(number), 40, 0)
        one.on_good(CallId(number), 1, inflight=1, limit_is_binding=False)
    one.on_granted(CallId(99), 40, 1)

    one.on_ended(CallId(99), Outcome.OVERLOADED, granted_ns=1, now_ns=2, inflight=40)

    assert one.limit == 39


def left(one: Limiter, call: int, after_ns: int, inflight: int) -> int:
    """A client leaves without having had any content. Return the limit."""
    one.on_ended(CallId(call), Outcome.IGNORED, granted_ns=call, now_ns=call + after_ns, inflight=inflight)
    return one.limit


def crowded(begun: tuple[int, ...] = ()) -> Limiter:
    """Twelve attempts, one after the other, of which these have had content."""
    one = limiter(start=40, high=100)
    for number in range(12):
        one.on_granted(CallId(number), number + 1, number)
    for number in begun:
        one.on_good(CallId(number), 12, inflight=12, limit_is_binding=False)
    return one


def test_clients_that_leave_without_content_halve_what_is_in_flight_once() -> None:
    one = crowded()

    assert left(one, 3, ABANDONED_NS, 12) == 6
    assert left(one, 4, ABANDONED_NS, 11) == 6  # it waited together with the first
    assert not one.doubling


@pytest.mark.parametrize(
    ("begun", "after_ns", "leaves"),
    [((), ABANDONED_NS - 1, 40), ((4,), ABANDONED_NS, 40), ((2,), ABANDONED_NS, 6), ((3,), ABANDONED_NS, 40)],
    ids=["it has changed its mind", "a later one was served", "an earlier one was served", "it has had content"],
)
def test_a_client_that_leaves_tells_of_its_provider_only_if_all_wait(
    begun: tuple[int, ...], after_ns: int, leaves: int
) -> None:
    assert left(crowded(begun), 3, after_ns, 12) == leaves


def test_a_cut_revokes_nothing_and_lets_nobody_go_until_there_is_room() -> None:
    crowd = Crowd(adaptive(start=40))
    crowd.end(1, SLOW)
    assert (crowd.limit, crowd.inflight) == (36, 39)

    crowd.end(3, AttemptResult(outcome=Outcome.IGNORED, committed=True))
    assert crowd.inflight == 36
    crowd.end(1, AttemptResult(outcome=Outcome.IGNORED, committed=True))

    assert crowd.inflight == 36


@pytest.mark.slow
@pytest.mark.parametrize("low", [1, 3])
@pytest.mark.parametrize("ended", [SLOW, OVERLOADED], ids=["slow", "overloaded"])
def test_it_is_never_cut_under_the_lower_bound(low: int, ended: AttemptResult) -> None:
    crowd = Crowd(adaptive(low=low, start=40), calls=20_000)

    for _ in range(200):
        crowd.cut(ended)

    assert crowd.limit >= low
    assert crowd.inflight >= low


# ---- one cut for each epoch ----


def test_what_was_in_flight_together_tells_one_piece_of_news() -> None:
    crowd = Crowd(adaptive(start=40))

    for _ in range(20):
        crowd.end(2, SLOW)
        crowd.driver.now_ns += COOLDOWN_NS  # however late it is told

    # The first twenty cut it once; others that came after it are the next piece.
    assert crowd.limit >= 29


def test_what_began_in_the_moment_of_the_cut_tells_nothing_new() -> None:
    crowd = Crowd(adaptive(low=1, start=40))
    crowd.driver.now_ns = SECOND_NS
    crowd.end(40, SLOW)
    assert crowd.limit == 36

    crowd.driver.now_ns += COOLDOWN_NS
    crowd.end(20, SLOW)

    assert crowd.limit == 36


@pytest.mark.parametrize(("after_ns", "leaves"), [(COOLDOWN_NS - 1, 36), (COOLDOWN_NS, 32)])
def test_between_two_cuts_there_is_the_cooldown(after_ns: int, leaves: int) -> None:
    crowd = Crowd(adaptive(start=40))
    crowd.end(1, SLOW)
    crowd.driver.now_ns = 1
    crowd.renew()

    crowd.driver.now_ns = after_ns
    crowd.end(1, SLOW)

    assert crowd.limit == leaves


def test_each_provider_has_its_own() -> None:
    settings = AimdSettings(low=1, start=8)
    driver = Driver(program(providers=[provider("p", limit=9, aimd=settings), provider("q", limit=9, aimd=settings)]))
    for call in driver.calls(8, provider="p")[:3]:
        driver.end(call, AttemptResult(outcome=Outcome.CONCURRENCY, status=429, committed=True))

    assert [pool.limit for pool in driver.rest.pools.values()] == [5, 8]


# ---- after an outage ----


@pytest.mark.parametrize(("low", "leaves"), [(2, 20), (25, 25)])
def test_a_provider_that_is_back_is_trusted_with_half_and_one_more_for_each_success(low: int, leaves: int) -> None:
    crowd = Crowd(adaptive(low=low, start=40, breaker=CircuitBreakerSettings(trip=0.02, of=100, probes=1)))
    crowd.end(2, FAILED)
    crowd.renew()
    assert (crowd.limit, crowd.inflight) == (40, 0)
    crowd.driver.at(crowd.driver.rest.pools["p"].opens_ns or 0)

    crowd.end()

    assert crowd.driver.rest.pools["p"].circuit is Circuit.CLOSED
    assert (crowd.limit, crowd.inflight) == (leaves, leaves)
    crowd.end(5)
    assert crowd.limit == leaves + 5


def test_failures_of_an_open_circuit_teach_no_limit() -> None:
    crowd = Crowd(adaptive(start=40, breaker=CircuitBreakerSettings(trip=0.02, of=100, probes=1)))
    crowd.end(2, FAILED)

    crowd.end(38, OVERLOADED)

    assert crowd.limit == 40


# ---- what follows from it ----


def test_shares_and_reserves_are_of_what_there_is_now() -> None:
    aimd = AimdSettings(low=1, start=8)
    lanes = [lane("a", max="50%"), lane("b", reserve="25%")]
    driver = Driver(program(providers=[provider("p", limit=8, aimd=aimd)], lanes=lanes))
    for call in driver.calls(6):
        driver.end(call, AttemptResult(outcome=Outcome.CONCURRENCY, status=429, committed=True))
    assert driver.rest.pools["p"].limit == 1
    driver.load(program(providers=[provider("p", limit=8, aimd=AimdSettings(low=4, start=8))], lanes=lanes))
    assert driver.rest.pools["p"].limit == 4

    driver.calls(4, lane="a")
    driver.calls(4)
    driver.calls(4, lane="b")

    assert driver.rest.pools["p"].lanes_inflight == {"a": 2, "b": 1, "default": 1}


def test_every_change_of_whole_slots_is_told_with_what_it_came_of() -> None:
    crowd = Crowd(adaptive(start=40))

    commands = [*crowd.end(1, SLOW), *crowd.end(1, SLOW), *crowd.end(1)]

    told = [each for each in commands if isinstance(each, LimitChanged)]
    assert told == [LimitChanged(provider="p", limit=36, circuit=Circuit.CLOSED, because=Outcome.SLOW)]


def test_a_limit_that_does_not_adapt_stays_where_it_is() -> None:
    driver = Driver(program(providers=[provider("p", limit=8)]))

    for outcome in Outcome:
        driver.now_ns += SECOND_NS  # a complaint about growth slows down what follows
        driver.end(driver.call(model=outcome), AttemptResult(outcome=outcome, committed=True))  # money is of one model

    assert driver.rest.pools["p"].limit == 8


# ---- a new policy ----


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "leaves"),
    [
        (adaptive(low=2, high=100), 36),
        (adaptive(low=2, high=1_000, start=900), 36),
        (adaptive(low=2, high=12, start=12), 12),
        (adaptive(low=38, high=100), 38),
    ],
    ids=["as before", "more room", "less room", "more at least"],
)
def test_what_was_learned_comes_through_a_reload_within_its_bounds(policy: Program, leaves: int) -> None:
    crowd = Crowd(adaptive(start=40))
    crowd.end(1, SLOW)

    crowd.driver.load(policy)

    assert crowd.limit == leaves


@pytest.mark.slow
def test_an_epoch_comes_through_a_reload() -> None:
    crowd = Crowd(adaptive(start=40))
    crowd.end(1, SLOW)

    crowd.driver.load(adaptive(start=40))
    crowd.driver.now_ns = COOLDOWN_NS
    crowd.end(30, SLOW)

    assert crowd.limit == 36


def test_more_room_is_climbed_into() -> None:
    crowd = Crowd(adaptive(start=8, high=8))

    crowd.driver.load(adaptive(start=8, high=16))
    assert crowd.inflight == 8
    crowd.end(20)

    assert (crowd.limit, crowd.inflight) == (16, 16)


def test_a_higher_lower_bound_lets_those_go_who_wait() -> None:
    crowd = Crowd(adaptive(start=4))

    crowd.driver.load(adaptive(low=9))

    assert (crowd.limit, crowd.inflight) == (9, 9)


def test_a_limit_that_is_fixed_from_now_on_is_what_the_policy_says() -> None:
    crowd = Crowd(adaptive(start=40))
    crowd.end(1, SLOW)

    crowd.driver.load(program(providers=[provider("p", limit=50)]))
    assert (crowd.limit, crowd.inflight) == (50, 50)
    crowd.driver.load(adaptive(start=30))

    assert crowd.limit == 30


# ---- always ----

HEARD = [outcome for outcome in Outcome if outcome not in (Outcome.UNREACHABLE, Outcome.TERMINAL)]
"""Five in a row of the one, and nobody is let through; after the other nobody waits."""


@pytest.mark.slow
@given(
    low=st.integers(1, 4),
    above=st.tuples(st.integers(0, 4), st.integers(0, 8)),
    decrease=st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    increase=st.integers(1, 3),
    history=st.lists(st.tuples(st.sampled_from(HEARD), st.sampled_from([0, 1, COOLDOWN_NS])), max_size=60),
)
def test_it_stays_within_its_bounds_and_moves_as_it_was_told(
    low: int,
    above: tuple[int, int],
    decrease: float,
    increase: int,
    history: list[tuple[Outcome, int]],
) -> None:
    start = low + above[0]
    high = start + above[1]
    crowd = Crowd(adaptive(low=low, start=start, high=high, decrease=decrease, increase=increase), calls=100)

    refused = False
    for outcome, passed_ns in history:
        if not crowd.inflight:
            return
        crowd.driver.now_ns += passed_ns
        before = crowd.limit
        crowd.end(1, AttemptResult(outcome=outcome, committed=True))

        assert low <= crowd.limit <= high
        if outcome in (Outcome.OVERLOADED, Outcome.CONCURRENCY, Outcome.SLOW) and not passed_ns:
            assert crowd.limit <= before
        elif outcome is not Outcome.SUCCEEDED and not passed_ns:
            assert crowd.limit == before
        # What is refused for going too often holds its model back, and slots stay free.
        refused = refused or outcome in (Outcome.QUOTA, Outcome.BURST, Outcome.TOO_FAST)
        assert refused or crowd.inflight >= crowd.limit


def test_it_does_not_grow_for_a_call_that_rests() -> None:
    adapting = provider("p", limit=64, aimd=AimdSettings(low=1, start=8))
    retry = RetrySettings(attempts=2, first_ns=60 * SECOND_NS, last_ns=60 * SECOND_NS, jitter=Jitter.NONE, ratio=1.0)
    driver = Driver(program(providers=[adapting], lanes=[lane("b", reserve="75%")], retries=[retry]))
    call, other = driver.calls(2, lane="default")
    driver.end(other, AttemptResult(outcome=Outcome.FAILED, status=502))
    driver.call(lane="default")

    driver.end(call)

    assert driver.rest.pools["p"].limit == 8
