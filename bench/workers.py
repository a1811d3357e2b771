"""CPU of several workers, and how evenly they share the calls.

Targets: with two workers the CPU of a call, that of all processes together, is at most 1.15 times that of two processes
that share nothing; the calls are split no worse than 60 : 40, streams included.

Measured are one process, two that share nothing and each get half of the connections, and `serve --workers 2`, all with
the same policy, state and journal, as users start them. Two processes that share nothing already cost more than one: a
process with half of the connections finds fewer of them ready at each turn of its event loop. What they cost is the
least that any arrangement of two processes can.

All run all the time and are measured in turn, in a random order. CPU is that of the processes and their children. The
split is that of the calls in the journal, which has a session for each worker: the median over the rounds, and the
worst of them. Every turn opens its connections anew.

Throughput is not measured: on two cores that also run the load and the provider it says little.

    python -m bench.workers [--rounds 8] [--md F.md] [--json F.json]      about five minutes
    python -m bench.workers --smoke      seconds; for the tests
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from enum import Enum
from pathlib import Path
from random import Random
from typing import Final, final

import attrs
import trio

from bench.load.bursts import PLAIN
from bench.load.load import closed_loop
from bench.load.subjects import port_of, spawned
from bench.load.wire import Answer, request

from .tables import Table, provenance, write

TARGET_CPU: Final = 1.15
TARGET_SPLIT: Final = 0.6


@final
@attrs.frozen(kw_only=True)
class Load:
    """A kind of calls."""

    name: str
    model: str
    clients: int
    calls: int


LOADS: Final = (
    Load(name="whole answers, 32 connections", model=PLAIN, clients=32, calls=1_000),
    Load(name="whole answers, 8 connections", model=PLAIN, clients=8, calls=600),
    Load(name="streams of 40 events, 16 connections", model=Answer.STREAM.model(40, 2), clients=16, calls=200),
)


@final
@attrs.frozen(kw_only=True, eq=False)
class Served:
    """A proxy that runs, with all of its processes."""

    port: int
    process: subprocess.Popen[str]
    journal: Path

    def cpu_ns(self) -> int:
        """Return the CPU time of all its processes so far."""
        return sum(time.clock_gettime_ns((~pid << 3) | 2) for pid in self.pids())

    def pids(self) -> list[int]:
        """Return its processes."""
        pid = self.process.pid
        # A child is listed with the thread that started it, and trio starts processes in threads.
        listed = [file.read_text().split() for file in Path(f"/proc/{pid}/task").glob("*/children")]
        return [pid, *(int(child) for children in listed for child in children)]

    def calls(self) -> Counter[int]:
        """Return how many calls each session has recorded."""
        with closing(sqlite3.connect(f"file:{self.journal}?mode=ro", uri=True)) as database:
            return Counter(dict(database.execute("SELECT session, count(*) FROM calls GROUP BY session")))


@contextmanager
def served(folder: Path, upstream: str, workers: int) -> Iterator[Served]:
    """Start a proxy as users do, with its state in an empty folder, and end it on the way out."""
    folder.mkdir()
    policy = folder / "bench.hmp"
    policy.write_text(f'hmp 1\nprovider bench {{ api generic; base "{upstream}"; concurrency 4000 }}\n')
    journal = policy.with_suffix(".journal")
    command = [
        *(sys.executable, "-m", "hivemind_trio", "serve", "--policy", str(policy), "--listen", "127.0.0.1:0"),
        *("--workers", str(workers), "--journal", str(journal), "--log-format", "json"),
    ]
    places = {"XDG_STATE_HOME": str(policy.parent), "XDG_RUNTIME_DIR": str(policy.parent)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **places})
    try:
        assert process.stderr is not None
        for line in process.stderr:
            event = json.loads(line)
            if event["event"] == "serving":
                break
        else:
            raise OSError(f"{command!r} ended with status {process.wait()}")
        one = Served(port=int(event["address"].rpartition(":")[2]), process=process, journal=journal)
        assert len(one.pids()) == (1 if workers == 1 else 1 + workers), "CPU of every process counts"
        yield one
    finally:
        process.terminate()
        process.communicate()


class Arrangement(Enum):
    """How the calls are served."""

    ONE = "one process"
    APART = "two that share nothing"
    WORKERS = "two workers"


Proxies = Mapping[Arrangement, Sequence[Served]]


@final
@attrs.frozen
class Turn:
    """One load on one arrangement."""

    cpu_us: float
    largest: float
    """Share of the calls of the process that had most of them."""


async def loaded(proxies: Sequence[Served], load: Load, calls: int) -> Turn:
    """Have the proxies serve equal parts of a load, at the same time; return what it took."""
    await trio.sleep(0.3)  # the journal gathers rows for 0.1 s
    before = [one.calls() for one in proxies]
    began_ns = sum(one.cpu_ns() for one in proxies)
    parts = len(proxies)

    async def part(one: Served) -> None:
        sample = await closed_loop(
            one.port, request(load.model), clients=load.clients // parts, calls=max(calls, 2 * parts) // parts
        )
        assert not sample.failed

    async with trio.open_nursery() as nursery:
        for one in proxies:
            nursery.start_soon(part, one)
    await trio.sleep(0.3)
    cpu_ns = sum(one.cpu_ns() for one in proxies) - began_ns
    served = [n for one, old in zip(proxies, before, strict=True) for n in (one.calls() - old).values()]
    return Turn(cpu_ns / sum(served) / 1e3, max(served) / sum(served))


async def measure(there: Proxies, rounds: int, part: float, seed: int) -> dict[tuple[Arrangement, str], list[Turn]]:
    """Return (arrangement, load) -> what it took, of each round.

    Args:
        part: Of the calls of each load.
    """
    chance = Random(seed)
    taken: dict[tuple[Arrangement, str], list[Turn]] = defaultdict(list)
    for proxies in there.values():
        await loaded(proxies, LOADS[0], round(300 * part))
    for number in range(rounds):
        turns = [(arrangement, load) for load in LOADS for arrangement in there]
        chance.shuffle(turns)
        for arrangement, load in turns:
            taken[arrangement, load.name].append(await loaded(there[arrangement], load, round(load.calls * part)))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return taken


def table(taken: Mapping[tuple[Arrangement, str], Sequence[Turn]]) -> Table:
    """Return a row for each load: medians over the rounds, and the medians of the ratios within each round."""
    rows, figures = [], []
    for load in LOADS:
        one, apart, two = (taken[arrangement, load.name] for arrangement in Arrangement)
        to_apart, to_one = _ratio(two, apart), _ratio(two, one)
        split = statistics.median(turn.largest for turn in two)
        worst = max(turn.largest for turn in two)
        cpu = [statistics.median(turn.cpu_us for turn in turns) for turns in (one, apart, two)]
        ratios = [f"{to_apart:.2f}", f"{to_one:.2f}"]
        rows.append([load.name, *(f"{us:,.0f}" for us in cpu), *ratios, _split(split), _split(worst)])
        figures.append(
            {
                "load": load.name,
                "cpu_us_one": round(cpu[0], 1),
                "cpu_us_apart": round(cpu[1], 1),
                "cpu_us_two": round(cpu[2], 1),
                "ratio_to_apart": round(to_apart, 4),
                "ratio_to_one": round(to_one, 4),
                "largest": round(split, 4),
                "largest_worst": round(worst, 4),
            }
        )
    targets = f"workers beside two processes that share nothing at most {TARGET_CPU}"
    return Table(
        title="CPU of a call, in µs",
        notes=[f"Targets: {targets}, split no worse than {_split(TARGET_SPLIT)}."],
        head=["load", *(one.value for one in Arrangement), "beside apart", "beside one", "split of calls", "worst"],
        rows=rows,
        figures=figures,
    )


def _ratio(turns: Sequence[Turn], others: Sequence[Turn]) -> float:
    return statistics.median(turn.cpu_us / other.cpu_us for turn, other in zip(turns, others, strict=True))


def _split(largest: float) -> str:
    return f"{largest:.0%}".rstrip("%") + " : " + f"{1 - largest:.0%}".rstrip("%")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.workers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seed", type=int, default=7, help="of the order of the turns")
    parser.add_argument("--smoke", action="store_true", help="small and quick; the figures mean nothing")
    parser.add_argument("--md", type=Path, metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    rounds, part = (1, 0.04) if options.smoke else (options.rounds, 1.0)
    with ExitStack() as stack:
        provider = stack.enter_context(spawned([sys.executable, "-m", "bench.load.provider"], None))
        upstream = f"http://127.0.0.1:{port_of(provider)}"
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def start(name: str, workers: int) -> Served:
            return stack.enter_context(served(folder / name, upstream, workers))

        there = {
            Arrangement.ONE: [start("one", 1)],
            Arrangement.APART: [start("left", 1), start("right", 1)],
            Arrangement.WORKERS: [start("workers", 2)],
        }
        taken = trio.run(measure, there, rounds, part, options.seed)
    made = provenance(seed=options.seed, rounds=rounds)
    print(write([table(taken)], made, title="Workers", md=options.md, data=options.json))


if __name__ == "__main__":
    main()
