"""Leases as users have them: `hivemind-trio lease`, the control API and the agents' tools, before a real `serve`."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from hivemind_trio.jobs.process import birth
from tests.e2e.control import asked, command, eventually, found, own_runtime
from tests.e2e.process import PATIENCE_S, Proxy, environment, serving
from tests.e2e.test_mcp import over_http, over_stdio, told

pytestmark = pytest.mark.slow

POLICY = """
hmp 1
provider sim { api generic; base "http://127.0.0.1:1" }
agent grader { token env(GRADER_TOKEN) }
resource browser { lease 30s }
resource gpu { capacity 2; queue 1; allow grader }
"""


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[dict[str, str]]:
    with own_runtime() as env:
        yield env | {"XDG_STATE_HOME": str(tmp_path / "state"), "GRADER_TOKEN": "t-grader"}


@asynccontextmanager
async def served(folder: Path, env: dict[str, str], text: str = POLICY) -> AsyncIterator[Proxy]:
    path = folder / "team.hmp"
    path.write_text(text)
    async with serving("--policy", path, env=env) as proxy:
        await proxy.says("control_opened")
        yield proxy


@asynccontextmanager
async def leasing(
    env: dict[str, str], *arguments: str, waits_for: AbstractAsyncContextManager[Proxy] | None = None
) -> AsyncIterator[trio.Process]:
    """A running `hivemind-trio lease`.

    Args:
        waits_for: A proxy that is killed once it has given the lease; None: one runs already.
    """

    async def begun() -> trio.Process:
        return await trio.lowlevel.open_process(
            [sys.executable, "-m", "hivemind_trio", "lease", *arguments], env=environment(**env)
        )

    if waits_for is None:
        process = await begun()
    else:
        async with waits_for as proxy:
            process = await begun()
            await until_held(env)
            proxy.process.kill()
            await proxy.process.wait()
    try:
        with trio.fail_after(PATIENCE_S):
            yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - files and processes of others tell nothing
            await trio.sleep(0.01)


async def held(env: dict[str, str], resource: str = "browser") -> Any:
    resources = (await found(env, "lease"))["resources"]
    return next(one for one in resources if one["name"] == resource)


async def until_held(env: dict[str, str], leases: int = 1, waiting: int = 0) -> Any:
    return await eventually(lambda: held(env), lambda one: (len(one["leases"]), one["waiting"]) == (leases, waiting))


async def test_a_short_lease_is_renewed_while_its_command_runs(tmp_path: Path, runtime: dict[str, str]) -> None:
    async with served(tmp_path, runtime):
        ended = await command(runtime, "lease", "--ttl", "4s", "browser", "--", "sh", "-c", "sleep 5; echo done")

    assert ended == (0, "done\n", "")


async def test_a_command_has_the_lease_while_it_runs_and_its_exit_status_is_the_commands(
    tmp_path: Path, runtime: dict[str, str]
) -> None:
    async with served(tmp_path, runtime):
        shows = "echo $HIVEMIND_RESOURCE $HIVEMIND_LEASE $HIVEMIND_FENCE; exit 3"
        first = await command(runtime, "lease", "browser", "--", "sh", "-c", shows)
        second = await command(runtime, "lease", "browser", "sh", "-c", shows)
        killed = await command(runtime, "lease", "browser", "--", "sh", "-c", "kill -9 $$")
        missing = await command(runtime, "lease", "browser", "--", "no-such-program")
        free = await held(runtime)
        code, shown, _ = await command(runtime, "status")

    assert first == (3, "browser browser-1 1\n", "")
    assert second == (3, "browser browser-2 2\n", "")
    assert (killed[0], missing[0]) == (137, 127)
    assert "no-such-program: No such file or directory" in missing[2]
    assert (free["leases"], free["waiting"]) == ([], 0)
    assert code == 0
    assert "browser        0         1        0" in shown


async def test_the_next_one_waits_and_a_killed_holder_loses_its_lease_at_once(
    tmp_path: Path, runtime: dict[str, str]
) -> None:
    done = tmp_path / "done"
    async with (
        served(tmp_path, runtime),
        leasing(runtime, "browser") as first,
    ):
        await until_held(runtime)
        code, _, error = await command(runtime, "lease", "--wait", "0s", "browser", "--", "true")
        async with leasing(runtime, "browser", "--", "touch", str(done)) as second:
            shown = await until_held(runtime, waiting=1)
            assert not done.exists()
            first.kill()
            assert await second.wait() == 0

    assert (code, error) == (75, "hivemind-trio: no lease of `browser` was free in time\n")
    assert shown["requests"][0]["purpose"] == f"touch {done}"
    assert done.exists()


async def test_a_signal_reaches_the_command_and_holding_without_one_ends_with_it(
    tmp_path: Path, runtime: dict[str, str]
) -> None:
    ready = tmp_path / "ready"
    waits = f"trap 'exit 7' INT; touch {shlex.quote(str(ready))}; while :; do sleep 0.05; done"
    async with served(tmp_path, runtime), leasing(runtime, "browser", "--", "sh", "-c", waits) as process:
        await until(ready.exists)
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 7
        async with leasing(runtime, "browser") as holds:
            await until_held(runtime)
            holds.send_signal(signal.SIGTERM)
            assert await holds.wait() == 0
        assert (await held(runtime))["leases"] == []


async def test_a_lost_lease_stops_the_command_and_its_children(tmp_path: Path, runtime: dict[str, str]) -> None:
    pids = tmp_path / "pids"
    starts = f"trap '' TERM; sleep 600 & echo $! > {shlex.quote(str(pids))}; wait; sleep 600"
    async with served(tmp_path, runtime) as proxy, asked(proxy) as control:
        async with leasing(runtime, "browser", "--", "sh", "-c", f"{starts}") as process:
            shown = await until_held(runtime)
            await until(lambda: pids.exists() and bool(pids.read_text()))
            child = int(pids.read_text())
            released = await control.post(f"/v1/leases/{shown['leases'][0]['lease']}/release")
            again = await control.post(f"/v1/leases/{shown['leases'][0]['lease']}/renew")
            assert await process.wait() == 76
        await until(lambda: not birth(child))

    assert released.json() == {"released": "browser-1"}
    assert (again.status_code, again.json()["code"]) == (404, "no-such-resource")


async def test_a_lease_outlives_a_killed_proxy_and_its_fence_is_not_given_again(
    tmp_path: Path, runtime: dict[str, str]
) -> None:
    go = tmp_path / "go"
    waits = f"while [ ! -e {shlex.quote(str(go))} ]; do sleep 0.05; done"
    async with (
        leasing(runtime, "browser", "--", "sh", "-c", waits, waits_for=served(tmp_path, runtime)) as process,
        served(tmp_path, runtime),
    ):
        shown = await until_held(runtime)
        assert [one["lease"] for one in shown["leases"]] == ["browser-1"]
        busy = await command(runtime, "lease", "--wait", "0s", "browser", "--", "true")
        go.touch()
        assert await process.wait() == 0
        after = await command(runtime, "lease", "browser", "--", "sh", "-c", "echo $HIVEMIND_FENCE")

    assert busy[0] == 75
    assert int(after[1]) > 1


async def test_only_those_who_may_ask_get_a_lease_and_a_full_line_refuses(
    tmp_path: Path, runtime: dict[str, str]
) -> None:
    async with served(tmp_path, runtime) as proxy, asked(proxy) as control:
        stranger = await command(runtime, "lease", "gpu", "--", "true")
        unknown = await command(runtime, "lease", "gpus", "--", "true")
        wrong = await command(runtime, "lease", "--wait", "soon", "gpu", "--", "true")
        named = await command(runtime | {"ANTHROPIC_BASE_URL": "http://x/@grader"}, "lease", "gpu", "--", "true")
        async with (
            leasing(runtime, "--agent", "grader", "gpu"),
            leasing(runtime, "--agent", "grader", "gpu"),
            leasing(runtime, "--agent", "grader", "gpu"),
        ):
            await eventually(lambda: held(runtime, "gpu"), lambda one: (len(one["leases"]), one["waiting"]) == (2, 1))
            full = await command(runtime, "lease", "--agent", "grader", "gpu", "--", "true")
            posted = await control.post("/v1/leases", json={"resource": "gpu", "agent": "grader"})

    assert (stranger[0], unknown[0], wrong[0], named[0], full[0]) == (2, 2, 2, 0, 75)
    assert "resource `gpu` is for `grader`" in stranger[2]
    assert "the policy has no resource `gpus`; it has browser, gpu" in unknown[2]
    assert "write for example `30s`" in wrong[2]
    assert "1 request waits for `gpu` (limit 1)" in full[2]
    assert (posted.status_code, posted.json()["code"]) == (429, "queue-full")


async def test_without_a_proxy_or_a_resource_it_says_so(tmp_path: Path, runtime: dict[str, str]) -> None:
    none = await command(runtime, "lease", "browser", "--", "true")
    async with served(tmp_path, runtime, POLICY.partition("resource")[0]):
        empty = await command(runtime, "lease")

    assert none[0] == 2
    assert "no proxy runs" in none[2]
    assert empty == (0, "the policy declares no resource; write for example `resource browser { capacity 1 }`\n", "")


# ---- agents' tools ----


async def test_an_agent_leases_renews_and_releases_and_its_lease_ends_with_its_session(
    tmp_path: Path, runtime: dict[str, str]
) -> None:
    async with served(tmp_path, runtime):
        async with (
            over_stdio(runtime, "--agent", "one") as one,
            over_stdio(runtime, "--agent", "two") as two,
            trio.open_nursery() as nursery,
        ):
            mine = await told(one, "lease", resource="browser", purpose="screenshots")
            busy = await told(two, "lease", resource="browser")
            foreign = await two.call_tool("release", {"id": "browser-1"})
            unknown = await two.call_tool("lease", {"resource": "printer"})
            places: list[str] = []
            theirs: dict[str, Any] = {}

            async def heard(progress: float, total: float | None, message: str | None) -> None:
                places.append(message or "")

            async def wait() -> None:
                answer = await two.call_tool("lease", {"resource": "browser", "wait_s": 25}, progress_callback=heard)
                theirs.update(answer.structured_content or {})

            nursery.start_soon(wait)
            await until_held(runtime, waiting=1)
            renewed = await told(one, "renew", id=mine["lease"]["lease"])
            await told(one, "release", id="browser-1")
            twice = await one.call_tool("release", {"id": "browser-1"})
        free = await eventually(lambda: held(runtime), lambda one: one["leases"] == [])

    assert (mine["lease"]["fence"], mine["lease"]["caller"], mine["before_you"]) == (1, "one", 0)
    assert (busy["lease"], busy["before_you"]) == (None, 0)
    assert foreign.is_error
    assert "none of yours" in str(foreign.content)
    assert unknown.is_error
    assert "it has browser, gpu" in str(unknown.content)
    assert renewed["expires_in_s"] > 25
    assert twice.is_error
    assert theirs["lease"]["fence"] == 2
    assert places == ["requests before this one: 0"]
    assert free["waiting"] == 0


async def test_tools_of_leases_are_there_where_the_policy_has_a_resource_and_over_http_agents_are_proven(
    tmp_path: Path, runtime: dict[str, str]
) -> None:
    async with served(tmp_path, runtime) as proxy:
        async with (
            over_http(f"{proxy.url}/mcp", authorization="Bearer t-grader") as grader,
            over_http(f"{proxy.url}/@grader/mcp") as claims,
        ):
            tools = {tool.name for tool in (await claims.list_tools()).tools}
            mine = await told(grader, "lease", resource="gpu", wait_s=5)
            refused = await claims.call_tool("lease", {"resource": "gpu"})
            foreign = await claims.call_tool("release", {"id": mine["lease"]["lease"]})
            renewed = await told(grader, "renew", id=mine["lease"]["lease"])
            released = await told(grader, "release", id=mine["lease"]["lease"])
        (tmp_path / "team.hmp").write_text(POLICY.partition("resource")[0])
        await proxy.says("policy_loaded")
        async with over_http(f"{proxy.url}/mcp") as client:
            without = {tool.name for tool in (await client.list_tools()).tools}

    assert tools - without == {"lease", "renew", "release"}
    assert mine["lease"]["agent"] == "grader"
    assert refused.is_error
    assert foreign.is_error
    assert renewed["lease"] == mine["lease"]["lease"]
    assert released == {"released": "gpu-1"}


def test_the_help_says_how() -> None:
    from click.testing import CliRunner

    from hivemind_trio.cli.main import main

    shown = CliRunner().invoke(main, ["lease", "--help"]).stdout
    assert "HIVEMIND_FENCE" in shown
    assert "76 the lease was lost" in " ".join(shown.split())


async def test_the_stream_of_a_refused_session_is_complete(tmp_path: Path, runtime: dict[str, str]) -> None:
    async with served(tmp_path, runtime) as proxy, asked(proxy) as control:
        held = await control.post("/v1/leases", json={"resource": "browser", "agent": "a"})
        wanted = {"resource": "browser", "agent": "b", "wait_s": 0.05}
        # A stream without its last chunk makes the client raise.
        async with control.stream("POST", "/v1/leases/hold", json=wanted) as answer:
            lines = [line async for line in answer.aiter_lines()]

    assert held.json()["lease"] is not None
    assert '"code":"not-granted"' in lines[-1]
