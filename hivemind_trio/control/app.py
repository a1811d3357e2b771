"""ASGI app of the control listener: finds the route, bounds the request, and answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Final, final
from urllib.parse import parse_qsl

import attrs
import trio

from hivemind_trio.listen import Receive, Scope, Send

from .routes import ControlAnswer, ControlRequest, ControlRoute, problem

BODY_MAX: Final = 64 * 1024
"""Bytes of a request's body."""


@final
class _TooLarge(Exception):  # noqa: N818 - it becomes an answer
    """The body is over `BODY_MAX`."""


@final
class _Gone(Exception):  # noqa: N818 - there is nobody to answer
    """The client hung up."""


@final
@attrs.define(eq=False)
class ControlApp:
    """Answers by a table of routes.

    Args:
        routes: The table; the first that fits answers.
        refuses: Given a scope, why it is not answered at all; None: it is.
    """

    routes: Sequence[ControlRoute]
    refuses: Callable[[Scope], ControlAnswer | None] = attrs.field(default=lambda _: None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3."""
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "no WebSockets are served here"})
            return
        try:
            answer = self.refuses(scope) or await self._answer(scope, receive)
        except _TooLarge:
            answer = problem(413, f"the body is larger than {BODY_MAX:,} bytes", "body-too-large")
        except _Gone:
            return
        headers = [
            (b"content-type", answer.content_type.encode()),
            *([(b"content-length", str(len(answer.body)).encode())] if answer.stream is None else []),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            *((name.encode(), value.encode()) for name, value in answer.headers),
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        if answer.stream is not None and scope["method"] != "HEAD":
            await _stream(answer.stream, receive, send)
            return
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})

    async def _answer(self, scope: Scope, receive: Receive) -> ControlAnswer:
        body = await _read(receive)
        path, method = scope["path"], scope["method"]
        methods = []
        for route in self.routes:
            parts = route.match(path)
            if parts is None:
                continue
            if method == route.method or (method == "HEAD" and route.method == "GET"):
                return await route.handler(_request(scope, path, parts, body))
            methods += [route.method] + (["HEAD"] if route.method == "GET" else [])
        if methods:
            allowed = ", ".join(dict.fromkeys(methods))
            detail = f"{path} takes {allowed}, and not {method}"
            return problem(405, detail, "method-not-allowed", (("allow", allowed),))
        paths = ", ".join(dict.fromkeys(route.path for route in self.routes))
        return problem(404, f"no resource {path}; there are {paths}", "no-such-resource")


def _request(scope: Scope, path: str, parts: dict[str, str], body: bytes) -> ControlRequest:
    client = scope.get("client")
    query = scope["query_string"].decode("latin-1")
    return ControlRequest(
        method=scope["method"],
        path=path,
        parts=parts,
        fields=parse_qsl(query, keep_blank_values=True),
        body=body,
        headers={name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]},
        # At a Unix socket these are the user and the process.
        peer=(" " if scope.get("server") is None else ":").join(map(str, client)) if client else "",
    )


async def _stream(parts: AsyncIterator[bytes], receive: Receive, send: Send) -> None:
    """Send parts until the client hangs up, or there are no more."""

    async def hang_up() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hang_up)
        async with aclosing(parts) as sent:  # type: ignore[type-var]  # ours are generators
            async for part in sent:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        nursery.cancel_scope.cancel()


async def _read(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        body += bytes(message.get("body", b""))
        if len(body) > BODY_MAX:
            raise _TooLarge
        if not message.get("more_body", False):
            return body
