"""Operations that only look."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, final

import attrs
import msgspec
import trio

from hivemind_trio.model import WAITS, Reason
from hivemind_trio.policy import Program, counted_apart
from hivemind_trio.proxy import Exchange
from hivemind_trio.scheduler import AccountSnapshot, CallInFlight, Circuit, QueuedCall, Snapshot

from .forecasts.starts import first_and_last, start_of, starts_of
from .history import DatedStarts, EndedCall
from .hour import session_of
from .operated import SECOND_NS, KnownFleet, NoArguments, Operated, seconds
from .policy_keeper import ReloadResult
from .problems import OperationFailed, ProblemKind
from .provider import no_provider, pools_of, provider_view, senders_of
from .views import (
    AgentLimitView,
    BudgetsView,
    BudgetView,
    CallCounts,
    CallState,
    CallsView,
    CallView,
    JournalBehindView,
    LaneView,
    LaneWaitView,
    NodeState,
    NodeView,
    NoticeView,
    PolicyView,
    QueueRow,
    QueueView,
    SessionView,
    StatusView,
    WaitingAgentView,
)

NOTICES_MAX: Final = 4
SHOWN_MAX: Final = 100
"""Agents that wait, and starts of one row of the queue."""
AGENT_LIMITS_MAX: Final = 50
"""Shown, the fullest first."""

UNWRITTEN: Final = {
    "state": "calls that count against a budget wait, and so do leases",
    "journal": "its rows are kept in memory, or lost",
    "jobs": "their processes are ended, and go on once it can be",
}
"""File that cannot be written -> the effect."""

JOURNAL_WAITS_S: Final = 3.0
"""Time without a commit after which the journal counts as behind: a busy disk takes less."""

STANDS_NS: Final = 5 * SECOND_NS
"""Duration of a standstill that is worth a notice, as in the log."""


@final
@attrs.frozen(kw_only=True)
class WhichCalls:
    """Selection of calls."""

    state: CallState | None = None
    """Only calls in this state; null: all that are not over."""
    agent: str | None = None
    lane: str | None = None
    provider: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1)] = 1_000
    """At most so many, the youngest."""


@final
@attrs.frozen
class OneCall:
    """A call by its id."""

    id: str


MAY_NOT_LIST: Final = "its user may not list connections; add `+pubsub|channels` to its rights"


async def status(proxy: Operated, _: NoArguments) -> StatusView:
    """Return the state of the proxy: counts, providers, lanes, and what needs attention."""
    known = await starts_of(proxy)
    fleet = await proxy.fellows.look() if proxy.fellows is not None else KnownFleet()
    engine, facts = proxy.engine, proxy.facts
    now_ns, snapshot, occupancy = engine.now_ns(), engine.snapshot(), engine.occupancy()
    lanes: defaultdict[str, int] = defaultdict(int)
    queued: defaultdict[str, list[QueuedCall]] = defaultdict(list)
    for call in occupancy.waiting:
        queued[call.decision.lane].append(call)
    for pool in snapshot.pools.values():
        for lane, inflight in pool.lanes_inflight.items():
            lanes[lane] += inflight
    return StatusView(
        version=facts.version,
        pid=facts.pid,
        address=facts.address,
        policy=PolicyView(path=facts.policy, hash=snapshot.program_hash),
        journal=facts.journal,
        started_at=proxy.at(0),
        uptime_s=seconds(now_ns),
        draining=snapshot.draining,
        waiting=snapshot.waiting,
        inflight=snapshot.inflight,
        cap=sum(pool.limit for pool in snapshot.pools.values()),
        agents=snapshot.agents,
        held=snapshot.held,
        oldest_wait_s=max((seconds(call.waited_ns) for call in occupancy.waiting), default=None),
        calls=_counts(proxy, now_ns),
        providers=tuple(provider_view(proxy, name, pool) for name, pool in snapshot.pools.items()),
        lanes=tuple(
            _lane(proxy, known, name, waiting, lanes[name], queued[name])
            for name, waiting in snapshot.lanes_waiting.items()
        ),
        agent_limits=tuple(_agent_limits(snapshot)),
        notices=tuple(_notices(proxy, snapshot, now_ns, fleet))[:NOTICES_MAX],
        nodes=fleet.nodes,
        journal_behind=_journal_behind(proxy),
        counted_by_each=_counted_by_each(engine.program) if fleet.nodes else "",
    )


def _journal_behind(proxy: Operated) -> JournalBehindView | None:
    """Return what the journal lacks; None: nothing, or what is written within a second or two."""
    if proxy.journal is None:
        return None
    lacks = proxy.journal.backlog
    if not (lacks.error or lacks.left_out or lacks.waits_s > JOURNAL_WAITS_S):
        return None
    return JournalBehindView(
        unwritten=lacks.unwritten,
        waits_s=round(lacks.waits_s, 1),
        left_out=lacks.left_out,
        error=lacks.error or None,
    )


def _counted_by_each(program: Program) -> str:
    return counted_apart(program, of_nodes=program.server.nodes > 1)


def _agent_limits(snapshot: Snapshot) -> Iterable[AgentLimitView]:
    fullest = sorted(snapshot.agent_limits, key=lambda one: (-one.used / one.limit.amount, one.agent))
    for one in fullest[:AGENT_LIMITS_MAX]:
        yield AgentLimitView(
            agent=one.agent,
            measure=str(one.limit.dimension),
            window_s=seconds(one.limit.window_ns),
            limit=one.limit.amount,
            used=one.used,
        )


def _lane(
    proxy: Operated, known: DatedStarts, name: str, waiting: int, inflight: int, queued: list[QueuedCall]
) -> LaneView:
    first, last = first_and_last(proxy, known, [call.call_id for call in queued])
    waits = lane_waits(Counter(str(call.reason) for call in queued))
    return LaneView(name=name, waiting=waiting, inflight=inflight, waits=waits, first=first, last=last)


def lane_waits(counts: Counter[str]) -> tuple[LaneWaitView, ...]:
    """Return reasons with the number of calls that wait for each, the most first."""
    return tuple(LaneWaitView(reason=reason, n=n) for reason, n in sorted(counts.items(), key=lambda one: -one[1]))


def _counts(proxy: Operated, now_ns: int) -> CallCounts:
    tally = proxy.tally
    return CallCounts(
        ended=tally.ended,
        rejected=tally.rejected,
        failed=tally.failed,
        left=tally.left,
        per_min=tally.per_minute(now_ns),
        unread=proxy.lag.refused if proxy.lag is not None else 0,
    )


def _overload(proxy: Operated, now_ns: int) -> Iterable[NoticeView]:
    """Yield that calls are refused because the process cannot keep up."""
    refuses_s = proxy.lag.refuses_s(trio.current_time()) if proxy.lag is not None else None
    if refuses_s is not None:
        text = (
            f"the proxy's CPU cannot keep up: for {refuses_s:,.0f} s calls have been refused unread "
            f"(503 `{Reason.PROXY_OVERLOADED}`); lower the load, or serve with more `--workers`"
        )
        since_at = proxy.at(now_ns - round(refuses_s * SECOND_NS))
        yield NoticeView(kind="overload", subject="", text=text, since_at=since_at)


def disk_notices(troubles: Mapping[str, str]) -> Iterable[NoticeView]:
    """Yield the files that cannot be written.

    Args:
        troubles: `state`, `journal` or `jobs` -> the reason.
    """
    for file, why in troubles.items():
        text = f"the {file} cannot be written: {why}; {UNWRITTEN[file]}"
        yield NoticeView(kind="disk", subject=file, text=text, since_at=None)


def _notices(proxy: Operated, snapshot: Snapshot, now_ns: int, fleet: KnownFleet) -> Iterable[NoticeView]:
    """Yield what needs attention, the worst first."""
    if snapshot.draining:
        yield NoticeView(kind="draining", subject="", text="the proxy is shutting down", since_at=None)
    yield from policy_notices(proxy.policy.result(), proxy.facts.policy)
    yield from disk_notices(proxy.disk_troubles)
    if fleet.away_s is not None:
        text = f"the shared store has not answered for {fleet.away_s:.0f} s: shares hold for the lease, then `outage`"
        yield NoticeView(kind="store", subject="redis", text=text, since_at=None)
    elif fleet.learns_s is not None:
        text = f"the shared store was started or emptied {fleet.learns_s:.0f} s ago: it grants no more slots "
        text += f"for `lease`: {MAY_NOT_LIST}" if fleet.blind else "until all nodes have reported"
        yield NoticeView(kind="store", subject="redis", text=text, since_at=None)
    elif fleet.slow_s is not None:
        text = f"the shared store takes {fleet.slow_s:.1f} s for an answer: "
        text += "slots and credit of budgets change hands as slowly"
        yield NoticeView(kind="store", subject="redis", text=text, since_at=None)
    yield from node_notices(fleet.nodes)
    yield from _overload(proxy, now_ns)
    for name in snapshot.pools:
        if (unreached := proxy.tally.unreached.get(name)) is not None:
            text = f"provider `{name}` was unreachable when last called: {unreached.cause}"
            yield NoticeView(kind="unreachable", subject=name, text=text, since_at=proxy.at(unreached.since_ns))
    for name, pool in snapshot.pools.items():
        if pool.circuit is not Circuit.CLOSED:
            text = f"the circuit breaker of provider `{name}` is {pool.circuit}"
            yield NoticeView(kind="circuit", subject=name, text=text, since_at=None)
    for kind, subject in snapshot.paused:
        text = f"{kind} `{subject}` is paused; `hivemind-trio resume {kind} {subject}` lets its calls go"
        yield NoticeView(kind="paused", subject=subject, text=text, since_at=None)
    yield from standstill_notices(proxy, snapshot, now_ns)
    yield from silence_notices(proxy, snapshot, now_ns)
    for account in budgets(proxy, NoArguments()).budgets:
        if account.share >= 1:
            whose = f" of {account.whose}" if account.whose else ""
            text = f"budget `{account.budget}`{whose} is used up ({account.allowance})"
            yield NoticeView(kind="budget", subject=account.budget, text=text, since_at=None)


def standstill_notices(proxy: Operated, snapshot: Snapshot, now_ns: int) -> Iterable[NoticeView]:
    """Yield the providers for which calls have waited for long while none is in flight, with reason and end."""
    for name, pool in snapshot.pools.items():
        stands = pool.stands
        if stands is not None and now_ns - stands.since_ns > STANDS_NS and pool.circuit is Circuit.CLOSED:
            text = f"{pool.waiting} calls wait for provider `{name}` and none is in flight: "
            text += reason_text(proxy, "", name, stands.reason)
            if stands.until_ns is not None and stands.until_ns > now_ns:
                text += f"; the next goes in {seconds(stands.until_ns - now_ns):,.0f} s at the latest"
            yield NoticeView(kind="standstill", subject=name, text=text, since_at=proxy.at(stands.since_ns))


def silence_notices(proxy: Operated, snapshot: Snapshot, now_ns: int) -> Iterable[NoticeView]:
    """Yield the providers that are sent calls and have answered none for long."""
    for name, pool in snapshot.pools.items():
        one = proxy.providers.silences.of.get(name)
        lasts_ns = one.lasts_ns(pool.waiting, now_ns) if one is not None else None
        stands = pool.stands is not None and now_ns - pool.stands.since_ns > STANDS_NS
        if one is None or lasts_ns is None or stands or pool.circuit is not Circuit.CLOSED:
            continue
        met = [f"{count} refused" for count in [one.refused] if count] + [f"{one.failed} failed"] * bool(one.failed)
        text = f"provider `{name}` has answered no call for {seconds(lasts_ns):,.0f} s: "
        text += f"{len(one.pending)} in flight have no answer, {pool.waiting} wait"
        text += f"; meanwhile {' and '.join(met)}" if met else ""
        yield NoticeView(kind="silent", subject=name, text=text, since_at=proxy.at(one.since_ns))


def policy_notices(last: ReloadResult, path: str) -> Iterable[NoticeView]:
    """Yield that the policy on disk is not in force, if the last reload refused it."""
    if last.error:
        what = last.error + (f"; {last.help}" if last.help else f" (`hivemind-trio check {path}`)")
        text = f"the policy has changed on disk and is not in force: {what}"
        yield NoticeView(kind="policy", subject=path, text=text, since_at=None)


def node_notices(nodes: Sequence[NodeView]) -> Iterable[NoticeView]:
    """Yield what is wrong with nodes that share limits: silence, and different policies."""
    for one in nodes:
        if one.state is NodeState.SILENT and one.seen_s is not None:
            text = f"node `{one.name}` has been silent for {one.seen_s:.0f} s"
            yield NoticeView(kind="node", subject=one.name, text=text, since_at=None)
    policies: defaultdict[str, list[str]] = defaultdict(list)
    for one in nodes:
        if one.state is NodeState.ALIVE and one.policy is not None:
            policies[one.policy].append(one.name)
    if len(policies) > 1:
        shown = "; ".join(f"{policy[:8]} at {_some(names)}" for policy, names in policies.items())
        text = f"nodes run different policies, the lower limit holds: {shown}"
        yield NoticeView(kind="policies", subject="", text=text, since_at=None)


def _some(names: Sequence[str]) -> str:
    """Return a few names."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


@final
class _Unnamed(dict[str, object]):
    """Values of a text; those that are not known of a group of calls are `?`."""

    def __missing__(self, key: str) -> str:
        return "?"


def reason_text(proxy: Operated, lane: str, provider: str | None, reason: Reason) -> str:
    """Return the reason in words, as far as it is the same for all calls of a row."""
    if reason not in WAITS:
        return str(reason)
    pool = proxy.engine.snapshot().pools.get(provider or "")
    if reason is Reason.PROVIDER_CONCURRENCY and pool is not None:
        return f"provider `{provider}` is at its concurrency limit of {pool.limit}"
    if reason is Reason.LIMITS:
        return f"the rate limits of provider `{provider}` were used up"
    declared = proxy.engine.program.lanes.get(lane)
    if reason is Reason.LANE_MAX and pool is not None and declared is not None and declared.max is not None:
        limit = max(1, declared.max.of(pool.limit))
        return WAITS[reason].format_map({"lane": lane, "provider": provider, "limit": limit})
    return WAITS[reason].format_map(_Unnamed(lane=lane, provider=provider))


async def queue(proxy: Operated, _: NoArguments) -> QueueView:
    """Return the calls that wait, by lane, provider and reason, and when they will start."""
    known = await starts_of(proxy)
    waiting = proxy.engine.occupancy().waiting
    rows: defaultdict[tuple[str, str | None, Reason], list[QueuedCall]] = defaultdict(list)
    agents: defaultdict[tuple[str, str], list[QueuedCall]] = defaultdict(list)
    for call in waiting:
        rows[call.decision.lane, call.decision.provider, call.reason].append(call)
        agents[call.decision.agent, call.caller].append(call)
    most = sorted(agents.items(), key=lambda one: -len(one[1]))[:SHOWN_MAX]
    return QueueView(
        waiting=len(waiting),
        queue=tuple(_queue_row(proxy, known, *key, of_key) for key, of_key in rows.items()),
        agents=tuple(_waiting_agent(proxy, known, *key, of_key) for key, of_key in most),
    )


def _queue_row(
    proxy: Operated, known: DatedStarts, lane: str, provider: str | None, reason: Reason, queued: list[QueuedCall]
) -> QueueRow:
    bounds = [call.not_before_ns for call in queued if call.not_before_ns is not None]
    deadlines = [call.deadline_ns for call in queued if call.deadline_ns is not None]
    first, last = first_and_last(proxy, known, [call.call_id for call in queued])
    return QueueRow(
        lane=lane,
        provider=provider,
        reason=str(reason),
        text=reason_text(proxy, lane, provider, reason),
        n=len(queued),
        agents=len({(call.decision.agent, call.caller) for call in queued}),
        oldest_s=max(seconds(call.waited_ns) for call in queued),
        next_at=proxy.at(min(bounds) if len(bounds) == len(queued) else None),
        first_deadline_at=proxy.at(min(deadlines, default=None)),
        first=first,
        last=last,
        starts=tuple(start_of(proxy, known, call.call_id) for call in queued[:SHOWN_MAX]),
    )


def _waiting_agent(
    proxy: Operated, known: DatedStarts, agent: str, caller: str, queued: list[QueuedCall]
) -> WaitingAgentView:
    first, last = first_and_last(proxy, known, [call.call_id for call in queued])
    return WaitingAgentView(agent=agent, caller=caller, n=len(queued), first=first, last=last)


def calls(proxy: Operated, which: WhichCalls) -> CallsView:
    """Return calls: those that are not over, or the last that ended (`state=ended`)."""
    program = proxy.engine.program
    senders = senders_of(program, which.provider) if which.provider is not None else frozenset()
    recent = [_ended(proxy, one) for one in proxy.tally.recent] if which.state is CallState.ENDED else None
    wanted = [
        call
        for call in (recent if recent is not None else _live(proxy))
        if (which.state is None or call.state is which.state)
        and (which.agent is None or which.agent in (call.agent, call.caller))
        and (which.lane is None or call.lane == which.lane)
        and (which.provider is None or call.provider in senders)
    ]
    # A name that a reload took away may still have calls; a slip has none, and an empty list would hide it.
    if not wanted and which.provider is not None and not pools_of(program, which.provider):
        raise no_provider(program, which.provider)
    if not wanted and which.lane is not None and which.lane not in program.lanes:
        raise no_lane(program, which.lane)
    return CallsView(calls=tuple(wanted[-which.limit :]))


def no_lane(program: Program, name: str) -> OperationFailed:
    """Return the failure for a lane that the policy does not have, with those that there are."""
    message = f"the policy has no lane `{name}`; it has {', '.join(program.lanes)}"
    return OperationFailed(ProblemKind.NO_SUCH_RESOURCE, message)


def call(proxy: Operated, one: OneCall) -> CallView:
    """Return one call, that is not over or has ended lately."""
    for found in _live(proxy):
        if found.id == one.id:
            return found
    for ended in proxy.tally.recent:
        if ended.record.id == one.id:
            return _ended(proxy, ended)
    raise OperationFailed(
        ProblemKind.NO_SUCH_RESOURCE,
        f"no call `{one.id}` is in progress or has ended lately; `hivemind-trio explain {one.id}` asks the journal",
    )


def _live(proxy: Operated) -> list[CallView]:
    occupancy = proxy.engine.occupancy()
    waiting = {call.call_id: call for call in occupancy.waiting}
    inflight = {call.call_id: call for call in occupancy.inflight}
    found = []
    for exchange in proxy.door.exchanges.values():
        number = exchange.ticket.id if exchange.ticket is not None else None
        queued = waiting.get(number) if number is not None else None
        flight = inflight.get(number) if number is not None else None
        found.append(_view(proxy, exchange, queued, flight))
    return found


def _view(proxy: Operated, exchange: Exchange, queued: QueuedCall | None, flight: CallInFlight | None) -> CallView:
    record = exchange.record()
    known = queued or flight
    decision = known.decision if known is not None else exchange.treatment
    attempts, waited_s, reason = record.attempts, record.waited_ms / 1_000, str(record.reason)
    if queued is not None:
        state, waited_s, reason = CallState.WAITING, seconds(queued.waited_ns), str(queued.reason)
    elif exchange.ticket is None:
        state = CallState.ARRIVING
    else:
        # A call that needs no slot is in no index of the scheduler.
        at_provider = flight is not None or not exchange.asked.generates
        state = CallState.INFLIGHT if at_provider else CallState.DELIVERING
        if flight is not None:
            waited_s, attempts = seconds(flight.waited_ns), flight.attempt
    return CallView(
        id=record.id,
        state=state,
        agent=decision.agent if decision is not None else record.agent,
        caller=record.caller,
        job=record.job,
        session=_session(proxy, exchange),
        lane=decision.lane if decision is not None else record.lane,
        provider=decision.sender if decision is not None else record.sender,
        model=record.model,
        sent_model=decision.model if decision is not None else record.sent_model,
        priority=decision.priority if decision is not None else None,
        method=record.method,
        path=record.path,
        age_s=record.duration_ms / 1_000,
        waited_s=waited_s,
        reason=reason,
        attempts=attempts,
        not_before_at=proxy.at(queued.not_before_ns) if queued is not None else None,
        deadline_at=proxy.at(queued.deadline_ns) if queued is not None else None,
        let_through=queued is not None and queued.let_through,
        status=record.status or None,
        ended_at=None,
    )


def _session(proxy: Operated, exchange: Exchange) -> SessionView | None:
    """Return the session of a call that waits or is in flight."""
    if exchange.ticket is None:
        return None
    state, number = proxy.engine.scheduler.state, exchange.ticket.id
    found = state.waiting(number) or state.inflight.get(number)
    return session_of(proxy, found.call) if found is not None else None


def _ended(proxy: Operated, ended: EndedCall) -> CallView:
    record = ended.record
    return CallView(
        id=record.id,
        state=CallState.ENDED,
        agent=record.agent,
        caller=record.caller,
        job=record.job,
        session=None,
        lane=record.lane,
        provider=record.sender,
        model=record.model,
        sent_model=record.sent_model,
        priority=None,
        method=record.method,
        path=record.path,
        age_s=record.duration_ms / 1_000,
        waited_s=record.waited_ms / 1_000,
        reason=str(record.reason),
        attempts=record.attempts,
        not_before_at=None,
        deadline_at=None,
        let_through=False,
        status=record.status or None,
        ended_at=proxy.at(ended.ended_ns),
    )


def budgets(proxy: Operated, _: NoArguments) -> BudgetsView:
    """Return what is spent of budgets. A budget in which no call has counted yet has no account."""
    return BudgetsView(budgets=tuple(budget_view(proxy, account) for account in proxy.engine.accounts()))


def budget_view(proxy: Operated, account: AccountSnapshot) -> BudgetView:
    """Return one account."""
    engine, key, allowance = proxy.engine, account.key, account.allowance
    return BudgetView(
        budget=key.budget,
        per=f"{key.per}.{key.per_name}" if key.per_name else str(key.per),
        whose=key.subject,
        measure=str(key.measure),
        allowance=allowance.shown(),
        amount=allowance.amount,
        spent=account.spent,
        claimed=account.claimed,
        share=round(account.spent / allowance.amount, 4) if allowance.amount else 1.0,
        held=account.held,
        resets_at=proxy.at(engine.now_ns() + engine.left_ns(key.window)) if allowance.calendar else None,
    )
