"""How long does one hostile caller hold up the others?

Budget: no other call is delayed by more than 50 ms, whatever one caller sends, and memory grows by at most three times
what was sent. Figures, for each attack:

- the longest turn of the proxy's loop, in CPU time: all others wait for at least so long. It hardly depends on what
  else the machine does;
- the longest call of a neighbour who calls all the time, less its median without an attack;
- CPU of the proxy, and by how much its memory grew at most.

Give `--before` another checkout, and both are measured by turns in the same run. Nothing is asserted about time.

    python -m bench.door [--before CHECKOUT] [--rounds 3] [--only NAME] [--md F.md] [--json F.json]
    python -m bench.door --smoke      seconds; for the tests
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Final, final

import attrs
import trio

from bench.load.attacks import ATTACKS, Attack, send
from bench.load.load import Client
from bench.load.subjects import Subject, port_of, spawned
from bench.load.wire import request

from .tables import Table, provenance, write

BODY_MIB: Final = 64
HERE: Final = Path(__file__).parents[1]
CALM_S: Final = 1.0
"""How long the neighbour calls without an attack, and after one."""
GAP_S: Final = 0.005
MB: Final = 1e6


@final
@attrs.frozen(kw_only=True)
class Figures:
    """Of one attack on one subject."""

    turn_ms: float
    delay_ms: float
    cpu_ms: float
    grew_mb: float
    sent_mb: float
    failed: int
    """Calls of the neighbour that had no answer."""


def peak_mb(subject: Subject) -> float:
    """The most memory that was resident since `forget_peak`."""
    assert subject.process is not None
    status = Path(f"/proc/{subject.process.pid}/status").read_text()
    return float(status.partition("VmHWM:")[2].split()[0]) * 1024 / MB


def forget_peak(subject: Subject) -> None:
    """Begin anew."""
    assert subject.process is not None
    Path(f"/proc/{subject.process.pid}/clear_refs").write_text("5")


def asked(subject: Subject) -> tuple[float, float]:
    """The longest turn since this was asked last, and CPU so far; both ms."""
    assert subject.process is not None
    assert subject.process.stdin is not None
    assert subject.process.stdout is not None
    subject.process.stdin.write("\n")
    subject.process.stdin.flush()
    longest_ns, cpu_ns = subject.process.stdout.readline().split()
    return int(longest_ns) / 1e6, int(cpu_ns) / 1e6


@attrs.define(eq=False)
class Neighbour:
    """Calls again and again, in a thread of its own."""

    port: int
    stop: threading.Event = attrs.field(factory=threading.Event)
    latency_ms: list[float] = attrs.field(factory=list)
    failed: int = 0

    def run(self) -> None:
        """Until told to stop."""
        trio.run(self._call)

    async def _call(self) -> None:
        client, call = Client(self.port), request("bench-json", body_bytes=1_000, authority="127.0.0.1")
        while not self.stop.is_set():
            try:
                _, whole_ns = await client.call(call)
                self.latency_ms.append(whole_ns / 1e6)
            except OSError:
                self.failed += 1
                client.close()
            await trio.sleep(GAP_S)
        client.close()


def beside(port: int, work: Callable[[], object]) -> Neighbour:
    """Do it while a neighbour calls."""
    neighbour = Neighbour(port)
    thread = threading.Thread(target=neighbour.run)
    thread.start()
    time.sleep(CALM_S / 5)  # it is connected
    try:
        work()
        time.sleep(CALM_S / 5)
    finally:
        neighbour.stop.set()
        thread.join()
    return neighbour


def measure(subject: Subject, attack: Attack, divisor: int) -> Figures:
    """One attack, with a neighbour beside it, and without it for comparison."""
    calm = beside(subject.port, lambda: time.sleep(CALM_S / divisor))
    pieces = attack.build(divisor)

    def work() -> None:
        crowd = [threading.Thread(target=send, args=(subject.port, attack, pieces)) for _ in range(attack.connections)]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join()

    forget_peak(subject)
    before_mb = subject.resident_bytes() / MB
    _, cpu_before_ms = asked(subject)
    disturbed = beside(subject.port, work)
    turn_ms, cpu_ms = asked(subject)
    return Figures(
        turn_ms=turn_ms,
        delay_ms=max(disturbed.latency_ms, default=0.0) - median(calm.latency_ms),
        cpu_ms=cpu_ms - cpu_before_ms,
        grew_mb=max(0.0, peak_mb(subject) - before_mb),
        sent_mb=sum(map(len, pieces)) * attack.connections / MB,
        failed=disturbed.failed,
    )


@contextmanager
def proxy(tree: Path, provider: int) -> Iterator[Subject]:
    """Start the proxy of a tree."""
    command = [sys.executable, str(HERE / "bench/load/turns.py"), f"http://127.0.0.1:{provider}", str(BODY_MIB)]
    with spawned(command, None, PYTHONPATH=str(tree)) as child:
        yield Subject(name="proxy", port=port_of(child), process=child)


def run(
    attacks: Sequence[Attack], trees: Sequence[Path], rounds: int, divisor: int, *, apart: bool
) -> dict[tuple[str, int], Figures]:
    """The round with the median delay, of each attack on each tree.

    Args:
        apart: Each in a process of its own: what an attack leaves behind is not the next one's.
    """
    taken: dict[tuple[str, int], list[Figures]] = {}
    with ExitStack() as stack:
        provider = port_of(stack.enter_context(spawned([sys.executable, "-m", "bench.load.provider"], None)))
        shared = [] if apart else [stack.enter_context(proxy(tree, provider)) for tree in trees]
        for turn in range(rounds):
            for attack in attacks:
                for place, tree in enumerate(trees):
                    with proxy(tree, provider) if apart else nullcontext(shared[place]) as subject:
                        taken.setdefault((attack.name, place), []).append(measure(subject, attack, divisor))
                    found = taken[attack.name, place][-1]
                    print(f"round {turn + 1}, {attack.name}, tree {place}: {found}", file=sys.stderr, flush=True)
    return {key: sorted(each, key=lambda figures: figures.delay_ms)[len(each) // 2] for key, each in taken.items()}


def table(attacks: Sequence[Attack], found: dict[tuple[str, int], Figures], trees: int) -> Table:
    """One row an attack; before and after side by side, where there is a before."""
    names = ("turn_ms", "delay_ms", "cpu_ms", "grew_mb")
    titles = ("longest turn, ms of CPU", "longest delay of a neighbour, ms", "CPU, ms", "memory grew, MB")
    rows, figures = [], []
    for attack in attacks:
        each = [found[attack.name, place] for place in range(trees)]
        cells = [" → ".join(f"{getattr(one, name):,.0f}" for one in each) for name in names]
        ratio = [f"{each[0].turn_ms / each[1].turn_ms:.1f}"] if trees > 1 else []
        rows.append([attack.says, f"{each[0].sent_mb:,.2f}", *cells, *ratio])
        figures += [
            {"attack": attack.name, "tree": "before" if trees > 1 and not place else "now", **attrs.asdict(one)}
            for place, one in enumerate(each)
        ]
    head = ["one caller sends", "MB", *titles, *(["turn, before / now"] if trees > 1 else [])]
    return Table(title="Delay of others", head=head, rows=rows, figures=figures)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--md", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    trees = [options.before.resolve(), HERE] if options.before is not None else [HERE]
    wanted = options.only.split(",") if options.only else [attack.name for attack in ATTACKS]
    attacks = [attack for attack in ATTACKS if attack.name in wanted]
    rounds, divisor = (1, 100) if options.smoke else (options.rounds, 1)
    found = run(attacks, trees, rounds, divisor, apart=not options.smoke)
    made = provenance(rounds=rounds)
    print(write([table(attacks, found, len(trees))], made, title="The door", md=options.md, data=options.json))
    return 0


if __name__ == "__main__":
    sys.exit(main())
