"""Between the task that fetches and the task that talks to the agent: bounded, and it holds no permit."""

from __future__ import annotations

from collections import deque
from typing import Final, final

import attrs
import trio

from hivemind_trio.model import AnswerFacts, Usage
from hivemind_trio.upstream import UpstreamError
from hivemind_trio.wire import Signal, UsageMeter

from .request.header_filter import Headers

OUTBOX_BYTES_MAX: Final = 256 * 1024
"""Largest part of an answer that the agent has not taken; the kernel's buffers may hold as much again."""

AGENT_PATIENCE_S: Final = 60.0
"""Time for which the buffer may stay full before the attempt is cancelled: no slot waits for a stalled reader."""


class AgentStalled(Exception):  # noqa: N818 - nobody's error: the agent stopped reading
    """The agent has not taken anything for `AGENT_PATIENCE_S`."""


@final
@attrs.define(eq=False)
class Outbox:
    """An answer on its way. One task puts, one takes, without a channel, which would cost four times as much."""

    head: tuple[int, Headers] | None = attrs.field(init=False, default=None)
    pending: tuple[int, Headers] | None = attrs.field(init=False, default=None)
    """Head of a stream that is held until its first content event; kept afterwards. None: there is no such head."""
    held: tuple[int, Headers] | None = attrs.field(init=False, default=None)
    """Head of an answer that is kept back, because another attempt may do better."""
    held_body: bytes = attrs.field(init=False, default=b"")
    trailers: Headers = attrs.field(init=False, factory=list)
    error: UpstreamError | None = attrs.field(init=False, default=None)
    """Why it ended before its end, or without its closing event."""
    meter: UsageMeter | None = attrs.field(init=False, default=None)
    """Reads what the answer says it has taken, and its error; None: there is none yet, or nobody wants to know."""
    _pieces: deque[bytes] = attrs.field(init=False, factory=deque)
    _bytes: int = attrs.field(init=False, default=0)
    _over: bool = attrs.field(init=False, default=False)
    _whole: bool = attrs.field(init=False, default=False)
    _parked: trio.lowlevel.Task | None = attrs.field(init=False, default=None)
    """Task that waits for the next piece."""
    _room: trio.Event | None = attrs.field(init=False, default=None)

    # ---- the fetching side ----

    def begin(self, status: int, headers: Headers) -> None:
        """Take the head."""
        self.head = status, headers
        self._stir()

    def expect(self, status: int, headers: Headers) -> None:
        """Take the head of a stream, and hold it with what follows until `release`."""
        self.pending = status, headers
        self._stir()

    def release(self) -> None:
        """Send what is held. May be called again."""
        self.head = self.pending
        self._stir()

    @property
    def size(self) -> int:
        """Bytes that nobody has taken."""
        return self._bytes

    def hold(self, status: int, headers: Headers, body: bytes) -> None:
        """Hold back a whole answer."""
        self.held, self.held_body = (status, headers), body

    def put(self, piece: bytes) -> bool:
        """Add a piece of the body; False: the agent is behind, and `room` is to be waited for."""
        if self.meter is not None:
            self.meter.feed(piece)
        self._pieces.append(piece)
        self._bytes += len(piece)
        self._stir()
        return self._bytes <= OUTBOX_BYTES_MAX

    async def room(self) -> None:
        """Wait until the agent has caught up.

        Raises:
            AgentStalled: It stayed behind for too long.
        """
        while self._bytes > OUTBOX_BYTES_MAX:
            self._room = trio.Event()
            with trio.move_on_after(AGENT_PATIENCE_S) as patience:
                await self._room.wait()
            if patience.cancelled_caught:
                raise AgentStalled

    def end(self, trailers: Headers, error: UpstreamError | None = None) -> None:
        """Note the complete body, and the `trailers` behind it.

        Args:
            error: Why the stream in it is not whole. It passes as it came all the same.
        """
        self._whole = True
        self.trailers, self.error = trailers, error
        self.close()

    def fail(self, error: UpstreamError) -> None:
        """Note that the provider failed: nothing more will arrive."""
        self.error = error
        self.close()

    def close(self) -> None:
        """Nothing more will come, for whatever reason. May be called again."""
        self._over = True
        self._stir()

    def usage(self) -> Usage | None:
        """Return the usage so far; None: unknown."""
        return None if self.meter is None else self.meter.usage(whole=self._whole)

    def facts(self) -> AnswerFacts | None:
        """Return what the answer has told of its model and end; None: nobody wanted to know."""
        return None if self.meter is None else self.meter.facts()

    def said(self) -> Signal | None:
        """Return the error signal within the answer; None: there is none so far."""
        return None if self.meter is None else self.meter.error()

    # ---- the delivering side ----

    async def headed(self) -> None:
        """Wait until a head has come, be it held, or until there will be none."""
        while self.head is None and self.pending is None and not self._over:
            await self._wait()

    async def begun(self) -> bool:
        """Wait for the head; False: there will be none."""
        while self.head is None and not self._over:
            await self._wait()
        return self.head is not None

    async def take(self) -> tuple[bytes, bool]:
        """Wait for something; all that has come since, and whether more may follow."""
        while not self._pieces and not self._over:
            await self._wait()
        pieces = b"".join(self._pieces) if len(self._pieces) != 1 else self._pieces[0]
        self._pieces.clear()
        self._bytes = 0
        if self._room is not None:
            self._room.set()
        return pieces, not self._over

    @property
    def whole(self) -> bool:
        """The answer came to its end."""
        return self._whole

    async def _wait(self) -> None:
        # As an event for one would do, at half its price; it is paid for every piece.
        assert self._parked is None, "two tasks take"
        self._parked = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._unpark)

    def _unpark(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self._parked = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _stir(self) -> None:
        if self._parked is not None:
            trio.lowlevel.reschedule(self._parked)
            self._parked = None
