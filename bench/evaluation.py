"""How many agents survive, how long does the work take, and what is each part of the scheduler good for?

Budget: the targets of the tables' notes. Everything is simulated by the scheduler of the proxy in virtual time, and one
seed is one story, digest included; `--real` runs scenarios over loopback sockets and in real time instead.
Nothing is asserted about time, but that no run takes less than the lower bound.

    python -m bench.evaluation [--only paper,ablation] [--seeds 20] [--jobs 2] [--minutes 25] [--out DIR]
    python -m bench.evaluation --real [--only 'micro-10;replay-11, real resets;storm'] [--md F] [--json F]
    python -m bench.evaluation --smoke [...]       seconds; for the tests

`--out` has a file of each part, written anew while it runs: what is interrupted leaves what it has.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Final, final

import attrs

from bench.simulated.ablation import Switches, ablated
from bench.simulated.grid import Cell, cells, grid
from bench.simulated.metrics import (
    BOUND,
    DEAD,
    DIED,
    MAKESPAN,
    OVER,
    P50,
    P95,
    P99,
    PER_MINUTE,
    TOKENS,
    USED,
    WASTED,
    brief,
    briefly,
    figures,
    said,
)
from bench.simulated.simulated import Case, Found, simulate
from bench.simulated.worlds import (
    AGENTRM,
    PROXY,
    REGIMES,
    agentrm,
    compiled,
    hinted,
    own_policy,
    paper,
    referred,
    shipped,
    smaller,
)
from hivemind_trio.sim import Figures, Metric, Scenario, Way, estimate, plot, svg

from .simulated import ablation, published
from .tables import Table, cell, provenance, write

DIRECT: Final = "direct, with the SDK's retries"


@final
@attrs.frozen(kw_only=True)
class Study:
    """What is run."""

    small: bool = False
    regimes: Sequence[str] = REGIMES

    def sized(self, scenario: Scenario) -> Scenario:
        return smaller(scenario, 3, 2) if self.small else scenario


@final
@attrs.frozen(kw_only=True)
class Part:
    """Some tables: what is run for them, and what is made of it."""

    cases: Callable[[Study], list[Case]]
    tables: Callable[[Study, Found], list[Table]]


# ---- the paper's ----


def _paper_cases(study: Study) -> list[Case]:
    """The seven scenarios and their variants, both ways."""
    cases = []
    for each in paper():
        work, program = study.sized(each), own_policy(each)
        for way in Way:
            key = (each.name, str(way))
            cases.append(Case(key=key, scenario=work, program=program, way=way, drawn="," not in each.name))
    return cases


def _paper_tables(_study: Study, found: Found) -> list[Table]:
    rows, told = [], []
    for each in paper():
        direct, proxied = (found.of(each.name, str(way)) for way in Way)
        if not direct or not proxied:
            continue
        theirs = published.PAPER.get(each.name)
        older = published.SCHEDULER.get(each.name)
        rows.append(
            [
                each.name,
                said(direct, DEAD, 0),
                said(proxied, DEAD, 1),
                f"{theirs.direct:g} → {theirs.proxied:g}" if theirs else "–",
                older.dead if older else "–",
                said(proxied, OVER),
                older.over_bound if older else "–",
                proxied[0].bound_binds,
                said(proxied, WASTED),
                said(direct, TOKENS, 0),
                said(proxied, TOKENS, 1),
                briefly(proxied, (P50, 1), (P95, 1), (P99, 1)),
                said(proxied, USED, 0),
                f"{found.cpu_us(each.name, str(Way.PROXY)):,.0f}",
            ]
        )
        told += [figures(found, (each.name, str(way)), scenario=each.name, way=str(way)) for way in Way]
    return [
        Table(
            title="The HiveMind paper's scenarios",
            notes=[
                "Agents die of their first error and wait 120 s for a byte. Simulated; the paper's figures and those "
                "of hivemind-scheduler 0.2.0 (three runs, ours, against the windows alone) were measured over sockets. "
                "Target: 0 % dead, makespan / bound ≤ 1.05. The bound is the windows that are needed and what is left "
                "of the work in the last of them.",
            ],
            head=[
                *("scenario", "direct: dead %", "proxy: dead %", "paper: dead %, direct → HiveMind"),
                *("hivemind-scheduler: dead %", "proxy: makespan / bound", "hivemind-scheduler's", "bound"),
                *("wasted attempts per turn", "direct: wasted tokens %", "proxy: wasted tokens %"),
                *("turn p50 / p95 / p99, s", "binding dimension used, %", "CPU per call, µs"),
            ],
            rows=rows,
            figures=told,
        )
    ]


# ---- ablation ----

PEOPLE: Final = Metric("people's p95", "s", lambda run: run.loads["people"].turn.p95 / 1e9)


def _variants(study: Study) -> dict[str, Switches]:
    return Switches.variants(Switches.names()[-2:] if study.small else Switches.names())


def _ablation_cases(study: Study) -> list[Case]:
    """Each part off by itself, and on by itself."""
    return [
        Case(
            key=(each.name, variant),
            scenario=work,
            program=compiled(ablated(each, on)),
            parts=on.parts,
        )
        for each in [*ablation.of_the_paper(), *ablation.of_regimes()]
        for work in [study.sized(each)]
        for variant, on in _variants(study).items()
    ]


def _ablation_tables(study: Study, found: Found) -> list[Table]:
    theirs, regimes = ablation.of_the_paper(), ablation.of_regimes()
    rows, compact, told = [], [], []
    for variant in _variants(study):
        row, brief_row = [variant, published.ABLATION.get(variant, "–")], [variant]
        for each in theirs:
            runs = found.of(each.name, variant)
            row += [said(runs, DEAD, 1), said(runs, WASTED), said(runs, OVER)] if runs else ["", "", ""]
        for each in regimes:
            runs = found.of(each.name, variant)
            second = PEOPLE if each.name == "greedy" else WASTED
            brief_row.append(
                " · ".join(brief(runs, *one) for one in ((DEAD, 0), (second, 2), (OVER, 2))) if runs else ""
            )
        rows.append(row)
        compact.append(brief_row)
    for each in [*theirs, *regimes]:
        for variant in _variants(study):
            if (each.name, variant) in found:
                told.append(figures(found, (each.name, variant), scenario=each.name, variant=variant))
    meant = "; ".join(f"`{name}` {what}" for name, what in ablation.REGIMES.items())
    return [
        Table(
            title="Ablation: the paper's scenarios",
            notes=[
                "Switches that are settings of a policy: `caps` is what the provider bears at once (off: a thousand), "
                "`aimd` that it adapts, `quotas` its limits per window, `headers` that answers correct them, `retry`, "
                "`breaker`, `fairness` turns of agents (off: first come, first served). `quotas` off leaves headers "
                "unbelieved too. Those of the core, which no policy has: `bypass` of what does not fit, `patience` of "
                "clients, `prefixes` (one goes ahead), `overdue` calls first. Makespan / bound is of the seeds in "
                "which all the work was done.",
            ],
            head=["", "paper: dead %", *(f"{each.name}: {what}" for each in theirs
                                         for what in ("dead %", "wasted attempts per turn", "makespan / bound"))],
            rows=rows,
            figures=told,
        ),
        Table(
            title="Ablation: regimes",
            notes=[
                "Each cell: dead % · wasted attempts per turn · makespan / bound; in `greedy` the second is the p95 of "
                f"the four people's turns, s. {ablation.TURNS} turns each. Makespan / bound is "
                f"of the seeds in which all the work was done. What they are there to show: {meant}.",
            ],
            head=["", *(each.name for each in regimes)],
            rows=compact,
        ),
    ]  # fmt: skip


# ---- AgentRM's ----


def _agentrm_cases(study: Study) -> list[Case]:
    """Its five workloads, by ordering."""
    cases = []
    for name in AGENTRM:
        each = shipped(f"agentrm-{name}")
        work = study.sized(each)
        cases += [
            Case(key=(name, ordering), scenario=work, program=program) for ordering, program in agentrm(each).items()
        ]
    return cases


def _agentrm_tables(_study: Study, found: Found) -> list[Table]:
    rows, told = [], []
    for name in AGENTRM:
        each = shipped(f"agentrm-{name}")
        for ordering in found.titles(name):
            runs = found.of(name, ordering)
            by_class = [
                cell(estimate([run.loads[fleet.name].turn.p95 / 1e9 for run in runs]), 0).split(" ")[0]
                for fleet in each.fleets
            ]
            rows.append(
                [
                    name,
                    ordering,
                    said(runs, P95, 0),
                    published.AGENTRM.get(name, "–") if ordering == "FIFO" else "",
                    " / ".join(by_class),
                    said(runs, PER_MINUTE, 1),
                    said(runs, DIED, 1),
                ]
            )
            told.append(figures(found, (name, ordering), scenario=name, ordering=ordering))
    return [
        Table(
            title="AgentRM's workloads",
            notes=[
                "Four slots; service of 8.7 s on average; some calls hang for 50 to 120 s (cascade: 30 to 70 s). The "
                "reaper gives an attempt up that has not begun after 45 s and tries again, five times at most; what "
                "it gives up five times has failed. What is claimed of an ordering is claimed against FIFO + reaper. "
                "A job here is one call, so the attained service of MLFQ says nothing, and it is a priority queue. "
                "Their zombies are calls that nobody reaps; with a reaper there are none, without one there are as "
                "many as hang. AgentRM's own figures are simulated too, on workloads that its paper does not define "
                "whole.",
            ],
            head=[
                *("workload", "ordering", "p95, s", "AgentRM's own p95, s"),
                *("p95 interactive / sub-agent / background, s", "turns per minute", "failed"),
            ],
            rows=rows,
            figures=told,
        )
    ]


# ---- regimes ----


def _regime_cases(study: Study) -> list[Case]:
    """64 agents, 20 turns, and what a provider may be."""
    cases = []
    for name in study.regimes:
        each = shipped(name)
        work = study.sized(each)
        cases.append(
            Case(key=(name, DIRECT), scenario=work, program=own_policy(each), way=Way.DIRECT, work=work, drawn=True)
        )
        for title, program in referred(each).items():
            cases.append(Case(key=(name, title), scenario=work, program=program, work=work, drawn=title == PROXY))
        for title, (says, program) in hinted(work).items():
            cases.append(Case(key=(name, title), scenario=says, program=program, work=work))
    return cases


def _regime_tables(study: Study, found: Found) -> list[Table]:
    rows, told = [], []
    for name in study.regimes:
        there = found.titles(name)
        if there:
            runs = found.of(name, there[0])
            rows.append([name, "lower bound", "", "", said(runs, BOUND, 0), "1", runs[0].bound_binds, "", "", "", ""])
        for title in there:
            runs = found.of(name, title)
            rows.append(
                [
                    name,
                    title,
                    said(runs, DEAD, 1),
                    said(runs, WASTED, 3),
                    said(runs, MAKESPAN, 0),
                    said(runs, OVER),
                    runs[0].bound_binds,
                    said(runs, USED, 0),
                    said(runs, TOKENS, 1),
                    briefly(runs, (P50, 1), (P95, 1), (P99, 1)),
                    f"{found.cpu_us(name, title):,.0f}",
                ]
            )
            told.append(figures(found, (name, title), scenario=name, way=title))
    return [
        Table(
            title="Regimes",
            notes=[
                "64 agents of 20 turns on average, and very uneven ones (`herd-512`: 512 of 4; `oversized`: 24 of 6); "
                "they use the Anthropic SDK, stream, and think for 5 s on average. Targets: 0 dead, 0.01 wasted "
                "attempts per turn where a quota binds, makespan / bound ≤ 1.05 with size hints and ≤ 1.25 without. "
                "With hints agents say how many calls they have still to make, and `objective makespan` lets those go "
                "first that have most; without them nobody knows which job will be the last. The bound is the largest "
                "sum of when calls can have been let in and what must follow them; what fails at random, such as 80 % "
                "of a storm, is not in it. Makespan / bound is of the seeds in which all the work was done.",
                "Used is what was taken of all that there had been of what binds, until nobody waited any more.",
            ],
            head=[
                *("scenario", "", "dead %", "wasted attempts per turn", "makespan, s", "makespan / bound", "bound"),
                *("binding dimension used, %", "wasted tokens %", "turn p50 / p95 / p99, s", "CPU per call, µs"),
            ],
            rows=rows,
            figures=told,
        )
    ]


# ---- the grid ----


def _cells(study: Study) -> list[Cell]:
    return list(cells())[:: 11 if study.small else 1]


def _grid_cases(study: Study) -> list[Case]:
    """What binds, how it is counted, what the policy says, and whether refusals are charged."""
    cases = []
    works: dict[tuple[str, str], Scenario] = {}
    for each in _cells(study):
        scenario, program = grid(each)
        scenario = study.sized(scenario)
        work = works.setdefault((each.binds, each.truth), scenario)
        free = (each._replace(charged=False).name,) if each.charged else None
        cases.append(Case(key=(each.name,), scenario=scenario, program=program, work=work, unlimited=free))
    return cases


def _grid_tables(study: Study, found: Found) -> list[Table]:
    there = {tuple(each): each.name for each in _cells(study)}
    columns = [(declared, charged) for declared in ("right", "wrong", "nothing") for charged in (False, True)]
    rows = []
    for binds, truth in dict.fromkeys((each.binds, each.truth) for each in _cells(study)):
        row = [f"{binds}, {truth}"]
        for column in columns:
            runs = found.of(there.get((binds, truth, *column), ""))
            row.append(" · ".join(brief(runs, *one) for one in ((DEAD, 1), (WASTED, 3), (OVER, 2))) if runs else "")
        rows.append(row)
    return [
        Table(
            title="What binds, how it is counted, and what the policy says of it",
            notes=[
                "Each cell: dead % · wasted attempts per turn · makespan / bound. 64 agents of 20 turns, without "
                "hints. Declared right: caps, limits and, where the language has a word for it, how they are counted;"
                " wrong: half as much again as there is; nothing: what answers tell is all that is known. Refused "
                "requests are `free`, or `charged`. Azure has no limit on output alone, one on tokens counts what a "
                "call may put out at most, and its 429s say to come back in a second. Where output is counted in "
                "windows the bound is loose: what answers under way take beyond one is forgiven. Makespan / bound is "
                "of the seeds in which all the work was done.",
            ],
            head=["", *(f"{declared}, {'charged' if charged else 'free'}" for declared, charged in columns)],
            rows=rows,
            figures=[
                figures(found, (each.name,), scenario=each.name) for each in _cells(study) if (each.name,) in found
            ],
        )
    ]


PARTS: Final[dict[str, Part]] = {
    "paper": Part(cases=_paper_cases, tables=_paper_tables),
    "agentrm": Part(cases=_agentrm_cases, tables=_agentrm_tables),
    "regimes": Part(cases=_regime_cases, tables=_regime_tables),
    "ablation": Part(cases=_ablation_cases, tables=_ablation_tables),
    "grid": Part(cases=_grid_cases, tables=_grid_tables),
}


def _draw(folder: Path, found: Found, cases: Sequence[Case]) -> None:
    """Of each scenario that is to be drawn, the first seed both ways."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs: dict[str, list[tuple[str, Figures]]] = {}
    for case in cases:
        runs = found.of(*case.key)
        if case.drawn and runs and runs[0].samples:
            name = "through the proxy" if case.way is Way.PROXY else "direct"
            pairs.setdefault(case.key[0], []).append((name, runs[0]))
    for scenario, pair in pairs.items():
        title = f"{scenario}, seed {pair[0][1].seed}, simulated"
        (folder / f"{scenario}.svg").write_text(svg(plot(pair, title=title)), "utf-8")


def _simulated(options: argparse.Namespace, named: Sequence[str], study: Study) -> int:
    seeds = range(options.seed, options.seed + (1 if options.smoke else options.seeds))
    made = provenance(seeds=f"{seeds[0]} to {seeds[-1]}", way="simulated")
    until_s = None if options.minutes is None else perf_counter() + 60 * options.minutes
    all_tables: list[Table] = []
    beaten: list[str] = []
    whole = True
    for name, part in PARTS.items():
        if not whole or (named and name not in named):
            continue
        cases = part.cases(study)

        def keep(found: Found, name: str = name, part: Part = part) -> list[Table]:
            tables = part.tables(study, found)
            if options.out is not None:
                state: dict[str, Any] = {"state": found.missing} if found.missing else {}
                files = {"md": options.out / f"{name}.md", "data": options.out / f"{name}.json"}
                write(tables, made | state, title="Evaluation", **files)
            return tables

        found, whole = simulate(cases, seeds, jobs=options.jobs, what=name, keep=keep, until_s=until_s)
        all_tables += keep(found)
        beaten += found.beaten
        if found.missing:
            made["state"] = found.missing
        if options.plots is not None:
            _draw(options.plots, found, cases)
    print(write(all_tables, made, title="Evaluation", md=options.md, data=options.json))
    for each in beaten:
        print(f"the bound is wrong: {each}", file=sys.stderr)
    return 130 if not whole else 1 if beaten else 0


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; the exit status."""
    parser = argparse.ArgumentParser(description="The evaluation: tables of what the scheduler is worth.")
    parser.add_argument("--only", default="", help=f"of {', '.join(PARTS)}; with --real, scenarios, `;` between them")
    parser.add_argument("--regimes", default=",".join(REGIMES), help="scenarios of that part; %(default)s")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; as many as there are cores")
    parser.add_argument("--minutes", type=float, help="then no more is run, and tables have the seeds that are done")
    parser.add_argument("--out", type=Path, metavar="DIR", help="PART.md and PART.json, while it runs")
    parser.add_argument("--md", type=Path, help="all tables in one file, at the end")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plots", type=Path, metavar="DIR")
    parser.add_argument("--real", action="store_true", help="over sockets, in real time: minutes")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args(arguments)
    named = [name for name in options.only.split(";" if options.real else ",") if name]
    if options.real:
        from bench.sockets.real import real

        over_sockets, whole = real(named, seed=options.seed, small=options.smoke)
        made = provenance(seed=options.seed, way="over loopback sockets, in real time, unscaled")
        print(write([over_sockets], made, title="Evaluation", md=options.md, data=options.json))
        return 0 if whole else 130
    unknown = [name for name in named if name not in PARTS]
    if unknown:
        parser.error(f"there is no part `{unknown[0]}`; there is {', '.join(PARTS)}")
    regimes = options.regimes.split(",")
    strange = [name for name in regimes if name not in REGIMES]
    if strange:
        parser.error(f"there is no regime `{strange[0]}`; there is {', '.join(REGIMES)}")
    return _simulated(options, named, Study(small=options.smoke, regimes=regimes))


if __name__ == "__main__":
    sys.exit(main())
