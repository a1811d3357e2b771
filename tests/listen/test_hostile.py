"""After each of these clients a good one is served, and nothing of it is left."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from hivemind_trio.listen import App, Bounds, Receive, Scope, Send

from .corpus import HOSTILE, Hostile
from .house import GET, echoes, listens, refuses, serving

BOUNDS = Bounds(header_bytes=4_000, body_buffer_bytes=10_000, write_patience_ns=10**10)


async def reads(scope: Scope, receive: Receive, send: Send) -> None:
    await (listens if scope["path"] == "/accept" else echoes)(scope, receive, send)


async def crashes(scope: Scope, receive: Receive, send: Send) -> None:
    raise RuntimeError("on purpose")


def test_the_table_is_large_and_says_each_thing_once() -> None:
    assert len({hostile.name for hostile in HOSTILE}) == len(HOSTILE) >= 40


@pytest.mark.slow
@pytest.mark.parametrize("app", [reads, refuses, crashes], ids=lambda app: app.__name__)
@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.name)
async def test_a_good_request_is_served_after(hostile: Hostile, app: App, clock: trio.abc.Clock) -> None:
    async with serving(app, BOUNDS) as house:
        before = trio.lowlevel.current_statistics().tasks_living
        client = await house.client()

        heard = await hostile.attack(client.stream)
        client.stream.socket.close()
        good = await house.client()
        status, _ = await good.ask(GET)
        good.stream.socket.close()
        await house.emptied()

        assert status == (200 if app is reads else 429 if app is refuses else 500)
        if app is reads and hostile.status is not None:
            assert heard.startswith(b"HTTP/1.1 %d " % hostile.status), heard[:200]
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before


@pytest.mark.slow
@pytest.mark.parametrize("hostile", [h for h in HOSTILE if h.name.split("-")[0] not in ("h2", "websocket")],
                         ids=lambda hostile: hostile.name)  # fmt: skip
async def test_a_client_cannot_make_http_1_report_a_fault(hostile: Hostile, clock: trio.abc.Clock) -> None:
    async with serving(reads, BOUNDS) as house:
        client = await house.client()
        await hostile.attack(client.stream)
        client.stream.socket.close()
        await house.emptied()

        assert house.reports == []
