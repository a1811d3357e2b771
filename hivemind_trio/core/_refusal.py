"""What an agent is told when its call is refused: which limit it met, and what would help."""

from __future__ import annotations

from hivemind_trio.model import Reason

from ._waiter import Waiter

DRAINING = "the proxy is about to stop and takes no new calls"
DENIED = "the policy denies this call"
"""Where the rule says nothing itself."""
UNKNOWN_AGENT = "the policy serves declared agents only, and this call is from none of them"


def no_provider(model: str) -> str:
    what = f"model `{model}`" if model else "this path"
    return f"no provider in the policy serves {what}"


def shed(full: str) -> str:
    return f"{full}, so the one that had waited longest was dropped"


def too_late(waiter: Waiter, waited_ns: int) -> str:
    return f"waited {waited_ns / 1e9:.3g} s, as long as its deadline allows, because {_because(waiter)}"


def _because(waiter: Waiter) -> str:
    place, lane = waiter.place, waiter.treatment.lane
    pool, agent, models = place.pool, place.agent, waiter.treatment.group or "*"
    match waiter.blocked:
        case Reason.GROUP_FULL:
            return f"provider `{pool.name}` had its {place.group.limit} calls for models like `{models}` in flight"
        case Reason.LANE_FULL:
            return f"lane `{lane}` had its {place.lane.slots.limit} calls in flight at provider `{pool.name}`"
        case Reason.LANE_RESERVED:
            return f"the free slots of provider `{pool.name}` are reserved for other lanes than `{lane}`"
        case Reason.AGENT_FULL:
            return f"agent `{agent.name}` had its {agent.slots.limit} calls in flight"
        case _:
            return f"provider `{pool.name}` had its {pool.slots.limit} calls in flight"
