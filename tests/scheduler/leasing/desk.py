"""A lease table with a clock, a counter and a restart, so that an example reads as a story."""

from __future__ import annotations

from collections.abc import Sequence

from hivemind_trio.policy import UNKNOWN_AGENT
from hivemind_trio.scheduler import (
    Lease,
    LeaseChanged,
    LeaseCommand,
    LeaseEnd,
    LeaseEnded,
    LeaseGranted,
    LeaseRefusal,
    LeaseRefused,
    LeaseRequest,
    LeaseTable,
)
from tests.support.policies import compiled

S = 10**9
PROVIDER = "provider anthropic { }\n"


class Desk:
    """Requests are numbered from 1. What became of each stays in `leases`, `refused` and `ended`."""

    def __init__(self, policy: str) -> None:
        self.program = compiled(PROVIDER + policy)
        self.table = LeaseTable(self.program)
        self.now_ns = 0
        self.next_id = 0
        self.leases: dict[int, Lease] = {}
        self.order: list[int] = []
        """Requests in the order of their leases."""
        self.refused: dict[int, LeaseRefusal] = {}
        self.ended: list[tuple[str, LeaseEnd]] = []
        self.fences: dict[str, list[int]] = {}

    def ask(
        self,
        agent: str = "",
        *,
        resource: str = "gpu",
        caller: str = "",
        priority: int = 0,
        ttl_s: float | None = None,
    ) -> int:
        self.next_id += 1
        request = LeaseRequest(
            id=self.next_id,
            resource=resource,
            agent=agent or UNKNOWN_AGENT,
            caller=caller or agent,
            priority=priority,
            ttl_ns=None if ttl_s is None else round(ttl_s * S),
        )
        self.told(self.table.ask(request, self.now_ns))
        return request.id

    def withdraw(self, number: int) -> None:
        self.told(self.table.withdraw(number, self.now_ns))

    def renew(self, number: int) -> None:
        self.told(self.table.renew(self.leases[number].id, self.now_ns))

    def release(self, number: int) -> None:
        self.told(self.table.release(self.leases[number].id, self.now_ns))

    def pass_s(self, seconds: float) -> None:
        """Let time pass, and wake the table when it asks for it."""
        until_ns = self.now_ns + round(seconds * S)
        while (at_ns := self.table.wakeup_ns()) is not None and at_ns <= until_ns:
            self.now_ns = max(self.now_ns, at_ns)
            self.told(self.table.pass_time(self.now_ns))
        self.now_ns = until_ns

    def load(self, policy: str) -> None:
        self.program = compiled(PROVIDER + policy)
        self.told(self.table.load(self.program, self.now_ns))

    def restart(self, policy: str) -> None:
        """Begin a new process with what the store has kept."""
        held = [lease for queue in self.table.queues.values() for lease in queue.held.values()]
        self.program = compiled(PROVIDER + policy)
        self.table = LeaseTable(self.program, held, self.table.fences)

    def told(self, commands: Sequence[LeaseCommand]) -> None:
        for command in commands:
            match command:
                case LeaseGranted(request_id=number, lease=lease):
                    self.leases[number] = lease
                    self.order.append(number)
                    self.fences.setdefault(lease.resource, []).append(lease.fence)
                case LeaseRefused(request_id=number, refusal=refusal):
                    self.refused[number] = refusal
                case LeaseChanged(lease=lease):
                    number = next(number for number, one in self.leases.items() if one.id == lease.id)
                    self.leases[number] = lease
                case LeaseEnded(lease=lease, end=end):
                    self.ended.append((lease.id, end))

    def held(self, resource: str = "gpu") -> list[int]:
        queue = self.table.queues.get(resource)
        ids = list(queue.held) if queue is not None else []
        return [number for number, lease in self.leases.items() if lease.id in ids]

    def in_line(self, resource: str = "gpu") -> list[int]:
        """Waiting requests, the next first."""
        return [one.id for one in self.table.queues[resource].order(self.program, self.now_ns)]
