"""Callers with credentials of their own: what an answer tells one of them holds up none of the others."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Dimension, Outcome, QuotaReading, Reason, SecretRef, SecretSource
from hivemind_trio.policy import LimitGroupSettings, Program, RateLimitSettings
from hivemind_trio.scheduler import AttemptResult, CallId, Grant, ResponseStarted
from hivemind_trio.scheduler.caching.prompt_cache import LONG_TOKENS
from hivemind_trio.scheduler.limits.limit_group import ACCOUNTS_MAX, LimitGroup
from tests.scheduler.driver import Driver
from tests.support.programs import SECOND_NS, program, provider, wish

MINUTE = 60 * SECOND_NS
ROOM = 100
"""Slots, so that concurrency holds nobody."""


def policy(*, key: bool = False, requests: int | None = None) -> Program:
    keys = (SecretRef(SecretSource.ENV, "K"),) if key else ()
    groups: tuple[LimitGroupSettings, ...] = ()
    if requests is not None:
        quota = RateLimitSettings(dimension=Dimension.REQUESTS, amount=requests, window_ns=MINUTE, headroom=0.0)
        groups = (LimitGroupSettings(glob=None, concurrency=None, quotas=(quota,)),)
    return program(providers=[attrs.evolve(provider("p", limit=ROOM), keys=keys, groups=groups)])


def none_left(resets_s: int = 30) -> QuotaReading:
    return QuotaReading(dimension=Dimension.REQUESTS, limit=60, remaining=0, resets_ns=resets_s * SECOND_NS)


def refusal(outcome: Outcome, seconds: int) -> AttemptResult:
    return AttemptResult(outcome=outcome, status=429, retry_after_ns=seconds * SECOND_NS, committed=True)


def ask(driver: Driver, credential: str) -> int:
    return driver.ask(wish(), credential, credential=credential)


def goes(driver: Driver, credential: str) -> bool:
    """Whether a call goes at once; it is answered well, and told nothing."""
    call_id = ask(driver, credential)
    if not isinstance(driver.answers.get(call_id), Grant):
        driver.cancel(call_id)
        return False
    driver.post(ResponseStarted(CallId(call_id), ()))
    driver.end(call_id)
    return True


@pytest.mark.parametrize("requests", [None, 50])
def test_a_refusal_holds_the_credential_that_was_sent(requests: int | None) -> None:
    driver = Driver(policy(requests=requests))
    driver.end(ask(driver, "a"), refusal(Outcome.QUOTA, 30))

    assert not goes(driver, "a")
    assert goes(driver, "b")
    waiting = ask(driver, "a")
    driver.at(30 * SECOND_NS)
    assert driver.grant(waiting).reason is Reason.PROVIDER_QUOTA


@pytest.mark.parametrize("requests", [None, 50])
def test_what_headers_tell_holds_the_credential_that_was_sent(requests: int | None) -> None:
    driver = Driver(policy(requests=requests))
    assert goes(driver, "b")
    driver.post(ResponseStarted(CallId(ask(driver, "a")), (none_left(),)))

    assert goes(driver, "b")
    assert goes(driver, "a") is (requests is not None)  # the policy's windows are of both, and say otherwise


def test_headers_of_the_only_account_tell_of_declared_limits_until_there_is_another() -> None:
    driver = Driver(policy(requests=50))
    driver.post(ResponseStarted(CallId(ask(driver, "a")), (none_left(),)))
    assert not goes(driver, "a")

    assert goes(driver, "b")


def test_declared_limits_are_of_all_accounts_together() -> None:
    driver = Driver(policy(requests=4))

    went = [goes(driver, credential) for credential in "abcdef"]

    assert went == [True] * 4 + [False] * 2


def test_a_reload_keeps_what_an_account_was_told() -> None:
    driver = Driver(policy())
    driver.end(ask(driver, "a"), refusal(Outcome.QUOTA, 30))
    driver.load(attrs.evolve(policy(), hash="another"))

    assert not goes(driver, "a")
    assert goes(driver, "b")


def test_callers_of_one_key_are_held_together() -> None:
    driver = Driver(policy(key=True))
    driver.end(ask(driver, "a"), refusal(Outcome.QUOTA, 30))

    assert not goes(driver, "b")


def test_accounts_are_bounded_and_those_with_calls_in_flight_are_kept() -> None:
    group = LimitGroup()
    group.load(None, 0, learns=True)
    kept = group.quotas("m", "in flight")
    kept.take(CallId(1), dict.fromkeys(Dimension, 1), 0)

    for number in range(2 * ACCOUNTS_MAX):
        group.quotas("m", f"{number}")

    assert len(list(group.rate_limits())) <= ACCOUNTS_MAX + 2
    assert group.quotas("m", "in flight") is kept


TOLD = st.one_of(
    st.builds(none_left, st.integers(1, 600)),
    st.builds(refusal, st.sampled_from([Outcome.QUOTA, Outcome.BURST, Outcome.TERMINAL]), st.integers(1, 600)),
)


@given(st.lists(st.tuples(st.integers(0, 20 * SECOND_NS), st.none() | TOLD), max_size=30), st.booleans())
def test_whatever_one_is_told_another_goes_at_once(
    steps: list[tuple[int, QuotaReading | AttemptResult | None]], declared: bool
) -> None:
    driver = Driver(policy(requests=10_000 if declared else None))
    assert goes(driver, "b")
    for pause_ns, told in steps:
        driver.at(driver.now_ns + pause_ns)
        call_id = ask(driver, "a")
        if isinstance(driver.answers.get(call_id), Grant):
            if isinstance(told, QuotaReading):
                driver.post(ResponseStarted(CallId(call_id), (told,)))
            elif told is not None:
                driver.end(call_id, told)

        assert goes(driver, "b")


def test_nobody_waits_for_the_prompt_of_another_account() -> None:
    quota = RateLimitSettings(dimension=Dimension.INPUT, amount=10_000_000, window_ns=MINUTE)
    group = LimitGroupSettings(glob=None, concurrency=None, quotas=(quota,))
    driver = Driver(program(providers=[attrs.evolve(provider("p"), groups=(group,))]))
    long = attrs.evolve(wish(), tokens_in=LONG_TOKENS)

    first = [driver.ask(long, credential=credential, prefix="same") for credential in "ab"]
    again = driver.ask(long, credential="a", prefix="same")

    assert driver.granted == first
    assert again not in driver.answers
