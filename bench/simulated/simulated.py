"""Many runs in the virtual world, by several processes, with progress, until all are done or it is interrupted."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter, process_time
from typing import Final, final

import attrs

from hivemind_trio.policy import Program
from hivemind_trio.scheduler import ALL_PARTS, Features
from hivemind_trio.sim import Figures, Scenario, Way, World, bound_of

Key = tuple[str, ...]
"""What a case is called: the first word is its scenario."""

TOLD_EVERY_S: Final = 5.0
KEPT_EVERY_S: Final = 30.0


@final
@attrs.frozen(kw_only=True, eq=False)
class Case:
    """A scenario under a policy, one way."""

    key: Key
    scenario: Scenario
    program: Program
    way: Way = Way.PROXY
    parts: Features = ALL_PARTS
    work: Scenario | None = None
    """Whose lower bound it is, if several cases have the same work before them; None: its own."""
    drawn: bool = False
    """The first seed's samples are wanted."""
    unlimited: Key | None = None
    """Another before it, of the same work, that differs from it in nothing as long as it meets no 429: then their runs
    are the same."""

    @property
    def calls(self) -> float:
        """About how many there are."""
        return sum(fleet.count * fleet.turns.mean for fleet in self.scenario.fleets)


@final
@attrs.frozen
class Run:
    """What came of one, and the CPU that it took."""

    figures: Figures
    cpu_ns: int


@final
@attrs.define(eq=False)
class Found:
    """What has come of the cases so far."""

    seeds: Sequence[int]
    keys: Sequence[Key]
    """Of all cases, in the order of the tables."""
    _runs: dict[Key, dict[int, Run]] = attrs.field(factory=lambda: defaultdict(dict), init=False)

    def add(self, key: Key, run: Run) -> None:
        self._runs[key][run.figures.seed] = run

    def __contains__(self, key: Key) -> bool:
        return key in self._runs

    def of(self, *key: str) -> list[Figures]:
        """Its runs, by seed."""
        runs = self._runs.get(key, {})
        return [runs[seed].figures for seed in self.seeds if seed in runs]

    def cpu_us(self, *key: str) -> float:
        """Of one call, the virtual world's part included."""
        runs = self._runs.get(key, {}).values()
        return sum(run.cpu_ns for run in runs) / 1e3 / max(1, sum(run.figures.calls for run in runs))

    def titles(self, first: str) -> list[str]:
        """What comes second in the keys of those that begin so, and of which anything is there."""
        return [key[1] for key in self.keys if key[0] == first and key in self]

    @property
    def missing(self) -> str:
        """What is not there, for people; empty: nothing."""
        counts = [len(self._runs.get(key, ())) for key in self.keys]
        least, most = min(counts), max(counts)
        if least == len(self.seeds):
            return ""
        many = f"{least}" if least == most else f"{least} to {most}"
        return f"stopped early: {many} of {len(self.seeds)} seeds" if least else "stopped early"

    @property
    def beaten(self) -> Iterator[str]:
        """Runs that took less time than any can: then the bound is wrong."""
        for key, runs in self._runs.items():
            for seed, run in runs.items():
                if run.figures.over_bound is not None and run.figures.over_bound < 1:
                    yield f"{', '.join(key)}, seed {seed}: {run.figures.over_bound:.4f} of the bound"


def simulate(
    cases: Sequence[Case],
    seeds: Sequence[int],
    *,
    jobs: int,
    what: str,
    keep: Callable[[Found], object],
    until_s: float | None = None,
) -> tuple[Found, bool]:
    """Run all cases with all seeds, seed by seed; what came of them, and whether nobody has interrupted it.

    Args:
        until_s: When time is up, of `perf_counter`.
        what: To call it in the progress, which goes to stderr.
        keep: Is given what there is now and then.
    """
    found = Found(seeds, [case.key for case in cases])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    groups: dict[int, list[Case]] = defaultdict(list)
    for case in cases:
        groups[id(case.work or case.scenario)].append(case)
    # Cases of the same work are simulated by the same process, which works its bound out once.
    tasks = [(group, seed, seed == seeds[0]) for seed in seeds for group in groups.values()]
    told = _Told(what, sum(case.calls for case in cases) * len(seeds))
    kept_s = perf_counter()
    try:
        for done in _performed(tasks, jobs):
            for key, run in done:
                found.add(key, run)
            told.on_done(sum(run.figures.calls for _, run in done), len(done))
            if until_s is not None and perf_counter() > until_s:
                break
            if perf_counter() - kept_s > KEPT_EVERY_S:
                keep(found)
                kept_s = perf_counter()
    except KeyboardInterrupt:
        told.end("interrupted")
        return found, False
    told.end(found.missing or "done")
    return found, True


Task = tuple[Sequence[Case], int, bool]

_tasks: Sequence[Task] = ()
"""What the processes that are forked find here: programs cannot be sent."""


def _performed(tasks: Sequence[Task], jobs: int) -> Iterator[list[tuple[Key, Run]]]:
    global _tasks
    _tasks = tasks
    if jobs <= 1 or "fork" not in multiprocessing.get_all_start_methods():
        yield from map(perform, range(len(tasks)))
        return
    with multiprocessing.get_context("fork").Pool(jobs, _leave_interrupts) as pool:
        yield from pool.imap_unordered(perform, range(len(tasks)))


def _leave_interrupts() -> None:
    """They are the parent's, which then ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def perform(place: int) -> list[tuple[Key, Run]]:
    cases, seed, first = _tasks[place]
    work = cases[0].work or cases[0].scenario
    bound = bound_of(cases[0].program, work, seed)
    done: list[tuple[Key, Run]] = []
    for case in cases:
        alike = next((run for key, run in done if key == case.unlimited), None)
        if alike is not None and not alike.figures.limited:
            done.append((case.key, alike))
            continue
        before_s = process_time()
        figures = World(case.program, case.scenario, seed, case.way, bound=bound, parts=case.parts).run()
        cpu_ns = int((process_time() - before_s) * 1e9)
        if not (first and case.drawn):
            figures = attrs.evolve(figures, samples=())
        done.append((case.key, Run(figures, cpu_ns)))
    return done


@final
@attrs.define(eq=False)
class _Told:
    """How far it is, for people."""

    what: str
    calls: float
    """About how many will be simulated."""
    _done: float = attrs.field(default=0.0, init=False)
    _runs: int = attrs.field(default=0, init=False)
    _began_s: float = attrs.field(factory=perf_counter, init=False)
    _said_s: float = attrs.field(factory=perf_counter, init=False)

    def on_done(self, calls: int, runs: int) -> None:
        self._done += calls
        self._runs += runs
        now_s = perf_counter()
        if now_s - self._said_s > TOLD_EVERY_S:
            self._said_s = now_s
            part = min(1.0, self._done / max(1.0, self.calls))
            left_s = (now_s - self._began_s) * (1 - part) / max(part, 1e-9)
            self._say(f"{self._runs} runs, {part:.0%}, about {left_s / 60:.1f} min left")

    def end(self, how: str) -> None:
        seconds = perf_counter() - self._began_s
        self._say(f"{self._runs} runs, {self._done:,.0f} calls, {seconds / 60:.1f} min, {how}")

    def _say(self, words: str) -> None:
        print(f"  {self.what}: {words}", file=sys.stderr, flush=True)
