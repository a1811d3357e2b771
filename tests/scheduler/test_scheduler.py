"""One example per promise; `test_scheduler_machine.py` searches for what these did not think of."""

from __future__ import annotations

import pytest

from hivemind_trio.model import Api, Reason, Request
from hivemind_trio.policy import UNKNOWN_AGENT, Program
from hivemind_trio.scheduler import AttemptEnded, CallId, Scheduler
from tests.support.ends import IGNORED, SUCCEEDED
from tests.support.policies import compiled
from tests.support.programs import SECOND_NS, agent, lane, program, provider

from .driver import Driver

# ---- arriving ----


def test_a_call_that_fits_goes_at_once() -> None:
    driver = Driver(program(providers=[provider("p", limit=1, groups={"opus*": 1})], agents=[agent("ci")]))

    grant = driver.grant(driver.call(agent="ci", model="opus-1"))

    assert grant.reason is Reason.NONE
    assert grant.waited_ns == 0
    assert grant.permit is not None
    assert (grant.permit.provider, grant.permit.group, grant.permit.agent) == ("p", "opus*", "ci")


def test_a_call_that_the_policy_denies_is_refused_in_the_words_of_the_rule() -> None:
    driver = Driver(program())

    refusal = driver.refusal(driver.call(deny=True))

    assert (refusal.reason, refusal.message) == (Reason.DENIED, "denied by the policy: not on a Sunday")
    assert refusal.retry_after_ns is None


def test_an_unknown_agent_is_refused_where_only_declared_ones_are_served() -> None:
    driver = Driver(program(agents=[agent("ci")], refuse_unknown=True))

    assert driver.refusal(driver.call(caller="ci")).reason is Reason.UNKNOWN_AGENT
    assert driver.grant(driver.call(agent="ci")).permit is not None


def test_a_model_that_nobody_serves_is_refused() -> None:
    driver = Driver(program(providers=[provider("p", serves=["claude-*"])]))

    refusal = driver.refusal(driver.call(model="gpt-5"))

    assert refusal.reason is Reason.NO_PROVIDER
    assert "`gpt-5`" in refusal.message


def test_what_needs_no_slot_goes_at_once_past_everybody_and_holds_nothing() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)]))
    driver.calls(3)

    grant = driver.grant(driver.call(needs_slot=False))

    assert grant.permit is None
    assert driver.rest.inflight == 1
    with pytest.raises(ValueError, match="no attempt in flight"):
        driver.end(grant.call_id)


def test_what_needs_no_slot_is_denied_all_the_same() -> None:
    driver = Driver(program())

    assert driver.refusal(driver.call(needs_slot=False, deny=True)).reason is Reason.DENIED


# ---- caps ----


def test_unknown_callers_are_capped_each_on_its_own() -> None:
    driver = Driver(program(unknown=agent(UNKNOWN_AGENT, concurrency=1)))

    first, second, other = driver.call("x"), driver.call("x"), driver.call("y")

    assert driver.granted == [first, other]
    assert driver.end(first) == [second]


def test_a_caller_with_the_name_of_a_declared_agent_does_not_use_up_its_cap() -> None:
    policy = program(agents=[agent("ci", concurrency=1)], unknown=agent(UNKNOWN_AGENT, concurrency=1))
    driver = Driver(policy)

    impostor, declared = driver.call("ci"), driver.call(agent="ci")

    assert driver.granted == [impostor, declared]


def test_a_lane_whose_share_rounds_to_nothing_still_has_one_slot() -> None:
    driver = Driver(program(providers=[provider("p", limit=2)], lanes=[lane("a", max="10%")]))

    first, second = driver.calls(2, lane="a")

    assert driver.granted == [first]
    assert driver.end(first) == [second]


def test_a_head_that_its_agent_blocks_is_passed() -> None:
    driver = Driver(program(providers=[provider("p", limit=2)], agents=[agent("ci", concurrency=1)]))
    running = driver.call(agent="ci")
    blocked = driver.call(agent="ci", priority=9)

    assert driver.grant(driver.call("x"))

    assert driver.end(running) == [blocked]
    assert driver.grant(blocked).reason is Reason.AGENT_CONCURRENCY


def test_a_head_that_its_limits_group_blocks_is_passed() -> None:
    driver = Driver(program(providers=[provider("p", limit=2, groups={"opus*": 1})]))
    opus, other, blocked, passing = (
        driver.call(model="opus-1"),
        driver.call(),
        driver.call(model="opus-1", priority=9),
        driver.call(),
    )

    assert driver.end(other) == [passing]
    assert driver.end(opus) == [blocked]


def test_an_agent_blocked_at_two_providers_is_served_in_order_of_arrival() -> None:
    # Were the provider whose slot has just come back always asked first, `q` would be starved by a busy `p`.
    policy = program(providers=[provider("p", limit=1), provider("q", limit=1)], agents=[agent("ci", concurrency=1)])
    driver = Driver(policy)
    running = driver.call(agent="ci", provider="p")
    at_q = driver.call(agent="ci", provider="q")
    at_p = driver.calls(3, agent="ci", provider="p")

    assert driver.end(running) == [at_q]
    assert driver.end(at_q) == [at_p[0]]


# ---- lanes ----


def test_a_reserve_is_kept_free_for_its_lane() -> None:
    driver = Driver(program(providers=[provider("p", limit=3)], lanes=[lane("a", reserve=1)]))

    driver.calls(4)
    urgent = driver.call(lane="a")

    assert driver.granted == [0, 1, urgent]


def test_a_lane_that_is_due_its_reserve_goes_before_all_weights() -> None:
    policy = program(providers=[provider("p", limit=2)], lanes=[lane("a", reserve=1, max=1), lane("b", weight=1000)])
    driver = Driver(policy)
    first, _ = driver.call(lane="a"), driver.call(lane="b")
    reserved, _ = driver.call(lane="a"), driver.calls(5, lane="b")

    assert driver.end(first) == [reserved]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_reserves_beyond_the_limit_shut_no_lane_out(limit: int) -> None:
    lanes = [lane("a", reserve=2), lane("b", reserve=2), lane("c")]
    driver = Driver(program(providers=[provider("p", limit=limit)], lanes=lanes))

    for name in ("c", "b", "a"):
        call = driver.call(lane=name)
        assert driver.granted[-1] == call
        driver.end(call)


def test_idleness_earns_a_lane_no_credit() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)], lanes=[lane("a"), lane("b")]))
    running = driver.call(lane="a")
    driver.calls(100, lane="a")
    for _ in range(50):
        (running,) = driver.end(running)
    driver.calls(50, lane="b")

    served = []
    for _ in range(20):
        (running,) = driver.end(running)
        grant = driver.grant(running)
        assert grant.permit is not None
        served.append(grant.permit.lane)

    assert served.count("b") in (10, 11)


def test_equals_are_served_in_order_of_arrival() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)]))
    calls = driver.calls(10, "x")

    for call in calls:
        driver.end(call)

    assert driver.granted == calls


def test_a_higher_priority_goes_first() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)]))
    running, low, high = driver.call(), driver.call(priority=1), driver.call(priority=2)

    assert driver.end(running) == [high]
    assert driver.end(high) == [low]


def test_with_aging_a_flood_of_higher_priority_starves_nobody() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)], lanes=[lane("a", aging_ns=10)]))
    (running,) = driver.calls(1, lane="a", priority=3)
    patient = driver.call(lane="a", priority=0)

    while running != patient:
        driver.now_ns += 1
        driver.call(lane="a", priority=3)
        (running,) = driver.end(running)

    # Three steps of 10: whoever arrived at 30 or later is not worth more than it is by then.
    assert driver.grant(patient).waited_ns == 30


# ---- bounds ----


def test_a_full_lane_refuses_the_new_call_and_says_when_to_come_back() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)], lanes=[lane("a", queue=2)]))
    driver.calls(3, lane="a")

    refusal = driver.refusal(driver.call(lane="a"))

    assert refusal.reason is Reason.QUEUE_FULL
    assert "lane `a`" in refusal.message
    # Nothing is known of the provider yet: two wait, one more would be third.
    assert refusal.retry_after_ns is not None
    assert 3 * SECOND_NS <= refusal.retry_after_ns <= 3.3 * SECOND_NS


def test_a_lane_may_drop_the_call_that_has_waited_longest_instead() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)], lanes=[lane("a", queue=2, shed_oldest=True)]))
    running, oldest, second = driver.calls(3, lane="a")

    newest = driver.call(lane="a")

    assert driver.refusal(oldest).reason is Reason.SHED_OLDEST
    assert driver.end(running) == [second]
    assert driver.end(second) == [newest]


def test_a_call_may_push_out_the_last_waiting_call_of_its_own_agent_and_is_still_capped() -> None:
    policy = program(
        providers=[provider("p", limit=2)],
        lanes=[lane("a", queue=1, shed_oldest=True)],
        agents=[agent("ci", concurrency=1)],
    )
    driver = Driver(policy)
    first, second = driver.calls(2, "x", lane="a")
    driver.calls(2, lane="a", agent="ci")

    driver.end(first)
    driver.end(second)
    driver.call(agent="ci")

    assert [pool.inflight for pool in driver.rest.pools.values()] == [1]


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        (program(providers=[provider("p", limit=1, queue=1)]), "provider `p`"),
        (program(providers=[provider("p", limit=1)], agents=[agent("ci", queue=1)]), "agent `ci`"),
        (program(providers=[provider("p", limit=1)], max_waiting=1), "in all"),
    ],
)
def test_every_queue_has_its_bound(policy: Program, named: str) -> None:
    driver = Driver(policy)
    driver.calls(2, agent="ci")

    refusal = driver.refusal(driver.call(agent="ci"))

    assert refusal.reason is Reason.QUEUE_FULL
    assert named in refusal.message


def test_a_call_that_fits_is_let_go_though_the_queue_is_full() -> None:
    policy = program(providers=[provider("p", limit=2)], agents=[agent("ci", concurrency=1)], max_waiting=1)
    driver = Driver(policy)
    driver.calls(2, agent="ci")

    assert driver.grant(driver.call("x"))


def test_the_time_to_come_back_follows_the_pace_of_the_provider() -> None:
    driver = Driver(program(providers=[provider("p", limit=1, queue=10)]))
    running = driver.call()
    driver.calls(10)
    for _ in range(5):
        driver.now_ns += 3 * SECOND_NS
        (running,) = driver.end(running)
        driver.call()

    refusal = driver.refusal(driver.call())

    assert refusal.retry_after_ns is not None
    assert 33 * SECOND_NS <= refusal.retry_after_ns <= 36.3 * SECOND_NS


# ---- deadlines ----


def test_a_call_is_refused_at_its_deadline_and_not_a_nanosecond_before() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)], lanes=[lane("a", deadline_ns=5)]))
    driver.call()
    driver.now_ns = 3
    waiting = driver.call(lane="a")

    assert driver.scheduler.wakeup_ns() == 8
    assert driver.at(7) == []
    driver.at(8)

    assert driver.refusal(waiting).reason is Reason.DEADLINE
    assert driver.refusal(waiting).waited_ns == 5
    assert "provider `p` was at its concurrency limit of 1" in driver.refusal(waiting).message
    assert driver.scheduler.wakeup_ns() is None


def test_a_slot_that_comes_back_at_the_deadline_goes_to_somebody_else() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)]))
    running, late, patient = driver.call(), driver.call(deadline_ns=5), driver.call()
    driver.now_ns = 5

    assert driver.end(running) == [patient]
    assert driver.refusal(late).reason is Reason.DEADLINE


def test_a_call_without_patience_goes_at_once_or_not_at_all() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)]))

    assert driver.grant(driver.call(deadline_ns=0))
    assert driver.refusal(driver.call(deadline_ns=0)).reason is Reason.DEADLINE


# ---- ending ----


def test_a_call_that_is_cancelled_while_it_waits_is_passed_over() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)]))
    running, gone, next_one = driver.calls(3)

    driver.cancel(gone)

    assert gone not in driver.answers
    assert driver.end(running) == [next_one]


def test_a_call_that_is_cancelled_in_flight_keeps_its_slot_until_the_attempt_has_ended() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)]))
    running, waiting = driver.calls(2)

    driver.cancel(running)

    assert waiting not in driver.answers
    assert driver.end(running, IGNORED) == [waiting]


def test_an_attempt_that_ends_twice_is_a_bug_of_the_driver_and_changes_nothing() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)]))
    first, second, _ = driver.calls(3)
    driver.end(first)
    before = driver.rest

    with pytest.raises(ValueError, match="no attempt in flight"):
        driver.scheduler.handle(AttemptEnded(CallId(first), SUCCEEDED), 99)

    assert driver.rest == before
    assert driver.granted == [first, second]


def test_time_does_not_run_backwards() -> None:
    driver = Driver(program())
    driver.at(5)

    with pytest.raises(ValueError, match="backwards"):
        driver.at(4)


def test_draining_refuses_who_waits_and_who_comes_and_lets_the_others_finish() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)]))
    running, waiting = driver.calls(2)

    driver.drain()
    late = driver.call(needs_slot=False)

    for call in (waiting, late):
        assert driver.refusal(call).reason is Reason.DRAINING
        assert driver.refusal(call).retry_after_ns == SECOND_NS
    assert driver.rest.draining
    assert driver.rest.inflight == 1
    assert driver.end(running) == []


# ---- reload ----


def test_a_lowered_limit_drains_and_a_raised_one_takes_effect_at_once() -> None:
    driver = Driver(program(providers=[provider("p", limit=2)]))
    first, second, third, fourth = driver.calls(4)

    assert driver.load(program(providers=[provider("p", limit=1)])) == []
    assert driver.end(first) == []
    assert driver.end(second) == [third]
    driver.load(program(providers=[provider("p", limit=2)]))

    assert driver.granted[-1] == fourth


def test_what_is_in_flight_counts_against_the_same_names_in_the_new_policy() -> None:
    driver = Driver(program())
    first = driver.call(agent="ci", caller="ci", lane="a")
    new = program(providers=[provider("p", limit=9)], agents=[agent("ci")], unknown=agent(UNKNOWN_AGENT, concurrency=1))

    driver.load(new)
    waiting = driver.call(caller="ci")

    assert waiting not in driver.answers
    assert driver.end(first) == [waiting]


def test_a_removed_provider_is_counted_until_its_last_attempt_has_ended() -> None:
    driver = Driver(program(providers=[provider("p", limit=1), provider("q")]))
    running, waiting = driver.calls(2, provider="p")

    driver.load(program(providers=[provider("q")]))

    permit = driver.grant(waiting).permit
    assert permit is not None
    assert permit.provider == "q"
    assert driver.rest.pools["p"].inflight == 1
    driver.end(running)
    assert set(driver.rest.pools) == {"q"}


def test_a_waiting_call_keeps_its_age_through_a_reload() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)]))
    running, waiting = driver.calls(2)
    driver.now_ns = 7
    younger = driver.call()

    driver.load(program(providers=[provider("p", limit=1)], lanes=[lane("default", deadline_ns=10)]))

    assert driver.scheduler.wakeup_ns() == 10
    assert driver.end(running) == [waiting]
    assert driver.grant(waiting).waited_ns == 7
    driver.at(17)
    assert driver.refusal(younger).reason is Reason.DEADLINE


def test_a_reload_refuses_whom_the_new_policy_denies_and_sheds_nobody_for_a_lower_bound() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)], agents=[agent("ci")]))
    driver.call()
    unknown, declared, other = driver.call(), driver.call(agent="ci"), driver.call(agent="ci")

    driver.load(
        program(providers=[provider("p", limit=1, queue=1)], agents=[agent("ci")], refuse_unknown=True),
    )

    assert driver.refusal(unknown).reason is Reason.UNKNOWN_AGENT
    assert not {declared, other} & driver.answers.keys()
    assert driver.refusal(driver.call(agent="ci")).reason is Reason.QUEUE_FULL


def test_who_waits_with_the_token_of_an_agent_that_a_reload_removes_waits_on_as_unknown() -> None:
    text = "provider anthropic { concurrency 1 }\n"
    driver = Driver(compiled(text + "agent ci { token env(CI) }\n"))
    holding, waiting = (driver.ask(Request(apis=(Api.ANTHROPIC,), token_agent="ci")) for _ in range(2))

    driver.load(compiled(text))
    driver.end(holding)

    assert [driver.granted, driver.grant(waiting).treatment.agent] == [[holding, waiting], "unknown"]


# ---- why it waited ----


def test_a_call_is_told_what_it_waited_for() -> None:
    policy = program(
        providers=[provider("p", limit=2, groups={"opus*": 1}), provider("q", limit=2), provider("r", limit=2)],
        lanes=[lane("a", max=1), lane("b", reserve=1)],
    )
    driver = Driver(policy)
    for wishes in (
        {"provider": "p", "model": "opus-1", "lane": "b"},
        {"provider": "q", "lane": "a"},
        {"provider": "r"},
    ):
        first, second = driver.calls(2, **wishes)
        driver.end(first)
        driver.end(second)

    reasons = [driver.grant(call).reason for call in (1, 3, 5)]

    assert reasons == [Reason.LIMITS_CONCURRENCY, Reason.LANE_MAX, Reason.LANE_RESERVE]


def test_a_call_that_others_overtook_waited_for_its_turn() -> None:
    driver = Driver(program(providers=[provider("p", limit=1)]))
    running, low, high = driver.call(), driver.call(priority=0), driver.call(priority=1)

    driver.end(running)
    driver.end(high)

    assert driver.grant(high).reason is Reason.PROVIDER_CONCURRENCY
    assert driver.grant(low).reason is Reason.TURN


def test_the_scheduler_forgets_callers_that_have_gone() -> None:
    scheduler = Driver(program())

    for caller in range(100):
        scheduler.end(scheduler.call(f"caller {caller}"))

    assert scheduler.rest.agents == 0
    assert Scheduler(program()).snapshot().agents == 0
