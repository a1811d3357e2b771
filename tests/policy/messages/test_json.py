"""What machines read of a check: its shape, held against a schema, and its places, held against the text."""

from __future__ import annotations

import json
from typing import Any, Final

import jsonschema
import pytest

from hivemind_trio.policy import PAGES, MemoryFiles, check, render
from tests.policy.regenerate import Case, cases

POINT: Final = {
    "type": "object",
    "properties": {
        name: {"type": "integer", "minimum": least} for name, least in (("line", 1), ("column", 1), ("offset", 0))
    },
    "required": ["line", "column", "offset"],
    "additionalProperties": False,
}
PLACE: Final = {"file": {"type": "string"}, "start": POINT, "end": POINT}
EDIT: Final = {
    "type": "object",
    "properties": {"text": {"type": "string"}, **PLACE},
    "required": ["text", *PLACE],
    "additionalProperties": False,
}
FIX: Final = {
    "type": "object",
    "properties": {
        "applicability": {"enum": ["safe", "unsafe"]},
        "edits": {"type": "array", "items": EDIT, "minItems": 1},
    },
    "required": ["applicability", "edits"],
    "additionalProperties": False,
}
LABEL: Final = {
    "type": "object",
    "properties": {"text": {"type": "string"}, **PLACE},
    "required": ["text", *PLACE],
    "additionalProperties": False,
}
FOUND: Final = {
    "code": {"enum": sorted(PAGES)},
    "severity": {"enum": ["error", "warning", "info"]},
    "message": {"type": "string", "minLength": 1},
    "note": {"type": "string"},
    "help": {"type": "string"},
    "replacement": {"type": ["string", "null"]},
    "fix": {"anyOf": [{"type": "null"}, FIX]},
    **PLACE,
    "labels": {"type": "array", "items": LABEL},
}
REPORT: Final = {
    "type": "object",
    "properties": {
        "format_version": {"const": 1},
        "policies": {"type": "array", "items": {"type": "string"}},
        "summary": {
            "type": "object",
            "properties": {name: {"type": "integer", "minimum": 0} for name in ("errors", "warnings", "infos")},
            "required": ["errors", "warnings", "infos"],
            "additionalProperties": False,
        },
        "diagnostics": {
            "type": "array",
            "items": {"type": "object", "properties": FOUND, "required": [*FOUND], "additionalProperties": False},
        },
    },
    "required": ["format_version", "policies", "summary", "diagnostics"],
    "additionalProperties": False,
}


def reported(texts: dict[str, str]) -> Any:
    return json.loads(render([check("team.hmp", MemoryFiles(texts))], "json"))


@pytest.mark.slow
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_report_is_of_this_shape(case: Case) -> None:
    checked = case.make()
    report = json.loads(render([checked], "json"))

    jsonschema.validate(report, REPORT, jsonschema.Draft202012Validator)
    assert sum(report["summary"].values()) == len(report["diagnostics"]) == len(checked.diagnostics)
    for written, found in zip(report["diagnostics"], checked.diagnostics, strict=True):
        assert (written["code"], written["replacement"]) == (found.code, found.replacement)


def test_a_place_is_said_in_lines_columns_and_code_points() -> None:
    text = '# \N{PILE OF POO} é\nlane a { weight "x" }\nrule r { lane a }\nprovider anthropic { }\n'
    (found,) = reported({"team.hmp": text})["diagnostics"]

    assert (found["file"], found["start"]["line"], found["start"]["column"]) == ("team.hmp", 2, 17)
    assert text[found["start"]["offset"] : found["end"]["offset"]] == '"x"'


def test_an_edit_of_the_report_mends_the_file() -> None:
    text = "provider anthropic { key $ANTHROPIC_API_KEY }\n"
    (found,) = reported({"team.hmp": text})["diagnostics"]
    mended = text[: found["start"]["offset"]] + found["replacement"] + text[found["end"]["offset"] :]

    assert reported({"team.hmp": mended}) == {
        "format_version": 1,
        "policies": ["team.hmp"],
        "summary": {"errors": 0, "warnings": 0, "infos": 0},
        "diagnostics": [],
    }
