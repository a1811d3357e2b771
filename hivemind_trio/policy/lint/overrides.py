"""Overrides: a setting is inherited whole or replaced whole, which is easily forgotten (HM309, HM310)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hivemind_trio.policy.compile.binder import BoundDeclaration, SettingValue, SymbolTable
from hivemind_trio.policy.diagnostics.collector import DiagnosticCollector
from hivemind_trio.policy.diagnostics.diagnostic import Fix, Label, Severity
from hivemind_trio.policy.source.edits import deletion
from hivemind_trio.policy.source.span import Span


def check_overrides(declarations: SymbolTable) -> None:
    """Report settings that say what holds anyway, and those that lose a part of what they replace."""
    for table in declarations.by_kind.values():
        for declared in table.values():
            for name, own in declared.settings.items():
                inherited = _inherited(declarations, declared, name)
                if inherited:
                    _compare(declarations, declared, name, own, inherited)


def _inherited(declarations: SymbolTable, declared: BoundDeclaration, setting: str) -> Sequence[SettingValue]:
    """Return the values in force without this declaration."""
    if declared.parent is not None:
        return declarations.effective(declared.parent, setting)[0]
    defaults = declarations.defaults.get(declared.kind)
    return defaults.settings.get(setting, ()) if defaults is not None else ()


def _compare(
    declarations: SymbolTable,
    declared: BoundDeclaration,
    name: str,
    own: Sequence[SettingValue],
    inherited: Sequence[SettingValue],
) -> None:
    labels = (Label(inherited[0].item.head.span, "inherited from here"),)
    report = declarations.report
    if [_value(one, report) for one in own] == [_value(one, report) for one in inherited]:
        declarations.report.add(
            "HM309",
            f"`{name}` of `{declared.name}` repeats the inherited value",
            own[0].item.head.span,
            severity=Severity.INFO,
            labels=labels,
            help="delete it",
            fix=_left_out([one.item.span for one in own], report),
        )
        return
    kept, there = dict.fromkeys(_entries(own)), dict.fromkeys(_entries(inherited))
    lost = [entry for entry in there if entry not in kept]
    if lost and kept.keys() < there.keys():
        declarations.report.add(
            "HM310",
            f"`{name}` of `{declared.name}` replaces the inherited setting and drops {', '.join(lost)}",
            own[0].item.head.span,
            severity=Severity.WARNING,
            labels=labels,
            help="repeat it here",
        )


def _left_out(spans: Sequence[Span], report: DiagnosticCollector) -> Fix | None:
    if len(spans) > 1:
        return None  # `limits` blocks: a separator may belong to two of them
    return Fix((deletion(report.sources[spans[0].source].text, spans[0]),))


def _entries(given: Sequence[SettingValue]) -> Iterator[str]:
    """Yield the entries of a setting besides its values: options, and the names of its blocks."""
    for one in given:
        of = f" of `{one.args[0]}`" if one.args and one.block else ""
        yield from (f"`{option}`" for option in one.options)
        yield from (f"`{inner}`{of}" for inner in one.block)


def _value(given: SettingValue, report: DiagnosticCollector) -> object:
    """Return the value; a condition by its words, because equal meaning in other words needs no report."""
    block = {name: [_value(one, report) for one in inner] for name, inner in given.block.items()}
    condition = report.text(given.when.span).split() if given.when is not None else None
    return given.args, dict(given.options), block, condition
