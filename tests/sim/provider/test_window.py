"""Windows against the plain arithmetic of what they stand for."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hivemind_trio.sim import Counting, Quota
from hivemind_trio.sim.provider.windows import FixedWindow, RollingWindow

FIXED = st.builds(
    lambda limit, window_ns, phase, lazy: Quota(
        limit=limit, window_ns=window_ns, counting=Counting.FIXED, phase_ns=phase % window_ns, lazy=lazy
    ),
    st.integers(1, 30),
    st.integers(1, 200),
    st.integers(0, 200),
    st.booleans(),
)
SLIDING = st.builds(Quota, limit=st.integers(1, 30), window_ns=st.integers(1, 200), counting=st.just(Counting.SLIDING))
STEPS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=40)


@pytest.mark.slow
@given(quota=SLIDING, steps=STEPS)
@settings(max_examples=150)
def test_within_no_window_is_more_let_in_than_it_holds(quota: Quota, steps: list[tuple[int, int]]) -> None:
    counted, now_ns, taken = RollingWindow(quota), 0, list[tuple[int, int]]()
    for gap_ns, amount in steps:
        now_ns += gap_ns
        if counted.wait_ns(amount, now_ns) == 0:
            counted.take(amount, now_ns)
            taken.append((now_ns, amount))

    for from_ns, _ in taken:
        assert sum(amount for at_ns, amount in taken if from_ns <= at_ns < from_ns + quota.window_ns) <= quota.limit


@given(quota=FIXED, steps=STEPS)
@example(  # who asks for more than a window holds begins one all the same
    quota=Quota(limit=1, window_ns=12, counting=Counting.FIXED, lazy=True), steps=[(1, 1), (12, 2), (2, 1), (11, 1)]
)
@settings(max_examples=150)
def test_between_two_turns_no_more_is_let_in_than_a_fixed_window_holds(
    quota: Quota, steps: list[tuple[int, int]]
) -> None:
    counted, now_ns, taken = FixedWindow(quota), 0, dict[int, int]()
    began_ns = -quota.phase_ns
    for gap_ns, amount in steps:
        now_ns += gap_ns
        while now_ns >= began_ns + quota.window_ns:
            began_ns = now_ns if quota.lazy else began_ns + quota.window_ns
        if counted.wait_ns(amount, now_ns) == 0:
            counted.take(amount, now_ns)
            taken[began_ns] = taken.get(began_ns, 0) + amount
        elif amount <= quota.limit:
            assert taken.get(began_ns, 0) + amount > quota.limit, "there was room"

    assert all(amount <= quota.limit for amount in taken.values())


@pytest.mark.parametrize("kind", [FixedWindow, RollingWindow])
@given(quota=FIXED | SLIDING, steps=STEPS)
@settings(max_examples=80)
def test_who_waits_as_long_as_told_gets_through_and_a_nanosecond_earlier_does_not(
    kind: type[FixedWindow | RollingWindow], quota: Quota, steps: list[tuple[int, int]]
) -> None:
    counted, now_ns = kind(quota), 0
    for gap_ns, amount in steps:
        now_ns += gap_ns
        wait_ns = counted.wait_ns(amount, now_ns)
        if amount > quota.limit:
            assert wait_ns is None
            continue
        assert wait_ns is not None
        if wait_ns:
            assert counted.wait_ns(amount, now_ns + wait_ns - 1) == 1
            now_ns += wait_ns
        assert counted.wait_ns(amount, now_ns) == 0
        counted.take(amount, now_ns)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [FixedWindow, RollingWindow])
@given(quota=FIXED | SLIDING, steps=STEPS)
@settings(max_examples=80)
def test_its_reading_is_what_can_be_had_and_when_all_of_it_can(
    kind: type[FixedWindow | RollingWindow], quota: Quota, steps: list[tuple[int, int]]
) -> None:
    counted, now_ns = kind(quota), 0
    for gap_ns, amount in steps:
        now_ns += gap_ns
        counted.wait_ns(1, now_ns)  # a lazy window begins with somebody who asks
        counted.take(amount, now_ns)

        reading = counted.reading(now_ns)

        assert 0 <= reading.remaining <= quota.limit
        assert counted.wait_ns(max(1, reading.remaining), now_ns) == (0 if reading.remaining else reading.full_ns) or (
            kind is RollingWindow
        )
        assert counted.wait_ns(quota.limit, now_ns) == reading.full_ns


def test_a_fixed_window_forgives_what_was_taken_beyond_it() -> None:
    counted = FixedWindow(Quota(limit=10, window_ns=1_000, counting=Counting.FIXED, phase_ns=400))
    counted.take(25, 0)

    assert counted.wait_ns(1, 0) == 600
    assert counted.wait_ns(10, 600) == 0


def test_a_lazy_window_begins_with_the_first_who_asks_after_the_last_one() -> None:
    counted = FixedWindow(Quota(limit=1, window_ns=1_000, counting=Counting.FIXED, lazy=True))
    for at_ns, wait_ns in [(0, 0), (10, 990), (1_700, 0), (2_000, 700), (2_700, 0)]:
        assert counted.wait_ns(1, at_ns) == wait_ns
        if not wait_ns:
            counted.take(1, at_ns)
