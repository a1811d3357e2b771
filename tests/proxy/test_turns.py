"""Long bodies beside short calls."""

from __future__ import annotations

import json
import re

import pytest
import trio

from hivemind_trio.proxy.stepped_work import TURNS_PER_STEP, StepQueue
from hivemind_trio.wire import STEP_BYTES, Steps
from tests.support.agent import Agent

from .house import body_of, compiled, house


def steps(log: list[str], name: str, count: int) -> Steps[str]:
    for _ in range(count):
        log.append(name)
        yield
    return name


async def test_long_work_of_all_takes_one_step_in_a_few_turns_of_the_loop() -> None:
    turns, log, results = StepQueue(), list[str](), list[str]()

    async def work(name: str) -> None:
        results.append(await turns.of(steps(log, name, 5), long=True))

    class Turn(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            log.append("|")

    trio.lowlevel.add_instrument(instrument := Turn())
    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(work, name)
    trio.lowlevel.remove_instrument(instrument)

    assert sorted(results) == ["a", "b", "c"]
    between = re.findall(r"\|+", "".join(log).strip("|"))
    assert len(between) == 14  # one step in a turn
    assert min(map(len, between)) == TURNS_PER_STEP  # and turns without one, in which short calls get on
    order = "".join(log).replace("|", "")
    assert sorted(order) == sorted("abc" * 5)
    # By turns, too: a long one does not wait until a longer one is done.
    assert all(len(set(order[at : at + 3])) == 3 for at in range(0, 15, 3))


async def test_short_work_does_not_wait_for_the_long() -> None:
    turns, log = StepQueue(), list[str]()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: turns.of(steps(log, "long", 100), long=True))
        await trio.lowlevel.checkpoint()
        assert await turns.of(steps(log, "short", 3), long=False) == "short"
        assert log.count("long") < 100


class Looped(trio.abc.Instrument):
    """Turns of the loop."""

    count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1


SOURCE = 'hmp 1\nprovider anthropic { api anthropic; base "http://127.0.0.1:9"; concurrency 1 }\n'
LONG = {"messages": [{"role": "user", "content": "word " * 200_000}]}


@pytest.mark.parametrize("policy", ["plain", "another model"])
async def test_a_long_body_is_read_in_many_turns_and_arrives_whole(policy: str, autojump_clock: object) -> None:
    source = SOURCE + ('rule cheap { model "claude-haiku" }\n' if policy == "another model" else "")
    (body,) = body_of(**LONG)
    looped = Looped()

    async with house(compiled(source)) as opened:
        trio.lowlevel.add_instrument(looped)
        agent = await opened.ask(body=(body[:300_000], body[300_000:]))
        trio.lowlevel.remove_instrument(looped)

        assert agent.status == 200
        sent = json.loads(opened.provider.requests[0].body)
        assert sent == json.loads(body) | ({"model": "claude-haiku"} if policy == "another model" else {})
    # It is looked through for pictures, and digested.
    assert looped.count >= 2 * len(body) // STEP_BYTES


async def test_a_body_with_too_many_members_is_refused(autojump_clock: object) -> None:
    body = b'{"model":"m",' + b",".join(b'"k%d":"%b"' % (number, b"x" * 100) for number in range(10_000)) + b"}"

    async with house(compiled(SOURCE)) as opened:
        agent = await opened.ask(Agent(body=(body,)))

        assert agent.status == 413
        assert agent.header(b"x-hivemind-reason") == b"body-too-large"
        assert opened.provider.requests == []


async def test_a_body_whose_limits_have_too_many_members_is_refused_where_the_policy_limits_the_output(
    autojump_clock: object,
) -> None:
    body = json.dumps({"contents": [], "generationConfig": {f"k{number}": 1 for number in range(10_001)}}).encode()
    program = compiled("provider gemini { concurrency 1 }\nrule short { max-output 100 }")

    async with house(program) as opened:
        agent = await opened.ask(Agent(target=b"/v1beta/models/gemini-2.5-pro:generateContent", body=(body,)))

        assert agent.status == 413
        assert agent.header(b"x-hivemind-reason") == b"body-too-large"
        assert opened.provider.requests == []
