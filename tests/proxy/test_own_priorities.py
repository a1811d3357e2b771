"""Priorities that agents ask for themselves: heeded when their calls arrive, within the policy."""

from __future__ import annotations

import httpx2
import pytest
import trio

from hivemind_trio.demo import ScriptedReply
from hivemind_trio.proxy.own_priorities import KEPT_MAX, OwnPriorities, whose
from tests.e2e.house import PATIENCE_S, messages, standing, until

POLICY = """
hmp 1
provider sim { api anthropic; base env(UPSTREAM); key env(KEY); concurrency 1 }
agent lead { priority 5 max 9 }
agent ci { priority 5 }
agent sealed { token env(TOKEN); priority 5 max 9 }
rule fixed when model ~ "claude-opus-*" { priority 3 }
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model", "asked", "priority"),
    [
        ("ci", "claude-haiku-4-5", 1, 1),
        ("ci", "claude-haiku-4-5", 50, 5),
        ("lead", "claude-haiku-4-5", 50, 9),
        ("lead", "claude-opus-4-1", 50, 3),
        ("lead", "claude-opus-4-1", 2, 2),
        ("sealed", "claude-haiku-4-5", 50, 0),
    ],
)
async def test_a_call_that_waits_has_the_priority_that_its_agent_asked_for(
    name: str, model: str, asked: int, priority: int
) -> None:
    async with (
        standing(POLICY, secrets={"TOKEN": "t-1", "KEY": "k-1"}) as place,
        httpx2.AsyncClient(base_url=place.url, timeout=PATIENCE_S) as http,
        trio.open_nursery() as nursery,
    ):
        gate = trio.Event()
        place.provider.default = ScriptedReply(hold=gate)
        place.house.door.priorities.ask(("name", name), asked)
        body = {"model": model, "max_tokens": 9, "messages": messages()}

        async def call() -> None:
            await http.post(f"/@{name}/v1/messages", json=body)

        nursery.start_soon(call)
        await until(lambda: place.inflight == 1)
        nursery.start_soon(call)
        await until(lambda: place.waiting == 1)
        (waiting,) = place.house.engine.occupancy().waiting
        gate.set()

    assert waiting.decision.priority == priority
    assert waiting.decision.decided["priority"].kind == (
        "agent" if priority not in (0, 3) else NOT_BY_THE_AGENT[priority]
    )


NOT_BY_THE_AGENT = {0: "built-in", 3: "rule"}
"""Who decided where what was asked for changed nothing."""


def test_who_asked_first_is_forgotten_first() -> None:
    kept = OwnPriorities()
    for number in range(KEPT_MAX + 1):
        kept.ask(("name", f"{number}"), 1)

    assert kept.of(("name", "0")) is None
    assert kept.of(("name", f"{KEPT_MAX}")) == 1
    kept.ask(("name", "1"), None)
    assert kept.of(("name", "1")) is None


def test_a_proven_name_is_not_a_claimed_one() -> None:
    kept = OwnPriorities()
    kept.ask(("name", "ci"), 1)

    assert kept.of(whose("ci", "ci")) is None
    assert kept.of(whose(None, "ci")) == 1
    assert whose(None, None) is None


def test_a_name_that_reads_as_a_session_is_not_that_session() -> None:
    kept = OwnPriorities()
    kept.ask(("session", "3"), 1)

    assert kept.of(whose(None, "session 3")) is None
    assert kept.of(whose(None, None, "3")) == 1
