"""A node's side of one provider's learned state: its role, the lessons it has not reported, and when it reports.

A node that leads learns from its own attempts and from the reports of the others, which follow its verdict. A node that
has not heard of the store for some time is alone, and learns for itself.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import Final, final

import attrs

from .lesson import LESSONS_MAX, LearnAnswer, LearnAsk, Lesson, Report, SharedVerdict

MS: Final = 1_000_000

APART_NS: Final = 20 * MS
"""Between two reports."""

BATCH_NS: Final = 100 * MS
"""Between two reports while the limit binds and nothing is urgent."""

SETTLE_NS: Final = 10 * MS
"""Time that the node that leads leaves the others to report, once one of them has something to say."""

RETRY_NS: Final = 500 * MS
"""After a report without an answer."""

STEP: Final = 8
"""A report raises the limit by a share of it: one node alone would hear of a refusal before it sent the next call."""

KEEP_NS: Final = 250 * MS
"""Time after a refusal for which its slot is not used again, so that all nodes hear of it first."""

IDLE: Final = 2
"""Longest time between two reports that nothing depends on, in those of others; a leader is followed for three."""

MANY: Final = LESSONS_MAX // 4
"""Lessons that do not wait for the next report that is due."""

FILL: Final = LESSONS_MAX // 2
"""Lessons up to which attempts in flight fill a report: two in a row fit where lessons are kept, so what has ended,
a failure above all, is not dropped for them.
"""


@final
class LearningRole(Enum):
    """Part of a node in what is learned."""

    ALONE = auto()
    FOLLOWS = auto()
    LEADS = auto()


@final
@attrs.define(eq=False)
class PoolLearning:
    """Times are nanoseconds of the scheduler.

    Args:
        renew_ns: Longest time between two reports while lessons wait for a limit that is learned.
        alone_ns: Silence of the store after which the node learns for itself.
    """

    renew_ns: int
    alone_ns: int
    role: LearningRole = attrs.field(init=False, default=LearningRole.ALONE)
    has_token: bool = attrs.field(init=False, default=False)
    """The next call may be the probe of the half-open circuit."""
    _kept: tuple[int, int] | None = attrs.field(init=False, default=None)
    """Attempts that remained in flight here when others were refused, and until when no more are sent."""
    _pending: deque[tuple[int, Lesson]] = attrs.field(init=False, factory=lambda: deque(maxlen=LESSONS_MAX))
    """When, and the lesson; its age is told when it is sent."""
    _urgent: bool = attrs.field(init=False, default=False)
    _called: bool = attrs.field(init=False, default=False)
    """Another node has something to say."""
    _seq: int = attrs.field(init=False, default=0)
    _sent: LearnAsk | None = attrs.field(init=False, default=None)
    """The report under way."""
    _sent_ns: int | None = attrs.field(init=False, default=None)
    """When the last report was sent."""
    _failed: bool = attrs.field(init=False, default=False)
    """The last report has had no answer."""
    _answered_ns: int = attrs.field(init=False, default=0)
    """When the last report that was answered was sent."""
    _told: SharedVerdict | None = attrs.field(init=False, default=None)
    """SharedVerdict that the store has of this node."""
    _others_bind: bool = attrs.field(init=False, default=False)
    """Calls wait at other nodes for a higher limit, as far as the node that leads knows."""
    _called_ns: int = attrs.field(init=False, default=0)
    """When another node last had something to say."""
    _asked: tuple[bool, bool] = attrs.field(init=False, default=(False, False))
    """`binds` and `wants_probe` as they were reported last."""
    _due_ns: int | None = attrs.field(init=False, default=0)
    """When the next report is due, as of the last look; 0: something has happened since; None: one is under way."""
    _looked: tuple[SharedVerdict, bool, bool, bool] | None = attrs.field(init=False, default=None)
    """Verdict, `binds`, `wants_probe` and `learns` of the last look."""

    @property
    def is_alone(self) -> bool:
        """True if nothing is learned with other nodes."""
        return self.role is LearningRole.ALONE

    @property
    def room(self) -> int:
        """Lessons about attempts in flight that the next report has room for."""
        return max(0, FILL - len(self._pending))

    @property
    def kept(self) -> int | None:
        """Most attempts in flight at this node for now; None: its share."""
        return self._kept[0] if self._kept is not None else None

    def keep(self, number: int, now_ns: int) -> None:
        """Use no slot again whose attempt was refused until the other nodes have heard of it.

        Args:
            number: Attempts that remain in flight.
        """
        if not self.is_alone:
            number = number if self._kept is None else min(number, self._kept[0])
            self._kept = number, now_ns + KEEP_NS

    def opens(self, now_ns: int) -> bool:
        """Return True if slots may be used again whose attempts were refused."""
        if self._kept is None or now_ns < self._kept[1]:
            return False
        self._kept = None
        return True

    def add(self, lesson: Lesson, now_ns: int, *, urgent: bool) -> None:
        """Note a lesson for the node that leads."""
        if not self.is_alone:
            self._pending.append((now_ns, lesson))
            if urgent or len(self._pending) in (1, MANY):
                self._urgent |= urgent
                self._look_again()

    def called(self, now_ns: int) -> None:
        """Note that another node has something to say, or wants to hear of this one's attempts."""
        if not self._called:
            self._called, self._called_ns = True, now_ns
            self._look_again()

    def _look_again(self) -> None:
        if self._due_ns is not None:
            self._due_ns = 0

    def is_due(self, verdict: SharedVerdict, now_ns: int, *, binds: bool, wants_probe: bool, learns: bool) -> bool:
        """Return True if a report is due now.

        Args:
            verdict: As this node believes it; the same object while it is the same.
            now_ns: Now.
            binds: Calls wait here for a higher limit.
            wants_probe: A call waits here for a circuit that is half-open.
            learns: The limit is learned.
        """
        if self._sent is not None:
            return False
        looked = self._looked
        is_known = looked is not None and looked[0] is verdict and looked[1:] == (binds, wants_probe, learns)
        if not is_known or self._due_ns is None or now_ns >= self._due_ns:
            self._looked = verdict, binds, wants_probe, learns
            self._due_ns = self._next_ns(verdict, binds and learns, wants_probe and not self.has_token, learns)
        return now_ns >= self._due_ns

    def ask(
        self, verdict: SharedVerdict, now_ns: int, *, held: int, binds: bool, wants_probe: bool, probes: bool
    ) -> LearnAsk:
        """Return the report that is due.

        Args:
            verdict: As in `is_due`.
            now_ns: Now.
            held: Attempts in flight here.
            binds: Calls wait here for a higher limit, and the limit is learned.
            wants_probe: As in `is_due`.
            probes: A call of this node is the probe.
        """
        verdict = self._paced(verdict)
        self._seq += 1
        lessons = tuple(attrs.evolve(lesson, age_ms=(now_ns - at_ns) // MS) for at_ns, lesson in self._pending)
        self._pending.clear()
        self._sent = LearnAsk(
            node="",
            epoch=0,
            seq=self._seq,
            held=held,
            binds=binds,
            lessons=lessons,
            urgent=self._urgent or (binds and not self._asked[0]),
            verdict=verdict,
            leads=self.role is LearningRole.LEADS,
            wants_probe=wants_probe,
            probes=probes or self.has_token,
        )
        self._asked = binds, wants_probe
        self._sent_ns, self._urgent, self._called, self._due_ns = now_ns, False, False, None
        return self._sent

    def answered(self, answer: LearnAnswer) -> LearnAsk | None:
        """Take the store's answer. Return the report that it is to; None: none that is under way."""
        sent = self._sent
        if sent is None or answer.seq != sent.seq or self._sent_ns is None:
            return None
        if sent.leads and answer.leads:
            self._told = sent.verdict
        self._sent, self._failed, self._answered_ns = None, False, self._sent_ns
        self.role = LearningRole.LEADS if answer.leads else LearningRole.FOLLOWS
        self._others_bind = any(one.binds for one in answer.reports)
        if self.role is not LearningRole.LEADS:
            self._told = None
        self._due_ns = 0
        return sent

    def unanswered(self, seq: int, now_ns: int) -> None:
        """Note that a report has had no answer in time: its lessons are lost, unless they are for this node."""
        if self._sent is not None and self._sent.seq == seq:
            if self._sent.leads and self._sent_ns is not None:
                sent_ns = self._sent_ns
                kept = [(sent_ns - one.age_ms * MS, one) for one in self._sent.lessons]
                self._pending = deque((*kept, *self._pending), maxlen=LESSONS_MAX)
            self._sent, self._failed, self._sent_ns, self._due_ns = None, True, now_ns, 0

    def ends(self, now_ns: int) -> bool:
        """Return True if the node is alone from now on."""
        if self.role is LearningRole.ALONE or now_ns < self._answered_ns + self.alone_ns:
            return False
        self.role, self.has_token, self._told = LearningRole.ALONE, False, None
        self._others_bind = False
        self._pending.clear()
        self._look_again()
        return True

    def wakes_ns(self) -> int | None:
        """Return when time alone next matters."""
        times = [] if self.role is LearningRole.ALONE else [self._answered_ns + self.alone_ns]
        if self._due_ns is not None:
            times.append(self._due_ns)
        if self._kept is not None:
            times.append(self._kept[1])
        return min(times, default=None)

    def _next_ns(self, verdict: SharedVerdict, binds: bool, lacks_probe: bool, learns: bool) -> int:
        if self._sent_ns is None:
            return 0
        if self._failed:
            return self._sent_ns + min(RETRY_NS, self.renew_ns)
        news = (binds and not self._asked[0]) or (lacks_probe and not self._asked[1])
        if self._called and self.role is LearningRole.LEADS:
            # The others are called as well: their reports are to be there.
            return max(self._sent_ns + APART_NS, self._called_ns + SETTLE_NS)
        if self._urgent or self._called or news or len(self._pending) >= MANY or self._is_lower(verdict):
            return self._sent_ns + APART_NS
        has_news = bool(self._pending) or self.role is LearningRole.LEADS
        if (learns and has_news and (binds or self._others_bind)) or self._differs(verdict):
            return self._sent_ns + min(BATCH_NS, self.renew_ns)
        return self._sent_ns + (self.renew_ns if learns and self._pending else IDLE * self.renew_ns)

    def _paced(self, verdict: SharedVerdict) -> SharedVerdict:
        """Return the verdict as it is told: what it raises is raised in steps, each of which refusals may stop."""
        told = self._told
        if told is None or verdict.limit <= told.limit or not told.limit:
            return verdict
        if self._called or self._urgent:
            return attrs.evolve(verdict, limit=told.limit)  # what is to be heard first may be a refusal
        return attrs.evolve(verdict, limit=min(verdict.limit, told.limit + max(1, told.limit // STEP)))

    def _is_lower(self, verdict: SharedVerdict) -> bool:
        """Return True if the other nodes are to hear of it at once: fewer slots, or another circuit."""
        if self.role is not LearningRole.LEADS:
            return False
        told = self._told
        return told is None or verdict.limit < told.limit or verdict.circuit != told.circuit

    def _differs(self, verdict: SharedVerdict) -> bool:
        told = self._told
        return self.role is LearningRole.LEADS and (
            told is None or (verdict.limit, verdict.doubling) != (told.limit, told.doubling)
        )


@final
@attrs.define(eq=False)
class RemoteCalls:
    """Numbers for the attempts of other nodes, at the node that leads: none is an own call's."""

    _numbers: dict[tuple[str, int], dict[int, int]] = attrs.field(init=False, factory=dict)
    """(Node, its start) -> call there -> number here, oldest first."""
    _last: int = attrs.field(init=False, default=0)

    def number(self, report: Report, call: int) -> int:
        """Return the number of an attempt."""
        numbers = self._numbers.setdefault((report.node, report.epoch), {})
        if call not in numbers:
            self._last -= 1
            numbers[call] = self._last
        return numbers[call]

    def ended(self, report: Report, call: int) -> None:
        """Forget an attempt."""
        self._numbers.get((report.node, report.epoch), {}).pop(call, None)

    def lost(self, reports: tuple[Report, ...]) -> list[int]:
        """Forget the attempts whose end was not reported, and return their numbers."""
        held = {(one.node, one.epoch): one.held for one in reports}
        lost = []
        for key, numbers in list(self._numbers.items()):
            for call in list(numbers)[: max(0, len(numbers) - held.get(key, 0))]:
                lost.append(numbers.pop(call))
            if key not in held:
                del self._numbers[key]
        return lost
