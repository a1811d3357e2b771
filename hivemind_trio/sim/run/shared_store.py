"""Store that simulated nodes share, at the other end of links that take time, lose messages and break."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final, TypeVar, final

import attrs

from hivemind_trio.scheduler.sharing.fleet_model import FleetModel
from hivemind_trio.scheduler.sharing.share_row import FencedNode, LeaseTerms, RowNotice

from .event_queue import Agenda

MS: Final = 1_000_000

TRIP_MS: Final = (0.1, 0.5)
"""Range of the time that a message takes one way."""

ANSWER_NS: Final = 250 * MS
"""Longest wait for an answer."""

T = TypeVar("T")


@final
@attrs.define(eq=False)
class SimulatedStore:
    """The rules of the store, reached through the agenda.

    Args:
        agenda: Virtual time.
        random: Of the times that messages take.
        terms: Bounds of the leases.
        loss: Share of messages that are lost.
    """

    agenda: Agenda
    random: Random
    terms: LeaseTerms
    loss: float = 0.0
    model: FleetModel = attrs.field(init=False)
    asked: Counter[str] = attrs.field(init=False, factory=Counter)
    """Operation -> number."""
    away: int = attrs.field(init=False, default=0)
    """Number of faults for which nobody reaches it."""
    cut: Counter[str] = attrs.field(init=False, factory=Counter)
    """Node -> number of faults for which nothing passes to or from it."""
    listening: dict[str, Callable[[str | RowNotice], None]] = attrs.field(init=False, factory=dict)
    """Node with a connection -> how it is called."""

    def __attrs_post_init__(self) -> None:
        self.model = FleetModel(self.terms, is_first=True)

    @property
    def now_ms(self) -> int:
        """Time of the store."""
        return self.agenda.now_ns // MS

    def ask(
        self,
        node: str,
        operation: str,
        run: Callable[[FleetModel, int], T],
        answered: Callable[[T], None],
        failed: Callable[[], None],
        fenced: Callable[[], None],
    ) -> None:
        """Send a question; exactly one of the three callbacks is called later.

        Args:
            run: Given the rules and the time of the store.
        """
        over: list[bool] = []

        def once(call: Callable[[], None]) -> None:
            if not over:
                over.append(True)
                call()

        def arrive() -> None:
            if not self.reaches(node):
                return
            self.asked[operation] += 1
            try:
                answer = run(self.model, self.now_ms)
            except FencedNode:
                self._send(node, lambda: once(fenced))
                return
            self._send(node, lambda: once(lambda: answered(answer)))

        self.agenda.at(self.agenda.now_ns + ANSWER_NS, once, failed)
        self._send(node, arrive)

    def wake(self, names: tuple[str, ...], about: str | RowNotice) -> None:
        """Call nodes."""
        for name in names:
            call = self.listening.get(name)
            if call is not None:
                self._send(name, lambda call=call: call(about))  # type: ignore[misc]

    def present(self) -> set[str]:
        """Return the nodes whose connection stands, as far as the store knows."""
        return set(self.listening)

    def reaches(self, node: str) -> bool:
        """Return True if messages pass between this node and the store."""
        return not self.away and not self.cut[node]

    def _send(self, node: str, deliver: Callable[[], None]) -> None:
        if not self.reaches(node) or (self.loss and self.random.random() < self.loss):
            return
        trip_ns = round(self.random.uniform(*TRIP_MS) * MS)
        self.agenda.at(self.agenda.now_ns + trip_ns, self._deliver, node, deliver)

    def _deliver(self, node: str, deliver: Callable[[], None]) -> None:
        if self.reaches(node):
            deliver()
