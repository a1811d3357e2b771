"""Routes of the control API: method, path, and what answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, final, get_args, get_type_hints

import attrs
import msgspec

from hivemind_trio.admin import OPERATIONS, Ask, Operation, OperationFailed, ProblemKind

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"

STATUS_OF: Final[Mapping[ProblemKind, int]] = {
    ProblemKind.NO_SUCH_RESOURCE: 404,
    ProblemKind.BAD_ARGUMENT: 400,
    ProblemKind.CONFLICT: 409,
    ProblemKind.NOT_ALLOWED: 403,
    ProblemKind.QUEUE_FULL: 429,
    ProblemKind.PRECONDITION_FAILED: 412,
    ProblemKind.POLICY_REJECTED: 422,
}


@final
@attrs.frozen(kw_only=True)
class ControlRequest:
    """A request of an operator."""

    method: str
    path: str
    parts: Mapping[str, str]
    """Values of the braces in the route's path."""
    fields: Sequence[tuple[str, str]]
    """Names and values of the query, as they are sent."""
    body: bytes
    headers: Mapping[str, str]
    """By name in lower case."""
    peer: str
    """Sender, for the log."""

    @property
    def query(self) -> Mapping[str, str]:
        """Values of the query by name."""
        return dict(self.fields)


@final
@attrs.frozen(kw_only=True)
class ControlAnswer:
    """The answer to a request."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    stream: AsyncIterator[bytes] | None = None
    """Parts that are sent instead of `body`, for as long as the client listens; None: the body is all."""


Handler = Callable[[ControlRequest], Awaitable[ControlAnswer]]


@final
@attrs.frozen
class ControlRoute:
    """One entry of the table."""

    method: str
    """`GET` answers HEAD, too."""
    path: str
    """`/v1/calls/{id}`: a name in braces stands for one segment."""
    handler: Handler

    def match(self, path: str) -> dict[str, str] | None:
        """Return the values of the braces; None: it is another path."""
        mine, theirs = self.path.split("/"), path.split("/")
        if len(mine) != len(theirs):
            return None
        values = {}
        for own, other in zip(mine, theirs, strict=True):
            if own.startswith("{") and other:
                values[own[1:-1]] = other
            elif own != other:
                return None
        return values


OPERATION_PATHS: Final[Mapping[str, tuple[str, str]]] = {
    "status": ("GET", "/v1/status"),
    "queue": ("GET", "/v1/queue"),
    "provider": ("GET", "/v1/providers/{name}"),
    "calls": ("GET", "/v1/calls"),
    "call": ("GET", "/v1/calls/{id}"),
    "explain": ("GET", "/v1/calls/{id}/explain"),
    "story": ("GET", "/v1/calls/{id}/story"),
    "series": ("GET", "/v1/series"),
    "usage": ("GET", "/v1/usage"),
    "sessions": ("GET", "/v1/sessions"),
    "advice": ("GET", "/v1/advice"),
    "budgets": ("GET", "/v1/budgets"),
    "reset_budget": ("POST", "/v1/budgets/reset"),
    "set_budget": ("POST", "/v1/budgets/spent"),
    "paused": ("GET", "/v1/paused"),
    "pause": ("POST", "/v1/pause"),
    "resume": ("POST", "/v1/resume"),
    "cancel": ("POST", "/v1/calls/{id}/cancel"),
    "policy": ("GET", "/v1/policy"),
    "policy_diff": ("GET", "/v1/policy/diff"),
    "reload": ("POST", "/v1/reload"),
    "agent": ("GET", "/v1/agent"),
    "forecast": ("GET", "/v1/forecast"),
    "own_priority": ("POST", "/v1/agent/priority"),
    "let_through": ("POST", "/v1/calls/{id}/let-through"),
    "set_priority": ("POST", "/v1/calls/{id}/priority"),
    "resources": ("GET", "/v1/resources"),
    "lease": ("POST", "/v1/leases"),
    "renew": ("POST", "/v1/leases/{id}/renew"),
    "release": ("POST", "/v1/leases/{id}/release"),
    "submit": ("POST", "/v1/jobs"),
    "jobs": ("GET", "/v1/jobs"),
    "cancel_job": ("POST", "/v1/jobs/{id}/cancel"),
}
"""Operation -> its method and path."""


def operation_routes(ask: Ask) -> list[ControlRoute]:
    """Return a route for each operation."""
    return [_route(ask, OPERATIONS[name], *where) for name, where in OPERATION_PATHS.items()]


def _route(ask: Ask, operation: Operation, method: str, path: str) -> ControlRoute:
    async def answer(request: ControlRequest) -> ControlAnswer:
        try:
            arguments = _arguments(request, operation.arguments)
            result = await ask(operation, arguments, request.peer or "unknown")
        except OperationFailed as failed:
            return problem(STATUS_OF[failed.kind], str(failed), str(failed.kind), diagnostics=failed.diagnostics)
        return ControlAnswer(body=msgspec.json.encode(result))

    return ControlRoute(method, path, answer)


def _arguments(request: ControlRequest, into: type) -> Any:
    """Read the arguments of an operation from path, query and body.

    Raises:
        OperationFailed: They are not what the operation takes.
    """
    body: dict[str, Any] = {}
    if request.body:
        try:
            body = msgspec.json.decode(request.body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise OperationFailed(ProblemKind.BAD_ARGUMENT, f"the body is no JSON object: {error}") from None
    known = [field.name for field in attrs.fields(into)]
    if "if_match" in known and (tag := request.headers.get("if-match")) is not None:
        body["if_match"] = tag
    given = Counter([*request.parts, *(name for name, _ in request.fields), *body])
    for name, times in given.items():
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise OperationFailed(ProblemKind.BAD_ARGUMENT, f"no argument `{name}`: {takes}")
        if times > 1:
            message = f"`{name}` is given {times} times in path, query and body; give it once"
            raise OperationFailed(ProblemKind.BAD_ARGUMENT, message)
    try:
        # Text of the path and the query may stand for a number; the body has types of its own.
        texts = msgspec.convert({**request.query, **request.parts}, dict[str, str])
        return msgspec.convert({**body, **texts}, into, strict=False)
    except msgspec.ValidationError as error:
        raise OperationFailed(ProblemKind.BAD_ARGUMENT, f"{error}{_choices(into, str(error))}") from None


def _choices(into: type, message: str) -> str:
    """Return what the argument that a message is about may be, if that is one of a few words."""
    for name, hint in get_type_hints(into).items():
        if message.endswith(f"`$.{name}`"):
            kinds = [one for one in (hint, *get_args(hint)) if isinstance(one, type) and issubclass(one, Enum)]
            words = [f"`{word.value}`" for kind in kinds for word in kind]
            return f": it is one of {', '.join(words)}" if words else ""
    return ""


def health_routes(is_ready: Callable[[], bool]) -> Sequence[ControlRoute]:
    """Return the probes of orchestrators."""

    async def healthz(_: ControlRequest) -> ControlAnswer:
        return ControlAnswer(body=b'{"status":"ok"}')

    async def readyz(_: ControlRequest) -> ControlAnswer:
        if is_ready():
            return ControlAnswer(body=b'{"status":"ok"}')
        return ControlAnswer(status=503, body=b'{"status":"draining"}')

    return [ControlRoute("GET", "/healthz", healthz), ControlRoute("GET", "/readyz", readyz)]


def problem(
    status: int,
    detail: str,
    code: str,
    headers: tuple[tuple[str, str], ...] = (),
    diagnostics: Sequence[str] = (),
) -> ControlAnswer:
    """Return an error (RFC 9457)."""
    title = code.replace("-", " ").capitalize()
    body: dict[str, object] = {"type": "about:blank", "title": title, "status": status, "detail": detail, "code": code}
    if diagnostics:
        body["diagnostics"] = diagnostics
    return ControlAnswer(status=status, body=msgspec.json.encode(body), content_type=PROBLEM, headers=headers)
