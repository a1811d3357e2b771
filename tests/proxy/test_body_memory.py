"""Bound on the bodies of all calls together."""

from __future__ import annotations

from trio.testing import MockClock

from tests.support.upstream import FakeProvider, Reply

from .house import body_of, compiled, house

SOURCE = 'hmp 1\nprovider anthropic { api anthropic; base "http://127.0.0.1:9"; concurrency 1 }\n'
MIB = 1 << 20


def long(size: int) -> tuple[bytes, ...]:
    """A body in pieces of 64 KiB."""
    (body,) = body_of(messages=[{"role": "user", "content": "x" * size}])
    return tuple(body[at : at + 65_536] for at in range(0, len(body), 65_536))


async def test_long_bodies_beyond_the_bound_of_all_are_rejected_and_short_ones_served(
    autojump_clock: MockClock,
) -> None:
    provider = FakeProvider(play=lambda _: Reply(before=(10.0,)))
    async with house(compiled(SOURCE), provider, bodies_max=3 * MIB) as opened:
        held = [await opened.begin(body=long(MIB)) for _ in range(2)]  # one in flight, one in line
        beyond = await opened.ask(body=long(MIB))
        short = await opened.begin()
        assert short.status == 0  # it waits in line

        assert beyond.status == 503
        assert beyond.header(b"x-hivemind-reason") == b"proxy-overloaded"
        assert beyond.header(b"retry-after") == b"5"
        assert b"take 3 MiB" in b"".join(beyond.pieces)
        for agent in (*held, short):
            await agent.done.wait()
            assert agent.status == 200


async def test_a_body_is_forgotten_with_its_call(autojump_clock: MockClock) -> None:
    provider = FakeProvider(play=lambda _: Reply(before=(10.0,)))
    async with house(compiled(SOURCE), provider, bodies_max=2 * MIB) as opened:
        gone = await opened.begin(body=long(MIB))
        gone.hang_up()
        for _ in range(3):
            assert (await opened.ask(body=long(MIB))).status == 200
