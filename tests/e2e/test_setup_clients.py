"""Clients that `setup --write` has set up call the proxy; each is run as it is installed here, or skipped.

npm install --prefix DIR @anthropic-ai/claude-code @openai/codex @google/gemini-cli opencode-ai @github/copilot cline
PATH=DIR/node_modules/.bin:$PATH pytest tests/e2e/test_setup_clients.py
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
import trio

from tests.e2e.house import CAP_3, Place, standing

COMMANDS: Final[Mapping[str, list[str]]] = {
    "claude-code": ["claude", "-p", "hi"],
    "codex": ["codex", "exec", "--skip-git-repo-check", "hi"],
    "gemini": ["gemini", "--skip-trust", "-p", "hi"],
    "opencode": ["opencode", "run", "-m", "anthropic/claude-sonnet-4-5", "hi"],
    "aider": ["aider", "--yes-always", "--no-git", "--model", "anthropic/claude-3-5-haiku-20241022", "--message", "hi"],
    "copilot": ["copilot", "-p", "hi", "--allow-all-tools"],
    "cline": ["cline", "say hello"],
}
"""Client -> a call of it."""
PATHS: Final = {
    "claude-code": "/v1/messages",
    "codex": "/v1/responses",
    "gemini": "/v1beta/models/",
    "opencode": "/v1/messages",
    "aider": "/v1/messages",
    "copilot": "/v1/chat/completions",
    "cline": "/v1/chat/completions",
}
START_S: Final = 40
"""Time until a client has called; some look for updates first."""
NOWHERE: Final = "http://127.0.0.1:9"
KEYS: Final = {
    "ANTHROPIC_API_KEY": "sk-ant-none",
    "CODEX_API_KEY": "sk-none",
    "GEMINI_API_KEY": "none",
    "OPENAI_API_KEY": "sk-none",
}


def scratch(home: Path) -> dict[str, str]:
    """The environment of a client: a home of its own, and no way out."""
    home.mkdir()
    return {
        "PATH": os.environ["PATH"],
        "HOME": f"{home}",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "HTTPS_PROXY": NOWHERE,
        "NO_PROXY": "127.0.0.1,localhost",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        **KEYS,
    }


def set_up(client: str, url: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Do what `setup` says; the variables that it has one set."""
    command = [sys.executable, "-m", "hivemind_trio", "setup", client, "--url", url]
    if client in ("copilot", "cline"):
        shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        for line in shown.splitlines():
            if line.startswith("Cline CLI: "):
                words = shlex.split(line.removeprefix("Cline CLI: ").replace("MODEL", "gpt-4o"))
                subprocess.run(words, env=environment, check=True, capture_output=True, timeout=START_S)
        exports = [line.strip().removeprefix("export ") for line in shown.splitlines() if "export " in line]
        return dict(one.split("=", 1) for one in exports)
    subprocess.run([*command, "--write"], env=environment, capture_output=True, check=True)
    return {}


@pytest.mark.parametrize("client", COMMANDS)
async def test_a_client_that_was_set_up_calls_the_proxy(client: str, tmp_path: Path) -> None:
    if shutil.which(COMMANDS[client][0]) is None:
        pytest.skip(f"{COMMANDS[client][0]} is not installed")
    environment = scratch(tmp_path / "home")
    async with standing(CAP_3 + "agent lead {}\n") as place:
        variables = await trio.to_thread.run_sync(set_up, client, f"{place.url}/@lead", environment)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, COMMANDS[client], {**environment, **variables}, tmp_path)
            with trio.move_on_after(START_S):
                while not answered(place, client):  # noqa: ASYNC110 - as `until`
                    await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
        assert answered(place, client), (place.records, (tmp_path / "output").read_text()[-2_000:])


def answered(place: Place, client: str) -> bool:
    """True once a call of the client was answered that came by the address it was given."""
    return any(one.path.startswith(PATHS[client]) and one.agent == "lead" for one in place.records)


async def call(command: list[str], environment: Mapping[str, str], folder: Path) -> None:
    """Run a client until it ends or the test has seen what it waits for."""
    with (folder / "output").open("w") as output:
        await trio.run_process(
            command,
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
            deliver_cancel=killed,
        )


async def killed(process: trio.Process) -> None:
    """End it at once: some do not heed SIGTERM."""
    process.kill()
