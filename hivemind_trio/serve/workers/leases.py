"""Leases of several workers: the supervisor keeps them, and agents ask for them at any worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, final

import attrs
import msgspec
import trio

from hivemind_trio.admin import (
    AGENT_LEASES,
    AGENT_OPERATIONS,
    OPERATIONS,
    AskingAgent,
    OperationFailed,
    ProblemKind,
    moment_text,
)
from hivemind_trio.policy import Program
from hivemind_trio.proxy import OwnPriorities
from hivemind_trio.runtime import LeaseKeeper

from .channel import INTERNAL, Channel, ChannelClosed, Failed, body_of

ASKED = "leases"
"""Name of the request of a worker."""
WITHDRAWN = "leases.withdrawn"
"""Name of the notice that nobody waits for the answer any more."""


@final
@attrs.frozen(kw_only=True, eq=False)
class SupervisedLeases:
    """Leases in the supervisor, as operations reach them."""

    leases: LeaseKeeper
    priorities: OwnPriorities
    note: Callable[[str, str, str, str], None]
    now_ns: Callable[[], int]
    _program: Callable[[], Program]

    @property
    def program(self) -> Program:
        """The policy in force."""
        return self._program()

    def at(self, engine_ns: int | None) -> str | None:
        """Return a moment of the leases' clock as text; None stays None."""
        return None if engine_ns is None else moment_text(time.time_ns() + engine_ns - self.now_ns())

    def serve(self, channel: Channel) -> None:
        """Do what the agents of a worker ask for."""
        asked: dict[int, trio.CancelScope] = {}

        async def do(body: msgspec.Raw) -> Any:
            number, name, agent, words = body_of(body, tuple[int, str, AskingAgent, msgspec.Raw])
            what: Any = body_of(words, AGENT_OPERATIONS[name].arguments)
            with trio.CancelScope() as asked[number]:
                try:
                    return await AGENT_LEASES[name](self, agent, what)
                except OperationFailed as failed:
                    raise Failed(failed.kind, str(failed), failed.diagnostics) from None
                finally:
                    del asked[number]
            raise Failed(ProblemKind.CONFLICT, "the request was withdrawn")

        def withdraw(body: msgspec.Raw) -> None:
            scope = asked.get(body_of(body, int))
            if scope is not None:
                scope.cancel()

        channel.handlers[ASKED] = do
        channel.listeners[WITHDRAWN] = withdraw


@final
@attrs.define(eq=False)
class LeasesAtSupervisor:
    """A worker's way to the leases."""

    _channel: Channel
    _asked: int = attrs.field(init=False, default=0)

    async def ask(self, name: str, agent: AskingAgent, what: Any) -> Any:
        """Do an operation of an agent.

        Raises:
            OperationFailed: It cannot be done.
        """
        self._asked += 1
        number = self._asked
        body = number, name, agent, msgspec.Raw(msgspec.msgpack.encode(what))
        try:
            return await self._channel.ask(ASKED, body, OPERATIONS[name].result)
        except Failed as failed:
            if failed.code == INTERNAL:
                raise RuntimeError(f"supervisor: {failed.text}") from None
            raise OperationFailed(ProblemKind(failed.code), failed.text, failed.lines) from None
        except ChannelClosed:
            raise OperationFailed(ProblemKind.CONFLICT, "the proxy ends; ask again") from None
        except trio.Cancelled:
            self._channel.tell(WITHDRAWN, number)  # its place in line is another's
            raise
