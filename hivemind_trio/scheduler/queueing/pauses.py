"""Pauses of operators: of which providers, lanes and agents, and when."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, final

import attrs

from hivemind_trio.policy import Renames
from hivemind_trio.scheduler.protocol.events import Pausable

Paused = tuple[Pausable, str]
"""Kind and name of what an operator holds back."""

PAST_MAX: Final = 16
"""Pauses of one provider, lane or agent that are remembered after their end."""
NAMES_MAX: Final = 256
"""Names with such pauses."""


@final
@attrs.define(eq=False)
class Pauses:
    """Pauses of now, and of late."""

    _since_ns: dict[Paused, int] = attrs.field(factory=dict, init=False)
    """Those of now."""
    _past: dict[Paused, deque[tuple[int, int]]] = attrs.field(factory=dict, init=False)
    """Begins and ends."""

    def __contains__(self, paused: Paused) -> bool:
        return paused in self._since_ns

    def of_now(self) -> tuple[Paused, ...]:
        """Return what an operator holds back, in the order in which that began."""
        return tuple(self._since_ns)

    def begin(self, paused: Paused, now_ns: int) -> None:
        """Note a pause; nothing changes where there is one."""
        self._since_ns.setdefault(paused, now_ns)

    def end(self, paused: Paused, now_ns: int) -> None:
        """Note an end."""
        since_ns = self._since_ns.pop(paused, None)
        if since_ns is not None:
            past = self._past.pop(paused, None) or deque(maxlen=PAST_MAX)
            past.append((since_ns, now_ns))
            self._past[paused] = past
            if len(self._past) > NAMES_MAX:
                del self._past[next(iter(self._past))]

    def rename(self, renames: Renames) -> None:
        """Have pauses under new names."""
        self._since_ns = {_renamed(renames, one): since_ns for one, since_ns in self._since_ns.items()}
        self._past = {_renamed(renames, one): past for one, past in self._past.items()}

    def length_ns(self, names: Iterable[Paused], from_ns: int, to_ns: int) -> int:
        """Return the time in which any of these was paused."""
        if not self._since_ns and not self._past:
            return 0
        spans: list[tuple[int, int]] = []
        for one in names:
            spans += self._past.get(one, ())
            if one in self._since_ns:
                spans.append((self._since_ns[one], to_ns))
        length_ns, counted_ns = 0, from_ns
        for begin_ns, end_ns in sorted(spans):
            begin_ns, end_ns = max(begin_ns, counted_ns), min(end_ns, to_ns)
            if begin_ns < end_ns:
                length_ns, counted_ns = length_ns + end_ns - begin_ns, end_ns
        return length_ns


def _renamed(renames: Renames, paused: Paused) -> Paused:
    kind, name = paused
    return kind, renames.swapped(kind.value, name)
