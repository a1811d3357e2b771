"""Output of `simulate` for people: sentences and tables."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import click

from hivemind_trio.cli.table import aligned, fit
from hivemind_trio.model.plan import WHOLE
from hivemind_trio.policy import visible
from hivemind_trio.sim import (
    METRICS,
    Estimate,
    Figures,
    Metric,
    Pair,
    Scenario,
    Shift,
    Spread,
    estimate,
    shifts,
)

from .json_output import Against
from .timeline import over_time
from .verdict import difference_said, verdict
from .words import number

WITHIN: Final = "19 of 20 times within"

WIDTH: Final = 100
"""Largest width of sentences."""

WAITS_LEAST: Final = ("unserved", "p50", "max")
"""Columns of waits that a narrow terminal does without, the first one first."""
PROVIDERS_LEAST: Final = ("cap used", "limit", "longest line", "circuit opened")
"""The same of providers."""

_ALWAYS: Final = frozenset(metric.name for metric in METRICS) | {""}
"""Rows of a comparison that stand there even where they say nothing; a lane that one policy has and the other has not
is among the waits of each."""

_WAITING: Final[Mapping[str, Callable[[Figures], Mapping[str, Spread]]]] = {
    "lane": lambda run: run.lanes,
    "team": lambda run: run.teams,
}
_REASONS: Final[Mapping[str, Callable[[Figures], Mapping[str, int]]]] = {
    "agents died of": lambda run: run.died_of,
    "calls were rejected for": lambda run: run.refused,
}


def as_text(
    scenario: Scenario,
    policy: str,
    pairs: Sequence[Pair],
    against: Against | None,
    *,
    color: bool,
    columns: int = sys.maxsize,
    blocks: bool = True,
    notes: Sequence[str] = (),
) -> str:
    """For people.

    Args:
        columns: Width of the terminal.
        blocks: What it is written to can show `▁▂▃`.
        notes: What else there is to say, below the sentences.
    """
    seeds = f"seed {pairs[0].seed}" if len(pairs) == 1 else f"seeds {pairs[0].seed} to {pairs[-1].seed}"
    ran = policy if against is None else f"{policy} and {against[0]}"
    means = "; means, ± holds the true one 19 times in 20" if len(pairs) > 1 else ""
    about = " ".join(scenario.about.split())
    title = f"{scenario.name}: {about}" if about else scenario.name
    head = [visible(title), visible(f"{ran}, {seeds}{means}")]
    said = [" ".join(verdict(pairs, scenario))] if against is None else difference_said(policy, pairs, *against)
    wide = min(columns, WIDTH)
    wrapped = "\n".join(line for each in (*said, *notes) for line in textwrap.wrap(visible(each), wide))
    if columns < sys.maxsize:
        head = [line for each in head for line in textwrap.wrap(each, columns)]
    parts = ["\n".join(head), click.style(wrapped, bold=True) if color else wrapped]
    proxied = [pair.proxy for pair in pairs]
    ways = {"direct": [pair.direct for pair in pairs], "through the proxy": proxied}
    if against is None:
        parts.append(table(_overview(ways), color=color, columns=columns))
    else:
        other = against[0] if against[0] != policy else f"{policy}, again"
        changed = [pair.proxy for pair in against[1]]
        ways = {policy: proxied, other: changed}
        rows = [row for row in changes(policy, proxied, other, changed) if row[3] != "-" or row[0] in _ALWAYS]
        parts.append(fitting(rows, columns, color=color))
    for name, runs in ways.items():
        if name == "direct":
            continue
        whose = f"{visible(name)}:\n" if against is not None else ""
        parts.append(whose + table(_waits(runs), color=color, columns=columns, least=WAITS_LEAST))
        parts.append(table(_providers(runs), color=color, columns=columns, least=PROVIDERS_LEAST))
        nodes = _nodes(runs)
        parts += [table(nodes, color=color, columns=columns)] if nodes else []
        plans = _plans(runs)
        parts += [table(plans, color=color, columns=columns)] if len(plans) > 1 else []
        parts += [over_time(runs[0], columns)] if blocks else []
    parts += _reasons(ways)
    return "\n\n".join(part for part in parts if part) + "\n"


def fitting(rows: list[list[str]], columns: int, *, color: bool) -> str:
    """Return a comparison; where it is too wide for the terminal, without the widths of what is compared."""
    said = table(rows, color=color)
    if max(map(len, click.unstyle(said).splitlines())) <= columns:
        return said
    short = [[name, *(cell.partition(" ± ")[0] for cell in (old, new)), *rest] for name, old, new, *rest in rows]
    short[0][1:3] = ["before", "after"]
    return table(short, color=color, columns=columns)


def wrapped(text: str, columns: int) -> str:
    """Return a sentence on as many lines as it needs."""
    return text if columns == sys.maxsize else "\n".join(textwrap.wrap(text, columns))


# ---- tables ----


def _nodes(runs: Sequence[Figures]) -> list[list[str]]:
    """Return what several nodes served in the first run, and what they asked of the store."""
    fleet = runs[0].nodes
    if fleet is None:
        return []
    rows = [["node", "calls", "attempts", ""]]
    for node in fleet.nodes:
        died = f"killed at {node.died_ns / 1e9:.0f} s" if node.died_ns is not None else ""
        died += f", back at {node.returned_ns / 1e9:.0f} s" if node.returned_ns is not None else ""
        rows.append([node.name, f"{node.calls}", f"{node.attempts}", died])
    rows.append(["store", f"{fleet.operations_per_call:.2f} operations a call", "", ""])
    rows += [[f"{name}, learned", f"concurrency {limit}", "", ""] for name, limit in fleet.limits.items() if limit]
    return rows


def _overview(columns: Mapping[str, Sequence[Figures]]) -> list[list[str]]:
    rows = [["", *columns]]
    for metric in METRICS:
        rows.append([metric.name, *(_mean(metric, runs) for runs in columns.values())])
        if metric.name == "dead agents":
            agents = [number(sum(run.agents for run in runs) / len(runs), "") for runs in columns.values()]
            rows[-1][1:] = [f"{cell} of {of}" for cell, of in zip(rows[-1][1:], agents, strict=True)]
        if metric.name == "makespan":
            binds = ", ".join(dict.fromkeys(run.bound_binds for runs in columns.values() for run in runs))
            bounds = [estimate([run.bound_ns / 1e9 for run in runs]) for runs in columns.values()]
            rows.append(
                [
                    f"lower bound ({binds})",
                    *(_said(bound, metric, of=len(runs)) for bound, runs in zip(bounds, columns.values(), strict=True)),
                ]
            )
    undone = [sum(run.undone for run in runs) / len(runs) for runs in columns.values()]
    if any(undone):
        rows.append(["agents unfinished at the time limit", *(number(count, "") for count in undone)])
    return rows


def changes(before: str, old: Sequence[Figures], after: str, new: Sequence[Figures]) -> list[list[str]]:
    """Return a table of what differs between the two, the head first."""
    head = ["", before, after, "difference", WITHIN]
    return [head, *(_change(shift, len(old)) for shift in shifts(old, new))]


def _change(shift: Shift, seeds: int) -> list[str]:
    metric, changed = shift.metric, shift.difference
    row = [metric.name, *(_said(one, metric, of=seeds) for one in (shift.before, shift.after))]
    if changed is None:
        return [*row, "-", ""]
    if changed.low == changed.high == 0:
        return [*row, "none", ""]
    between = f"{number(changed.low, metric.unit, signed=True)} to {number(changed.high, metric.unit, signed=True)}"
    if changed.count == 1:
        between = "one seed cannot say"
    elif changed.low <= 0 <= changed.high:
        between += ", may be chance"
    return [*row, number(changed.mean, metric.unit, signed=True), between]


def _waits(runs: Sequence[Figures]) -> list[list[str]]:
    rows = [["waits", "served", "unserved", "p50", "p95", "max", "spend"]]
    for kind, of in _WAITING.items():
        for name in _names(of(run) for run in runs):
            if kind == "team" and name == "none":
                continue
            cost = [run.costs_microusd.get(name, 0) / 1e6 for run in runs] if kind == "team" else []
            rows.append([f"{kind} {name}", *_spread([of(run).get(name, Spread()) for run in runs]), _cost(cost)])
    fleets = _names(run.loads for run in runs)
    for name in fleets:
        # What is one fleet's is everybody's where there is no other.
        who = f"fleet {name}" if len(fleets) > 1 else "all calls"
        rows.append([who, *_spread([run.loads[name].wait for run in runs]), ""])
    for name in _names(run.budgets_microusd for run in runs):
        rows.append([f"budget {name}", "", "", "", "", "", _cost([run.budgets_microusd[name] / 1e6 for run in runs])])
    return rows


def _spread(spreads: Sequence[Spread]) -> list[str]:
    """Means over seeds, and of what was longest the longest."""
    served = [each for each in spreads if each.count]

    def seconds(of: Callable[[Spread], int]) -> str:
        return number(sum(of(each) for each in served) / len(served) / 1e9, "s") if served else "-"

    counts = [sum(of) / len(spreads) for of in zip(*((each.count, each.unserved) for each in spreads), strict=True)]
    longest = number(max(each.max for each in served) / 1e9, "s") if served else "-"
    return [
        *(number(count, "") for count in counts),
        seconds(lambda each: each.p50),
        seconds(lambda each: each.p95),
        longest,
    ]


def _providers(runs: Sequence[Figures]) -> list[list[str]]:
    rows = [["provider", "attempts", "limit", "at once", "longest line", "cap used", "circuit opened", "met"]]
    for name in runs[0].upstreams:
        own = [run.upstreams[name] for run in runs]
        met: Counter[str] = Counter()
        for each in own:
            met.update(each.met)
        used = estimate([each.utilisation for each in own])
        least, most = min(each.limit_min for each in own), max(each.limit_max for each in own)
        rows.append(
            [
                name,
                number(sum(each.attempts for each in own) / len(own), ""),
                f"{least}..{most}" if least != most else f"{most}",
                f"{max(each.inflight_max for each in own)}",
                number(max(_line(run, name) for run in runs), ""),
                f"{used.mean:.0%}" if used is not None else "-",
                number(sum(each.trips for each in own) / len(own), ""),
                ", ".join(f"{number(count / len(own), '')} x {what}" for what, count in met.most_common()) or "nothing",
            ]
        )
    return rows


def _plans(runs: Sequence[Figures]) -> list[list[str]]:
    """Return a row for each window of providers with plans: of all seeds and accounts."""
    rows = [["plan", "used at most", "resets", "unused at a reset", "at most"]]
    for name in runs[0].upstreams:
        for span in dict.fromkeys(span for run in runs for span in run.upstreams[name].plan):
            own = [window for run in runs if (window := run.upstreams[name].plan.get(span)) is not None]
            unused = [share for window in own for share in window.unused]
            mean, most = (sum(unused) / len(unused), max(unused)) if unused else (None, None)
            rows.append(
                [
                    f"{name} {span}",
                    _share(max(window.used_max for window in own)),
                    number(len(unused) / len(runs), ""),
                    _share(mean),
                    _share(most),
                ]
            )
    return rows


def _share(millionths: float | None) -> str:
    return "-" if millionths is None else f"{millionths * 100 / WHOLE:.1f}%"


def _line(run: Figures, provider: str) -> int:
    """Return the most that waited for it at once, as far as samples show."""
    return max(
        (sample.providers[provider].waiting for sample in run.samples if provider in sample.providers), default=0
    )


def _reasons(columns: Mapping[str, Sequence[Figures]]) -> list[str]:
    parts = []
    for title, of in _REASONS.items():
        rows = []
        for name, runs in columns.items():
            met: Counter[str] = Counter()
            for run in runs:
                met.update(of(run))
            if met:
                listed = ", ".join(f"{number(count / len(runs), '')} x {what}" for what, count in met.most_common(6))
                rows.append(visible(f"  {name}: {listed}"))
        if rows:
            parts.append("\n".join([f"{title}, on average:", *rows]))
    return parts


# ---- cells ----


def _mean(metric: Metric, runs: Sequence[Figures]) -> str:
    found = estimate([metric.of(run) for run in runs])
    if found is None and all(run.turns_done == run.turns for run in runs):
        return "-"
    return _said(found, metric, of=len(runs))


def _said(found: Estimate | None, metric: Metric, *, of: int) -> str:
    if found is None:
        return metric.without
    half = found.high - found.mean
    said = number(found.mean, metric.unit) + (f" ± {number(half, metric.unit)}" if half > 0 else "")
    return said if found.count == of else f"{said} ({found.count} of {of})"


def _cost(costs: Sequence[float]) -> str:
    return number(sum(costs) / len(costs), "$") if costs else ""


def _names(tables: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for table in tables for name in table))


def table(rows: Sequence[Sequence[str]], *, color: bool, columns: int = sys.maxsize, least: Sequence[str] = ()) -> str:
    """Aligned, for a terminal; the first row is the head, and words in the last column go on below where they must."""
    head = rows[0]
    words = head[-1] in ("met", WITHIN)  # these are no numbers
    found = fit(rows, columns, right=range(1, len(head) - words), least=least)
    lines = ["  ".join(cells).rstrip() for cells in aligned(found.rows, right=found.right)]
    if color:
        lines[0] = click.style(lines[0], bold=True)
    return "\n".join(line for line in [*lines, found.note] if line)
