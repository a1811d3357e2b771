"""Verdict of a simulation, in a few sentences: whether all agents get through, and the effect of another policy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from hivemind_trio.sim import REFUSED, Estimate, Figures, Metric, Pair, Scenario, estimate, shifts

from .words import number

_AS_DECLARED: Final = "; the simulated providers fail only as the policy and the scenario say"
"""End of the sentence on a record that shows no limit of a provider."""

_BINDS: Final = {
    "chain": "the longest agent's own turns set, one after another",
    "concurrency": "the providers' caps on requests at once set",
    "growth": "the providers' guards against sudden growth set",
}
"""Name of a bound -> the end of the sentence `the least possible time, which ...`."""

_DEATHS: Final = {
    "held-too-long": "waits longer than their clients'",
    "rejected: client-patience": "waits longer than their clients'",
    "rejected: deadline": "their lane's deadline",
    "rejected: budget": "a budget that is used up",
    "rejected: over-limits": "being larger than a limit allows",
    "rejected: queue-full": "a full queue",
    "rejected: denied": "a rule that denies them",
}
"""Cause of death -> words; those of a provider or a network stay as they are."""

_CHANGES: Final = {
    "dead agents": ("{} more agents die", "{} fewer agents die"),
    "turns done": ("{} more turns are done", "{} fewer turns are done"),
    "429s met": ("{} more 429s are met", "{} fewer 429s are met"),
    "calls rejected": ("{} more calls are rejected", "{} fewer calls are rejected"),
    "wasted tokens": ("{} more tokens are wasted", "{} fewer tokens are wasted"),
    "spend": ("{} more is spent", "{} less is spent"),
    "makespan": ("it takes {} longer", "it is over {} sooner"),
    "turn p95": ("turns take {} longer at p95", "turns take {} less at p95"),
}
"""Words for an increase and a decrease, of each figure that sentences mention. Waits are beside these."""


def verdict(pairs: Sequence[Pair], scenario: Scenario) -> list[str]:
    """Sentences on one policy, and on how it would be without it."""
    proxied, direct = [pair.proxy for pair in pairs], [pair.direct for pair in pairs]
    said = [fate(proxied), _without(direct)]
    recorded = [turn.recorded for fleet in scenario.fleets for job in fleet.recorded for turn in job.turns]
    calls = [call for call in recorded if call is not None]
    if calls:
        # What a provider did on that day is known of the calls that were sent to it, and of no others.
        failed = sum(call.status is not None and not 200 <= call.status < 400 for call in calls)
        met = {name: limit for name, limit in scenario.met.items() if scenario.upstream(name).as_declared}
        ended = [attempt for call in calls for attempt in call.attempts if attempt.ended_ns is not None]
        refused = sum(attempt.outcome in REFUSED for attempt in ended)
        # What the proxy of that day retried did not fail, and is the reason to have one.
        tried = f", and providers refused {refused:,} of {len(ended):,} attempts" if refused and not met else ""
        end = "" if met else _AS_DECLARED
        said[1:] = [f"On the recorded day {failed:,} of {len(calls):,} calls failed{tried}{end}."]
        for name, limit in met.items():
            said.append(
                f"{name} refused {limit.refusals:,} attempts then, {limit.explained:,} of them beyond {limit}; it is "
                "simulated with that limit."
            )
        if met:
            said.append(_without(direct))
    limited, spared = (sum(run.limited for run in runs) / len(runs) for runs in (proxied, direct))
    if limited or spared:
        said.append(f"429s met: {number(limited, '')} instead of {number(spared, '')}.")
    return said


def fate(runs: Sequence[Figures]) -> str:
    """Return a sentence: whether all agents get through, or the causes of death."""
    agents, dead, undone = (sum(counts) for counts in zip(*((r.agents, r.dead, r.undone) for r in runs), strict=True))
    if not agents:
        return "No agents in this scenario; no results."
    everywhere = f" on each of {len(runs)} seeds" if len(runs) > 1 else ""
    if not dead and not undone:
        return f"Yes: {_all(runs)} through{everywhere}{_pace(runs)}."
    died: Counter[str] = Counter()
    for run in runs:
        died.update(run.died_of)
    parts = []
    if dead:
        worst = f"; {max(run.dead for run in runs):,} on the worst seed" if len(runs) > 1 else ""
        what, count = died.most_common(1)[0] if died else ("", 0)
        of = f", {'all' if count == dead else 'most'} of {_DEATHS.get(what, what)}" if what else ""
        parts.append(f"{number(dead / len(runs), '')} of {number(agents / len(runs), '')} agents die{of}{worst}")
    if undone:
        parts.append(f"{number(undone / len(runs), '')} are unfinished at the time limit")
    share = dead / agents if agents else 0.0
    return f"{'Almost' if share < 0.01 and not undone else 'No'}: {', and '.join(parts)}."


def _all(runs: Sequence[Figures]) -> str:
    agents = number(sum(run.agents for run in runs) / len(runs), "")
    return "the agent gets" if agents == "1" else f"all {agents} agents get"


def _pace(runs: Sequence[Figures]) -> str:
    """Return the distance from the least possible time and its cause; empty if the two do not compare."""
    over = estimate([run.over_bound for run in runs])
    if over is None:
        return ""
    binds = Counter(run.bound_binds for run in runs)
    name, count = binds.most_common(1)[0]
    why = _BINDS.get(name, f"the providers' limits on {name} set")
    mostly = "mostly " if count < len(runs) else ""
    return f", in {over.mean:.2f} times the least possible time, which {mostly}{why}"


def _without(runs: Sequence[Figures]) -> str:
    dead = sum(run.dead for run in runs) / len(runs)
    return f"Directly at the providers {number(dead, '') if dead else 'none'} would die."


def difference_said(before: str, old: Sequence[Pair], after: str, new: Sequence[Pair]) -> list[str]:
    """Sentences on two policies: what of each becomes, and what differs for certain."""
    runs, others = [pair.proxy for pair in old], [pair.proxy for pair in new]
    said = [f"{before}: {fate(runs)}", f"{after}: {fate(others)}"]
    if len(runs) == 1:
        return [*said, "One seed cannot separate chance from the change; use `--seeds 5`."]
    found = [(shift.metric, shift.difference) for shift in shifts(runs, others) if shift.difference is not None]
    moved = [(metric, by) for metric, by in found if by.low or by.high]
    certain = [words for metric, by in moved if not by.low <= 0 <= by.high and (words := _change(metric, by))]
    if certain:
        return [*said, f"With {after} instead of {before} {'; '.join(certain)}. What else differs may be chance."]
    if moved:
        return [*said, "What differs may be chance; more seeds would tell: `--seeds 20`."]
    return [*said, "Nothing differs."]


def _change(metric: Metric, found: Estimate) -> str:
    """Nothing for what follows from the rest."""
    more, less = _CHANGES.get(metric.name, ("", ""))
    if metric.name.endswith(", wait p95"):
        who = metric.name.removesuffix(", wait p95")
        more, less = f"{who} waits {{}} longer at p95", f"{who} waits {{}} less at p95"
    if not more:
        return ""
    return (more if found.mean > 0 else less).format(number(math.fabs(found.mean), metric.unit))
