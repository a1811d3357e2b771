"""Operations on the last hour: time series of providers, and who used them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, final

import attrs
import msgspec

from hivemind_trio.policy import Program

from .history import SeriesPoint, UsageKey, UsageSum
from .operated import SECOND_NS, NoArguments, Operated
from .views import (
    AgentUsageView,
    HourView,
    SeriesListView,
    SeriesView,
    SessionUsageView,
    TeamUsageView,
    UsageView,
)

SESSIONS_MAX: Final = 10
"""Sessions that are shown of one agent, those that used most."""


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
