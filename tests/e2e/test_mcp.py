"""Agents' tools over MCP: the SDK's own client, before a real `serve`."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest
import trio
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from hivemind_trio.cli.agents.mcp_compat import SETTINGS
from hivemind_trio.demo import ScriptedReply, SimulatedProvider
from hivemind_trio.policy import MemoryFiles, check
from tests.e2e.control import BODY, asked, command, eventually, occupied, own_runtime, state_of
from tests.e2e.process import PATIENCE_S, Proxy, environment, serving

POLICY = """
hmp 1
provider sim {{ api anthropic; base "{url}"; key env(KEY); concurrency 4 }}
agent ci {{ }}
rule no-opus when model ~ "claude-opus-*" {{ deny "no Opus here" }}
budget calls {{ requests 100/day }}
"""


@pytest.fixture
def runtime() -> Iterator[dict[str, str]]:
    with own_runtime() as env:
        yield env | {"KEY": "sk-1"}


@asynccontextmanager
async def over_http(url: str, mode: str = "auto", **headers: str) -> AsyncIterator[Client]:
    """The SDK's client, at a path of the agents' listener."""
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http:
        with trio.fail_after(3 * PATIENCE_S):
            async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
                yield client


@asynccontextmanager
async def over_stdio(env: Mapping[str, str], *arguments: str) -> AsyncIterator[Client]:
    """The SDK's client, with the process that an agent starts."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "hivemind_trio", "mcp", *arguments], env=environment(**env)
    )
    with trio.fail_after(3 * PATIENCE_S):
        async with Client(stdio_client(server)) as client:
            yield client


async def told(client: Client, tool: str, **arguments: object) -> Any:
    """The result of a tool, which has the tool's own schema."""
    answer = await client.call_tool(tool, arguments)
    text = answer.content[0].text  # type: ignore[union-attr]
    assert not answer.is_error, text
    (described,) = [one for one in (await client.list_tools()).tools if one.name == tool]
    assert described.output_schema is not None
    jsonschema.validate(answer.structured_content, described.output_schema)
    assert json.loads(text) == answer.structured_content
    return answer.structured_content


def saved(folder: Path, url: str, concurrency: int = 4) -> Path:
    path = folder / "team.hmp"
    path.write_text(POLICY.format(url=url).replace("concurrency 4", f"concurrency {concurrency}"))
    return path


async def test_an_agent_asks_how_many_agents_fit_beside_the_calls_in_flight(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = saved(tmp_path, provider.url, concurrency=1)
    async with (
        serving("--policy", path, env=runtime) as proxy,
        occupied(proxy, provider, 3),
        over_stdio(runtime | {"ANTHROPIC_BASE_URL": f"{proxy.url}/@ci"}) as client,
    ):
        eight = await told(client, "forecast", agents=8)
        mine = await told(client, "status")
        opus = await told(client, "forecast", agents=2, model="claude-opus-4-1")

    assert (eight["fits"], eight["asked"], eight["provider"], eight["lane"]) == (0, 8, "sim", "default")
    assert eight["bound_by"] == "provider `sim` is at its concurrency limit of 1"
    assert len(eight["starts_s"]) == 8
    assert eight["starts_s"] == sorted(eight["starts_s"])
    assert mine["you"] == {
        "agent": "ci", "name": "ci", "team": "none", "lane": "default", "provider": "sim", "waiting": 2, "inflight": 1
    }  # fmt: skip
    assert mine["next_turn"]["p50_s"] > 0
    assert mine["advice"] == "slow"
    assert mine["budgets"][0]["name"] == "calls"
    assert mine["budgets"][0]["unit"] == "requests"
    assert opus["fits"] == 0
    assert "no Opus here" in opus["would_break"]


async def test_as_many_agents_fit_as_there_are_slots(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    async with (
        serving("--policy", saved(tmp_path, provider.url), env=runtime) as proxy,
        over_stdio(runtime, "--agent", "ci") as client,
    ):
        await proxy.says("control_opened")
        tools = (await client.list_tools()).tools
        all_fit = await told(client, "forecast", agents=4)
        some_fit = await told(client, "forecast", agents=9, tokens_in=1_000, tokens_out=100)
        wrong = await client.call_tool("forecast", {"agent": "other"})
        none = await client.call_tool("forecast", {"agents": 0})

    assert {tool.name for tool in tools} >= {"status", "forecast"}
    assert all(len(tool.description or "") < 160 for tool in tools)
    assert (all_fit["fits"], all_fit["bound_by"], all_fit["starts_s"]) == (4, None, [0, 0, 0, 0])
    assert all_fit["text"] == "all 4 fit: no call waits longer than 5 s"
    assert some_fit["fits"] == 4
    assert some_fit["starts_s"][:5] == [0, 0, 0, 0, 15.0]
    assert "the next would start in 15 s" in some_fit["text"]
    assert wrong.is_error
    assert "no argument `agent`: it takes agents" in str(wrong.content)
    assert none.is_error
    assert "agents" in str(none.content)


async def test_a_tool_says_that_no_proxy_runs_and_finds_the_next_one(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    async with over_stdio(runtime) as client:
        nobody = await client.call_tool("status", {})
        async with serving("--policy", saved(tmp_path, provider.url), env=runtime) as proxy:
            await proxy.says("control_opened")
            found = await told(client, "status")

    assert nobody.is_error
    assert "no proxy runs (looked in " in str(nobody.content)
    assert "`hivemind-trio serve` starts one" in str(nobody.content)
    assert found["advice"] == "go"
    assert found["you"]["agent"] == "unknown"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_agents_listener_has_the_same_tools(
    mode: str, tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    async with (
        serving("--policy", saved(tmp_path, provider.url), env=runtime) as proxy,
        occupied(proxy, provider, 1),
        over_http(f"{proxy.url}/@ci/mcp", mode) as client,
        over_http(f"{proxy.url}/mcp", mode) as stranger,
    ):
        tools = await client.list_tools()
        mine, theirs = await told(client, "status"), await told(stranger, "status")
        some_fit = await told(client, "forecast", agents=9)
        wrong = await client.call_tool("forecast", {"agents": "many"})
        seen = len(provider.seen)

    assert [tool.name for tool in tools.tools] == ["status", "forecast", "priority"]
    assert (mine["you"]["agent"], mine["you"]["inflight"], mine["you"]["waiting"]) == ("ci", 1, 0)
    assert (theirs["you"]["agent"], theirs["you"]["inflight"]) == ("unknown", None)
    assert (some_fit["fits"], some_fit["asked"]) == (3, 9)
    assert wrong.is_error
    assert "Expected `int`, got `str`" in str(wrong.content)
    assert seen == 1, "nothing of /mcp goes to the provider"


async def test_the_tools_are_guarded_as_calls_are(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = saved(tmp_path, provider.url)
    path.write_text(
        path.read_text().replace("agent ci { }", "agent ci { token env(CI) }") + "server { unknown-agent deny }\n"
    )
    ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with (
        serving("--policy", path, "--log-calls", env=runtime | {"CI": "secret-1"}) as proxy,
        httpx2.AsyncClient(base_url=proxy.url, timeout=PATIENCE_S) as anybody,
        over_http(f"{proxy.url}/mcp", authorization="Bearer secret-1") as client,
    ):
        mine = await told(client, "status")
        unproven = await anybody.post("/@ci/mcp", json=ask)
        headers = {"authorization": "Bearer secret-1"}
        rebound = await anybody.post("/mcp", json=ask, headers=headers | {"host": "evil.example"})
        page = await anybody.post("/mcp", json=ask, headers=headers | {"origin": "http://evil.example"})
        get = await anybody.get("/mcp", headers=headers)

    assert mine["you"]["agent"] == "ci"
    assert [answer.status_code for answer in (unproven, rebound, page, get)] == [401, 421, 403, 405]
    assert unproven.headers["x-hivemind-reason"] == "unknown-agent"
    assert [line["reason"] for line in proxy.of("call_ended")] == ["unknown-agent", "foreign-host", "foreign-origin"]


MAX = """
hmp 1
provider sim {{ api anthropic; base "{url}"; key env(KEY); concurrency 1 }}
agent lead {{ priority 5 max 9 }}
agent ci {{ priority 5 }}
rule fixed when model ~ "claude-opus-*" {{ priority 3 }}
"""


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_an_agent_lowers_its_priority_and_raises_it_within_the_policy(
    way: str, tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = tmp_path / "team.hmp"
    path.write_text(MAX.format(url=provider.url))

    def client_of(proxy: Proxy, name: str) -> AbstractAsyncContextManager[Client]:
        return over_stdio(runtime, "--agent", name) if way == "stdio" else over_http(f"{proxy.url}/@{name}/mcp")

    async with serving("--policy", path, env=runtime) as proxy, occupied(proxy, provider, 2) as control:
        await proxy.says("control_opened")
        async with client_of(proxy, "ci") as ci, client_of(proxy, "lead") as lead:
            lower = await told(ci, "priority", level=1)
            waiting = await found_calls(control, "waiting")
            higher = await told(ci, "priority", level=50)
            back = await told(ci, "priority", level=None)
            raised = await told(lead, "priority", level=50)
            absurd = await lead.call_tool("priority", {"level": 101})
    async with serving("--policy", path, env=runtime) as proxy, over_http(f"{proxy.url}/mcp") as nobody:
        nameless = await nobody.call_tool("priority", {"level": 1})

    assert (lower["level"], lower["policy"], lower["waiting"]) == (1, 5, 1)
    assert [call["priority"] for call in waiting] == [1]
    assert (higher["level"], back["level"], raised["level"]) == (5, 5, 9)
    assert higher["text"] == "calls of `ci` have priority 5, not 50: the policy allows 5 at most, by agent ci"
    assert absurd.is_error
    assert nameless.is_error
    assert "put a name into the base URL" in str(nameless.content)


async def test_a_shell_asks_the_same(tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider) -> None:
    path = saved(tmp_path, provider.url, concurrency=1)
    async with serving("--policy", path, env=runtime) as proxy, occupied(proxy, provider, 1):
        # However slow the machine is: the answer is thought to end after 15 s, and no wait is allowed.
        some = await command(runtime, "forecast", "3", "--within", "0", "--agent", "ci", "--model", "claude-haiku-4-5")
        asjson = await command(runtime, "forecast", "3", "--within", "0", "--json")
        denied = await command(runtime, "forecast", "1", "--model", "claude-opus-4-1")
    nobody = await command(runtime, "forecast", "1")

    assert some[0] == asjson[0] == denied[0] == 1
    assert some[1].startswith("none of 3 fit now; the next would start in ")
    assert "calls of claude-haiku-4-5 at provider sim, lane default\n" in some[1]
    assert "basis: no call has ended yet" in some[1]
    assert json.loads(asjson[1])["fits"] == 0
    assert "no Opus here" in denied[1]
    assert nobody[0] == 2
    assert "no proxy runs" in nobody[2]


async def test_an_agent_without_a_name_is_known_by_its_session(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    gate = trio.Event()
    provider.default = ScriptedReply(hold=gate)
    async with (
        serving("--policy", saved(tmp_path, provider.url, concurrency=1), env=runtime) as proxy,
        httpx2.AsyncClient(base_url=proxy.url, timeout=PATIENCE_S) as http,
        asked(proxy) as control,
        over_stdio(runtime | {"CLAUDE_CODE_SESSION_ID": "s-1"}) as client,
        trio.open_nursery() as nursery,
    ):

        async def call(session: str) -> None:
            await http.post("/v1/messages", json=BODY, headers={"x-claude-code-session-id": session})

        for session in ("s-1", "s-1", "s-2"):
            nursery.start_soon(call, session)
        await eventually(state_of(control), lambda now: now["inflight"] + now["waiting"] == 3)
        mine = await told(client, "status")
        lower = await told(client, "priority", level=0)
        gate.set()

    assert (mine["you"]["agent"], mine["you"]["waiting"] + mine["you"]["inflight"]) == ("unknown", 2)
    assert lower["level"] == 0
    assert lower["waiting"] == mine["you"]["waiting"]


async def found_calls(control: httpx2.AsyncClient, state: str) -> Any:
    return (await control.get("/v1/calls", params={"state": state})).json()["calls"]


async def test_the_predecessors_tools_answer_with_their_arguments(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    async def result(tool: str, /, **arguments: object) -> Any:
        answer = await client.call_tool(tool, arguments)
        assert answer.structured_content is None
        return json.loads(answer.content[0].text)  # type: ignore[union-attr]

    path = saved(tmp_path, provider.url, concurrency=1)
    before = path.read_text()
    async with (
        serving("--policy", path, env=runtime) as proxy,
        occupied(proxy, provider, 2) as control,
        over_stdio(runtime, "--agent", "ci", "--compat", "0.2") as client,
    ):
        tools = {tool.name for tool in (await client.list_tools()).tools}
        (call,) = await found_calls(control, "inflight")
        status, one = await result("hm.status"), await result("hm.status", task_id=call["id"])
        lost = await result("hm.status", task_id="none-1")
        config = await result("hm.config", upstream_url="http://evil.example", max_concurrency=500)
        budget, raised = await result("hm.budget"), await result("hm.budget", action="set_total", total_budget=10**9)
        lowered = await result("hm.priority", task_id=call["id"], priority="critical")
        odd = await result("hm.priority", priority="top")
        ran = await result("hm.submit", command=f"touch {tmp_path}/ran")
        batch = await result("hm.batch", tasks=[{"command": f"touch {tmp_path}/ran"}])
        nothing = await result("hm.submit")
        metrics, setup = await result("hm.metrics"), await result("hm.setup", tool="claude-code", proxy_port=1)
        listed = await result("hm.setup", tool="list")
        policy = (await control.get("/v1/policy")).json()["files"]

    names = ("submit", "batch", "status", "priority", "budget", "metrics", "config", "setup")
    assert tools == {"status", "forecast", "priority", *(f"hm.{name}" for name in names)}
    assert status["queue"] == {"pending": 1, "running": 1, "completed": 0}
    assert status["tasks_by_state"]["inflight"]["count"] == 1
    assert one["task"]["state"] == "inflight"
    assert "no call `none-1`" in lost["error"]
    assert "a policy does this now" in config["error"]
    assert config["policy"]["upstream_url"] == 'provider NAME { base "URL" }'
    assert [one["name"] for one in budget["budgets"]] == ["calls"]
    assert "agents do not raise budgets" in raised["error"]
    assert (lowered["priority"], lowered["level"]) == ("critical", 0)
    assert "no priority `top`" in odd["error"]
    assert all("lets no agent submit jobs" in answer["error"] for answer in (ran, batch))
    assert nothing == {"error": "hm.submit needs `command`"}
    assert not (tmp_path / "ran").exists()
    assert metrics["admission"] == {"sim": {"active": 1, "max_concurrency": 1}}
    assert setup["config"] == {"ANTHROPIC_BASE_URL": proxy.url}
    assert "claude-code" in listed["supported_tools"]
    assert list(policy.values()) == [before], "no tool has changed the policy"


async def test_operators_have_tools_of_their_own_at_the_control_socket_alone(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = saved(tmp_path, provider.url, concurrency=1)
    async with (
        serving("--policy", path, env=runtime) as proxy,
        occupied(proxy, provider, 2) as control,
        over_stdio(runtime, "--operator") as client,
        over_http(f"{proxy.url}/mcp") as agent,
    ):
        (call,) = await found_calls(control, "inflight")
        paused = await told(client, "pause", kind="lane", name="default")
        resumed = await told(client, "resume", kind="lane", name="default")
        explained = await told(client, "explain", id=call["id"])
        calls = await told(client, "calls", agent="ci", limit=1)
        path.write_text(path.read_text().replace("concurrency 1", "concurency 9"))
        broken = await client.call_tool("reload", {})
        refused = await agent.call_tool("pause", {"kind": "lane", "name": "default"})
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}

    assert [one["name"] for one in paused["paused"]] == ["default"]
    assert resumed["paused"] == []
    assert explained["call"]["id"] == call["id"]
    assert len(calls["calls"]) == 1
    assert broken.is_error
    assert "HM103" in str(broken.content) or "concurency" in str(broken.content)
    assert refused.is_error
    assert "no tool `pause`; there are status, forecast, priority" in str(refused.content)
    assert "forecast" not in tools
    assert tools["queue"].annotations is not None
    assert tools["queue"].annotations.read_only_hint
    assert tools["pause"].annotations is not None
    assert not tools["pause"].annotations.read_only_hint
    assert [act["action"] for act in proxy.of("operator_acted")] == ["pause", "resume", "reload"]


def test_what_replaces_an_old_setting_is_in_the_language() -> None:
    filled = {"NAME": "anthropic", "N/day": "5k/day", "N }": "5 }", "TIME": "2s", "URL": "https://api.anthropic.com"}
    for name, text in SETTINGS.items():
        for old, new in filled.items():
            text = text.replace(old, new)
        rest = "" if text.startswith("provider") else "provider anthropic { }\n"
        text = text.replace("{ aimd", "{ concurrency 2..8; aimd")
        found = check("team.hmp", MemoryFiles({"team.hmp": f"hmp 1\n{rest}{text}\n"}))
        assert [one.message for one in found.diagnostics if one.severity == "error"] == [], name
