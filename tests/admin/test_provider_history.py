"""Circuits and models of providers, read from the scheduler's events."""

from __future__ import annotations

from hivemind_trio.admin import ProviderHistory
from hivemind_trio.admin.history.provider_history import MODELS_MAX, OTHER, TURNS_MAX
from hivemind_trio.model import Api, Outcome, Request, Usage
from hivemind_trio.policy import Failure
from hivemind_trio.scheduler import (
    AttemptEnded,
    AttemptResult,
    Call,
    CallArrived,
    CallCancelled,
    CallId,
    Circuit,
    Event,
    LimitChanged,
    Scheduler,
    TimePassed,
)
from tests.support.policies import compiled

SECOND_NS = 1_000_000_000
POLICY = """provider p {
  api anthropic; base "http://127.0.0.1:1"; key env(K); concurrency 3
  breaker trip 50% of 4 over 60s open 5s probes 1
}
rule cheap when model == "dear" { model "cheap" }
"""
USAGE = Usage(input=10, cache_read=90, cache_write=0, output=7, exact=True)
SERVED = AttemptResult(
    outcome=Outcome.SUCCEEDED, status=200, committed=True, usage=USAGE, first_byte_ns=3 * SECOND_NS // 2
)
FAILED = AttemptResult(outcome=Outcome.FAILED, status=500, committed=True)
LIMITED = AttemptResult(outcome=Outcome.QUOTA, status=429, committed=True)


class Told:
    """A scheduler whose events the history is told of, as an engine does it."""

    def __init__(self) -> None:
        self.scheduler, self.history = Scheduler(compiled(POLICY)), ProviderHistory()

    def post(self, event: Event, at_s: float) -> None:
        now_ns = round(at_s * SECOND_NS)
        self.history.observe(now_ns, event, self.scheduler.handle(event, now_ns))

    def ask(self, number: int, model: str, at_s: float) -> None:
        request = Request(apis=(Api.ANTHROPIC,), model=model, path="/v1/messages")
        self.post(CallArrived(Call(id=CallId(number), request=request, caller="a")), at_s)

    def end(self, number: int, result: AttemptResult, at_s: float) -> None:
        self.post(AttemptEnded(CallId(number), result), at_s)


def test_attempts_are_summed_by_the_model_that_was_sent() -> None:
    told = Told()
    for number, model in ((1, "haiku"), (2, "dear")):
        told.ask(number, model, number)
        told.end(number, SERVED, number + 0.5)
    for number in (3, 4, 5):
        told.ask(number, "haiku", 10)
    told.post(CallCancelled(CallId(4)), 11)
    told.end(4, AttemptResult(outcome=Outcome.IGNORED), 11)
    told.end(5, LIMITED, 12)
    sums = told.history.of_hour("p", 20 * SECOND_NS)

    assert [(model, one.attempts, one.refused, one.failed) for model, one in sums.items()] == [
        ("haiku", 3, 1, 0), ("cheap", 1, 0, 0)
    ]  # fmt: skip
    haiku = sums["haiku"]
    assert (haiku.tokens_in, haiku.cached, haiku.tokens_out) == (100, 90, 7)
    assert (haiku.first_bytes, haiku.first_bytes_ns) == (1, 3 * SECOND_NS // 2)
    assert told.history.inflight == {CallId(3): ("p", "haiku")}
    assert told.history.of_hour("other", 20 * SECOND_NS) == {}


def test_sums_are_of_the_last_hour_and_bounded() -> None:
    told = Told()
    for number in range(MODELS_MAX + 5):
        told.ask(number, f"model-{number}", number / 10)
        told.end(number, SERVED, number / 10)
    names = told.history.of_hour("p", 60 * SECOND_NS)

    assert len(names) == MODELS_MAX + 1
    assert names[OTHER].attempts == 5
    assert told.history.of_hour("p", 3_700 * SECOND_NS) == {}
    assert not told.history.asked  # nothing of a call that is over stays


def test_a_first_byte_that_was_waited_for_in_vain_is_none() -> None:
    told = Told()
    told.ask(1, "haiku", 0)
    told.ask(2, "haiku", 0)
    told.end(1, SERVED, 2)
    vain = AttemptResult(outcome=Outcome.FAILED, status=200, failure=Failure.FIRST_BYTE, first_byte_ns=30 * SECOND_NS)
    told.end(2, vain, 30)

    (haiku,) = told.history.sums.values()
    assert (haiku.attempts, haiku.first_bytes, haiku.first_bytes_ns) == (2, 1, 3 * SECOND_NS // 2)


def test_a_circuit_that_opens_and_closes_is_noted_with_its_cause() -> None:
    told = Told()
    for number in range(3):
        told.ask(number, "haiku", 0)
    for number in range(3):
        told.end(number, FAILED, 1)
    told.post(TimePassed(), 30)
    told.ask(9, "haiku", 31)
    told.end(9, SERVED, 32)

    assert [(str(one.circuit), one.because) for one in told.history.turns["p"]] == [
        ("open", Outcome.FAILED), ("half-open", None), ("closed", Outcome.SUCCEEDED)
    ]  # fmt: skip
    assert [one.at_ns // SECOND_NS for one in told.history.turns["p"]] == [1, 30, 32]


def test_the_newest_changes_are_kept() -> None:
    history, states = ProviderHistory(), (Circuit.OPEN, Circuit.HALF_OPEN)
    for number in range(TURNS_MAX + 50):
        change = LimitChanged(provider="p", limit=2, circuit=states[number % 2], because=None)
        history.observe(number, TimePassed(), [change, change])

    assert [one.at_ns for one in history.turns["p"]] == list(range(50, TURNS_MAX + 50))
