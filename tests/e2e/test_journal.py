"""`serve --journal`, as an operator meets it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
import trio

from hivemind_trio.demo import SimulatedProvider
from hivemind_trio.store import read_journal
from tests.e2e.control import command
from tests.e2e.house import PATIENCE_S, in_thread, messages, standing, until
from tests.e2e.process import serving

SECRETS = ("sk-ant-in-the-header", "in-the-api-key", "in-the-bearer", "in-the-cookie", "in-the-query", "in-the-token")


@pytest.fixture
def policy(tmp_path: Path, provider: SimulatedProvider) -> Path:
    path = tmp_path / "team.hmp"
    path.write_text(
        f'hmp 1\nprovider sim {{ api generic; base "{provider.url}"; concurrency 2; key env(K) }}\n'
        'agent ci { token env(T) }\nrule job when header.x-ci-job == "17" { tag job }\nrule all { lane default }\n'
    )
    return path


def ask(url: str, *, key: str = "k", headers: dict[str, str] | None = None, times: int = 1) -> None:
    with anthropic.Anthropic(base_url=url, api_key=key, max_retries=0, default_headers=headers) as client:
        for _ in range(times):
            client.messages.create(model="claude-x", max_tokens=50, messages=messages("never to be written down"))


async def test_what_a_kill_leaves_is_added_to_and_a_stop_writes_what_is_left(policy: Path, tmp_path: Path) -> None:
    journal = tmp_path / "team.journal"
    env = {"K": "provider-key", "T": "t"}
    async with serving("--policy", policy, "--journal", journal, env=env) as proxy:
        await in_thread(lambda: ask(proxy.url))
        with trio.fail_after(PATIENCE_S):
            while not (found := read_journal(str(journal))) or found[0].status is None:  # noqa: ASYNC110 - no event
                await trio.sleep(0.01)
        proxy.signal(signal.SIGKILL)
        await proxy.ended()
    async with serving("--policy", policy, "--journal", journal, env=env) as proxy:
        said = await proxy.says("journal_opened")
        assert (said["file"], said["session"], said["calls_before"]) == (str(journal), 2, 1)
        await in_thread(lambda: ask(proxy.url, times=2))
        proxy.signal(signal.SIGTERM)
        assert await proxy.ended() == 0

    calls = read_journal(str(journal))
    assert [call.status for call in calls] == [200, 200, 200]
    assert [(call.request.model, call.request.tokens_max_out) for call in calls] == [("claude-x", 50)] * 3
    for call in calls:
        (attempt,) = call.attempts
        assert attempt.usage is not None
        assert attempt.usage.output > 0
        assert call.ended_ns is not None
        assert attempt.ended_ns is not None
        assert call.arrived_ns <= attempt.granted_ns < attempt.ended_ns <= call.ended_ns
    assert sorted(os.listdir(tmp_path)) == ["team.hmp", "team.journal"]


async def test_no_credential_and_no_body_is_in_the_file(policy: Path, tmp_path: Path) -> None:
    journal = tmp_path / "team.journal"
    env = {"K": "provider-key", "T": "in-the-token"}
    async with serving("--policy", policy, "--journal", journal, env=env) as proxy:
        await in_thread(lambda: ask(proxy.url, key="sk-ant-in-the-header"))
        await in_thread(lambda: ask(proxy.url, key="in-the-token"))
        async with httpx2.AsyncClient(base_url=proxy.url, timeout=PATIENCE_S) as client:
            body = {"model": "gpt-x", "messages": messages("never to be written down")}
            sent = {"authorization": "Bearer in-the-bearer", "cookie": "a=in-the-cookie", "api-key": "in-the-api-key"}
            more = {"x-forwarded-authorization": "in-the-bearer", "x-note": "Bearer in-the-bearer", "x-ci-job": "17"}
            target = "/v1/chat/completions?key=in-the-query&x=1"
            await client.post(target, json=body, headers={**sent, **more})
        # While it is written, and so in the log beside the file as well as in it.
        with trio.fail_after(PATIENCE_S):
            while len(read_journal(str(journal))) < 3:  # noqa: ASYNC110 - another process's writes have no event
                await trio.sleep(0.01)
        beside = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path) if name != "team.hmp"}
        proxy.signal(signal.SIGTERM)
        await proxy.ended()
    beside["at the end"] = journal.read_bytes()

    assert any(b"claude-x" in data for data in beside.values())
    for name, data in beside.items():
        for secret in (*SECRETS, "provider-key", "never to be written down"):
            assert secret.encode() not in data, (secret, name)
    (*_, last) = read_journal(str(journal))
    assert last.request.headers["x-ci-job"] == "17"
    assert [call.request.token_agent for call in read_journal(str(journal))] == [None, "ci", None]
    assert os.stat(journal).st_mode & 0o777 == 0o600


KEY = b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"


async def test_what_the_listener_and_the_door_refuse_is_recorded() -> None:
    sizes = []
    async with standing("provider sim { api generic; base env(UPSTREAM) }") as place:
        for head in (
            b"host: x\r\na: " + b"a" * 70_000,
            b"host: x\r\nupgrade: websocket\r\nconnection: upgrade",
            b"no header",
        ):
            async with await trio.open_tcp_stream(*place.house.address) as stream:
                await stream.send_all(b"GET /v1/x HTTP/1.1\r\nsec-websocket-version: 13\r\n" + KEY + head + b"\r\n\r\n")
                sizes.append(len((await stream.receive_some()).partition(b"\r\n\r\n")[2]))
        await until(lambda: len(place.records) == 3)

    assert [(one.status, str(one.reason)) for one in place.records] == [
        (431, "header-too-large"),
        (426, "upgrade-rejected"),
        (400, "bad-request"),
    ]
    assert all(one.rejected and one.caller.startswith("127.0.0.1:") for one in place.records)
    assert [one.bytes_out for one in place.records] == sizes


@pytest.mark.parametrize("workers", [1, 2])
async def test_commands_that_read_the_journal_say_what_it_lacks(
    workers: int, policy: Path, tmp_path: Path, runtime: dict[str, str]
) -> None:
    journal = str(tmp_path / "team.journal")
    env = {"K": "provider-key", "T": "t", **runtime}
    reads = [
        ["usage", "--json"], ["explain", "--last", "--json"], ["explain", "--slow", "--json"],
        ["journal", "check", "--json"],
    ]  # fmt: skip

    async def said(commands: list[list[str]]) -> list[tuple[str, Any]]:
        """Standard error, and what its JSON says, of each command."""
        ended = [await command(env, *words, "--journal", journal) for words in commands]
        return [(error, json.loads(out)["journal_behind"]) for _, out, error in ended]

    async with serving("--policy", policy, "--journal", journal, "--workers", f"{workers}", env=env) as proxy:
        await in_thread(lambda: ask(proxy.url))
        with trio.fail_after(PATIENCE_S):
            while not (found := read_journal(journal)) or found[0].status is None:  # noqa: ASYNC110 - no event
                await trio.sleep(0.01)
        before = await said(reads[:1])
        with closing(sqlite3.connect(journal, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await in_thread(lambda: ask(proxy.url, times=3))
            await proxy.says("journal_write_failed")
            during = await said(reads)
            other.execute("ROLLBACK")
        # Each worker says for itself that it failed, and that it has recovered.
        await proxy.until(lambda: len(proxy.of("journal_write_recovered")) == len(proxy.of("journal_write_failed")))
        after = await said(reads[:1])

    assert before == after == [("", None)]
    for error, lacks in during:
        (line,) = error.splitlines()
        assert line.startswith("hivemind-trio: the journal lacks calls of the running proxy: it cannot be written (")
        assert f"{lacks['unwritten']} entries have waited" in line
        assert lacks["unwritten"] > 0
        assert "locked" in lacks["error"]
