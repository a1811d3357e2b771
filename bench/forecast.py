"""How far off are the estimates of when a waiting call starts?

Budget: the 90 % bound holds for 85 to 95 % of the calls, and the median error is at most 25 %.

Estimates are taken every 15 s of fleets that run: scenarios of the simulator, providers of the adversary bench, which
nobody tuned for (told `concurrency 2..64`, and told the limits), and a few fleets over sockets, in real time. They come
from the code of the proxy, with its calibration, and are held against the starts that came.

The error of one estimate, which is one waiting call at one time, is the distance of its median from the start that
came, in parts of the time until that start: a median of 20 s is off by 100 % if the call starts after 10 s, and by 50 %
if it starts after 40 s. An estimate without a median is off by 100 %, as one that says "now". Starts that are less than
five seconds away are told in seconds instead. The error of a fleet is the median over its estimates, and that of a kind
of fleets the mean over fleets.

The floor is the error of an oracle (`forecasts/oracle.py`), which knows all about the provider and the fleet, and
not what chance makes of them. The sixty held-out drawings are run with `--held-out`, without an oracle, and only their
totals are told.

    python -m bench.forecast --seeds 3 --jobs 2 --md bench/results/forecast.md --json bench/results/forecast.json
    python -m bench.forecast --only storm,rpm-50          some fleets; a number is a drawing of the adversary
    python -m bench.forecast --held-out --jobs 2          the drawings that are held out, and nothing else
    python -m bench.forecast --no-floor                   without the oracle, which takes most of the time
    python -m bench.forecast --sockets                    over sockets as well: nine minutes for each seed
    python -m bench.forecast --only sockets --sockets 3   over sockets only, with three seeds; `sockets/storm`: one
    python -m bench.forecast --with sims.json --only sockets --sockets 3 --json all.json       with earlier results

A run over sockets has two or three windows, so one seed of it is chance. `--with` puts the fleets of an earlier run
beside those of this one: those over sockets want a quiet machine, and the others take long.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final, final

import attrs
import trio

from bench.adversaries.draw import NAMED, declared, named, undeclared
from bench.adversaries.run import Ours, Way
from bench.adversaries.run import World as Adversary
from bench.forecasts.oracle import futures
from bench.forecasts.watch import SECOND_NS, AllJudged, Row, Watch
from bench.simulated.worlds import own_policy, shipped
from bench.sockets.sockets import staged
from bench.tables import Table, provenance, write
from hivemind_trio.scheduler import CallId
from hivemind_trio.sim import Way as Through
from hivemind_trio.sim import World

NEAR_NS: Final = 5 * SECOND_NS
"""Nearer starts are told in seconds."""
FEW: Final = 40
"""Rows of fewer calls, or of errors with fewer starts, are left out of the totals: they are a matter of chance."""
UNTIL_NS: Final = 1_200 * SECOND_NS

SOCKETS_NS: Final = 180 * SECOND_NS

SCENARIOS: Final = (
    *("requests-bind", "input-binds", "output-binds", "concurrency-binds", "mixed", "fixed-window", "gcra"),
    *("undeclared", "neighbour", "storm", "outage", "lying-retry-after", "agentrm-high-load"),
)
ADVERSARIES: Final = (
    *("storm-15", "outage-15", "rpm-50", "rpm-50-resets", "gpu", "two-models", "lie-60", "half-others", "cap-529"),
    *("cap-halves", "12", "19", "24", *(f"{number}" for number in range(7, 148, 10))),
)
FRESH: Final = tuple(f"{number}" for number in range(1_007, 1_148, 10))
"""With the drawings above that end in 7, they were held out until their rows were read."""
HELD_OUT: Final = tuple(f"{number}" for number in range(2_007, 2_598, 10))
"""Sixty drawings, named before the first estimate of them was taken. Only their totals are told."""
SOCKETS: Final = ("micro-50", "agentrm-high-load", "storm")


@final
@attrs.frozen(kw_only=True)
class Fleet:
    """Estimates of one fleet, over its seeds."""

    name: str
    kind: str
    rows: Sequence[Row]

    @property
    def started(self) -> list[Row]:
        """Estimates of calls that started."""
        return [row for row in self.rows if row.start is not None]

    def held(self, bound: Callable[[Row], int | None]) -> float | None:
        """Return the part of the starts that were within a bound; None: there is none."""
        found = [(bound(row), row.start) for row in self.started]
        known = [start <= at for at, start in found if at is not None and start is not None]
        return fmean(known) if known else None

    @property
    def far(self) -> list[Row]:
        """Estimates of starts that are far enough to have an error in parts."""
        return [row for row in self.started if row.start is not None and row.start >= NEAR_NS]

    def error(self, of: Callable[[Row], int | None]) -> float | None:
        """Return the median error, in parts of the time until the start; None: no start is far enough."""
        found = [(of(row), row.start) for row in self.far]
        errors = [1.0 if at is None else abs(at - start) / start for at, start in found if start is not None]
        return median(errors) if errors else None

    @property
    def floor(self) -> Fleet:
        """Estimates that the oracle was asked for."""
        return attrs.evolve(self, rows=[row for row in self.rows if row.has_floor])

    @property
    def near_s(self) -> float | None:
        """Median error of nearer starts, in seconds."""
        found = [(row.p50, row.start) for row in self.started]
        near = [abs(at - start) for at, start in found if at is not None and start is not None and start < NEAR_NS]
        return median(near) / SECOND_NS if near else None

    def figures(self) -> dict[str, Any]:
        """Return the figures for machines."""
        rows, floor = max(1, len(self.rows)), self.floor
        return {
            "fleet": self.name,
            "kind": self.kind,
            "calls": len(self.rows),
            "far": len(self.far),
            "held": self.held(lambda row: row.p90),
            "held_raw": self.held(lambda row: row.raw90),
            "error": self.error(lambda row: row.p50),
            "floor": floor.error(lambda row: row.floor50),
            "floor_held": floor.held(lambda row: row.floor90),
            "before": self.held(lambda row: row.p50),
            "near_s": self.near_s,
            "no_median": sum(row.p50 is None for row in self.rows) / rows,
            "no_bound": sum(row.p90 is None for row in self.rows) / rows,
            "not_started": sum(row.start is None for row in self.rows) / rows,
        }


def simulated(name: str, seed: int) -> list[Row]:
    """Run a scenario of the simulator under its own policy."""
    watch = Watch(scheduler=lambda: world.scheduler, seed=seed)
    scenario = shipped(name)
    world = World(own_policy(scenario), scenario, seed=seed, observe=watch.observe)
    with suppress(AllJudged):
        world.run()
    return watch.rows()


def adversary(name: str, way: Way, seed: int, *, floor: bool = True) -> list[Row]:
    """Run a provider of the adversary bench; named ones have one seed."""
    drawing = attrs.evolve(named(name), seed=seed) if name in NAMED else named(name)
    program = declared(drawing) if way is Way.DECLARED else undeclared(drawing)
    if program is None or (seed > 1 and name not in NAMED):
        return []
    watch = Watch(seed=seed)
    world = Adversary(drawing, way, program, observe=watch.observe)
    assert isinstance(world.road, Ours)
    scheduler = world.road.scheduler
    watch.scheduler = lambda: scheduler
    if floor:
        watch.oracle = partial(_ask_oracle, world)
    with suppress(AllJudged):
        world.run(UNTIL_NS)
    return watch.rows()


def _ask_oracle(
    world: Adversary, calls: Sequence[CallId], keep: Callable[[list[Mapping[CallId, int | None]]], None]
) -> None:
    """Ask as soon as the event of now has had its effects."""
    now_ns = world.loop.now_ns
    world.loop.at(now_ns, lambda: keep(futures(world, calls, f"{world.drawing.name}/{now_ns}")))


async def over_sockets(name: str, seed: int) -> list[Row]:
    """Run a scenario in real time, through the proxy in a process of its own."""
    scenario = attrs.evolve(shipped(name), until_ns=SOCKETS_NS)
    async with staged(own_policy(scenario), scenario, seed, Through.PROXY, forecasts=True) as stage:
        await stage.run()
        return [Row(**row) for row in stage.reported["forecasts"]]


def fleets(
    only: Sequence[str], seeds: int, jobs: int, *, held_out: bool = False, floor: bool = True
) -> Iterable[Fleet]:
    """Yield what came of each fleet."""
    runs = range(1, seeds + 1)
    only = HELD_OUT if held_out else only
    tasks: list[tuple[str, str, list[Callable[[], list[Row]]]]] = []
    for name in SCENARIOS:
        if not only or name in only:
            tasks.append((name, "simulated", [partial(simulated, name, seed) for seed in runs]))
    for name in (*ADVERSARIES, *FRESH) if not only else [one for one in only if one in NAMED or one.isdigit()]:
        for way in (Way.OURS, Way.DECLARED):
            kind = _kind(name)
            title = f"{name}, {'declared' if way is Way.DECLARED else 'undeclared'}"
            asked = floor and not held_out
            tasks.append((title, kind, [partial(adversary, name, way, seed, floor=asked) for seed in runs]))
    if not tasks:
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        pending = [(name, kind, [pool.apply_async(one) for one in several]) for name, kind, several in tasks]
        for name, kind, results in pending:
            yield Fleet(name=name, kind=kind, rows=[row for one in results for row in one.get()])


def _kind(drawing: str) -> str:
    if drawing in HELD_OUT:
        return "held out"
    return "drawn" if drawing in FRESH or (drawing.isdigit() and drawing.endswith("7")) else "adversary"


def totals(found: Sequence[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """Yield the means over figures of fleets, each of which counts alike."""
    for kind in ("simulated", "adversary", "drawn", "held out", "sockets"):
        several = [one for one in found if one["kind"] == kind and one["calls"] * (1 - one["not_started"]) > FEW - 0.5]
        if several:
            names = (
                *("held", "held_raw", "before", "error", "near_s", "no_median", "no_bound"),
                *("not_started", "floor", "floor_held"),
            )
            far = [one for one in several if one["far"] >= FEW]
            means = {
                name: fmean(known) if (known := [one[name] for one in rows if one[name] is not None]) else None
                for name in names
                for rows in (far if name in ("error", "floor") else several,)
            }
            calls, starts = (sum(one[name] for one in several) for name in ("calls", "far"))
            within = sum(0.85 <= (one["held"] or 0) <= 0.95 for one in several)
            good = sum((one["error"] or 0) <= 0.25 for one in far)
            title = f"{len(several)} fleets"
            counts = {"calls": calls, "far": starts, "within": within, "far_fleets": len(far), "good": good}
            yield {"fleet": title, "kind": kind, **counts, **means}


def table(found: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of the figures of all fleets, and of each kind."""
    shown = [one for one in found if one["calls"] and one["kind"] != "held out"]
    figures = [*totals(found), *shown]
    head = (
        "fleet",
        "kind",
        "calls",
        "5 s away",
        "bound held",
        "uncalibrated",
        "before median",
        "error",
        "floor",
        "near",
        "no median",
        "no bound",
        "lost",
    )
    return Table(
        title="Estimates of starts",
        notes=(
            "Bound held: starts within the 90 % bound (85 to 95 % wanted); uncalibrated: by the futures alone. Before "
            "median: starts before their median (50 % wanted). Error: distance of the median from the start, in parts "
            "of the time until the start, of starts at least 5 s away (at most 25 % wanted); without a median 100 %. "
            "Floor: the error of an oracle that knows all about the provider and the fleet, and not what chance makes "
            "of them. Near: median error of the other starts.",
            "No median, no bound: no start within half an hour was foreseen. Lost: the call was rejected, or its "
            f"client left. Totals: means of fleets with {FEW} calls, of errors with {FEW} starts 5 s away, and more.",
        ),
        head=head,
        rows=[
            (
                one["fleet"],
                one["kind"],
                f"{one['calls']:,}",
                f"{one['far']:,}",
                *(_percent(one[name]) for name in ("held", "held_raw", "before", "error", "floor")),
                "–" if one["near_s"] is None else f"{one['near_s']:.1f} s",
                *(_percent(one[name]) for name in ("no_median", "no_bound", "not_started")),
            )
            for one in figures
        ],
        figures=figures,
    )


def _percent(part: float | None) -> str:
    return "–" if part is None else f"{part:.0%}"


def earlier(path: Path) -> list[dict[str, Any]]:
    """Return the figures of the fleets of an earlier run, without its totals."""
    rows: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["tables"][0]["rows"]
    return [one for one in rows if "within" not in one]


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="NAMES")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--no-floor", action="store_true")
    parser.add_argument("--sockets", type=int, nargs="?", const=1, default=0, metavar="SEEDS")
    parser.add_argument("--with", dest="earlier", type=Path, metavar="JSON")
    parser.add_argument("--md", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    only = [one for one in options.only.split(",") if one]
    found = earlier(options.earlier) if options.earlier is not None else []
    for fleet in fleets(only, options.seeds, options.jobs, held_out=options.held_out, floor=not options.no_floor):
        found.append(fleet.figures())
        print(*(table(found[-1:]).rows[-1:] if fleet.kind != "held out" else [f"{len(found)} done"]), flush=True)
    for name in SOCKETS:
        if not only or {name, "sockets", f"sockets/{name}"} & set(only):
            runs = [trio.run(over_sockets, name, seed) for seed in range(1, options.sockets + 1)]
            found.append(Fleet(name=name, kind="sockets", rows=[row for one in runs for row in one]).figures())
            print(*table(found[-1:]).rows[-1:], flush=True)
    made = provenance(seeds=options.seeds)
    print(write([table(found)], made, title="Estimates of starts", md=options.md, data=options.json))


if __name__ == "__main__":
    main()
