"""A policy that changes under a call: what is granted now goes by the policy of now, what runs keeps what it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import trio

from hivemind_trio.policy import AgentSettings, Program
from hivemind_trio.scheduler import Command, Event, Grant
from tests.support.programs import agent, program, provider
from tests.support.upstream import FakeProvider, Reply

from .house import House, env, house

OLD, NEW = env("OLD"), env("NEW")
SECRETS = {OLD: "old-key", NEW: "new-key"}
SLOW = Reply(steps=(5.0, b"done"))


def use(opened: House, policy: Program) -> None:
    """As `serve` does at a reload: one step."""
    opened.door.use(policy, SECRETS)
    opened.engine.load(policy)


async def test_a_call_that_waited_goes_with_the_key_and_to_the_place_of_the_new_policy(autojump_clock: object) -> None:
    before = program(providers=[provider(limit=1, keys=[OLD], base="http://127.0.0.1:8")])
    after = program(providers=[provider(limit=1, keys=[NEW], base="http://127.0.0.1:9")], hash="newer678-and-more")
    async with house(before, FakeProvider(lambda _: SLOW), SECRETS) as opened:
        running, waiting = await opened.begin(), await opened.begin()

        use(opened, after)
        await waiting.done.wait()

        first, second = opened.provider.requests
        assert (first.values(b"x-api-key"), first.url.port) == ([b"old-key"], 8)
        assert (second.values(b"x-api-key"), second.url.port) == ([b"new-key"], 9)
        assert running.answer == b"done"
        assert running.header(b"x-hivemind-policy") == b"test"
        assert waiting.header(b"x-hivemind-policy") == b"newer678"


@attrs.define(eq=False)
class BeforeTheNextTask(trio.abc.Instrument):
    """Once armed, does something before any other task runs: between a grant and the call's own step."""

    act: Callable[[], None]
    armed: bool = False
    acted: bool = False

    def before_task_step(self, _task: trio.lowlevel.Task) -> None:
        if self.armed and not self.acted:
            self.acted = True
            self.act()


async def test_a_call_whose_provider_goes_between_its_grant_and_its_step_still_goes_there(
    autojump_clock: object,
) -> None:
    before = program(providers=[provider("old", limit=1, keys=[OLD], base="http://127.0.0.1:8")])
    after = program(providers=[provider("new", keys=[NEW])])
    reload = BeforeTheNextTask(lambda: use(opened, after))
    granted: list[Command] = []

    def at_the_second_grant(_now_ns: int, _event: Event, commands: Sequence[Command]) -> None:
        granted.extend(command for command in commands if isinstance(command, Grant))
        reload.armed = len(granted) == 2

    async with house(before, FakeProvider(lambda _: SLOW), SECRETS, journal=at_the_second_grant) as opened:
        await opened.begin()
        waiting = await opened.begin()
        trio.lowlevel.add_instrument(reload)
        await waiting.done.wait()
        trio.lowlevel.remove_instrument(reload)
        later = await opened.ask()

        assert reload.acted
        assert (waiting.answer, later.answer) == (b"done", b"done")
        assert [request.url.port for request in opened.provider.requests] == [8, 8, 9]
        assert opened.provider.requests[1].values(b"x-api-key") == [b"old-key"]
    assert opened.engine.program is after


async def test_a_waiting_call_that_the_new_policy_denies_is_refused(autojump_clock: object) -> None:
    before = program(providers=[provider(limit=1)])
    after = program(providers=[provider("other", serves=["gpt-*"])])
    async with house(before, FakeProvider(lambda _: SLOW), SECRETS) as opened:
        running, waiting = await opened.begin(), await opened.begin()

        use(opened, after)
        await waiting.done.wait()

        assert waiting.status == 404
        assert "no provider in the policy serves model `claude-x`" in waiting.error["error"]["message"]
        await running.done.wait()
        assert running.whole


TOKEN = "secret-of-ci"
OF_CI = [(b"x-api-key", TOKEN.encode())]


def known(*agents: AgentSettings, **more: Any) -> Program:
    """Nobody else is served."""
    return program(providers=[provider(keys=[NEW])], agents=agents, refuse_unknown=True, **more)


async def test_a_token_that_is_removed_is_refused_from_the_next_call_on(autojump_clock: object) -> None:
    token = env("CI")
    async with house(
        known(agent("ci", tokens=[token])), FakeProvider(lambda _: SLOW), SECRETS | {token: TOKEN}
    ) as opened:
        running = await opened.begin(headers=OF_CI)

        use(opened, known(agent("ci", tokens=[env("OTHER")])))
        refused = await opened.ask(headers=OF_CI)

        assert refused.status == 401
        await running.done.wait()
        assert (running.status, running.answer) == (200, b"done")


async def test_who_is_renamed_while_its_call_comes_in_is_known_by_its_new_name(autojump_clock: object) -> None:
    token, secrets = env("CI"), SECRETS | {env("CI"): TOKEN}
    before = known(agent("ci", tokens=[token]))
    after = attrs.evolve(known(agent("build", tokens=[token])), was={"agent": {"build": "ci"}})
    async with house(before, FakeProvider(lambda _: SLOW), secrets) as opened:
        slow = await opened.begin(headers=OF_CI, body=[b'{"model":', b'"claude-x","messages":[]}'], piece_delay_s=1.0)

        opened.door.use(after, secrets)
        opened.engine.load(after)
        await slow.done.wait()

        assert (slow.status, opened.records[-1].agent) == (200, "build")
