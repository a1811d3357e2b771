"""Where calls go whose provider is down, and how they come back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import pytest

from hivemind_trio.model import Api, Outcome, Reason
from hivemind_trio.policy import (
    AgentSettings,
    CircuitBreakerSettings,
    Dimension,
    LimitGroupSettings,
    MemoryFiles,
    Program,
    RateLimitSettings,
    RetrySettings,
    WhileOpen,
    check,
)
from hivemind_trio.scheduler import AttemptEnded, AttemptResult, CallId, Circuit, Finish, Grant
from tests.support.ends import SUCCEEDED
from tests.support.programs import NEVER_TRIPS, SECOND_NS, agent, program, provider, wish

from .driver import Driver

SENSITIVE = CircuitBreakerSettings(trip=1.0, of=2, over_ns=30 * SECOND_NS, open_ns=5 * SECOND_NS, probes=1)
FAILED = AttemptResult(outcome=Outcome.FAILED, status=500)
TWICE = RetrySettings(attempts=2)


def policy(
    *,
    home: dict[str, Any] | None = None,
    second: dict[str, Any] | None = None,
    third: dict[str, Any] | None = None,
    retry: RetrySettings | None = None,
    agents: Iterable[AgentSettings] = (),
) -> Program:
    """`home` falls back on `second`, and that on `third` if there is one."""
    options: dict[str, Any] = {"fallback": "second", "while_open": WhileOpen.FALLBACK, "breaker": SENSITIVE}
    providers = [
        provider("home", **(options | (home or {}))),
        provider(
            "second", **({"breaker": SENSITIVE} | ({"fallback": "third"} if third is not None else {}) | (second or {}))
        ),
    ]
    if third is not None:
        providers.append(provider("third", **third))
    return program(providers=providers, retries=[retry or RetrySettings(attempts=1)], agents=agents)


def where(driver: Driver, call: int) -> str:
    permit = driver.grant(call).permit
    assert permit is not None
    return permit.provider


def trip(driver: Driver, name: str = "home") -> None:
    for call in [driver.call(provider=name) for _ in range(2)]:
        driver.end(call, FAILED)
    assert circuit(driver, name) is Circuit.OPEN


def circuit(driver: Driver, name: str = "home") -> Circuit:
    return driver.rest.pools[name].circuit


def reopen(driver: Driver, name: str = "home") -> None:
    """Let its pause pass."""
    opens_ns = driver.rest.pools[name].opens_ns
    assert opens_ns is not None
    driver.at(opens_ns)


def tripped(**options: Any) -> Driver:
    driver = Driver(policy(**options))
    trip(driver)
    return driver


def test_nobody_goes_elsewhere_while_all_is_well() -> None:
    driver = Driver(policy())

    assert where(driver, driver.call()) == "home"


def test_while_a_provider_is_down_its_calls_go_to_the_other_and_say_so() -> None:
    driver = tripped()
    grant = driver.grant(driver.call())

    assert grant.permit is not None
    assert (grant.permit.provider, grant.treatment.provider, grant.treatment.instead_of) == ("second", "second", "home")


def test_those_who_wait_when_it_goes_down_go_too() -> None:
    driver = Driver(policy(home={"limit": 2, "breaker": CircuitBreakerSettings(trip=0.5, of=4)}))
    running = driver.calls(2)
    waiting = driver.calls(3)
    for call in running:
        driver.end(call, FAILED)

    assert [where(driver, call) for call in waiting if isinstance(driver.answers.get(call), Grant)] == [
        "home",  # with the slot of the first failure
        "second",
        "second",
    ]
    assert all(driver.grant(call).waited_ns == 0 for call in waiting)


def test_what_has_broken_there_is_tried_again_at_the_other_at_once() -> None:
    driver = Driver(policy(retry=TWICE, home={"breaker": NEVER_TRIPS}))
    call = driver.call()
    driver.now_ns += SECOND_NS

    assert driver.end(call, FAILED) == [call]

    assert where(driver, call) == "second"
    assert driver.grant(call).attempt == 2
    assert driver.grant(call).reason is Reason.RETRY


@pytest.mark.parametrize("outcome", [Outcome.QUOTA, Outcome.CONCURRENCY, Outcome.BURST])
def test_who_went_too_often_waits_for_its_turn_where_it_was(outcome: Outcome) -> None:
    driver = Driver(policy(retry=TWICE))
    call = driver.call()
    ended = AttemptResult(outcome=outcome, status=429, retry_after_ns=SECOND_NS)

    assert driver.end(call, ended) == []
    driver.at(3 * SECOND_NS)
    assert where(driver, call) == "home"


def test_who_was_asked_to_stay_away_is_not_the_one_who_finds_out_whether_it_is_well() -> None:
    driver = Driver(policy(retry=TWICE, second={"limit": 1}))
    busy, asked, other = driver.call(provider="second"), *driver.calls(2)
    driver.end(asked, AttemptResult(outcome=Outcome.OVERLOADED, status=529, retry_after_ns=50 * SECOND_NS))
    driver.end(other, FAILED)
    assert circuit(driver) is Circuit.OPEN

    reopen(driver)

    assert driver.granted == [busy, asked, other, other], "both wait for the second, and one of them has come back"
    driver.end(busy)
    assert where(driver, asked) == "second"


def test_a_provider_s_word_holds_for_who_comes_back_from_another() -> None:
    driver = Driver(policy(retry=TWICE, second={"limit": 1}))
    driver.call(provider="second")
    asked = driver.call()
    driver.end(asked, AttemptResult(outcome=Outcome.OVERLOADED, status=529, retry_after_ns=50 * SECOND_NS))

    driver.load(policy(retry=TWICE, home={"while_open": WhileOpen.HOLD}, second={"limit": 1}))

    assert driver.granted.count(asked) == 1
    # A word on a broken call is obeyed up to 20 s.
    assert driver.scheduler.wakeup_ns() == 20 * SECOND_NS
    driver.at(20 * SECOND_NS)
    assert where(driver, asked) == "home"


def test_retries_elsewhere_are_counted_like_others() -> None:
    driver = Driver(policy(retry=RetrySettings(attempts=2, ratio=0.0), home={"breaker": NEVER_TRIPS}))
    tried = [len(driver.end(call, FAILED)) for call in driver.calls(15)]

    assert tried == [1] * 10 + [0] * 5, "no more than could be saved up"


def test_the_chain_is_followed_to_one_that_is_there() -> None:
    driver = tripped(third={})
    trip(driver, "second")

    assert where(driver, driver.call()) == "third"


def test_where_all_are_down_calls_wait_at_home() -> None:
    driver = tripped()
    trip(driver, "second")
    call = driver.call()

    assert call not in driver.answers
    reopen(driver)
    assert where(driver, call) == "home"


@pytest.mark.parametrize(
    "second",
    [
        {"api": Api.GEMINI},
        {"serves": ["other-*"]},
        {
            "groups": {None: 5},
            "quota": RateLimitSettings(dimension=Dimension.INPUT, amount=100, window_ns=60 * SECOND_NS),
        },
    ],
    ids=["dialect", "model", "size"],
)
def test_a_call_that_the_other_cannot_take_is_held(second: dict[str, Any]) -> None:
    quota = second.pop("quota", None)
    of = policy(second=second)
    if quota is not None:
        small = attrs.evolve(
            of.providers["second"], groups=(LimitGroupSettings(glob=None, concurrency=None, quotas=(quota,)),)
        )
        of = attrs.evolve(of, providers={**of.providers, "second": small})
    driver = Driver(of)
    trip(driver)
    call = driver.ask(attrs.evolve(wish(), tokens_in=5_000))

    assert call not in driver.answers


@pytest.mark.parametrize("while_open", [WhileOpen.HOLD, WhileOpen.REFUSE])
def test_the_policy_may_say_otherwise(while_open: WhileOpen) -> None:
    driver = tripped(home={"while_open": while_open})
    call = driver.call()

    if while_open is WhileOpen.HOLD:
        assert call not in driver.answers
    else:
        assert driver.refusal(call).reason is Reason.BREAKER_OPEN


def test_the_limits_of_the_other_hold_and_its_groups() -> None:
    driver = tripped(second={"groups": {"claude-*": 1}})
    first, later = driver.calls(2)

    assert driver.grant(first).treatment.group == "claude-*"
    assert later not in driver.answers
    assert driver.rest.pools["second"].groups_inflight == {"claude-*": 1}


def test_one_call_finds_out_whether_it_is_well_again_and_then_all_come_back() -> None:
    driver = tripped(second={"limit": 1})
    there, *waiting = driver.calls(4)
    assert where(driver, there) == "second"

    reopen(driver)
    assert [where(driver, call) for call in waiting if call in driver.answers] == ["home"]
    probe = waiting[0]
    granted = driver.end(probe, SUCCEEDED)

    assert circuit(driver) is Circuit.CLOSED
    assert granted == waiting[1:]
    assert {where(driver, call) for call in granted} == {"home"}


def test_while_it_is_tried_the_others_go_on_elsewhere() -> None:
    driver = tripped()
    reopen(driver)

    assert [where(driver, call) for call in driver.calls(3)] == ["home", "second", "second"]


def test_a_probe_that_fails_sends_them_away_again() -> None:
    driver = tripped(second={"limit": 1}, home={"limit": 1})
    driver.call()
    waiting = driver.calls(3)
    reopen(driver)
    probe = next(call for call in waiting if call in driver.answers)
    driver.end(probe, FAILED)

    assert circuit(driver) is Circuit.OPEN
    assert driver.rest.pools["second"].waiting == 2


def test_a_reload_that_takes_the_fallback_away_brings_them_home() -> None:
    driver = tripped(second={"limit": 1})
    driver.calls(3)
    driver.load(policy(home={"while_open": WhileOpen.HOLD, "fallback": None}))

    assert driver.rest.pools["second"].waiting == 0
    assert driver.rest.pools["home"].waiting == 2


def test_a_reload_that_gives_one_sends_them_there() -> None:
    driver = tripped(home={"while_open": WhileOpen.HOLD, "fallback": None})
    waiting = driver.calls(3)
    driver.load(policy())

    assert [where(driver, call) for call in waiting] == ["second"] * 3


def test_age_counts_from_the_arrival_wherever_it_was_waited() -> None:
    driver = tripped(second={"limit": 1}, home={"limit": 1})
    running = driver.call()
    driver.now_ns += SECOND_NS
    call = driver.call("other")
    driver.now_ns += SECOND_NS
    driver.end(running)

    assert driver.grant(call).waited_ns == SECOND_NS


def test_an_agent_s_cap_counts_over_both() -> None:
    driver = Driver(policy(agents=[agent("ci", concurrency=1)]))
    running = driver.call(agent="ci")
    trip(driver)
    call = driver.call(agent="ci")
    assert call not in driver.answers

    driver.end(running)
    assert where(driver, call) == "second"


def test_who_has_no_money_left_there_goes_to_the_other() -> None:
    driver = Driver(policy(home={"limit": 1}))
    first, waiting = driver.calls(2)
    driver.end(first, AttemptResult(outcome=Outcome.TERMINAL, status=402, final=True))

    assert where(driver, waiting) == "second"
    assert where(driver, driver.call()) == "second"


def test_the_call_that_finds_it_out_goes_there_too_if_it_has_an_attempt_left() -> None:
    driver = Driver(policy(retry=TWICE))
    call = driver.call()

    assert driver.end(call, AttemptResult(outcome=Outcome.TERMINAL, status=402, final=True)) == [call]
    assert where(driver, call) == "second"


def test_where_there_is_no_other_it_has_its_answer() -> None:
    driver = Driver(policy(retry=TWICE, home={"while_open": WhileOpen.HOLD}))
    call = driver.call()

    assert driver.post(AttemptEnded(CallId(call), AttemptResult(outcome=Outcome.TERMINAL, status=402))) == [
        Finish(CallId(call))
    ]


def test_the_smallest_call_finds_out_whether_it_is_well_again() -> None:
    driver = tripped(second={"limit": 1})
    driver.call()
    large, small = (driver.ask(attrs.evolve(wish(), tokens_in=size)) for size in (5_000, 10))
    reopen(driver)

    assert where(driver, small) == "home"
    assert large not in driver.answers


BUDGETED = """
provider home {
  api anthropic; base "http://home.example"; concurrency 2; breaker trip 50% of 4 over 30s; fallback second; retry once
}
provider second { api anthropic; base "http://second.example"; retry once }
retry once { attempts 1 }
budget all { requests 6/day }
"""


def test_who_moves_takes_no_more_of_a_budget() -> None:
    compiled = check("team.hmp", MemoryFiles({"team.hmp": BUDGETED})).program
    assert compiled is not None
    driver = Driver(compiled)
    first, second, *waiting = driver.calls(5)
    driver.end(first, FAILED)
    driver.end(second, FAILED)
    assert [where(driver, call) for call in waiting] == ["home", "second", "second"]

    assert driver.call() in driver.granted
    assert driver.call() not in driver.answers
