"""The control API as operators and foreign clients use it, for tests of a real `serve`."""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import trio

from hivemind_trio.demo import ScriptedReply, SimulatedProvider
from tests.e2e.process import PATIENCE_S, Proxy, environment

BODY = {"model": "claude-haiku-4-5", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}

CAP_1 = """
hmp 1
provider sim {{ api generic; base "{url}"; concurrency 1 }}
lane slow {{ deadline 300s }}
agent ci {{ lane slow }}
budget calls {{ requests 100/day }}
"""


@contextmanager
def own_runtime() -> Iterator[dict[str, str]]:
    """Give an environment with a runtime folder of its own; its path is short, for clients that are not ours."""
    with tempfile.TemporaryDirectory(prefix="hm-") as folder:
        yield {"XDG_RUNTIME_DIR": folder}


def there(path: Path) -> bool:
    return os.path.lexists(path)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def policy(folder: Path, url: str, name: str = "team.hmp") -> Path:
    path = folder / name
    path.write_text(CAP_1.format(url=url))
    return path


async def command(env: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    """Run `hivemind-trio`; exit status, standard output, standard error."""
    with trio.fail_after(PATIENCE_S):
        ended = await trio.run_process(
            [sys.executable, "-m", "hivemind_trio", *arguments],
            check=False,
            capture_stdout=True,
            capture_stderr=True,
            env=environment(**env),
        )
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


async def found(env: dict[str, str], *arguments: str) -> Any:
    """Return the JSON that a command prints."""
    code, out, error = await command(env, *arguments, "--json")
    assert code == 0, error
    return json.loads(out)


def asking(socket: str) -> httpx2.AsyncClient:
    """A client that is not our own."""
    return httpx2.AsyncClient(
        transport=httpx2.AsyncHTTPTransport(uds=socket), base_url="http://localhost", timeout=PATIENCE_S
    )


def state_of(control: httpx2.AsyncClient) -> Callable[[], Awaitable[Any]]:
    """A question for `eventually`: the status of now."""

    async def state() -> Any:
        return (await control.get("/v1/status")).json()

    return state


async def eventually(ask: Callable[[], Awaitable[Any]], holds: Callable[[Any], bool]) -> Any:
    """Ask until the answer is right; fails if it never is."""
    with trio.fail_after(PATIENCE_S):
        while True:
            answer = await ask()
            if holds(answer):
                return answer


@asynccontextmanager
async def asked(proxy: Proxy) -> AsyncIterator[httpx2.AsyncClient]:
    """Give the control API of a proxy."""
    async with asking((await proxy.says("control_opened"))["socket"]) as control:
        yield control


@asynccontextmanager
async def occupied(proxy: Proxy, provider: SimulatedProvider, calls: int) -> AsyncIterator[httpx2.AsyncClient]:
    """One call in flight that does not end, and the others behind it, all of agent `ci`; gives the control API."""
    gate = trio.Event()
    provider.default = ScriptedReply(hold=gate)
    agents = httpx2.AsyncClient(base_url=proxy.url, timeout=PATIENCE_S)
    async with asked(proxy) as control, agents, trio.open_nursery() as nursery:

        async def one() -> None:
            answer = await agents.post("/@ci/v1/messages", json=BODY)
            assert answer.status_code == 200

        state = state_of(control)
        for _ in range(calls):
            nursery.start_soon(one)
        await eventually(state, lambda now: (now["inflight"], now["waiting"]) == (1, calls - 1))
        yield control
        gate.set()
        await eventually(state, lambda now: now["calls"]["ended"] >= calls)
