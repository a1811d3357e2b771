"""Rate learned from refusals, against a list of everything that was granted and refused."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from statistics import fmean

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.scheduler.limits.learned_rate import (
    BELOW,
    GROWTH,
    GROWTH_OVER,
    GUESS,
    HELPS,
    LEAST,
    LOWER,
    MEASURED,
    MOST,
    PERIOD_NS,
    REMEMBERED,
    TRIES_MAX,
    TRIES_MIN,
    LearnedRate,
)
from tests.support.programs import SECOND_NS


def begin(rate: LearnedRate, now_ns: int, seconds: float) -> list[int]:
    """Grant as many as may go, as soon as they may, for so long; return when."""
    began = []
    until_ns = now_ns + int(seconds * SECOND_NS)
    while (now_ns := max(now_ns, rate.opens_ns)) < until_ns:
        rate.on_granted(now_ns)
        began.append(now_ns)
        if rate.per_s is None:
            now_ns += SECOND_NS // 100
    return began


def used_to(per_second: int, seconds: int = 10) -> tuple[LearnedRate, int]:
    """Return a rate that has been told of so many grants, and when the last of them was."""
    rate = LearnedRate()
    now_ns = 0
    for number in range(per_second * seconds):
        now_ns = number * SECOND_NS // per_second
        rate.on_granted(now_ns)
    return rate, now_ns


def test_an_unrefused_window_is_not_spaced() -> None:
    rate = LearnedRate()

    for _ in range(1_000):
        assert rate.opens_ns <= 0
        rate.on_granted(0)

    assert rate.per_s is None


@pytest.mark.parametrize("per_second", [1, 4, 20])
def test_the_first_refusal_leaves_what_was_accepted(per_second: int) -> None:
    rate, now_ns = used_to(per_second)

    rate.on_refused(now_ns, now_ns)

    accepted = per_second * 10 - 1
    assert rate.per_s == pytest.approx(BELOW * accepted / (now_ns / SECOND_NS))


def test_a_burst_is_no_rate() -> None:
    rate = LearnedRate()
    for _ in range(10):
        rate.on_granted(SECOND_NS)

    rate.on_refused(SECOND_NS, SECOND_NS + 1)

    assert rate.per_s == pytest.approx(BELOW * 9 / (PERIOD_NS / SECOND_NS))


def test_refusals_of_one_batch_are_one_piece_of_evidence() -> None:
    rate, now_ns = used_to(4)
    rate.on_refused(now_ns, now_ns)
    before = rate.per_s
    assert before is not None
    batch = [now_ns + 1 + number for number in range(20)]
    for at_ns in batch:
        rate.on_granted(at_ns)

    for number, at_ns in enumerate(batch):
        rate.on_refused(at_ns, now_ns + SECOND_NS + number)

    # All twenty were refused: the rate halves once, not twenty times.
    assert rate.per_s is not None
    assert rate.per_s == pytest.approx(before / 2, rel=0.01)


def test_a_refusal_of_a_call_from_before_the_last_batch_says_nothing() -> None:
    rate, now_ns = used_to(4)
    for second in (1, 2):
        rate.on_granted(now_ns + second * SECOND_NS)
        rate.on_refused(now_ns + second * SECOND_NS, now_ns + second * SECOND_NS)
    before = rate.per_s

    rate.on_refused(now_ns, now_ns + 3 * SECOND_NS)

    assert rate.per_s == before


def test_it_grows_by_a_share_in_each_second_until_nothing_is_paced() -> None:
    rate, now_ns = used_to(4)
    rate.on_refused(now_ns, now_ns)
    before = rate.per_s
    assert before is not None

    began = begin(rate, now_ns, 10)

    assert rate.per_s == pytest.approx(before * GROWTH ** ((began[-1] - now_ns) / SECOND_NS), rel=0.02)
    begin(rate, began[-1], 60)
    assert rate.per_s is None


def test_idleness_proves_little() -> None:
    rate, now_ns = used_to(1)
    rate.on_refused(now_ns, now_ns)
    before = rate.per_s
    assert before is not None

    rate.on_granted(now_ns + 3_600 * SECOND_NS)

    assert rate.per_s == pytest.approx(before * GROWTH ** (GROWTH_OVER / before))


def climbs(rate: LearnedRate, now_ns: int, calls: int) -> int:
    """Have so many calls accepted, one after the other, as soon as each may go; return when the last was."""
    for _ in range(calls):
        now_ns = max(now_ns + 1, rate.opens_ns)
        rate.on_granted(now_ns)
        rate.on_good(now_ns, now_ns)
    return now_ns


def test_a_rate_below_the_measured_one_doubles_until_it_is_there_again() -> None:
    rate, now_ns = used_to(8)
    rate.on_refused(now_ns, now_ns)
    measured = rate.per_s
    assert measured is not None
    for _ in range(3):  # refused by chance
        now_ns = max(now_ns + 1, rate.opens_ns)
        rate.on_granted(now_ns)
        rate.on_refused(now_ns, now_ns)
    assert rate.per_s is not None
    assert rate.per_s == pytest.approx(measured / 8, rel=0.2)

    climbs(rate, now_ns, 3)
    assert rate.per_s == pytest.approx(measured, rel=0.2)
    climbs(rate, now_ns, 3)
    assert rate.per_s < 1.3 * measured, "it grows slowly from there on"


@pytest.mark.parametrize(("low", "is_back"), [(1, True), (2, False)])
def test_the_threshold_is_the_higher_of_two_measured_rates(low: int, is_back: bool) -> None:
    rate, now_ns = used_to(8)
    rate.on_refused(now_ns, now_ns)
    first = rate.per_s
    assert first is not None

    for _ in range(low):
        for _ in range(4):  # one in two seconds is accepted, and the last is refused: that is a far lower rate
            now_ns += 2 * SECOND_NS
            rate.on_granted(now_ns)
        rate.on_refused(now_ns, now_ns)
    for _ in range(2):  # refused by chance
        now_ns = max(now_ns + 1, rate.opens_ns)
        rate.on_granted(now_ns)
        rate.on_refused(now_ns, now_ns)
    lowered = rate.per_s
    climbs(rate, now_ns, 4)

    assert rate.per_s is not None
    assert lowered is not None
    assert lowered < first / 4
    assert (rate.per_s > 0.9 * first) is is_back, "one may be chance, two are not"


def test_a_burst_is_no_threshold() -> None:
    """The provider had stored ten calls. What it accepts from then on is far less."""
    rate = LearnedRate()
    for _ in range(11):
        rate.on_granted(1)
    rate.on_refused(1, 1)
    burst = rate.per_s
    assert burst == BELOW * 10 * SECOND_NS / PERIOD_NS
    now_ns = 2 * SECOND_NS + 1
    rate.on_granted(now_ns)
    rate.on_refused(now_ns, now_ns)

    climbs(rate, now_ns, 3)

    assert rate.per_s is not None
    assert rate.per_s < 0.7 * burst


def test_small_batches_measure_a_rate_together() -> None:
    """A burst was accepted at first, and then one call each second: what each refusal shows is one call."""
    rate = LearnedRate()
    for _ in range(60):
        rate.on_granted(1)
    rate.on_granted(2)
    rate.on_refused(2, SECOND_NS)
    now_ns, last_ns, refused, accepted = SECOND_NS, 0, 0, 0
    while now_ns < 120 * SECOND_NS:
        now_ns = max(now_ns + 1, rate.opens_ns)
        rate.on_granted(now_ns)
        if now_ns - last_ns < SECOND_NS:
            refused += 1
            rate.on_refused(now_ns, now_ns)
        else:
            accepted, last_ns = accepted + 1, now_ns
            rate.on_good(now_ns, now_ns)

    assert accepted >= 80
    assert refused <= 0.5 * accepted, "each second where the burst remains the threshold"


def test_refusals_alone_are_a_guess_that_doubles_with_each_round_of_accepted_calls() -> None:
    rate = LearnedRate()
    rate.on_granted(0)
    rate.on_granted(1)
    rate.on_refused(0, SECOND_NS // 10)
    rate.on_refused(1, SECOND_NS // 10)
    assert rate.per_s == GUESS

    now_ns = rate.opens_ns
    for _ in range(3):
        rate.on_granted(now_ns)
        before = rate.per_s
        assert before is not None
        rate.on_good(now_ns, now_ns + 1)
        assert rate.per_s == 2 * before
        rate.on_good(now_ns, now_ns + 2)  # of the same round
        assert rate.per_s == 2 * before
        now_ns = max(now_ns + 2, rate.opens_ns)


def test_a_refusal_of_a_rate_that_has_doubled_ends_the_doubling() -> None:
    rate = LearnedRate()
    rate.on_granted(0)
    rate.on_refused(0, SECOND_NS // 10)
    assert rate.per_s == GUESS
    first_ns = rate.opens_ns
    rate.on_granted(first_ns)
    rate.on_good(first_ns, first_ns + 1)  # accepted at half of a call a second
    second_ns = rate.opens_ns
    rate.on_granted(second_ns)
    rate.on_refused(second_ns, second_ns + 1)  # refused at about one
    lowered = rate.per_s
    assert lowered is not None
    assert lowered < 2 * GUESS

    third_ns = rate.opens_ns
    rate.on_granted(third_ns)
    before = rate.per_s
    rate.on_good(third_ns, third_ns + 1)

    assert rate.per_s == before, "what is accepted is known to a factor of two"


def test_nothing_is_known_of_a_new_window() -> None:
    rate = LearnedRate()
    rate.on_granted(0)
    rate.on_refused(0, 1)
    now_ns = rate.opens_ns
    rate.on_granted(now_ns)
    rate.on_good(now_ns, now_ns + 1)  # doubled
    rate.on_granted(now_ns + 2)
    rate.on_refused(now_ns + 2, now_ns + 3)

    rate.clear()
    for _ in range(2):
        now_ns += SECOND_NS
        rate.on_granted(now_ns)
        rate.on_refused(now_ns, now_ns + 1)
    now_ns += SECOND_NS
    rate.on_granted(now_ns)
    before = rate.per_s
    assert before is not None
    rate.on_good(now_ns, now_ns + 1)
    assert rate.per_s == 2 * before


def test_it_grows_slowly_near_the_rate_that_was_refused_last() -> None:
    rate, now_ns = used_to(1, seconds=20)
    rate.on_refused(now_ns, now_ns)
    refused_ns = begin(rate, now_ns, 10)[-1]
    top = rate.per_s
    assert top is not None
    rate.on_refused(refused_ns, refused_ns)
    assert rate.per_s is not None
    assert rate.per_s < 0.9 * top

    rates = []
    for at_ns in range(refused_ns + SECOND_NS, refused_ns + 20 * SECOND_NS, SECOND_NS):
        before = rate.per_s
        rate.on_granted(at_ns)
        rates.append((before / top, rate.per_s / before))

    assert min(rates)[0] < 0.88
    assert max(rates)[0] > 1.12
    assert {round(growth, 2) for share, growth in rates if 0.91 < share < 1.08} == {1.02}
    assert {round(growth, 2) for share, growth in rates if share < 0.88 or share > 1.12} == {1.07}


def test_attempts_become_rare_while_none_is_accepted_and_a_lower_rate_would_not_help() -> None:
    """Refused calls may count: those at the rate that is right would use up all that the provider gives."""
    random = Random(3)
    rate = LearnedRate()
    now_ns = 0
    rate.on_granted(now_ns)
    rate.on_refused(now_ns, now_ns)
    for _ in range(200):  # refused by chance, at any rate
        now_ns = max(now_ns + 1, rate.opens_ns)
        rate.on_granted(now_ns)
        (rate.on_refused if random.random() < 0.5 else rate.on_good)(now_ns, now_ns)

    delays = []
    for missed in range(1, 13):
        now_ns = max(now_ns + 1, rate.opens_ns)
        rate.on_granted(now_ns)
        before = rate.per_s
        rate.on_refused(now_ns, now_ns)
        if rate.per_s == before:  # a lower one would not help
            delays.append((missed, (rate.opens_ns - now_ns) / SECOND_NS))

    assert len(delays) >= 8
    assert max(delay for _, delay in delays) <= 5
    assert all(delay >= 2.9 for missed, delay in delays if missed >= 7)


def test_a_measured_rate_does_not_double() -> None:
    rate, now_ns = used_to(4)
    rate.on_refused(now_ns, now_ns)
    before = rate.per_s

    rate.on_good(now_ns + 1, now_ns + 1)

    assert rate.per_s == before


def test_a_rate_that_is_distrusted_doubles_until_the_next_refusal() -> None:
    rate, now_ns = used_to(4)
    rate.on_refused(now_ns, now_ns)
    before = rate.per_s
    assert before is not None

    rate.double(now_ns)
    rate.on_good(now_ns, now_ns + 1)
    assert rate.per_s == 2 * before
    for number in range(3):
        rate.on_granted(now_ns + 2 + number)
    rate.on_refused(now_ns + 2, now_ns + 5)
    lowered = rate.per_s
    rate.on_good(now_ns + 6, now_ns + 6)

    assert rate.per_s == lowered


def rate_before(refuses: Callable[[Random, float], bool], seconds: int = 300) -> list[float]:
    """Return the rate at each attempt, before a provider that refuses by chance and by the time since the last."""
    rate, random = LearnedRate(), Random(7)
    now_ns, seen = 0, []
    rate.on_granted(now_ns)
    rate.on_refused(now_ns, now_ns)
    while now_ns < seconds * SECOND_NS:
        before_ns, now_ns = now_ns, max(now_ns + 1, rate.opens_ns)
        rate.on_granted(now_ns)
        if rate.per_s is not None:
            seen.append(rate.per_s)
        if refuses(random, (now_ns - before_ns) / SECOND_NS):
            rate.on_refused(now_ns, now_ns)
        else:
            rate.on_good(now_ns, now_ns)
        now_ns += SECOND_NS // 100
    return seen


def test_refusals_that_a_lower_rate_does_not_spare_do_not_hold_it_down() -> None:
    """Others use the key: a third is refused at any rate of ours."""
    seen = rate_before(lambda random, since_s: random.random() < 0.35)

    late = seen[len(seen) // 2 :]
    assert sum(late) / len(late) >= 1.5, "0.5 where each refusal lowers it"


def test_refusals_that_a_lower_rate_spares_hold_it_down() -> None:
    """Two a second, and a few are refused at any rate."""
    seen = rate_before(lambda random, since_s: since_s < 0.5 or random.random() < 0.05)

    late = seen[len(seen) // 2 :]
    assert sum(late) / len(late) <= 2.6


@attrs.define
class _Oracle:
    """The definition, from lists: what was granted, and which of it was refused in which batch."""

    grants: list[int] = attrs.field(factory=list)
    tries: list[list[float]] = attrs.field(factory=list)
    """Time, rate and refusal (0 or 1) of what was granted at a rate."""
    complaints: list[int] = attrs.field(factory=list)
    """When each batch was first refused."""
    refused: dict[int, int] = attrs.field(factory=dict)
    """Calls of a batch that were refused, by the number of its complaint."""
    before: float | None = None
    guessed: bool = True
    """No rate was measured before that batch."""
    doubles_from_ns: int = 0
    """A success of what was granted since then doubles the rate."""
    rate: float | None = None
    doubled: bool = False
    """The rate has doubled since the last refusal."""
    bracketed: bool = False
    """The rate had doubled when the last batch was refused, or had a bound, and nothing had been measured."""
    measured: list[float] = attrs.field(factory=list)
    """Rates that were measured before that batch, or are bounds."""
    known: list[float] = attrs.field(factory=list)
    """With that batch."""
    bound: float = MOST
    pooled: list[int] = attrs.field(factory=list)
    """Batches right before the last that are too small to measure anything, by the numbers of their complaints."""
    highest: float = MOST
    """Rate at which the last batch was refused of which any was accepted."""

    def on_granted(self, now_ns: int) -> None:
        if self.rate is not None:
            self.tries.append([now_ns, self.rate, 0])
            idle_s = min(GROWTH_OVER / self.rate, (now_ns - self.grants[-1]) / SECOND_NS)
            near = 0.9 <= self.rate / self.highest <= 1.1
            self.rate *= (1.02 if near else GROWTH) ** idle_s
            self._forget_what_is_no_limit()
        self.grants.append(now_ns)

    def _forget_what_is_no_limit(self) -> None:
        if self.rate is not None and self.rate > MOST:
            self.rate, self.doubled = None, False
            self.measured, self.known, self.bound = [], [], MOST

    def on_good(self, granted_ns: int, now_ns: int) -> None:
        if self.rate is None or granted_ns < self.doubles_from_ns:
            return
        threshold = max(self.known) if self.known else self.bound
        if self.rate < threshold:
            self.rate, self.doubles_from_ns, self.doubled = min(2 * self.rate, threshold), now_ns, True
            self._forget_what_is_no_limit()

    def _batch(self, number: int) -> list[int]:
        since_ns = self.complaints[number - 1] if number else -1
        return [at_ns for at_ns in self.grants if since_ns < at_ns <= self.complaints[number]]

    def _accepted(self, number: int) -> int:
        return max(0, len(self._batch(number)) - self.refused[number])

    def on_refused(self, granted_ns: int, now_ns: int) -> None:
        if not self.complaints or granted_ns > self.complaints[-1]:
            number = len(self.complaints) - 1
            pools = number >= 0 and self.rate is not None and self.before is not None
            self.pooled = [*self.pooled, number] if pools and self._measures(number) is None else []
            self.complaints.append(now_ns)
            self.measured = self.known
            has_bound = self.rate is not None and (self.doubled or self.bound < MOST)
            self.bracketed = has_bound and not self.measured
            self.guessed = not self.measured and not has_bound
            self.before, self.doubled = self.rate, False
            if self.before is not None and len(self._batch(number + 1)) > 1:
                self.highest = self.before
        elif len(self.complaints) >= 2 and granted_ns <= self.complaints[-2]:
            return
        number = len(self.complaints) - 1
        self.refused[number] = self.refused.get(number, 0) + 1
        self._measure(number)
        took_ns = max(PERIOD_NS, self.complaints[-1] - self._batch(number)[0])
        rate = BELOW * self._accepted(number) * SECOND_NS / took_ns
        if self.guessed and self._accepted(number) < MEASURED:
            rate = max(GUESS, rate)
        if self.before is not None:
            rate = max(self.before / 2, min(rate, BELOW * self.before))
            if not self.guessed and not self._lower_is_refused_less(granted_ns):
                self.rate = self.before
                return
        self.rate, self.doubles_from_ns = max(LEAST, rate), now_ns

    def _measure(self, number: int) -> None:
        rate, self.known = self._measures(number), self.measured
        if rate is not None:
            self.known = [*self.measured, rate][-REMEMBERED:]
        elif self.before is None:
            accepted = self._accepted(number)
            self.bound = MOST if accepted < MEASURED else BELOW * accepted * SECOND_NS / PERIOD_NS
        elif self.bracketed:
            self.bound = self.before / 2

    def _measures(self, number: int) -> float | None:
        """Return the rate that a batch measures with those that are pooled with it; None: there is too little."""
        accepted, since_ns = self._together(number)
        lasted_ns = self.complaints[number] - since_ns
        if accepted < MEASURED or lasted_ns < PERIOD_NS:
            return None
        return BELOW * accepted * SECOND_NS / lasted_ns

    def _together(self, number: int) -> tuple[int, int]:
        """Return what was accepted in that batch and those that are pooled with it, and when they began."""
        batches = [*self.pooled, number]
        return sum(self._accepted(one) for one in batches), self._batch(batches[0])[0]

    def _lower_is_refused_less(self, granted_ns: int) -> bool:
        tries = self.tries[-TRIES_MAX:]
        mine = [one for one in tries if one[0] == granted_ns]
        if not mine:
            return True
        mine[-1][2] = 1
        lower = [one[2] for one in tries if one[1] * LOWER < mine[-1][1]]
        like = [one[2] for one in tries if one[1] * LOWER >= mine[-1][1]]
        return len(lower) < TRIES_MIN or fmean(like) - fmean(lower) >= HELPS * fmean(like)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["grant", "grant", "grant", "refuse", "accept"]),
        st.sampled_from([1, SECOND_NS // 10, SECOND_NS, 30 * SECOND_NS]),
        st.integers(0, 100),
    ),
    max_size=80,
)


@given(STEPS)
def test_the_rate_is_what_the_definition_says(steps: list[tuple[str, int, int]]) -> None:
    rate, oracle = LearnedRate(), _Oracle()
    inflight: list[int] = []
    now_ns = 0
    for what, pause_ns, pick in steps:
        now_ns += pause_ns
        if what == "grant":
            rate.on_granted(now_ns)
            oracle.on_granted(now_ns)
            inflight.append(now_ns)
        elif inflight and what == "accept":
            granted_ns = inflight.pop(pick % len(inflight))
            rate.on_good(granted_ns, now_ns)
            oracle.on_good(granted_ns, now_ns)
        elif inflight:
            granted_ns = inflight.pop(pick % len(inflight))
            rate.on_refused(granted_ns, now_ns)
            oracle.on_refused(granted_ns, now_ns)
        assert (rate.per_s is None) == (oracle.rate is None)
        assert rate.per_s == pytest.approx(oracle.rate)
        if rate.per_s is not None:
            assert LEAST <= rate.per_s <= MOST
            if what == "refuse":
                assert rate.opens_ns <= now_ns + SECOND_NS / LEAST, "a rate is never a standstill"


@pytest.mark.slow
@given(allowed=st.integers(1, 20), batch_ns=st.sampled_from([0, SECOND_NS // 10, SECOND_NS]))
def test_against_a_bucket_most_of_what_it_allows_is_used(allowed: int, batch_ns: int) -> None:
    """The provider earns `allowed` calls a second and stores two seconds' worth; news is late by `batch_ns`."""
    rate = LearnedRate()
    level, level_ns, now_ns = 2.0 * allowed, 0, 0
    accepted = refused = 0
    news: list[tuple[int, int]] = []
    while now_ns < 120 * SECOND_NS:
        now_ns = max(now_ns + SECOND_NS // 50, rate.opens_ns)
        while news and news[0][0] <= now_ns:
            told_ns, granted_ns = news.pop(0)
            rate.on_refused(granted_ns, told_ns)
        if rate.opens_ns > now_ns:
            continue
        rate.on_granted(now_ns)
        level = min(2.0 * allowed, level + (now_ns - level_ns) * allowed / SECOND_NS)
        level_ns = now_ns
        if level >= 1:
            level -= 1
            accepted += 1
        else:
            refused += 1
            news.append((now_ns + batch_ns, now_ns))

    assert accepted >= 0.75 * 120 * allowed
    assert refused <= 0.25 * accepted + 10 * (1 + batch_ns / SECOND_NS * 50)
