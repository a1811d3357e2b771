"""Plans of recorded accounts: the size of their windows in tokens, from readings and the calls between them.

Providers tell the used share of a window and not its size. Between two readings of one window the share has grown by
what the calls took that ended meanwhile, so the size is the ratio of both sums. Use of the account that the record does
not have makes its windows smaller, as it did for the agents.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Final, TypeAlias, final

import attrs

from hivemind_trio.model import PlanSpan, RecordedCall, RecordedWindow, Usage
from hivemind_trio.model.plan import WHOLE
from hivemind_trio.sim.provider.plan_windows import CACHED_AS, EVERY_NS, STEP, PlanLimit

GROWTH_MIN: Final = 2 * STEP
"""Least growth of a used share, in millionths, that tells a size: shares are told in whole percents."""

SAME_NS: Final = 60 * 1_000_000_000
"""Two resets of one window are as far apart at most: they are rounded, and clocks differ."""

PlansMet: TypeAlias = Mapping[str, Mapping[str, tuple[PlanLimit, ...]]]
"""Provider -> account -> windows of its plan."""

_Account: TypeAlias = tuple[str, str]
"""Provider and credential; of the provider's key it is empty."""


@final
@attrs.frozen
class _TokensTaken:
    """Tokens that calls of an account took, by the time of their ends: a long trace has many readings of many calls."""

    times_ns: list[int]
    sums: list[int]
    """Tokens before each of these times, and in all."""

    @classmethod
    def of(cls, taken: list[tuple[int, int]]) -> _TokensTaken:
        """Return the same of (time, tokens), in any order."""
        taken = sorted(taken)
        return cls([at_ns for at_ns, _ in taken], list(accumulate((used for _, used in taken), initial=0)))

    def between(self, from_ns: int, until_ns: int) -> int:
        """Return the tokens that were taken from a time until another."""
        first, last = bisect_left(self.times_ns, from_ns), bisect_left(self.times_ns, until_ns)
        return max(0, self.sums[last] - self.sums[first])


def plans_met(calls: Iterable[RecordedCall]) -> PlansMet:
    """Return the plans of accounts whose readings tell the size of a window."""
    taken: dict[_Account, list[tuple[int, int]]] = {}
    read: dict[_Account, dict[PlanSpan, list[RecordedWindow]]] = {}
    for call in calls:
        for attempt in call.attempts:
            if attempt.ended_ns is not None and attempt.usage is not None:
                used = attempt.ended_ns, tokens(attempt.usage)
                for account in dict.fromkeys((call.credential, "")):  # an account of the provider's key counts them all
                    taken.setdefault((attempt.provider, account), []).append(used)
        for window in call.plan:
            if not window.models:  # a simulated window counts every model
                account = "" if window.of_key else call.credential
                spans = read.setdefault((window.provider, account), {})
                spans.setdefault(window.span, []).append(window)
    found: dict[str, dict[str, tuple[PlanLimit, ...]]] = {}
    for (provider, account), spans in read.items():
        limits = tuple(_limits(spans, _TokensTaken.of(taken.get((provider, account), []))))
        if limits:
            found.setdefault(provider, {})[account] = limits
    return found


def tokens(usage: Usage) -> int:
    """Return the tokens that a simulated plan counts of a call."""
    return (usage.input or 0) + usage.cache_write + usage.cache_read // CACHED_AS + usage.output


def _limits(spans: Mapping[PlanSpan, list[RecordedWindow]], taken: _TokensTaken) -> Iterator[PlanLimit]:
    for span, windows in spans.items():
        windows.sort(key=lambda window: window.at_ns)
        size = _size(windows, taken)
        first = windows[0]
        if size is None or first.resets_ns is None:
            continue
        every_ns = EVERY_NS[span]
        used = max(0, first.used - taken.between(0, first.at_ns) * WHOLE // size)
        resets_ns = max(first.resets_ns, 1)
        yield PlanLimit(span=span, tokens=size, every_ns=every_ns, used=min(used, WHOLE), resets_ns=resets_ns)


def _size(windows: list[RecordedWindow], taken: _TokensTaken) -> int | None:
    """Return the tokens of a whole window; None: its readings have grown too little."""
    grown = used = 0
    for before, after in pairwise(windows):
        if _is_same(before, after) and WHOLE > after.used >= before.used:
            grown += after.used - before.used
            used += taken.between(before.at_ns, after.at_ns)
    return used * WHOLE // grown if grown >= GROWTH_MIN and used else None


def _is_same(before: RecordedWindow, after: RecordedWindow) -> bool:
    if before.resets_ns is None or after.resets_ns is None:
        return before.resets_ns is after.resets_ns
    return abs(after.resets_ns - before.resets_ns) <= SAME_NS
