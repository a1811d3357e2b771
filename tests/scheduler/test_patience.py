"""Whose turn is further away than its client waits is told at once, and nobody else is."""

from __future__ import annotations

import attrs
import pytest

from hivemind_trio.model import Outcome, Reason
from hivemind_trio.policy import CircuitBreakerSettings, Dimension, RateLimitSettings
from hivemind_trio.scheduler import AttemptResult, Grant
from hivemind_trio.scheduler.queueing.drain_rate import EVIDENCE_NS, EVIDENCE_TURNS, TURNS_MAX, QueueDrain
from tests.support.programs import SECOND_NS, lane, program, provider, wish

from .driver import Driver

MINUTE_NS = 60 * SECOND_NS

USED_UP = AttemptResult(outcome=Outcome.QUOTA, status=429, retry_after_ns=60 * MINUTE_NS, committed=True)


def turned_away(driver: Driver, call: int) -> bool:
    answer = driver.answers.get(call)
    return answer is not None and not isinstance(answer, Grant)


def queued(driver: Driver, length: int, callers: int = 1) -> None:
    for number in range(length):
        driver.call(f"c{number % callers}")


def at_a_pace_of(gap_ns: int, turns: int, waiting: int, callers: int = 1) -> Driver:
    """A provider with one slot, which has served so many calls at this pace; `waiting` more are in line."""
    driver = Driver(program(providers=[provider(limit=1)]))
    queued(driver, turns + waiting + 2, callers)
    for _ in range(turns + 1):
        driver.now_ns += gap_ns
        driver.end(driver.granted[-1])
    return driver


# ---- what is certain ----


def test_a_quota_that_is_used_up_for_longer_than_a_client_waits_is_told_at_once() -> None:
    driver = Driver(program())
    driver.end(driver.call(), USED_UP)

    told = driver.ask(wish(), patience_ns=5 * MINUTE_NS - 1)
    waits = driver.ask(wish(), patience_ns=5 * MINUTE_NS)
    unknown = driver.ask(wish(), patience_ns=None)

    refusal = driver.refusal(told)
    assert refusal.reason is Reason.CLIENT_PATIENCE
    assert refusal.message == (
        "the call would wait about 5 min in the queue, and its client can be held for 5 min, because "
        "provider `p` had reported that a quota was used up"
    )  # a probe goes in 5 min, which may find room
    # As much as an SDK heeds.
    assert refusal.retry_after_ns is not None
    assert 54 * SECOND_NS <= refusal.retry_after_ns <= 60 * SECOND_NS
    assert not turned_away(driver, waits)
    assert not turned_away(driver, unknown)
    assert driver.rest.waiting == 2


def test_a_short_wait_is_told_as_it_is() -> None:
    driver = Driver(program())
    driver.end(driver.call(), attrs.evolve(USED_UP, retry_after_ns=20 * SECOND_NS))

    refusal = driver.refusal(driver.ask(wish(), patience_ns=5 * SECOND_NS))

    assert refusal.retry_after_ns is not None
    assert 20 * SECOND_NS <= refusal.retry_after_ns <= 22 * SECOND_NS


def test_a_quota_of_other_models_is_no_reason() -> None:
    driver = Driver(program(providers=[provider(groups={"opus-*": None, None: 1})]))
    driver.end(driver.call(model="opus-9"), USED_UP)
    driver.call(model="haiku-9")

    assert turned_away(driver, driver.ask(wish(model="opus-9"), patience_ns=SECOND_NS))
    assert not turned_away(driver, driver.ask(wish(model="haiku-9"), patience_ns=SECOND_NS))


def test_a_limit_of_the_policy_that_is_used_up_is_told_at_once() -> None:
    there = provider(groups={None: None})
    quota = RateLimitSettings(dimension=Dimension.REQUESTS, amount=1, window_ns=60 * MINUTE_NS, headroom=0.0)
    there = attrs.evolve(there, groups=tuple(attrs.evolve(group, quotas=(quota,)) for group in there.groups))
    driver = Driver(program(providers=[there]))
    driver.call()

    assert turned_away(driver, driver.ask(wish(), patience_ns=59 * MINUTE_NS))
    assert not turned_away(driver, driver.ask(wish(), patience_ns=62 * MINUTE_NS))


def test_a_provider_that_is_left_alone_for_longer_is_told_at_once() -> None:
    breaker = CircuitBreakerSettings(trip=1.0, of=2, over_ns=MINUTE_NS)
    driver = Driver(program(providers=[provider(breaker=breaker)]))
    for call in driver.calls(2):
        driver.end(call, AttemptResult(outcome=Outcome.FAILED, status=500, committed=True))

    assert turned_away(driver, driver.ask(wish(), patience_ns=SECOND_NS // 2))
    assert not turned_away(driver, driver.ask(wish(), patience_ns=2 * SECOND_NS))


def test_who_can_go_goes_however_little_patience_it_has() -> None:
    driver = Driver(program())

    assert driver.grant(driver.ask(wish(), patience_ns=0))


def test_who_was_told_comes_back_to_its_place() -> None:
    driver = Driver(program(providers=[provider(limit=1)]))
    driver.end(driver.call(), attrs.evolve(USED_UP, retry_after_ns=MINUTE_NS))
    told = driver.ask(wish(), again="a", patience_ns=SECOND_NS)
    assert turned_away(driver, told)
    driver.now_ns = SECOND_NS
    late = driver.call()

    back = driver.ask(wish(), again="a", patience_ns=2 * MINUTE_NS)

    driver.at(MINUTE_NS)
    driver.end(back)
    assert driver.granted[-2:] == [back, late]


# ---- what is likely ----


def test_a_queue_that_will_take_longer_than_a_client_waits_is_told_at_once() -> None:
    driver = at_a_pace_of(10 * SECOND_NS, turns=20, waiting=40)

    # Three quarters of 400 s.
    assert turned_away(driver, driver.ask(wish(), "c0", patience_ns=299 * SECOND_NS))
    assert not turned_away(driver, driver.ask(wish(), "c0", patience_ns=301 * SECOND_NS))


@pytest.mark.parametrize(
    ("gap_s", "turns"),
    [(10, EVIDENCE_TURNS - 1), (0.5, EVIDENCE_TURNS + 5)],
    ids=["few turns", "a short time"],
)
def test_nobody_is_sent_away_on_little_evidence(gap_s: float, turns: int) -> None:
    driver = at_a_pace_of(round(gap_s * SECOND_NS), turns, waiting=400)

    assert not turned_away(driver, driver.ask(wish(), "c0", patience_ns=0))


def test_an_agent_with_few_calls_is_not_sent_away_for_another_s_queue() -> None:
    driver = at_a_pace_of(10 * SECOND_NS, turns=20, waiting=40)

    assert not turned_away(driver, driver.ask(wish(), "another", patience_ns=30 * SECOND_NS))


def test_another_lane_s_queue_is_no_reason() -> None:
    lanes = [lane(), lane("fast")]
    driver = at_a_pace_of(10 * SECOND_NS, turns=20, waiting=40)
    driver.load(program(providers=[provider(limit=1)], lanes=lanes))

    assert not turned_away(driver, driver.ask(wish(lane="fast"), "c0", patience_ns=0))


def test_who_goes_before_the_others_is_kept() -> None:
    driver = at_a_pace_of(10 * SECOND_NS, turns=20, waiting=40)

    assert not turned_away(driver, driver.ask(wish(priority=1), "c0", patience_ns=0))


def test_what_an_empty_queue_has_shown_is_forgotten() -> None:
    driver = at_a_pace_of(10 * SECOND_NS, turns=20, waiting=1)
    driver.end(driver.granted[-1])
    driver.now_ns += 60 * MINUTE_NS
    queued(driver, 40)

    assert not turned_away(driver, driver.ask(wish(), "c0", patience_ns=0))


def test_a_queue_that_empties_because_all_hang_up_is_forgotten_too() -> None:
    driver = at_a_pace_of(10 * SECOND_NS, turns=20, waiting=3)
    for call in range(driver.granted[-1] + 1, driver.granted[-1] + 4):
        driver.cancel(call)
    assert driver.rest.waiting == 0
    driver.now_ns += 60 * MINUTE_NS
    queued(driver, 40)

    assert not turned_away(driver, driver.ask(wish(), "c0", patience_ns=0))


# ---- turns ----


def test_turns_in_bunches_count_as_their_mean() -> None:
    turns = QueueDrain()
    for minute in range(4):
        for _ in range(10):
            turns.on_turn(minute * MINUTE_NS, waiting=1)

    assert turns.least_ns(39) == round(0.75 * 3 * MINUTE_NS)


def test_what_was_long_ago_counts_for_less_and_less() -> None:
    turns = QueueDrain()
    now_ns = 0
    for gap_ns in [10 * SECOND_NS] * TURNS_MAX + [SECOND_NS] * TURNS_MAX * 4:
        now_ns += gap_ns
        turns.on_turn(now_ns, waiting=1)

    least_ns = turns.least_ns(100)
    assert least_ns is not None
    assert 75 * SECOND_NS <= least_ns < 110 * SECOND_NS
    assert now_ns > EVIDENCE_NS
