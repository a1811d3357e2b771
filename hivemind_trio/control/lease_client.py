"""Client of lease sessions: waits for a lease, renews it, and learns of its end."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, final

import attrs
import httpx2
import msgspec
import trio

from .client import NotReachable, RequestRefused
from .socket_file import socket_address

ASK_S: Final = 10.0
"""Time for the answer to a renewal."""
SILENT_S: Final = 45.0
"""Time without a line after which the connection counts as broken; the proxy sends one every 15 s."""
AGAIN_S: Final = 1.0
AWAY_S: Final = 60.0
"""Time for which a request that waited is made again to a proxy that is away."""
TOLD_S: Final = 1.0
"""Time that the news of a lease may take to arrive: the lease ends here before it ends there. Less for a short one."""
TEMPORARY: Final = ("not-granted", "queue-full")
"""Codes of refusals that a later request may not meet."""
ENDS: Final = {"released": "it was released", "expired": "its time is over", "session": "its session is over"}
SHARE: Final = 3
"""A lease is renewed so many times within its time."""


@final
class LeaseNotGranted(Exception):  # noqa: N818 - one of the ways in which a request ends
    """There is no lease to have now."""


@final
@attrs.frozen
class PlaceInLine:
    """Place of a request for a lease."""

    before: int
    """Requests before it."""
    unwritten: str | None = None
    """Why the proxy cannot write leases, and so gives none; None: it can."""


WaitListener = Callable[[PlaceInLine], object]
"""Told the place in line, at first and when it changes."""


@asynccontextmanager
async def lease_http(where: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Open a client of the proxy at a socket or, with the token in HIVEMIND_ADMIN_TOKEN, at a URL.

    Raises:
        NotReachable: There is no such socket.
    """
    with ExitStack() as held:
        if "://" in where:
            headers = {"authorization": f"Bearer {os.environ.get('HIVEMIND_ADMIN_TOKEN', '')}"}
            client = httpx2.AsyncClient(base_url=where, headers=headers, trust_env=False)
        else:
            try:
                path = held.enter_context(socket_address(Path(where)))
            except OSError as error:
                raise NotReachable(f"no proxy listens at {where}: {error.strerror}") from None
            transport = httpx2.AsyncHTTPTransport(uds=path)
            client = httpx2.AsyncClient(transport=transport, base_url="http://localhost")
        async with client:
            yield client


@final
@attrs.define(eq=False)
class HeldSession:
    """A lease in hand, renewed in the background until it is lost or released."""

    where: Callable[[], str]
    """Finds the proxy: it may have been started again."""
    lease: dict[str, Any]
    """As the control API shows it."""
    renews: bool = True
    """True if this client renews it."""
    lost: trio.Event = attrs.field(factory=trio.Event, init=False)
    why: str = attrs.field(default="", init=False)
    """Why it was lost."""
    _until_s: float = attrs.field(default=0.0, init=False)
    """Time at which it ends, as far as is known here."""

    def _lose(self, why: str) -> None:
        if not self.lost.is_set():
            self.why = why
            self.lost.set()

    def took(self, asked_s: float, lease: dict[str, Any]) -> None:
        """Note the lease as it was told, in answer to a question of that time."""
        self.lease = lease
        # Counted from before the question, so that it ends here before it ends there.
        self._until_s = asked_s + lease["expires_in_s"]

    async def keep_time(self) -> None:
        """Give the lease up when its time is over, whatever the proxy does."""
        while (left_s := self._until_s - trio.current_time()) > 0:  # noqa: ASYNC110 - the end moves with renewals
            await trio.sleep(left_s)
        self._lose("its time is over, and the proxy did not renew it")

    async def _renew(self, client: httpx2.AsyncClient) -> None:
        """Renew until the lease or the connection ends."""
        while True:
            await trio.sleep(max(0.05, self.lease["expires_in_s"] / SHARE))
            asked_s = trio.current_time()
            try:
                answer = await client.post(f"/v1/leases/{self.lease['lease']}/renew", timeout=ASK_S)
            except httpx2.HTTPError:
                continue
            if answer.status_code == 404:
                self._lose("it has ended at the proxy")
                return
            if answer.status_code == 200:
                self.took(asked_s, answer.json())

    async def follow(self, lines: AsyncIterator[dict[str, Any]], client: httpx2.AsyncClient) -> None:
        """Follow the session, and open another where it breaks off."""
        async with trio.open_nursery() as nursery:
            if self.renews:
                nursery.start_soon(self._renew, client)
            try:
                async for line in lines:
                    if line["event"] == "ended":
                        self._lose(ENDS.get(line["end"], line["end"]))
            except httpx2.HTTPError:
                pass  # the proxy may be started again, and has the lease in its state
            nursery.cancel_scope.cancel()

    async def take_up(self) -> None:
        """Hold the lease by a new session after the first has broken off."""
        while not self.lost.is_set():
            await trio.sleep(AGAIN_S)
            try:
                asked_s = trio.current_time()
                async with (
                    lease_http(self.where()) as client,
                    _lines(client, {"lease": self.lease["lease"]}) as lines,
                ):
                    first = await anext(lines)
                    if first["event"] == "lease":
                        self.took(asked_s, {name: value for name, value in first.items() if name != "event"})
                        await self.follow(lines, client)
                    else:
                        self._lose("it has ended")
            except RequestRefused as refused:
                self._lose(str(refused))
            except (NotReachable, StopAsyncIteration, httpx2.HTTPError, OSError):
                continue

    async def release(self) -> None:
        """Give the lease back; one that has ended, or whose proxy is gone, needs it no more."""
        with trio.move_on_after(ASK_S, shield=True):
            try:
                async with lease_http(self.where()) as client:
                    await client.post(f"/v1/leases/{self.lease['lease']}/release", timeout=ASK_S)
            except (NotReachable, httpx2.HTTPError, OSError):
                return


@asynccontextmanager
async def _lines(client: httpx2.AsyncClient, body: dict[str, Any]) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Open a session; give its lines as objects.

    Raises:
        RequestRefused: There is none.
    """
    timeout = httpx2.Timeout(ASK_S, read=SILENT_S)
    async with client.stream("POST", "/v1/leases/hold", json=body, timeout=timeout) as answer:
        if answer.status_code != 200:
            found = msgspec.json.decode(await answer.aread() or b"{}", type=dict[str, Any])
            detail = found.get("detail", f"status {answer.status_code}")
            raise RequestRefused(answer.status_code, found.get("code", ""), detail)

        async def objects() -> AsyncIterator[dict[str, Any]]:
            async for line in answer.aiter_lines():
                if line:
                    yield msgspec.json.decode(line, type=dict[str, Any])

        yield objects()


@asynccontextmanager
async def held_lease(
    where: Callable[[], str],
    body: dict[str, Any],
    on_wait: WaitListener = lambda _: None,
    *,
    renews: bool = True,
) -> AsyncIterator[HeldSession]:
    """Wait for a lease and hold it within the context; it is renewed, and released at the end.

    Args:
        where: Finds the proxy's socket or URL.
        body: The request, as `POST /v1/leases/hold` takes it.
        on_wait: Told the place in line, at first and when it changes.
        renews: False: somebody else renews it, and it is lost when the proxy says so.

    Raises:
        NotReachable: No proxy answers.
        RequestRefused: The proxy refuses the request.
        LeaseNotGranted: None was free in time, or the request was refused while it waited.
    """
    async with AsyncExitStack() as stack:
        client, lines, lease = await _first_lease(stack, where, body, on_wait)
        session = HeldSession(where, lease, renews)
        session.took(trio.current_time() - min(TOLD_S, lease["expires_in_s"] / SHARE), lease)
        async with trio.open_nursery() as nursery:

            async def follow() -> None:
                await session.follow(lines, client)
                await session.take_up()

            if renews:
                nursery.start_soon(session.keep_time)
            nursery.start_soon(follow)
            try:
                yield session
            finally:
                nursery.cancel_scope.cancel()
                await session.release()


async def _first_lease(
    stack: AsyncExitStack, where: Callable[[], str], body: dict[str, Any], on_wait: WaitListener
) -> tuple[httpx2.AsyncClient, AsyncIterator[dict[str, Any]], dict[str, Any]]:
    """Wait for a lease; its client and its session stay open in the stack.

    A proxy that goes away while the request waits is asked again for a minute: it may be started again.
    """
    until_s = None if body.get("wait_s") is None else trio.current_time() + body["wait_s"]
    heard_s: float | None = None

    def waits(place: PlaceInLine) -> None:
        nonlocal heard_s
        heard_s = trio.current_time()
        on_wait(place)

    while True:
        async with AsyncExitStack() as attempt:
            try:
                client = await attempt.enter_async_context(lease_http(where()))
                lines = await attempt.enter_async_context(_lines(client, body))
                lease = await _granted(lines, waits)
                stack.push_async_exit(attempt.pop_all())
                return client, lines, lease
            except (httpx2.HTTPError, NotReachable) as error:
                if heard_s is None or trio.current_time() > heard_s + AWAY_S:
                    raise NotReachable(f"no answer from the proxy: {error}") from None
        await trio.sleep(AGAIN_S)
        if until_s is not None:
            body = body | {"wait_s": max(0.0, until_s - trio.current_time())}


async def _granted(lines: AsyncIterator[dict[str, Any]], on_wait: WaitListener) -> dict[str, Any]:
    async for line in lines:
        match line["event"]:
            case "waiting":
                on_wait(PlaceInLine(line["before_you"], line.get("unwritten")))  # an older proxy does not tell
            case "lease":
                return {name: value for name, value in line.items() if name != "event"}
            case "refused" if line["code"] in TEMPORARY:
                raise LeaseNotGranted(line["detail"])
            case "refused":
                raise RequestRefused(409, line["code"], line["detail"])
            case "ended":
                raise LeaseNotGranted("the lease has ended before it could be told")
            case _:
                pass
    raise LeaseNotGranted("the proxy ended the connection")
