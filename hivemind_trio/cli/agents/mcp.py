"""`hivemind-trio mcp`."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import quote

import click

from hivemind_trio.cli.console import fail
from hivemind_trio.cli.control.connect import NoProxy, client_at, found_proxy, named_in, proxy_options

AGENTS: Final = ("agent", "forecast", "own_priority", "lease", "submit", "jobs", "cancel_job")
"""Operations that are told the agent."""

AskOperation = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]

JOBS: Final = ("submit", "jobs", "cancel_job")


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

    from hivemind_trio.mcp.server import ToolCall, ToolServer, serve_stdio
    from hivemind_trio.mcp.tools import (
        INSTRUCTIONS,
        JOB_TOOLS,
        LEASE_TOOLS,
        OPERATOR_INSTRUCTIONS,
        TOOLS,
        ShownTool,
        operator_tools,
    )

    from .held_leases import HeldLeases
    from .mcp_compat import COMPAT_TOOLS, CompatTool, answered

    name = agent if agent is not None else named_in(os.environ)
    session = os.environ.get("CLAUDE_CODE_SESSION_ID", "")

    async def operate(operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        own = {"agent": name, "session": session} if operation in AGENTS and not operator else {}
        if operation in JOBS and own and not name:
            own["agent"] = f"mcp-{os.getpid()}"  # an agent without a name is no operator
        return await trio.to_thread.run_sync(_asked, socket, policy, operation, own | arguments)

    async def offer(_: object) -> Sequence[ShownTool]:
        if operator:
            return operator_tools()
        resources, jobs = await _answered(operate, "resources"), await _answered(operate, "jobs")
        leased = LEASE_TOOLS if resources is not None and resources["declared"] else ()
        submitted = JOB_TOOLS if jobs is not None else ()
        return (*TOOLS, *leased, *submitted, *(COMPAT_TOOLS if compat else ()))

    async def main() -> None:
        async with HeldLeases.open(lambda: _where(socket, policy)) as held:

            async def ask(call: ToolCall, tool: Any, arguments: dict[str, Any]) -> dict[str, Any]:
                if isinstance(tool, CompatTool):
                    return await answered(tool, operate, arguments)
                if tool.operation == "lease" and not operator:
                    own = {"agent": name, "session": session} if name or session else {"agent": f"mcp-{os.getpid()}"}
                    return await held.lease(own | arguments, call.progress)
                if tool.operation in ("renew", "release") and not operator:
                    held.check_own(arguments.get("id"))
                return await operate(tool.operation, arguments)

            await serve_stdio(ToolServer(offer, ask, OPERATOR_INSTRUCTIONS if operator else INSTRUCTIONS))

    trio.run(main)


async def _answered(operate: AskOperation, operation: str) -> dict[str, Any] | None:
    """Return the answer to an operation; None: it is refused, or no proxy runs now, as every tool says."""
    from hivemind_trio.mcp.tools import ToolFailed

    try:
        return await operate(operation, {})
    except ToolFailed:
        return None


def _where(path: str | None, policy: str | None) -> str:
    """Return the socket or the URL of the proxy that runs now.

    Raises:
        NotReachable: None does.
    """
    from hivemind_trio.control import NotReachable

    try:
        return path if path is not None else str(found_proxy(policy))
    except NoProxy as none:
        raise NotReachable(f"{none}; {none.hint}" if none.hint else str(none)) from None


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
