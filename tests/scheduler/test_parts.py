"""Each part that an experiment can leave out does what it says while it is there, and nothing once it is not."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from hivemind_trio.model import Outcome
from hivemind_trio.policy import Dimension, Program, RateLimitSettings, Window
from hivemind_trio.scheduler import ALL_PARTS, AttemptResult, Features
from hivemind_trio.scheduler.caching.prompt_cache import LONG_TOKENS
from hivemind_trio.scheduler.calls.waiting_call import PATIENCE_NS
from tests.support.programs import SECOND_NS, program, provider, wish

from .driver import Driver

MINUTE_NS = 60 * SECOND_NS


def limited(dimension: Dimension, amount: int, window: Window) -> Program:
    quota = RateLimitSettings(dimension=dimension, amount=amount, window_ns=MINUTE_NS, headroom=0.0, window=window)
    base = provider("p", limit=100, groups={None: None})
    return program(providers=[attrs.evolve(base, groups=(attrs.evolve(base.groups[0], quotas=(quota,)),))])


def ask(driver: Driver, tokens_in: int, caller: str = "x", prefix: str = "") -> int:
    return driver.ask(attrs.evolve(wish(), tokens_in=tokens_in, tokens_max_out=1), caller, prefix=prefix)


def a_small_call_passes_a_large_one(parts: Features) -> bool:
    driver = Driver(limited(Dimension.INPUT, 600, Window.BUCKET), parts=parts)
    ask(driver, 550)
    ask(driver, 400, "large")
    return ask(driver, 20, "small") in driver.granted


def who_would_not_wait_is_told_at_once(parts: Features) -> bool:
    driver = Driver(program(), parts=parts)
    driver.end(
        driver.call(), AttemptResult(outcome=Outcome.QUOTA, status=429, retry_after_ns=MINUTE_NS, committed=True)
    )
    return driver.ask(wish(), patience_ns=SECOND_NS) in driver.answers


def one_goes_ahead_of_a_cold_prompt(parts: Features) -> bool:
    driver = Driver(limited(Dimension.INPUT, 10_000_000, Window.BUCKET), parts=parts)
    for _ in range(5):
        ask(driver, LONG_TOKENS, prefix="same")
    return len(driver.granted) == 1


def who_has_waited_too_long_goes_first(parts: Features) -> bool:
    driver = Driver(program(providers=[provider("p", limit=1)]), parts=parts)
    driver.call()
    humble = driver.call("humble", priority=-9)
    driver.calls(9, priority=9)
    driver.now_ns = PATIENCE_NS // 2
    for _ in range(5):
        driver.end(driver.granted[-1])
    return humble in driver.granted


HOW: dict[str, Callable[[Features], bool]] = {
    "bypass": a_small_call_passes_a_large_one,
    "patience": who_would_not_wait_is_told_at_once,
    "prefixes": one_goes_ahead_of_a_cold_prompt,
    "overdue": who_has_waited_too_long_goes_first,
}


@pytest.mark.parametrize("part", [field.name for field in attrs.fields(Features)])
def test_a_part_that_is_left_out_does_nothing_and_the_others_go_on(part: str) -> None:
    without = attrs.evolve(ALL_PARTS, **{part: False})

    assert {name: shows(ALL_PARTS) for name, shows in HOW.items()} == dict.fromkeys(HOW, True)
    assert {name: shows(without) for name, shows in HOW.items()} == {name: name != part for name in HOW}
