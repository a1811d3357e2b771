"""One node's shares of every pool: which requests are due, and what the scheduler may use until when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import attrs

from hivemind_trio.policy import Program
from hivemind_trio.scheduler.learning.lesson import SharedVerdict

from .node_law import MS, NodeLaw
from .share_row import LeaseTerms, RowNotice, ShareRequest


@final
@attrs.frozen(kw_only=True)
class Usable:
    """Slots that the scheduler of this node may use."""

    shares: dict[str, int]
    """Provider -> slots."""
    until_ns: int | None
    """When they fall by time alone, on the node's clock; None: never."""
    then: dict[str, int]
    """Provider -> slots from then on."""


@final
@attrs.define(eq=False)
class NodeShares:
    """Laws of one node, one for each pool of its policy. Times are nanoseconds of the node's own clock.

    Args:
        node: The node's name.
        epoch: Start of the node, by the store's clock.
        terms: As the store's.
    """

    node: str
    epoch: int
    terms: LeaseTerms
    laws: dict[str, NodeLaw] = attrs.field(init=False, factory=dict)
    """Provider -> its law."""
    contended: bool = attrs.field(init=False, default=True)
    """True if any event may make a request due; else only a call that waits does, or time, or a message."""
    _limits: dict[str, int] = attrs.field(init=False, factory=dict)
    """Provider -> the limit that nodes have learned, as last heard."""
    _usable: Usable | None = attrs.field(init=False, default=None)
    """As it was told last."""

    def follow(self, program: Program) -> None:
        """Have a law for each provider of the policy that runs."""
        nodes, local = program.server.sharers, round(program.store.local * 1_000)
        for name, provider in program.pools.items():
            law = self.laws.get(name)
            if law is None:
                self.laws[name] = NodeLaw(self.node, self.epoch, provider.limit, nodes, local, self.terms)
            elif (law.cap, law.nodes, law.local) != (provider.limit, nodes, local):
                law.load(provider.limit, nodes, local)

    @property
    def learns(self) -> bool:
        """True if the store grants no slots of some pool until it has heard the nodes."""
        return any(law.learning for law in self.laws.values())

    @property
    def blind(self) -> bool:
        """True if it does not know which nodes those are."""
        return any(law.blind for law in self.laws.values())

    def due(self, now_ns: int, demand: Mapping[str, tuple[int, int]]) -> list[tuple[str, ShareRequest]]:
        """Return the requests to be sent now, with their pools. What they lower is lowered before they are sent.

        Args:
            now_ns: Now.
            demand: Pool -> calls in flight, and with them those that wait.
        """
        due, laws = [], self.laws.items()
        for name, law in laws:
            held, wanted = demand.get(name, (0, 0))
            if law.is_due(now_ns, held, wanted):
                due.append((name, law.request(now_ns, held, wanted)))
        self.contended = any(law.others_wait() or law.share < demand.get(name, (0, 0))[0] for name, law in laws)
        return due

    def wakes_ns(self, now_ns: int, demand: Mapping[str, tuple[int, int]]) -> int:
        """Return when time alone next matters."""
        wakes_ns = now_ns + self.terms.renew_ms * MS
        for name, law in self.laws.items():
            held, wanted = demand.get(name, (0, 0))
            wakes_ns = min(wakes_ns, law.wakeup_ns(now_ns))
            if wanted > held or law.others_wait():
                # An event may have come too soon after the last report; it is looked at again then.
                soonest_ns = law.soonest_ns()
                wakes_ns = min(wakes_ns, soonest_ns) if soonest_ns > now_ns else wakes_ns
        return wakes_ns

    def usable(self, now_ns: int, demand: Mapping[str, tuple[int, int]]) -> Usable | None:
        """Return what the scheduler may use from now on; None: as it was told last.

        Args:
            now_ns: Now.
            demand: As in `due`.
        """
        shares = {name: law.allowance(now_ns, *demand.get(name, (0, 0))) for name, law in self.laws.items()}
        # The scheduler itself ends them: after a stop of this process it may hear of an answer before this is asked.
        falls = {name: fall for name, law in self.laws.items() if (fall := law.falls(now_ns)) is not None}
        until_ns = min((at_ns for at_ns, _ in falls.values()), default=None)
        then = shares | {name: min(shares[name], slots) for name, (_, slots) in falls.items()}
        before, self._usable = self._usable, Usable(shares=shares, until_ns=until_ns, then=then)
        return self._usable if self._usable != before else None

    def limited(self, pool: str, verdict: SharedVerdict | None) -> None:
        """Take the limit that nodes have learned: use no more than this node's part of it, and ask anew."""
        law = self.laws.get(pool)
        if law is None or verdict is None or not verdict.limit or self._limits.get(pool) == verdict.limit:
            return
        self._limits[pool] = verdict.limit
        law.limited(verdict.limit)

    def cut(self, now_ns: int) -> None:
        """Note that the connection to the store is broken."""
        for law in self.laws.values():
            law.cut(now_ns)

    def told(self, notice: RowNotice) -> bool:
        """Take the row of another node; True: a request may be due now."""
        law = self.laws.get(notice.pool)
        return law is not None and law.told(notice)

    def heard(self) -> None:
        """Note that another node has returned slots, or waits for some."""
        for law in self.laws.values():
            law.heard()
