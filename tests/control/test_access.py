"""Tokens of the control API: which open it, and how they are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.control import AccessCheck, access
from hivemind_trio.policy.compile.lowering import DEFAULT_SERVER

TOKENS = ("alpha", "beta")


def scope(*headers: tuple[str, str], server: tuple[str, int] | None = ("127.0.0.1", 8788)) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "GET",
        "path": "/v1/status",
        "raw_path": b"/v1/status",
        "query_string": b"",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in (("host", "127.0.0.1"), *headers)],
        "client": ("127.0.0.1", 5000),
        "server": server,
    }


def status(found: dict[str, Any], tokens: Callable[[], Any] = lambda: TOKENS) -> int:
    refused = AccessCheck(server=lambda: DEFAULT_SERVER, tokens=tokens)(found)
    return refused.status if refused is not None else 200


@given(st.text(st.characters(min_codepoint=32, max_codepoint=255)))
def test_only_a_token_opens_it(given_token: str) -> None:
    expected = 200 if given_token.strip() in TOKENS else 401

    assert status(scope(("authorization", f"Bearer {given_token}"))) == expected


@pytest.mark.parametrize("tokens", [(), ("",), ("", "alpha")])
@pytest.mark.parametrize("headers", [(), (("authorization", "Bearer "),), (("authorization", ""),)])
def test_a_secret_without_a_value_opens_nothing(tokens: tuple[str, ...], headers: tuple[tuple[str, str], ...]) -> None:
    assert status(scope(*headers), lambda: tokens) == 401


def test_two_credentials_are_none() -> None:
    assert status(scope(("authorization", "Bearer alpha"), ("authorization", "Bearer alpha"))) == 401


def test_a_socket_needs_no_token_and_refuses_web_pages_all_the_same() -> None:
    assert status(scope(server=None)) == 200
    assert status(scope(("origin", "https://evil.example"), server=None)) == 403
    assert status(scope(("sec-fetch-site", "cross-site"), server=None)) == 403


def test_every_token_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def noted(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(access, "compare_digest", noted)
    assert status(scope(("authorization", "Bearer alpha"))) == 200

    assert len(compared) == len(TOKENS)
    assert {len(digest) for pair in compared for digest in pair} == {32}
