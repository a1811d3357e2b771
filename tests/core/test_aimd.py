"""A limit that adapts: up by one a round while it binds, down at once, and once for each piece of bad news."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.core import Adapted, AttemptEnded, CallId, Circuit, Command, Ended
from hivemind_trio.core._aimd import TOO_MANY_NS
from hivemind_trio.model import Outcome
from hivemind_trio.policy import Aimd, Breaker, Jitter, Lane, Program, Retry
from tests.support.ends import SUCCEEDED
from tests.support.programs import NEVER_TRIPS, SECOND_NS, lane, program, provider

from .driver import Driver

COOLDOWN_NS = 5 * SECOND_NS
OVERLOADED = Ended(outcome=Outcome.OVERLOADED, status=529)
FAILED = Ended(outcome=Outcome.FAILED, status=500)


def adaptive(
    *, low: int = 2, start: int = 40, high: int = 100, breaker: Breaker = NEVER_TRIPS, **settings: Any
) -> Program:
    aimd = Aimd(low=low, start=start, **{"cooldown_ns": COOLDOWN_NS, **settings})
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

    def end(self, times: int = 1, ended: Ended = SUCCEEDED) -> list[Command]:
        """Return what came of the last."""
        commands: list[Command] = []
        for _ in range(times):
            call = self.driver.granted[self._ended]
            self._ended += 1
            commands = self.driver.post(AttemptEnded(CallId(call), ended))
        return commands

    def renew(self) -> None:
        """All that are in flight end, and say nothing; others take their places."""
        self.end(self.inflight, Ended(outcome=Outcome.IGNORED, committed=True))

    def cut(self, ended: Ended = OVERLOADED) -> None:
        """A new piece of bad news."""
        self.driver.now_ns += COOLDOWN_NS
        self.renew()
        self.driver.now_ns += COOLDOWN_NS
        self.end(1, ended)


# ---- too fast ----

QUARTER_NS = 15 * 60 * SECOND_NS
TOO_FAST = Ended(outcome=Outcome.TOO_FAST, status=429)


def grown(start: int = 8, to: int = 40) -> Crowd:
    """A limit that has climbed within seconds."""
    crowd = Crowd(adaptive(start=start), calls=20_000)
    for _ in range(to - start):
        crowd.driver.now_ns += SECOND_NS // 10
        crowd.end()
    assert crowd.limit == to
    return crowd


def test_what_has_grown_too_fast_goes_back_to_what_was_usual() -> None:
    crowd = grown()

    crowd.cut(TOO_FAST)

    # Within a minute the usual is what it began with; nine tenths of forty would be 36.
    assert crowd.limit == 8


def test_what_was_usual_for_a_quarter_of_an_hour_is_not_taken_back() -> None:
    crowd = grown()
    for _ in range(60):
        crowd.driver.now_ns += QUARTER_NS // 15
        crowd.end(1, Ended(outcome=Outcome.IGNORED, committed=True))

    crowd.cut(TOO_FAST)

    assert crowd.limit == 36


def test_a_quiet_night_makes_a_crowd_in_the_morning_unusual() -> None:
    driver = Driver(adaptive(start=10))
    for _ in range(30):
        driver.now_ns += SECOND_NS
        running = driver.calls(driver.rest.pools["p"].limit)
        for call in running:
            driver.end(call)
    assert driver.rest.pools["p"].limit == 100

    driver.now_ns += 8 * 4 * QUARTER_NS
    running = driver.calls(100)
    driver.now_ns += COOLDOWN_NS
    driver.end(running[0], TOO_FAST)

    assert driver.rest.pools["p"].limit == 10


def test_it_is_held_for_a_quarter_of_an_hour_and_then_grows_by_half_in_each() -> None:
    crowd = grown()
    crowd.cut(TOO_FAST)
    limits = []
    for _ in range(5):
        crowd.renew()
        for _ in range(30):
            crowd.driver.now_ns += 1
            crowd.end(20)
        limits.append(crowd.limit)
        crowd.driver.now_ns += QUARTER_NS

    assert limits == [8, 12, 18, 27, 40]


# ---- up ----


def test_it_begins_where_the_policy_says() -> None:
    crowd = Crowd(adaptive(start=7))

    assert (crowd.limit, crowd.inflight) == (7, 7)


def test_until_the_first_cut_every_success_is_worth_a_slot() -> None:
    crowd = Crowd(adaptive(start=5))

    crowd.end(5)

    assert (crowd.limit, crowd.inflight) == (10, 10)


def climbed(crowd: Crowd, to: int) -> int:
    """How many successes it takes."""
    successes = 0
    while crowd.limit < to:
        crowd.end()
        successes += 1
    return successes


@pytest.mark.parametrize(("increase", "rounds"), [(1, 6), (3, 2)])
def test_after_it_a_round_of_successes_is_worth_what_the_policy_says(increase: int, rounds: int) -> None:
    crowd = Crowd(adaptive(increase=increase), calls=4_000)
    crowd.cut()
    assert crowd.limit == 20
    crowd.renew()  # what drains is more than the limit
    climbed(crowd, 35)

    # A round is as many successes as the limit, which has grown from 35 to 41 meanwhile.
    assert rounds * 35 <= climbed(crowd, 41) <= rounds * 41 + 1


def test_up_to_near_where_there_were_too_many_it_is_worth_four_times_as_much() -> None:
    crowd = Crowd(adaptive())
    crowd.cut()
    crowd.renew()

    assert 12 / 4 * 20 <= climbed(crowd, 32) <= 12 / 4 * 32 + 1


def test_what_was_too_many_twice_is_not_tried_again_for_a_minute() -> None:
    crowd = Crowd(adaptive(), calls=10_000)
    crowd.cut()
    crowd.renew()
    climbed(crowd, 40)
    crowd.cut()
    cut_ns = crowd.driver.now_ns
    crowd.renew()

    climbed(crowd, 39)
    crowd.driver.now_ns = cut_ns + TOO_MANY_NS - 1
    crowd.end(200)
    assert crowd.limit == 39

    crowd.driver.now_ns = cut_ns + TOO_MANY_NS
    climbed(crowd, 42)


def test_a_storm_that_refuses_at_any_number_shows_no_cap() -> None:
    crowd = Crowd(adaptive(low=4, start=4))
    for _ in range(3):
        crowd.cut()
    crowd.renew()

    climbed(crowd, 6)


def test_what_was_too_many_once_is_tried_again_at_once() -> None:
    crowd = Crowd(adaptive(), calls=10_000)
    crowd.cut()
    crowd.renew()
    climbed(crowd, 30)
    crowd.cut()  # fewer than before: it was no cap
    crowd.renew()

    climbed(crowd, 32)


@pytest.mark.parametrize(("inflight", "grows"), [(29, False), (30, True)])
def test_it_grows_only_while_three_quarters_of_it_are_in_flight(inflight: int, grows: bool) -> None:
    driver = Driver(adaptive(start=40))
    call, *_ = driver.calls(inflight)

    driver.end(call)

    assert driver.rest.pools["p"].limit == 40 + grows


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
    kept: Lane, waits: str | None, grows: bool
) -> None:
    driver = Driver(program(providers=[provider("p", limit=64, aimd=Aimd(low=1, start=8))], lanes=[kept]))
    call, *_ = driver.calls(2, lane=waits or "default")
    if waits is not None:
        driver.calls(3, lane=waits)

    driver.end(call)

    assert driver.rest.pools["p"].limit == 8 + grows


def test_it_climbs_to_the_upper_bound_and_no_further() -> None:
    crowd = Crowd(adaptive(start=2, high=12))

    crowd.end(50)

    assert (crowd.limit, crowd.inflight) == (12, 12)


# ---- down ----


@pytest.mark.parametrize(
    ("outcome", "leaves"),
    [
        (Outcome.SUCCEEDED, 41),
        (Outcome.IGNORED, 40),
        (Outcome.SLOW, 36),
        (Outcome.QUOTA, 40),
        (Outcome.BURST, 36),
        (Outcome.TOO_FAST, 36),
        (Outcome.CONCURRENCY, 28),
        (Outcome.OVERLOADED, 20),
        (Outcome.FAILED, 40),
        (Outcome.DEGRADED, 40),
        (Outcome.UNREACHABLE, 40),
        (Outcome.TERMINAL, 40),
    ],
)
def test_what_each_outcome_does_to_a_limit_of_forty(outcome: Outcome, leaves: int) -> None:
    crowd = Crowd(adaptive(start=40))

    crowd.end(1, Ended(outcome=outcome, committed=True))

    assert crowd.limit == leaves


def test_the_table_leaves_no_outcome_out() -> None:
    (mark,) = test_what_each_outcome_does_to_a_limit_of_forty.pytestmark

    assert {outcome for outcome, _ in mark.args[1]} == set(Outcome)


@pytest.mark.parametrize(("decrease", "leaves"), [(0.25, 30), (0.5, 20), (1.0, 2)])
def test_an_overload_takes_the_share_that_the_policy_says(decrease: float, leaves: int) -> None:
    crowd = Crowd(adaptive(start=40, low=2, decrease=decrease))

    crowd.end(1, OVERLOADED)

    assert crowd.limit == leaves


def test_a_cut_revokes_nothing_and_lets_nobody_go_until_there_is_room() -> None:
    crowd = Crowd(adaptive(start=4))
    crowd.end(1, OVERLOADED)
    assert (crowd.limit, crowd.inflight) == (2, 3)

    crowd.end(1, Ended(outcome=Outcome.IGNORED, committed=True))
    assert crowd.inflight == 2
    crowd.end(1, Ended(outcome=Outcome.IGNORED, committed=True))

    assert crowd.inflight == 2


@pytest.mark.parametrize("low", [1, 3])
def test_it_is_never_cut_under_the_lower_bound(low: int) -> None:
    crowd = Crowd(adaptive(low=low, start=40))

    for _ in range(10):
        crowd.cut()

    assert (crowd.limit, crowd.inflight) == (low, low)


# ---- one cut for each epoch ----


def test_what_was_in_flight_together_tells_one_piece_of_news() -> None:
    crowd = Crowd(adaptive(start=40))

    for _ in range(20):
        crowd.end(2, OVERLOADED)
        crowd.driver.now_ns += COOLDOWN_NS  # however late it is told

    assert crowd.limit == 20


def test_what_began_in_the_moment_of_the_cut_tells_nothing_new() -> None:
    crowd = Crowd(adaptive(low=1, start=40))
    crowd.driver.now_ns = SECOND_NS
    crowd.end(40, OVERLOADED)
    assert crowd.limit == 20

    crowd.driver.now_ns += COOLDOWN_NS
    crowd.end(20, OVERLOADED)

    assert crowd.limit == 20


@pytest.mark.parametrize(("after_ns", "leaves"), [(COOLDOWN_NS - 1, 20), (COOLDOWN_NS, 10)])
def test_between_two_cuts_there_is_the_cooldown(after_ns: int, leaves: int) -> None:
    crowd = Crowd(adaptive(start=40))
    crowd.end(1, OVERLOADED)
    crowd.driver.now_ns = 1
    crowd.renew()

    crowd.driver.now_ns = after_ns
    crowd.end(1, OVERLOADED)

    assert crowd.limit == leaves


def test_a_mild_signal_uses_the_epoch_up_like_any() -> None:
    crowd = Crowd(adaptive(start=40))

    crowd.end(1, Ended(outcome=Outcome.BURST, status=429))
    crowd.end(10, OVERLOADED)

    assert crowd.limit == 36


def test_each_provider_has_its_own() -> None:
    settings = Aimd(low=1, start=8)
    driver = Driver(program(providers=[provider("p", limit=9, aimd=settings), provider("q", limit=9, aimd=settings)]))

    driver.end(driver.call(provider="p"), OVERLOADED)

    assert [pool.limit for pool in driver.rest.pools.values()] == [4, 8]


# ---- after an outage ----


@pytest.mark.parametrize(("low", "leaves"), [(2, 10), (15, 15)])
def test_a_provider_that_is_back_is_trusted_with_a_quarter(low: int, leaves: int) -> None:
    crowd = Crowd(adaptive(low=low, start=40, breaker=Breaker(of=2, probes=1)))
    crowd.end(2, FAILED)
    crowd.renew()
    assert (crowd.limit, crowd.inflight) == (40, 0)
    crowd.driver.at(crowd.driver.rest.pools["p"].opens_ns or 0)

    crowd.end()

    assert crowd.driver.rest.pools["p"].circuit is Circuit.CLOSED
    assert (crowd.limit, crowd.inflight) == (leaves, leaves)
    crowd.end(leaves)
    assert crowd.limit <= leaves + 1, "it is no time for a slow start"


# ---- what follows from it ----


def test_shares_and_reserves_are_of_what_there_is_now() -> None:
    aimd = Aimd(low=1, start=8)
    lanes = [lane("a", max="50%"), lane("b", reserve="25%")]
    driver = Driver(program(providers=[provider("p", limit=8, aimd=aimd)], lanes=lanes))
    driver.end(driver.call(), OVERLOADED)
    assert driver.rest.pools["p"].limit == 4

    driver.calls(4, lane="a")
    driver.calls(4)
    driver.calls(4, lane="b")

    assert driver.rest.pools["p"].lanes_inflight == {"a": 2, "b": 1, "default": 1}


def test_every_change_of_whole_slots_is_told_with_what_it_came_of() -> None:
    crowd = Crowd(adaptive(start=40))

    commands = [*crowd.end(1, OVERLOADED), *crowd.end(1, OVERLOADED), *crowd.end(1)]

    told = [each for each in commands if isinstance(each, Adapted)]
    assert told == [Adapted(provider="p", limit=20, circuit=Circuit.CLOSED, because=Outcome.OVERLOADED)]


def test_a_limit_that_does_not_adapt_stays_where_it_is() -> None:
    driver = Driver(program(providers=[provider("p", limit=8)]))

    for outcome in Outcome:
        driver.now_ns += SECOND_NS  # a complaint about growth slows down what follows
        driver.end(driver.call(model=outcome), Ended(outcome=outcome, committed=True))  # money is of one model

    assert driver.rest.pools["p"].limit == 8


# ---- a new policy ----


@pytest.mark.parametrize(
    ("bounds", "leaves"),
    [
        ({"low": 2, "high": 100}, 20),
        ({"low": 2, "high": 1_000, "start": 900}, 20),
        ({"low": 2, "high": 12, "start": 12}, 12),
        ({"low": 30, "high": 100}, 30),
    ],
    ids=["as before", "more room", "less room", "more at least"],
)
def test_what_was_learned_comes_through_a_reload_within_its_bounds(bounds: dict[str, int], leaves: int) -> None:
    crowd = Crowd(adaptive(start=40))
    crowd.end(1, OVERLOADED)

    crowd.driver.load(adaptive(**bounds))

    assert crowd.limit == leaves


def test_an_epoch_comes_through_a_reload() -> None:
    crowd = Crowd(adaptive(start=40))
    crowd.end(1, OVERLOADED)

    crowd.driver.load(adaptive(start=40))
    crowd.driver.now_ns = COOLDOWN_NS
    crowd.end(30, OVERLOADED)

    assert crowd.limit == 20


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
    crowd.end(1, OVERLOADED)

    crowd.driver.load(program(providers=[provider("p", limit=50)]))
    assert (crowd.limit, crowd.inflight) == (50, 50)
    crowd.driver.load(adaptive(start=30))

    assert crowd.limit == 30


# ---- always ----

HEARD = [outcome for outcome in Outcome if outcome not in (Outcome.UNREACHABLE, Outcome.TERMINAL)]
"""Five in a row of the one, and nobody is let through; after the other nobody waits."""


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

    slowed = False
    for outcome, passed_ns in history:
        if not crowd.inflight:
            return
        crowd.driver.now_ns += passed_ns
        before = crowd.limit
        crowd.end(1, Ended(outcome=outcome, committed=True))

        assert low <= crowd.limit <= high
        if outcome is Outcome.SUCCEEDED:
            assert before <= crowd.limit <= before + increase
        elif outcome in (Outcome.OVERLOADED, Outcome.CONCURRENCY, Outcome.BURST, Outcome.TOO_FAST, Outcome.SLOW):
            assert crowd.limit <= before
        else:
            assert crowd.limit == before
        # QUOTA without a time to come back closes nothing, so whoever fits goes; after BURST not so many at once.
        slowed = slowed or outcome is Outcome.BURST
        assert slowed or crowd.inflight >= crowd.limit


def test_it_does_not_grow_for_a_call_that_rests() -> None:
    adapting = provider("p", limit=64, aimd=Aimd(low=1, start=8))
    retry = Retry(attempts=2, first_ns=60 * SECOND_NS, last_ns=60 * SECOND_NS, jitter=Jitter.NONE, ratio=1.0)
    driver = Driver(program(providers=[adapting], lanes=[lane("b", reserve="75%")], retries=[retry]))
    call, other = driver.calls(2, lane="default")
    driver.end(other, Ended(outcome=Outcome.FAILED, status=502))
    driver.call(lane="default")

    driver.end(call)

    assert driver.rest.pools["p"].limit == 8
