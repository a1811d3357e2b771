"""Calls that belong together: sticky lanes, prompts that a provider remembers, and one call that goes ahead."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from hivemind_trio.model import Dimension, Outcome, Reason
from hivemind_trio.policy import LimitGroupSettings, Program, RateLimitSettings, Sticky
from hivemind_trio.scheduler import AttemptResult, CallId, Grant, ResponseStarted
from hivemind_trio.scheduler.caching.prompt_cache import KNOWN_MAX, LEAD_NS, LONG_TOKENS, WARM_NS, PromptCacheModel
from hivemind_trio.scheduler.queueing.cache_affinity import FADING_NS, STREAK_NS
from tests.scheduler.driver import Driver
from tests.support.ends import SUCCEEDED
from tests.support.programs import SECOND_NS, agent, lane, program, provider, wish

FAILED = AttemptResult(outcome=Outcome.FAILED, status=500)


# ---- sticky lanes ----


def sticky(by: Sticky | None, *, above: int = 8, limit: int = 1) -> Driver:
    return Driver(program(providers=[provider("p", limit=limit)], lanes=[lane(sticky=by, steal_above=above)]))


def ask(driver: Driver, thread: str, *, caller: str = "x", priority: int = 0) -> int:
    """A call of that thread, whatever makes it one."""
    return driver.ask(wish(priority=priority), caller, prefix=thread, credential=thread)


def order(driver: Driver, names: dict[int, str], running: int, lasting_ns: int = SECOND_NS) -> str:
    """End what is in flight until nothing is; whose turn it was."""
    went = ""
    now = [running]
    while now:
        driver.now_ns += lasting_ns
        now = driver.end(now[0])
        went += "".join(names[call] for call in now)
    return went


def mixed(driver: Driver, threads: str, **options: Any) -> dict[int, str]:
    return {ask(driver, thread, **options): thread for thread in threads}


@pytest.mark.parametrize(("by", "expected"), [(None, "abab"), (Sticky.PREFIX, "aabb"), (Sticky.KEY, "aabb")])
def test_a_sticky_lane_goes_on_with_the_thread_that_it_has_served(by: Sticky | None, expected: str) -> None:
    driver = sticky(by)
    running = ask(driver, "a")

    assert order(driver, mixed(driver, "abab"), running) == expected


def test_an_agent_can_be_a_thread_though_others_have_had_less() -> None:
    driver = sticky(Sticky.AGENT)
    running = driver.call("a")
    names = {driver.call(name): name for name in "aabba"}

    assert order(driver, names, running) == "aaabb"


def test_a_long_queue_is_next_all_the_same() -> None:
    driver = sticky(Sticky.PREFIX, above=2)
    running = ask(driver, "a")
    names = mixed(driver, "bbb") | mixed(driver, "aaa")

    # Three wait, so one of them goes, and then the lane goes on with it.
    assert order(driver, names, running) == "bbbaaa"


def test_priority_goes_before_it() -> None:
    driver = sticky(Sticky.PREFIX)
    running = ask(driver, "a")
    names = mixed(driver, "aa") | mixed(driver, "b", priority=1)

    assert order(driver, names, running) == "baa"


def test_it_does_not_go_on_for_ever() -> None:
    driver = sticky(Sticky.PREFIX)
    running = ask(driver, "a")
    names = mixed(driver, "b") | mixed(driver, "a" * 9)

    went = order(driver, names, running, lasting_ns=STREAK_NS // 3)

    assert went.index("b") == 2


def test_one_whose_agent_is_at_its_cap_is_not_waited_for() -> None:
    capped = program(
        providers=[provider("p", limit=2)], lanes=[lane(sticky=Sticky.PREFIX)], agents=[agent("ci", concurrency=1)]
    )
    driver = Driver(capped)
    other = driver.ask(wish(), "other", prefix="c")
    running = driver.ask(wish(agent="ci"), prefix="a")
    driver.ask(wish(agent="ci"), prefix="a")
    waiting = driver.ask(wish(), "other", prefix="b")

    assert driver.end(other) == [waiting]
    assert driver.end(running) != []


# ---- one goes ahead ----


def scarce(limit: int = 100) -> Program:
    quota = RateLimitSettings(dimension=Dimension.INPUT, amount=10_000_000, window_ns=60 * SECOND_NS)
    group = LimitGroupSettings(glob=None, concurrency=None, quotas=(quota,))
    return program(providers=[attrs.evolve(provider("p", limit=limit), groups=(group,))])


def long(driver: Driver, prefix: str = "same", *, tokens: int = LONG_TOKENS, caller: str = "x") -> int:
    return driver.ask(attrs.evolve(wish(), tokens_in=tokens), caller, prefix=prefix)


def began(driver: Driver, call: int, *, good: bool = True) -> list[int]:
    commands = driver.post(ResponseStarted(CallId(call), (), good))
    return [each.call_id for each in commands if isinstance(each, Grant)]


def test_of_calls_with_the_same_cold_beginning_one_goes_and_the_others_wait_for_its_answer() -> None:
    driver = Driver(scarce())
    leader, *others = [long(driver) for _ in range(5)]
    assert driver.granted == [leader]

    driver.now_ns += SECOND_NS
    assert began(driver, leader) == others
    assert {driver.grant(call).reason for call in others} == {Reason.PROMPT_CACHE}
    assert driver.grant(long(driver)).waited_ns == 0, "it is warm now"


def test_nobody_waits_for_longer_than_it_is_worth() -> None:
    driver = Driver(scarce())
    _, other = long(driver), long(driver)

    assert driver.scheduler.wakeup_ns() == LEAD_NS
    driver.at(LEAD_NS)
    assert other in driver.granted


@pytest.mark.parametrize(
    "ended", [FAILED, AttemptResult(outcome=Outcome.IGNORED, committed=True)], ids=["broken", "hung up"]
)
def test_one_that_had_no_answer_is_not_waited_for(ended: AttemptResult) -> None:
    driver = Driver(scarce())
    leader, other = long(driver), long(driver)

    assert driver.end(leader, ended) == [other]


def test_an_error_has_read_nothing() -> None:
    driver = Driver(scarce())
    leader, _ = long(driver), long(driver)

    assert began(driver, leader, good=False) == []


@pytest.mark.parametrize(
    ("prefix", "tokens"), [("other", LONG_TOKENS), ("", LONG_TOKENS), ("same", LONG_TOKENS - 1)],
    ids=["another", "none", "short"],
)  # fmt: skip
def test_other_calls_do_not_wait(prefix: str, tokens: int) -> None:
    driver = Driver(scarce())
    long(driver)

    assert long(driver, prefix, tokens=tokens) in driver.granted


def test_where_input_is_not_scarce_nobody_waits() -> None:
    driver = Driver(program())

    assert [long(driver) for _ in range(3)] == driver.granted


def test_one_that_hangs_up_while_it_waits_is_not_let_go() -> None:
    driver = Driver(scarce())
    leader, gone, other = (long(driver) for _ in range(3))
    driver.cancel(gone)

    assert began(driver, leader) == [other]
    driver.end(leader)
    driver.end(other)
    assert (driver.rest.inflight, driver.rest.waiting, driver.rest.agents) == (0, 0, 0)


def test_after_a_reload_it_waits_no_longer_than_it_would_have() -> None:
    driver = Driver(scarce())
    _, other = long(driver), long(driver)
    driver.load(scarce())

    driver.at(LEAD_NS)
    assert other in driver.granted


def test_what_nobody_asks_for_is_cold_again() -> None:
    driver = Driver(scarce())
    began(driver, long(driver))
    driver.at(WARM_NS)

    assert [long(driver), long(driver)][1] not in driver.granted


# ---- what a provider is about to forget ----


def test_a_call_whose_prompt_is_about_to_be_forgotten_goes_first_in_its_team() -> None:
    driver = Driver(scarce(limit=1))
    driver.end(long(driver, "warm"), SUCCEEDED)
    driver.at(WARM_NS - FADING_NS)
    running = long(driver, "busy")
    first, fading = long(driver, "cold"), long(driver, "warm")

    assert driver.end(running) == [fading]
    assert driver.end(fading) == [first]


@pytest.mark.parametrize("after_ns", [0, WARM_NS], ids=["it is warm for long", "it is forgotten"])
def test_otherwise_it_waits_for_its_turn(after_ns: int) -> None:
    driver = Driver(scarce(limit=1))
    driver.end(long(driver, "warm"), SUCCEEDED)
    driver.at(after_ns)
    running = long(driver, "busy")
    first, _ = long(driver, "cold"), long(driver, "warm")

    assert driver.end(running) == [first]


def test_one_whose_prompt_was_forgotten_while_it_waited_hurries_no_more() -> None:
    driver = Driver(scarce(limit=1))
    driver.end(long(driver, "warm"), SUCCEEDED)
    driver.at(WARM_NS - SECOND_NS)
    running = long(driver, "busy")
    first, _ = long(driver, "cold"), long(driver, "warm")
    driver.at(WARM_NS)

    assert driver.end(running) == [first]


def test_another_team_s_turn_is_not_taken() -> None:
    driver = Driver(scarce(limit=1))
    driver.end(long(driver, "warm"), SUCCEEDED)
    driver.at(WARM_NS - FADING_NS)
    running = long(driver, "busy")
    other = long(driver, "cold", caller="y")
    long(driver, "warm")

    assert driver.end(running) == [other]


def test_only_so_many_beginnings_are_remembered_and_those_asked_for_last() -> None:
    prefixes = PromptCacheModel()
    for number in range(KNOWN_MAX + 1):
        prefixes.on_granted(f"{number}", CallId(number), 0)
        prefixes.on_read(f"{number}", 0)

    assert len(prefixes) == KNOWN_MAX
    assert prefixes.warm_until_ns("0", 0) is None
    assert prefixes.warm_until_ns("1", 0) == WARM_NS
