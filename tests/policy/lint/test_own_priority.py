"""`priority N max M` of an agent: its range, and what the agent is given of what it asks for."""

from __future__ import annotations

import pytest

from hivemind_trio.model import Api, Request
from hivemind_trio.policy import MemoryFiles, check
from tests.support.policies import compiled

POLICY = """
provider anthropic { key env(K) }
agent lead { priority 5 max 9 }
agent ci { priority 5 }
rule fixed when model ~ "claude-opus-*" { priority 7 }
"""


@pytest.mark.parametrize(("given", "codes"), [("9 max 5", ["HM206"]), ("5 max 5", []), ("0 max 101", ["HM205"])])
def test_max_is_no_less_than_the_priority(given: str, codes: list[str]) -> None:
    text = f"hmp 1\nprovider anthropic {{ }}\nagent lead {{ priority {given} }}\n"
    found = check("team.hmp", MemoryFiles({"team.hmp": text})).diagnostics

    assert [one.code for one in found if one.severity == "error"] == codes


@pytest.mark.parametrize(
    ("agent", "model", "asked", "given"),
    [
        ("lead", "claude-haiku-4-5", 8, 8),
        ("lead", "claude-haiku-4-5", 100, 9),
        ("lead", "claude-haiku-4-5", 0, 0),
        ("ci", "claude-haiku-4-5", 100, 5),
        ("ci", "claude-haiku-4-5", 0, 0),
        ("lead", "claude-opus-4-1", 100, 7),
        ("lead", "claude-opus-4-1", 6, 6),
        ("stranger", "claude-haiku-4-5", 3, 0),
    ],
)
def test_an_agent_is_given_what_it_asks_for_up_to_its_max(agent: str, model: str, asked: int, given: int) -> None:
    program = compiled(POLICY)
    decision = program.decide(Request(apis=(Api.ANTHROPIC,), claimed=agent, model=model, path="/v1/messages"))

    assert program.own_priority(decision, asked) == given
