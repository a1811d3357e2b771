"""What does the proxy cost a call, and what beside others?

Budget (one call is 10 KB up and 1 KB down, 17 and 22 headers): CPU at most 0.5 ms with one client and 0.45 ms
saturated, 0.6 ms added to the median, 50 µs of CPU for each streamed event, 40 KB for each waiting call beside its
body, and no collapse: at the highest load offered, 95 % of the most calls that were ever answered.

Everything is up at once and measured by turns, in rounds and a drawn order; the median of the rounds is shown. Open
loads come once, on one subject after another. The proxy has a core to itself; the provider and the load share
another, and bound what a quick proxy can show in calls/s. CPU is the proxy process's own, Linux's. Python calls per
request hardly depend on the machine. Memory is measured once, in processes that have just been started. Nothing is
asserted about time.

    python -m bench.overhead [--peers FOLDER] [--rounds 3] [--md F.md] [--json F.json] [--svg F.svg]
    python -m bench.overhead --smoke      seconds; for the tests
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final, final

import attrs
import trio

from bench.load.bars import bars
from bench.load.bursts import MODELS as BURST_MODELS
from bench.load.bursts import ONE_STREAM, PLAIN, Figures, Size, bursts
from bench.load.load import Client
from bench.load.memory import FLOOD_MB, open_streams, unread_mb, waiting_kb
from bench.load.memory import MODELS as MEMORY_MODELS
from bench.load.subjects import Kind, Subject, direct, kinds, port_of, spawned
from bench.load.wire import request

from . import decision, language
from .tables import Table, provenance, write


@final
@attrs.frozen(kw_only=True)
class Held:
    """How much of memory is measured."""

    waiting: int
    many: int
    """Of ours alone, which has a queue for them."""
    streams: int
    streams_s: float
    unread_s: float
    counted: int
    warm: int
    """Calls before each of them."""


FULL: Final = Size(
    rounds=3, one=400, crowd=1500, slow=400, big=100, lonely_streams=8, streams=64,
    offered=(400, 800, 1600, 3200), offered_s=3.0,
)  # fmt: skip
SMOKE: Final = Size(
    rounds=1, one=20, crowd=100, slow=32, big=5, lonely_streams=1, streams=32, offered=(100, 200), offered_s=0.5
)
HELD: Final = Held(waiting=1_000, many=10_000, streams=500, streams_s=5.0, unread_s=6.0, counted=200, warm=250)
HELD_SMOKE: Final = Held(waiting=20, many=40, streams=10, streams_s=0.5, unread_s=0.5, counted=20, warm=10)

Row = tuple[str, str, str, float | None]
"""What, how it is printed, title, target."""


def rows(size: Size, held: Held) -> list[Row]:
    """The table's."""
    return [
        ("one_added_p50_us", ",.0f", "one client: added p50, µs", 600),
        ("one_added_p99_us", ",.0f", "one client: added p99, µs", None),
        ("one_cpu_us", ",.0f", "one client: CPU per call, µs", 500),
        ("crowd_per_second", ",.0f", "32 clients: calls/s", None),
        ("crowd_cpu_us", ",.0f", "32 clients: CPU per call, µs", 450),
        ("crowd_p99_ms", ",.1f", "32 clients: p99, ms", None),
        ("slow_added_p50_ms", ",.1f", "32 clients, provider 200 ms: added p50, ms", None),
        ("slow_added_p99_ms", ",.1f", "32 clients, provider 200 ms: added p99, ms", None),
        ("big_added_p50_us", ",.0f", "bodies of 300 KB, one client: added p50, µs", None),
        ("big_cpu_us", ",.0f", "bodies of 300 KB, one client: CPU per call, µs", None),
        ("stream_cpu_us", ",.0f", "stream of 50 events, one client: CPU per call, µs", None),
        ("event_cpu_us", ",.1f", "32 streams: CPU per event, µs", 50),
        ("first_byte_p95_ms", ",.1f", "32 streams of 50 x 20 ms: first byte p95, ms", None),
        *((f"open_{n}", ",.0f", f"{n} calls/s offered: answered in time, a second", None) for n in size.offered),
        *((f"open_{n}_p99_ms", ",.0f", f"{n} calls/s offered: p99 of these, ms", None) for n in size.offered),
        ("collapse", ".2f", "answered at the most that is offered, over the most answered", 0.95),
        ("waiting_kb", ",.1f", f"{held.waiting:,} waiting: memory for one beside its body, KB", 40),
        ("many_waiting_kb", ",.1f", f"{held.many:,} waiting: the same", 40),
        ("open_stream_kb", ",.1f", f"{held.streams} open streams: memory for one beside its body, KB", None),
        ("open_streams_cpu", ".0%", f"{held.streams} open streams, 2 events/s each: CPU, of a core", None),
        ("unread_mb", ",.1f", f"a client that does not read {FLOOD_MB} MB: memory grows by, MB", None),
        ("python_calls", ",.0f", "Python calls per request", None),
        ("c_calls", ",.0f", "C calls per request", None),
        ("failed", ",.0f", "failed calls (open loads not counted)", 0),
    ]


async def python_calls(subject: Subject, asked: bytes, calls: int) -> tuple[float, float]:
    """Python's and C's calls per request of one client over one connection."""
    assert subject.process is not None
    client = Client(subject.port)
    for _ in range(10):
        await client.call(asked)
    await trio.sleep(0.2)
    subject.process.send_signal(signal.SIGUSR1)
    await trio.sleep(0.2)
    for _ in range(calls):
        await client.call(asked)
    await trio.sleep(0.2)
    python, c = subject.counted()
    client.close()
    return python / calls, c / calls


def memory(kind: Kind, held: Held, *, queues: bool) -> tuple[dict[str, float], list[str]]:
    """What calls under way take of it, each case in a new process; and what went wrong.

    Args:
        queues: It has a queue for as many as one likes.
    """

    def waiting(subject: Subject) -> dict[str, float]:
        return {"waiting_kb": trio.run(waiting_kb, subject, held.waiting, held.warm)}

    def many(subject: Subject) -> dict[str, float]:
        return {"many_waiting_kb": trio.run(waiting_kb, subject, held.many, held.warm)}

    def streaming(subject: Subject) -> dict[str, float]:
        stream_kb, share = trio.run(open_streams, subject, held.streams, held.streams_s, held.warm)
        return {"open_stream_kb": stream_kb, "open_streams_cpu": share}

    def unread(subject: Subject) -> dict[str, float]:
        return {"unread_mb": trio.run(unread_mb, subject, held.unread_s, held.warm)}

    found: dict[str, float] = {}
    wrong = []
    for name, opened, case in (
        ("waiting calls", kind.open_queueing, waiting),
        ("open streams", kind.open, streaming),
        ("what is not read", kind.open, unread),
        *([(f"{held.many:,} waiting calls", kind.open_queueing, many)] if queues else []),
    ):
        try:
            with opened() as subject:
                found |= case(subject)
        except OSError as error:
            wrong.append(f"{name}: {error}")
    return found, wrong


def measure(
    there: Sequence[Kind], upstream: int, size: Size, held: Held, seed: int
) -> tuple[Figures, Mapping[str, str]]:
    """Everything; and what went wrong with whom."""
    own, wrong = there[0], dict[str, str]()
    with ExitStack() as stack:
        up = [direct(upstream)]
        for kind in there:
            try:
                up.append(stack.enter_context(kind.open()))
            except OSError as error:
                wrong[kind.name] = f"did not start: {error}"
        print("all are up", file=sys.stderr)
        figures = trio.run(bursts, up, size, seed)
        ours = figures[own.name]
        ours["python_calls"], ours["c_calls"] = trio.run(python_calls, up[1], request(PLAIN), held.counted)
        ours["stream_python_calls"], ours["stream_c_calls"] = trio.run(
            python_calls, up[1], request(ONE_STREAM), max(1, held.counted // 20)
        )
    for kind in there:
        if kind.name not in figures:
            continue
        found, failures = memory(kind, held, queues=kind is own)
        figures[kind.name] |= found
        if failures:
            wrong[kind.name] = "; ".join(failures)
        print(f"memory of {kind.name}", file=sys.stderr)
    return figures, wrong


def side_by_side(figures: Figures, size: Size, held: Held, notes: Sequence[str]) -> Table:
    """A row for each figure, the target beside it, a column for each subject."""
    names = list(figures)
    lines = []
    for key, form, title, target in rows(size, held):
        cells = [format(figures[name][key], form) if key in figures[name] else "–" for name in names]
        wanted = "" if target is None else f"{'≥' if key == 'collapse' else '≤'} {target:g}"
        lines.append([title, wanted, *cells])
    return Table(
        title="Side by side",
        notes=notes,
        head=["", "target", *names],
        rows=lines,
        figures=[{"subject": name, **{key: round(value, 4) for key, value in found.items()}}
                 for name, found in figures.items()],
    )  # fmt: skip


def alone(seed: int, *, smoke: bool) -> Table:
    """What has no counterpart elsewhere: decisions and checks, by the benches of their own."""
    decided = [
        decision.measure(name, waiting, rounds=200 if smoke else 4_000, seed=seed)
        for name in decision.POLICIES
        for waiting in (decision.WAITING[:1] if smoke else decision.WAITING)
    ]
    lines = (200,) if smoke else language.LINES
    texts = [("specific", number, language.policy("specific", number, Random(seed))) for number in lines]
    checked = language.measure(texts, 1 if smoke else 3)
    return Table(
        title="Decisions and checks",
        notes=["CPU, with the load's process idle; `bench.decision` and `bench.language` say more."],
        head=["what", "CPU"],
        rows=[
            *(
                [f"a decision, policy `{one.policy}`, {one.waiting:,} waiting", f"{one.decision_ns / 1e3:,.1f} µs"]
                for one in decided
            ),
            *([f"`check` of {one.lines:,} lines", f"{one.check_ns / 1e6:,.0f} ms"] for one in checked),
        ],
        figures=[*(one._asdict() for one in decided), *(one._asdict() for one in checked)],
    )


def chart(figures: Figures, size: Size, title: str) -> str:
    """What is most asked for, as bars."""
    most = size.offered[-1]
    shown = [
        ("one client: CPU per call, µs", ",.0f", "one_cpu_us"),
        ("32 clients: calls/s (the load itself is the bound of `direct` and nginx)", ",.0f", "crowd_per_second"),
        ("32 streams: CPU per event, µs", ",.1f", "event_cpu_us"),
        (f"{most:,} calls/s offered: answered in time, a second", ",.0f", f"open_{most}"),
        ("memory for a waiting call beside its body, KB", ",.0f", "waiting_kb"),
        ("a client that does not read: memory grows by, MB", ",.0f", "unread_mb"),
    ]
    panels = [
        (name, form, {subject: found[key] for subject, found in figures.items() if key in found})
        for name, form, key in shown
    ]
    return bars(panels, title=title, ours="hivemind-trio")


def cpu_model() -> str:
    """As the kernel calls it; empty: it does not."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "")


def notes_of(absent: Mapping[str, str], *, pinned: bool) -> list[str]:
    """What is to be known before reading the table."""
    said = [
        "CPU is the subject's own process and the figure to trust first. `waiting`: behind ours the calls wait for the "
        "only slot; the others have no waiting room and hold the calls upstream. hivemind-scheduler runs with its "
        "limit of 60 calls a minute lifted and logs warnings only; LiteLLM has one worker, no database, no key, no "
        "retries, no cooldowns and logs errors only; Portkey's gateway has no console, and that server of Hono's which "
        "it still streams with; nginx has one worker, buffers no answer and logs nothing. –: not measured, or no call "
        "was answered.",
    ]
    if not pinned:
        said.append("Not pinned: there was one core, and everybody shared it.")
    return [*said, *(f"Absent: {name}: {why}." for name, why in absent.items())]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.overhead", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="where `bench.peers` has installed the others")
    parser.add_argument("--rounds", type=int, help=f"default: {FULL.rounds}")
    parser.add_argument("--seed", type=int, default=7, help="of the order of the turns")
    parser.add_argument("--smoke", action="store_true", help="small and quick; the figures mean nothing")
    parser.add_argument("--md", type=Path, metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--svg", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    size, held = (SMOKE, HELD_SMOKE) if options.smoke else (FULL, HELD)
    if options.rounds:
        size = attrs.evolve(size, rounds=options.rounds)

    cores = sorted(os.sched_getaffinity(0))
    pinned = len(cores) >= 2
    if pinned:
        os.sched_setaffinity(0, {cores[1]})
    core = cores[0] if pinned else None
    models = dict.fromkeys((*BURST_MODELS, *MEMORY_MODELS))
    try:
        with spawned([sys.executable, "-m", "bench.load.provider"], cores[1] if pinned else None) as provider:
            upstream = port_of(provider)
            there, absent = kinds(upstream, core, peers=options.peers, models=list(models))
            if options.smoke:
                there, absent = there[:1], {kind.name: "not in the small run" for kind in there[1:]} | dict(absent)
            figures, wrong = measure(there, upstream, size, held, options.seed)
        decisions = alone(options.seed, smoke=options.smoke)
    finally:
        if pinned:
            os.sched_setaffinity(0, set(cores))

    made = provenance(cpu=cpu_model(), seed=options.seed, rounds=size.rounds)
    made["versions"] |= {kind.name: kind.version for kind in there[1:]}
    tables = [side_by_side(figures, size, held, notes_of({**absent, **wrong}, pinned=pinned)), decisions]
    print(write(tables, made, title="Overhead", md=options.md, data=options.json))
    if options.svg:
        options.svg.parent.mkdir(parents=True, exist_ok=True)
        options.svg.write_text(chart(figures, size, f"Overhead, {made['date']}"), "utf-8")


if __name__ == "__main__":
    main()
