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

Ask = Callable[[Any, Any, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Given the HTTP request (None: there is none), a tool and its arguments; returns the result."""


@final
@attrs.frozen
class ToolServer:
    """Tools of a table behind the SDK's server."""

    tools: Sequence[ShownTool]
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

    async def _list(self, _: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[described(tool) for tool in self.tools])

    async def _call(self, context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        tool = next((tool for tool in self.tools if tool.name == params.name), None)
        try:
            if tool is None:
                raise ToolFailed(f"no tool `{params.name}`; there are {', '.join(one.name for one in self.tools)}")
            arguments = params.arguments or {}
            known = tool.input_schema()["properties"]
            unknown = [name for name in arguments if name not in known]
            if unknown:
                takes = f"it takes {', '.join(known)}" if known else "it takes none"
                raise ToolFailed(f"no argument `{unknown[0]}`: {takes}")
            result = await self.ask(context.request, tool, arguments)
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
