"""Bounds on the work that HTTP/2 frames cause: a cutter, a pacer and an allowance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

import attrs
import trio

_PREFACE_BYTES: Final = 24
_HEAD_BYTES: Final = 9

SLICE_WORK: Final = 16
"""Cost of one slice, in frames that do next to nothing: about 2 ms at most."""

_WORK: Final = {0x1: 4, 0x9: 4}
"""HEADERS and CONTINUATION: what they begin costs more than other frames, which count for 1."""


@final
@attrs.define(eq=False)
class FrameCutter:
    """Cuts what a client sends so that no piece begins more than `SLICE_WORK` of work."""

    _left: int = attrs.field(init=False, default=_PREFACE_BYTES)
    """Bytes of the frame that has begun; the preface counts as one."""
    _head: bytes = attrs.field(init=False, default=b"")
    """Head of the next frame, as far as it has arrived."""

    def cut(self, data: bytes) -> Iterator[bytes]:
        """Yield the same bytes in pieces, most of which end between two frames."""
        begin = at = work = 0
        while at < len(data):
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
                continue
            frame = at
            piece = data[at : at + _HEAD_BYTES - len(self._head)]
            self._head += piece
            at += len(piece)
            if len(self._head) < _HEAD_BYTES:
                break
            self._left = int.from_bytes(self._head[:3])
            cost = _WORK.get(self._head[3], 1)
            self._head = b""
            if work and work + cost > SLICE_WORK:
                yield data[begin:frame]
                begin, work = frame, 0
            work += cost
        if begin < len(data):
            yield data[begin:]


@final
@attrs.define(eq=False)
class Pacer:
    """Lets one slice through in a turn of the loop, of all connections together, first come, first served."""

    _next: trio.Lock = attrs.field(init=False, factory=trio.Lock)

    async def turn(self) -> None:
        """Wait for this connection's turn. Nothing is held afterwards: a client that does not read blocks no other."""
        async with self._next:
            await trio.lowlevel.checkpoint()


@final
@attrs.define(eq=False)
class FrameAllowance:
    """Token bucket: `burst` at once, and `per_s` of them a second."""

    burst: int
    per_s: float
    _left: float = attrs.field(init=False)
    _at_s: float = attrs.field(init=False, factory=trio.current_time)

    def __attrs_post_init__(self) -> None:
        self._left = float(self.burst)

    @property
    def used(self) -> float:
        """Units of the burst that are used now."""
        now_s = trio.current_time()
        self._left = min(float(self.burst), self._left + (now_s - self._at_s) * self.per_s)
        self._at_s = now_s
        return self.burst - self._left

    def take(self, count: int) -> bool:
        """Take so many; False: there were not as many, and all are gone."""
        enough = self.burst - self.used >= count
        self._left = self._left - count if enough else 0.0
        return enough
