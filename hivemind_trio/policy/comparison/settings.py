"""Changes of declarations.

`plan` compares two compiled programs, so layout, order and where a value is inherited from are no changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from hivemind_trio.policy.language.model_price import ModelPrice
from hivemind_trio.policy.program.budgets import BudgetSettings, Per
from hivemind_trio.policy.program.program import AgentSettings, Program, ProviderSettings, Server
from hivemind_trio.policy.program.renames import Renames
from hivemind_trio.policy.program.resilience import AimdSettings
from hivemind_trio.policy.source.string_literals import quote

from .change import (
    ANEW,
    CARRIED,
    COUNTED,
    DRAINS,
    FIRST_COUNT,
    FORGOTTEN,
    FREED,
    FROM_ZERO,
    NEW,
    SPENT,
    Change,
    ReloadEffect,
    State,
    Verb,
)
from .rate_rows import allowances, groups, quotas, thresholds
from .setting_rows import ROWS, Row, plain, verb_of
from .similar_names import likenesses

_WHOLE: Final[Mapping[str, tuple[ReloadEffect, ReloadEffect]]] = {
    "provider": (
        NEW,
        ReloadEffect(
            State.DRAINS,
            "no new attempt begins there; attempts in flight finish; waiting calls are classified again",
        ),
    ),
    "lane": (
        ANEW,
        ReloadEffect(State.KEPT, "its waiting calls are classified again and keep their age; calls in flight finish"),
    ),
    "team": (ANEW, ANEW),
    "agent": (ANEW, ReloadEffect(State.KEPT, "its callers are unknown from now on; calls in flight finish")),
    "budget": (
        FIRST_COUNT,
        ReloadEffect(State.RESETS, "its spending is lost, even if it is declared again", "HM701"),
    ),
    "retry": (NEW, ReloadEffect(State.KEPT, "calls in flight with this class use the class `default`")),
    "model": (SPENT, SPENT),
    "resource": (NEW, ReloadEffect(State.DRAINS, "its leases run out; waiting requests are refused")),
}
"""Kind -> what it does to add one, and to remove one."""


REMEMBERED: Final = ("provider", "lane", "agent", "budget", "resource")
"""Kinds with a state of their own, which a changed name alone would lose."""

NO_RENAMES: Final = Renames({}, {})


def plan(old: Program | None, new: Program, renames: Renames = NO_RENAMES) -> tuple[Change, ...]:
    """Everything that is declared otherwise, and what loading `new` does to a proxy that runs on `old`.

    Args:
        old: None: there was no policy; everything is new. What is renamed, it has under the new names.
        renames: What that was.
    """
    changes: list[Change] = []
    if old is not None:
        changes += _server(old.server, new.server)
        changes += _fields("store", "", old.store, new.store, "")
        changes += _fields("jobs", "", old.jobs, new.jobs, "")
    for kind, before, after in _tables(old, new):
        effects = _WHOLE[kind]
        former = {now: was for was, now in renames.of(kind).items()}
        alike = likenesses(before, after) if kind in REMEMBERED else {}
        for name in before:
            if name not in after:
                changes.append(_whole(kind, name, Verb.REMOVED, effects[1], before[name]))
        for name, one in after.items():
            if name not in before:
                asked = name in alike and name not in former
                effect = _mistaken(effects[0], alike[name]) if asked else effects[0]
                changes.append(_whole(kind, name, Verb.ADDED, effect, one))
            else:
                if name in former:
                    changes.append(_whole(kind, name, Verb.RENAMED, CARRIED, one, former[name]))
                if isinstance(one, ProviderSettings):
                    changes += _account_names(before[name], one, former)
                changes += _compared(kind, name, before[name], one)
    if old is not None:
        changes += _compared("agent", "unknown", old.unknown, new.unknown)
    return tuple(changes)


def _tables(old: Program | None, new: Program) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    def tables(program: Program) -> dict[str, Mapping[str, Any]]:
        return {
            "provider": program.providers,
            "lane": program.lanes,
            "team": program.teams,
            "agent": program.agents,
            "budget": program.budgets,
            "retry": program.retries,
            "model": _models(program),
            "resource": program.resources,
        }

    before = tables(old) if old is not None else {}
    for kind, after in tables(new).items():
        # What is there without being declared is not news of a first policy.
        mine = after if old is not None else {name: one for name, one in after.items() if getattr(one, "at", "")}
        yield kind, before.get(kind, {}), mine


def _models(program: Program) -> dict[str, ModelPrice]:
    """Return the prices by glob and provider; what a declaration leaves open is from the list price of its glob."""
    table: dict[str, ModelPrice] = {}
    for row in program.models:
        name = quote(row.glob) + (f" on {row.provider}" if row.provider is not None else "")
        declared = table.setdefault(name, row)
        if declared is not row:
            price = declared if declared.has_price else row
            context = row.context if declared.context is None else declared.context
            table[name] = attrs.evolve(
                price, context=context, max_output=declared.max_output, name=declared.name, at=declared.at
            )
    return table


def _whole(kind: str, name: str, verb: Verb, effect: ReloadEffect, one: object, former: str = "") -> Change:
    return Change(
        kind=kind,
        name=name,
        setting="",
        verb=verb,
        before=former,
        after=name if former else "",
        effect=effect,
        at=getattr(one, "at", ""),
    )


def _account_names(old: ProviderSettings, new: ProviderSettings, former: Mapping[str, str]) -> Iterator[Change]:
    """Yield renamed accounts, and those that look as if they were.

    Args:
        former: Name -> former name, of accounts `claude.prod`.
    """
    tables = [{account.name: account for account in one.accounts} for one in (old, new)]
    for name, one in ((f"{new.name}.{account}", account) for account in tables[1]):
        was = former.get(name, name).partition(".")[2]
        if was != one:
            yield _whole("account", name, Verb.RENAMED, CARRIED, new, former[name])
    for added, gone in likenesses(*tables).items():
        yield _whole("account", f"{new.name}.{added}", Verb.ADDED, _mistaken(NEW, gone), new)


def _mistaken(added: ReloadEffect, old: str) -> ReloadEffect:
    """Return the effect of a new declaration that looks like the one it would replace."""
    says = f"it starts with no state; to keep counters and learned values, write `was {old}`"
    return ReloadEffect(State.RESETS, f"{added.says}; {says}" if added.says else says, "HM703")


# ---- one declaration ----


def _compared(kind: str, name: str, old: Any, new: Any) -> Iterator[Change]:
    """Yield the changes of one declaration, in the order of its fields."""
    match old, new:
        case ProviderSettings(), ProviderSettings():
            yield from _provider(old, new)
        case BudgetSettings(), BudgetSettings():
            yield from _budget(old, new)
        case AgentSettings(), AgentSettings():
            yield from _agent(name, old, new)
        case _:
            yield from _fields(kind, name, old, new, new.at if hasattr(new, "at") else "")


def _server(old: Server, new: Server) -> Iterator[Change]:
    if (old.host, old.port) != (new.host, new.port):
        yield Change(
            kind="server",
            name="",
            setting="listen",
            verb=Verb.CHANGED,
            before=_address(old),
            after=_address(new),
            effect=ReloadEffect(State.RESTART, "needs a restart; until then the new policy is not loaded", "HM702"),
            at="",
        )
    yield from _fields("server", "", old, new, "", without=("host", "port"))


def _address(server: Server) -> str:
    host = f"[{server.host}]" if ":" in server.host else server.host
    return f"{host}:{server.port}"


def _fields(
    kind: str, name: str, old: Any, new: Any, at: str, *, prefix: str = "", without: Sequence[str] = ()
) -> Iterator[Change]:
    """Field by field; settings that are blocks of their own by their fields."""
    for field in attrs.fields(type(new)):
        if not field.eq or field.name in (*(() if kind == "model" else ("name",)), "at", "glob", *without):
            continue
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before == after:
            continue
        row = ROWS[kind].get(prefix + field.name)
        if row is None and attrs.has(type(after)) and type(before) is type(after):
            yield from _fields(kind, name, before, after, at, prefix=f"{prefix}{field.name}.")
            continue
        row = row or plain(prefix + field.name)
        verb = verb_of(row, before, after)
        effect = row.raised if verb is Verb.RAISED and row.raised is not None else row.lowered
        yield Change(
            kind=kind, name=name, setting=row.setting, verb=verb, before=row.show(before), after=row.show(after),
            effect=effect, at=at,
        )  # fmt: skip


def _agent(name: str, old: AgentSettings, new: AgentSettings) -> Iterator[Change]:
    def change(setting: str, verb: Verb, before: str, after: str, effect: ReloadEffect) -> Change:
        return Change(
            kind="agent", name=name, setting=setting, verb=verb, before=before, after=after, effect=effect, at=new.at
        )

    yield from _fields("agent", name, old, new, new.at, without=("limits",))
    yield from quotas("limits", old.limits, new.limits, change, COUNTED)


# ---- providers ----


def _provider(old: ProviderSettings, new: ProviderSettings) -> Iterator[Change]:
    def change(setting: str, verb: Verb, before: str, after: str, effect: ReloadEffect) -> Change:
        return Change(
            kind="provider", name=new.name, setting=setting, verb=verb, before=before, after=after, effect=effect,
            at=new.at,
        )  # fmt: skip

    if _bounds(old) != _bounds(new):
        verb = verb_of(Row(setting="", lowered=NEW), (old.limit, _low(old)), (new.limit, _low(new)))
        effect = _concurrency(old, new)
        yield change("concurrency", verb, _spelt_bounds(old), _spelt_bounds(new), effect)
    if old.aimd is not None and new.aimd is not None:
        yield from _fields("provider", new.name, old.aimd, new.aimd, new.at, prefix="aimd.", without=("low",))
    yield from _fields("provider", new.name, old, new, new.at, without=("limit", "aimd", "groups"))
    yield from groups(old, new, change)


def _low(provider: ProviderSettings) -> int:
    return provider.aimd.low if provider.aimd is not None else provider.limit


def _bounds(provider: ProviderSettings) -> tuple[int, int | None]:
    return provider.limit, provider.aimd.low if provider.aimd is not None else None


def _spelt_bounds(provider: ProviderSettings) -> str:
    return f"{provider.aimd.low}..{provider.limit}" if provider.aimd is not None else str(provider.limit)


def _concurrency(old: ProviderSettings, new: ProviderSettings) -> ReloadEffect:
    """Return the effect on the learned concurrency of `scheduler.health`."""
    match old.aimd, new.aimd:
        case AimdSettings(), None:
            return FORGOTTEN
        case None, AimdSettings() as aimd:
            return ReloadEffect(State.KEPT, f"calls in flight stay; the limit is learned, starting at {aimd.start}")
        case None, None:
            return DRAINS if new.limit < old.limit else FREED
        case _ if new.limit < old.limit:
            return ReloadEffect(
                State.DRAINS, "the learned limit stays, up to the new bound; calls in flight above it finish"
            )
        case _:
            return ReloadEffect(State.KEPT, "the learned limit stays, or rises to the new lower bound")


# ---- budgets ----


def _budget(old: BudgetSettings, new: BudgetSettings) -> Iterator[Change]:
    def change(setting: str, verb: Verb, before: str, after: str, effect: ReloadEffect) -> Change:
        return Change(
            kind="budget", name=new.name, setting=setting, verb=verb, before=before, after=after, effect=effect,
            at=new.at,
        )  # fmt: skip

    if old.partition != new.partition:
        effect = attrs.evolve(FROM_ZERO, says="other accounts: they are counting starts at 0")
        yield change("per", Verb.CHANGED, _per(old), _per(new), effect)
    yield from allowances(old.allowances, new.allowances, change)
    yield from thresholds(old.thresholds, new.thresholds, change)
    yield from _fields("budget", new.name, old, new, new.at, without=("per", "per_name", "allowances", "thresholds"))


def _per(budget: BudgetSettings) -> str:
    return "one for all" if budget.per is Per.ALL else budget.partition
