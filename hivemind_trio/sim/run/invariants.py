"""Invariants after every event, checked from outside the scheduler on counts of our own."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, final

import attrs

from hivemind_trio.model import Reason
from hivemind_trio.policy import Dimension, Program, RateLimitSettings, Window
from hivemind_trio.scheduler import (
    AttemptEnded,
    CallArrived,
    CallCancelled,
    CallId,
    Command,
    Event,
    Finish,
    Grant,
    LimitChanged,
    Permit,
    PoolSnapshot,
    Reject,
    Scheduler,
    Standstill,
    TimePassed,
)

STANDS_MAX_NS: Final = 20 * 1_000_000_000
"""Longest standstill, unless a declared quota, a longer pause of the circuit or a far reset explains it."""
FAR_NS: Final = 600 * 1_000_000_000
OPEN_SPREAD: Final = 1.2
"""Jitter of a circuit's pause."""


class Broken(AssertionError):  # noqa: N818 - a bug, like every failed assertion, and not an error of somebody's
    """An invariant does not hold: a bug of the scheduler, never of a policy."""


@final
@attrs.define(eq=False)
class Audit:
    """Audit of one run. Each event costs O(size of the policy)."""

    program: Program
    scheduler: Scheduler
    shares: bool = False
    """True if a store of several nodes may give the scheduler something to do, beside time."""
    granted: Callable[[Permit, int], None] | None = attrs.field(init=False, default=None)
    """Callback after each grant."""
    events: int = attrs.field(init=False, default=0)
    _waiting: dict[CallId, None] = attrs.field(init=False, factory=dict)
    _held: dict[CallId, Permit] = attrs.field(init=False, factory=dict)
    _counts: Counter[tuple[str, ...]] = attrs.field(init=False, factory=Counter)
    """Counters that permits are taken from -> permits held."""
    _stands_ns: dict[str, int] = attrs.field(init=False, factory=dict)
    """Provider where calls wait in line and none is in flight -> since when."""
    _limits: dict[str, int] = attrs.field(init=False, factory=dict)
    _sent: dict[tuple[str, str | None], deque[int]] = attrs.field(init=False, factory=dict)
    """(Provider, its limits group) -> when requests went there, as far back as its longest window."""
    _started: dict[tuple[bool, str], deque[int]] = attrs.field(init=False, factory=dict)
    """Agent -> when its calls started, as far back as its longest window."""
    _now_ns: int = attrs.field(init=False, default=0)
    _wakeup_ns: int | None = attrs.field(init=False, default=None)
    """When it asked to be woken."""

    def __attrs_post_init__(self) -> None:
        self._limits = {name: pool.limit for name, pool in self.scheduler.snapshot().pools.items()}

    def handled(self, event: Event, commands: Sequence[Command], now_ns: int) -> None:
        """Check what one event has come to.

        Raises:
            Broken: With the invariant's words.
        """
        self.events += 1
        holds(now_ns >= self._now_ns, "time goes forwards")
        holds(self._wakeup_ns is None or now_ns <= self._wakeup_ns, "the scheduler is woken when it asked to be")
        self._now_ns = now_ns
        self._happened(event)
        granted: set[str] = set()
        for command in commands:
            match command:
                case Grant(permit=permit):
                    assert permit is not None, "what needs a slot is granted one"
                    self._granted(command, permit)
                    granted.add(permit.provider)
                case Reject(call_id=call_id) | Finish(call_id):
                    holds(call_id in self._waiting, "who is sent away was waiting")
                    del self._waiting[call_id]
                case LimitChanged(provider=provider, limit=limit):
                    self._limits[provider] = max(limit, self._limits.get(provider, 0))
        self._at_rest(event, granted)

    def done(self) -> None:
        """At the end, when every client has its answer."""
        holds(not self._held and not self._waiting, "in the end nobody waits and nothing is held")

    @property
    def held(self) -> Mapping[CallId, Permit]:
        """Calls in flight."""
        return self._held

    def inflight(self, provider: str) -> int:
        """Return how many calls are in flight at a provider."""
        return self._counts["provider", provider]

    def drop(self) -> None:
        """Forget every call: the process has been killed."""
        self._waiting.clear()
        self._held.clear()
        self._counts.clear()

    def _happened(self, event: Event) -> None:
        match event:
            case CallArrived(call=call):
                self._waiting[call.id] = None
            case CallCancelled(call_id=call_id):
                self._waiting.pop(call_id, None)
            case AttemptEnded(call_id=call_id, ended=ended):
                holds(call_id in self._held, "an attempt that ends was granted, and ends once")
                held = self._held.pop(call_id)
                self._counts.subtract(_counted(held))
                if not ended.committed:
                    self._waiting[call_id] = None
            case _:
                pass

    def _granted(self, grant: Grant, permit: Permit) -> None:
        call_id = grant.call_id
        holds(call_id in self._waiting, "who is granted was waiting, and is granted once")
        del self._waiting[call_id]
        self._held[call_id] = permit
        self._counts.update(_counted(permit))
        for key, cap in self._caps(permit).items():
            holds(cap is None or self._counts[key] <= cap, f"{' '.join(key)} is within its cap in the policy")
        self._count(permit, self._now_ns)
        if grant.attempt == 1:
            self._count_start(permit, self._now_ns)
        if self.granted is not None:
            self.granted(permit, self._now_ns)

    def _caps(self, permit: Permit) -> dict[tuple[str, ...], int | None]:
        """Return the policy's bounds on everything a permit is taken from, with AIMD at its most generous."""
        provider = self.program.pools[permit.provider]
        group = next((each for each in provider.groups if each.glob == permit.group), None)
        agent = self.program.agents[permit.agent] if permit.declared else self.program.unknown
        of_provider, of_group, of_lane, of_agent = _counted(permit)
        return {
            of_provider: provider.limit,
            of_group: group.concurrency if group is not None else None,
            of_lane: self.program.lanes[permit.lane].cap(provider.limit),
            of_agent: agent.concurrency,
        }

    def _count(self, permit: Permit, now_ns: int) -> None:
        """Count requests per window, as the policy declares them."""
        quotas = request_quotas(self.program, permit)
        sent = self._sent.setdefault((permit.provider, permit.group), deque())
        for quota, within in counted_within(sent, now_ns, quotas):
            holds(within <= most_in_window(quota), f"{within} requests are within {quota}")

    def _count_start(self, permit: Permit, now_ns: int) -> None:
        """Count the calls that an agent starts, as its limits declare them."""
        agent = self.program.agents[permit.agent] if permit.declared else self.program.unknown
        limits = [limit for limit in agent.limits if limit.dimension is Dimension.REQUESTS]
        started = self._started.setdefault((permit.declared, permit.agent), deque())
        for limit, within in counted_within(started, now_ns, limits):
            holds(within <= limit.amount, f"{within} starts of agent {permit.agent} are within {limit}")

    def _at_rest(self, event: Event, granted: set[str]) -> None:
        snapshot = self.scheduler.snapshot()
        holds(snapshot.inflight == len(self._held), "what is in flight is what was granted and has not ended")
        holds(snapshot.waiting == len(self._waiting), "nobody is lost, and nobody waits who was answered")
        pools = Counter(permit.provider for permit in self._held.values())
        for name, pool in snapshot.pools.items():
            holds(pool.inflight == pools[name], f"provider {name} counts its attempts")
            holds(sum(pool.lanes_inflight.values()) == pool.inflight, "lanes share all of a provider's slots")
            holds(sum(pool.groups_inflight.values()) == pool.inflight, "so do limits groups")
            # A limit that was cut under what is in flight drains: only a grant can break it.
            most = max(pool.limit, self._limits.get(name, 0))
            holds(name not in granted or pool.inflight <= most, f"provider {name} is within its limit")
            self._limits[name] = pool.limit
        wakeup_ns = self._wakeup_ns = self.scheduler.wakeup_ns()
        for name, pool in snapshot.pools.items():
            if pool.stands is None or name in granted:
                self._stands_ns.pop(name, None)
            if pool.stands is not None and not self.shares:
                self._stands(name, pool, pool.stands, wakeup_ns)
        if self._waiting and not self.shares:
            holds(bool(self._held) or wakeup_ns is not None, "somebody waits, and something will happen")
        if isinstance(event, TimePassed) and wakeup_ns is not None:
            holds(wakeup_ns > self._now_ns, "time that has passed is not asked for again")

    def _stands(self, name: str, pool: PoolSnapshot, stands: Standstill, wakeup_ns: int | None) -> None:
        """Check that a call goes soon where calls wait in line and none is in flight."""
        holds(not pool.inflight and bool(pool.waiting), f"provider {name} stands if calls wait and none is in flight")
        provider = self.program.pools.get(name)
        far = any((gate.hold_until_ns or 0) > self._now_ns + FAR_NS for gate in pool.gates.values())
        elsewhere = stands.reason in (Reason.AGENT_CONCURRENCY, Reason.AGENT_LIMIT, Reason.MODEL_RESIDENT)
        if provider is None or far or elsewhere or any(group.quotas for group in provider.groups):
            return
        since_ns = self._stands_ns.setdefault(name, self._now_ns)
        goes_by_ns = since_ns + max(STANDS_MAX_NS, int(provider.breaker.open_ns * OPEN_SPREAD))
        holds(wakeup_ns is not None and wakeup_ns <= goes_by_ns, f"provider {name} does not stand for long")


def _counted(permit: Permit) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return provider, limits group, lane and agent: what a limit may be on."""
    return (
        ("provider", permit.provider),
        ("limits", permit.provider, f"{permit.group}"),
        ("lane", permit.lane, permit.provider),
        ("agent" if permit.declared else "caller", permit.agent),
    )


def request_quotas(program: Program, permit: Permit) -> list[RateLimitSettings]:
    """Return the quotas of requests that the policy declares for the models of a permit."""
    return [
        quota
        for group in program.pools[permit.provider].groups
        if group.glob == permit.group
        for quota in group.quotas
        if quota.dimension is Dimension.REQUESTS
    ]


def counted_within(
    times: deque[int], now_ns: int, limits: Sequence[RateLimitSettings]
) -> Iterator[tuple[RateLimitSettings, int]]:
    """Count one more at this time; yield each limit with the number within its window.

    Args:
        times: When the others were, in order; those that no window has any more are dropped.
        now_ns: This time.
        limits: The limits; without any, nothing is counted.
    """
    if not limits:
        return
    times.append(now_ns)
    longest_ns = max(limit.window_ns for limit in limits)
    while times[0] <= now_ns - longest_ns:
        times.popleft()
    for limit in limits:
        yield limit, sum(at_ns > now_ns - limit.window_ns for at_ns in times)


def most_in_window(quota: RateLimitSettings) -> int:
    """Return the most that a quota lets through in the time of one window.

    A sliding window lets its amount through. A full bucket and its refill are twice as much; so are two fixed windows,
    the one spent at its end and the other at its beginning.
    """
    return quota.amount if quota.window is Window.SLIDING else quota.amount * 2


def holds(condition: bool, words: str) -> None:
    """Raise `Broken` with these words unless the condition holds."""
    if not condition:
        raise Broken(words)
