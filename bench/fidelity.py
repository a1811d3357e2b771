"""Does the simulator tell the truth?

Target: within 10 % of the same scenario over loopback sockets in real time, for the makespan, the p50 and p95 of turns
and of waits, dead agents, attempts, 429s, tokens and money. Both worlds draw the same work from the same seed; what
differs is that bytes, kernels and our own code take time, and the order of what happens at once.

    python -m bench.fidelity [--only 'micro-10;storm, short'] [--repeats 3] [--seed 1] [--md F] [--json F]   12 minutes
    python -m bench.fidelity --smoke                                                             for the tests

What a call takes of the proxy and of the harness is measured first, on the same machine, and told to the simulator
(`World.efforts`); beside that stands what it says without. Nothing is scaled: rate-limit headers tell whole seconds,
and back-offs are the policy's. Runs are under way at the same time, each beginning a little after the one before, for
they spend most of it waiting; each is repeated, for no simulator can be nearer to sockets than they are to themselves.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, final

import attrs
import trio

from bench.simulated.worlds import smaller
from bench.sockets.calibration import calibrate
from bench.sockets.cases import CannotRun, cases
from bench.sockets.measured import Measured
from bench.sockets.runs import Case, Run, performed
from bench.sockets.short import SHORT
from hivemind_trio.sim import Efforts, Way

from .tables import Table, provenance, write

USUAL: Final = (
    *("stress", "micro-20", "micro-10", "micro-5", "replay-11", "latency-spike"),
    *("replay-11, real resets", "replay-11, real resets, streaming"),
    *SHORT,
)
"""The longest first."""

APART_S: Final = 2.0
"""Between the beginnings of two runs: the busy moments of their windows do not meet."""

LONG_S: Final = 300.0
"""What takes longer is run once."""

NEAR: Final = 0.1
LEAST_S: Final = 0.02
"""Times that are both below this are equal."""


@final
@attrs.frozen(kw_only=True)
class Compared:
    """One scenario, one way: told what calls take, not told, and over sockets as often as it was repeated."""

    case: Case
    way: Way
    bound_s: float
    told: Measured
    untold: Measured
    real: Sequence[Measured]


@final
@attrs.frozen
class Quantity:
    """Something that the simulator ought to know."""

    name: str
    of: Callable[[Measured], float]
    digits: int = 0
    is_time: bool = True

    def near(self, simulated: float, real: Sequence[float]) -> bool:
        """Within a tenth of what is usual over sockets, or no farther than they are from themselves."""
        usual = median(real)
        if self.is_time and max(simulated, usual) <= LEAST_S:
            return True
        return abs(simulated - usual) <= NEAR * usual or min(real) <= simulated <= max(real)

    def steady(self, real: Sequence[float]) -> bool:
        """Whether the sockets agree with themselves as well as that."""
        usual = median(real)
        if self.is_time and max(real) <= LEAST_S:
            return True
        return max(abs(each - usual) for each in real) <= NEAR * usual

    def cell(self, simulated: float, real: Sequence[float]) -> str:
        """`simulated / over sockets (least to most) off by`."""
        usual = median(real)
        shown = [f"{each:,.{self.digits}f}" for each in (simulated, usual, min(real), max(real))]
        between = f" ({shown[2]} to {shown[3]})" if shown[2] != shown[3] else ""
        return f"{shown[0]} / {shown[1]}{between}{self._off(simulated, usual)}"

    def _off(self, simulated: float, usual: float) -> str:
        if self.is_time and max(simulated, usual) <= LEAST_S:
            return ""
        return f" {100 * (simulated - usual) / usual:+.1f} %" if usual and simulated != usual else ""


TIMES: Final = (
    Quantity("makespan, s", lambda one: one.seconds, 1),
    Quantity("turn p50, s", lambda one: one.turn.p50 / 1e9, 2),
    Quantity("turn p95, s", lambda one: one.turn.p95 / 1e9, 2),
    Quantity("wait p50, s", lambda one: one.wait.p50 / 1e9, 2),
    Quantity("wait p95, s", lambda one: one.wait.p95 / 1e9, 2),
)
COUNTS: Final = (
    Quantity("dead", lambda one: one.dead + one.undone, 0, False),
    Quantity("attempts", lambda one: one.attempts, 0, False),
    Quantity("429s", lambda one: one.limited, 0, False),
    Quantity("refused by us", lambda one: sum(one.refused.values()), 0, False),
    Quantity("tokens", lambda one: one.tokens, 0, False),
    Quantity("wasted tokens", lambda one: one.tokens_wasted, 0, False),
    Quantity("spend, $", lambda one: one.cost_microusd / 1e6, 3, False),
)


def compared(
    named: Sequence[str], seed: int, repeats: int, *, small: bool
) -> tuple[list[Compared], Mapping[Way, Efforts], bool]:
    """Every scenario both ways in both worlds, as far as it got; what calls take; and whether that was all."""
    try:
        found = cases(named or (("micro-5",) if small else USUAL))
    except CannotRun as cannot:
        print(cannot, file=sys.stderr)
        sys.exit(2)
    if small:
        found = [attrs.evolve(case, scenario=smaller(case.scenario, 3, 3)) for case in found]
    print("measuring what a call takes", file=sys.stderr, flush=True)
    efforts = trio.run(lambda: calibrate(small=small))
    runs = [Run.of(case, way, seed, efforts[way]) for case in found for way in Way]
    rounds = [run.again() for _ in range(repeats) for run in runs]
    wanted = [run for number, run in enumerate(rounds) if number < len(runs) or run.seconds < LONG_S]
    measured, whole = performed(wanted, 0.2 if small else APART_S)
    return list(_gathered(runs, wanted, measured)), efforts, whole


def _gathered(runs: Sequence[Run], wanted: Sequence[Run], measured: Mapping[Run, Measured]) -> Iterator[Compared]:
    for run in runs:
        real = [measured[one] for one in wanted if one.name == run.name and one in measured]
        if real:
            yield Compared(
                case=run.case,
                way=run.way,
                bound_s=run.simulated.bound_ns / 1e9,
                told=Measured.of(run.simulated),
                untold=Measured.of(Run.of(run.case, run.way, run.seed).simulated),
                real=real,
            )


# ---- tables ----


def tables(found: Sequence[Compared], efforts: Mapping[Way, Efforts]) -> list[Table]:
    """How near it is in all, and side by side."""
    return [
        _summary(found),
        _side_by_side("Times", TIMES, found),
        _side_by_side("Counts", COUNTS, found),
        _took(efforts),
    ]


def _summary(found: Sequence[Compared]) -> Table:
    rows, figures = [], []
    for way in Way:
        for quantity in (*TIMES, *COUNTS):
            if way is Way.DIRECT and (quantity.name.startswith("wait") or quantity.name == "refused by us"):
                continue
            of_way = [one for one in found if one.way is way]
            real = [[quantity.of(each) for each in one.real] for one in of_way]
            counts = [
                sum(quantity.near(quantity.of(one.told), each) for one, each in zip(of_way, real, strict=True)),
                sum(quantity.near(quantity.of(one.untold), each) for one, each in zip(of_way, real, strict=True)),
                sum(quantity.steady(each) for each in real),
            ]
            rows.append([str(way), quantity.name, *(f"{count} of {len(of_way)}" for count in counts)])
            keys = ("near", "near_untold", "steady")
            figures.append(
                {"way": str(way), "quantity": quantity.name, "scenarios": len(of_way)}
                | dict(zip(keys, counts, strict=True))
            )
    return Table(
        title="In how many scenarios the simulator is right",
        notes=[
            "Right: within 10 % of the median over sockets, or between the least and the most of them; times below "
            "20 ms are equal. The last column is what the sockets come to by themselves: each of their runs within "
            "10 % of their median.",
        ],
        head=["way", "", "told what calls take", "not told", "sockets with themselves"],
        rows=rows,
        figures=figures,
    )


def _side_by_side(title: str, quantities: Sequence[Quantity], found: Sequence[Compared]) -> Table:
    rows = []
    for one in found:
        row = [one.case.name, str(one.way), f"{len(one.real)}"]
        for quantity in quantities:
            row.append(quantity.cell(quantity.of(one.told), [quantity.of(each) for each in one.real]))
        rows.append(row)
    return Table(
        title=title,
        notes=["Simulated / median over sockets (least to most), and by how much the simulator is off the median."],
        head=["scenario", "way", "runs", *(quantity.name for quantity in quantities)],
        rows=rows,
        figures=[_figures(one) for one in found] if quantities is TIMES else [],
    )


def _took(efforts: Mapping[Way, Efforts]) -> Table:
    rows = []
    for way, one in efforts.items():
        for whose, effort in (("proxy", one.proxy), ("agents and provider", one.others)):
            if way is Way.PROXY or whose != "proxy":
                took = (effort.call_ns, effort.first_ns, effort.event_ns)
                rows.append([str(way), whose, *(f"{each / 1e6:.2f}" for each in took)])
        rows.append([str(way), "nobody", f"{one.wire_ns / 1e6:.2f}", "", ""])
    return Table(
        title="What a call takes, in ms",
        notes=["CPU of each process, as measured beforehand; `nobody`: what an agent alone waits beyond that."],
        head=["way", "of whom", "a call", "an agent's first, more", "an event of a stream"],
        rows=rows,
        figures=[{"way": str(way)} | attrs.asdict(one) for way, one in efforts.items()],
    )


def _figures(one: Compared) -> dict[str, Any]:
    return {
        "scenario": one.case.name,
        "way": str(one.way),
        "bound_s": one.bound_s,
        "simulated": attrs.asdict(one.told),
        "simulated_untold": attrs.asdict(one.untold),
        "real": [attrs.asdict(each) for each in one.real],
    }


def main(arguments: list[str] | None = None) -> int:
    """Run, compare, and say."""
    parser = argparse.ArgumentParser(description="The simulator against sockets.")
    parser.add_argument("--only", default="", help="scenarios by name, with `;` between them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs over sockets, of what takes less than five minutes"
    )
    parser.add_argument("--md", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args(arguments)
    named = [name for name in options.only.split(";") if name]
    repeats = 1 if options.smoke else options.repeats
    found, efforts, whole = compared(named, options.seed, repeats, small=options.smoke)
    made = provenance(seed=options.seed, way="simulated, and over loopback sockets in real time, unscaled")
    print(write(tables(found, efforts), made, title="Fidelity", md=options.md, data=options.json))
    return 0 if whole else 130


if __name__ == "__main__":
    sys.exit(main())
