"""Hold of a waiting client: its longest wait, and the keep-alive that prevents its timeout.

For a while nothing is sent, so that a real status can still be given. Then a streaming call gets its 200 and, now and
again, what its dialect knows as nothing; a plain call gets silence, for JSON has no such thing. After the hold both are
sent away: JavaScript's clients resend after 300 s without headers, and watchdogs of streams bark at 300 s too.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, final

import attrs
import trio

from hivemind_trio.dialects import KeepAlive
from hivemind_trio.policy import Server

from .request.client_profile import ClientProfile

T = TypeVar("T")

PING_S: Final = 15.0
"""Between two keep-alive events; half of what the shortest idle timeouts of balancers and SDKs are."""

HEADED_S: Final = 5.0
"""Silence goes on for at least as long after the head of a provider's stream has come."""

SECONDS: Final = 1e-9

IN_TIME: Final = 0.9
"""Share of the client's timeout after which it is rejected, so that it learns when to come back."""


def held_at_most_s(server: Server, client: ClientProfile, *, speaks: bool) -> float:
    """Return the longest time for which a call may be queued.

    Args:
        speaks: It can be kept alive while it waits; then its client's own patience is no bound.
    """
    held_s = (server.silent_ns + server.hold_ns) * SECONDS
    return held_s if speaks or client.waits_s is None else min(held_s, client.waits_s * IN_TIME)


class HeldTooLong(Exception):  # noqa: N818 - it becomes an answer
    """Its turn did not come in the time that its client can be kept waiting."""


@final
@attrs.define(eq=False)
class Patience:
    """One call's. `committed` once the agent has had a 200 that no provider has given yet."""

    keep_alive: KeepAlive | None
    """None: nothing can be said; the call is plain, or its dialect has no place for it."""
    _commit: Callable[[KeepAlive], Awaitable[None]]
    _ping: Callable[[KeepAlive], Awaitable[None]]
    _speaks_s: float
    """When silence ends."""
    _gives_up_s: float
    _ping_s: float = PING_S
    committed: bool = attrs.field(init=False, default=False)

    @classmethod
    def of(
        cls,
        server: Server,
        client: ClientProfile,
        keep_alive: KeepAlive | None,
        commit: Callable[[KeepAlive], Awaitable[None]],
        ping: Callable[[KeepAlive], Awaitable[None]],
    ) -> Patience:
        """From now on."""
        now_s = trio.current_time()
        held_s = held_at_most_s(server, client, speaks=keep_alive is not None)
        if keep_alive is None:
            return cls(keep_alive, commit, ping, math.inf, now_s + held_s)
        # A client that gives up sooner than others hears of us sooner, and more often.
        often_s = (client.waits_s or math.inf) / 2
        speaks_s = now_s + min(server.silent_ns * SECONDS, often_s)
        return cls(keep_alive, commit, ping, speaks_s, now_s + held_s, min(PING_S, often_s))

    async def during(self, wait: Callable[[], Awaitable[T]], *, settled: bool = False) -> T:
        """Wait for something that may be waited for anew after having been interrupted.

        Args:
            settled: It is there already, and there is nothing to interrupt.

        Raises:
            HeldTooLong: It did not come.
        """
        if settled:
            return await wait()
        return await self._speaking(wait, self._gives_up_s)

    async def over_a_held_head(self, wait: Callable[[], Awaitable[T]]) -> T:
        """Wait for a stream's first content event, which the attempt's own timeouts bound."""
        if not self.committed:
            # Most content follows its head at once, and then the agent is given the provider's own headers.
            self._speaks_s = max(self._speaks_s, trio.current_time() + HEADED_S)
        return await self._speaking(wait, math.inf)

    async def silence(self, wait: Callable[[], Awaitable[T]]) -> T | None:
        """Wait as `over_a_held_head` does, but say nothing; None: the client should hear something now."""
        with trio.move_on_at(max(self._speaks_s, trio.current_time() + HEADED_S)):
            return await wait()
        return None

    async def _speaking(self, wait: Callable[[], Awaitable[T]], gives_up_s: float) -> T:
        while True:
            # What is sent here is a few bytes to a client that has had nothing for seconds: its buffers are empty, so
            # no reader, however slow, makes this task wait while it is granted a permit.
            with trio.move_on_at(min(self._speaks_s, gives_up_s)):
                return await wait()
            if trio.current_time() >= gives_up_s:
                raise HeldTooLong
            assert self.keep_alive is not None
            if self.committed:
                await self._ping(self.keep_alive)
            else:
                self.committed = True
                await self._commit(self.keep_alive)
            self._speaks_s = trio.current_time() + self._ping_s
