"""Several nodes on one Redis, beside one ideal scheduler on the same arrivals.

Targets: at 90 % of the capacity, with a node that gets most calls and moves, the 95th percentile of the wait is at most
1.2 times that of the ideal scheduler; a call takes at most 1.2 store operations; never more calls are in flight than
the cap; no window of a rate limit has more calls than the limit; where all nodes have calls that wait, at most 3 % of
the slots' time of 20 s goes to nodes beyond what their calls are due, and at most 10 % at the 95th percentile.

Real processes of `serve --node` on a real Redis, each call drawn before: when it arrives, at which node, and how long
the provider takes. The ideal scheduler is one queue in order of arrival before all slots, without any cost of its own;
it is computed from the same arrivals, and the times that this provider took, which its own process may draw out. All
calls are one agent's: else the proxies would tell callers apart by their connections, which a client uses again as they
come, and would rightly be fair to them instead of going by arrival. The wait of a call is from its arrival to its start
at the provider, so that it has the CPU of load, proxy and provider in it: one proxy that serves the same calls alone
says how much that is. A slot is unused while it is free and a call waits, wherever both are. Rate limits
are drawn of at 1.5 times the limit; windows are counted at the provider, wherever they begin. For fairness, agents that
always have a call are spread over the nodes, and spread anew every few seconds.

LiteLLM's proxies with the same cap on the same Redis get the same calls where they are installed (`bench.peers`).

    python -m bench.several [--runs 5] [--nodes 4] [--seconds 30] [--only slots,many,fairness,windows]
                            [--peers FOLDER] [--md F.md] [--json F.json]                  half an hour
    python -m bench.several --kept FOLDER ...    each run is kept there, and made only once: go on after a stop
    python -m bench.several --smoke      seconds; for the tests
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Final, TypeVar, final

import attrs
import httpx2
import trio

from .load.subjects import LITELLM, LITELLM_ENVIRONMENT
from .peers import python_of, version_of
from .tables import Table, provenance, write

TARGET_WAIT: Final = 1.2
TARGET_OPERATIONS: Final = 1.2
TARGET_UNFAIR: Final = 0.03
TARGET_UNFAIR_P95: Final = 0.1

CAP: Final = 8
SERVICE_S: Final = 0.3
MANY: Final = 16
"""Nodes of the table with many."""
MANY_TIMES: Final = 4
"""Factor of its slots and of the time that its calls take, so that it has as many calls a second."""
LOAD: Final = 0.9
HOT: Final = 0.7
"""Part of the calls that the hot node gets."""
HOT_S: Final = 5.0
"""Time after which another node is the hot one."""

CROWD: Final = 1.5
"""Calls of all agents at once, of the cap, in the table of fairness."""


@final
@attrs.frozen
class Times:
    """How long a run lasts, and which part of it is looked at."""

    lasts_s: float
    """Time for which calls arrive."""
    warm_s: int = 8
    """Calls that arrive before are not counted."""
    fair_s: int = 20
    """Length of the spans over which slots are to be divided by the calls that nodes have."""


SMOKE: Final = Times(5, warm_s=2, fair_s=4)

LIMIT: Final = 100
WINDOW_S: Final = 10
OVERLOAD: Final = 1.5

START_S: Final = 300.0
TRY_S: Final = 0.05
ANSWERED: Final = json.dumps(
    {
        "id": "bench", "object": "chat.completion", "created": 0, "model": "bench",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
).encode()  # fmt: skip
ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWERED) + ANSWERED
)
NOT_FOUND: Final = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


@final
@attrs.frozen
class Arrival:
    """One call, drawn before any scheduler sees it."""

    at_s: float
    node: int
    service_s: float


def arrivals(chance: Random, nodes: int, lasts_s: float, rate: float, service_s: float) -> list[Arrival]:
    """Draw calls: at random times, most of them at one node, another one every few seconds."""
    found, at_s = [], 0.0
    while (at_s := at_s + chance.expovariate(rate)) < lasts_s:
        hot = int(at_s // HOT_S) % nodes
        node = hot if nodes == 1 or chance.random() < HOT else chance.choice([n for n in range(nodes) if n != hot])
        found.append(Arrival(at_s, node, service_s * chance.uniform(0.5, 1.5)))
    return found


def ideal_waits(calls: Sequence[Arrival], cap: int) -> list[float]:
    """Return the wait of each call in one queue before all slots."""
    free = [0.0] * cap
    waits = []
    for call in calls:
        starts_s = max(call.at_s, free[0])
        heapq.heapreplace(free, starts_s + call.service_s)
        waits.append(starts_s - call.at_s)
    return waits


def unused(calls: Sequence[tuple[float, float, float]], cap: int, since_s: float) -> float:
    """Return the part of all slots' time that was free while calls waited, from a time until the last call started.

    Args:
        calls: When each arrived, started and ended.
    """
    changes = [(at_s, 0, 1) for at_s, _, _ in calls]
    changes += [(starts_s, 1, -1) for _, starts_s, _ in calls] + [(ends_s, -1, 0) for _, _, ends_s in calls]
    until_s = max(starts_s for _, starts_s, _ in calls)
    free_s, seen_s, held, waiting = 0.0, since_s, 0, 0
    for at_s, starts, waits in sorted(changes):
        if since_s < at_s <= until_s:
            free_s += (at_s - seen_s) * max(0, min(cap - held, waiting))
            seen_s = at_s
        held, waiting = held + starts, waiting + waits
    return free_s / (cap * (until_s - since_s))


@final
@attrs.define(eq=False)
class SlotTime:
    """Time of slots that each node had, and was due by its calls in flight and waiting, second by second."""

    nodes: int
    held: list[int] = attrs.field(init=False)
    calls: list[int] = attrs.field(init=False)
    seconds: list[tuple[list[float], list[float]]] = attrs.field(init=False, factory=list)
    """Slots that nodes had and were due in each second."""
    _began_s: float = attrs.field(init=False, default=0.0)
    _seen_s: float = attrs.field(init=False, default=0.0)

    def __attrs_post_init__(self) -> None:
        self.held, self.calls = [0] * self.nodes, [0] * self.nodes

    def begin(self, now_s: float) -> None:
        """Count from here on."""
        self._began_s = self._seen_s = now_s

    def note(self, now_s: float) -> None:
        """Count up to now; to be called before a number changes."""
        while self._seen_s < now_s:
            second = int(self._seen_s - self._began_s)
            until_s = max(min(now_s, self._began_s + second + 1), self._seen_s + 1e-9)
            while len(self.seconds) <= second:
                self.seconds.append(([0.0] * self.nodes, [0.0] * self.nodes))
            had, due = self.seconds[second]
            lasts_s, slots, calls = until_s - self._seen_s, sum(self.held), sum(self.calls)
            for node in range(self.nodes if calls else 0):
                had[node] += lasts_s * self.held[node]
                due[node] += lasts_s * slots * self.calls[node] / calls
            self._seen_s = until_s

    def unfairness(self, warm_s: int, span_s: int) -> list[float]:
        """Return the part of the slots' time that nodes had beyond what they were due, for each span that begins."""
        found = []
        for first in range(warm_s, len(self.seconds) - span_s):
            span = self.seconds[first : first + span_s]
            had = [sum(second[0][node] for second in span) for node in range(self.nodes)]
            due = [sum(second[1][node] for second in span) for node in range(self.nodes)]
            found.append(sum(max(0.0, d - h) for h, d in zip(had, due, strict=True)) / sum(had))
        return found


@final
@attrs.define(eq=False)
class Provider:
    """A provider that takes for each call the time that its model names, and notes what it sees."""

    port: int
    inflight: int = 0
    peak: int = 0
    starts_s: dict[int, float] = attrs.field(factory=dict)
    """Number of a call -> when it arrived."""
    ends_s: dict[int, float] = attrs.field(factory=dict)
    """Number of a call -> when it was answered."""
    changes: Callable[[int, int], None] = lambda number, by: None
    """Told the number of a call that begins (1) or ends (-1)."""

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer the requests of one connection."""
        held = bytearray()
        try:
            while True:
                while (end := held.find(b"\r\n\r\n")) < 0:
                    if not (data := await stream.receive_some(65_536)):
                        return
                    held += data
                head = bytes(held[:end]).lower()
                if not head.startswith(b"post"):  # LiteLLM asks for the models
                    del held[: end + 4]
                    await stream.send_all(NOT_FOUND)
                    continue
                length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
                while len(held) < end + 4 + length:
                    held += await stream.receive_some(65_536)
                asked = json.loads(held[end + 4 : end + 4 + length])
                del held[: end + 4 + length]
                number, service_ms = asked["messages"][0]["content"].split("-")
                self.starts_s.setdefault(int(number), trio.current_time())
                self.inflight += 1
                self.peak = max(self.peak, self.inflight)
                self.changes(int(number), 1)
                try:
                    await trio.sleep(int(service_ms) / 1_000)
                finally:
                    self.inflight -= 1
                    self.ends_s[int(number)] = trio.current_time()
                    self.changes(int(number), -1)
                await stream.send_all(ANSWER)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return


@contextmanager
def redis(folder: Path) -> Iterator[int]:
    """Start a Redis of its own; gives its port."""
    binary = shutil.which("redis-server") or shutil.which("valkey-server")
    if binary is None:
        raise SystemExit("bench.several needs a redis-server: apt-get install redis-server")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    words = [binary, "--port", f"{port}", "--bind", "127.0.0.1", "--save", "", "--dir", f"{folder}"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        _reached(port)
        yield port
    finally:
        process.terminate()
        process.wait()


def _reached(port: int) -> None:
    for _ in range(round(START_S / TRY_S)):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(TRY_S)
        else:
            return
    raise OSError(f"nothing listens on port {port}")


def store_operations(port: int) -> int:
    """Return the scripts that Redis has run, or the commands of who uses none."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"INFO commandstats\r\n")
        text = sock.recv(65_536).decode()
    lines = dict(line.split(":", 1) for line in text.split("\r\n") if line.startswith("cmdstat_"))
    names = ["cmdstat_evalsha"] if "cmdstat_evalsha" in lines else [name for name in lines if name != "cmdstat_info"]
    return sum(int(lines[name].partition("calls=")[2].partition(",")[0]) for name in names)


def _port_of(process: subprocess.Popen[str], log: Path) -> int:
    """Return the port of a node, once it serves and shares."""
    for _ in range(round(START_S / TRY_S)):
        whole, _, _ = log.read_text().rpartition("\n")
        events = {event["event"]: event for event in map(json.loads, whole.splitlines())}
        if events.keys() >= {"serving", "node_joined"}:
            return int(events["serving"]["address"].rpartition(":")[2])
        if process.poll() is not None:
            break
        time.sleep(TRY_S)
    raise OSError(f"a node does not serve: {log.read_text()}")


@contextmanager
def node(folder: Path, number: int, nodes: int, redis_port: int, provider: str) -> Iterator[int]:
    """Start a node as users do; gives its port."""
    policy = folder / f"node-{number}" / "bench.hmp"
    policy.parent.mkdir()
    policy.write_text(
        f"hmp 1\nserver {{ nodes {nodes} }}\n"
        f'store redis {{ url "redis://127.0.0.1:{redis_port}"; outage local 50% }}\n{provider}\n'
    )
    command = [
        *(sys.executable, "-m", "hivemind_trio", "serve", "--policy", f"{policy}", "--listen", "127.0.0.1:0"),
        *("--node", f"n{number}", "--log-format", "json"),
    ]
    places = {"XDG_STATE_HOME": f"{policy.parent}", "XDG_RUNTIME_DIR": f"{policy.parent}"}
    with (policy.parent / "log").open("w+") as log:
        process = subprocess.Popen(command, stderr=log, text=True, env={**os.environ, **places})
        try:
            yield _port_of(process, policy.parent / "log")
        finally:
            process.terminate()
            process.wait()


@final
@attrs.frozen(kw_only=True)
class Outcome:
    """One run."""

    calls: int
    failed: int
    waits: list[float]
    """Waits of the calls that count."""
    ideal: list[float]
    unused: float
    """Part of the slots' time that was free while calls waited."""
    peak: int
    operations: float
    """Operations of the store for each call."""
    starts_s: list[float]


@final
@attrs.frozen(kw_only=True)
class Served:
    """Nodes that serve, their store, and the provider behind them."""

    provider: Provider
    ports: Sequence[int]
    store: int
    client: httpx2.AsyncClient

    async def call(self, node: int, number: int, service_s: float, agent: str = "bench") -> bool:
        """Put a call of an agent to a node; return True if it was served."""
        asked = {
            "model": "bench",
            "max_tokens": 8,
            "messages": [{"role": "user", "content": f"{number}-{round(service_s * 1_000)}"}],
        }
        url, headers = f"http://127.0.0.1:{self.ports[node]}/v1/chat/completions", {"x-hivemind-agent": agent}
        answer = await self.client.post(url, json=asked, headers=headers)
        return answer.status_code == 200


Run = TypeVar("Run", bound="Outcome | Division")


@final
@attrs.frozen
class Kept:
    """Runs that were made, so that a bench that was stopped can go on; None: none is kept."""

    folder: Path | None = None

    def run(self, name: str, kind: type[Run], make: Callable[[], Run]) -> Run:
        """Return a run; one that has been kept is not made again."""
        if self.folder is None:
            return make()
        file = self.folder / f"{name}.json"
        if file.exists():
            return kind(**json.loads(file.read_text("utf-8")))
        found = make()
        self.folder.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(attrs.asdict(found)), "utf-8")
        part.rename(file)
        print(name, file=sys.stderr)
        return found


Starts = Callable[[Path, int, int, int, str], AbstractContextManager[int]]
"""Starts one of several proxies in a folder, given its number, their number, the port of Redis and the provider's
address; gives its port."""


def ours(policy: str) -> Starts:
    """Return how a node is started; `{base}` in the policy is the provider's address."""
    return lambda folder, number, nodes, store, base: node(folder, number, nodes, store, policy.format(base=base))


def litellm(peers: Path) -> Starts:
    """Return how one of LiteLLM's proxies is started: one worker, no database, no key, no retries."""

    @contextmanager
    def start(folder: Path, number: int, _: int, store: int, base: str) -> Iterator[int]:
        home = folder / f"litellm-{number}"
        home.mkdir()
        there = {"model": "openai/bench", "api_base": f"{base}/v1", "api_key": "bench", "max_parallel_requests": CAP}
        router = {"num_retries": 0, "disable_cooldowns": True, "redis_host": "127.0.0.1", "redis_port": store}
        models = [{"model_name": "bench", "litellm_params": there}]
        config = home / "config.yaml"  # JSON is YAML
        config.write_text(json.dumps({**LITELLM, "model_list": models, "router_settings": router}))
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = int(found.getsockname()[1])
        command = [
            *(str(python_of(peers, "litellm").with_name("litellm")), "--config", str(config), "--host", "127.0.0.1"),
            *("--port", str(port), "--num_workers", "1", "--telemetry", "False"),
        ]
        with (home / "log").open("w") as log:
            environment = {**os.environ, **LITELLM_ENVIRONMENT, "HOME": str(home)}
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
            try:
                _reached(port)
                yield port
            finally:
                process.terminate()
                process.wait()

    return start


@asynccontextmanager
async def served(nodes: int, starts: Starts) -> AsyncIterator[Served]:
    """Start proxies before one provider, with one Redis."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    provider = Provider(listeners[0].socket.getsockname()[1])
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = await trio.to_thread.run_sync(stack.enter_context, redis(folder))
        base = f"http://127.0.0.1:{provider.port}"
        ports = [
            await trio.to_thread.run_sync(stack.enter_context, starts(folder, number, nodes, store, base))
            for number in range(nodes)
        ]
        async with (
            httpx2.AsyncClient(timeout=600, trust_env=False, limits=limits) as client,
            trio.open_nursery() as own,
        ):
            own.start_soon(trio.serve_listeners, provider.serve, listeners)
            await trio.sleep(1.0)  # every node has reported
            yield Served(provider=provider, ports=ports, store=store, client=client)
            own.cancel_scope.cancel()


async def _run(calls: Sequence[Arrival], nodes: int, starts: Starts, cap: int, warm_s: int) -> Outcome:
    """Put the calls to as many nodes."""
    failed: deque[int] = deque()
    async with served(nodes, starts) as there:
        before, began_s = store_operations(there.store), trio.current_time() + 0.5

        async def call(number: int, one: Arrival) -> None:
            await trio.sleep_until(began_s + one.at_s)
            if not await there.call(one.node, number, one.service_s):
                failed.append(number)

        async with trio.open_nursery() as nursery:
            for number, one in enumerate(calls):
                nursery.start_soon(call, number, one)
        operations = store_operations(there.store) - before
    starts_s, ends_s = there.provider.starts_s, there.provider.ends_s
    counted = [number for number, one in enumerate(calls) if one.at_s > warm_s and number in ends_s]
    took = [
        attrs.evolve(one, service_s=ends_s[number] - starts_s[number]) if number in ends_s else one
        for number, one in enumerate(calls)
    ]
    ideal = ideal_waits(took, cap)
    spans = [(began_s + calls[number].at_s, starts_s[number], ends_s[number]) for number in ends_s]
    return Outcome(
        calls=len(calls),
        failed=len(failed),
        waits=[starts_s[number] - began_s - calls[number].at_s for number in counted],
        ideal=[ideal[number] for number in counted],
        unused=unused(spans, cap, began_s + warm_s),
        peak=there.provider.peak,
        operations=operations / len(calls),
        starts_s=sorted(start - began_s for start in starts_s.values()),
    )


@final
@attrs.frozen(kw_only=True)
class Division:
    """One run in which all nodes have calls that wait."""

    unfair: list[float]
    calls: int
    failed: int
    peak: int
    operations: float


async def _crowd(chance: Random, nodes: int, times: Times, starts: Starts) -> Division:
    """Let agents that always have a call spread over the nodes, anew every few seconds."""
    lasts_s = times.lasts_s + times.fair_s
    agents, tally, at, failed = round(CROWD * CAP), SlotTime(nodes), list[int](), deque[int]()

    def spread() -> list[int]:
        parts = [chance.random() ** 2 for _ in range(nodes)]
        return chance.choices(range(nodes), parts, k=agents)

    spreads = [spread() for _ in range(int(lasts_s // HOT_S) + 1)]
    async with served(nodes, starts) as there:

        def changes(number: int, by: int) -> None:
            tally.note(trio.current_time())
            tally.held[at[number]] += by

        there.provider.changes = changes
        before, began_s = store_operations(there.store), trio.current_time()
        tally.begin(began_s)

        async def agent(which: int) -> None:
            while (now_s := trio.current_time()) < began_s + lasts_s:
                place = spreads[int((now_s - began_s) // HOT_S)][which]
                number = len(at)
                at.append(place)
                tally.note(now_s)
                tally.calls[place] += 1
                if not await there.call(place, number, SERVICE_S * chance.uniform(0.5, 1.5), f"agent-{which}"):
                    failed.append(number)
                tally.note(trio.current_time())
                tally.calls[place] -= 1

        async with trio.open_nursery() as nursery:
            for which in range(agents):
                nursery.start_soon(agent, which)
        operations = store_operations(there.store) - before
    return Division(
        unfair=tally.unfairness(times.warm_s, times.fair_s),
        calls=len(at),
        failed=len(failed),
        peak=there.provider.peak,
        operations=operations / len(at),
    )


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return sorted(values)[int(0.95 * (len(values) - 1))]


def fullest_window(starts_s: Sequence[float], window_s: float) -> int:
    """Return the most calls in any window, wherever it begins."""
    most, first = 0, 0
    for place, start_s in enumerate(starts_s):
        while start_s - starts_s[first] >= window_s:
            first += 1
        most = max(most, place - first + 1)
    return most


def slots_table(title: str, runs: Mapping[str, Sequence[Outcome]], cap: int, notes: Sequence[str]) -> Table:
    """Return a table of `concurrency`: medians over the runs.

    Args:
        runs: Who serves -> runs; all have served the same calls.
    """

    def row(name: str, figure: Callable[[Sequence[Outcome]], str], target: str = "") -> list[str]:
        return [name, *(figure(of) for of in runs.values()), target]

    def ratio(of: Sequence[Outcome]) -> float:
        return statistics.median(p95(one.waits) / max(p95(one.ideal), 0.001) for one in of)

    rows = [
        row("wait p95, ideal", lambda of: f"{statistics.median(p95(one.ideal) for one in of):.2f} s"),
        row("wait p95", lambda of: f"{statistics.median(p95(one.waits) for one in of):.2f} s"),
        row("ratio", lambda of: f"{ratio(of):.2f}", f"≤ {TARGET_WAIT}"),
        row("slots unused while calls wait", lambda of: f"{statistics.median(one.unused for one in of):.2%}"),
        row(
            "store operations a call",
            lambda of: f"{statistics.median(one.operations for one in of):.2f}",
            f"≤ {TARGET_OPERATIONS}",
        ),
        row("most over the cap", lambda of: f"{max(0, max(one.peak for one in of) - cap)}", "0"),
        row("failed calls", lambda of: f"{sum(one.failed for one in of)} of {sum(one.calls for one in of)}", "0"),
    ]
    figures = [
        {"who": who, "wait_p95_s": round(p95(one.waits), 4), "ideal_p95_s": round(p95(one.ideal), 4),
         "unused": round(one.unused, 5), "peak": one.peak, "operations": round(one.operations, 3),
         "failed": one.failed, "calls": one.calls}
        for who, of in runs.items()
        for one in of
    ]  # fmt: skip
    number = max(len(of) for of in runs.values())
    count = f"Medians of {number} runs." if number > 1 else "One run."
    return Table(title=title, notes=[*notes, count], head=["", *runs, "target"], rows=rows, figures=figures)


def fairness_table(runs: Sequence[Division], nodes: int, fair_s: int) -> Table:
    """Return the table of fairness."""
    unfair = [part for one in runs for part in one.unfair]
    rows = [
        ["unfairness, mean", f"{statistics.mean(unfair):.1%}", f"≤ {TARGET_UNFAIR:.0%}"],
        ["unfairness, p95", f"{p95(unfair):.1%}", f"≤ {TARGET_UNFAIR_P95:.0%}"],
        ["store operations a call", f"{statistics.median(one.operations for one in runs):.2f}", ""],
        ["most over the cap", f"{max(0, max(one.peak for one in runs) - CAP)}", "0"],
        ["failed calls", f"{sum(one.failed for one in runs)} of {sum(one.calls for one in runs)}", "0"],
    ]
    figures = [
        {"mean": round(statistics.mean(one.unfair), 4), "p95": round(p95(one.unfair), 4), "peak": one.peak,
         "operations": round(one.operations, 3), "failed": one.failed, "calls": one.calls}
        for one in runs
    ]  # fmt: skip
    note = (
        f"{nodes} nodes, `concurrency {CAP}`, {round(CROWD * CAP)} agents that always have a call, spread over the "
        f"nodes anew every {HOT_S:.0f} s."
    )
    what = f"Part of the slots' time of {fair_s} s that nodes had beyond what their calls were due, in each such span."
    return Table(title="Fairness", notes=[note, what], head=["", "found", "target"], rows=rows, figures=figures)


def window_table(runs: Sequence[Outcome], nodes: int, times: Times) -> Table:
    """Return the table of rate limits."""
    most = [fullest_window(one.starts_s, WINDOW_S) / LIMIT for one in runs]
    used = [
        sum(times.warm_s < start <= times.lasts_s for start in one.starts_s)
        / (LIMIT * (times.lasts_s - times.warm_s) / WINDOW_S)
        for one in runs
    ]
    operations = statistics.median(one.operations for one in runs)
    rows = [
        ["most in any window, of the limit", f"{max(most):.2f}", "≤ 1.00"],
        ["used of the limit", f"{statistics.median(used):.2f}", ""],
        ["store operations a call", f"{operations:.2f}", ""],
    ]
    figures = [
        {"most": round(one, 4), "used": round(part, 4), "operations": round(run.operations, 3)}
        for one, part, run in zip(most, used, runs, strict=True)
    ]
    note = f"{nodes} nodes, `requests {LIMIT}/{WINDOW_S}s`, calls at {OVERLOAD:.1f} times the limit."
    return Table(
        title="Rate limits", notes=[note, "The fullest window of all runs."], head=["", "found", "target"], rows=rows,
        figures=figures,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.several", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=30.0, help="for which calls arrive")
    parser.add_argument("--seed", type=int, default=7, help="of the first run")
    parser.add_argument("--only", default=",".join(TABLES), metavar="A,B", help="some of %(default)s")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="where `bench.peers` has installed LiteLLM")
    parser.add_argument("--kept", type=Path, metavar="FOLDER", help="keep each run there, and make none again")
    parser.add_argument("--smoke", action="store_true", help="small and quick; the figures mean nothing")
    parser.add_argument("--md", type=Path, metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    runs, nodes, times = (1, 2, SMOKE) if options.smoke else (options.runs, options.nodes, Times(options.seconds))
    made = provenance(seed=options.seed, runs=runs)
    kept, tables = Kept(options.kept), []
    for only in filter(None, options.only.split(",")):
        tables.append(TABLES[only](kept, range(options.seed, options.seed + runs), nodes, times))
        write(tables, made, title="Several nodes", md=options.md, data=options.json)
        print(only, file=sys.stderr)
    if options.peers is not None and version_of(options.peers, "litellm") is not None:
        seeds = range(options.seed, options.seed + runs)
        tables.append(litellm_table(kept, seeds, nodes, times, options.peers))
    print(write(tables, made, title="Several nodes", md=options.md, data=options.json))


def _outcome(
    kept: Kept, name: str, calls: Sequence[Arrival], nodes: int, starts: Starts, warm_s: int, cap: int = CAP
) -> Outcome:
    return kept.run(f"{name}, {nodes} nodes", Outcome, lambda: trio.run(_run, calls, nodes, starts, cap, warm_s))


def _slots(kept: Kept, seeds: Sequence[int], nodes: int, times: Times) -> Table:
    runs: dict[str, list[Outcome]] = {"one proxy": [], f"{nodes} nodes": []}
    for seed in seeds:
        calls = arrivals(Random(seed), nodes, times.lasts_s, LOAD * CAP / SERVICE_S, SERVICE_S)
        alone = [attrs.evolve(one, node=0) for one in calls]
        name, policy = f"slots, seed {seed}, {times.lasts_s:g} s of {nodes}", policy_of(f"concurrency {CAP}")
        runs["one proxy"].append(_outcome(kept, name, alone, 1, policy, times.warm_s))
        runs[f"{nodes} nodes"].append(_outcome(kept, name, calls, nodes, policy, times.warm_s))
    return slots_table("Slots", runs, CAP, [_load_note(CAP, SERVICE_S)])


def _many(kept: Kept, seeds: Sequence[int], nodes: int, times: Times) -> Table:
    many, cap, service_s = (nodes if nodes < 4 else MANY), CAP * MANY_TIMES, SERVICE_S * MANY_TIMES
    runs: dict[str, list[Outcome]] = {f"{many} nodes": []}
    for seed in seeds:
        calls = arrivals(Random(seed), many, times.lasts_s, LOAD * cap / service_s, service_s)
        name = f"many, seed {seed}, {times.lasts_s:g} s"
        runs[f"{many} nodes"].append(
            _outcome(kept, name, calls, many, policy_of(f"concurrency {cap}"), times.warm_s, cap)
        )
    return slots_table("Many nodes", runs, cap, [_load_note(cap, service_s)])


def _load_note(cap: int, service_s: float) -> str:
    hot = f"{HOT:.0%} of the calls at one node that moves"
    return f"`concurrency {cap}`, calls of {service_s:g} s, load {LOAD:.0%}, {hot}."


def _fairness(kept: Kept, seeds: Sequence[int], nodes: int, times: Times) -> Table:
    longer_s, policy = times.lasts_s + times.fair_s, policy_of(f"concurrency {CAP}")

    def division(seed: int) -> Division:
        name = f"fairness, seed {seed}, {longer_s:g} s, {nodes} nodes"
        return kept.run(name, Division, lambda: trio.run(_crowd, Random(seed), nodes, times, policy))

    return fairness_table([division(seed) for seed in seeds], nodes, times.fair_s)


def _windows(kept: Kept, seeds: Sequence[int], nodes: int, times: Times) -> Table:
    windows = []
    for seed in seeds:
        calls = arrivals(Random(seed), nodes, times.lasts_s, OVERLOAD * LIMIT / WINDOW_S, SERVICE_S)
        limited = f"concurrency 200; limits {{{{ requests {LIMIT}/{WINDOW_S}s }}}}"
        windows.append(
            _outcome(kept, f"windows, seed {seed}, {times.lasts_s:g} s", calls, nodes, policy_of(limited), times.warm_s)
        )
    return window_table(windows, nodes, times)


def policy_of(settings: str) -> Starts:
    """Return how a node is started whose provider has these settings."""
    return ours(f'provider bench {{{{ api generic; base "{{base}}"; {settings} }}}}')


def litellm_table(kept: Kept, seeds: Sequence[int], nodes: int, times: Times, peers: Path) -> Table:
    """Return the table of LiteLLM's proxies on the calls of the first table."""
    runs: dict[str, list[Outcome]] = {f"{nodes} proxies": []}
    for seed in seeds:
        calls = arrivals(Random(seed), nodes, times.lasts_s, LOAD * CAP / SERVICE_S, SERVICE_S)
        name = f"litellm, seed {seed}, {times.lasts_s:g} s"
        runs[f"{nodes} proxies"].append(_outcome(kept, name, calls, nodes, litellm(peers), times.warm_s))
    who = f"LiteLLM {version_of(peers, 'litellm')}, `max_parallel_requests: {CAP}`, the same Redis in its router."
    return slots_table("LiteLLM", runs, CAP, [who, _load_note(CAP, SERVICE_S), "Operations are commands of Redis."])


TABLES: Final[Mapping[str, Callable[[Kept, Sequence[int], int, Times], Table]]] = {
    "slots": _slots, "many": _many, "fairness": _fairness, "windows": _windows,
}  # fmt: skip


if __name__ == "__main__":
    main()
