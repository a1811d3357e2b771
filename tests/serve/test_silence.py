"""Report of a provider that is sent calls and answers none, though no breaker has opened."""

from __future__ import annotations

import attrs
import pytest

from hivemind_trio.admin import Silences
from hivemind_trio.admin.history.provider_silence import FORGETS, IDLE_NS, LONG_NS, UNKNOWN_NS, USUAL_TIMES
from hivemind_trio.model import Outcome
from hivemind_trio.policy import RetrySettings
from hivemind_trio.scheduler import (
    AttemptEnded,
    AttemptResult,
    Call,
    CallArrived,
    CallId,
    Event,
    Grant,
    ResponseStarted,
    Scheduler,
    TimePassed,
)
from hivemind_trio.serve.standstill_log import Standstills
from tests.support.programs import SECOND_NS, program, provider, wish

from .conftest import Said

GOOD = AttemptResult(outcome=Outcome.SUCCEEDED, status=200, committed=True)
REFUSED = AttemptResult(outcome=Outcome.BURST, status=429)
RESET = AttemptResult(outcome=Outcome.FAILED)


@attrs.define(eq=False)
class Watched:
    """A scheduler whose events are told to the silences, and to their log."""

    said: Said
    scheduler: Scheduler
    silences: Silences = attrs.field(factory=Silences)
    refuses: bool = False
    """Calls are refused as soon as they are granted."""
    now_ns: int = 0
    _log: Standstills = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._log = Standstills(self.said.log, self.silences)

    def post(self, event: Event) -> None:
        commands = self.scheduler.handle(event, self.now_ns)
        self.silences.observe(self.now_ns, event, commands)
        for one in commands:
            if self.refuses and isinstance(one, Grant):
                self.post(AttemptEnded(one.call_id, REFUSED))

    def calls(self, count: int, first: int = 1) -> None:
        for number in range(first, first + count):
            self.post(CallArrived(Call(id=CallId(number), request=wish(provider="p"), caller=f"c{number}")))

    def answer(self, number: int) -> None:
        self.post(ResponseStarted(CallId(number), ()))
        self.post(AttemptEnded(CallId(number), GOOD))

    def at(self, at_ns: float) -> list[str]:
        """Look every second until then, and return the events of the log."""
        while self.now_ns < at_ns:
            self.now_ns = min(int(at_ns), self.now_ns + SECOND_NS)
            self.post(TimePassed())
            self._log.look(self.scheduler.snapshot(), self.now_ns)
        return [one["event"] for one in self.said.lines]


@pytest.fixture
def watched(said: Said) -> Watched:
    return Watched(said, Scheduler(program(providers=[provider("p", limit=8)], retries=[RetrySettings()])))


def test_calls_that_hang_are_told_once_and_so_is_the_first_answer_after_them(watched: Watched) -> None:
    watched.calls(1)
    watched.now_ns = SECOND_NS
    watched.answer(1)
    watched.calls(10, first=2)

    assert watched.at(SECOND_NS + LONG_NS) == []
    assert watched.at(60 * SECOND_NS) == ["provider_silent"]
    assert watched.said.lines[0] == {
        "event": "provider_silent", "level": "warning", "provider": "p", "silent_s": 21.0,
        "inflight": 8, "waiting": 2, "refused": 0, "failed": 0,
    }  # fmt: skip
    watched.answer(2)
    assert watched.at(62 * SECOND_NS) == ["provider_silent", "provider_answers"]


def test_tests_of_a_provider_that_are_all_refused_are_no_answers(watched: Watched) -> None:
    """No standstill is reported there: one call or another goes every few seconds."""
    watched.calls(1)
    watched.answer(1)
    watched.refuses = True
    watched.calls(8, first=2)

    assert watched.at(40 * SECOND_NS) == ["provider_silent"]
    assert watched.scheduler.snapshot().inflight == 0, "nor was any in flight at any look"
    (line,) = watched.said.lines
    assert line["refused"] > 8
    assert line["inflight"] + line["waiting"] == 8


def test_one_long_call_is_no_silence(watched: Watched) -> None:
    watched.calls(1)
    watched.answer(1)
    watched.calls(2, first=2)

    assert watched.at(200 * SECOND_NS) == []


def test_answers_that_are_usually_late_are_waited_for(watched: Watched) -> None:
    watched.calls(1)
    watched.at(15 * SECOND_NS)
    watched.answer(1)
    watched.calls(5, first=2)

    assert watched.at((15 + USUAL_TIMES * 15) * SECOND_NS) == []
    assert watched.at((17 + USUAL_TIMES * 15) * SECOND_NS) == ["provider_silent"]


def test_where_nothing_is_usual_the_first_answers_have_a_minute(watched: Watched) -> None:
    watched.calls(5)

    assert watched.at(UNKNOWN_NS) == []
    assert watched.at(UNKNOWN_NS + 2 * SECOND_NS) == ["provider_silent"]


def test_one_late_answer_is_forgotten(watched: Watched) -> None:
    watched.calls(1)
    watched.at(15 * SECOND_NS)
    watched.answer(1)
    for number in range(2, 300):
        watched.calls(1, first=number)
        watched.answer(number)

    usual_ns = watched.silences.of["p"].usual_ns
    assert usual_ns is not None
    assert usual_ns <= 15 * SECOND_NS * FORGETS**298 + SECOND_NS


def test_a_provider_that_nobody_called_for_long_was_not_silent(watched: Watched) -> None:
    watched.calls(1)
    watched.answer(1)
    watched.calls(1, first=2)
    watched.post(AttemptEnded(CallId(2), attrs.evolve(RESET, committed=True)))
    watched.at(2 * IDLE_NS)
    watched.calls(5, first=3)

    assert watched.at(2 * IDLE_NS + LONG_NS) == []
