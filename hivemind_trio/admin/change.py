"""Operations that change the running proxy. Each is logged with the operator who asked for it."""

from __future__ import annotations

from typing import Annotated, Final, final

import attrs
import msgspec

from hivemind_trio.proxy import Exchange
from hivemind_trio.scheduler import Pausable, PauseSet, PrioritySet

from .operated import Operated
from .problems import OperationFailed, ProblemKind
from .show import NoArguments, OneCall, call
from .views import CallView, PausedView, PauseView

PRIORITY_MAX: Final = 1_000
"""In either direction. Policies have priorities of -100 to 100 at most, so that an operator can outdo each."""


@final
@attrs.frozen(kw_only=True)
class Pausee:
    """Target of a pause."""

    kind: Pausable
    name: Annotated[str, msgspec.Meta(min_length=1)]


@final
@attrs.frozen(kw_only=True)
class CallPriority:
    """Priority for a call."""

    id: str
    priority: Annotated[int, msgspec.Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX)]


def paused(proxy: Operated, _: NoArguments) -> PausedView:
    """Return what is paused, with the number of calls that wait for it."""
    held = proxy.engine.snapshot().paused
    waiting = proxy.engine.occupancy().waiting
    counts = dict.fromkeys(held, 0)
    for one in waiting:
        agent = one.decision.agent if one.decision.agent in proxy.engine.program.agents else one.caller
        for key in (
            (Pausable.PROVIDER, one.decision.provider or ""),
            (Pausable.LANE, one.decision.lane),
            (Pausable.AGENT, agent),
        ):
            if key in counts:
                counts[key] += 1
    return PausedView(
        paused=tuple(PauseView(kind=str(kind), name=name, waiting=count) for (kind, name), count in counts.items())
    )


def pause(proxy: Operated, which: Pausee, by: str) -> PausedView:
    """Hold back the calls of a provider, lane or agent. Calls in flight go on; those that wait keep their deadlines."""
    _check_name(proxy, which)
    proxy.engine.post(PauseSet(which.kind, which.name, True))
    proxy.note("pause", f"{which.kind} {which.name}", by, "")
    return paused(proxy, NoArguments())


def resume(proxy: Operated, which: Pausee, by: str) -> PausedView:
    """Let the calls of a paused provider, lane or agent go."""
    if (which.kind, which.name) not in proxy.engine.snapshot().paused:
        held = ", ".join(f"{kind} {name}" for kind, name in proxy.engine.snapshot().paused) or "nothing"
        message = f"{which.kind} `{which.name}` is not paused; paused: {held}"
        raise OperationFailed(ProblemKind.NO_SUCH_RESOURCE, message)
    proxy.engine.post(PauseSet(which.kind, which.name, False))
    proxy.note("resume", f"{which.kind} {which.name}", by, "")
    return paused(proxy, NoArguments())


def _check_name(proxy: Operated, which: Pausee) -> None:
    """Raise if the policy has no provider or lane of that name. Agents come and go, so any name will do."""
    program = proxy.engine.program
    known = {Pausable.PROVIDER: program.providers, Pausable.LANE: program.lanes}.get(which.kind)
    if known is not None and which.name not in known:
        message = f"the policy has no {which.kind} `{which.name}`; it has {', '.join(known)}"
        raise OperationFailed(ProblemKind.NO_SUCH_RESOURCE, message)


def cancel(proxy: Operated, one: OneCall, by: str) -> CallView:
    """Reject a call that waits, or end its attempt; its agent gets 403, or a broken stream if it had content."""
    view, exchange = call(proxy, one), _exchange(proxy, one.id)
    exchange.cancel()
    proxy.note("cancel", one.id, by, f"{view.state}, agent {view.caller if view.agent == 'unknown' else view.agent}")
    return view


def set_priority(proxy: Operated, which: CallPriority, by: str) -> CallView:
    """Give a waiting call another priority. It still needs room in every limit."""
    exchange = _exchange(proxy, which.id)
    waiting = {queued.call_id for queued in proxy.engine.occupancy().waiting}
    if exchange.ticket is None or exchange.ticket.id not in waiting:
        raise OperationFailed(ProblemKind.CONFLICT, f"call `{which.id}` does not wait any more")
    proxy.engine.post(PrioritySet(exchange.ticket.id, which.priority))
    proxy.note("priority", which.id, by, str(which.priority))
    return call(proxy, OneCall(which.id))


def _exchange(proxy: Operated, name: str) -> Exchange:
    """Return a call that is not over."""
    exchange = proxy.door.exchanges.get(name)
    if exchange is None:
        message = f"no call `{name}` is in progress; `hivemind-trio calls` lists them"
        raise OperationFailed(ProblemKind.NO_SUCH_RESOURCE, message)
    return exchange
