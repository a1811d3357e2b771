"""Forecast for new agents: a copy of the live scheduler decides about their calls (`hivemind_trio.sim.Future`)."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Annotated, Final, final

import attrs
import msgspec

from hivemind_trio.admin.forecasts.habits import between_calls, habits_of
from hivemind_trio.admin.forecasts.turns import LIVE_MAX, in_turn
from hivemind_trio.admin.operated import SECOND_NS, Operated, seconds
from hivemind_trio.admin.show import reason_text
from hivemind_trio.model import Reason
from hivemind_trio.runtime import SchedulerCopies
from hivemind_trio.scheduler import Call
from hivemind_trio.sim import USUAL_NS, AgentCourse, ExpectedAgent, Future, Habits

from .asking import AskingAgent, CallShape, likely_call
from .views import DurationView, ForecastView

HORIZON_NS: Final = 1_800 * SECOND_NS
EVENTS_MAX: Final = 5_000
"""Events of one future; a few tenths of a second of computing."""
FUTURES: Final = 5
"""Their median is the answer."""


@final
@attrs.frozen(kw_only=True)
class NewAgents:
    """Agents that would start now."""

    agent: str = ""
    """Name of the agent that asks, as its base URL has it; they start under its name."""
    session: str = ""
    """Session of its client, which finds its calls where it has no name."""
    agents: Annotated[int, msgspec.Meta(ge=1, le=200)] = 1
    calls: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    """Calls of each, one after the other."""
    model: str = ""
    """Empty: as the agent's calls were lately."""
    tokens_in: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 0
    """Input of each call; 0: as the agent's calls were lately."""
    tokens_out: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 0
    within_s: Annotated[float, msgspec.Meta(ge=0, le=3_600)] = 5.0
    """Longest wait of a call with which an agent still fits."""


@final
@attrs.frozen(kw_only=True)
class Outlook:
    """All that futures begin with."""

    copies: SchedulerCopies
    habits: Habits
    others: tuple[ExpectedAgent, ...]
    """Agents that called lately and have no call now."""
    call: Call
    """A call of the new agents."""
    output: int
    seen: int
    """Calls of which the habits are known."""

    def courses(self, agents: int, calls: int, seed: int) -> tuple[Future, list[AgentCourse]]:
        """Return a future with so many new agents, and their courses in it."""
        future = Future(self.copies.copy(), self.habits, Random(f"forecast/{seed}"))  # noqa: S311 - to be repeatable
        for other in self.others:
            future.expect(other, asked=False)
        courses = []
        for number in range(agents):
            call = attrs.evolve(self.call, job=f"forecast-{number}", caller=f"{self.call.caller}+{number}")
            courses.append(future.expect(ExpectedAgent(call=call, output=self.output, calls=calls)))
        future.run(HORIZON_NS, EVENTS_MAX)
        return future, courses


async def forecast(proxy: Operated, what: NewAgents) -> ForecastView:
    """Return how many new agents can start now, and what bounds them."""
    return await forecast_for(proxy, AskingAgent.named(what.agent, what.session, proxy.program), what)


async def forecast_for(proxy: Operated, agent: AskingAgent, what: NewAgents) -> ForecastView:
    """Return the forecast for an agent that is known already."""
    shape = CallShape(model=what.model, tokens_in=what.tokens_in, tokens_out=what.tokens_out)
    view = outlook(proxy, agent, shape)
    if view is None:
        return _crowded(proxy, agent, shape, what)
    return _forecast_view(proxy, view, what, await in_turn(partial(_search, view, what)))


def outlook(proxy: Operated, agent: AskingAgent, shape: CallShape) -> Outlook | None:
    """Take the proxy as it is; None: it has too many calls for that."""
    snapshot = proxy.engine.snapshot()
    if snapshot.waiting + snapshot.inflight > LIVE_MAX:
        return None
    call, output = likely_call(proxy, agent, shape)
    conduct, now_ns = proxy.conduct, proxy.engine.now_ns()
    habits = habits_of(conduct, now_ns)
    return Outlook(
        copies=proxy.engine.copies(),
        habits=habits,
        others=between_calls(conduct, habits, now_ns),
        call=call,
        output=output,
        seen=conduct.answered(),
    )


_Found = tuple[int, Future, list[AgentCourse], list[int]]
"""Number that fits, a future with all, the courses there, and when all were done in each future (-1: in none)."""


def _search(view: Outlook, what: NewAgents) -> _Found:
    """Return the most agents that fit; runs in a thread of its own."""
    future, courses = view.courses(what.agents, what.calls, 0)
    ends = [_done_ns(courses)]
    ends += [_done_ns(view.courses(what.agents, what.calls, seed)[1]) for seed in range(1, FUTURES)]
    low, high = 0, what.agents
    if _all_fit(courses, what.within_s):
        low = what.agents
    while high - low > 1:
        middle = (low + high) // 2
        if _all_fit(view.courses(middle, what.calls, 0)[1], what.within_s):
            low = middle
        else:
            high = middle
    return low, future, courses, ends


def _all_fit(courses: list[AgentCourse], within_s: float) -> bool:
    waits = [one.longest_wait_ns for one in courses]
    return all(wait_ns is not None and wait_ns <= within_s * SECOND_NS for wait_ns in waits)


def _done_ns(courses: list[AgentCourse]) -> int:
    ends = [one.ended_ns for one in courses]
    return max((end for end in ends if end is not None), default=-1) if None not in ends else -1


def _forecast_view(proxy: Operated, view: Outlook, what: NewAgents, found: _Found) -> ForecastView:
    fits, future, courses, ends = found
    decision = proxy.engine.scheduler.decided(view.call)
    provider = decision.provider
    late = [one for one in courses if not _all_fit([one], what.within_s)]
    blocked = max(late, key=lambda one: max(one.waits_ns, default=HORIZON_NS), default=None)
    rejected = next((one.rejection for one in courses if one.rejection is not None), None)
    reason = future.blocks(blocked) if blocked is not None else Reason.NONE
    bound = reason_text(proxy, decision.lane, provider, reason) if blocked is not None and rejected is None else None
    starts = sorted(HORIZON_NS if one.first_start_ns is None else one.first_start_ns for one in courses)
    model = decision.model or view.call.request.model
    price = proxy.engine.program.price(model, provider)
    has_price = price is not None and price.has_price
    cost = price.cost_microusd(view.call.request.tokens_in, view.output) if price is not None and has_price else None
    whole = sorted(end for end in ends if end >= 0)
    return ForecastView(
        fits=fits,
        asked=what.agents,
        text=_sentence(fits, what, starts, bound, rejected.message if rejected is not None else None),
        bound_by=bound,
        would_break=rejected.message if rejected is not None else None,
        starts_s=tuple(seconds(start) if start < HORIZON_NS else None for start in starts),
        ends_s=DurationView(p50=seconds(whole[len(whole) // 2]), p90=seconds(whole[-1]))
        if len(whole) == FUTURES
        else None,
        cost_usd=round(cost * what.agents * what.calls / 1e6, 4) if cost is not None else None,
        provider=provider,
        lane=decision.lane,
        model=model,
        basis=basis(view),
    )


def basis(view: Outlook) -> str:
    """Return the evidence of a forecast in words."""
    if not view.seen:
        return f"no call has ended yet; answers are taken to last {USUAL_NS // SECOND_NS} s"
    return f"the scheduler's state now, and the last {view.seen} answers"


def _sentence(fits: int, what: NewAgents, starts: list[int], bound: str | None, rejection: str | None) -> str:
    """Return the answer in words."""
    wait = f"{what.within_s:g} s"
    if fits == what.agents:
        return f"{'it fits' if fits == 1 else f'all {fits} fit'}: no call waits longer than {wait}"
    rest = "the agent does not fit" if what.agents == 1 else f"{fits or 'none'} of {what.agents} fit"
    if rejection is not None:
        return f"{rest}: calls would be rejected: {rejection}"
    next_ns = starts[min(fits, len(starts) - 1)]
    start = f"the next would start in {next_ns // SECOND_NS} s" if next_ns < HORIZON_NS else "the next would not start"
    if next_ns <= what.within_s * SECOND_NS:
        start = f"with more, later calls would wait longer than {wait}"
    return f"{rest} now; {start}{f', because {bound}' if bound else ''}"


def _crowded(proxy: Operated, agent: AskingAgent, shape: CallShape, what: NewAgents) -> ForecastView:
    """Return the answer for a proxy with more calls than can be copied."""
    snapshot = proxy.engine.snapshot()
    call, _ = likely_call(proxy, agent, shape)
    decision = proxy.engine.scheduler.decided(call)
    bound = f"{snapshot.waiting:,} calls wait already"
    return ForecastView(
        fits=0,
        asked=what.agents,
        text=f"none fits now: {bound}",
        bound_by=bound,
        would_break=None,
        starts_s=(None,) * what.agents,
        ends_s=None,
        cost_usd=None,
        provider=decision.provider,
        lane=decision.lane,
        model=call.request.model,
        basis=f"more than {LIVE_MAX:,} calls are not simulated",
    )
