"""What does the proxy cost a call, and what beside others?

Budget (one call is 10 KB up and 1 KB down, 17 and 22 headers): CPU at most 0.5 ms with one client and 0.45 ms
saturated, 0.6 ms added to the median, 50 µs of CPU for each streamed event, 40 KB for each waiting call beside its
body, and no collapse: twice the clients get at least 95 % of the calls.

Everything is up at once and measured by turns, in rounds and a drawn order; the median of the rounds is shown. The
proxy has a core to itself; the provider and the load share another, and bound what a quick proxy can show in calls/s.
CPU is the proxy process's own, from /proc, hence Linux. Nothing is asserted about time. Python calls per request hardly
depend on the machine.

    python -m bench.overhead [--hivemind PYTHON] [--rounds 5] [--out FILE.json]
    python -m bench.overhead --smoke      seconds; for the tests
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any, Final, final

import attrs
import trio

from ._load import Client, Sample, closed_loop
from ._subjects import Subject, ours, port_of, spawned, subjects
from ._wire import BODY_BYTES, HOLD, request

Figures = dict[str, dict[str, float]]
"""Subject -> what -> figure."""


@final
@attrs.frozen(kw_only=True)
class Case:
    """One burst of calls."""

    name: str
    request: bytes
    clients: int
    calls: int


@final
@attrs.frozen(kw_only=True)
class Size:
    """How much is measured."""

    rounds: int
    one: int
    """Calls of the single client."""
    crowd: int
    """Calls of 64 and of 128 clients."""
    streams: int
    waiting: int
    counted: int


FULL: Final = Size(rounds=5, one=600, crowd=2000, streams=160, waiting=1000, counted=200)
SMOKE: Final = Size(rounds=1, one=20, crowd=130, streams=16, waiting=20, counted=20)

ROWS: Final[Sequence[tuple[str, str, str, float | None]]] = [
    # what, how it is printed, title, target
    ("one_added_p50_us", ",.0f", "one client: added p50, µs", 600),
    ("one_added_p99_us", ",.0f", "one client: added p99, µs", None),
    ("one_cpu_us", ",.0f", "one client: CPU per call, µs", 500),
    ("crowd_cpu_us", ",.0f", "64 clients: CPU per call, µs", 450),
    ("crowd_per_second", ",.0f", "64 clients: calls/s", None),
    ("crowd_p50_ms", ",.1f", "64 clients: p50, ms", None),
    ("crowd_p99_ms", ",.1f", "64 clients: p99, ms", None),
    ("collapse", ".2f", "128 clients: calls/s over those of 64", 0.95),
    ("event_cpu_us", ",.1f", "16 streams: CPU per event, µs", 50),
    ("first_byte_p99_ms", ",.1f", "16 streams: first byte p99, ms", None),
    ("waiting_kb", ",.1f", "waiting call, beside its body, KB", 40),
    ("python_calls", ",.0f", "Python calls per request", None),
    ("c_calls", ",.0f", "C calls per request", None),
    ("failed", ",.0f", "failed calls", 0),
]


def percentile(values: Sequence[float], share: float) -> float:
    """By rank; 0 of nothing."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))] if ranked else 0.0


def cases(size: Size) -> list[Case]:
    """What every subject is put through in every round."""
    plain = request("bench-json")
    return [
        Case(name="one", request=plain, clients=1, calls=size.one),
        Case(name="crowd", request=plain, clients=64, calls=size.crowd),
        Case(name="twice", request=plain, clients=128, calls=size.crowd),
        *(
            Case(name=f"stream-{events}", request=request(f"bench-stream-{events}", stream=True), clients=16,
                 calls=size.streams)
            for events in (10, 60)
        ),
    ]  # fmt: skip


async def rounds(there: Sequence[Subject], size: Size, seed: int) -> Figures:
    """All cases on all subjects, by turns."""
    chance = Random(seed)
    taken: dict[tuple[str, str], list[tuple[Sample, float]]] = defaultdict(list)
    for number in range(size.rounds):
        turns = [(case, subject) for case in cases(size) for subject in there]
        chance.shuffle(turns)
        for case, subject in turns:
            cpu_ns = subject.cpu_ns()
            sample = await closed_loop(subject.port, case.request, clients=case.clients, calls=case.calls)
            # The calls that open the connections are part of what the process worked for.
            per_call_ns = (subject.cpu_ns() - cpu_ns) / (sample.calls + sample.failed + case.clients)
            taken[subject.name, case.name].append((sample, per_call_ns))
        print(f"round {number + 1} of {size.rounds}", file=sys.stderr)
    return {subject.name: _figures(subject, there[0], taken) for subject in there}


def _figures(
    subject: Subject, direct: Subject, taken: Mapping[tuple[str, str], Sequence[tuple[Sample, float]]]
) -> dict[str, float]:
    def over_rounds(name: str, case: str, figure: Callable[[Sample, float], float]) -> float:
        return statistics.median(figure(sample, cpu_ns) for sample, cpu_ns in taken[name, case])

    def at(share: float, unit_ns: float) -> Callable[[Sample, float], float]:
        return lambda sample, _cpu: percentile(sample.latency_ns, share) / unit_ns

    def cpu_us(case: str) -> float:
        return over_rounds(subject.name, case, lambda _sample, cpu_ns: cpu_ns / 1e3)

    def per_second(case: str) -> float:
        return over_rounds(subject.name, case, lambda sample, _cpu: sample.per_second)

    mine = subject.name
    figures = {
        "one_p50_us": over_rounds(mine, "one", at(0.5, 1e3)),
        "crowd_per_second": per_second("crowd"),
        "crowd_p50_ms": over_rounds(mine, "crowd", at(0.5, 1e6)),
        "crowd_p99_ms": over_rounds(mine, "crowd", at(0.99, 1e6)),
        "collapse": per_second("twice") / per_second("crowd"),
        "first_byte_p99_ms": over_rounds(mine, "stream-60", lambda s, _cpu: percentile(s.first_byte_ns, 0.99) / 1e6),
        "failed": float(sum(s.failed for (name, _), all_ in taken.items() if name == mine for s, _ in all_)),
    }
    if subject.process is not None:
        for row, share in (("one_added_p50_us", 0.5), ("one_added_p99_us", 0.99)):
            figures[row] = over_rounds(mine, "one", at(share, 1e3)) - over_rounds(direct.name, "one", at(share, 1e3))
        figures["one_cpu_us"] = cpu_us("one")
        figures["crowd_cpu_us"] = cpu_us("crowd")
        figures["event_cpu_us"] = (cpu_us("stream-60") - cpu_us("stream-10")) / 50
    return figures


async def waiting_kb(subject: Subject, size: Size) -> float:
    """Resident memory that one more waiting call takes, its body not counted.

    Behind our proxy, whose only slot is taken, the calls wait; the others have no waiting room, and send them all on.
    """
    held = request(HOLD)
    for _ in range(5):  # more than one burst, so that what grows once has grown
        await closed_loop(subject.port, request("bench-json"), clients=1, calls=50)
    async with trio.open_nursery() as nursery:
        crowd = [Client(subject.port) for _ in range(size.waiting + 1)]
        nursery.start_soon(crowd[0].call, held)
        await trio.sleep(0.5)
        before = subject.resident_bytes()
        for number, client in enumerate(crowd[1:]):
            nursery.start_soon(client.call, held)
            if number % 20 == 19:
                await trio.sleep(0.05)
        # It has settled when it has stood still for a while.
        steady = 0
        after = subject.resident_bytes()
        for _ in range(100):
            await trio.sleep(0.1)
            now = subject.resident_bytes()
            steady = steady + 1 if abs(now - after) < 65536 else 0
            after = now
            if steady == 10:
                break
        nursery.cancel_scope.cancel()
    for client in crowd:
        client.close()
    return ((after - before) / size.waiting - BODY_BYTES) / 1e3


async def python_calls(subject: Subject, size: Size) -> tuple[float, float]:
    """Python's and C's calls per request of one client over one connection."""
    assert subject.process is not None
    client, plain = Client(subject.port), request("bench-json")
    for _ in range(20):
        await client.call(plain)
    await trio.sleep(0.2)
    subject.process.send_signal(signal.SIGUSR1)
    await trio.sleep(0.2)
    for _ in range(size.counted):
        await client.call(plain)
    await trio.sleep(0.2)
    python, c = subject.counted()
    client.close()
    return python / size.counted, c / size.counted


async def measure(upstream: int, core: int | None, size: Size, seed: int, hivemind: str | None) -> tuple[Figures, Any]:
    """Everything; the figures, and why some subjects are missing."""
    with subjects(upstream, core, hivemind_python=hivemind) as (there, absent):
        figures = await rounds(there, size, seed)
        own = next(subject for subject in there if subject.name == "hivemind-trio")
        python, c = await python_calls(own, size)
        figures[own.name] |= {"python_calls": python, "c_calls": c}
        for subject in there:
            if subject.process is not None and subject is not own:
                figures[subject.name]["waiting_kb"] = await waiting_kb(subject, size)
    with ours(upstream, core, cap=1) as capped:
        figures[own.name]["waiting_kb"] = await waiting_kb(capped, size)
    return figures, absent


def machine() -> dict[str, str]:
    """What the figures depend on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        named = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = named[0].partition(":")[2].strip() if named else model
    packages = ("hivemind-trio", "trio", "hypercorn", "h11", "httpx2")
    found = {"cpu": f"{model}, {os.cpu_count()} cores", "python": platform.python_version()}
    found |= {name: version(name) for name in packages}
    if nginx := shutil.which("nginx"):
        said = subprocess.run([nginx, "-v"], capture_output=True, text=True, check=False).stderr
        found["nginx"] = said.strip().rpartition("/")[2]
    return found


def markdown(figures: Figures, absent: Mapping[str, str]) -> str:
    """The table: a row for each figure, the target beside it, a column for each subject."""
    names = list(figures)
    lines = ["| | target | " + " | ".join(names) + " |", "|---|---:|" + "---:|" * len(names)]
    for key, form, title, target in ROWS:
        cells = [format(figures[name][key], form) if key in figures[name] else "–" for name in names]
        wanted = "" if target is None else f"{'≥' if key == 'collapse' else '≤'} {target:g}"
        lines.append(f"| {title} | {wanted} | " + " | ".join(cells) + " |")
    lines += [f"\nAbsent: {name}: {why}." for name, why in absent.items()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--hivemind", metavar="PYTHON", help="of an environment with hivemind-scheduler (bench/peers.py)"
    )
    parser.add_argument("--rounds", type=int, help=f"default: {FULL.rounds}")
    parser.add_argument("--seed", type=int, default=7, help="of the order of the turns")
    parser.add_argument("--smoke", action="store_true", help="small and quick; the figures mean nothing")
    parser.add_argument("--out", type=Path, help="write the figures there as JSON")
    options = parser.parse_args(arguments)
    size = SMOKE if options.smoke else FULL
    if options.rounds:
        size = attrs.evolve(size, rounds=options.rounds)

    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    pinned = len(cores) >= 2
    if pinned:
        os.sched_setaffinity(0, {cores[1]})
    try:
        with ExitStack() as stack:
            provider = stack.enter_context(
                spawned([sys.executable, "-m", "bench._provider"], cores[1] if pinned else None)
            )
            core = cores[0] if pinned else None
            figures, absent = trio.run(measure, port_of(provider), core, size, options.seed, options.hivemind)
    finally:
        if pinned:
            os.sched_setaffinity(0, set(cores))
    said = {
        "date": datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d"),
        "seed": options.seed,
        "size": attrs.asdict(size),
        "smoke": options.smoke,
        "pinned": pinned,
        "machine": machine(),
        "figures": figures,
        "absent": dict(absent),
    }
    print(markdown(figures, absent))
    where = ", ".join(f"{name} {what}" for name, what in machine().items())
    print(f"\n{said['date']}, seed {options.seed}, {size.rounds} rounds; {where}{'' if pinned else '; not pinned'}")
    if options.out:
        options.out.write_text(json.dumps(said, indent=2) + "\n")


if __name__ == "__main__":
    main()
