"""The store's rule for one window of `limits`: what nodes draw of it, and what they give back.

A share of a rate cannot be leased, since a node that gives it up has used it already. So nodes draw amounts, good for a
short time, and the store counts them from when they were drawn until the window and that time have passed: no window of
the provider holds more than the limit, wherever it begins.

This is the model of the script that Redis runs (`store/fleet/window_script.py`): both answer every history alike.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from .share_row import FORGET_MS, FencedNode
from .store_life import StoreLife

SLOTS: Final = 120
"""Pieces of a window in which draws are added up."""

SLOT_MIN_MS: Final = 50

GOOD_MAX_MS: Final = 1_000
"""Longest time for which a drawn amount is good."""

ASK_AGAIN_MS: Final = 1_000
"""Longest time after which a refused node asks again: others may have given back what they have not used."""

LEARN_AGAIN_MS: Final = 100

PRESENT_MS: Final = 60_000
"""Time for which a node's limit counts after it was last heard of: the lowest holds."""


@final
@attrs.frozen
class WindowShape:
    """Length of a window and of its pieces, in milliseconds."""

    window_ms: int

    @property
    def slot_ms(self) -> int:
        """Length of a slot."""
        return max(SLOT_MIN_MS, self.window_ms // SLOTS)

    @property
    def good_ms(self) -> int:
        """Time for which a drawn amount is good."""
        return min(self.slot_ms, GOOD_MAX_MS)

    @property
    def over_ms(self) -> int:
        """Time from the start of a slot until it counts no more: what is drawn at its end is used a little later."""
        return self.slot_ms + self.window_ms + self.good_ms


@final
@attrs.frozen(kw_only=True)
class WindowAsk:
    """Request of a node: an amount, and words on what it has drawn before."""

    node: str
    epoch: int
    """Start of the node: a higher one replaces a lower one."""
    seq: int
    """Grows with every request; an older one that arrives late changes nothing."""
    run: str
    """Life of the store whose answer this node has heard last; empty: none. To another one the rest says nothing."""
    nodes: int
    """Most nodes, by this node's policy."""
    limit: int
    least: int = 0
    """Amount without which the first waiting call cannot go."""
    want: int = 0
    """Amount that it could use, no less than `least`."""
    more: int = 0
    """Amount that was used and never drawn."""
    back: tuple[tuple[int, int], ...] = ()
    """(Slot, amount) that was drawn then and has not been used."""
    report: tuple[tuple[int, int], ...] | None = None
    """(Age in ms, amount) of what this node has used in the window, for a store that has lost it."""


@final
@attrs.frozen(kw_only=True)
class WindowAnswer:
    """Grant of the store."""

    seq: int
    granted: int
    slot: int
    """Slot that it counts in."""
    again_ms: int
    """Time after which it is worth asking for what was not granted."""
    used: int
    """Amount that counts now, of all nodes."""
    run: str
    """Life of the store: one process has several, if it is emptied."""
    anew: bool
    """The store does not know what this node has used: it is to send its report."""


@final
@attrs.define(kw_only=True)
class WindowRow:
    """A node as the store last heard of it."""

    epoch: int
    seq: int
    limit: int
    seen_ms: int
    least: int = 0
    want: int = 0
    since_ms: int = 0
    """When it was first refused what it waits for."""
    until_ms: int = 0
    """Until when that is believed, if it does not ask again."""
    known: bool = False
    """True if its use is counted here."""


@attrs.define(eq=False)
class WindowRing:
    """One window, and what has been drawn of it.

    Args:
        shape: Its lengths.
        learning_ms: Time for which a store that knows nothing grants nothing, unless all nodes have reported.
    """

    shape: WindowShape
    learning_ms: int
    drawn: dict[int, int] = attrs.field(init=False, factory=dict)
    """Slot -> amount."""
    rows: dict[str, WindowRow] = attrs.field(init=False, factory=dict)
    life: StoreLife = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # What an earlier life has granted is over by then, whoever is not heard.
        self.life = StoreLife(min(self.learning_ms, self.shape.over_ms), self.shape.over_ms)

    def draw(self, ask: WindowAsk, now_ms: int, run: str) -> WindowAnswer:
        """Take a node's words into account, and grant what there is.

        Args:
            ask: Its words.
            now_ms: On the store's clock.
            run: Process of the store: another one may have lost what this one knows.

        Raises:
            FencedNode: The node's name is in newer hands.
        """
        if self.life.turns(run, now_ms):
            self.drawn.clear()
            self.rows.clear()
        shape = self.shape
        current = now_ms // shape.slot_ms
        row = self.rows.get(ask.node)
        if row is not None and ask.epoch < row.epoch:
            raise FencedNode
        if row is not None and ask.epoch == row.epoch and ask.seq <= row.seq:
            return self._answer(ask, 0, current, ASK_AGAIN_MS, anew=not row.known)  # late or doubled
        for slot in [slot for slot in self.drawn if self._over_ms(slot) <= now_ms]:
            del self.drawn[slot]
        for name in [name for name, one in self.rows.items() if now_ms - one.seen_ms >= FORGET_MS]:
            del self.rows[name]
        # What was said to an earlier life, its report included, leaves out what was used since.
        anew = ask.run != self.life.name if ask.run else self.life.is_learning
        waits = row is not None and row.least and row.epoch == ask.epoch and now_ms - row.seen_ms < FORGET_MS
        since_ms = row.since_ms if row is not None and waits else now_ms
        row = self.rows[ask.node] = WindowRow(
            epoch=ask.epoch, seq=ask.seq, limit=ask.limit, seen_ms=now_ms, since_ms=since_ms, known=not anew
        )
        if not anew:
            self._count(ask, now_ms, current)
        if self.life.learns(sum(one.known for one in self.rows.values()), ask.nodes, now_ms) or anew:
            return self._answer(ask, 0, current, LEARN_AGAIN_MS, anew=anew)
        return self._grant(ask, row, now_ms, current)

    def _over_ms(self, slot: int) -> int:
        """Return when a slot counts no more."""
        return slot * self.shape.slot_ms + self.shape.over_ms

    def _count(self, ask: WindowAsk, now_ms: int, current: int) -> None:
        for age_ms, amount in ask.report or ():
            slot = (now_ms - age_ms) // self.shape.slot_ms
            if self._over_ms(slot) > now_ms:
                self.drawn[slot] = self.drawn.get(slot, 0) + amount
        for slot, amount in ask.back:
            if slot in self.drawn:
                self.drawn[slot] = max(0, self.drawn[slot] - amount)
        if ask.more:
            self.drawn[current] = self.drawn.get(current, 0) + ask.more

    def _grant(self, ask: WindowAsk, row: WindowRow, now_ms: int, current: int) -> WindowAnswer:
        others = [
            (name, one) for name, one in self.rows.items() if name != ask.node and one.least and one.until_ms > now_ms
        ]
        limit = min(one.limit for one in self.rows.values() if now_ms - one.seen_ms < PRESENT_MS)
        # What waits for longer is left its next call, or else a large one would never see enough.
        mine = row.since_ms, ask.node
        ahead = sum(one.least for name, one in others if not ask.least or (one.since_ms, name) < mine)
        room = limit - sum(self.drawn.values()) - ahead
        if not ask.want:
            return self._answer(ask, 0, current, ASK_AGAIN_MS, anew=False)
        if room < max(1, ask.least):
            again_ms = self._frees_ms(max(1, ask.least) - room, now_ms)
            row.least, row.want, row.until_ms = ask.least, ask.want, now_ms + again_ms + ASK_AGAIN_MS
            return self._answer(ask, 0, current, again_ms, anew=False)
        part = room * ask.want // (ask.want + sum(one.want for _, one in others))
        granted = min(ask.want, room, max(ask.least, part))
        if granted:
            self.drawn[current] = self.drawn.get(current, 0) + granted
        return self._answer(ask, granted, current, self.shape.slot_ms, anew=False)

    def _frees_ms(self, amount: int, now_ms: int) -> int:
        """Return the time until so much counts no more, if nothing else happens."""
        for slot in sorted(self.drawn):
            amount -= self.drawn[slot]
            if amount <= 0:
                return min(ASK_AGAIN_MS, self._over_ms(slot) - now_ms)
        return ASK_AGAIN_MS

    def _answer(self, ask: WindowAsk, granted: int, slot: int, again_ms: int, *, anew: bool) -> WindowAnswer:
        return WindowAnswer(
            seq=ask.seq,
            granted=granted,
            slot=slot,
            again_ms=again_ms,
            used=sum(self.drawn.values()),
            run=self.life.name,
            anew=anew,
        )
