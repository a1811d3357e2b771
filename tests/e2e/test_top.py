"""`hivemind-trio top` on a real terminal, before a real `serve`."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from hivemind_trio.cli.control.top import ALTERNATE, RESTORED
from hivemind_trio.cli.main import main
from hivemind_trio.demo import SimulatedProvider
from hivemind_trio.policy import width
from tests.e2e.control import command, occupied, policy
from tests.e2e.process import PATIENCE_S, environment, serving


class Terminal:
    """A terminal of 40 columns and 12 rows, and `top` on it."""

    def __init__(self, env: dict[str, str]) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 40, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hivemind_trio", "top", "--interval", "0.1"],
            stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**env, TERM="xterm"), start_new_session=True,
        )  # fmt: skip

    async def shows(self, words: str) -> None:
        with trio.fail_after(PATIENCE_S):
            while words not in self.text:
                await trio.lowlevel.wait_readable(self.ours)
                self.text += os.read(self.ours, 65_536).decode()

    async def ended(self) -> int:
        with trio.fail_after(PATIENCE_S):
            await self.shows(RESTORED)
            return await trio.to_thread.run_sync(self.process.wait, abandon_on_cancel=True)

    def press(self, key: bytes) -> None:
        os.write(self.ours, key)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.mark.parametrize("way", ["q", "interrupt", "terminate"])
async def test_it_is_live_fits_and_leaves_the_terminal_as_it_was(
    way: str, tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    async with serving("--policy", policy(tmp_path, provider.url), env=runtime) as proxy:
        terminal = Terminal(runtime)
        try:
            await terminal.shows("0 waiting, 0 of 1 in flight")
            async with occupied(proxy, provider, 3):
                await terminal.shows("2 waiting")
                await terminal.shows("provider-concurrency")
            terminal.text = terminal.text[-20_000:]
            match way:
                case "q":
                    terminal.press(b"q")
                case "interrupt":
                    terminal.process.send_signal(signal.SIGINT)
                case _:
                    terminal.process.send_signal(signal.SIGTERM)
            status = await terminal.ended()
            after = termios.tcgetattr(terminal.theirs)
        finally:
            terminal.close()

    assert status == (143 if way == "terminate" else 0)
    assert after == terminal.before
    assert terminal.text.endswith(RESTORED)


async def test_it_waits_for_a_proxy_that_was_killed_and_goes_on(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = policy(tmp_path, provider.url)
    async with serving("--policy", path, env=runtime) as proxy:
        terminal = Terminal(runtime)
        try:
            await terminal.shows("0 waiting")
            assert terminal.text.startswith(ALTERNATE)
            proxy.signal(signal.SIGKILL)
            await terminal.shows("! no answer from the proxy")
            terminal.text = ""
            async with serving("--policy", path, env=runtime):
                await terminal.shows("0 waiting, 0 of 1 in flight")
                terminal.press(b"q")
                assert await terminal.ended() == 0
        finally:
            terminal.close()


async def test_in_a_pipe_it_prints_pictures_without_control_characters(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    async with serving("--policy", policy(tmp_path, provider.url), env=runtime):
        code, out, error = await command(runtime, "top", "--count", "2", "--interval", "0.1")

    assert (code, error) == (0, "")
    assert out.count("0 waiting, 0 of 1 in flight") == 2
    assert "\x1b" not in out


async def test_in_a_pipe_lines_are_as_wide_as_columns_says(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    commands = (["top", "--count", "1"], ["status"], ["status", "sim"], ["queue"], ["calls"], ["budget"])
    async with (
        serving("--policy", policy(tmp_path, provider.url), env=runtime) as proxy,
        occupied(proxy, provider, 2),
    ):
        # In this process: a dozen processes would take longer than the calls wait.
        def shown(columns: str) -> list[str]:
            runner = CliRunner(env={**runtime, "COLUMNS": columns})
            return [runner.invoke(main, one).stdout for one in commands]

        whole, narrow = [await trio.to_thread.run_sync(shown, columns) for columns in ("", "30")]

    assert all(max(map(width, text.splitlines())) <= 30 for text in narrow)
    assert all(max(map(width, text.splitlines())) > 30 for text in whole)
    assert [text.split()[0] for text in narrow] == [text.split()[0] for text in whole]


async def test_as_json_it_prints_an_object_on_a_line_for_each_picture(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    async with (
        serving("--policy", policy(tmp_path, provider.url), env=runtime) as proxy,
        occupied(proxy, provider, 3) as control,
    ):
        code, out, error = await command(runtime, "top", "--json", "--count", "2", "--interval", "0.1")
        status = (await control.get("/v1/status")).json()

    pictures = [json.loads(line) for line in out.splitlines()]
    assert (code, error, len(pictures)) == (0, "", 2)
    assert [one["status"]["waiting"] for one in pictures] == [2, 2]
    assert pictures[0]["status"].keys() == status.keys()
    # Listed by the arrival of their heads; the first body that is complete goes first.
    assert sorted(call["state"] for call in pictures[0]["calls"]) == ["inflight", "waiting", "waiting"]
    assert [(row["reason"], row["n"]) for row in pictures[0]["queue"]["queue"]] == [("provider-concurrency", 2)]
    assert [one["budget"] for one in pictures[0]["budgets"]] == ["calls"]
