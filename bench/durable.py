"""How much CPU of a call do state and journal cost, how large is the journal, and how fast is it asked?

Budget: at most 10 % of the CPU of a call that keeps nothing, and 1 KB of journal a call. The same proxy with the same
policy three times, each in a process of its own on one core: with a budget in memory; with the budget in the state
file; with the journal beside it, as `serve` has it by default. All run all the time and are measured in turn, in a
random order; CPU is that of all threads of the process.

`explain` of one call in a journal of a million calls: at most 100 ms beside the start of the command. The journal is
the one of the run, its rows repeated.

    python -m bench.durable [--rounds 8] [--md F.md] [--json F.json]      about a minute
    python -m bench.durable --smoke      seconds; for the tests
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import trio

from bench.load.bursts import PLAIN
from bench.load.load import closed_loop
from bench.load.subjects import Subject, port_of, spawned
from bench.load.wire import request
from hivemind_trio.store import questioned, story_named, usage_by

from .tables import Table, provenance, write

KEPT: Final = {
    "nothing": "budget in memory",
    "state": "budget in the state file",
    "journal": "budget in the state file, and journal",
}
CLIENTS: Final = {1: "one client", 32: "32 clients"}
WARM_CALLS: Final = 300


async def measure(
    there: Mapping[str, Subject], rounds: int, calls: int, seed: int
) -> dict[tuple[str, int], list[float]]:
    """Return (subject, clients) -> CPU µs of a call, of each round."""
    chance = Random(seed)
    asked = request(PLAIN)
    taken: dict[tuple[str, int], list[float]] = defaultdict(list)
    for subject in there.values():
        await closed_loop(subject.port, asked, clients=32, calls=min(calls, WARM_CALLS))
    for number in range(rounds):
        turns = [(name, clients) for clients in CLIENTS for name in there]
        chance.shuffle(turns)
        for name, clients in turns:
            subject = there[name]
            began_ns = subject.cpu_ns()
            sample = await closed_loop(subject.port, asked, clients=clients, calls=calls)
            assert not sample.failed
            await trio.sleep(0.3)  # the writer gathers rows for 0.1 s
            taken[name, clients].append((subject.cpu_ns() - began_ns) / sample.calls / 1e3)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return taken


def journal_bytes(path: Path) -> float:
    """Return the bytes of the journal for each call in it."""
    with closing(sqlite3.connect(path)) as database:
        (calls,) = database.execute("SELECT count(*) FROM calls").fetchone()
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    return float(pages * size / calls)


def grow(path: Path, calls: int) -> int:
    """Repeat the calls of a journal under new numbers, about so many times that it has `calls`; return how many."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA synchronous = OFF")
        most, last_ns = database.execute("SELECT max(call), max(at_ns) FROM calls").fetchone()
        copies = max(0, calls // most - 1)
        for table in ("calls", "grants", "ends", "answers"):
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            moved = {
                "call": f"t.call + n.n * {most}",
                "at_ns": f"t.at_ns + n.n * {last_ns}",
                "wall_ns": f"t.wall_ns + n.n * {last_ns}",
                "name": "t.name || '-' || n.n",
            }
            database.execute(
                f"INSERT INTO {table} WITH RECURSIVE n(n) AS (SELECT 1 WHERE {copies} > 0 UNION ALL "
                f"SELECT n + 1 FROM n WHERE n < {copies}) "
                f"SELECT {', '.join(moved.get(name, f't.{name}') for name in columns)} FROM n, {table} AS t"
            )
        database.commit()
        (there,) = database.execute("SELECT count(*) FROM calls").fetchone()
    return int(there)


def asked(path: Path, chance: Random) -> dict[str, float]:
    """Return question -> ms: the first one, on a file that nobody has open, and the median of further ones."""
    with closing(sqlite3.connect(path)) as database:
        (last,) = database.execute("SELECT max(rowid) FROM answers").fetchone()
        rows = [chance.randint(1, last) for _ in range(200)]
        names = [
            str(name)
            for row in rows
            for (name,) in database.execute("SELECT name FROM answers WHERE rowid = ? AND call IS NOT NULL", (row,))
        ]
    took_ms = []
    for name in names:
        began_s = time.perf_counter()
        story = questioned(str(path), partial(story_named, name=name))
        took_ms.append((time.perf_counter() - began_s) * 1e3)
        assert story is not None
    began_s = time.perf_counter()
    questioned(str(path), partial(usage_by, key="agent", since_ns=None, until_ns=None))
    return {
        "explain, first": took_ms[0],
        "explain, median": statistics.median(took_ms),
        "explain, worst": max(took_ms),
        "usage": (time.perf_counter() - began_s) * 1e3,
    }


def table(taken: Mapping[tuple[str, int], Sequence[float]], bytes_: float) -> Table:
    """A row for each subject: medians over the rounds, and the median of the ratios within each round."""
    rows, figures = [], []
    for name, title in KEPT.items():
        row: list[str] = [title]
        figure: dict[str, str | float] = {"kept": name}
        for clients in CLIENTS:
            own, base = taken[name, clients], taken["nothing", clients]
            ratio = statistics.median(mine / plain for mine, plain in zip(own, base, strict=True))
            row += [f"{statistics.median(own):,.0f}", f"{ratio - 1:+.1%}" if name != "nothing" else ""]
            figure |= {f"cpu_us_{clients}": round(statistics.median(own), 1), f"ratio_{clients}": round(ratio, 4)}
        rows.append(row)
        figures.append(figure)
    figures.append({"kept": "journal", "bytes_per_call": round(bytes_)})
    head = ["", *(cell for name in CLIENTS.values() for cell in (f"{name}: CPU per call, µs", "added"))]
    return Table(
        title="State and journal",
        notes=[f"The journal takes {bytes_:,.0f} bytes a call, indexes included (target 1,000)."],
        head=head,
        rows=rows,
        figures=figures,
    )


def asked_table(path: Path, calls: int, seed: int) -> Table:
    """A row for each question to a journal of about so many calls."""
    there = grow(path, calls)
    found = asked(path, Random(seed))
    return Table(
        title=f"Questions to a journal of {there:,} calls",
        notes=["Without the start of the command. The target is 100 ms for `explain`."],
        head=["question", "ms"],
        rows=[[name, f"{took_ms:,.1f}"] for name, took_ms in found.items()],
        figures=[{"question": name, "ms": round(took_ms, 2)} for name, took_ms in found.items()],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.durable", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--calls", type=int, default=1_000, help="in each turn")
    parser.add_argument("--journal", type=int, default=1_000_000, help="calls in the journal that is asked")
    parser.add_argument("--seed", type=int, default=7, help="of the order of the turns")
    parser.add_argument("--smoke", action="store_true", help="small and quick; the figures mean nothing")
    parser.add_argument("--md", type=Path, metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    rounds, calls = (1, 40) if options.smoke else (options.rounds, options.calls)

    cores = sorted(os.sched_getaffinity(0))
    pinned = len(cores) >= 2
    core, other = (cores[0], cores[1]) if pinned else (None, None)
    if other is not None:
        os.sched_setaffinity(0, {other})
    try:
        with ExitStack() as stack:
            provider = stack.enter_context(spawned([sys.executable, "-m", "bench.load.provider"], other))
            upstream = f"http://127.0.0.1:{port_of(provider)}"
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            there, children = {}, {}
            for name in KEPT:
                own = folder / name
                own.mkdir()
                command = [sys.executable, "-m", "bench.load.proxy", upstream, "4000", name, str(own)]
                child = children[name] = stack.enter_context(spawned(command, core))
                there[name] = Subject(name=name, port=port_of(child), process=child)
            taken = trio.run(measure, there, rounds, calls, options.seed)
            path = folder / "journal" / "bench.journal"
            bytes_ = journal_bytes(path)
            children["journal"].kill()
            children["journal"].wait()
            questions = asked_table(path, 1_000 if options.smoke else options.journal, options.seed)
    finally:
        os.sched_setaffinity(0, set(cores))
    made = provenance(seed=options.seed, rounds=rounds, calls=calls)
    print(write([table(taken, bytes_), questions], made, title="Durable state", md=options.md, data=options.json))


if __name__ == "__main__":
    main()
