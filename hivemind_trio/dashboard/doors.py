"""Doors of operators to a proxy, of one process or of several: control API, metrics, and the page."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, final

import attrs
import trio

from hivemind_trio.admin import Ask
from hivemind_trio.control import (
    AccessCheck,
    Collect,
    ControlApp,
    ControlRoute,
    ControlSocket,
    SocketUnavailable,
    control_url,
    health_routes,
    listen_on_loopback,
    metrics_route,
    open_control,
    openapi_route,
    operation_routes,
    socket_name,
)
from hivemind_trio.policy import Server

from .assets import page_routes
from .feed import feed_route
from .page_address import PageAddress, link_route
from .page_sessions import PageSessions, login_route, page_access


class DoorsTold(Protocol):
    """Tokens of the doors, and what is told of them."""

    def admin_tokens(self) -> Iterable[str]:
        """Return the tokens of the control API that hold now."""
        ...

    def metrics_tokens(self) -> Iterable[str]:
        """Return the tokens of the metrics that hold now."""
        ...

    def say_control(self, opened: str | SocketUnavailable) -> None:
        """Tell where the control API is, or why its socket is not."""
        ...

    def say_metrics(self, url: str) -> None:
        """Tell where the metrics are."""
        ...


@final
@attrs.frozen(kw_only=True)
class Doors:
    """Everything that doors need of a proxy."""

    ask: Ask
    leases: ControlRoute
    """Route of lease sessions."""
    collect: Collect
    server: Callable[[], Server]
    """Settings of now."""
    is_ready: Callable[[], bool]
    policy: str | None
    """Path of the policy; None: it was made from what is found."""
    port: int
    """Port of the agents' listener."""
    admin_sockets: Sequence[socket.socket]
    metrics_sockets: Sequence[socket.socket]

    @asynccontextmanager
    async def open(self, told: DoorsTold) -> AsyncIterator[None]:
        """Let operators reach the proxy within the context, by a socket of this user's among others.

        Where there can be none, the proxy serves without it, and the log says so; with `admin off` there is none.
        """
        where = None
        try:
            server = self.server()
            if server.has_control:
                path = Path(server.control_path) if server.control_path is not None else None
                where = ControlSocket.open(socket_name(self.policy, self.port), self.port, path)
        except SocketUnavailable as unavailable:
            told.say_control(unavailable)
        probes = health_routes(self.is_ready)
        shown = metrics_route(self.collect)
        access = AccessCheck(server=self.server, tokens=told.admin_tokens)
        open_access = AccessCheck(
            server=self.server,
            tokens=told.metrics_tokens,
            setting="metrics",
            needs_token=lambda: bool(self.server().metrics_tokens),
        )
        async with trio.open_nursery() as nursery:
            sessions = PageSessions(told.admin_tokens, lambda: time.time_ns() / 1e9)
            page = PageAddress(
                lambda: listen_on_loopback(app, nursery),
                control_url(self.admin_sockets[0]) if self.admin_sockets else None,
            )
            routes = [
                *probes, openapi_route(), shown, self.leases, *operation_routes(self.ask),
                feed_route(self.ask), link_route(sessions, page), login_route(sessions), *page_routes(),
            ]  # fmt: skip
            app = ControlApp(routes, page_access(access, sessions))
            async with (
                open_control(app, where, self.admin_sockets),
                open_control(ControlApp([*probes, shown], open_access), None, self.metrics_sockets),
            ):
                self._say(told, where)
                yield
            nursery.cancel_scope.cancel()

    def _say(self, told: DoorsTold, where: ControlSocket | None) -> None:
        """Log where operators find the proxy."""
        if where is not None:
            told.say_control(str(where.path))
        for listening in self.admin_sockets:
            told.say_control(control_url(listening))
        for listening in self.metrics_sockets:
            told.say_metrics(f"{control_url(listening)}/metrics")
