"""Calibration of bounds by how far off those of late were: conformal prediction.

A future knows no limit that the provider keeps to itself, and no failure that has not happened. So the bounds of the
futures are multiplied by what starts of late were of them (split conformal prediction over a sliding window;
Vovk and others, 2005, and Tibshirani and others, 2019): nine in ten of those were within the bound that results,
whatever the reason. Calls that still wait count as later than now (product-limit estimator), since the first starts
that become known are the early ones. Medians are left as they are: what the last few missed by is mostly chance.

Calls that wait together start by the same event, and so are right or wrong together: an estimate of all of them is one
piece of evidence, and so are several estimates of one call. As long as there are fewer than nine, of which none can
show that a bound of 90 % is too wide, bounds are not below those of the futures.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, final

import attrs

from hivemind_trio.scheduler import CallCancelled, CallId, Command, Event, Grant, Reject

SECOND_NS: Final = 1_000_000_000

ROUND_NS: Final = SECOND_NS
"""Added to a start and to its estimate before one is divided by the other: less is not told apart."""
SHARPEST_NS: Final = SECOND_NS // 4
"""No bound is nearer to its median: networks, and processes that others hold up, delay starts by as much, and futures
have none of that."""
ESTIMATES_MAX: Final = 30
"""Number of estimates that are held against what came."""
APART_NS: Final = 10 * SECOND_NS
"""Time between two of them: one right after the other tells nothing new."""
CALLS_MAX: Final = 64
"""Calls of one estimate that are held against what came, evenly chosen."""

LEAST: Final = 9
"""Independent estimates without which no bound is narrowed: of so many and the next one each is as likely to be the
latest, and that is one in ten."""
PRIOR: Final = 1.0
"""Weight of what is believed before any start is known, in estimates."""
PRIOR_BOUND: Final = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.2)
"""Starts, in parts of their bounds, before any is known."""


@final
@attrs.frozen
class StartEstimate:
    """Estimate of one start, from now; None: not within the horizon, or the call would be rejected."""

    p50_ns: int | None
    p90_ns: int | None


def bounded(raw: StartEstimate, factor: float) -> StartEstimate:
    """Return an estimate whose bound is multiplied, and right as often as it says."""
    p50_ns, p90_ns = raw.p50_ns, _times(raw.p90_ns, factor)
    return StartEstimate(p50_ns, p90_ns if p90_ns is None or p50_ns is None else max(p50_ns + SHARPEST_NS, p90_ns))


def _times(estimate_ns: int | None, factor: float) -> int | None:
    return None if estimate_ns is None else max(0, round((estimate_ns + ROUND_NS) * factor) - ROUND_NS)


@final
@attrs.define(eq=False)
class JudgedStart:
    """Estimate of one start, and what came."""

    call_id: CallId
    provider: str
    taken_ns: int
    weight: float
    raw: StartEstimate = StartEstimate(None, None)
    """As the futures have it."""
    until_ns: int | None = None
    """When it started, or was given up; None: it still waits."""
    started: bool = False

    def score(self, estimate_ns: int, now_ns: int) -> float:
        """Return the start, or the time that it has not started for, in parts of its estimate."""
        end_ns = now_ns if self.until_ns is None else self.until_ns
        return (end_ns - self.taken_ns + ROUND_NS) / (estimate_ns + ROUND_NS)


@final
@attrs.define(eq=False)
class Calibration:
    """Told of estimates and of every event of the scheduler; O(1) each, and bounded."""

    estimates: deque[list[JudgedStart]] = attrs.field(factory=deque, init=False)
    """Oldest first."""
    open_calls: dict[CallId, list[JudgedStart]] = attrs.field(factory=dict, init=False)
    """By call that waits."""
    _taken_ns: int | None = attrs.field(default=None, init=False)
    """Time of the last one."""

    def watch(self, waiting: Mapping[CallId, str], now_ns: int) -> Sequence[JudgedStart]:
        """Choose estimates of now that are held against what comes; none if there were some just before.

        Args:
            waiting: Calls that wait, and their providers.
        """
        if not waiting or (self._taken_ns is not None and now_ns - self._taken_ns < APART_NS):
            return ()
        self._taken_ns = now_ns
        chosen = list(waiting.items())[:: -(-len(waiting) // CALLS_MAX)]
        judged = [JudgedStart(call_id, provider, now_ns, 1 / len(chosen)) for call_id, provider in chosen]
        for one in judged:
            self.open_calls.setdefault(one.call_id, []).append(one)
        self.estimates.append(judged)
        if len(self.estimates) > ESTIMATES_MAX:
            self._forget(self.estimates.popleft())
        return judged

    def observe(self, now_ns: int, event: Event, commands: Sequence[Command]) -> None:
        """Note what becomes of calls; an engine's `journal`."""
        if not self.open_calls:
            return
        if isinstance(event, CallCancelled):
            self._settle(event.call_id, now_ns, started=False)
        for command in commands:
            if isinstance(command, Grant | Reject):
                self._settle(command.call_id, now_ns, started=isinstance(command, Grant))

    def factor(self, provider: str, now_ns: int) -> float:
        """Return by how much bounds of calls for a provider are to be multiplied."""
        scores = [(start, PRIOR / len(PRIOR_BOUND), True) for start in PRIOR_BOUND]
        judged = [one for one in chain.from_iterable(self.estimates) if one.provider == provider]
        times, independent = Counter(one.call_id for one in judged), 0.0
        for one in judged:
            if one.raw.p90_ns is not None:
                weight = one.weight / times[one.call_id]
                independent += weight * one.started
                scores.append((one.score(one.raw.p90_ns, now_ns), weight, one.started))
        found = quantile(scores, 0.9)
        return found if independent > LEAST - 1e-6 else max(1.0, found)

    def _settle(self, call_id: CallId, now_ns: int, *, started: bool) -> None:
        for one in self.open_calls.pop(call_id, ()):
            one.until_ns, one.started = now_ns, started

    def _forget(self, judged: list[JudgedStart]) -> None:
        for one in judged:
            if one.until_ns is None:
                self.open_calls[one.call_id].remove(one)
                if not self.open_calls[one.call_id]:
                    del self.open_calls[one.call_id]


def quantile(values: Iterable[tuple[float, float, bool]], part: float) -> float:
    """Return the quantile of weighted values, of which some are only known to be larger than they say.

    Args:
        values: Value, weight, and True if it is the value itself; at least one of those.
        part: 0 to 1.
    """
    ordered = sorted(values, key=lambda one: (one[0], not one[2]))
    at_risk, survive, last = sum(weight for _, weight, _ in ordered), 1.0, 0.0
    for value, weight, seen in ordered:
        if seen:
            survive *= max(0.0, 1 - weight / at_risk)
            last = value
            if survive <= 1 - part + 1e-9:
                return value
        at_risk = max(at_risk - weight, 1e-12)
    return max(last, ordered[-1][0])
