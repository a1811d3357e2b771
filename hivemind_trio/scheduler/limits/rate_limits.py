"""Rate limits of one limits group, mirrored so that the provider need not refuse.

What the policy declares is mirrored, and what answers tell of (`rate_limiter.py`). What a call will take is estimated
when it is granted, and settled when it is known.

Headers may be wrong: of another window, rounded, of a clock that is off. Calls that go although by the headers there is
no room (trials and probes) tell. Where two in a row are accepted, headers hold nothing back any more; where two in a
row are refused, they do again. A trial goes half of the time after the last call: sooner, a refusal proves nothing, and
what is accepted shows that the headers are wrong by a factor of two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, final

import attrs

from hivemind_trio.model import Dimension, QuotaReading, Reason
from hivemind_trio.policy import RateLimitSettings
from hivemind_trio.scheduler.protocol.ablation import ALL_PARTS, Features
from hivemind_trio.scheduler.protocol.agent_key import AgentKey
from hivemind_trio.scheduler.protocol.beliefs import WindowBelief
from hivemind_trio.scheduler.protocol.call import CallId
from hivemind_trio.scheduler.protocol.snapshot import GateSnapshot

from .cost import NOTHING, Cost, exceeds
from .rate_limiter import RateLimiter
from .refusal_gate import DROPPED_AFTER, SOON_NS, RefusalGate

CLAIM_AFTER_NS: Final = 20 * 1_000_000_000
"""A call whose turn it is and that does not fit is passed by smaller ones for so long; then it is the next to go."""
CLAIM_WAITED_NS: Final = 60 * 1_000_000_000
"""One that has waited for so long is not passed: where many are large, each would else be passed once more for all that
were before it."""

FAVOURED_NS: Final = 60 * 1_000_000_000
"""Time for which others stand behind a call that the provider has refused: it may be refused for ever."""

SECOND_NS: Final = 1_000_000_000
MINUTE_NS: Final = 60 * SECOND_NS
USUAL_NS: Final = (SECOND_NS, MINUTE_NS, 60 * MINUTE_NS, 1_440 * MINUTE_NS)
"""Lengths that providers give their windows."""
NEVER_NS: Final = 2**62
TRIAL_WAIT_NS: Final = SECOND_NS
"""A forecast of room within this is waited for: that a call is accepted so much earlier proves nothing."""
TRIAL_NS: Final = 5 * SECOND_NS
TRIAL_LEAST_NS: Final = SECOND_NS // 20
TRIAL_MOST_NS: Final = 300 * SECOND_NS
"""Time between two calls that go although headers tell of no room: at first, at least and at most."""
TOLD_MAX: Final = 8
"""Windows that only headers tell of, in one group: they can say anything."""


class RateLimitPlacement(Protocol):
    """Cost of a queued call, and the limit other than a rate limit that holds it."""

    @property
    def cost(self) -> Cost:
        """Estimated cost per rate-limit dimension."""
        ...

    def lacks(self) -> Reason:
        """Return the reason for which it has to wait."""
        ...


class RateLimitUser(Protocol):
    """A queued call, as far as rate limits need it."""

    @property
    def arrived_ns(self) -> int:
        """Time of arrival."""
        ...

    @property
    def agent_key(self) -> AgentKey:
        """Key of the agent for fair queueing."""
        ...

    @property
    def place(self) -> RateLimitPlacement:
        """Place among the queues."""
        ...


@final
@attrs.define(eq=False)
class _Taken:
    """One call in flight."""

    grant: int
    at_ns: int
    cost: Cost
    before: Cost
    """Sum of all grants, this one included."""
    accepted: bool = False
    """An answer to it began that is no error."""


@final
@attrs.define(eq=False)
class RateLimits:
    """All dimensions of one limits group: a call takes of each, or of none."""

    parts: Features = ALL_PARTS
    buckets: dict[tuple[Dimension, int], RateLimiter] = attrs.field(factory=dict, init=False)
    """By what is counted and the window's length: a limit per minute and one per day are two. The length is 0 where a
    header has told of a limit and not of its window: what is known of that is a lower bound."""
    _declared: bool = attrs.field(default=False, init=False)
    """The policy says what is counted here, and answers only how much of it is left."""
    _alone: bool = attrs.field(default=True, init=False)
    """Answers tell of these windows. False: they are the policy's, for several accounts, and each answer is of one."""
    has_limits: bool = attrs.field(default=False, init=False)
    """There is any window, declared or told of."""
    restricts: bool = attrs.field(default=False, init=False)
    """There is any window, or the provider has refused a call. Else nothing below need be asked."""
    gate: RefusalGate = attrs.field(factory=RefusalGate, init=False)
    limits_input: bool = attrs.field(default=False, init=False)
    """True if a limit counts input tokens."""
    _claim: tuple[int, RateLimitUser] | None = attrs.field(default=None, init=False)
    """The call that has been found not to fit for longest, and since when."""
    _trial_ns: int | None = attrs.field(default=None, init=False)
    """When a call goes next although by the provider's headers there is no room; None: nothing has restricted yet."""
    _trial_every_ns: int = attrs.field(default=TRIAL_NS, init=False)
    """Time between two such calls: a quarter shorter with each accepted, doubled with each refused."""
    _trials: dict[CallId, None] = attrs.field(factory=dict, init=False)
    """Those in flight."""
    _against: dict[CallId, bool] = attrs.field(factory=dict, init=False)
    """Calls in flight that went although by the provider's headers there was no room, and whether so late that a
    refusal confirms the headers."""
    _contradicted: int = attrs.field(default=0, init=False)
    """Number of them that were accepted in a row."""
    _confirmed: int = attrs.field(default=0, init=False)
    """Number of the late ones that were refused in a row."""
    _distrusts: bool = attrs.field(default=False, init=False)
    """Headers have been wrong: what they tell holds nothing back until refusals confirm it."""
    _favoured: tuple[AgentKey, int, int] | None = attrs.field(default=None, init=False)
    """The call, by agent and arrival, that was last to be the next because it had been refused, and until when."""
    inflight: dict[CallId, _Taken] = attrs.field(factory=dict, init=False)
    _granted: Cost = attrs.field(factory=lambda: dict(NOTHING), init=False)
    """All that was ever granted, at what it was thought to take."""
    _grants: int = attrs.field(default=0, init=False)
    _taken_ns: int = attrs.field(default=0, init=False)
    """Time of the last of them."""
    _refused: int = attrs.field(default=0, init=False)
    """Number of grants at the last refusal: those in flight together are one piece of evidence."""

    def load(self, quotas: tuple[RateLimitSettings, ...], now_ns: int, *, learns: bool = True) -> None:
        """Take the settings of a new policy. What was taken of a window that stays is kept: a reload mints nothing.

        Args:
            learns: Whether what headers tell of holds where the policy says nothing.
        """
        kept = {}
        if learns and not quotas:
            kept = {key: bucket for key, bucket in self.buckets.items() if bucket.told}
        for bucket in kept.values():
            bucket.load(bucket.quota, now_ns, declared=False)
        for quota in quotas:
            bucket = self.buckets.get((quota.dimension, quota.window_ns)) or RateLimiter(quota)
            bucket.load(quota, now_ns, declared=True, learns=learns)
            kept[quota.dimension, quota.window_ns] = bucket
        self.buckets = kept
        self._look()
        self._declared, self._alone = bool(quotas), True
        self._claim, self._distrusts = None, False

    def share(self, whole: RateLimits, *, alone: bool) -> None:
        """Count in the declared windows of all accounts together; refusals hold for this account all the same.

        Args:
            whole: Keeper of the windows.
            alone: No other account counts in them, so its answers tell of them.
        """
        self.buckets = whole.buckets
        self._declared, self._alone, self._claim, self._distrusts = True, alone, None, False
        self._look()

    def forget(self, now_ns: int) -> None:
        """Forget what answers said of the windows that the policy declares: they are of one account among several."""
        for bucket in self.buckets.values():
            bucket.forget(now_ns)

    def _look(self) -> None:
        self.has_limits = bool(self.buckets)
        self.restricts = self.has_limits or self.gate.active
        self.limits_input = any(dimension in (Dimension.INPUT, Dimension.TOKENS) for dimension, _ in self.buckets)

    def beliefs(self, group: str | None, now_ns: int) -> list[WindowBelief]:
        """Return the use of the declared windows, to be kept."""
        return [bucket.belief(group, now_ns) for bucket in self.buckets.values() if bucket.declared]

    def restore(self, belief: WindowBelief, age_ns: int, now_ns: int) -> None:
        """Count what an earlier process took."""
        bucket = self.buckets.get((belief.dimension, belief.window_ns))
        if bucket is not None and bucket.declared:
            bucket.restore(belief, age_ns, now_ns)

    def too_large(self, cost: Cost, *, exact: bool) -> RateLimitSettings | None:
        """Return the declared quota that no waiting could make such a call fit.

        What only headers tell of refuses nobody: the estimate may be wrong, and the provider will say so itself. For
        the same reason a call of which more is estimated than a window has goes when the window is empty.

        Args:
            exact: The provider has counted the tokens of the prompt.
        """
        for bucket in self.buckets.values():
            if bucket.declared and exceeds(cost, bucket.quota.dimension, bucket.most, exact=exact):
                return bucket.quota
        return None

    def exceeded_by(self, cost: Cost) -> bool:
        """Return True if more is estimated of a call than a declared quota has, sure or not."""
        return any(bucket.declared and cost[bucket.quota.dimension] > bucket.most for bucket in self.buckets.values())

    def _fits_ns(self, cost: Cost, now_ns: int) -> int:
        """When a call of this cost fits all dimensions, as far as they are believed: `now_ns`, or later."""
        return self._forecast_ns(cost, now_ns) if not self._distrusts else now_ns

    def _forecast_ns(self, cost: Cost, now_ns: int) -> int:
        """When it fits all dimensions, as things stand: `now_ns`, or later."""
        at_ns = now_ns
        for bucket in self.buckets.values():
            fits_ns = bucket.fits_ns(cost[bucket.quota.dimension], now_ns)
            if fits_ns > at_ns:
                at_ns = fits_ns
        return at_ns

    def opens_ns(self, cost: Cost, now_ns: int, waiter: RateLimitUser | None = None) -> int:
        """Return when a call may go, as far as quotas and refusals are concerned: `now_ns` or later.

        Args:
            waiter: The first of a line; None: a call that has just arrived.
        """
        at_ns = self._regular_ns(cost, now_ns, waiter)
        if at_ns <= now_ns:
            return at_ns
        probe_ns = at_ns if self.gate.inflight else self.gate.probe_ns(at_ns, now_ns)
        if probe_ns >= at_ns:
            return min(at_ns, self._tried_ns(cost, now_ns, waiter))
        due = self.due(now_ns)
        if due is not None and due is not waiter:
            probe_ns = max(probe_ns, self._declared_ns(due.place.cost, now_ns))  # it would be passed once more
        return min(at_ns, max(probe_ns, self._declared_ns(cost, now_ns)))

    def _tried_ns(self, cost: Cost, now_ns: int, waiter: RateLimitUser | None) -> int:
        """Return when a call goes to try whether the provider's headers are true, if nothing else restricts it."""
        if self.due(now_ns) not in (None, waiter):
            return NEVER_NS
        if self._trial_ns is None:
            self._trial_ns = now_ns + self._trial_every_ns
        if self._trials:
            return max(now_ns, self._trial_ns) + self._trial_every_ns  # or when it is answered
        fits_ns = self._fits_ns(cost, now_ns)
        half_ns = min(self._half_ns(fits_ns), self._taken_ns + self._trial_every_ns)
        gate_ns = self.gate.opens_ns(now_ns)
        tried_ns = max(now_ns, half_ns, self._trial_ns, gate_ns, self._declared_ns(cost, now_ns))
        return tried_ns if fits_ns > tried_ns + TRIAL_WAIT_NS else NEVER_NS

    def _half_ns(self, fits_ns: int) -> int:
        """Return the earliest time at which a refusal confirms that there is no room before the given time."""
        return self._taken_ns + min(TRIAL_NS, (fits_ns - self._taken_ns) // 2)

    def _regular_ns(self, cost: Cost, now_ns: int, waiter: RateLimitUser | None) -> int:
        """Return the same for a call that is no probe."""
        gate_ns = self.gate.opens_ns(now_ns)
        return max(gate_ns, self._mirrored_ns(cost, now_ns, waiter)) if self.buckets else gate_ns

    def _mirrored_ns(self, cost: Cost, now_ns: int, waiter: RateLimitUser | None) -> int:
        """Return when the windows have room for a call, and for the large one that others have passed."""
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

    def _declared_ns(self, cost: Cost, now_ns: int) -> int:
        """Return when a call fits what the policy declares, whatever answers say."""
        at_ns = now_ns
        for bucket in self.buckets.values():
            at_ns = max(at_ns, bucket.declared_ns(cost[bucket.quota.dimension], now_ns))
        return at_ns

    def reason(self, now_ns: int) -> Reason:
        """Return the reason for which no call goes now, the provider's word first."""
        if self.gate.until_ns > now_ns:
            return Reason.PROVIDER_QUOTA
        return Reason.GROWTH if self.gate.opens_ns(now_ns) > now_ns else Reason.LIMITS

    def due(self, now_ns: int) -> RateLimitUser | None:
        """Return the call that has been passed for too long."""
        if self._claim is None:
            return None
        since_ns, waiter = self._claim
        passed_ns = min(since_ns + CLAIM_AFTER_NS, waiter.arrived_ns + CLAIM_WAITED_NS)
        return None if now_ns < passed_ns and self.parts.bypass else waiter

    def claim(self, waiter: RateLimitUser, now_ns: int) -> None:
        """Let a call be the next that the provider has refused for going too often, once it has waited for long.

        Else those that need less take what is earned meanwhile, and it is refused again.
        """
        if self._claim is not None:
            return
        whose = waiter.agent_key, waiter.arrived_ns
        if self._favoured is None or self._favoured[:2] != whose:
            begins_ns = max(now_ns, waiter.arrived_ns + CLAIM_WAITED_NS)
            self._favoured = *whose, begins_ns + FAVOURED_NS
        elif now_ns >= self._favoured[2]:
            return
        self._claim = now_ns, waiter

    def cede(self, waiter: RateLimitUser) -> bool:
        """Make a call of the same agent the next to go in place of the present one, unless it needs more than that."""
        assert self._claim is not None, "there is one that is due"
        since_ns, due = self._claim
        if any(amount > due.place.cost[dimension] for dimension, amount in waiter.place.cost.items()):
            return False
        self._claim = since_ns, waiter
        return True

    def leave(self, waiter: RateLimitUser) -> None:
        """Forget a call that has left the queue."""
        if self._claim is not None and self._claim[1] is waiter:
            self._claim = None

    def share_ns(self, cost: Cost) -> int:
        """For how long a call of this cost takes all of the scarcest dimension."""
        share_ns = 0
        for bucket in self.buckets.values():
            quota = bucket.quota
            one_ns = cost[quota.dimension] * quota.window_ns // bucket.capacity
            if one_ns > share_ns:
                share_ns = one_ns
        return share_ns

    def take(self, call_id: CallId, cost: Cost, now_ns: int) -> None:
        """Charge every dimension."""
        is_trial = False
        if self.buckets:
            fits_ns = self._forecast_ns(cost, now_ns)
            is_early = fits_ns > now_ns + TRIAL_WAIT_NS
            is_trial = is_early and not self._distrusts and self._is_tried(fits_ns, now_ns)
            if is_early and not self._declared:
                self._against[call_id] = is_trial or now_ns >= self._half_ns(fits_ns)
        if is_trial:
            self._trials[call_id] = None
            self._trial_ns = now_ns + self._trial_every_ns
        probe = self.restricts and not is_trial and not self.gate.inflight
        probe = probe and self._regular_ns(cost, now_ns, None) > now_ns
        self.gate.on_granted(call_id, probe=probe, now_ns=now_ns)
        before = self._granted
        self._granted = {
            Dimension.REQUESTS: before[Dimension.REQUESTS] + cost[Dimension.REQUESTS],
            Dimension.INPUT: before[Dimension.INPUT] + cost[Dimension.INPUT],
            Dimension.OUTPUT: before[Dimension.OUTPUT] + cost[Dimension.OUTPUT],
            Dimension.TOKENS: before[Dimension.TOKENS] + cost[Dimension.TOKENS],
        }
        self.inflight[call_id] = _Taken(self._grants, now_ns, cost, self._granted)
        self._grants += 1
        self._taken_ns = now_ns
        if self.has_limits:
            for bucket in self.buckets.values():
                bucket.take(cost[bucket.quota.dimension], now_ns)

    def _is_tried(self, fits_ns: int, now_ns: int) -> bool:
        """Return True if a call that goes before that time is a trial, not a probe of the gate."""
        gate = self.gate
        return bool(gate.inflight) or (gate.opens_ns(now_ns) <= now_ns and fits_ns <= gate.evidence_ns + SOON_NS)

    def settle(self, estimated: Cost, actual: Cost, taken_ns: int, now_ns: int) -> None:
        """Charge what it was instead of what it was thought to be."""
        for bucket in self.buckets.values():
            before, after = estimated[bucket.quota.dimension], actual[bucket.quota.dimension]
            if before != after:
                bucket.settle(before, after, taken_ns, now_ns)

    def fail(self, cost: Cost, taken_ns: int) -> None:
        """Note that an attempt has failed: whether its request is counted is learned."""
        for bucket in self.buckets.values():
            if bucket.quota.dimension is Dimension.REQUESTS:
                bucket.fail(cost[Dimension.REQUESTS], taken_ns)

    def spare(self, cost: Cost, taken_ns: int, now_ns: int) -> None:
        """Give back the request of a failed attempt where it is not counted."""
        for bucket in self.buckets.values():
            if bucket.quota.dimension is Dimension.REQUESTS:
                bucket.spare(cost[Dimension.REQUESTS], taken_ns, now_ns)

    # ---- what answers say ----

    def on_headers(self, call_id: CallId, readings: Iterable[QuotaReading], now_ns: int) -> bool:
        """Learn from the head of the answer to a call in flight; whether anything was news."""
        taken = self.inflight.get(call_id)
        if taken is None or not self._alone:
            return False
        news = False
        for reading in readings:
            bucket = self._bucket(reading)
            if bucket is not None:
                unseen = self._unseen(reading.dimension, taken)
                news |= bucket.on_headers(reading, unseen, taken.grant, taken.at_ns, now_ns)
        return news

    def accept(self, call_id: CallId, now_ns: int) -> bool:
        """Note an accepted call in flight; return True if another may be dispatched earlier than before."""
        taken = self.inflight.get(call_id)
        if taken is None or taken.accepted:
            return False
        taken.accepted = True
        if self._against.pop(call_id, None) is not None:
            self._contradicted, self._confirmed = self._contradicted + 1, 0
            self._distrusts |= self._contradicted >= DROPPED_AFTER
        if call_id in self._trials:
            del self._trials[call_id]
            self._trial_every_ns = max(TRIAL_LEAST_NS, 3 * self._trial_every_ns // 4)
            self._trial_ns = now_ns + self._trial_every_ns
        freed = self.gate.accounts.on_good(self.gate, taken.at_ns)
        if not self.restricts:
            return freed
        if self.gate.on_good(call_id, taken.at_ns, now_ns) and self._alone:
            for bucket in self.buckets.values():
                bucket.forget(now_ns)
        self._look()
        return freed or self.gate.active

    def refuse(
        self,
        call_id: CallId,
        used_up: Iterable[Dimension],
        wait_ns: int | None,
        now_ns: int,
        *,
        by_reset: bool = False,
    ) -> None:
        """Note that the provider rejected a call in flight because it came too soon.

        Args:
            used_up: Quotas that it has named; empty: whichever did not have enough left by its headers.
            wait_ns: Its word on when to come back; None: it has none.
            by_reset: That is the reset that headers tell of, and nothing more.
        """
        taken = self.inflight.get(call_id)
        if taken is None:
            return
        taken.accepted = False
        if self._against.pop(call_id, False):
            self._contradicted, self._confirmed = 0, self._confirmed + 1
            self._distrusts &= self._confirmed < DROPPED_AFTER
        if call_id in self._trials:  # as the headers had said
            del self._trials[call_id]
            self._trial_every_ns = min(TRIAL_MOST_NS, 2 * self._trial_every_ns)
            self._trial_ns = now_ns + self._trial_every_ns
            for bucket in self.buckets.values():  # its tokens are given back when it ends
                if bucket.quota.dimension is Dimension.REQUESTS and not bucket.declared:
                    bucket.settle(taken.cost[Dimension.REQUESTS], 0, taken.at_ns, now_ns)
            return
        named = set(used_up)
        if taken.grant >= self._refused and self._alone:
            self._refused = self._grants
            for bucket in self.buckets.values():
                dimension = bucket.quota.dimension
                if dimension in named if named else bucket.spent(taken.cost[dimension]):
                    bucket.refuse(now_ns)
        # A window of requests gives nothing back. Tokens may have been set aside, and a refusal that names nothing may
        # be about calls at once.
        ends_return = named != {Dimension.REQUESTS}
        if by_reset and self._distrusts:
            wait_ns = None
        self.gate.on_refused(call_id, wait_ns or 0, taken.at_ns, now_ns, ends_return=ends_return)
        self._look()

    def snapshot(self, now_ns: int) -> GateSnapshot:
        """Return how it stands, and what is believed."""
        gate = self.gate
        return GateSnapshot(
            hold_until_ns=gate.until_ns if gate.until_ns > now_ns else None,
            disbelieved=gate.lies,
            rate_per_s=gate.rate.per_s,
            allowed=gate.allow,
            inflight=gate.inflight,
            probes_refused=gate.misses,
            evidence_age_ns=now_ns - gate.evidence_ns if self._grants else None,
            buckets=tuple(bucket.snapshot(now_ns) for bucket in self.buckets.values()),
        )

    def end(self, call_id: CallId, now_ns: int) -> None:
        """Its attempt is over."""
        taken = self.inflight.pop(call_id, None)
        self._trials.pop(call_id, None)
        self._against.pop(call_id, None)
        if taken is not None:
            self.gate.on_ended(call_id, now_ns, served_from_ns=taken.at_ns if taken.accepted else None)

    def _unseen(self, dimension: Dimension, taken: _Taken) -> int:
        """Return the amount taken that the answer to this call cannot know of."""
        later = self._granted[dimension] - taken.before[dimension]
        if dimension is not Dimension.OUTPUT:
            return later
        # Output counts as it is produced (Anthropic, "Rate limits"): most of what is on its way is still to come.
        return later + sum(one.cost[dimension] for one in self.inflight.values() if one.grant <= taken.grant)

    def _bucket(self, reading: QuotaReading) -> RateLimiter | None:
        """Return the window that a header tells of: one that is known, or else a new one, if it says enough."""
        dimension, told_ns = reading.dimension, reading.window_ns
        known = self.buckets.get((dimension, told_ns or 0))
        if known is None and (self._declared or told_ns is None):
            known = self._nearest(reading)
        if self._declared:
            return known
        window_ns = told_ns or _window_ns(reading)
        if known is not None:
            if told_ns is None and window_ns is not None:
                known.widen(window_ns)
            return known
        if reading.limit is None or window_ns is None or self._told() >= TOLD_MAX:
            return None
        quota = RateLimitSettings(dimension=dimension, amount=reading.limit, window_ns=window_ns)
        bucket = self.buckets[dimension, told_ns or 0] = RateLimiter(quota, declared=False)
        self._look()
        return bucket

    def _nearest(self, reading: QuotaReading) -> RateLimiter | None:
        """Return the window of this dimension whose limit is nearest to what is told; None: there is none."""
        limit = reading.limit or reading.remaining or 0
        alike = [bucket for (dimension, _), bucket in self.buckets.items() if dimension is reading.dimension]
        return min(alike, key=lambda bucket: abs(bucket.quota.amount - limit), default=None)

    def _told(self) -> int:
        return sum(not bucket.declared for bucket in self.buckets.values())


def _window_ns(reading: QuotaReading) -> int | None:
    """Return how long a window is of which only limit, rest and reset are told; None: nothing shows it.

    A bucket is whole again when what is used has been earned, which gives its length, if that is a usual one. Of other
    windows the reset shows that they are no shorter. To guess more would space calls that nobody has refused.
    """
    resets_ns, limit = reading.resets_ns, reading.limit or 0
    if not resets_ns:
        return None
    used = limit - (reading.remaining if reading.remaining is not None else limit)
    if used > 0:
        whole_ns, error_ns = resets_ns * limit // used, SECOND_NS * limit // used
        for usual_ns in USUAL_NS:
            if abs(whole_ns - usual_ns) <= min(
                usual_ns // 4, usual_ns // 33 + (error_ns if _is_whole(resets_ns) else 0)
            ):
                return usual_ns
    return resets_ns


def _is_whole(time_ns: int) -> bool:
    return time_ns % SECOND_NS == 0
