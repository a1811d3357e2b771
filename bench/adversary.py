"""Does the scheduler hold on providers that it was not made for?

Budget: under one CPU second a drawing, all ways; 2,000 drawings in half an hour on one core.

Providers are drawn, not scenarios (`_adversary_draw.py`): about fifty parameters, each by itself. Every drawing runs in
virtual time in six ways (`_adversary_run.py`): the clients directly, with 2 and with 10 retries; eight at once with
retries, which is what simple proxies do; AIMD with retries; and the real scheduler, told nothing but
`concurrency 2..64`, and told the limits that are true. They are held against a lower bound and against the best order
known without hints (`_adversary_bound.py`). A drawing is feasible if that order serves every call within its client's
patience; the others are counted and left out.

    python -m bench.adversary --drawings 200 --seed 0 --jobs 2 --json out.json --md out.md --svg pictures
    python -m bench.adversary --named all                   the scenarios of `feedback.md`, by hand
    python -m bench.adversary --only 123 --way ours         one drawing
    python -m bench.adversary --trace 123                   event log of the scheduler on one drawing or scenario
    python -m bench.adversary --search 600                  hill-climb towards the worst ratio
    python -m bench.adversary --chance 4 --drawings 400     how often `ours` beats itself by more than 10 %
    python -m bench.adversary --sockets storm-15,gpu        real time, through the real proxy

An interrupt keeps what is done. The digest is of all that was decided: equal digests, equal decisions.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any, Final, final

import attrs
import trio

from bench.adversaries.bound import hint_free, lower_bound
from bench.adversaries.draw import (
    NAMED,
    OWN_KEYS,
    PARAMETERS,
    declared,
    held_out,
    named,
    parsed,
    undeclared,
    values_of,
    written,
)
from bench.adversaries.provider import Traits
from bench.adversaries.run import Drawing, Result, Way, World
from bench.adversaries.sockets import SOCKET_WAYS, Real, over_sockets
from hivemind_trio.sim import Figures, Sample, Spread, plot, svg
from hivemind_trio.sim import Level as Drawn
from hivemind_trio.sim import Way as Through
from hivemind_trio.sim.results.figures import UpstreamFigures as Seen

from .tables import Table, provenance, write

SECOND_NS: Final = 1_000_000_000
ORDER_MAX_NS: Final = 1_800 * SECOND_NS
"""Drawings that take the order longer are left out: they cost much and show little."""
SIMPLER: Final = (Way.DIRECT, Way.CODE, Way.FIXED, Way.AIMD)
OWN: Final = (Way.OURS, Way.DECLARED)
BETTER: Final = 1.1
"""A simpler way is better if it is faster by this factor."""


@final
@attrs.frozen(kw_only=True)
class Outcome:
    """What came of one drawing."""

    name: str
    held_out: bool
    bound_ns: int
    binds: str
    order_ns: int
    waited_ns: int
    """The longest that a client waits under the order."""
    infeasible: str
    """Why it is left out; empty: it is not."""
    results: dict[Way, Result]

    def over_order(self, way: Way) -> float:
        """Makespan over that of the order; infinite if an agent died."""
        result = self.results[way]
        return math.inf if result.dead else result.makespan_ns / self.order_ns

    def over_bound(self, way: Way) -> float:
        """Makespan over the bound; infinite if an agent died."""
        result = self.results[way]
        return math.inf if result.dead else result.makespan_ns / self.bound_ns

    def beaten(self, own: Way) -> float:
        """Makespan over that of the fastest simpler way that loses nobody; 0 if there is none."""
        times = [result.makespan_ns for way, result in self.results.items() if way in SIMPLER and not result.dead]
        if not times:
            return 0.0
        return math.inf if self.results[own].dead else self.results[own].makespan_ns / min(times)

    @property
    def impossible(self) -> list[str]:
        """References and ways that are faster than the bound: a bug of this bench."""
        times = {way.value: result.makespan_ns for way, result in self.results.items() if not result.dead}
        if not self.infeasible:
            times["order"] = self.order_ns
        return [name for name, ns in times.items() if ns < self.bound_ns - 1_000]


def outcome(text: str, ways: Sequence[Way]) -> Outcome:
    """Run one drawing or scenario."""
    drawing = named(text)
    bound, order = lower_bound(drawing), hint_free(drawing, ORDER_MAX_NS)
    infeasible = ""
    if not order.finished:
        infeasible = "the order does not finish"
    elif order.waited_ns > drawing.patience_ns:
        infeasible = "the order makes a client wait for too long"
    seed = drawing.seed
    return Outcome(
        name=text,
        held_out=text not in NAMED and held_out(seed, values_of(text)),
        bound_ns=bound.ns,
        binds=bound.binds,
        order_ns=order.makespan_ns,
        waited_ns=order.waited_ns,
        infeasible=infeasible,
        results={} if infeasible else _results(drawing, ways, order.makespan_ns),
    )


def _results(drawing: Drawing, ways: Sequence[Way], order_ns: int) -> dict[Way, Result]:
    found: dict[Way, Result] = {}
    for way in ways:
        program = declared(drawing) if way is Way.DECLARED else undeclared(drawing)
        if program is None:  # nothing to declare
            if Way.OURS in found:
                found[way] = attrs.evolve(found[Way.OURS], way=way)
                continue
            program = undeclared(drawing)
        result = World(drawing, way, program).run(10 * order_ns + 600 * SECOND_NS)
        found[way] = attrs.evolve(result, levels=())
    return found


# ---- many of them ----


def _one(task: tuple[str, tuple[Way, ...]]) -> Outcome:
    return outcome(*task)


@final
@attrs.frozen
class Repeated:
    """The makespans of several runs of one drawing that differ in the times on the network alone."""

    held_out: bool
    makespans_ns: tuple[float, ...]
    """Infinite if an agent died; the first is that of the tables."""

    def beaten(self, runs: int) -> bool:
        """Return True if the best of so many further runs is a better one, as a simpler way would be."""
        return self.makespans_ns[0] > BETTER * min(self.makespans_ns[1 : runs + 1])


def repeated(task: tuple[str, int]) -> Repeated | None:
    """Run a drawing, and so many times more; None if it is not feasible."""
    text, runs = task
    drawing = named(text)
    order = hint_free(drawing, ORDER_MAX_NS)
    if not order.finished or order.waited_ns > drawing.patience_ns:
        return None
    makespans_ns = []
    for number in range(runs + 1):
        world = World(drawing, Way.OURS, undeclared(drawing), road_number=number)
        result = world.run(10 * order.makespan_ns + 600 * SECOND_NS)
        makespans_ns.append(math.inf if result.dead else float(result.makespan_ns))
    return Repeated(held_out(drawing.seed, values_of(text)), tuple(makespans_ns))


def chance_table(names: Sequence[str], runs: int, jobs: int) -> Table:
    """Say how often a further run of `ours` counts as better by chance, and the best of several does."""
    tasks = [(name, runs) for name in names]
    with multiprocessing.get_context("spawn").Pool(jobs, _deaf) as pool:
        found = [one for one in pool.imap(repeated, tasks, chunksize=2) if one is not None]
    rows, figures = [], []
    for name, is_held_out in (("tuning", False), ("hold-out", True)):
        some = [one for one in found if one.held_out is is_held_out]
        if not some:
            continue
        shares = [sum(one.beaten(count) for one in some) / len(some) for count in (1, runs)]
        rows.append([name, str(len(some)), *(f"{share:.1%}" for share in shares)])
        figures.append({"part": name, "drawings": len(some), "one": shares[0], "best": shares[1]})
    return Table(
        title="Chance",
        notes=[
            f"`ours` against further runs of itself, which differ in the times on the network alone: the share of the "
            f"feasible drawings in which another run, and the best of {runs}, is faster by more than 10 %."
        ],
        head=["part", "feasible drawings", "another run", f"the best of {runs}"],
        rows=rows,
        figures=figures,
    )


def _deaf() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def outcomes(names: Sequence[str], ways: Sequence[Way], jobs: int) -> Iterator[Outcome]:
    """All of them in order, until interrupted."""
    tasks = [(name, tuple(ways)) for name in names]
    began = time.perf_counter()
    done = beaten = lost = 0
    pool = multiprocessing.get_context("spawn").Pool(jobs, _deaf) if jobs > 1 else None
    try:
        for found in map(_one, tasks) if pool is None else pool.imap(_one, tasks, chunksize=2):
            yield found
            done += 1
            own = [way for way in OWN if way in found.results]
            lost += sum(found.results[way].dead for way in own)
            beaten += any(found.beaten(way) > BETTER for way in own)
            if sys.stderr.isatty() or done % 25 == 0 or done == len(tasks):
                took = time.perf_counter() - began
                print(
                    f"[{done}/{len(tasks)}] {took:.0f} s; {lost} dead, {beaten} beaten by a simpler way",
                    file=sys.stderr,
                    flush=True,
                )
    except KeyboardInterrupt:
        print(f"interrupted after {done} of {len(tasks)}", file=sys.stderr)
    finally:
        if pool is not None:
            pool.terminate()
            pool.join()


def digest(found: Iterable[Outcome]) -> str:
    """Of all decisions."""
    hashed = hashlib.blake2b(digest_size=8)
    for one in found:
        hashed.update(f"{one.name} {one.order_ns} {one.waited_ns};".encode())
        for way, result in one.results.items():
            hashed.update(f"{way} {result.makespan_ns} {result.attempts} {result.digest};".encode())
    return hashed.hexdigest()


# ---- the report ----


def _percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)] if ordered else math.nan


def _number(value: float, digits: int = 2) -> str:
    return "dead" if math.isinf(value) else f"{value:.{digits}f}"


def distribution(found: Sequence[Outcome], ways: Sequence[Way], title: str) -> Table:
    """One row a way."""
    rows, figures = [], []
    for way in ways:
        results = [one.results[way] for one in found]
        bounds = [one.over_bound(way) for one in found]
        orders = [one.over_order(way) for one in found]
        alive = [value for value in orders if not math.isinf(value)]
        over_bound, over_order, over_order_alive = (
            [_percentile(values, share) for share in (0.5, 0.95, 1)] for values in (bounds, orders, alive)
        )
        row = {
            "way": way.value,
            "dead agents": sum(result.dead for result in results),
            "drawings with dead": sum(result.dead > 0 for result in results),
            "over bound": over_bound,
            "over order": over_order,
            "over order, if nobody dies": over_order_alive,
            "wasted": sum(result.wasted for result in results) / max(1, len(results)),
            "standstill": max((result.standstill_ns for result in results), default=0) / 1e9,
            "behind a 200": sum(result.behind for result in results),
            "crashed": sum(bool(result.crashed) for result in results),
        }
        figures.append(row)
        rows.append(
            [
                way.value,
                f"{row['dead agents']} in {row['drawings with dead']}",
                " / ".join(_number(value) for value in over_bound),
                " / ".join(_number(value) for value in over_order),
                " / ".join(_number(value) for value in over_order_alive),
                f"{row['wasted']:.2f}",
                f"{row['standstill']:.1f}",
                str(row["behind a 200"]),
                str(row["crashed"]),
            ]
        )
    return Table(
        title=title,
        notes=["Each triple is median / p95 / worst."],
        head=[
            *("way", "dead agents in drawings", "makespan / bound", "makespan / order"),
            *("the same where nobody dies", "wasted attempts a turn", "longest standstill s"),
            *("errors behind a 200 of the proxy", "crashes"),
        ],
        rows=rows,
        figures=figures,
    )


@final
@attrs.frozen
class Target:
    """One target, and what was found."""

    words: str
    found: str
    met: bool


def targets(found: Sequence[Outcome], own: Way) -> list[Target]:
    """Those of `feedback.md`."""
    results = [one.results[own] for one in found]
    orders = [one.over_order(own) for one in found]
    beaten = [value for one in found if (value := one.beaten(own)) > BETTER]
    dead = sum(result.dead for result in results)
    still = max((result.standstill_ns for result in results), default=0) / 1e9
    median, p95, worst = (_percentile(orders, share) for share in (0.5, 0.95, 1))
    share = len(beaten) / max(1, len(found))
    most = max(beaten, default=0.0)
    crashes = sum(bool(result.crashed) for result in results)
    return [
        Target("dead agents 0", str(dead), not dead),
        Target("crashes 0", str(crashes), not crashes),
        Target("makespan / order, median <= 1.10", _number(median), median <= 1.10),
        Target("p95 <= 1.5", _number(p95), p95 <= 1.5),
        Target("worst <= 3", _number(worst), worst <= 3),
        Target("simpler way better by > 10 % in <= 2 %", f"{share:.1%}", share <= 0.02),
        Target("never by more than 1.5 times", _number(most), most <= 1.5),
        Target("longest standstill <= 20 s", f"{still:.1f}", still <= 20),
    ]


def target_table(found: Sequence[Outcome], ways: Sequence[Way]) -> Table:
    """All targets, the hold-out in columns of its own."""
    columns = {
        f"{way.value}, {name}": targets(some, way)
        for way in OWN
        if way in ways
        for name, some in (
            ("tuning", [one for one in found if not one.held_out]),
            ("hold-out", [one for one in found if one.held_out]),
        )
        if some
    }
    rows = []
    for place, target in enumerate(next(iter(columns.values()), [])):
        cells = [column[place] for column in columns.values()]
        rows.append([target.words, *(f"{'pass' if cell.met else 'FAIL'} {cell.found}" for cell in cells)])
    figures = [{name: {one.words: [one.found, one.met] for one in column}} for name, column in columns.items()]
    return Table(title="Targets", head=["target", *columns], rows=rows, figures=figures)


def worst_of(found: Sequence[Outcome], own: Way, count: int) -> list[Outcome]:
    """The worst first: agents that died, then the ratio to the order or to a simpler way, then standstills."""

    def badness(one: Outcome) -> tuple[float, float]:
        result = one.results[own]
        return badness_of(one, own), result.standstill_ns

    return sorted(found, key=badness, reverse=True)[:count]


def badness_of(one: Outcome, own: Way) -> float:
    """Ratio to the order or to a simpler way, plus 1 for each 80 s of standstill beyond 20; 10 and more if any died."""
    result = one.results[own]
    if result.dead:
        return 10.0 + result.dead
    still_s = max(0.0, result.standstill_ns / 1e9 - 20)
    return min(10.0, max(one.over_order(own), one.beaten(own)) + still_s / 80)


def rows_table(found: Sequence[Outcome], ways: Sequence[Way], title: str) -> Table:
    """One row a drawing."""
    rows, figures = [], []
    for one in found:
        cells = []
        for way in ways:
            result = one.results.get(way)
            if result is None:
                cells.append("–")
                continue
            said = f"{result.makespan_ns / 1e9:.1f}"
            if result.dead:
                said += f", {result.dead} dead"
            if way in OWN:
                said += f" (still {result.standstill_ns / 1e9:.0f}, wasted {result.wasted:.2f})"
            cells.append(said + (" CRASH" if result.crashed else ""))
        note = one.infeasible or ", ".join(f"BEATS THE BOUND: {name}" for name in one.impossible)
        rows.append([one.name, f"{one.bound_ns / 1e9:.1f} {one.binds}", f"{one.order_ns / 1e9:.1f}", *cells, note])
        figures.append(_figures_of(one))
    return Table(
        title=title,
        head=["drawing", "bound s", "order s", *(way.value for way in ways), ""],
        rows=rows,
        figures=figures,
    )


def _figures_of(one: Outcome) -> dict[str, Any]:
    return {
        "name": one.name,
        "held_out": one.held_out,
        "bound_s": round(one.bound_ns / 1e9, 3),
        "binds": one.binds,
        "order_s": round(one.order_ns / 1e9, 3),
        "infeasible": one.infeasible,
        "ways": {
            way.value: {
                "makespan_s": round(result.makespan_ns / 1e9, 3),
                "dead": result.dead,
                "died_of": result.died_of,
                "wasted": round(result.wasted, 3),
                "standstill_s": round(result.standstill_ns / 1e9, 2),
                "refused": result.refused,
                "behind": result.behind,
                "crashed": result.crashed,
            }
            for way, result in one.results.items()
        },
    }


def report(found: Sequence[Outcome], ways: Sequence[Way], worst: int) -> list[Table]:
    """All tables."""
    feasible = [one for one in found if not one.infeasible]
    tables = []
    own = [way for way in OWN if way in ways]
    if own:
        tables.append(target_table(feasible, ways))
    for name, some in (
        ("Tuning", [one for one in feasible if not one.held_out]),
        ("Hold-out", [one for one in feasible if one.held_out]),
    ):
        if some:
            tables.append(distribution(some, ways, f"{name}: {len(some)} feasible drawings"))
    why = Counter(one.infeasible for one in found if one.infeasible)
    tables[-1:] = [
        attrs.evolve(table, notes=[*table.notes, f"Left out as infeasible: {dict(why) or 'none'}."])
        for table in tables[-1:]
    ]
    if own and feasible:
        tables.append(rows_table(worst_of(feasible, own[0], worst), ways, f"The worst for `{own[0].value}`"))
    broken = [one for one in found if one.impossible]
    if broken:
        tables.append(rows_table(broken, ways, "FASTER THAN THE BOUND: a bug of this bench"))
    return tables


# ---- pictures ----


def picture(text: str, way: Way) -> str:
    """SVG of one drawing: limit, in flight, waiting and refusals over time."""
    drawing = named(text)
    program = (declared(drawing) if way is Way.DECLARED else None) or undeclared(drawing)
    order_ns = hint_free(drawing, ORDER_MAX_NS).makespan_ns
    result = World(drawing, way, program).run(10 * order_ns + 600 * SECOND_NS)
    samples = tuple(
        Sample(level.at_ns, {"p": Drawn(level.limit, level.inflight, level.waiting, level.troubles)})
        for level in result.levels
    )
    title = f"{text}, {way.value}: {result.makespan_ns / 1e9:.1f} s, order {order_ns / 1e9:.1f} s"
    return svg(plot([(way.value, _as_figures(drawing, result, samples, order_ns))], title=title))


def _as_figures(drawing: Drawing, result: Result, samples: tuple[Sample, ...], order_ns: int) -> Figures:
    """As the simulator's picture wants them; what it does not draw is empty."""
    seen = Seen(
        attempts=result.attempts,
        met=result.refused,
        inflight_max=0,
        limit_min=0,
        limit_max=0,
        trips=0,
        utilisation=None,
    )
    return Figures(
        way=Through.PROXY,
        seed=drawing.seed,
        agents=len(drawing.jobs),
        dead=result.dead,
        undone=0,
        turns=drawing.turns,
        turns_done=result.turns,
        calls=result.attempts,
        attempts=result.attempts,
        met=result.refused,
        limited=0,
        tokens=0,
        tokens_wasted=0,
        cost_microusd=0,
        costs_microusd={},
        budgets_microusd={},
        makespan_ns=result.makespan_ns,
        bound_ns=order_ns,
        bound_binds="",
        binding_used=None,
        died_of=result.died_of,
        refused={},
        lanes={},
        teams={},
        loads={},
        upstreams={"p": seen},
        turn=Spread(),
        samples=samples,
        wait=Spread(),
        digest=result.digest,
    )


# ---- trace and search ----


def trace(text: str, way: Way, say: Callable[[str], None]) -> None:
    """Event log of one drawing."""
    drawing = named(text)
    bound, order = lower_bound(drawing), hint_free(drawing, ORDER_MAX_NS)
    program = (declared(drawing) if way is Way.DECLARED else None) or undeclared(drawing)
    say(f"drawing {text}, way {way.value}; {len(drawing.jobs)} agents, {drawing.turns} turns, patience "
        f"{drawing.patience_ns / 1e9:.0f} s")  # fmt: skip
    for name, value in attrs.asdict(drawing.traits, recurse=False).items():
        if value != getattr(_PLAIN, name):
            say(f"  {name} = {value}")
    say(f"bound {bound.ns / 1e9:.2f} s ({bound.binds}), order without hints {order.makespan_ns / 1e9:.2f} s, "
        f"longest wait there {order.waited_ns / 1e9:.1f} s")  # fmt: skip
    result = World(drawing, way, program, told=say).run(10 * order.makespan_ns + 600 * SECOND_NS)
    say(
        f"makespan {result.makespan_ns / 1e9:.2f} s; {result.dead} dead {result.died_of or ''}; {result.attempts} "
        f"attempts for {result.turns} turns; failures by true reason {result.refused}; longest standstill "
        f"{result.standstill_ns / 1e9:.1f} s from {result.standstill_at_ns / 1e9:.1f} s"
        + (f"; CRASH {result.crashed}" if result.crashed else "")
    )


_PLAIN: Final = Traits()


def search(seconds: float, seed: int, say: Callable[[str], None]) -> list[Outcome]:
    """Hill-climb towards the worst of ours: draw some parameters of one of the worst anew, keep what is worse."""
    chance, ends = Random(f"search/{seed}"), time.perf_counter() + seconds
    ways = (*SIMPLER, Way.OURS)
    pool: dict[str, tuple[float, Outcome]] = {}
    tried = 0
    try:
        while time.perf_counter() < ends:
            tried += 1
            if len(pool) < 10 or chance.random() < 0.2:
                text = str(chance.randrange(10_000_000) // 10 * 10 + chance.choice((0, 1, 2, 3, 4, 5, 6, 8, 9)))
            else:
                base, own = parsed(chance.choice(sorted(pool)))
                names = chance.sample(sorted(PARAMETERS), chance.randint(1, 4))
                text = written(base, own | {name: chance.randrange(1_000_000) for name in names})
            found = outcome(text, ways)
            if found.infeasible or found.held_out:
                continue
            badness = badness_of(found, Way.OURS)
            # At most two of one base, so that one weakness does not take all places.
            kin = [name for name in pool if name.split(",")[0] == text.split(",")[0]]
            rivals = kin if len(kin) >= 2 else list(pool) if len(pool) >= 20 else []
            weakest = min(rivals, key=lambda name: pool[name][0], default=None)
            if weakest is None or badness > pool[weakest][0]:
                pool[text] = badness, found
                if weakest is not None:
                    del pool[weakest]
                say(f"{tried} tried; {text}: {badness:.2f}; worst {max(value for value, _ in pool.values()):.2f}")
    except KeyboardInterrupt:
        say(f"interrupted after {tried}")
    return [found for _, found in sorted(pool.values(), key=lambda pair: -pair[0])]


# ---- over sockets ----


def sockets_table(names: Sequence[str], ways: Sequence[Way], jobs: int) -> Table:
    """Scenarios in real time beside the virtual world, `jobs` at a time; an interrupt keeps what is done."""
    runs = [(outcome(name, ways), way) for name in names for way in ways]
    found = _real([(named(one.name), way, 3 * one.order_ns / 1e9 + 120) for one, way in runs], jobs)
    rows, figures = [], []
    for (one, way), real in zip(runs, found, strict=True):
        if real is None:
            continue
        virtual = one.results.get(way)
        if virtual is None:
            continue
        rows.append(
            [
                one.name,
                way.value,
                f"{one.order_ns / 1e9:.1f}",
                f"{virtual.makespan_ns / 1e9:.1f}" + (f", {virtual.dead} dead" if virtual.dead else ""),
                f"{real.makespan_ns / 1e9:.1f}" + (f", {real.dead} dead" if real.dead else ""),
                f"{virtual.attempts} / {real.attempts}",
                ", ".join(f"{count} × {why}" for why, count in sorted(real.died_of.items())),
            ]
        )
        figures.append(
            {
                "name": one.name,
                "way": way.value,
                "order_s": round(one.order_ns / 1e9, 2),
                "virtual_s": round(virtual.makespan_ns / 1e9, 2),
                "virtual_dead": virtual.dead,
                "real_s": round(real.makespan_ns / 1e9, 2),
                "real_dead": real.dead,
                "attempts": [virtual.attempts, real.attempts],
            }
        )
    return Table(
        title="Over sockets",
        head=["scenario", "way", "order s", "virtual s", "real s", "attempts, virtual / real", "died of"],
        rows=rows,
        figures=figures,
    )


def _real(runs: Sequence[tuple[Drawing, Way, float]], jobs: int) -> list[Real | None]:
    found: list[Real | None] = [None] * len(runs)

    async def one(place: int, room: trio.CapacityLimiter) -> None:
        drawing, way, until_s = runs[place]
        async with room:
            real = found[place] = await over_sockets(drawing, way, until_s)
        print(f"{drawing.name}, {way.value}: {real.makespan_ns / 1e9:.1f} s, {real.dead} dead", file=sys.stderr)

    async def all_of_them() -> None:
        room = trio.CapacityLimiter(jobs)
        async with trio.open_nursery() as nursery:
            for place in range(len(runs)):
                nursery.start_soon(one, place, room)

    try:
        trio.run(all_of_them)
    except* KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    return found


# ---- command line ----


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for, print tables, and exit with 1 if a way beats the bound."""
    given = _parsed(arguments)
    ways = [Way(name) for name in given.way.split(",")] if given.way else list(Way)
    if given.trace is not None:
        trace(given.trace, ways[0] if given.way else Way.OURS, print)
        return 0
    if given.sockets is not None:
        ways = [way for way in (ways if given.way else [Way.OURS]) if way in SOCKET_WAYS]
        names = list(NAMED) if given.sockets == "all" else given.sockets.split(",")
        found: list[Outcome] = []
        tables = [sockets_table(names, ways, given.jobs)]
    elif given.chance is not None:
        found = []
        tables = [chance_table(_names(given), given.chance, given.jobs)]
    elif given.search is not None:
        found = search(given.search, given.seed, lambda line: print(line, file=sys.stderr, flush=True))
        tables = [rows_table(found[: given.worst], [*SIMPLER, Way.OURS], "The worst that the search found")]
    elif given.named is not None:
        names = list(NAMED) if given.named == "all" else given.named.split(",")
        found = list(outcomes(names, ways, given.jobs))
        tables = [rows_table(found, ways, "Scenarios by name"), *report(found, ways, 0)[:1]]
    else:
        names = [given.only] if given.only else _names(given)
        found = []
        with given.rows.open("w", encoding="utf-8") if given.rows is not None else nullcontext() as rows:
            for one in outcomes(names, ways, given.jobs):
                found.append(one)
                if rows is not None:
                    print(json.dumps(_figures_of(one)), file=rows, flush=True)
        tables = [rows_table(found, ways, "One drawing")] if given.only else report(found, ways, given.worst)
    made = provenance(drawings=given.drawings if given.chance else len(found), seed=given.seed, digest=digest(found))
    print(write(tables, made, title=f"Adversary: {made['drawings']} drawings", md=given.md, data=given.json), end="")
    if given.svg is not None:
        given.svg.mkdir(parents=True, exist_ok=True)
        own = next((way for way in OWN if way in ways), ways[0])
        for one in worst_of([one for one in found if not one.infeasible], own, given.worst):
            name = one.name.replace(",", "_").replace("=", "-")[:80]
            (given.svg / f"{name}.svg").write_text(picture(one.name, own), "utf-8")
    return 1 if any(one.impossible for one in found) else 0


def _names(given: argparse.Namespace) -> list[str]:
    keys = OWN_KEYS if given.own_keys else ""
    names = [f"{seed}{keys}" for seed in range(given.seed, given.seed + given.drawings)]
    if given.holdout == "both":
        return names
    wanted = given.holdout == "only"
    return [name for name in names if held_out(parsed(name)[0], values_of(name)) is wanted]


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.adversary", description="The scheduler on providers that it was not made for."
    )
    parser.add_argument("--drawings", type=int, default=100, metavar="N")
    parser.add_argument("--seed", type=int, default=0, help="of the first drawing")
    parser.add_argument("--way", help=f"some of {','.join(Way)}; all if it is left out")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--worst", type=int, default=10, metavar="N", help="rows and pictures of the worst")
    parser.add_argument("--only", metavar="DRAWING", help="one drawing: a seed, `SEED,PARAMETER=SEED`, or a name")
    parser.add_argument("--named", metavar="NAMES", help=f"`all`, or some of {','.join(NAMED)}")
    parser.add_argument("--sockets", metavar="NAMES", help="scenarios by name, in real time through the real proxy")
    parser.add_argument("--trace", metavar="DRAWING", help="event log of one drawing or scenario")
    parser.add_argument("--search", type=float, metavar="SECONDS", help="look for the worst that long")
    parser.add_argument("--chance", type=int, metavar="RUNS", help="hold `ours` against so many further runs of itself")
    parser.add_argument("--holdout", choices=("only", "without", "both"), default="both")
    parser.add_argument("--own-keys", action="store_true", help="each agent has a key of its own for the one account")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="one line of JSON for each drawing, as it is done")
    parser.add_argument("--md", type=Path, metavar="FILE")
    parser.add_argument("--svg", type=Path, metavar="DIR", help="pictures of the worst")
    given = parser.parse_args(arguments)
    try:
        for name in given.way.split(",") if given.way else ():
            Way(name)
        for text in filter(None, (given.only, given.trace)):
            named(text)
    except ValueError as error:
        parser.error(str(error))
    for text in filter(None, (given.named, given.sockets)):
        strange = [name for name in text.split(",") if name not in NAMED and name != "all"]
        if strange:
            parser.error(f"there is no scenario `{strange[0]}`; there is {', '.join(NAMED)}")
    return given


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `--trace 5 | head`
    sys.exit(main())
