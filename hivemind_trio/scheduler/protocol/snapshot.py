"""Frozen snapshot of the scheduler's state and beliefs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import attrs

from hivemind_trio.model import Dimension, Reason
from hivemind_trio.policy import RateLimitSettings, Window

from .circuit import Circuit
from .events import Pausable


@final
@attrs.frozen(kw_only=True)
class BucketSnapshot:
    """One quota of one limits group."""

    dimension: Dimension
    window_ns: int
    declared: bool
    """False: only headers tell of it."""
    kind: Window
    """Window as which it is kept now."""
    limit: int
    left: int
    """Negative while estimates were too low."""
    foreign: int
    """Use by others that counts now."""


@final
@attrs.frozen(kw_only=True)
class GateSnapshot:
    """Beliefs about one limits group, or one model of it, that the provider has refused or that has quotas."""

    hold_until_ns: int | None
    """End of the wait that the provider asked for; None: there is none."""
    disbelieved: bool
    """A call was accepted before the time that the provider had named, so its word counts for a second."""
    rate_per_s: float | None
    """Learned rate; None: no limit is known."""
    allowed: int | None
    """Limit on calls in flight while the gate reopens; None: no limit."""
    inflight: int
    probes_refused: int
    """In a row."""
    evidence_age_ns: int | None
    """Time since the last grant or end; None: there has been none."""
    buckets: tuple[BucketSnapshot, ...]


@final
@attrs.frozen(kw_only=True)
class AimdSnapshot:
    """Beliefs about the concurrency that the provider accepts."""

    cap: int | None
    """Number at once that it seems to accept; None: no cap holds."""
    cap_until_ns: int | None
    stays_until_ns: int | None
    """Until then the limit does not grow, for more did not raise throughput; None: it may grow."""


@final
@attrs.frozen(kw_only=True)
class Standstill:
    """Calls wait in line for a provider, and none is in flight there."""

    since_ns: int
    reason: Reason
    until_ns: int | None
    """When the next call goes by what is known now; None: no time is known."""


@final
@attrs.frozen(kw_only=True)
class PoolSnapshot:
    """One provider's slots, and what is believed of it."""

    limit: int
    inflight: int
    waiting: int
    lanes_inflight: Mapping[str, int]
    groups_inflight: Mapping[str | None, int]
    circuit: Circuit
    opens_ns: int | None
    """While the circuit is open: when a probe may go."""
    gates: Mapping[tuple[str | None, str | None], GateSnapshot]
    """(Limits group, model) -> its gate. The model is None where the policy counts a group as one."""
    aimd: AimdSnapshot | None
    """None: the limit is fixed."""
    stands: Standstill | None
    """None: no call waits in line, or one is in flight."""
    stood_ns: int
    """Duration of all standstills so far."""


@final
@attrs.frozen(kw_only=True)
class AgentLimitSnapshot:
    """Use of one limit of a declared agent."""

    agent: str
    limit: RateLimitSettings
    used: int
    """Sum over the calls of the last window."""


@final
@attrs.frozen(kw_only=True)
class Snapshot:
    """The scheduler at one instant. O(size of the policy) to take, not O(calls)."""

    now_ns: int
    program_hash: str
    draining: bool
    pools: Mapping[str, PoolSnapshot]
    """Declared providers, and removed ones that still have attempts in flight."""
    paused: tuple[tuple[Pausable, str], ...] = ()
    """Kind and name of what an operator holds back."""
    lanes_waiting: Mapping[str, int]
    """Over all providers."""
    agent_limits: tuple[AgentLimitSnapshot, ...] = ()
    """Limits of declared agents that have started something."""
    agents: int
    """Agents and callers with a call waiting or in flight."""
    inflight: int
    waiting: int
    held: int = 0
    """Those of `waiting` that a rule holds."""
