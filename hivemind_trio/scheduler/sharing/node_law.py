"""One node's side of a shared pool: how many slots it may use, and when it speaks to the store.

The node lowers its use first and reports afterwards, and never raises it beyond what it has reported. So what it uses
is at no time more than what the store has recorded for it, whichever messages are lost, doubled or late. Below that,
its use follows from what it knows of the others and from its own calls: from the moment at which it hears of a call
that waits elsewhere, no call begins here in a slot that is due there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from .fair_shares import FairShare, fair_shares, owed_after
from .share_row import LeaseTerms, RowNotice, ShareAnswer, ShareRequest, ShareRow

MS: Final = 1_000_000

APART_NS: Final = 20 * MS
"""Between two requests."""

RETRY_NS: Final = 500 * MS
"""After a request without an answer."""

FLOOR_AFTER_NS: Final = 30_000 * MS
"""Time that a node without the store waits until it may use its floor though it had less."""


@attrs.define(eq=False)
class NodeLaw:
    """Share of one pool at one node. Times are nanoseconds of the node's own clock.

    Args:
        node: The node's name.
        epoch: Start of the node, by the store's clock.
        cap: Slots of the pool.
        nodes: Most nodes that share it.
        local: Thousandths of the cap that all nodes together use while the store is away.
        terms: As the store's.
    """

    node: str
    epoch: int
    cap: int
    nodes: int
    local: int
    terms: LeaseTerms
    share: int = attrs.field(init=False, default=0)
    _occupied: int = attrs.field(init=False, default=0)
    """Slots that nobody else can have, as the store has it."""
    _using: int = attrs.field(init=False, default=0)
    """At most the share: no more than has been reported since the store recorded it."""
    _seq: int = attrs.field(init=False, default=0)
    pending: tuple[ShareRequest, int] | None = attrs.field(init=False, default=None)
    """The request under way, and when it was sent."""
    _sent_ns: int | None = attrs.field(init=False, default=None)
    """When the last request was sent."""
    answered_ns: int | None = attrs.field(init=False, default=None)
    """When the last request that was answered was sent."""
    _failed_ns: int | None = attrs.field(init=False, default=None)
    """When the last request was given up; None: it was answered."""
    _cut_ns: int | None = attrs.field(init=False, default=None)
    """When the connection was first seen to be broken; None: it holds."""
    learning: bool = attrs.field(init=False, default=False)
    """The store has started anew, and grants nothing until it has heard the nodes."""
    blind: bool = attrs.field(init=False, default=False)
    """As in `ShareAnswer`."""
    _run: str = attrs.field(init=False, default="")
    """Life of the store that was heard last."""
    _rows: dict[str, ShareRow] = attrs.field(init=False, factory=dict)
    _total: int = attrs.field(init=False, default=0)
    """Slots of the pool, as the store has it."""
    _heard: bool = attrs.field(init=False, default=True)
    """Another node has something to say to this one, or it has not reported yet."""
    _denied: int | None = attrs.field(init=False, default=None)
    """Target that the store could not meet; None: it could."""
    _owed: int = attrs.field(init=False, default=0)
    _idle: bool = attrs.field(init=False, default=False)
    """The last request told of no calls."""
    _fenced: bool = attrs.field(init=False, default=False)

    @property
    def floor(self) -> int:
        """Slots that the node goes on with while it cannot reach the store."""
        return self.local * self.cap // (1_000 * self.nodes)

    @property
    def life(self) -> str:
        """Life of the store that was heard last; empty: none."""
        return self._run

    @property
    def rows(self) -> dict[str, ShareRow]:
        """Every node as the store last told."""
        return self._rows

    def load(self, cap: int, nodes: int, local: int) -> None:
        """Take the settings of a new policy."""
        self.cap, self.nodes, self.local = cap, nodes, local
        self._using = min(self._using, cap)
        self._heard = True

    def falls(self, now_ns: int) -> tuple[int, int] | None:
        """Return when the allowance falls by time alone, and to what at most; None: it does not."""
        if self._fenced or self.answered_ns is None or now_ns >= self._whole_until_ns:
            return None
        return self._whole_until_ns, min(self._using, self.floor)

    def allowance(self, now_ns: int, held: int, demand: int) -> int:
        """Return the slots that may be in use now.

        Args:
            now_ns: Now.
            held: Calls in flight.
            demand: As in `is_due`.
        """
        if self._fenced or self.answered_ns is None:
            return 0
        until_ns = self._whole_until_ns
        if now_ns >= until_ns + FLOOR_AFTER_NS:
            return self.floor
        using = self._using if now_ns < until_ns else min(self._using, self.floor)
        if not self._exceeds_cap:
            return min(using, self._target(held, demand)) if self.others_wait() else using
        # More is held than there is: no call begins until enough have ended.
        return min(using, self._target(held, demand), held)

    @property
    def _whole_until_ns(self) -> int:
        """End of the node's right to its share, if it hears nothing: before the store may give it away."""
        assert self.answered_ns is not None
        until_ns = self.answered_ns + self.terms.lease_ms * MS * 95 // 100
        if self._cut_ns is not None:
            # The store takes it no earlier than a grace after both: a silence of `gone`, and the end of the connection.
            silent_ns = self.answered_ns + (self.terms.gone_ms + self.terms.grace_ms) * MS * 95 // 100
            until_ns = min(until_ns, max(silent_ns, self._cut_ns + self.terms.grace_ms * MS // 2))
        return until_ns

    def wakeup_ns(self, now_ns: int) -> int:
        """Return when time alone next matters: for a request or for the allowance."""
        times = [self._due_ns()] if self.pending is None and not self._fenced else []
        if self.answered_ns is not None:
            until_ns = self._whole_until_ns
            times += [time_ns for time_ns in (until_ns, until_ns + FLOOR_AFTER_NS) if time_ns > now_ns]
        return min(times, default=now_ns + self.terms.renew_ms * MS)

    def _due_ns(self) -> int:
        if self._sent_ns is None:
            return 0
        if self._failed_ns is not None:
            return self._failed_ns + min(RETRY_NS, self.terms.renew_ms * MS)
        return self._sent_ns + (self.terms.idle_ms if self._idle else self.terms.renew_ms) * MS

    def is_due(self, now_ns: int, held: int, demand: int) -> bool:
        """Return True if the node is to speak to the store now.

        Args:
            now_ns: Now.
            held: Calls in flight.
            demand: Calls in flight and calls that wait for nothing but a slot.
        """
        if self._fenced or self.pending is not None:
            return False
        if self._sent_ns is None or now_ns >= self._due_ns():
            return True
        if self._failed_ns is not None or now_ns < self._sent_ns + APART_NS:
            return False
        if self._heard:
            return True
        target = self._target(held, demand)
        if demand > max(self.share, held) and not self._said_waits:
            return True
        if demand > self.share and target > self.share and target != self._denied:
            return True
        # What is beyond its part goes back as calls end, if somebody waits for it.
        return self.others_wait() and max(held, target) < self._occupied

    def soonest_ns(self) -> int:
        """Return the earliest time of the next request, whatever happens."""
        return self._sent_ns + APART_NS if self._sent_ns is not None else 0

    def request(self, now_ns: int, held: int, demand: int) -> ShareRequest:
        """Return the next request, to be sent at once; the allowance is lowered to what it says before.

        Raises:
            ValueError: One is under way. A bug in the driver.
        """
        if self.pending is not None:
            raise ValueError("a request is under way")
        self._using = keep = self.allowance(now_ns, held, demand)
        rows = self._now(held, demand)
        parts = fair_shares(self._total or self.cap, rows)
        target = parts[self.node].whole
        elapsed_ns = now_ns - self._sent_ns if self._sent_ns is not None else 0
        if self._total and demand > held:
            self._owed = owed_after(self._owed, parts[self.node], max(self.share, held), elapsed_ns // MS)
        elif demand <= held:
            self._owed = 0  # nothing waits: nothing is withheld
        self._seq += 1
        self._sent_ns, self._failed_ns, self._heard, self._idle = now_ns, None, False, demand == 0
        ask = ShareRequest(
            node=self.node,
            epoch=self.epoch,
            seq=self._seq,
            cap=self.cap,
            nodes=self.nodes,
            run=self._run,
            keep=keep,
            held=held,
            demand=demand,
            target=target,
            owed=self._owed,
            floor=self.floor,
            parts=self._parts_of_waiting(rows, parts),
        )
        self.pending = ask, now_ns
        return ask

    def _parts_of_waiting(
        self, rows: Mapping[str, ShareRow], parts: Mapping[str, FairShare]
    ) -> tuple[tuple[str, int], ...]:
        """Return the nodes that wait and are due more than they have, by how much they lack."""
        lacks = {
            name: part.whole - rows[name].occupied
            for name, part in parts.items()
            if name != self.node and rows[name].demand > rows[name].occupied
        }
        names = sorted((name for name in lacks if lacks[name] > 0), key=lambda name: (-lacks[name], name))
        return tuple((name, parts[name].whole) for name in names)

    def answered(self, answer: ShareAnswer) -> None:
        """Take the store's answer; one to an earlier request is ignored."""
        if self.pending is None or answer.seq != self.pending[0].seq:
            return
        ask, self.answered_ns = self.pending
        self.pending = self._cut_ns = None
        self._rows, self._total = self._newest(answer), answer.cap
        self._run, self.learning, self.blind = answer.run, answer.learning, answer.blind
        if answer.learning and ask.run != answer.run:
            self._heard = True  # to it, what was said before may have been late
        self._take(self._rows[self.node])
        self._denied = ask.target if ask.target > self.share else None

    def _take(self, own: ShareRow) -> None:
        """Take the share that the store has recorded."""
        self.share = self._using = own.share
        self._occupied = own.occupied

    def _newest(self, answer: ShareAnswer) -> dict[str, ShareRow]:
        """Return the rows of an answer, each replaced by that of a newer notice: notices have their own connection."""
        rows = dict(answer.rows)
        if answer.run == self._run:
            for name, row in self._rows.items():
                if name in rows and rows[name].is_before(row):
                    rows[name] = row
        return rows

    def limited(self, limit: int) -> None:
        """Note that the provider is trusted with fewer slots of all nodes, or with more, than the store last told."""
        self._total = min(self._total, limit)
        self._heard = True

    def failed(self, now_ns: int) -> None:
        """Note that a request has had no answer in time. Its answer, should it come, is ignored."""
        self.pending, self._failed_ns = None, now_ns

    def cut(self, now_ns: int) -> None:
        """Note that the connection to the store is broken: to the store, this node may seem to have ended."""
        if self._cut_ns is None:
            self._cut_ns = now_ns

    def told(self, notice: RowNotice) -> bool:
        """Take the row of another node, as it has just reported it, and the slots that the store gives this one.

        Returns:
            True if there is something to do: what may be used is another, or a request may be due, because slots have
            to go back or calls wait here.
        """
        if notice.run != self._run or self.answered_ns is None or notice.node == self.node:
            return False
        waited = self.others_wait()
        news = {
            name: row
            for name, row in ({notice.node: notice.row} | notice.granted).items()
            if name not in self._rows or self._rows[name].is_before(row)
        }
        self._rows = self._rows | news
        granted = self.node in news and self._is_up_to_date(news[self.node])
        if granted:
            self._take(news[self.node])
        if sum(row.occupied for row in self._rows.values()) < self._total:
            self._denied = None  # some are free, which its next request may get
        return granted or waited or self.others_wait() or (self.pending is None and self._said_waits)

    def _is_up_to_date(self, own: ShareRow) -> bool:
        """Return True if the store had the last report of this node when it recorded this row.

        A report that it did not have says less: the node may have lowered its share meanwhile.
        """
        return not self._fenced and (own.epoch, own.seq) == (self.epoch, self._seq)

    @property
    def _said_waits(self) -> bool:
        """True if the store knows that calls wait here."""
        own = self._rows.get(self.node)
        return own is not None and own.demand > own.occupied

    def heard(self) -> None:
        """Note that another node has returned slots, or waits for some."""
        self._heard, self._denied = True, None

    def fenced(self) -> None:
        """Note that a newer process serves under this node's name: nothing is begun any more."""
        self.pending, self._fenced = None, True

    def _now(self, held: int, demand: int) -> dict[str, ShareRow]:
        """Return the rows with this node as it is now."""
        own = ShareRow(
            epoch=self.epoch,
            seq=self._seq,
            cap=self.cap,
            share=self.share,
            held=held,
            demand=demand,
            owed=self._owed,
            floor=self.floor,
            seen_ms=0,
        )
        return self._rows | {self.node: own}

    def _target(self, held: int, demand: int) -> int:
        return fair_shares(self._total or self.cap, self._now(held, demand))[self.node].whole

    @property
    def _exceeds_cap(self) -> bool:
        """True if the nodes hold more than there is: a policy has a lower cap, or the provider takes fewer."""
        return bool(self._total) and sum(row.occupied for row in self._rows.values()) > self._total

    def others_wait(self) -> bool:
        """Return True if calls wait at another node, as far as this one knows."""
        return any(
            row.demand > row.occupied and row.suspect_ms is None
            for name, row in self._rows.items()
            if name != self.node
        )
