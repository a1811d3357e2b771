"""Sessions over a restart, and in the journal, as an operator meets them."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from hivemind_trio.demo import ScriptedReply, SimulatedProvider
from tests.e2e.control import BODY, command
from tests.e2e.process import PATIENCE_S, Proxy, serving

pytestmark = pytest.mark.slow


def answer(tokens: int) -> ScriptedReply:
    body = {"type": "message", "content": [], "usage": {"input_tokens": tokens, "output_tokens": 10}}
    return ScriptedReply(status=200, body=json.dumps(body).encode())


async def turn(proxy: Proxy) -> tuple[int, str]:
    """One more call of a session: its status and name."""
    async with httpx2.AsyncClient(base_url=proxy.url, timeout=PATIENCE_S) as client:
        headers = {"x-hivemind-job": "long", "authorization": "Bearer mine"}
        found = await client.post("/v1/messages", json=BODY, headers=headers)
    return found.status_code, found.headers["x-hivemind-call"]


def journalled(folder: Path) -> list[tuple[int, int]]:
    """Turns and context of each call."""
    (journal,) = folder.rglob("journal.db")
    with closing(sqlite3.connect(journal)) as database:
        return database.execute("SELECT session_turns, session_context FROM calls ORDER BY wall_ns").fetchall()


async def test_a_rule_knows_the_turns_before_a_restart_and_the_journal_has_them(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = tmp_path / "team.hmp"
    path.write_text(
        f'hmp 1\nprovider sim {{ api anthropic; base "{provider.url}" }}\n'
        'rule r when session.turns >= 3 and session.context > 1500 { deny "begin a new session" }\n'
    )
    env = {**runtime, "XDG_STATE_HOME": str(tmp_path / "state")}
    turns = []
    for replies in ([answer(1_000), answer(1_500)], [answer(2_000)]):
        provider.replies += replies
        async with serving("--policy", path, env=env) as proxy:
            turns += [await turn(proxy) for _ in range(2)]
            proxy.signal(signal.SIGTERM)
            await proxy.ended()
    _, told, _ = await command(env, "explain", turns[-1][1], "--policy", str(path))
    rows = journalled(tmp_path)

    assert [status for status, _ in turns] == [200, 200, 200, 403]
    assert rows == [(0, 0), (1, 1_010), (2, 1_510), (3, 2_010)]
    assert "session    3 turns before it, context 2,010 tokens, $" in told
