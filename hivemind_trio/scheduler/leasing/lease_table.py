"""Leases of all resources of a policy: a state machine, with the time as an argument.

    table = LeaseTable(program)
    for command in table.ask(request, now_ns):
        ...                       # told once each: `LeaseGranted`, `LeaseRefused`, `LeaseChanged`, `LeaseEnded`
    table.wakeup_ns()             # next time at which a lease ends by itself

Of requests for one resource, those of higher priority are served first; among them teams and agents share by weight
the time for which they hold leases. Fencing tokens of a resource only grow, over renames and restarts too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import final

import attrs

from hivemind_trio.policy import UNKNOWN_AGENT, Program, Renames

from .lease import (
    Lease,
    LeaseChanged,
    LeaseCommand,
    LeaseEnd,
    LeaseEnded,
    LeaseGranted,
    LeaseRefusal,
    LeaseRefused,
    LeaseRequest,
)
from .lease_queue import LeaseQueue


@final
class LeaseTable:
    """All leases and all requests for one.

    Args:
        program: Policy with the resources.
        restored: Leases of an earlier process, with times of this one.
        fences: Resource -> highest fencing token that an earlier process gave.
    """

    def __init__(
        self, program: Program, restored: Iterable[Lease] = (), fences: Mapping[str, int] | None = None
    ) -> None:
        self._program = program
        self.fences: dict[str, int] = dict(fences or {})
        """Highest fencing tokens, of removed resources too: a name that comes back goes on counting."""
        self.queues: dict[str, LeaseQueue] = {}
        """By resource, in the order of the policy; removed ones with leases behind them."""
        for name, settings in program.resources.items():
            self.queues[name] = LeaseQueue(settings, self.fences.get(name, 0))
        for lease in restored:
            queue = self.queues.get(lease.resource)
            if queue is not None:
                queue.held[lease.id] = lease
                queue.fence = max(queue.fence, lease.fence)

    def lease(self, lease_id: str) -> Lease | None:
        """Return a lease in hand; None: it has ended, or there was none."""
        return next((queue.held[lease_id] for queue in self.queues.values() if lease_id in queue.held), None)

    def wakeup_ns(self) -> int | None:
        """Return the next time at which a lease ends by itself; None: there is none."""
        ends = [lease.expires_ns for queue in self.queues.values() for lease in queue.held.values()]
        return min(ends, default=None)

    def ask(self, request: LeaseRequest, now_ns: int) -> list[LeaseCommand]:
        """Take a request: it gets a lease, waits, or is refused."""
        commands = self.pass_time(now_ns)
        queue = self.queues.get(request.resource)
        if queue is None or queue.is_removed:
            known = ", ".join(name for name, one in self.queues.items() if not one.is_removed) or "none"
            message = f"the policy has no resource `{request.resource}`; it has {known}"
            return [*commands, LeaseRefused(request.id, LeaseRefusal.NO_SUCH_RESOURCE, message)]
        if not queue.settings.may_ask(request.agent):
            return [*commands, _not_allowed(request, queue)]
        request = attrs.evolve(request, since_ns=now_ns)
        queue.enter(request, self._program)
        commands += self._serve(queue, now_ns)
        if request.id in queue.waiting and len(queue.waiting) > queue.settings.queue:
            del queue.waiting[request.id]
            size = len(queue.waiting)
            waiting = "1 request waits" if size == 1 else f"{size:,} requests wait"
            message = f"{waiting} for `{request.resource}` (limit {queue.settings.queue:,}); try again later"
            commands.append(LeaseRefused(request.id, LeaseRefusal.QUEUE_FULL, message))
        return commands

    def withdraw(self, request_id: int, now_ns: int) -> list[LeaseCommand]:
        """Take a request out of the line; one that does not wait is left alone."""
        commands = self.pass_time(now_ns)
        for queue in self.queues.values():
            if queue.waiting.pop(request_id, None) is not None:
                queue.advance(self._program)
        return commands

    def renew(self, lease_id: str, now_ns: int) -> list[LeaseCommand]:
        """Renew a lease; one that has ended stays so."""
        commands = self.pass_time(now_ns)
        lease = self.lease(lease_id)
        if lease is not None:
            commands.append(LeaseChanged(self.queues[lease.resource].renew(lease, now_ns)))
        return commands

    def release(self, lease_id: str, now_ns: int, end: LeaseEnd = LeaseEnd.RELEASED) -> list[LeaseCommand]:
        """End a lease before its time."""
        commands = self.pass_time(now_ns)
        lease = self.lease(lease_id)
        if lease is not None:
            commands += self._end(lease, end, now_ns)
        return commands

    def pass_time(self, now_ns: int) -> list[LeaseCommand]:
        """End what has expired, in the order of the times."""
        over = [lease for queue in self.queues.values() for lease in queue.held.values() if lease.expires_ns <= now_ns]
        commands: list[LeaseCommand] = []
        for lease in sorted(over, key=lambda one: one.expires_ns):
            commands += self._end(lease, LeaseEnd.EXPIRED, now_ns)
        return commands

    def load(self, program: Program, now_ns: int) -> list[LeaseCommand]:
        """Take over a new policy. Leases in hand stay."""
        commands = self.pass_time(now_ns)
        renames = Renames.between(self._program, program)
        self._program = program
        commands += self._rename(renames)
        former, self.queues = self.queues, {}
        for name, settings in program.resources.items():
            queue = former.pop(name, None)
            if queue is None:
                queue = LeaseQueue(settings, self.fences.get(name, 0))
            queue.settings, queue.is_removed = settings, False
            self.queues[name] = queue
            commands += self._turn_away(queue)
        for name, queue in former.items():
            queue.is_removed = True
            message = f"the policy no longer has the resource `{name}`"
            commands += [LeaseRefused(one, LeaseRefusal.REMOVED, message) for one in queue.waiting]
            queue.waiting.clear()
            self.fences[name] = queue.fence
            if queue.held:
                self.queues[name] = queue
        for queue in self.queues.values():
            commands += self._serve(queue, now_ns)
        return commands

    # ---- parts ----

    def _serve(self, queue: LeaseQueue, now_ns: int) -> list[LeaseCommand]:
        """Give out what is free, one after the other: each lease moves the shares."""
        commands: list[LeaseCommand] = []
        queue.advance(self._program)
        while queue.has_room and queue.waiting:
            request = next(queue.order(self._program, now_ns))
            lease = queue.begin(request, now_ns)
            self.fences[lease.resource] = lease.fence
            commands.append(LeaseGranted(request.id, lease))
        return commands

    def _end(self, lease: Lease, end: LeaseEnd, now_ns: int) -> list[LeaseCommand]:
        queue = self.queues[lease.resource]
        queue.end(lease, self._program, now_ns)
        if queue.is_removed and not queue.held:
            del self.queues[lease.resource]
        return [LeaseEnded(lease, end), *self._serve(queue, now_ns)]

    def _turn_away(self, queue: LeaseQueue) -> list[LeaseCommand]:
        """Refuse waiting requests of agents that may no longer ask."""
        refused = [
            request
            for request in queue.waiting.values()
            if not queue.settings.may_ask(request.agent) or _is_stranger(request, self._program)
        ]
        for request in refused:
            del queue.waiting[request.id]
        return [_not_allowed(request, queue) for request in refused]

    def _rename(self, renames: Renames) -> list[LeaseCommand]:
        """Carry leases, requests, shares and fencing tokens over to new names."""
        if not renames:
            return []
        commands: list[LeaseCommand] = []
        # Swapped, for a removed resource whose leases run out may have the new name.
        self.queues = {renames.swapped("resource", name): queue for name, queue in self.queues.items()}
        for old, new in renames.of("resource").items():
            self.fences[new] = max(self.fences.get(old, 0), self.fences.get(new, 0))
        for name, queue in self.queues.items():
            queue.fence = max(queue.fence, self.fences.get(name, 0))
            queue.shares.renamed(renames)
            for lease in list(queue.held.values()):
                renamed = attrs.evolve(lease, resource=name, agent=renames.name("agent", lease.agent))
                if renamed != lease:
                    queue.held[lease.id] = renamed
                    commands.append(LeaseChanged(renamed))
            for request in list(queue.waiting.values()):
                queue.waiting[request.id] = attrs.evolve(
                    request, resource=name, agent=renames.name("agent", request.agent)
                )
        return commands


def _is_stranger(request: LeaseRequest, program: Program) -> bool:
    """Return True if the agent of a request is no longer declared."""
    return request.agent != UNKNOWN_AGENT and request.agent not in program.agents


def _not_allowed(request: LeaseRequest, queue: LeaseQueue) -> LeaseRefused:
    name = request.agent if request.agent != UNKNOWN_AGENT else request.caller or "this caller"
    allowed = ", ".join(f"`{agent}`" for agent in queue.settings.allow) or "declared agents"
    message = f"resource `{queue.settings.name}` is for {allowed}, and `{name}` is none of them"
    return LeaseRefused(request.id, LeaseRefusal.NOT_ALLOWED, message)
