"""Two references of one drawing: a lower bound on the makespan, and the best order known without hints.

The bound is Jackson's for one machine with delivery times, per resource (Carlier, "The one-machine sequencing problem",
1982), as in
`hivemind_trio/sim/bound/lower_bound.py`, over the supply curves of this provider. It leaves out failures, other users
and refused requests, which only take time.

The order knows the provider's limits and not the jobs: it asks as soon as the first call in line would be admitted. It
meets the same failures as everybody, and pauses for a second after each. It is run first come first served and least
attained service first; the better one counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, final

import attrs

from hivemind_trio.model import Dimension as Counted

from .provider import SECOND_NS, Ask, Charge, Kind, Provider, Quota, Traits
from .run import BROKEN_RETRIES, Attempt, Drawing, End, How, Job, Loop, Turn

CUTS: Final = 64
LOST_MIN_NS: Final = 30 * SECOND_NS
LOST_MAX_NS: Final = 300 * SECOND_NS
SAMPLES_MIN: Final = 20
"""Nobody knows what is usual before so many answers: until then silence is borne for `LOST_MAX_NS`, and later for four
times what was needed so far, `LOST_MIN_NS` at least."""
PAUSE_NS: Final = SECOND_NS
"""Before a call is sent again that failed: no order hammers."""


# ---- the bound ----


@final
@attrs.frozen
class _Step:
    turn: Turn
    head_ns: int
    """Earliest time of its request."""
    tail_ns: int
    """From its admission to the end of its job, at least."""
    work_ns: int


@final
@attrs.frozen(kw_only=True)
class Bound:
    """A lower bound on the makespan."""

    ns: int
    binds: str


def lower_bound(drawing: Drawing) -> Bound:
    """The largest of several bounds."""
    traits = drawing.traits
    steps: list[_Step] = []
    bounds = {"chain": 0}
    for job in drawing.jobs:
        own, end_ns = _chained(job, traits)
        steps += own
        bounds["chain"] = max(bounds["chain"], end_ns)
    bounds["concurrency"] = _through(steps, traits, len(drawing.jobs))
    for group in range(traits.groups - traits.unlimited):
        there = [step for step in steps if step.turn.ask.group == group]
        for quota in traits.quotas:
            name = quota.counted.value
            bounds[name] = max(bounds.get(name, 0), _let_in(there, traits, quota, len(drawing.jobs)))
    binds = max(bounds, key=bounds.__getitem__)
    return Bound(ns=bounds[binds], binds=binds)


def _opened_ns(at_ns: int, traits: Traits) -> int:
    """The first time from `at_ns` on at which anything is admitted."""
    moved = True
    while moved:
        moved = False
        for storm in traits.storms:
            if storm.share >= 1 and storm.from_ns <= at_ns < storm.to_ns:
                at_ns, moved = storm.to_ns, True
    return at_ns


def _chained(job: Job, traits: Traits) -> tuple[list[_Step], int]:
    heads, at_ns = [], job.start_ns
    for turn in job.turns:
        at_ns = _opened_ns(at_ns + turn.think_ns, traits)
        heads.append(at_ns)
        at_ns += traits.work_ns(turn.ask.tokens_out)
    steps, tail_ns = [], 0
    for turn, head_ns in zip(reversed(job.turns), reversed(heads), strict=True):
        work_ns = traits.work_ns(turn.ask.tokens_out)
        tail_ns += work_ns
        steps.append(_Step(turn, head_ns, tail_ns, work_ns))
        tail_ns += turn.think_ns
    return steps, at_ns


def _cuts(steps: Sequence[_Step]) -> Iterator[tuple[int, Sequence[_Step]]]:
    """Tails, and the calls whose own is at least as long."""
    ordered = sorted(steps, key=lambda step: step.tail_ns, reverse=True)
    every = max(1, len(ordered) // CUTS)
    for end in range(len(ordered) - 1, -1, -every)[::-1]:
        yield ordered[end].tail_ns, ordered[: end + 1]


def _through(steps: Sequence[_Step], traits: Traits, agents: int) -> int:
    """When all service time can have been given, and what follows it."""
    most = max((cap for _, cap in traits.caps), default=agents)
    best = max(count / traits.slowdown(count) for count in range(1, min(most, agents) + 1))
    bound_ns = 0.0
    for _, some in _cuts(steps):
        after_ns = min(step.tail_ns - step.work_ns for step in some)
        work_ns = sum(step.work_ns for step in some)
        bound_ns = max(bound_ns, min(step.head_ns for step in some) + work_ns / best + after_ns)
    return int(bound_ns)


def _let_in(steps: Sequence[_Step], traits: Traits, quota: Quota, agents: int) -> int:
    """When a quota can have admitted all of them, and what follows."""
    late = quota.counted in (Counted.OUTPUT, Counted.TOKENS) and traits.charge is not Charge.BEFORE
    bound_ns = 0
    for tail_ns, some in _cuts(steps):
        amounts = [_amount(step.turn.ask, traits, quota) for step in some]
        # Of what is charged late, one answer of each agent may not have been charged yet.
        beyond = sum(sorted(amounts)[-agents:]) if late else 0
        admitted_ns = _supplied_ns(sum(amounts), quota, beyond)
        bound_ns = max(bound_ns, _opened_ns(admitted_ns, traits) + tail_ns)
    return bound_ns


def _amount(ask: Ask, traits: Traits, quota: Quota) -> int:
    output = ask.tokens_max if traits.charge is Charge.BEFORE else ask.tokens_out
    match quota.counted:
        case Counted.REQUESTS:
            amount = 1
        case Counted.INPUT:
            amount = ask.tokens_in
        case Counted.OUTPUT:
            amount = output
        case Counted.TOKENS:
            amount = ask.tokens_in + output
    return min(amount, quota.size)


def _supplied_ns(needed: int, quota: Quota, beyond: int) -> int:
    """The first time at which so much can have been admitted in all."""
    if quota.kind in (Kind.BUCKET, Kind.GCRA):
        return int(max(0.0, needed - beyond - quota.size) / quota.rate)
    windows = 0
    allowed = quota.limit + beyond
    left = needed - allowed
    while left > 0:
        windows += 1
        left -= allowed
    if not windows:
        return 0
    phase_ns = 0 if quota.from_first or quota.kind is Kind.ROLLING else quota.phase_ns
    return windows * quota.window_ns - phase_ns


# ---- the order ----


@final
@attrs.frozen(kw_only=True)
class Order:
    """What the order without hints came to."""

    makespan_ns: int
    waited_ns: int
    """The longest that a client waited for content."""
    finished: bool
    """Every agent is done."""


def hint_free(drawing: Drawing, until_ns: int) -> Order:
    """The better of two orders: one that nobody waits too long in, if there is one."""
    orders = [_Ordering(drawing, fair).run(until_ns) for fair in (False, True)]
    return min(
        orders,
        key=lambda order: (not order.finished, order.waited_ns > drawing.patience_ns, order.makespan_ns),
    )


@attrs.define(eq=False)
class _Going:
    job: Job
    number: int
    had: int = 0
    asked_ns: int = 0
    broken: int = 0

    @property
    def ask(self) -> Ask:
        return self.job.turns[self.had].ask


@attrs.define(eq=False)
class _Ordering:
    """One run of the order."""

    drawing: Drawing
    fair: bool
    """Least attained service first; else first come first served."""
    loop: Loop = attrs.field(init=False)
    _lines: list[list[tuple[int, int, int]]] = attrs.field(init=False)
    _goings: list[_Going] = attrs.field(init=False)
    _inflight: int = attrs.field(init=False, default=0)
    _most: int = attrs.field(init=False)
    _left: int = attrs.field(init=False)
    _waited_ns: int = attrs.field(init=False, default=0)
    _alarm_ns: int | None = attrs.field(init=False, default=None)
    _ended_ns: int = attrs.field(init=False, default=0)
    _samples: int = attrs.field(init=False, default=0)
    _slowest_ns: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        traits = self.drawing.traits
        self.loop = Loop(Provider(traits, self.drawing.seed))
        self._lines = [[] for _ in range(traits.groups)]
        self._goings = [_Going(job, number) for number, job in enumerate(self.drawing.jobs)]
        self._most = traits.best_inflight(len(self._goings))
        self._left = len(self._goings)

    def run(self, until_ns: int) -> Order:
        for going in self._goings:
            self.loop.at(going.job.start_ns + going.job.turns[0].think_ns, self._ask, going)
        self.loop.run(until_ns)
        return Order(makespan_ns=self._ended_ns, waited_ns=self._waited_ns, finished=not self._left)

    def _ask(self, going: _Going) -> None:
        going.asked_ns = self.loop.now_ns
        self._enter(going)

    def _enter(self, going: _Going) -> None:
        rank = going.had if self.fair else 0
        heappush(self._lines[going.ask.group], (rank, going.asked_ns, going.number))
        # All who come at one instant are in line before one of them is served.
        self._wake(self.loop.now_ns)

    def _wake(self, at_ns: int) -> None:
        if self._alarm_ns is None or at_ns < self._alarm_ns or self._alarm_ns < self.loop.now_ns:
            self._alarm_ns = at_ns
            self.loop.at(at_ns, self._look, at_ns)

    def _look(self, alarm_ns: int) -> None:
        if alarm_ns == self._alarm_ns:
            self._alarm_ns = None
        provider, now_ns = self.loop.provider, self.loop.now_ns
        wakes: list[int] = []
        for line in self._lines:
            while line and self._inflight < self._most:
                going = self._goings[line[0][2]]
                ready_ns = provider.ready_ns(going.ask, now_ns)
                if ready_ns is None:
                    wakes.append(now_ns + SECOND_NS)  # a cap may rise before anything ends
                    break
                if ready_ns > now_ns:
                    wakes.append(ready_ns)
                    break
                heappop(line)
                self._begin(going)
        if wakes:
            self._wake(min(wakes))

    def _begin(self, going: _Going) -> None:
        began_ns = self.loop.now_ns
        lost_ns = (
            min(LOST_MAX_NS, self.drawing.patience_ns)
            if self._samples < SAMPLES_MIN
            else max(LOST_MIN_NS, 4 * self._slowest_ns)
        )
        self._inflight += 1
        Attempt(
            self.loop,
            going.ask,
            lambda end: self._over(going, end),
            first_byte_ns=lost_ns,
            idle_ns=lost_ns,
            total_ns=1 << 62,
            contented=lambda: self._contented(going, began_ns),
        ).begin()

    def _contented(self, going: _Going, began_ns: int) -> None:
        now_ns = self.loop.now_ns
        self._waited_ns = max(self._waited_ns, now_ns - going.asked_ns)
        self._slowest_ns = max(self._slowest_ns, now_ns - began_ns)
        self._samples += 1

    def _over(self, going: _Going, end: End) -> None:
        now_ns = self.loop.now_ns
        self._inflight -= 1
        if end.how is How.WHOLE:
            going.had += 1
            going.broken = 0
            if going.had < len(going.job.turns):
                self.loop.at(now_ns + going.job.turns[going.had].think_ns, self._ask, going)
            else:
                self._left -= 1
                self._ended_ns = now_ns
                self.loop.over = not self._left
        else:
            if end.content:
                going.asked_ns = now_ns
                going.broken += 1
            if going.broken <= BROKEN_RETRIES:
                self.loop.at(now_ns + PAUSE_NS, self._enter, going)  # else its agent dies, whatever the order
        self._wake(now_ns)
