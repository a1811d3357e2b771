"""The body with which a call is refused unread is its dialect's, as far as its path tells it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.proxy import overload_body


@pytest.mark.parametrize(
    ("target", "path", "value"),
    [
        (b"/v1/messages", ("error", "type"), "api_error"),
        (b"/@ci/v1/messages?beta=true", ("error", "type"), "api_error"),
        (b"/v1/chat/completions", ("error", "code"), "proxy-overloaded"),
        (b"/v1/responses", ("error", "type"), "server_error"),
        (b"/v1beta/models/gemini-3:streamGenerateContent?alt=sse", ("error", "status"), "UNAVAILABLE"),
        (b"/elsewhere", ("error", "code"), "proxy-overloaded"),
    ],
)
def test_the_clients_of_a_dialect_read_it(target: bytes, path: tuple[str, ...], value: str) -> None:
    found = json.loads(overload_body(target))
    for name in path:
        found = found[name]

    assert found == value


def test_ollama_has_a_text() -> None:
    assert "overloaded" in json.loads(overload_body(b"/api/chat"))["error"]


@given(st.binary(max_size=80))
def test_whatever_is_asked_has_a_body(target: bytes) -> None:
    assert "overloaded" in json.dumps(json.loads(overload_body(target)))
