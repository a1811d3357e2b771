"""Conduct of callers and providers, read from the scheduler's events."""

from __future__ import annotations

from hivemind_trio.admin import Conduct
from hivemind_trio.admin.history.conduct import ATTEMPTS_MAX, CALLERS_MAX, FIRST_CALLS_MAX
from hivemind_trio.model import Api, Outcome, Request
from hivemind_trio.scheduler import (
    AttemptEnded,
    AttemptResult,
    Call,
    CallArrived,
    CallCancelled,
    CallId,
    Event,
    ResponseStarted,
    Scheduler,
)
from tests.support.policies import compiled

SECOND_NS = 1_000_000_000

POLICY = """provider p { api anthropic; base "http://127.0.0.1:1"; key env(K); concurrency 2; retry again }
retry again { on [529]; attempts 3; backoff 1s..1s; ratio 100% }
"""

SERVED = AttemptResult(outcome=Outcome.SUCCEEDED, status=200, committed=True)
REFUSED = AttemptResult(outcome=Outcome.OVERLOADED, status=529)


class Told:
    """A scheduler whose events the conduct is told of, as an engine does it."""

    def __init__(self) -> None:
        self.scheduler, self.conduct = Scheduler(compiled(POLICY)), Conduct()

    def post(self, event: Event, at_s: float) -> None:
        now_ns = round(at_s * SECOND_NS)
        self.conduct.observe(now_ns, event, self.scheduler.handle(event, now_ns))

    def ask(self, number: int, caller: str, at_s: float, *, needs_slot: bool = True) -> None:
        request = Request(apis=(Api.ANTHROPIC,), model="claude-sonnet-4-5", path="/v1/messages")
        call = Call(id=CallId(number), request=request, caller=caller, needs_slot=needs_slot)
        self.post(CallArrived(call), at_s)

    def end(self, number: int, result: AttemptResult, at_s: float) -> None:
        self.post(AttemptEnded(CallId(number), result), at_s)


def test_attempts_have_their_durations_and_those_in_flight_their_age() -> None:
    told = Told()
    told.ask(1, "a", 0)
    told.ask(2, "b", 1)
    told.ask(3, "c", 2)  # it waits
    told.end(1, SERVED, 5)
    (attempts,) = told.conduct.attempts(7 * SECOND_NS).values()

    assert [(one.began_ns // SECOND_NS, one.lasted_ns // SECOND_NS, one.result) for one in attempts] == [
        (0, 5, SERVED),
        (1, 6, None),
        (5, 2, None),
    ]
    assert told.conduct.answered() == 1


def test_attempts_have_their_group_their_load_and_whether_an_answer_has_begun() -> None:
    told = Told()
    told.ask(1, "a", 0)
    told.ask(2, "b", 1)
    told.post(ResponseStarted(CallId(2), (), good=False), 2)
    told.post(ResponseStarted(CallId(1), ()), 2)
    told.end(1, SERVED, 5)
    (attempts,) = told.conduct.attempts(7 * SECOND_NS).values()

    assert [(one.group, one.load, one.begun) for one in attempts] == [
        ("claude-sonnet-4-5", 1.5, True),
        ("claude-sonnet-4-5", 1.5, False),
    ]


def test_a_pause_is_that_between_an_answer_and_the_next_call_of_its_caller() -> None:
    told = Told()
    told.ask(1, "a", 0)
    told.end(1, SERVED, 4)
    told.ask(2, "b", 5)
    told.ask(3, "a", 7)
    told.ask(4, "a", 8)  # beside the other one: no pause
    told.ask(5, "a", 8, needs_slot=False)  # a count of tokens is no turn
    told.post(CallCancelled(CallId(4)), 9)
    told.end(3, SERVED, 10)
    told.ask(6, "a", 400)  # it has begun anew

    assert list(told.conduct.gaps_ns) == [3 * SECOND_NS]
    known = told.conduct.callers["a"]
    assert (known.call.id, known.live) == (CallId(6), 1)


def test_what_is_kept_is_bounded() -> None:
    told = Told()
    for number in range(CALLERS_MAX + 50):
        told.ask(number, f"caller-{number}", number)
        told.end(number, SERVED, number + 0.5)

    assert len(told.conduct.callers) == CALLERS_MAX
    assert len(told.conduct.attempts(10**15)["p"]) == ATTEMPTS_MAX
    assert not told.conduct.live
    assert not told.conduct.inflight


def test_first_calls_are_those_of_new_callers_and_of_callers_that_begin_anew() -> None:
    told = Told()
    told.ask(1, "a", 0)
    told.end(1, SERVED, 1)
    told.ask(2, "a", 5)
    told.end(2, SERVED, 6)
    told.ask(3, "b", 7)
    told.ask(4, "a", 400)

    assert [(at_ns // SECOND_NS, call.caller) for at_ns, call in told.conduct.first_calls] == [
        (0, "a"),
        (7, "b"),
        (400, "a"),
    ]
    for number in range(5, 5 + FIRST_CALLS_MAX):
        told.ask(number, f"c-{number}", 500)
    assert len(told.conduct.first_calls) == FIRST_CALLS_MAX
    assert all(at_ns == 500 * SECOND_NS for at_ns, _ in told.conduct.first_calls)
