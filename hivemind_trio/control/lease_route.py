"""Lease sessions: a lease that is held for as long as a connection is open.

The answer is a line of JSON for each event: `waiting`, `lease`, `ended`, `refused`. When the client hangs up, however
that happens, its request is withdrawn and its lease ends. A client whose proxy was restarted takes its lease up again
by its id.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Final, final

import attrs
import msgspec
import trio

from hivemind_trio.admin import AskingAgent, LeaseHouse, OperationFailed, ProblemKind, leases
from hivemind_trio.runtime import LeaseWait

from .routes import ControlAnswer, ControlRequest, ControlRoute, problem

PATH: Final = "/v1/leases/hold"
LINES: Final = "application/x-ndjson"
STEP_S: Final = 1.0
"""Time between two looks at the place in line."""
NOT_GRANTED: Final = "not-granted"
"""Code of a request whose wait is over."""
BEAT_S: Final = 15.0
"""A line is sent at least so often, so that each side learns of the other's end."""


@final
@attrs.frozen(kw_only=True)
class HeldLease:
    """A lease to hold: a new one, or one in hand."""

    resource: Annotated[str, msgspec.Meta(max_length=200)] = ""
    lease: Annotated[str, msgspec.Meta(max_length=300)] = ""
    """Id of a lease to take up again; the rest is not looked at then."""
    agent: leases.Name = ""
    session: leases.Name = ""
    wait_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """Longest wait; null: until it is granted."""
    ttl_s: Annotated[float, msgspec.Meta(gt=0, le=86_400 * 365)] | None = None
    purpose: leases.Words = ""


@final
@attrs.define(eq=False)
class LeaseSession:
    """One connection and its lease."""

    house: LeaseHouse
    what: HeldLease
    by: str

    async def events(self) -> AsyncGenerator[bytes]:
        """Yield lines until the lease has ended, or there will be none."""
        lease_id = self.what.lease
        try:
            if lease_id:
                leases.check_held(self.house, lease_id)
            else:
                agent = AskingAgent.named(self.what.agent, self.what.session, self.house.program)
                wanted = leases.WantedLease(
                    resource=self.what.resource, ttl_s=self.what.ttl_s, purpose=self.what.purpose
                )
                with leases.asked(self.house, agent, wanted) as wait:
                    async with aclosing(self._waiting(wait)) as lines:
                        async for line in lines:
                            yield line
                    leases.refused(wait)
                if wait.lease is None:
                    why = self.house.leases.trouble
                    how = f"could be written to disk in time ({why})" if why else "was free in time"
                    yield _line("refused", code=NOT_GRANTED, detail=f"no lease of `{wanted.resource}` {how}")
                    return
                lease_id = wait.lease.id
                self.house.note("lease", lease_id, self.by, wait.lease.caller)
        except OperationFailed as failed:
            yield _line("refused", code=str(failed.kind), detail=str(failed))
            return
        async with aclosing(self._holding(lease_id)) as lines:
            async for line in lines:
                yield line

    async def _holding(self, lease_id: str) -> AsyncGenerator[bytes]:
        """Yield the lease, a line now and then, and its end."""
        watch = self.house.leases.watch(lease_id)
        try:
            found = self.house.leases.lease(lease_id)
            if found is not None:
                yield _line("lease", **attrs.asdict(leases.lease_view(self.house, found)))
            while watch.end is None:
                with trio.move_on_after(BEAT_S):
                    await watch.ended.wait()
                if watch.end is None:
                    yield _line("held")
            yield _line("ended", end=str(watch.end))
        finally:
            self.house.leases.session_over(watch)

    async def _waiting(self, wait: LeaseWait) -> AsyncGenerator[bytes]:
        """Yield the place in line as it changes, until the request has become something or its time is over."""
        told: tuple[int, str] | None = None
        told_s = -BEAT_S
        began_s = trio.current_time()
        until_s = began_s + (self.what.wait_s if self.what.wait_s is not None else float("inf"))
        while not wait.news.is_set() and trio.current_time() < until_s:
            before = self.house.leases.before(wait)
            if before is None and trio.current_time() >= began_s + STEP_S:
                before = 0  # its lease is being written, for as long as the disk is full or read-only
            why = self.house.leases.trouble
            if before is not None and ((before, why) != told or trio.current_time() >= told_s + BEAT_S):
                told, told_s = (before, why), trio.current_time()
                yield _line("waiting", before_you=before, unwritten=why or None)
            with trio.move_on_at(min(until_s, trio.current_time() + STEP_S)):
                await wait.news.wait()
        await self.house.leases.decided(wait)


def _line(event: str, **fields: Any) -> bytes:
    return msgspec.json.encode({"event": event} | fields) + b"\n"


def leases_route(house: LeaseHouse) -> ControlRoute:
    """Return the route of lease sessions."""

    async def answer(request: ControlRequest) -> ControlAnswer:
        try:
            what = msgspec.json.decode(request.body or b"{}", type=HeldLease)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return problem(400, f"the body is no request for a lease: {error}", str(ProblemKind.BAD_ARGUMENT))
        return ControlAnswer(content_type=LINES, stream=LeaseSession(house, what, request.peer or "unknown").events())

    return ControlRoute("POST", PATH, answer)
