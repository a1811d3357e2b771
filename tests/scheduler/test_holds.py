"""Calls that a rule holds: they wait without a slot, and join the line when the clock or a plan changes the verdict."""

from __future__ import annotations

from typing import Any

import attrs

from hivemind_trio.model import Api, Moment, Outcome, PlanReading, PlanWindow, Reason, Request
from hivemind_trio.policy import MemoryFiles, Program, check
from hivemind_trio.scheduler import AttemptResult, CallId, Grant, ResponseStarted, TimePassed
from tests.scheduler.driver import Driver
from tests.support.programs import SECOND_NS

MINUTE = 60 * SECOND_NS
HOUR = 60 * MINUTE

BY_DAY = 'rule day when model ~ "claude-opus-*" and time in 8:00..17:59 { hold "after office hours" }'


def policy(rules: str, provider: str = "concurrency 1") -> Program:
    text = f"provider anthropic {{ {provider} }}\nlane batch {{ }}\n{rules}\n"
    program = check("team.hmp", MemoryFiles({"team.hmp": text})).program
    assert program is not None, check("team.hmp", MemoryFiles({"team.hmp": text})).diagnostics
    return program


class House(Driver):
    """A driver whose calls arrive at the local time of the engine's time; it began on 2026-12-24 at `began`."""

    def __init__(self, program: Program, began: str = "17:00") -> None:
        super().__init__(program)
        hour, minute = map(int, began.split(":"))
        self.began = Moment("2026-12-24", (hour * 60 + minute) * 60)

    def moment(self) -> Moment:
        return self.began.after(self.now_ns // SECOND_NS)

    def arrive(self, model: str = "claude-opus-4-1", **more: Any) -> int:
        now = self.moment()
        minutes = now.second // 60
        request = Request(
            apis=(Api.ANTHROPIC,), model=model, path="/v1/messages", hour=minutes // 60, minute=minutes % 60,
            second=now.second % 60, weekday=4, date=now.date,
        )  # fmt: skip
        return self.ask(request, **more)

    def until(self, time_ns: int) -> None:
        """Let time pass, as the scheduler asks to be woken."""
        while (wakeup_ns := self.scheduler.wakeup_ns()) is not None and wakeup_ns <= time_ns:
            self.now_ns = max(self.now_ns, wakeup_ns)
            self.post(TimePassed(self.moment()))
        self.now_ns = time_ns


def test_a_held_call_waits_without_a_slot_and_starts_when_the_clock_ends_it() -> None:
    house = House(policy(BY_DAY))

    held = house.arrive()
    other = house.arrive("claude-haiku-4-5")
    house.until(HOUR - 1)

    assert house.granted == [other]
    (queued,) = house.scheduler.occupancy(house.now_ns).waiting
    assert (queued.reason, queued.not_before_ns) == (Reason.HELD, HOUR)
    assert (house.rest.held, house.rest.waiting) == (1, 1)
    told = house.scheduler.waiting(CallId(held), house.now_ns - HOUR // 2)
    assert told is not None
    assert told.words.endswith(" held it; it can start in 30 min 1 s")
    house.end(other)
    house.until(HOUR)
    assert house.granted == [other, held]
    assert house.grant(held).reason is Reason.HELD
    assert house.grant(held).waited_ns == HOUR
    assert house.rest.held == 0


def test_it_joins_its_lane_with_the_age_of_its_arrival() -> None:
    house = House(policy(BY_DAY))
    first = house.arrive("claude-haiku-4-5")
    house.now_ns = SECOND_NS
    held = house.arrive()
    house.now_ns = MINUTE
    later = house.arrive("claude-haiku-4-5")
    house.until(HOUR)

    assert house.granted == [first]
    house.end(first)

    assert house.granted == [first, held]
    house.end(held)
    assert house.granted == [first, held, later]


def test_the_clock_is_looked_at_again_when_it_was_set() -> None:
    house = House(policy(BY_DAY))
    held = house.arrive()
    house.now_ns = MINUTE
    house.began = Moment("2026-12-24", 18 * 3_600)  # an hour forward

    house.until(20 * MINUTE)

    assert house.granted == [held]


def test_a_client_that_cannot_wait_so_long_is_told_until_when_and_keeps_its_place() -> None:
    house = House(policy(BY_DAY))
    away = house.arrive(again="a", patience_ns=30 * MINUTE)
    stays = house.arrive(again="b", patience_ns=2 * HOUR)

    refusal = house.refusal(away)
    assert (refusal.reason, refusal.retry_after_ns) == (Reason.HELD, HOUR)
    assert refusal.message == "held by the policy: after office hours; the call can start in 1 h"
    house.now_ns = HOUR - MINUTE
    busy = house.arrive("claude-haiku-4-5")
    house.until(HOUR)
    house.now_ns = HOUR + 5 * MINUTE
    back = house.arrive(again="a")
    house.end(busy)
    assert house.granted == [busy, back]
    house.end(back)
    assert house.granted == [busy, back, stays]


def test_the_deadline_counts_from_arrival_and_the_queue_is_full_of_held_calls_too() -> None:
    house = House(policy(BY_DAY.replace("hold", "deadline 5m; hold"), "queue 1"))
    held = house.arrive()
    full = house.arrive()

    house.until(5 * MINUTE)

    assert house.refusal(full).reason is Reason.QUEUE_FULL
    assert house.refusal(held).reason is Reason.DEADLINE
    assert "because rule `day` held it" in house.refusal(held).message


def test_what_is_held_is_refused_where_a_denial_decides_in_the_end() -> None:
    house = House(policy(BY_DAY + '\nrule no when time >= 18:00 and model ~ "*opus*" { deny "not today" }'))
    held = house.arrive()

    house.until(HOUR)

    assert house.refusal(held).reason is Reason.DENIED


def test_a_reload_decides_about_held_calls_at_once() -> None:
    house = House(policy(BY_DAY))
    held, other = house.arrive(), house.arrive()

    house.load(policy(BY_DAY.replace("8:00..17:59", "8:00..16:59"), "concurrency 1"))

    assert house.granted == [held]
    house.load(policy(BY_DAY))
    house.end(held)
    assert house.granted == [held], "the other one is held again"
    assert house.rest.held == 1
    house.cancel(other)
    assert house.rest.held == house.rest.waiting == 0


def read(used: int, resets_ns: int | None = 2 * HOUR) -> PlanReading:
    window = PlanWindow(name="5h", used=used * 10_000, window_ns=5 * HOUR, resets_ns=resets_ns)
    return PlanReading(windows=(window,))


def test_a_reading_of_the_plan_ends_a_hold_and_so_does_its_reset() -> None:
    rule = 'rule rest when model ~ "*opus*" and plan.session > 90% { hold "the rest is for people" }'
    house = House(policy(rule, "concurrency 2"))
    teller = house.arrive("claude-haiku-4-5")
    house.post(ResponseStarted(CallId(teller), (), plan=read(95)))

    held = house.arrive()
    (queued,) = house.scheduler.occupancy(house.now_ns).waiting
    assert (queued.reason, queued.not_before_ns) == (Reason.HELD, 2 * HOUR)
    house.post(ResponseStarted(CallId(teller), (), plan=read(93)))
    assert house.granted == [teller]
    house.post(ResponseStarted(CallId(teller), (), plan=read(40)))
    assert house.granted == [teller, held]
    house.end(held)

    house.post(ResponseStarted(CallId(teller), (), plan=read(95)))
    again = house.arrive()
    house.until(2 * HOUR)
    assert house.granted == [teller, held, again]


def test_a_held_call_claims_nothing_of_a_budget() -> None:
    rules = BY_DAY + "\nbudget all { tokens 1k/day }"
    house = House(policy(rules, "concurrency 2"))
    now = house.moment()
    request = Request(apis=(Api.ANTHROPIC,), model="claude-opus-4-1", tokens_in=900, hour=17, weekday=4, date=now.date)
    held = house.ask(request)

    other = house.ask(attrs.evolve(request, model="claude-haiku-4-5"))

    assert house.granted == [other]
    assert house.rest.held == 1
    house.cancel(held)


def test_what_needs_no_slot_is_not_held() -> None:
    house = House(policy(BY_DAY))

    call = house.arrive(needs_slot=False)

    assert isinstance(house.answers[call], Grant)


def test_a_call_that_has_begun_is_not_held_again() -> None:
    rule = 'rule again when attempt >= 2 { hold "no" }'
    house = House(policy(rule))
    call = house.arrive()
    house.end(call, AttemptResult(outcome=Outcome.FAILED, status=503))

    house.until(5 * MINUTE)

    assert house.granted == [call, call]


def test_a_call_that_the_rules_hold_again_is_held_from_its_arrival_on() -> None:
    house = House(policy(f"{BY_DAY}\nrule edge when time == 17:01 {{ lane batch }}"))
    held = house.arrive()
    house.until(10 * MINUTE)  # the rules were asked again after a minute

    (queued,) = house.scheduler.occupancy(house.now_ns).waiting
    assert (queued.call_id, queued.reason, house.rest.held) == (held, Reason.HELD, 1)


def test_the_words_name_the_rule_that_held_a_call_after_it_was_released() -> None:
    house = House(policy(f"{BY_DAY}\nrule all {{ deadline 61m }}"))
    house.arrive()
    second = house.arrive()
    house.until(2 * HOUR)

    refusal = house.refusal(second)
    assert refusal.reason is Reason.DEADLINE
    assert refusal.message == "deadline exceeded: the call waited 3.66e+03 s in the queue because rule `day` held it"
