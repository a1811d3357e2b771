"""The store's rule for one provider's learned state: who leads, its verdict, and reports that it has not taken yet.

This is the model of the script that Redis runs (`store/fleet/learn_script.py`): both answer every history alike.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from .lesson import LESSONS_MAX, LearnAnswer, LearnAsk, Lesson, Report, SharedVerdict

HALF_OPEN: Final = "half-open"


@final
@attrs.define(kw_only=True)
class LearnRow:
    """A node as the store last heard of it."""

    epoch: int
    seq: int
    seen_ms: int
    held: int
    binds: bool
    lessons: list[tuple[int, Lesson]]
    """When each arrived, and the lesson."""
    wants_probe: bool = False


@final
@attrs.define(eq=False)
class LearnRecord:
    """Learned state of one provider.

    Args:
        lead_ms: Silence after which another node leads.
        gone_ms: Silence after which a node's attempts in flight count no more, and its probe is another's.
    """

    lead_ms: int
    gone_ms: int
    rows: dict[str, LearnRow] = attrs.field(init=False, factory=dict)
    leader: str = attrs.field(init=False, default="")
    verdict: SharedVerdict | None = attrs.field(init=False, default=None)
    _told_ms: int = attrs.field(init=False, default=0)
    """When the verdict was told."""
    _probe: str = attrs.field(init=False, default="")
    """Node whose call is the probe."""
    _probe_until_ms: int = attrs.field(init=False, default=0)

    @property
    def limit(self) -> int | None:
        """Concurrency limit of all nodes together; None: it is not learned."""
        return self.verdict.limit if self.verdict is not None and self.verdict.limit else None

    def learn(self, ask: LearnAsk, now_ms: int) -> LearnAnswer:
        """Take a report. The node that leads gets those of the others."""
        row = self.rows.get(ask.node)
        if row is not None and (ask.epoch, ask.seq) <= (row.epoch, row.seq):
            return LearnAnswer(seq=ask.seq, leads=False, verdict=self._verdict(now_ms))  # late or doubled
        for one in self.rows.values():
            one.seen_ms = min(one.seen_ms, now_ms)  # the clock may have been put back
        for name in [name for name, one in self.rows.items() if now_ms - one.seen_ms >= self.gone_ms]:
            del self.rows[name]
        row = self.rows.get(ask.node)
        if row is None or row.epoch != ask.epoch:
            row = self.rows[ask.node] = LearnRow(
                epoch=ask.epoch, seq=0, seen_ms=now_ms, held=0, binds=False, lessons=[]
            )
            if self.leader == ask.node:
                self.leader = ""  # another process
        row.seq, row.seen_ms, row.held, row.binds, row.wants_probe = (
            *(ask.seq, now_ms, ask.held),
            *(ask.binds, ask.wants_probe),
        )
        wake: list[str] = []
        leader = self.rows.get(self.leader)
        if leader is None or now_ms - leader.seen_ms >= self.lead_ms:
            self.leader = ask.node
        leads = self.leader == ask.node
        if ask.verdict is not None and (self.verdict is None or (leads and ask.leads)):
            before, self.verdict, self._told_ms = self.verdict, ask.verdict, now_ms
            if before is None or (before.limit, before.circuit) != (ask.verdict.limit, ask.verdict.circuit):
                wake += [name for name in sorted(self.rows) if name != ask.node]
                self._probe = ""
        if leads:
            row.lessons.clear()
        else:
            row.lessons += [(now_ms, lesson) for lesson in ask.lessons]
            del row.lessons[:-LESSONS_MAX]
        if ask.urgent:
            # The others as well: an attempt teaches something only together with how many were in flight.
            wake = [name for name in sorted(self.rows) if name != ask.node]
        return LearnAnswer(
            seq=ask.seq,
            leads=leads,
            verdict=self._verdict(now_ms),
            probe=self._may_probe(ask, now_ms),
            reports=self._reports(now_ms) if leads else (),
            wake=tuple(wake),
        )

    def bye(self, node: str, epoch: int) -> None:
        """Forget a node that ends in order; another leads."""
        row = self.rows.get(node)
        if row is not None and row.epoch == epoch:
            del self.rows[node]

    def _verdict(self, now_ms: int) -> SharedVerdict | None:
        if self.verdict is None:
            return None
        return attrs.evolve(self.verdict, opens_ms=max(0, self.verdict.opens_ms - (now_ms - self._told_ms)))

    def _may_probe(self, ask: LearnAsk, now_ms: int) -> bool:
        """Return True if the node's call may be the one probe of all nodes."""
        if self.verdict is None or self.verdict.circuit != HALF_OPEN:
            return False
        if self._probe == ask.node and not ask.probes and not ask.wants_probe:
            self._probe = ""  # nothing has come of it
        if ask.probes or (ask.wants_probe and (self._probe in ("", ask.node) or now_ms >= self._probe_until_ms)):
            self._probe, self._probe_until_ms = ask.node, now_ms + self.gone_ms
            return True
        return False

    def _reports(self, now_ms: int) -> tuple[Report, ...]:
        reports = []
        for name, row in sorted(self.rows.items()):
            if name == self.leader:
                continue
            aged = [attrs.evolve(one, age_ms=one.age_ms + max(0, now_ms - at_ms)) for at_ms, one in row.lessons]
            reports.append(Report(node=name, epoch=row.epoch, held=row.held, binds=row.binds, lessons=tuple(aged)))
            row.lessons.clear()
        return tuple(reports)
