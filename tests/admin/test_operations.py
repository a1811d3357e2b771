"""Doors are tables over the operations: they agree, and so does the document."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Final

import attrs
import msgspec
import pytest

import hivemind_trio
from hivemind_trio.admin import AGENT_OPERATIONS, OPERATIONS
from hivemind_trio.control.routes import OPERATION_PATHS, STATUS_OF

DOCUMENT: Final = (Path(hivemind_trio.__file__).parent / "docs/control-api.md").read_text(encoding="utf-8")
COMMANDS: Final = "\n".join(
    path.read_text(encoding="utf-8")
    for folder in ("control", "journal")
    for path in (Path(hivemind_trio.__file__).parent / "cli" / folder).glob("*.py")
)


def test_the_control_api_has_every_operation_and_no_other() -> None:
    assert set(OPERATION_PATHS) == set(OPERATIONS)
    assert len(set(OPERATION_PATHS.values())) == len(OPERATION_PATHS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_changes_the_proxy_is_posted_and_told_who_asks(name: str) -> None:
    operation, (method, path) = OPERATIONS[name], OPERATION_PATHS[name]
    parameters = list(inspect.signature(operation.run).parameters)

    assert operation.changes == (parameters[-1] == "by")
    assert (method == "GET") == (not operation.changes)
    assert set(re.findall(r"{(\w+)}", path)) <= {field.name for field in attrs.fields(operation.arguments)}
    assert operation.summary.endswith(".")


@pytest.mark.parametrize("name", OPERATIONS)
def test_arguments_and_results_have_a_schema(name: str) -> None:
    operation = OPERATIONS[name]
    msgspec.json.schema_components([operation.arguments, operation.result], ref_template="#/{name}")


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_document_has_every_resource(name: str) -> None:
    method, path = OPERATION_PATHS[name]
    assert re.search(rf"`{method} [^|]*{re.escape(path.removeprefix('/v1') if name == 'resume' else path)}`", DOCUMENT)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_command_asks_for_every_operation(name: str) -> None:
    _, path = OPERATION_PATHS[name]
    # `explain` and `usage` ask the journal, `mcp` asks for agents, the page for the rest.
    if name not in ("call", "story", "series", "usage", "provider") and name not in AGENT_OPERATIONS:
        assert path.rpartition("}")[2] in COMMANDS


def test_every_problem_has_a_status_and_is_in_the_document() -> None:
    for kind, status in STATUS_OF.items():
        assert f"| `{kind}` | {status} |" in DOCUMENT
