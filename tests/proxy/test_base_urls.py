"""Targets of calls behind base URLs of known providers, by the table of the language reference."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.support.agent import Agent

from .house import compiled, env, house

README: Final = Path(__file__).parents[2] / "grammar/README.md"
ROW: Final = re.compile(r"\| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \|")
BODY: Final = json.dumps({"model": "m", "max_tokens": 9, "messages": []}).encode()


def rows() -> list[tuple[str, str, str, str]]:
    table = README.read_text(encoding="utf-8").partition("<!-- bases:begin -->")[2].partition("<!-- bases:end -->")[0]
    return [match.groups() for match in ROW.finditer(table)]  # type: ignore[misc]


def test_the_table_has_rows() -> None:
    assert len(rows()) > 10


ANOTHER_API: Final = [("generic", "https://gateway.example.com/v2/llm", "/v1/messages", "/v2/llm/v1/messages")]


@pytest.mark.parametrize(("api", "base", "asked", "sent"), rows() + ANOTHER_API, ids=lambda cell: cell)
async def test_a_call_goes_where_the_table_says(api: str, base: str, asked: str, sent: str) -> None:
    policy = f'provider one {{ api {api}; base "{base}"; key env(KEY) }}'
    generates = not asked.endswith("/models")
    async with house(compiled(policy), secrets={env("KEY"): "k"}) as opened:
        await opened.ask(
            Agent(target=asked.encode(), method="POST" if generates else "GET", body=(BODY,) if generates else ())
        )

    (request,) = opened.provider.requests
    parts = urlsplit(base)
    assert request.url == f"{parts.scheme}://{parts.netloc}".lower()
    assert request.target == sent.encode()


@pytest.mark.parametrize("base", ["https://api.example.com", "https://api.example.com/v1"])
async def test_a_version_that_stands_twice_is_told_and_not_forwarded(base: str) -> None:
    policy = f'provider one {{ api anthropic; base "{base}"; key env(KEY) }}'
    async with house(compiled(policy), secrets={env("KEY"): "k"}) as opened:
        agent = await opened.ask(Agent(target=b"/v1/v1/messages", body=(BODY,)))

        assert opened.provider.requests == []
    assert agent.status == 404
    assert "take `/v1` off the base URL" in agent.error["error"]["message"]
