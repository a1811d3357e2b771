"""Table of agents' operations: name, arguments, and what runs for an agent that is known."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, final

import attrs

from hivemind_trio.admin.operated import LeaseHouse, Operated

from . import forecast, jobs, leases, priority, status
from .asking import AskingAgent


@final
@attrs.frozen
class AgentOperation:
    """One operation of an agent."""

    arguments: type
    run: Callable[[Operated, AskingAgent, Any], Awaitable[Any]]


async def _status(proxy: Operated, agent: AskingAgent, _: status.WhichAgent) -> Any:
    return await status.status_for(proxy, agent)


async def _priority(proxy: Operated, agent: AskingAgent, what: priority.OwnPriority) -> Any:
    return priority.set_own_for(proxy, agent, what, _over_mcp(agent))


async def _lease(house: LeaseHouse, agent: AskingAgent, what: leases.WantedLease) -> Any:
    return await leases.lease_for(house, agent, what, _over_mcp(agent))


async def _release(house: LeaseHouse, agent: AskingAgent, which: leases.OneLease) -> Any:
    return leases.release_for(house, agent, which, _over_mcp(agent))


AGENT_LEASES: Final[Mapping[str, Callable[[LeaseHouse, AskingAgent, Any], Awaitable[Any]]]] = {
    "lease": _lease,
    "renew": leases.renew_for,
    "release": _release,
}
"""Operations of agents that the process does which keeps the leases."""


def _at_the_keeper(name: str) -> Callable[[Operated, AskingAgent, Any], Awaitable[Any]]:
    """Return what does the operation here, or asks the process that keeps the leases."""

    async def run(proxy: Operated, agent: AskingAgent, what: Any) -> Any:
        if proxy.leases_elsewhere is not None:
            return await proxy.leases_elsewhere(name, agent, what)
        return await AGENT_LEASES[name](proxy, agent, what)

    return run


async def _submit(proxy: Operated, agent: AskingAgent, what: jobs.WantedJobs) -> Any:
    return jobs.submit_for(proxy, agent, what, _over_mcp(agent))


async def _jobs(proxy: Operated, agent: AskingAgent, which: jobs.WhichJobs) -> Any:
    return jobs.jobs_for(proxy, agent, which)


async def _cancel_job(proxy: Operated, agent: AskingAgent, which: jobs.OneJob) -> Any:
    return jobs.cancel_for(proxy, agent, which, _over_mcp(agent))


def _over_mcp(agent: AskingAgent) -> str:
    return f"agent {agent.token_agent or agent.name} over MCP"


AGENT_OPERATIONS: Final[Mapping[str, AgentOperation]] = {
    "agent": AgentOperation(status.WhichAgent, _status),
    "forecast": AgentOperation(forecast.NewAgents, forecast.forecast_for),
    "own_priority": AgentOperation(priority.OwnPriority, _priority),
    "lease": AgentOperation(leases.WantedLease, _at_the_keeper("lease")),
    "renew": AgentOperation(leases.OneLease, _at_the_keeper("renew")),
    "release": AgentOperation(leases.OneLease, _at_the_keeper("release")),
    "submit": AgentOperation(jobs.WantedJobs, _submit),
    "jobs": AgentOperation(jobs.WhichJobs, _jobs),
    "cancel_job": AgentOperation(jobs.OneJob, _cancel_job),
}
"""Operation of the table of `operations` -> the same for an agent that has proven or said who it is."""
