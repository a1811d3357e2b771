"""Calls that wait: for what, and until when."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from hivemind_trio.model import Reason
from hivemind_trio.scheduler import QueuedCall

from .forecasts.starts import first_and_last, start_view, starts_of
from .history import DatedStarts
from .operated import NoArguments, Operated, seconds
from .show import reason_text
from .views import QueueRow, QueueView, WaitingAgentView

SHOWN_MAX: Final = 100


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
        queue=tuple(_row(proxy, known, *key, calls) for key, calls in rows.items()),
        agents=tuple(_agent(proxy, known, *key, calls) for key, calls in most),
    )


def _row(
    proxy: Operated, known: DatedStarts, lane: str, provider: str | None, reason: Reason, calls: list[QueuedCall]
) -> QueueRow:
    bounds = [call.not_before_ns for call in calls if call.not_before_ns is not None]
    deadlines = [call.deadline_ns for call in calls if call.deadline_ns is not None]
    first, last = first_and_last(proxy, known, [call.call_id for call in calls])
    return QueueRow(
        lane=lane,
        provider=provider,
        reason=str(reason),
        text=reason_text(proxy, lane, provider, reason),
        n=len(calls),
        agents=len({(call.decision.agent, call.caller) for call in calls}),
        oldest_s=max(seconds(call.waited_ns) for call in calls),
        next_at=proxy.at(min(bounds) if len(bounds) == len(calls) else None),
        first_deadline_at=proxy.at(min(deadlines, default=None)),
        first=first,
        last=last,
        starts=tuple(start_view(proxy, known, known.of(call.call_id)) for call in calls[:SHOWN_MAX]),
    )


def _agent(proxy: Operated, known: DatedStarts, agent: str, caller: str, calls: list[QueuedCall]) -> WaitingAgentView:
    first, last = first_and_last(proxy, known, [call.call_id for call in calls])
    return WaitingAgentView(agent=agent, caller=caller, n=len(calls), first=first, last=last)
