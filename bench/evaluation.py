"""How many agents survive, how long does the work take, and what is each part of the scheduler good for?

Budget: the targets of the tables' notes. Everything is simulated by the scheduler of the proxy in virtual time, and one
seed is one story, digest included; `--real` runs scenarios over loopback sockets and in real time instead.
Nothing is asserted about time.

    python -m bench.evaluation [--only paper,ablation] [--seeds 20] [--md F] [--json F] [--plots DIR]
    python -m bench.evaluation --real [--only 'micro-10;replay-11, real resets;storm'] [--md F] [--json F]
    python -m bench.evaluation --smoke [...]       seconds; for the tests
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time
from typing import Final, final

import attrs

from hivemind_trio.policy import Program
from hivemind_trio.sim import Figures, Metric, Scenario, Way, World, bound_of, estimate, plot

from . import _published
from ._results import Table, cell, of_runs, provenance, write
from ._worlds import (
    AGENTRM,
    BINDING,
    DECLARED,
    REGIMES,
    TRUTHS,
    Switches,
    ablated,
    agentrm,
    compiled,
    grid,
    own_policy,
    paper,
    referred,
    shipped,
    smaller,
    with_resets,
)

DEAD: Final = Metric("dead", "%", lambda run: 100 * (run.dead + run.undone) / run.agents)
WASTED: Final = Metric("wasted attempts per turn", "", lambda run: run.attempts_wasted / max(1, run.turns_done))
TOKENS: Final = Metric("wasted tokens", "%", lambda run: 100 * run.tokens_wasted / max(1, run.tokens))
OVER: Final = Metric("makespan / bound", "", lambda run: run.over_bound)
MAKESPAN: Final = Metric("makespan", "s", lambda run: run.makespan_ns / 1e9)
P50: Final = Metric("turn p50", "s", lambda run: run.turn.p50 / 1e9)
P95: Final = Metric("turn p95", "s", lambda run: run.turn.p95 / 1e9)
P99: Final = Metric("turn p99", "s", lambda run: run.turn.p99 / 1e9)
LIMITED: Final = Metric("429s", "", lambda run: run.limited)
USED: Final = Metric(
    "of the binding dimension used",
    "%",
    lambda run: (
        100 * run.bound_ns / run.makespan_ns if run.over_bound is not None and run.bound_binds != "chain" else None
    ),
)
PER_MINUTE: Final = Metric("turns per minute", "", lambda run: run.turns_done * 60e9 / max(1, run.makespan_ns))
FAILED: Final = Metric("failed turns", "", lambda run: run.dead)
METRICS: Final = (DEAD, WASTED, TOKENS, MAKESPAN, OVER, USED, P50, P95, P99, LIMITED, PER_MINUTE, FAILED)


@final
@attrs.frozen(kw_only=True)
class Study:
    """How much is run."""

    seeds: Sequence[int]
    small: bool = False
    plots: Path | None = None
    regimes: Sequence[str] = REGIMES

    def sized(self, scenario: Scenario) -> Scenario:
        return smaller(scenario, 3, 2) if self.small else scenario

    def run(self, program: Program, scenario: Scenario, way: Way = Way.PROXY) -> tuple[list[Figures], float]:
        """Every seed's, and the CPU of one call, in µs."""
        runs: list[Figures] = []
        before = process_time()
        for seed in self.seeds:
            runs.append(World(program, scenario, seed, way, bound=bound_of(program, scenario, seed)).run())
        calls = sum(run.calls for run in runs)
        print(f"  {scenario.name}, {way}: {sum(run.dead for run in runs)} dead", file=sys.stderr, flush=True)
        return runs, (process_time() - before) * 1e6 / max(1, calls)

    def draw(self, name: str, scenario: Scenario, direct: Figures, proxied: Figures) -> None:
        """A plot of the first seed's runs."""
        if self.plots is None:
            return
        self.plots.mkdir(parents=True, exist_ok=True)
        title = f"{scenario.name}, seed {proxied.seed}, simulated"
        drawing = plot([("direct", direct), ("through the proxy", proxied)], title=title)
        (self.plots / f"{name}.svg").write_text(drawing, "utf-8")


def said(runs: Sequence[Figures], metric: Metric, digits: int = 2) -> str:
    """One cell; how many seeds it is of, where some say nothing."""
    found = estimate([metric.of(run) for run in runs])
    text = cell(found, digits)
    return text if found is None or found.count == len(runs) else f"{text} ({found.count} of {len(runs)})"


# ---- the tables ----


def of_paper(study: Study) -> Table:
    """The seven scenarios and their variants."""
    rows, figures = [], []
    for each in paper():
        scenario, program = study.sized(each), own_policy(each)
        direct, _ = study.run(program, scenario, Way.DIRECT)
        proxied, cpu_us = study.run(program, scenario)
        if "," not in each.name:
            study.draw(each.name, scenario, direct[0], proxied[0])
        theirs = _published.PAPER.get(each.name)
        older = _published.SCHEDULER.get(each.name)
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
                " / ".join(said(proxied, metric, 1).split(" ")[0] for metric in (P50, P95, P99)),
                said(proxied, USED, 0),
                f"{cpu_us:,.0f}",
            ]
        )
        figures += [
            {"scenario": each.name, "way": way} | of_runs(runs, METRICS)
            for way, runs in (("direct", direct), ("proxy", proxied))
        ]
    return Table(
        title="The HiveMind paper's scenarios",
        notes=[
            "Agents die of their first error and wait 120 s for a byte. Simulated; the paper's figures and those of "
            "hivemind-scheduler 0.2.0 (three runs, ours) were measured over sockets. Target: 0 % dead, makespan / "
            "bound ≤ 1.05.",
        ],
        head=[
            *("scenario", "direct: dead %", "proxy: dead %", "paper: dead %, direct → HiveMind"),
            *("hivemind-scheduler: dead %", "proxy: makespan / bound", "hivemind-scheduler's", "bound"),
            *("wasted attempts per turn", "direct: wasted tokens %", "proxy: wasted tokens %"),
            *("turn p50 / p95 / p99, s", "binding dimension used, %", "CPU per call, µs"),
        ],
        rows=rows,
        figures=figures,
    )


def of_ablation(study: Study) -> Table:
    """Each part off by itself, and on by itself."""
    names = Switches.names()
    variants = {"full": Switches()}
    variants |= {f"without {name}": Switches(**{name: False}) for name in names}
    variants |= {f"{name} alone": Switches(**dict.fromkeys(names, False) | {name: True}) for name in names}
    variants["nothing"] = Switches(**dict.fromkeys(names, False))
    scenarios = [with_resets(shipped("replay-11")), with_resets(shipped("stress"))]
    rows, figures = [], []
    for variant, on in variants.items():
        row = [variant, _published.ABLATION.get(variant, "–")]
        for each in scenarios:
            scenario = study.sized(each)
            runs, _ = study.run(compiled(ablated(each.upstreams[0].traits, on)), scenario)
            row += [said(runs, DEAD, 1), said(runs, WASTED), said(runs, OVER)]
            figures.append({"scenario": each.name, "variant": variant} | of_runs(runs, METRICS))
        rows.append(row)
    return Table(
        title="Ablation",
        notes=[
            "Each switch is a setting of the policy: `caps` what the provider bears at once (off: a thousand), `aimd` "
            "that it adapts, `quotas` its limits per window, `headers` that answers correct them, `retry`, `breaker`, "
            "`fairness` turns of agents (off: first come, first served). `quotas` off leaves headers unbelieved too. "
            "Bypass, pacing and patience have no switch in the language and are not here. "
            "Makespan / bound is of the seeds in which all the work was done.",
        ],
        head=["", "paper: dead %", *(f"{each.name}: {what}" for each in scenarios
                                     for what in ("dead %", "wasted attempts per turn", "makespan / bound"))],
        rows=rows,
        figures=figures,
    )  # fmt: skip


def of_agentrm(study: Study) -> Table:
    """AgentRM's five, by ordering."""
    rows, figures = [], []
    for name in AGENTRM:
        each = shipped(f"agentrm-{name}")
        scenario = study.sized(each)
        for ordering, program in agentrm(each).items():
            runs, _ = study.run(program, scenario)
            by_class = [
                cell(estimate([run.loads[fleet.name].turn.p95 / 1e9 for run in runs]), 0).split(" ")[0]
                for fleet in scenario.fleets
            ]
            rows.append(
                [
                    name,
                    ordering,
                    said(runs, P95, 0),
                    _published.AGENTRM.get(name, "–") if ordering == "FIFO" else "",
                    " / ".join(by_class),
                    said(runs, PER_MINUTE, 1),
                    said(runs, FAILED, 1),
                ]
            )
            figures.append({"scenario": name, "ordering": ordering} | of_runs(runs, METRICS))
    return Table(
        title="AgentRM's workloads",
        notes=[
            "Four slots; service of 8.7 s on average; some calls hang for 50 to 120 s (cascade: 30 to 70 s). The "
            "reaper gives an attempt up that has not begun after 45 s and tries again, five times at most; what "
            "it gives up five times has failed. What is claimed of an ordering is claimed against FIFO + reaper. "
            "A job here is one call, so the attained service of MLFQ says nothing, and it is a priority queue. "
            "Their zombies are calls that nobody reaps; with a reaper there are none, without one there are as "
            "many as hang.",
        ],
        head=[
            *("workload", "ordering", "p95, s", "AgentRM's own p95, s"),
            *("p95 interactive / sub-agent / background, s", "turns per minute", "failed"),
        ],
        rows=rows,
        figures=figures,
    )


def of_regimes(study: Study) -> Table:
    """64 agents, 20 turns, and what a provider may be."""
    rows, figures = [], []
    for name in study.regimes:
        each = shipped(name)
        scenario, own = study.sized(each), own_policy(each)
        direct, _ = study.run(own, scenario, Way.DIRECT)
        ways: dict[str, list[Figures]] = {"direct, with the SDK's retries": direct}
        for title, program in referred(each).items():
            ways[title], _ = study.run(program, scenario)
        study.draw(name, scenario, direct[0], ways["the proxy"][0])
        for title, runs in ways.items():
            rows.append(
                [
                    name,
                    title,
                    said(runs, DEAD, 1),
                    said(runs, WASTED, 3),
                    said(runs, OVER),
                    runs[0].bound_binds,
                    said(runs, P50, 1),
                    said(runs, P95, 1),
                ]
            )
            figures.append({"scenario": name, "way": title} | of_runs(runs, METRICS))
    return Table(
        title="Regimes",
        notes=[
            "Agents use the Anthropic SDK, stream, and think for 5 s on average. Targets: 0 dead, 0.01 wasted attempts "
            "per turn where a quota binds, makespan / bound ≤ 1.05 with size hints and ≤ 1.25 without. There are no "
            "size hints here: nobody tells the scheduler how many turns an agent still has, so there is no oracle "
            "either, and the chain of the longest agent behind everybody else's work is what stands above the bound.",
        ],
        head=[
            "scenario",
            "",
            "dead %",
            "wasted attempts per turn",
            "makespan / bound",
            "bound",
            "turn p50, s",
            "p95, s",
        ],
        rows=rows,
        figures=figures,
    )


def of_grid(study: Study) -> Table:
    """What binds x how it is counted x what the policy says x whether refusals are charged."""
    rows, figures = [], []
    few = attrs.evolve(study, seeds=study.seeds[:3])
    for binds in BINDING:
        for truth in TRUTHS:
            row = [f"{binds}, {truth}"]
            for declared in DECLARED:
                for charged in (False, True):
                    scenario, program = grid(binds, truth, declared, charged=charged)
                    runs, _ = few.run(program, few.sized(scenario))
                    row.append(f"{said(runs, DEAD, 0)} · {said(runs, WASTED, 3).split(' ')[0]} · "
                               f"{said(runs, OVER).split(' ')[0]}")  # fmt: skip
                    figures.append({"scenario": scenario.name} | of_runs(runs, METRICS))
            rows.append(row)
    return Table(
        title="What binds, how it is counted, and what the policy says of it",
        notes=[
            "Each cell: dead % · wasted attempts per turn · makespan / bound. 32 agents of ten turns, at most three "
            "seeds. Declared wrong is half as much again as there is. Refused requests are `free`, or `charged`.",
        ],
        head=["", *(f"{declared}, {'charged' if charged else 'free'}" for declared in DECLARED
                    for charged in (False, True))],
        rows=rows,
        figures=figures,
    )  # fmt: skip


PARTS: Final[dict[str, Callable[[Study], Table]]] = {
    "paper": of_paper,
    "ablation": of_ablation,
    "agentrm": of_agentrm,
    "regimes": of_regimes,
    "grid": of_grid,
}


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; the exit status."""
    parser = argparse.ArgumentParser(description="The evaluation: tables of what the scheduler is worth.")
    parser.add_argument("--only", default="", help=f"of {', '.join(PARTS)}; with --real, scenarios, `;` between them")
    parser.add_argument("--regimes", default=",".join(REGIMES), help="scenarios of that part; %(default)s")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="the first of them")
    parser.add_argument("--md", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plots", type=Path, metavar="DIR")
    parser.add_argument("--real", action="store_true", help="over sockets, in real time: minutes")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args(arguments)
    named = [name for name in options.only.split(";" if options.real else ",") if name]
    whole = True
    if options.real:
        from ._real import real

        over_sockets, whole = real(named, seed=options.seed, small=options.smoke)
        tables = [over_sockets]
        made = provenance(seed=options.seed, way="over loopback sockets, in real time, unscaled")
    else:
        unknown = [name for name in named if name not in PARTS]
        if unknown:
            parser.error(f"there is no part `{unknown[0]}`; there is {', '.join(PARTS)}")
        regimes = options.regimes.split(",")
        strange = [name for name in regimes if name not in REGIMES]
        if strange:
            parser.error(f"there is no regime `{strange[0]}`; there is {', '.join(REGIMES)}")
        seeds = range(options.seed, options.seed + (1 if options.smoke else options.seeds))
        study = Study(seeds=seeds, small=options.smoke, plots=options.plots, regimes=regimes)
        tables = [part(study) for name, part in PARTS.items() if not named or name in named]
        made = provenance(seeds=f"{seeds[0]} to {seeds[-1]}", way="simulated")
    print(write(tables, made, title="Evaluation", md=options.md, data=options.json))
    return 0 if whole else 130


if __name__ == "__main__":
    sys.exit(main())
