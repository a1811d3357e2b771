"""OpenAPI document of the control API, made of the tables of operations and routes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import attrs
import msgspec

from hivemind_trio import __version__
from hivemind_trio.admin import OPERATIONS, Operation, ProblemKind

from .lease_route import LINES, HeldLease
from .lease_route import PATH as HOLD_PATH
from .routes import OPERATION_PATHS, PROBLEM, STATUS_OF, ControlAnswer, ControlRequest, ControlRoute

_REF: Final = "#/components/schemas/{name}"

_PROBLEM: Final = {
    "type": "object",
    "description": "Problem details (RFC 9457).",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "diagnostics": {"type": "array", "items": {"type": "string"}},
    },
}

_ALWAYS: Final[Mapping[int, str]] = {
    400: "An argument is unknown or wrong, or the body is no JSON object.",
    401: "No token, or a wrong one; at an address only.",
    403: "The request of a web page.",
    413: "The body is too large.",
    421: "A `Host` that is no name of this proxy.",
}


_STATE: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["status"],
    "properties": {"status": {"enum": ["ok", "draining"]}},
}

_METRICS: Final = ("text/plain", "application/openmetrics-text")


@cache
def document() -> dict[str, Any]:
    """Return the document."""
    types = [one.result for one in OPERATIONS.values()]
    _, components = msgspec.json.schema_components(types, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for name, (method, path) in OPERATION_PATHS.items():
        paths.setdefault(path, {})[method.lower()] = _operation(OPERATIONS[name], method, path)
    paths |= _other_paths()
    return {
        "openapi": "3.1.0",
        "info": {"title": "hivemind-trio control API", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": _PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(operation: Operation, method: str, path: str) -> dict[str, Any]:
    (schema,), parts = msgspec.json.schema_components([operation.arguments], ref_template=_REF)
    own = parts[schema["$ref"].rpartition("/")[2]]
    in_path = re.findall(r"{(\w+)}", path)
    required = own.get("required", [])
    parameters = []
    for name, of_name in own.get("properties", {}).items():
        where = "path" if name in in_path else "query" if method == "GET" else ""
        if where:
            is_needed = where == "path" or name in required
            parameters.append({"name": name, "in": where, "required": is_needed, "schema": _inlined(of_name, parts)})
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": _responses(operation),
    }
    in_body = [field.name for field in attrs.fields(operation.arguments) if field.name not in in_path]
    if "if_match" in in_body:
        in_body.remove("if_match")
        parameters.append({"name": "If-Match", "in": "header", "required": False, "schema": {"type": "string"}})
    if method == "POST" and in_body:
        body = {
            "type": "object",
            "additionalProperties": False,
            "required": [name for name in in_body if name in required],
            "properties": {name: _inlined(own["properties"][name], parts) for name in in_body},
        }
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return found


def _other_paths() -> dict[str, dict[str, Any]]:
    """Return the paths that are no operations: probes, metrics, and leases that a connection holds."""
    (schema,), parts = msgspec.json.schema_components([HeldLease], ref_template=_REF)
    held = parts[schema["$ref"].rpartition("/")[2]]
    body = {**held, "properties": {name: _inlined(one, parts) for name, one in held["properties"].items()}}
    state = {"application/json": {"schema": _STATE}}
    metrics = {kind: {"schema": {"type": "string"}} for kind in _METRICS}
    lines = {LINES: {"schema": {"type": "string", "description": "Lines of JSON, one for each event."}}}
    hold = _plain("hold_lease", "Wait for a lease, and hold it while the connection is open.", lines)
    hold["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    ready = _plain("readyz", "Tell whether the proxy takes calls.", state)
    ready["responses"]["503"] = {"description": "It drains, and takes none.", "content": state}
    return {
        "/healthz": {"get": _plain("healthz", "Tell that the process answers.", state)},
        "/readyz": {"get": ready},
        "/metrics": {"get": _plain("metrics", "Return all metrics, as Prometheus reads them.", metrics)},
        HOLD_PATH: {"post": hold},
    }


def _plain(name: str, summary: str, content: dict[str, Any]) -> dict[str, Any]:
    responses = {"200": {"description": "Done.", "content": content}, **_problems(_ALWAYS)}
    return {"operationId": name, "summary": summary, "parameters": [], "responses": responses}


def _inlined(schema: dict[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without references, which stand for enumerations only, and without null: absence says that."""
    if "$ref" in schema:
        return dict(parts[schema["$ref"].rpartition("/")[2]])
    choices = [_inlined(one, parts) for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1:
        return choices[0]
    return {key: value for key, value in schema.items() if key != "default"}


def _responses(operation: Operation) -> dict[str, Any]:
    result = {"$ref": _REF.format(name=operation.result.__name__)}
    problems = dict(_ALWAYS)
    for kind in ProblemKind:
        problems.setdefault(STATUS_OF[kind], f"`{kind}`")
    return {
        "200": {"description": "Done.", "content": {"application/json": {"schema": result}}},
        **_problems(problems),
    }


def _problems(problems: Mapping[int, str]) -> dict[str, Any]:
    schema = {"$ref": _REF.format(name="Problem")}
    return {
        str(status): {"description": words, "content": {PROBLEM: {"schema": schema}}}
        for status, words in sorted(problems.items())
    }


def openapi_route() -> ControlRoute:
    """Return the route of the document."""

    async def answer(_: ControlRequest) -> ControlAnswer:
        return ControlAnswer(body=msgspec.json.encode(document()))

    return ControlRoute("GET", "/v1/openapi.json", answer)
