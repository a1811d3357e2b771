"""Tools of the predecessor, hivemind-scheduler 0.2: its names and arguments, answered by this proxy.

Results are JSON in text, and errors are results (`{"error": ...}`), as there. Nothing that let an agent change the
proxy for others is done: the answer says where that is decided now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, final

import attrs

from hivemind_trio.clients import CLIENTS
from hivemind_trio.mcp.tools import ToolFailed

AskOperation = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Given an operation and its arguments; returns its result, or raises `ToolFailed`."""

LEVELS: Final[Mapping[str, int | None]] = {"low": 0, "normal": None, "high": 75, "critical": 100}
"""Its priorities -> ours; None: the policy's."""

TEXT: Final = {"type": "string"}
NUMBER: Final = {"type": "integer"}
LEVEL: Final = {"type": "string", "enum": [*LEVELS]}
TASK: Final = {
    "command": TEXT,
    "priority": LEVEL,
    "token_budget": NUMBER,
    "estimated_tokens": NUMBER,
    "dependencies": {"type": "array", "items": TEXT},
}

JOB_PRIORITIES: Final[Mapping[str, int]] = {"low": 0, "normal": 50, "high": 75, "critical": 100}
"""Its priorities -> those of jobs."""
POLICY: Final = (
    "a policy does this now: the operator sets it in the policy file of `hivemind-trio serve --policy FILE`, which is "
    "reloaded when it changes"
)
SETTINGS: Final[Mapping[str, str]] = {
    "max_concurrency": "provider NAME { concurrency N }",
    "upstream_url": 'provider NAME { base "URL" }',
    "total_token_budget": "budget NAME { tokens N/day }",
    "default_agent_budget": "budget NAME per agent { tokens N/day }",
    "latency_target_ms": "provider NAME { aimd slow first-byte TIME }",
    "max_retries": "retry NAME { attempts N }",
}
"""Its settings -> what a policy says instead."""


@final
@attrs.frozen
class CompatTool:
    """One of its tools."""

    name: str
    description: str
    properties: Mapping[str, Any]
    run: Callable[[AskOperation, dict[str, Any]], Awaitable[dict[str, Any]]]
    required: tuple[str, ...] = ()
    changes: bool = False

    def input_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        return {"type": "object", "properties": dict(self.properties), "required": list(self.required)}

    def output_schema(self) -> None:
        """Return None: its results are text."""


async def answered(tool: CompatTool, ask: AskOperation, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a tool; an error is one, too."""
    missing = [name for name in tool.required if name not in arguments]
    if missing:
        return {"error": f"{tool.name} needs `{missing[0]}`"}
    try:
        return await tool.run(ask, arguments)
    except ToolFailed as failed:
        return {"error": str(failed)}


async def _submit(ask: AskOperation, arguments: dict[str, Any]) -> dict[str, Any]:
    (name,) = await _submitted(ask, [arguments])
    return {"task_id": name, "status": "submitted"}


async def _batch(ask: AskOperation, arguments: dict[str, Any]) -> dict[str, Any]:
    names = await _submitted(ask, arguments["tasks"])
    return {"task_ids": names, "count": len(names)}


async def _submitted(ask: AskOperation, tasks: Any) -> list[str]:
    """Submit tasks as this policy allows; an estimate of tokens is not needed: the proxy learns it."""
    if not isinstance(tasks, list) or not all(isinstance(one, dict) and "command" in one for one in tasks):
        raise ToolFailed("`tasks` is a list of objects with a `command`")
    wanted = []
    for one in tasks:
        level = one.get("priority", "normal")
        if level not in JOB_PRIORITIES:
            raise ToolFailed(f"no priority `{level}`; there are {', '.join(JOB_PRIORITIES)}")
        wanted.append(
            {"command": one["command"], "priority": JOB_PRIORITIES[level], "after": one.get("dependencies", [])}
            | ({"token_budget": one["token_budget"]} if one.get("token_budget") is not None else {})
        )
    names: list[str] = (await ask("submit", {"tasks": wanted}))["submitted"]
    return names


async def _status(ask: AskOperation, arguments: dict[str, Any]) -> dict[str, Any]:
    if "task_id" in arguments:
        try:
            return {"task": (await ask("jobs", {"job": arguments["task_id"]}))["jobs"][0]}
        except ToolFailed:
            return {"task": await ask("call", {"id": arguments["task_id"]})}
    now, mine = await ask("status", {}), await ask("agent", {})
    counts = now["calls"]
    return {
        "queue": {"pending": now["waiting"], "running": now["inflight"], "completed": counts["ended"]},
        "tasks_by_state": {
            state: {"count": len(found), "tasks": [{"id": one["id"], "agent": one["caller"]} for one in found[:10]]}
            for state in ("waiting", "inflight")
            if (found := (await ask("calls", {"state": state}))["calls"])
        },
        "you": mine["you"],
        "next_turn": mine["next_turn"],
        "advice": mine["advice"],
    }


async def _priority(ask: AskOperation, arguments: dict[str, Any]) -> dict[str, Any]:
    wanted = arguments["priority"]
    if wanted not in LEVELS:
        return {"error": f"no priority `{wanted}`; there are {', '.join(LEVELS)}"}
    mine = await ask("own_priority", {"level": LEVELS[wanted]})
    note = "it is that of all calls of this agent; those of others are the operator's (`hivemind-trio priority`)"
    return {"priority": wanted, "level": mine["level"], "message": f"{mine['text']}; {note}"}


async def _budget(ask: AskOperation, arguments: dict[str, Any]) -> dict[str, Any]:
    action = arguments.get("action", "status")
    if action != "status":
        return {"error": f"{action}: {POLICY}; agents do not raise budgets: `{SETTINGS['default_agent_budget']}`"}
    mine = await ask("agent", {})
    return {"budgets": mine["budgets"], "plan": mine["plan"]}


async def _metrics(ask: AskOperation, _: dict[str, Any]) -> dict[str, Any]:
    now = await ask("status", {})
    providers = now["providers"]
    return {
        "admission": {one["name"]: {"active": one["inflight"], "max_concurrency": one["limit"]} for one in providers},
        "rate_limiter": {one["name"]: one["limits"] for one in providers},
        "backpressure": {one["name"]: {"circuit": one["circuit"], "learned": one["learned"]} for one in providers},
        "budget": (await ask("budgets", {}))["budgets"],
        "queue": {"pending": now["waiting"], "running": now["inflight"], "oldest_wait_s": now["oldest_wait_s"]},
        "calls": now["calls"],
    }


async def _config(_: AskOperation, arguments: dict[str, Any]) -> dict[str, Any]:
    named = [name for name in arguments if name in SETTINGS] or [*SETTINGS]
    return {"error": POLICY, "policy": {name: SETTINGS[name] for name in named}}


async def _setup(ask: AskOperation, arguments: dict[str, Any]) -> dict[str, Any]:
    name = arguments.get("tool", "generic")
    if name == "list":
        return {"supported_tools": [*CLIENTS]}
    if name not in CLIENTS:
        return {"error": f"no tool `{name}`; there are {', '.join(CLIENTS)}"}
    client, url = CLIENTS[name], (await ask("status", {}))["address"]
    return {
        "config": {variable: value.replace("{url}", url) for variable, value in client.variables.items()},
        "path": f"~/{client.files[0].folder}/{client.files[0].name}" if client.files else "environment",
        "instructions": [
            f"hivemind-trio setup {name} --url {url} --write",
            *(note.replace("{url}", url) for note in client.notes),
        ],
    }


COMPAT_TOOLS: Final = (
    CompatTool("hm.submit", "Run a command as an agent, if the policy allows it.", TASK, _submit, ("command",), True),
    CompatTool(
        "hm.batch",
        "Run several commands as agents, if the policy allows it.",
        {"tasks": {"type": "array", "items": {"type": "object", "properties": TASK}}},
        _batch,
        ("tasks",),
        changes=True,
    ),
    CompatTool("hm.status", "Queue of the proxy, your turn, one job or one call.", {"task_id": TEXT}, _status),
    CompatTool(
        "hm.priority",
        "Priority of your calls, within the policy.",
        {"task_id": TEXT, "priority": LEVEL},
        _priority,
        ("priority",),
        changes=True,
    ),
    CompatTool(
        "hm.budget",
        "What is left of your budgets.",
        {
            "action": {"type": "string", "enum": ["status", "set_agent", "set_total"]},
            "agent_id": TEXT,
            "budget": NUMBER,
            "total_budget": NUMBER,
        },
        _budget,
    ),
    CompatTool("hm.metrics", "Counts of providers, limits, budgets and queue.", {}, _metrics),
    CompatTool("hm.config", "Says which policy setting replaces an old one.", {key: {} for key in SETTINGS}, _config),
    CompatTool(
        "hm.setup",
        "How to point a client at the proxy.",
        {"tool": TEXT, "proxy_port": NUMBER, "upstream_url": TEXT, "max_concurrency": NUMBER},
        _setup,
    ),
)
