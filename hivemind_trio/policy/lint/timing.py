"""Times and counts that cannot do what they say: timeouts, back-offs and breakers, held against each other."""

from __future__ import annotations

from collections.abc import Iterator

from hivemind_trio.policy.compile.binder import BoundDeclaration, SettingValue, SymbolTable
from hivemind_trio.policy.compile.lowering import DEFAULT_AFFINITY_NS, breaker, provider_timeouts
from hivemind_trio.policy.diagnostics.collector import DiagnosticCollector
from hivemind_trio.policy.diagnostics.diagnostic import Fix, Label, Severity
from hivemind_trio.policy.language.values import RateOf
from hivemind_trio.policy.program.resilience import BREAKER_MEMORY, DEFAULT_RETRY
from hivemind_trio.policy.source.span import Span


def check_timing(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Report what ends before it can count."""
    _timeouts(declarations, report)
    _back_offs(declarations, report)
    _rides(declarations, report)
    _breakers(declarations, report)


def _timeouts(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Report a timeout of a part of an attempt above `total`, and a deadline below `connect`."""
    for declared in declarations.of("provider").values():
        given = declarations.one(declared, "timeout")
        if given is None:
            continue
        total_ns = provider_timeouts(given).total_ns
        whole = (Label(given.place("total"), "the whole"),) if "total" in given.options else ()
        for part in ("connect", "first-byte", "idle"):
            if given.options.get(part, 0) > total_ns:
                report.warn(
                    "HM410",
                    f"`{part}` is longer than `total`, so it never applies",
                    given.place(part),
                    note="" if whole else "`total` is `30m`",
                    labels=whole,
                    help="shorten it, or lengthen `total`",
                )
        for deadline in _deadlines(declarations) if "connect" in given.options else ():
            if deadline.value < given.options["connect"]:
                report.warn(
                    "HM410",
                    "this deadline is shorter than `connect`, so a slow connection uses it up",
                    deadline.span,
                    labels=(Label(given.place("connect"), f"at `{declared.name}`"),),
                    help="shorten `connect`, so that another attempt is in time",
                )


def _back_offs(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Report a first back-off above a deadline: the call is never retried, whatever `attempts` says."""
    told: set[tuple[Span, str]] = set()
    for deadline, name in _waits_and_retries(declarations):
        declared = declarations.of("retry").get(name)
        backoff = declarations.one(declared, "backoff") if declared is not None else None
        if backoff is None or backoff.value[0] <= deadline.value or (deadline.span, name) in told:
            continue
        told.add((deadline.span, name))
        report.add(
            "HM409",
            f"the first back-off of `{name}` can be longer than this deadline",
            deadline.span,
            severity=Severity.INFO,
            labels=(Label(backoff.item.args[0].span, "the back-off"),),
            help="begin with a shorter back-off",
        )


def _waits_and_retries(declarations: SymbolTable) -> Iterator[tuple[SettingValue, str]]:
    """Yield deadlines with the retry classes that their calls may have: a rule's, else those of the providers."""
    named = (declarations.one(provider, "retry") for provider in declarations.of("provider").values())
    usual = dict.fromkeys(DEFAULT_RETRY if given is None else given.value for given in named)
    for rule in declarations.of("rule").values():
        deadline = deadline_of(declarations, rule)
        if deadline is not None:
            own = [given.value for given in rule.settings.get("retry", [])]
            yield from ((deadline, name) for name in own or usual)
    for lane in declarations.of("lane").values():
        deadline = declarations.one(lane, "deadline")
        if deadline is not None:
            yield from ((deadline, name) for name in usual)


def _rides(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Report a deadline that expires before `affinity` lets the model of the call load."""
    for rule in declarations.of("rule").values():
        deadline = deadline_of(declarations, rule)
        for given in rule.settings.get("affinity", []):
            most_ns = given.options.get("max", DEFAULT_AFFINITY_NS)
            if deadline is not None and deadline.value <= most_ns:
                report.warn(
                    "HM410",
                    "this deadline can expire before `affinity` lets the model of the call load",
                    deadline.span,
                    labels=(Label(given.item.span, "waits this long" if "max" in given.options else "waits 90s"),),
                    help="make `affinity model max` shorter than the deadline",
                )


def _deadlines(declarations: SymbolTable) -> Iterator[SettingValue]:
    for kind in ("lane", "rule"):
        for declared in declarations.of(kind).values():
            yield from declared.settings.get("deadline", [])


def deadline_of(declarations: SymbolTable, rule: BoundDeclaration) -> SettingValue | None:
    """Return the deadline of a rule, its own or its lane's."""
    if "deadline" in rule.settings:
        return rule.settings["deadline"][0]
    lane = next((declarations.of("lane").get(given.value) for given in rule.settings.get("lane", [])), None)
    return declarations.one(lane, "deadline") if lane is not None else None


def _breakers(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Report a breaker that needs more attempts than are possible, or remembered, within its time."""
    for declared in declarations.of("provider").values():
        given = declarations.one(declared, "breaker")
        if given is None or "of" not in given.options:
            continue
        settings, place = breaker(declarations, declared), given.place("of")
        if settings.of > BREAKER_MEMORY:
            report.warn(
                "HM412",
                f"this breaker never sees {settings.of:,} attempts, so it cannot trip",
                place,
                note=f"it remembers the last {BREAKER_MEMORY:,}",
                help=f"write `{BREAKER_MEMORY}` or less; `10` is usual",
                fix=Fix.replacing(place, str(BREAKER_MEMORY), is_safe=False),
            )
            continue
        for quota, span in _requests_of_all(declarations, declared):
            # Even a provider that lets a whole window through at its beginning: that, and what flows in meanwhile.
            most = quota.amount + quota.amount * settings.over_ns // quota.window_ns
            if most < settings.of:
                report.warn(
                    "HM412",
                    f"this breaker never sees {settings.of:,} attempts, so it cannot trip",
                    place,
                    note=f"at most {most:,} begin within `over`",
                    labels=(Label(span, "by this limit"),),
                    help=f"write `{most}` or less, or a longer `over`",
                    fix=Fix.replacing(place, str(most), is_safe=False) if most else None,
                )
                break


def _requests_of_all(declarations: SymbolTable, declared: BoundDeclaration) -> Iterator[tuple[RateOf, Span]]:
    """Yield the limits on requests that hold for every model, and where they stand."""
    groups, _ = declarations.effective(declared, "limits")
    for group in groups:
        if not group.args:
            yield from ((one.value, one.span) for one in group.block.get("requests", []))
