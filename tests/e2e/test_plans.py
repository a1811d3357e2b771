"""Plans as an operator and a caller meet them: a real proxy before a provider that reports plans."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import httpx2
import pytest
import trio
from click.testing import CliRunner

from bench.plan_provider import PlanProvider
from bench.plan_provider import serving as providing
from hivemind_trio.cli.main import main
from tests.e2e.process import Proxy, serving

BODY = {"model": "claude-sonnet-4-5", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}

SHOWN = r"session 93% resets \d\d:\d\dZ; week 61% resets \d\d:\d\dZ"


def policy(folder: Path, url: str, more: str = "") -> Path:
    path = folder / "team.hmp"
    path.write_text(f'hmp 1\nprovider claude {{ api anthropic; base "{url}" }}\n{more}\n')
    return path


async def ask(proxy: Proxy, credential: str = "mine") -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=proxy.url, timeout=30) as client:
        return await client.post("/v1/messages", json=BODY, headers={"authorization": f"Bearer {credential}"})


async def test_a_plan_is_on_answers_in_log_journal_and_explain_and_outlives_a_restart(tmp_path: Path) -> None:
    plan = PlanProvider(used={"5h": 0.93, "7d": 0.61})
    journal = tmp_path / "j"
    with providing(plan) as url:
        path = policy(tmp_path, url)
        async with serving("--policy", path, "--journal", journal) as proxy:
            first = await ask(proxy)
            assert re.fullmatch(SHOWN, first.headers["x-hivemind-plan"])
            crossed = [await proxy.says("plan_share_crossed", times) for times in (1, 2)]
            assert [(one["window"], one["used_percent"]) for one in crossed] == [
                ("session (5h)", 93),
                ("week (7d)", 61),
            ]
            assert crossed[0]["resets_s"] == pytest.approx(18_000, abs=60)
            await ask(proxy)
            assert len(proxy.of("plan_share_crossed")) == 2
            plan.used = {}
            assert "x-hivemind-plan" not in (await ask(proxy, "another")).headers
            proxy.signal(signal.SIGTERM)
            await proxy.ended()
        async with serving("--policy", path, "--journal", journal) as proxy:
            again = await ask(proxy)
            assert re.fullmatch(SHOWN, again.headers["x-hivemind-plan"])
            proxy.signal(signal.SIGTERM)
            await proxy.ended()

    run = CliRunner()
    shown = await trio.to_thread.run_sync(
        lambda: run.invoke(main, ["explain", first.headers["x-hivemind-call"], "--journal", str(journal)])
    )
    assert re.search(r"plan +session 93% resets [^;]+; week 61% resets", shown.stdout), shown.output
    used = await trio.to_thread.run_sync(lambda: run.invoke(main, ["usage", "--journal", str(journal), "--json"]))
    plans = json.loads(used.stdout)["plans"]
    assert [(one["provider"], one["span"], one["used"]) for one in plans] == [
        ("claude", "session", 0.93),
        ("claude", "week", 0.61),
    ]
    table = await trio.to_thread.run_sync(lambda: run.invoke(main, ["usage", "--journal", str(journal)]))
    assert re.search(r"plan of claude \(credential \w+\): session 93%", table.stdout)
