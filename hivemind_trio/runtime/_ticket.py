"""One call's place before the scheduler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Self, final

import attrs
import trio

from hivemind_trio.core import Call, CallId, Grant, Outcome, Refuse

if TYPE_CHECKING:
    from ._engine import Engine

Attempt = Callable[[], Awaitable[Outcome]]


@final
class Rejected(Exception):  # noqa: N818 - one of the three ways to divide errors by who must act: here, the agent
    """The scheduler will not let this call go upstream; `refuse` says why and when to come back."""

    def __init__(self, refuse: Refuse) -> None:
        super().__init__(refuse.message)
        self.refuse = refuse


class _State(Enum):
    WAITING = auto()
    GRANTED = auto()
    RUNNING = auto()
    OVER = auto()


@final
@attrs.define(eq=False)
class Ticket:
    """Holds a call's place, and later its permit, for the length of a `with engine.ticket(...)`.

    Leaving the block gives back whatever is held: a place in the queue at once, a permit that no attempt was started
    with at once, a running attempt's as soon as its cancellation has come through.
    """

    _call: Call
    _engine: Engine
    _state: _State = attrs.field(init=False, default=_State.WAITING)
    _answer: Grant | Refuse | None = attrs.field(init=False, default=None)
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

    async def granted(self) -> Grant:
        """Wait until the call may go upstream. Returns at once, with a checkpoint, where nothing is in its way.

        Raises:
            Rejected: It may not.
        """
        if self._answer is None:
            self._answered = trio.Event()
            await self._answered.wait()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        assert self._answer is not None
        if isinstance(self._answer, Refuse):
            raise Rejected(self._answer)
        return self._answer

    def start(self, attempt: Attempt) -> None:
        """Run one attempt in the nursery of the provider that was granted.

        Its outcome, or its crash, ends the attempt and gives the permit back, whoever still reads the answer.
        """
        assert self._state is _State.GRANTED, f"call {self.id} is {self._state.name.lower()}, not granted"
        assert isinstance(self._answer, Grant)
        self._state = _State.RUNNING
        self._scope = trio.CancelScope()
        provider = self._answer.treatment.provider
        assert provider is not None
        self._engine.begin(provider, lambda: self._run(attempt))

    async def _run(self, attempt: Attempt) -> None:
        assert self._scope is not None
        outcome = Outcome.IGNORED  # a cancelled attempt says nothing about its provider
        try:
            with self._scope:
                outcome = await attempt()
        except Exception as error:  # noqa: BLE001 - a bug in one attempt must not end the provider's nursery
            outcome = Outcome.DROPPED
            self._engine.crashed(error)
        finally:
            # Awaits nothing: whatever ended the attempt, the permit is back before anybody else runs.
            self._state = _State.OVER
            assert isinstance(self._answer, Grant)
            self._engine.ended(self, self._answer.permit, outcome)

    def answer(self, command: Grant | Refuse) -> None:
        """The engine's side: what the scheduler decided."""
        self._answer = command
        self._state = _State.GRANTED if isinstance(command, Grant) else _State.OVER
        if self._answered is not None:
            self._answered.set()

    def _close(self) -> None:
        match self._state:
            case _State.WAITING:
                self._state = _State.OVER
                self._engine.withdrawn(self)
            case _State.GRANTED:
                self._state = _State.OVER
                assert isinstance(self._answer, Grant)
                self._engine.unused(self, self._answer.permit)
            case _State.RUNNING:
                assert self._scope is not None
                self._scope.cancel()
            case _State.OVER:
                pass
        self._engine.left(self)
