"""Rows of settings: words, the direction of more, and the effect on running state.

Anything that a declaration has and no row tells of is told of plainly, so that no change is passed over in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import attrs

from hivemind_trio.model.addresses import address_text
from hivemind_trio.policy.language.unit_text import count, duration, money, ratio, size
from hivemind_trio.policy.program.program import AccountSettings, LimitGroupSettings, SlotShare
from hivemind_trio.policy.source.string_literals import quote

from .change import (
    ANEW,
    AT_ONCE,
    DRAINS,
    DROPS_NOBODY,
    FREED,
    LEARNED,
    NEXT_ATTEMPT,
    NEXT_CALL,
    NEXT_FAILURE,
    NEXT_START,
    SPENT,
    ReloadEffect,
    State,
    Verb,
)


@final
@attrs.frozen(kw_only=True)
class Row:
    """Row of one field of a declaration."""

    setting: str
    show: Callable[[Any], str] = str
    ordered: bool = True
    """There is a more and a less of it."""
    cap: bool = False
    """None: no bound, which is more than any."""
    lowered: ReloadEffect
    raised: ReloadEffect | None = None
    """None: as `lowered`."""


def or_none(show: Callable[[Any], str], nothing: str = "none") -> Callable[[Any], str]:
    """Return a formatter that shows None as `nothing`."""
    return lambda value: nothing if value is None else show(value)


def _share(value: SlotShare) -> str:
    return ratio(value.ratio) if value.ratio is not None else str(value.slots)


def _listed(values: Sequence[object]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _times(value: float) -> str:
    return f"{value:g}x"


def _quoted_address(value: tuple[str, int]) -> str:
    host, port = value
    return quote(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def _account(account: AccountSettings) -> str:
    low = account.aimd.low if account.aimd is not None else account.limit
    says = [str(account.key), *([f"for {', '.join(account.lanes)}"] if account.lanes else [])]
    if account.shares is not None:
        return f"{account.name} ({'; '.join([*says, f'shares {account.shares}'])})"
    says.append(f"concurrency {account.limit}" if low == account.limit else f"concurrency {low}..{account.limit}")
    groups = [group for group in account.groups if group.concurrency is not None or group.quotas]
    says += [f"limits {' '.join(_limits(group))}" for group in groups]
    return f"{account.name} ({'; '.join(says)})"


def _limits(group: LimitGroupSettings) -> list[str]:
    says = [quote(group.glob)] if group.glob is not None else []
    says += [f"concurrency {group.concurrency}"] if group.concurrency is not None else []
    return says + [str(quota) for quota in group.quotas]


def _when(_: object) -> str:
    return "when ..."


_SHARES: Final = ReloadEffect(State.KEPT, "applies from the next dispatch on; past use counts as before")
_ANSWERS: Final = ReloadEffect(State.KEPT, "applies to new answers; counts of the provider stay")

_ACCOUNTS: Final = ReloadEffect(
    State.DRAINS, "an account keeps its state by name; calls of a removed one finish, waiting calls go to the others"
)

_MOVED: Final = ReloadEffect(State.RESTART, "needs a restart; until then the new policy is not loaded", "HM702")


def _network(span: tuple[int, int]) -> str:
    low, high = map(address_text, span)
    return quote(low) if low == high else f"{quote(low)} to {quote(high)}"


_SERVER: Final[Mapping[str, Row]] = {
    "timezone": Row(setting="timezone", show=lambda zone: zone or "the machine's", ordered=False, lowered=AT_ONCE),
    "nodes": Row(setting="nodes", lowered=AT_ONCE),
    "workers": Row(
        setting="workers", show=lambda workers: count(workers) if workers else "auto", ordered=False, lowered=_MOVED
    ),
    "drain_ns": Row(setting="drain", show=duration, lowered=AT_ONCE),
    "max_body": Row(setting="max-body", show=size, lowered=NEXT_CALL),
    "max_header": Row(setting="max-header", show=size, lowered=NEXT_START),
    "max_waiting": Row(setting="max-waiting", show=count, lowered=DROPS_NOBODY, raised=AT_ONCE),
    "refuse_unknown": Row(
        setting="unknown-agent",
        show=lambda refuse: "deny" if refuse else "allow",
        ordered=False,
        lowered=ReloadEffect(State.KEPT, "with `deny`, waiting calls of unknown callers are rejected too"),
    ),
    "hosts": Row(
        setting="hosts",
        show=lambda globs: _listed(list(map(quote, globs))) if globs else "none",
        ordered=False,
        lowered=NEXT_CALL,
    ),
    "forwarded_by": Row(
        setting="forwarded-by",
        show=lambda spans: _listed(list(map(_network, spans))) if spans else "none",
        ordered=False,
        lowered=NEXT_CALL,
    ),
    "admin": Row(
        setting="admin",
        show=or_none(_quoted_address),
        ordered=False,
        lowered=NEXT_START,
    ),
    "control_path": Row(
        setting="admin path",
        show=or_none(quote, "in the runtime directory"),
        ordered=False,
        lowered=NEXT_START,
    ),
    "has_control": Row(
        setting="admin socket",
        show=lambda has_control: "on" if has_control else "off",
        ordered=False,
        lowered=NEXT_START,
    ),
    "admin_tokens": Row(
        setting="admin token",
        show=lambda tokens: ", ".join(map(str, tokens)) or "none",
        ordered=False,
        lowered=NEXT_CALL,
    ),
    "metrics": Row(
        setting="metrics",
        show=or_none(_quoted_address, "the control API's"),
        ordered=False,
        lowered=NEXT_START,
    ),
    "metrics_tokens": Row(
        setting="metrics token",
        show=lambda tokens: ", ".join(map(str, tokens)) or "none",
        ordered=False,
        lowered=NEXT_CALL,
    ),
    "silent_ns": Row(setting="wait silent", show=duration, lowered=NEXT_CALL),
    "hold_ns": Row(setting="wait hold", show=duration, lowered=NEXT_CALL),
    "identify": Row(setting="identify", show=_listed, ordered=False, lowered=NEXT_CALL),
    "log_json": Row(setting="log", show=lambda json: "json" if json else "text", ordered=False, lowered=AT_ONCE),
}

_PROVIDER: Final[Mapping[str, Row]] = {
    "api": Row(setting="api", ordered=False, lowered=LEARNED),
    "base": Row(setting="base", ordered=False, lowered=LEARNED),
    "keys": Row(setting="key", show=lambda keys: str(keys[0]) if keys else "none", ordered=False, lowered=NEXT_ATTEMPT),
    "accounts": Row(
        setting="account",
        show=lambda accounts: ", ".join(map(_account, accounts)) or "none",
        ordered=False,
        lowered=_ACCOUNTS,
    ),
    "spread": Row(setting="spread", ordered=False, lowered=NEXT_ATTEMPT),
    "estimate": Row(setting="estimate", ordered=False, lowered=NEXT_CALL),
    "serves": Row(
        setting="serves",
        show=lambda globs: _listed(list(map(quote, globs))) if globs else "all models of its API",
        ordered=False,
        lowered=ANEW,
    ),
    "queue": Row(setting="queue", show=or_none(count), cap=True, lowered=DROPS_NOBODY, raised=AT_ONCE),
    "retry": Row(setting="retry", ordered=False, lowered=NEXT_FAILURE),
    "resident": Row(
        setting="resident",
        show=or_none(lambda one: f"{one.models} swap {duration(one.swap_ns)}"),
        ordered=False,
        lowered=ReloadEffect(State.KEPT, "models in use stay loaded until their calls have ended"),
    ),
    "plan": Row(
        setting="plan",
        show=or_none(str),
        ordered=False,
        lowered=ReloadEffect(State.KEPT, "readings stay; waiting calls are judged anew at once"),
    ),
    "while_open": Row(setting="open", ordered=False, lowered=AT_ONCE),
    "fallback": Row(setting="fallback", show=or_none(str), ordered=False, lowered=ANEW),
    "objective": Row(setting="objective", ordered=False, lowered=ANEW),
    "learns": Row(
        setting="headers", show=lambda learns: "trust" if learns else "ignore", ordered=False, lowered=AT_ONCE
    ),
    "reaper.first_byte": Row(setting="reaper first-byte", show=_times, lowered=NEXT_ATTEMPT),
    "reaper.idle": Row(setting="reaper idle", show=_times, lowered=NEXT_ATTEMPT),
    "degraded": Row(setting="degraded", show=or_none(_when), ordered=False, lowered=_ANSWERS),
    "degraded.condition": Row(setting="degraded", show=_when, ordered=False, lowered=_ANSWERS),
    "timeouts.connect_ns": Row(setting="timeout connect", show=duration, lowered=NEXT_ATTEMPT),
    "timeouts.first_byte_ns": Row(setting="timeout first-byte", show=duration, lowered=NEXT_ATTEMPT),
    "timeouts.idle_ns": Row(setting="timeout idle", show=duration, lowered=NEXT_ATTEMPT),
    "timeouts.total_ns": Row(setting="timeout total", show=duration, lowered=NEXT_ATTEMPT),
    "breaker.trip": Row(setting="breaker trip", show=ratio, lowered=AT_ONCE),
    "breaker.of": Row(setting="breaker of", lowered=AT_ONCE),
    "breaker.over_ns": Row(setting="breaker over", show=duration, lowered=AT_ONCE),
    "breaker.open_ns": Row(setting="breaker open", show=duration, lowered=AT_ONCE),
    "breaker.probes": Row(setting="breaker probes", lowered=AT_ONCE),
    "aimd.start": Row(setting="concurrency start", lowered=NEXT_START),
    "aimd.increase": Row(setting="aimd increase", lowered=AT_ONCE),
    "aimd.decrease": Row(setting="aimd decrease", show=ratio, lowered=AT_ONCE),
    "aimd.cooldown_ns": Row(setting="aimd cooldown", show=duration, lowered=AT_ONCE),
    "aimd.slow_ns": Row(setting="aimd slow first-byte", show=or_none(duration), cap=True, lowered=AT_ONCE),
}

_LANE: Final[Mapping[str, Row]] = {
    "objective": Row(setting="objective", show=or_none(str, "the provider's"), ordered=False, lowered=ANEW),
    "sticky": Row(setting="sticky", show=or_none(str), ordered=False, lowered=ANEW),
    "steal_above": Row(setting="steal above", show=count, lowered=AT_ONCE),
    "weight": Row(setting="weight", lowered=AT_ONCE),
    "reserve": Row(setting="reserve", show=_share, lowered=AT_ONCE),
    "max": Row(setting="max", show=or_none(_share), cap=True, lowered=DRAINS, raised=FREED),
    "deadline_ns": Row(
        setting="deadline",
        show=or_none(duration),
        cap=True,
        lowered=ReloadEffect(State.KEPT, "applies to waiting calls too, from their arrival"),
    ),
    "queue": Row(setting="queue", show=or_none(count), cap=True, lowered=DROPS_NOBODY, raised=AT_ONCE),
    "shed_oldest": Row(
        setting="queue overflow",
        show=lambda oldest: "shed-oldest" if oldest else "deny",
        ordered=False,
        lowered=NEXT_CALL,
    ),
    "priority": Row(setting="priority", lowered=ANEW),
    "aging_ns": Row(
        setting="aging", show=or_none(lambda value: f"1 every {duration(value)}"), ordered=False, lowered=ANEW
    ),
}

_AGENT: Final[Mapping[str, Row]] = {
    "priority_max": Row(setting="priority max", show=or_none(count), lowered=NEXT_CALL, raised=NEXT_CALL),
    "weight": Row(setting="weight", lowered=_SHARES),
    "team": Row(setting="team", ordered=False, lowered=ANEW),
    "tokens": Row(
        setting="token",
        show=_listed,
        ordered=False,
        lowered=ReloadEffect(State.KEPT, "a removed token no longer identifies the agent; calls in flight finish"),
    ),
    "concurrency": Row(setting="concurrency", show=or_none(str), cap=True, lowered=DRAINS, raised=FREED),
    "queue": Row(setting="queue", show=or_none(count), cap=True, lowered=DROPS_NOBODY, raised=AT_ONCE),
}

_RETRY: Final[Mapping[str, Row]] = {
    "statuses": Row(setting="on", show=lambda on: _listed(sorted(on)), ordered=False, lowered=NEXT_FAILURE),
    "failures": Row(setting="on", show=lambda on: _listed(sorted(on)), ordered=False, lowered=NEXT_FAILURE),
    "error_types": Row(
        setting="on", show=lambda on: _listed(list(map(quote, sorted(on)))), ordered=False, lowered=NEXT_FAILURE
    ),
    "attempts": Row(setting="attempts", lowered=NEXT_FAILURE),
    "first_ns": Row(setting="backoff from", show=duration, lowered=NEXT_FAILURE),
    "last_ns": Row(setting="backoff to", show=duration, lowered=NEXT_FAILURE),
    "jitter": Row(setting="backoff jitter", ordered=False, lowered=NEXT_FAILURE),
    "honor_max_ns": Row(setting="honor retry-after max", show=duration, lowered=NEXT_FAILURE),
    "ratio": Row(setting="ratio", show=ratio, lowered=AT_ONCE),
}


def _price(value: int) -> str:
    return f"{money(value)}/Mtok"


_MODEL: Final[Mapping[str, Row]] = {
    **{
        field: Row(setting=f"price {field.replace('_', '-')}", show=or_none(_price), lowered=SPENT)
        for field in ("input", "output", "cache_read", "cache_write")
    },
    "context": Row(setting="context", show=or_none(count), lowered=NEXT_CALL),
    "max_output": Row(setting="max-output", show=or_none(count), lowered=NEXT_CALL),
    "name": Row(setting="name", show=or_none(quote), ordered=False, lowered=NEXT_ATTEMPT),
}

_STORE: Final[Mapping[str, Row]] = {
    "durable": Row(
        setting="kind", show=lambda durable: "sqlite" if durable else "memory", ordered=False, lowered=_MOVED
    ),
    "path": Row(setting="path", show=or_none(quote, "the default"), ordered=False, lowered=_MOVED),
    "journal": Row(setting="journal", show=lambda on: "on" if on else "off", ordered=False, lowered=NEXT_START),
    "keep_ns": Row(setting="journal keep", show=duration, lowered=AT_ONCE),
    "max_bytes": Row(setting="journal max", show=size, lowered=AT_ONCE),
    "url": Row(setting="url", show=or_none(str), ordered=False, lowered=_MOVED),
    "namespace": Row(setting="namespace", show=quote, ordered=False, lowered=_MOVED),
    "lease_ns": Row(setting="lease", show=duration, lowered=_MOVED),
    "renew_ns": Row(setting="lease renew", show=duration, lowered=_MOVED),
    "gone_ns": Row(setting="lease gone", show=duration, lowered=_MOVED),
    "local": Row(setting="outage local", show=ratio, lowered=AT_ONCE),
}

_ASKED: Final = ReloadEffect(State.KEPT, "applies to the next request; leases in hand keep their time until renewed")

_RESOURCE: Final[Mapping[str, Row]] = {
    "capacity": Row(
        setting="capacity",
        lowered=ReloadEffect(State.DRAINS, "leases in hand end normally; none begins until there is room"),
        raised=ReloadEffect(State.KEPT, "waiting requests get the new leases at once"),
    ),
    "lease_ns": Row(setting="lease", show=duration, lowered=_ASKED),
    "lease_max_ns": Row(setting="lease max", show=or_none(duration), cap=True, lowered=_ASKED),
    "queue": Row(
        setting="queue",
        show=count,
        lowered=ReloadEffect(State.KEPT, "requests that wait already stay; further ones are refused"),
        raised=AT_ONCE,
    ),
    "allow": Row(
        setting="allow",
        show=lambda agents: _listed(agents) if agents else "every agent",
        ordered=False,
        lowered=ReloadEffect(State.KEPT, "leases of other agents stay; their waiting requests are refused"),
    ),
}

_JOBS: Final[Mapping[str, Row]] = {
    "allow": Row(
        setting="allow",
        show=lambda agents: _listed(agents) if agents else "no agent",
        ordered=False,
        lowered=ReloadEffect(State.KEPT, "jobs in progress stay; waiting ones of agents that are not in it fail"),
    ),
    "commands": Row(
        setting="commands",
        show=lambda globs: _listed(list(map(quote, globs))) if globs else "none",
        ordered=False,
        lowered=ReloadEffect(State.KEPT, "jobs in progress stay; waiting ones that match no glob fail"),
    ),
    "capacity": Row(
        setting="capacity",
        lowered=ReloadEffect(State.DRAINS, "jobs in progress end normally; none begins until there is room"),
        raised=ReloadEffect(State.KEPT, "waiting jobs start within a second each"),
    ),
    "queue": Row(
        setting="queue",
        show=count,
        lowered=ReloadEffect(State.KEPT, "jobs that wait already stay; further ones are refused"),
        raised=AT_ONCE,
    ),
    "patience_ns": Row(setting="patience", show=duration, lowered=AT_ONCE),
}

ROWS: Final = {
    "server": _SERVER,
    "store": _STORE,
    "provider": _PROVIDER,
    "lane": _LANE,
    "agent": _AGENT,
    "retry": _RETRY,
    "model": _MODEL,
    "team": {
        "weight": Row(setting="weight", lowered=_SHARES),
        "lane": Row(setting="lane", show=or_none(str), ordered=False, lowered=ANEW),
    },
    "budget": {},
    "resource": _RESOURCE,
    "jobs": _JOBS,
}

_UNITS: Final[Mapping[str, Callable[[Any], str]]] = {"_ns": duration, "_microusd": money, "_bytes": size}


def plain(field: str) -> Row:
    """Return the row of a field without one of its own: its name gives its unit."""
    for unit, show in _UNITS.items():
        if field.endswith(unit):
            return Row(setting=_words(field.removesuffix(unit)), show=or_none(show), lowered=AT_ONCE)
    return Row(setting=_words(field), show=_plainly, lowered=AT_ONCE)


def _words(field: str) -> str:
    return field.replace(".", " ").replace("_", "-")


def _plainly(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return _yes(value)
        case tuple() | list():
            return _listed(value)
        case frozenset() | set():
            return _listed(sorted(map(str, value)))
        case _:
            return str(value)


def verb_of(row: Row, before: Any, after: Any) -> Verb:
    """Return the verb of a change from one value to another."""
    if row.cap and (before is None or after is None):
        return Verb.RAISED if after is None else Verb.LOWERED
    if before is None:
        return Verb.ADDED
    if after is None:
        return Verb.REMOVED
    if isinstance(before, SlotShare) and isinstance(after, SlotShare):
        if (before.ratio is None) is not (after.ratio is None) and before.slots + after.slots:
            return Verb.CHANGED  # a share and a number: which is more depends on the provider
        before, after = (before.ratio or 0, before.slots), (after.ratio or 0, after.slots)
    if not row.ordered or type(before) is not type(after) or not isinstance(before, (int, float, tuple)):
        return Verb.CHANGED
    return Verb.RAISED if after > before else Verb.LOWERED
