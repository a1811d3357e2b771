"""Virtual time: what is to happen when."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, final

import attrs

Due = list[Any]
"""An entry: when, in which order, what to call and with what. `Agenda.forget` takes it back."""


@final
@attrs.define(eq=False)
class Agenda:
    """A heap of what is due. What is due at one instant happens in the order in which it was put in."""

    now_ns: int = attrs.field(init=False, default=0)
    happened: int = attrs.field(init=False, default=0)
    """Number of things that have happened."""
    _over: bool = attrs.field(init=False, default=False)
    _heap: list[Due] = attrs.field(init=False, factory=list)
    _entries: int = attrs.field(init=False, default=0)

    def at(self, at_ns: int, do: Callable[..., None], *args: object) -> Due:
        """Call `do(*args)` at that time, which must not be over."""
        assert at_ns >= self.now_ns, f"{at_ns} is before {self.now_ns}"
        entry: Due = [at_ns, self._entries, do, args]
        self._entries += 1
        heappush(self._heap, entry)
        return entry

    @staticmethod
    def forget(entry: Due) -> None:
        """Let it not happen; of what has happened already, nothing."""
        entry[2] = None

    def run(self, until_ns: int, most: int) -> bool:
        """Let so many things happen; False once there are none until then, or nobody wants more."""
        heap, left = self._heap, most
        while heap and not self._over and heap[0][0] <= until_ns:
            at_ns, _, do, args = heappop(heap)
            if do is not None:
                self.now_ns = at_ns
                do(*args)
                self.happened += 1
                left -= 1
                if not left:
                    return True
        return False

    def close(self) -> None:
        """Nothing more is to happen after what happens now."""
        self._over = True
