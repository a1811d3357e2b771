"""How much CPU of a call do metrics cost?

Budget: at most 5 % with metrics on, nothing with `server { admin off }` and no `metrics`. `serve` three times, with
state and journal, each in a process of its own on one core: with `admin off`, as it is started by default, which counts
for whoever asks the control API, and with `server { metrics }` read every second, fifteen times as often as Prometheus
does by itself. All run all the time and are measured in turn, in a random order; CPU is that of all threads of the
process. What counting takes is too little to be seen there, so it is measured alone, too: the events of a simulated
fleet are counted again and again, and the fastest of the repetitions is taken.

    python -m bench.metrics [--rounds 12] [--md F.md] [--json F.json]      about two minutes
    python -m bench.metrics --smoke      seconds; for the tests
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import trio

from bench.load.proxy import POLICY
from bench.load.subjects import Subject, port_of, spawned
from bench.simulated.worlds import own_policy, shipped
from hivemind_trio.admin import CallMetrics
from hivemind_trio.model import Reason, Usage
from hivemind_trio.proxy import CallRecord
from hivemind_trio.scheduler import CallArrived, Command, Event
from hivemind_trio.sim import World

from .durable import CLIENTS, measure
from .tables import Table, provenance, write

KINDS: Final = {
    "uncounted": "`admin off`: nothing is counted",
    "counted": "the default: counted, and not read",
    "read": "counted, and read every second",
}
READ_EVERY_S: Final = 1.0
READINGS: Final = 50
"""Readings whose mean CPU is measured while no call runs."""
USUAL_S: Final = 15
"""Time between two readings of a usual Prometheus."""

SERVE: Final = """\
import sys
sys.stderr = sys.stdout
from hivemind_trio.cli.main import main
main(sys.argv[1:], prog_name="hivemind-trio")
"""
SCENARIO: Final = "requests-bind"
REPETITIONS: Final = 20


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def served_port(child: subprocess.Popen[str]) -> int:
    """Return the port that `serve` says it listens on."""
    assert child.stdout is not None
    for line in child.stdout:
        said = json.loads(line)
        if said["event"] == "serving":
            return int(said["address"].rpartition(":")[2])
    raise OSError(f"{child.args!r} ended with status {child.wait()}")


@contextmanager
def reading(port: int) -> Iterator[list[int]]:
    """Read the metrics again and again within the context; gives the sizes of what came, in bytes."""
    over, sizes = threading.Event(), list[int]()

    def read() -> None:
        while not over.wait(READ_EVERY_S):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                sizes.append(len(answer.read()))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield sizes
    finally:
        over.set()
        thread.join()


def reading_ms(subject: Subject, port: int) -> float:
    """Return the CPU that one reading takes."""
    began_ns = subject.cpu_ns()
    for _ in range(READINGS):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            answer.read()
    return (subject.cpu_ns() - began_ns) / READINGS / 1e6


def counting_us(repetitions: int) -> float:
    """Return the time that counting takes for a call, without anything else."""
    scenario = shipped(SCENARIO)
    program = own_policy(scenario)
    told: list[tuple[int, Event, Sequence[Command]]] = []
    World(program, scenario, seed=1, observe=lambda *one: told.append(one)).run()
    calls = sum(isinstance(event, CallArrived) for _, event, _ in told)
    record = CallRecord(
        id="1-1", agent="agent", provider="simulated", lane="default", model="claude-sonnet-4-5", status=200,
        rejected=False, reason=Reason.PROVIDER_CONCURRENCY, waited_ms=1_200, duration_ms=5_300, attempts=1,
        usage=Usage(input=3_000, output=500),
    )  # fmt: skip
    taken_ns = []
    for _ in range(repetitions):
        metrics = CallMetrics()
        began_ns = time.perf_counter_ns()
        for one in told:
            metrics.observe(*one)
        for _ in range(calls):
            metrics.over(record, program)
        taken_ns.append(time.perf_counter_ns() - began_ns)
        assert sum(metrics.calls.values()) == calls
    return min(taken_ns) / calls / 1e3


def table(taken: Mapping[tuple[str, int], Sequence[float]], size: int, read_ms: float, count_us: float) -> Table:
    """A row for each proxy: medians over the rounds, and the median of the ratios within each round."""
    rows, figures = [], []
    for name, title in KINDS.items():
        row: list[str] = [title]
        figure: dict[str, str | float] = {"kind": name}
        for clients in CLIENTS:
            own, base = taken[name, clients], taken["uncounted", clients]
            ratio = statistics.median(mine / plain for mine, plain in zip(own, base, strict=True))
            row += [f"{statistics.median(own):,.0f}", f"{ratio - 1:+.1%}" if name != "uncounted" else ""]
            figure |= {f"cpu_us_{clients}": round(statistics.median(own), 1), f"ratio_{clients}": round(ratio, 4)}
        rows.append(row)
        figures.append(figure)
    head = ["", *(cell for name in CLIENTS.values() for cell in (f"{name}: CPU per call, µs", "added"))]
    figures.append({"kind": "one reading", "cpu_ms": round(read_ms, 2), "bytes": size})
    least = min(statistics.median(taken["uncounted", clients]) for clients in CLIENTS)
    figures.append({"kind": "counting alone", "us_per_call": round(count_us, 2)})
    usual = read_ms / USUAL_S / 10
    notes = [
        f"The target is 5 % at most. One reading has {size:,} bytes and takes {read_ms:.1f} ms of CPU: "
        f"{usual:.2f} % of a core with one every {USUAL_S} s.",
        f"Counting alone, measured apart, takes {count_us:.1f} µs a call, {count_us / least:.1%} of the cheaper row: "
        "differences of the rows beyond that are noise. With `admin off` and no `metrics` there is none.",
    ]
    return Table(title="Cost of metrics", notes=notes, head=head, rows=rows, figures=figures)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.metrics", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--calls", type=int, default=1_000, help="in each turn")
    parser.add_argument("--seed", type=int, default=7, help="of the order of the turns")
    parser.add_argument("--smoke", action="store_true", help="small and quick; the figures mean nothing")
    parser.add_argument("--md", type=Path, metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    rounds, calls = (1, 40) if options.smoke else (options.rounds, options.calls)

    cores = sorted(os.sched_getaffinity(0))
    core, other = (cores[0], cores[1]) if len(cores) >= 2 else (None, None)
    if other is not None:
        os.sched_setaffinity(0, {other})
    try:
        with ExitStack() as stack:
            provider = stack.enter_context(spawned([sys.executable, "-m", "bench.load.provider"], other))
            upstream = f"http://127.0.0.1:{port_of(provider)}"
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hm-")))
            there, metrics_port = {}, free_port()
            for name in KINDS:
                policy, server = folder / f"{name}.hmp", ""
                if name == "read":
                    server = f'server {{ metrics "127.0.0.1:{metrics_port}" }}\n'
                elif name == "uncounted":
                    server = "server { admin off }\n"
                policy.write_text(POLICY.format(upstream=upstream, cap=4_000).replace("hmp 1\n", f"hmp 1\n{server}"))
                command = [sys.executable, "-c", SERVE, "serve", "--policy", f"{policy}"]
                command += ["--listen", "127.0.0.1:0", "--log-format", "json"]
                homes = {"XDG_STATE_HOME": f"{folder}", "XDG_RUNTIME_DIR": f"{folder}"}
                child = stack.enter_context(spawned(command, core, **homes))
                there[name] = Subject(name=name, port=served_port(child), process=child)
            with reading(metrics_port) as sizes:
                taken = trio.run(measure, there, rounds, calls, options.seed)
            read_ms = reading_ms(there["read"], metrics_port)
    finally:
        os.sched_setaffinity(0, set(cores))
    count_us = counting_us(2 if options.smoke else REPETITIONS)
    made = provenance(seed=options.seed, rounds=rounds, calls=calls)
    size = sizes[-1] if sizes else 0
    print(write([table(taken, size, read_ms, count_us)], made, title="Metrics", md=options.md, data=options.json))


if __name__ == "__main__":
    main()
