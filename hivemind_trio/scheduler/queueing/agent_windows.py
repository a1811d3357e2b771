"""Rate limits of agents: sliding windows of what each starts, over all providers.

They live on between the calls of an agent, and are found by its key: an agent without calls is forgotten, what it has
started is not.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final, final

import attrs

from hivemind_trio.model import Dimension
from hivemind_trio.policy import Program, RateLimitSettings, Renames
from hivemind_trio.scheduler.limits.cost import NOTHING, Cost, exceeds
from hivemind_trio.scheduler.protocol.agent_key import AgentKey
from hivemind_trio.scheduler.protocol.snapshot import AgentLimitSnapshot
from hivemind_trio.scheduler.structures.sliding_window import SlidingWindow

CALLERS_MAX: Final = 10_000
"""Agents and callers whose windows are kept while they have no calls: callers are known by words of theirs."""


@final
@attrs.define(eq=False)
class AgentWindows:
    """Windows of one agent, as of the last `advance`: time only makes room, so an old view grants nothing wrongly."""

    settings: tuple[RateLimitSettings, ...]
    _windows: dict[tuple[Dimension, int], SlidingWindow] = attrs.field(factory=dict, init=False)
    _now_ns: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.load(self.settings)

    def load(self, settings: tuple[RateLimitSettings, ...]) -> None:
        """Take the settings of a new policy. What was started counts in every window: a reload makes no room.

        A window of a new length begins with what the longest one before it knows.
        """
        before, self._windows, self.settings = self._windows, {}, settings
        for one in settings:
            key = one.dimension, one.window_ns
            if key in before:
                self._windows[key] = before[key]
                continue
            window = self._windows[key] = SlidingWindow(one.window_ns)
            known = [past for (dimension, _), past in before.items() if dimension is one.dimension]
            longest = max(known, key=lambda past: past.window_ns, default=None)
            for age_ns, amount in longest.ages(self._now_ns) if longest is not None else ():
                if age_ns < one.window_ns:
                    window.add(amount, self._now_ns - age_ns)

    def advance(self, now_ns: int) -> None:
        """Let time pass."""
        self._now_ns = now_ns

    def fits(self, cost: Cost, beside: Cost = NOTHING) -> bool:
        """Return True if a call of this cost can start, and later another one beside it."""
        return all(self._sum(one) + cost[one.dimension] + beside[one.dimension] <= one.amount for one in self.settings)

    def fits_ns(self, cost: Cost) -> int:
        """Return when a call of this cost can start if no other does: now, or later."""
        return max(
            self._windows[one.dimension, one.window_ns].at_most_ns(
                max(0, one.amount - cost[one.dimension]), self._now_ns
            )
            for one in self.settings
        )

    def within(self, cost: Cost, *, exact: bool) -> Cost:
        """Return a cost that fits each limit by itself, unless it is sure that the call takes more than that.

        Args:
            exact: The provider has counted the tokens of the prompt.
        """
        fitting = dict(cost)
        for one in self.settings:
            if not exceeds(cost, one.dimension, one.amount, exact=exact):
                fitting[one.dimension] = min(fitting[one.dimension], one.amount)
        return fitting

    def too_large(self, cost: Cost) -> RateLimitSettings | None:
        """Return the limit that such a call exceeds by itself, so that no wait helps."""
        return next((one for one in self.settings if cost[one.dimension] > one.amount), None)

    def take(self, cost: Cost, *, beyond: bool = False) -> None:
        """Count a call that starts now; `beyond`: whether or not it fits."""
        assert beyond or self.fits(cost)
        for one in self.settings:
            self._windows[one.dimension, one.window_ns].add(cost[one.dimension], self._now_ns)

    def settle(self, estimated: Cost, actual: Cost, taken_ns: int) -> None:
        """Count what a call took instead of what it was thought to take."""
        for one in self.settings:
            more = actual[one.dimension] - estimated[one.dimension]
            if more:
                self._windows[one.dimension, one.window_ns].correct(more, taken_ns, self._now_ns)

    def used(self, now_ns: int) -> Iterator[tuple[RateLimitSettings, int]]:
        """Yield each limit with what counts of it now."""
        for one in self.settings:
            yield one, self._windows[one.dimension, one.window_ns].sum(now_ns)

    def _sum(self, one: RateLimitSettings) -> int:
        return self._windows[one.dimension, one.window_ns].sum(self._now_ns)


@final
@attrs.define(eq=False)
class AgentWindowTable:
    """Windows of every agent whose policy has limits, and that has started something."""

    _by_agent: dict[AgentKey, AgentWindows] = attrs.field(factory=dict, init=False)

    def of(self, key: AgentKey, program: Program, now_ns: int, active: Container[AgentKey] = ()) -> AgentWindows | None:
        """Return the windows of an agent; None: the policy gives it none.

        Args:
            active: Agents with calls, whose windows are in use.
        """
        settings = _settings(key, program)
        if not settings:
            return None
        found = self._by_agent.pop(key, None)
        if found is None:
            found = AgentWindows(settings)
            if len(self._by_agent) >= CALLERS_MAX:
                self._sweep(now_ns, active)
        self._by_agent[key] = found
        found.advance(now_ns)
        return found

    def load(self, program: Program) -> None:
        """Take the settings of a new policy."""
        self._by_agent = {key: windows for key, windows in self._by_agent.items() if _settings(key, program)}
        for key, windows in self._by_agent.items():
            windows.load(_settings(key, program))

    def rename(self, renames: Renames) -> None:
        """Take the new names of a policy."""
        self._by_agent = {renames.agent_key(key): windows for key, windows in self._by_agent.items()}

    def snapshots(self, now_ns: int) -> Iterator[AgentLimitSnapshot]:
        """Yield the use of every limit of declared agents."""
        for (declared, name), windows in self._by_agent.items():
            if declared:
                for limit, used in windows.used(now_ns):
                    yield AgentLimitSnapshot(agent=name, limit=limit, used=used)

    def _sweep(self, now_ns: int, active: Container[AgentKey]) -> None:
        """Forget the agents without calls whose windows are empty; where there are none, the one idle longest."""
        idle = [key for key in self._by_agent if key not in active]
        for key in [key for key in idle if not any(used for _, used in self._by_agent[key].used(now_ns))] or idle[:1]:
            del self._by_agent[key]


def _settings(key: AgentKey, program: Program) -> tuple[RateLimitSettings, ...]:
    declared, name = key
    return (program.agent(name) if declared else program.unknown).limits
