"""Providers of a scenario file: `[[upstream]]` in, an `UpstreamSpec` out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from hivemind_trio.model import PlanSpan
from hivemind_trio.model.plan import WHOLE
from hivemind_trio.sim.provider.plan_windows import EVERY_NS, PlanLimit
from hivemind_trio.sim.provider.profile import Acceleration, Neighbour, Storm, Traits, Wave, Weather
from hivemind_trio.sim.provider.token_bucket import Counting, Metered, Quota

from .quantities import ScenarioValueError, count, duration, number, positive, rate, share, spread
from .scenario import HOUR_NS, UpstreamSpec
from .toml_table import Table
from .words import either, flag, words

_LIMITS: Final = {
    "requests": Metered.REQUESTS,
    "input": Metered.INPUT,
    "output": Metered.OUTPUT,
    "tokens": Metered.TOKENS,
}

_WINDOWS: Final = {
    "bucket": Counting.BUCKET,
    "gcra": Counting.BUCKET,
    "fixed": Counting.FIXED,
    "fixed-lazy": Counting.FIXED,
    "sliding": Counting.SLIDING,
}

_BEFORE_AN_ANSWER: Final = tuple(weather.value for weather, _ in Traits().failing)
_IN_AN_ANSWER: Final = ("break", "stall")


def upstream(table: Table) -> UpstreamSpec:
    """One of several, every mistake reported to its table."""
    plain = Traits()
    latency = table.take("latency", spread(duration), None)
    answer = table.take("answer", spread(count), None)
    fail = table.table("fail")
    shares = {key: fail.take(key, share, 0.0) for key in (*_BEFORE_AN_ANSWER, *_IN_AN_ANSWER, "hang")}
    fail.end()
    if any(sum(shares[key] for key in keys) > 1 for keys in (_BEFORE_AN_ANSWER, _IN_AN_ANSWER)):
        table.wrong(
            "fail",
            "more than 100% of the calls fail",
            f"let {_listed(_BEFORE_AN_ANSWER)} together come to at most `100%`, {_listed(_IN_AN_ANSWER)} likewise",
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
        charges_most=table.take("charges", either("used", "most"), "used") == "most",
        refusals_count=table.take("refusals-count", flag, False),
        cache_ns=table.take("cache", duration, 0),
        neighbours=tuple(_neighbour(each) for each in table.tables("neighbours")),
        acceleration=_acceleration(table),
        plan=_plan(table),
        tells=table.take("headers", flag, True),
        says_retry_after_ns=table.take("says-retry-after", duration, None),
        bad_gateways=shares["502"],
        resets=shares["reset"],
        overloads=shares["529"],
        unavailable=shares["503"],
        unreachable=shares["connect"],
        breaks=shares["break"],
        stalls=shares["stall"],
        hangs=shares["hang"],
        hang_ns=(round(hang.mean - hang.spread), round(hang.mean + hang.spread)) if hang else plain.hang_ns,
        hang_wave=_wave(table),
        storms=tuple(_storm(each) for each in table.tables("storms")),
    ).limited_to(_quotas(table))
    found = UpstreamSpec(
        provider=table.take("provider", words, "*"),
        traits=traits,
        as_declared=table.take("as-declared", flag, False),
        random_phase=random_phase,
    )
    table.end()
    return found


def _plan(table: Table) -> tuple[PlanLimit, ...]:
    """Return the windows of `plan.session` and its like."""
    if "plan" not in table:
        return ()
    plan = table.table("plan")
    found: list[PlanLimit] = []
    for span in PlanSpan:
        window = plan.table(span.value)
        if span.value not in plan:
            continue
        tokens = window.take("tokens", positive, None)
        every_ns = window.take("every", _length, EVERY_NS[span])
        used = round(window.take("used", share, 0.0) * WHOLE)
        resets_ns = window.take("resets", _length, every_ns)
        window.end()
        if tokens is None:
            plan.wrong(span.value, "the window has no size", f'write `{span.value} = {{ tokens = "20M" }}`')
        elif PlanSpan.of(every_ns) is not span:
            window.wrong("every", f"a window of this length is no `{span}`", "a session is up to a day, a week up to 8")
        else:
            found.append(PlanLimit(span=span, tokens=tokens, every_ns=every_ns, used=used, resets_ns=resets_ns))
    plan.end()
    return tuple(found)


def _length(value: Any) -> int:
    """Return a duration that is not 0."""
    length_ns = duration(value)
    if length_ns < 1:
        raise ScenarioValueError("it must be longer than 0", 'write one like `"5h"` or `"3d"`')
    return length_ns


def _listed(keys: Iterable[str]) -> str:
    *first, last = (f"`{key}`" for key in keys)
    return f"{', '.join(first)} and {last}"


def _quotas(table: Table) -> dict[Metered, Quota]:
    usual = table.take("window", either(*_WINDOWS), "bucket")
    limits = table.table("limits")
    found: dict[Metered, Quota] = {}
    for key, dimension in _LIMITS.items():
        inline = isinstance(limits.values.get(key), dict)
        own = limits.table(key) if inline else limits
        allowed = own.take("rate" if inline else key, rate, None)
        window = own.take("window", either(*_WINDOWS), usual) if inline else usual
        burst = own.take("burst", positive, None) if inline else None
        phase_ns = own.take("phase", duration, 0) if inline else 0
        if inline:
            own.end()
        if allowed is None:
            if inline:
                limits.wrong(key, "the limit has no rate", f'write `{key} = {{ rate = "50/min" }}`')
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


def _span(table: Table) -> tuple[int, int]:
    from_ns, to_ns = table.take("from", duration, 0), table.take("to", duration, 0)
    if to_ns <= from_ns:
        table.wrong("to" if "to" in table else "", "`to` must be later than `from`", 'write `from = "1m", to = "3m"`')
    return from_ns, to_ns


def _neighbour(table: Table) -> Neighbour:
    from_ns, to_ns = _span(table)
    found = Neighbour(from_ns=from_ns, to_ns=to_ns, share=table.take("share", share, 0.3))
    table.end()
    return found


def _storm(table: Table) -> Storm:
    from_ns, to_ns = _span(table)
    weather = table.take("with", either(*(each.value for each in Weather)), Weather.OVERLOAD.value)
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


def _phase(value: Any) -> str:
    if value == "random":
        return "random"
    raise ScenarioValueError(
        f"`{value}` is no phase", 'write `"random"`; or in `limits`, `{ rate = "50/min", phase = "20s" }`'
    )
