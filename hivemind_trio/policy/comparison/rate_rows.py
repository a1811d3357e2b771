"""Comparison of windows: a provider's `limits` and our budgets. Another window is another count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from hivemind_trio.policy.language.globs import overlap
from hivemind_trio.policy.language.unit_text import count, money, rate, ratio
from hivemind_trio.policy.language.units import ALLOWANCE_WINDOWS, MONTH
from hivemind_trio.policy.program.budgets import BudgetAllowance, BudgetWindow, Measure, Threshold
from hivemind_trio.policy.program.program import LimitGroupSettings, ProviderSettings
from hivemind_trio.policy.program.rate_limits import RateLimitSettings
from hivemind_trio.policy.source.string_literals import quote

from .change import COUNTED, DRAINS, FIRST_COUNT, FREED, FROM_ZERO, SPENT, THRESHOLDS, Change, ReloadEffect, State, Verb
from .setting_rows import Row, or_none, verb_of

Tell: TypeAlias = Callable[[str, Verb, str, str, ReloadEffect], Change]
"""Function of one declaration: a setting, its change, before, after, and the effect."""


def groups(old: ProviderSettings, new: ProviderSettings, change: Tell) -> Iterator[Change]:
    """Yield a provider's `limits` blocks, each known by its glob."""
    before = {group.glob: group for group in old.groups}
    after = {group.glob: group for group in new.groups}
    for glob, group in before.items():
        if glob not in after:
            # What was counted under another glob is another count, though it be for the same models.
            moved = any(
                overlap(glob or "*", other or "*") and after[other].quotas for other in after if other not in before
            )
            effect = FROM_ZERO if group.quotas and moved else ReloadEffect(State.KEPT, "calls in flight finish")
            yield change(_block(glob), Verb.REMOVED, _spelt_group(group), "", effect)
    for glob, group in after.items():
        if glob not in before:
            yield change(_block(glob), Verb.ADDED, "", _spelt_group(group), FIRST_COUNT)
            continue
        was = before[glob]
        if was.concurrency != group.concurrency:
            row = Row(setting="concurrency", cap=True, lowered=DRAINS, raised=FREED)
            verb = verb_of(row, was.concurrency, group.concurrency)
            effect = DRAINS if verb is Verb.LOWERED else FREED
            shown = [or_none(str)(one.concurrency) for one in (was, group)]
            yield change(f"{_block(glob)} concurrency", verb, shown[0], shown[1], effect)
        yield from quotas(_block(glob), was.quotas, group.quotas, change)


def _block(glob: str | None) -> str:
    return f"limits {quote(glob)}" if glob is not None else "limits"


def _spelt_group(group: LimitGroupSettings) -> str:
    parts = [f"concurrency {group.concurrency}"] if group.concurrency is not None else []
    return "; ".join([*parts, *(f"{quota.dimension} {_spelt_quota(quota)}" for quota in group.quotas)])


def _spelt_quota(quota: RateLimitSettings) -> str:
    return rate(count(quota.amount), quota.window_ns)


def quotas(
    block: str,
    old: tuple[RateLimitSettings, ...],
    new: tuple[RateLimitSettings, ...],
    change: Tell,
    another_window: ReloadEffect = FROM_ZERO,
) -> Iterator[Change]:
    """Yield changes of quotas: of an amount under the same window, or of the window, which may be another count."""
    before = {(quota.dimension, quota.window_ns): quota for quota in old}
    after = {(quota.dimension, quota.window_ns): quota for quota in new}
    for key, quota in after.items():
        setting = f"{block} {quota.dimension}"
        was = before.get(key)
        if was is None:
            gone = [one for other, one in before.items() if other not in after and one.dimension is quota.dimension]
            if gone:
                yield change(setting, Verb.CHANGED, _spelt_quota(gone[0]), _spelt_quota(quota), another_window)
            else:
                yield change(setting, Verb.ADDED, "", _spelt_quota(quota), FIRST_COUNT)
            continue
        if was.amount != quota.amount:
            verb = Verb.RAISED if quota.amount > was.amount else Verb.LOWERED
            yield change(setting, verb, _spelt_quota(was), _spelt_quota(quota), COUNTED)
        if was.headroom != quota.headroom:
            verb = Verb.RAISED if (quota.headroom or 0) > (was.headroom or 0) else Verb.LOWERED
            yield change(f"{setting} headroom", verb, _headroom(was), _headroom(quota), COUNTED)
        if was.window is not quota.window:
            yield change(f"{setting} window", Verb.CHANGED, str(was.window), str(quota.window), COUNTED)
    for key, quota in before.items():
        if key not in after and not any(
            other not in before and one.dimension is quota.dimension for other, one in after.items()
        ):
            effect = ReloadEffect(State.KEPT, "no longer counted")
            yield change(f"{block} {quota.dimension}", Verb.REMOVED, _spelt_quota(quota), "", effect)


def allowances(old: tuple[BudgetAllowance, ...], new: tuple[BudgetAllowance, ...], change: Tell) -> Iterator[Change]:
    """Yield changes of a budget's allowances: an amount may change, another measure or window is another account."""

    def key(one: BudgetAllowance) -> tuple[Measure, BudgetWindow, bool]:
        return one.measure, one.window, one.calendar

    before, after = {key(one): one for one in old}, {key(one): one for one in new}
    gone = [one for its, one in before.items() if its not in after]
    for its, allowance in after.items():
        was = before.get(its)
        if was is None and gone:
            other = gone.pop(0)
            setting = str(other.measure if other.measure is allowance.measure else "allowance")
            yield change(setting, Verb.CHANGED, _spelt(other), _spelt(allowance), FROM_ZERO)
        elif was is None:
            yield change(
                str(allowance.measure),
                Verb.ADDED,
                "",
                _spelt(allowance),
                FIRST_COUNT,
            )
        elif was.amount != allowance.amount:
            verb = Verb.RAISED if allowance.amount > was.amount else Verb.LOWERED
            yield change(str(allowance.measure), verb, _spelt(was), _spelt(allowance), SPENT)
    for other in gone:
        effect = ReloadEffect(State.RESETS, "its spending is lost", "HM701")
        yield change(str(other.measure), Verb.REMOVED, _spelt(other), "", effect)


def thresholds(old: tuple[Threshold, ...], new: tuple[Threshold, ...], change: Tell) -> Iterator[Change]:
    """Yield changes of a budget's steps."""
    before = {step.share: step for step in old}
    after = {step.share: step for step in new}
    for share in sorted(before.keys() | after.keys()):
        was, now = before.get(share), after.get(share)
        if was != now:
            verb = Verb.ADDED if was is None else Verb.REMOVED if now is None else Verb.CHANGED
            yield change(f"at {ratio(share)}", verb, _actions(was), _actions(now), THRESHOLDS)


def _spelt(one: BudgetAllowance) -> str:
    amount = money(one.amount) if one.measure is Measure.COST else count(one.amount)
    kind = "" if one.measure is Measure.COST else f" {one.measure}"
    windows = {name: ns for name, ns in ALLOWANCE_WINDOWS.items() if name != MONTH or one.is_month}
    shown = rate(amount, one.window_ns, windows=windows) + kind
    return shown + (f" ({one.timezone})" if one.timezone else "") + ("" if one.calendar else " (sliding)")


def _actions(step: Threshold | None) -> str:
    if step is None:
        return ""
    parts = ["warn"] if step.warn else []
    parts += [f"lane {step.lane}"] if step.lane is not None else []
    parts += [f"priority {step.priority}"] if step.priority is not None else []
    parts += [f"model {quote(step.model)}"] if step.model is not None else []
    parts += ["hold"] if step.hold else []
    parts += [f"deny {quote(step.deny)}"] if step.deny is not None else []
    return "; ".join(parts)


def _headroom(quota: RateLimitSettings) -> str:
    return "learned" if quota.headroom is None else ratio(quota.headroom)
