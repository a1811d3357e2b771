"""A provider that counts, in virtual time, and a backlog that is sent to it as our mirror of it allows.

Heads of answers take their time and overtake each other; others may use the same key.
"""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import attrs

from hivemind_trio.model import Dimension, QuotaReading
from hivemind_trio.scheduler.limits.rate_limits import RateLimits
from hivemind_trio.scheduler.limits.token_estimator import cost_of
from hivemind_trio.scheduler.protocol.call import CallId
from hivemind_trio.sim import Counting
from hivemind_trio.sim import Quota as Counted
from hivemind_trio.sim import Reading as Counter
from hivemind_trio.sim.provider.windows import meter

S = 1_000_000_000
MINUTE = 60 * S


@attrs.frozen(kw_only=True)
class Setup:
    """One provider, one dimension: requests."""

    counting: Counting
    limit: int = 600
    window_ns: int = MINUTE
    burst: int | None = None
    phase_ns: int = 0
    lazy: bool = False
    head_ns: tuple[int, int] = (50_000_000, 2 * S)
    """How long the head of an answer takes."""
    resolution_ns: int = 1_000_000
    """Resets are told in steps of this, upwards."""
    foreign_per_s: float = 0.0
    """Requests of others on the same key."""
    estimate: float = 1.0
    """What we think a call takes, as a multiple of what it takes."""
    inflight: int = 64
    """At most."""
    retry_after_ns: int | None = None
    """What a refusal says; None: the truth."""
    tells: bool = True
    """Whether answers have headers."""
    tells_resets: bool = True
    as_sent: bool = False
    """Whether headers say what is left when they are sent; False: when the request came."""


@attrs.define
class Told:
    """What became of it."""

    granted: list[int] = attrs.field(factory=list)
    """When."""
    refused: list[int] = attrs.field(factory=list)
    beyond: int = 0
    """Refused, though what was in flight unseen and what others took meanwhile does not explain it."""


def spend(setup: Setup, quotas: RateLimits, until_ns: int, seed: int = 1) -> Told:
    """Send as much as the mirror lets go."""
    random = Random(seed)
    counted = Counted(
        limit=setup.limit,
        window_ns=setup.window_ns,
        burst=setup.burst,
        counting=setup.counting,
        phase_ns=setup.phase_ns,
        lazy=setup.lazy,
    )
    provider = meter(counted)
    told = Told()
    cost = cost_of(0, 0) | {Dimension.REQUESTS: max(1, round(setup.estimate))}
    heads: list[tuple[int, int, int, int, tuple[QuotaReading, int]]] = []
    foreign_ns = round(S / setup.foreign_per_s) if setup.foreign_per_s else None
    next_foreign = 0
    seen_foreign = 0
    others = now_ns = number = 0
    for _ in range(200_000):
        opens_ns = quotas.opens_ns(cost, now_ns) if len(heads) < setup.inflight else until_ns
        events = [opens_ns]
        if heads:
            events.append(heads[0][0])
        if foreign_ns is not None:
            events.append(next_foreign)
        now_ns = max(now_ns, min(events))
        if now_ns >= until_ns:
            return told
        if heads and heads[0][0] <= now_ns:
            _, call, granted_ns, foreign, (said, wait_ns) = heappop(heads)
            if setup.tells:
                quotas.on_headers(
                    CallId(call), [_said(setup, provider.reading(now_ns)) if setup.as_sent else said], now_ns
                )
            if wait_ns:
                wait_ns = wait_ns if setup.retry_after_ns is None else setup.retry_after_ns
                quotas.refuse(CallId(call), (Dimension.REQUESTS,), wait_ns, now_ns)
            else:
                quotas.accept(CallId(call), now_ns)
            seen_foreign = max(seen_foreign, foreign)
            quotas.end(CallId(call), now_ns)
            quotas.settle(cost, cost_of(0, 0), granted_ns, now_ns)
        elif foreign_ns is not None and next_foreign <= now_ns:
            next_foreign = now_ns + foreign_ns
            if provider.wait_ns(1, now_ns) == 0:
                provider.take(1, now_ns)
                others += 1
        elif opens_ns <= now_ns:
            call, number = number, number + 1
            quotas.take(CallId(call), cost, now_ns)
            refused_ns = provider.wait_ns(1, now_ns)
            assert refused_ns is not None, "one is not too many"
            wait_ns = refused_ns
            if not wait_ns:
                provider.take(1, now_ns)
                told.granted.append(now_ns)
            else:
                told.refused.append(now_ns)
                told.beyond += not heads and others == seen_foreign
            reading = provider.reading(now_ns)
            head_ns = now_ns + random.randint(*setup.head_ns)
            heappush(heads, (head_ns, call, now_ns, others, (_said(setup, reading), wait_ns)))
    raise AssertionError("it never ends")


def _said(setup: Setup, reading: Counter) -> QuotaReading:
    steps = -(-reading.full_ns // setup.resolution_ns)
    return QuotaReading(
        dimension=Dimension.REQUESTS,
        limit=reading.limit,
        remaining=reading.remaining,
        resets_ns=(steps * setup.resolution_ns or None) if setup.tells_resets else None,
    )
