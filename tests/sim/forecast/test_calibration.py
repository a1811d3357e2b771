"""Calibration: estimates become right as often as they say, and what is not known yet does not deceive it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Reason, Request
from hivemind_trio.scheduler import CallCancelled, CallId, Grant, TimePassed
from hivemind_trio.sim import Calibration, StartEstimate, Starts
from hivemind_trio.sim.forecast.calibration import APART_NS, CALLS_MAX, ESTIMATES_MAX, SHARPEST_NS, bounded, quantile
from tests.support.policies import compiled

SECOND_NS = 1_000_000_000
TREATMENT = compiled('provider p { api anthropic; base "http://127.0.0.1:1"; key env(K) }').decide(Request())


def granted(call: CallId) -> Grant:
    return Grant(call_id=call, treatment=TREATMENT, permit=None, waited_ns=0, reason=Reason.NONE)


def estimate(calibration: Calibration, calls: dict[CallId, float], now_s: float) -> None:
    """Estimate 10 s for each call, which then starts after so many seconds."""
    for one in calibration.watch(dict.fromkeys(calls, "p"), round(now_s * SECOND_NS)):
        one.raw = StartEstimate(10 * SECOND_NS, 10 * SECOND_NS)
    for call, start_s in sorted(calls.items(), key=lambda item: item[1]):
        calibration.observe(round((now_s + start_s) * SECOND_NS), TimePassed(), [granted(call)])


@pytest.mark.parametrize("late", [0.5, 1.0, 3.0])
def test_a_future_that_is_always_off_by_a_factor_is_put_right(late: float) -> None:
    calibration = Calibration()
    for number in range(20):
        estimate(calibration, {CallId(number): 10 * late}, 100.0 * number)
    raw = StartEstimate(20 * SECOND_NS, 60 * SECOND_NS)
    put_right = bounded(raw, calibration.factor("p", 2_000 * SECOND_NS))

    assert put_right.p50_ns == raw.p50_ns
    assert put_right.p90_ns == pytest.approx(60 * late * SECOND_NS, rel=0.1)
    assert calibration.factor("another", 0) == Calibration().factor("p", 0)
    least = StartEstimate(raw.p50_ns, 20 * SECOND_NS + SHARPEST_NS)
    assert bounded(raw, 0.1) == least, "no bound is sharper than the machine is punctual"


def test_nine_in_ten_starts_are_within_a_bound_that_was_calibrated_by_others() -> None:
    chance, calibration = Random(7), Calibration()
    for number in range(ESTIMATES_MAX):
        calls = {CallId(number * 10 + one): 10 * chance.lognormvariate(0, 1) for one in range(10)}
        estimate(calibration, calls, 1_000.0 * number)
    bound_ns = bounded(StartEstimate(0, 10 * SECOND_NS), calibration.factor("p", 10**15)).p90_ns
    starts = [10 * SECOND_NS * chance.lognormvariate(0, 1) for _ in range(2_000)]

    assert bound_ns is not None
    assert 0.85 <= sum(start <= bound_ns for start in starts) / len(starts) <= 0.95


@pytest.mark.parametrize(("waves", "again", "narrows"), [(8, 1, False), (9, 1, True), (1, 1, False), (3, 3, False)])
def test_a_bound_is_narrowed_only_by_nine_independent_estimates(waves: int, again: int, narrows: bool) -> None:
    """Calls that wait together are one piece of evidence, however many they are and however often they were estimated.

    Each wave has 30 calls, which start after half of the time that was foreseen.
    """
    calibration = Calibration()
    for wave in range(waves):
        calls = [CallId(100 * wave + number) for number in range(30)]
        for time in range(again):
            for one in calibration.watch(dict.fromkeys(calls, "p"), (1_000 * wave + 100 * time) * SECOND_NS):
                one.raw = StartEstimate(SECOND_NS, 2 * (400 - 100 * time) * SECOND_NS)
        calibration.observe((1_000 * wave + 400) * SECOND_NS, TimePassed(), [granted(call) for call in calls])

    assert (calibration.factor("p", 10**15) < 1) is narrows


def test_many_estimates_of_one_call_weigh_as_much_as_one() -> None:
    """Judge one start three times as late as its bound, and a dozen in time."""
    calibration = Calibration()
    for number in range(12):
        estimate(calibration, {CallId(number): 10.0}, 100.0 * number)
    for number in range(15):
        for one in calibration.watch({CallId(99): "p"}, (2_000 + 20 * number) * SECOND_NS):
            one.raw = StartEstimate(SECOND_NS, (600 - 20 * number) // 3 * SECOND_NS)
    calibration.observe(2_600 * SECOND_NS, TimePassed(), [granted(CallId(99))])

    assert calibration.factor("p", 10**15) < 1.3


def test_calls_that_still_wait_raise_the_bound() -> None:
    """The first starts that become known are the early ones: alone they would make it too low."""
    early, late = Calibration(), Calibration()
    calls = {CallId(number): 5.0 for number in range(4)}
    estimate(early, calls, 0)
    for one in late.watch(dict.fromkeys([*calls, *map(CallId, range(10, 16))], "p"), 0):
        one.raw = StartEstimate(10 * SECOND_NS, 10 * SECOND_NS)
    for call in calls:
        late.observe(5 * SECOND_NS, TimePassed(), [granted(call)])

    assert late.factor("p", 90 * SECOND_NS) > 5 > early.factor("p", 90 * SECOND_NS)


def test_what_is_kept_is_bounded_and_forgotten() -> None:
    calibration = Calibration()
    waiting = dict.fromkeys(map(CallId, range(1_000)), "p")
    for number in range(3 * ESTIMATES_MAX):
        judged = calibration.watch(waiting, number * APART_NS)
        assert 0 < len(judged) <= CALLS_MAX
        assert calibration.watch(waiting, number * APART_NS + 1) == ()

    assert len(calibration.estimates) == ESTIMATES_MAX
    assert sum(map(len, calibration.open_calls.values())) <= ESTIMATES_MAX * CALLS_MAX
    calibration.observe(10**12, CallCancelled(CallId(0)), [])
    assert CallId(0) not in calibration.open_calls


@given(
    values=st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.1, 3), st.booleans()), min_size=1, max_size=30),
    part=st.sampled_from([0.5, 0.9]),
)
def test_a_quantile_is_a_value_and_at_least_that_of_the_known_ones(
    values: list[tuple[float, float, bool]], part: float
) -> None:
    known = [(value, weight, True) for value, weight, seen in values if seen]
    found = quantile(values, part)

    assert found in [value for value, _, _ in values]
    if known:
        assert found >= quantile(known, part) or found >= max(value for value, _, seen in values if not seen)
        total = sum(weight for _, weight, _ in known)
        within = sum(weight for value, weight, _ in known if value <= quantile(known, part))
        assert within >= (part - 1e-6) * total


def test_groups_are_between_their_members_with_any_factors() -> None:
    calls = [CallId(1), CallId(2)]
    futures = [{calls[0]: 10 * SECOND_NS, calls[1]: 20 * SECOND_NS}]
    providers = {calls[0]: "slow", calls[1]: "quick"}
    starts = Starts(futures, providers, {"slow": 4.0, "quick": 1.0})
    first, last, members = starts.first(calls), starts.last(calls), [starts.of(call) for call in calls]

    for one in members:
        assert (first.p50_ns or 0) <= (one.p50_ns or 0) <= (last.p50_ns or 0)
        assert (first.p90_ns or 0) <= (one.p90_ns or 0) <= (last.p90_ns or 0)
    assert starts.first([]) == starts.last([]) == StartEstimate(None, None)
