"""A bucket against the plain arithmetic of what it stands for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.sim import ProviderBucket, Quota

QUOTAS = st.builds(Quota, limit=st.integers(1, 50), window_ns=st.integers(1, 200), burst=st.none() | st.integers(1, 60))
STEPS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30)), max_size=40)
"""Time until the next request, and how much it wants."""


@pytest.mark.slow
@given(quota=QUOTAS, steps=STEPS)
@settings(max_examples=150)
def test_between_any_two_moments_at_most_a_burst_and_the_rate_get_through(
    quota: Quota, steps: list[tuple[int, int]]
) -> None:
    bucket, now_ns = ProviderBucket(quota), 0
    taken: list[tuple[int, int]] = []
    for gap_ns, amount in steps:
        now_ns += gap_ns
        if bucket.wait_ns(amount, now_ns) == 0:
            bucket.take(amount, now_ns)
            taken.append((now_ns, amount))

    for first, (from_ns, _) in enumerate(taken):
        through = 0
        for to_ns, amount in taken[first:]:
            through += amount
            assert through * quota.window_ns <= quota.capacity * quota.window_ns + (to_ns - from_ns) * quota.limit


@pytest.mark.slow
@given(quota=QUOTAS, steps=STEPS)
@settings(max_examples=150)
def test_who_waits_as_long_as_told_gets_through_and_a_nanosecond_earlier_does_not(
    quota: Quota, steps: list[tuple[int, int]]
) -> None:
    bucket, now_ns = ProviderBucket(quota), 0
    for gap_ns, amount in steps:
        now_ns += gap_ns
        wait_ns = bucket.wait_ns(amount, now_ns)
        if amount > quota.capacity:
            assert wait_ns is None
            continue
        assert wait_ns is not None
        if wait_ns:
            assert bucket.wait_ns(amount, now_ns + wait_ns - 1) == 1
            now_ns += wait_ns
        assert bucket.wait_ns(amount, now_ns) == 0
        bucket.take(amount, now_ns)


@pytest.mark.slow
@given(quota=QUOTAS, steps=STEPS)
@settings(max_examples=150)
def test_its_reading_is_what_can_be_had_and_when_all_of_it_can(quota: Quota, steps: list[tuple[int, int]]) -> None:
    bucket, now_ns = ProviderBucket(quota), 0
    for gap_ns, amount in steps:
        now_ns += gap_ns
        bucket.take(amount, now_ns)  # more than there is, too: so are generated tokens

        reading = bucket.reading(now_ns)

        assert reading.limit == quota.limit
        assert 0 <= reading.remaining <= quota.capacity
        assert reading.remaining == 0 or bucket.wait_ns(reading.remaining, now_ns) == 0
        if reading.remaining < quota.capacity:
            assert bucket.wait_ns(reading.remaining + 1, now_ns) != 0
        assert bucket.wait_ns(quota.capacity, now_ns) == reading.full_ns


def test_what_was_taken_beyond_the_last_is_owed() -> None:
    bucket = ProviderBucket(Quota(limit=10, window_ns=1_000))
    bucket.take(25, 0)

    assert bucket.reading(0).remaining == 0
    assert bucket.wait_ns(1, 0) == 1_600
    assert bucket.reading(0).full_ns == 2_500


@pytest.mark.parametrize(
    "wrong",
    [
        partial(Quota, limit=0),
        partial(Quota, limit=5, window_ns=0),
        partial(Quota, limit=5, burst=0),
    ],
    ids=["limit", "window", "burst"],
)
def test_a_quota_of_nothing_is_a_mistake(wrong: Callable[[], Quota]) -> None:
    with pytest.raises(ValueError, match="must be > 0"):
        wrong()
