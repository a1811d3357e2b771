"""Limits, budgets and capacity beside each other, by arithmetic on what they say: HM402 to HM406, HM411, HM417.

The scheduler keeps a limit as a bucket, or so that every window of its length is within it. Either way no more than
`amount * (1 + t / window)` can begin in any time `t`: a whole window at once, and what comes back meanwhile. A finding
holds by that bound, or it is not made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from hivemind_trio.policy.compile.binder import BoundDeclaration, SettingValue, SymbolTable
from hivemind_trio.policy.diagnostics.collector import DiagnosticCollector
from hivemind_trio.policy.diagnostics.diagnostic import Fix, Label, Severity
from hivemind_trio.policy.language.condition_typing import Always, Condition, Like, Relation
from hivemind_trio.policy.program.budgets import BudgetAllowance, BudgetSettings, Measure, Per
from hivemind_trio.policy.program.program import LimitGroupSettings, Program, ProviderSettings
from hivemind_trio.policy.program.rate_limits import Dimension, RateLimitSettings
from hivemind_trio.policy.solver.call_space import CallSpace
from hivemind_trio.policy.solver.satisfiability import Nothing, Space

UNSTABLE: Final = 0.95
"""A cut by so much leaves nothing to come back from."""

COUNTED: Final = {
    Measure.REQUESTS: Dimension.REQUESTS,
    Measure.OUTPUT: Dimension.OUTPUT,
}
"""Measures of budgets that a provider limits alike; cached input is counted by budgets and often by nobody else."""


def check_amounts(
    declarations: SymbolTable, conditions: Mapping[str, Mapping[str, Condition | None]], program: Program
) -> None:
    """Report amounts that cannot be reached, or that others keep from mattering, in a policy without errors."""
    for name, declared in declarations.of("provider").items():
        _limits(declarations, declared)
        _slots(declarations, declared, program.providers[name])
        _models_slots(declarations, declared, program.providers[name])
        _aimd(declarations, declared)
    for name, declared in declarations.of("agent").items():
        _limits(declarations, declared)
        _agents_limits(declarations, declared, program, program.agents[name].limits)
    _callers_slots(declarations, program)
    _unreachable(declarations, conditions, program)
    _children(declarations, conditions, program)


def most(quota: RateLimitSettings, time_ns: int) -> int:
    """Return the most that can begin in some time."""
    return quota.amount + quota.amount * time_ns // quota.window_ns


def _limits(declarations: SymbolTable, declared: BoundDeclaration) -> None:
    """Report windows of one dimension that another window keeps from being full."""
    for block in declared.settings.get("limits", []):
        for dimension in Dimension:
            rates = block.block.get(dimension.value, [])
            for one in rates:
                for other in rates:
                    bound = other.value.amount + other.value.amount * one.value.window_ns // other.value.window_ns
                    if other is not one and bound <= one.value.amount:
                        declarations.report.add(
                            "HM417",
                            f"`{_text(declarations, one)}` has no effect: another limit is always reached first",
                            one.item.span,
                            severity=Severity.INFO,
                            labels=(Label(other.item.span, f"allows at most {bound:,} in that time"),),
                            help="delete it, or make it smaller",
                        )
                        break


def _agents_limits(
    declarations: SymbolTable, declared: BoundDeclaration, program: Program, limits: Iterable[RateLimitSettings]
) -> None:
    """Report limits of an agent that its providers never let it reach."""
    given = _own(declared, "limits")
    pools = list(program.pools.values())
    if given is None or not all(_covers_all(pool) for pool in pools):
        return
    groups = [group for pool in pools for group in pool.groups]
    for limit in limits:
        quotas = [[quota for quota in group.quotas if quota.dimension is limit.dimension] for group in groups]
        total = sum(min(most(quota, limit.window_ns) for quota in each) for each in quotas if each)
        if not groups or not all(quotas) or total > limit.amount:
            continue
        written = given.block[limit.dimension.value]
        declarations.report.warn(
            "HM402",
            f"this limit has no effect: the limits of the providers allow at most {total:,} in its window",
            next(one for one in written if one.value.amount == limit.amount).item.span,
            help="make it smaller, or delete it",
        )


def _slots(declarations: SymbolTable, declared: BoundDeclaration, provider: ProviderSettings) -> None:
    """More slots than calls that can begin while one lasts as long as any may."""
    whole = list(_of_all(provider, Dimension.REQUESTS))
    given = declarations.one(declared, "concurrency")
    if not whole or given is None or given is not _own(declared, "concurrency"):
        return
    reached = min(most(quota, provider.timeouts.total_ns) for quota in whole)
    if provider.limit > reached:
        declarations.report.add(
            "HM403",
            f"`{provider.name}` has {provider.limit} slots, but its rate limits fill at most {reached:,}",
            given.span,
            severity=Severity.INFO,
            help=f"`concurrency {reached}` has the same effect, or raise the rate limits",
        )


def _models_slots(declarations: SymbolTable, declared: BoundDeclaration, provider: ProviderSettings) -> None:
    """Report a limit of some models above the slots of the whole provider, or of the account that has it."""
    slots = declarations.one(declared, "concurrency")
    _above(declarations, declared.settings.get("limits", []), provider.name, provider.limit, slots)
    limits = {account.name: account.limit for account in provider.accounts}
    for given in declared.settings.get("account", []):
        if given.value in limits:
            own = given.block["concurrency"][0] if "concurrency" in given.block else slots
            _above(declarations, given.block.get("limits", []), given.value, limits[given.value], own)


def _above(
    declarations: SymbolTable, blocks: Iterable[SettingValue], name: str, limit: int, slots: SettingValue | None
) -> None:
    for block in blocks:
        for given in block.block.get("concurrency", []):
            if given.value > limit:
                declarations.report.warn(
                    "HM402",
                    f"this limit has no effect: `{name}` has {limit} slots",
                    given.span,
                    labels=(Label(slots.span, f"slots of `{name}`"),) if slots is not None else (),
                    help="write a number below that, or delete it",
                )


def _callers_slots(declarations: SymbolTable, program: Program) -> None:
    """Report slots of an agent above those of all providers together, and of a lane above those of each of them."""
    limits = [pool.limit for pool in program.pools.values()]
    for kind, setting, most_, where in (
        ("agent", "concurrency", sum(limits), "all providers together have"),
        ("lane", "max", max(limits, default=0), "no provider has more than"),
    ):
        for declared in declarations.of(kind).values():
            given = _own(declared, setting)
            if limits and given is not None and isinstance(given.value, int) and given.value > most_:
                declarations.report.warn(
                    "HM402",
                    f"this limit has no effect: {where} {most_:,} slots",
                    given.span,
                    help="make it smaller, or delete it",
                )


def _aimd(declarations: SymbolTable, declared: BoundDeclaration) -> None:
    told, slots = _own(declared, "aimd"), declarations.one(declared, "concurrency")
    if told is None:
        return
    report = declarations.report
    if slots is not None and slots.value[0] == slots.value[1]:
        labels = (Label(slots.span, "one number"),)
        report.add(
            "HM411",
            f"`aimd` has no effect: `{declared.name}` has a fixed concurrency",
            told.item.head.span,
            severity=Severity.WARNING,
            labels=labels,
            help="write a range such as `concurrency 2..8`, or delete `aimd`",
        )
    elif told.options.get("decrease", 0) >= UNSTABLE:
        report.warn(
            "HM411",
            f"`decrease {told.options['decrease']:.0%}` reduces concurrency to almost nothing after one error",
            told.span if told.item.args else told.item.head.span,
            help="write less, usually `decrease 50%`",
            fix=Fix.replacing(told.place("decrease"), "50%", is_safe=False),
        )


def _unreachable(
    declarations: SymbolTable, conditions: Mapping[str, Mapping[str, Condition | None]], program: Program
) -> None:
    """Budgets that no traffic can use up, as fast as the providers' limits let it be."""
    for name, budget in program.budgets.items():
        counting = _serving(declarations, conditions, program, name)
        for allowance in budget.allowances:
            bounds = [_passing(groups, allowance) for groups in counting]
            total = sum(bound for bound in bounds if bound is not None)
            if not bounds or None in bounds or total >= allowance.amount:
                continue
            given = declarations.one(declarations.of("budget")[name], allowance.measure.value)
            assert given is not None
            declarations.report.add(
                "HM405",
                f"budget `{name}` is never exhausted: provider limits allow at most {total:,} in its window",
                given.item.span,
                severity=Severity.INFO,
                help="make it smaller, or delete it",
            )


def _serving(
    declarations: SymbolTable,
    conditions: Mapping[str, Mapping[str, Condition | None]],
    program: Program,
    budget: str,
) -> list[list[LimitGroupSettings | None]]:
    """Return the limits that calls of a budget can count against, of each provider that can serve one.

    None among them: calls of some model are in no block. Where a rule may send calls anywhere, all count.
    """
    every, condition = list(program.providers.values()), conditions["budget"][budget]
    rules = declarations.of("rule").values()
    steps = (step for one in program.budgets.values() for step in one.thresholds)
    moved = any({"provider", "model"} & rule.settings.keys() for rule in rules) or any(step.model for step in steps)
    if condition is None or moved:
        return [[*provider.groups, *([] if _covers_all(provider) else [None])] for provider in every]
    routed: dict[str, Condition] = {name: Relation("provider", "==", name) for name in program.providers}
    globs = {group.glob for provider in every for group in provider.groups if group.glob is not None}
    named = {glob: Like("model", (glob,)) for glob in sorted(globs)}
    space = Space.of([CallSpace.of(program, conditions)], [condition, *routed.values(), *named.values()])
    first = [name for name, one in routed.items() if not isinstance(space.find([condition, one]), Nothing)]
    reached = {provider.name for name in first for provider in program.chain(name)}
    return [_counting(provider, condition, named, space) for provider in every if provider.name in reached]


def _counting(
    provider: ProviderSettings, condition: Condition, named: Mapping[str, Condition], space: Space
) -> list[LimitGroupSettings | None]:
    """Return the blocks of `limits` that calls which meet the condition can be in; None: in none."""
    blocks = [group for group in provider.groups if group.glob not in (None, "*")]
    of_rest = [group for group in provider.groups if group.glob in (None, "*")]
    found: list[LimitGroupSettings | None] = [
        group for group in blocks if not isinstance(space.find([condition, named[str(group.glob)]]), Nothing)
    ]
    if not isinstance(space.find([condition], [named[str(group.glob)] for group in blocks]), Nothing):
        found += of_rest or [None]
    return found


def _covers_all(provider: ProviderSettings) -> bool:
    """Return True if every model is in a block of `limits`."""
    return any(group.glob in (None, "*") for group in provider.groups)


def _passing(groups: Iterable[LimitGroupSettings | None], allowance: BudgetAllowance) -> int | None:
    """Return the most that a provider's limits let through in a budget's window; None for no limit."""
    dimension = COUNTED.get(allowance.measure)
    if dimension is None:
        return None
    total = 0
    # A block without a glob is for the models that no other is for, so all blocks have their share.
    for group in groups:
        quotas = [quota for quota in group.quotas if quota.dimension is dimension] if group is not None else []
        if not quotas:
            return None
        total += min(most(quota, allowance.window_ns) for quota in quotas)
    return total


def _of_all(provider: ProviderSettings, dimension: Dimension) -> Iterator[RateLimitSettings]:
    """Yield the limits of a provider that has one block for all models."""
    if len(provider.groups) == 1 and provider.groups[0].glob in (None, "*"):
        yield from (quota for quota in provider.groups[0].quotas if quota.dimension is dimension)


def _children(
    declarations: SymbolTable, conditions: Mapping[str, Mapping[str, Condition | None]], program: Program
) -> None:
    """Budgets that one which counts the same calls, and more, is used up before."""
    asked = conditions["budget"]
    pairs = [
        (child, parent, one, other)
        for child in program.budgets.values()
        for parent in program.budgets.values()
        for one in child.allowances
        for other in parent.allowances
        if child is not parent and _is_above(child, one, parent, other)
    ]
    if not pairs:
        return
    known = [one for one in asked.values() if one is not None]
    space = Space.of([CallSpace.of(program, conditions)], known)
    told: set[tuple[str, Measure]] = set()
    for child, parent, one, other in pairs:
        if (child.name, one.measure) in told:
            continue
        narrow, wide = asked[child.name] or Always(), asked[parent.name] or Always()
        if not isinstance(space.find([narrow], [wide]), Nothing):
            continue
        told.add((child.name, one.measure))
        table = declarations.of("budget")
        given = declarations.one(table[child.name], one.measure.value)
        above = declarations.one(table[parent.name], other.measure.value)
        assert given is not None
        assert above is not None
        declarations.report.add(
            "HM406",
            f"budget `{child.name}` is never exhausted: `{parent.name}` counts its calls too and is smaller",
            given.span,
            severity=Severity.WARNING,
            labels=(Label(above.span, "exhausted first"),),
            help="lower this budget, or raise the other",
        )


def _is_above(child: BudgetSettings, one: BudgetAllowance, parent: BudgetSettings, other: BudgetAllowance) -> bool:
    """Return True if a budget allows more than another that stops calls when it is used up."""
    same = (one.measure, one.window, one.calendar) == (other.measure, other.window, other.calendar)
    stops = parent.stop is not None and parent.stop.share <= 1
    return (
        same and stops and one.amount > other.amount and (parent.per is Per.ALL or parent.partition == child.partition)
    )


def _own(declared: BoundDeclaration, setting: str) -> SettingValue | None:
    given = declared.settings.get(setting)
    return given[0] if given else None


def _text(declarations: SymbolTable, given: SettingValue) -> str:
    report: DiagnosticCollector = declarations.report
    return report.text(given.item.span)
