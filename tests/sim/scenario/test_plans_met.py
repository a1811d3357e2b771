"""Plans of recorded accounts, as readings of the answers tell them."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Outcome, PlanSpan, RecordedAttempt, RecordedCall, RecordedWindow, Usage
from hivemind_trio.model.plan import HOUR_NS, WHOLE
from hivemind_trio.sim.scenario.plans_met import plans_met
from tests.store.written import CALL

SECOND = 1_000_000_000
USAGE = Usage(input=8_000, cache_write=500, cache_read=5_000, output=1_000)
TOKENS = 8_000 + 500 + 500 + 1_000


def record(size: int, calls: int, *, credential: str = "a", of_key: bool = False) -> Iterator[RecordedCall]:
    """Yield calls one after another, whose answers tell of their window in whole percents."""
    for number in range(calls):
        at_ns = number * 10 * SECOND
        attempt = RecordedAttempt(
            granted_ns=at_ns,
            waited_ns=0,
            provider="claude",
            model="m",
            ended_ns=at_ns + SECOND,
            outcome=Outcome.SUCCEEDED,
            usage=USAGE,
        )
        window = RecordedWindow(
            provider="claude",
            of_key=of_key,
            span=PlanSpan.SESSION,
            at_ns=at_ns + SECOND + 1,
            used=min(WHOLE, (number + 1) * TOKENS * WHOLE // size // 10_000 * 10_000),
            resets_ns=3 * HOUR_NS,
        )
        yield attrs.evolve(CALL, arrived_ns=at_ns, credential=credential, attempts=(attempt,), plan=(window,))


@given(size=st.integers(100_000, 2_000_000))
def test_the_size_of_a_window_is_found(size: int) -> None:
    (limit,) = plans_met(record(size, 100))["claude"]["a"]

    assert limit.tokens == pytest.approx(size, rel=0.15)
    assert (limit.span, limit.resets_ns, limit.every_ns) == (PlanSpan.SESSION, 3 * HOUR_NS, 5 * HOUR_NS)
    assert limit.used <= 10_000, "the first call is not counted twice"


def test_each_account_has_its_own() -> None:
    found = plans_met([*record(200_000, 15, credential="a"), *record(400_000, 30, credential="b")])["claude"]

    assert found["a"][0].tokens == pytest.approx(200_000, rel=0.05)
    assert found["b"][0].tokens == pytest.approx(400_000, rel=0.05)


def test_the_account_of_a_key_counts_the_calls_of_all() -> None:
    calls = [
        attrs.evolve(call, credential=str(number % 3)) for number, call in enumerate(record(300_000, 25, of_key=True))
    ]
    found = plans_met(calls)["claude"]

    assert list(found) == [""]
    assert found[""][0].tokens == pytest.approx(300_000, rel=0.05)


def test_readings_that_do_not_grow_and_windows_of_some_models_tell_nothing() -> None:
    still = [attrs.evolve(call, plan=(attrs.evolve(call.plan[0], used=500_000),)) for call in record(200_000, 15)]
    opus = [attrs.evolve(call, plan=(attrs.evolve(call.plan[0], models="opus"),)) for call in record(200_000, 15)]

    assert not plans_met(still)
    assert not plans_met(opus)
