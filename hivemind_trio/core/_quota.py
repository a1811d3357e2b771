"""What a provider allows one limits group per window, kept so that it never has to say no.

What the policy declares is mirrored, and what answers tell of (`_bucket.py`). What a call will take is estimated when
it is granted, and settled when it is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, final

import attrs

from hivemind_trio.model import Dimension, Reading, Reason
from hivemind_trio.policy import Quota

from ._bucket import Bucket
from ._call import CallId
from ._parts import ALL_PARTS, Parts

if TYPE_CHECKING:
    from ._waiter import Waiter

CLAIM_AFTER_NS: Final = 20 * 1_000_000_000
"""A call whose turn it is and that does not fit is passed by smaller ones for so long; then it is the next to go."""
CLAIM_WAITED_NS: Final = 60 * 1_000_000_000
"""One that has waited for so long is not passed: where many are large, each would else be passed once more for all that
were before it."""

Cost = dict[Dimension, int]
"""What one call takes of each dimension."""

NOTHING: Final[Cost] = dict.fromkeys(Dimension, 0)
"""Of a call that no quota is counted for."""


MINUTE_NS: Final = 60 * 1_000_000_000
DAY_NS: Final = 1_440 * MINUTE_NS
TOLD_MAX: Final = 8
"""Windows that only headers tell of, in one group: they can say anything."""


@final
@attrs.define(eq=False)
class _Taken:
    """One call in flight."""

    grant: int
    at_ns: int
    cost: Cost
    before: Cost
    """What had ever been granted, itself included."""


@final
@attrs.define(eq=False)
class Quotas:
    """All dimensions of one limits group: a call takes of each, or of none."""

    parts: Parts = ALL_PARTS
    _buckets: dict[tuple[Dimension, int], Bucket] = attrs.field(factory=dict, init=False)
    """By what is counted and the window's length: a limit per minute and one per day are two. The length is 0 where a
    header has told of a limit and not of its window: that is a guess then, and may be mended."""
    _declared: bool = attrs.field(default=False, init=False)
    """The policy says what is counted here, and answers only how much of it is left."""
    counted: bool = attrs.field(default=False, init=False)
    """There is any window, declared or told of. Where there is none, nothing below need be asked."""
    of_input: bool = attrs.field(default=False, init=False)
    """What a call reads counts in one of them."""
    _claim: tuple[int, Waiter] | None = attrs.field(default=None, init=False)
    """The call that has been found not to fit for longest, and since when."""
    _inflight: dict[CallId, _Taken] = attrs.field(factory=dict, init=False)
    _granted: Cost = attrs.field(factory=lambda: dict(NOTHING), init=False)
    """All that was ever granted, at what it was thought to take."""
    _grants: int = attrs.field(default=0, init=False)

    def load(self, quotas: tuple[Quota, ...], now_ns: int, *, learns: bool = True) -> None:
        """Take the settings of a new policy. What was taken of a window that stays is kept: a reload mints nothing.

        Args:
            learns: Whether what headers tell of holds where the policy says nothing.
        """
        kept = {}
        if learns and not quotas:
            kept = {key: bucket for key, bucket in self._buckets.items() if bucket.told}
        for bucket in kept.values():
            bucket.load(bucket.quota, now_ns, declared=False)
        for quota in quotas:
            bucket = self._buckets.get((quota.dimension, quota.window_ns)) or Bucket(quota, pacing=self.parts.pacing)
            bucket.load(quota, now_ns, declared=True, learns=learns)
            kept[quota.dimension, quota.window_ns] = bucket
        self._buckets = kept
        self._look()
        self._declared = bool(quotas)
        self._claim = None

    def _look(self) -> None:
        self.counted = bool(self._buckets)
        self.of_input = any(dimension in (Dimension.INPUT, Dimension.TOKENS) for dimension, _ in self._buckets)

    def too_large(self, cost: Cost) -> Quota | None:
        """The declared quota that no waiting could make such a call fit.

        What only headers tell of refuses nobody: the estimate may be wrong, and the provider will say so itself.
        """
        for bucket in self._buckets.values():
            if bucket.declared and cost[bucket.quota.dimension] > bucket.most:
                return bucket.quota
        return None

    def _fits_ns(self, cost: Cost, now_ns: int) -> int:
        """When a call of this cost fits all dimensions, as things stand: `now_ns`, or later."""
        at_ns = now_ns
        for bucket in self._buckets.values():
            fits_ns = bucket.fits_ns(cost[bucket.quota.dimension], now_ns)
            if fits_ns > at_ns:
                at_ns = fits_ns
        return at_ns

    def opens_ns(self, cost: Cost, now_ns: int, waiter: Waiter | None = None) -> int:
        """When a call may go, as far as quotas are concerned: `now_ns`, or later.

        Args:
            waiter: The first of a line; None: a call that has just arrived.
        """
        if not self._buckets:
            return now_ns
        at_ns = self._fits_ns(cost, now_ns)
        due = self.due(now_ns) if self._claim is not None else None
        if due is not None and due is not waiter:
            first_ns = self._fits_ns(due.place.cost, now_ns)
            if first_ns > now_ns:
                return max(at_ns, first_ns)
            if due.place.lacks() is Reason.NONE:
                return now_ns + 1  # it goes now, and then the others are asked again
            # It lacks something else, and nobody is held up for that.
        if at_ns > now_ns and self._claim is None and waiter is not None:
            self._claim = now_ns, waiter
        return at_ns

    def due(self, now_ns: int) -> Waiter | None:
        """The call that has been passed for too long."""
        if self._claim is None:
            return None
        since_ns, waiter = self._claim
        passed_ns = min(since_ns + CLAIM_AFTER_NS, waiter.arrived_ns + CLAIM_WAITED_NS)
        return None if now_ns < passed_ns and self.parts.bypass else waiter

    def leave(self, waiter: Waiter) -> None:
        """It waits no longer."""
        if self._claim is not None and self._claim[1] is waiter:
            self._claim = None

    def share_ns(self, cost: Cost) -> int:
        """For how long a call of this cost takes all of the scarcest dimension."""
        share_ns = 0
        for bucket in self._buckets.values():
            quota = bucket.quota
            one_ns = cost[quota.dimension] * quota.window_ns // bucket.capacity
            if one_ns > share_ns:
                share_ns = one_ns
        return share_ns

    def take(self, call_id: CallId, cost: Cost, now_ns: int) -> None:
        """Charge every dimension."""
        before = self._granted
        self._granted = {
            Dimension.REQUESTS: before[Dimension.REQUESTS] + cost[Dimension.REQUESTS],
            Dimension.INPUT: before[Dimension.INPUT] + cost[Dimension.INPUT],
            Dimension.OUTPUT: before[Dimension.OUTPUT] + cost[Dimension.OUTPUT],
            Dimension.TOKENS: before[Dimension.TOKENS] + cost[Dimension.TOKENS],
        }
        self._inflight[call_id] = _Taken(self._grants, now_ns, cost, self._granted)
        self._grants += 1
        if self.counted:
            for bucket in self._buckets.values():
                bucket.take(cost[bucket.quota.dimension], now_ns)

    def settle(self, estimated: Cost, actual: Cost, taken_ns: int, now_ns: int) -> None:
        """Charge what it was instead of what it was thought to be."""
        for bucket in self._buckets.values():
            before, after = estimated[bucket.quota.dimension], actual[bucket.quota.dimension]
            if before != after:
                bucket.settle(before, after, taken_ns, now_ns)

    def fail(self, taken_ns: int) -> None:
        """The provider has broken down over an attempt that was granted at `taken_ns`, and may not have counted it."""
        for bucket in self._buckets.values():
            # Tokens are estimates: what is left of them shows nothing so exactly.
            if bucket.quota.dimension is Dimension.REQUESTS:
                bucket.fail(1, taken_ns)

    def forgive(self, taken_ns: int, now_ns: int) -> None:
        """Its call is in line again, or gone."""
        for bucket in self._buckets.values():
            if bucket.quota.dimension is Dimension.REQUESTS:
                bucket.forgive(1, taken_ns, now_ns)

    # ---- what answers say ----

    def hear(self, call_id: CallId, readings: Iterable[Reading], now_ns: int) -> bool:
        """Learn from the head of the answer to a call in flight; whether anything was news."""
        taken = self._inflight.get(call_id)
        if taken is None:
            return False
        news = False
        for reading in readings:
            bucket = self._bucket(reading)
            if bucket is not None:
                unseen = self._unseen(reading.dimension, taken)
                news |= bucket.hear(reading, unseen, taken.grant, taken.at_ns, now_ns)
        return news

    def refuse(self, call_id: CallId, used_up: Iterable[Dimension], wait_ns: int | None, now_ns: int) -> bool:
        """The provider has refused a call in flight because a quota is used up; whether it is known which.

        Args:
            used_up: What it has named; empty: whatever did not have enough left by its headers.
            wait_ns: When to come back, as the provider says; None: it does not.
        """
        taken = self._inflight.get(call_id)
        if taken is None:
            return False
        named = set(used_up)
        blamed = [
            bucket
            for bucket in self._buckets.values()
            if (bucket.quota.dimension in named if named else bucket.spent(taken.cost[bucket.quota.dimension]))
        ]
        for bucket in blamed:
            bucket.refuse(wait_ns, taken.grant, self._grants, now_ns)
        return bool(blamed)

    def end(self, call_id: CallId) -> None:
        """Its attempt is over."""
        self._inflight.pop(call_id, None)

    def _unseen(self, dimension: Dimension, taken: _Taken) -> int:
        """What was taken that the answer to this call cannot know of."""
        later = self._granted[dimension] - taken.before[dimension]
        if dimension is not Dimension.OUTPUT:
            return later
        # Output counts as it is produced (Anthropic, "Rate limits"): most of what is on its way is still to come.
        return later + sum(one.cost[dimension] for one in self._inflight.values() if one.grant <= taken.grant)

    def _bucket(self, reading: Reading) -> Bucket | None:
        """The window that a header tells of: one that is known, or else a new one, if it says enough."""
        window_ns = reading.window_ns or _window_ns(reading)
        known = self._buckets.get((reading.dimension, window_ns))
        if known is not None:
            return known
        key = reading.dimension, reading.window_ns or 0
        guessed = self._buckets.get(key)
        if guessed is not None and guessed.quota.window_ns == window_ns:
            return guessed
        if self._declared or reading.limit is None or (guessed is None and self._told() >= TOLD_MAX):
            return guessed
        quota = Quota(dimension=reading.dimension, amount=reading.limit, window_ns=window_ns)
        bucket = self._buckets[key] = Bucket(quota, declared=False, pacing=self.parts.pacing)
        self._look()
        return bucket

    def _told(self) -> int:
        return sum(not bucket.declared for bucket in self._buckets.values())


def _window_ns(reading: Reading) -> int:
    """How long a window is of which only limit, rest and reset are told: a minute, or a day if nothing else fits.

    Groq's and some of OpenAI's requests are those of a day, under the same names as others' of a minute.
    """
    resets_ns = reading.resets_ns or 0
    if resets_ns > MINUTE_NS * 1.1:
        return DAY_NS
    used = (reading.limit or 0) - (reading.remaining or 0)
    if resets_ns > MINUTE_NS // 12 and used > 0:
        # A bucket of a day, hardly touched: it is full again soon, and would be empty after a day.
        whole_ns = resets_ns * (reading.limit or 0) // used
        return DAY_NS if abs(whole_ns - DAY_NS) < DAY_NS // 33 else MINUTE_NS
    return MINUTE_NS
