"""Conduct of providers and agents, as the calls that ended lately show it."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Final

from hivemind_trio.admin.history import EndedCall
from hivemind_trio.admin.operated import SECOND_NS, Operated
from hivemind_trio.model import Request
from hivemind_trio.policy import UNKNOWN_AGENT
from hivemind_trio.proxy import CallRecord
from hivemind_trio.scheduler import Call, CallId
from hivemind_trio.sim import ExpectedAgent, Habits
from hivemind_trio.wire import endpoint

ACTIVE_NS: Final = 60 * SECOND_NS
"""An agent without a call for so long is taken to be done."""
GAP_MAX_NS: Final = 300 * SECOND_NS
USUAL_NS: Final = 15 * SECOND_NS
"""Duration of an answer before any has ended."""
USUAL_OUTPUT: Final = 1_000


def habits_of(proxy: Operated) -> tuple[Habits, int]:
    """Return the conduct of everybody, and the number of answers that show it."""
    service: defaultdict[str, list[int]] = defaultdict(list)
    outputs, gaps = [], []
    last: dict[str, int] = {}
    for one in proxy.tally.recent:
        record, caller = one.record, one.record.caller
        if caller in last and 0 <= (gap_ns := _arrived_ns(one) - last[caller]) <= GAP_MAX_NS:
            gaps.append(gap_ns)
        last[caller] = one.ended_ns
        if is_served(record):
            service[record.provider or ""].append(max(1, record.duration_ms - record.waited_ms) * 1_000_000)
            if record.usage is not None:
                outputs.append(record.usage.output)
    times = [time_ns for several in service.values() for time_ns in several]
    habits = Habits(
        service_ns=service, any_service_ns=times or [USUAL_NS], gaps_ns=gaps, outputs=outputs or [USUAL_OUTPUT]
    )
    return habits, len(times)


def _arrived_ns(one: EndedCall) -> int:
    return one.ended_ns - one.record.duration_ms * 1_000_000


def between_calls(proxy: Operated, habits: Habits) -> tuple[ExpectedAgent, ...]:
    """Return the agents that called lately, have no call now and are expected to call again."""
    now_ns, occupancy = proxy.engine.now_ns(), proxy.engine.occupancy()
    busy = {one.caller for one in occupancy.waiting} | {one.caller for one in occupancy.inflight}
    latest = {one.record.caller: one for one in proxy.tally.recent}
    chance = Random(f"gaps/{now_ns}")  # noqa: S311 - guards nothing
    found = []
    for caller, one in latest.items():
        idle_ns = now_ns - one.ended_ns
        longer = [gap_ns for gap_ns in habits.gaps_ns if gap_ns > idle_ns]
        if caller in busy or idle_ns > ACTIVE_NS or not longer or not is_served(one.record):
            continue
        record, usage = one.record, one.record.usage
        request = Request(
            apis=endpoint(record.path, {}).apis,
            token_agent=record.agent if record.agent != UNKNOWN_AGENT else None,
            claimed=record.claimed or None,
            model=record.model,
            path=record.path,
            tokens_in=usage.total - usage.output if usage is not None else 0,
        )
        call = Call(id=CallId(0), request=request, caller=caller, job=record.job)
        found.append(ExpectedAgent(call=call, first_ns=chance.choice(longer) - idle_ns))
    return tuple(found)


def is_served(record: CallRecord) -> bool:
    """Return True if a provider has answered the call well."""
    return not record.rejected and record.provider is not None and 200 <= record.status < 300 and record.attempts > 0
