"""Adaptive concurrency: growth while throughput grows, multiplicative decrease when fewer at once are refused less.

Until the first cut the limit doubles, as in TCP's slow start, but each step is measured: a limit that does not raise
output tokens per second is taken back (a hill climb, after Netflix's concurrency-limits and BBR's bandwidth probing).
While streams run, their speeds tell sooner whether fewer at once are served more in all (`stream_speed.py`): then the
limit goes there, and where nothing varies their number, fewer are probed for a few seconds.
From the first cut on it is AIMD (Chiu and Jain, 1989) with a memory of where it was cut (after CUBIC: Ha, Rhee and Xu,
2008): fast up to near there, slowly beyond.

A refusal raises a question: would fewer at once be refused less? Attempts granted at that concurrency or more answer
it. If most of them were refused, the number is a cap, and what remained in flight is kept exactly. If few were, the
provider refuses some at any concurrency, and the cut is in proportion to their share (as in DCTCP: Alizadeh et al.,
2010): a tenth of the refusals takes a tenth of the cut.

The lower bound is where decreases end, not a promise: a provider may accept fewer at once, and then each attempt up to
the bound would be refused for good. A cap below it is kept while attempts show it: that number is accepted, more are
refused. In a storm fewer at once are refused as well, so there the bound stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import comb, sqrt
from typing import Final, final

import attrs

from hivemind_trio.model import Outcome
from hivemind_trio.policy import AimdSettings as Settings
from hivemind_trio.scheduler.protocol.call import CallId
from hivemind_trio.scheduler.protocol.snapshot import AimdSnapshot

from .early_growth import EarlyGrowth
from .fewer_probe import FewerProbe, LimitMove, LimitStep
from .load_curve import LoadCurve
from .throughput_search import STEP_FAR_DOWN, ThroughputSearch

SECOND_NS: Final = 1_000_000_000

SEVERITY: Final = {
    Outcome.OVERLOADED: 1.0,
    Outcome.SLOW: 0.2,
}
"""Factor of `decrease` for each signal. A limit on concurrent requests is kept exactly; the rest says nothing of it."""

REFUSING: Final = frozenset({Outcome.OVERLOADED, Outcome.CONCURRENCY})
"""Refusals that may mean that there were too many at the same time."""

BINDING: Final = 0.75
"""Share of the limit in flight. With less, and no call that seeks more, the limit is not the constraint."""

RECOVERY: Final = 4.0
"""Slots for a round of successes, in units of `increase`, up to `NEAR` of where it was cut."""
NEAR: Final = 7 / 8

TRIES_KEPT: Final = 128
TRIES_NS: Final = 60 * SECOND_NS
TRIES_MAX: Final = 20
"""Attempts at a concurrency that are looked at: caps move."""
TRIES_MIN: Final = 5
"""Attempts without which a refusal at a concurrency is no evidence about it."""
ACCEPTED_NS: Final = SECOND_NS
"""An attempt in flight for so long counts as accepted: refusals come at once, answers take their time."""
ABANDONED_NS: Final = 30 * SECOND_NS
"""A client that leaves without content after so long has not just changed its mind."""
LEFT_NS: Final = 60 * SECOND_NS
"""Time without any attempt in flight after which a comparison that needs load is over."""
MANY: Final = 1 << 30
LIKE: Final = 7 / 8
"""Attempts granted at this share of a concurrency or more count as granted at it."""
FAR: Final = 1.25
"""Factor over a number in doubt at which an attempt granted with the refused ones disproves it."""
CERTAIN_MIN: Final = 3
CERTAIN: Final = 0.75
"""Attempts beyond a number, and the share of them refused, that make it a cap."""
SURE: Final = 2.0
"""Standard errors by which more at once have to be refused more often, to be the cause."""
CHANCE: Final = 0.05
"""Probability below which refusals are not taken for chance."""
A_CAP: Final = 0.5
"""Share refused beyond a number, from which on it is taken for a cap."""

DOUBT_NS: Final = SECOND_NS
"""Time for which the number that remains after an overload is kept, until it is known whether fewer help."""
TOLD_NS: Final = 600 * SECOND_NS
"""Time in which whole answers may contradict what streams have told."""
FEWER_STAY_NS: Final = 60 * SECOND_NS
FEWER_STAY_MAX_NS: Final = 960 * SECOND_NS
"""Time for which the limit stays where streams have told that fewer are served more; doubled each time."""
CAP_NS: Final = 10 * SECOND_NS
CAP_MAX_NS: Final = 60 * SECOND_NS
"""Time for which a cap is believed; doubled when the number is the same again."""


@final
@attrs.define(eq=False)
class _Try:
    """One of the latest attempts."""

    granted_ns: int
    level: int
    """Attempts in flight when it was granted, itself included."""
    area: float
    """Integral of the number in flight up to then (`load_curve.py`)."""
    refused: bool | None = None
    """None: it is not known yet."""
    ran_with: float = 0.0
    """Attempts in flight while it ran, on average, itself included; 0: it has not been served yet."""
    served_with: float = 0.0
    """The same, but no more than were in flight at its end: refusals are in flight, too."""


@final
@attrs.define(eq=False)
class _Cap:
    """Number at once that the provider seems to accept."""

    number: int
    until_ns: int
    """Until then it is not exceeded."""
    since_ns: int
    before: float
    """Limit from before it."""
    believed_ns: int = 0
    """Time for which it was last believed; 0: it is in doubt."""
    tested: bool = False
    """One attempt more is being tried."""


@final
@attrs.define(eq=False)
class Aimd:
    """Concurrency limit of one provider, between `settings.low` and `high`; lower while a cap is shown below `low`."""

    settings: Settings
    high: int
    _limit: float = attrs.field(init=False)
    _doubling: bool = attrs.field(default=True, init=False)
    """Until the first cut."""
    _cut_ns: int | None = attrs.field(default=None, init=False)
    _uncut: float = attrs.field(default=0.0, init=False)
    """Limit before the last cut."""
    _too_many: int = attrs.field(default=0, init=False)
    """In flight when the provider refused one of them, as of the last cap."""
    _cap: _Cap | None = attrs.field(default=None, init=False)
    """Number of attempts that remained in flight when others were refused."""
    _kept: int | None = attrs.field(default=None, init=False)
    """The same while it holds; None: no cap holds."""
    _resume_to: float = attrs.field(default=0.0, init=False)
    """Limit from before an outage, up to which each success adds one."""
    _tries: dict[CallId, _Try] = attrs.field(factory=dict, init=False)
    """The latest attempts, oldest first."""
    _search: ThroughputSearch = attrs.field(factory=ThroughputSearch, init=False)
    _early: EarlyGrowth = attrs.field(factory=EarlyGrowth, init=False)
    _curve: LoadCurve = attrs.field(factory=LoadCurve, init=False)
    _before: float | None = attrs.field(default=None, init=False)
    """Limit to return to if fewer at once, which are being tried, do not finish as much; None: none are tried so."""

    _fewer: FewerProbe = attrs.field(factory=FewerProbe, init=False)
    _fewer_stay_ns: int = attrs.field(default=FEWER_STAY_NS, init=False)
    _told: tuple[float, float] | None = attrs.field(default=None, init=False)
    """Limit, and number in flight, from before streams told that fewer are served more; None: they have not, or whole
    answers have agreed."""
    _told_ns: int = attrs.field(default=0, init=False)
    """When that was."""

    def __attrs_post_init__(self) -> None:
        self._limit = float(self.settings.start)

    @property
    def limit(self) -> int:
        """Concurrency limit, as of the last event."""
        limit = int(self._limit)
        return min(limit, self._kept) if self._kept is not None else limit

    @property
    def lasting(self) -> int:
        """Limit for a later process: fewer that are only being tried do not count."""
        return max(self.limit, int(self._before or 0))

    def snapshot(self, now_ns: int) -> AimdSnapshot:
        """Return what is believed."""
        stays_until_ns = self._search.stays_until_ns
        return AimdSnapshot(
            cap=self._kept,
            cap_until_ns=self._cap.until_ns if self._kept is not None and self._cap is not None else None,
            stays_until_ns=stays_until_ns if stays_until_ns > now_ns else None,
        )

    def load(self, settings: Settings, high: int) -> None:
        """Go on under new bounds. Raising the upper one moves nothing by itself: the limit may now climb."""
        is_raised = settings.low > self.settings.low
        self.settings, self.high = settings, high
        self._limit = min(float(high), max(float(settings.low), self._limit))
        if self._cap is not None and is_raised:
            self._cap.number = max(settings.low, self._cap.number)
        if self._kept is not None and is_raised:
            self._kept = max(settings.low, self._kept)

    @property
    def doubling(self) -> bool:
        """True until the first cut."""
        return self._doubling

    def hint(self, limit: int, *, doubling: bool) -> None:
        """Begin where an earlier process was."""
        self._limit = min(float(self.high), max(float(self.settings.low), float(limit)))
        self._doubling = doubling

    def on_granted(self, call_id: CallId, inflight: int, now_ns: int) -> None:
        """Count an attempt that begins, itself among `inflight`."""
        if self._before is not None and inflight == 1 and now_ns - self._curve.at_ns > LEFT_NS:
            self._end_trial(now_ns)
        self._search.on_granted(self.limit, now_ns)
        if self._doubling:
            self._early.on_granted(self.limit, now_ns)
        self._tries.pop(call_id, None)
        self._tries[call_id] = _Try(now_ns, inflight, self._curve.advance(inflight - 1, now_ns))
        if len(self._tries) > TRIES_KEPT:
            del self._tries[next(iter(self._tries))]

    def on_good(self, call_id: CallId, now_ns: int, *, inflight: int, limit_is_binding: bool) -> bool:
        """Learn that an attempt was accepted, and its answer begins. Return True if the limit has changed.

        Args:
            inflight: As in `on_ended`.
            limit_is_binding: As in `on_ended`.
        """
        tried = self._tries.get(call_id)
        if tried is None or tried.refused is not None:
            return False
        before, tried.refused = self.limit, False
        if self._fewer.is_over(now_ns):
            self._set(self._forget_trial(now_ns) or self._limit, now_ns)
        self._fewer.speeds.begun(call_id, self._curve.advance(inflight, now_ns), now_ns)
        self._expire(now_ns)
        self._disprove(tried.level, now_ns)
        is_compared = self._search.is_down or self._fewer.is_probing
        if self._doubling and not is_compared and not (self._early.falls and self._search.best is not None):
            self._grow_early(tried, now_ns, limit_is_binding or inflight >= BINDING * self.limit)
        return self._has_moved(before, now_ns)

    def on_ended(
        self,
        call_id: CallId,
        outcome: Outcome,
        *,
        granted_ns: int,
        now_ns: int,
        inflight: int,
        limit_is_binding: bool = False,
        tokens: int = 0,
    ) -> bool:
        """Learn from one attempt. Return True if the limit, in whole slots, has changed.

        Args:
            granted_ns: When it began. What began before the last cut is no new evidence.
            inflight: Attempts in flight when it ended, itself included.
            limit_is_binding: True if a call waits for a higher limit, however few are in flight: see the provider.
            tokens: Output.
        """
        before = self.limit
        self._fewer.speeds.ended(call_id)
        self._expire(now_ns)
        if self._fewer.is_over(now_ns) or (self._fewer.is_probing and outcome is not Outcome.SUCCEEDED):
            # The limit from before the probe is what is cut.
            self._set(self._forget_trial(now_ns) or self._limit, now_ns)
        area = self._curve.advance(inflight, now_ns)
        tried = self._tries.get(call_id)
        has_begun = tried is not None and tried.refused is False
        if tried is not None and (outcome is Outcome.SUCCEEDED or outcome in REFUSING):
            if outcome is Outcome.SUCCEEDED and tried.refused is None:
                self._disprove(tried.level, now_ns)
            tried.refused = outcome in REFUSING
        elif tried is not None:
            del self._tries[call_id]
        if self._doubling and outcome is not Outcome.SUCCEEDED and tried is not None and not has_begun:
            self._early.on_failed(granted_ns)
        if outcome is Outcome.SUCCEEDED:
            if tried is not None:
                # Another node's attempt may be heard of at its end alone: then only the number at that time is known.
                ran_ns = now_ns - tried.granted_ns
                tried.ran_with = max(1.0, (area - tried.area) / ran_ns if ran_ns else float(inflight))
                tried.served_with = min(tried.ran_with, inflight)
            binds = limit_is_binding or inflight >= BINDING * self.limit
            self._succeeded(tried, granted_ns, now_ns, tokens, limit_is_binding=binds)
        elif outcome in REFUSING:
            self._refused(outcome, inflight, granted_ns, now_ns)
        elif outcome in SEVERITY and self._is_news(granted_ns, now_ns):
            self._cut(outcome, 1.0, now_ns)
        elif outcome is Outcome.IGNORED and tried is not None and not has_begun:
            self._abandoned(granted_ns, now_ns, inflight)
        return self._has_moved(before, now_ns)

    def gone(self, call_id: CallId) -> None:
        """Forget the stream of an attempt that is over, whatever came of it."""
        self._fewer.speeds.ended(call_id)

    @property
    def probe_ends_ns(self) -> int | None:
        """When a probe of fewer ends by itself; None: there is none."""
        return self._fewer.ends_ns

    def on_time(self, now_ns: int) -> bool:
        """End a probe of fewer whose time is over. Return True if the limit has changed."""
        if not self._fewer.is_over(now_ns):
            return False
        before = self.limit
        self._set(self._forget_trial(now_ns) or self._limit, now_ns)
        return self._has_moved(before, now_ns)

    def on_received(self, received: Mapping[CallId, int], now_ns: int, *, inflight: int) -> bool:
        """Learn from what streams have received since the last report. Return True if the limit has changed.

        Args:
            received: Bytes of each call that received any.
            inflight: Attempts in flight.
        """
        level = self._fewer.speeds.add(received, self._curve.advance(inflight, now_ns), now_ns)
        cap = self._cap
        in_doubt = cap is not None and self._kept is not None and not cap.believed_ns and now_ns < cap.until_ns
        if level is None or in_doubt or self._limit < self._resume_to:
            return False
        before, is_linear = self.limit, self._search.is_measured_linear  # then fewer would be less
        if self._fewer.is_over(now_ns):
            return self.on_time(now_ns)
        move = self._fewer.on_report(
            level,
            now_ns,
            limit=before,
            low=self.settings.low,
            may_probe=not is_linear and not self._search.is_down and self._before is None,
        )
        if move is not None:
            self._move(move, level, now_ns)
        return self._has_moved(before, now_ns)

    def restart(self, limit: int, now_ns: int) -> None:
        """Go on after an outage with half of the limit from before it, and grow back by one for each success."""
        limit = max(limit, int(self._before or 0))
        if self._search.is_down and self._search.best is not None:
            limit = max(limit, self._search.best)  # fewer were a comparison
        self._forget_trial(now_ns)
        self._search.reset(now_ns)
        self._resume_to = float(limit)
        self._tries.clear()
        self._cap = self._kept = None
        self._set(limit / 2, now_ns)

    def uncut(self, now_ns: int) -> int:
        """Return the limit from before the failures that open a circuit now."""
        limit, cap = max(self._limit, self._before or 0.0), self._cap
        if self._cut_ns is not None and now_ns - self._cut_ns <= self.settings.cooldown_ns:
            limit = max(limit, self._uncut)
        if cap is not None and now_ns - cap.since_ns <= CAP_NS:
            limit = max(limit, cap.before)  # what was taken for a cap may have been the beginning of the outage
        return int(limit)

    # ---- down ----

    def _refused(self, outcome: Outcome, inflight: int, granted_ns: int, now_ns: int) -> None:
        """Take what remains in flight for a cap, or else cut in proportion."""
        refused, known = self._share(inflight, MANY, now_ns)
        if outcome is Outcome.CONCURRENCY or known < TRIES_MIN or refused >= A_CAP * known:
            self._contradict(inflight, granted_ns)
            certain, number = outcome is Outcome.CONCURRENCY, max(1, inflight - 1)
            if number < self.settings.low and not self._is_shown(number, now_ns):
                number = self.settings.low
            self._keep(number, now_ns, certain=certain)
        elif self._is_news(granted_ns, now_ns):
            # Fewer at once help by as much as fewer at once are refused less.
            beyond, of_beyond = self._share(LIKE * inflight, MANY, now_ns)
            below, of_below = self._share(0, LIKE * inflight, now_ns, latest=False)
            if of_below < TRIES_MIN:
                self._cut(outcome, beyond / of_beyond, now_ns)
                return
            excess, share = beyond / of_beyond - below / of_below, (beyond + below) / (of_beyond + of_below)
            if excess > SURE * sqrt(share * (1 - share) * (1 / of_beyond + 1 / of_below)):
                self._cut(outcome, excess, now_ns)

    def _keep(self, number: int, now_ns: int, *, certain: bool) -> None:
        cap = self._cap
        is_held = self._kept is not None and cap is not None and now_ns < cap.until_ns
        if cap is not None and is_held and (cap.believed_ns or number >= self.settings.low):
            cap.number = min(cap.number, number)
        else:
            believed_ns = CAP_NS if certain or self._is_cap(number, now_ns) else 0
            is_same = cap is not None and cap.believed_ns and abs(number - cap.number) <= 1
            if cap is not None and is_same and (certain or self._is_caused(number, now_ns)):
                believed_ns = min(2 * cap.believed_ns, CAP_MAX_NS)
            before = max(self._limit, cap.before) if cap is not None and (cap.tested or is_held) else self._limit
            cap = self._cap = _Cap(number, now_ns + (believed_ns or DOUBT_NS), now_ns, before, believed_ns)
        self._kept, self._too_many = cap.number, cap.number + 1
        if cap.believed_ns:
            self._believe(cap, now_ns)

    def _believe(self, cap: _Cap, now_ns: int) -> None:
        self._uncut, self._cut_ns = self._lasting(now_ns), now_ns
        self._doubling, self._resume_to = False, 0.0
        self._forget_trial(now_ns)
        self._set(min(self._limit, float(cap.number)), now_ns)

    def _expire(self, now_ns: int) -> None:
        """Test a cap whose time is over with one attempt more than it."""
        cap = self._cap
        if self._kept is None or cap is None or now_ns < cap.until_ns:
            return
        if not cap.believed_ns and self._is_cap(cap.number, now_ns):
            cap.believed_ns, cap.until_ns = CAP_NS, now_ns + CAP_NS
            self._believe(cap, now_ns)
            return
        self._kept = None
        if not cap.believed_ns:
            cap.tested = True
            self._set(min(self._limit, cap.number + 1.0), now_ns)

    def _is_cap(self, number: int, now_ns: int) -> bool:
        """Return True if enough attempts beyond the number were refused, and hardly any was accepted."""
        refused, known = self._share(number + 1, MANY, now_ns)
        return known >= CERTAIN_MIN and refused >= CERTAIN * known

    def _is_shown(self, number: int, now_ns: int) -> bool:
        """Return True if attempts show that the provider accepts this number at once, and no more.

        In a storm none is accepted, however few there are: it shows nothing.
        """
        refused, known = self._share(0, number + 1, now_ns)
        beyond, of_beyond = self._share(number + 1, MANY, now_ns)
        share = (refused + 1) / (known + 2)
        return refused < known and self._is_cap(number, now_ns) and _at_least(beyond, of_beyond, share) <= CHANCE

    def _is_caused(self, number: int, now_ns: int) -> bool:
        """Return True if attempts beyond the number are refused more often than chance explains."""
        refused, known = self._share(number + 1, MANY, now_ns)
        below, of_below = self._share(0, number + 1, now_ns, latest=False)
        return _at_least(refused, known, (below + 1) / (of_below + 2)) <= CHANCE

    def _disprove(self, level: int, now_ns: int) -> None:
        """Drop a cap that an attempt beyond it was accepted under, and go on with the limit from before."""
        cap = self._cap
        if cap is None or cap.believed_ns:
            return
        # Attempts granted together may have met a slot that another had just left.
        if level > (cap.number if cap.tested else FAR * cap.number + 1):
            self._cap = self._kept = None
            self._too_many = 0
            self._set(max(self._limit, cap.before), now_ns)

    def _contradict(self, inflight: int, granted_ns: int) -> None:
        """Drop a cap below the lower bound that does not stop the refusals: it is not their cause."""
        cap = self._cap
        if self._kept is None or cap is None:
            return
        if inflight <= cap.number < self.settings.low and granted_ns > cap.since_ns:
            cap.number = self._kept = self.settings.low

    def _cut(self, outcome: Outcome, share: float, now_ns: int) -> None:
        self._uncut = self._lasting(now_ns)
        self._cut_ns = now_ns
        self._forget_trial(now_ns)
        self._set(self._limit * (1 - self.settings.decrease * SEVERITY[outcome] * share), now_ns)

    def _share(self, level: float, below: float, now_ns: int, *, latest: bool = True) -> tuple[int, int]:
        """Return how many attempts at a concurrency in this range were refused, and of how many.

        Args:
            latest: Only the latest are looked at: caps move.
        """
        refused = known = 0
        for tried in reversed(self._tries.values()):
            if latest and (known >= TRIES_MAX or now_ns - tried.granted_ns > TRIES_NS):
                break
            if level <= tried.level < below:
                refused += tried.refused is True
                known += tried.refused is not None or now_ns - tried.granted_ns >= ACCEPTED_NS
        return refused, known

    def _abandoned(self, granted_ns: int, now_ns: int, inflight: int) -> None:
        """Cut when a client has waited for its content in vain, unless calls that went later have had theirs.

        So many at once are served so slowly that nothing comes of it, and no success would ever tell.
        """
        overtaken = any(tried.granted_ns > granted_ns and tried.refused is False for tried in self._tries.values())
        if overtaken or now_ns - granted_ns < ABANDONED_NS or not self._is_news(granted_ns, now_ns):
            return
        self._too_many, self._doubling, self._resume_to = inflight, False, 0.0
        self._search.grew(granted_ns, now_ns, helped=False, is_linear=False)
        self._uncut, self._cut_ns = max(self._limit, self._before or 0.0), now_ns
        self._forget_trial(now_ns)
        self._set(min(self._limit, inflight) * (1 - self.settings.decrease), now_ns)

    def _lasting(self, now_ns: int) -> float:
        """Return the limit from before a cut that is made now; fewer that are being tried are none."""
        return max(self._limit, self._before or 0.0, self.uncut(now_ns))

    def _is_news(self, granted_ns: int, now_ns: int) -> bool:
        if self._cut_ns is None:
            return True
        return granted_ns > self._cut_ns and now_ns - self._cut_ns >= self.settings.cooldown_ns

    # ---- up ----

    def _succeeded(
        self, tried: _Try | None, granted_ns: int, now_ns: int, tokens: int, *, limit_is_binding: bool
    ) -> None:
        self._end_storm(now_ns)
        self._resume(now_ns)
        if self._fewer.is_probing:
            self._search.rests()
        elif limit_is_binding:
            self._measure(granted_ns, now_ns, tokens)
            self._grow(now_ns)
        else:
            self._search.rests()
        if tried is not None and now_ns > granted_ns:
            self._curve.add(tried.ran_with, tokens, now_ns - granted_ns, now_ns)
            self._try_fewer(tried.ran_with, now_ns, is_stuck=limit_is_binding and self._is_capped)
            self._check_told(tried.ran_with, now_ns)

    def _end_storm(self, now_ns: int) -> None:
        """Go back to what was served before, as after an outage, if half of that and less has been refused as well.

        So the number at once is not what the provider has refused them for.
        """
        in_doubt = self._cap is not None and not self._cap.believed_ns
        if self._doubling or self._resume_to or in_doubt:
            return
        served = max((tried.served_with for tried in self._tries.values()), default=0.0)
        if served <= self.limit:
            return
        refused, known = self._share(0, served / 2, now_ns)
        if known >= TRIES_MIN and refused >= A_CAP * known:
            self._cap = self._kept = None
            self._resume_to = float(int(served))

    def _resume(self, now_ns: int) -> None:
        if self._limit < self._resume_to:
            self._set(min(self._resume_to, self._limit + 1), now_ns)

    def _measure(self, granted_ns: int, now_ns: int, tokens: int) -> None:
        """Double while that raises throughput, and step back where it did not."""
        search = self._search
        was_down = search.is_down
        limit = search.on_success(self.limit, tokens, granted_ns=granted_ns, now_ns=now_ns, is_capped=self._is_capped)
        if limit is None:
            return
        if was_down and self._before is not None:
            before, self._before = self._before, None
            if not search.is_down and search.best != self.limit:
                self._set(min(before, self._ceiling(now_ns)), now_ns)
                return
            self._early.is_over = True  # fewer finish more
        if limit < self.limit or search.is_down:
            self._resume_to = 0.0
            self._set(float(limit), now_ns)
        elif self._doubling:
            self._set(max(self._limit, min(float(limit), self._ceiling(now_ns))), now_ns)
        elif was_down and search.best is not None:
            self._set(min(float(search.best), self._ceiling(now_ns)), now_ns)

    def _end_trial(self, now_ns: int) -> None:
        """End a comparison with fewer at once whose load has gone: what is known is of a time that has passed."""
        before = self._forget_trial(now_ns)
        self._search.reset(now_ns)
        self._search.best_cohort = None
        self._set(before or 0.0, now_ns)

    @property
    def _is_capped(self) -> bool:
        """True if the limit cannot be raised, whatever throughput says."""
        return self._limit >= self.high or (self._cap is not None and self._cap.believed_ns > 0)

    def _try_fewer(self, level: float, now_ns: int, *, is_stuck: bool) -> None:
        """Compare fewer at once with this level if fewer have finished more, or if nothing is known of fewer.

        Args:
            level: Attempts in flight, on average.
            is_stuck: True if the limit binds and cannot be raised.
        """
        search, cap = self._search, self._cap
        in_doubt = self._kept is not None and cap is not None and not cap.believed_ns
        if search.is_down or now_ns < search.fewer_ns or in_doubt or self._fewer.is_probing:
            return
        fewer = self._curve.better(level, now_ns)
        if fewer is not None:
            fewer = min(fewer, STEP_FAR_DOWN * level)
        elif is_stuck and not search.is_linear:
            fewer = self._curve.untried(level, now_ns)
        if fewer is None or (limit := max(self.settings.low, round(fewer))) >= min(self.limit, round(level)):
            return
        search.compare_fewer(round(level), self._curve.answers(level, now_ns), now_ns)
        self._resume_to, self._before = 0.0, self._limit
        if cap is not None and not cap.believed_ns:
            self._cap = None  # it is not what is tested now
        self._set(float(limit), now_ns)

    def _check_told(self, level: float, now_ns: int) -> None:
        """Go back to as many as before if whole answers show that fewer finish less, whatever streams have told."""
        if self._told is None or now_ns - self._told_ns > TOLD_NS:
            self._told = None
            return
        limit, number = self._told
        if level < number and self._curve.finishes_less(level, number, now_ns):
            self._told = None
            self._fewer.distrust(now_ns)
            self._fewer_stay_ns = FEWER_STAY_NS
            self._search.stays_until_ns = now_ns
            self._set(max(self._limit, min(limit, self._ceiling(now_ns))), now_ns)

    def _move(self, move: LimitMove, level: float, now_ns: int) -> None:
        match move.step:
            case LimitStep.PROBE:
                self._before = max(self._limit, self._before or 0.0)
                self._set(float(move.limit), now_ns)
            case LimitStep.BACK:
                self._set(self._forget_trial(now_ns) or self._limit, now_ns)
            case LimitStep.STAY:
                before = self._forget_trial(now_ns)
                if self._told is None:
                    self._told, self._told_ns = (before or self._limit, max(level, move.compared)), now_ns
                self._early.is_over, self._resume_to = True, 0.0
                if now_ns >= self._search.stays_until_ns:
                    self._search.fewer_are_more(now_ns, self._fewer_stay_ns)
                    self._fewer_stay_ns = min(2 * self._fewer_stay_ns, FEWER_STAY_MAX_NS)
                else:
                    self._search.fewer_are_more(now_ns, 0)
                self._set(float(move.limit), now_ns)

    def _forget_trial(self, now_ns: int) -> float | None:
        """End a trial or a probe of fewer. Return the limit from before it; None: there is none."""
        if self._fewer.is_probing:
            self._fewer.stop(now_ns)
        before, self._before = self._before, None
        return before

    def _grow_early(self, tried: _Try, now_ns: int, limit_is_binding: bool) -> None:
        """Double at first content, and go back where that came late."""
        binds = limit_is_binding and self._limit >= self._resume_to
        limit = self._early.on_begun(tried.granted_ns, tried.level, now_ns, limit_is_binding=binds)
        if limit is None:
            return
        helped = not (self._early.is_over or self._early.falls)
        self._search.grew(self._early.since_ns, now_ns, helped=helped, is_linear=self._early.is_linear)
        self._early.is_over |= limit >= self.high
        if limit < self.limit:
            self._set(float(limit), now_ns)
        else:
            self._set(max(self._limit, min(float(limit), self._ceiling(now_ns))), now_ns)

    def _grow(self, now_ns: int) -> None:
        search = self._search
        if self._doubling or search.is_down or now_ns < search.stays_until_ns or self._limit < self._resume_to:
            return
        # As many successes as the limit are one round.
        step = self.settings.increase / self._limit
        if self._limit < self._too_many * NEAR:
            step = min(step * RECOVERY, float(self.settings.increase))
        self._set(max(self._limit, min(self._limit + step, self._ceiling(now_ns))), now_ns)

    def _ceiling(self, now_ns: int) -> float:
        """Return what it may grow to by now."""
        ceiling = float(self.high)
        if self._kept is not None:
            ceiling = min(ceiling, float(self._kept))
        return ceiling

    def _set(self, limit: float, now_ns: int) -> None:
        before = self.limit
        self._limit = min(float(self.high), max(float(self.settings.low), limit))
        self._has_moved(before, now_ns)

    def _has_moved(self, before: int, now_ns: int) -> bool:
        """Return True if the limit has changed, by a cap or otherwise: the search then compares anew."""
        if self.limit == before:
            return False
        self._search.moved(now_ns)
        return True


def _at_least(refused: int, known: int, share: float) -> float:
    """Return the probability of at least so many refusals of so many attempts, each refused with this probability."""
    return sum(comb(known, one) * share**one * (1 - share) ** (known - one) for one in range(refused, known + 1))
