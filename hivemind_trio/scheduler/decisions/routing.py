"""Fallback routing: the provider of a call as budgets and the health of providers change it."""

from __future__ import annotations

from typing import Final

import attrs

from hivemind_trio.model import Decider, Decision
from hivemind_trio.policy import ProviderSettings, WhileOpen
from hivemind_trio.scheduler.budgets.budgets import sent
from hivemind_trio.scheduler.calls.waiting_call import WaitingCall
from hivemind_trio.scheduler.protocol.call import Call
from hivemind_trio.scheduler.protocol.circuit import Circuit
from hivemind_trio.scheduler.queueing.provider import ProviderQueue
from hivemind_trio.scheduler.state import SchedulerState

from .account_choice import at_account, choose, senders_for
from .policy_decision import decide

BY_OTHERS: Final = {"operator": Decider("operator", "", ""), "agent": Decider("agent", "itself", "")}
"""Deciders of what is not the policy's: a priority, and that a call is let through."""


def route(books: SchedulerState, call: Call, treatment: Decision, failed: ProviderQueue | None = None) -> Decision:
    """Return the decision as budgets, the health of providers and an operator change it.

    Args:
        failed: Where the call's last attempt has failed, if another provider may do better.
    """
    treated = choose(books, call, _routed(books, call, treatment, failed), failed)
    if call.priority is None:
        return treated
    return attrs.evolve(
        treated, priority=call.priority, decided={**treated.decided, "priority": BY_OTHERS[call.priority_by]}
    )


def let_through(treatment: Decision) -> Decision:
    """Return the decision about a call that an operator lets through."""
    return attrs.evolve(treatment, decided={**treatment.decided, "let-through": BY_OTHERS["operator"]})


def _routed(books: SchedulerState, call: Call, treatment: Decision, failed: ProviderQueue | None) -> Decision:
    treated = _budgeted(books, call, treatment) if treatment.budgets else treatment
    if treated.provider is None or books.program.providers[treated.provider].while_open is not WhileOpen.FALLBACK:
        return treated
    for provider in books.program.chain(treated.provider):
        if provider.name == treated.provider:
            there = treated
        else:
            group = provider.group_of(treated.model or call.request.model)
            there = attrs.evolve(treated, provider=provider.name, group=group, instead_of=treated.provider)
        for pool, account in senders_for(books, provider.name, treated.lane):
            if pool is failed or not pool.health.up or pool.provider is None:
                continue
            if _takes(books, call, at_account(call, there, pool.provider, account), pool.provider, pool):
                return there
    return treated


def _takes(
    books: SchedulerState, call: Call, treatment: Decision, provider: ProviderSettings, pool: ProviderQueue
) -> bool:
    """Return True if a provider that is up would take the call, sooner or later."""
    if pool.health.spent.shut(books.billing_key(call, treatment), books.now_ns):
        return False
    if treatment.instead_of is None:
        return True
    request = sent(call.request, treatment)
    quotas = pool.group(treatment.group).quotas(request.model, books.account(call, pool.name), books.now_ns)
    cost, exact = books.cost_of(quotas, request, pool), request.tokens_counted > 0
    return provider.takes(request, request.model) and quotas.too_large(cost, exact=exact) is None


def _budgeted(books: SchedulerState, call: Call, treatment: Decision) -> Decision:
    """Return the decision as budgets that are nearly used up change it."""
    if treatment.provider is None:
        return treatment
    treated = books.budgets.apply(treatment, books.whose(call, treatment), books.now_ns)
    if treated.model == treatment.model:
        return treated
    # Another model may be served elsewhere. Who may call, and how, is decided by what was asked for.
    asked = attrs.evolve(call.request, model=treated.model or call.request.model)
    there = decide(books, attrs.evolve(call, request=asked))
    return attrs.evolve(treated, provider=there.provider, group=there.group)


def calls_to_move(books: SchedulerState, pool: ProviderQueue) -> list[WaitingCall]:
    """Return the calls that are to wait elsewhere, now that the circuit of this provider has changed.

    Away from it while it is down, and back when it is well; to find out whether it is, the smallest comes back.
    """
    circuit = pool.health.breaker.circuit
    if pool.provider is None:
        return []
    if pool.provider.while_open is not WhileOpen.FALLBACK:
        of_account = bool(pool.provider.account_of) and not pool.health.up
        return [waiter for waiter in books.room if waiter.place.pool is pool] if of_account else []
    if not pool.health.up:
        return [waiter for waiter in books.room if waiter.place.pool is pool]
    away = [
        waiter
        for waiter in books.room
        if waiter.treatment.instead_of == pool.provider.declared_name
        and waiter.in_line
        and waiter.stays_away_ns(pool) <= books.now_ns
    ]
    if circuit is Circuit.CLOSED or not away:
        return away
    return [min(away, key=lambda waiter: waiter.call.request.tokens_total)]  # the least is lost with it


def is_given_up(books: SchedulerState, pool: ProviderQueue) -> bool:
    """Return True if no call may wait for the provider, not even for its next attempt."""
    return pool.health.breaker.circuit is Circuit.OPEN and books.refuses_while_open(pool)
