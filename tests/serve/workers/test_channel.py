"""Messages between processes arrive whole, in order, and end with the process."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio

from hivemind_trio.serve.workers.channel import INTERNAL, Channel, ChannelClosed, Failed, body_of


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Channel, Channel]]:
    ours, theirs = map(Channel, socket.socketpair())
    async with trio.open_nursery() as nursery:
        await nursery.start(ours.run)
        await nursery.start(theirs.run)
        yield ours, theirs
        nursery.cancel_scope.cancel()


async def test_a_request_is_answered_and_a_failure_has_its_code() -> None:
    async def double(body: msgspec.Raw) -> int:
        number = body_of(body, int)
        if number < 0:
            raise Failed("negative", "no negative numbers", ("line",))
        return 2 * number

    async with pair() as (ours, theirs):
        theirs.handlers["double"] = double
        assert await ours.ask("double", 21, int) == 42
        with pytest.raises(Failed, match="no negative numbers") as failed:
            await ours.ask("double", -1, int)
        with pytest.raises(Failed, match="no request `triple`"):
            await ours.ask("triple", 1, int)
    assert (failed.value.code, failed.value.lines) == ("negative", ("line",))


async def test_messages_larger_than_the_socket_arrive_in_order_while_the_other_side_is_slow() -> None:
    heard: list[int] = []
    enough = trio.Event()

    def hear(body: msgspec.Raw) -> None:
        heard.append(len(body_of(body, bytes)))
        if len(heard) == 20:
            enough.set()

    async with pair() as (ours, theirs):
        theirs.listeners["blob"] = hear
        for size in range(20):
            ours.tell("blob", bytes(size * 100_000))
        with trio.fail_after(20):
            await enough.wait()
    assert heard == [size * 100_000 for size in range(20)]


async def test_who_waits_for_an_answer_is_told_that_the_other_side_has_ended() -> None:
    async def never(_: msgspec.Raw) -> None:
        await trio.sleep_forever()

    async with pair() as (ours, theirs):
        theirs.handlers["never"] = never
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_fails, ours)
                await trio.testing.wait_all_tasks_blocked()
                theirs.close()
        with pytest.raises(ChannelClosed):
            await ours.ask("never", None, type(None))
        ours.tell("into the void")


async def _fails(channel: Channel) -> None:
    with pytest.raises(ChannelClosed):
        await channel.ask("never", None, type(None))


async def test_a_bug_in_a_handler_is_an_answer_and_the_channel_goes_on() -> None:
    async def broken(_: msgspec.Raw) -> None:
        raise KeyError("nothing")

    async def works(_: msgspec.Raw) -> int:
        return 1

    async with pair() as (ours, theirs):
        theirs.handlers |= {"broken": broken, "works": works}
        with trio.fail_after(20):
            with pytest.raises(Failed, match="KeyError: 'nothing'") as failed:
                await ours.ask("broken", None, type(None))
            assert await ours.ask("works", None, int) == 1
    assert failed.value.code == INTERNAL
