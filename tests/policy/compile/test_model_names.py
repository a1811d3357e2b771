"""`model GLOB on PROVIDER { name }`: the name that is sent, and everything that keeps the one asked for."""

from __future__ import annotations

from typing import Final

import pytest

from hivemind_trio.model import Api, Request
from tests.support.policies import compiled

POLICY: Final = """
provider anthropic { account a { key env(A) }; account b { key env(B) }; fallback other }
provider other { api anthropic; base "http://127.0.0.1:1"; serves ["claude-*"] }
model "claude-*" on other { name "eu.claude" }
model "claude-opus-*" on other { name "eu.opus-v1:0"; price input $1/Mtok output $2/Mtok }
model "claude-haiku-*" on anthropic { name "haiku" }
rule cheap when model ~ "eu.*" { deny }
"""


@pytest.mark.parametrize(
    ("model", "provider", "name"),
    [
        ("claude-sonnet-4-5", "other", "eu.claude"),
        ("claude-opus-4-1", "other", "eu.opus-v1:0"),
        ("claude-sonnet-4-5", "anthropic", None),
        ("claude-haiku-4-5", "anthropic.b", "haiku"),
        ("eu.claude", "other", None),
        ("", "other", None),
        ("gpt-5", "other", None),
    ],
)
def test_the_most_specific_glob_on_the_provider_names_the_model(model: str, provider: str, name: str | None) -> None:
    assert compiled(POLICY).name_at(model, provider) == name


def test_rules_and_prices_use_the_name_before() -> None:
    program = compiled(POLICY)
    decision = program.decide(Request(apis=(Api.ANTHROPIC,), model="claude-opus-4-1", path="/v1/messages"))
    price = program.price("claude-opus-4-1", "other")

    assert (decision.model, decision.message) == (None, "")
    assert price is not None
    assert price.input == 1_000_000


def test_a_name_alone_leaves_the_list_price() -> None:
    program = compiled(POLICY)

    assert program.price("claude-haiku-4-5", "anthropic") == program.price("claude-haiku-4-5", None)
