"""Limits that recorded providers showed: the threshold that tells their refusals from what they accepted.

A journal does not say why a provider refused a call. But a provider with a limit refuses what comes beyond it and
accepts what comes below it. So for each quantity that providers limit - requests at once, requests of a minute, input
tokens of a minute - the threshold is sought that separates the refused attempts from the accepted ones best (a decision
stump), and the quantity with the best one is the limit that was met. Refusals that no threshold separates, as in a
storm, are no limit.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias, final

import attrs

from hivemind_trio.model import Outcome, RecordedAttempt, RecordedCall
from hivemind_trio.sim.provider.profile import Traits
from hivemind_trio.sim.provider.token_bucket import MINUTE_NS, Counting, Metered, Quota

REFUSALS_MIN: Final = 3
"""Fewer show no limit."""
EXPLAINED: Final = 0.5
"""Least share of a provider's refusals that a limit must explain, after each accepted attempt beyond it counts against
it; and by how much this share exceeds that of the accepted attempts beyond it."""

REFUSED: Final = frozenset({
    Outcome.QUOTA,
    Outcome.BURST,
    Outcome.TOO_FAST,
    Outcome.CONCURRENCY,
    Outcome.OVERLOADED,
})  # fmt: skip
"""Outcomes of attempts that a provider refused."""
_ACCEPTED: Final = frozenset({Outcome.SUCCEEDED, Outcome.SLOW, Outcome.DEGRADED})


@final
@attrs.frozen(kw_only=True)
class MetLimit:
    """Limit that a recorded provider showed by its refusals."""

    metered: Metered | None
    """Quantity, of a minute; None: requests at once."""
    limit: int
    refusals: int
    """Attempts that the provider refused."""
    explained: int
    """Those of them that came beyond the limit."""

    def applied(self, traits: Traits) -> Traits:
        """Return a provider with this limit, where its own is not lower."""
        if self.metered is None:
            return attrs.evolve(traits, concurrency=min(self.limit, traits.concurrency or self.limit))
        declared = traits.quotas.get(self.metered)
        if declared is not None and declared.limit * MINUTE_NS <= self.limit * declared.window_ns:
            return traits
        quota = Quota(limit=self.limit, window_ns=MINUTE_NS, counting=Counting.SLIDING)
        return traits.limited_to({self.metered: quota})

    def __str__(self) -> str:
        """Return the limit in words, as `5 requests at once`."""
        if self.metered is None:
            return f"{self.limit:,} request{'s' * (self.limit != 1)} at once"
        return f"{self.limit:,} {self.metered} a minute"


_Sample: TypeAlias = tuple[int, bool]
"""The quantity with the attempt itself, and whether the provider refused the attempt."""


def limits_met(calls: Iterable[RecordedCall]) -> dict[str, MetLimit]:
    """Return the limit of each provider whose refusals show one, by the provider's recorded name."""
    attempts: dict[str, list[tuple[RecordedAttempt, int]]] = {}
    for call in calls:
        for attempt in call.attempts:
            if attempt.ended_ns is not None:
                attempts.setdefault(attempt.provider, []).append((attempt, call.request.tokens_in))
    found: dict[str, MetLimit] = {}
    for provider, own in attempts.items():
        own.sort(key=lambda each: each[0].granted_ns)
        met = _best(_samples(own))
        if met is not None:
            found[provider] = met
    return found


def _samples(attempts: Sequence[tuple[RecordedAttempt, int]]) -> Mapping[Metered | None, list[_Sample]]:
    """Return the quantities at each attempt that was accepted or refused; `attempts` in the order of their start."""
    samples: dict[Metered | None, list[_Sample]] = {None: [], Metered.REQUESTS: [], Metered.INPUT: []}
    busy: list[int] = []
    """Ends of the attempts in flight that were not refused; a heap."""
    recent: deque[tuple[int, int]] = deque()
    """Start and input of those accepted within a minute."""
    input_ = 0
    for attempt, tokens_in in attempts:
        assert attempt.ended_ns is not None
        now_ns = attempt.granted_ns
        while busy and busy[0] <= now_ns:
            heapq.heappop(busy)
        while recent and recent[0][0] <= now_ns - MINUTE_NS:
            input_ -= recent.popleft()[1]
        if attempt.usage is not None and attempt.usage.input is not None:
            tokens_in = attempt.usage.input
        refused = attempt.outcome in REFUSED
        if refused or attempt.outcome in _ACCEPTED:
            samples[None].append((len(busy) + 1, refused))
            samples[Metered.REQUESTS].append((len(recent) + 1, refused))
            samples[Metered.INPUT].append((input_ + tokens_in, refused))
        if not refused:
            # A refused attempt takes nothing of the provider.
            heapq.heappush(busy, attempt.ended_ns)
            recent.append((now_ns, tokens_in))
            input_ += tokens_in
    return samples


def _best(samples: Mapping[Metered | None, Sequence[_Sample]]) -> MetLimit | None:
    best: tuple[int, MetLimit] | None = None
    for metered, own in samples.items():
        refusals = sum(refused for _, refused in own)
        if refusals < REFUSALS_MIN:
            return None
        score, limit, explained = _stump(own)
        if score < EXPLAINED * refusals or limit < 1:
            continue
        # Where most attempts were refused, whatever they came beyond, any threshold would score as high.
        accepted = len(own) - refusals
        if explained / refusals - (explained - score) / accepted < EXPLAINED:
            continue
        if best is None or score > best[0]:
            met = MetLimit(metered=metered, limit=limit, refusals=refusals, explained=explained)
            best = score, met
    return best[1] if best is not None else None


def _stump(samples: Sequence[_Sample]) -> tuple[int, int, int]:
    """Return the best threshold's score, the threshold, and the refusals beyond it.

    The score is the refused attempts beyond the threshold less the accepted ones there. The threshold is the largest
    quantity of an attempt at or below it that was accepted, which is what the provider has shown to accept.
    """
    score = explained = 0
    best = 0, 0, 0
    ordered = sorted(samples, reverse=True)
    for place, (quantity, refused) in enumerate(ordered):
        score += 1 if refused else -1
        explained += refused
        last = place + 1 == len(ordered) or ordered[place + 1][0] < quantity
        if last and score > best[0]:
            below = next((value for value, bad in ordered[place + 1 :] if not bad), 0)
            best = score, below, explained
    return best
