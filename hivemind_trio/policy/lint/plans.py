"""Checks of `plan` of a provider: statements that lack a part, contradict each other or never apply."""

from __future__ import annotations

from hivemind_trio.policy.compile.binder import BoundDeclaration, SettingValue, SymbolTable
from hivemind_trio.policy.compile.lowering import keys_of
from hivemind_trio.policy.diagnostics.collector import DiagnosticCollector
from hivemind_trio.policy.diagnostics.diagnostic import Label
from hivemind_trio.policy.source.span import Span

EXAMPLES = {"reserve": "reserve 30% of session for interactive", "pace": "pace week for batch"}
NEEDED = {"reserve": ("of", "for"), "pace": ("for",)}


def check_plans(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Report plan settings that cannot be meant."""
    for declared in declarations.of("provider").values():
        given = declarations.one(declared, "plan")
        if given is None:
            continue
        _incomplete(given, report)
        _reserves(given, report)
        _paces(given, report)
        _never_apply(declarations, declared, given, report)


def _incomplete(given: SettingValue, report: DiagnosticCollector) -> None:
    for setting, options in NEEDED.items():
        for one in given.block.get(setting, ()):
            missing = [option for option in options if option not in one.options]
            written = {word.text for word in one.item.args if hasattr(word, "text")}
            if missing and not set(missing) & written:  # one that could not be read has been reported
                help_ = f"write `{EXAMPLES[setting]}`"
                report.add("HM112", f"`{setting}` needs `{missing[0]}`", one.item.head.span, help=help_)


def _reserves(given: SettingValue, report: DiagnosticCollector) -> None:
    reserved: dict[str, float] = {}
    for one in given.block.get("reserve", ()):
        span = one.options.get("of")
        if span is None:
            continue
        before = reserved.get(span, 0.0)
        reserved[span] = before + one.value
        if before <= 1 < round(reserved[span], 9):
            message = f"reserves of `{span}` add up to {reserved[span] * 100:g}%"
            report.add("HM401", message, one.span, help="reserve at most 100% of a window in all")


def _paces(given: SettingValue, report: DiagnosticCollector) -> None:
    seen: dict[tuple[str, str], Span] = {}
    for one in given.block.get("pace", ()):
        for lane in one.options.get("for", ()):
            key = one.value, lane
            if key in seen:
                message = f"`{one.value}` is paced twice for lane `{lane}`"
                report.add("HM105", message, one.span, labels=(Label(seen[key], "here"),), help="delete one of them")
            seen.setdefault(key, one.span)


def _never_apply(
    declarations: SymbolTable, declared: BoundDeclaration, given: SettingValue, report: DiagnosticCollector
) -> None:
    key = next(iter(keys_of(declarations, declared)), None)
    if key is not None:
        report.warn(
            "HM421",
            f"`plan` never applies: the calls of `{declared.name}` are sent with a key",
            given.item.head.span,
            labels=(Label(key.span, "an API key has no plan"),),
            help="delete `key`, so that each caller's own login is sent, or delete `plan`",
        )
