"""Models in memory: which calls may go, who rides, who is let in at last, and how long a model may take to load."""

from __future__ import annotations

from itertools import pairwise

import attrs
import pytest

from hivemind_trio.model import Outcome, Reason
from hivemind_trio.policy import AimdSettings, CircuitBreakerSettings, LaneSettings, Program, Resident, WhileOpen
from hivemind_trio.scheduler import AttemptResult, CallId, ResponseStarted
from hivemind_trio.scheduler.caching.model_residency import KEEP_NS, MODELS_MAX, OTHERS, LoadedModels
from hivemind_trio.scheduler.health.adaptive_timeout import SAMPLES_MIN
from hivemind_trio.scheduler.limits.rate_limits import CLAIM_AFTER_NS
from tests.scheduler.driver import Driver
from tests.support.programs import SECOND_NS, TIMEOUTS, agent, lane, program, provider, wish

SWAP_NS = 20 * SECOND_NS
MAX_NS = 90 * SECOND_NS


def gpu(
    models: int | None = 1,
    *,
    limit: int = 4,
    lanes: tuple[LaneSettings, ...] = (),
    aimd: AimdSettings | None = None,
    cap: int | None = None,
) -> Program:
    resident = Resident(models, SWAP_NS) if models is not None else None
    return program(
        providers=[provider("gpu", limit=limit, resident=resident, aimd=aimd)],
        lanes=lanes,
        agents=[agent("capped", concurrency=cap)],
    )


def rides(driver: Driver, model: str, *, most_ns: int = MAX_NS, caller: str = "x", lane: str | None = None) -> int:
    """A call with `affinity`."""
    return driver.ask(wish(model=model, affinity_ns=most_ns, lane=lane), caller)


def waits(driver: Driver, call: int) -> bool:
    return call not in driver.answers


# ---- what is in memory ----


def test_a_model_with_calls_in_flight_stays_and_goes_when_they_have_ended() -> None:
    driver = Driver(gpu())
    first, second = driver.calls(2, model="a")
    other = driver.call(model="b")
    assert waits(driver, other)

    assert driver.end(first) == []
    assert driver.end(second) == [other]
    assert driver.grant(other).reason is Reason.MODEL_RESIDENT


@pytest.mark.parametrize(("models", "at_once"), [(1, 1), (2, 2), (3, 3), (None, 4)])
def test_as_many_models_are_in_use_as_fit(models: int | None, at_once: int) -> None:
    driver = Driver(gpu(models))

    for model in "abcd":
        driver.call(model=model)

    assert len(driver.granted) == at_once


def test_the_model_that_was_asked_for_least_lately_goes() -> None:
    driver = Driver(gpu(2))
    first, second = driver.call(model="a"), driver.call(model="b")
    driver.end(second)
    driver.end(first)
    again = driver.call(model="a")
    driver.end(again)
    third, kept = driver.call(model="c"), driver.call(model="a")

    assert waits(driver, driver.call(model="b"))
    assert first_byte_ns(driver, third) > first_byte_ns(driver, kept)


def test_a_call_of_no_model_and_a_tag_that_says_nothing_change_none() -> None:
    driver = Driver(gpu())
    driver.call(model="qwen3")

    assert not waits(driver, driver.call(model=""))
    assert not waits(driver, driver.call(model="qwen3:latest"))
    assert waits(driver, driver.call(model="qwen3:4b"))


def test_a_lane_that_is_next_does_not_wait_for_a_model_while_another_can_go() -> None:
    driver = Driver(gpu(lanes=(lane("few", priority=1), lane("many"))))
    driver.call(model="a", lane="many")
    other = driver.call(model="b", lane="few")

    assert not waits(driver, driver.call(model="a", lane="many"))
    assert waits(driver, other)


# ---- who is let in at last ----


def test_who_is_passed_for_too_long_without_affinity_is_waited_for() -> None:
    driver = Driver(gpu(limit=2))
    running = driver.call(model="a")
    other = driver.call(model="b")
    driver.now_ns = CLAIM_AFTER_NS - 1
    assert not waits(driver, last := driver.call(model="a"))
    driver.now_ns = CLAIM_AFTER_NS + 1

    driver.end(running)
    late = driver.call(model="a")

    assert waits(driver, late)
    assert driver.end(last) == [other]
    assert driver.end(other) == [late]


@pytest.mark.parametrize(("affinity_ns", "order"), [(MAX_NS, "aab"), (None, "baa")])
def test_a_call_lets_those_pass_whose_model_is_in_memory_or_takes_its_turn(affinity_ns: int | None, order: str) -> None:
    driver = Driver(gpu(limit=1))
    driver.call(model="a")
    names = {driver.ask(wish(model=model, affinity_ns=affinity_ns), model): model for model in "baa"}

    for _ in names:
        driver.end(driver.granted[-1])

    assert "".join(names[call] for call in driver.granted[1:]) == order


@pytest.mark.parametrize("most_ns", [MAX_NS, 5 * SECOND_NS])
def test_nobody_rides_past_one_who_has_waited_for_its_max(most_ns: int) -> None:
    driver = Driver(gpu(limit=2))
    first = rides(driver, "a", most_ns=most_ns)
    other = rides(driver, "b", most_ns=most_ns, caller="other")
    driver.now_ns = most_ns - 1
    assert not waits(driver, second := rides(driver, "a", most_ns=most_ns))
    third = rides(driver, "a", most_ns=most_ns)
    assert driver.end(first) == [third]

    driver.now_ns = most_ns
    fourth = rides(driver, "a", most_ns=most_ns)

    assert driver.end(second) == []
    assert waits(driver, rides(driver, "a", most_ns=most_ns)), "there is a slot, and nobody takes it"
    assert driver.end(third) == [other]
    assert waits(driver, fourth)


def test_a_claim_is_over_all_lanes_and_goes_before_reserves_and_weights() -> None:
    driver = Driver(gpu(limit=2, lanes=(lane("chat", weight=9, reserve=1, priority=9), lane("batch"))))
    first = rides(driver, "a", lane="chat")
    other = rides(driver, "b", lane="batch", caller="other")
    driver.now_ns = MAX_NS
    waiting = [rides(driver, "a", lane="chat") for _ in range(3)]

    assert driver.end(first) == [other]
    assert all(waits(driver, call) for call in waiting)


def test_two_crowds_that_have_waited_for_long_do_not_take_turns_call_by_call() -> None:
    driver = Driver(gpu(limit=1))
    running = rides(driver, "a")
    names = {rides(driver, model, caller=model): model for model in "abab" * 40}

    went = "a"
    for _ in range(120):
        driver.now_ns += 10 * SECOND_NS
        (running,) = driver.end(running)
        went += names[running]

    changes = sum(one != other for one, other in pairwise(went))
    assert 120 * 10 // 90 - 1 <= changes <= 120 * 10 // 90 + 1


def test_a_claim_holds_nobody_up_if_its_calls_lack_something_else() -> None:
    driver = Driver(gpu(2, cap=1))
    driver.ask(wish(model="a", agent="capped"))
    driver.ask(wish(model="b"))
    driver.ask(wish(model="c", agent="capped", affinity_ns=MAX_NS))
    driver.now_ns = 2 * MAX_NS

    assert not waits(driver, driver.call(model="a"))
    assert not waits(driver, driver.call(model="b"))


def test_of_several_models_the_one_that_is_nearest_to_being_idle_makes_room() -> None:
    driver = Driver(gpu(2, limit=6))
    few = driver.call(model="a")
    driver.calls(2, model="b")
    other = rides(driver, "c")
    driver.now_ns = MAX_NS

    assert waits(driver, held := driver.call(model="a"))
    assert not waits(driver, driver.call(model="b"))
    assert driver.end(few) == [other]
    assert waits(driver, held)


@pytest.mark.parametrize("leaves", ["cancelled", "late", "shed"])
def test_when_the_one_who_is_waited_for_goes_away_the_others_go(leaves: str) -> None:
    lanes = (lane("short", queue=1, shed_oldest=True),)
    driver = Driver(gpu(limit=2, lanes=lanes))
    driver.call(model="a")
    deadline_ns = MAX_NS + SECOND_NS if leaves == "late" else None
    other = driver.ask(wish(model="b", affinity_ns=MAX_NS, lane="short", deadline_ns=deadline_ns))
    driver.now_ns = MAX_NS
    held = driver.call(model="a")
    assert waits(driver, held)

    if leaves == "cancelled":
        driver.cancel(other)
    elif leaves == "late":
        driver.at(MAX_NS + SECOND_NS)
    else:
        driver.call(model="b", lane="short")

    assert not waits(driver, held)


# ---- a cold model is no hang ----


def first_byte_ns(driver: Driver, call: int) -> int:
    timeouts = driver.grant(call).timeouts
    assert timeouts is not None
    return timeouts.first_byte_ns


def test_until_a_model_has_answered_its_calls_may_be_silent_for_longer() -> None:
    driver = Driver(gpu(limit=8))
    first, mate = driver.calls(2, model="a")
    driver.post(ResponseStarted(CallId(first), ()))
    later = driver.call(model="a")

    assert [first_byte_ns(driver, call) - TIMEOUTS.first_byte_ns for call in (first, mate, later)] == [
        SWAP_NS,
        SWAP_NS,
        0,
    ]


def test_an_answer_that_is_an_error_loads_nothing() -> None:
    driver = Driver(gpu())
    first = driver.call(model="a")
    driver.post(ResponseStarted(CallId(first), (), good=False))
    driver.end(first, AttemptResult(outcome=Outcome.FAILED, status=500))

    assert first_byte_ns(driver, driver.call(model="a")) == TIMEOUTS.first_byte_ns + SWAP_NS


@pytest.mark.parametrize(("idle_ns", "cold"), [(KEEP_NS - 1, False), (KEEP_NS, True)])
def test_a_model_that_nobody_has_asked_for_in_five_minutes_is_cold_again(idle_ns: int, *, cold: bool) -> None:
    driver = Driver(gpu())
    driver.end(driver.call(model="a"))
    driver.now_ns = idle_ns
    first, mate = driver.calls(2, model="a")

    assert (first_byte_ns(driver, first) > TIMEOUTS.first_byte_ns) is cold
    assert (first_byte_ns(driver, mate) > TIMEOUTS.first_byte_ns) is cold


def test_what_is_usual_is_not_learned_from_a_cold_model() -> None:
    driver = Driver(gpu())
    for model in ["a", "b"] * SAMPLES_MIN:
        answered = AttemptResult(outcome=Outcome.SUCCEEDED, status=200, first_byte_ns=SECOND_NS, silence_ns=None)
        driver.end(driver.call(model=model), answered)

    assert first_byte_ns(driver, driver.call(model="a")) == TIMEOUTS.first_byte_ns + SWAP_NS


@pytest.mark.parametrize(("models", "limit"), [(1, 8), (None, 4)])
def test_to_load_a_model_is_no_sign_of_overload(models: int | None, limit: int) -> None:
    driver = Driver(gpu(models, limit=8, aimd=AimdSettings(low=1, start=8, cooldown_ns=0)))
    first = driver.call(model="a")
    driver.now_ns = SWAP_NS
    driver.end(first, AttemptResult(outcome=Outcome.SLOW, status=200, first_byte_ns=SWAP_NS, silence_ns=None))

    assert (driver.rest.pools["gpu"].limit == 8) is (limit == 8)


def test_a_wait_is_longer_by_the_change_that_it_needs() -> None:
    told = []
    for model in ("a", "b"):
        driver = Driver(program(providers=[provider("gpu", limit=1, queue=0, resident=Resident(1, SWAP_NS))]))
        driver.post(ResponseStarted(CallId(driver.call(model="a")), ()))
        told.append(driver.refusal(driver.call(model=model)).retry_after_ns or 0)

    assert told[0] < 2 * SECOND_NS <= SWAP_NS < told[1]


# ---- reloads ----


def test_models_stay_in_memory_over_a_reload_as_many_as_fit() -> None:
    driver = Driver(gpu(2))
    driver.end(driver.call(model="a"))
    running = driver.call(model="b")
    driver.load(gpu(1))

    assert waits(driver, back := driver.call(model="a"))
    assert driver.end(running) == [back]


def test_a_policy_that_minds_models_knows_those_in_flight() -> None:
    driver = Driver(gpu(None))
    running = [driver.call(model="a"), driver.call(model="b")]
    driver.load(gpu(1))
    other = driver.call(model="c")
    assert not waits(driver, driver.call(model="a"))

    assert [driver.end(call) for call in (*running, 3)] == [[], [], [other]]


def test_a_policy_that_minds_them_no_more_lets_everybody_go() -> None:
    driver = Driver(gpu(1, limit=3))
    running = [driver.call(model="a"), *(driver.call(model=model) for model in "bc")]

    driver.load(gpu(None, limit=3))

    assert [waits(driver, call) for call in running] == [False] * 3
    assert [driver.end(call) for call in running] == [[], [], []]


def test_who_waits_keeps_its_age_over_a_reload() -> None:
    driver = Driver(gpu())
    running = rides(driver, "a")
    other = rides(driver, "b")
    driver.now_ns = MAX_NS
    driver.load(gpu())

    assert waits(driver, rides(driver, "a"))
    assert driver.end(running) == [other]


def test_a_reload_does_not_forget_when_a_model_was_taken_out() -> None:
    driver = Driver(gpu(limit=1))
    driver.call(model="d")
    first, second = driver.calls(2, model="a")
    rides(driver, "d", most_ns=5 * SECOND_NS)
    driver.now_ns = 6 * SECOND_NS
    driver.end(0)
    driver.load(gpu(limit=1))

    assert driver.end(first) == [second]


# ---- bounds ----


def test_models_are_forgotten_that_are_neither_in_memory_nor_waited_for() -> None:
    driver = Driver(gpu())
    for number in range(3 * MODELS_MAX):
        driver.end(driver.call(model=f"m{number}"))

    assert driver.scheduler.state.pools["gpu"].residents.name("new") == "new"


def test_no_more_than_so_many_models_are_told_apart_and_all_are_served() -> None:
    driver = Driver(gpu(limit=2))
    running = driver.call(model="m")
    calls = [driver.call(model=f"m{number}") for number in range(2 * MODELS_MAX)]
    assert driver.scheduler.state.pools["gpu"].residents.name("new") == OTHERS

    now, served = [running], 0
    while now:
        now += driver.end(now.pop(0))
        served += 1

    assert served == 1 + len(calls)


def test_one_that_is_not_minded_keeps_nothing() -> None:
    residents = LoadedModels()
    for number in range(9):
        residents.take(f"m{number}", 0)

    assert residents.may("x")
    assert residents.swap_ns("x", 0) == 0
    assert not residents.models


def test_a_call_that_is_tried_again_holds_its_model_no_longer() -> None:
    retried = attrs.evolve(
        gpu(),
        providers={
            "gpu": provider(
                "gpu", resident=Resident(1, SWAP_NS), while_open=WhileOpen.HOLD, breaker=CircuitBreakerSettings()
            )
        },
    )
    driver = Driver(retried)
    first, other = driver.call(model="a"), driver.call(model="b")

    assert driver.end(first, AttemptResult(outcome=Outcome.FAILED, status=500)) == [other]
