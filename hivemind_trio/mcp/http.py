"""Agents' tools at `/mcp` of the agents' listener: streamable HTTP without sessions; the first use imports the SDK."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import msgspec
import trio

from hivemind_trio.admin import AGENT_OPERATIONS, AskingAgent, Operated, OperationFailed, jobs
from hivemind_trio.listen import Receive, Scope, Send
from hivemind_trio.proxy import Asker

from .tools import JOB_TOOLS, LEASE_TOOLS, TOOLS, OperationTool, ToolFailed

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from .server import ToolCall

BODY_MAX: Final = 64 * 1024
"""Bytes of a request's body."""

ASKER: Final = "hivemind.asker"
"""Key of the agent in the scope."""


@final
@attrs.define(eq=False)
class HttpTools:
    """ASGI app of the tools."""

    proxy: Operated
    nursery: trio.Nursery
    _manager: StreamableHTTPSessionManager | None = None
    _opening: trio.Lock = attrs.field(factory=trio.Lock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send, asker: Asker) -> None:
        """Answer one request of an agent."""
        if find_spec("mcp") is None:
            text = "the tools need the package mcp where the proxy runs: `pip install 'hivemind-trio[mcp]'`"
            await _say(send, 501, text)
        elif scope["method"] != "POST":
            # There are no sessions, so the server has nothing to tell by itself.
            await _say(send, 405, f"POST is the method of this path, and not {scope['method']}", (b"allow", b"POST"))
        else:
            manager = await self._opened()
            sending: Any = send  # the SDK sends mappings that are dicts
            await manager.handle_request({**scope, ASKER: asker}, receive, sending)

    async def _opened(self) -> StreamableHTTPSessionManager:
        async with self._opening:
            if self._manager is None:
                # It takes a second, in which calls go on.
                await trio.to_thread.run_sync(import_module, "hivemind_trio.mcp.server")
                self._manager = await self.nursery.start(self._serve)
        return self._manager

    async def _serve(self, *, task_status: trio.TaskStatus[StreamableHTTPSessionManager]) -> None:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from .server import ToolServer

        quiet = logging.getLogger("mcp")
        quiet.propagate = False  # its lines would stand between those of the proxy's own log
        server = ToolServer(self._offer, self._ask).server()
        manager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=BODY_MAX
        )
        async with manager.run():
            task_status.started(manager)
            await trio.sleep_forever()

    async def _offer(self, request: Any) -> Sequence[OperationTool]:
        await trio.lowlevel.checkpoint()
        runs = jobs.may_submit(self.proxy, AskingAgent.at_the_door(request.scope[ASKER]))
        return (
            *TOOLS,
            *(LEASE_TOOLS if self.proxy.engine.program.resources else ()),
            *(JOB_TOOLS if runs else ()),
        )

    async def _ask(self, call: ToolCall, tool: OperationTool, arguments: dict[str, Any]) -> dict[str, Any]:
        operation = AGENT_OPERATIONS[tool.operation]
        agent = AskingAgent.at_the_door(call.request.scope[ASKER])
        try:
            wanted: Any = msgspec.convert(arguments, operation.arguments)
            result = await operation.run(self.proxy, agent, wanted)
        except (msgspec.ValidationError, OperationFailed) as failed:
            raise ToolFailed(str(failed)) from None
        plain: dict[str, Any] = msgspec.to_builtins(result)
        return plain


async def _say(send: Send, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
    body = msgspec.json.encode({"error": {"type": "hivemind", "message": text}})
    fields = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def open_tools(proxy: Operated) -> AsyncIterator[None]:
    """Give agents their tools at `/mcp` within the context."""
    async with trio.open_nursery() as nursery:
        proxy.door.tools = HttpTools(proxy, nursery)
        try:
            yield
        finally:
            proxy.door.tools = None
            nursery.cancel_scope.cancel()
