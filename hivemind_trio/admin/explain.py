"""Explanation of a call that is in progress."""

from __future__ import annotations

from functools import partial
from typing import Final

import trio

from hivemind_trio.model import Decision, Reason
from hivemind_trio.store import JournalError, live_turn, questioned

from .forecasts.starts import start_of, starts_of
from .operated import SECOND_NS, Operated
from .problems import OperationFailed, ProblemKind
from .show import OneCall, call, reason_text
from .story import turn_text
from .views import CallState, CallView, DecidedView, ExplainView

IN_LINE: Final = (str(Reason.TURN), str(Reason.PROVIDER_CONCURRENCY))


async def explain(proxy: Operated, one: OneCall) -> ExplainView:
    """Return why a call in progress waits, and which declarations decided about it."""
    known = await starts_of(proxy)
    view = call(proxy, one)
    if view.state is CallState.ENDED:
        message = f"call `{one.id}` is over; `hivemind-trio explain {one.id}` asks the journal"
        raise OperationFailed(ProblemKind.CONFLICT, message)
    ticket = proxy.door.exchanges[one.id].ticket
    waits = ticket.id if ticket is not None and view.state is CallState.WAITING else None
    decision = _decision(proxy, one.id)
    turn = "" if waits is None or decision is None else await _turn(proxy, view, waits, decision)
    return ExplainView(
        call=view,
        text=_text(proxy, view) + (f"; {turn}" if turn else ""),
        waiting_in_lane=proxy.engine.snapshot().lanes_waiting.get(view.lane or "", 0),
        waiting_before=_before(proxy, view),
        start=start_of(proxy, known, waits),
        team=decision.team if decision is not None else None,
        decided=tuple(
            DecidedView(setting=setting, by=by.kind, name=by.name, at=by.at or None)
            for setting, by in (decision.decided.items() if decision is not None else ())
        ),
    )


def _decision(proxy: Operated, name: str) -> Decision | None:
    """Return the decision about a call; None: there is none yet."""
    exchange = proxy.door.exchanges[name]
    number = exchange.ticket.id if exchange.ticket is not None else None
    occupancy = proxy.engine.occupancy()
    for queued in occupancy.waiting:
        if queued.call_id == number:
            return queued.decision
    for flight in occupancy.inflight:
        if flight.call_id == number:
            return flight.decision
    return exchange.treatment


async def _turn(proxy: Operated, view: CallView, call_id: int, decision: Decision) -> str:
    """Return whose calls went first and why, as the journal shows it; empty: it does not, or nobody's did."""
    path, provider = proxy.facts.journal, decision.sender or ""
    if path is None or view.reason not in IN_LINE:
        return ""
    place = {
        "provider": provider,
        "lane": decision.lane,
        "priority": decision.priority,
        "agent": decision.agent,
        "team": decision.team,
    }
    arrived_ns = proxy.wall_ns() - round(view.age_s * SECOND_NS)
    ask = partial(live_turn, call=call_id, arrived_wall_ns=arrived_ns, place=place)
    try:
        turn = await trio.to_thread.run_sync(questioned, path, ask)
    except JournalError:
        return ""
    return "" if turn is None else turn_text(turn, provider)


def _text(proxy: Operated, view: CallView) -> str:
    match view.state:
        case CallState.WAITING:
            text = reason_text(proxy, view.lane or "", view.provider, Reason(view.reason))
            if not view.let_through:
                return text
            return f"an operator lets it through: it goes as soon as provider `{view.provider}` has room; {text}"
        case CallState.ARRIVING:
            return "its body is being read"
        case CallState.INFLIGHT:
            return f"attempt {view.attempts} is at provider `{view.provider}`"
        case _:
            return "the provider is done, and the agent still reads the answer"


def _before(proxy: Operated, view: CallView) -> int | None:
    """Return the number of calls of its lane that arrived before it and wait still; None: it does not wait.

    Not all of them go first: priorities, teams and free limits decide.
    """
    if view.state is not CallState.WAITING:
        return None
    number = proxy.door.exchanges[view.id].ticket
    before = 0
    for queued in proxy.engine.occupancy().waiting:
        if number is not None and queued.call_id == number.id:
            return before
        before += queued.decision.lane == view.lane
    return None
