"""Check of `base` of a provider: calls append their own paths to it."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from hivemind_trio.dialects import DIALECTS, has_version, is_version
from hivemind_trio.model import Api
from hivemind_trio.policy.compile.binder import SymbolTable
from hivemind_trio.policy.compile.lowering import provider_api
from hivemind_trio.policy.diagnostics.collector import DiagnosticCollector
from hivemind_trio.policy.diagnostics.diagnostic import Fix
from hivemind_trio.policy.source.span import Span

COMPATIBLE: Final = "openai"
"""Name of the part that is like OpenAI's in a provider of another API: `/v1beta/openai` of Gemini."""


def check_bases(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Report a base URL to which calls do not append what they should.

    It ends with what the paths of its API begin with, or with a whole path of a call; or it has a version before its
    end.

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
            _check_version_within(api, given.value, given.span, report)
            continue
        fixed = f'"{given.value.removesuffix(extra)}"'
        report.warn(
            "HM217",
            f"the base URL ends with `{extra}`, which calls of `{api}` append themselves",
            given.span,
            help=f"write `{fixed}`: calls append their whole path",
            fix=Fix.replacing(given.span, fixed, is_safe=False),
        )


def _check_version_within(api: Api, base: str, span: Span, report: DiagnosticCollector) -> None:
    """Report a version before other segments of a base URL: calls leave out theirs, which may be of something else."""
    segments = urlsplit(base).path.strip("/").split("/")
    own = DIALECTS[api].usual_path.split("/")[1]
    if not DIALECTS[api].version_in_base or not is_version(own) or is_version(segments[-1]):
        return
    version = next(filter(is_version, segments), None)
    if version is None or segments[-1] == COMPATIBLE:
        return
    report.warn(
        "HM217",
        f"the base URL has a version, `{version}`, so calls are sent without their `/{own}`",
        span,
        help=f'write `"{base}/{own}"` if `{version}` is not the version of the API',
        fix=Fix.replacing(span, f'"{base}/{own}"', is_safe=False),
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
