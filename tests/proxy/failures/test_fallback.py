"""A provider that is down, and another that takes its calls: an agent sees an answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from trio.testing import MockClock

from tests.proxy.house import body_of, compiled, house
from tests.support.upstream import EVENT_STREAM, REFUSED, RESET, FakeProvider, Reply, Request, Step

POLICY = """
provider anthropic { base "http://first.example"; fallback second; breaker trip 100% of 2 over 30s open 1m probes 1 }
provider second { api anthropic; base "http://second.example" }
"""
ANSWER = Reply(headers=[EVENT_STREAM], steps=(b"event: message_stop\ndata: {}\n\n",))


def broken(*before: Step, status: int = 529) -> FakeProvider:
    def play(request: Request) -> Reply:
        return ANSWER if request.url.host == "second.example" else Reply(before=before, status=status)

    return FakeProvider(play)


@pytest.mark.parametrize(
    "upstream", [lambda: broken(), lambda: broken(REFUSED), lambda: broken(RESET)], ids=["529", "refused", "reset"]
)
async def test_an_agent_has_its_answer_from_the_other(
    upstream: Callable[[], FakeProvider], autojump_clock: MockClock
) -> None:
    provider = upstream()
    async with house(compiled(POLICY), provider) as opened:
        agents = [await opened.ask(body=body_of(stream=True)) for _ in range(4)]

    assert [(agent.status, agent.whole) for agent in agents] == [(200, True)] * 4
    asked = [request.url.host for request in provider.requests]
    # Two failures open the circuit; from then on nobody is sent to the first.
    assert asked == ["first.example", "second.example"] * 2 + ["second.example"] * 2
    assert [agent.header(b"x-hivemind-attempts") for agent in agents] == [b"2", b"2", b"1", b"1"]
    assert {agent.header(b"x-hivemind-provider") for agent in agents} == {b"second"}
    assert {agent.header(b"x-hivemind-model") for agent in agents} == {b"claude-x"}
    assert {(record.provider, record.instead_of) for record in opened.records} == {("second", "anthropic")}


async def test_a_model_that_the_policy_replaced_is_named(autojump_clock: MockClock) -> None:
    policy = compiled("""
provider anthropic { base "http://first.example" }
rule cheap when stream { model "claude-haiku-4-5" }
""")
    async with house(policy, FakeProvider(lambda _: ANSWER)) as opened:
        swapped = await opened.ask(body=body_of(stream=True))
        plain = await opened.ask(body=body_of())

    assert (swapped.header(b"x-hivemind-provider"), swapped.header(b"x-hivemind-model")) == (
        b"anthropic",
        b"claude-haiku-4-5",
    )
    assert plain.header(b"x-hivemind-provider") is None
    assert plain.header(b"x-hivemind-model") is None


async def test_the_name_of_a_model_cannot_break_a_header(autojump_clock: MockClock) -> None:
    async with house(compiled(POLICY), broken()) as opened:
        agent = await opened.ask(body=body_of(stream=True, model="\x1b[2J\r\nx: y\x00é" + "m" * 3_000))

    model = agent.header(b"x-hivemind-model")
    assert model is not None
    assert model.startswith(b"[2J x: y \\xe9")
    assert len(model) < 2_000
