"""Progress timer of an answer."""

from __future__ import annotations

from typing import final

import attrs
import trio


@final
@attrs.define(eq=False)
class Stopwatch:
    """Started with the attempt. Time in which the agent kept us waiting is nobody's silence."""

    first_byte_ns: int | None = attrs.field(default=None, init=False)
    """From the beginning to the head; None: it has not come."""
    _last_s: float = attrs.field(factory=trio.current_time, init=False)
    _silence_s: float = attrs.field(default=0.0, init=False)

    @property
    def silence_ns(self) -> int:
        """The longest that was waited for a piece, or for the end."""
        return round(self._silence_s * 1e9)

    @property
    def waited_ns(self) -> int:
        """Since the last thing that came."""
        return round((trio.current_time() - self._last_s) * 1e9)

    def headed(self) -> None:
        """Note that the head has arrived."""
        now_s = trio.current_time()
        self.first_byte_ns = round((now_s - self._last_s) * 1e9)
        self._last_s = now_s

    def came(self) -> None:
        """Note that a piece has arrived, or the end."""
        now_s = trio.current_time()
        if now_s - self._last_s > self._silence_s:
            self._silence_s = now_s - self._last_s
        self._last_s = now_s

    def resumed(self) -> None:
        """Note that the agent has caught up."""
        self._last_s = trio.current_time()
