"""What a reloader takes of what it reads. No files here: every reading is scripted, and the poll asks for it."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

from hivemind_trio.runtime import reload

from .desk import Read, reloading


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual clock does not wait for threads: time would fly while one reads."""

    async def inline(load: Callable[[], Read]) -> Read:
        await trio.lowlevel.checkpoint()
        return load()

    monkeypatch.setattr(trio.to_thread, "run_sync", inline)


@attrs.define(eq=False)
class Script:
    """Readings in order; the last one is what stays on the disk."""

    texts: list[str]

    def __call__(self) -> Read:
        return Read((self.texts.pop(0) if len(self.texts) > 1 else self.texts[0],))


async def polls(count: int) -> None:
    """Let so many polls come and be dealt with."""
    await trio.sleep(reload.POLL_S * (count + 0.5))


def texts(readings: list[Read]) -> list[str | None]:
    return [reading.texts[0] for reading in readings]


async def test_what_is_new_and_good_is_taken_once(autojump_clock: MockClock) -> None:
    async with reloading(Script(["one", "two"])) as desk:
        await polls(3)

    assert texts(desk.applied) == ["two"]
    assert not desk.reported


async def test_what_has_not_changed_is_not_taken(autojump_clock: MockClock) -> None:
    async with reloading(Script(["one"])) as desk:
        await polls(3)

    assert desk.loads >= 3
    assert not desk.applied


async def test_a_bad_one_is_reported_once_per_content_and_never_taken(autojump_clock: MockClock) -> None:
    disk = Script(["one"])
    async with reloading(disk) as desk:
        for text in ("bad", "bad", "worse is bad", "bad"):
            disk.texts = [text]
            await polls(2)

    assert texts(desk.reported) == ["bad", "worse is bad", "bad"]
    assert not desk.applied


async def test_a_bad_one_is_followed_by_the_good_one_that_mends_it(autojump_clock: MockClock) -> None:
    disk = Script(["one", "bad"])
    async with reloading(disk) as desk:
        await polls(2)
        disk.texts = ["two"]
        await polls(2)

    assert texts(desk.reported) == ["bad"]
    assert texts(desk.applied) == ["two"]


async def test_going_back_to_what_runs_after_a_bad_one_is_taken(autojump_clock: MockClock) -> None:
    # Nothing to do for the proxy, and yet the operator must hear that the complaint is settled.
    disk = Script(["one", "bad"])
    async with reloading(disk) as desk:
        await polls(2)
        disk.texts = ["one"]
        await polls(2)

    assert texts(desk.applied) == ["one"]


async def test_what_is_read_while_it_changes_is_read_until_it_has_come_to_rest(autojump_clock: MockClock) -> None:
    async with reloading(Script(["one", "half", "bad half", "two"])) as desk:
        await polls(2)

    assert texts(desk.applied) == ["two"]
    assert not desk.reported


async def test_a_change_that_is_taken_back_while_it_is_read_was_none(autojump_clock: MockClock) -> None:
    disk = Script(["one", "two", "one"])
    async with reloading(disk) as desk:
        await polls(2)
        assert not desk.applied

        disk.texts = ["bad"]
        await polls(2)
        disk.texts = ["half", "bad"]
        await polls(2)

    assert texts(desk.reported) == ["bad"]


async def test_what_never_comes_to_rest_is_left_and_tried_again(autojump_clock: MockClock) -> None:
    restless = [f"half {number}" for number in range(3 * reload.TORN_MAX)]
    async with reloading(Script(["one", *restless, "two"])) as desk:
        await trio.sleep(reload.POLL_S + 10 * reload.DEBOUNCE_S)  # it does not wait for the next poll

        assert texts(desk.applied) == ["two"]


async def test_who_asks_has_it_read_and_taken_though_nothing_changed(autojump_clock: MockClock) -> None:
    async with reloading(Script(["one"])) as desk:
        for _ in range(3):
            desk.reloader.trigger()
            await trio.sleep(1)
        await polls(2)  # once for each time it was asked, and no more

    assert texts(desk.applied) == ["one"] * 3


async def test_who_asks_is_told_of_the_same_bad_one_again(autojump_clock: MockClock) -> None:
    async with reloading(Script(["one", "bad"])) as desk:
        await polls(1)
        desk.reloader.trigger()
        await trio.sleep(1)

    assert texts(desk.reported) == ["bad", "bad"]


async def test_what_was_asked_for_before_it_ran_or_while_it_read_is_not_forgotten(autojump_clock: MockClock) -> None:
    restless = [f"half {number}" for number in range(reload.TORN_MAX + 1)]
    disk = Script(["one"])
    async with reloading(disk) as desk:
        desk.reloader.trigger()
        await trio.sleep(1)
        assert len(desk.applied) == 1

        disk.texts = [*restless, "one"]
        desk.reloader.trigger()
        await trio.sleep(1)

    assert texts(desk.applied) == ["one", "one"]
