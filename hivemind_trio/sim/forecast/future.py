"""Future of a live scheduler, in virtual time.

A copy of the scheduler goes on from its own state. Attempts end as attempts have ended lately, failed ones among them,
agents that call now call again, and new agents join them. Calls that have waited for as long as the proxy holds them
are sent away, and come back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Final, final

import attrs

from hivemind_trio.model import Reason, Usage
from hivemind_trio.scheduler import (
    AskBudgets,
    AttemptEnded,
    AttemptResult,
    BudgetsUnanswered,
    Call,
    CallArrived,
    CallCancelled,
    CallId,
    Command,
    CreditDrawn,
    Draw,
    DrawWindow,
    Event,
    Finish,
    Grant,
    Reject,
    ResponseStarted,
    Scheduler,
    SharesSet,
    TimePassed,
    WindowUnanswered,
)
from hivemind_trio.sim.run.event_queue import Agenda

from .habits import Attempts, Habits, Luck
from .spells import group_of

SECOND_NS: Final = 1_000_000_000
FIRST_BYTE: Final = 0.3
"""Part of an answer's time after which its first content is there."""
AWAY_NS: Final = 30 * SECOND_NS
"""Pause of a client that was sent away."""
OWN_IDS: Final = 1 << 60
"""Ids of calls that do not exist are beyond those of calls that do."""


@final
@attrs.frozen(kw_only=True)
class ExpectedAgent:
    """An agent that will call."""

    call: Call
    """Its calls; the id does not matter."""
    output: int | None = None
    """Tokens of its answers; None: as others have had."""
    first_ns: int = 0
    """Time from now until its first call."""
    calls: int | None = None
    """Number of its calls, one after the other; None: it goes on."""


@final
@attrs.define(eq=False, kw_only=True)
class AgentCourse:
    """Course of one expected agent."""

    agent: ExpectedAgent
    waits_ns: list[int] = attrs.field(factory=list)
    """Waits of its calls that were granted."""
    reasons: list[Reason] = attrs.field(factory=list)
    """The same."""
    first_start_ns: int | None = None
    """From now; None: it did not start until the end."""
    ended_ns: int | None = None
    """From now; None: it was not done at the end."""
    rejection: Reject | None = None

    @property
    def longest_wait_ns(self) -> int | None:
        """Longest wait of its calls; None: some call was not served until the end."""
        return max(self.waits_ns) if self.ended_ns is not None and self.waits_ns else None


@final
@attrs.define(eq=False)
class _Actor:
    """An agent in the future."""

    call: Call
    output: int | None
    left: int | None
    course: AgentCourse | None = None
    """None: it is not asked about."""
    gone_ns: int | None = None
    """When its call is sent away if it still waits; None: it waits for ever."""


@final
@attrs.define(eq=False)
class Future:
    """One future.

    Args:
        scheduler: A copy, which is used up.
        habits: Conduct of everybody.
        random: Where chance comes from.
        luck: What decides most; None: by chance.
    """

    scheduler: Scheduler
    habits: Habits
    random: Random
    luck: Luck | None = None
    _attempts: Mapping[str, Attempts] = attrs.field(init=False)
    """By provider."""
    _flying: Counter[str] = attrs.field(factory=Counter, init=False)
    """Attempts in flight by provider."""
    _agenda: Agenda = attrs.field(factory=Agenda, init=False)
    _actors: dict[CallId, _Actor] = attrs.field(factory=dict, init=False)
    """By their call that waits or is in flight."""
    _ids: int = attrs.field(default=OWN_IDS, init=False)
    _alarm_ns: int | None = attrs.field(default=None, init=False)
    _now_ns: int = attrs.field(init=False)
    _open: int = attrs.field(default=0, init=False)
    """Agents that are asked about and not done; in `starts`, calls that still wait."""
    _awaited: set[CallId] = attrs.field(factory=set, init=False)
    """Calls whose starts are asked about."""
    _starts_ns: dict[CallId, int | None] = attrs.field(factory=dict, init=False)
    """Starts of awaited calls, from now; None: it was rejected or sent away before."""

    def __attrs_post_init__(self) -> None:
        books = self.scheduler.state
        self._attempts = self.habits.drawn(self.random, self.luck)
        self._now_ns = self._agenda.now_ns = books.now_ns
        if books.shared.slots is not None:
            self._post(SharesSet(dict(books.shared.slots)))  # nobody renews them here
        for call in books.latecomers.values():
            self._actors[call.id] = _Actor(call, None, None)
        for call_id, waiter in books.waiters.items():
            self._actors[call_id] = _Actor(waiter.call, None, None, gone_ns=_gone_ns(waiter.call, waiter.arrived_ns))
            self._hold(call_id)
        self._flying.update(flight.place.pool.name for flight in books.inflight.values())
        for call_id, flight in books.inflight.items():
            self._actors[call_id] = _Actor(flight.call, None, None, gone_ns=_gone_ns(flight.call, flight.arrived_ns))
            began_ns, provider = flight.granted_ns, flight.place.pool.name
            group = group_of(flight.treatment.group, flight.call.request.model)
            lasted_ns, result = self._of(provider).draw_rest(
                self.random, began_ns, self._now_ns - began_ns, group, self._flying[provider]
            )
            self._agenda.at(began_ns + lasted_ns, self._end_begun, call_id, provider, began_ns, group, result)
        self._arm()

    def expect(self, agent: ExpectedAgent, *, asked: bool = True) -> AgentCourse:
        """Have an agent call, and return its course, which fills up in `run`."""
        course = AgentCourse(agent=agent)
        actor = _Actor(agent.call, agent.output, agent.calls, course if asked else None)
        self._open += asked
        self._agenda.at(self._now_ns + agent.first_ns, self._arrive, actor)
        return course

    @property
    def events(self) -> int:
        """Number of events so far."""
        return self._agenda.happened

    def run(self, horizon_ns: int, most: int) -> bool:
        """Let time pass until all who are asked about are done, or until the horizon.

        Args:
            horizon_ns: From now.
            most: Number of events at most.

        Returns:
            False if there were too many events.
        """
        return not self._agenda.run(self._now_ns + horizon_ns, most)

    def starts(self, horizon_ns: int, most: int) -> Mapping[CallId, int | None]:
        """Let time pass until every call that waits now has started, or until the horizon; return when, from now.

        None is the start of one that was rejected or sent away before.

        Args:
            horizon_ns: From now.
            most: Number of events at most.
        """
        self._awaited = set(self.scheduler.state.waiters)
        self._open += len(self._awaited)
        if self._open:
            self._agenda.run(self._now_ns + horizon_ns, most)
        return self._starts_ns

    def blocks(self, course: AgentCourse) -> Reason:
        """Return the limit for which the agent's call waits at the end, or the one of its longest wait."""
        for call_id, actor in self._actors.items():
            waiter = self.scheduler.state.waiting(call_id)
            if actor.course is course and waiter is not None:
                return waiter.blocked
        waits = sorted(zip(course.waits_ns, course.reasons, strict=True), key=lambda one: one[0])
        return waits[-1][1] if waits else Reason.NONE

    # ---- what happens ----

    def _post(self, event: Event) -> None:
        events = [event]
        while events:
            for command in self.scheduler.handle(events.pop(), self._agenda.now_ns):
                if isinstance(command, Draw):
                    events.append(CreditDrawn(command.account, command.amount))
                else:
                    self._obey(command)
        self._arm()

    def _obey(self, command: Command) -> None:
        match command:
            case Grant():
                self._begin(command)
            case Reject():
                self._rejected(command)
            case Finish(call_id=call_id):
                self._over(call_id)
            case DrawWindow(window=window, seq=seq):
                # Other nodes have no future here: this one goes on with its share, as while the store is away.
                unanswered = WindowUnanswered(window, seq)
                self._agenda.at(self._agenda.now_ns + SECOND_NS, self._post, unanswered)
            case AskBudgets(seq=seq):
                self._agenda.at(self._agenda.now_ns + SECOND_NS, self._post, BudgetsUnanswered(seq))
            case _:
                pass  # limits and accounts are the scheduler's own

    def _arm(self) -> None:
        alarm_ns = self.scheduler.wakeup_ns()
        if alarm_ns is not None and alarm_ns != self._alarm_ns:
            self._alarm_ns = alarm_ns
            self._agenda.at(max(alarm_ns, self._agenda.now_ns), self._ring, alarm_ns)

    def _ring(self, alarm_ns: int) -> None:
        if alarm_ns == self._alarm_ns:
            self._alarm_ns = None
            self._post(TimePassed())

    def _arrive(self, actor: _Actor, *, again: str = "") -> None:
        self._ids += 1
        call = attrs.evolve(actor.call, id=CallId(self._ids), since_ns=None, priority=None, again=again)
        self._actors[call.id] = actor
        actor.gone_ns = None if actor.course is not None else _gone_ns(call, self._agenda.now_ns)
        self._post(CallArrived(call))
        self._hold(call.id)

    def _hold(self, call_id: CallId) -> None:
        """Send a call away if it waits for too long."""
        actor = self._actors.get(call_id)
        if actor is not None and actor.gone_ns is not None and self.scheduler.state.waiting(call_id) is not None:
            self._agenda.at(max(self._agenda.now_ns, actor.gone_ns), self._send_away, call_id)

    def _send_away(self, call_id: CallId) -> None:
        if self.scheduler.state.waiting(call_id) is None:
            return
        actor = self._actors.pop(call_id)
        if call_id in self._awaited:
            self._starts_ns[call_id] = None
            self._settled(call_id)
        self._post(CallCancelled(call_id))
        self._agenda.at(self._agenda.now_ns + AWAY_NS, partial(self._arrive, actor, again=actor.call.again))

    def _begin(self, grant: Grant) -> None:
        now_ns, provider = self._agenda.now_ns, grant.treatment.provider or ""
        actor = self._actors[grant.call_id]
        course = actor.course
        if course is not None:
            course.waits_ns.append(grant.waited_ns)
            course.reasons.append(grant.reason)
            if course.first_start_ns is None:
                course.first_start_ns = now_ns - self._now_ns
        if grant.call_id in self._awaited:
            self._starts_ns[grant.call_id] = now_ns - self._now_ns
            self._settled(grant.call_id)
        if grant.permit is not None:
            self._flying[provider] += 1
        group, load = group_of(grant.treatment.group, actor.call.request.model), max(1, self._flying[provider])
        took_ns, result = self._of(provider).draw(self.random, now_ns, group, load)
        if grant.permit is None:
            self._agenda.at(now_ns + took_ns, self._over, grant.call_id)
            return
        if result.committed:
            self._agenda.at(now_ns + round(took_ns * FIRST_BYTE), self._hear, grant.call_id)
        self._agenda.at(now_ns + took_ns, self._end, grant.call_id, provider, result)

    def _of(self, provider: str) -> Attempts:
        return self._attempts.get(provider) or self._attempts[""]

    def _hear(self, call_id: CallId) -> None:
        self._post(ResponseStarted(call_id, ()))

    def _end_begun(self, call_id: CallId, provider: str, began_ns: int, group: str, result: AttemptResult) -> None:
        self._of(provider).ended(began_ns, result, self.random, group)
        self._end(call_id, provider, result)

    def _end(self, call_id: CallId, provider: str, result: AttemptResult) -> None:
        actor = self._actors[call_id]
        self._flying[provider] -= 1
        if result.usage is not None:
            output = actor.output if actor.output is not None else result.usage.output
            result = attrs.evolve(result, usage=Usage(input=actor.call.request.tokens_in, output=output))
        self._post(AttemptEnded(call_id, result))
        if result.committed:
            self._over(call_id)
        else:
            self._hold(call_id)

    def _rejected(self, reject: Reject) -> None:
        actor = self._actors.pop(reject.call_id)
        if reject.call_id in self._awaited:
            self._starts_ns[reject.call_id] = None
            self._settled(reject.call_id)
        if actor.course is not None:
            actor.course.rejection = reject
            self._done()
        elif reject.retry_after_ns is not None:
            self._agenda.at(self._agenda.now_ns + max(SECOND_NS, reject.retry_after_ns), self._arrive, actor)

    def _over(self, call_id: CallId) -> None:
        actor = self._actors.pop(call_id)
        if actor.left is not None:
            actor.left -= 1
            if not actor.left:
                if actor.course is not None:
                    actor.course.ended_ns = self._agenda.now_ns - self._now_ns
                    self._done()
                return
        gap_ns = self.habits.gap_ns(self.random, stays=actor.left is not None)
        if gap_ns is not None:
            self._agenda.at(self._agenda.now_ns + gap_ns, self._arrive, actor)

    def _settled(self, call_id: CallId) -> None:
        self._awaited.discard(call_id)
        self._done()

    def _done(self) -> None:
        self._open -= 1
        if not self._open:
            self._agenda.close()


def _gone_ns(call: Call, arrived_ns: int) -> int | None:
    return None if call.held_ns is None else arrived_ns + call.held_ns
