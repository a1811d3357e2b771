"""Leases on Trio: drives the table by the engine's clock, keeps it on disk, and tells those who wait.

A lease is told to its holder once it is on disk, so a restart neither forgets it nor gives its fencing token again.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol, final

import attrs
import trio

from hivemind_trio.policy import Program, Renames
from hivemind_trio.scheduler import (
    Lease,
    LeaseChanged,
    LeaseCommand,
    LeaseEnd,
    LeaseEnded,
    LeaseGranted,
    LeaseQueue,
    LeaseRefused,
    LeaseRequest,
    LeaseTable,
)

SECOND_NS: Final = 1_000_000_000

CLOSE_S: Final = 5.0

AGAIN_S: Final = 1.0
"""Until it is tried again to write what could not be written."""


class LeaseStore(Protocol):
    """Keeper of leases beyond the end of the process. Times are those of the wall clock, since 1970."""

    async def keep_leases(self, kept: Sequence[Lease], ended: Sequence[Lease]) -> None:
        """Write leases and the ends of others; on disk when this returns.

        Raises:
            OSError, sqlite3.Error: It cannot be written now; nothing of it was.
        """


@final
@attrs.define(eq=False)
class LeaseWait:
    """A request, and what has become of it."""

    request: LeaseRequest
    lease: Lease | None = None
    """None: it waits, or is refused."""
    refused: LeaseRefused | None = None
    news: trio.Event = attrs.field(factory=trio.Event)
    """Set once it has become something."""


@final
class LeaseKeeper:
    """Keeps the leases of a proxy.

    Args:
        program: Policy to begin with.
        now_ns: The engine's clock.
        wall_ns: The clock on the wall.
        store: Keeper beyond the process; None: leases end with it.
        restored: Leases of an earlier process, in times of the wall clock and the names of now.
        fences: Resource -> highest fencing token that was given.
        on_trouble: Told once why leases cannot be written, and with "" when they can be again.
    """

    def __init__(
        self,
        program: Program,
        *,
        now_ns: Callable[[], int],
        wall_ns: Callable[[], int],
        store: LeaseStore | None = None,
        restored: Iterable[Lease] = (),
        fences: Mapping[str, int] | None = None,
        on_trouble: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._program = program
        self._now_ns = now_ns
        self._wall_ns = wall_ns
        self._store = store
        self._on_trouble = on_trouble
        shift_ns = now_ns() - wall_ns()
        leases = [_shifted(lease, shift_ns) for lease in restored]
        # A clock that was set back makes no lease longer than a renewal would.
        leases = [attrs.evolve(one, expires_ns=min(one.expires_ns, now_ns() + one.ttl_ns)) for one in leases]
        self.table = LeaseTable(program, leases, fences)
        self._waits: dict[int, LeaseWait] = {}
        self._watches: dict[str, LeaseWatch] = {}
        self._next_id = 0
        self._unwritten: list[LeaseCommand] = []
        self._untold: dict[str, None] = {}
        """Ids of the leases that are given and whose holders wait for the disk."""
        self.trouble = ""
        """Why the last write failed; empty: it did not."""
        self._noted = 0
        """Commands so far."""
        self._written = 0
        """Those of them that are on disk."""
        self._moved = trio.Event()
        """Set when something has been written."""
        self._wake = trio.Event()
        self._timer = trio.CancelScope()
        self._order: dict[int, int] = {}
        self._order_ns = -SECOND_NS
        self.is_closing = False
        """The process is about to end: sessions that break off now may be taken up again."""

    @property
    def resources(self) -> Mapping[str, LeaseQueue]:
        """Resources with their leases and requests."""
        return self.table.queues

    @property
    def unwritten(self) -> int:
        """Number of changes that are not on disk yet."""
        return len(self._unwritten)

    def is_told(self, lease_id: str) -> bool:
        """Return False for a lease that is being written to disk: its holder waits for that."""
        return lease_id not in self._untold

    # ---- holders and those who would be ----

    def ask(
        self, resource: str, *, agent: str, caller: str, priority: int = 0, ttl_ns: int | None = None, purpose: str = ""
    ) -> LeaseWait:
        """Ask for a lease. The answer may be there at once; otherwise `news` tells of it."""
        self._next_id += 1
        request = LeaseRequest(
            id=self._next_id,
            resource=resource,
            agent=agent,
            caller=caller,
            priority=priority,
            ttl_ns=ttl_ns,
            purpose=purpose,
            since_ns=self._now_ns(),
        )
        wait = self._waits[request.id] = LeaseWait(request)
        self._carry_out(self.table.ask(request, self._now_ns()))
        return wait

    def withdraw(self, wait: LeaseWait) -> None:
        """Give up a request; a lease that it has got meanwhile ends."""
        self._waits.pop(wait.request.id, None)
        self._carry_out(self.table.withdraw(wait.request.id, self._now_ns()))
        if wait.lease is not None:
            self.release(wait.lease.id)
        for command in self._unwritten:
            if isinstance(command, LeaseGranted) and command.request_id == wait.request.id:
                self.release(command.lease.id)  # the next in line need not wait for the disk
                break

    def before(self, wait: LeaseWait) -> int | None:
        """Return how many requests would be served before this one; None: it is no longer in line."""
        now_ns = self._now_ns()
        if now_ns - self._order_ns >= SECOND_NS or wait.request.id not in self._order:
            self._order = {
                request.id: place
                for queue in self.resources.values()
                for place, request in enumerate(queue.order(self._program, now_ns))
            }
            self._order_ns = now_ns
        return self._order.get(wait.request.id)

    async def decided(self, wait: LeaseWait) -> None:
        """Wait for the news of a request that is no longer in line: its lease is being written.

        One that is in line, or that the disk does not take for some seconds, is left without news.
        """
        queue = self.resources.get(wait.request.resource)
        if queue is None or wait.request.id not in queue.waiting:
            with trio.move_on_after(CLOSE_S):
                await wait.news.wait()

    async def renew(self, lease_id: str) -> Lease | None:
        """Renew a lease; None: it has ended."""
        self._carry_out(self.table.renew(lease_id, self._now_ns()))
        await self._until_written()
        return self.table.lease(lease_id)

    def release(self, lease_id: str, end: LeaseEnd = LeaseEnd.RELEASED) -> Lease | None:
        """End a lease; None: it has ended already."""
        lease = self.table.lease(lease_id)
        self._carry_out(self.table.release(lease_id, self._now_ns(), end))
        return lease

    def lease(self, lease_id: str) -> Lease | None:
        """Return a lease in hand; None: it has ended."""
        self._carry_out(self.table.pass_time(self._now_ns()))
        return self.table.lease(lease_id)

    def watch(self, lease_id: str) -> LeaseWatch:
        """Return what tells of the end of a lease. A later watch takes the place of an earlier one."""
        watch = self._watches[lease_id] = LeaseWatch(lease_id)
        if self.lease(lease_id) is None:
            watch.over(LeaseEnd.EXPIRED)
        return watch

    def session_over(self, watch: LeaseWatch) -> None:
        """End the lease of a session that is over, unless another session has taken it up."""
        if self._watches.get(watch.lease_id) is watch:
            del self._watches[watch.lease_id]
            if not self.is_closing:
                self.release(watch.lease_id, LeaseEnd.SESSION)

    def load(self, program: Program) -> None:
        """Take over a new policy."""
        self._program = program
        self._carry_out(self.table.load(program, self._now_ns()))

    # ---- the keeper's own tasks ----

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep time and write, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_time)
            if self._store is not None:
                nursery.start_soon(self._keep_written, self._store)
            task_status.started()

    async def finish(self) -> None:
        """Write what is left, as far as that is possible now."""
        if self._store is not None and self._unwritten:
            await self._write(self._store)

    async def _keep_time(self) -> None:
        while True:
            with trio.CancelScope() as self._timer:
                self._arm()
                await trio.sleep_forever()
            self._carry_out(self.table.pass_time(self._now_ns()))

    def _arm(self) -> None:
        wakeup_ns = self.table.wakeup_ns()
        now_ns = self._now_ns()
        after_s = math.inf if wakeup_ns is None else max(0, wakeup_ns - now_ns) / SECOND_NS
        self._timer.deadline = trio.current_time() + after_s

    async def _keep_written(self, store: LeaseStore) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            why = await self._write(store)
            before, self.trouble = self.trouble, why
            if bool(why) != bool(before):
                self._on_trouble(why)
            if why:
                self._wake.set()
                await trio.sleep(AGAIN_S)

    async def _write(self, store: LeaseStore) -> str:
        """Write what has changed; return why that cannot be done now, or nothing."""
        batch, self._unwritten = self._unwritten, []
        noted = self._noted
        kept: dict[str, Lease] = {}
        ended: dict[str, Lease] = {}
        for command in batch:
            match command:
                case LeaseEnded(lease=lease):
                    kept.pop(lease.id, None)
                    ended[lease.id] = lease
                case LeaseRefused():
                    pass
                case _:
                    kept[command.lease.id] = command.lease
        shift_ns = self._wall_ns() - self._now_ns()
        try:
            await store.keep_leases([_shifted(lease, shift_ns) for lease in kept.values()], list(ended.values()))
        except BaseException as error:
            # Cancelled, too: `finish` writes it. What may be on disk already is written twice.
            if not isinstance(error, Exception):
                self._unwritten = [*_latest(batch), *self._unwritten]
                raise
            self._unwritten = _latest(_without_unknown([*batch, *self._unwritten], self._waits))
            return str(error) or type(error).__name__
        self._tell(batch)
        self._written = noted
        self._moved.set()
        self._moved = trio.Event()
        return ""

    async def _until_written(self) -> None:
        await trio.lowlevel.checkpoint()
        noted = self._noted
        while self._store is not None and self._written < noted:
            await self._moved.wait()

    def _carry_out(self, commands: Sequence[LeaseCommand]) -> None:
        if commands:
            self._order_ns = -SECOND_NS
            self._noted += len(commands)
            if self._store is None:
                self._tell(commands)
            else:
                self._unwritten += commands
                self._untold |= {one.lease.id: None for one in commands if isinstance(one, LeaseGranted)}
                # Refusals and ends are news at once; what is given must be on disk before it is told.
                self._tell([one for one in commands if isinstance(one, LeaseRefused | LeaseEnded)])
                self._wake.set()
        self._arm()

    def _tell(self, commands: Sequence[LeaseCommand]) -> None:
        for command in commands:
            match command:
                case LeaseGranted(request_id=number, lease=lease):
                    self._untold.pop(lease.id, None)
                    wait = self._waits.pop(number, None)
                    if wait is None:  # it has given up while this was written
                        self.release(lease.id)
                    else:
                        wait.lease = lease
                        wait.news.set()
                case LeaseRefused(request_id=number):
                    wait = self._waits.pop(number, None)
                    if wait is not None:
                        wait.refused = command
                        wait.news.set()
                case LeaseEnded(lease=lease, end=end):
                    self._untold.pop(lease.id, None)
                    watch = self._watches.pop(lease.id, None)
                    if watch is not None:
                        watch.over(end)
                case _:
                    pass


@asynccontextmanager
async def keeping_leases(keeper: LeaseKeeper) -> AsyncIterator[None]:
    """Keep time and write within the context; leaving it writes what is left."""
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(keeper.run)
            yield
            keeper.is_closing = True
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True), trio.move_on_after(CLOSE_S):
            await keeper.finish()


@final
@attrs.define(eq=False)
class LeaseWatch:
    """Tells the session that holds a lease of its end."""

    lease_id: str
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    end: LeaseEnd | None = attrs.field(default=None, init=False)

    def over(self, end: LeaseEnd) -> None:
        """Note the end."""
        self.end = end
        self.ended.set()


def renamed_leases(leases: Iterable[Lease], renames: Renames) -> list[Lease]:
    """Return leases under the names of a policy."""
    return [
        attrs.evolve(lease, resource=renames.name("resource", lease.resource), agent=renames.name("agent", lease.agent))
        for lease in leases
    ]


def _without_unknown(batch: Sequence[LeaseCommand], waits: Collection[int]) -> list[LeaseCommand]:
    """Return commands without leases that have ended before the disk or a client has heard of them.

    The last end of a resource stays: its fencing token has been used.

    Args:
        waits: Numbers of the requests whose clients wait for news.
    """
    given = {one.lease.id for one in batch if isinstance(one, LeaseGranted) and one.request_id not in waits}
    ends = {one.lease.id: one.lease for one in batch if isinstance(one, LeaseEnded) and one.lease.id in given}
    last = {lease.resource: lease.id for lease in sorted(ends.values(), key=lambda one: one.fence)}
    gone = ends.keys() - last.values()
    return [one for one in batch if isinstance(one, LeaseRefused) or one.lease.id not in gone]


def _latest(batch: Sequence[LeaseCommand]) -> list[LeaseCommand]:
    """Return commands without renewals that a later command is about: a disk may be broken for days."""
    seen: set[str] = set()
    kept: list[LeaseCommand] = []
    for command in reversed(batch):
        if isinstance(command, LeaseRefused):
            continue  # it has been told, and is not written
        if not isinstance(command, LeaseChanged) or command.lease.id not in seen:
            kept.append(command)
        seen.add(command.lease.id)
    return kept[::-1]


def _shifted(lease: Lease, shift_ns: int) -> Lease:
    return attrs.evolve(lease, granted_ns=lease.granted_ns + shift_ns, expires_ns=lease.expires_ns + shift_ns)
