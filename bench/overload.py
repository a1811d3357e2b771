"""Does the proxy still serve, and tell the others, when its own CPU is what is short?

Budget: at five times the rate that it can sustain, goodput is at least 95 % of the best at any rate; no call is closed
without a byte, and none waits in vain for the 10 s of its client's patience. The proxy has 15 % of a core: it is
stopped for the rest of each 100 ms, by the CPU time that it has used. Goodput is per second of the CPU that it used,
so that neighbours on the machine hit all alike. Nothing is asserted about time.

    python -m bench.overload [--before CHECKOUT] [--seconds 8] [--md F.md] [--json F.json]
    python -m bench.overload --smoke      seconds; for the tests
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import trio

from bench.load.load import closed_loop
from bench.load.subjects import Subject, port_of, spawned
from bench.load.wire import request

from .tables import Table, provenance, write

HERE: Final = Path(__file__).parents[1]
SHARE: Final = 0.15
PERIOD_S: Final = 0.1
PATIENCE_S: Final = 10.0
RATES: Final = (1.0, 2.0, 5.0)
CALL: Final = request("bench-json", authority="127.0.0.1")


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


async def one(port: int, came: Counter[str]) -> None:
    """A call on a connection of its own, and what became of it."""
    with trio.move_on_after(PATIENCE_S) as patience:
        heard = b""
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            async with stream:
                await stream.send_all(CALL)
                while b"\r\n\r\n" not in heard and (piece := await stream.receive_some(65_536)):
                    heard += piece
        except (OSError, trio.BrokenResourceError):
            pass  # what was heard counts
        came[{b"200": "served", b"503": "told"}.get(heard[9:12], "closed" if not heard else "other")] += 1
    if patience.cancelled_caught:
        came["waited in vain"] += 1


async def offered(port: int, per_second: float, seconds: float) -> Counter[str]:
    """Calls that come evenly; each is waited for."""
    came: Counter[str] = Counter()
    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(round(per_second * seconds)):
            await trio.sleep_until(began_s + number / per_second)
            nursery.start_soon(one, port, came)
        await trio.sleep_until(began_s + seconds)
        # What is served later is no goodput of this time.
        served = came["served"]
    came["in time"] = served
    return came


def measure(subject: Subject, per_second: float, seconds: float) -> dict[str, Any]:
    """One rate on one subject."""
    with throttled(subject):
        began_ns = subject.cpu_ns()
        ended_ns: list[int] = []
        timer = threading.Timer(seconds, lambda: ended_ns.append(subject.cpu_ns()))
        timer.start()
        came = trio.run(offered, subject.port, per_second, seconds)
        timer.join()
    cpu_s = (ended_ns[0] - began_ns) / 1e9
    return {"offered": per_second, "goodput": came["in time"] / max(cpu_s, 1e-9) * SHARE, "cpu_s": cpu_s, **came}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--md", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seconds = 0.5 if options.smoke else options.seconds
    trees = {**({"before": options.before.resolve()} if options.before else {}), "now": HERE}
    figures: list[dict[str, Any]] = []
    with ExitStack() as stack:
        provider = port_of(stack.enter_context(spawned([sys.executable, "-m", "bench.load.provider"], None)))
        subjects = {}
        for name, tree in trees.items():
            command = [sys.executable, str(HERE / "bench/load/turns.py"), f"http://127.0.0.1:{provider}", "64"]
            child = stack.enter_context(spawned(command, None, PYTHONPATH=str(tree)))
            subjects[name] = Subject(name=name, port=port_of(child), process=child)
        first = next(iter(subjects.values()))
        with throttled(first):
            sample = trio.run(lambda: closed_loop(first.port, CALL, clients=16, calls=10_000))
        # A connection for each call costs more than that loop, whose rate therefore is too much.
        most = measure(first, sample.per_second, seconds)
        sustainable = max(1.0, most["in time"] / seconds)
        for rate in RATES:
            for name, subject in subjects.items():
                found = measure(subject, rate * sustainable, seconds)
                figures.append({"tree": name, "rate": rate, **found})
                print(figures[-1], file=sys.stderr, flush=True)
    rows = []
    for row in figures:
        peak = max(each["goodput"] for each in figures if each["tree"] == row["tree"])
        row["of_peak"] = row["goodput"] / peak if peak else 0.0
        lost = [f"{row.get(name, 0):,}" for name in ("told", "closed", "waited in vain", "other")]
        rows.append([row["tree"], f"{row['rate']:g} ×", f"{row['goodput']:,.0f}", f"{row['of_peak']:.0%}", *lost])
    head = [
        "",
        "offered",
        "served, calls/s",
        "of its peak",
        "told 503",
        "closed without a byte",
        "waited 10 s",
        "other",
    ]
    made = provenance(share=SHARE, seconds=seconds, sustainable=f"{sustainable:.0f} calls/s")
    table = Table(title="Overload", head=head, rows=rows, figures=figures)
    print(write([table], made, title="Overload", md=options.md, data=options.json))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    sys.exit(main())
