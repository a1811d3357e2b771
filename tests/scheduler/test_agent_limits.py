"""`agent { limits }`: what an agent starts over all providers, and who waits for it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Api, Outcome, Reason, Request, Usage
from hivemind_trio.policy import MemoryFiles, Program, check
from hivemind_trio.scheduler import AttemptResult, CallId
from tests.support.programs import SECOND_NS

from .driver import Driver

MINUTE_NS = 60 * SECOND_NS
SLICE_NS = MINUTE_NS // 64
"""Most by which a window is longer than it says."""
BROKEN = AttemptResult(outcome=Outcome.FAILED, status=500)
DENIED = AttemptResult(outcome=Outcome.IGNORED, status=400)


@cache
def policy(limits: str, more: str = "", agent: str = "") -> Program:
    text = (
        'hmp 1\nprovider other { api anthropic; base "http://127.0.0.1:2"; concurrency 20; headers ignore; '
        'serves ["other-*"] }\n'
        'provider sim { api anthropic; base "http://127.0.0.1:1"; concurrency 20; headers ignore }\n'
        f"agent ci {{ limits {{ {limits} }} {agent} }}\nagent free {{ }}\n{more}\n"
    )
    checked = check("p.hmp", MemoryFiles({"p.hmp": text}))
    assert checked.program is not None, checked.diagnostics
    return checked.program


def ask(driver: Driver, agent: str, **said: Any) -> int:
    facts: dict[str, Any] = {"model": "claude", "tokens_in": 1_000, "tokens_max_out": 100, **said}
    return driver.ask(Request(apis=(Api.ANTHROPIC,), claimed=agent, path="/v1/messages", **facts), agent)


def ci(driver: Driver, **said: Any) -> int:
    return ask(driver, "ci", **said)


def waits(driver: Driver, call: int) -> bool:
    return driver.scheduler.waiting(CallId(call), driver.now_ns) is not None


def used(tokens_in: int, tokens_out: int) -> AttemptResult:
    usage = Usage(input=tokens_in, output=tokens_out, exact=False)
    return AttemptResult(outcome=Outcome.SUCCEEDED, status=200, usage=usage, committed=True)


def test_further_calls_wait_for_the_window_and_others_do_not() -> None:
    driver = Driver(policy("requests 2/min"))
    first, second, third = ci(driver), ci(driver), ci(driver)
    free = ask(driver, "free")

    assert driver.granted == [first, second, free]
    waiting = driver.scheduler.waiting(CallId(third), driver.now_ns)
    assert waiting is not None
    assert waiting.reason is Reason.AGENT_LIMIT
    wakes_ns = driver.scheduler.wakeup_ns()
    assert wakes_ns is not None
    assert MINUTE_NS <= wakes_ns <= MINUTE_NS + SLICE_NS
    (queued,) = driver.scheduler.occupancy(driver.now_ns).waiting
    assert queued.reason is Reason.AGENT_LIMIT
    assert queued.not_before_ns == wakes_ns

    driver.at(wakes_ns)

    assert driver.granted[-1] == third
    assert driver.grant(third).reason is Reason.AGENT_LIMIT


def test_the_window_is_of_all_providers_together() -> None:
    driver = Driver(policy("requests 2/min"))

    assert waits(driver, [ci(driver, model="claude"), ci(driver, model="other-1"), ci(driver, model="other-2")][2])


def test_a_call_that_ends_early_frees_nothing_but_tokens_it_did_not_take() -> None:
    driver = Driver(policy("input 2k/min"))
    one, two = ci(driver, tokens_in=1_500), ci(driver, tokens_in=1_000)
    assert waits(driver, two)

    driver.end(one, used(900, 10))

    assert not waits(driver, two)


def test_no_call_of_the_agent_passes_its_next_one() -> None:
    driver = Driver(policy("input 2k/min"))
    ci(driver, tokens_in=1_500)
    large = ci(driver, tokens_in=1_000)
    small = ci(driver, tokens_in=200, model="other-1")  # it would fit, and wait at another provider

    assert waits(driver, large)
    assert waits(driver, small)

    driver.at(MINUTE_NS + SLICE_NS)

    assert driver.granted[-2:] == [large, small]


def test_a_call_goes_beside_the_next_one_where_both_fit() -> None:
    limits = 'limits "other-*" { concurrency 1 }'
    driver = Driver(policy("input 2k/min", f"defaults provider {{ {limits} }}"))
    ci(driver, tokens_in=100, model="other-1")
    blocked = ci(driver, tokens_in=1_000, model="other-1")  # for the slot of its models

    assert not waits(driver, ci(driver, tokens_in=900))
    assert waits(driver, ci(driver, tokens_in=900))  # it would take of the room of the next
    assert waits(driver, blocked)


def test_a_more_urgent_call_goes_first() -> None:
    driver = Driver(policy("input 2k/min", "rule r when stream { priority 9 }"))
    ci(driver, tokens_in=1_500)
    large, urgent = ci(driver, tokens_in=1_000), ci(driver, tokens_in=200, stream=True)

    assert waits(driver, large)
    assert not waits(driver, urgent)


def test_a_call_that_leaves_lets_the_next_one_go() -> None:
    driver = Driver(policy("input 2k/min"))
    ci(driver, tokens_in=1_500)
    large, small = ci(driver, tokens_in=1_000), ci(driver, tokens_in=200)

    driver.cancel(large)

    assert not waits(driver, small)


def test_a_call_larger_than_the_window_is_refused_at_once() -> None:
    driver = Driver(policy("input 2k/min"))
    refusal = driver.refusal(ci(driver, tokens_in=3_001))

    assert refusal.reason is Reason.OVER_LIMITS
    assert "limit of 2,000 input tokens per minute of agent `ci`" in refusal.message


def test_retries_of_a_call_count_once() -> None:
    driver = Driver(policy("requests 1/min", "defaults provider { retry quick }\nretry quick { backoff 1s..1s }"))
    call = ci(driver)
    driver.end(call, BROKEN)
    wakes_ns = driver.scheduler.wakeup_ns()
    assert wakes_ns is not None

    driver.at(wakes_ns)

    assert driver.granted == [call, call]
    assert waits(driver, ci(driver))


def test_tokens_of_a_call_that_failed_come_back_and_its_request_does_not() -> None:
    driver = Driver(policy("requests 2/min; input 2k/min"))
    driver.end(ci(driver, tokens_in=1_500), DENIED)

    assert not waits(driver, ci(driver, tokens_in=1_900))
    assert waits(driver, ci(driver, tokens_in=10))


def test_windows_live_longer_than_the_calls() -> None:
    driver = Driver(policy("requests 1/min"))
    driver.end(ci(driver))

    assert waits(driver, ci(driver))


def test_each_unknown_caller_has_windows_of_its_own() -> None:
    text = (
        'hmp 1\ndefaults agent { limits { requests 1/min } }\nprovider sim { api anthropic; base "http://127.0.0.1:1" }'
    )
    program = check("p.hmp", MemoryFiles({"p.hmp": text})).program
    assert program is not None
    driver = Driver(program)
    one, other, again = ask(driver, "a"), ask(driver, "b"), ask(driver, "a")

    assert driver.granted == [one, other]
    assert waits(driver, again)


def test_a_call_is_told_at_once_of_a_wait_that_its_client_will_not_wait_for() -> None:
    driver = Driver(policy("requests 1/hour"))
    ci(driver)
    request = Request(apis=(Api.ANTHROPIC,), claimed="ci", model="claude")

    refusal = driver.refusal(driver.ask(request, "ci", patience_ns=300 * SECOND_NS))

    assert refusal.reason is Reason.CLIENT_PATIENCE
    assert (refusal.retry_after_ns or 0) > 0


# ---- reload ----


def test_a_reload_keeps_what_was_started() -> None:
    driver = Driver(policy("requests 3/min"))
    ci(driver)
    ci(driver)

    driver.load(policy("requests 2/min"))

    assert waits(driver, ci(driver))


def test_a_window_of_another_length_begins_with_what_was_started() -> None:
    driver = Driver(policy("requests 3/hour"))
    ci(driver)
    ci(driver)

    driver.load(policy("requests 2/min"))

    assert waits(driver, ci(driver))


def test_a_renamed_agent_keeps_its_windows() -> None:
    driver = Driver(policy("requests 1/min"))
    driver.end(ci(driver))

    text = 'hmp 1\nprovider sim { api anthropic; base "http://127.0.0.1:1" }\n'
    text += "agent build was ci { limits { requests 1/min } }"
    renamed = check("p.hmp", MemoryFiles({"p.hmp": text})).program
    assert renamed is not None
    driver.load(renamed)

    assert waits(driver, ask(driver, "build"))


def test_a_higher_limit_lets_waiting_calls_go() -> None:
    driver = Driver(policy("requests 1/min"))
    ci(driver)
    call = ci(driver)

    driver.load(policy("requests 2/min"))

    assert not waits(driver, call)


def test_a_call_that_may_be_larger_than_the_window_goes_when_it_is_empty() -> None:
    driver = Driver(policy("input 2k/min"))
    first = ci(driver, tokens_in=10)
    doubtful = ci(driver, tokens_in=3_000)
    assert waits(driver, doubtful)

    driver.end(first)
    driver.at(driver.now_ns + 61 * SECOND_NS)
    assert not waits(driver, doubtful)

    assert driver.refusal(ci(driver, tokens_in=2_001, tokens_counted=2_001)).reason is Reason.OVER_LIMITS


def test_a_waiting_call_that_no_window_has_room_for_any_more_is_refused() -> None:
    driver = Driver(policy("input 2k/min"))
    ci(driver, tokens_in=1_500)
    call = ci(driver, tokens_in=1_000)

    driver.load(policy("input 499/min"))

    assert driver.refusal(call).reason is Reason.OVER_LIMITS


# ---- whatever comes ----

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("call"),
            st.sampled_from([1, 300, 900, 2_000]),
            st.sampled_from(["claude", "other-1"]),
            st.booleans(),
        ),
        st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from([0, 200, 2_000])),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("pass"), st.sampled_from([1, SECOND_NS, 20 * SECOND_NS, 70 * SECOND_NS])),
    ),
    max_size=40,
)


@pytest.mark.slow
@given(STEPS, st.sampled_from(["", "; concurrency 2"]))
def test_no_window_is_exceeded_and_nobody_waits_for_nothing(steps: list[tuple[Any, ...]], agent: str) -> None:
    """Tokens are what they were thought to be, so that every start can be counted when it begins."""
    driver = Driver(policy("requests 5/min; input 2k/min", "rule r when stream { priority 9 }", agent))
    asked: dict[int, tuple[int, bool]] = {}
    begun: list[tuple[int, int]] = []
    flying: dict[int, None] = {}

    def note() -> None:
        for call in driver.granted[len(begun) :]:
            begun.append((driver.now_ns, asked[call][0]))
            flying[call] = None
        recent = [tokens for at_ns, tokens in begun if at_ns > driver.now_ns - MINUTE_NS]
        assert len(recent) <= 5
        assert sum(recent) <= 2_000

    def run_to(until_ns: int) -> None:
        while (wakes_ns := driver.scheduler.wakeup_ns()) is not None and wakes_ns <= until_ns:
            driver.at(max(wakes_ns, driver.now_ns))
            note()
        driver.now_ns = until_ns

    for step in steps:
        match step:
            case ("call", tokens, model, urgent):
                asked[driver.next_id] = tokens, urgent
                ci(driver, tokens_in=tokens, model=model, stream=urgent)
            case ("end", index, _) if flying:
                call = list(flying)[index % len(flying)]
                del flying[call]
                driver.end(call, used(asked[call][0], 1))
            case ("cancel", index) if asked:
                call = list(asked)[index % len(asked)]
                if waits(driver, call):
                    driver.cancel(call)
            case ("pass", time_ns):
                run_to(driver.now_ns + time_ns)
        note()

    while flying or len(driver.scheduler.state.room):
        if flying:
            call = next(iter(flying))
            del flying[call]
            driver.end(call, used(asked[call][0], 1))
            note()
        else:
            wakes_ns = driver.scheduler.wakeup_ns()
            assert wakes_ns is not None, "a call waits that nothing will ever let go"
            assert wakes_ns <= driver.now_ns + MINUTE_NS + SLICE_NS, "it waits for longer than a window"
            run_to(wakes_ns)
