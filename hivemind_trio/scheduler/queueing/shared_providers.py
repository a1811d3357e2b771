"""Part of a node in the limits of providers that several nodes share: slots, windows, and what is learned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

import attrs

from hivemind_trio.policy import AimdSettings, Program, Renames
from hivemind_trio.scheduler.health.learned_together import LearnedTogether
from hivemind_trio.scheduler.learning.messages import AskLearning, LearningShared
from hivemind_trio.scheduler.learning.pool_learning import PoolLearning
from hivemind_trio.scheduler.limits.rate_limiter import RateLimiter
from hivemind_trio.scheduler.protocol.events import Command
from hivemind_trio.scheduler.queueing.provider import ProviderQueue
from hivemind_trio.scheduler.sharing.window_credits import WindowCredits
from hivemind_trio.scheduler.sharing.window_draw import WindowAnswered, WindowKey, WindowsShared, WindowUnanswered


@final
@attrs.define(eq=False)
class SharedProviders:
    """Part of this node in each provider, and its questions and reports to the store. A node alone shares nothing."""

    slots: Mapping[str, int] | None = attrs.field(default=None, init=False)
    """Provider -> slots of this node; None: it is the only node."""
    _slots_until_ns: int | None = attrs.field(default=None, init=False)
    _slots_then: Mapping[str, int] = attrs.field(factory=dict, init=False)
    _learning: LearningShared | None = attrs.field(default=None, init=False)
    _windows_shared: WindowsShared | None = attrs.field(default=None, init=False)
    _windows: dict[WindowKey, tuple[RateLimiter, ProviderQueue]] = attrs.field(factory=dict, init=False)
    """Windows that are shared, and where their calls wait."""
    _pools: Mapping[str, ProviderQueue] = attrs.field(factory=dict, init=False)
    _declared: tuple[ProviderQueue, ...] = attrs.field(default=(), init=False)
    """Those of the policy in force."""

    def load(self, program: Program, pools: Mapping[str, ProviderQueue], now_ns: int) -> None:
        """Give the providers of a policy their settings, and their part of what is shared.

        Args:
            pools: With those that the policy has no more and that are still in use.
        """
        self._pools = pools
        self._declared = tuple(pools[name] for name in program.pools)
        for name, pool in pools.items():
            pool.share = self._share(name)
            if self._learning is not None and pool.health.shared is None:
                pool.health.shared = _learned_together(self._learning)
            pool.load(program.pools.get(name), program.lanes, now_ns, _alone(program, name))
        self._load_windows(now_ns)

    def rename(self, renames: Renames) -> None:
        """Rename providers as a reload does."""
        if self.slots is not None:
            self.slots = renames.rekeyed("provider", dict(self.slots))
            self._slots_then = renames.rekeyed("provider", dict(self._slots_then))

    def set_slots(self, slots: Mapping[str, int], until_ns: int | None, then: Mapping[str, int]) -> None:
        """Use no more of each provider's slots than this node's share, and from `until_ns` on no more than `then`."""
        self.slots, self._slots_until_ns, self._slots_then = slots, until_ns, then
        for name, pool in self._pools.items():
            pool.share = self._share(name)
            pool.apply()

    def end_slots(self, now_ns: int) -> None:
        """Give up the slots whose time is over, before anything is granted."""
        if self._slots_until_ns is not None and self._slots_until_ns <= now_ns:
            self.set_slots(self._slots_then, None, {})

    def _share(self, provider: str) -> int | None:
        return self.slots.get(provider, 0) if self.slots is not None else None

    def share_windows(self, event: WindowsShared, now_ns: int) -> None:
        """Draw every declared window from the store from now on."""
        self._windows_shared = event
        self._load_windows(now_ns)

    def _load_windows(self, now_ns: int) -> None:
        shared = self._windows_shared
        if shared is None:
            return
        self._windows = {}
        for pool in self._declared:
            for glob, group in pool.groups.items():
                for bucket in group.declared():
                    key = WindowKey(pool.name, glob, bucket.quota.dimension, bucket.quota.window_ns)
                    if bucket.credits is None or bucket.credits.key != key:
                        bucket.credits = WindowCredits(key, shared.nodes, shared.local, now_ns)
                    self._windows[key] = bucket, pool

    def on_window(self, event: WindowAnswered | WindowUnanswered, now_ns: int) -> ProviderQueue | None:
        """Take the store's answer about a window; return where calls may go now."""
        bucket, pool = self._windows.get(event.window, (None, None))
        if bucket is None or bucket.credits is None:
            return None  # a policy has been loaded meanwhile
        if isinstance(event, WindowUnanswered):
            bucket.credits.unanswered(event.seq, now_ns)
            return None
        return pool if bucket.credits.answered(event.answer, now_ns) else None

    def share_learning(self, event: LearningShared) -> None:
        """Learn with other nodes from now on."""
        self._learning = event
        for pool in self._pools.values():
            pool.health.shared = _learned_together(event)

    def ask(self, now_ns: int) -> Iterator[Command]:
        """Yield what to ask the store of windows now, and what to tell it of providers."""
        for bucket, pool in self._windows.values():
            draw = bucket.draw(pool.waiting, now_ns)
            if draw is not None:
                yield draw
        for pool in self._declared if self._learning is not None else ():
            waits = bool(pool.waiting) and any(lane.stands for lane in pool.lanes.values())
            ask = pool.health.report(now_ns, held=pool.slots.held, binds=pool.limit_is_binding, waits=waits)
            if ask is not None:
                yield AskLearning(pool.name, ask)

    def wakes_ns(self) -> int | None:
        """Return when time alone will next matter to what is shared."""
        earliest_ns: int | None = None
        for bucket, _ in self._windows.values():
            time_ns = bucket.credits.wakes_ns() if bucket.credits is not None else None
            if time_ns is not None and (earliest_ns is None or time_ns < earliest_ns):
                earliest_ns = time_ns
        for pool in self._pools.values() if self._learning is not None else ():
            time_ns = pool.health.shared.link.wakes_ns() if pool.health.shared is not None else None
            if time_ns is not None and (earliest_ns is None or time_ns < earliest_ns):
                earliest_ns = time_ns
        return earliest_ns


def _learned_together(event: LearningShared) -> LearnedTogether:
    return LearnedTogether(PoolLearning(event.renew_ns, event.alone_ns))


def _alone(program: Program, provider: str) -> AimdSettings | None:
    """Return the bounds of a learned limit at one of several nodes while it learns for itself; None: the policy's.

    It learns the part that it may use itself: with the bounds of all of them, N nodes would go on with N times `low`
    before a provider that takes less.
    """
    settings = program.pools.get(provider)
    nodes = program.server.sharers
    if settings is None or settings.aimd is None or nodes == 1:
        return None
    low = max(1, settings.aimd.low // nodes)
    return attrs.evolve(settings.aimd, low=low, start=max(low, settings.aimd.start // nodes))
