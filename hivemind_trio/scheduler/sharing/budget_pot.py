"""The store's rule for budgets: what nodes draw of an account ahead of use, spend and give back.

For every node the store keeps three totals of its process that only grow, and of what comes it takes the maximum: no
message counts twice, whichever are lost, doubled or late. An amount is out from when it is drawn until it is spent or
given back, and what is spent and out is never more than the limit. Only where nothing at all is out, one call may go
alone that may take more than is left.

This is the model of the script that Redis runs (`store/fleet/budget_script.py`): both answer every history alike.
"""

from __future__ import annotations

from typing import Final

import attrs

from .budget_ask import (
    ASK_AGAIN_MS,
    LEARN_AGAIN_MS,
    NO_LIMIT,
    PRESENT_MS,
    USED_UP_AGAIN_MS,
    BudgetAnswer,
    BudgetAsk,
    BudgetsAnswer,
    BudgetsAsk,
)
from .share_row import FORGET_MS, FencedNode
from .store_life import StoreLife

HOUR_MS: Final = 3_600_000

SWEEP_EVERY: Final = 1_000
"""Accounts that come between two searches for those that are over."""

SLICES: Final = 64
"""Parts of a window of the time just past in which spends are added up."""

PARTS: Final = 4
"""A chunk is a node's equal part of such a part of what is left."""


@attrs.define(kw_only=True)
class BudgetRow:
    """A node's totals, as the store last heard of them."""

    epoch: int
    life: int
    limit: int
    seen_ms: int
    slot: int
    drawn: int = 0
    settled: int = 0
    returned: int = 0
    spent_seq: int = 0
    least: int = 0
    """Amount that its first waiting call lacks; 0: none waits."""
    since_ms: int = 0
    until_ms: int = 0
    """Until when that is believed."""
    knows: bool = False
    """True if it was told that all is spent."""

    @property
    def out(self) -> int:
        """Drawn and not spent."""
        return self.drawn - self.settled - self.returned


@attrs.define(eq=False)
class BudgetPot:
    """One account of all nodes."""

    slots: dict[int, int] = attrs.field(init=False, factory=dict)
    """Calendar window, or start of a slice in ms -> amount spent."""
    rows: dict[str, BudgetRow] = attrs.field(init=False, factory=dict)
    sets: int = attrs.field(init=False, default=0)
    until_ms: int = attrs.field(init=False, default=0)
    """When it is forgotten, if no node speaks of it: nothing of it counts any more."""

    def out(self) -> int:
        """Return what is drawn and not spent."""
        return sum(row.out for row in self.rows.values())

    def spent(self, ask: BudgetAsk, now_ms: int) -> int:
        """Return what counts as spent in the window of a question."""
        if ask.slot:
            return self.slots.get(ask.slot, 0)
        return sum(amount for slot, amount in self.slots.items() if self._ends_ms(slot, ask) > now_ms)

    def take(self, message: BudgetsAsk, ask: BudgetAsk, now_ms: int) -> BudgetRow | None:
        """Count what a node says; None: it is not known what it has spent before."""
        self._drop(ask, now_ms)
        self._reclaim(message.node, ask, now_ms)
        row = self.rows.get(message.node)
        slot = ask.slot or self._slice(ask, now_ms)
        if row is None:
            if ask.report is None:
                return None
            for age_ms, amount in ask.report:
                self._add(ask.slot or self._slice(ask, now_ms - age_ms), amount)
            row = self._born(message, ask, now_ms)
            row.settled = ask.settled
        elif (row.epoch, row.life) != (message.epoch, ask.life):
            self._add(slot, self._left_open(row, ask))
            row = self._born(message, ask, now_ms)
        if ask.settled > row.settled:
            self._add(slot, ask.settled - row.settled)
            row.settled = ask.settled
        row.returned = max(row.returned, ask.returned)
        row.drawn = max(row.drawn, ask.drawn, row.settled + row.returned)
        row.limit, row.seen_ms, row.slot = ask.limit, now_ms, ask.slot
        self.until_ms = now_ms + ask.window_ms + FORGET_MS + HOUR_MS
        if ask.spent is not None and ask.spent_seq > row.spent_seq:
            row.spent_seq = ask.spent_seq
            for one in [ask.slot] if ask.slot else list(self.slots):
                self.slots.pop(one, None)
            self._add(slot, ask.spent)
            self.sets += 1
        return row

    def answer(self, message: BudgetsAsk, ask: BudgetAsk, row: BudgetRow, now_ms: int, *, learns: bool) -> BudgetAnswer:
        """Grant what there is of what a node lacks."""
        waiting = [
            (name, one)
            for name, one in self.rows.items()
            if name != message.node and one.least and one.until_ms > now_ms
        ]
        since_ms = row.since_ms if row.least and row.until_ms > now_ms else now_ms
        row.least = 0
        limit, spent, out = self.limit(ask, now_ms), self.spent(ask, now_ms), self.out()
        granted = 0
        if ask.least and not learns and limit != NO_LIMIT:
            # A node that waits for longer keeps its next call; nodes that draw ahead come after all that wait.
            ahead = sum(
                one.least for name, one in waiting if not ask.waits or (one.since_ms, name) < (since_ms, message.node)
            )
            room = limit - spent - out - ahead
            if room >= ask.least:
                granted = min(room, max(ask.least, room // (PARTS * message.nodes)))
            elif ask.waits and not ahead and spent < limit and out - ask.idle <= 0:
                granted = ask.least
            row.drawn += granted
        short = ask.least > granted and limit != NO_LIMIT
        opens_ms = self._opens_ms(ask, spent - limit, now_ms) if spent >= limit != NO_LIMIT else 0
        row.knows = opens_ms > 0
        again_ms = LEARN_AGAIN_MS if learns else ASK_AGAIN_MS
        if opens_ms and not learns:
            again_ms = min(max(opens_ms, ASK_AGAIN_MS), USED_UP_AGAIN_MS)
        if short and ask.waits:
            row.least, row.since_ms, row.until_ms = ask.least, since_ms, now_ms + again_ms + ASK_AGAIN_MS
        return BudgetAnswer(
            drawn=row.drawn,
            settled=row.settled,
            spent=spent,
            out=out + granted,
            short=short,
            scarce=bool(waiting),
            again_ms=again_ms,
            opens_ms=opens_ms,
            sets=self.sets,
        )

    def wake(self, sender: str, ask: BudgetAsk, now_ms: int) -> list[str]:
        """Return the nodes that are to speak.

        They have what the sender lacks, or wait for what there is now, or for what has been spent meanwhile.
        """
        limit, out = self.limit(ask, now_ms), self.out()
        spent = self.spent(ask, now_ms)
        lacks = self.rows[sender].least > 0
        names = []
        for name, row in self.rows.items():
            waits = row.least > 0 and row.until_ms > now_ms
            serves = limit - spent - out >= row.least or not out if spent < limit else not row.knows
            # One that waits itself gives nothing back: two that call each other would never rest.
            if name != sender and (serves if waits else lacks and row.out > 0):
                names.append(name)
        return names

    def limit(self, ask: BudgetAsk, now_ms: int) -> int:
        """Return the lowest limit of the nodes present."""
        limits = [row.limit for row in self.rows.values() if now_ms - row.seen_ms < PRESENT_MS]
        return min((limit for limit in [ask.limit, *limits] if limit != NO_LIMIT), default=NO_LIMIT)

    def _born(self, message: BudgetsAsk, ask: BudgetAsk, now_ms: int) -> BudgetRow:
        row = BudgetRow(epoch=message.epoch, life=ask.life, limit=ask.limit, seen_ms=now_ms, slot=ask.slot)
        self.rows[message.node] = row
        return row

    def _left_open(self, row: BudgetRow, ask: BudgetAsk) -> int:
        """Return the charge for what a node's process before had: what its ledger says, or else all."""
        if ask.closes is not None and ask.closes[0] == row.epoch:
            return max(0, ask.closes[1] - row.settled)
        return row.out

    def _reclaim(self, sender: str, ask: BudgetAsk, now_ms: int) -> None:
        """Charge what a node has that was silent for so long; it is there until the window ends."""
        for name, row in list(self.rows.items()):
            row.seen_ms = min(row.seen_ms, now_ms)  # the clock may have been put back
            silent_ms = now_ms - row.seen_ms
            if name == sender or silent_ms < FORGET_MS:
                continue
            if row.out:
                self._add(row.slot or self._slice(ask, now_ms), row.out)
                row.settled += row.out
            if silent_ms >= ask.window_ms + FORGET_MS:
                del self.rows[name]

    def _drop(self, ask: BudgetAsk, now_ms: int) -> None:
        # Keep the last two calendar windows: clocks of nodes differ.
        late = sorted(self.slots)[:-2] if ask.slot else [s for s in self.slots if self._ends_ms(s, ask) <= now_ms]
        for slot in late:
            del self.slots[slot]

    def _add(self, slot: int, amount: int) -> None:
        if amount:
            self.slots[slot] = self.slots.get(slot, 0) + amount

    def _slice(self, ask: BudgetAsk, at_ms: int) -> int:
        length_ms = max(1, ask.window_ms // SLICES)
        return at_ms - at_ms % length_ms

    def _ends_ms(self, slot: int, ask: BudgetAsk) -> int:
        return slot + max(1, ask.window_ms // SLICES) + ask.window_ms

    def _opens_ms(self, ask: BudgetAsk, over: int, now_ms: int) -> int:
        """Return the time until less than the limit counts; of a calendar window the node knows when it ends."""
        if ask.slot:
            return USED_UP_AGAIN_MS
        for slot in sorted(self.slots):
            over -= self.slots[slot]
            if over < 0:
                return max(1, self._ends_ms(slot, ask) - now_ms)
        return USED_UP_AGAIN_MS


@attrs.define(kw_only=True)
class KnownNode:
    """A node that has spoken of budgets."""

    epoch: int
    seq: int
    seen_ms: int
    complete: bool = False
    """True if it has told this life of the store of all its accounts."""


@attrs.define(eq=False)
class BudgetPots:
    """All budgets of a fleet.

    Args:
        learning_ms: Time for which a store that knows nothing grants nothing, unless all nodes have told what they
            have spent.
    """

    learning_ms: int
    pots: dict[str, BudgetPot] = attrs.field(init=False, factory=dict)
    nodes: dict[str, KnownNode] = attrs.field(init=False, factory=dict)
    _swept: int = attrs.field(init=False, default=0)
    """Accounts that were left after the last search."""
    life: StoreLife = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.life = StoreLife(self.learning_ms, FORGET_MS)

    def spend(self, message: BudgetsAsk, now_ms: int, run: str) -> BudgetsAnswer:
        """Take a node's words into account, and grant what there is.

        Args:
            message: Its words.
            now_ms: On the store's clock.
            run: Process of the store: another one may have lost what this one knows.

        Raises:
            FencedNode: The node's name is in newer hands.
        """
        if self.life.turns(run, now_ms):
            for one in self.nodes.values():
                one.complete = False
        for name in [name for name, one in self.nodes.items() if now_ms - one.seen_ms >= FORGET_MS]:
            del self.nodes[name]
        node = self.nodes.get(message.node)
        if node is not None and message.epoch < node.epoch:
            raise FencedNode
        if node is not None and message.epoch == node.epoch and message.seq <= node.seq:
            return BudgetsAnswer(seq=message.seq, run=self.life.name, accounts=())
        # To this life everything was told by a node that has heard of it.
        complete = message.run == self.life.name and (
            message.complete or (node is not None and node.epoch == message.epoch and node.complete)
        )
        self.nodes[message.node] = KnownNode(epoch=message.epoch, seq=message.seq, seen_ms=now_ms, complete=complete)
        if len(self.pots) >= self._swept + SWEEP_EVERY:
            self.pots = {name: pot for name, pot in self.pots.items() if pot.until_ms > now_ms}
            self._swept = len(self.pots)
        taken = []
        for name, ask in message.accounts:
            pot = self.pots.setdefault(name, BudgetPot())
            taken.append((pot, ask, pot.take(message, ask, now_ms)))
        known = sum(one.complete for one in self.nodes.values())
        learns = self.life.learns(known, message.nodes, now_ms)
        answers, wake = [], set()
        for pot, ask, row in taken:
            if row is None:
                answers.append(_unknown(pot))
                continue
            answers.append(pot.answer(message, ask, row, now_ms, learns=learns))
            wake.update(pot.wake(message.node, ask, now_ms))
        return BudgetsAnswer(seq=message.seq, run=self.life.name, accounts=tuple(answers), wake=tuple(sorted(wake)))


def _unknown(pot: BudgetPot) -> BudgetAnswer:
    return BudgetAnswer(
        drawn=0,
        settled=0,
        spent=0,
        out=0,
        short=False,
        scarce=False,
        again_ms=LEARN_AGAIN_MS,
        opens_ms=0,
        sets=pot.sets,
        anew=True,
    )
