"""Budgets and limits that survive the end of the process, as an operator meets them."""

from __future__ import annotations

import hashlib
import json
import signal
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from hivemind_trio.demo import SimulatedProvider
from tests.e2e.process import Proxy, run, serving

BODY = {"model": "claude-haiku-4-5", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}


def noon() -> str:
    """Return a time zone in which no day ends within hours, whenever the tests run."""
    ahead = 12 - time.gmtime().tm_hour
    return f"Etc/GMT{-ahead:+d}"  # the sign is that of POSIX


def policy(folder: Path, url: str, text: str) -> Path:
    path = folder / "team.hmp"
    provider = f'provider sim {{ api generic; base "{url}"; concurrency 4 }}'
    path.write_text(f'hmp 1\nserver {{ timezone "{noon()}" }}\n{provider}\n{text}\n')
    return path


async def ask(proxy: Proxy) -> tuple[int, str, Any]:
    async with httpx2.AsyncClient(base_url=proxy.url, timeout=120) as client:
        answer = await client.post("/v1/messages", json=BODY)
    return answer.status_code, answer.headers.get("x-hivemind-reason", ""), json.loads(answer.content)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_budget_is_not_spent_twice_by_a_restart(
    number: signal.Signals, tmp_path: Path, provider: SimulatedProvider
) -> None:
    path = policy(tmp_path, provider.url, 'budget calls { requests 3/day; at 100% { deny "enough" } }')
    statuses = []
    for runs in range(3):
        async with serving("--policy", path) as proxy:
            opened = await proxy.says("state_opened")
            assert opened["runs"] == runs
            for _ in range(2):
                statuses.append((await ask(proxy))[:2])
            proxy.signal(number)
            await proxy.ended()

    assert [status for status, _ in statuses] == [200, 200, 200, 429, 429, 429]
    assert statuses[3][1] == "budget"


async def test_calls_in_flight_at_a_kill_are_charged_and_said(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        asked = trio.Event()

        async def silent(stream: trio.SocketStream) -> None:
            await stream.receive_some()
            asked.set()
            await trio.sleep_forever()

        nursery.start_soon(trio.serve_listeners, silent, listeners)
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        path = policy(tmp_path, url, "budget calls { requests 10/day; output 1k/day }")
        async with serving("--policy", path) as proxy:

            async def hang() -> None:
                with pytest.raises(httpx2.HTTPError):
                    await ask(proxy)

            nursery.start_soon(hang)
            await asked.wait()
            proxy.signal(signal.SIGKILL)
            await proxy.ended()
        async with serving("--policy", path) as proxy:
            await proxy.says("serving")
            charged = {one["measure"]: (one["amount"], one["in_flight"]) for one in proxy.of("budget_charged")}
            proxy.signal(signal.SIGTERM)
            await proxy.ended()
        nursery.cancel_scope.cancel()

    assert charged == {"requests": ("1", 1), "output": ("50", 1)}


async def test_a_second_proxy_with_the_same_policy_is_told_who_serves_it(
    tmp_path: Path, provider: SimulatedProvider
) -> None:
    path = policy(tmp_path, provider.url, "")
    async with serving("--policy", path) as first:
        await first.says("serving")
        status, _, said = await run("--policy", path, "--listen", "127.0.0.1:0")
        assert status == 2
        assert f"process {first.process.pid} is serving this policy" in said
        first.signal(signal.SIGTERM)
        assert await first.ended() == 0


async def test_a_budget_keeps_what_was_spent_under_its_new_name(tmp_path: Path, provider: SimulatedProvider) -> None:
    budget = '{ requests 1/day; at 100% { deny "enough" } }'
    for name, status in (("budget calls", 200), ("budget turns was calls", 429), ("budget turns", 429)):
        path = policy(tmp_path, provider.url, f"{name} {budget}")
        async with serving("--policy", path) as proxy:
            assert (await ask(proxy))[0] == status, name
            proxy.signal(signal.SIGKILL if "was" in name else signal.SIGTERM)
            await proxy.ended()


async def test_a_place_that_cannot_be_written_stops_a_policy_with_budgets_only(
    tmp_path: Path, provider: SimulatedProvider
) -> None:
    env = {"XDG_STATE_HOME": "/proc/nowhere"}
    path = policy(tmp_path, provider.url, "budget calls { requests 1/day }")
    status, _, said = await run("--policy", path, "--listen", "127.0.0.1:0", env=env)
    assert status == 2
    assert "store memory" in said
    path = policy(tmp_path, provider.url, "")
    async with serving("--policy", path, env=env) as proxy:
        await proxy.says("state_unavailable")
        assert (await ask(proxy))[0] == 200
        proxy.signal(signal.SIGTERM)
        assert await proxy.ended() == 0


async def test_memory_leaves_nothing_behind(tmp_path: Path, provider: SimulatedProvider) -> None:
    path = policy(tmp_path, provider.url, "store memory { }\nbudget calls { requests 1/day }")
    state = tmp_path / "xdg"
    for _ in range(2):
        async with serving("--policy", path, env={"XDG_STATE_HOME": str(state)}) as proxy:
            assert (await ask(proxy))[0] == 200
            proxy.signal(signal.SIGKILL)
            await proxy.ended()
    assert [file for file in state.rglob("*") if file.is_file()] == []


async def test_no_plain_hash_of_a_credential_is_kept_and_its_name_is_the_same_in_every_run(
    tmp_path: Path, provider: SimulatedProvider
) -> None:
    path = policy(tmp_path, provider.url, "budget each per agent { requests 3/day }")
    state = tmp_path / "xdg"
    names, found = [], b""
    for _ in range(2):
        async with serving("--policy", path, "--log-calls", env={"XDG_STATE_HOME": str(state)}) as proxy:
            async with httpx2.AsyncClient(base_url=proxy.url, timeout=120, headers={"x-api-key": "hunter2"}) as client:
                await client.post("/v1/messages", json=BODY)
            names.append((await proxy.says("call_ended"))["caller"].rpartition("@")[2])
            proxy.signal(signal.SIGTERM)
            await proxy.ended()
            found += "\n".join(proxy.lines).encode()
    found += b"".join(file.read_bytes() for file in state.rglob("*") if file.is_file())

    digest = hashlib.sha256(b"hunter2").hexdigest()
    assert names[0] == names[1]
    assert names[0].encode() in found
    assert digest[:8].encode() not in found
    assert b"hunter2" not in found
