"""One call's place before the scheduler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Final, Protocol, Self, final

import attrs
import trio

from hivemind_trio.model import Outcome, PlanReading, PlanStanding, QuotaReading
from hivemind_trio.scheduler import AttemptResult, Call, CallId, Finish, Grant, Permit, Reject, Waiting

Attempt = Callable[[], Awaitable[AttemptResult]]


CANCELLED: Final = AttemptResult(outcome=Outcome.IGNORED, committed=True)
"""Result of a cancelled attempt: no evidence about its provider, and no retry."""

CRASHED: Final = AttemptResult(outcome=Outcome.IGNORED)
"""Our own mistake: it says nothing about the provider either, and trying again would make it again."""


def _nothing() -> AttemptResult:
    return CANCELLED


@final
class Rejected(Exception):  # noqa: N818 - one of the three ways to divide errors by who must act: here, the agent
    """The scheduler will not let this call go upstream; `reject` says why and when to come back."""

    def __init__(self, reject: Reject) -> None:
        super().__init__(reject.message)
        self.reject = reject


class _State(Enum):
    WAITING = auto()
    GRANTED = auto()
    RUNNING = auto()
    OVER = auto()


class TicketOwner(Protocol):
    """The engine, as far as a ticket needs it."""

    def arrived(self, ticket: Ticket, call: Call) -> None:
        """Post the arrival of a call."""

    def may_send(self, ticket: Ticket) -> bool:
        """Return True if what a ticket was granted holds still."""
        ...

    def begin(self, grant: Grant, job: Callable[[], Awaitable[None]]) -> None:
        """Start an attempt in the provider's nursery."""

    def heard(
        self, ticket: Ticket, readings: tuple[QuotaReading, ...], good: bool, plan: PlanReading | None = None
    ) -> None:
        """Post the head of an attempt's answer."""

    def received(self, ticket: Ticket, amount: int) -> None:
        """Count bytes of the stream that an attempt receives."""

    def plan(self, call: Call, provider: str, model: str) -> PlanStanding:
        """Return the plan that a call counts against at a provider."""
        ...

    def ended(self, ticket: Ticket, permit: Permit | None, ended: AttemptResult) -> None:
        """Take back the permit of an attempt that is over."""

    def unused(self, ticket: Ticket, permit: Permit | None) -> None:
        """Take back the permit of a call that left before its attempt began."""

    def withdrawn(self, ticket: Ticket) -> Waiting | None:
        """Take a call out of the queue; return its place there, None if it had none."""

    def left(self, ticket: Ticket) -> None:
        """Forget a ticket whose block was left."""

    def crashed(self, error: Exception) -> None:
        """Report an exception that escaped from an attempt."""


@final
@attrs.define(eq=False)
class Ticket:
    """Holds a call's place, and later its permit, for the length of a `with engine.ticket(...)`.

    Leaving the block gives back whatever is held: a place in the queue at once, a permit that no attempt was started
    with at once, a running attempt's as soon as its cancellation has come through.
    """

    _call: Call
    _engine: TicketOwner
    gave_up: Waiting | None = attrs.field(init=False, default=None)
    """State of the call in the queue when its client left it there; None: it did not."""
    lapses: int | None = attrs.field(init=False, default=None)
    """Shares that had ended when it was granted a slot; None: it has none. The engine's."""
    _state: _State = attrs.field(init=False, default=_State.WAITING)
    _answer: Grant | Reject | Finish | None = attrs.field(init=False, default=None)
    _answered: trio.Event | None = attrs.field(init=False, default=None)
    _scope: trio.CancelScope | None = attrs.field(init=False, default=None)

    @property
    def id(self) -> CallId:
        """The call's."""
        return self._call.id

    def __enter__(self) -> Self:
        try:
            self._engine.arrived(self, self._call)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # Awaits nothing, so that it cannot be interrupted, and runs however the block was left.
        self._close()

    @property
    def answered(self) -> bool:
        """True if the answer that `granted` or `again` waits for has arrived."""
        return self._answer is not None

    async def granted(self) -> Grant:
        """Wait until the call may go upstream. Returns at once, with a checkpoint, where nothing is in its way.

        Raises:
            Rejected: It may not.
        """
        answer = await self._wait()
        assert not isinstance(answer, Finish), "nothing has been tried yet"
        return answer

    async def again(self) -> Grant | None:
        """After an attempt of which the agent has had nothing: wait for leave for another; None: there will be none.

        Raises:
            Rejected: It waited for another, and will not have it.
        """
        answer = await self._wait()
        return None if isinstance(answer, Finish) else answer

    async def _wait(self) -> Grant | Finish:
        if self._answer is None:
            self._answered = trio.Event()
            await self._answered.wait()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        assert self._answer is not None
        if isinstance(self._answer, Reject):
            raise Rejected(self._answer)
        return self._answer

    def start(self, attempt: Attempt, cut_off: Callable[[], AttemptResult] = _nothing) -> None:
        """Run one attempt in the nursery of the provider that was granted.

        Args:
            attempt: Says at its end how it ended.
            cut_off: How it has ended if it is cancelled, and has no say itself.

        What `attempt` returns, or its crash, ends it and gives the permit back, whoever still reads the answer. If
        the agent has had nothing of it, `again` says how the call goes on.
        """
        assert self._state is _State.GRANTED, f"call {self.id} is {self._state.name.lower()}, not granted"
        assert isinstance(self._answer, Grant)
        grant, self._answer, self._answered = self._answer, None, None
        self._state = _State.RUNNING
        self._scope = trio.CancelScope()
        self._engine.begin(grant, lambda: self._run(attempt, cut_off, grant.permit))

    async def _run(self, attempt: Attempt, cut_off: Callable[[], AttemptResult], permit: Permit | None) -> None:
        assert self._scope is not None
        ended = CANCELLED
        try:
            with self._scope:
                ended = await attempt()
        except Exception as error:  # noqa: BLE001 - a bug in one attempt must not end the provider's nursery
            ended = CRASHED
            self._engine.crashed(error)
        finally:
            # Awaits nothing: whatever ended the attempt, the permit is back before anybody else runs.
            left = self._state is not _State.RUNNING
            self._state = _State.OVER if left or ended.committed else _State.WAITING
            if ended is CANCELLED:
                ended = cut_off()
            if left and not ended.committed:
                ended = attrs.evolve(ended, committed=True)  # nobody is there for another attempt
            self._engine.ended(self, permit, ended)

    def hang_up(self) -> None:
        """End the running attempt, if there is one, as soon as its cancellation has come through."""
        if self._state is _State.RUNNING:
            assert self._scope is not None
            self._scope.cancel()

    def heard(self, readings: tuple[QuotaReading, ...], good: bool, plan: PlanReading | None = None) -> None:
        """Pass on the head of the running attempt's answer, with the provider's quotas and the account's plan."""
        if self._state is _State.RUNNING:
            self._engine.heard(self, readings, good, plan)

    def received(self, amount: int) -> None:
        """Count bytes of the stream that the running attempt receives."""
        if self._state is _State.RUNNING:
            self._engine.received(self, amount)

    def may_send(self) -> bool:
        """Return True if the running attempt may be sent now. It may not once this node's share has ended."""
        return self._engine.may_send(self)

    def plan(self, provider: str, model: str) -> PlanStanding:
        """Return the plan that the call counts against at a provider."""
        return self._engine.plan(self._call, provider, model)

    def answer(self, command: Grant | Reject | Finish) -> None:
        """Take the scheduler's decision; called by the engine, which then wakes the call."""
        self._answer = command
        self._state = _State.GRANTED if isinstance(command, Grant) else _State.OVER

    def wake(self) -> None:
        """Let the call go on, if it waits for the decision. It may have seen it already."""
        if self._answered is not None and self._answer is not None:
            self._answered.set()

    def _close(self) -> None:
        match self._state:
            case _State.WAITING:
                self._state = _State.OVER
                self.gave_up = self._engine.withdrawn(self)
            case _State.GRANTED:
                self._state = _State.OVER
                assert isinstance(self._answer, Grant)
                self._engine.unused(self, self._answer.permit)
            case _State.RUNNING:
                self.hang_up()
                self._state = _State.OVER
            case _State.OVER:
                pass
        self._engine.left(self)
