"""MCP server on the SDK: tools from a table, results with their schema, failures in words."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, final

import attrs
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from hivemind_trio import __version__

from .tools import INSTRUCTIONS, ShownTool, ToolFailed

NAME: Final = "hivemind-trio"


@final
@attrs.frozen
class ToolCall:
    """One use of a tool."""

    request: Any
    """The HTTP request; None: there is none."""
    progress: Callable[[float, str], Awaitable[None]]
    """Tells the client that it is being worked on; nothing, if it did not ask to be told."""


Ask = Callable[[ToolCall, Any, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Given a call, a tool and its arguments; returns the result."""

Offer = Callable[[Any], Awaitable[Sequence[ShownTool]]]
"""Given the HTTP request (None: there is none); returns the tools that its client has now."""


@final
@attrs.frozen
class ToolServer:
    """Tools of a table behind the SDK's server."""

    offer: Offer
    ask: Ask
    instructions: str = INSTRUCTIONS

    def server(self) -> Server[Any]:
        """Return the SDK's server."""
        return Server(
            NAME,
            version=__version__,
            instructions=self.instructions,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    async def _list(self, context: ServerRequestContext[Any], _: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[described(tool) for tool in await self.offer(context.request)])

    async def _call(self, context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        tools = await self.offer(context.request)
        tool = next((tool for tool in tools if tool.name == params.name), None)
        try:
            if tool is None:
                raise ToolFailed(f"no tool `{params.name}`; there are {', '.join(one.name for one in tools)}")
            arguments = params.arguments or {}
            known = tool.input_schema()["properties"]
            unknown = [name for name in arguments if name not in known]
            if unknown:
                takes = f"it takes {', '.join(known)}" if known else "it takes none"
                raise ToolFailed(f"no argument `{unknown[0]}`: {takes}")

            async def progress(done: float, text: str) -> None:
                await context.session.report_progress(done, message=text)

            result = await self.ask(ToolCall(context.request, progress), tool, arguments)
        except ToolFailed as failed:
            return CallToolResult(content=[TextContent(text=str(failed))], is_error=True)
        text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
        structured = result if tool.output_schema() is not None else None
        return CallToolResult(content=[TextContent(text=text)], structured_content=structured)


def described(tool: ShownTool) -> Tool:
    """Return a tool as clients list it."""
    return Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema(),
        output_schema=tool.output_schema(),
        annotations=ToolAnnotations(read_only_hint=not tool.changes, destructive_hint=False, open_world_hint=False),
    )


async def serve_stdio(tools: ToolServer) -> None:
    """Serve one client on standard input and output, until it closes them."""
    server = tools.server()
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
