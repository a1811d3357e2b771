"""Several nodes on one Redis, beside one ideal scheduler on the same arrivals.

Targets: at 90 % of the capacity, with a node that gets most calls and moves, the 95th percentile of the wait is at most
1.2 times that of the ideal scheduler; a call takes at most 1.2 store operations; never more calls are in flight than
the cap; no window of a rate limit has more calls than the limit.

Real processes of `serve --node` on a real Redis, each call drawn before: when it arrives, at which node, and how long
the provider takes. The ideal scheduler is one queue in order of arrival before all slots, without any cost of its own;
it is computed from the same draws. The wait of a call is from its arrival to its start at the provider, so that it has
the CPU of load, proxy and provider in it. Rate limits are drawn of at 1.5 times the limit; windows are counted at the
provider, wherever they begin.

    python -m bench.several [--runs 5] [--nodes 4] [--seconds 30] [--md F.md] [--json F.json]      about ten minutes
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
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Final, final

import attrs
import httpx2
import trio

from .tables import Table, provenance, write

TARGET_WAIT: Final = 1.2
TARGET_OPERATIONS: Final = 1.2

CAP: Final = 8
SERVICE_S: Final = 0.3
LOAD: Final = 0.9
HOT: Final = 0.7
"""Part of the calls that the hot node gets."""
HOT_S: Final = 5.0
"""Time after which another node is the hot one."""
WARM_S: Final = 8.0
"""Calls that arrive before are not counted."""

LIMIT: Final = 100
WINDOW_S: Final = 10
OVERLOAD: Final = 1.5

START_S: Final = 60.0
TRY_S: Final = 0.05
ANSWER: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


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


@final
@attrs.define(eq=False)
class Provider:
    """A provider that takes for each call the time that its model names, and notes what it sees."""

    port: int
    inflight: int = 0
    peak: int = 0
    starts_s: dict[int, float] = attrs.field(factory=dict)
    """Number of a call -> when it arrived."""

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
                length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
                while len(held) < end + 4 + length:
                    held += await stream.receive_some(65_536)
                asked = json.loads(held[end + 4 : end + 4 + length])
                del held[: end + 4 + length]
                _, number, service_ms = asked["model"].split("-")
                self.starts_s.setdefault(int(number), trio.current_time())
                self.inflight += 1
                self.peak = max(self.peak, self.inflight)
                try:
                    await trio.sleep(int(service_ms) / 1_000)
                finally:
                    self.inflight -= 1
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
    raise OSError("redis-server does not listen")


def store_operations(port: int) -> int:
    """Return the scripts that Redis has run."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"INFO commandstats\r\n")
        text = sock.recv(65_536).decode()
    lines = dict(line.split(":", 1) for line in text.split("\r\n") if line.startswith("cmdstat_"))
    counts = [lines[name].partition("calls=")[2].partition(",")[0] for name in ("cmdstat_evalsha",) if name in lines]
    return sum(map(int, counts))


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
    peak: int
    operations: float
    """Operations of the store for each call."""
    starts_s: list[float]


async def _run(calls: Sequence[Arrival], nodes: int, policy: str) -> Outcome:
    """Put the calls to as many nodes; `{base}` in the policy is the provider's address."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    provider = Provider(listeners[0].socket.getsockname()[1])
    failed: deque[int] = deque()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = await trio.to_thread.run_sync(stack.enter_context, redis(folder))
        text = policy.format(base=f"http://127.0.0.1:{provider.port}")
        ports = [
            await trio.to_thread.run_sync(stack.enter_context, node(folder, number, nodes, store, text))
            for number in range(nodes)
        ]
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        async with (
            httpx2.AsyncClient(timeout=600, trust_env=False, limits=limits) as client,
            trio.open_nursery() as own,
        ):
            own.start_soon(trio.serve_listeners, provider.serve, listeners)

            async def call(number: int, one: Arrival, began_s: float) -> None:
                await trio.sleep_until(began_s + one.at_s)
                asked = {
                    "model": f"m-{number}-{round(one.service_s * 1_000)}",
                    "max_tokens": 8,
                    "messages": [{"role": "user", "content": "hi"}],
                }
                answer = await client.post(f"http://127.0.0.1:{ports[one.node]}/v1/chat/completions", json=asked)
                if answer.status_code != 200:
                    failed.append(number)

            await trio.sleep(1.0)  # every node has reported
            before, began_s = store_operations(store), trio.current_time() + 0.5
            async with trio.open_nursery() as nursery:
                for number, one in enumerate(calls):
                    nursery.start_soon(call, number, one, began_s)
            operations = store_operations(store) - before
            own.cancel_scope.cancel()
    counted = [number for number, one in enumerate(calls) if one.at_s > WARM_S and number in provider.starts_s]
    ideal = ideal_waits(calls, CAP)
    return Outcome(
        calls=len(calls),
        failed=len(failed),
        waits=[provider.starts_s[number] - began_s - calls[number].at_s for number in counted],
        ideal=[ideal[number] for number in counted],
        peak=provider.peak,
        operations=operations / len(calls),
        starts_s=sorted(start - began_s for start in provider.starts_s.values()),
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


def slots_table(runs: Sequence[Outcome], nodes: int) -> Table:
    """Return the table of `concurrency`: medians over the runs."""
    waits = [p95(one.waits) for one in runs]
    ideal = [p95(one.ideal) for one in runs]
    ratio = statistics.median(ours / best for ours, best in zip(waits, ideal, strict=True))
    operations = statistics.median(one.operations for one in runs)
    over = max(0, max(one.peak for one in runs) - CAP)
    failed = sum(one.failed for one in runs)
    rows = [
        ["wait p95, ideal", f"{statistics.median(ideal):.2f} s", ""],
        ["wait p95, nodes", f"{statistics.median(waits):.2f} s", ""],
        ["ratio", f"{ratio:.2f}", f"≤ {TARGET_WAIT}"],
        ["store operations a call", f"{operations:.2f}", f"≤ {TARGET_OPERATIONS}"],
        ["most over the cap", f"{over}", "0"],
        ["failed calls", f"{failed} of {sum(one.calls for one in runs)}", "0"],
    ]
    figures = [
        {"wait_p95_s": round(p95(one.waits), 4), "ideal_p95_s": round(p95(one.ideal), 4), "peak": one.peak,
         "operations": round(one.operations, 3), "failed": one.failed, "calls": one.calls}
        for one in runs
    ]  # fmt: skip
    note = f"{nodes} nodes, `concurrency {CAP}`, load {LOAD:.0%}, {HOT:.0%} of the calls at one node that moves."
    return Table(
        title="Slots", notes=[note, f"Medians of {len(runs)} runs."], head=["", "found", "target"], rows=rows,
        figures=figures,
    )  # fmt: skip


def window_table(runs: Sequence[Outcome], nodes: int, lasts_s: float) -> Table:
    """Return the table of rate limits."""
    most = [fullest_window(one.starts_s, WINDOW_S) / LIMIT for one in runs]
    used = [
        sum(WARM_S < start <= lasts_s for start in one.starts_s) / (LIMIT * (lasts_s - WARM_S) / WINDOW_S)
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
    parser.add_argument("--smoke", action="store_true", help="small and quick; the figures mean nothing")
    parser.add_argument("--md", type=Path, metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    runs, nodes, lasts_s = (1, 2, WARM_S + 2) if options.smoke else (options.runs, options.nodes, options.seconds)
    slots, windows = [], []
    for seed in range(options.seed, options.seed + runs):
        calls = arrivals(Random(seed), nodes, lasts_s, LOAD * CAP / SERVICE_S, SERVICE_S)
        slots.append(
            trio.run(_run, calls, nodes, f'provider bench {{{{ api generic; base "{{base}}"; concurrency {CAP} }}}}')
        )
        calls = arrivals(Random(seed), nodes, lasts_s, OVERLOAD * LIMIT / WINDOW_S, SERVICE_S)
        limited = f"concurrency 200; limits {{{{ requests {LIMIT}/{WINDOW_S}s }}}}"
        windows.append(
            trio.run(_run, calls, nodes, f'provider bench {{{{ api generic; base "{{base}}"; {limited} }}}}')
        )
        print(f"run {seed - options.seed + 1} of {runs}", file=sys.stderr)
    made = provenance(seed=options.seed, runs=runs)
    tables = [slots_table(slots, nodes), window_table(windows, nodes, lasts_s)]
    print(write(tables, made, title="Several nodes", md=options.md, data=options.json))


if __name__ == "__main__":
    main()
