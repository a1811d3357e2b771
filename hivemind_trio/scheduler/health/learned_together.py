"""Attempts of one node among several that learn of a provider together.

No node learns from its own attempts by itself. It reports them, and the node that leads goes through all reports in the
order in which things happened, as one node would that had all attempts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import attrs

from hivemind_trio.model import Outcome, Usage
from hivemind_trio.scheduler.learning.lesson import LearnAnswer, LearnAsk, Lesson, Report, SharedVerdict
from hivemind_trio.scheduler.learning.pool_learning import MS, PoolLearning, RemoteCalls
from hivemind_trio.scheduler.protocol.attempt_result import BROKEN, HEALTHY, AttemptResult
from hivemind_trio.scheduler.protocol.call import CallId


@final
@attrs.frozen(kw_only=True)
class AttemptStep:
    """One step of an attempt at some node, as the node that leads has to learn from it."""

    call_id: CallId
    """Unlike every other attempt's, whichever node it is from."""
    at_ns: int
    lesson: Lesson
    inflight: int
    """Attempts in flight at all nodes, this one included."""


@final
@attrs.define
class _Untold:
    """Attempt in flight of which nothing has been reported."""

    granted_ns: int
    accepted_ns: int | None = None
    """When its answer began; None: it has not."""

    @property
    def lessons(self) -> int:
        """Number of lessons that tell of it."""
        return 1 if self.accepted_ns is None else 2


@final
@attrs.define(eq=False)
class LearnedTogether:
    """Attempts in flight of this node, and what is reported of them.

    Args:
        link: Its reports to the store.
    """

    link: PoolLearning
    probe: CallId | None = attrs.field(init=False, default=None)
    """Own call in flight that is the probe of the half-open circuit."""
    failed_probe: CallId | None = attrs.field(init=False, default=None)
    """The probe of this node that failed last."""
    begun: dict[CallId, None] = attrs.field(init=False, factory=dict)
    """Own attempts in flight whose answer has begun."""
    _probes: dict[CallId, None] = attrs.field(init=False, factory=dict)
    """Own attempts in flight that were granted as the probe."""
    _untold: dict[CallId, _Untold] = attrs.field(init=False, factory=dict)
    """Those at a fixed limit: of one that ends well before the next report, only the end is reported."""
    _numbers: RemoteCalls = attrs.field(init=False, factory=RemoteCalls)
    _sent_ns: int = attrs.field(init=False, default=0)
    """When the report under way was sent."""

    @property
    def may_probe(self) -> bool:
        """True if the next call may be the one probe of all nodes."""
        return self.link.has_token

    def on_granted(self, call_id: CallId, now_ns: int, *, is_probe: bool, learns: bool) -> None:
        """Count an attempt that begins.

        Args:
            learns: The limit is learned: every step counts, for all of them are of attempts in flight together.
        """
        if is_probe:
            self._probes[call_id] = None
            self.probe, self.link.has_token = call_id, False
        if learns or is_probe:
            self._add(call_id, "granted", now_ns, urgent=False)
        else:
            self._untold[call_id] = _Untold(now_ns)

    def on_good(self, call_id: CallId, now_ns: int) -> None:
        """Note that an answer has begun well."""
        self.begun[call_id] = None
        untold = self._untold.get(call_id)
        if untold is not None:
            untold.accepted_ns = now_ns
        else:
            self._add(call_id, "accepted", now_ns, urgent=call_id == self.probe)

    def on_ended(self, call_id: CallId, ended: AttemptResult, granted_ns: int, now_ns: int) -> bool:
        """Note the end of an attempt. Return True if it was the probe."""
        was_probe = call_id == self.probe
        urgent = was_probe or ended.outcome in BROKEN or ended.outcome is Outcome.CONCURRENCY
        untold = self._untold.pop(call_id, None)
        is_whole = untold is not None and ended.outcome in HEALTHY
        if untold is not None and not is_whole:
            self._tell(call_id, untold)
        kind = "served" if is_whole else "ended"
        self._add(call_id, kind, now_ns, urgent=urgent, ended=ended, lasted_ns=now_ns - granted_ns)
        self._probes.pop(call_id, None)
        self.begun.pop(call_id, None)
        if was_probe:
            self.probe = None
            if ended.outcome in BROKEN:
                self.failed_probe = call_id
        return was_probe

    def _tell(self, call_id: CallId, untold: _Untold) -> None:
        self._add(call_id, "granted", untold.granted_ns, urgent=False)
        if untold.accepted_ns is not None:
            self._add(call_id, "accepted", untold.accepted_ns, urgent=False)

    def ask(
        self, verdict: SharedVerdict, now_ns: int, *, held: int, binds: bool, wants_probe: bool, learns: bool
    ) -> LearnAsk | None:
        """Return the report that is due now; None: none is. See `PoolLearning.ask`."""
        wants_probe = wants_probe and self.probe is None
        if not self.link.is_due(verdict, now_ns, binds=binds, wants_probe=wants_probe, learns=learns):
            return None
        for call_id, untold in list(self._untold.items()):
            if self.link.room < untold.lessons:
                break  # the next report has it, if it has not ended by then
            self._tell(call_id, untold)
            del self._untold[call_id]
        self._sent_ns = now_ns
        return self.link.ask(
            verdict,
            now_ns,
            held=held,
            binds=binds and learns,
            wants_probe=wants_probe,
            probes=self.probe is not None,
        )

    def leave(self) -> None:
        """Report no more of the attempts in flight: this node is alone."""
        self._untold.clear()
        self.begun.clear()

    def steps(self, answer: LearnAnswer, own: LearnAsk, now_ns: int) -> Iterator[AttemptStep]:
        """Return the steps of all nodes' attempts since the last answer, in the order in which they happened.

        Args:
            answer: The reports of the others.
            own: The report of this node that it answers.
        """
        mine = Report(node="", epoch=0, held=own.held, binds=own.binds, lessons=own.lessons)
        late_ms = (now_ns - self._sent_ns) // MS
        found: list[tuple[int, int, Report, Lesson]] = []
        for report in (mine, *answer.reports):
            for lesson in report.lessons:
                age_ms = lesson.age_ms + (late_ms if report is mine else 0)
                found.append((now_ns - age_ms * MS, len(found), report, lesson))
        found.sort(key=lambda one: one[:2])
        changes = {"granted": 1, "ended": -1}
        inflight = sum(report.held for report in (mine, *answer.reports))
        inflight -= sum(changes.get(lesson.kind, 0) for _, _, _, lesson in found)
        for at_ns, _, report, lesson in found:
            inflight += lesson.kind == "granted"
            number = CallId(self._numbers.number(report, lesson.call))
            yield AttemptStep(call_id=number, at_ns=at_ns, lesson=lesson, inflight=max(1, inflight))
            inflight -= lesson.kind == "ended"
            if lesson.kind in ("ended", "served"):
                self._numbers.ended(report, lesson.call)

    def lost(self, answer: LearnAnswer, own: LearnAsk) -> list[CallId]:
        """Forget the attempts whose end was not reported, and return them."""
        mine = Report(node="", epoch=0, held=own.held, binds=own.binds, lessons=())
        return [CallId(number) for number in self._numbers.lost((mine, *answer.reports))]

    def _add(
        self,
        call_id: CallId,
        kind: str,
        now_ns: int,
        *,
        urgent: bool,
        ended: AttemptResult | None = None,
        lasted_ns: int = 0,
    ) -> None:
        said_ns = ended.retry_after_ns if ended is not None else None
        usage = ended.usage if ended is not None else None
        lesson = Lesson(
            call=call_id,
            age_ms=0,
            kind=kind,
            lasted_ms=lasted_ns // MS,
            is_probe=call_id in self._probes,
            outcome=ended.outcome if ended is not None else "",
            said_ms=said_ns // MS if said_ns is not None else -1,
            tokens=usage.output if usage is not None else 0,
        )
        self.link.add(lesson, now_ns, urgent=urgent)


def result_of(lesson: Lesson) -> AttemptResult:
    """Return the result of an attempt that has ended at some node, as far as it teaches."""
    return AttemptResult(
        outcome=Outcome(lesson.outcome),
        retry_after_ns=lesson.said_ms * MS if lesson.said_ms >= 0 else None,
        usage=Usage(output=lesson.tokens) if lesson.tokens else None,
    )
