"""Check of `base` of a provider: calls append their own paths to it."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from hivemind_trio.dialects import DIALECTS, has_version, is_version
from hivemind_trio.model import Api
from hivemind_trio.policy.compile.binder import SymbolTable
from hivemind_trio.policy.compile.lowering import provider_api
from hivemind_trio.policy.diagnostics.collector import DiagnosticCollector
from hivemind_trio.policy.diagnostics.diagnostic import Fix


def check_bases(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Report a base URL that ends with what the paths of its API begin with, or with a whole path of a call.

    A version at the end of a base is no fault where paths of the API have it: the proxy does not send it twice.
    """
    seen = set()
    for declared in declarations.of("provider").values():
        given, api = declarations.one(declared, "base"), provider_api(declarations, declared)
        if given is None or api is None or not isinstance(given.value, str) or given.span in seen:
            continue
        seen.add(given.span)  # an inherited one is said once
        extra = _said_twice(api, urlsplit(given.value).path)
        if not extra:
            continue
        fixed = f'"{given.value.removesuffix(extra)}"'
        report.warn(
            "HM217",
            f"the base URL ends with `{extra}`, which calls of `{api}` append themselves",
            given.span,
            help=f"write `{fixed}`: calls append their whole path",
            fix=Fix.replacing(given.span, fixed, is_safe=False),
        )


def _said_twice(api: Api, path: str) -> str:
    """Return the end of the path of a base URL that calls say again; empty: there is none."""
    dialect = DIALECTS[api]
    known = [one for each in (api, *dialect.compatible_with) for one in DIALECTS[each].endpoints if one.generates]
    ends = [path[at:] for at, letter in enumerate(path) if letter == "/"]
    for end in ends:
        if any(re.fullmatch(one.pattern, end) for one in known):
            return end
    first = "/" + dialect.usual_path.split("/")[1]
    if not ends or is_version(first[1:]):
        return ""
    if ends[-1] == first:
        return first
    return ends[-1] if is_version(ends[-1][1:]) and not has_version(dialect.usual_path) else ""
