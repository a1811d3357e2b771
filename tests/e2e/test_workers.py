"""Several workers as one proxy: one cap, one status, one journal, one ledger, whatever becomes of one of them."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest
import trio

from hivemind_trio.demo import ScriptedReply, SimulatedProvider
from hivemind_trio.sim import Counting, Quota, Traits
from hivemind_trio.store import questioned, story_named, usage_by
from tests.e2e.process import COMMAND, PATIENCE_S, Proxy, environment, run, serving
from tests.e2e.test_mcp import over_http, told
from tests.support.redis import needs_redis, redis_server

pytestmark = pytest.mark.slow

CAP = 6
MS = 1_000_000
SLOW = Traits(concurrency=CAP, latency_mean_ns=60 * MS, latency_sigma_ns=30 * MS, latency_min_ns=20 * MS)
ASKED = {"model": "gpt-x", "messages": [{"role": "user", "content": "hi"}]}


@attrs.define(eq=False)
class Workers:
    provider: SimulatedProvider
    proxy: Proxy
    folder: Path
    statuses: Counter[int] = attrs.field(factory=Counter)
    """Of the answers that agents had; 0: none, the connection broke."""
    names: list[str] = attrs.field(factory=list)
    """Names of the calls that were served."""

    @property
    def policy(self) -> Path:
        return self.folder / "team.hmp"

    @property
    def peak(self) -> int:
        """The most at once that ever asked, refused ones included."""
        return self.provider.world.inflight_max

    async def call(self, client: httpx2.AsyncClient, name: str = "", **more: Any) -> int:
        try:
            answer = await client.post(f"{self.proxy.url}{name}/v1/chat/completions", json={**ASKED, **more})
        except httpx2.HTTPError:
            self.statuses[0] += 1
            return 0
        self.statuses[answer.status_code] += 1
        if answer.status_code == 200:
            self.names.append(answer.headers["x-hivemind-call"])
        return answer.status_code

    async def load(self, agents: int, name: str = "") -> None:
        """Agents that call again and again, each on a connection of its own, until cancelled."""

        async def agent() -> None:
            async with httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client:
                while True:
                    if await self.call(client, name) != 200:
                        await trio.sleep(0.05)

        async with trio.open_nursery() as nursery:
            for _ in range(agents):
                nursery.start_soon(agent)

    async def more(self, calls: int) -> None:
        """Wait until so many calls more are served."""
        wanted = self.statuses[200] + calls
        with trio.fail_after(PATIENCE_S):
            await self.provider.until(lambda: self.statuses[200] >= wanted)

    async def denied(self, calls: int) -> None:
        """Wait until so many calls more are denied."""
        wanted = self.statuses[429] + calls
        with trio.fail_after(PATIENCE_S):
            while self.statuses[429] < wanted:  # noqa: ASYNC110 - the provider hears nothing of them
                await trio.sleep(0.02)

    @asynccontextmanager
    async def loaded(self, agents: int, name: str = "") -> AsyncIterator[None]:
        """Have agents call within the context; leaving it lets their last calls end."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.load, agents, name)
            yield
            nursery.cancel_scope.cancel()

    async def get(self, path: str, **query: object) -> Any:
        return await self.ask("GET", path, params=query)

    async def ask(self, method: str, path: str, **more: Any) -> Any:
        transport = httpx2.AsyncHTTPTransport(uds=self.proxy.of("control_opened")[0]["socket"])
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=PATIENCE_S) as client:
            answer = await client.request(method, path, **more)
            assert answer.status_code < 300, answer.text
            return answer.json() if "json" in answer.headers["content-type"] else answer.text

    async def idle(self) -> None:
        """Wait until no call is in progress."""
        with trio.fail_after(PATIENCE_S):
            while (await self.get("/v1/status"))["inflight"]:  # noqa: ASYNC110 - it is another process
                await trio.sleep(0.05)

    def journal(self) -> str:
        path: str = self.proxy.of("journal_opened")[0]["file"]
        return path


def written(folder: Path, provider: SimulatedProvider, more: str = "", cap: int = CAP, rest: str = "") -> Path:
    path = folder / "team.hmp"
    path.write_text(
        f"hmp 1\nserver {{ workers 2; drain 20s }}\n"
        f'provider sim {{ api generic; base "{provider.url}"; concurrency {cap}; {more} }}\n{rest}'
    )
    return path


@asynccontextmanager
async def workers(
    folder: Path, traits: Traits = SLOW, more: str = "", rest: str = "", cap: int = CAP, arguments: tuple[str, ...] = ()
) -> AsyncIterator[Workers]:
    """Start a proxy of two workers. `more` is of its provider, `rest` of the policy."""
    with trio.fail_after(6 * PATIENCE_S):
        async with AsyncExitStack() as stack:
            provider = SimulatedProvider(traits, seed=7)
            nursery = await stack.enter_async_context(trio.open_nursery())
            await nursery.start(provider.run)
            policy = written(folder, provider, more, cap, rest)
            env = {"XDG_STATE_HOME": f"{folder}", "XDG_RUNTIME_DIR": f"{folder}"}
            proxy = await stack.enter_async_context(serving("--policy", policy, *arguments, env=env))
            yield Workers(provider, proxy, folder)
            nursery.cancel_scope.cancel()


async def test_two_workers_hold_one_cap_and_answer_operators_as_one(tmp_path: Path) -> None:
    async with workers(tmp_path, rest="budget calls { requests 100k/day }\n") as fleet:
        async with fleet.loaded(12):
            await fleet.more(60)
            status = await fleet.get("/v1/status")
            queue = await fleet.get("/v1/queue")
            calls = (await fleet.get("/v1/calls"))["calls"]
            live = await fleet.get(f"/v1/calls/{calls[0]['id']}")
        await fleet.idle()  # so that sums can be compared
        await fleet.ask("POST", "/v1/pause", json={"kind": "lane", "name": "default"})
        paused = await fleet.get("/v1/paused")
        await fleet.ask("POST", "/v1/resume", json={"kind": "lane", "name": "default"})
        ended = await fleet.get("/v1/status")
        used = (await fleet.get("/v1/usage"))["usage"]
        metrics = await fleet.get("/metrics")
        budget = (await fleet.get("/v1/budgets"))["budgets"][0]
        fleet.proxy.signal(signal.SIGTERM)
        assert await fleet.proxy.ended() == 0
        rows = questioned(fleet.journal(), lambda database: usage_by(database, "agent", 0, 2**62))
        told = [questioned(fleet.journal(), partial(story_named, name=name)) for name in fleet.names]

    assert fleet.peak == CAP
    # Six of twelve connections each: a hash of their addresses would have hit this one time in four.
    assert [one["connections"] for one in status["workers"]] == [6, 6]
    assert {one["pid"] for one in status["workers"]}.isdisjoint({status["pid"], None})
    assert [(one["name"], one["own"], one["state"]) for one in status["nodes"]] == [
        ("worker-1", True, "alive"),
        ("worker-2", True, "alive"),
    ]
    assert {one["policy"] for one in status["nodes"]} == {status["policy"]["hash"]}
    assert sum(one["shares"][0]["leads"] for one in status["nodes"]) == 1
    assert status["inflight"] <= CAP == status["cap"]
    assert status["inflight"] + status["waiting"] <= 12
    assert queue["waiting"] <= 12
    assert live["id"] == calls[0]["id"]
    assert paused["paused"][0]["name"] == "default"
    served = sum(fleet.statuses.values())
    assert ended["calls"]["ended"] >= served == fleet.statuses[200]
    assert used["calls"] == ended["calls"]["ended"]
    assert "hivemind_workers 2.0" in metrics
    assert 'hivemind_nodes{state="alive"} 2.0' in metrics
    assert "hivemind_worker_starts_total 2.0" in metrics
    # A call whose agent hung up before its body was there has no row.
    assert served <= sum(one.calls for one in rows) <= ended["calls"]["ended"]
    assert all(one is not None for one in told)
    # The state on disk has the same sum, whichever worker a call was at.
    assert spent_of(fleet) == budget["spent"] >= served


async def test_an_operator_lets_calls_of_any_worker_through_and_none_past_the_provider(tmp_path: Path) -> None:
    async with workers(tmp_path, rest="lane default { max 1 }\n") as fleet:
        gate = trio.Event()
        fleet.provider.default = ScriptedReply(hold=gate)

        async def counts(inflight: int) -> None:
            with trio.fail_after(PATIENCE_S):
                while True:
                    now = await fleet.get("/v1/status")
                    if (now["inflight"], now["inflight"] + now["waiting"]) == (inflight, 3 * CAP):
                        return

        async with fleet.loaded(3 * CAP):
            await counts(2)  # one of each worker
            waiting = (await fleet.get("/v1/calls", state="waiting"))["calls"]
            for one in waiting:
                await fleet.ask("POST", f"/v1/calls/{one['id']}/let-through")
            await counts(CAP)
            going = {one["id"] for one in (await fleet.get("/v1/calls", state="inflight"))["calls"]}
            gate.set()
            fleet.provider.default = ScriptedReply()
            await fleet.more(2 * CAP)

    assert len(going & {one["id"] for one in waiting}) == CAP - 2
    assert len(fleet.proxy.of("operator_acted")) == len(waiting) == 3 * CAP - 2
    assert fleet.peak == CAP


async def test_a_priority_that_an_agent_asks_one_worker_for_holds_in_all(tmp_path: Path) -> None:
    async with workers(tmp_path, rest="agent ci { priority 5 }\n") as fleet:
        gate = trio.Event()
        fleet.provider.default = ScriptedReply(hold=gate)

        async def priorities(waiting: int) -> set[int]:
            """Return the priorities of the waiting calls, once they are so many."""
            with trio.fail_after(PATIENCE_S):
                while True:
                    calls = (await fleet.get("/v1/calls", state="waiting"))["calls"]
                    if len(calls) == waiting:
                        return {one["priority"] for one in calls}

        async with fleet.loaded(3 * CAP, "/@ci"):
            before = await priorities(2 * CAP)
            async with over_http(f"{fleet.proxy.url}/@ci/mcp") as client:
                lower = await told(client, "priority", level=1)
            lowered = await priorities(2 * CAP)
            os.kill(workers_of(fleet.proxy)["worker-1"], signal.SIGKILL)
            await fleet.proxy.says("worker_started", times=3)
            after = await priorities(2 * CAP)
            gate.set()

    assert (before, lower["level"]) == ({5}, 1)
    assert 0 < lower["waiting"] < 2 * CAP, "one worker has some of them"
    assert lowered == after == {1}
    assert len(fleet.proxy.of("operator_acted")) == 1


def running(pids: list[int]) -> list[int]:
    """Return the processes that have not ended; one that nobody has waited for yet has."""
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}/exe")]


def workers_of(proxy: Proxy) -> dict[str, int]:
    """Worker -> its process."""
    return {one["worker"]: one["pid"] for one in proxy.of("worker_started")}


async def test_a_killed_worker_is_replaced_and_the_other_serves_on(tmp_path: Path) -> None:
    async with workers(tmp_path, rest="budget calls { requests 100k/day }\n") as fleet:
        async with fleet.loaded(12):
            await fleet.more(30)
            killed = workers_of(fleet.proxy)["worker-1"]
            os.kill(killed, signal.SIGKILL)
            ended = await fleet.proxy.says("worker_ended")
            await fleet.more(10)
            again = await fleet.proxy.says("worker_started", times=3)
            broken = fleet.statuses[0]
            await fleet.more(60)
            status = await fleet.get("/v1/status")
        await fleet.idle()
        spent = (await fleet.get("/v1/budgets"))["budgets"][0]["spent"]
        reset = (await fleet.ask("POST", "/v1/budgets/reset", json={"budget": "calls"}))["budgets"][0]
        fleet.proxy.signal(signal.SIGTERM)
        assert await fleet.proxy.ended() == 0
        charged = [one["in_flight"] for one in fleet.proxy.of("budget_charged")]
        left = spent_of(fleet)

    assert (ended["worker"], ended["pid"], ended["status"]) == ("worker-1", killed, "SIGKILL")
    assert (again["worker"], again["starts"]) == ("worker-1", 2)
    assert fleet.peak == CAP
    # Only connections of the killed worker broke; it had half of them.
    assert 0 < broken <= 6
    assert fleet.statuses.keys() <= {200, 0}
    assert {one["starts"] for one in status["workers"]} == {2, 1}
    # The ledger has every call that began: those that were answered, and those that were lost in flight or cancelled.
    assert charged
    assert 0 < sum(charged) <= CAP
    assert spent >= fleet.statuses[200] + sum(charged)
    assert spent <= len(fleet.provider.seen) + sum(charged)
    assert reset["spent"] == left == 0


async def test_workers_spend_one_budget_and_no_more_when_one_is_killed(tmp_path: Path) -> None:
    denied = "budget calls { requests 150/day; at 100% { deny } }\n"
    async with workers(tmp_path, rest=denied) as fleet:
        async with fleet.loaded(12):
            await fleet.more(40)
            os.kill(workers_of(fleet.proxy)["worker-2"], signal.SIGKILL)
            await fleet.proxy.says("worker_started", times=3)
            await fleet.denied(24)
        await fleet.idle()
        used_up = (await fleet.get("/v1/budgets"))["budgets"][0]["spent"]
        began = len(fleet.provider.seen)
        shown = await fleet.ask("POST", "/v1/budgets/spent", json={"budget": "calls", "spent": 140})
        async with fleet.loaded(12):
            with trio.fail_after(PATIENCE_S):
                await fleet.provider.until(lambda: len(fleet.provider.seen) >= began + 10)
            await fleet.denied(24)
        await fleet.idle()
        again = (await fleet.get("/v1/budgets"))["budgets"][0]["spent"]

    charged = sum(one["in_flight"] for one in fleet.proxy.of("budget_charged"))
    # Every call that the provider saw counts; those in flight at the kill, sent or not, are charged.
    assert began <= used_up == 150
    assert began >= 150 - charged
    assert shown["budgets"][0]["spent"] == 140
    assert len(fleet.provider.seen) == began + 10
    assert again == 150


def spent_of(fleet: Workers) -> int:
    """Return what the state on disk says that was spent of the budget."""
    (path,) = fleet.folder.glob("hivemind-trio/team-*/state.db")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        total: int = database.execute("SELECT coalesce(sum(amount), 0) FROM spends").fetchone()[0]
    return total


async def test_a_reload_under_load_fails_no_call_and_reaches_every_worker(tmp_path: Path) -> None:
    async with workers(tmp_path) as fleet:
        async with fleet.loaded(12):
            await fleet.more(20)
            for cap in (3, 5, CAP):
                written(fleet.folder, fleet.provider, cap=cap)
                await fleet.ask("POST", "/v1/reload")
                assert (await fleet.get("/v1/status"))["cap"] == cap
                await fleet.more(20)
                if cap < CAP:
                    assert fleet.provider.world.inflight <= cap
            fleet.policy.write_text("nonsense")
            fleet.proxy.signal(signal.SIGHUP)
            await fleet.proxy.says("policy_rejected")
            written(fleet.folder, fleet.provider).write_text(fleet.policy.read_text().replace("workers 2", "workers 3"))
            rejected = await fleet.proxy.says("policy_rejected", times=2)
            await fleet.more(10)
        hashes = {(await fleet.get("/v1/policy"))["hash"], (await fleet.get("/v1/status"))["policy"]["hash"]}

    assert rejected["code"] == "HM702"
    assert len(hashes) == 1
    assert fleet.statuses.keys() == {200}
    assert fleet.peak == CAP


async def test_sigterm_lets_calls_in_flight_end_in_every_worker(tmp_path: Path) -> None:
    slow = Traits(latency_mean_ns=1_500 * MS, latency_sigma_ns=0, latency_min_ns=1_500 * MS)
    async with workers(tmp_path, slow) as fleet, trio.open_nursery() as nursery:
        for place in range(CAP):
            client = httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False)
            nursery.start_soon(partial(fleet.call, client, stream=place % 2 == 0))
        await fleet.provider.until(lambda: fleet.provider.world.inflight == CAP)
        loads = [one["inflight"] for one in (await fleet.get("/v1/status"))["workers"]]
        fleet.proxy.signal(signal.SIGTERM)
        drained = await fleet.proxy.says("draining")
        status = await fleet.proxy.ended()

    assert status == 0
    assert loads == [3, 3]
    assert drained["in_flight"] == CAP
    assert fleet.statuses == {200: CAP}


async def test_a_second_signal_ends_every_process(tmp_path: Path) -> None:
    slow = Traits(latency_mean_ns=60_000 * MS, latency_sigma_ns=0, latency_min_ns=60_000 * MS)
    async with workers(tmp_path, slow) as fleet, trio.open_nursery() as nursery:
        client = httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False)
        nursery.start_soon(fleet.call, client)
        await fleet.provider.until(lambda: fleet.provider.world.inflight == 1)
        fleet.proxy.signal(signal.SIGTERM)
        await fleet.proxy.says("draining")
        fleet.proxy.signal(signal.SIGTERM)
        status = await fleet.proxy.ended()
        pids = list(workers_of(fleet.proxy).values())

    assert status == 128 + signal.SIGTERM
    assert running(pids) == []


async def test_workers_end_with_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    async with workers(tmp_path) as fleet:
        pids = list(workers_of(fleet.proxy).values())
        fleet.proxy.signal(signal.SIGKILL)
        await fleet.proxy.ended()
        with trio.fail_after(PATIENCE_S):
            while running(pids):  # noqa: ASYNC110 - they are other processes
                await trio.sleep(0.05)


PER_S = 40
LIMITED = Traits(
    requests=Quota(limit=PER_S, window_ns=1_000 * MS, counting=Counting.SLIDING),
    latency_mean_ns=20 * MS,
    latency_sigma_ns=5 * MS,
    tells=False,
)


async def test_workers_draw_of_one_rate_limit_and_not_of_one_each(tmp_path: Path) -> None:
    async with workers(tmp_path, LIMITED, f"limits {{ requests {PER_S}/s }}") as fleet, fleet.loaded(12):
        await fleet.more(160)

    # Each for itself, the workers would start twice as many. A call that a busy machine sends late falls into another
    # window at the provider.
    assert fleet.provider.world.refused <= PER_S // 10
    assert fleet.statuses.keys() == {200}


@needs_redis
@pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning")
async def test_workers_of_a_node_share_through_the_store_of_all_nodes(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as redis:
        store = f'store redis {{ url "{redis.url}"; lease 4s renew 250ms gone 1s; outage local 50% }}\n'
        async with workers(tmp_path, rest=store) as fleet:
            async with fleet.loaded(12):
                await fleet.more(60)
            joined = {one["node"].rpartition("/")[2] for one in fleet.proxy.of("node_joined")}

    assert fleet.peak == CAP
    assert joined == {"worker-1", "worker-2"}


async def test_the_log_says_what_each_of_the_workers_of_the_command_line_counts_for_itself(tmp_path: Path) -> None:
    path = tmp_path / "team.hmp"
    path.write_text(
        'hmp 1\nprovider sim { api generic; base "http://127.0.0.1:1" }\n'
        "lane default { max 2 }\nagent ci { concurrency 4 }\n"
    )
    env = {"XDG_STATE_HOME": f"{tmp_path}", "XDG_RUNTIME_DIR": f"{tmp_path}"}
    with trio.fail_after(6 * PATIENCE_S):
        async with serving("--policy", path, "--workers", "2", env=env) as proxy:
            warned = await proxy.says("policy_warning")

    assert warned["message"].startswith(
        "each of 2 workers counts `max` of lanes and `concurrency` of agents for itself"
    )
    assert warned["code"] == "HM429"
    assert warned["at"] == "--workers"


async def test_workers_lease_resources_as_one_proxy_and_a_killed_one_takes_no_lease_along(tmp_path: Path) -> None:
    path = tmp_path / "team.hmp"
    text = 'hmp 1\nserver { workers 2 }\nprovider sim { api generic; base "http://127.0.0.1:1" }\n'
    path.write_text(text)
    env = {"XDG_STATE_HOME": f"{tmp_path}", "XDG_RUNTIME_DIR": f"{tmp_path}"}
    with trio.fail_after(6 * PATIENCE_S):
        async with serving("--policy", path, env=env) as proxy:
            path.write_text(text + "resource gpu { }\n")
            await proxy.says("policy_loaded")
            async with AsyncExitStack() as stack:
                # A supervisor hands each connection to the worker that has the fewest.
                one = await stack.enter_async_context(over_http(f"{proxy.url}/@one/mcp"))
                two = await stack.enter_async_context(over_http(f"{proxy.url}/@two/mcp"))
                mine = await told(one, "lease", resource="gpu")
                theirs = await told(two, "lease", resource="gpu")
            for pid in workers_of(proxy).values():
                os.kill(pid, signal.SIGKILL)
            await proxy.says("worker_started", times=4)
            asked = [*COMMAND[:-1], "lease", "--policy", f"{path}", "--json"]
            shown = await trio.run_process(asked, capture_stdout=True, env=environment(**env))
            async with over_http(f"{proxy.url}/@one/mcp") as one:
                released = await told(one, "release", id="gpu-1")

    assert (mine["lease"]["fence"], theirs["lease"], theirs["before_you"]) == (1, None, 0)
    assert [one["lease"] for one in json.loads(shown.stdout)["resources"][0]["leases"]] == ["gpu-1"]
    assert released == {"released": "gpu-1"}


@pytest.mark.parametrize(
    ("text", "arguments", "code", "says"),
    [
        ("server { workers 2 }\nstore memory { }\n", (), 1, "HM415"),
        ("store memory { }\n", ("--workers", "2"), 2, "store memory"),
        ("", ("--workers", "0"), 2, "no count of processes"),
        ("", ("--workers", "many"), 2, "no count of processes"),
    ],
)
async def test_a_number_of_workers_that_cannot_be_is_refused_before_anything_listens(
    tmp_path: Path, text: str, arguments: tuple[str, ...], code: int, says: str
) -> None:
    path = tmp_path / "team.hmp"
    path.write_text(f"{text}provider anthropic {{ }}\n")
    status, _, told = await run("--policy", path, "--listen", "127.0.0.1:0", *arguments)
    assert status == code
    assert says in told
