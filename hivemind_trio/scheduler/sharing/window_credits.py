"""A node's side of a window that several nodes share: what it has drawn of it, uses, and gives back.

What is told of less use is told at most once, and what is told of more use until the store has answered: a message that
is lost, or its answer, makes the store count too much and never too little.

An amount is good for a time from when it was asked for, since the store counts it from no earlier. So an answer that
comes after that time grants nothing. Until one comes in time, the node asks for no amounts, which it could not use and
others can, and goes on as without the store.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Final, final

import attrs

from hivemind_trio.scheduler.sharing.window_draw import DrawWindow, WindowKey
from hivemind_trio.scheduler.sharing.window_ring import WindowAnswer, WindowShape
from hivemind_trio.scheduler.structures.sliding_window import SlidingWindow

MS: Final = 1_000_000

FAILED_AGAIN_NS: Final = 500 * MS
"""After a draw without an answer."""

AWAY_NS: Final = 1_000 * MS
"""Silence of the store after which the node goes on by itself."""

LOOK_NS: Final = 1_000 * MS
"""Between two looks at a window of which nothing is there; an answer of the store comes as an event."""


@final
@attrs.define(eq=False)
class _Lot:
    """Amount of one draw."""

    slot: int
    left: int
    until_ns: int


def _since_ns(used: tuple[int, int | None]) -> int:
    return used[0]


@final
@attrs.define(eq=False)
class WindowCredits:
    """Amounts that this node may use of one window.

    Args:
        key: The window.
        nodes: Most nodes that share it.
        local: Share of it that all nodes together use while the store is away.
        born_ns: When this node began to share it.
    """

    key: WindowKey
    nodes: int
    local: float
    born_ns: int
    limit: int = attrs.field(init=False, default=1)
    shape: WindowShape = attrs.field(init=False)
    _lots: deque[_Lot] = attrs.field(init=False, factory=deque)
    _slots: list[tuple[int, int | None]] = attrs.field(init=False, factory=list)
    """(From when on, slot that what was used is from): the earliest, where a call has used several; None: no draw."""
    _lacking: int = attrs.field(init=False, default=0)
    """Most that a call lacked which was looked at since the last draw."""
    _back: dict[int, int] = attrs.field(init=False, factory=dict)
    """Slot -> amount that was drawn and is not needed."""
    _back_ns: int | None = attrs.field(init=False, default=None)
    """When to say so, whatever else happens."""
    _more: int = attrs.field(init=False, default=0)
    """Amount that was used and never drawn, as far as the store does not know."""
    _recent: SlidingWindow = attrs.field(init=False)
    """Use while a drawn amount is good."""
    _seq: int = attrs.field(init=False, default=0)
    _sent: tuple[int, int, bool] | None = attrs.field(init=False, default=None)
    """(When, `more`, True if it wants any) of the draw under way."""
    _again_ns: int = attrs.field(init=False, default=0)
    """No draw for what lacks before this."""
    _run: str = attrs.field(init=False, default="")
    _anew: bool = attrs.field(init=False, default=False)
    """The store wants to know what this node has used."""
    _joins: bool = attrs.field(init=False, default=True)
    """True until the store was first spoken to, which is done though nothing is needed."""
    _failing_ns: int | None = attrs.field(init=False, default=None)
    """Since when there has been no answer in time; None: the last draw was answered."""
    _unused: int = attrs.field(init=False, default=0)
    """Amount that nobody had used when the store last answered."""
    _used_until_ns: int = attrs.field(init=False)
    """When all that had been used then is over."""
    _alone: SlidingWindow = attrs.field(init=False)
    """Use without the store."""

    def __attrs_post_init__(self) -> None:
        self.shape = WindowShape(max(1, self.key.window_ns // MS))
        self._recent = SlidingWindow(self.shape.good_ms * MS)
        self._alone = SlidingWindow(self.key.window_ns)
        self._used_until_ns = self.born_ns + self._over_ns

    @property
    def _over_ns(self) -> int:
        """Time after which what is drawn now has been used, and counts no more."""
        return self.key.window_ns + (self.shape.slot_ms + self.shape.good_ms) * MS

    # ---- the limiter's ----

    def fits_ns(self, amount: int, now_ns: int) -> int:
        """Return when so much may be used: now, or when it is worth another look."""
        self._expire(now_ns)
        if self._has() >= amount:
            return now_ns
        self._lacking = max(self._lacking, amount)
        if self._away(now_ns):
            at_ns = self._alone_ns(amount, now_ns)
            if at_ns <= now_ns:
                return now_ns
        return self._again_ns if self._again_ns > now_ns else now_ns + LOOK_NS

    def take(self, amount: int, now_ns: int) -> None:
        """Use it. What is missing counts as drawn late."""
        self._expire(now_ns)
        self._recent.add(amount, now_ns)
        slot = self._lots[0].slot if self._lots else None
        if not self._slots or self._slots[-1][1] != slot:
            self._slots.append((now_ns, slot))
            oldest_ns = now_ns - 2 * self.key.window_ns - LOOK_NS
            del self._slots[: max(0, bisect_right(self._slots, oldest_ns, key=_since_ns) - 1)]
        while amount and self._lots:
            used = min(amount, self._lots[0].left)
            self._lots[0].left -= used
            amount -= used
            if not self._lots[0].left:
                self._lots.popleft()
        if amount:
            self._more += amount
            self._alone.add(amount, now_ns)

    def settle(self, more: int, taken_ns: int, now_ns: int) -> None:
        """Correct what was used at `taken_ns`."""
        if more > 0:
            self._more += more
            return
        at = bisect_right(self._slots, taken_ns, key=_since_ns) - 1
        slot = self._slots[at][1] if at >= 0 else None
        if slot is not None:
            # Of the earliest slot: that is over first, and what is given back with it.
            self._give_back(slot, -more, now_ns)

    # ---- the store's ----

    def draw(self, waiting: int, report: tuple[tuple[int, int], ...], now_ns: int) -> DrawWindow | None:
        """Return what to ask the store now; None: nothing.

        Args:
            waiting: Calls that wait at the provider.
            report: (Age in ms, amount) that this node has used in the window.
        """
        if self._sent is not None or (self._failing_ns is not None and now_ns < self._again_ns):
            return None
        self._expire(now_ns)
        has, ahead = self._has(), self._recent.sum(now_ns)
        lacking = self._lacking if self._lacking > has else 0
        silent = self._failing_ns is not None
        wants = not silent and now_ns >= self._again_ns and (lacking > 0 or has < ahead // 2)
        self._lacking = 0 if wants else lacking
        tells = self._joins or self._anew or silent or (self._back_ns is not None and now_ns >= self._back_ns)
        if not (wants or tells):
            return None
        want = min(self.limit, max(ahead, lacking * max(1, waiting))) if wants else 0
        back, self._back, self._back_ns = tuple(sorted(self._back.items())), {}, None
        self._seq += 1
        self._sent, self._joins = (now_ns, self._more, want > 0), False
        return DrawWindow(
            window=self.key,
            seq=self._seq,
            run=self._run,
            limit=self.limit,
            least=min(lacking, self.limit) if wants else 0,
            want=want,
            more=0 if self._anew else self._more,
            back=() if self._anew else back,
            report=report if self._anew else None,
        )

    def answered(self, answer: WindowAnswer, now_ns: int) -> bool:
        """Take the store's answer; return True if there is something to use."""
        if self._sent is None or answer.seq != self._seq:
            return False
        (sent_ns, more, wanted), self._sent = self._sent, None
        self._more -= more
        self._anew = answer.anew
        if answer.anew:
            self._lots.clear()  # drawn of what the store has lost
        self._run = answer.run
        until_ns = sent_ns + self.shape.good_ms * MS
        if now_ns >= until_ns:
            if answer.granted:
                self._give_back(answer.slot, answer.granted, now_ns)
            self._failing_ns = sent_ns if self._failing_ns is None else self._failing_ns
            self._again_ns = now_ns + FAILED_AGAIN_NS
            return False
        self._failing_ns = None
        self._again_ns = now_ns + answer.again_ms * MS if wanted or answer.anew else now_ns
        self._unused = max(0, self.limit - answer.used)
        self._used_until_ns = now_ns + self._over_ns
        if not answer.granted:
            return False
        self._again_ns = now_ns
        self._lots.append(_Lot(answer.slot, answer.granted, until_ns))
        return True

    def unanswered(self, seq: int, now_ns: int) -> None:
        """Note that there was no answer in time. What was given back is not given back again."""
        if self._sent is None or seq != self._seq:
            return
        if self._failing_ns is None:
            self._failing_ns = self._sent[0]
        self._sent = None
        self._again_ns = now_ns + FAILED_AGAIN_NS

    def wakes_ns(self) -> int | None:
        """Return when time alone matters: for what is good no more, or is to be told."""
        if self._sent is not None:
            return None
        if self._failing_ns is not None:
            return self._again_ns
        times = [lot.until_ns for lot in self._lots]
        if self._back_ns is not None:
            times.append(self._back_ns)
        if self._anew:
            times.append(self._again_ns)
        return min(times, default=None)

    def _has(self) -> int:
        return sum(lot.left for lot in self._lots)

    def _expire(self, now_ns: int) -> None:
        while self._lots and self._lots[0].until_ns <= now_ns:
            lot = self._lots.popleft()
            self._give_back(lot.slot, lot.left, now_ns)

    def _give_back(self, slot: int, amount: int, now_ns: int) -> None:
        self._back[slot] = self._back.get(slot, 0) + amount
        if self._back_ns is None:
            self._back_ns = now_ns + self.shape.good_ms * MS

    def _away(self, now_ns: int) -> bool:
        return self._failing_ns is not None and now_ns - self._failing_ns >= AWAY_NS

    def _alone_ns(self, amount: int, now_ns: int) -> int:
        """Return when so much fits this node's part without the store.

        Until what the store has counted is over, all nodes together use no more than it had left.
        """
        part = int(self.limit * self.local) // self.nodes
        if now_ns < self._used_until_ns:
            part = min(part, self._unused // self.nodes)
        at_ns = self._alone.at_most_ns(part - amount, now_ns) if amount <= part else self._used_until_ns
        return at_ns if amount <= part or at_ns > now_ns else now_ns + LOOK_NS
