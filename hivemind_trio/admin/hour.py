"""Operations on the last hour: time series of providers, who used them, and the sessions of clients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, final

import attrs
import msgspec

from hivemind_trio.policy import Program
from hivemind_trio.scheduler import Call, SessionTable, SessionThread

from .history import SeriesPoint, UsageKey, UsageSum
from .operated import SECOND_NS, NoArguments, Operated, seconds
from .views import (
    AgentUsageView,
    HourView,
    SeriesListView,
    SeriesView,
    SessionsView,
    SessionUsageView,
    SessionView,
    TeamUsageView,
    UsageView,
)

SESSIONS_MAX: Final = 10
"""Sessions that are shown of one agent, those that used most."""

SHOWN: Final = 100
"""Sessions that are listed, unless more are asked for."""

SEEN_NS: Final = 3_600_000_000_000
"""Sessions without a turn for longer are over, as far as anyone can tell."""


@final
@attrs.frozen(kw_only=True)
class WhichPoints:
    """Selection of points."""

    last: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Only so many of each provider, the newest; null: those of an hour."""


def series(proxy: Operated, which: WhichPoints) -> SeriesListView:
    """Return limit, calls in flight, waiting calls and refusals of each provider over the last hour."""
    begin_s = (proxy.wall_ns() - proxy.engine.now_ns()) / SECOND_NS
    chosen = {
        name: list(points)[-(which.last or len(points)) :] for name, points in proxy.series.points.items() if points
    }
    return SeriesListView(
        step_s=proxy.series.step_s,
        series=tuple(_columns(name, points, begin_s) for name, points in chosen.items()),
    )


def _columns(name: str, points: list[SeriesPoint], begin_s: float) -> SeriesView:
    """Return the points of a provider by column.

    Args:
        begin_s: When the engine began, since 1970.
    """
    return SeriesView(
        provider=name,
        at=tuple(round(begin_s + point.at_ns / SECOND_NS, 1) for point in points),
        limit=tuple(point.limit for point in points),
        inflight=tuple(point.inflight for point in points),
        waiting=tuple(point.waiting for point in points),
        refused=tuple(point.refused for point in points),
        failed=tuple(point.failed for point in points),
        circuit=tuple(point.circuit for point in points),
        bound_by=tuple(point.bound_by for point in points),
    )


def usage(proxy: Operated, _: NoArguments) -> HourView:
    """Return calls, tokens, money and waits of the last hour by team, agent and session."""
    proxy.hour.forget(proxy.engine.now_ns())
    return usage_of(proxy.hour.sums, proxy.engine.program)


def usage_of(sums: Mapping[UsageKey, UsageSum], program: Program) -> HourView:
    """Return sums by team, agent and session."""
    total = _total(sums.values())
    teams: defaultdict[str, dict[UsageKey, UsageSum]] = defaultdict(dict)
    for key, one in sums.items():
        teams[key.team][key] = one
    declared = program.teams
    weights = {team: declared[team].weight if team in declared else 1 for team in teams}
    views = [
        _team(team, weights[team], weights[team] / sum(weights.values()), of_team, total)
        for team, of_team in teams.items()
    ]
    return HourView(
        usage=_view(total, None, total), teams=tuple(sorted(views, key=lambda one: (-one.usage.tokens_in, one.team)))
    )


def _team(team: str, weight: int, fair: float, sums: dict[UsageKey, UsageSum], total: UsageSum) -> TeamUsageView:
    """Return a team.

    Args:
        fair: Its fair part of everything, 0 to 1.
    """
    agents: defaultdict[str, dict[str, UsageSum]] = defaultdict(dict)
    for key, one in sums.items():
        agents[key.agent][key.session] = one
    views = []
    for agent, sessions in agents.items():
        most = sorted(sessions.items(), key=lambda one: (-one[1].tokens, one[0]))
        shown = [SessionUsageView(session=session, usage=_view(one, None, total)) for session, one in most if session]
        views.append(
            AgentUsageView(
                agent=agent,
                usage=_view(_total(sessions.values()), fair / len(agents), total),
                sessions=tuple(shown[:SESSIONS_MAX]),
            )
        )
    views.sort(key=lambda one: (-one.usage.tokens_in, -one.usage.calls, one.agent))
    return TeamUsageView(team=team, weight=weight, usage=_view(_total(sums.values()), fair, total), agents=tuple(views))


def _total(sums: Iterable[UsageSum]) -> UsageSum:
    total = UsageSum()
    for one in sums:
        total.add(one)
    return total


def _view(one: UsageSum, fair: float | None, total: UsageSum) -> UsageView:
    """Return sums as they are shown; `fair` is the fair part of `total`, None: it has none."""
    return UsageView(
        calls=one.calls,
        failed=one.failed,
        rejected=one.rejected,
        tokens_in=one.tokens_in,
        cached=one.cached,
        tokens_out=one.tokens_out,
        cost=one.cost,
        wait_p50_s=one.wait_s(0.5),
        wait_p95_s=one.wait_s(0.95),
        share=round(one.tokens / total.tokens / fair, 2) if fair and total.tokens else None,
    )


# ---- sessions ----


@final
@attrs.frozen(kw_only=True)
class WhichSessions:
    """Selection of sessions."""

    agent: str | None = None
    """Only of this agent or caller."""
    limit: Annotated[int, msgspec.Meta(ge=1)] = SHOWN
    """At most so many, the fullest."""


def sessions(proxy: Operated, which: WhichSessions) -> SessionsView:
    """Return the sessions of the last hour, those with the fullest context first."""
    table = proxy.engine.scheduler.state.sessions
    seen_ns = proxy.engine.now_ns() - SEEN_NS
    found = [
        _session(proxy, table, key, thread)
        for key, thread in reversed(table.threads.items())
        if thread.seen_ns >= seen_ns and which.agent in (None, thread.agent)
    ]
    return SessionsView(sessions=fullest(found, which.limit))


def fullest(found: list[SessionView], limit: int) -> tuple[SessionView, ...]:
    """Return the sessions with the fullest context; those of unknown windows are last, the largest first."""
    ranked = sorted(found, key=lambda one: (-_full(one), -one.context))
    return tuple(ranked[:limit])


def _full(one: SessionView) -> float:
    return one.context / one.window if one.window else 0.0


def session_of(proxy: Operated, call: Call) -> SessionView | None:
    """Return the session of a call; None: it is of none, or nothing of it has been served."""
    table = proxy.engine.scheduler.state.sessions
    thread = table.thread(call)
    return _session(proxy, table, table.key(call), thread) if thread is not None else None


def _session(proxy: Operated, table: SessionTable, key: tuple[str, str], thread: SessionThread) -> SessionView:
    now_ns, total = proxy.engine.now_ns(), table.total_of(key)
    price = proxy.engine.program.price(thread.model, thread.provider)
    window = price.context if price is not None else None
    return SessionView(
        session=key[1],
        agent=thread.agent,
        model=thread.model,
        context=thread.context,
        turns=thread.turns,
        growth=thread.growth,
        window=window,
        turns_left=thread.turns_left(window),
        cost=total.cost / 1e6 if total is not None else None,
        age_s=seconds(max(0, now_ns - total.first_ns)) if total is not None else None,
        seen_at=proxy.at(thread.seen_ns),
    )
