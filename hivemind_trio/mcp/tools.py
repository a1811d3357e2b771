"""Table of the agents' tools. Each costs every agent context at every turn: few, and few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, final

import attrs
import msgspec

from hivemind_trio.admin import AGENT_OPERATIONS, OPERATIONS

INSTRUCTIONS: Final = (
    "hivemind-trio schedules the calls of all agents here to their LLM providers. Call `forecast` before you start "
    "sub-agents: it says how many fit now, and what the next one would wait for. `status` has your next turn, what is "
    "left of your budgets, and advice."
)
"""At most 60 words."""


@final
class ToolFailed(Exception):  # noqa: N818 - an answer of the tool
    """The tool cannot answer. The message says why, and what to do instead."""


OPERATOR_INSTRUCTIONS: Final = (
    "Tools of the operator of hivemind-trio, a proxy that schedules the calls of agents to their LLM providers. They "
    "see and change the calls of everybody."
)


class ShownTool(Protocol):
    """A tool as clients list it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def description(self) -> str:
        """Its description, for models."""
        ...

    @property
    def changes(self) -> bool:
        """True if it changes something."""
        ...

    def input_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        ...

    def output_schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of the result; None: its results are text."""
        ...


@final
@attrs.frozen(kw_only=True)
class OperationTool:
    """A tool that is one operation."""

    name: str
    operation: str
    description: str
    arguments: Mapping[str, str] = attrs.field(factory=dict)
    """Argument -> description; those of the operation that are left out are not the agent's to say."""
    changes: bool = False
    """True if it changes something."""

    def input_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        schema = object_schema(OPERATIONS[self.operation].arguments)
        properties, parts = schema.get("properties", {}), schema.get("$defs")
        shown = {
            name: properties[name] | ({"description": text} if text else {}) for name, text in self.arguments.items()
        }
        required = [name for name in schema.get("required", []) if name in shown]
        return {
            "type": "object",
            "properties": shown,
            "additionalProperties": False,
            **({"required": required} if required else {}),
            **({"$defs": parts} if parts else {}),
        }

    def output_schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of the result."""
        return object_schema(OPERATIONS[self.operation].result)


def object_schema(kind: type) -> dict[str, Any]:
    """Return the JSON schema of an object, which says so at its root."""
    (root,), parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    name = root["$ref"].removeprefix("#/$defs/")
    schema = {key: value for key, value in parts.pop(name).items() if key != "title"}
    for part in parts.values():
        part.pop("title", None)
    return schema | ({"$defs": parts} if parts else {})


TOOLS: Final = (
    OperationTool(
        name="status",
        operation="agent",
        description="Your next turn, what is left of your budgets and plan, and advice: go, slow or hand_over.",
    ),
    OperationTool(
        name="forecast",
        operation="forecast",
        description='How many new agents can start now? Ask before you start sub-agents: `{"agents": 8}`.',
        arguments={
            "agents": "Agents that would start now.",
            "calls": "Calls of each, one after the other.",
            "model": "Default: yours.",
            "tokens_in": "Of each call. Default: as your calls were.",
            "tokens_out": "Of each answer. Default: as yours were.",
            "within_s": "Longest wait of a call with which an agent still fits.",
        },
    ),
    OperationTool(
        name="priority",
        operation="own_priority",
        description="Give your calls another priority: lower is always allowed, higher up to the policy's max.",
        arguments={"level": "0 to 100; null: the policy's again."},
        changes=True,
    ),
)

LEASE_TOOLS: Final = (
    OperationTool(
        name="lease",
        operation="lease",
        description="Lease a shared resource of the policy, such as a browser, before you use it.",
        arguments={
            "resource": "Its name; a wrong one is answered with those that there are.",
            "wait_s": "Longest wait in line.",
            "ttl_s": "Time without `renew`. Default: the policy's.",
            "purpose": "Shown to others.",
        },
        changes=True,
    ),
    OperationTool(
        name="renew",
        operation="renew",
        description="Renew a lease before it ends. An error: it has ended, stop using the resource.",
        arguments={"id": "The lease."},
        changes=True,
    ),
    OperationTool(
        name="release",
        operation="release",
        description="Release a lease as soon as you are done.",
        arguments={"id": "The lease."},
        changes=True,
    ),
)
"""Tools where the policy has a resource."""

JOB_TOOLS: Final = (
    OperationTool(
        name="submit",
        operation="submit",
        description="Run commands of agents as jobs of the proxy: started when calls have room, resumed after limits.",
        arguments={
            "tasks": 'Such as `[{"command": ["claude", "-p", "fix a"], "cwd": "a"}]`.',
            "resume": "Ids of stopped jobs that go on in their sessions.",
        },
        changes=True,
    ),
    OperationTool(
        name="jobs",
        operation="jobs",
        description="Jobs: state, place, session, reason and usage; of one also the end of its output.",
        arguments={"job": "Id of one."},
    ),
    OperationTool(
        name="cancel",
        operation="cancel_job",
        description="Cancel a job: its process ends, and it is not started again.",
        arguments={"id": "The job."},
        changes=True,
    ),
)
"""Tools of agents that `jobs { allow }` of the policy names."""


def operator_tools() -> tuple[OperationTool, ...]:
    """Return the operators' tools: every operation that is not an agent's."""
    return tuple(
        OperationTool(
            name=name,
            operation=name,
            description=operation.summary,
            arguments={field.name: "" for field in attrs.fields(operation.arguments)},
            changes=operation.changes,
        )
        for name, operation in OPERATIONS.items()
        if name not in AGENT_OPERATIONS
    )
