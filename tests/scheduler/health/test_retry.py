"""A call that is tried again: when, how often, and what it holds meanwhile, which is nothing."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Decision, Outcome, Reason, Request, Verdict
from hivemind_trio.policy import Failure, Jitter, RetrySettings
from hivemind_trio.scheduler import AttemptResult, CallId, Finish, ResponseStarted, Unretried
from hivemind_trio.scheduler.decisions.completion import WORD_MAX_NS
from tests.scheduler.driver import Driver
from tests.support.ends import IGNORED, SUCCEEDED
from tests.support.programs import NO_RETRY, SECOND_NS, agent, lane, program, provider, treatment

EXACTLY = RetrySettings(first_ns=SECOND_NS, last_ns=8 * SECOND_NS, jitter=Jitter.NONE)
"""Back-offs of 1, 2, 4 and then 8 seconds."""

BROKEN = AttemptResult(outcome=Outcome.FAILED, status=500)
"""Perhaps executed."""
BUSY = AttemptResult(outcome=Outcome.OVERLOADED, status=529)
"""Turned away at the door."""


def told(retry_after_ns: int, outcome: Outcome = Outcome.CONCURRENCY, status: int = 429) -> AttemptResult:
    """The provider says when to come back."""
    return AttemptResult(outcome=outcome, status=status, retry_after_ns=retry_after_ns)


def due_ns(driver: Driver) -> int:
    wakeup_ns = driver.scheduler.wakeup_ns()
    assert wakeup_ns is not None
    return wakeup_ns


def try_again(driver: Driver, call: int, ended: AttemptResult) -> int:
    """End an attempt and let time pass until the next begins; return how long that was."""
    began_ns, attempt = driver.now_ns, driver.grant(call).attempt
    assert driver.end(call, ended) == []
    driver.at(due_ns(driver))
    assert driver.grant(call).attempt == attempt + 1
    return driver.now_ns - began_ns


def settled(driver: Driver, call: int) -> bool:
    """The agent is given what there is."""
    return isinstance(driver.answers[call], Finish)


def unretried(driver: Driver, call: int) -> Unretried | None:
    """Return why the last attempt was not followed by another one."""
    answer = driver.answers[call]
    assert isinstance(answer, Finish)
    return answer.unretried


def failing_over(request: Request) -> Decision:
    """The first attempt goes to `p`, every other to `q`."""
    return treatment(provider="p" if request.attempt == 1 else "q")


# ---- whether ----


@pytest.mark.parametrize(
    ("retry", "ended", "again"),
    [
        (EXACTLY, BROKEN, True),
        (EXACTLY, BUSY, True),
        (EXACTLY, AttemptResult(outcome=Outcome.UNREACHABLE, failure=Failure.CONNECT), True),
        (EXACTLY, AttemptResult(outcome=Outcome.FAILED, failure=Failure.RESET), True),
        (EXACTLY, AttemptResult(outcome=Outcome.FAILED, failure=Failure.TIMEOUT), False),
        (
            RetrySettings(failures=frozenset({Failure.TIMEOUT})),
            AttemptResult(outcome=Outcome.FAILED, failure=Failure.TIMEOUT),
            True,
        ),
        (EXACTLY, AttemptResult(outcome=Outcome.IGNORED, status=400), False),
        (RetrySettings(statuses=frozenset({400})), AttemptResult(outcome=Outcome.IGNORED, status=400), True),
        (RetrySettings(statuses=frozenset()), BUSY, False),
        (EXACTLY, AttemptResult(outcome=Outcome.OVERLOADED, status=529, final=True), False),
        (EXACTLY, AttemptResult(outcome=Outcome.TERMINAL, status=429, final=True), False),
        (NO_RETRY, BUSY, False),
        (EXACTLY, IGNORED, False),
    ],
    ids=[
        "5xx",
        "overloaded",
        "no connection",
        "reset",
        "a failure that is not listed",
        "a failure that is listed",
        "a status that is not listed",
        "a status that is listed",
        "nothing is listed",
        "the provider says it is of no use",
        "money is used up",
        "one attempt is all",
        "the agent has hung up",
    ],
)
def test_an_attempt_is_tried_again_if_its_class_says_so(
    retry: RetrySettings, ended: AttemptResult, again: bool
) -> None:
    driver = Driver(program(retries=[retry]))
    call = driver.call()

    driver.end(call, ended)

    assert driver.rest.waiting == int(again)
    if not ended.committed:
        assert settled(driver, call) is not again


def test_nothing_is_tried_again_once_the_agent_has_had_some_of_it() -> None:
    driver = Driver(program(retries=[EXACTLY]))
    call = driver.call()

    driver.end(call, AttemptResult(outcome=Outcome.FAILED, status=500, committed=True))

    assert (driver.rest.waiting, driver.rest.agents) == (0, 0)
    assert driver.scheduler.wakeup_ns() is None
    # Nor is there anything left to be given.
    assert not settled(driver, call)


def test_a_success_that_the_agent_has_had_nothing_of_is_given_to_it() -> None:
    driver = Driver(program(retries=[EXACTLY]))
    call = driver.call()

    driver.end(call, AttemptResult(outcome=Outcome.SUCCEEDED, status=200))

    assert settled(driver, call)


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_attempts_are_counted_with_the_first(attempts: int) -> None:
    driver = Driver(program(retries=[RetrySettings(attempts=attempts)]))
    call = driver.call()

    for _ in range(attempts - 1):
        try_again(driver, call, BUSY)
    driver.end(call, BUSY)

    assert settled(driver, call)
    assert driver.granted == [call] * attempts


@pytest.mark.parametrize("outcome", [Outcome.QUOTA, Outcome.BURST, Outcome.TOO_FAST, Outcome.CONCURRENCY])
def test_a_class_of_one_attempt_passes_even_what_does_not_count(outcome: Outcome) -> None:
    driver = Driver(program(retries=[NO_RETRY]))
    call = driver.call()

    driver.end(call, told(SECOND_NS, outcome))

    assert settled(driver, call)
    assert driver.granted == [call]


def test_the_class_is_the_calls_own_before_the_providers() -> None:
    def decide(request: Request) -> Decision:
        return attrs.evolve(treatment(), retry="patient" if request.model == "other" else None)

    driver = Driver(
        program(
            providers=[provider("p", retry="never")],
            retries=[EXACTLY, RetrySettings(name="never", attempts=1), RetrySettings(name="patient")],
            decide=decide,
        )
    )
    plain, patient = driver.call(model="plain"), driver.call(model="other")

    driver.end(plain, BUSY)
    driver.end(patient, BUSY)

    assert settled(driver, plain)
    assert driver.rest.waiting == 1


# ---- when ----


def test_a_back_off_doubles_up_to_its_last() -> None:
    driver = Driver(program(retries=[EXACTLY]))
    call = driver.call()

    pauses = [try_again(driver, call, BROKEN) for _ in range(6)]

    assert [pause // SECOND_NS for pause in pauses] == [1, 2, 4, 8, 8, 8]


@pytest.mark.parametrize(
    ("jitter", "least"), [(Jitter.NONE, 1.0), (Jitter.EQUAL, 0.5), (Jitter.FULL, 0.0)], ids=lambda value: str(value)
)
def test_a_back_off_is_drawn_within_its_jitter(jitter: Jitter, least: float) -> None:
    driver = Driver(program(retries=[RetrySettings(first_ns=SECOND_NS, last_ns=4 * SECOND_NS, jitter=jitter)]))
    pauses = []
    for _ in range(200):
        driver.now_ns += 100 * SECOND_NS  # the budget is whole again
        call = driver.call()
        pauses.append([try_again(driver, call, BROKEN), try_again(driver, call, BROKEN)])
        driver.end(call)

    for index, ceiling_ns in enumerate((SECOND_NS, 2 * SECOND_NS)):
        drawn = [each[index] for each in pauses]
        assert all(least * ceiling_ns <= pause <= ceiling_ns for pause in drawn)
        # All of the range is used.
        assert min(drawn) <= (least + 0.1) * ceiling_ns
        assert max(drawn) >= 0.9 * ceiling_ns


@pytest.mark.slow
@given(seed=st.integers(0, 10_000), asked_ns=st.integers(1, 60 * SECOND_NS))
def test_a_retry_after_is_waited_for_and_a_tenth_longer_at_most(seed: int, asked_ns: int) -> None:
    driver = Driver(program(retries=[EXACTLY]), seed)

    pause_ns = try_again(driver, driver.call(), told(asked_ns, Outcome.OVERLOADED, 529))

    assert min(asked_ns, WORD_MAX_NS) <= pause_ns <= min(1.1 * asked_ns, WORD_MAX_NS)


@given(seed=st.integers(0, 10_000), asked_ns=st.integers(1, 60 * SECOND_NS))
def test_after_too_many_at_once_a_call_rests_a_second_at_most(seed: int, asked_ns: int) -> None:
    driver = Driver(program(retries=[EXACTLY]), seed)

    pause_ns = try_again(driver, driver.call(), told(asked_ns))

    assert min(asked_ns, SECOND_NS) <= pause_ns <= SECOND_NS


@pytest.mark.parametrize(
    ("model", "granted", "waits_s"),
    [("m", "after", 4), ("m", "before", 15), ("other", "after", 15)],
    ids=["granted since", "granted before", "of another model"],
)
def test_a_pause_that_a_provider_asked_for_is_over_once_it_serves_another(
    model: str, granted: str, waits_s: int
) -> None:
    slow = attrs.evolve(EXACTLY, first_ns=4 * SECOND_NS)
    driver = Driver(program(retries=[slow]))
    call = driver.call(model="m")
    other = driver.call(model=model) if granted == "before" else None
    driver.now_ns = 1
    driver.end(call, told(15 * SECOND_NS, Outcome.OVERLOADED, 529))
    driver.now_ns = 2
    if other is None:
        other = driver.call(model=model)

    driver.now_ns = SECOND_NS
    driver.post(ResponseStarted(CallId(other), (), True))
    driver.at(due_ns(driver))

    # Its own back-off stays, or a provider that fails some calls would be asked without end.
    assert driver.grant(call).attempt == 2
    assert waits_s * SECOND_NS <= driver.now_ns - 1 <= waits_s * SECOND_NS * 1.1


def test_a_pause_that_was_asked_for_and_is_over_anyway_ends_at_once() -> None:
    driver = Driver(program(retries=[EXACTLY]))
    call = driver.call()
    driver.end(call, told(15 * SECOND_NS, Outcome.FAILED, 503))
    driver.now_ns = 2 * SECOND_NS  # its back-off would have been a second
    other = driver.call()

    assert driver.post(ResponseStarted(CallId(other), (), True)) == [driver.grant(call)]
    assert driver.grant(call).attempt == 2


def test_those_who_were_told_the_same_do_not_come_together() -> None:
    driver = Driver(program(retries=[EXACTLY]))
    calls = driver.calls(8)
    for call in calls:
        driver.end(call, told(10 * SECOND_NS, Outcome.OVERLOADED, 529))

    moments = set()
    while driver.rest.waiting:
        driver.at(due_ns(driver))
        moments.add(driver.now_ns)

    assert len(moments) == len(calls)


def test_a_retry_after_beyond_what_the_policy_honours_is_the_agents_to_hear() -> None:
    driver = Driver(program(retries=[RetrySettings(honor_max_ns=10 * SECOND_NS)]))
    patient, other = driver.calls(2)

    driver.end(patient, told(10 * SECOND_NS))
    driver.end(other, told(10 * SECOND_NS + 1))

    assert patient not in driver.granted[2:]
    assert driver.rest.waiting == 1
    assert settled(driver, other)


@pytest.mark.parametrize(("said_s", "waits"), [(61, True), (600, True), (601, False)])
def test_a_retry_after_of_minutes_is_waited_for_unless_the_policy_says_otherwise(said_s: int, waits: bool) -> None:
    driver = Driver(program(retries=[RetrySettings()]))
    call = driver.call()

    driver.end(call, told(said_s * SECOND_NS))

    assert (driver.rest.waiting == 1) is waits
    assert settled(driver, call) is not waits


def test_a_retry_that_is_due_at_once_begins_at_once_though_it_goes_to_another_provider() -> None:
    driver = Driver(program(providers=[provider("p"), provider("q")], retries=[EXACTLY], decide=failing_over))
    call = driver.call()

    assert driver.end(call, told(0)) == [call]
    assert driver.grant(call).treatment.provider == "q"


def test_a_retry_does_not_begin_a_nanosecond_early() -> None:
    driver = Driver(program(retries=[EXACTLY]))
    call = driver.call()
    driver.end(call, BROKEN)

    assert driver.at(SECOND_NS - 1) == []
    driver.at(SECOND_NS)

    assert driver.granted == [call, call]


def test_an_overload_beyond_those_that_are_served_uses_up_no_attempts_and_is_asked_less_and_less() -> None:
    driver = Driver(program(providers=[provider("p", limit=2)], retries=[attrs.evolve(EXACTLY, attempts=3)]))
    served, call = driver.calls(2)
    driver.post(ResponseStarted(CallId(served), (), good=True))

    pauses_s = [try_again(driver, call, BUSY) // SECOND_NS for _ in range(6)]

    assert pauses_s == [1, 2, 4, 8, 8, 8]
    driver.end(served, SUCCEEDED)
    driver.end(call, BUSY)  # nobody is served now, so it is the provider
    driver.at(due_ns(driver))
    driver.end(call, BUSY)
    driver.at(due_ns(driver))
    driver.end(call, BUSY)
    assert settled(driver, call)


# ---- how much of it ----


NO_PAUSES = RetrySettings(attempts=100, first_ns=0, last_ns=0, ratio=0.0)


def spent(driver: Driver, times: int = 10) -> int:
    """A call that has used up the retries that are saved up, and waits for another."""
    call = driver.call()
    for _ in range(times):
        assert driver.end(call, BROKEN) == [call]
    assert driver.end(call, BROKEN) == []
    return call


def test_a_provider_is_sent_again_no_more_than_its_budget() -> None:
    driver = Driver(program(retries=[NO_PAUSES]))
    call = spent(driver)

    assert not settled(driver, call)
    assert due_ns(driver) == 10 * SECOND_NS


def test_the_last_answer_says_why_there_is_no_further_attempt() -> None:
    late = RetrySettings(first_ns=SECOND_NS, last_ns=SECOND_NS, jitter=Jitter.NONE)
    used_up = Driver(program(retries=[attrs.evolve(NO_PAUSES, ratio=0.0)]))
    for call in used_up.calls(40):
        used_up.end(call, BROKEN)
    ends = {
        Unretried.BUDGET: (used_up, used_up.call(), BROKEN),
        Unretried.ATTEMPTS: (once := Driver(program(retries=[attrs.evolve(late, attempts=1)])), once.call(), BROKEN),
        Unretried.CLASS: (own := Driver(program(retries=[late])), own.call(), attrs.evolve(BROKEN, status=418)),
        Unretried.DEADLINE: (soon := Driver(program(retries=[late])), soon.call(deadline_ns=SECOND_NS), BROKEN),
        Unretried.RETRY_AFTER: (word := Driver(program(retries=[late])), word.call(), told(24 * 3_600 * SECOND_NS)),
    }

    for why, (driver, call, ended) in ends.items():
        driver.end(call, ended)

        assert unretried(driver, call) is why


def test_of_one_attempt_a_refusal_was_the_last_though_refusals_do_not_count() -> None:
    driver = Driver(program(retries=[RetrySettings(attempts=1)]))
    call = driver.call()

    driver.end(call, told(SECOND_NS))

    assert unretried(driver, call) is Unretried.ATTEMPTS


def test_an_answer_that_did_not_fail_or_is_final_says_nothing_of_retries() -> None:
    driver = Driver(program(retries=[NO_PAUSES]))
    call = driver.call()

    driver.end(call, attrs.evolve(SUCCEEDED, committed=False))
    other = driver.call()
    driver.end(other, attrs.evolve(BROKEN, final=True))

    assert unretried(driver, call) is None
    assert unretried(driver, other) is None


def test_the_budget_grows_by_one_each_ten_seconds() -> None:
    driver = Driver(program(retries=[NO_PAUSES]))
    call = driver.call()
    for _ in range(10):
        driver.end(call, BROKEN)

    driver.now_ns = 10 * SECOND_NS
    assert driver.end(call, BROKEN) == [call]
    driver.now_ns = 20 * SECOND_NS - 1
    assert driver.end(call, BROKEN) == []

    assert 0 <= due_ns(driver) - 20 * SECOND_NS <= 1


def test_those_for_whom_there_is_no_retry_wait_one_behind_the_other_and_a_fourth_does_not() -> None:
    driver = Driver(program(retries=[NO_PAUSES]))
    more = driver.calls(3)
    first = spent(driver)

    for call in more:
        driver.end(call, BROKEN)

    assert [settled(driver, call) for call in (first, *more)] == [False, False, False, True]
    for seconds in (10, 20, 30):
        assert due_ns(driver) == seconds * SECOND_NS
        driver.at(due_ns(driver))


def test_an_agent_that_cannot_retry_waits_for_a_retry_however_many_wait_already() -> None:
    driver = Driver(program(retries=[NO_PAUSES]))
    waiting, headed, later, plain = driver.calls(2), driver.call(), driver.call(), driver.call()
    first = spent(driver)
    for call in waiting:
        driver.end(call, BROKEN)

    for call in (headed, later):
        driver.end(call, attrs.evolve(BROKEN, headed=True))
    driver.end(plain, BROKEN)

    assert [settled(driver, call) for call in (first, *waiting, headed, later, plain)] == [False] * 5 + [True]
    for seconds in (10, 20, 30):
        assert due_ns(driver) == seconds * SECOND_NS
        driver.at(due_ns(driver))
    # No wait is longer than that of the last retry that is borrowed.
    assert due_ns(driver) == 40 * SECOND_NS
    driver.at(40 * SECOND_NS)
    assert [driver.grant(call).attempt for call in (headed, later)] == [2, 2]


def test_each_call_that_is_served_lets_one_go_on_that_waits_for_a_retry() -> None:
    driver = Driver(program(retries=[NO_PAUSES]))
    served, more = driver.calls(3), driver.calls(2)
    driver.now_ns = 1
    first = spent(driver)
    for call in more:
        driver.end(call, BROKEN)
    later = driver.calls(2)

    assert [driver.end(call) for call in served] == [[], [], []], "they were sent before those failed"
    assert [driver.end(call) for call in later] == [[first], [more[0]]]
    assert driver.end(driver.call(), BROKEN) == []


def test_a_call_that_does_not_wait_for_its_turn_any_more_takes_nobody_elses() -> None:
    driver = Driver(program(retries=[NO_PAUSES]))
    more = driver.calls(2)
    first = spent(driver)
    for call in more:
        driver.end(call, BROKEN)
    later = driver.calls(2)
    driver.cancel(first)
    driver.at(due_ns(driver))

    granted = [driver.end(call) for call in later]

    assert granted == [[more[1]], []], "the first had left, and the next had its retry by time"


def test_a_pause_that_is_longer_than_the_wait_for_a_retry_is_kept() -> None:
    pauses = attrs.evolve(NO_PAUSES, first_ns=15 * SECOND_NS, last_ns=15 * SECOND_NS, jitter=Jitter.NONE)
    driver = Driver(program(retries=[pauses]))
    failing = driver.calls(13)
    for call in failing:
        driver.end(call, BROKEN)
    served = driver.call()

    assert driver.end(served) == []
    assert driver.at(15 * SECOND_NS - 1) == []
    driver.at(15 * SECOND_NS)
    assert sum(driver.grant(call).attempt == 2 for call in failing[:11]) == 11


def test_an_agent_that_cannot_retry_is_told_at_once_of_its_own_mistake() -> None:
    driver = Driver(program(retries=[attrs.evolve(NO_PAUSES, statuses=frozenset({400, 500}))]))
    spent(driver)
    call = driver.call()

    driver.end(call, AttemptResult(outcome=Outcome.IGNORED, status=400, headed=True))

    assert settled(driver, call)


def test_a_retry_that_is_not_there_before_the_deadline_is_not_waited_for_and_not_taken() -> None:
    driver = Driver(program(retries=[NO_PAUSES]))
    hurried, patient = driver.call(deadline_ns=9 * SECOND_NS), driver.call()
    for _ in range(10):
        driver.end(patient, BROKEN)

    driver.end(hurried, BROKEN)
    driver.end(patient, BROKEN)

    assert settled(driver, hurried)
    assert due_ns(driver) == 10 * SECOND_NS


def test_idleness_saves_no_more_than_ten_retries_up() -> None:
    driver = Driver(program(retries=[NO_PAUSES]))
    driver.now_ns = 3_600 * SECOND_NS

    spent(driver)


def test_the_budget_grows_by_a_share_of_the_calls_and_not_of_the_retries() -> None:
    driver = Driver(program(retries=[attrs.evolve(NO_PAUSES, ratio=0.5)]))
    driver.cancel(spent(driver))

    for _ in range(4):  # two for the one that was taken before it was there, and two more
        driver.end(driver.call(), SUCCEEDED)
    again = driver.call()

    assert driver.end(again, BROKEN) == [again]


def test_each_provider_has_its_own_budget() -> None:
    policy = program(
        providers=[provider("p"), provider("q")],
        retries=[RetrySettings(attempts=100, first_ns=0, last_ns=0, ratio=0.0)],
    )
    driver = Driver(policy)
    at_p, at_q = driver.call(provider="p"), driver.call(provider="q")
    for _ in range(11):
        driver.end(at_p, BROKEN)

    assert driver.end(at_q, BROKEN) == [at_q]


def test_who_was_turned_away_takes_nothing_of_the_budget_and_needs_none() -> None:
    driver = Driver(program(retries=[RetrySettings(attempts=100, first_ns=0, last_ns=0, ratio=0.0)]))
    calls = driver.calls(30)

    for call in calls:
        assert driver.end(call, BUSY) == [call], "it waits for no budget"
    for call in calls[:10]:
        assert driver.end(call, BROKEN) == [call]
    assert driver.end(calls[10], BROKEN) == []
    assert driver.end(calls[11], BUSY) == [calls[11]], "nor does it die of one that is used up"


def test_a_retry_that_would_come_too_late_takes_nothing_of_the_budget() -> None:
    driver = Driver(
        program(retries=[RetrySettings(first_ns=SECOND_NS, last_ns=SECOND_NS, jitter=Jitter.NONE, ratio=0.0)])
    )
    for call in driver.calls(100, deadline_ns=SECOND_NS):
        driver.end(call, BROKEN)
    assert driver.rest.waiting == 0

    call = driver.call()
    driver.end(call, BROKEN)

    assert not settled(driver, call)


def test_no_retry_begins_at_or_after_the_deadline() -> None:
    driver = Driver(program(retries=[EXACTLY]))
    late, patient = driver.call(deadline_ns=SECOND_NS), driver.call(deadline_ns=SECOND_NS + 1)

    driver.end(late, BROKEN)
    driver.end(patient, BROKEN)

    assert settled(driver, late)
    driver.at(SECOND_NS)
    assert driver.granted == [late, patient, patient]


# ---- meanwhile ----


def test_a_call_that_rests_holds_nothing() -> None:
    policy = program(
        providers=[provider("p", limit=1, groups={"opus*": 1})],
        lanes=[lane("a", max=1)],
        agents=[agent("ci", concurrency=1)],
        retries=[EXACTLY],
    )
    driver = Driver(policy)
    resting = driver.call(agent="ci", model="opus-1", lane="a")
    driver.end(resting, BROKEN)

    other = driver.call(agent="ci", model="opus-1", lane="a")

    assert driver.granted == [resting, other]
    pool = driver.rest.pools["p"]
    assert (pool.inflight, pool.waiting, driver.rest.waiting) == (1, 1, 1)


def test_a_call_that_rests_is_not_due_though_a_slot_comes_back() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)], retries=[EXACTLY]))
    resting, other = driver.calls(2)
    assert driver.end(resting, BROKEN) == [other]

    assert driver.end(other) == []

    driver.at(SECOND_NS)
    assert driver.granted == [resting, other, resting]


def test_a_call_keeps_its_age_and_its_place_in_the_line() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)], retries=[EXACTLY]))
    first, second, third = driver.calls(3)
    driver.now_ns = SECOND_NS
    driver.end(first, BROKEN)
    driver.at(2 * SECOND_NS)  # due, and there is no room
    assert driver.granted == [first, second]

    assert driver.end(second) == [first]
    assert driver.end(first) == [third]
    assert driver.grant(first).reason is Reason.RETRY


def test_what_a_call_is_said_to_have_waited_is_without_its_attempts() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)], retries=[EXACTLY]))
    running, call = driver.calls(2)
    driver.now_ns = 3 * SECOND_NS
    driver.end(running)
    driver.now_ns = 50 * SECOND_NS  # 47 of them at the provider
    driver.end(call, BROKEN)
    driver.at(51 * SECOND_NS)

    assert driver.grant(call).waited_ns == 4 * SECOND_NS


def test_a_call_that_is_cancelled_while_it_rests_is_gone() -> None:
    driver = Driver(program(retries=[EXACTLY]))
    call = driver.call()
    driver.end(call, BROKEN)

    driver.cancel(call)

    assert (driver.rest.waiting, driver.rest.agents) == (0, 0)
    assert driver.scheduler.wakeup_ns() is None
    assert driver.at(100 * SECOND_NS) == []


def test_a_proxy_that_drains_tries_nothing_again_and_refuses_who_rests() -> None:
    driver = Driver(program(retries=[EXACTLY]))
    resting, running = driver.calls(2)
    driver.end(resting, BROKEN)

    driver.drain()
    driver.end(running, BUSY)

    assert driver.refusal(resting).reason is Reason.DRAINING
    assert settled(driver, running)
    assert (driver.rest.waiting, driver.rest.agents) == (0, 0)
    assert driver.scheduler.wakeup_ns() is None


def test_a_call_that_rests_is_dropped_like_others_for_a_newer_one() -> None:
    policy = program(
        providers=[provider("p", limit=1)], lanes=[lane("a", queue=1, shed_oldest=True)], retries=[EXACTLY]
    )
    driver = Driver(policy)
    resting = driver.call(lane="a")
    driver.end(resting, BROKEN)
    driver.call(lane="a")

    newest = driver.call(lane="a")

    assert driver.refusal(resting).reason is Reason.SHED_OLDEST
    assert driver.at(SECOND_NS) == []
    assert newest not in driver.answers


# ---- and a new policy ----


def test_a_call_that_rests_rests_on_through_a_reload() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)], retries=[EXACTLY]))
    resting, second = driver.calls(2)
    driver.end(resting, BROKEN)

    assert driver.load(program(providers=[provider("p", limit=1)], retries=[NO_RETRY])) == []

    assert driver.at(SECOND_NS - 1) == []
    third = driver.call()
    driver.at(SECOND_NS)
    assert driver.end(second) == [resting]
    assert driver.grant(resting).attempt == 2
    driver.end(resting, BROKEN)
    assert settled(driver, resting)
    assert driver.granted[-1] == third


def test_a_call_that_rests_goes_where_the_new_policy_sends_its_next_attempt() -> None:
    driver = Driver(program(retries=[EXACTLY]))
    resting = driver.call()
    driver.end(resting, BROKEN)

    driver.load(program(providers=[provider("p"), provider("q")], retries=[EXACTLY], decide=failing_over))
    driver.at(SECOND_NS)

    assert driver.grant(resting).treatment.provider == "q"


def test_a_call_that_rests_is_refused_when_the_new_policy_gives_it_no_time() -> None:
    driver = Driver(program(retries=[EXACTLY]))
    resting = driver.call()
    driver.now_ns = SECOND_NS
    driver.end(resting, BROKEN)

    driver.load(program(lanes=[lane(deadline_ns=SECOND_NS)], retries=[EXACTLY]))

    assert driver.refusal(resting).reason is Reason.DEADLINE
    assert "had failed" in driver.refusal(resting).message


def test_an_attempt_in_flight_is_tried_again_by_the_policy_of_the_moment_it_ends() -> None:
    driver = Driver(program(retries=[NO_RETRY]))
    call = driver.call()

    driver.load(program(retries=[EXACTLY]))
    driver.end(call, BROKEN)

    assert driver.rest.waiting == 1


@pytest.mark.parametrize("denied", [{"verdict": Verdict.DENY}, {"provider": None}], ids=["denied", "no provider"])
def test_a_call_whose_next_attempt_the_policy_denies_gets_what_there_is(denied: dict[str, Any]) -> None:
    def decide(request: Request) -> Decision:
        return treatment() if request.attempt == 1 else treatment(**denied)

    driver = Driver(program(retries=[EXACTLY], decide=decide))
    call = driver.call()

    driver.end(call, BROKEN)

    assert settled(driver, call)
    assert (driver.rest.waiting, driver.rest.agents) == (0, 0)


def named(*types: str, status: int = 400, outcome: Outcome = Outcome.IGNORED) -> AttemptResult:
    return AttemptResult(outcome=outcome, status=status, error_types=types)


@pytest.mark.parametrize(
    ("ended", "again"),
    [
        (named("rate_limited_upstream", "busy"), True),
        (named("Busy"), False),
        (named(), False),
        (named("busy", status=402), True),
        (attrs.evolve(named("busy"), final=True), False),
        (attrs.evolve(named("busy"), committed=True), False),
    ],
)
def test_an_error_is_retried_for_its_exact_type(ended: AttemptResult, again: bool) -> None:
    retry = attrs.evolve(EXACTLY, statuses=frozenset(), failures=frozenset(), error_types=frozenset({"busy"}))
    driver = Driver(program(providers=[provider()], retries=[retry]))
    call = driver.call()
    driver.end(call, ended)

    assert (driver.scheduler.waiting(CallId(call), driver.now_ns) is not None) is again
