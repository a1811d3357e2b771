"""A scheduler with a clock and a counter, so that an example reads as a story."""

from __future__ import annotations

from typing import Any

from hivemind_trio.model import Request
from hivemind_trio.policy import Program
from hivemind_trio.scheduler import (
    ALL_PARTS,
    AskBudgets,
    AskLearning,
    AttemptEnded,
    AttemptResult,
    Call,
    CallArrived,
    CallCancelled,
    CallId,
    Command,
    Correction,
    Draining,
    Draw,
    DrawWindow,
    Event,
    Features,
    Grant,
    LimitChanged,
    PlanChanged,
    PolicyLoaded,
    Reject,
    Scheduler,
    Snapshot,
    Spend,
    TimePassed,
)
from tests.support.ends import SUCCEEDED
from tests.support.programs import wish


class Driver:
    """Ids are handed out from 0. What was answered stays in `answers`, by id, and in `granted`, in order."""

    def __init__(self, program: Program, seed: int = 0, *, parts: Features = ALL_PARTS) -> None:
        self.scheduler = Scheduler(program, seed, parts=parts)
        self.now_ns = 0
        self.answers: dict[int, Command] = {}
        self.granted: list[int] = []
        self.next_id = 0
        self.last: list[Command] = []
        """Commands of the last event."""

    def call(self, caller: str = "x", *, job: str = "", needs_slot: bool = True, **wishes: Any) -> int:
        return self.ask(wish(**wishes), caller, job=job, needs_slot=needs_slot)

    def ask(self, request: Request, caller: str = "x", **more: Any) -> int:
        """A call of a request that is there already; `more` as in `Call`."""
        call_id = CallId(self.next_id)
        self.next_id += 1
        self.post(CallArrived(Call(id=call_id, request=request, caller=caller, **more)))
        return call_id

    def calls(self, times: int, caller: str = "x", **wishes: Any) -> list[int]:
        return [self.call(caller, **wishes) for _ in range(times)]

    def end(self, call_id: int, ended: AttemptResult = SUCCEEDED) -> list[int]:
        """Return who was granted."""
        return [each.call_id for each in self.post(AttemptEnded(CallId(call_id), ended)) if isinstance(each, Grant)]

    def cancel(self, call_id: int) -> None:
        self.post(CallCancelled(CallId(call_id)))

    def load(self, program: Program) -> list[Command]:
        return self.post(PolicyLoaded(program))

    def drain(self) -> list[Command]:
        return self.post(Draining())

    def at(self, now_ns: int) -> list[Command]:
        self.now_ns = now_ns
        return self.post(TimePassed())

    def post(self, event: Event) -> list[Command]:
        commands = self.last = self.scheduler.handle(event, self.now_ns)
        while self.scheduler.state.behind:  # as the engine does, in further turns of its loop
            commands += self.scheduler.handle(TimePassed(), self.now_ns)
        for command in commands:
            if isinstance(command, LimitChanged | PlanChanged | Draw):
                continue
            if isinstance(command, Spend | Correction | DrawWindow | AskBudgets | AskLearning):
                continue
            self.answers[command.call_id] = command
            if isinstance(command, Grant) and command.permit is not None:
                self.granted.append(command.call_id)
        return commands

    def grant(self, call_id: int) -> Grant:
        answer = self.answers[call_id]
        assert isinstance(answer, Grant)
        return answer

    def refusal(self, call_id: int) -> Reject:
        answer = self.answers[call_id]
        assert isinstance(answer, Reject)
        return answer

    @property
    def rest(self) -> Snapshot:
        return self.scheduler.snapshot()
