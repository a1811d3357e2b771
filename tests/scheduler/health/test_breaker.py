"""The circuit of a provider: when it opens, for how long, and how it is tried again."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Outcome, Reason
from hivemind_trio.policy import CircuitBreakerSettings, Jitter, Program, RetrySettings, WhileOpen
from hivemind_trio.scheduler import AttemptEnded, AttemptResult, CallId, Circuit, Finish, LimitChanged, ResponseStarted
from hivemind_trio.scheduler.health.circuit_breaker import IN_A_ROW, RETRY_AFTER_MAX_NS
from tests.scheduler.driver import Driver
from tests.support.ends import IGNORED, SUCCEEDED
from tests.support.programs import SECOND_NS, agent, program, provider

BROKEN = (Outcome.OVERLOADED, Outcome.FAILED, Outcome.DEGRADED, Outcome.UNREACHABLE)
NEUTRAL = (Outcome.IGNORED, Outcome.QUOTA, Outcome.TOO_FAST, Outcome.CONCURRENCY)
"""They say nothing about whether the provider is there. Nor do `TERMINAL`, after which nobody is sent there, and
`BURST`, after which not so many are."""

OPEN_NS = 5 * SECOND_NS
PAUSE_NS = SECOND_NS
"""Of a circuit that has just opened."""
SENSITIVE = CircuitBreakerSettings(trip=1.0, of=2, over_ns=30 * SECOND_NS, open_ns=OPEN_NS, probes=2)
FAILED = AttemptResult(outcome=Outcome.FAILED, status=500)
SLOW = AttemptResult(outcome=Outcome.SLOW, status=200, committed=True)


def of(outcome: Outcome) -> AttemptResult:
    return AttemptResult(outcome=outcome)


def guarded(breaker: CircuitBreakerSettings = SENSITIVE, *, while_open: WhileOpen = WhileOpen.HOLD) -> Program:
    return program(providers=[provider("p", breaker=breaker, while_open=while_open)])


def circuit(driver: Driver) -> Circuit:
    return driver.rest.pools["p"].circuit


def opens_ns(driver: Driver) -> int:
    opens = driver.rest.pools["p"].opens_ns
    assert opens is not None
    return opens


def fail(driver: Driver, times: int = 1, ended: AttemptResult = FAILED) -> None:
    for _ in range(times):
        driver.end(driver.call(), ended)


def tripped(
    breaker: CircuitBreakerSettings = SENSITIVE, *, seed: int = 0, while_open: WhileOpen = WhileOpen.HOLD
) -> Driver:
    """A provider that has just been given up."""
    driver = Driver(guarded(breaker, while_open=while_open), seed)
    fail(driver, breaker.of)
    assert circuit(driver) is Circuit.OPEN
    return driver


def half_open(driver: Driver) -> None:
    """Let its pause pass."""
    driver.at(opens_ns(driver))
    assert circuit(driver) is Circuit.HALF_OPEN


# ---- what it spares its calls ----


def storm(driver: Driver) -> None:
    """Let the next probe go and fail."""
    half_open(driver)
    driver.at(driver.now_ns + 1)  # the call that has just failed goes last
    driver.end(driver.granted[-1], FAILED)


PATIENT = RetrySettings(attempts=3, first_ns=0, last_ns=0, ratio=0.0)


def test_probes_that_fail_use_up_no_attempts_while_several_calls_take_turns() -> None:
    driver = Driver(program(providers=[provider("p", breaker=SENSITIVE)], retries=[PATIENT]))
    calls = driver.calls(2)
    for call in (*calls, calls[0]):  # the first is tried again before the circuit opens
        driver.end(call, FAILED)
    assert circuit(driver) is Circuit.OPEN

    for _ in range(20):
        storm(driver)

    assert not any(isinstance(driver.answers[call], Finish) for call in calls)
    assert set(driver.granted[-2:]) == set(calls)


def test_a_call_that_always_fails_is_not_the_probe_for_good() -> None:
    driver = Driver(program(providers=[provider("p", breaker=SENSITIVE)], retries=[PATIENT]))
    call = driver.call()
    for _ in range(2):
        driver.end(call, FAILED)
    assert circuit(driver) is Circuit.OPEN

    storm(driver)  # nobody knows yet whose fault it is
    assert not isinstance(driver.answers[call], Finish)
    storm(driver)

    assert isinstance(driver.answers[call], Finish)


def test_an_open_circuit_holds_retries_back_so_that_they_need_no_budget() -> None:
    driver = Driver(
        program(
            providers=[provider("p", limit=40, breaker=CircuitBreakerSettings(trip=1.0, of=1_000))], retries=[PATIENT]
        )
    )
    calls = driver.calls(40)

    for call in calls:
        driver.end(call, FAILED)

    assert circuit(driver) is Circuit.OPEN
    assert not any(isinstance(driver.answers[call], Finish) for call in calls)


# ---- when it opens ----


@pytest.mark.parametrize(
    ("outcomes", "trips"),
    [
        ("ff", True),
        ("f", False),
        ("fsf", True),
        ("sssff", True),
        ("fsss", False),
        ("fsssf", False),
        ("fsssff", True),
    ],
    ids=[
        "so many, and no success yet",
        "one",
        "half of few",
        "half of the latest",
        "a quarter",
        "the first is no longer among the latest",
        "the next failure is",
    ],
)
def test_it_opens_when_a_share_of_the_latest_attempts_has_failed(outcomes: str, trips: bool) -> None:
    driver = Driver(guarded(CircuitBreakerSettings(trip=0.5, of=4)))

    for letter in outcomes:
        fail(driver, ended=FAILED if letter == "f" else SUCCEEDED)

    assert (circuit(driver) is Circuit.OPEN) is trips


@pytest.mark.parametrize("outcome", BROKEN)
def test_the_circuit_opens_after_five_failures_in_a_row(outcome: Outcome) -> None:
    driver = Driver(guarded(CircuitBreakerSettings(trip=1.0, of=1_000)))
    fail(driver, 20, SUCCEEDED)
    fail(driver, IN_A_ROW - 1, of(outcome))
    fail(driver, 1, SUCCEEDED)
    fail(driver, IN_A_ROW - 1, of(outcome))
    assert circuit(driver) is Circuit.CLOSED

    fail(driver, 1, of(outcome))

    assert circuit(driver) is Circuit.OPEN


def test_the_row_is_of_attempts_as_they_were_granted() -> None:
    driver = Driver(guarded(CircuitBreakerSettings(trip=1.0, of=1_000)))
    late, *calls = driver.calls(IN_A_ROW + 1)

    # The success ends in between and began before: all that was granted since has failed.
    for call in calls[:-1]:
        driver.end(call, FAILED)
    driver.end(late)
    driver.end(calls[-1], FAILED)

    assert circuit(driver) is Circuit.OPEN


def test_an_attempt_that_is_not_among_the_latest_does_not_count_once_those_are_too_old() -> None:
    driver = Driver(guarded(CircuitBreakerSettings(trip=0.5, of=2, over_ns=10 * SECOND_NS)))
    first, begun = driver.calls(2)
    driver.post(ResponseStarted(CallId(begun), (), good=True))
    fail(driver, 2, SUCCEEDED)

    driver.now_ns += 11 * SECOND_NS
    fail(driver, 1, SUCCEEDED)
    driver.end(first, FAILED)
    driver.end(begun, FAILED)

    assert circuit(driver) is Circuit.CLOSED


def test_an_answer_that_has_begun_breaks_the_row() -> None:
    driver = Driver(guarded(CircuitBreakerSettings(trip=1.0, of=1_000)))
    calls = driver.calls(IN_A_ROW + 1)
    for call in calls[:-2]:
        driver.end(call, FAILED)

    driver.post(ResponseStarted(CallId(calls[-1]), (), good=True))
    driver.end(calls[-2], FAILED)

    assert circuit(driver) is Circuit.CLOSED


def test_what_is_in_flight_counts_as_not_failed() -> None:
    driver = Driver(guarded(CircuitBreakerSettings(trip=0.5, of=4)))
    first, *_ = driver.calls(4)

    driver.end(first, FAILED)

    assert circuit(driver) is Circuit.CLOSED


def test_an_outage_opens_it_though_more_are_in_flight_than_it_remembers() -> None:
    driver = Driver(
        program(providers=[provider("p", limit=64, breaker=CircuitBreakerSettings(over_ns=600 * SECOND_NS))])
    )
    driver.calls(2_000)

    # Each attempt fails after its time, the first that began first; another takes its place.
    for number in range(1_000):
        driver.now_ns += SECOND_NS // 10
        driver.end(driver.granted[number], FAILED)
        if circuit(driver) is Circuit.OPEN:
            return

    raise AssertionError("it is never opened")


def test_a_refusal_while_others_are_accepted_is_about_the_number_at_once() -> None:
    driver = Driver(guarded())
    accepted, *refused = driver.calls(12)
    driver.post(ResponseStarted(CallId(accepted), (), good=True))

    for call in refused[:-1]:
        driver.end(call, of(Outcome.OVERLOADED))
    assert circuit(driver) is Circuit.CLOSED

    driver.end(accepted)
    driver.end(refused[-1], of(Outcome.OVERLOADED))
    fail(driver, 1, of(Outcome.OVERLOADED))
    assert circuit(driver) is Circuit.OPEN


def test_a_provider_that_serves_one_call_at_once_is_not_down() -> None:
    driver = Driver(guarded())
    _, *refused = driver.calls(12)  # nothing has come of the first yet

    for call in refused:
        driver.end(call, of(Outcome.OVERLOADED))
    fail(driver, 5, of(Outcome.OVERLOADED))

    assert circuit(driver) is Circuit.CLOSED


def test_refusals_count_once_all_that_might_have_been_served_is_refused_as_well() -> None:
    driver = Driver(guarded())
    first, *refused = driver.calls(12)
    for call in refused:
        driver.end(call, of(Outcome.OVERLOADED))

    driver.end(first, of(Outcome.OVERLOADED))

    assert circuit(driver) is Circuit.OPEN


def test_what_was_refused_while_an_answer_was_made_is_no_failure_afterwards() -> None:
    driver = Driver(guarded(CircuitBreakerSettings(trip=1.0, of=4)))
    served, *refused = driver.calls(4)
    for call in refused:
        driver.end(call, of(Outcome.OVERLOADED))
    driver.end(served)
    driver.now_ns += 1

    fail(driver, 3)

    assert circuit(driver) is Circuit.CLOSED


@pytest.mark.parametrize(("outcome", "age_s"), [(Outcome.OVERLOADED, 30), (Outcome.FAILED, 0)])
def test_neither_a_call_that_hangs_nor_failures_of_other_kinds_are_taken_for_a_limit(
    outcome: Outcome, age_s: int
) -> None:
    driver = Driver(guarded())
    driver.call()
    driver.now_ns += age_s * SECOND_NS

    fail(driver, 2, of(outcome))

    assert circuit(driver) is Circuit.OPEN


@pytest.mark.parametrize("outcome", BROKEN)
def test_what_counts_as_broken_opens_it(outcome: Outcome) -> None:
    driver = Driver(guarded())

    fail(driver, 2, of(outcome))

    assert circuit(driver) is Circuit.OPEN


@pytest.mark.parametrize("outcome", NEUTRAL)
def test_what_says_nothing_about_its_health_neither_opens_it_nor_counts(outcome: Outcome) -> None:
    driver = Driver(guarded(CircuitBreakerSettings(trip=1.0, of=3)))

    # Each of another model: a refusal for going too often holds its own back.
    for number in range(20):
        driver.end(driver.call(model=f"a{number}"), of(outcome))
    fail(driver, 2)
    for number in range(20):
        driver.end(driver.call(model=f"b{number}"), of(outcome))
    assert circuit(driver) is Circuit.CLOSED
    fail(driver)

    assert circuit(driver) is Circuit.OPEN


def test_an_answer_that_is_slow_is_an_answer() -> None:
    driver = Driver(guarded(CircuitBreakerSettings(trip=1.0, of=4)))

    fail(driver, 3)
    fail(driver, 1, SLOW)
    fail(driver, 3)

    assert circuit(driver) is Circuit.CLOSED


def test_what_is_older_than_its_window_is_forgotten() -> None:
    driver = Driver(guarded(CircuitBreakerSettings(trip=1.0, of=2, over_ns=10)))
    fail(driver)

    driver.now_ns = 10
    fail(driver)
    assert circuit(driver) is Circuit.CLOSED
    driver.now_ns = 19
    fail(driver)

    assert circuit(driver) is Circuit.OPEN


def test_what_is_pushed_out_by_newer_samples_counts_no_longer() -> None:
    driver = Driver(guarded(CircuitBreakerSettings(trip=0.5, of=8)))
    fail(driver, 3)
    fail(driver, 8, SUCCEEDED)

    fail(driver)

    assert circuit(driver) is Circuit.CLOSED


def test_a_window_of_nothing_remembers_nothing() -> None:
    driver = Driver(guarded(CircuitBreakerSettings(of=1, over_ns=0)))

    fail(driver, 20)

    assert circuit(driver) is Circuit.CLOSED


def test_each_provider_has_its_own() -> None:
    driver = Driver(program(providers=[provider("p", breaker=SENSITIVE), provider("q", breaker=SENSITIVE)]))

    fail(driver, 2)

    assert circuit(driver) is Circuit.OPEN
    assert driver.rest.pools["q"].circuit is Circuit.CLOSED
    assert driver.grant(driver.call(provider="q"))


# ---- for how long ----


@given(seed=st.integers(0, 10_000))
def test_its_pause_is_spread_by_a_fifth(seed: int) -> None:
    driver = tripped(seed=seed)

    assert 0.8 * PAUSE_NS <= opens_ns(driver) <= 1.2 * PAUSE_NS
    call = driver.call()
    assert driver.scheduler.wakeup_ns() == opens_ns(driver)
    driver.at(opens_ns(driver))
    assert driver.grant(call)


def test_proxies_that_lost_a_provider_together_do_not_come_back_together() -> None:
    assert len({opens_ns(tripped(seed=seed)) for seed in range(20)}) == 20


def test_a_pause_is_a_sixth_of_the_outage_between_a_second_and_the_policy_s_longest() -> None:
    driver = tripped()
    seen = set()
    for _ in range(30):
        lasted_ns, pause_ns = driver.now_ns, opens_ns(driver) - driver.now_ns
        expected_ns = min(OPEN_NS, max(PAUSE_NS, lasted_ns // 6))
        seen.add(expected_ns)
        assert 0.8 * expected_ns <= pause_ns <= 1.2 * expected_ns
        half_open(driver)
        fail(driver)

    assert {PAUSE_NS, OPEN_NS} < seen


@pytest.mark.slow
@given(seed=st.integers(0, 1_000), outage_s=st.integers(1, 300), open_s=st.integers(1, 60))
def test_an_outage_is_prolonged_by_no_more_than_a_fifth_or_the_shortest_pause(
    seed: int, outage_s: int, open_s: int
) -> None:
    driver = tripped(CircuitBreakerSettings(trip=1.0, of=2, open_ns=open_s * SECOND_NS), seed=seed)
    ends_ns = outage_s * SECOND_NS

    while circuit(driver) is not Circuit.CLOSED:
        half_open(driver)
        fail(driver, ended=FAILED if driver.now_ns < ends_ns else SUCCEEDED)

    assert driver.now_ns <= ends_ns + max(1.2 * PAUSE_NS, 1.2 * ends_ns / 6)


def test_a_pause_that_the_policy_wants_shorter_is_shorter() -> None:
    driver = tripped(CircuitBreakerSettings(trip=1.0, of=2, open_ns=SECOND_NS // 10))

    assert opens_ns(driver) <= 0.12 * SECOND_NS


@pytest.mark.parametrize(
    ("asked_ns", "waits_ns"),
    [(10 * SECOND_NS, 10 * SECOND_NS), (600 * SECOND_NS, RETRY_AFTER_MAX_NS)],
    ids=["a while", "too long to be believed"],
)
def test_the_provider_may_ask_for_a_longer_pause_up_to_a_bound(asked_ns: int, waits_ns: int) -> None:
    driver = Driver(guarded())
    fail(driver)
    fail(driver, ended=AttemptResult(outcome=Outcome.OVERLOADED, status=529, retry_after_ns=asked_ns))

    assert opens_ns(driver) == waits_ns


def test_the_provider_may_not_ask_for_a_shorter_pause() -> None:
    driver = Driver(guarded())
    fail(driver)
    fail(driver, ended=AttemptResult(outcome=Outcome.OVERLOADED, status=529, retry_after_ns=1))

    assert opens_ns(driver) >= 0.8 * PAUSE_NS


def test_once_it_has_closed_its_next_pause_is_short_again() -> None:
    driver = tripped()
    for _ in range(15):
        half_open(driver)
        fail(driver)
    assert opens_ns(driver) - driver.now_ns > 1.2 * PAUSE_NS
    half_open(driver)
    fail(driver, 2, SUCCEEDED)
    assert circuit(driver) is Circuit.CLOSED

    fail(driver, 2)

    assert opens_ns(driver) - driver.now_ns <= 1.2 * PAUSE_NS


# ---- while it is open ----


def test_open_lets_nobody_through_and_whoever_comes_waits() -> None:
    driver = tripped()
    first, second = driver.calls(2)

    driver.at(opens_ns(driver) - 1)
    assert not {first, second} & set(driver.granted)
    half_open(driver)

    assert driver.granted[-1] == first
    assert driver.grant(first).reason is Reason.BREAKER_OPEN


def test_what_was_in_flight_when_it_opened_says_nothing_new() -> None:
    driver = Driver(guarded())
    good, bad = driver.calls(2)
    fail(driver, 2)
    before = opens_ns(driver)

    driver.end(bad, AttemptResult(outcome=Outcome.OVERLOADED, retry_after_ns=300 * SECOND_NS))
    driver.end(good)

    assert (circuit(driver), opens_ns(driver)) == (Circuit.OPEN, before)


def test_a_policy_that_refuses_sends_away_who_waits_and_who_comes_with_an_honest_time() -> None:
    among_four = CircuitBreakerSettings(trip=0.5, of=4)
    driver = Driver(
        program(providers=[provider("p", limit=2, breaker=among_four, while_open=WhileOpen.REFUSE), provider("q")])
    )
    first, second, waiting = driver.calls(3)
    elsewhere = driver.call(provider="q")
    driver.end(first, FAILED)  # which lets `waiting` go
    late = driver.calls(2)

    driver.end(second, FAILED)
    late.append(driver.call())

    for call in late:
        refusal = driver.refusal(call)
        assert refusal.reason is Reason.BREAKER_OPEN
        assert "`p`" in refusal.message
        assert refusal.retry_after_ns == opens_ns(driver)
    assert (driver.rest.waiting, driver.rest.inflight) == (0, 2)
    assert driver.grant(waiting)
    assert driver.grant(elsewhere)


def test_a_policy_that_refuses_lets_nothing_rest_for_a_provider_that_is_left_alone() -> None:
    policy = program(
        providers=[provider("p", breaker=SENSITIVE, while_open=WhileOpen.REFUSE)],
        retries=[RetrySettings(first_ns=SECOND_NS, jitter=Jitter.NONE)],
    )
    driver = Driver(policy)
    resting, other = driver.calls(2)
    driver.end(resting, FAILED)
    assert driver.rest.waiting == 1

    driver.end(other, FAILED)

    assert driver.refusal(resting).reason is Reason.BREAKER_OPEN
    assert driver.rest.waiting == 0


@pytest.mark.parametrize("before", [Reason.NONE, Reason.BREAKER_OPEN], ids=["moved there", "waited there"])
def test_a_new_policy_that_refuses_sends_away_who_waits_for_a_provider_that_is_left_alone(before: Reason) -> None:
    policy = program(providers=[provider("p", breaker=SENSITIVE), provider("q", limit=1)])
    driver = Driver(policy)
    driver.call(provider="q")
    fail(driver, 2)
    waiting = driver.call(provider="q" if before is Reason.NONE else "p")

    driver.load(guarded(while_open=WhileOpen.REFUSE))

    assert driver.refusal(waiting).reason is Reason.BREAKER_OPEN
    assert driver.rest.waiting == 0


def test_a_policy_that_holds_again_lets_them_wait() -> None:
    driver = tripped(while_open=WhileOpen.REFUSE)

    driver.load(guarded())
    call = driver.call()

    half_open(driver)
    assert driver.grant(call)


# ---- half open ----


def test_half_open_lets_one_call_through_at_a_time() -> None:
    driver = tripped()
    first, second, third = driver.calls(3)
    half_open(driver)
    assert driver.granted[-1] == first
    fourth = driver.call()
    assert fourth not in driver.answers

    assert driver.end(first) == [second]
    assert driver.end(second) == [third, fourth]
    assert circuit(driver) is Circuit.CLOSED


def test_half_open_lets_whoever_comes_next_through_if_nobody_waits() -> None:
    driver = tripped()
    half_open(driver)

    probe, other = driver.calls(2)

    assert driver.granted[-1] == probe
    assert other not in driver.answers
    assert driver.end(probe) == [other]


@pytest.mark.parametrize("outcome", BROKEN)
def test_a_probe_that_fails_opens_it_again(outcome: Outcome) -> None:
    driver = tripped()
    probe, other = driver.calls(2)
    half_open(driver)

    assert driver.end(probe, of(outcome)) == []

    assert circuit(driver) is Circuit.OPEN
    assert other not in driver.answers


@pytest.mark.parametrize("outcome", NEUTRAL)
def test_a_probe_that_says_nothing_lets_the_next_one_try(outcome: Outcome) -> None:
    driver = tripped()
    probe, second, third = (driver.call(model=model) for model in ("a", "b", "b"))
    half_open(driver)

    assert driver.end(probe, of(outcome)) == [second]
    assert driver.end(second) == [third]

    assert circuit(driver) is Circuit.HALF_OPEN


@pytest.mark.parametrize("probes", [1, 2, 3])
def test_so_many_successes_in_a_row_close_it(probes: int) -> None:
    driver = tripped(CircuitBreakerSettings(trip=1.0, of=2, probes=probes))
    half_open(driver)

    for _ in range(probes - 1):
        fail(driver, ended=SLOW)
        assert circuit(driver) is Circuit.HALF_OPEN
    fail(driver, ended=SUCCEEDED)

    assert circuit(driver) is Circuit.CLOSED


def test_a_failure_between_two_successes_begins_the_row_anew() -> None:
    driver = tripped()
    half_open(driver)
    fail(driver, ended=SUCCEEDED)
    fail(driver)
    half_open(driver)

    fail(driver, ended=SUCCEEDED)

    assert circuit(driver) is Circuit.HALF_OPEN


def test_an_attempt_that_began_before_is_no_probe() -> None:
    driver = Driver(guarded())
    old = driver.calls(3)
    fail(driver, 2)
    half_open(driver)
    probe, waiting = driver.calls(2)

    for call in old[:2]:
        assert driver.end(call) == []
    driver.end(old[2], FAILED)

    assert circuit(driver) is Circuit.HALF_OPEN
    assert waiting not in driver.answers
    assert driver.end(probe) == [waiting]


def test_a_probe_whose_agent_hangs_up_makes_room_for_another() -> None:
    driver = tripped()
    probe, other = driver.calls(2)
    half_open(driver)

    driver.cancel(probe)
    assert other not in driver.answers

    assert driver.end(probe, IGNORED) == [other]


def test_a_probe_is_one_call_through_a_reload() -> None:
    driver = tripped()
    probe, other = driver.calls(2)
    half_open(driver)

    driver.load(guarded())

    assert other not in driver.answers
    assert driver.end(probe) == [other]


def test_a_probe_is_capped_like_any_call() -> None:
    driver = Driver(
        program(providers=[provider("p", breaker=SENSITIVE), provider("q")], agents=[agent("ci", concurrency=1)])
    )
    fail(driver, 2)
    elsewhere = driver.call(agent="ci", provider="q")
    capped, other = driver.call(agent="ci"), driver.call()
    half_open(driver)
    assert driver.granted[-1] == other
    driver.end(other)

    # Nobody is left to try it but the call whose agent is at its cap.
    assert driver.end(elsewhere) == [capped]


def test_what_it_remembered_is_forgotten_when_it_closes() -> None:
    driver = tripped()
    half_open(driver)
    fail(driver, 2, SUCCEEDED)

    fail(driver)
    assert circuit(driver) is Circuit.CLOSED
    fail(driver)

    assert circuit(driver) is Circuit.OPEN


def test_a_probe_whose_answer_begins_well_closes_it() -> None:
    driver = tripped(CircuitBreakerSettings(trip=1.0, of=2, probes=1))
    probe, other = driver.calls(2)
    half_open(driver)

    driver.post(ResponseStarted(CallId(probe), (), good=True))

    assert circuit(driver) is Circuit.CLOSED
    assert driver.grant(other)


def test_samples_from_before_the_opening_do_not_count_after_the_closing() -> None:
    driver = Driver(guarded(CircuitBreakerSettings(trip=0.375, of=8, over_ns=3_600 * SECOND_NS, probes=1)))
    before = driver.calls(5)
    fail(driver, 3)
    half_open(driver)
    fail(driver, 1, SUCCEEDED)
    assert circuit(driver) is Circuit.CLOSED

    for call in before:
        driver.end(call, FAILED)
    fail(driver, 2)
    assert circuit(driver) is Circuit.CLOSED
    fail(driver)

    assert circuit(driver) is Circuit.OPEN


# ---- what is told ----


def test_every_change_is_told_once_with_what_it_came_of() -> None:
    driver = Driver(guarded())
    commands = []
    for call in driver.calls(2):
        commands += driver.post(AttemptEnded(CallId(call), FAILED))
    commands += driver.at(opens_ns(driver))
    for _ in range(2):
        commands += driver.post(AttemptEnded(CallId(driver.call()), SUCCEEDED))

    told = [(each.circuit, each.because) for each in commands if isinstance(each, LimitChanged)]

    assert told == [
        (Circuit.OPEN, Outcome.FAILED),
        (Circuit.HALF_OPEN, None),
        (Circuit.CLOSED, Outcome.SUCCEEDED),
    ]


# ---- against an oracle ----


def _oracle_opens(outcomes: list[bool | None], of: int, enough: int) -> bool:
    """The definition, in order of grant: True failed, False succeeded, None is in flight."""
    known = [failed for failed in outcomes if failed is not None][-of:]
    return sum(known) >= enough or (len(known) >= IN_A_ROW and all(known[-IN_A_ROW:]))


@given(
    of=st.integers(1, 12),
    trip=st.sampled_from([0.1, 0.5, 1.0]),
    steps=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=40),
)
def test_it_is_open_from_the_first_failure_on_at_which_the_latest_attempts_say_so(
    of: int, trip: float, steps: list[tuple[int, bool]]
) -> None:
    driver = Driver(guarded(CircuitBreakerSettings(trip=trip, of=of, over_ns=3_600 * SECOND_NS)))
    outcomes: list[bool | None] = []
    inflight: list[int] = []
    for pick, failed in steps:
        while len(inflight) <= pick:
            inflight.append(driver.call())
            outcomes.append(None)
        call = inflight.pop(pick)
        outcomes[call] = failed
        driver.end(call, FAILED if failed else SUCCEEDED)

        opens = failed and _oracle_opens(outcomes, of, max(1, ceil(trip * of)))
        assert (circuit(driver) is Circuit.OPEN) is opens
        if opens:
            return
