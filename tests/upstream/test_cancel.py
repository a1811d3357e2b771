"""A cancellation leaks no connection and spoils none, whenever it comes."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest
import trio

from hivemind_trio.upstream import PoolTransport, Upstream
from tests.support.relay import Peer, raw_server

from .calls import call
from .cancel_soak import soak
from .server import echo, serve

# httpx2 leaves httpcore2's generator to the garbage collector when a body is left early. The connection is closed.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_cancelled_at_random_moments(make: Callable[..., httpx2.AsyncBaseTransport], seed: int) -> None:
    tally = await soak(make, runs=500, seed=seed)

    assert tally.cancelled > 20
    assert tally.answered > 20


@pytest.mark.slow
async def test_cancelled_at_random_moments_in_tls() -> None:
    # Ours only: httpcore2 leaves the socket of a cancelled handshake to the garbage collector.
    tally = await soak(PoolTransport, runs=300, seed=4, tls=True)

    assert tally.cancelled > 20


class CancelAfter(trio.abc.Instrument):
    """Cancels a scope when its task has been rescheduled so many times: every checkpoint in turn, none twice."""

    def __init__(self, scope: trio.CancelScope, checkpoints: int) -> None:
        self._scope, self._left = scope, checkpoints
        self._task = trio.lowlevel.current_task()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._left -= 1
            if self._left == 0:
                self._scope.cancel()


async def test_cancelled_at_each_checkpoint_in_turn(upstream: Upstream) -> None:
    async with serve(echo) as server:
        finished = 0
        for checkpoints in range(1, 200):
            with trio.CancelScope() as scope:
                instrument = CancelAfter(scope, checkpoints)
                trio.lowlevel.add_instrument(instrument)
                try:
                    number = b"/%d" % checkpoints
                    answer = await call(upstream, server.base, target=number, body=b"x" * 100_000)
                    assert answer.said["target"] == number.decode()
                finally:
                    trio.lowlevel.remove_instrument(instrument)
            finished = 0 if scope.cancelled_caught else finished + 1
            after = await call(upstream, server.base, target=b"/after")
            assert after.said["target"] == "/after"
            if finished == 3:
                break

        assert finished == 3, "no end of checkpoints"
        await upstream.aclose()
        await server.all_closed()


async def test_a_cancelled_call_is_over_for_the_provider_at_once(upstream: Upstream) -> None:
    hung_up = trio.Event()
    arrived = trio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        arrived.set()
        await peer.request()
        hung_up.set()

    async with raw_server(script) as server, trio.open_nursery() as nursery:
        nursery.start_soon(call, upstream, server.base)
        await arrived.wait()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True), trio.fail_after(60):
            await hung_up.wait()
