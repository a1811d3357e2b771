"""Checks of what agents may ask of the proxy itself: leases of resources, and jobs."""

from __future__ import annotations

from hivemind_trio.policy.compile.binder import BoundDeclaration, SymbolTable
from hivemind_trio.policy.diagnostics.collector import DiagnosticCollector
from hivemind_trio.policy.diagnostics.diagnostic import Label
from hivemind_trio.policy.language.unit_text import duration
from hivemind_trio.policy.syntax.ast import Item, ListValue, Name


def check_resources(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Report agents in `allow` that prove nothing, and leases that end before they can be renewed."""
    for declared in declarations.of("resource").values():
        _proven(declarations, declared, report)
        given = declarations.one(declared, "lease")
        if given is not None and given.options.get("max", given.value) < given.value:
            report.add(
                "HM205",
                f"`max` is below the lease of {duration(given.value)}",
                given.place("max"),
                labels=(Label(given.item.args[0].span, "the lease"),),
                help=f"write `lease {duration(given.options['max'])}`, or a longer `max`",
            )


def check_jobs(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Report agents in `allow` that prove nothing: anybody could run commands."""
    for declared in declarations.of("jobs").values():
        _proven(declarations, declared, report)


def _proven(declarations: SymbolTable, declared: BoundDeclaration, report: DiagnosticCollector) -> None:
    """Report an agent of `allow` without a token: every caller can claim its name."""
    for given in declared.settings.get("allow", []):
        for name in _names(given.item):
            agent = declarations.of("agent").get(name.text)
            if agent is not None and declarations.one(agent, "token") is None and "token" not in agent.unread:
                example = name.text.upper().replace("-", "_")
                report.add(
                    "HM607",
                    f"agent `{name.text}` has no token, so any caller can be it",
                    name.span,
                    labels=(Label(agent.name_span, "declared here"),),
                    help=f"add `token env({example}_TOKEN)` to the agent, or delete it from `allow`",
                )


def _names(item: Item) -> list[Name]:
    """Return the names that the values of a setting have."""
    values = [inner for value in item.args for inner in (value.items if isinstance(value, ListValue) else (value,))]
    return [value for value in values if isinstance(value, Name)]
