"""Invariants of several nodes together, checked at every grant on counts of their own audits."""

from __future__ import annotations

from collections import deque
from typing import Final, final

import attrs

from hivemind_trio.policy import Program
from hivemind_trio.scheduler import CallId, Permit

from .invariants import Audit, counted_within, holds, most_in_window, request_quotas

WINDOWS_AFTER: Final = 2
"""Windows of a rate limit after a fault in which a node may still send what it was left for the fault."""


@final
@attrs.define(eq=False)
class _Audited:
    """One node."""

    audit: Audit
    is_cut: bool = False
    excused: set[CallId] = attrs.field(factory=set)
    """Calls in flight when its cut ended: nodes that were not cut may have been given their slots."""

    def counted(self, provider: str) -> int:
        """Return its calls in flight at a provider that count against the cap."""
        if self.is_cut:
            return 0
        held = self.audit.held
        self.excused.intersection_update(held)
        excused = sum(held[call].provider == provider for call in self.excused)
        return self.audit.inflight(provider) - excused


@final
@attrs.define(eq=False)
class FleetAudit:
    """Audit of nodes that share the limits of one program."""

    program: Program
    checks: int = attrs.field(init=False, default=0)
    _nodes: dict[str, _Audited] = attrs.field(init=False, factory=dict)
    _faults: int = attrs.field(init=False, default=0)
    """Faults that last now."""
    _sound_ns: int = attrs.field(init=False, default=0)
    """End of the last one."""
    _sent: dict[tuple[str, str | None], deque[int]] = attrs.field(init=False, factory=dict)
    """(Provider, limits group) -> when any node sent a request there, as far back as the longest window."""

    def joined(self, node: str, audit: Audit) -> None:
        """Count a node that starts, in place of the process of that name before it."""
        before = self._nodes.get(node)
        self._nodes[node] = _Audited(audit, before is not None and before.is_cut)
        audit.granted = self._granted

    def left(self, node: str) -> None:
        """Count a node no more that was killed: the provider sees its connections break."""
        self._nodes[node].audit.drop()

    def fault(self, now_ns: int, *, begins: bool) -> None:
        """Note that the store is away or a node cut off, or is so no more."""
        self._faults += 1 if begins else -1
        self._sound_ns = now_ns

    def cut(self, node: str, *, is_cut: bool) -> None:
        """Note that a node is cut off from the store, or is so no more."""
        audited = self._nodes[node]
        audited.is_cut = is_cut
        if not is_cut:
            audited.excused = set(audited.audit.held)

    def _granted(self, permit: Permit, now_ns: int) -> None:
        self.checks += 1
        name, cap = permit.provider, self.program.pools[permit.provider].limit
        inflight = sum(node.counted(name) for node in self._nodes.values())
        holds(inflight <= cap, f"{inflight} calls of all nodes are within {cap} of provider {name}")
        self._count(permit, now_ns)

    def _count(self, permit: Permit, now_ns: int) -> None:
        """Count requests per window, of all nodes."""
        sent = self._sent.setdefault((permit.provider, permit.group), deque())
        for quota, within in counted_within(sent, now_ns, request_quotas(self.program, permit)):
            if self._faults or (self._sound_ns and now_ns < self._sound_ns + WINDOWS_AFTER * quota.window_ns):
                continue
            holds(within <= most_in_window(quota), f"{within} requests of all nodes are within {quota}")
