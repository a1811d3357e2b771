"""A call that is over is freed at once, with its body; the garbage collector has nothing to do."""

from __future__ import annotations

import gc

import httpx2
import pytest
import trio
import trio.testing

from hivemind_trio.listen.http1 import AsgiExchange
from hivemind_trio.proxy.exchange import Exchange
from hivemind_trio.runtime import Ticket
from hivemind_trio.wire import Recognised

from .house import CAP_3, messages, standing


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_is_over_is_no_cycle(stream: bool) -> None:
    async with standing(CAP_3) as place, httpx2.AsyncClient(timeout=None) as client:

        async def ask() -> None:
            body = {"model": "m", "messages": messages(), "stream": stream}
            assert (await client.post(f"{place.url}/v1/chat/completions", json=body)).status_code == 200
            await trio.testing.wait_all_tasks_blocked()

        await ask()
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            await ask()
            gc.collect()
            left = [type(one).__name__ for one in gc.garbage if isinstance(one, KINDS)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()

    assert left == []


KINDS = (AsgiExchange, Exchange, Ticket, Recognised)
