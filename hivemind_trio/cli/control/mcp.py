"""`hivemind-trio mcp`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import click

from hivemind_trio.cli.console import fail

from .connect import NoProxy, client_at, found_proxy, proxy_options

if TYPE_CHECKING:
    from hivemind_trio.mcp.tools import AgentTool

PATHS: Final = {
    "agent": ("GET", "/v1/agent"),
    "forecast": ("GET", "/v1/forecast"),
    "own_priority": ("POST", "/v1/agent/priority"),
}
"""Operation -> its method and path."""

BASE_URLS: Final = ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "GOOGLE_GEMINI_BASE_URL")


@click.command(
    epilog="""\b
Examples:
  claude mcp add hivemind -- hivemind-trio mcp             let Claude Code ask the proxy that runs
  codex mcp add hivemind -- hivemind-trio mcp              the same for Codex
  hivemind-trio mcp --agent ci                             answer for the agent that calls at /@ci
  hivemind-trio mcp --policy team.hmp                      ask the proxy that serves this policy
  pip install 'hivemind-trio[mcp]'                         install the SDK that it needs"""
)
@click.option(
    "--agent",
    metavar="NAME",
    help="Answer for this agent, as the base URL names it. Default: the name in ANTHROPIC_BASE_URL or "
    "OPENAI_BASE_URL (`/@NAME`), else the job of `run`.",
)
@proxy_options
def mcp(agent: str | None, socket: str | None, policy: str | None) -> None:
    """Run an MCP server with tools for agents.

    An MCP client starts it, and speaks on standard input and output. The tools ask the running proxy by its control
    socket, as `status` does: `forecast` says how many new agents can start now, and `status` has the agent's next turn
    and budgets (`hivemind-trio help agent-tools`).
    """
    if find_spec("mcp") is None:
        fail("the MCP server needs the package mcp", hint="`pip install 'hivemind-trio[mcp]'`")
    import trio

    from hivemind_trio.mcp.server import ToolServer, serve_stdio
    from hivemind_trio.mcp.tools import TOOLS

    name = agent if agent is not None else named_in(os.environ)

    async def ask(_: object, tool: AgentTool, arguments: dict[str, Any]) -> dict[str, Any]:
        query = {"agent": name, **arguments}
        return await trio.to_thread.run_sync(_asked, socket, policy, PATHS[tool.operation], query)

    trio.run(serve_stdio, ToolServer(TOOLS, ask))


def named_in(environment: Mapping[str, str]) -> str:
    """Return the name that an agent's environment gives it; empty: none."""
    for variable in BASE_URLS:
        match = re.search(r"//[^/]+/@([A-Za-z0-9._~-]{1,64})(?:/|$)", environment.get(variable, ""))
        if match is not None:
            return match[1]
    return environment.get("HIVEMIND_JOB", "")


def _asked(
    socket: str | None, policy: str | None, where_to: tuple[str, str], arguments: dict[str, Any]
) -> dict[str, Any]:
    """Ask the proxy that runs now: it may have been started again since the last question."""
    from hivemind_trio.control import NotReachable, RequestRefused
    from hivemind_trio.mcp.tools import ToolFailed

    try:
        where = socket if socket is not None else str(found_proxy(policy))
        with client_at(where) as client:
            method, path = where_to
            sent = {"query" if method == "GET" else "body": arguments}
            answer: dict[str, Any] = client.ask(method, path, **sent)
    except NoProxy as none:
        raise ToolFailed(f"{none}; {none.hint}") from None
    except (NotReachable, RequestRefused) as error:
        raise ToolFailed(str(error)) from None
    return answer
