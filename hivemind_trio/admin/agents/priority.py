"""Priority that an agent asks for its own calls."""

from __future__ import annotations

from typing import Annotated, final

import attrs
import msgspec

from hivemind_trio.admin.operated import Operated
from hivemind_trio.admin.problems import OperationFailed, ProblemKind
from hivemind_trio.proxy import Whose, shown, whose

from .asking import AskingAgent, CallShape, likely_call
from .views import OwnPriorityView


@final
@attrs.frozen(kw_only=True)
class OwnPriority:
    """Priority for the calls of an agent from now on, and for those that wait."""

    agent: str = ""
    """Name of the agent that asks, as its base URL has it."""
    session: str = ""
    """Session of its client, where it has no name."""
    level: Annotated[int, msgspec.Meta(ge=0, le=100)] | None
    """Null: the policy's again."""


def set_own(proxy: Operated, what: OwnPriority, by: str) -> OwnPriorityView:
    """Give an agent's calls the priority that it asks for: a lower one, or a higher one up to the policy's `max`."""
    return set_own_for(proxy, AskingAgent.named(what.agent, what.session, proxy.program), what, by)


def set_own_for(proxy: Operated, agent: AskingAgent, what: OwnPriority, by: str) -> OwnPriorityView:
    """Do so for an agent that is known already."""
    key = whose(agent.token_agent, agent.name, agent.session)
    if key is None:
        message = "an agent without a name has no priority of its own; put a name into the base URL: `/@NAME`"
        raise OperationFailed(ProblemKind.CONFLICT, message)
    program = proxy.engine.program
    proxy.door.priorities.ask(key, what.level)
    waiting = _give(proxy, agent, what.level)
    call, _ = likely_call(proxy, agent, CallShape())
    decision = proxy.engine.scheduler.decided(call)
    level = decision.priority if what.level is None else program.own_priority(decision, what.level)
    proxy.note("own priority", shown(key), by, f"asked {what.level}, has {level}")
    text = f"calls of `{shown(key)}` have priority {level}"
    if what.level is not None and level < what.level:
        decider = decision.decided.get("priority")
        by_whom = f", by {decider.kind} {decider.name}".rstrip() if decider is not None else ""
        text += f", not {what.level}: the policy allows {level} at most{by_whom}"
    return OwnPriorityView(level=level, policy=decision.priority, waiting=waiting, text=text)


def heed(proxy: Operated, key: Whose, level: int | None) -> None:
    """Give the calls here the priority that their agent has asked another process of the proxy for."""
    proxy.door.priorities.keep(key, level)
    _give(proxy, AskingAgent.of(key), level)


def _give(proxy: Operated, agent: AskingAgent, level: int | None) -> int:
    """Give an agent's waiting calls a priority; return how many they are."""
    waiting = [one for one in proxy.engine.occupancy().waiting if agent.is_of(one.decision.agent, one.caller)]
    for one in waiting:
        proxy.engine.ask_priority(one.call_id, level)
    return len(waiting)
