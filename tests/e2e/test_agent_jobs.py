"""Jobs that agents submit, over MCP and the control API, before a real `serve` with agents that are processes."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
from mcp import Client

from bench.plan_provider import PlanProvider
from bench.plan_provider import serving as providing
from tests.e2e.control import asked, command, own_runtime
from tests.e2e.process import PATIENCE_S, Proxy, serving
from tests.e2e.test_mcp import over_http, over_stdio

FAKE: Final = Path(__file__).with_name("fake_claude.py")
LEAD: Final = "lead-0123456789abcdef0123456789"
OTHER: Final = "ci-0123456789abcdef0123456789"
POLICY: Final = """
hmp 1
provider anthropic {{ base "{url}"; key env(PROVIDER_KEY); concurrency 2..8 }}
agent lead {{ token env(LEAD_TOKEN) }}
agent ci {{ token env(CI_TOKEN) }}
budget mine per agent {{ requests 100/day }}
{jobs}
"""
JOBS: Final = 'jobs { allow [lead]; commands ["claude -p *", "printenv *"]; capacity 2; queue 3 }'


@attrs.define
class Shop:
    """A folder with a policy, an agent and its sessions, and the environment of a proxy there."""

    folder: Path
    provider: PlanProvider
    url: str
    env: dict[str, str]

    @property
    def policy(self) -> Path:
        return self.folder / "team.hmp"

    def use(self, jobs: str) -> None:
        self.policy.write_text(POLICY.format(url=self.url, jobs=jobs))

    def told(self) -> list[list[dict[str, Any]]]:
        """What each session was told and answered."""
        sessions = (self.folder / "sessions").iterdir()
        return [[json.loads(line) for line in one.read_text().splitlines()] for one in sessions]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    for name in ("bin", "sessions"):
        (tmp_path / name).mkdir()
    script = tmp_path / "bin" / "claude"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    script.chmod(0o755)
    provider = PlanProvider()
    with providing(provider) as url, own_runtime() as runtime:
        env = runtime | {
            "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
            "FAKE_SESSIONS": f"{tmp_path / 'sessions'}",
            "XDG_STATE_HOME": f"{tmp_path / 'state'}",
            "PROVIDER_KEY": "sk-of-the-provider",
            "LEAD_TOKEN": LEAD,
            "CI_TOKEN": OTHER,
        }
        made = Shop(tmp_path, provider, url, env)
        made.use(JOBS)
        yield made


@asynccontextmanager
async def agent(proxy: Proxy, token: str = LEAD) -> AsyncIterator[Client]:
    """An agent at the listener, with its token."""
    async with over_http(f"{proxy.url}/mcp", authorization=f"Bearer {token}") as client:
        yield client


async def answer(client: Client, tool: str, **arguments: object) -> Any:
    told = await client.call_tool(tool, arguments)
    assert not told.is_error, told.content
    return told.structured_content


async def refusal(client: Client, tool: str, **arguments: object) -> str:
    told = await client.call_tool(tool, arguments)
    assert told.is_error
    return str(told.content[0].text)  # type: ignore[union-attr]


async def settled(client: Client, job: str, holds: Callable[[Mapping[str, Any]], bool]) -> Any:
    """Return a job once this holds of it. It is of another process: only asking tells."""
    with trio.fail_after(PATIENCE_S):
        while True:
            (found,) = (await answer(client, "jobs", job=job))["jobs"]
            if holds(found):
                return found
            await trio.sleep(0.1)


def is_over(job: Mapping[str, Any]) -> bool:
    return job["state"] in ("done", "failed", "blocked", "cancelled")


async def test_jobs_run_as_the_agent_that_submits_them_and_see_no_secret_of_the_proxy(shop: Shop) -> None:
    async with serving("--policy", shop.policy, env=shop.env) as proxy, agent(proxy) as lead:
        names = [tool.name for tool in (await lead.list_tools()).tools]
        first = await answer(lead, "submit", tasks=[
            {"command": ["claude", "-p", "fix {a}", "--output-format", "json"], "cwd": f"{shop.folder}"},
            {"command": "printenv PROVIDER_KEY", "after": ["job-1"]},
            {"command": "printenv ANTHROPIC_API_KEY ANTHROPIC_BASE_URL", "id": "mine", "after": ["job-1"]},
        ])  # fmt: skip
        done = await settled(lead, "job-1", is_over)
        hidden = await settled(lead, "job-2", is_over)
        shown = await settled(lead, "mine", is_over)
        spent = (await answer(lead, "status"))["budgets"]
        async with asked(proxy) as control:
            calls = (await control.get("/v1/calls")).json()["calls"]
            everything = (await control.get("/v1/jobs")).json()
    ended, out, _ = await command(shop.env, "jobs", "show", f"serve-team-{_digest(everything, shop)}", "--json")

    assert {"submit", "jobs", "cancel"} <= set(names)
    assert first["submitted"] == ["job-1", "job-2", "mine"]
    assert (done["state"], done["submitted_by"], done["calls"], done["starts"]) == ("done", "lead", 2, 1)
    assert done["place"] == f"{shop.folder}"
    assert '"result": "done"' in done["output"]
    assert [line["prompt"] for line in shop.told()[0] if "prompt" in line] == ["fix {a}"]
    assert (hidden["state"], hidden["reason"]) == ("failed", "exit status 1")
    assert shown["output"].splitlines() == [LEAD, f"{proxy.url}/@mine"]
    assert spent[0]["left"] == 98
    assert {call["agent"] for call in calls} <= {"lead"}
    assert everything["counts"] == {"done": 2, "failed": 1}
    assert ended == 0
    assert [job["state"] for job in json.loads(out)["jobs"]] == ["done", "failed", "done"]


def _digest(_: object, shop: Shop) -> str:
    (run,) = (shop.folder / "state" / "hivemind-trio" / "runs").iterdir()
    return run.name.removeprefix("serve-team-")


@contextmanager
def _nothing_ran(shop: Shop) -> Iterator[None]:
    yield
    assert not (shop.folder / "state" / "hivemind-trio" / "runs").exists()
    assert shop.told() == []


async def test_nothing_runs_that_the_policy_does_not_allow(shop: Shop) -> None:
    claude = [{"command": ["claude", "-p", "fix"]}]
    with _nothing_ran(shop):
        async with serving("--policy", shop.policy, env=shop.env) as proxy:
            async with agent(proxy, OTHER) as ci:
                theirs = {tool.name for tool in (await ci.list_tools()).tools}
                unlisted = await refusal(ci, "submit", tasks=claude)
            async with over_http(f"{proxy.url}/@lead/mcp", **{"x-hivemind-agent": "lead"}) as claims:
                claimed = {tool.name for tool in (await claims.list_tools()).tools}
            async with agent(proxy) as lead:
                shell = await refusal(lead, "submit", tasks=[*claude, {"command": ["sh", "-c", "claude -p x"]}])
                prefix = await refusal(lead, "submit", tasks=[{"command": ["claude", "--help"]}])
                path = await refusal(lead, "submit", tasks=[{"command": ["/tmp/claude", "-p", "x"]}])
                many = await refusal(lead, "submit", tasks=claude * 4)
                lost = await refusal(lead, "submit", tasks=[{**claude[0], "cwd": "/no/such"}])
                round_ = await refusal(lead, "submit", tasks=[{**claude[0], "id": "a", "after": ["a"]}])
                unknown = await refusal(lead, "submit", tasks=[{**claude[0], "after": ["nobody"]}])
                typed = await refusal(lead, "submit", tasks=[{"prompt": "x"}])
                nothing = await refusal(lead, "submit")
                nobody = await refusal(lead, "cancel", id="job-9")
            async with asked(proxy) as control:
                as_ci = await control.post("/v1/jobs", json={"agent": "ci", "tasks": claude})
                as_none = await control.post("/v1/jobs", json={"tasks": claude})

    assert not theirs & {"submit", "jobs", "cancel"}
    assert not claimed & {"submit", "jobs", "cancel"}
    assert "no tool `submit`" in unlisted
    assert "does not allow the command `sh -c claude -p x`" in shell
    assert "`jobs { commands }` has `claude -p *`, `printenv *`" in shell
    assert "does not allow the command `claude --help`" in prefix
    assert "does not allow the command `/tmp/claude -p x`" in path
    assert "0 jobs wait, and the policy lets 3 wait" in many
    assert "there is no folder /no/such" in lost
    assert "wait for each other" in round_
    assert "comes after `nobody`, which is no task" in unknown
    assert "command" in typed
    assert "no `tasks`" in nothing
    assert "there is no job `job-9`" in nobody
    assert (as_ci.status_code, as_ci.json()["code"]) == (403, "not-allowed")
    assert "jobs are for `lead`, and `ci` is none of them" in as_ci.json()["detail"]
    assert as_none.status_code == 403


async def test_without_jobs_in_the_policy_there_are_no_tools_and_a_reload_gives_and_takes_them(shop: Shop) -> None:
    shop.use("")
    claude = [{"command": ["claude", "-p", "fix"]}]
    async with serving("--policy", shop.policy, env=shop.env) as proxy, asked(proxy) as control:
        async with agent(proxy) as lead:
            before = {tool.name for tool in (await lead.list_tools()).tools}
        refused = await control.post("/v1/jobs", json={"agent": "lead", "tasks": claude})
        shop.use(JOBS)
        await proxy.says("policy_loaded")
        async with agent(proxy) as lead:
            first = await answer(lead, "submit", tasks=claude)
            done = await settled(lead, "job-1", is_over)
        shop.use(JOBS.replace('"claude -p *"', '"claude --never"'))
        await proxy.says("policy_loaded", 2)
        async with agent(proxy) as lead:
            other = await refusal(lead, "submit", tasks=claude)

    assert not before & {"submit", "jobs", "cancel"}
    assert refused.status_code == 403
    assert "the policy lets no agent submit jobs" in refused.json()["detail"]
    assert first["submitted"] == ["job-1"]
    assert done["state"] == "done"
    assert "does not allow the command" in other


async def test_a_parked_job_goes_on_in_its_session_though_the_proxy_was_killed(shop: Shop) -> None:
    shop.provider.closed = (0.0, 3_600.0)
    async with serving("--policy", shop.policy, env=shop.env) as proxy, agent(proxy) as lead:
        await answer(lead, "submit", tasks=[{"command": ["claude", "-p", "fix", "--output-format", "json"]}])
        parked = await settled(lead, "job-1", lambda job: job["state"] == "parked")
        proxy.process.kill()
        await proxy.process.wait()
    shop.provider.closed = (0.0, 0.0)
    async with serving("--policy", shop.policy, env=shop.env) as proxy, agent(proxy) as lead:
        again = await settled(lead, "job-1", lambda job: True)
        await answer(lead, "cancel", id="job-1")
        await answer(lead, "submit", tasks=[{"command": ["claude", "-p", "next", "--output-format", "json"]}])
        following = await settled(lead, "job-2", is_over)

    assert parked["opens_at"] is not None
    assert "limit" in parked["reason"]
    assert parked["resume_by_hand"].endswith(f"claude --resume {parked['session']}")
    assert (again["session"], again["reason"], again["state"]) == (parked["session"], parked["reason"], "parked")
    assert following["state"] == "done"


async def test_a_job_in_progress_goes_on_after_a_restart_and_its_process_ends_with_the_proxy(shop: Shop) -> None:
    slow = shop.env | {"FAKE_PAUSE_S": "60"}
    async with serving("--policy", shop.policy, env=slow) as proxy, agent(proxy) as lead:
        await answer(lead, "submit", tasks=[{"command": ["claude", "-p", "fix", "--output-format", "json"]}])
        running = await settled(lead, "job-1", lambda job: job["state"] == "running" and job["calls"] == 1)
        proxy.process.terminate()
        await proxy.process.wait()
    async with serving("--policy", shop.policy, env=shop.env) as proxy, agent(proxy) as lead:
        done = await settled(lead, "job-1", is_over)

    assert (done["state"], done["starts"], done["session"]) == ("done", 2, running["session"])
    (session,) = shop.told()
    assert sum("answer" in line for line in session) == 2


async def test_a_cancelled_job_ends_and_blocks_those_after_it(shop: Shop) -> None:
    slow = shop.env | {"FAKE_PAUSE_S": "60"}
    async with serving("--policy", shop.policy, env=slow) as proxy, agent(proxy) as lead:
        await answer(lead, "submit", tasks=[
            {"command": ["claude", "-p", "a"]}, {"command": ["claude", "-p", "b"], "after": ["job-1"]},
        ])  # fmt: skip
        await settled(lead, "job-1", lambda job: job["calls"] == 1)
        told = await answer(lead, "cancel", id="job-1")
        blocked = await settled(lead, "job-2", is_over)
        again = await refusal(lead, "cancel", id="job-1")

    assert told["jobs"][0]["state"] == "cancelled"
    assert told["jobs"][0]["reason"] == "cancelled by agent lead over MCP"
    assert (blocked["state"], blocked["reason"]) == ("blocked", "job `job-1` before it was cancelled")
    assert "is cancelled already" in again


async def test_the_tools_of_the_predecessor_submit_jobs_behind_the_policy(shop: Shop) -> None:
    async with (
        serving("--policy", shop.policy, env=shop.env) as proxy,
        over_stdio(shop.env, "--agent", "lead", "--compat", "0.2") as lead,
        over_stdio(shop.env, "--agent", "ci", "--compat", "0.2") as ci,
    ):
        await proxy.says("control_opened")

        async def told(client: Client, tool: str, **arguments: object) -> Any:
            found = await client.call_tool(tool, arguments)
            return json.loads(found.content[0].text)  # type: ignore[union-attr]

        one = await told(lead, "hm.submit", command="claude -p 'fix it'", priority="high", token_budget=100_000)
        two = await told(lead, "hm.batch", tasks=[
            {"command": "claude -p b", "dependencies": [one["task_id"]]}, {"command": "claude -p c"},
        ])  # fmt: skip
        await settled(lead, two["task_ids"][0], is_over)
        shown = await told(lead, "hm.status", task_id=one["task_id"])
        shell = await told(lead, "hm.submit", command="rm -rf /")
        refused = await told(ci, "hm.submit", command="claude -p x")
        names = {tool.name for tool in (await ci.list_tools()).tools}

    assert shown["task"]["state"] == "done"
    assert shown["task"]["command"] == ["claude", "-p", "fix it"]
    assert "does not allow the command" in shell["error"]
    assert "`ci` is none of them" in refused["error"]
    assert "submit" not in names
