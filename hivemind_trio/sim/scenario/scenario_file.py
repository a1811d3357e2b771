"""Scenario files: TOML in, a `Scenario` out, and every problem of a file at once.

What may stand in one is here, in `provider_file.py` and, for people, in `scenarios/README.md`; names and units are the
policy language's where it has them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import attrs

from hivemind_trio.model import RecordedCall
from hivemind_trio.model.dates import date_on
from hivemind_trio.sim.agents.client import CLIENTS, FRAGILE, ClientBehaviour
from hivemind_trio.sim.agents.fleet import Amount, Arrivals, Fleet

from .limits_met import limits_met
from .plans_met import plans_met
from .provider_file import upstream
from .quantities import ScenarioValueError, count, duration, positive, rate, share, spread
from .scenario import HOUR_NS, Scenario
from .toml_table import Problem, ScenarioError, Table, lines_of
from .trace_replay import began, recorded_fleets
from .words import one_of_ints, several, words

BEGINS: Final = 10 * 60
"""Minute of the day at which a scenario begins that says nothing else."""

Journals = Callable[[str], Sequence[RecordedCall]]
"""Reader of a journal by the path that the scenario gives; raises `ScenarioValueError`."""


def parse_scenario(
    text: str, *, name: str, journals: Journals | None = None, trace: Sequence[RecordedCall] | None = None
) -> Scenario:
    """Read a scenario.

    Args:
        name: What to call it in errors and figures.
        journals: How to read those that it names; None: there is nobody who could.
        trace: What its agents are instead of those that it names.

    Raises:
        ScenarioError: With every problem found.
    """
    try:
        top = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        problem = Problem(
            line, "", f"not TOML: {error}", 'write `key = "value"` lines under `[[agents]]` and `[[upstream]]`'
        )
        raise ScenarioError(name, [problem]) from None
    problems: list[Problem] = []
    table = Table("", top, lines_of(text), problems)
    fleets: list[Fleet] = []
    for place, each in enumerate(table.tables("agents"), start=1):
        own = _recorded(each, journals) if "journal" in each else (_fleet(each, place),)
        above = {fleet.name for fleet in fleets}
        for fleet in own:
            if fleet.name in above:
                what = f"`{fleet.name}` is the name of earlier agents"
                table.wrong(f"agents[{place}].name", what, "give these agents another name")
        fleets += own
    if trace is not None:
        fleets = list(recorded_fleets(trace))
    date, minute = (began(trace) if trace is not None else None) or (date_on(1), BEGINS)
    scenario = Scenario(
        name=name,
        about=table.take("about", words, ""),
        fleets=tuple(fleets),
        upstreams=tuple(upstream(each) for each in table.tables("upstream")),
        met=limits_met(trace) if trace is not None else {},
        plans=plans_met(trace) if trace is not None else {},
        until_ns=table.take("until", duration, 24 * HOUR_NS + _latest_ns(fleets)),
        time=table.take("hour", _minutes, minute),
        date=table.take("weekday", _date, date),
        policy=table.take("policy", words, None),
    )
    table.end()
    if not scenario.fleets and not problems:
        table.wrong("", "the scenario has no agents", "write `[[agents]]` and under it `count = 10`")
    if problems:
        raise ScenarioError(name, problems)
    return scenario


def _minutes(value: Any) -> int:
    return one_of_ints(0, 23)(value) * 60


def _date(value: Any) -> str:
    return date_on(one_of_ints(1, 7)(value))


# ---- agents ----


def _recorded(table: Table, journals: Journals | None) -> tuple[Fleet, ...]:
    """Those of a journal."""
    name = table.take("name", words, "")
    client = table.take("client", _client, None)
    silence_ns = table.take("silence", duration, None)
    from_ns, for_ns = table.take("from", duration, 0), table.take("for", duration, None)

    def read(value: Any) -> tuple[Fleet, ...]:
        if journals is None:
            raise ScenarioValueError(
                "there are no journals here", "say what the agents do instead, as `count = 10` and so on"
            )
        found = recorded_fleets(
            journals(words(value)), from_ns=from_ns, for_ns=for_ns, client=client, silence_ns=silence_ns
        )
        if not found:
            within = " between `from` and `for`" if from_ns or for_ns is not None else ""
            raise ScenarioValueError(f"it has no call{within} that can be replayed", "another time, or another journal")
        return tuple(attrs.evolve(fleet, name=f"{name} {fleet.name}") for fleet in found) if name else found

    nobody: tuple[Fleet, ...] = ()
    fleets = table.take("journal", read, nobody)
    table.end()
    return fleets


def _latest_ns(fleets: Iterable[Fleet]) -> int:
    """Return the duration of the recorded work, as it went."""
    spans = (sum(turn.think_ns for turn in job.turns) for fleet in fleets for job in fleet.recorded)
    return max(spans, default=0)


def _fleet(table: Table, place: int) -> Fleet:
    client = table.take("client", _client, FRAGILE)
    silence_ns = table.take("silence", duration, client.silence_ns)
    arrive = table.take("arrive", rate, None)
    for_ns, from_ns = table.take("for", duration, None), table.take("from", duration, 0)
    if arrive is not None and for_ns is None:
        table.wrong("arrive", "`arrive` needs `for`, the length of the arrival period", 'write `for = "10m"` beside it')
    if arrive is not None and "count" in table:
        table.wrong("count", "`count` and `arrive` exclude each other", "delete `count` or `arrive`")
    many = spread(count)
    fleet = Fleet(
        name=table.take("name", words, f"agents{place}" if place > 1 else "agent"),
        count=table.take("count", positive, 1),
        turns=table.take("turns", many, Amount(1)),
        start_ns=table.take("start", spread(duration), Amount(0)),
        think_ns=table.take("think", spread(duration), Amount(0)),
        arrive=Arrivals(per_second=arrive[0] * 1e9 / arrive[1], for_ns=for_ns, from_ns=from_ns)
        if arrive and for_ns
        else None,
        identities=table.take("as", several, None),
        models=table.take("model", several, ()),
        tokens_in=table.take("input", many, Amount(50)),
        grows=table.take("grows", count, 0),
        prefix=table.take("prefix", count, 0),
        tokens_max_out=table.take("output-max", positive, 1_024),
        stream=table.take("stream", share, 0.0),
        client=attrs.evolve(client, silence_ns=silence_ns),
        headers=table.take("headers", _headers, {}),
        path=table.take("path", words, ""),
        says_remaining=table.take("says-remaining", _judgement, None),
    )
    table.end()
    return fleet


def _client(value: Any) -> ClientBehaviour:
    if isinstance(value, str) and value in CLIENTS:
        return CLIENTS[value]
    raise ScenarioValueError(f"`{value}` is no client", f"there is {', '.join(f'`{name}`' for name in CLIENTS)}")


def _judgement(value: Any) -> Amount | None:
    """Return the spread of an agent's misjudgement of its remaining work."""
    if isinstance(value, bool):
        return Amount(1.0) if value else None
    try:
        return spread(count)(value)
    except ScenarioValueError:
        raise ScenarioValueError(
            f"`{value}` is no judgement", 'write `true`, or how far off it is, `"~1 cv 0.6"`'
        ) from None


def _headers(value: Any) -> dict[str, str]:
    if isinstance(value, dict) and all(isinstance(each, str) for each in value.values()):
        return {name.lower(): each for name, each in value.items()}
    raise ScenarioValueError("headers have names and words", 'write `headers = { x-priority = "urgent" }`')
