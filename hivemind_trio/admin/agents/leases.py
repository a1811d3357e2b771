"""Leases of resources: who has one and who waits, and to ask for, renew and release one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, final

import attrs
import msgspec
import trio

from hivemind_trio.admin.operated import SECOND_NS, LeaseHouse, NoArguments, seconds
from hivemind_trio.admin.problems import OperationFailed, ProblemKind
from hivemind_trio.model import Request
from hivemind_trio.policy import UNKNOWN_AGENT
from hivemind_trio.proxy import whose
from hivemind_trio.runtime import LeaseWait
from hivemind_trio.scheduler import Lease, LeaseQueue, LeaseRefusal

from .asking import AskingAgent
from .views import AskedLeaseView, LeaseView, ReleasedView, RequestView, ResourcesView, ResourceView

WAIT_MAX_S: Final = 300.0
"""Wait of one request; who wants to wait longer asks again, or holds a session open."""

REQUESTS_SHOWN: Final = 100
"""Waiting requests of one resource in a view, the next first."""

_KINDS: Final = {
    LeaseRefusal.NO_SUCH_RESOURCE: ProblemKind.NO_SUCH_RESOURCE,
    LeaseRefusal.NOT_ALLOWED: ProblemKind.NOT_ALLOWED,
    LeaseRefusal.QUEUE_FULL: ProblemKind.QUEUE_FULL,
    LeaseRefusal.REMOVED: ProblemKind.NO_SUCH_RESOURCE,
}

Words = Annotated[str, msgspec.Meta(max_length=200)]
Name = Annotated[str, msgspec.Meta(max_length=64)]


@final
@attrs.frozen(kw_only=True)
class WantedLease:
    """A lease that is asked for."""

    resource: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    agent: Name = ""
    """Name of the agent that asks, as its base URL has it."""
    session: Name = ""
    """Session of its client, where it has no name."""
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=WAIT_MAX_S)] = 0.0
    """Longest wait for the lease; 0: only if one is free."""
    ttl_s: Annotated[float, msgspec.Meta(gt=0, le=86_400 * 365)] | None = None
    """Time without renewal; null: as long as the policy allows, and never longer."""
    purpose: Words = ""
    """For people."""


@final
@attrs.frozen(kw_only=True)
class OneLease:
    """A lease by its id."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]


def resources(house: LeaseHouse, _: NoArguments) -> ResourcesView:
    """Return the resources with their leases, and the requests that wait for one."""
    program = house.program
    now_ns = house.now_ns()
    return ResourcesView(
        resources=tuple(
            ResourceView(
                name=name,
                capacity=queue.settings.capacity,
                removed=queue.is_removed,
                leases=tuple(lease_view(house, lease) for lease in queue.held.values()),
                waiting=len(queue.waiting),
                requests=tuple(_requests(queue, house, now_ns)),
            )
            for name, queue in house.leases.resources.items()
        ),
        declared=tuple(program.resources),
        unwritten=house.leases.trouble or None,
    )


def _requests(queue: LeaseQueue, house: LeaseHouse, now_ns: int) -> Iterator[RequestView]:
    for place, request in enumerate(queue.order(house.program, now_ns)):
        if place >= REQUESTS_SHOWN:
            return
        yield RequestView(
            agent=request.agent,
            caller=request.caller,
            priority=request.priority,
            purpose=request.purpose,
            waited_s=seconds(now_ns - request.since_ns),
        )


def lease_view(house: LeaseHouse, lease: Lease) -> LeaseView:
    """Return a lease as every door shows it."""
    return LeaseView(
        lease=lease.id,
        resource=lease.resource,
        fence=lease.fence,
        agent=lease.agent,
        caller=lease.caller,
        purpose=lease.purpose,
        granted_at=house.at(lease.granted_ns),
        expires_at=house.at(lease.expires_ns),
        expires_in_s=max(0.0, seconds(lease.expires_ns - house.now_ns())),
        waited_s=seconds(lease.waited_ns),
        written=house.leases.is_told(lease.id),
    )


async def lease(house: LeaseHouse, what: WantedLease, by: str) -> AskedLeaseView:
    """Ask for a lease of a resource; it lasts until it is released, or has not been renewed for its time."""
    return await lease_for(house, AskingAgent.named(what.agent, what.session, house.program), what, by)


async def lease_for(house: LeaseHouse, agent: AskingAgent, what: WantedLease, by: str) -> AskedLeaseView:
    """Do so for an agent that is known already."""
    with asked(house, agent, what) as wait:
        with trio.move_on_after(what.wait_s):
            await wait.news.wait()
        await house.leases.decided(wait)
        refused(wait)
        if wait.lease is None:
            before, why = house.leases.before(wait) or 0, house.leases.trouble
            text = f"no lease of `{what.resource}` {'can be written to disk' if why else 'is free'}"
            text += f" ({why})" if why else ""
            text += f"; requests before this one: {before}. Ask again."
            return AskedLeaseView(lease=None, before_you=before, text=text, unwritten=why or None)
        found = wait.lease
    house.note("lease", found.id, by, _name(agent))
    view = lease_view(house, found)
    text = f"renew it within {view.expires_in_s:.0f} s, and release it when done; pass the fence on with each change"
    return AskedLeaseView(lease=view, before_you=0, text=text)


@contextmanager
def asked(house: LeaseHouse, agent: AskingAgent, what: WantedLease) -> Iterator[LeaseWait]:
    """Keep a request in line within the context; one that has a lease at its end keeps it.

    Raises:
        OperationFailed: The policy does not serve this agent.
    """
    program = house.program
    decision = program.decide(Request(token_agent=agent.token_agent, claimed=agent.name or None, headers=agent.headers))
    name = _name(agent)
    if program.rejects_as_unknown(decision.agent):
        message = f"`{name or 'an agent without a name'}` is no agent of the policy, which serves declared ones only"
        raise OperationFailed(ProblemKind.NOT_ALLOWED, message)
    if decision.agent == UNKNOWN_AGENT and not name:
        message = "an agent without a name can hold no lease; put a name into the base URL: `/@NAME`"
        raise OperationFailed(ProblemKind.CONFLICT, message)
    own = house.priorities.of(whose(agent.token_agent, agent.name, agent.session))
    wait = house.leases.ask(
        what.resource,
        agent=decision.agent,
        caller=name,
        priority=decision.priority if own is None else program.own_priority(decision, own),
        ttl_ns=None if what.ttl_s is None else math.ceil(what.ttl_s * SECOND_NS),
        purpose=what.purpose,
    )
    try:
        yield wait
    except BaseException:
        house.leases.withdraw(wait)
        raise
    if wait.lease is None:
        house.leases.withdraw(wait)


def refused(wait: LeaseWait) -> None:
    """Raise if a request was refused.

    Raises:
        OperationFailed: It was.
    """
    if wait.refused is not None:
        raise OperationFailed(_KINDS[wait.refused.refusal], wait.refused.message)


def _name(agent: AskingAgent) -> str:
    return agent.token_agent or agent.name or agent.session or agent.caller


async def renew(house: LeaseHouse, which: OneLease, by: str) -> LeaseView:
    """Renew a lease: it lasts for its time from now, up to the policy's `max`."""
    found = await house.leases.renew(which.id)
    if found is None:
        raise _over(which)
    return lease_view(house, found)


def release(house: LeaseHouse, which: OneLease, by: str) -> ReleasedView:
    """Release a lease; the next request gets it."""
    found = house.leases.release(which.id)
    if found is None:
        raise _over(which)
    house.note("release", found.id, by, found.agent if found.agent != UNKNOWN_AGENT else found.caller)
    return ReleasedView(released=found.id)


def check_held(house: LeaseHouse, lease_id: str) -> None:
    """Raise if a lease has ended.

    Raises:
        OperationFailed: It has.
    """
    if house.leases.lease(lease_id) is None:
        raise _over(OneLease(id=lease_id))


def _over(which: OneLease) -> OperationFailed:
    message = f"lease `{which.id}` has ended, or there never was one; what it stood for may be another's now"
    return OperationFailed(ProblemKind.NO_SUCH_RESOURCE, message)


async def renew_for(house: LeaseHouse, agent: AskingAgent, which: OneLease) -> Any:
    """Renew a lease of the agent's own."""
    _check_own(house, agent, which)
    return await renew(house, which, "")


def release_for(house: LeaseHouse, agent: AskingAgent, which: OneLease, by: str) -> ReleasedView:
    """Release a lease of the agent's own."""
    _check_own(house, agent, which)
    return release(house, which, by)


def _check_own(house: LeaseHouse, agent: AskingAgent, which: OneLease) -> None:
    found = house.leases.lease(which.id)
    program = house.program
    decision = program.decide(Request(token_agent=agent.token_agent, claimed=agent.name or None, headers=agent.headers))
    mine = (True, decision.agent) if decision.agent != UNKNOWN_AGENT else (False, _name(agent))
    if found is None or found.holder != mine:
        raise _over(which)
