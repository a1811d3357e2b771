"""`hivemind-trio mcp`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import quote

import click

from hivemind_trio.cli.console import fail
from hivemind_trio.cli.control.connect import NoProxy, client_at, found_proxy, proxy_options

AGENTS: Final = ("agent", "forecast", "own_priority")
"""Operations that are told the agent."""

BASE_URLS: Final = ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "GOOGLE_GEMINI_BASE_URL")


@click.command(
    epilog="""\b
Examples:
  claude mcp add hivemind -- hivemind-trio mcp             let Claude Code ask the proxy that runs
  codex mcp add hivemind -- hivemind-trio mcp              the same for Codex
  hivemind-trio mcp --agent ci                             answer for the agent that calls at /@ci
  hivemind-trio mcp --policy team.hmp                      ask the proxy that serves this policy
  hivemind-trio mcp --compat 0.2                           with the tools of hivemind-scheduler 0.2
  claude mcp add operator -- hivemind-trio mcp --operator  for the operator: queue, explain, pause, reload
  pip install 'hivemind-trio[mcp]'                         install the SDK that it needs"""
)
@click.option(
    "--agent",
    metavar="NAME",
    help="Answer for this agent, as the base URL names it. Default: the name in ANTHROPIC_BASE_URL or "
    "OPENAI_BASE_URL (`/@NAME`), else the job of `run`.",
)
@click.option("--operator", is_flag=True, help="Give the operators' tools instead: they see and change everything.")
@click.option(
    "--compat",
    type=click.Choice(["0.2"]),
    help="Give the tools of hivemind-scheduler 0.2 too (`hm.status` and the others).",
)
@proxy_options
def mcp(agent: str | None, operator: bool, compat: str | None, socket: str | None, policy: str | None) -> None:
    """Run an MCP server with tools for agents.

    An MCP client starts it, and speaks on standard input and output. The tools ask the running proxy by its control
    socket, as `status` does: `forecast` says how many new agents can start now, and `status` has the agent's next turn
    and budgets (`hivemind-trio help agent-tools`).
    """
    if find_spec("mcp") is None:
        fail("the MCP server needs the package mcp", hint="`pip install 'hivemind-trio[mcp]'`")
    if operator and (compat or agent is not None):
        fail("--operator excludes --agent and --compat", hint="run two servers, one for each")
    import trio

    from hivemind_trio.mcp.server import ToolServer, serve_stdio
    from hivemind_trio.mcp.tools import INSTRUCTIONS, OPERATOR_INSTRUCTIONS, TOOLS, operator_tools

    from .mcp_compat import COMPAT_TOOLS, CompatTool, answered

    name = agent if agent is not None else named_in(os.environ)
    session = os.environ.get("CLAUDE_CODE_SESSION_ID", "")

    async def operate(operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        own = {"agent": name, "session": session} if operation in AGENTS else {}
        return await trio.to_thread.run_sync(_asked, socket, policy, operation, own | arguments)

    async def ask(_: object, tool: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        if isinstance(tool, CompatTool):
            return await answered(tool, operate, arguments)
        return await operate(tool.operation, arguments)

    tools = operator_tools() if operator else (*TOOLS, *(COMPAT_TOOLS if compat else ()))
    trio.run(serve_stdio, ToolServer(tools, ask, OPERATOR_INSTRUCTIONS if operator else INSTRUCTIONS))


def named_in(environment: Mapping[str, str]) -> str:
    """Return the name that an agent's environment gives it; empty: none."""
    for variable in BASE_URLS:
        match = re.search(r"//[^/]+/@([A-Za-z0-9._~-]{1,64})(?:/|$)", environment.get(variable, ""))
        if match is not None:
            return match[1]
    return environment.get("HIVEMIND_JOB", "")


def _asked(socket: str | None, policy: str | None, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Ask the proxy that runs now: it may have been started again since the last question."""
    from hivemind_trio.control import OPERATION_PATHS, NotReachable, RequestRefused
    from hivemind_trio.mcp.tools import ToolFailed

    method, path = OPERATION_PATHS[operation]
    if "{id}" in path:
        path = path.replace("{id}", quote(str(arguments.pop("id", "")), safe=""))
    given = {name: value for name, value in arguments.items() if method != "GET" or value is not None}
    try:
        where = socket if socket is not None else str(found_proxy(policy))
        with client_at(where) as client:
            answer: dict[str, Any] = client.ask(method, path, **{"query" if method == "GET" else "body": given})
    except NoProxy as none:
        raise ToolFailed(f"{none}; {none.hint}" if none.hint else str(none)) from None
    except (NotReachable, RequestRefused) as error:
        lines = error.diagnostics if isinstance(error, RequestRefused) else ()
        raise ToolFailed("\n".join([str(error), *lines])) from None
    return answer
