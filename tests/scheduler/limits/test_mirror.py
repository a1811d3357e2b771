"""Quotas that learn from answers, against providers that count: buckets, fixed and sliding windows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.model import Dimension, QuotaReading
from hivemind_trio.policy import RateLimitSettings, Window
from hivemind_trio.scheduler.limits.cost import NOTHING
from hivemind_trio.scheduler.limits.rate_limiter import RAISE_PER_S, SHARED_HEADROOM, RateLimiter
from hivemind_trio.scheduler.limits.rate_limits import MINUTE_NS, TOLD_MAX, RateLimits
from hivemind_trio.scheduler.limits.token_estimator import cost_of
from hivemind_trio.scheduler.protocol.call import CallId
from hivemind_trio.sim import Counting
from tests.scheduler.models.mirrored import MINUTE, S, Setup, spend

DAY_NS = 1_440 * MINUTE_NS

WINDOWS = {Counting.BUCKET: Window.BUCKET, Counting.FIXED: Window.FIXED, Counting.SLIDING: Window.SLIDING}


def quota(amount: int = 600, window: Window = Window.LEARN, window_ns: int = MINUTE) -> RateLimitSettings:
    """Declared with a headroom, so that it shows that answers are held against it."""
    return RateLimitSettings(
        dimension=Dimension.REQUESTS, amount=amount, window_ns=window_ns, window=window, headroom=0.02
    )


def declared(*given: RateLimitSettings) -> RateLimits:
    quotas = RateLimits()
    quotas.load(given, 0)
    return quotas


def reading(remaining: int | None, limit: int | None = 600, resets_ns: int | None = None, **more: Any) -> QuotaReading:
    return QuotaReading(dimension=Dimension.REQUESTS, limit=limit, remaining=remaining, resets_ns=resets_ns, **more)


def most_in_a_window(times: list[int], window_ns: int) -> int:
    """The most within any half-open window; `times` in order."""
    most = begin = 0
    for number, at_ns in enumerate(times):
        while times[begin] <= at_ns - window_ns:
            begin += 1
        most = max(most, number - begin + 1)
    return most


# ---- what the provider fails ----


def over_fixed_windows(fails: list[bool], *, counts: bool) -> tuple[list[int], list[int]]:
    """Return how many were answered and how many were counted in each of three windows of 20 requests.

    Args:
        fails: Whether the next attempt fails; then there is no answer. It goes on from the beginning, with good ones.
        counts: The provider counts what it fails.
    """
    limits = declared(attrs.evolve(quota(20, Window.FIXED), headroom=0.0))
    one = {**NOTHING, Dimension.REQUESTS: 1}
    good, counted = [0] * 3, [0] * 3
    now_ns = call_id = 0
    outcomes = iter(fails)
    while (number := now_ns // MINUTE) < 3:
        limits.take(CallId(call_id), one, now_ns)
        if next(outcomes, False):
            counted[number] += counts
            limits.end(CallId(call_id), now_ns)
            limits.fail(one, now_ns)
            limits.spare(one, now_ns, now_ns + S)  # when it is in line again
        else:
            counted[number] += 1
            good[number] += 1
            told = reading(20 - counted[number], limit=20, resets_ns=(number + 1) * MINUTE - now_ns)
            limits.on_headers(CallId(call_id), [told], now_ns)
            limits.accept(CallId(call_id), now_ns)
            limits.end(CallId(call_id), now_ns)
        call_id, now_ns = call_id + 1, now_ns + S // 2
        while (opens_ns := limits.opens_ns(one, now_ns)) > now_ns:
            now_ns = opens_ns
    return good, counted


@given(st.lists(st.booleans(), max_size=40))
def test_whether_failures_are_counted_is_learned_from_answers(fails: list[bool]) -> None:
    _, counted = over_fixed_windows(fails, counts=True)
    second = fails[:12]
    last = [*second, *[False] * (19 - second.count(False)), *[True] * 4]
    good, _ = over_fixed_windows([True, True, *[False] * 20, *last], counts=False)

    assert max(counted) <= 20, "where they are, none goes too much"
    assert good == [20, 20, 20], "where they are not, none is lost for them, be it at a window's end"


def test_what_a_failed_attempt_took_is_kept_for_its_call() -> None:
    limits = declared(attrs.evolve(quota(20, Window.FIXED), headroom=0.0))
    one = {**NOTHING, Dimension.REQUESTS: 1}

    def answered(number: int, remaining: int, now_ns: int) -> None:
        limits.take(CallId(number), one, now_ns)
        limits.on_headers(CallId(number), [reading(remaining, limit=20, resets_ns=MINUTE - now_ns)], now_ns)
        limits.accept(CallId(number), now_ns)
        limits.end(CallId(number), now_ns)

    def failed(number: int, now_ns: int) -> None:
        limits.take(CallId(number), one, now_ns)
        limits.end(CallId(number), now_ns)
        limits.fail(one, now_ns)

    answered(0, 19, 0)
    failed(1, S)
    answered(2, 18, 2 * S)  # the failed one is not in it
    for number in range(3, 19):
        answered(number, 20 - number, 3 * S + number)
    failed(19, 20 * S)
    answered(20, 1, 21 * S)

    assert limits.opens_ns(one, 22 * S) >= MINUTE, "the last is not for others"
    limits.spare(one, 20 * S, 22 * S)
    assert limits.opens_ns(one, 22 * S) == 22 * S


# ---- headers are tried ----


def beside_a_long_call(
    told_s: int, true_s: float, seconds: int, *quotas: RateLimitSettings
) -> tuple[list[int], list[int]]:
    """Return when calls were accepted and refused while one stays in flight and others wait.

    Args:
        told_s: Each answer says that there is no room for so long.
        true_s: For so long there is none.
        quotas: Limits of the policy.
    """
    limits = declared(*quotas)
    one = {**NOTHING, Dimension.REQUESTS: 1}
    accepted: list[int] = []
    refused: list[int] = []
    now_ns, call_id = 0, CallId(0)
    while now_ns < seconds * S:
        limits.take(call_id, one, now_ns)
        if accepted and now_ns - accepted[-1] < true_s * S:
            refused.append(now_ns)
            limits.refuse(call_id, (), None, now_ns)
        else:
            accepted.append(now_ns)
            limits.on_headers(call_id, [reading(0, limit=1, resets_ns=told_s * S)], now_ns)
            limits.accept(call_id, now_ns)
        if call_id:
            limits.end(call_id, now_ns)
        call_id = CallId(call_id + 1)
        now_ns += 1
        while (opens_ns := limits.opens_ns(one, now_ns)) > now_ns:
            now_ns = opens_ns
    return accepted, refused


def test_a_wait_that_headers_ask_for_in_vain_is_found_out_beside_calls_in_flight() -> None:
    accepted, refused = beside_a_long_call(told_s=60, true_s=0.5, seconds=120)

    late = [at_ns for at_ns in accepted if at_ns >= 60 * S]
    assert len(late) >= 40, "of 120 that the provider takes; with the headers' word for it there would be one"
    assert len(refused) <= 60


def test_headers_are_tried_within_what_the_policy_declares() -> None:
    accepted, refused = beside_a_long_call(60, 0.5, 300, quota(60))

    late = [at_ns for at_ns in accepted if at_ns >= 60 * S]
    assert len(late) >= 160, "of 240; with the headers' word for it there would be four"
    assert most_in_a_window(sorted([*accepted, *refused]), MINUTE) <= 60, "the policy is no forecast: nothing tries it"


def test_a_true_wait_costs_ever_fewer_refusals() -> None:
    accepted, refused = beside_a_long_call(told_s=60, true_s=60, seconds=3_600)

    assert len(accepted) >= 59
    assert len(refused) <= 18
    assert sum(at_ns >= 1_800 * S for at_ns in refused) <= 8


@pytest.mark.parametrize("dimension", [Dimension.REQUESTS, Dimension.INPUT])
def test_a_refused_trial_has_taken_nothing(dimension: Dimension) -> None:
    limits = RateLimits()
    one = {**NOTHING, Dimension.REQUESTS: 1, Dimension.INPUT: 100}
    told = QuotaReading(dimension=dimension, limit=one[dimension], remaining=one[dimension], resets_ns=60 * S)
    limits.take(CallId(0), one, 0)
    limits.on_headers(CallId(0), [told, attrs.evolve(told, remaining=0)], 0)
    limits.accept(CallId(0), 0)
    limits.opens_ns(one, 0)
    now_ns = limits.opens_ns(one, S)
    before = limits.snapshot(now_ns).buckets

    limits.take(CallId(1), one, now_ns)
    limits.refuse(CallId(1), (), None, now_ns)
    limits.end(CallId(1), now_ns)
    limits.settle(one, cost_of(0, 0), now_ns, now_ns)  # as of any call that is turned away

    assert now_ns == 5 * S, "a trial: by the header there is room after 60 s"
    assert limits.snapshot(now_ns).buckets == before


def test_a_wait_of_a_second_is_not_tried() -> None:
    _, refused = beside_a_long_call(told_s=1, true_s=1, seconds=600)

    assert refused == []


ONE = {**NOTHING, Dimension.REQUESTS: 1}


class Told:
    """Headers tell of no room for a minute, beside a call that stays in flight; others go against them."""

    def __init__(self) -> None:
        self.limits, self.now_ns, self._calls = RateLimits(), 0, 1
        self.limits.take(CallId(0), ONE, 0)
        self.limits.on_headers(CallId(0), [reading(0, 1, 60 * S)], 0)
        self.limits.accept(CallId(0), 0)

    @property
    def waits_ns(self) -> int:
        """For how long the next call waits."""
        return self.limits.opens_ns(ONE, self.now_ns) - self.now_ns

    def goes(self, *, accepted: bool) -> None:
        """One goes as soon as it may. Its answer tells the same as that before."""
        while self.waits_ns:
            self.now_ns += self.waits_ns
        call_id, self._calls = CallId(self._calls), self._calls + 1
        self.limits.take(call_id, ONE, self.now_ns)
        if accepted:
            self.limits.on_headers(call_id, [reading(0, 1, 60 * S)], self.now_ns)
            self.limits.accept(call_id, self.now_ns)
        else:
            self.limits.refuse(call_id, (), None, self.now_ns)
        self.limits.end(call_id, self.now_ns)


def test_headers_that_two_accepted_calls_in_a_row_contradict_hold_nothing_back() -> None:
    told = Told()
    told.goes(accepted=True)
    assert told.waits_ns > S

    told.goes(accepted=True)

    assert told.waits_ns == 0
    for _ in range(20):
        told.goes(accepted=True)
    assert told.waits_ns == 0


def test_headers_that_a_refusal_confirms_in_between_are_believed() -> None:
    told = Told()
    for accepted in (True, False, True):
        told.goes(accepted=accepted)

    assert told.waits_ns > S


def test_headers_are_believed_again_once_two_refusals_in_a_row_confirm_them() -> None:
    told = Told()
    for accepted in (True, True, False, True, False):
        told.now_ns += 5 * S
        told.goes(accepted=accepted)
    told.limits.gate.rate.clear()  # what refusals say by themselves
    assert told.waits_ns == 0

    told.now_ns += 5 * S
    told.goes(accepted=False)

    told.limits.gate.rate.clear()
    assert told.waits_ns > S


def test_refusals_soon_after_the_last_call_confirm_no_headers() -> None:
    """By the headers one goes each minute. That two within a second are refused is true of other providers, too."""
    told = Told()
    told.goes(accepted=True)
    told.goes(accepted=True)

    for _ in range(10):
        told.now_ns += S
        told.goes(accepted=False)

    told.limits.gate.rate.clear()  # what refusals say by themselves
    assert told.waits_ns == 0


def spaced(told_ns: int, true_ns: int, *, takes_ns: int, until_ns: int) -> tuple[int, int]:
    """Return how many calls were accepted and refused, one after the other, each as soon as it may go.

    Args:
        told_ns: Each answer says that there is no room for so long.
        true_ns: For so long there is none.
        takes_ns: Time from a call's grant to its end.
    """
    limits, now_ns, last_ns = RateLimits(), 0, -true_ns
    accepted = refused = 0
    for number in range(10_000):
        while (opens_ns := limits.opens_ns(ONE, now_ns)) > now_ns:
            now_ns = opens_ns
        if now_ns >= until_ns:
            return accepted, refused
        call_id = CallId(number)
        limits.take(call_id, ONE, now_ns)
        if now_ns - last_ns < true_ns:
            refused += 1
            limits.refuse(call_id, (), None, now_ns)
            limits.end(call_id, now_ns)
            continue
        accepted, last_ns = accepted + 1, now_ns
        limits.on_headers(call_id, [reading(0, 1, told_ns)], now_ns)
        limits.accept(call_id, now_ns)
        now_ns += takes_ns
        limits.end(call_id, now_ns)
    raise AssertionError("it never ends")


@pytest.mark.parametrize("takes_ns", [S // 10, S])
def test_a_short_wait_that_headers_ask_for_in_vain_is_found_out(takes_ns: int) -> None:
    """They round half a second up to two, and nothing is in flight for most of them."""
    accepted, _ = spaced(2 * S + S // 4, S // 2, takes_ns=takes_ns, until_ns=120 * S)

    assert accepted >= 0.7 * 120 * S // max(S // 2, takes_ns), "with the headers' word for it there are 53"


def test_a_trial_with_nothing_in_flight_is_no_probe_of_the_gate() -> None:
    limits = RateLimits()
    limits.take(CallId(0), ONE, 0)
    limits.on_headers(CallId(0), [reading(0, 1, 3 * S)], 0)
    limits.accept(CallId(0), 0)
    limits.end(CallId(0), S)
    limits.opens_ns(ONE, S)
    limits.take(CallId(1), ONE, S + S // 2)

    limits.accept(CallId(1), 2 * S)

    assert limits.snapshot(2 * S).allowed is None, "a probe lets few go at first"


def test_a_true_short_wait_costs_ever_fewer_refusals() -> None:
    accepted, refused = spaced(2 * S + S // 4, 2 * S + S // 4, takes_ns=S // 10, until_ns=1_800 * S)

    assert accepted >= 1_800 // 2.25 - 1, "a trial delays none"
    assert refused <= 16


@pytest.mark.parametrize(("by_reset", "is_held"), [(True, False), (False, True)])
def test_a_refusal_that_names_a_reset_which_was_wrong_does_not_hold_back(by_reset: bool, is_held: bool) -> None:
    told = Told()
    told.goes(accepted=True)
    told.goes(accepted=True)

    told.limits.take(CallId(99), ONE, told.now_ns)
    told.limits.refuse(CallId(99), (), 9 * S, told.now_ns, by_reset=by_reset)

    told.limits.gate.rate.clear()  # what refusals say by themselves
    assert (told.waits_ns > S) is is_held


def test_a_refusal_that_names_a_reset_which_nothing_contradicts_holds_back() -> None:
    limits = RateLimits()
    limits.take(CallId(0), ONE, 0)

    limits.refuse(CallId(0), (), 9 * S, 0, by_reset=True)

    assert limits.gate.until_ns == 9 * S


def test_a_reload_forgets_that_headers_were_wrong() -> None:
    told = Told()
    told.goes(accepted=True)
    told.goes(accepted=True)

    told.limits.load((), told.now_ns)

    assert told.waits_ns > S


# ---- alone on the key ----


@pytest.mark.parametrize("resolution_ns", [1_000_000, S], ids=["milliseconds", "seconds"])
@pytest.mark.parametrize("known", [True, False], ids=["declared", "told"])
@pytest.mark.parametrize("counting", Counting)
def test_a_window_is_used_up_to_its_headroom_and_never_over(
    counting: Counting, known: bool, resolution_ns: int
) -> None:
    setup = Setup(counting=counting, phase_ns=17 * S, resolution_ns=resolution_ns)
    quotas = declared(quota(setup.limit)) if known else declared()

    told = spend(setup, quotas, 5 * MINUTE)

    if known:
        assert told.refused == []
    else:  # no kind is known of it, and refusals are what shows it
        assert len(told.refused) <= 0.03 * len(told.granted)
    last = sum(at_ns >= 3 * MINUTE for at_ns in told.granted)
    assert last >= 0.95 * 2 * setup.limit


@pytest.mark.parametrize("counting", Counting)
def test_the_kind_of_window_shows_and_is_taken_for_no_other(counting: Counting) -> None:
    # Work that comes and goes shows every kind: what is left falls, and comes back in its own way.
    quotas = declared(quota())
    (bucket,) = quotas.buckets.values()

    spend(Setup(counting=counting, phase_ns=31 * S, head_ns=(50_000_000, S)), quotas, 4 * MINUTE)

    assert bucket.kind is WINDOWS[counting]


@pytest.mark.parametrize("tells", [True, False], ids=["one", "deaf"])
@pytest.mark.parametrize("counting", Counting)
def test_nothing_is_known_of_a_window_that_nobody_tells_the_end_of(counting: Counting, tells: bool) -> None:
    quotas = declared(quota())
    (bucket,) = quotas.buckets.values()
    setup = Setup(counting=counting, limit=600, tells=tells, tells_resets=False)

    told = spend(setup, quotas, 3 * MINUTE)

    assert bucket.kind is Window.LEARN
    # So everything passes every kind: in no window more than the capacity.
    assert most_in_a_window(told.granted, MINUTE) <= bucket.capacity
    assert told.refused == []


def test_a_bucket_less_deep_than_its_limit_is_found_out() -> None:
    told = spend(Setup(counting=Counting.BUCKET, burst=60), declared(), 4 * MINUTE)

    # Before the first answer nobody knew, and then few are refused.
    assert sum(at_ns >= 5 * S for at_ns in told.refused) <= 0.05 * len(told.granted)
    assert sum(at_ns >= 2 * MINUTE for at_ns in told.granted) >= 0.95 * 2 * 600


def test_windows_that_begin_with_a_request_are_spent_as_well() -> None:
    told = spend(Setup(counting=Counting.FIXED, lazy=True, resolution_ns=S), declared(quota()), 4 * MINUTE)

    assert told.refused == []
    assert sum(at_ns >= 2 * MINUTE for at_ns in told.granted) >= 0.95 * 2 * 600


@pytest.mark.parametrize("resolution_ns", [1_000_000, S], ids=["milliseconds", "seconds"])
@pytest.mark.parametrize("as_sent", [True, False], ids=["as it is sent", "as it was asked for"])
def test_no_window_is_left_unused_for_what_was_in_flight_when_it_was_told_of(as_sent: bool, resolution_ns: int) -> None:
    """A reset told in whole seconds may lie anywhere in its second: to go before its end would be refused at times."""
    setup = Setup(
        counting=Counting.FIXED,
        limit=50,
        lazy=True,
        head_ns=(20_000_000, 200_000_000),
        inflight=5,
        as_sent=as_sent,
        resolution_ns=resolution_ns,
    )
    told = spend(setup, declared(attrs.evolve(quota(50, Window.FIXED), headroom=0.0)), 8 * MINUTE)

    assert told.refused == []
    # Each window is spent in a second or so, to the last request, and the next begins hardly later than it can.
    begun = [at_ns for at_ns, before_ns in zip(told.granted[1:], told.granted, strict=False) if at_ns - before_ns > S]
    assert len(told.granted) == 8 * 50
    assert len(begun) == 7
    rounding_ns = 0 if resolution_ns < S else S
    assert begun[-1] <= 7 * (MINUTE + rounding_ns) + S
    assert all(later - earlier <= MINUTE + rounding_ns + S // 5 for earlier, later in pairwise(begun))


# ---- not alone ----


setups = st.builds(
    Setup,
    counting=st.sampled_from(Counting),
    limit=st.sampled_from([60, 300]),
    phase_ns=st.integers(0, 59 * S),
    lazy=st.booleans(),
    head_ns=st.sampled_from([(1_000_000, 2_000_000), (50_000_000, S), (50_000_000, 10 * S)]),
    resolution_ns=st.sampled_from([1_000_000, S]),
    foreign_per_s=st.sampled_from([0.0, 0.2, 1.0]),
    estimate=st.sampled_from([1.0, 3.0]),
    inflight=st.sampled_from([1, 8, 32]),
)


@pytest.mark.slow
@settings(max_examples=25)
@given(setups, st.booleans(), st.integers(0, 9))
def test_only_what_no_answer_could_tell_is_refused(setup: Setup, known: bool, seed: int) -> None:
    """Heads late and out of order, others on the same key: over the limit goes what was in flight unseen, no more."""
    told = spend(setup, declared(quota(setup.limit)) if known else declared(), 2 * MINUTE, seed)

    if known and setup.foreign_per_s == 0:
        assert told.refused == []
    # Probes: one every two seconds at most, and none beyond what is declared.
    assert told.beyond <= 2 * MINUTE // (2 * S)


@pytest.mark.parametrize("counting", Counting)
def test_what_others_take_is_left_to_them(counting: Counting) -> None:
    # They take 180 of 600 in each minute, and never wait.
    told = spend(Setup(counting=counting, foreign_per_s=3.0), declared(quota()), 5 * MINUTE)

    assert len(told.refused) <= 0.03 * len(told.granted)
    assert sum(at_ns >= 3 * MINUTE for at_ns in told.granted) >= 0.9 * 2 * 420


# ---- what one answer does ----


def test_what_was_granted_after_the_call_that_is_answered_is_not_in_the_answer() -> None:
    bucket = RateLimiter(quota(100, Window.BUCKET))
    for grant in range(30):
        bucket.take(1, grant)

    # The head of the first: 49 were left, and nothing is known of the 29 others. Two are headroom.
    bucket.on_headers(reading(49, 100), unseen=29, grant=0, taken_ns=30, now_ns=30)

    assert bucket.fits_ns(49 - 29 - 2, 30) <= 31
    assert bucket.fits_ns(49 - 29, 30) > 31


def test_what_is_rounded_may_be_less() -> None:
    bucket = RateLimiter(quota(10_000, Window.BUCKET))
    bucket.on_headers(reading(10_000, 10_000), unseen=0, grant=0, taken_ns=0, now_ns=0)

    bucket.on_headers(reading(5_000, 10_000, rounding=500), unseen=0, grant=0, taken_ns=0, now_ns=0)

    assert bucket.fits_ns(4_300, 0) == 0
    assert bucket.fits_ns(4_301, 0) > 0


@pytest.mark.parametrize("window", Window)
def test_an_answer_to_an_older_call_is_old_news(window: Window) -> None:
    bucket = RateLimiter(quota(100, window))
    assert bucket.on_headers(reading(10, 100, 30 * S), unseen=0, grant=5, taken_ns=0, now_ns=0)
    before = [bucket.fits_ns(amount, 20 * S) for amount in (1, 20, 90)]

    assert not bucket.on_headers(reading(100, 1_000, 1), unseen=0, grant=4, taken_ns=0, now_ns=20 * S)

    assert [bucket.fits_ns(amount, 20 * S) for amount in (1, 20, 90)] == before


@pytest.mark.parametrize("window", [Window.BUCKET, Window.FIXED, Window.SLIDING])
def test_more_than_was_thought_is_believed_by_and_by(window: Window) -> None:
    bucket = RateLimiter(quota(1_000, window))
    bucket.on_headers(reading(1_000, 1_000, 59 * S), unseen=0, grant=0, taken_ns=0, now_ns=0)
    bucket.on_headers(reading(20, 1_000, 59 * S), unseen=0, grant=0, taken_ns=0, now_ns=0)
    assert bucket.fits_ns(1, 0) > 0

    bucket.on_headers(reading(1_000, 1_000, 58 * S), unseen=0, grant=1, taken_ns=S, now_ns=S)

    # Use by others comes back at the rate, as the content of a bucket does.
    earned = 0 if window is Window.FIXED else bucket.capacity // 60
    most = int(bucket.capacity * RAISE_PER_S) + earned
    assert bucket.fits_ns(most - 5, S) == S
    assert bucket.fits_ns(most + 5, S) > S


def test_small_raises_are_not_lost() -> None:
    bucket = RateLimiter(quota(100, Window.SLIDING))
    bucket.on_headers(reading(2, 100), unseen=0, grant=0, taken_ns=0, now_ns=0)

    for step in range(1, 101):
        bucket.on_headers(reading(100, 100), unseen=0, grant=step, taken_ns=0, now_ns=step * S // 100)

    assert bucket.fits_ns(9, S) == S
    assert bucket.fits_ns(12, S) > S


def test_a_fixed_window_is_spent_to_its_end_and_then_anew() -> None:
    bucket = RateLimiter(quota(100, Window.FIXED))
    bucket.on_headers(reading(60, 100, 7_500_000_000), unseen=0, grant=0, taken_ns=0, now_ns=0)

    assert bucket.fits_ns(58, 0) == 0
    bucket.take(58, 0)
    assert bucket.fits_ns(1, S) == 7_500_000_000
    assert bucket.fits_ns(98, 7_500_000_000) == 7_500_000_000


def test_a_fixed_window_nobody_has_told_the_end_of_is_spent_at_once_and_not_again() -> None:
    bucket = RateLimiter(quota(100, Window.FIXED))

    for _ in range(98):
        assert bucket.fits_ns(1, S) == S
        bucket.take(1, S)
    # Its phase is unknown: only when a whole one is over has it certainly turned.
    assert bucket.fits_ns(1, 2 * S) >= MINUTE + S


@pytest.mark.parametrize("window", [Window.FIXED, Window.SLIDING])
def test_what_an_answer_does_not_contradict_is_left_as_it_is(window: Window) -> None:
    bucket = RateLimiter(quota(100, window))
    for _ in range(30):
        bucket.take(1, 0)

    # 70 are left if it was counted when it was sent, and 50 if what was granted since is not in it.
    bucket.on_headers(reading(70, 100, 30 * S + 1), unseen=20, grant=0, taken_ns=0, now_ns=1)

    assert bucket.fits_ns(68, 1) == 1
    assert bucket.fits_ns(69, 1) > 1


def test_more_of_a_fixed_window_is_believed_while_time_passes_though_no_answer_comes() -> None:
    bucket = RateLimiter(quota(1_000, Window.FIXED))
    bucket.on_headers(reading(20, 1_000, 40 * S), unseen=0, grant=0, taken_ns=0, now_ns=0)
    bucket.on_headers(reading(520, 1_000, 40 * S), unseen=0, grant=1, taken_ns=0, now_ns=0)

    for taken in range(1, 6):
        at_ns = bucket.fits_ns(98, 0)
        assert (taken - 1) * S <= at_ns <= taken * S + S // 100
        bucket.take(98, at_ns)
    # Beyond what the answer has told there is no more in this window.
    assert bucket.fits_ns(98, 10 * S) == 41 * S


def test_the_lowest_of_several_ends_in_whole_seconds_is_the_nearest() -> None:
    bucket = RateLimiter(quota(100, Window.FIXED))
    for grant, (now_ns, resets_ns) in enumerate([(900_000_000, 7 * S), (S, 6 * S), (1_900_000_000, 6 * S)]):
        bucket.on_headers(reading(2, 100, resets_ns), unseen=0, grant=grant, taken_ns=0, now_ns=now_ns)

    assert bucket.fits_ns(1, 2 * S) == 8 * S  # and one more, for they may have been rounded down


def test_whole_seconds_may_have_been_rounded_down() -> None:
    bucket = RateLimiter(quota(100, Window.FIXED))

    bucket.on_headers(reading(2, 100, 7 * S), unseen=0, grant=0, taken_ns=0, now_ns=0)

    assert bucket.fits_ns(1, 0) == 8 * S


def test_an_end_further_off_than_the_window_is_long_is_another_s() -> None:
    bucket = RateLimiter(quota(100, Window.FIXED))

    bucket.on_headers(reading(1, 100, 3_600 * S), unseen=0, grant=0, taken_ns=0, now_ns=0)

    assert bucket.fits_ns(1, 0) <= MINUTE


readings = st.builds(
    QuotaReading,
    dimension=st.just(Dimension.REQUESTS),
    limit=st.none() | st.integers(1, 10**14),
    remaining=st.none() | st.integers(0, 10**14),
    resets_ns=st.none() | st.integers(1, 7 * DAY_NS),
    rounding=st.sampled_from([0, 500]),
)


@pytest.mark.slow
@given(
    st.sampled_from(Window),
    st.lists(st.tuples(readings, st.integers(0, 20), st.integers(0, 30), st.integers(0, 10 * S)), max_size=30),
)
def test_no_answer_raises_a_level_above_the_declared_limit(
    window: Window, heard: list[tuple[QuotaReading, int, int, int]]
) -> None:
    bucket = RateLimiter(quota(100, window))
    now_ns = 0
    for one, unseen, grant, pause_ns in heard:
        now_ns += pause_ns
        bucket.on_headers(one, unseen, grant, max(0, now_ns - S), now_ns)
        assert 1 <= bucket.capacity <= 98
        assert bucket.limit <= 100
    at_once = 0
    while bucket.fits_ns(1, now_ns) == now_ns:
        bucket.take(1, now_ns)
        at_once += 1
        assert at_once <= 98


@given(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 4 * S), st.integers(1, 30)), max_size=60))
def test_while_nothing_is_known_no_window_holds_more_than_the_capacity(steps: list[tuple[int, int, int]]) -> None:
    bucket = RateLimiter(quota(100))
    taken: list[int] = []
    now_ns = 0
    for grant, (remaining, pause_ns, times) in enumerate(steps):
        now_ns += pause_ns
        bucket.on_headers(reading(min(remaining, 99), 100), 0, grant, now_ns, now_ns)
        for _ in range(times):
            if bucket.fits_ns(1, now_ns) == now_ns:
                bucket.take(1, now_ns)
                taken.append(now_ns)

    assert bucket.kind is Window.LEARN
    assert most_in_a_window(taken, MINUTE) <= 98


# ---- limits ----


def test_the_lower_of_two_limits_holds() -> None:
    bucket = RateLimiter(quota(100, Window.BUCKET))

    bucket.on_headers(reading(4_000, 4_000), 0, 0, 0, 0)
    assert bucket.capacity == 98
    bucket.on_headers(reading(50, 50), 0, 1, 0, 0)
    assert bucket.capacity == 49
    assert bucket.fits_ns(50, 0) == 0  # there is no more to wait for than all of it
    bucket.take(49, 0)
    assert bucket.fits_ns(1, 0) > 0


def test_headers_make_buckets_where_none_is_declared() -> None:
    quotas = heard_by(declared(), reading(599, resets_ns=S // 10))
    (bucket,) = quotas.buckets.values()

    assert (bucket.limit, bucket.quota.window_ns, bucket.declared) == (600, MINUTE, False)
    assert (bucket.kind, bucket.capacity) == (Window.BUCKET, 600)


def test_what_says_nothing_of_a_length_makes_no_window() -> None:
    assert not heard_by(declared(), reading(599)).buckets


def heard_by(quotas: RateLimits, *readings: QuotaReading) -> RateLimits:
    for number, one in enumerate(readings):
        quotas.take(CallId(number), cost_of(0, 0), number)
        quotas.on_headers(CallId(number), [one], number)
    return quotas


def test_who_declares_a_window_has_no_other() -> None:
    quotas = heard_by(declared(quota(100)), QuotaReading(dimension=Dimension.TOKENS, limit=10, remaining=0))

    assert list(quotas.buckets) == [(Dimension.REQUESTS, MINUTE)]


GUESSED = {
    "a minute's bucket": (reading(540, resets_ns=6 * S), MINUTE),
    "a minute's, half used": (reading(300, resets_ns=30 * S), MINUTE),
    "a minute's, in whole seconds": (reading(297, resets_ns=31 * S), MINUTE),
    "a day's, by Groq": (reading(14_370, 14_400, 179_560_000_000), DAY_NS),
    "a day's bucket, hardly touched": (reading(9_999, 10_000, 8_640_000_000), DAY_NS),
    "at least until its reset": (reading(3, 1_000, 40_000 * S), 40_000 * S),
    "told": (reading(9, 10, window_ns=10 * S), 10 * S),
}


@pytest.mark.parametrize(("one", "window_ns"), GUESSED.values(), ids=GUESSED)
def test_the_length_of_a_window_is_told_or_guessed(one: QuotaReading, window_ns: int) -> None:
    quotas = heard_by(declared(), one)

    assert [bucket.quota.window_ns for bucket in quotas.buckets.values()] == [window_ns]


def test_a_window_that_proves_longer_is_longer_from_then_on() -> None:
    quotas = heard_by(declared(), reading(3, 1_000, 50 * S), reading(2, 1_000, 400 * S), reading(1, 1_000, 300 * S))

    assert [bucket.quota.window_ns for bucket in quotas.buckets.values()] == [400 * S]


def test_headers_make_so_many_windows_and_no_more() -> None:
    quotas = heard_by(declared(), *(reading(5, 10, window_ns=seconds * S) for seconds in range(1, 100)))

    assert len(quotas.buckets) == TOLD_MAX


def test_output_on_its_way_is_still_to_come() -> None:
    quotas = declared(attrs.evolve(quota(10_000, Window.BUCKET), dimension=Dimension.OUTPUT))
    quotas.take(CallId(9), NOTHING, 0)
    quotas.on_headers(CallId(9), [QuotaReading(dimension=Dimension.OUTPUT, limit=10_000, remaining=10_000)], 0)
    for call in range(3):
        quotas.take(CallId(call), cost_of(0, 1_000), 0)

    quotas.on_headers(CallId(2), [QuotaReading(dimension=Dimension.OUTPUT, limit=10_000, remaining=9_000)], 0)

    # None of the three had put out anything when 9,000 were left: 6,000 are, less the headroom.
    assert quotas.opens_ns(cost_of(0, 5_800), 0) == 0
    assert quotas.opens_ns(cost_of(0, 5_801), 0) > 0


# ---- optimistic until refused ----


@pytest.mark.parametrize("window", [Window.LEARN, Window.SLIDING, Window.BUCKET])
def test_an_unrefused_window_is_not_spaced(window: Window) -> None:
    bucket = RateLimiter(attrs.evolve(quota(100, window), headroom=None))

    for _ in range(100):
        assert bucket.fits_ns(1, 0) == 0
        bucket.take(1, 0)

    assert bucket.fits_ns(1, 0) > 0


def test_the_first_refusal_starts_spacing_at_the_depth_that_was_observed() -> None:
    bucket = RateLimiter(attrs.evolve(quota(120), headroom=None))
    for _ in range(10):
        bucket.take(1, 0)

    bucket.refuse(0)

    went = []
    now_ns = MINUTE
    for _ in range(20):
        now_ns = bucket.fits_ns(1, now_ns)
        bucket.take(1, now_ns)
        went.append(now_ns - MINUTE)
    assert went[:10] == [0] * 10
    assert went[10:13] == [S // 2, S, 3 * S // 2]


def test_a_refusal_after_fewer_makes_the_depth_less_and_one_after_more_does_not_make_it_more() -> None:
    bucket = RateLimiter(attrs.evolve(quota(120), headroom=None))
    for at_ns, times in ((0, 10), (2 * MINUTE, 4), (4 * MINUTE, 20)):
        for _ in range(times):
            bucket.take(1, at_ns)
        bucket.refuse(at_ns)

    at_once = 0
    while bucket.fits_ns(1, 8 * MINUTE) == 8 * MINUTE:
        bucket.take(1, 8 * MINUTE)
        at_once += 1
    assert at_once == 4


@pytest.mark.parametrize("window", [Window.SLIDING, Window.FIXED, Window.BUCKET])
def test_a_declared_kind_is_not_spaced_for_a_refusal(window: Window) -> None:
    bucket = RateLimiter(attrs.evolve(quota(100, window), headroom=None))
    bucket.take(1, 0)

    bucket.refuse(0)

    for _ in range(99):
        assert bucket.fits_ns(1, 0) == 0
        bucket.take(1, 0)


def test_headroom_is_nothing_until_answers_show_that_others_use_the_key() -> None:
    bucket = RateLimiter(attrs.evolve(quota(1_000), headroom=None))
    bucket.take(1, 0)
    bucket.on_headers(reading(999, 1_000), 0, 0, 0, 0)
    assert (bucket.headroom, bucket.capacity) == (0, 1_000)

    bucket.refuse(0)
    assert bucket.headroom == 0, "one's own calls may have been too many"
    bucket.on_headers(reading(900, 1_000), 0, 1, 0, 0)

    assert (bucket.headroom, bucket.capacity) == (SHARED_HEADROOM, 980)


def test_a_declared_headroom_is_neither_widened_nor_narrowed() -> None:
    bucket = RateLimiter(attrs.evolve(quota(1_000), headroom=0.5))

    bucket.refuse(0)
    bucket.on_headers(reading(100, 1_000), 0, 1, 0, 0)

    assert bucket.headroom == 0.5


# ---- what good answers say ----


def test_use_by_others_comes_back_at_the_rate_of_the_limit() -> None:
    bucket = RateLimiter(attrs.evolve(quota(60, Window.SLIDING), headroom=0.0))

    bucket.on_headers(reading(0, 60), unseen=0, grant=0, taken_ns=0, now_ns=0)

    assert bucket.fits_ns(1, 0) == S
    assert bucket.fits_ns(30, 0) == 30 * S


@pytest.mark.slow
@given(
    st.sampled_from([Window.LEARN, Window.BUCKET, Window.SLIDING]),
    st.booleans(),
    st.lists(
        st.tuples(st.integers(0, 100), st.none() | st.integers(0, 2 * MINUTE), st.integers(0, 10 * S)), max_size=20
    ),
)
def test_what_good_answers_say_never_stops_dispatch(
    window: Window, known: bool, heard: list[tuple[int, int | None, int]]
) -> None:
    """Whatever they say, one of sixty calls a minute goes within the seconds that principle one allows."""
    quotas = declared(attrs.evolve(quota(60, window), headroom=None)) if known else declared()
    now_ns = 0
    for number, (remaining, resets_ns, pause_ns) in enumerate(heard):
        now_ns += pause_ns
        opens_ns = quotas.opens_ns(cost_of(0, 0), now_ns)
        assert opens_ns <= now_ns + 5 * S
        now_ns = opens_ns
        quotas.take(CallId(number), cost_of(0, 0), now_ns)
        quotas.on_headers(CallId(number), [reading(remaining, 60, resets_ns)], now_ns)
        quotas.accept(CallId(number), now_ns)
        quotas.end(CallId(number), now_ns)


def test_two_probes_in_a_row_drop_the_mirror() -> None:
    quotas = declared(attrs.evolve(quota(600, Window.FIXED), headroom=None))
    for number in range(2):
        now_ns = quotas.opens_ns(cost_of(0, 0), number * S)
        quotas.take(CallId(number), cost_of(0, 0), now_ns)
        quotas.on_headers(CallId(number), [reading(0, 600, 50_500_000_000)], now_ns)
        quotas.end(CallId(number), now_ns)
    assert quotas.gate.is_probe(CallId(1)) is False

    for number in (2, 3):
        now_ns = quotas.opens_ns(cost_of(0, 0), now_ns)
        quotas.take(CallId(number), cost_of(0, 0), now_ns)
        assert quotas.gate.is_probe(CallId(number))
        quotas.accept(CallId(number), now_ns)
        quotas.end(CallId(number), now_ns)

    assert quotas.opens_ns(cost_of(0, 0), now_ns) == now_ns


def test_one_call_after_a_refusal_is_refused_too_and_that_is_news() -> None:
    quotas = declared(attrs.evolve(quota(600), headroom=None))
    (bucket,) = quotas.buckets.values()
    for number in range(5):
        quotas.take(CallId(number), cost_of(0, 0), 0)
    quotas.refuse(CallId(0), (Dimension.REQUESTS,), None, 0)
    assert bucket.accepted == 5

    quotas.take(CallId(5), cost_of(0, 0), MINUTE)
    quotas.refuse(CallId(5), (Dimension.REQUESTS,), None, MINUTE)

    assert bucket.accepted == 1


def test_refusals_of_one_batch_are_one_piece_of_evidence() -> None:
    quotas = declared(attrs.evolve(quota(600), headroom=None))
    (bucket,) = quotas.buckets.values()
    for number in range(20):
        quotas.take(CallId(number), cost_of(0, 0), 0)

    for number in range(20):
        quotas.refuse(CallId(number), (Dimension.REQUESTS,), None, number * S // 10)

    assert bucket.accepted == 20


def test_a_call_that_takes_none_of_it_is_not_held_up() -> None:
    bucket = RateLimiter(quota(100))
    bucket.take(98, 0)
    bucket.refuse(0)

    assert bucket.fits_ns(0, 0) == 0
    assert bucket.fits_ns(1, 0) > 0
