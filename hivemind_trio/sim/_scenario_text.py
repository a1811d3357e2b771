"""Scenario files: TOML in, a `Scenario` out, and every problem of a file at once.

What may stand in one is in the tables below and, for people, in `scenarios/README.md`; names and units are the policy
language's where it has them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import attrs

from hivemind_trio.model import RecordedCall

from ._bucket import Counting, Dimension, Quota
from ._client import CLIENTS, FRAGILE, Client
from ._fleet import Amount, Arrivals, Fleet
from ._quantities import Wrong, count, duration, number, positive, rate, share, spread
from ._recorded import recorded_fleets
from ._scenario import HOUR_NS, Scenario, Upstream
from ._toml import Problem, ScenarioError, Table, lines_of
from ._traits import Acceleration, Neighbour, Storm, Traits, Wave, Weather

_LIMITS: Final = {
    "requests": Dimension.REQUESTS,
    "input": Dimension.INPUT,
    "output": Dimension.OUTPUT,
    "tokens": Dimension.TOKENS,
}


Journals = Callable[[str], Sequence[RecordedCall]]
"""What a journal has recorded, by the path that the scenario gives; raises `Wrong`."""


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
                what = f"`{fleet.name}` are above already"
                table.wrong(f"agents[{place}].name", what, "call them something else")
        fleets += own
    if trace is not None:
        fleets = list(recorded_fleets(trace))
    scenario = Scenario(
        name=name,
        about=table.take("about", _words, ""),
        fleets=tuple(fleets),
        upstreams=tuple(_upstream(each) for each in table.tables("upstream")),
        until_ns=table.take("until", duration, 24 * HOUR_NS + _latest_ns(fleets)),
        hour=table.take("hour", _one_of_ints(0, 23), 10),
        weekday=table.take("weekday", _one_of_ints(1, 7), 1),
        policy=table.take("policy", _words, None),
    )
    table.end()
    if not scenario.fleets and not problems:
        table.wrong("", "nobody calls", "write `[[agents]]` and under it `count = 10`")
    if problems:
        raise ScenarioError(name, problems)
    return scenario


# ---- agents ----


def _recorded(table: Table, journals: Journals | None) -> tuple[Fleet, ...]:
    """Those of a journal."""
    name = table.take("name", _words, "")
    client = table.take("client", _client, None)
    silence_ns = table.take("silence", duration, None)
    from_ns, for_ns = table.take("from", duration, 0), table.take("for", duration, None)

    def read(value: Any) -> tuple[Fleet, ...]:
        if journals is None:
            raise Wrong("there are no journals here", "say what the agents do instead, as `count = 10` and so on")
        found = recorded_fleets(
            journals(_words(value)), from_ns=from_ns, for_ns=for_ns, client=client, silence_ns=silence_ns
        )
        if not found:
            within = " between `from` and `for`" if from_ns or for_ns is not None else ""
            raise Wrong(f"there is no call in it{within} that could be made again", "another time, or another journal")
        return tuple(attrs.evolve(fleet, name=f"{name} {fleet.name}") for fleet in found) if name else found

    nobody: tuple[Fleet, ...] = ()
    fleets = table.take("journal", read, nobody)
    table.end()
    return fleets


def _latest_ns(fleets: Iterable[Fleet]) -> int:
    """How long what is recorded goes on, as it went."""
    spans = (sum(turn.think_ns for turn in job.turns) for fleet in fleets for job in fleet.recorded)
    return max(spans, default=0)


def _fleet(table: Table, place: int) -> Fleet:
    client = table.take("client", _client, FRAGILE)
    silence_ns = table.take("silence", duration, client.silence_ns)
    arrive = table.take("arrive", rate, None)
    for_ns = table.take("for", duration, None)
    if arrive is not None and for_ns is None:
        table.wrong("arrive", "for how long do they arrive", 'write `for = "10m"` beside it')
    if arrive is not None and "count" in table:
        table.wrong("count", "they arrive, so chance says how many they are", "leave out `count` or `arrive`")
    many = spread(count)
    fleet = Fleet(
        name=table.take("name", _words, f"agents{place}" if place > 1 else "agent"),
        count=table.take("count", positive, 1),
        turns=table.take("turns", many, Amount(1)),
        start_ns=table.take("start", spread(duration), Amount(0)),
        think_ns=table.take("think", spread(duration), Amount(0)),
        arrive=Arrivals(per_second=arrive[0] * 1e9 / arrive[1], for_ns=for_ns) if arrive and for_ns else None,
        identities=table.take("as", _several, None),
        models=table.take("model", _several, ()),
        tokens_in=table.take("input", many, Amount(50)),
        grows=table.take("grows", count, 0),
        prefix=table.take("prefix", count, 0),
        tokens_max_out=table.take("output-max", positive, 1_024),
        stream=table.take("stream", share, 0.0),
        client=attrs.evolve(client, silence_ns=silence_ns),
        headers=table.take("headers", _headers, {}),
        path=table.take("path", _words, ""),
        says_remaining=table.take("says-remaining", _judgement, None),
    )
    table.end()
    return fleet


def _client(value: Any) -> Client:
    if isinstance(value, str) and value in CLIENTS:
        return CLIENTS[value]
    raise Wrong(f"`{value}` is no client", f"there is {', '.join(f'`{name}`' for name in CLIENTS)}")


def _judgement(value: Any) -> Amount | None:
    """How well an agent knows how much it has still to do."""
    if isinstance(value, bool):
        return Amount(1.0) if value else None
    try:
        return spread(count)(value)
    except Wrong:
        raise Wrong(f"`{value}` is no judgement", 'write `true`, or how far off it is, `"~1 cv 0.6"`') from None


def _headers(value: Any) -> dict[str, str]:
    if isinstance(value, dict) and all(isinstance(each, str) for each in value.values()):
        return {name.lower(): each for name, each in value.items()}
    raise Wrong("headers have names and words", 'write `headers = { x-priority = "urgent" }`')


# ---- providers ----


def _upstream(table: Table) -> Upstream:
    plain = Traits()
    latency = table.take("latency", spread(duration), None)
    answer = table.take("answer", spread(count), None)
    fail = table.table("fail")
    shares = {key: fail.take(key, share, 0.0) for key in ("502", "reset", "break", "stall", "hang")}
    fail.end()
    if max(shares["502"] + shares["reset"], shares["break"] + shares["stall"]) > 1:
        table.wrong(
            "fail", "more fails than there is", "let `502` and `reset`, `break` and `stall` come to at most `100%`"
        )
        shares = dict.fromkeys(shares, 0.0)
    hang = table.take("hang", spread(duration), None)
    random_phase = table.take("phase", _phase, None) == "random"
    traits = Traits(
        latency_mean_ns=round(latency.mean) if latency else plain.latency_mean_ns,
        latency_sigma_ns=round(latency.spread) if latency else plain.latency_sigma_ns,
        latency_shape=latency.shape if latency else plain.latency_shape,
        latency_told=latency is not None,
        latency_min_ns=table.take("latency-min", duration, plain.latency_min_ns),
        in_token_ns=table.take("per-input-token", duration, 0),
        out_token_ns=table.take("per-output-token", duration, 0),
        slowdown=table.take("slowdown", share, 0.0),
        spikes=table.take("spikes", share, 0.0),
        spike_factor=table.take("spike-factor", number, plain.spike_factor),
        tokens_out_mean=round(answer.mean) if answer else plain.tokens_out_mean,
        tokens_out_sigma=round(answer.spread) if answer else plain.tokens_out_sigma,
        tokens_out_shape=answer.shape if answer else plain.tokens_out_shape,
        first_byte=table.take("first-byte", share, plain.first_byte),
        concurrency=table.take("concurrency", positive, None),
        charges_most=table.take("charges", _either("used", "most"), "used") == "most",
        refusals_count=table.take("refusals-count", _flag, False),
        cache_ns=table.take("cache", duration, 0),
        neighbours=tuple(_neighbour(each) for each in table.tables("neighbours")),
        acceleration=_acceleration(table),
        tells=table.take("headers", _flag, True),
        says_retry_after_ns=table.take("says-retry-after", duration, None),
        bad_gateways=shares["502"],
        resets=shares["reset"],
        breaks=shares["break"],
        stalls=shares["stall"],
        hangs=shares["hang"],
        hang_ns=(round(hang.mean - hang.spread), round(hang.mean + hang.spread)) if hang else plain.hang_ns,
        hang_wave=_wave(table),
        storms=tuple(_storm(each) for each in table.tables("storms")),
    ).limited_to(_quotas(table))
    upstream = Upstream(
        provider=table.take("provider", _words, "*"),
        traits=traits,
        as_declared=table.take("as-declared", _flag, False),
        random_phase=random_phase,
    )
    table.end()
    return upstream


def _quotas(table: Table) -> dict[Dimension, Quota]:
    usual = table.take("window", _either(*_WINDOWS), "bucket")
    limits = table.table("limits")
    found: dict[Dimension, Quota] = {}
    for key, dimension in _LIMITS.items():
        inline = isinstance(limits.values.get(key), dict)
        own = limits.table(key) if inline else limits
        allowed = own.take("rate" if inline else key, rate, None)
        window = own.take("window", _either(*_WINDOWS), usual) if inline else usual
        burst = own.take("burst", positive, None) if inline else None
        phase_ns = own.take("phase", duration, 0) if inline else 0
        if inline:
            own.end()
        if allowed is None:
            if inline:
                limits.wrong(key, "how much is it", f'write `{key} = {{ rate = "50/min" }}`')
            continue
        limit, window_ns = allowed
        if window == "gcra" and burst is None:
            burst = max(1, limit * 1_000_000_000 // window_ns)  # a second's worth
        found[dimension] = Quota(
            limit=limit,
            window_ns=window_ns,
            burst=burst,
            counting=_WINDOWS[window],
            phase_ns=phase_ns % window_ns,
            lazy=window == "fixed-lazy",
        )
    limits.end()
    return found


_WINDOWS: Final = {
    "bucket": Counting.BUCKET,
    "gcra": Counting.BUCKET,
    "fixed": Counting.FIXED,
    "fixed-lazy": Counting.FIXED,
    "sliding": Counting.SLIDING,
}


def _span(table: Table) -> tuple[int, int]:
    from_ns, to_ns = table.take("from", duration, 0), table.take("to", duration, 0)
    if to_ns <= from_ns:
        table.wrong("to" if "to" in table else "", "it ends before it begins", 'write `from = "1m", to = "3m"`')
    return from_ns, to_ns


def _neighbour(table: Table) -> Neighbour:
    from_ns, to_ns = _span(table)
    found = Neighbour(from_ns=from_ns, to_ns=to_ns, share=table.take("share", share, 0.3))
    table.end()
    return found


def _storm(table: Table) -> Storm:
    from_ns, to_ns = _span(table)
    weather = table.take("with", _either(*(each.value for each in Weather)), Weather.OVERLOAD.value)
    found = Storm(from_ns=from_ns, to_ns=to_ns, share=table.take("share", share, 1.0), weather=Weather(weather))
    table.end()
    return found


def _acceleration(table: Table) -> Acceleration | None:
    if "acceleration" not in table:
        return None
    inner = table.table("acceleration")
    plain = Acceleration()
    found = Acceleration(
        factor=inner.take("factor", number, plain.factor),
        over_ns=inner.take("over", duration, plain.over_ns),
        floor=inner.take("floor", positive, plain.floor),
    )
    inner.end()
    return found


def _wave(table: Table) -> Wave | None:
    if "hang-wave" not in table:
        return None
    inner = table.table("hang-wave")
    found = Wave(amplitude=inner.take("by", share, 0.0), period_ns=max(1, inner.take("every", duration, HOUR_NS)))
    inner.end()
    return found


# ---- words ----


def _words(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise Wrong(f"`{value}` is no text", f'write `"{value}"`')


def _several(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise Wrong(f"`{value}` is neither a name nor a list of names", 'write `"ci"` or `["ci", "reviewer"]`')


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise Wrong(f"`{value}` is neither true nor false", "write `true`, or leave it out")


def _phase(value: Any) -> str:
    if value == "random":
        return "random"
    raise Wrong(f"`{value}` is no phase", 'write `"random"`; or in `limits`, `{ rate = "50/min", phase = "20s" }`')


def _either(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise Wrong(f"`{value}` is not one of them", f"there is {', '.join(f'`{word}`' for word in words)}")

    return read


def _one_of_ints(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise Wrong(f"`{value}` is not between {least} and {most}", f"write {least} to {most}")

    return read
