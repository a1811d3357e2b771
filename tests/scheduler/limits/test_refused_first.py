"""A call that is refused for going too often, and that others pass: it is the next to go, for a while."""

from __future__ import annotations

import attrs
import pytest

from hivemind_trio.model import Outcome
from hivemind_trio.policy import RetrySettings
from hivemind_trio.scheduler import AttemptResult
from hivemind_trio.scheduler.limits.rate_limits import CLAIM_WAITED_NS, FAVOURED_NS
from tests.scheduler.driver import Driver
from tests.support.ends import SUCCEEDED
from tests.support.programs import SECOND_NS, program, provider, wish

REFUSED = AttemptResult(outcome=Outcome.QUOTA, status=429)
LARGE, SMALL = 40_000, 1_000


def crowd() -> tuple[Driver, int]:
    """Many agents with small calls, and one with a large call that is refused whenever it goes."""
    driver = Driver(program(providers=[provider("p", limit=1)], retries=[RetrySettings()]))
    large = driver.ask(attrs.evolve(wish(), tokens_in=LARGE), "large")
    for number in range(400):
        driver.ask(attrs.evolve(wish(), tokens_in=SMALL), f"small-{number}")
    return driver, large


def goes_on(driver: Driver, large: int, until_ns: int) -> list[tuple[int, int]]:
    """Refuse the large call and serve the others. Return who was granted, and when."""
    granted = []
    seen = len(driver.granted) - driver.rest.inflight
    while driver.now_ns < until_ns:
        while seen < len(driver.granted):
            call = driver.granted[seen]
            granted.append((call, driver.now_ns))
            seen += 1
            driver.now_ns += SECOND_NS // 2
            driver.end(call, REFUSED if call == large else SUCCEEDED)
        driver.at(max(driver.now_ns, driver.scheduler.wakeup_ns() or driver.now_ns + SECOND_NS))
    return granted


def test_it_is_the_next_once_it_has_waited_for_long_and_not_for_ever() -> None:
    driver, large = crowd()

    granted = goes_on(driver, large, CLAIM_WAITED_NS + 2 * FAVOURED_NS)

    before = [call for call, at_ns in granted if at_ns < CLAIM_WAITED_NS // 2]
    favoured = [call for call, at_ns in granted if 0 < at_ns - CLAIM_WAITED_NS < FAVOURED_NS]
    after = [call for call, at_ns in granted if at_ns - CLAIM_WAITED_NS > FAVOURED_NS + 10 * SECOND_NS]
    assert any(call != large for call in before)
    assert sum(call != large for call in favoured) <= 1
    assert sum(call == large for call in favoured) >= 3
    assert any(call != large for call in after)


def test_once_it_was_served_the_others_go() -> None:
    driver, large = crowd()
    goes_on(driver, large, CLAIM_WAITED_NS + 10 * SECOND_NS)

    granted = goes_on(driver, -1, driver.now_ns + 30 * SECOND_NS)

    assert sum(call == large for call, _ in granted) == 1
    assert sum(call != large for call, _ in granted) >= 3


@pytest.mark.parametrize(("earlier_takes", "first"), [(SMALL, 0), (LARGE, 1)], ids=["as much", "more"])
def test_calls_of_one_agent_keep_their_order_if_a_later_one_was_refused_first(earlier_takes: int, first: int) -> None:
    driver = Driver(program(providers=[provider("p", limit=2)], retries=[RetrySettings()]))
    calls = [driver.ask(attrs.evolve(wish(), tokens_in=takes), "x") for takes in (earlier_takes, SMALL)]
    driver.now_ns = CLAIM_WAITED_NS
    for call in reversed(calls):
        driver.end(call, attrs.evolve(REFUSED, retry_after_ns=15 * SECOND_NS))

    while len(driver.granted) == 2:
        driver.at(driver.scheduler.wakeup_ns() or 0)

    assert driver.granted[2] == calls[first]
