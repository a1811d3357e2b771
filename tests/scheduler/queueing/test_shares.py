"""Teams and agents that always could go are served by weight, in what their calls take of the provider."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from random import Random

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.model import Outcome
from hivemind_trio.policy import Dimension, LimitGroupSettings, Program, RateLimitSettings, Window
from hivemind_trio.scheduler import AttemptResult
from hivemind_trio.scheduler.health.provider_health import ProviderHealth
from hivemind_trio.scheduler.limits.token_estimator import cost_of
from hivemind_trio.scheduler.queueing.fair_share import GONE_MAX
from hivemind_trio.scheduler.queueing.provider import ProviderQueue
from tests.scheduler.driver import Driver
from tests.scheduler.models.fairness import check_shares
from tests.support.ends import SUCCEEDED
from tests.support.programs import NO_RETRY, agent, lane, program, provider, team, wish

SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
ROUNDS = 40

weights = st.lists(st.integers(1, 6), min_size=2, max_size=4)
lengths = st.lists(st.integers(1, 30), min_size=2, max_size=4)


def policy(*agents: tuple[str, str, int], limit: int = 1, **teams: int) -> Program:
    """Agents as (name, team, weight); teams with their weights."""
    return program(
        providers=[provider("p", limit=limit)],
        agents=[agent(name, team=of, weight=weight) for name, of, weight in agents],
        teams=[team(name, weight=weight) for name, weight in teams.items()],
    )


def agent_of(driver: Driver, call_id: int) -> str:
    permit = driver.grant(call_id).permit
    assert permit is not None
    return permit.agent


def serve(
    driver: Driver, running: list[int], lasting: dict[str, int], times: int = 1, *, unit_ns: int = SECOND_NS
) -> list[str]:
    """End what is in flight, oldest first, each after as many seconds as its agent's calls last; who was let go."""
    served = []
    for _ in range(times):
        first = running.pop(0)
        driver.now_ns += lasting.get(agent_of(driver, first), 1) * unit_ns
        granted = driver.end(first)
        running += granted
        served += [agent_of(driver, each) for each in granted]
    return served


@pytest.mark.slow
@settings(max_examples=40)
@given(weights=weights)
def test_agents_have_turns_in_proportion_to_their_weights(weights: list[int]) -> None:
    weight = {f"agent {index}": each for index, each in enumerate(weights)}
    driver = Driver(policy(*[(name, "none", each) for name, each in weight.items()]))
    running = [driver.call("busy")]
    for name in weight:
        driver.calls(ROUNDS, agent=name)

    served = serve(driver, running, {}, ROUNDS)

    check_shares(served, weight)


@pytest.mark.slow
@settings(max_examples=40)
@given(lengths=lengths)
def test_what_is_shared_is_the_provider_and_not_the_number_of_calls(lengths: list[int]) -> None:
    lasting = {f"agent {index}": each for index, each in enumerate(lengths)}
    driver = Driver(policy(*[(name, "none", 1) for name in lasting]))
    running = [driver.call("busy")]
    for name in lasting:
        driver.calls(200, agent=name)

    # All within the two minutes after which age counts.
    served = serve(driver, running, lasting, 200, unit_ns=SECOND_NS // 100)

    taken = {name: served.count(name) * lasting[name] for name in lasting}
    for one, other in combinations(lasting, 2):
        # A call of each, and the last one, which has not ended.
        assert abs(taken[one] - taken[other]) <= 2 * max(lasting.values())


def test_a_team_has_no_more_for_having_many_agents() -> None:
    many = [(f"many {index}", "large", 1) for index in range(5)]
    driver = Driver(policy(("one", "small", 1), *many, large=1, small=1))
    running = [driver.call("busy")]
    for name, _, _ in [*many, ("one", "small", 1)]:
        driver.calls(ROUNDS, agent=name)

    served = Counter(serve(driver, running, {}, 20))

    assert served["one"] == 10
    assert {served[name] for name, _, _ in many} == {2}


def test_the_weight_of_a_team_is_that_of_its_agents_together_and_theirs_is_among_themselves() -> None:
    driver = Driver(policy(("a", "red", 3), ("b", "red", 1), ("c", "blue", 9), red=2, blue=1))
    running = [driver.call("busy")]
    for name in "abc":
        driver.calls(ROUNDS, agent=name)

    assert Counter(serve(driver, running, {}, 24)) == {"a": 12, "b": 4, "c": 8}


def test_an_agent_without_a_team_stands_among_the_teams_with_its_own_weight() -> None:
    driver = Driver(policy(("a", "red", 1), ("b", "red", 1), ("alone", "none", 2), red=1))
    running = [driver.call("busy")]
    for name in ("a", "b", "alone"):
        driver.calls(ROUNDS, agent=name)
    driver.calls(ROUNDS, "anybody")

    assert Counter(serve(driver, running, {}, 24)) == {"a": 3, "b": 3, "alone": 12, "anybody": 6}


def test_callers_that_nobody_declared_have_a_share_each() -> None:
    driver = Driver(policy())
    running = driver.calls(1, "busy")
    driver.calls(30, "greedy")
    driver.calls(2, "modest")

    assert serve(driver, running, {}, 5)[:4] == ["greedy", "modest", "greedy", "modest"]


def test_priority_goes_before_fairness() -> None:
    driver = Driver(policy(("a", "none", 1), ("b", "none", 1)))
    running = [driver.call("busy")]
    driver.calls(5, agent="b")
    driver.calls(5, agent="a", priority=1)

    assert serve(driver, running, {}, 7) == ["a"] * 5 + ["b"] * 2


def test_idleness_is_no_credit() -> None:
    driver = Driver(policy(("early", "none", 1), ("late", "none", 1)))
    running = [driver.call(agent="early")]
    driver.calls(60, agent="early")
    serve(driver, running, {}, 20)
    driver.calls(20, agent="late")

    served = serve(driver, running, {}, 10)

    assert served.count("late") in (5, 6)


def test_who_comes_back_at_once_has_had_what_it_had() -> None:
    driver = Driver(policy(("steady", "none", 1), ("again", "none", 1)))
    running = [driver.call(agent="steady")]
    driver.calls(60, agent="steady")
    served: list[str] = []
    away = 0
    for _ in range(40):
        away = 0 if any(agent_of(driver, each) == "again" for each in running) else away + 1
        if away == 2:
            driver.call(agent="again")  # when it has been away for a call of the other's
        served += serve(driver, running, {"again": 9})

    # Its calls last nine times as long, so it has a turn where the other has nine.
    assert 3 <= served.count("again") <= 5


@pytest.mark.parametrize("status", [429, 529])
def test_what_was_turned_away_has_taken_nothing(status: int) -> None:
    driver = Driver(policy(("unlucky", "none", 1), ("other", "none", 1)))
    running = [driver.call(agent="other")]
    driver.calls(20, agent="unlucky")
    driver.calls(20, agent="other")
    served = serve(driver, running, {})  # 1 s of the provider, to `other`
    assert served == ["unlucky"]
    for _ in range(5):
        granted = driver.end(running.pop(0), AttemptResult(outcome=Outcome.OVERLOADED, status=status))
        running += granted
        served += [agent_of(driver, each) for each in granted]

    assert served == ["unlucky"] * 6


@pytest.mark.parametrize("status", [502, 0])
def test_who_is_hit_by_a_bad_gateway_is_not_charged_a_request(status: int) -> None:
    quota = RateLimitSettings(dimension=Dimension.REQUESTS, amount=60, window_ns=MINUTE_NS, window=Window.BUCKET)
    group = LimitGroupSettings(glob=None, concurrency=None, quotas=(quota,))
    one = attrs.evolve(provider("p", limit=1), groups=(group,))
    driver = Driver(program(providers=[one], agents=[agent("unlucky"), agent("other")], retries=[NO_RETRY]))
    running = [driver.call(agent="other")]
    driver.calls(20, agent="unlucky")
    driver.calls(20, agent="other")
    served = serve(driver, running, {})  # 1 s of the provider, to `other`
    for _ in range(4):
        granted = driver.end(running.pop(0), AttemptResult(outcome=Outcome.FAILED, status=status))
        running += granted
        served += [agent_of(driver, each) for each in granted]

    assert served == ["unlucky"] * 5


def test_the_scarcest_thing_is_what_counts() -> None:
    """They last equally long, and one reads ten times as much of what there is least of."""
    quota = RateLimitSettings(dimension=Dimension.INPUT, amount=600_000, window_ns=MINUTE_NS)
    group = LimitGroupSettings(glob=None, concurrency=None, quotas=(quota,))
    scarce = program(
        providers=[attrs.evolve(provider("p", limit=1), groups=(group,))], agents=[agent("short"), agent("long")]
    )
    driver = Driver(scarce)
    running = [driver.call("busy")]
    for name, tokens in (("short", 500), ("long", 5_000)):
        for _ in range(80):
            driver.ask(attrs.evolve(wish(agent=name), tokens_in=tokens))

    served = serve(driver, running, {}, 55, unit_ns=SECOND_NS // 1_000)

    assert served.count("long") == 5


@pytest.mark.parametrize("times", [1, 20])
def test_a_bucket_says_how_long_its_earning_takes(times: int) -> None:
    pool = ProviderQueue("p", ProviderHealth(Random(1)))
    quota = RateLimitSettings(dimension=Dimension.INPUT, amount=60_000, window_ns=MINUTE_NS, headroom=0)
    pool.load(
        attrs.evolve(
            provider("p", limit=4), groups=(LimitGroupSettings(glob=None, concurrency=None, quotas=(quota,)),)
        ),
        {},
        0,
    )

    assert (
        pool.share_ns(pool.group(None).quotas(""), cost_of(times * 1_000, 0), 8 * SECOND_NS)
        == max(2, times) * SECOND_NS
    )


def test_a_call_that_has_waited_for_half_of_its_patience_is_one_in_four() -> None:
    driver = Driver(policy(("low", "none", 1), ("high", "none", 1)))
    running = [driver.call("busy")]
    driver.calls(10, agent="low", priority=0)
    driver.now_ns += 58 * SECOND_NS
    driver.calls(40, agent="high", priority=9)

    before = serve(driver, running, {"busy": 0}, 1)
    served = serve(driver, running, {}, 13)

    assert before == ["high"]
    assert served[1] == "low"  # at once, for its agent has had nothing since it came
    assert served.count("low") == 3
    assert "low low" not in " ".join(served)


def test_not_everybody_who_went_away_is_remembered() -> None:
    driver = Driver(policy())
    running = [driver.call("first")]
    for number in range(2 * GONE_MAX):
        driver.call(f"caller {number}")
        serve(driver, running, {})

    lanes = driver.scheduler.state.pools["p"].lanes["default"]
    assert len(lanes.teams) < GONE_MAX + 3


def test_a_reload_forgives_nothing() -> None:
    first = policy(("a", "none", 1), ("b", "none", 1))
    driver = Driver(first)
    running = [driver.call(agent="a")]
    driver.calls(30, agent="a")
    driver.calls(30, agent="b")
    serve(driver, running, {"a": 20}, 1)  # 20 s of the provider for a
    driver.load(policy(("a", "none", 1), ("b", "none", 1)))

    assert serve(driver, running, {}, 15) == ["b"] * 15


def test_weights_are_those_of_the_policy_that_was_loaded_last() -> None:
    driver = Driver(policy(("a", "none", 1), ("b", "none", 1)))
    running = [driver.call("busy")]
    driver.calls(40, agent="a")
    driver.calls(40, agent="b")
    serve(driver, running, {}, 4)
    driver.load(policy(("a", "none", 3), ("b", "none", 1)))
    serve(driver, running, {}, 4)

    assert Counter(serve(driver, running, {}, 16)) == {"a": 12, "b": 4}


def test_a_share_that_is_settled_while_its_agent_waits_moves_at_once() -> None:
    driver = Driver(policy(("a", "none", 1), ("b", "none", 1), limit=2))
    running = [driver.call(agent="a"), driver.call(agent="b")]
    driver.calls(5, agent="a")
    driver.calls(5, agent="b")
    driver.now_ns += 60 * SECOND_NS
    granted = driver.end(running.pop(0), SUCCEEDED)  # a minute for a; b's own, in flight as long, is not known yet

    assert [agent_of(driver, each) for each in granted] == ["b"]


def test_lanes_keep_their_own_accounts() -> None:
    two = program(providers=[provider("p", limit=1)], lanes=[lane("x"), lane("y")], agents=[agent("a"), agent("b")])
    driver = Driver(two)
    running = [driver.call("busy", lane="x")]
    driver.calls(9, agent="a", lane="x")
    serve(driver, running, {"a": 5}, 6)
    driver.calls(4, agent="a", lane="y")
    driver.calls(4, agent="b", lane="y")

    serve(driver, running, {}, 8)

    there = [agent_of(driver, each) for each in driver.granted if driver.grant(each).treatment.lane == "y"]
    assert there[:4] == ["a", "b", "a", "b"], "what a has had in the other lane does not count here"


def test_who_left_the_line_after_a_reload_is_owed_nothing() -> None:
    both = policy(("early", "none", 1), ("late", "none", 1))
    driver = Driver(both)
    running = [driver.call(agent="early")]
    driver.calls(60, agent="early")
    gone = driver.call(agent="late")
    driver.load(both)
    driver.cancel(gone)
    serve(driver, running, {}, 20)
    driver.calls(20, agent="late")

    assert serve(driver, running, {}, 10).count("late") in (5, 6)


def test_who_was_at_its_cap_is_owed_nothing() -> None:
    capped = program(
        providers=[provider("p", limit=1), provider("q", limit=1)],
        agents=[agent("free", team="red"), agent("capped", team="red", concurrency=1)],
        teams=[team("red")],
    )
    driver = Driver(capped)
    running = [driver.call(agent="free", provider="p")]
    driver.calls(60, agent="free", provider="p")
    driver.calls(20, agent="capped", provider="p")
    elsewhere = driver.call(agent="capped", provider="q")  # from now on those before cannot go
    serve(driver, running, {}, 20)
    driver.end(elsewhere)

    assert serve(driver, running, {}, 10).count("capped") in (5, 6)


def test_how_long_attempts_take_is_learned() -> None:
    pool = ProviderQueue("p", ProviderHealth(Random(1)))
    for _ in range(40):
        pool.on_lasted(SECOND_NS)

    assert pool.usual_ns == pytest.approx(SECOND_NS, rel=0.1)


@pytest.mark.parametrize("slots", [1, 4, 16])
@pytest.mark.parametrize("already", [0, 3, 40])
@pytest.mark.parametrize("apart", [True, False], ids=["agents", "one team"])
def test_a_newcomer_has_its_turn_though_the_size_of_calls_was_guessed_wrong(
    slots: int, already: int, *, apart: bool
) -> None:
    """The first calls are thought to take seconds, and take 50 ms: what was guessed is taken back of everybody."""
    of = "none" if apart else "red"
    driver = Driver(policy(("hog", of, 1), ("newcomer", of, 1), limit=slots, red=1))
    running = driver.calls(slots, agent="hog")
    driver.calls(600, agent="hog")
    serve(driver, running, {}, already, unit_ns=SECOND_NS // 20)
    driver.calls(200, agent="newcomer")

    served = serve(driver, running, {}, 200, unit_ns=SECOND_NS // 20)

    # Behind at most one call of the hog for each slot, and then one of two.
    assert served.index("newcomer") <= slots
    for begin in range(0, 160, 40):
        assert abs(served[begin : begin + 40].count("newcomer") - 20) <= slots
