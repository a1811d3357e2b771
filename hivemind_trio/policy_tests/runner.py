"""One simulated test: the run, and what is expected of it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from typing import Final

from hivemind_trio.model.plan import WHOLE
from hivemind_trio.policy import (
    AllOf,
    Arriving,
    Checked,
    Condition,
    Decided,
    Diagnostic,
    PolicyTest,
    Program,
    RanTest,
    Relation,
    Run,
    Severity,
    decided_by_rules,
    leaves,
    meets,
)
from hivemind_trio.sim import Bound, Figures, Load, World

from .scenario import DATE, TIME, most_out, nodes_of, stage
from .units import shown

BUDGET_S: Final = 30.0
"""CPU seconds for one test."""

CALLS_MAX: Final = 300_000
"""Calls of one test: more than can be simulated in that time, however plain they are."""

SHARES: Final = ("failed", "denied", "completed")
"""Expectations on how many of a load's calls came to which end."""

UNSERVED_MAX: Final = 0.03
"""The share of calls without service up to which a wait speaks for all of them."""

REASONS_MAX: Final = 3
"""That are told of one load."""

Heard = Callable[[float], None]
"""Now and then: the part of the run that is over."""

Values = dict[str, str | int | float | bool]


class _OverTime(Exception):  # noqa: N818 - it never leaves this module
    """The run has taken more than its share of the processor."""


def rehearse(
    checked: Checked,
    test: PolicyTest,
    *,
    heard: Heard | None = None,
    clock: Callable[[], float] = time.process_time,
    budget_s: float = BUDGET_S,
) -> RanTest:
    """Run a simulated test of a policy without errors.

    Args:
        heard: Whom to tell how far it is.
        clock: Seconds of the processor that have been used, since whenever.
    """
    run, program = test.asks, checked.program
    assert isinstance(run, Run)
    assert program is not None
    began_s = clock()

    def told(now_ns: int, _ended: int, _agents: int) -> None:
        if clock() - began_s > budget_s:
            raise _OverTime
        if heard is not None:
            heard(min(1.0, now_ns / run.length_ns))

    calls = round(sum(load.per_second * load.turns for load in run.loads) * run.length_ns / 1e9)
    try:
        if calls > CALLS_MAX:  # all of them are drawn before the first, and nothing could stop that
            raise _OverTime
        world = World(
            program, stage(run), run.seed, bound=Bound(chain_ns=0, concurrency_ns=0), told=told, nodes=nodes_of(run)
        )
        found = tuple(_failures(checked.sources[0].name, test, run, world.run()))
    except _OverTime:
        found = (
            Diagnostic(
                code="HM504",
                severity=Severity.ERROR,
                message=f"test `{test.name}` takes more than {budget_s:g} s of CPU time",
                span=test.span,
                note=f"it has about {calls:,} calls",
                help="shorten `run`, or let calls `arrive` less often",
            ),
        )
    return RanTest(
        test=test,
        diagnostics=found,
        exercised=frozenset(rule for load in run.loads for rule in _exercised(checked, program, load)),
        seconds=clock() - began_s,
    )


def _failures(policy: str, test: PolicyTest, run: Run, figures: Figures) -> Iterator[Diagnostic]:
    values = measured(figures)
    yield from _of_few(test, figures)
    for expected in test.expects:
        if not meets(expected.condition, values):  # type: ignore[arg-type]  # a ratio is a float, here alone
            yield Diagnostic(
                code="HM503",
                severity=Severity.ERROR,
                message=f"test `{test.name}` fails in a run with seed {run.seed}",
                span=expected.span,
                note=f"got {_got(expected.condition, values, figures)}",
                help=f"`hivemind-trio simulate {shlex.quote(policy)} --test {shlex.quote(test.name)}` shows the run",
            )


def _of_few(test: PolicyTest, figures: Figures) -> Iterator[Diagnostic]:
    """HM505 for the first expectation on the waits of a load of which many calls were not served."""
    asked = {leaf.field for expected in test.expects for leaf in leaves(expected.condition)}
    said: set[str] = set()
    for expected in test.expects:
        for field in dict.fromkeys(leaf.field for leaf in leaves(expected.condition)):
            name, _, what = field.partition(".")
            if not what.startswith("wait.") or name in said:
                continue
            said.add(name)
            wait = figures.loads[name].wait
            if wait.unserved_share <= UNSERVED_MAX or asked & {f"{name}.{share}" for share in SHARES}:
                continue
            yield Diagnostic(
                code="HM505",
                severity=Severity.WARNING,
                message=f"`{field}` covers only {(1 - wait.unserved_share) * 100:.3g}% of the calls of load `{name}`",
                span=expected.span,
                note=f"{wait.count:,} calls were served, {wait.unserved:,} were rejected or given up in the queue",
                help=f"add the share that may be lost, for example `expect {name}.denied <= {UNSERVED_MAX:.0%}`",
            )


def _got(condition: Condition, values: Values, figures: Figures) -> str:
    """Return the condition that does not hold and its cause, with the values of a compared bound."""
    parts: tuple[Condition, ...] = condition.items if isinstance(condition, AllOf) else (condition,)
    said: dict[str, None] = {}
    for part in parts:
        if not meets(part, values):  # type: ignore[arg-type]  # as above
            bound = f", not {part.op} {shown(part.field, part.value)}" if isinstance(part, Relation) else ""
            for field in dict.fromkeys(leaf.field for leaf in leaves(part)):
                said[f"{field} {shown(field, values.get(field))}{bound}{_because(field, figures)}"] = None
    return "; ".join(said)


def _because(field: str, figures: Figures) -> str:
    """Why calls of a load were turned away or failed: what happened most, and how often."""
    name, _, what = field.partition(".")
    load = figures.loads.get(name)
    if load is None or what not in SHARES:
        return ""
    reasons = load.refused if what == "denied" else load.died_of
    most = sorted(reasons.items(), key=lambda each: -each[1])[:REASONS_MAX]
    of = f" of {load.calls:,} calls" if what == "denied" else f" of {load.turns:,} calls"
    return f" ({', '.join(f'{count:,} x {reason}' for reason, count in most)}{of})" if most else ""


def measured(figures: Figures) -> Values:
    """Return the values that an `expect` can ask of a run, by field. What cannot be said of this run is missing.

    Statuses and circuits of a provider with accounts are the sums of those of its accounts.
    """
    found: Values = {}
    for name, load in figures.loads.items():
        found |= {f"{name}.{what}": value for what, value in _of_load(load).items()}
    for name, upstream in figures.upstreams.items():
        provider = name.partition(".")[0]
        found[f"{name}.concurrency.max"] = upstream.inflight_max
        statuses = dict.fromkeys(range(400, 600), 0)
        for trouble, count in upstream.met.items():
            status = trouble.split(" ")[0]
            if status.isdigit():
                statuses[int(status)] += count
        counts = {"breaker.opened": upstream.trips} | {f"status-{status}": count for status, count in statuses.items()}
        for what, count in counts.items():
            for owner in dict.fromkeys((name, provider)):
                found[f"{owner}.{what}"] = int(found.get(f"{owner}.{what}", 0)) + count
        for span, window in upstream.plan.items():
            found[f"{name}.plan.{span}.max"] = window.used_max / WHOLE
            if window.unused_max is not None:
                found[f"{name}.plan.{span}.unused"] = window.unused_max / WHOLE
    for name, microusd in figures.budgets_microusd.items():
        found[f"{name}.spent"] = microusd
    return found


def _of_load(load: Load) -> Values:
    """Return what is known of a load: nothing if no call has arrived, and no waits if no call was served."""
    found: Values = {}
    if load.calls:
        found |= {
            "failed": load.failed,
            "denied": load.denied / load.calls,
            "held": load.held / load.calls,
            "completed": load.turns_done / load.turns,
        }
    if load.wait.count:
        found |= {f"wait.{part}": getattr(load.wait, part) for part in ("p50", "p95", "p99", "max", "mean")}
    return found


def _exercised(checked: Checked, program: Program, load: Arriving) -> Iterator[str]:
    """Yield the rules that decide something for its calls as they first arrive."""
    facts: dict[str, str | int | bool] = {
        "model": load.model,
        "path": load.path,
        "stream": load.stream,
        "tokens.in": load.tokens_in,
        "tokens.max-out": most_out(load),
        "client.address": load.address,
        **{f"header.{name}": value for name, value in load.headers},
    }
    if load.agent is not None:
        facts["token" if program.agents[load.agent].tokens else "claim"] = load.agent
    facts |= {"time": TIME if load.time is None else load.time, "date": load.date or DATE}
    yield from decided_by_rules(checked, Decided.of(program, facts))
