"""Findings for machines: JSON of our own, SARIF 2.1.0 for code scanning, workflow commands for GitHub."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from hivemind_trio import __version__
from hivemind_trio.policy.source.lines import Lines, Position
from hivemind_trio.policy.source.span import Span

from .diagnostic import Diagnostic, Fix, Severity
from .pages.index import title
from .terminal import visible

FORMAT_VERSION: Final = 1
"""Version of the JSON format; rises when a field changes its meaning or is removed, not when one is added."""

_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_COMMANDS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}

Shown = tuple[Diagnostic, Sequence[Lines]]


def json_report(policies: Sequence[str], shown: Sequence[Shown]) -> str:
    """One object, in ASCII so that nothing in it acts on a terminal.

    Lines and columns count from 1, in code points; ends are exclusive.
    """
    counts = {
        f"{severity}s": sum(found.severity is severity for found, _ in shown)
        for severity in (Severity.ERROR, Severity.WARNING, Severity.INFO)
    }
    report = {
        "format_version": FORMAT_VERSION,
        "policies": list(policies),
        "summary": counts,
        "diagnostics": [_object(found, lines) for found, lines in shown],
    }
    return json.dumps(report, indent=2) + "\n"


def _object(found: Diagnostic, lines: Sequence[Lines]) -> dict[str, Any]:
    return {
        "code": found.code,
        "severity": str(found.severity),
        "message": found.message,
        "note": found.note,
        "help": found.help,
        "replacement": found.replacement,
        "fix": None if found.fix is None else _fix(found.fix, lines),
        **_where(found.span, lines),
        "labels": [{"text": label.text, **_where(label.span, lines)} for label in found.labels],
    }


def _fix(fix: Fix, lines: Sequence[Lines]) -> dict[str, Any]:
    edits = [{"text": edit.text, **_where(edit.span, lines)} for edit in fix.edits]
    return {"applicability": "safe" if fix.is_safe else "unsafe", "edits": edits}


def _where(span: Span, lines: Sequence[Lines]) -> dict[str, Any]:
    def point(position: Position) -> dict[str, int]:
        return {"line": position.line, "column": position.column, "offset": position.offset}

    start, end = lines[span.source].ends(span)
    return {"file": lines[span.source].name, "start": point(start), "end": point(end)}


def sarif(shown: Sequence[Shown]) -> str:
    """Return a SARIF 2.1.0 log with one run, in ASCII."""
    codes = sorted({found.code for found, _ in shown})
    log = {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "hivemind-trio",
                        "version": __version__,
                        "rules": [{"id": code, "shortDescription": {"text": title(code)}} for code in codes],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(found, lines, codes.index(found.code)) for found, lines in shown],
            }
        ],
    }
    return json.dumps(log, indent=2) + "\n"


def _result(found: Diagnostic, lines: Sequence[Lines], rule: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": found.code,
        "ruleIndex": rule,
        "level": _LEVELS[found.severity],
        "message": {"text": _sentence(found)},
        "locations": [{"physicalLocation": _physical(found.span, lines)}],
    }
    if found.labels:
        result["relatedLocations"] = [
            {"physicalLocation": _physical(label.span, lines), "message": {"text": label.text}}
            for label in found.labels
        ]
    if found.fix is not None:
        result["fixes"] = [_sarif_fix(found.fix, found.help or found.message, lines)]
    return result


def _sarif_fix(fix: Fix, description: str, lines: Sequence[Lines]) -> dict[str, Any]:
    """Return a `fix` object, with one change for each file."""
    by_source: dict[int, list[dict[str, Any]]] = {}
    for edit in fix.edits:
        replaced = {"deletedRegion": _region(edit.span, lines), "insertedContent": {"text": edit.text}}
        by_source.setdefault(edit.span.source, []).append(replaced)
    changes = [
        {"artifactLocation": {"uri": quote(lines[source].name)}, "replacements": replacements}
        for source, replacements in by_source.items()
    ]
    return {"description": {"text": description}, "artifactChanges": changes}


def _physical(span: Span, lines: Sequence[Lines]) -> dict[str, Any]:
    return {
        "artifactLocation": {"uri": quote(lines[span.source].name)},
        "region": _region(span, lines),
    }


def _region(span: Span, lines: Sequence[Lines]) -> dict[str, int]:
    start, end = lines[span.source].ends(span)
    return {"startLine": start.line, "startColumn": start.column, "endLine": end.line, "endColumn": end.column}


def github(shown: Sequence[Shown]) -> str:
    """Workflow commands, which a run of GitHub Actions turns into annotations of the changed lines."""
    out = []
    for found, lines in shown:
        start, end = lines[found.span.source].ends(found.span)
        properties = {"file": lines[found.span.source].name, "line": start.line, "endLine": end.line}
        if start.line == end.line:  # columns of a span over several lines are refused
            properties |= {"col": start.column, "endColumn": end.column}
        properties["title"] = found.code
        listed = ",".join(f"{name}={_property(visible(str(value)))}" for name, value in properties.items())
        out.append(f"::{_COMMANDS[found.severity]} {listed}::{_data(visible(_sentence(found)))}\n")
    return "".join(out)


def _sentence(found: Diagnostic) -> str:
    return " - ".join(part for part in (found.message, found.note, found.help) if part)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
