"""Views of several workers as those of one proxy."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs

from hivemind_trio.admin.hour import fullest
from hivemind_trio.admin.provider import of_accounts
from hivemind_trio.admin.show import lane_waits
from hivemind_trio.admin.views import (
    AgentLimitView,
    BucketView,
    BudgetsView,
    BudgetView,
    CallCounts,
    CallsView,
    ConcurrencyBeliefView,
    GateView,
    JournalBehindView,
    LaneView,
    NodeView,
    NoticeView,
    PausedView,
    PauseView,
    ProviderDetailView,
    ProviderModelView,
    ProviderView,
    QueueRow,
    QueueView,
    RateLimitView,
    SeriesListView,
    SeriesView,
    SessionsView,
    SessionView,
    StartView,
    StatusView,
    WaitingAgentView,
)
from hivemind_trio.policy import Program

NOTICES_MAX: Final = 4
AGENT_LIMITS_MAX: Final = 50
TURNS_MAX: Final = 100
SHOWN_MAX: Final = 100
"""As in the operations of one process."""

_CIRCUITS: Final = ("closed", "half-open", "open")
"""The worst last."""

T = TypeVar("T")
K = TypeVar("K")


def grouped(values: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return values by key, in the order of their first."""
    found: defaultdict[K, list[T]] = defaultdict(list)
    for value in values:
        found[key(value)].append(value)
    return dict(found)


def earliest(times: Iterable[str | None]) -> str | None:
    """Return the first of some times; None: none is known."""
    return min((time for time in times if time is not None), default=None)


def _first_start(starts: Sequence[StartView]) -> StartView:
    return StartView(p50_at=earliest(one.p50_at for one in starts), p90_at=earliest(one.p90_at for one in starts))


def _last_start(starts: Sequence[StartView]) -> StartView:
    """Return when the last of some has started; unknown if that of one is."""

    def last(times: Sequence[str | None]) -> str | None:
        known = [time for time in times if time is not None]
        return max(known) if known and len(known) == len(times) else None

    return StartView(p50_at=last([one.p50_at for one in starts]), p90_at=last([one.p90_at for one in starts]))


def _counts(views: Iterable[CallCounts]) -> CallCounts:
    """Return the sum of counts."""
    totals: Counter[str] = Counter()
    for view in views:
        totals.update(attrs.asdict(view))
    return CallCounts(**{field.name: totals[field.name] for field in attrs.fields(CallCounts)})


def status(views: Sequence[StatusView], program: Program, agents: int) -> StatusView:
    """Return the status of the proxy; facts of the process are those of the first.

    Args:
        program: The policy in force.
        agents: Number of different ones with a call.
    """
    first = views[0]
    providers = tuple(
        _provider(name, of_name, program)
        for name, of_name in grouped((one for view in views for one in view.providers), lambda one: one.name).items()
    )
    oldest = [view.oldest_wait_s for view in views if view.oldest_wait_s is not None]
    lanes = grouped((one for view in views for one in view.lanes), lambda one: one.name)
    notices = {
        (one.kind, one.subject): one for view in views for one in reversed(view.notices) if one.kind != "draining"
    }
    shown = sorted(notices.values(), key=lambda one: _NOTICES.index(one.kind) if one.kind in _NOTICES else 0)
    return attrs.evolve(
        first,
        waiting=sum(view.waiting for view in views),
        inflight=sum(view.inflight for view in views),
        cap=sum(one.limit for one in providers),
        agents=agents,
        held=sum(view.held for view in views),
        oldest_wait_s=max(oldest, default=None),
        calls=_counts(view.calls for view in views),
        providers=providers,
        lanes=tuple(_lane(name, of_name) for name, of_name in lanes.items()),
        agent_limits=_agent_limits([one for view in views for one in view.agent_limits]),
        notices=tuple(shown)[:NOTICES_MAX],
        journal_behind=_journal_behind([one for view in views if (one := view.journal_behind) is not None]),
    )


def _journal_behind(views: Sequence[JournalBehindView]) -> JournalBehindView | None:
    """Return what the journal of all workers lacks; None: nothing."""
    if not views:
        return None
    return JournalBehindView(
        unwritten=sum(one.unwritten for one in views),
        waits_s=max(one.waits_s for one in views),
        left_out=sum(one.left_out for one in views),
        error=next((one.error for one in views if one.error is not None), None),
    )


_NOTICES: Final = (
    *("policy", "worker", "disk", "overload", "store", "node", "policies"),
    *("unreachable", "circuit", "paused", "standstill", "silent", "budget"),
)
"""Kinds, the worst first."""


def nodes(views: Sequence[Sequence[NodeView]]) -> tuple[NodeView, ...]:
    """Return the nodes that workers know of; each tells of itself, and of others whoever has heard them last."""
    found: dict[str, NodeView] = {}
    for one in (node for view in views for node in view):
        known = found.get(one.name)
        if known is None or (one.own, -(one.seen_s or 0.0)) > (known.own, -(known.seen_s or 0.0)):
            found[one.name] = one
    return tuple(found[name] for name in sorted(found))


def _provider(name: str, views: Sequence[ProviderView], program: Program) -> ProviderView:
    """Return a provider; its slots are those of all workers, so that nothing is said of what a worker was lent."""
    settings = program.pools.get(name)
    cap = settings.limit if settings is not None else sum(one.limit for one in views)
    learned = any(one.learned for one in views)
    limits = grouped(
        (one for view in views for one in view.limits),
        lambda one: (one.group, one.model, one.measure, one.window_s),
    )
    worst = max(views, key=lambda one: _CIRCUITS.index(one.circuit) if one.circuit in _CIRCUITS else 0)
    plans = {(one.account, one.window, one.models): one for view in views for one in view.plans}
    return ProviderView(
        name=name,
        inflight=sum(one.inflight for one in views),
        limit=min(cap, sum(one.limit for one in views)) if learned else cap,
        learned=learned,
        waiting=sum(one.waiting for one in views),
        circuit=worst.circuit,
        probe_at=min((at for one in views if one.circuit == worst.circuit and (at := one.probe_at)), default=None),
        limits=tuple(_rate_limit(of_key) for of_key in limits.values()),
        plans=tuple(sorted(plans.values(), key=lambda one: -one.used)),
        shared_by=views[0].shared_by,
        estimate=views[0].estimate,
        estimate_error=next((one.estimate_error for one in views if one.estimate_error is not None), None),
    )


def provider(views: Mapping[str, ProviderDetailView], program: Program) -> ProviderDetailView:
    """Return what is known of one provider.

    Each worker has a circuit and beliefs of its own. Of a gate the strictest is shown, and changes of circuits have
    the name of their worker.

    Args:
        views: By worker.
    """
    several = list(views.values())
    accounts = grouped(
        ((worker, one) for worker, view in views.items() for one in view.accounts), lambda one: one[1].provider.name
    )
    if accounts:
        return of_accounts(several[0].provider.name, [provider(dict(each), program) for each in accounts.values()])
    gates = grouped((gate for view in several for gate in view.gates), lambda one: (one.group, one.model))
    models = grouped((one for view in several for one in view.models), lambda one: one.model)
    turns = [attrs.evolve(turn, worker=worker) for worker, view in views.items() for turn in view.circuit]
    beliefs = [view.concurrency for view in several if view.concurrency is not None]
    merged = [_model(of_model) for of_model in models.values()]
    return ProviderDetailView(
        provider=_provider(several[0].provider.name, [view.provider for view in several], program),
        concurrency=_concurrency(beliefs) if beliefs else None,
        gates=tuple(_gate(of_key) for of_key in gates.values()),
        circuit=tuple(sorted(turns, key=lambda one: one.at or "")[-TURNS_MAX:]),
        models=tuple(sorted(merged, key=lambda one: (-one.attempts, one.model))),
    )


def _concurrency(views: Sequence[ConcurrencyBeliefView]) -> ConcurrencyBeliefView:
    caps = [one.accepts for one in views if one.accepts is not None]
    return ConcurrencyBeliefView(
        accepts=sum(caps) if len(caps) == len(views) else None,
        accepts_until_at=earliest(one.accepts_until_at for one in views),
        stays_until_at=earliest(one.stays_until_at for one in views)
        if all(one.stays_until_at is not None for one in views)
        else None,
    )


def _gate(views: Sequence[GateView]) -> GateView:
    rates = [one.rate_per_s for one in views if one.rate_per_s is not None]
    allowed = [one.allowed for one in views if one.allowed is not None]
    buckets = grouped((one for view in views for one in view.limits), lambda one: (one.measure, one.window_s))
    return GateView(
        group=views[0].group,
        model=views[0].model,
        inflight=sum(one.inflight for one in views),
        holds_until_at=max((one.holds_until_at for one in views if one.holds_until_at is not None), default=None),
        believed=all(one.believed for one in views),
        rate_per_s=round(sum(rates), 3) if len(rates) == len(views) else None,
        allowed=sum(allowed) if len(allowed) == len(views) else None,
        probes_refused=max(one.probes_refused for one in views),
        evidence_age_s=min((one.evidence_age_s for one in views if one.evidence_age_s is not None), default=None),
        limits=tuple(_bucket(of_key) for of_key in buckets.values()),
    )


def _bucket(views: Sequence[BucketView]) -> BucketView:
    limit = max(one.limit for one in views)
    return attrs.evolve(
        views[0],
        limit=limit,
        used=min(limit, sum(one.used for one in views)),
        foreign=_foreign(views),
        declared=any(one.declared for one in views),
    )


def _foreign(views: Sequence[BucketView]) -> int:
    """Return how much of a limit others than the workers use, at least.

    To each worker all others are foreign, so what they use themselves is taken away from what it sees.
    """
    own = [max(0, one.used - one.foreign) for one in views]
    return max(0, *(one.foreign - (sum(own) - mine) for one, mine in zip(views, own, strict=True)))


def _model(views: Sequence[ProviderModelView]) -> ProviderModelView:
    begun = sum(one.begun for one in views)
    first_bytes_s = sum(one.first_byte_s * one.begun for one in views if one.first_byte_s is not None)
    return ProviderModelView(
        model=views[0].model,
        inflight=sum(one.inflight for one in views),
        attempts=sum(one.attempts for one in views),
        refused=sum(one.refused for one in views),
        failed=sum(one.failed for one in views),
        tokens_in=sum(one.tokens_in for one in views),
        cached=sum(one.cached for one in views),
        tokens_out=sum(one.tokens_out for one in views),
        begun=begun,
        first_byte_s=round(first_bytes_s / begun, 3) if begun else None,
    )


def _rate_limit(views: Sequence[RateLimitView]) -> RateLimitView:
    limit = max(one.limit for one in views)
    return attrs.evolve(
        views[0],
        limit=limit,
        used=min(limit, sum(one.used for one in views)),
        declared=any(one.declared for one in views),
    )


def _agent_limits(views: Sequence[AgentLimitView]) -> tuple[AgentLimitView, ...]:
    """Return limits of agents as the worker has each that has used the most of it: every worker counts for itself."""
    of_limit = grouped(views, lambda one: (one.agent, one.measure, one.window_s))
    fullest = [max(of_key, key=lambda one: one.used) for of_key in of_limit.values()]
    return tuple(sorted(fullest, key=lambda one: (-one.used / one.limit, one.agent))[:AGENT_LIMITS_MAX])


def _lane(name: str, views: Sequence[LaneView]) -> LaneView:
    waiting = [one for one in views if one.waiting]
    return LaneView(
        name=name,
        waiting=sum(one.waiting for one in views),
        inflight=sum(one.inflight for one in views),
        waits=lane_waits(_waits(views)),
        first=_first_start([one.first for one in waiting]),
        last=_last_start([one.last for one in waiting]),
    )


def _waits(views: Sequence[LaneView]) -> Counter[str]:
    """Return the calls of a lane by what they wait for."""
    counts = Counter[str]()
    for view in views:
        counts.update({one.reason: one.n for one in view.waits})
    return counts


def queue(views: Sequence[QueueView]) -> QueueView:
    """Return everything that waits."""
    rows = grouped((row for view in views for row in view.queue), lambda one: (one.lane, one.provider, one.reason))
    agents = grouped((one for view in views for one in view.agents), lambda one: (one.agent, one.caller))
    found = [
        WaitingAgentView(
            agent=agent,
            caller=caller,
            n=sum(one.n for one in of_agent),
            first=_first_start([one.first for one in of_agent]),
            last=_last_start([one.last for one in of_agent]),
        )
        for (agent, caller), of_agent in agents.items()
    ]
    found.sort(key=lambda one: -one.n)
    return QueueView(
        waiting=sum(view.waiting for view in views),
        queue=tuple(_queue_row(of_key) for of_key in rows.values()),
        agents=tuple(found[:SHOWN_MAX]),
    )


def _queue_row(rows: Sequence[QueueRow]) -> QueueRow:
    starts = sorted((start for row in rows for start in row.starts), key=lambda one: (one.p50_at is None, one.p50_at))
    bounded = all(row.next_at is not None for row in rows)
    return attrs.evolve(
        rows[0],
        n=sum(row.n for row in rows),
        agents=sum(row.agents for row in rows),
        oldest_s=max(row.oldest_s for row in rows),
        next_at=earliest(row.next_at for row in rows) if bounded else None,
        first_deadline_at=earliest(row.first_deadline_at for row in rows),
        first=_first_start([row.first for row in rows]),
        last=_last_start([row.last for row in rows]),
        starts=tuple(starts[:SHOWN_MAX]),
    )


def calls(views: Sequence[CallsView], limit: int) -> CallsView:
    """Return calls, the oldest first."""
    found = [one for view in views for one in view.calls]
    over = [one for one in found if one.ended_at is not None]
    if over:
        found.sort(key=lambda one: one.ended_at or "")
    else:
        found.sort(key=lambda one: -one.age_s)
    return CallsView(calls=tuple(found[-limit:]))


def sessions(views: Sequence[SessionsView], limit: int) -> SessionsView:
    """Return sessions; one whose calls went to several workers as the last of them knows it."""
    found: dict[tuple[str, str], SessionView] = {}
    for one in sorted((one for view in views for one in view.sessions), key=lambda one: one.seen_at or ""):
        found[one.agent, one.session] = one
    return SessionsView(sessions=fullest(list(found.values()), limit))


def paused(views: Sequence[PausedView]) -> PausedView:
    """Return what is paused."""
    found = grouped((one for view in views for one in view.paused), lambda one: (one.kind, one.name))
    return PausedView(
        paused=tuple(
            PauseView(
                kind=kind,
                name=name,
                waiting=sum(one.waiting for one in of_key),
                known=any(one.known for one in of_key),
            )
            for (kind, name), of_key in found.items()
        )
    )


def budgets(views: Sequence[BudgetsView], spent: Mapping[tuple[str, str, str], int]) -> BudgetsView:
    """Return the accounts of budgets.

    Args:
        views: Of the workers.
        spent: (Budget, partition, allowance) -> what all workers have spent; of others the workers know it themselves.
    """
    found = grouped((one for view in views for one in view.budgets), _account)
    return BudgetsView(budgets=tuple(_budget(of_key, spent.get(key)) for key, of_key in found.items()))


def _account(view: BudgetView) -> tuple[str, str, str]:
    return view.budget, view.whose, view.allowance


def _budget(views: Sequence[BudgetView], known: int | None) -> BudgetView:
    spent = known if known is not None else max(one.spent for one in views)
    amount = views[0].amount
    return attrs.evolve(
        views[0],
        spent=spent,
        claimed=sum(one.claimed for one in views),
        share=round(spent / amount, 4) if amount else 1.0,
        held=sum(one.held for one in views),
    )


def series(views: Sequence[SeriesListView], last: int | None) -> SeriesListView:
    """Return the points of all workers: those of the same step are added up."""
    step_s = views[0].step_s
    found = grouped((one for view in views for one in view.series), lambda one: one.provider)
    return SeriesListView(
        step_s=step_s,
        series=tuple(_series(provider, of_provider, step_s, last) for provider, of_provider in found.items()),
    )


def _series(provider: str, views: Sequence[SeriesView], step_s: int, last: int | None) -> SeriesView:
    steps: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for view in views:
        columns = view.at, view.limit, view.inflight, view.waiting, view.refused, view.failed
        for point in zip(*columns, view.circuit, view.bound_by, strict=True):
            steps[int(point[0] // step_s)].append(point)
    chosen = sorted(steps.items())[-last if last is not None else 0 :]
    points = [of_step for _, of_step in chosen]
    return SeriesView(
        provider=provider,
        at=tuple(round(max(one[0] for one in of_step), 1) for of_step in points),
        limit=tuple(sum(one[1] for one in of_step) for of_step in points),
        inflight=tuple(sum(one[2] for one in of_step) for of_step in points),
        waiting=tuple(sum(one[3] for one in of_step) for of_step in points),
        refused=tuple(sum(one[4] for one in of_step) for of_step in points),
        failed=tuple(sum(one[5] for one in of_step) for of_step in points),
        circuit=tuple(max((one[6] for one in of_step), key=_CIRCUITS.index) for of_step in points),
        bound_by=tuple(max(of_step, key=lambda one: one[3])[7] for of_step in points),
    )


def notice(kind: str, subject: str, text: str) -> NoticeView:
    """Return a notice of the supervisor's own."""
    return NoticeView(kind=kind, subject=subject, text=text, since_at=None)
