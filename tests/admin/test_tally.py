"""Counts of calls that are over."""

from __future__ import annotations

from collections import Counter

import attrs
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.admin import Tally
from hivemind_trio.admin.history.tally import RECENT_MAX, Unreached
from hivemind_trio.model import Reason
from hivemind_trio.proxy import CallRecord

SECOND_NS = 1_000_000_000


def record(number: int, status: int = 200, *, rejected: bool = False, error: str | None = None) -> CallRecord:
    return CallRecord(id=f"x-{number}", status=status, rejected=rejected, reason=Reason.NONE, upstream_error=error)


def test_each_call_is_counted_once_by_how_it_ended() -> None:
    tally = Tally()
    for one in (
        record(1),
        record(2, 429, rejected=True),
        record(3, 529),
        record(4, 0),
        record(5, 200, error="reset"),
        record(6, 404),
    ):
        tally.over(one, 0)

    assert (tally.ended, tally.rejected, tally.failed, tally.left) == (6, 1, 3, 1)


@given(st.lists(st.integers(0, 90 * SECOND_NS), max_size=60))
def test_the_rate_is_that_of_the_last_minute(pauses: list[int]) -> None:
    tally, now_ns, ends = Tally(), 0, Counter[int]()
    for pause in pauses:
        now_ns += pause
        tally.over(record(0), now_ns)
        ends[now_ns // SECOND_NS] += 1
        second = now_ns // SECOND_NS
        assert tally.per_minute(now_ns) == sum(count for at, count in ends.items() if at > second - 60)

    assert tally.per_minute(now_ns + 60 * SECOND_NS) == 0


def test_only_the_last_calls_are_kept() -> None:
    tally = Tally()
    for number in range(RECENT_MAX + 3):
        tally.over(record(number), number)

    assert [one.record.id for one in tally.recent] == [f"x-{number}" for number in range(3, RECENT_MAX + 3)]


def test_a_provider_is_unreachable_from_the_first_call_that_missed_it_until_it_answers_one() -> None:
    missed = attrs.evolve(record(1, 503, rejected=True, error="connect"), provider="sim", upstream_cause="refused")
    tally = Tally()
    for now_ns, one in enumerate((
        missed,
        attrs.evolve(missed, provider="other"),
        attrs.evolve(missed, upstream_cause="no such name"),
        attrs.evolve(record(3, 429, rejected=True), provider="sim"),
        attrs.evolve(record(4, 0), provider="sim"),
        record(5),
    )):  # fmt: skip
        tally.over(one, now_ns)

    assert tally.unreached == {"sim": Unreached(0, "no such name"), "other": Unreached(1, "refused")}

    tally.over(attrs.evolve(record(6, 401), provider="sim"), 9)

    assert list(tally.unreached) == ["other"]
