"""Several keys of a provider as an operator meets them: a real proxy whose first key is over its limit."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import httpx2
import trio
from click.testing import CliRunner

from bench.plan_provider import PlanProvider
from bench.plan_provider import serving as providing
from hivemind_trio.cli.main import main
from tests.e2e.control import command, found, own_runtime
from tests.e2e.process import serving

POLICY = """
hmp 1
provider claude {{
  api anthropic
  base "{url}"
  account prod  {{ key file("{folder}/prod") }}
  account trial {{ key file("{folder}/trial") }}
  spread first
}}
"""
BODY = {"model": "claude-sonnet-4-5", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}


async def test_status_journal_and_explain_name_the_account(tmp_path: Path) -> None:
    for name in ("prod", "trial"):
        (tmp_path / name).write_text(f"key-{name}")
        (tmp_path / name).chmod(0o600)
    plan, path, journal = PlanProvider(limited={"key-prod"}), tmp_path / "team.hmp", tmp_path / "j"
    with providing(plan) as url, own_runtime() as env:
        path.write_text(POLICY.format(url=url, folder=tmp_path))
        async with serving("--policy", path, "--journal", journal, env=env) as proxy:
            async with httpx2.AsyncClient(base_url=proxy.url, timeout=120) as client:
                answer = await client.post("/v1/messages", json=BODY, headers={"x-api-key": "mine"})
            status = await found(env, "status")
            whole = await found(env, "status", "claude")
            _, _, slip = await command(env, "status", "cloud")
            await command(env, "pause", "provider", "claude.trial")
            paused = await found(env, "status")
            resumed = await found(env, "resume", "provider", "claude")
            proxy.signal(signal.SIGTERM)
            await proxy.ended()

    assert answer.status_code == 200
    assert plan.credentials == ["key-prod", "key-trial"]
    assert [one["name"] for one in status["providers"]] == ["claude.prod", "claude.trial"]
    assert "claude.trial" in str(paused["notices"])
    assert not resumed["paused"]
    assert [one["provider"]["name"] for one in whole["accounts"]] == ["claude.prod", "claude.trial"]
    assert whole["provider"]["limit"] == sum(one["limit"] for one in status["providers"])
    assert "no provider `cloud`; it has claude (accounts claude.prod, claude.trial)" in slip

    name = answer.headers["x-hivemind-call"]
    run = CliRunner()
    shown = await trio.to_thread.run_sync(lambda: run.invoke(main, ["explain", name, "--journal", str(journal)]))
    assert "account: spread first: it has room" in shown.stdout, shown.output
    assert re.search(r"attempt 1 at claude\.prod", shown.stdout)
    assert re.search(r"attempt 2 at claude\.trial", shown.stdout)
