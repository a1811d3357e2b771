"""One quota of one provider, mirrored: how much of it is left, and when there will be room for more.

We rarely know how a provider counts: by a bucket that refills, by minutes of the clock, by the last sixty seconds. So
what is granted passes all of them: in any window of the quota's length at most the limit, less a margin; and not at
once, but at the limit's rate behind a burst (GCRA, the generic cell rate algorithm: a leaky bucket in one number).
Where a policy says how the provider counts, or its answers have shown it (`_likeness.py`), that alone is kept.

Answers tell what is left. Where that is less than we thought, others use the same key, or our estimates are wrong, and
it is believed at once; where it is more, by and by. Either way only as far as the answer can know: what was granted
after the request that it answers is not in it.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.model import Reading
from hivemind_trio.policy import Quota, Window

from ._likeness import Likeness
from ._sliding import Sliding

BURST: Final = 12
"""The part of a window's limit that may go at once: five seconds' worth of a minute."""

RAISE_PER_S: Final = 0.1
"""Of the capacity. If an answer says that more is left than we thought, it is believed no faster."""

HEADROOM_NEW: Final = 0.05
"""Of a limit that only headers tell of, until there were answers enough to know the window by."""
HEADROOM_MAX: Final = 0.1
REFUSED: Final = 1.5
"""What a 429 about this quota makes of the headroom, for so many windows:"""
REFUSED_WINDOWS: Final = 10

LONG_NS: Final = 3_600 * 1_000_000_000
"""A window that only headers tell of and that is longer is not spread: its limit may well be meant to be used early."""

AS_SENT: Final = 2
"""After so many answers in a row that knew of the calls behind them, all do, as far as what has failed is concerned."""

SECOND_NS: Final = 1_000_000_000

ROUNDED_NS: Final = 3 * SECOND_NS
"""By so much an end told in whole seconds may seem later than it is: two times were rounded, and one second added."""


@final
@attrs.define(eq=False)
class Bucket:
    """One dimension, and one length of window, of one limits group."""

    quota: Quota
    """As the policy declares it, or as a header first told of it."""
    declared: bool = True
    pacing: bool = True
    """Of an unknown kind no more than a burst goes at once."""
    most: int = attrs.field(default=1, init=False)
    """The most that one call may take, whatever has been learned since."""
    capacity: int = attrs.field(default=1, init=False)
    """The most that all calls of one window may take. It and the next three are reckoned anew whenever something
    changes that they depend on: they are looked at far more often."""
    kind: Window = attrs.field(default=Window.LEARN, init=False)
    """What is kept now; `LEARN`: what passes every kind."""
    _depth: int = attrs.field(default=1, init=False)
    """What a full bucket lets go at once."""
    _burst: int = attrs.field(default=1, init=False)
    """What goes at once when nothing is owed."""
    _taken: Sliding = attrs.field(init=False)
    _tat_ns: int = attrs.field(default=0, init=False)
    """GCRA's theoretical arrival time: when all that was taken will have been earned."""
    _owes_ns: int = attrs.field(default=0, init=False)
    """Since when something has been owed all the time: what was taken before that has been earned."""
    _foreign: int = attrs.field(default=0, init=False)
    """Taken by others, as far as answers have shown it, until `_foreign_until_ns`."""
    _foreign_until_ns: int = attrs.field(default=0, init=False)
    _left: int = attrs.field(default=0, init=False)
    """Of a fixed window, until `_ends_ns`."""
    _ends_ns: int | None = attrs.field(default=None, init=False)
    """None: no answer has told of an end."""
    _began_ns: int | None = attrs.field(default=None, init=False)
    """When the first call of this window went, if no answer to any of its calls has come yet."""
    _since_ns: int = attrs.field(default=0, init=False)
    """What was taken since is of this window."""
    _more: int = attrs.field(default=0, init=False)
    """Left of it as well, as an answer has said at `_more_ns`; believed by and by."""
    _more_ns: int = attrs.field(default=0, init=False)
    _as_sent: int = attrs.field(default=0, init=False)
    """How many answers in a row have shown that they tell what is left when they are sent, not when the call came."""
    _forgives: bool = attrs.field(default=False, init=False)
    """What has failed is not counted, as answers have shown."""
    _doubted: int = attrs.field(default=0, init=False)
    """Of this window, what failed attempts had taken: it is kept, and may not have been counted."""
    _resting: int = attrs.field(default=0, init=False)
    """The same, of calls that are not in line again yet."""
    _put_aside: int = attrs.field(default=0, init=False)
    """Of calls that are not in line again yet, what is left for them, for it was not counted."""
    _forgiven: int = attrs.field(default=0, init=False)
    """Of this window, what was given back because it was not counted."""
    _frozen_until_ns: int = attrs.field(default=0, init=False)
    _told: int | None = attrs.field(default=None, init=False)
    """The limit by the last answer that was believed."""
    _remaining: int | None = attrs.field(default=None, init=False)
    _top: int | None = attrs.field(default=None, init=False)
    """The most that was ever left, by answers of the last window: some buckets are not as deep as their limit."""
    _top_ns: int = attrs.field(default=0, init=False)
    _believed: int = attrs.field(default=-1, init=False)
    """Which grant that answer was to."""
    _heard_ns: int = attrs.field(default=0, init=False)
    _raised: float = attrs.field(default=0.0, init=False)
    """Headroom after refusals, until `_raised_until_ns`."""
    _raised_until_ns: int = attrs.field(default=0, init=False)
    _refused: int = attrs.field(default=-1, init=False)
    """The latest grant when the headroom was last raised."""
    _likeness: Likeness = attrs.field(factory=Likeness, init=False)

    def __attrs_post_init__(self) -> None:
        self._taken = Sliding(self.quota.window_ns)
        self._measure()

    def load(self, quota: Quota, now_ns: int, *, declared: bool, learns: bool = True) -> None:
        """Take the settings of a new policy. What was taken stays taken, and a bucket is no fuller for being larger.

        Args:
            learns: Whether what answers have told is believed.
        """
        kind, capacity, burst = self.kind, self.capacity, self._burst
        owed = -(-max(0, self._tat_ns - now_ns) * capacity // self.quota.window_ns)
        self.quota, self.declared = quota, declared
        if learns:
            self._measure()
        else:
            self.forget()
        if (self.kind, self.capacity, self._burst) == (kind, capacity, burst):
            return
        if self.kind is kind:
            owed = self._burst - min(burst - owed, self._burst)
        self._tat_ns = now_ns + self.time_ns(owed)
        self._left = min(self._left + self.capacity - capacity, self.capacity)

    @property
    def told(self) -> bool:
        """Whether an answer has ever said what the limit is."""
        return self._told is not None

    @property
    def headroom(self) -> float:
        """The share of the limit that is left unused."""
        own = self.quota.headroom
        if not self.declared and not self._likeness.known:
            own = max(own, HEADROOM_NEW)
        return max(own, self._raised)

    @property
    def limit(self) -> int:
        """The declared one, or the provider's own: the lower."""
        if self._told is None:
            return self.quota.amount
        return min(self.quota.amount, self._told) if self.declared else self._told

    def _measure(self) -> None:
        headroom = self.headroom
        self.most = max(1, int(self.quota.amount * (1 - self.quota.headroom)))
        self.capacity = max(1, int(self.limit * (1 - headroom)))
        self._depth = max(1, int(self._room * (1 - headroom)))
        self.kind = self._kept
        spread = self.kind is Window.LEARN and self.pacing
        self._burst = max(1, min(self.capacity // BURST, self._depth)) if spread else self._depth

    @property
    def _kept(self) -> Window:
        kind = self._supposed
        if kind is Window.LEARN and not self.declared and self.quota.window_ns > LONG_NS:
            return Window.BUCKET if self._ends_ns is None else Window.FIXED
        if kind is Window.FIXED and self._ends_ns is None:
            # Whatever its phase, no more of it than a window's worth lies within any window's length; it need not be
            # spread besides.
            return Window.SLIDING
        return kind

    @property
    def _supposed(self) -> Window:
        """As the policy says, or else as answers have shown it."""
        return self._likeness.kind if self.quota.window is Window.LEARN else self.quota.window

    @property
    def _room(self) -> float:
        """What can be left at most: the limit, or what a bucket holds that is not as deep, or could be."""
        match self._supposed:
            case Window.BUCKET:
                return self.limit * self._likeness.depth
            case Window.LEARN if self._top is not None:
                return min(self.limit, self._top)
            case _:
                return self.limit

    def fits_ns(self, amount: int, now_ns: int) -> int:
        """When so much may be taken: `now_ns`, or later. More than the capacity goes when all of it is there."""
        if not amount:
            return now_ns
        if amount > self.capacity:
            amount = self.capacity
        match self.kind:
            case Window.BUCKET:
                at_ns = self._earned_ns(amount, now_ns)
            case Window.FIXED:
                at_ns = self._turned_ns(amount, now_ns)
            case Window.SLIDING:
                at_ns = self._slid_ns(amount, now_ns)
            case Window.LEARN:
                earned_ns, slid_ns = self._earned_ns(amount, now_ns), self._slid_ns(amount, now_ns)
                at_ns = earned_ns if earned_ns > slid_ns else slid_ns
        return at_ns if at_ns > self._frozen_until_ns else self._frozen_until_ns

    def take(self, amount: int, now_ns: int) -> None:
        """Charge it."""
        if self._raised and now_ns >= self._raised_until_ns:
            self._raised = 0.0
            self._measure()
        if now_ns >= self._tat_ns:
            self._owes_ns = now_ns
        self._tat_ns = (now_ns if now_ns > self._tat_ns else self._tat_ns) + self.time_ns(amount)
        self._taken.add(amount, now_ns)
        if self._ends_ns is not None:
            if now_ns >= self._ends_ns:
                # Some providers' windows begin with the first request. Where they go by the clock, the answer says so.
                self._ends_ns, self._left = now_ns + self.quota.window_ns, self.capacity
                self._began_ns = self._since_ns = now_ns
                self._more = 0
                self._doubted = self._resting = self._put_aside = self._forgiven = 0
            if amount > self._left and self._more:
                more = min(self._more, amount - self._left)
                self._left, self._more = self._left + more, self._more - more
                self._more_ns = max(self._more_ns + self._believing_ns(more), now_ns)
            self._left -= amount

    def settle(self, estimated: int, actual: int, taken_ns: int, now_ns: int) -> None:
        """What was taken at `taken_ns` turned out to be more, or less."""
        more = actual - estimated
        if more > 0:
            self._tat_ns = max(self._tat_ns + self.time_ns(more), now_ns)
        elif taken_ns >= self._owes_ns:
            # A bucket that was full in between is none the fuller for what has not been taken of it before.
            self._tat_ns += self.time_ns(more)
        self._taken.correct(more, taken_ns, now_ns)
        if self._ends_ns is not None and taken_ns >= self._since_ns:
            self._left = min(self._left - more, self.capacity)

    def fail(self, amount: int, taken_ns: int) -> None:
        """The attempt has failed for which so much was taken at `taken_ns`.

        Not every provider counts what it breaks down over, and none says so. Later answers show it; but at the end of a
        window there is none, so what has been shown once is believed until an answer contradicts it.
        """
        if self.kind is not Window.FIXED or self._ends_ns is None or taken_ns < self._since_ns:
            return
        if self._forgives:
            self._put_aside += amount
        else:
            self._resting += amount

    def forgive(self, amount: int, taken_ns: int, now_ns: int) -> None:
        """The call that had failed is in line again, or gone: what its attempt had not really taken was its own."""
        if taken_ns < self._since_ns:
            return
        if amount <= self._resting:
            self._resting -= amount
            self._doubted += amount
        elif amount <= self._put_aside:
            self._put_aside -= amount
            self._forgiven += amount
            self.settle(amount, 0, taken_ns, now_ns)

    def hear(self, reading: Reading, unseen: int, grant: int, taken_ns: int, now_ns: int) -> bool:
        """Learn from the head of an answer; whether it was believed.

        Args:
            unseen: What was taken that the answer cannot know of.
            grant: Which grant it answers, counted up. What answers an older one than the last is old news.
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
        self._likeness.hear(reading, self.quota.window_ns, self._taken.sum(now_ns) - unseen, now_ns)
        self._measure()
        if self.kind is Window.BUCKET:
            # As much of it as has been earned since then is no matter, whether the answer knew of it or not.
            unseen = max(0, unseen - (now_ns - taken_ns) * self.capacity // self.quota.window_ns)
        raise_by = int(self.capacity * RAISE_PER_S * (now_ns - self._heard_ns) / SECOND_NS)
        if raise_by:  # what is less than one is saved up
            self._heard_ns = now_ns
        most = reading.remaining - int(self._room * self.headroom)
        left = most - unseen - reading.rounding
        self._hear_of_others(left, most, raise_by, reading.resets_ns, now_ns)
        self._hear_of_the_end(left, most, raise_by, reading.resets_ns, taken_ns, now_ns)
        if self.kind is Window.BUCKET:
            self._hear_of_the_level(left, raise_by, now_ns)
        return True

    def forget(self) -> None:
        """What answers have told is believed no longer."""
        self._told = self._remaining = self._top = self._ends_ns = self._began_ns = None
        self._foreign = self._more = self._doubted = self._resting = self._put_aside = self._forgiven = 0
        self._forgives, self._as_sent = False, 0
        self._likeness = Likeness()
        self._measure()

    def spent(self, cost: int) -> bool:
        """Whether, by the last answer, so much was not left."""
        return self._remaining is not None and self._remaining < cost

    def refuse(self, wait_ns: int | None, grant: int, latest: int, now_ns: int) -> None:
        """The provider has said no to the call with this grant: its mirror here was off.

        Args:
            wait_ns: When to come back, as the provider says; None: it does not.
            latest: The latest grant of all: what was in flight together tells one piece of news.
        """
        until_ns = now_ns + (wait_ns or 0)
        if self.kind is Window.FIXED and self._ends_ns is not None:
            until_ns = max(until_ns, self._ends_ns)
        self._frozen_until_ns = max(self._frozen_until_ns, until_ns)
        if until_ns > now_ns:
            # There is room then, the provider says; what is known of others is over soon.
            soon_ns = self._frozen_until_ns + self.quota.window_ns // BURST
            self._foreign_until_ns = min(self._foreign_until_ns, soon_ns)
        self._forgives = False
        if grant > self._refused:
            self._refused = latest
            self._raised = min(max(self.headroom * REFUSED, 0.03), max(HEADROOM_MAX, self.headroom))
            self._raised_until_ns = now_ns + REFUSED_WINDOWS * self.quota.window_ns
            self._measure()

    # ---- by kind ----

    def _earned_ns(self, amount: int, now_ns: int) -> int:
        if self._tat_ns <= now_ns:
            return now_ns  # nothing is owed
        # A call larger than the burst goes when nothing is owed, and owes for longer.
        slack_ns = self.time_ns(self._burst - amount) if amount < self._burst else 0
        return max(now_ns, self._tat_ns - slack_ns)

    def _slid_ns(self, amount: int, now_ns: int) -> int:
        others = self._foreign if now_ns < self._foreign_until_ns else 0
        alone_ns = self._taken.at_most_ns(self.capacity - amount, now_ns)
        if not others:
            return alone_ns
        until_ns = max(self._foreign_until_ns, alone_ns)
        if amount + others > self.capacity:
            return until_ns
        return min(self._taken.at_most_ns(self.capacity - amount - others, now_ns), until_ns)

    def _turned_ns(self, amount: int, now_ns: int) -> int:
        assert self._ends_ns is not None
        if now_ns >= self._ends_ns or amount <= self._left:
            return now_ns
        if amount > self._left + self._more:
            return self._ends_ns
        believed_ns = self._more_ns + self._believing_ns(amount - self._left)
        return min(max(now_ns, believed_ns), self._ends_ns)

    def _believing_ns(self, amount: int) -> int:
        """How long it takes until so much more than was thought is believed."""
        return -(-amount * SECOND_NS // max(1, int(self.capacity * RAISE_PER_S)))

    # ---- what an answer says is left ----

    # Nobody says whether what is left was counted when a call came or when it was answered. So it is somewhere between
    # `left`, as if nothing that was granted since were in it, and `most`, as if all of it were; and what we think
    # ourselves is not contradicted by what lies between. To believe the worse regardless would leave unused, in every
    # window, as much as is in flight.

    def _hear_of_others(self, left: int, most: int, raise_by: int, resets_ns: int | None, now_ns: int) -> None:
        others = self._others(now_ns)
        mine = self.capacity - self._taken.sum(now_ns) - others
        if left <= mine <= most:
            return
        if left < mine:
            # It may come back bit by bit, or all at once when the quota is whole: the later is safe.
            window_ns = self.quota.window_ns
            self._foreign_until_ns = now_ns + min(resets_ns or window_ns, window_ns)
            self._foreign = others + mine - left
        else:
            self._foreign = others - min(others, left - mine, raise_by)

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
        if not same:
            self._since_ns = taken_ns
            self._doubted = self._resting = self._put_aside = self._forgiven = 0
        aside = self._put_aside
        if left < most and not self._doubted + self._resting:
            self._as_sent = min(self._as_sent + 1, AS_SENT) if mine == most - aside else 0
        shown = most if self._as_sent >= AS_SENT else left
        mine += self._hear_of_failures(shown - aside - mine, mine - (most - aside))
        left, most = left - self._put_aside, most - self._put_aside
        self._left = mine if left <= mine <= most else min(left, mine + raise_by, self.capacity)
        # The rest of it is believed while time passes, though no answer should come any more to repeat it.
        self._more, self._more_ns = max(0, min(left, self.capacity) - self._left), now_ns
        first, self._ends_ns = self._ends_ns is None, known_ns if same else told_ns
        if first:
            self._measure()

    def _hear_of_failures(self, more: int, less: int) -> int:
        """What is to be given back of what had failed, for it was not counted.

        Args:
            more: What is left at least, beyond what was thought.
            less: What is missing at least of what was thought.
        """
        if more > 0 and self._doubted + self._resting:
            # What calls that are not in line again had taken stays taken, for them.
            self._forgives, aside = True, min(more, self._resting)
            back = min(more - aside, self._doubted)
            self._put_aside, self._forgiven = self._put_aside + aside, self._forgiven + back
            self._resting = self._doubted = 0
            return back
        if less > 0 and self._forgiven:
            self._forgives, self._forgiven, self._put_aside = False, 0, 0
        return 0

    def _hear_of_the_level(self, left: int, raise_by: int, now_ns: int) -> None:
        told_ns = now_ns + self.time_ns(self._depth - min(left, self._depth))
        if told_ns < self._tat_ns:
            told_ns = max(told_ns, self._tat_ns - self.time_ns(raise_by))
        self._tat_ns = told_ns

    def _others(self, now_ns: int) -> int:
        return self._foreign if now_ns < self._foreign_until_ns else 0

    def time_ns(self, amount: int) -> int:
        """How long so much takes to be earned."""
        return amount * self.quota.window_ns // self.capacity
