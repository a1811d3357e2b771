"""Operations that change the running proxy. Each is logged with the operator who asked for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, final

import attrs
import msgspec

from hivemind_trio.model import Reason
from hivemind_trio.proxy import Exchange
from hivemind_trio.scheduler import AccountSnapshot, LetThrough, Pausable, PauseSet, PrioritySet, SpendingSet

from .operated import NoArguments, Operated
from .problems import OperationFailed, ProblemKind
from .provider import no_provider, pools_of
from .show import OneCall, budget_view, call, no_lane
from .views import BudgetsView, CallView, PausedView, PauseView

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


@final
@attrs.frozen(kw_only=True)
class WhichBudget:
    """Selection of accounts of one budget."""

    budget: str
    whose: str | None = None
    """Partition; null: all."""


@final
@attrs.frozen(kw_only=True)
class BudgetSpending:
    """Amount that is to count as spent."""

    budget: str
    whose: str | None = None
    """Partition; null: the only one."""
    allowance: str | None = None
    """`$5 per day`, of a budget with several; null: the only one."""
    spent: Annotated[int, msgspec.Meta(ge=0, le=2**62)]


def paused(proxy: Operated, _: NoArguments) -> PausedView:
    """Return what is paused, with the number of calls that wait for it."""
    held = proxy.engine.snapshot().paused
    waiting = proxy.engine.occupancy().waiting
    counts = dict.fromkeys(held, 0)
    for one in waiting:
        agent = one.decision.agent if one.decision.agent in proxy.engine.program.agents else one.caller
        provider = one.decision.provider or ""
        for key in (
            *((Pausable.PROVIDER, name) for name in {provider, provider.partition(".")[0]}),
            (Pausable.LANE, one.decision.lane),
            (Pausable.AGENT, agent),
        ):
            if key in counts:
                counts[key] += 1
    return PausedView(
        paused=tuple(
            PauseView(kind=str(kind), name=name, waiting=count, known=_is_known(proxy, kind, name))
            for (kind, name), count in counts.items()
        )
    )


def _is_known(proxy: Operated, kind: Pausable, name: str) -> bool:
    """Return True unless the name may be a slip: an agent that the policy lacks and that has not called."""
    if kind is not Pausable.AGENT or name in proxy.engine.program.agents:
        return True
    records = [one.record for one in proxy.tally.recent] + [one.record() for one in proxy.door.exchanges.values()]
    return any(name in (one.agent, one.caller) for one in records)


def pause(proxy: Operated, which: Pausee, by: str) -> PausedView:
    """Hold back the calls of a provider, lane or agent. Calls in flight go on; those that wait keep their deadlines."""
    _check_name(proxy, which)
    proxy.engine.post(PauseSet(which.kind, which.name, True))
    proxy.note("pause", f"{which.kind} {which.name}", by, "")
    return paused(proxy, NoArguments())


def resume(proxy: Operated, which: Pausee, by: str) -> PausedView:
    """Let the calls of a paused provider, lane or agent go; those of a provider at all of its accounts."""
    held = proxy.engine.snapshot().paused
    ended = pauses_ended(which, held)
    if not ended:
        shown = ", ".join(f"{kind} {name}" for kind, name in held) or "nothing"
        message = f"{which.kind} `{which.name}` is not paused; paused: {shown}"
        raise OperationFailed(ProblemKind.NO_SUCH_RESOURCE, message)
    for kind, name in ended:
        proxy.engine.post(PauseSet(kind, name, False))
        proxy.note("resume", f"{kind} {name}", by, "")
    return paused(proxy, NoArguments())


def pauses_ended(which: Pausee, paused: Iterable[tuple[Pausable, str]]) -> list[tuple[Pausable, str]]:
    """Return the pauses that `resume` ends: of a provider also those of its accounts."""
    accounts = f"{which.name}."
    return [
        (kind, name)
        for kind, name in paused
        if kind is which.kind and (name == which.name or (kind is Pausable.PROVIDER and name.startswith(accounts)))
    ]


def _check_name(proxy: Operated, which: Pausee) -> None:
    """Raise if the policy has no provider or lane of that name. Agents come and go, so any name will do."""
    program = proxy.engine.program
    if which.kind is Pausable.LANE and which.name not in program.lanes:
        raise no_lane(program, which.name)
    if which.kind is not Pausable.PROVIDER or which.name in program.providers or which.name in program.pools:
        return
    for pool in pools_of(program, which.name):
        message = f"account `{which.name}` shares the limits of `{pool}`; pause that one, for all of its keys"
        raise OperationFailed(ProblemKind.CONFLICT, message)
    raise no_provider(program, which.name)


def cancel(proxy: Operated, one: OneCall, by: str) -> CallView:
    """Reject a call that waits, or end its attempt; its agent gets 403, or an error event if it had content."""
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


NOT_LET_THROUGH: Final = {
    Reason.BUDGET: "it waits for a budget, which nothing overrides; `hivemind-trio budget reset` makes room in it",
    Reason.HELD: "a rule holds it; change the rule, and reload",
    Reason.PAUSED: "it is paused; `hivemind-trio resume` lets it go",
}
"""Reasons to wait for which a call cannot be let through."""


def let_through(proxy: Operated, one: OneCall, by: str) -> CallView:
    """Let a waiting call go next at its provider, past its turn and the limits of lanes and agents.

    The provider's concurrency, rate limits and circuit still hold: without room there, it goes as soon as there is.
    """
    exchange = _exchange(proxy, one.id)
    waiting = {queued.call_id: queued for queued in proxy.engine.occupancy().waiting}
    queued = waiting.get(exchange.ticket.id) if exchange.ticket is not None else None
    if exchange.ticket is None or queued is None:
        raise OperationFailed(ProblemKind.CONFLICT, f"call `{one.id}` does not wait any more")
    if queued.reason in NOT_LET_THROUGH:
        raise OperationFailed(ProblemKind.CONFLICT, f"call `{one.id}`: {NOT_LET_THROUGH[queued.reason]}")
    proxy.engine.post(LetThrough(exchange.ticket.id))
    proxy.note("let through", one.id, by, f"it waited for {queued.reason}")
    return call(proxy, one)


def reset_budget(proxy: Operated, which: WhichBudget, by: str) -> BudgetsView:
    """Have nothing count as spent of a budget, in the windows of now. Calls that it holds go on."""
    accounts = _accounts(proxy, which.budget, which.whose, None)
    for account in accounts:
        proxy.engine.post(SpendingSet(account.key, 0))
        was = account.allowance.shown(account.spent)
        proxy.note("budget reset", _named(account), by, f"was {was}")
    return _shown(proxy, accounts)


def set_budget(proxy: Operated, what: BudgetSpending, by: str) -> BudgetsView:
    """Have so much count as spent of one account of a budget, in the window of now."""
    accounts = _accounts(proxy, what.budget, what.whose, what.allowance)
    if len(accounts) > 1:
        choices = ", ".join(f"whose `{one.key.subject}` allowance `{one.allowance.shown()}`" for one in accounts[:20])
        message = f"budget `{what.budget}` has {len(accounts)} accounts; name one of: {choices}"
        raise OperationFailed(ProblemKind.CONFLICT, message)
    account = accounts[0]
    proxy.engine.post(SpendingSet(account.key, what.spent))
    allowance = account.allowance
    detail = f"{allowance.shown(what.spent)}, was {allowance.shown(account.spent)}"
    proxy.note("budget set", _named(account), by, detail)
    return _shown(proxy, accounts)


def _accounts(proxy: Operated, budget: str, whose: str | None, allowance: str | None) -> tuple[AccountSnapshot, ...]:
    """Return the accounts that are meant; at least one."""
    budgets = proxy.engine.program.budgets
    if budget not in budgets:
        known = ", ".join(budgets) or "none"
        message = f"the policy has no budget `{budget}`; it has {known}"
        raise OperationFailed(ProblemKind.NO_SUCH_RESOURCE, message)
    of_budget = [one for one in proxy.engine.accounts() if one.key.budget == budget]
    found = tuple(
        one
        for one in of_budget
        if (whose is None or one.key.subject == whose) and (allowance is None or one.allowance.shown() == allowance)
    )
    if not found:
        there = ", ".join(dict.fromkeys(f"`{one.key.subject}` ({one.allowance.shown()})" for one in of_budget[:20]))
        message = f"budget `{budget}` has no such account; it has {there or 'none, for no call has counted yet'}"
        raise OperationFailed(ProblemKind.NO_SUCH_RESOURCE, message)
    return found


def _named(account: AccountSnapshot) -> str:
    whose = f" of {account.key.subject}" if account.key.subject else ""
    return f"{account.key.budget}{whose} ({account.allowance.shown()})"


def _shown(proxy: Operated, accounts: tuple[AccountSnapshot, ...]) -> BudgetsView:
    keys = {account.key for account in accounts}
    return BudgetsView(budgets=tuple(budget_view(proxy, one) for one in proxy.engine.accounts() if one.key in keys))


def _exchange(proxy: Operated, name: str) -> Exchange:
    """Return a call that is not over."""
    exchange = proxy.door.exchanges.get(name)
    if exchange is None:
        message = f"no call `{name}` is in progress; `hivemind-trio calls` lists them"
        raise OperationFailed(ProblemKind.NO_SUCH_RESOURCE, message)
    return exchange
