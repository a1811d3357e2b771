"""Files of `policies/deploy`, and the sockets that systemd passes: over real processes and the tools' own checks."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click
import httpx2
import pytest
import trio

from hivemind_trio.cli.main import main as cli
from hivemind_trio.demo import SimulatedProvider
from hivemind_trio.policy import MemoryFiles, check
from tests.e2e.control import command, own_runtime
from tests.e2e.process import COMMAND, PATIENCE_S, Proxy, environment, serving
from tests.support.redis import needs_redis, redis_server

DEPLOY: Final = Path(__file__).parents[2] / "policies/deploy"
ROOT: Final = DEPLOY.parents[1]
WITH_PASSED: Final = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Passes a socket as systemd does: its number is 3, and the variables name the process itself."""


def command_with(sock: socket.socket, arguments: Sequence[str | Path]) -> list[str]:
    return [sys.executable, "-c", WITH_PASSED, str(sock.fileno()), *COMMAND, *map(str, arguments)]


@asynccontextmanager
async def activated(sock: socket.socket, *arguments: str | Path) -> AsyncIterator[Proxy]:
    """Start `serve` with a socket that was passed to it."""
    process = await trio.lowlevel.open_process(
        command_with(sock, [*arguments, "--log-format", "json"]),
        stderr=subprocess.PIPE,
        pass_fds=(sock.fileno(),),
        env=environment(),
    )
    try:
        async with trio.open_nursery() as nursery:
            proxy = Proxy(process)
            nursery.start_soon(proxy.read)
            yield proxy
            nursery.cancel_scope.cancel()
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
        assert process.stderr is not None
        await process.stderr.aclose()


def refused(sock: socket.socket, *arguments: str | Path) -> tuple[int, str]:
    ended = subprocess.run(
        command_with(sock, arguments),
        pass_fds=(sock.fileno(),),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return ended.returncode, ended.stderr


@pytest.fixture
async def policy(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Path]:
    provider = SimulatedProvider(seed=7)
    await nursery.start(provider.run)
    path = tmp_path / "team.hmp"
    path.write_text(f'hmp 1\nprovider sim {{ api generic; base "{provider.url}"; concurrency 3 }}\n')
    yield path
    nursery.cancel_scope.cancel()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


async def test_a_call_between_two_processes_waits_in_the_socket(policy: Path, listening: socket.socket) -> None:
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    answers: list[int] = []

    async def ask() -> None:
        async with httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client:
            answer = await client.post(f"{url}/v1/chat/completions", json={"model": "m", "messages": []})
            answers.append(answer.status_code)

    async with activated(listening, "--policy", policy) as first:
        assert (await first.says("serving"))["address"] == url
        await ask()
        first.signal(signal.SIGTERM)
        assert await first.ended() == 0
    async with trio.open_nursery() as callers:
        callers.start_soon(ask)
        async with activated(listening, "--policy", policy) as second:
            await second.says("serving")
            with trio.fail_after(PATIENCE_S):
                while len(answers) < 2:  # noqa: ASYNC110 - the answer is to another process
                    await trio.sleep(0.01)
    assert answers == [200, 200]


async def test_passed_sockets_that_cannot_be_used_are_told(policy: Path, listening: socket.socket) -> None:
    status, said = refused(listening, "--policy", policy, "--listen", "127.0.0.1:0")
    assert status == 2
    assert "leave out --listen" in said

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        status, said = refused(datagrams, "--policy", policy)
    assert status == 2
    assert "ListenStream=" in said

    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        status, said = refused(everywhere, "--policy", policy)
    assert status == 2
    assert "token env(NAME)" in said


async def test_variables_that_name_another_process_are_not_ours(policy: Path) -> None:
    async with serving("--policy", policy, env={"LISTEN_PID": "1", "LISTEN_FDS": "1"}) as proxy:
        assert proxy.url


# ---- files ----


def words_of_the_unit() -> list[str]:
    [line] = re.findall(r"^ExecStart=(.*)$", (DEPLOY / "hivemind-trio.service").read_text(), re.MULTILINE)
    return str(line).split()[1:]


def words_of_the_image() -> list[str]:
    [line] = re.findall(r"^CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    return [str(word) for word in json.loads(line)]


@pytest.mark.parametrize("words", [words_of_the_unit(), words_of_the_image()], ids=["unit", "image"])
def test_their_commands_are_options_that_serve_has(words: list[str]) -> None:
    serve = cli.get_command(click.Context(cli), words[0])
    assert serve is not None
    context = serve.make_context(words[0], words[1:])
    assert context.params["policy"] == "/etc/hivemind-trio/team.hmp"
    assert context.params["log_format"] == "json"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_units_and_finds_them_hardened(tmp_path: Path) -> None:
    for name in ("hivemind-trio.socket", "hivemind-trio.service"):
        text = (DEPLOY / name).read_text()
        (tmp_path / name).write_text(text.replace("/opt/hivemind-trio/bin/hivemind-trio", sys.executable))
    units = [str(tmp_path / name) for name in ("hivemind-trio.service", "hivemind-trio.socket")]
    verified = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    ours = [line for line in verified.stderr.splitlines() if "hivemind-trio" in line]
    assert (verified.returncode, ours) == (0, [])

    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", units[0]],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert judged.returncode == 0, judged.stdout[-300:]


def test_the_image_is_not_roots_and_copies_what_is_there() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    [user] = re.findall(r"^USER (\d+)$", text, re.MULTILINE)
    assert int(user) > 0
    copied = [word for line in re.findall(r"^COPY (?!--)(.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert copied
    assert [word for word in copied if not (ROOT / word).exists()] == []
    [extras] = re.findall(r'"\.\[(.*)\]"', text)
    declared = (ROOT / "pyproject.toml").read_text()
    assert [extra for extra in extras.split(",") if f"\n{extra} = [" not in declared] == []


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_log_in_a_file_is_rotated_as_the_file_for_logrotate_says(
    policy: Path, tmp_path: Path, workers: int
) -> None:
    log, rotated = tmp_path / "serve.log", tmp_path / "serve.log.1"
    text = (DEPLOY / "hivemind-trio.logrotate").read_text()
    rotation = tmp_path / "rotation"
    rotation.write_text(text.replace("/var/log/hivemind-trio.log", f"{log}").replace("    compress\n", ""))
    rotation.chmod(0o600)
    tool = shutil.which("logrotate", path="/usr/sbin:/sbin:/usr/bin:/bin")
    words = [*COMMAND, "--policy", str(policy), "--log-format", "json", "--listen", "127.0.0.1:0"]
    with log.open("ab") as file:  # as `2>>` does
        process = await trio.lowlevel.open_process(
            [*words, "--workers", f"{workers}"], stderr=file, env=environment(XDG_STATE_HOME=f"{tmp_path}")
        )

    async def says(event: str) -> None:
        with trio.fail_after(PATIENCE_S):
            while f'"{event}"' not in log.read_text():  # noqa: ASYNC110 - another process writes it
                await trio.sleep(0.01)

    try:
        await says("serving")
        before = log.read_bytes()
        if tool is not None:
            state = ["--force", "--state", str(tmp_path / "state")]
            await trio.run_process([tool, *state, str(rotation)])
        else:  # what it does
            assert "\n    copytruncate\n" in text
            rotated.write_bytes(before)
            os.truncate(log, 0)
        process.send_signal(signal.SIGHUP)
        await says("policy_loaded")
        process.send_signal(signal.SIGTERM)
        with trio.fail_after(PATIENCE_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()

    assert rotated.read_bytes().startswith(before)
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert [events[0], events[-1]] == ["reload_requested", "stopped"]


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_hadolint_has_nothing_against_the_image() -> None:
    linted = subprocess.run(["hadolint", str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False)
    assert (linted.returncode, linted.stdout) == (0, "")


async def test_the_health_check_of_the_image_tells_whether_it_serves(policy: Path) -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    [line] = re.findall(r"HEALTHCHECK .*\\\n\s*CMD (\[.*\])", text)
    _, *words = json.loads(line)

    async def healthy(port: int) -> bool:
        asked = [sys.executable, *(word.replace("8787", str(port)) for word in words)]
        ended = await trio.run_process(asked, check=False, capture_stderr=True)
        return ended.returncode == 0

    async with serving("--policy", policy) as proxy:
        port = int(proxy.url.rpartition(":")[2])
        assert await healthy(port)
    assert not await healthy(port)


async def test_the_policy_of_the_compose_file_serves_its_agents_alone_and_its_page_is_opened_from_outside(
    tmp_path: Path, runtime: dict[str, str]
) -> None:
    text = (DEPLOY / "compose.hmp").read_text()
    assert not check("compose.hmp", MemoryFiles({"compose.hmp": text})).diagnostics
    compose = (DEPLOY / "compose.yml").read_text()
    for name in re.findall(r'file\("/run/secrets/(\w+)"\)', text):
        assert f"\n      - {name}\n" in compose
        assert f"\n  {name}:\n    file: ./secrets/{name}\n" in compose
        (tmp_path / name).write_text(f"the-{name}")
    path = tmp_path / "compose.hmp"
    assert '\n      - "127.0.0.1:8788:8788"\n' in compose
    path.write_text(text.replace("/run/secrets/", f"{tmp_path}/").replace("0.0.0.0:8788", "0.0.0.0:0"))
    async with (
        serving("--policy", path, listen="0.0.0.0:0", env=runtime) as proxy,
        httpx2.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client,
    ):
        assert (await client.post(f"{proxy.url}/v1/messages", json={"model": "m"})).status_code == 401
        assert (await client.get(f"{proxy.url}/readyz")).status_code == 200
        code, link, advice = await command(runtime, "dashboard")
        assert (code, advice) == (0, "")
        assert link.startswith("http://127.0.0.1:")
        assert (await client.get(f"{urlsplit(link).scheme}://{urlsplit(link).netloc}/v1/status")).status_code == 401
        assert (await client.get(link.strip())).status_code == 303


@pytest.mark.slow
@needs_redis
async def test_the_three_nodes_of_the_compose_file_share_through_its_redis(tmp_path: Path) -> None:
    compose, text = (DEPLOY / "several.yml").read_text(), (DEPLOY / "several.hmp").read_text()
    assert not check("several.hmp", MemoryFiles({"several.hmp": text})).diagnostics
    for name in re.findall(r'file\("/run/secrets/(\w+)"\)', text):
        assert f"\n    - {name}\n" in compose
        assert f"\n  {name}:\n    file: ./secrets/{name}\n" in compose
        (tmp_path / name).write_text(f"the-{name}")
    commands = [json.loads(line) for line in re.findall(r'^    command: (\["serve".*\])$', compose, re.MULTILINE)]
    assert len(commands) == int(re.findall(r"^  nodes +(\d+)", text, re.MULTILINE)[0])
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(redis_server(tmp_path))
        path = tmp_path / "several.hmp"
        path.write_text(text.replace("/run/secrets/", f"{tmp_path}/").replace("redis://redis:6379", redis.url))
        runtime = stack.enter_context(own_runtime())
        proxies = []
        for number, (_, *words) in enumerate(commands):
            env = {**runtime, "XDG_STATE_HOME": f"{tmp_path / str(number)}"}
            words = [word.replace("/etc/hivemind-trio/team.hmp", f"{path}") for word in words if "json" not in word]
            words.remove("--log-format")
            proxies.append(await stack.enter_async_context(serving(*words, listen="0.0.0.0:0", env=env)))
        joined = [(await proxy.says("node_joined"))["node"] for proxy in proxies]
        socket_file = proxies[0].of("control_opened")[0]["socket"]
        with trio.fail_after(PATIENCE_S):
            while True:
                code, shown, _ = await command(runtime, "status", "--socket", socket_file, "--json")
                nodes = json.loads(shown)["nodes"] if code == 0 else []
                if [one["name"] for one in nodes if one["policy"]] == joined:
                    break

    assert joined == ["node-1", "node-2", "node-3"]
    assert len({one["policy"] for one in nodes}) == 1
