"""Check of `estimate` of a provider: its API must be able to give it."""

from __future__ import annotations

from hivemind_trio.dialects import DIALECTS
from hivemind_trio.policy.compile.binder import SymbolTable
from hivemind_trio.policy.compile.lowering import provider_api
from hivemind_trio.policy.diagnostics.collector import DiagnosticCollector
from hivemind_trio.policy.diagnostics.diagnostic import Fix


def check_estimates(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Report an `estimate` that the API of its provider cannot give."""
    for declared in declarations.of("provider").values():
        given, api = declarations.one(declared, "estimate"), provider_api(declarations, declared)
        if given is None or api is None:
            continue
        dialect = DIALECTS[api]
        gives = {"learned": True, "tokenizer": dialect.has_openai_tokens, "exact": dialect.counts is not None}
        if gives[given.value]:
            continue
        can = [word for word in gives if gives[word]]
        report.warn(
            "HM432",
            f"`{declared.name}` cannot give `estimate {given.value}`: its API is {api}",
            given.span,
            help=f"write `{can[-1]}`; until then its calls are estimated as with `learned`",
            fix=Fix.replacing(given.span, can[-1], is_safe=False),
        )
