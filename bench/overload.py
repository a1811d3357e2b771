"""Does the proxy still serve, and tell the others, when its own CPU is what is short?

Budget: at five times the rate that it can sustain, goodput is at least 95 % of the best at any rate; no call is closed
without a byte, and none waits in vain for the 10 s of its client's patience.

- Cost: a call that is served and one that is refused, by turns in slices of a tenth of a second, so that what else the
  machine does disturbs both alike. With `r` their ratio, a saturated process that is offered `n` times what it could
  serve serves (1 - n r) / (1 - r) of that.
- Fates: the proxy has 15 % of a core: it is stopped for the rest of each 100 ms, by the CPU time that it has used.
  Goodput is per second of that CPU, and of every call from the first to the last: of the hundreds that an overload has
  in progress, more or fewer may end within any part of the time. On a busy machine a second of CPU does not always do
  as much: compare the counts.

Callers open a connection for each call, or keep theirs as SDKs do; neither kind heeds `retry-after`. Nothing is
asserted about time.

    python -m bench.overload [--before CHECKOUT] [--seconds 8] [--rounds 3] [--md F.md] [--json F.json]
    python -m bench.overload --smoke      seconds; for the tests
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import attrs
import trio

from bench.door import asked
from bench.load.subjects import Subject, port_of, spawned
from bench.load.wire import body_length, request

from .tables import Table, provenance, write

HERE: Final = Path(__file__).parents[1]
SHARE: Final = 0.15
PERIOD_S: Final = 0.1
PATIENCE_S: Final = 10.0
RATES: Final = (1.0, 2.0, 5.0)
FARED: Final = {
    "told": "told 503",
    "closed": "closed without a byte",
    "waited in vain": "waited 10 s",
    "other": "other",
}
CALL: Final = request("bench-json", authority="127.0.0.1")
LARGE: Final = request("bench-json", authority="127.0.0.1", body_bytes=200_000)
KINDS: Final = {
    "a connection for each call": (CALL, False),
    "connections are kept": (CALL, True),
    "a connection for each call, 200 kB": (LARGE, False),
}
AT_ONCE: Final = 50


@contextmanager
def throttled(subject: Subject) -> Iterator[None]:
    """Give the process a share of a core, as a container's quota does."""
    assert subject.process is not None
    child, over = subject.process, threading.Event()

    def run() -> None:
        while not over.is_set():
            ends_s, until_ns = time.perf_counter() + PERIOD_S, subject.cpu_ns() + SHARE * PERIOD_S * 1e9
            child.send_signal(signal.SIGCONT)
            while time.perf_counter() < ends_s and subject.cpu_ns() < until_ns:
                time.sleep(0.001)
            child.send_signal(signal.SIGSTOP)
            time.sleep(max(0.0, ends_s - time.perf_counter()))
        child.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@attrs.define(eq=False)
class Crowd:
    """Callers who come evenly, whatever became of those before them."""

    port: int
    keeps: bool
    """Connections are kept for the next call, as SDKs do, unless the proxy closes them."""
    call: bytes = CALL
    came: Counter[str] = attrs.field(factory=Counter)
    took_s: list[float] = attrs.field(factory=list)
    """Time of each call that was served."""
    _pool: list[trio.SocketStream] = attrs.field(factory=list)

    async def one(self) -> None:
        """A call, and what became of it."""
        began_s = trio.current_time()
        with trio.move_on_after(PATIENCE_S) as patience:
            heard, stream = b"", self._pool.pop() if self._pool else None
            try:
                stream = stream or await trio.open_tcp_stream("127.0.0.1", self.port)
                await stream.send_all(self.call)
                while not is_whole(heard) and (piece := await stream.receive_some(65_536)):
                    heard += piece
            except (OSError, trio.BrokenResourceError):
                pass  # what was heard counts
            self.came[{b"200": "served", b"503": "told"}.get(heard[9:12], "closed" if not heard else "other")] += 1
            if heard.startswith(b"HTTP/1.1 200"):
                self.took_s.append(trio.current_time() - began_s)
            if stream is not None:
                if self.keeps and heard and b"\r\nconnection: close" not in heard:
                    self._pool.append(stream)
                else:
                    stream.socket.close()
        if patience.cancelled_caught:
            self.came["waited in vain"] += 1

    async def come(self, per_second: float, seconds: float, cpu_ns: Callable[[], int]) -> dict[str, float]:
        """Every call and all CPU count, from the first call to the last answer.

        A part of the time would not do: hundreds of calls may be in progress at its ends, of a thousand in all.
        """
        began_s, before_ns = trio.current_time(), cpu_ns()
        async with trio.open_nursery() as nursery:
            for number in range(round(per_second * seconds)):
                await trio.sleep_until(began_s + number / per_second)
                nursery.start_soon(self.one)
        served, cpu_s = self.came["served"], (cpu_ns() - before_ns) / 1e9
        self.leave()
        took_s = median(self.took_s) if self.took_s else math.nan
        return {"cpu_s": cpu_s, "goodput": served / max(cpu_s, 1e-9) * SHARE, "took_s": took_s}

    async def come_together(self, batches: int) -> None:
        """As many at once as `AT_ONCE`, again and again."""
        for _ in range(batches):
            async with trio.open_nursery() as nursery:
                for _ in range(AT_ONCE):
                    nursery.start_soon(self.one)

    def leave(self) -> None:
        """Close the connections that were kept."""
        while self._pool:
            self._pool.pop().socket.close()


async def cost(subject: Subject, kind: str, slices: int) -> dict[str, Any]:
    """CPU of a call that is served and of one that is refused, by turns: what disturbs one disturbs the other."""
    assert subject.process is not None
    assert subject.process.stdin is not None
    assert subject.process.stdout is not None
    call, keeps = KINDS[kind]
    crowd = Crowd(subject.port, keeps, call)
    us: dict[str, list[float]] = {"": [], "refuse": []}
    await crowd.come_together(2)  # those that are kept have connected, at both ends of the proxy
    for _ in range(slices):
        for order, batches in (("", 2), ("refuse", 10)):
            subject.process.stdin.write(f"{order}\n")
            subject.process.stdin.flush()
            subject.process.stdout.readline()
            began_ns = subject.cpu_ns()
            await crowd.come_together(batches)
            us[order].append((subject.cpu_ns() - began_ns) / 1e3 / batches / AT_ONCE)
    asked(subject)
    crowd.leave()
    ratio = median(refused / served for served, refused in zip(us[""], us["refuse"], strict=True))
    goodput = {f"goodput_{rate:g}": max(0.0, (1 - rate * ratio) / (1 - ratio)) for rate in RATES[1:]}
    fared = {what: crowd.came[what] for what in FARED}
    return {
        "kind": kind,
        "served_us": median(us[""]),
        "refused_us": median(us["refuse"]),
        "ratio": ratio,
        **goodput,
    } | fared


def is_whole(heard: bytes) -> bool:
    """True if an answer has come with all of its body."""
    head, mark, body = heard.partition(b"\r\n\r\n")
    if not mark:
        return False
    length = body_length(head + b"\r\n")
    return body.endswith(b"0\r\n\r\n") if length is None else len(body) >= length


def measure(subject: Subject, per_second: float, seconds: float, *, keeps: bool) -> dict[str, Any]:
    """One rate on one subject."""
    crowd = Crowd(subject.port, keeps)
    with throttled(subject):
        found = trio.run(crowd.come, per_second, seconds, subject.cpu_ns)
    return {"offered": per_second, **found, **crowd.came}


def run(
    trees: dict[str, Path], seconds: float, rounds: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], float]:
    """Costs on each tree; every kind of caller at every rate, by turns; and the rate that the first tree sustains."""
    figures: list[dict[str, Any]] = []
    with ExitStack() as stack:
        provider = port_of(stack.enter_context(spawned([sys.executable, "-m", "bench.load.provider"], None)))
        subjects = {}
        for name, tree in trees.items():
            command = [sys.executable, str(HERE / "bench/load/turns.py"), f"http://127.0.0.1:{provider}", "64"]
            child = stack.enter_context(spawned(command, None, PYTHONPATH=str(tree)))
            subjects[name] = Subject(name=name, port=port_of(child), process=child)
        slices = 2 if seconds < 1 else 8 * rounds
        costs = [
            {"tree": name, **trio.run(cost, subject, kind, slices)}
            for kind in KINDS
            for name, subject in subjects.items()
        ]
        print(*costs, sep="\n", file=sys.stderr, flush=True)
        # By the cost of a call: a rate that is measured while neighbours take the core is too low to be a multiple of.
        sustainable = SHARE * 1e6 / costs[0]["served_us"]
        for turn in range(rounds):
            for keeps in (False, True):
                for rate in RATES:
                    for name, subject in subjects.items():
                        found = measure(subject, rate * sustainable, seconds, keeps=keeps)
                        figures.append({"round": turn, "tree": name, "keeps": keeps, "rate": rate, **found})
                        print(figures[-1], file=sys.stderr, flush=True)
    return costs, figures, sustainable


def summed(figures: list[dict[str, Any]], trees: Iterable[str]) -> list[dict[str, Any]]:
    """One row for each kind, rate and tree: the median of its rounds, and how many calls fared badly in all."""
    rows = []
    for keeps in (False, True):
        for tree in trees:
            mine = [each for each in figures if (each["tree"], each["keeps"]) == (tree, keeps)]
            goodput, took_s = (
                {rate: median(each[what] for each in mine if each["rate"] == rate) for rate in RATES}
                for what in ("goodput", "took_s")
            )
            for rate in RATES:
                fared = {what: sum(each.get(what, 0) for each in mine if each["rate"] == rate) for what in FARED}
                of_peak = goodput[rate] / (max(goodput.values()) or 1.0)
                rows.append({"tree": tree, "keeps": keeps, "rate": rate, "goodput": goodput[rate], "of_peak": of_peak})
                rows[-1] |= {"took_s": took_s[rate]} | fared
    return rows


def costs_table(costs: list[dict[str, Any]]) -> Table:
    """A refusal beside a call, and what is left for calls when refusals have taken their part."""
    head = ["callers", "", "a call, us of CPU", "a refusal, us", "refusal / call", "goodput at 2 ×", "at 5 ×"]
    rows = [
        [
            one["kind"], one["tree"], f"{one['served_us']:,.0f}", f"{one['refused_us']:,.0f}", f"{one['ratio']:.2%}",
            f"{one['goodput_2']:.0%}", f"{one['goodput_5']:.0%}",
        ]
        for one in costs
    ]  # fmt: skip
    return Table(title="Cost", head=head, rows=rows, figures=costs)


def fates_table(rows: list[dict[str, Any]]) -> Table:
    """Return the outcomes of the calls as a table."""
    cells = [
        [
            "kept" if row["keeps"] else "one for each call",
            row["tree"],
            f"{row['rate']:g} ×",
            f"{row['goodput']:,.0f}",
            f"{row['of_peak']:.0%}",
            f"{row['took_s']:.1f} s",
            *(f"{row[what]:,}" for what in FARED),
        ]
        for row in rows
    ]
    head = ["connections", "", "offered", "served, calls/s", "of its peak", "median", *FARED.values()]
    return Table(title="Fates", head=head, rows=cells, figures=rows)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--md", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seconds, rounds = (0.5, 1) if options.smoke else (options.seconds, options.rounds)
    trees = {**({"before": options.before.resolve()} if options.before else {}), "now": HERE}
    costs, figures, sustainable = run(trees, seconds, rounds)
    made = provenance(share=SHARE, seconds=seconds, rounds=rounds, sustainable=f"{sustainable:.0f} calls/s")
    tables = [costs_table(costs), fates_table(summed(figures, trees))]
    print(write(tables, made, title="Overload", md=options.md, data=options.json))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    sys.exit(main())
