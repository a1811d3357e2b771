"""The proxy as one agent needs to know it: its turn, its budgets, its plan."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, final

import attrs

from hivemind_trio.admin.forecasts.turns import in_turn
from hivemind_trio.admin.operated import Operated, seconds
from hivemind_trio.admin.show import reason_text
from hivemind_trio.model import Decision, Reason, shown_credential
from hivemind_trio.policy import UNKNOWN_AGENT, Measure
from hivemind_trio.scheduler import Call

from .asking import AskingAgent, CallShape, likely_call
from .forecast import FUTURES, HORIZON_NS, Outlook, outlook
from .views import AgentStatusView, AgentView, BudgetLeftView, NextTurnView, PlanLeftView

SLOW_S: Final = 5.0
"""Wait of the next call from which on the advice is to slow down."""
SCARCE: Final = 0.8
SPENT: Final = 0.95
"""Used share of a budget or a plan from which on the advice is to slow down, and to hand over."""


@final
@attrs.frozen(kw_only=True)
class WhichAgent:
    """The agent that asks."""

    agent: str = ""
    """Name as its base URL has it; empty: none."""
    session: str = ""
    """Session of its client, which finds its calls where it has no name."""


async def agent(proxy: Operated, which: WhichAgent) -> AgentStatusView:
    """Return an agent's own state: its next turn, what is left of its budgets and plan, and advice."""
    return await status_for(proxy, AskingAgent.named(which.agent, which.session, proxy.program))


async def status_for(proxy: Operated, asking: AskingAgent) -> AgentStatusView:
    """Return the state of an agent that is known already."""
    call, _ = likely_call(proxy, asking, CallShape())
    decision = proxy.engine.scheduler.decided(call)
    view = outlook(proxy, asking, CallShape())
    if view is None:
        turn = NextTurnView(p50_s=None, p90_s=None, bound_by=f"{proxy.engine.snapshot().waiting:,} calls wait already")
    else:
        turn = await _next_turn(proxy, view, decision)
    budgets: tuple[BudgetLeftView, ...] = ()
    plan: tuple[PlanLeftView, ...] = ()
    if decision.provider is not None:
        budgets = tuple(_budgets(proxy, call, decision))
        plan = tuple(_plan(proxy, asking, call, decision.provider))
    advice, text = _advice(turn, budgets, plan)
    return AgentStatusView(
        you=_you(proxy, asking, decision), next_turn=turn, budgets=budgets, plan=plan, advice=advice, text=text
    )


def _you(proxy: Operated, asking: AskingAgent, decision: Decision) -> AgentView:
    occupancy = proxy.engine.occupancy()
    known = decision.agent != UNKNOWN_AGENT or bool(asking.caller)
    own = [
        sum(asking.is_of(one.decision.agent, one.caller) for one in calls)
        for calls in attrs.astuple(occupancy, recurse=False)
    ]
    return AgentView(
        agent=decision.agent,
        name=asking.name,
        team=decision.team,
        lane=decision.lane,
        provider=decision.provider,
        waiting=own[0] if known else None,
        inflight=own[1] if known else None,
    )


def _starts(view: Outlook) -> tuple[list[int | None], Reason, str]:
    """Return when the next call would start in each future, the earliest first, and its limit or rejection.

    Runs in a thread of its own.
    """
    starts: list[int | None] = []
    reason, rejection = Reason.NONE, ""
    for seed in range(FUTURES):
        future, (course,) = view.courses(1, 1, seed)
        starts.append(course.first_start_ns)
        if course.rejection is not None:
            rejection = course.rejection.message
        elif course.first_start_ns != 0:
            reason = future.blocks(course)
    return sorted(starts, key=lambda start: HORIZON_NS if start is None else start), reason, rejection


async def _next_turn(proxy: Operated, view: Outlook, decision: Decision) -> NextTurnView:
    starts, reason, rejection = await in_turn(partial(_starts, view))
    bound = rejection or None
    if not bound and reason is not Reason.NONE:
        bound = reason_text(proxy, decision.lane, decision.provider, reason)
    middle, late = starts[FUTURES // 2], starts[-1]
    return NextTurnView(
        p50_s=None if middle is None else seconds(middle), p90_s=None if late is None else seconds(late), bound_by=bound
    )


def _budgets(proxy: Operated, call: Call, decision: Decision) -> Iterable[BudgetLeftView]:
    """Yield the budgets that the agent's calls count in, as far as their partition is known."""
    partition = proxy.engine.scheduler.state.whose(call, decision)
    for account in proxy.engine.accounts():
        key = account.key
        settings = proxy.program.budgets.get(key.budget)
        if key.budget not in decision.budgets or settings is None or key.whose != partition.of(settings):
            continue
        left = max(0, account.allowance.amount - account.spent - account.claimed)
        is_cost = key.measure is Measure.COST
        yield BudgetLeftView(
            name=key.budget,
            left=left / 1e6 if is_cost else left,
            unit="dollars" if is_cost else str(key.measure),
            share_used=round(1 - left / account.allowance.amount, 4) if account.allowance.amount else 1.0,
            resets_at=proxy.at(proxy.engine.now_ns() + proxy.engine.left_ns(key.window))
            if account.allowance.calendar
            else None,
        )


def _plan(proxy: Operated, asking: AskingAgent, call: Call, provider: str) -> Iterable[PlanLeftView]:
    """Yield the windows of the plan that the agent's calls count in: of the provider's key, or of its own credential.

    Who asks at the control socket need not show that credential: the name of the last call's caller has its name. At
    the door of agents anybody can claim a name.
    """
    now_ns = proxy.engine.now_ns()
    own = shown_credential(proxy.engine.scheduler.state.account(call, provider))
    settings = proxy.program.providers.get(provider)
    if not own and settings is not None and not settings.keys:
        own = call.caller.rpartition("@")[2].strip("-") if asking.is_at_control else ""
        if not own:
            return
    for plan in proxy.engine.plans(provider):
        if shown_credential(plan.account) != own:
            continue
        for window in plan.windows:
            resets = None if window.resets_ns is None else now_ns + window.resets_ns
            yield PlanLeftView(window=str(window.span), used=window.used / 1e6, resets_at=proxy.at(resets))


def _advice(turn: NextTurnView, budgets: tuple[BudgetLeftView, ...], plan: tuple[PlanLeftView, ...]) -> tuple[str, str]:
    used = [(one.share_used, f"budget `{one.name}`", one.resets_at) for one in budgets]
    used += [(one.used, f"the {one.window} window of the plan", one.resets_at) for one in plan]
    share, name, resets = max(used, default=(0.0, "", None), key=lambda one: one[0])
    until = f", until {resets}" if resets is not None else ""
    if share >= SPENT:
        return "hand_over", f"{name} is {share:.0%} used{until}: finish the step and hand over"
    if turn.p50_s is None:
        return "slow", f"the next call would not start within half an hour: {turn.bound_by or 'no time is known'}"
    if turn.p50_s > SLOW_S:
        return "slow", f"the next call would wait {turn.p50_s:.0f} s: {turn.bound_by}"
    if share >= SCARCE:
        return "slow", f"{name} is {share:.0%} used{until}"
    return "go", "the next call starts at once" if turn.p50_s < 1 else f"the next call starts in {turn.p50_s:.0f} s"
