"""`plan { reserve; pace; overage }`: which calls wait for the plan of their account, and until when."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Outcome, PlanReading, PlanWindow, Reason, Usage
from hivemind_trio.policy import MemoryFiles, Program, check
from hivemind_trio.scheduler import AttemptResult, CallId, Grant, ResponseStarted
from hivemind_trio.scheduler.plans.plan_gate import UNKNOWN_NS
from tests.scheduler.driver import Driver
from tests.support.ends import SUCCEEDED
from tests.support.programs import SECOND_NS, wish

HOUR = 3_600 * SECOND_NS
LENGTHS = {"5h": 5 * HOUR, "7d": 168 * HOUR}


def policy(plan: str, more: str = "") -> Program:
    text = f"""hmp 1
provider p {{ api anthropic; base "http://127.0.0.1:9"; concurrency 50; {plan} }}
lane interactive {{ }}
lane batch {{ }}
rule people when header.x-who == "me" {{ lane interactive }}
rule fleet {{ lane batch }}
{more}
"""
    checked = check("p.hmp", MemoryFiles({"p.hmp": text}))
    assert checked.program is not None, checked.diagnostics
    return checked.program


def reading(percent: int, *, left_ns: int | None = 2 * HOUR, name: str = "5h", overage: bool = False) -> PlanReading:
    window = PlanWindow(name=name, used=percent * 10_000, window_ns=LENGTHS[name], resets_ns=left_ns)
    return PlanReading(windows=(window,), overage=overage)


def ask(driver: Driver, lane: str = "batch", credential: str = "a") -> int:
    headers = {"x-who": "me"} if lane == "interactive" else {}
    return driver.ask(attrs.evolve(wish(), headers=headers), credential, credential=credential)


def goes(driver: Driver, lane: str = "batch", credential: str = "a") -> bool:
    call = ask(driver, lane, credential)
    went = isinstance(driver.answers.get(call), Grant)
    if went:
        driver.end(call)
    else:
        driver.cancel(call)
    return went


def hear(driver: Driver, told: PlanReading, credential: str = "a") -> None:
    call = ask(driver, "interactive", credential)
    driver.post(ResponseStarted(CallId(call), (), plan=told))
    driver.end(call)


RESERVE = (
    "plan { reserve 30% of session for interactive release never; "
    "reserve 10% of session for [interactive] release never }"
)


def test_a_reserve_is_kept_for_its_lanes_until_the_window_begins_anew() -> None:
    driver = Driver(policy(RESERVE))
    assert goes(driver), "nothing is known"
    hear(driver, reading(59))
    assert goes(driver)
    hear(driver, reading(60))

    waiting = ask(driver)
    assert waiting not in driver.answers
    assert goes(driver, "interactive")
    assert goes(driver, "batch", "b"), "another account"
    assert driver.scheduler.wakeup_ns() == 2 * HOUR
    driver.at(2 * HOUR)
    assert driver.grant(waiting).reason is Reason.PLAN_RESERVE


def test_a_reserve_is_of_its_window() -> None:
    driver = Driver(policy("plan { reserve 30% of week for interactive release never }"))

    hear(driver, reading(99))
    assert goes(driver)
    hear(driver, reading(70, name="7d"))
    assert not goes(driver)


def test_a_paced_lane_goes_when_as_much_has_elapsed_as_is_used() -> None:
    driver = Driver(policy("plan { pace session for batch }"))
    hear(driver, reading(60, left_ns=4 * HOUR))  # one hour of five is over

    waiting = ask(driver)
    assert goes(driver, "interactive")
    assert driver.scheduler.wakeup_ns() == 2 * HOUR
    driver.at(2 * HOUR)
    assert driver.grant(waiting).reason is Reason.PLAN_PACE


@pytest.mark.parametrize(("burst", "wait_ns"), [("", HOUR // 20 // 4), (" burst 2x", HOUR // 20 // 2)])
def test_a_paced_lane_catches_up_at_a_multiple_of_the_even_rate(burst: str, wait_ns: int) -> None:
    driver = Driver(policy(f"plan {{ pace session for batch{burst} }}"))
    hear(driver, reading(10, left_ns=HOUR))  # four hours of five are over: 70 % were left unused
    assert goes(driver)
    hear(driver, reading(12, left_ns=HOUR))  # at once

    waiting = ask(driver)
    assert goes(driver, "interactive")
    assert driver.scheduler.wakeup_ns() == wait_ns, "1 % beyond the tolerance; an even rate is 1 % in three minutes"
    driver.at(wait_ns)
    assert driver.grant(waiting).reason is Reason.PLAN_PACE
    driver.at(HOUR)
    hear(driver, reading(0, left_ns=5 * HOUR))
    driver.at(2 * HOUR)
    hear(driver, reading(15, left_ns=4 * HOUR))
    assert goes(driver), "15 % in an hour is less than the even rate: nothing was saved up for a burst"


def test_an_answer_that_tells_of_less_opens_the_gate() -> None:
    driver = Driver(policy(RESERVE))
    hear(driver, reading(95))
    waiting = ask(driver)

    hear(driver, reading(10))

    assert driver.grant(waiting)


def test_beyond_the_plan_nobody_goes_if_the_policy_says_so() -> None:
    for overage, expected in (("deny", False), ("warn", True), ("allow", True)):
        driver = Driver(policy(f"plan {{ overage {overage} }}"))
        hear(driver, reading(100, left_ns=HOUR))
        assert goes(driver, "interactive") is expected
        driver.at(HOUR)
        assert goes(driver, "interactive")


def test_who_pays_waits_for_the_fullest_window() -> None:
    driver = Driver(policy("plan { overage deny }"))
    hear(driver, reading(97, left_ns=HOUR, overage=True))

    waiting = ask(driver)
    assert waiting not in driver.answers
    driver.at(HOUR)
    assert driver.grant(waiting).reason is Reason.PLAN_USED_UP


def test_a_reload_judges_waiting_calls_anew() -> None:
    driver = Driver(policy(RESERVE))
    hear(driver, reading(95))
    waiting = ask(driver)

    driver.load(policy("plan { overage allow }"))

    assert driver.grant(waiting)


def test_who_would_wait_for_longer_than_its_client_is_told_at_once() -> None:
    driver = Driver(policy(RESERVE))
    hear(driver, reading(95, left_ns=2 * HOUR))

    refused = driver.refusal(driver.ask(wish(), credential="a", patience_ns=HOUR))

    assert (refused.reason, refused.retry_after_ns) == (Reason.PLAN_RESERVE, 2 * HOUR)
    assert refused.message.endswith("reserved for other lanes than `batch`; the call can start in 2 h")


def test_who_would_wait_days_for_its_pace_is_told_how_many() -> None:
    driver = Driver(policy("plan { pace week for [batch] }"))
    hear(driver, reading(50, name="7d", left_ns=5 * 24 * HOUR))  # two of seven days have elapsed

    refused = driver.refusal(driver.ask(wish(), credential="a", patience_ns=HOUR))

    assert (refused.reason, refused.retry_after_ns) == (Reason.PLAN_PACE, 36 * HOUR)
    assert refused.message.endswith("than has elapsed; the call can start in 1 d 12 h")


def test_who_would_wait_too_long_for_a_used_up_plan_is_told_its_reset() -> None:
    driver = Driver(policy("plan { overage deny }"))
    hear(driver, reading(100, left_ns=2 * HOUR))

    refused = driver.refusal(driver.ask(wish(), credential="a", patience_ns=HOUR))

    assert refused.reason is Reason.PROVIDER_SPENT
    assert refused.retry_after_ns == 2 * HOUR


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (RESERVE, "the rest of the plan of its account at provider `p` was reserved for other lanes than `batch`"),
        ("plan { overage deny }", "the plan of its account at provider `p` was used up (`overage deny`)"),
    ],
)
def test_no_reset_is_made_up_for_a_provider_that_tells_none(plan: str, why: str) -> None:
    driver = Driver(policy(plan))
    hear(driver, reading(100, left_ns=None))
    driver.at(60 * SECOND_NS)

    refused = driver.refusal(driver.ask(wish(), credential="a", patience_ns=100 * SECOND_NS))

    assert refused.reason is Reason.CLIENT_PATIENCE, "one that SDKs try again"
    assert refused.message == (
        f"the call would wait up to 4 min, and its client can be held for 1 min 40 s, because {why}; "
        "the provider does not say when the plan is renewed, and is asked again in 4 min"
    )
    waiting = ask(driver)
    driver.at(UNKNOWN_NS)
    assert driver.grant(waiting)


def test_who_waits_for_a_plan_is_told_when_it_can_go() -> None:
    driver = Driver(policy("plan { pace week for [batch] }"))
    hear(driver, reading(50, name="7d", left_ns=5 * 24 * HOUR))
    call = ask(driver)
    driver.at(HOUR)

    waiting = driver.scheduler.waiting(CallId(call), driver.now_ns)
    assert waiting is not None
    assert waiting.words.endswith("than had elapsed; it can start in 1 d 11 h")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["hear", "batch", "interactive", "wait"]),
        st.sampled_from("ab"),
        st.integers(0, 100),
        st.integers(0, 6 * HOUR),
    ),
    max_size=30,
)


@given(STEPS)
def test_nobody_but_its_lanes_begins_in_a_reserve_and_all_begin_outside_of_it(
    steps: list[tuple[str, str, int, int]],
) -> None:
    driver = Driver(policy(RESERVE))
    last = {"a": (0, 0), "b": (0, 0)}
    asked: dict[int, tuple[str, str]] = {}

    def settle() -> None:
        for call, (lane, credential) in list(asked.items()):
            percent, until_ns = last[credential]
            reserved = percent >= 60 and driver.now_ns < until_ns
            went = isinstance(driver.answers.get(call), Grant)
            assert went is (lane == "interactive" or not reserved), (lane, percent)
            if went:
                driver.end(call)
                del asked[call]

    for what, credential, percent, length_ns in steps:
        if what == "hear":
            last[credential] = percent, driver.now_ns + length_ns
            hear(driver, reading(percent, left_ns=length_ns), credential)
        elif what == "wait":
            while (wakeup_ns := driver.scheduler.wakeup_ns()) is not None and wakeup_ns <= driver.now_ns + length_ns:
                length_ns -= wakeup_ns - driver.now_ns
                driver.at(wakeup_ns)
                settle()
            driver.at(driver.now_ns + length_ns)
        else:
            asked[ask(driver, what, credential)] = what, credential
        settle()


FORECAST = "plan { reserve 30% of session for interactive release forecast }"


def test_a_reserve_with_a_forecast_stays_whole_until_its_lanes_were_seen() -> None:
    driver = Driver(policy(FORECAST))
    hear(driver, reading(90, left_ns=5 * HOUR))

    assert ask(driver) not in driver.answers
    assert driver.scheduler.wakeup_ns() == driver.now_ns + 5 * HOUR, "nothing is released before the reset"
    assert goes(driver, "interactive")


def test_a_reserve_with_a_forecast_is_released_as_the_reset_comes_nearer() -> None:
    driver = Driver(policy(FORECAST))
    learn(driver, "interactive")

    waiting = ask(driver)
    assert waiting not in driver.answers
    opens_ns = driver.scheduler.wakeup_ns()
    assert opens_ns is not None
    assert driver.now_ns + HOUR // 2 < opens_ns < driver.now_ns + 5 * HOUR, "the last minutes need less than 10 %"
    driver.at(opens_ns)
    assert driver.grant(waiting).reason is Reason.PLAN_RESERVE


def learn(driver: Driver, lane: str) -> None:
    """Show that a call of a lane takes 1 % of the window, until 90 % are used."""
    for percent in (87, 88, 89, 90):
        call = ask(driver, lane)
        driver.post(ResponseStarted(CallId(call), (), plan=reading(percent, left_ns=5 * HOUR)))
        driver.end(call, attrs.evolve(SUCCEEDED, usage=Usage(input=10_000, output=1_000)))


def test_calls_that_are_not_in_the_reading_yet_count_against_a_reserve() -> None:
    driver = Driver(policy("plan { reserve 30% of session for interactive }"))
    large = attrs.evolve(wish(), tokens_in=100_000, tokens_max_out=1_000)
    for percent in (65, 66, 67, 68):  # one call each
        call = driver.ask(large, "a", credential="a")
        driver.post(ResponseStarted(CallId(call), (), plan=reading(percent)))
        driver.end(call, attrs.evolve(SUCCEEDED, usage=Usage(input=100_000, output=1_000)))
    driver.post(ResponseStarted(CallId(driver.ask(large, "a", credential="a")), (), plan=reading(68)))

    assert driver.ask(large, "a", credential="a") in driver.answers
    assert driver.ask(large, "a", credential="a") not in driver.answers, "68 % are read, and two calls are in flight"


def hours(driver: Driver, lane: str) -> dict[int, int]:
    """Hours ago -> the weight that a lane has used, or lacked."""
    (belief,) = driver.scheduler.beliefs()["p"].plans
    return dict(belief.hours.get(lane, ()))


def test_what_a_used_up_plan_has_refused_is_wanted_the_next_time() -> None:
    driver = Driver(policy(FORECAST))
    learn(driver, "interactive")
    used = hours(driver, "interactive")[0]
    driver.at(HOUR)
    refused = ask(driver, "interactive")
    driver.end(refused, AttemptResult(outcome=Outcome.TERMINAL, status=429, final=True))
    by_provider = hours(driver, "interactive")[0]
    again = driver.refusal(ask(driver, "interactive"))

    assert again.reason is Reason.PROVIDER_SPENT
    assert 0 < by_provider < hours(driver, "interactive")[0] <= used
    for _ in range(20):
        ask(driver, "interactive")
    assert hours(driver, "interactive") == {1: used, 0: used}, "clients may repeat what was refused"
    ask(driver, "batch")
    assert hours(driver, "batch") == {}, "nothing is known of what it wants"
