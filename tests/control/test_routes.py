"""Arguments of the control API as requests bring them."""

from __future__ import annotations

import pytest

from hivemind_trio.admin import Operation
from hivemind_trio.control.routes import ControlRequest, operation_routes


async def never(operation: Operation, arguments: object, by: str) -> object:
    raise AssertionError(operation, arguments, by)


@pytest.mark.parametrize(
    ("operation", "query", "body", "said"),
    [
        ("pause", {}, b'{"kind":"lanes","name":"x"}', "`$.kind`: it is one of `provider`, `lane`, `agent`"),
        ("calls", {"state": "idle"}, b"", "`waiting`, `inflight`, `delivering`, `ended`"),
        ("calls", {"limit": "x"}, b"", "Expected `int`, got `str` - at `$.limit`"),
        ("pause", {}, b"{}", "missing required field `kind`"),
    ],
)
async def test_a_wrong_argument_is_named_with_what_it_may_be(
    operation: str, query: dict[str, str], body: bytes, said: str
) -> None:
    path = {"pause": "/v1/pause", "calls": "/v1/calls"}[operation]
    (route,) = (one for one in operation_routes(never) if one.path == path)
    request = ControlRequest(method=route.method, path=path, parts={}, query=query, body=body, headers={}, peer="")
    answer = await route.handler(request)

    assert answer.status == 400
    assert said in answer.body.decode()
