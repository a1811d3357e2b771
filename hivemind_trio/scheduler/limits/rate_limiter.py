"""Rate limiter for one quota of one provider, with feedback from rate-limit headers.

The policy seldom says how a provider counts. A declared quota of unknown kind is first kept as a sliding window: all of
it may go at once. Once the provider refuses a call for it, it is spaced as well, behind the burst that was accepted
(GCRA, the generic cell rate algorithm: a leaky bucket in one number). A quota that only headers tell of is kept as a
token bucket that is as deep as the most that was ever left. A kind that the policy declares, or that answers have
shown (`window_inference.py`), is kept alone.

Answers tell what is left, as of the request that they answer. Less than was reckoned means that others use the key, or
that estimates were low: it is believed at once, and comes back at the limit's rate. More is believed bit by bit. What
good answers say slows dispatch down; only a refusal stops it (`refusal_gate.py`).
"""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.model import Dimension, QuotaReading
from hivemind_trio.policy import RateLimitSettings, Window
from hivemind_trio.scheduler.protocol.beliefs import WindowBelief
from hivemind_trio.scheduler.protocol.snapshot import BucketSnapshot
from hivemind_trio.scheduler.sharing.window_credits import MS, WindowCredits
from hivemind_trio.scheduler.sharing.window_draw import DrawWindow
from hivemind_trio.scheduler.structures.sliding_window import SlidingWindow

from .window_inference import WindowClassifier

RAISE_PER_S: Final = 0.1
"""Share of the capacity by which an answer may raise what is left, per second since the last."""

SHARED_HEADROOM: Final = 0.02
"""Share of a limit that is left unused once answers show that others use the key, where the policy says nothing."""
SHARED: Final = 0.02
"""Share of a limit by which an answer has to fall short before others are blamed."""

WIDER: Final = 1.1
"""Factor by which a window has to prove longer for what was learned of its kind to be dropped."""

SECOND_NS: Final = 1_000_000_000

ROUNDED_NS: Final = 3 * SECOND_NS
"""Error of an end told in whole seconds: two times were rounded, and one second was added."""


@final
@attrs.define(eq=False)
class RateLimiter:
    """One dimension, and one length of window, of one limits group."""

    quota: RateLimitSettings
    """As the policy declares it, or as a header first told of it."""
    declared: bool = True
    credits: WindowCredits | None = attrs.field(default=None, init=False)
    """This node's part of a window that several share; None: it has all of it."""
    most: int = attrs.field(default=1, init=False)
    """Upper bound on what one call may take: the whole limit."""
    capacity: int = attrs.field(default=1, init=False)
    """Upper bound on what all calls of one window may take. It and the next three are derived when an input changes:
    they are read far more often."""
    kind: Window = attrs.field(default=Window.LEARN, init=False)
    """Window kept now; `LEARN`: a sliding one, and spaced after a refusal."""
    _depth: int = attrs.field(default=1, init=False)
    """Content of a full bucket."""
    _burst: int = attrs.field(default=1, init=False)
    """Amount that may be taken at once when nothing is owed."""
    _taken: SlidingWindow = attrs.field(init=False)
    _tat_ns: int = attrs.field(default=0, init=False)
    """GCRA's theoretical arrival time: when all that was taken will have been earned."""
    _owes_ns: int = attrs.field(default=0, init=False)
    """Time since which something has been owed: what was taken before it has been earned."""
    accepted: int | None = attrs.field(default=None, init=False)
    """Burst that the provider accepted before it refused; None: it has not refused."""
    _foreign: int = attrs.field(default=0, init=False)
    """Use by others at `_foreign_ns`; it comes back at the limit's rate."""
    _foreign_ns: int = attrs.field(default=0, init=False)
    _shared: bool = attrs.field(default=False, init=False)
    """Answers have shown that others use the key."""
    _left: int = attrs.field(default=0, init=False)
    """Rest of a fixed window, until `_ends_ns`."""
    _ends_ns: int | None = attrs.field(default=None, init=False)
    """None: no answer has told of an end."""
    _began_ns: int | None = attrs.field(default=None, init=False)
    """When the first call of this window went, if no answer to any of its calls has come yet."""
    _since_ns: int = attrs.field(default=0, init=False)
    """Start of the window that what was taken counts in."""
    _more: int = attrs.field(default=0, init=False)
    """Further rest of it, as an answer has said at `_more_ns`; believed bit by bit."""
    _more_ns: int = attrs.field(default=0, init=False)
    _told: int | None = attrs.field(default=None, init=False)
    """Limit by the last answer that was believed."""
    _remaining: int | None = attrs.field(default=None, init=False)
    _top: int | None = attrs.field(default=None, init=False)
    """Largest rest that answers of the last window told of: some buckets are not as deep as their limit."""
    _top_ns: int = attrs.field(default=0, init=False)
    _believed: int = attrs.field(default=-1, init=False)
    """Number of the grant that the last answer was to."""
    _heard_ns: int = attrs.field(default=0, init=False)
    _likeness: WindowClassifier = attrs.field(factory=WindowClassifier, init=False)
    _failed: int = attrs.field(default=0, init=False)
    """Use of this fixed window by attempts that have failed: the provider may count it, or not."""
    _spares: bool = attrs.field(default=False, init=False)
    """True if it does not, as answers have shown."""
    _aside: int = attrs.field(default=0, init=False)
    """Part of it that is kept for the same calls, which rest."""

    def __attrs_post_init__(self) -> None:
        self._taken = SlidingWindow(self.quota.window_ns)
        self._measure()

    def load(self, quota: RateLimitSettings, now_ns: int, *, declared: bool, learns: bool = True) -> None:
        """Take the settings of a new policy. What was taken stays taken, and a bucket is no fuller for being larger.

        Args:
            learns: True if answers are believed.
        """
        kind, capacity, burst = self.kind, self.capacity, self._burst
        owed = -(-max(0, self._tat_ns - now_ns) * capacity // self.quota.window_ns)
        self.quota, self.declared = quota, declared
        if learns:
            self._measure()
        else:
            self.forget(now_ns)
        if (self.kind, self.capacity, self._burst) == (kind, capacity, burst):
            return
        if self.kind is kind:
            owed = self._burst - min(burst - owed, self._burst)
        self._tat_ns = now_ns + self.time_ns(owed)
        self._left = min(self._left + self.capacity - capacity, self.capacity)

    @property
    def told(self) -> bool:
        """True if an answer has ever said what the limit is."""
        return self._told is not None

    @property
    def headroom(self) -> float:
        """Share of the limit that is left unused."""
        if self.quota.headroom is not None:
            return self.quota.headroom
        return SHARED_HEADROOM if self._shared else 0.0

    @property
    def limit(self) -> int:
        """The declared one, or the provider's own: the lower."""
        if self._told is None:
            return self.quota.amount
        return min(self.quota.amount, self._told) if self.declared else self._told

    def _measure(self) -> None:
        headroom = self.headroom
        self.most = max(1, self.quota.amount)
        self.capacity = max(1, self.limit - int(self.limit * headroom))
        self._depth = max(1, int(self._room) - int(self._room * headroom))
        self.kind = self._kept
        spaced = self.kind is Window.LEARN and self.accepted is not None
        self._burst = max(1, min(self.accepted or 1, self._depth)) if spaced else self._depth

    @property
    def _kept(self) -> Window:
        kind = self._likeness.kind if self.quota.window is Window.LEARN else self.quota.window
        if kind is Window.LEARN and not self.declared:
            return Window.BUCKET
        if kind is Window.FIXED and self._ends_ns is None:
            # Its phase is unknown: no more than its worth lies within any window's length.
            return Window.SLIDING
        return kind

    @property
    def _room(self) -> float:
        """Upper bound on what can be left: the limit, or the content of a bucket that is not as deep."""
        if self.quota.window is Window.LEARN and self._likeness.kind is Window.BUCKET:
            return self.limit * self._likeness.depth
        if not self.declared and self._kept is Window.BUCKET and self._top is not None:
            return min(self.limit, self._top)
        return self.limit

    def belief(self, group: str | None, now_ns: int) -> WindowBelief:
        """Return its use, to be kept."""
        return WindowBelief(
            group=group,
            dimension=self.quota.dimension,
            window_ns=self.quota.window_ns,
            kind=self._likeness.kind,
            depth=self._likeness.depth,
            taken=self._taken.ages(now_ns),
            owed_ns=max(0, self._tat_ns - now_ns),
        )

    def restore(self, belief: WindowBelief, age_ns: int, now_ns: int) -> None:
        """Count what an earlier process took of windows that have not ended."""
        for taken_ns, amount in belief.taken:
            if taken_ns + age_ns < self.quota.window_ns:
                self._taken.add(amount, now_ns - taken_ns - age_ns)
        self._likeness.hint(belief.kind, belief.depth)
        self._tat_ns = max(self._tat_ns, now_ns + belief.owed_ns - age_ns)
        self._measure()

    def fits_ns(self, amount: int, now_ns: int) -> int:
        """Return when so much may be taken: `now_ns` or later. More than the capacity goes when all of it is there."""
        if not amount:
            return now_ns
        if amount > self.capacity:
            amount = self.capacity
        at_ns = self._mirrored_ns(amount, now_ns)
        if self.credits is None or at_ns > now_ns:
            return at_ns
        return self.credits.fits_ns(amount, now_ns)

    def _mirrored_ns(self, amount: int, now_ns: int) -> int:
        match self.kind:
            case Window.BUCKET:
                return self._earned_ns(amount, now_ns)
            case Window.FIXED:
                return self._turned_ns(amount, now_ns)
            case Window.SLIDING:
                return self._slid_ns(amount, now_ns)
            case Window.LEARN:
                slid_ns = self._slid_ns(amount, now_ns)
                if self.accepted is None:
                    return slid_ns
                return max(slid_ns, self._earned_ns(amount, now_ns))

    def declared_ns(self, amount: int, now_ns: int) -> int:
        """Return when so much may be taken by the policy alone, whatever answers say: no probe goes before it."""
        if not self.declared:
            return now_ns
        most = max(1, self.quota.amount - int(self.quota.amount * (self.quota.headroom or 0.0)))
        at_ns = self._taken.at_most_ns(max(0, most - amount), now_ns)
        if self.credits is None or at_ns > now_ns:
            return at_ns
        return self.credits.fits_ns(min(amount, self.capacity), now_ns)

    def take(self, amount: int, now_ns: int) -> None:
        """Charge it."""
        if now_ns >= self._tat_ns:
            self._owes_ns = now_ns
        self._tat_ns = (now_ns if now_ns > self._tat_ns else self._tat_ns) + self.time_ns(amount)
        self._taken.add(amount, now_ns)
        if self.credits is not None:
            self.credits.take(amount, now_ns)
        if self._ends_ns is not None:
            if now_ns >= self._ends_ns:
                # Some providers' windows begin with the first request. Where they go by the clock, the answer says so.
                self._ends_ns, self._left = now_ns + self.quota.window_ns, self.capacity
                self._began_ns = self._since_ns = now_ns
                self._more = self._failed = self._aside = 0
            if amount > self._left and self._more:
                more = min(self._more, amount - self._left)
                self._left, self._more = self._left + more, self._more - more
                self._more_ns = max(self._more_ns + self._believing_ns(more), now_ns)
            self._left -= amount

    def settle(self, estimated: int, actual: int, taken_ns: int, now_ns: int) -> None:
        """Correct what was taken at `taken_ns`."""
        more = actual - estimated
        if more > 0:
            self._tat_ns = max(self._tat_ns + self.time_ns(more), now_ns)
        elif taken_ns >= self._owes_ns:
            # A bucket that was full in between is none the fuller for what has not been taken of it before.
            self._tat_ns += self.time_ns(more)
        self._taken.correct(more, taken_ns, now_ns)
        if self.credits is not None:
            self.credits.settle(more, taken_ns, now_ns)
        if self._ends_ns is not None and taken_ns >= self._since_ns:
            self._left = min(self._left - more, self.capacity)

    def fail(self, amount: int, taken_ns: int) -> None:
        """Note that the attempt has failed for which so much was taken at `taken_ns`.

        Not every provider counts what it breaks down over, and none says so. It is taken to, until answers show more to
        be left than is reckoned here: at the end of a window no answer comes any more that could.
        """
        if Window.FIXED not in (self.kind, self.quota.window) or taken_ns < self._since_ns:
            return
        self._failed += amount
        if self._spares:
            self._aside += amount

    def spare(self, amount: int, taken_ns: int, now_ns: int) -> None:
        """Give back what was put aside for a failed attempt: its call is in line again, or gone."""
        if taken_ns >= self._since_ns and self._aside >= amount:
            self._aside -= amount
            self.settle(amount, 0, taken_ns, now_ns)

    def on_headers(self, reading: QuotaReading, unseen: int, grant: int, taken_ns: int, now_ns: int) -> bool:
        """Learn from the head of an answer. Return True if it was believed.

        Args:
            unseen: What was taken that the answer cannot know of.
            grant: Number of the grant that it answers. An answer to an older one than the last is stale.
            taken_ns: When that was.
        """
        if grant < self._believed:
            return False
        self._believed = grant
        if reading.limit and reading.limit != self._told:
            self._told = reading.limit
            self._measure()
        self._remaining = reading.remaining
        if reading.remaining is None:
            return True
        if self._top is None or reading.remaining >= self._top or now_ns >= self._top_ns + self.quota.window_ns:
            self._top, self._top_ns = reading.remaining, now_ns
        self._likeness.on_headers(reading, self.quota.window_ns, self._taken.sum(now_ns) - unseen, now_ns)
        self._measure()
        if self.kind is Window.BUCKET:
            # As much of it as has been earned since then is no matter, whether the answer knew of it or not.
            unseen = max(0, unseen - (now_ns - taken_ns) * self.capacity // self.quota.window_ns)
        raise_by = int(self.capacity * RAISE_PER_S * (now_ns - self._heard_ns) / SECOND_NS)
        if raise_by:  # what is less than one is saved up
            self._heard_ns = now_ns
        most = reading.remaining - int(self._room * self.headroom)
        left = most - unseen - reading.rounding
        if self.kind is Window.BUCKET:
            self._hear_of_the_level(left, raise_by, now_ns)
        else:
            left, most = left - self._aside, most - self._aside
            self._hear_of_failures(left, most, now_ns)
            self._hear_of_others(left, most, raise_by, now_ns)
        self._hear_of_the_end(left, most, raise_by, reading.resets_ns, taken_ns, now_ns)
        return True

    def draw(self, waiting: int, now_ns: int) -> DrawWindow | None:
        """Return what to ask the store of this window now; None: nothing."""
        assert self.credits is not None
        self.credits.limit = self.capacity
        report = tuple((age_ns // MS, amount) for age_ns, amount in self._taken.ages(now_ns))
        return self.credits.draw(waiting, report, now_ns)

    def widen(self, window_ns: int) -> None:
        """Learn that the window is at least so long."""
        if window_ns <= self.quota.window_ns:
            return
        if window_ns > self.quota.window_ns * WIDER:
            self._likeness = WindowClassifier()
        self.quota = attrs.evolve(self.quota, window_ns=window_ns)
        self._taken = SlidingWindow(window_ns)
        self._measure()

    def snapshot(self, now_ns: int) -> BucketSnapshot:
        """Return how it stands."""
        others = self._others(now_ns)
        match self.kind:
            case Window.BUCKET:
                left = self._depth - max(0, self._tat_ns - now_ns) * self.capacity // self.quota.window_ns
            case Window.FIXED:
                left = self._left if self._ends_ns is not None and now_ns < self._ends_ns else self.capacity
            case Window.SLIDING | Window.LEARN:
                left = self.capacity - self._taken.sum(now_ns) - others
        return BucketSnapshot(
            dimension=self.quota.dimension,
            window_ns=self.quota.window_ns,
            declared=self.declared,
            kind=self.kind,
            limit=self.limit,
            left=left,
            foreign=others,
        )

    def forget(self, now_ns: int) -> None:
        """Drop what answers and refusals have taught."""
        self._told = self._remaining = self._top = self._ends_ns = self._began_ns = self.accepted = None
        self._foreign = self._more = self._failed = self._aside = 0
        self._spares = False
        self._tat_ns = min(self._tat_ns, now_ns)
        self._likeness = WindowClassifier()
        self._measure()

    def spent(self, cost: int) -> bool:
        """Return True if, by the last answer, so much was not left."""
        return self._remaining is not None and self._remaining < cost

    def refuse(self, now_ns: int) -> None:
        """Space what follows: the provider has refused a call for this quota."""
        owed = max(0, self._tat_ns - now_ns) * self.capacity // self.quota.window_ns
        self.accepted = max(1, min(self.accepted or owed, owed))
        if self._failed:
            self._spares, self._aside = False, 0
        self._measure()

    # ---- by kind ----

    def _earned_ns(self, amount: int, now_ns: int) -> int:
        if self._tat_ns <= now_ns:
            return now_ns  # nothing is owed
        # A call larger than the burst goes when nothing is owed, and owes for longer.
        slack_ns = self.time_ns(self._burst - amount) if amount < self._burst else 0
        return max(now_ns, self._tat_ns - slack_ns)

    def _slid_ns(self, amount: int, now_ns: int) -> int:
        room, others = self.capacity - amount, self._others(now_ns)
        alone_ns = self._taken.at_most_ns(room, now_ns)
        if not others:
            return alone_ns
        # Either all that others took has come back, or as much of it, or of ours, as is missing.
        at_ns = max(alone_ns, now_ns + self.time_ns(others))
        if others <= room:
            at_ns = min(at_ns, self._taken.at_most_ns(room - others, now_ns))
        free = room - self._taken.sum(now_ns)
        return min(at_ns, now_ns + self.time_ns(max(0, others - free))) if free >= 0 else at_ns

    def _turned_ns(self, amount: int, now_ns: int) -> int:
        assert self._ends_ns is not None
        if now_ns >= self._ends_ns or amount <= self._left:
            return now_ns
        if amount > self._left + self._more:
            return self._ends_ns
        believed_ns = self._more_ns + self._believing_ns(amount - self._left)
        return min(max(now_ns, believed_ns), self._ends_ns)

    def _believing_ns(self, amount: int) -> int:
        """Return how long it takes until so much more than was reckoned is believed."""
        return -(-amount * SECOND_NS // max(1, int(self.capacity * RAISE_PER_S)))

    # ---- what an answer says is left ----

    # No provider says whether what is left was counted when a call came or when it was answered. So it is somewhere
    # between `left`, as if nothing that was granted since were in it, and `most`, as if all of it were; and what was
    # reckoned here is not contradicted by what lies between. To believe the worse regardless would leave unused, in
    # every window, as much as is in flight.

    def _hear_of_failures(self, left: int, most: int, now_ns: int) -> None:
        if not self._failed or (self._ends_ns is not None and now_ns >= self._ends_ns):
            return
        mine = self.capacity - self._taken.sum(now_ns) if self._ends_ns is None else self._left
        if left > mine:
            self._spares = True
        elif most < mine:
            self._spares, self._aside = False, 0

    def _hear_of_others(self, left: int, most: int, raise_by: int, now_ns: int) -> None:
        others = self._others(now_ns)
        mine = self.capacity - self._taken.sum(now_ns) - others
        if left <= mine <= most:
            return
        self._foreign_ns = now_ns
        if left >= mine:
            self._foreign = others - min(others, left - mine, raise_by)
            return
        self._foreign = min(others + mine - left, self.capacity)
        if self.credits is not None:
            return  # they are nodes of this fleet, whose use the store counts
        if not self._shared and self.quota.dimension is Dimension.REQUESTS and mine - left > SHARED * self.limit:
            self._shared = True
            self._measure()

    def _hear_of_the_end(
        self, left: int, most: int, raise_by: int, resets_ns: int | None, taken_ns: int, now_ns: int
    ) -> None:
        window_ns = self.quota.window_ns
        if resets_ns is None or resets_ns > window_ns * 1.05:
            return
        # Whole seconds may be rounded down, or up.
        whole = resets_ns % SECOND_NS == 0
        told_ns = now_ns + resets_ns + (SECOND_NS if whole else 0)
        known_ns = self._ends_ns if self._ends_ns is not None and now_ns < self._ends_ns else None
        if self._began_ns is not None:
            # It began before it was answered, when the first call of it came.
            known_ns, self._began_ns = now_ns + window_ns, None
        # Of several answers in one window that have rounded up the lowest is the nearest.
        same = known_ns is not None and 0 <= told_ns - known_ns <= (ROUNDED_NS if whole else 0)
        if self._ends_ns is None:
            mine = self.capacity - self._taken.sum(now_ns)
        else:
            mine = self._left if now_ns < self._ends_ns else self.capacity
        if known_ns is None or abs(told_ns - known_ns) > ROUNDED_NS:
            # Another window, and not its end told more exactly.
            self._since_ns = taken_ns
            if self._ends_ns is not None:
                self._failed = self._aside = 0
        self._left = mine if left <= mine <= most else min(left, mine + raise_by, self.capacity)
        # The rest of it is believed while time passes, though no answer should come any more to repeat it.
        self._more, self._more_ns = max(0, min(left, self.capacity) - self._left), now_ns
        first, self._ends_ns = self._ends_ns is None, known_ns if same else told_ns
        if first:
            self._measure()

    def _hear_of_the_level(self, left: int, raise_by: int, now_ns: int) -> None:
        told_ns = now_ns + self.time_ns(self._depth - max(0, min(left, self._depth)))
        if told_ns < self._tat_ns:
            told_ns = max(told_ns, self._tat_ns - self.time_ns(raise_by))
        self._tat_ns = told_ns

    def _others(self, now_ns: int) -> int:
        """Return what counts now of the use by others."""
        if not self._foreign:
            return 0
        return max(0, self._foreign - (now_ns - self._foreign_ns) * self.capacity // self.quota.window_ns)

    def time_ns(self, amount: int) -> int:
        """Return how long so much takes to be earned."""
        return amount * self.quota.window_ns // self.capacity
