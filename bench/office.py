"""Do people who share a plan with a fleet keep their part of it, and is none of it wasted?

Target: people are locked out in 0 % of office minutes, and at most 1 % of the week is unused at its reset. People want
40 % of the week in office hours, with noise by day and week; a fleet wants 1.5 or 6 plans, all the time; the window of
five hours holds 1/9 or 1/15 of the week. Each case runs seven weeks of the simulator: the whole scheduler, and a
provider that tells of its plan in whole percents. Six of them count; the first is there to be learned from. The seed
draws when windows begin.

Perfect knowledge is what no controller can exceed: people alone, who on busy days come to the end of a small window by
themselves, and a fleet that takes all they will leave.

A person is locked out from the first call that is refused until the next that is answered, in office hours. The other
rules are those of tools today: nothing, or a threshold; then pace alone, and reserves that are never released.

With `--changing` people come on three days of each week, for eight hours that begin at any hour: nothing can be learned
from the weeks before. That shows what a forecast costs those who have no habits.

    python -m bench.office [--changing] [--seeds 3] [--weeks 6] [--md F.md] [--json F.json]      about half an hour
    python -m bench.office --smoke      seconds; for the tests
"""

from __future__ import annotations

import argparse
import sys
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, final

import attrs

from hivemind_trio.model import Outcome, PlanSpan
from hivemind_trio.model.plan import DAY_NS, HOUR_NS, WHOLE
from hivemind_trio.policy import MemoryFiles, Program, check
from hivemind_trio.scheduler import AttemptEnded, CallId, Command, Event, Grant, Reject
from hivemind_trio.sim import (
    Amount,
    Arrivals,
    Bound,
    ClientBehaviour,
    Fleet,
    PlanLimit,
    Scenario,
    Shape,
    Traits,
    UpstreamSpec,
    World,
)

from .tables import Table, provenance, write

WEEK_TOKENS: Final = 150_000_000
PEOPLE: Final = 0.4
"""Part of a week that people want."""
OFFICE: Final = (9, 17)
DAYS: Final = 5
CALL_TOKENS: Final = 50_000
FLEET_TOKENS: Final = 100_000
CALL_NS: Final = 8 * 10**9
MINUTE_NS: Final = 60 * 10**9
LEARNED_NS: Final = 7 * DAY_NS
"""Time that does not count: nothing has been learned."""

CASES: Final = {"1.5 plans, 1/9": (1.5, 9), "6 plans, 1/9": (6.0, 9), "6 plans, 1/15": (6.0, 15)}
"""Plans that the fleet wants, and windows of five hours that a week holds."""

THRESHOLD: Final = 'rule stop when agent == fleet and (plan.session > {0}% or plan.week > {0}%) {{ deny "later" }}'
RESERVES: Final = "reserve 100% of session for people {0}; reserve 60% of week for people {0}"
RULES: Final[Mapping[str, tuple[str, str]]] = {
    "first come": ("", ""),
    "stop at 90 %": ("", THRESHOLD.format(90)),
    "stop at 70 %": ("", THRESHOLD.format(70)),
    "even pace": ("plan { pace session for fleet; pace week for fleet }", ""),
    "reserve, `release never`": (f"plan {{ {RESERVES.format('release never')} }}", ""),
    "reserve, `release forecast`": (f"plan {{ {RESERVES.format('release forecast')} }}", ""),
}
"""Name -> `plan` of the provider, and a rule."""

POLICY: Final = """hmp 1
server {{ wait silent 15s hold 12h }}
provider claude {{ api anthropic; concurrency 20; {plan} }}
lane people {{ }}
lane fleet {{ queue 8 }}
agent fleet {{ lane fleet }}
{rule}
rule people when agent != fleet {{ lane people }}
"""

KNOWN: Final = "perfect knowledge"

Hours = tuple[int, int]
"""When people come and go, in nanoseconds since the first Monday."""

PERSON: Final = ClientBehaviour(name="person", silence_ns=MINUTE_NS, known_ns=MINUTE_NS)
WORKER: Final = ClientBehaviour(name="worker", silence_ns=DAY_NS)
"""Waits in the queue for as long as it is held there; its call is lost if it is refused."""


@final
@attrs.define(eq=False)
class _Watch:
    """Refusals and answers of people, and answers of the fleet, once the first week is over."""

    hours: Sequence[Hours]
    """When people are there."""
    lanes: dict[CallId, str] = attrs.field(factory=dict)
    """Calls in flight."""
    asked: int = 0
    """Calls of people, and those that were answered."""
    served: int = 0
    answered_ns: list[int] = attrs.field(factory=list)
    """Ends of all answered calls of people."""
    locked_ns: int = 0
    fleet: int = 0
    """Calls of the fleet that were answered."""
    _locked_since_ns: int | None = None

    def __call__(self, now_ns: int, event: Event, commands: Sequence[Command]) -> None:
        counts = now_ns >= LEARNED_NS
        lane = self.lanes.pop(event.call_id, "") if isinstance(event, AttemptEnded) else ""
        if isinstance(event, AttemptEnded) and lane == "people" and event.ended.outcome is Outcome.SUCCEEDED:
            self.answered_ns.append(now_ns)
        if counts and isinstance(event, AttemptEnded):
            good = event.ended.outcome in (Outcome.SUCCEEDED, Outcome.SLOW)
            self.fleet += good and lane == "fleet"
            if lane == "people":
                self._heard(now_ns, good=good)
        for command in commands:
            if isinstance(command, Grant):
                self.lanes[command.call_id] = command.treatment.lane
            elif counts and isinstance(command, Reject) and _lane(command) == "people":
                self._heard(now_ns, good=False)

    def end(self, now_ns: int) -> None:
        """Count those who are locked out at the end."""
        if self._locked_since_ns is not None:
            self.locked_ns += present_ns(self.hours, self._locked_since_ns, now_ns)

    def _heard(self, now_ns: int, *, good: bool) -> None:
        self.asked += 1
        self.served += good
        since_ns = self._locked_since_ns
        if good and since_ns is not None:
            self.locked_ns += present_ns(self.hours, since_ns, now_ns)
            self._locked_since_ns = None
        elif not good and since_ns is None:
            self._locked_since_ns = now_ns


def _lane(reject: Reject) -> str:
    return "" if reject.treatment is None else reject.treatment.lane


def office_hours(weeks: int) -> list[Hours]:
    """Return the hours of office days; the first day is a Monday."""
    days = [week * 7 + day for week in range(weeks) for day in range(DAYS)]
    return [(day * DAY_NS + OFFICE[0] * HOUR_NS, day * DAY_NS + OFFICE[1] * HOUR_NS) for day in days]


def changing_hours(weeks: int, seed: int) -> list[Hours]:
    """Return hours of people without habits: three days of each week, from any hour on."""
    chance, length_ns = Random(f"changing/{seed}"), (OFFICE[1] - OFFICE[0]) * HOUR_NS
    hours = []
    for week in range(weeks):
        for day in sorted(chance.sample(range(7), 3)):
            begins_ns = (week * 7 + day) * DAY_NS + chance.randrange(24) * HOUR_NS
            hours.append((begins_ns, begins_ns + length_ns))
    return hours


def present_ns(hours: Sequence[Hours], from_ns: int, to_ns: int) -> int:
    """Return the time between two times in which people are there."""
    return sum(max(0, min(to_ns, ends_ns) - max(from_ns, begins_ns)) for begins_ns, ends_ns in hours)


def people(hours: Sequence[Hours], seed: int) -> Iterator[Fleet]:
    """Yield the calls of people who are there at these hours."""
    chance = Random(f"office/{seed}")
    of_week = (OFFICE[1] - OFFICE[0]) * DAYS
    busy, last = 1.0, -1
    for begins_ns, ends_ns in hours:
        week, day = divmod(begins_ns // DAY_NS, 7)
        if week != last:
            busy, last = chance.lognormvariate(0.0, 0.08), week
        per_hour = PEOPLE * WEEK_TOKENS / CALL_TOKENS / of_week * busy * chance.lognormvariate(0.0, 0.12)
        yield Fleet(
            name=f"people-{week}-{day}",
            identities=(),
            models=("claude-sonnet-4-5",),
            arrive=Arrivals(per_second=per_hour / 3_600, for_ns=ends_ns - begins_ns, from_ns=begins_ns),
            tokens_in=Amount(CALL_TOKENS - 500, 20_000, Shape.UNIFORM),
            tokens_max_out=4_096,
            tokens_out=500,
            client=PERSON,
        )


def fleet(plans: float, weeks: int) -> Fleet:
    """Return the fleet: its calls come all the time, for so many plans."""
    return Fleet(
        name="fleet",
        identities=("fleet",),
        models=("claude-sonnet-4-5",),
        arrive=Arrivals(per_second=plans * WEEK_TOKENS / FLEET_TOKENS / (7 * 86_400), for_ns=weeks * 7 * DAY_NS),
        tokens_in=Amount(FLEET_TOKENS - 500, 40_000, Shape.UNIFORM),
        tokens_max_out=4_096,
        tokens_out=500,
        client=WORKER,
    )


def scenario(plans: float, windows: int, weeks: int, seed: int, hours: Sequence[Hours]) -> Scenario:
    """Return the scenario of one case."""
    chance = Random(f"windows/{seed}")
    session = PlanLimit(
        span=PlanSpan.SESSION,
        tokens=WEEK_TOKENS // windows,
        every_ns=5 * HOUR_NS,
        resets_ns=chance.randrange(HOUR_NS // 2, 5 * HOUR_NS),
    )
    week = PlanLimit(
        span=PlanSpan.WEEK, tokens=WEEK_TOKENS, every_ns=7 * DAY_NS, resets_ns=chance.randrange(DAY_NS, 7 * DAY_NS)
    )
    traits = Traits(
        latency_mean_ns=CALL_NS,
        latency_sigma_ns=CALL_NS // 2,
        latency_shape=Shape.UNIFORM,
        tokens_out_sigma=0,
        plan=(session, week),
    )
    return Scenario(
        fleets=(*people(hours, seed), fleet(plans, weeks)),
        upstreams=(UpstreamSpec(traits=traits),),
        until_ns=weeks * 7 * DAY_NS,
        time=0,
    )


def program(rule: str) -> Program:
    """Return the policy of a rule."""
    plan, stop = RULES[rule]
    checked = check("office.hmp", MemoryFiles({"office.hmp": POLICY.format(plan=plan, rule=stop)}))
    assert checked.program is not None, checked.diagnostics
    return checked.program


def _hours(weeks: int, seed: int, *, changing: bool) -> list[Hours]:
    """Return when people are there, in the week that does not count as well."""
    return changing_hours(weeks + 1, seed) if changing else office_hours(weeks + 1)


def measure(rule: str, case: str, weeks: int, seed: int, *, changing: bool = False) -> dict[str, Any]:
    """Run one case under one rule, for a week more than count; shares in percent."""
    plans, windows = CASES[case]
    hours = _hours(weeks, seed, changing=changing)
    watch = _Watch(hours)
    world = World(
        program(rule),
        scenario(plans, windows, weeks + 1, seed, hours),
        seed,
        bound=Bound(chain_ns=0, concurrency_ns=0),
        observe=watch,
    )
    unused = world.run().upstreams["claude"].plan[PlanSpan.WEEK].unused
    watch.end((weeks + 1) * 7 * DAY_NS)
    there_ns = present_ns(hours, LEARNED_NS, (weeks + 1) * 7 * DAY_NS)
    return {
        "rule": rule,
        "case": case,
        "seed": seed,
        "locked_out": 100 * watch.locked_ns / there_ns,
        "served": 100 * watch.served / watch.asked,
        "unused": 100 * sum(unused[1:]) / len(unused[1:]) / WHOLE,
        "unused_first": 100 * unused[0] / WHOLE,
        "fleet": 100 * watch.fleet * FLEET_TOKENS / (weeks * WEEK_TOKENS),
    }


def known(case: str, weeks: int, seed: int, *, changing: bool = False) -> dict[str, Any]:
    """Return what a controller reaches that knows all calls in advance.

    People are locked out by nobody but themselves: they are simulated without a fleet. Of each session the fleet may
    take what they leave and what it wants; of each week, no more than they leave.
    """
    plans, windows = CASES[case]
    hours = _hours(weeks, seed, changing=changing)
    alone = scenario(plans, windows, weeks + 1, seed, hours)
    alone = attrs.evolve(alone, fleets=alone.fleets[:-1])
    watch = _Watch(hours)
    World(program("first come"), alone, seed, bound=Bound(chain_ns=0, concurrency_ns=0), observe=watch).run()
    watch.end((weeks + 1) * 7 * DAY_NS)
    session, week = alone.upstreams[0].traits.plan
    wanted = plans * WEEK_TOKENS / (7 * DAY_NS)
    unused = []
    for begins_ns in range(week.resets_ns, alone.until_ns - week.every_ns + 1, week.every_ns):
        ends_ns = begins_ns + week.every_ns
        own = _tokens(watch.answered_ns, begins_ns, ends_ns)
        fleet_most = 0.0
        first = (begins_ns - session.resets_ns) // session.every_ns
        for at_ns in range(session.resets_ns + first * session.every_ns, ends_ns, session.every_ns):
            from_ns, to_ns = max(at_ns, begins_ns), min(at_ns + session.every_ns, ends_ns)
            fleet_most += min(session.tokens - _tokens(watch.answered_ns, from_ns, to_ns), wanted * (to_ns - from_ns))
        unused.append(max(0.0, WEEK_TOKENS - own - fleet_most))
    there_ns = present_ns(hours, LEARNED_NS, (weeks + 1) * 7 * DAY_NS)
    return {
        "rule": KNOWN,
        "case": case,
        "seed": seed,
        "locked_out": 100 * watch.locked_ns / there_ns,
        "served": 100 * watch.served / watch.asked,
        "unused": 100 * sum(unused) / len(unused) / WEEK_TOKENS,
        "fleet": 100 - 100 * (sum(unused) / len(unused) + watch.served * CALL_TOKENS / weeks) / WEEK_TOKENS,
    }


def _tokens(answered_ns: Sequence[int], from_ns: int, to_ns: int) -> int:
    return CALL_TOKENS * (bisect_left(answered_ns, to_ns) - bisect_left(answered_ns, from_ns))


def table(
    runs: Sequence[Mapping[str, Any]], rules: Sequence[str], cases: Sequence[str], title: str = "The office week"
) -> Table:
    """Return a row for each rule, with a value for each case."""

    def cell(rule: str, what: str, digits: int) -> str:
        means = []
        for case in cases:
            own = [run[what] for run in runs if run["rule"] == rule and run["case"] == case]
            means.append(f"{sum(own) / len(own):.{digits}f}")
        return " / ".join(means)

    return Table(
        title=title,
        notes=(f"In percent; cases: {'; '.join(cases)}. Means over the seeds.",),
        head=(
            "rule for the fleet",
            "minutes with people locked out, of those in which they are there",
            "people's calls served",
            "fleet's part of the plan",
            "week unused at its reset",
        ),
        rows=[
            (
                rule,
                cell(rule, "locked_out", 2),
                cell(rule, "served", 1),
                cell(rule, "fleet", 0),
                cell(rule, "unused", 2),
            )
            for rule in rules
        ],
        figures=list(runs),
    )


def main() -> int:
    """Run what was asked for; 1 if the target of `release forecast` is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--weeks", type=int, default=6)
    parser.add_argument("--rule", choices=list(RULES), action="append", help="this one only; several times")
    parser.add_argument("--md", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--changing", action="store_true", help="people who come at other hours each week")
    parser.add_argument("--smoke", action="store_true")
    asked = parser.parse_args()
    rules = asked.rule or list(RULES)
    cases, seeds, weeks = list(CASES), asked.seeds, asked.weeks
    if asked.smoke:
        cases, seeds, weeks = cases[:1], 1, 1
    runs = []
    for rule in (KNOWN, *rules):
        for case in cases:
            for seed in range(1, seeds + 1):
                if rule == KNOWN:
                    runs.append(known(case, weeks, seed, changing=asked.changing))
                else:
                    runs.append(measure(rule, case, weeks, seed, changing=asked.changing))
                print(runs[-1], file=sys.stderr, flush=True)
    made = provenance(seeds=seeds, weeks=weeks)
    title = "People without habits" if asked.changing else "The office week"
    print(write([table(runs, (*rules, KNOWN), cases, title)], made, title=title, md=asked.md, data=asked.json))
    ours = [run for run in runs if run["rule"] == "reserve, `release forecast`"]
    missed = [run for run in ours if run["locked_out"] > 0 or run["unused"] > 1]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
