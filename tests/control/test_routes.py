"""Arguments of the control API as requests bring them."""

from __future__ import annotations

import pytest

from hivemind_trio.admin import Operation
from hivemind_trio.control.routes import OPERATION_PATHS, ControlRequest, operation_routes


async def never(operation: Operation, arguments: object, by: str) -> object:
    raise AssertionError(operation, arguments, by)


@pytest.mark.parametrize(
    ("operation", "fields", "body", "said"),
    [
        ("pause", [], b'{"kind":"lanes","name":"x"}', "`$.kind`: it is one of `provider`, `lane`, `agent`"),
        ("calls", [("state", "idle")], b"", "`waiting`, `inflight`, `delivering`, `ended`"),
        ("calls", [("limit", "x")], b"", "Expected `int`, got `str` - at `$.limit`"),
        ("pause", [], b"{}", "missing required field `kind`"),
        ("calls", [("limit", "1"), ("limit", "2")], b"", "`limit` is given 2 times in path, query and body"),
        ("pause", [("kind", "lane")], b'{"kind":"agent","name":"x"}', "`kind` is given 2 times"),
        ("call", [("id", "b")], b"", "`id` is given 2 times"),
    ],
)
async def test_a_wrong_argument_is_named_with_what_it_may_be(
    operation: str, fields: list[tuple[str, str]], body: bytes, said: str
) -> None:
    method, path = OPERATION_PATHS[operation]
    (route,) = (one for one in operation_routes(never) if (one.method, one.path) == (method, path))
    parts = {"id": "a"} if "{id}" in path else {}
    request = ControlRequest(method=method, path=path, parts=parts, fields=fields, body=body, headers={}, peer="")
    answer = await route.handler(request)

    assert answer.status == 400
    assert said in answer.body.decode()
