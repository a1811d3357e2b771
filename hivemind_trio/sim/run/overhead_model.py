"""Overhead of code, bytes and kernels in a call's time. In a world without a road they take nothing.

Two machines that do one thing at a time, first come, first served: the proxy's process, and the one in which agents
and providers live (as in `bench`, which measures both and compares). On its way a call is worked on by each of them
several times; between two events of a stream the machines are busy with it too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

import attrs

from .event_queue import Agenda

PIECES: Final = 4
"""In which the work on a stream's events is done: as fine as it need be to be in the way of others."""


@final
@attrs.frozen(kw_only=True)
class Effort:
    """Work of one machine for one call, in ns."""

    call_ns: int = 0
    """From the request to the last byte, connections being there."""
    first_ns: int = 0
    """More for an agent's first request, which opens a connection."""
    event_ns: int = 0
    """More for each event of a stream."""


@final
@attrs.frozen(kw_only=True)
class Efforts:
    """Work of each machine for a call."""

    proxy: Effort = Effort()
    others: Effort = Effort()
    """Agents and providers."""
    wire_ns: int = 0
    """There and back, while nobody works."""


@attrs.define(eq=False)
class _ProxyMachine:
    effort: Effort
    _free_ns: int = attrs.field(init=False, default=0)

    def works(self, now_ns: int, for_ns: int) -> int:
        """Until when it will have done that, after what it has to do already."""
        self._free_ns = max(self._free_ns, now_ns) + for_ns
        return self._free_ns


@final
@attrs.define(eq=False)
class Road:
    """Four stretches: from the agent, to the provider, from the provider, to the agent."""

    agenda: Agenda
    efforts: Efforts
    proxied: bool
    _others: _ProxyMachine = attrs.field(init=False)
    _proxy: _ProxyMachine | None = attrs.field(init=False)
    _wire_ns: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._others = _ProxyMachine(self.efforts.others)
        self._proxy = _ProxyMachine(self.efforts.proxy) if self.proxied else None
        self._wire_ns = self.efforts.wire_ns // 4

    def out(self, first: bool, then: Callable[..., None], *args: object) -> None:
        """Move a request from its agent to the scheduler, then call `then`.

        Args:
            first: It opens a connection.
        """
        self._stretch((self._others, 4), (self._proxy, 3), first, then, *args)

    def there(self, then: Callable[..., None], *args: object) -> None:
        """Forward a request to its provider."""
        self._stretch((self._proxy, 3), (self._others, 4), False, then, *args)

    def back(self, then: Callable[..., None], *args: object) -> None:
        """Note that the last byte of an answer leaves its provider."""
        self._stretch((self._others, 4), (self._proxy, 3), False, then, *args)

    def home(self, then: Callable[..., None], *args: object) -> None:
        """Return an answer to its agent."""
        self._stretch((None, 1), (self._others, 4), False, then, *args)

    def streamed(self, from_ns: int, to_ns: int, events: int) -> None:
        """Events go by between these times; nobody waits for the work on them but who wants the machines meanwhile."""
        for piece in range(PIECES):
            at_ns = from_ns + (to_ns - from_ns) * piece // PIECES
            self.agenda.at(at_ns, self._busy, events / PIECES)

    def _busy(self, events: float) -> None:
        for machine in (self._others, self._proxy):
            if machine is not None:
                machine.works(self.agenda.now_ns, int(machine.effort.event_ns * events))

    def _stretch(
        self,
        one: tuple[_ProxyMachine | None, int],
        other: tuple[_ProxyMachine | None, int],
        first: bool,
        then: Callable[..., None],
        *args: object,
    ) -> None:
        """Do a part of a call's work on the one, and then on the other."""

        def arrive(machine: _ProxyMachine | None, parts: int, do: Callable[..., None], *more: object) -> None:
            if machine is None:
                do(*more)
                return
            work_ns = machine.effort.call_ns // parts + (machine.effort.first_ns if first else 0)
            self.agenda.at(machine.works(self.agenda.now_ns, work_ns), do, *more)

        def between() -> None:
            self.agenda.at(self.agenda.now_ns + self._wire_ns, arrive, other[0], other[1], then, *args)

        arrive(one[0], one[1], between)
