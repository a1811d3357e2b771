"""Plans as an operator and a caller meet them: a real proxy before a provider that reports plans."""

from __future__ import annotations

import json
import os
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
from tests.e2e.control import command, found, own_runtime
from tests.e2e.process import Proxy, serving

BODY = {"model": "claude-sonnet-4-5", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}

SHOWN = r"session 93% resets \d\d:\d\dZ; week 61% resets \d\d:\d\dZ"


def policy(folder: Path, url: str, more: str = "") -> Path:
    path = folder / "team.hmp"
    path.write_text(f'hmp 1\nprovider claude {{ api anthropic; base "{url}" }}\n{more}\n')
    return path


def denying(folder: Path, url: str) -> Path:
    path = folder / "team.hmp"
    path.write_text(f'hmp 1\nprovider claude {{ api anthropic; base "{url}"; plan {{ overage deny }} }}\n')
    return path


async def ask(proxy: Proxy, credential: str = "mine", model: str = "claude-sonnet-4-5") -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=proxy.url, timeout=120) as client:
        return await client.post(
            "/v1/messages", json=BODY | {"model": model}, headers={"authorization": f"Bearer {credential}"}
        )


async def test_a_plan_is_on_answers_in_log_journal_and_explain_and_outlives_a_restart(tmp_path: Path) -> None:
    plan = PlanProvider(used={"5h": 0.93, "7d": 0.61})
    journal = tmp_path / "j"
    with providing(plan) as url, own_runtime() as env:
        path = policy(tmp_path, url)
        async with serving("--policy", path, "--journal", journal, env=env) as proxy:
            first = await ask(proxy)
            assert re.fullmatch(SHOWN, first.headers["x-hivemind-plan"])
            crossed = [await proxy.says("plan_share_crossed", times) for times in (1, 2)]
            assert [(one["window"], one["used_percent"]) for one in crossed] == [
                ("session (5h)", 93),
                ("week (7d)", 61),
            ]
            assert crossed[0]["resets_s"] == pytest.approx(18_000, abs=60)
            (claude,) = (await found(env, "status"))["providers"]
            name = crossed[0]["account"]
            assert {one["account"] for one in claude["plans"]} == {name}
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
    line = rf"plan +session 93% resets [^;]+; week 61% resets .+ \(credential {name}\)"
    assert re.search(line, shown.stdout), shown.output
    used = await trio.to_thread.run_sync(lambda: run.invoke(main, ["usage", "--journal", str(journal), "--json"]))
    plans = json.loads(used.stdout)["plans"]
    assert [(one["provider"], one["account"], one["span"], one["used"]) for one in plans] == [
        ("claude", name, "session", 0.93),
        ("claude", name, "week", 0.61),
    ]
    table = await trio.to_thread.run_sync(lambda: run.invoke(main, ["usage", "--journal", str(journal)]))
    assert f"plan of claude (credential {name}): session 93%" in table.stdout


async def test_while_a_plan_is_used_up_its_account_has_the_answer_of_its_provider(tmp_path: Path) -> None:
    plan = PlanProvider(spent={"mine"}, resets_s=7_000, message="the provider's own words")
    with providing(plan) as url:
        async with serving("--policy", policy(tmp_path, url)) as proxy:
            theirs, ours = await ask(proxy, "mine"), await ask(proxy, "mine")
            other = await ask(proxy, "another")

    assert plan.refused == 1
    assert (theirs.status_code, ours.status_code, other.status_code) == (429, 429, 200)
    assert ours.headers["x-hivemind-reason"] == "provider-spent"
    assert ours.content == theirs.content
    told = {name: value for name, value in theirs.headers.items() if name.startswith("anthropic-ratelimit-unified")}
    assert told.items() <= ours.headers.items()
    assert ours.headers["anthropic-ratelimit-unified-status"] == "rejected"
    assert 6_900 < int(ours.headers["retry-after"]) <= int(theirs.headers["retry-after"])
    assert ours.headers["x-hivemind-plan"].startswith("session 100% resets ")


async def test_another_model_has_that_answer_too_where_overage_is_denied(tmp_path: Path) -> None:
    plan = PlanProvider(spent={"mine"}, resets_s=7_000, message="the provider's own words")
    with providing(plan) as url:
        async with serving("--policy", denying(tmp_path, url)) as proxy:
            theirs, ours = await ask(proxy, "mine"), await ask(proxy, "mine", model="claude-haiku-4-5")

    assert plan.refused == 1, "the second call is not sent"
    assert ours.headers["x-hivemind-reason"] == "provider-spent"
    assert ours.content == theirs.content
    assert ours.headers["anthropic-ratelimit-unified-status"] == "rejected"
    assert 6_900 < int(ours.headers["retry-after"]) <= int(theirs.headers["retry-after"])


def reserving(folder: Path, url: str) -> Path:
    path = folder / "team.hmp"
    plan = "reserve 30% of session for interactive"
    path.write_text(
        f'hmp 1\nprovider claude {{ api anthropic; base "{url}"; plan {{ {plan} }} }}\n'
        "lane interactive { }\nlane batch { }\nrule all { lane batch }\n"
    )
    return path


@pytest.mark.parametrize("never_pays", ["", "org_level_disabled"])
async def test_a_refusal_for_a_reserve_tells_what_the_provider_tells_of_the_account(
    never_pays: str, tmp_path: Path
) -> None:
    plan = PlanProvider(used={"5h": 0.85}, resets_s=7_000, never_pays=never_pays)
    with providing(plan) as url:
        async with serving("--policy", reserving(tmp_path, url)) as proxy:
            await ask(proxy)
            refused, other = await ask(proxy), await ask(proxy, "another")

    name = "anthropic-ratelimit-unified-overage-disabled-reason"
    assert (refused.status_code, refused.headers["x-hivemind-reason"]) == (429, "plan-reserve")
    assert refused.headers.get(name, "") == never_pays
    assert not any(one.startswith("anthropic-ratelimit-unified") for one in refused.headers if one != name), (
        "the plan is not used up"
    )
    assert other.status_code == 200


async def test_status_shows_the_plan_of_each_account(tmp_path: Path) -> None:
    with providing(PlanProvider(used={"5h": 0.93, "7d_opus": 0.61})) as url, own_runtime() as env:
        async with serving("--policy", policy(tmp_path, url), env=env) as proxy:
            await ask(proxy)
            status = await found(env, "status")
            _, text, _ = await command(env, "status")

    plans = status["providers"][0]["plans"]
    assert [(one["span"], one["models"], one["used"]) for one in plans] == [
        ("session", None, 0.93),
        ("week", "opus", 0.61),
    ]
    assert all(one["resets_at"] is not None and not one["overage"] for one in plans)
    account = plans[0]["account"]
    assert re.search(rf"claude +{account} +session +93% ", text)
    assert re.search(rf"claude +{account} +week \(opus\) +61% ", text)


@pytest.mark.parametrize(("overage", "said"), [("warn", True), ("allow", False)])
async def test_a_call_that_is_paid_beyond_the_plan_says_so(overage: str, said: bool, tmp_path: Path) -> None:
    with providing(PlanProvider(used={"5h": 1.0}, overage=True)) as url:
        path = policy(tmp_path, url)
        path.write_text(path.read_text().replace(" }", f"; plan {{ overage {overage} }} }}"))
        async with serving("--policy", path) as proxy:
            answer = await ask(proxy)

    assert answer.status_code == 200
    assert answer.headers["x-hivemind-plan"].endswith("; overage")
    assert ("beyond its plan" in answer.headers.get("x-hivemind-warning", "")) is said


async def claude_says(proxy: Proxy, home: Path) -> str:
    """Run Claude Code with a login of its own; return its result."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TZ": "UTC",
        "ANTHROPIC_BASE_URL": proxy.url,
        "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-x",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    command = [os.environ["HIVEMIND_TEST_CLAUDE"], "-p", "hello", "--output-format", "json"]
    ended = await trio.run_process(command, env=environment, cwd=home, capture_stdout=True, check=False, stdin=b"")
    return str(json.loads(ended.stdout)["result"])


@pytest.mark.skipif("HIVEMIND_TEST_CLAUDE" not in os.environ, reason="HIVEMIND_TEST_CLAUDE is the path of Claude Code")
async def test_claude_code_names_the_reset_of_the_plan(tmp_path: Path) -> None:
    plan = PlanProvider(spent={"sk-ant-oat01-x"}, resets_s=7_000)
    with providing(plan) as url:
        async with serving("--policy", policy(tmp_path, url)) as proxy:
            said = [await claude_says(proxy, tmp_path) for _ in range(2)]

    assert plan.refused == 1, "the second was refused by the proxy"
    assert re.fullmatch(r"You've hit your (?:session|5-hour) limit · resets \d+(:\d\d)?[ap]m \(UTC\)", said[0])
    assert said[1] == said[0]


@pytest.mark.skipif("HIVEMIND_TEST_CLAUDE" not in os.environ, reason="HIVEMIND_TEST_CLAUDE is the path of Claude Code")
async def test_claude_code_shows_a_refusal_for_a_reserve_in_the_words_of_the_proxy(tmp_path: Path) -> None:
    plan = PlanProvider(used={"5h": 0.85}, resets_s=7_000, never_pays="org_level_disabled")
    with providing(plan) as url:
        async with serving("--policy", reserving(tmp_path, url)) as proxy:
            said = [await claude_says(proxy, tmp_path) for _ in range(2)]

    assert said[0] == "done"
    assert re.fullmatch(
        r"hivemind-trio: the rest of the plan of the call's account at provider `claude` is reserved for other lanes "
        r"than `batch`; the call can start in 1 h \d\d min",
        said[1],
    ), said[1]
