"""How things stand, frozen, for every door."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import attrs

from ._breaker import Circuit


@final
@attrs.frozen(kw_only=True)
class PoolSnapshot:
    """One provider's slots."""

    limit: int
    inflight: int
    waiting: int
    lanes_inflight: Mapping[str, int]
    groups_inflight: Mapping[str | None, int]
    circuit: Circuit
    opens_ns: int | None
    """While the circuit is open: when a probe may go."""


@final
@attrs.frozen(kw_only=True)
class Snapshot:
    """The scheduler at one instant. O(size of the policy) to take, not O(calls)."""

    now_ns: int
    program_hash: str
    draining: bool
    pools: Mapping[str, PoolSnapshot]
    """Declared providers, and removed ones that still have attempts in flight."""
    lanes_waiting: Mapping[str, int]
    """Over all providers."""
    agents: int
    """Agents and callers with a call waiting or in flight."""
    inflight: int
    waiting: int
