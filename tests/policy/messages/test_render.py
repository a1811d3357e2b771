"""Findings as they are shown: safe on a terminal, without keys, under the right letters, and valid for machines."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import attrs
import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hivemind_trio.policy import (
    FORMATS,
    Checked,
    Diagnostic,
    Fix,
    Label,
    MemoryFiles,
    Severity,
    Source,
    check,
    masked,
    render,
    visible,
)
from hivemind_trio.policy.source.span import Span
from tests.policy.regenerate import cases

KEY = "sk-ant-api03-Zm9vYmFyYmF6cXV4"
SECRET_PART = "api03-Zm9vYmFyYmF6cXV4"
COLOR = re.compile(r"\x1b\[[0-9;]*m")


@attrs.frozen
class Findings:
    """Made by hand, where no policy text gives just this."""

    sources: tuple[Source, ...]
    diagnostics: tuple[Diagnostic, ...]


def finding(text: str, start: int, end: int, **more: Any) -> Findings:
    given = {"code": "HM201", "severity": Severity.ERROR, "message": "this is wrong"} | more
    return Findings((Source("team.hmp", text),), (Diagnostic(span=Span(0, start, end), **given),))


def checked(text: str | bytes, name: str = "team.hmp") -> Checked:
    return check(name, MemoryFiles({name: text}))


def shown(findings: Findings | Checked, format_: str = "text") -> str:
    return render([findings], format_)


def excerpt(text: str) -> list[str]:
    """The lines with a gutter, without it."""
    found = [re.fullmatch(r" *(\d*) \|(?: (.*))?", line) for line in text.split("\n")]
    return [one[2] or "" for one in found if one and (one[1] or one[2])]


# ---- safe on a terminal ----


def is_raw(letter: str) -> bool:
    """Whether a terminal would act on it rather than print it."""
    return unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp", "Cs") and letter not in "\n\u200c\u200d"


HOSTILE = (
    "".join(map(chr, range(1, 0x20)))
    + "\x7f\x85\x9b\xad\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ufeff"
)

PLACES = (
    "provider anthropic { concurrency@ }",
    'provider anthropic { serves ["@"]; concurency 4 }',
    'rule no { deny "@" } # @\nprovider anthropic { concurrency "@" }',
    'include "@"\nprovider anthropic { }',
    'provider lab { api vllm; base "http://@" }',
    'server { timezone "@" }\nprovider anthropic { }',
    'model "@" { context 1k }\nmodel "@" { context 2k }\nprovider anthropic { }',
    'rule r { deny "\\@" }\nprovider anthropic { }',
)


@pytest.mark.slow
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("place", PLACES)
def test_no_letter_of_a_policy_acts_on_the_terminal(format_: str, place: str) -> None:
    for letter in sorted(set(HOSTILE) - {"\n"}):
        text = shown(checked(place.replace("@", f"a{letter}b")), format_)

        assert not [ascii(seen) for seen in text if is_raw(seen)], ascii(letter)


@pytest.mark.parametrize("format_", FORMATS)
def test_no_letter_of_a_file_name_acts_on_the_terminal(format_: str) -> None:
    text = shown(checked("provider anthropic { concurency 4 }", "a\x1b[2Jb\u202ec.hmp"), format_)

    assert not [ascii(seen) for seen in text if is_raw(seen)]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_file_name_that_is_no_text_can_be_shown(format_: str) -> None:
    name = b"caf\xe9.hmp".decode("utf-8", "surrogateescape")  # codespell:ignore caf

    shown(checked("provider anthropic { concurency 4 }", name), format_).encode("utf-8")


def test_what_cannot_be_seen_is_shown_as_something_that_can() -> None:
    assert visible("a\x1b[31mb\x00\x7f\u202e\u2028c\td") == "a␛[31mb␀\ufffd\ufffd\ufffdc    d"
    assert visible("نمی\u200cخواهم 日本 e\u0301") == "نمی\u200cخواهم 日本 e\u0301"


# ---- keys ----


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(
    "text",
    [
        f'provider anthropic {{ key "{KEY}" }}',
        f"# {KEY}\nprovider anthropic {{ }}",
        f"provider anthropic {{ {KEY} 4 }}",
        f"rule r {{ lane {KEY} }}\nprovider anthropic {{ }}",
        f'provider lab {{ api vllm; base "{KEY}" }}',
        f'rule r when agent == "{KEY}" {{ priority 2 }}\nprovider anthropic {{ }}',
        f"rule r when {KEY} = 4 {{ priority 2 }}\nprovider anthropic {{ }}",
        f'include "{KEY}"\nprovider anthropic {{ }}',
        f'provider anthropic {{ key "{KEY}',
    ],
)
def test_a_key_is_shown_in_no_format_whatever_quotes_it(format_: str, text: str) -> None:
    found = checked(text)

    assert "HM208" in {one.code for one in found.diagnostics}
    assert SECRET_PART not in shown(found, format_)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_key_is_hidden_in_every_part_of_a_finding(format_: str) -> None:
    found = finding(
        f"# {KEY}",
        0,
        1,
        message=f"no `{KEY}`",
        note=f"not {KEY}",
        help=f"write `{KEY}`",
        labels=(Label(Span(0, 0, 1), f"{KEY} here"),),
        fix=Fix.replacing(Span(0, 0, 1), KEY),
    )

    assert SECRET_PART not in shown(found, format_)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_text_in_the_place_of_a_secret_is_not_shown_whatever_it_looks_like(format_: str) -> None:
    found = checked('agent ci { token "hunter2" }\nprovider anthropic { key [env(A), "hunter3"]; queue "x" }\n')

    assert "hunter" not in shown(found, format_)
    assert shown(found).count('"*******"') == 4  # once for each, and on the line of the other two findings


@given(before=st.text(max_size=20), after=st.text(max_size=20))
def test_hiding_a_key_moves_nothing(before: str, after: str) -> None:
    text = f"{before} {KEY} {after}"

    hidden = masked(text)

    assert len(hidden) == len(text)
    assert SECRET_PART not in hidden
    assert masked(hidden) == hidden


# ---- the caret ----

# A letter, and the columns it takes as it is shown: none is taken from the code under test.
COLUMNS = {
    "a": 1, "e": 1, "#": 1, "é": 1, "\t": 4, "界": 2, "ｆ": 2, "한": 2, "🙂": 2, "\u0301": 0, "\u0e31": 0, "\u20dd": 0,
    "\u200d": 0, "\x1b": 1, "\r": 1, "\u202e": 1, "\x9b": 1,
}  # fmt: skip


@given(
    before=st.text(st.sampled_from(sorted(COLUMNS)), max_size=30),
    marked=st.text(st.sampled_from(sorted(COLUMNS)), max_size=10),
    after=st.text(st.sampled_from(["a", "#", "界"]), max_size=10),
)
@example(before="", marked="", after="")
@example(before="\t界e\u0301", marked="한\u0e31", after="")
def test_the_carets_stand_under_what_is_marked(before: str, marked: str, after: str) -> None:
    text = f"a\n{before}{marked}{after}.\nb"  # a dot, for a carriage return at the end would belong to the line's end
    start = 2 + len(before)

    line, carets = excerpt(shown(finding(text, start, start + len(marked), note="here")))[-2:]

    columns = sum(COLUMNS[letter] for letter in marked)
    assert carets == " " * sum(COLUMNS[letter] for letter in before) + "^" * max(1, columns) + " here"
    assert line == visible(f"{before}{marked}{after}.")


@pytest.mark.parametrize(
    ("text", "start", "end", "place", "carets"),
    [
        ("", 0, 0, "team.hmp:1:1", []),
        ("abc", 3, 3, "team.hmp:1:4", ["abc", "   ^"]),
        ("abc\n", 4, 4, "team.hmp:2:1", ["", "^"]),
        ("abc\n", 3, 4, "team.hmp:1:4", ["abc", "   ^"]),
        ("abc\ndef", 1, 6, "team.hmp:1:2", ["abc", " ^^"]),
        ("abc\r\ndef", 1, 7, "team.hmp:1:2", ["abc", " ^^"]),
        ("abc\r\ndef", 5, 8, "team.hmp:2:1", ["def", "^^^"]),
    ],
)
def test_a_span_of_nothing_or_over_lines_or_at_the_end_has_its_place(
    text: str, start: int, end: int, place: str, carets: list[str]
) -> None:
    said = shown(finding(text, start, end))

    assert said.splitlines()[1] == f" --> {place}"
    assert excerpt(said) == carets


@given(column=st.integers(0, 2_000), length=st.integers(0, 300), wide=st.booleans())
def test_of_a_very_long_line_the_piece_around_the_caret_is_shown(column: int, length: int, wide: bool) -> None:
    letter, columns = ("界", 2) if wide else ("x", 1)
    text = letter * column + "!" + letter * (2_500 - column)

    line, carets = excerpt(shown(finding(text, column, min(column + 1 + length, len(text)))))

    assert len(line) <= 162
    at = sum(columns if seen == letter else 1 for seen in line[: line.index("!")])
    assert carets.index("^") == at
    assert len(carets.strip()) <= 160 * columns


@given(main=st.integers(0, 2_000), label=st.integers(0, 2_000))
def test_a_label_far_off_on_a_long_line_does_not_move_the_caret_out_of_sight(main: int, label: int) -> None:
    text = "x" * main + "!" + "x" * (2_100 - main)
    found = finding(text, main, main + 1, labels=(Label(Span(0, label, label + 1), "there"),))

    line, carets, dashes = excerpt(shown(found))

    assert carets.index("^") == line.index("!")
    assert dashes.index("-") <= len(line)
    assert dashes.strip() == "- there"


def test_labels_in_other_files_come_after_the_finding_each_with_its_place() -> None:
    sources = (Source("team.hmp", "lane a { }\n"), Source("lanes.hmp", "\n\nlane a { }\n"), Source("more.hmp", "x\n"))
    labels = (Label(Span(2, 0, 1), "third"), Label(Span(1, 7, 8), "second"), Label(Span(0, 0, 4), "first"))
    found = Diagnostic(code="HM104", severity=Severity.ERROR, message="twice", span=Span(0, 5, 6), labels=labels)

    said = shown(Findings(sources, (found,)))

    assert said == (
        "error[HM104]: twice\n"
        " --> team.hmp:1:6\n"
        "  |\n"
        "1 | lane a { }\n"
        "  |      ^\n"
        "  | ---- first\n"
        " ::: more.hmp:1:1\n"
        "  |\n"
        "1 | x\n"
        "  | - third\n"
        " ::: lanes.hmp:3:6\n"
        "  |\n"
        "3 | lane a { }\n"
        "  |      - second\n"
        "\n"
        "team.hmp: 1 error\n"
    )


def test_the_gutter_is_as_wide_as_the_longest_line_number() -> None:
    text = "\n" * 8 + "a\n" + "\n" * 3 + "b\n"
    found = finding(text, 13, 14, labels=(Label(Span(0, 8, 9), "first"),))

    lines = shown(found).splitlines()

    assert lines[1:7] == ["  --> team.hmp:13:1", "   |", " 9 | a", "   | - first", "...", "13 | b"]


# ---- colour ----


@pytest.mark.parametrize("format_", FORMATS)
def test_colours_are_there_only_if_asked_for_and_change_nothing_else(format_: str) -> None:
    found = checked("provider anthropic { concurency 4 }\nlane batch { }\nrule r when stream == true { }")

    plain = render([found], format_)
    colored = render([found], format_, color=True)

    assert "\x1b" not in plain
    assert COLOR.sub("", colored) == plain
    assert ("\x1b" in colored) is (format_ in ("text", "short"))


def test_every_colour_that_is_begun_is_ended_on_its_line() -> None:
    colored = render([case.make() for case in cases()[:40]], "text", color=True)

    for line in colored.splitlines():
        codes = COLOR.findall(line)
        assert codes[1::2] == ["\x1b[0m"] * (len(codes) // 2)
        assert "\x1b[0m" not in codes[::2]


def test_an_unknown_format_says_which_there_are() -> None:
    with pytest.raises(ValueError, match="text, short, json, sarif, github"):
        render([], "xml")


# ---- one finding, once ----


def test_a_file_that_two_policies_include_has_its_findings_shown_once() -> None:
    files = MemoryFiles(
        {
            "a.hmp": 'include "lanes.hmp"\nprovider anthropic { }\nrule r { lane batch }',
            "b.hmp": 'include "lanes.hmp"\nprovider openai { }\nrule r { lane batch }',
            "lanes.hmp": "lane batch { burst 4 }\n",
        }
    )
    both = [check("a.hmp", files), check("b.hmp", files)]

    report = json.loads(render(both, "json"))
    text = render(both, "text")

    assert [one["code"] for one in report["diagnostics"]] == ["HM102"]
    assert report["policies"] == ["a.hmp", "b.hmp"]
    assert text.count("error[HM102]") == 1
    assert text.endswith("\n\n2 policies: 1 error\n")


def test_what_is_equal_in_two_files_is_shown_for_each() -> None:
    files = MemoryFiles({"a.hmp": "provider anthropic { burst 4 }", "b.hmp": "provider anthropic { burst 4 }"})

    report = json.loads(render([check("a.hmp", files), check("b.hmp", files)], "json"))

    assert [one["file"] for one in report["diagnostics"]] == ["a.hmp", "b.hmp"]


def test_a_clean_policy_is_said_to_be_so() -> None:
    found = checked("provider anthropic { }\n")

    assert shown(found) == "team.hmp: no problems\n"
    assert shown(found, "short") == ""
    assert shown(found, "github") == ""
    assert json.loads(shown(found, "json"))["diagnostics"] == []
    assert json.loads(shown(found, "sarif"))["runs"][0]["results"] == []


def test_the_summary_counts_each_severity_in_one_and_many() -> None:
    text = (
        "rule a when stream == true { priority 101 }\nlane b { }\nlane c { }\n"
        "provider anthropic { concurency 4; concurrenc 5 }\n"
    )

    assert shown(checked(text)).splitlines()[-1] == "team.hmp: 3 errors, 2 warnings, 1 note"


# ---- machines ----

POINT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["line", "column", "offset"],
    "properties": {
        "line": {"type": "integer", "minimum": 1},
        "column": {"type": "integer", "minimum": 1},
        "offset": {"type": "integer", "minimum": 0},
    },
}
PLACE = {"file": {"type": "string"}, "start": POINT, "end": POINT}
JSON_REPORT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["format_version", "policies", "summary", "diagnostics"],
    "properties": {
        "format_version": {"const": 1},
        "policies": {"type": "array", "items": {"type": "string"}},
        "summary": {
            "type": "object",
            "additionalProperties": False,
            "required": ["errors", "warnings", "infos"],
            "properties": {name: {"type": "integer", "minimum": 0} for name in ("errors", "warnings", "infos")},
        },
        "diagnostics": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": [
                    "code", "severity", "message", "note", "help", "replacement", "fix",
                    "file", "start", "end", "labels",
                ],
                "properties": {
                    "code": {"pattern": "^HM[0-9]{3}$"},
                    "severity": {"enum": ["error", "warning", "info"]},
                    "message": {"type": "string", "minLength": 1},
                    "note": {"type": "string"},
                    "help": {"type": "string"},
                    "replacement": {"type": ["string", "null"]},
                    "fix": {
                        "type": ["object", "null"],
                        "additionalProperties": False,
                        "required": ["applicability", "edits"],
                        "properties": {
                            "applicability": {"enum": ["safe", "unsafe"]},
                            "edits": {
                                "type": "array",
                                "minItems": 1,
                                "items": {
                                    "type": "object",
                                    "additionalProperties": False,
                                    "required": ["text", "file", "start", "end"],
                                    "properties": {"text": {"type": "string"}, **PLACE},
                                },
                            },
                        },
                    },
                    **PLACE,
                    "labels": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["text", "file", "start", "end"],
                            "properties": {"text": {"type": "string", "minLength": 1}, **PLACE},
                        },
                    },
                },
            },
        },
    },
}  # fmt: skip
"""What consumers of version 1 rely on: a field that goes or changes its meaning makes it version 2."""

MESSAGE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["text"],
    "properties": {"text": {"type": "string", "minLength": 1}},
}
LOCATION = {
    "type": "object",
    "additionalProperties": False,
    "required": ["physicalLocation"],
    "properties": {
        "physicalLocation": {
            "type": "object",
            "additionalProperties": False,
            "required": ["artifactLocation", "region"],
            "properties": {
                # RFC 3986: a URI reference, in which a space or a letter beyond ASCII is quoted.
                "artifactLocation": {
                    "additionalProperties": False,
                    "properties": {"uri": {"type": "string", "pattern": "^[A-Za-z0-9._~/%-]+$"}},
                    "required": ["uri"],
                },
                "region": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["startLine", "startColumn", "endLine", "endColumn"],
                    "properties": {
                        name: {"type": "integer", "minimum": 1}
                        for name in ("startLine", "startColumn", "endLine", "endColumn")
                    },
                },
            },
        },
        "message": MESSAGE,
    },
}
REGION = LOCATION["properties"]["physicalLocation"]["properties"]["region"]  # type: ignore[index]
SARIF_FIX = {
    "type": "object",
    "additionalProperties": False,
    "required": ["description", "artifactChanges"],
    "properties": {
        "description": MESSAGE,
        "artifactChanges": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["artifactLocation", "replacements"],
                "properties": {
                    "artifactLocation": {"type": "object", "required": ["uri"]},
                    "replacements": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["deletedRegion", "insertedContent"],
                            "properties": {
                                "deletedRegion": REGION,
                                "insertedContent": {
                                    "type": "object",
                                    "additionalProperties": False,
                                    "required": ["text"],
                                    "properties": {"text": {"type": "string"}},
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}
SARIF_LOG = {
    "type": "object",
    "additionalProperties": False,
    "required": ["version", "runs", "$schema"],
    "properties": {
        "version": {"const": "2.1.0"},
        "$schema": {"pattern": "sarif-schema-2\\.1\\.0\\.json$"},
        "runs": {
            "type": "array",
            "minItems": 1,
            "maxItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["tool", "results", "columnKind"],
                "properties": {
                    "columnKind": {"const": "unicodeCodePoints"},
                    "tool": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "additionalProperties": False,
                                "required": ["name"],
                                "properties": {
                                    "name": {"type": "string"},
                                    "version": {"type": "string"},
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "additionalProperties": False,
                                            "required": ["id", "shortDescription"],
                                            "properties": {"id": {"type": "string"}, "shortDescription": MESSAGE},
                                        },
                                    },
                                },
                            }
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["ruleId", "ruleIndex", "level", "message", "locations"],
                            "properties": {
                                "ruleId": {"type": "string"},
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": MESSAGE,
                                "locations": {"type": "array", "minItems": 1, "maxItems": 1, "items": LOCATION},
                                "fixes": {"type": "array", "minItems": 1, "maxItems": 1, "items": SARIF_FIX},
                                "relatedLocations": {
                                    "type": "array",
                                    "minItems": 1,
                                    "items": {**LOCATION, "required": ["physicalLocation", "message"]},
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}
"""Schema of the part of OASIS SARIF 2.1.0 that is written (3.13, 3.14, 3.19, 3.27 to 3.30, 3.55 to 3.57).

Every name, type and bound is that of the standard's own schema, which has no licence that lets it be kept here. In
November 2026 the log of all cases, 319 results, was held against it without an error.
"""


def every_case() -> Iterator[Checked]:
    return (case.make() for case in cases())


@pytest.mark.slow
def test_the_json_of_every_case_keeps_its_fields() -> None:
    report = json.loads(render(every_case(), "json"))

    jsonschema.validate(report, JSON_REPORT)
    severities = [one["severity"] for one in report["diagnostics"]]
    assert report["summary"] == {f"{name}s": severities.count(name) for name in ("error", "warning", "info")}


@pytest.mark.slow
def test_the_sarif_of_every_case_is_valid() -> None:
    log = json.loads(render(every_case(), "sarif"))

    jsonschema.validate(log, SARIF_LOG)
    run = log["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    for result in run["results"]:
        region = result["locations"][0]["physicalLocation"]["region"]
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert (region["endLine"], region["endColumn"]) >= (region["startLine"], region["startColumn"])
    assert rules == sorted({result["ruleId"] for result in run["results"]})


def test_machines_count_code_points_from_one() -> None:
    # A letter beyond the basic plane is two units of UTF-16, four bytes of UTF-8, and one code point.
    found = checked('rule no { deny "🙂🙂" }\nprovider anthropic { serves ["🙂"]; concurency 4 }')

    (one,) = json.loads(shown(found, "json"))["diagnostics"]
    (result,) = json.loads(shown(found, "sarif"))["runs"][0]["results"]

    assert (one["start"], one["end"]) == (
        {"line": 2, "column": 36, "offset": 57},
        {"line": 2, "column": 46, "offset": 67},
    )
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 2, "startColumn": 36, "endLine": 2, "endColumn": 46}


@pytest.mark.parametrize("name", ["my team.hmp", "a/b#c?.hmp", "100%.hmp", "ü.hmp", "a:b.hmp", "<stdin>"])
def test_a_file_name_is_a_quoted_uri_in_sarif(name: str) -> None:
    log = json.loads(shown(checked("provider anthropic { concurency 4 }", name), "sarif"))

    uri = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert unquote(uri) == name
    jsonschema.validate(log, SARIF_LOG)


def test_a_workflow_command_is_one_line_whatever_it_quotes() -> None:
    found = attrs.evolve(
        finding("a\nb", 0, 1, message="50% of\r\nwhat", note="::error::", help="a, b"),
        sources=(Source("a,b:c%\n.hmp", "a\nb"),),
    )

    assert shown(found, "github") == (
        "::error file=a%2Cb%3Ac%25␊.hmp,line=1,endLine=1,col=1,endColumn=2,title=HM201"
        "::50%25 of␍␊what - ::error:: - a, b\n"
    )


@pytest.mark.parametrize(
    ("severity", "command"), [(Severity.ERROR, "error"), (Severity.WARNING, "warning"), (Severity.INFO, "notice")]
)
def test_each_severity_has_its_workflow_command_and_its_sarif_level(severity: Severity, command: str) -> None:
    found = finding("a", 0, 1, severity=severity)

    (result,) = json.loads(shown(found, "sarif"))["runs"][0]["results"]

    assert shown(found, "github").startswith(f"::{command} ")
    assert result["level"] == {"notice": "note"}.get(command, command)


def test_a_workflow_command_over_several_lines_has_no_columns() -> None:
    line = shown(finding("ab\ncd\n", 1, 4), "github")

    assert line == "::error file=team.hmp,line=1,endLine=2,title=HM201::this is wrong\n"


def test_a_short_line_is_file_line_column_code_message_and_help() -> None:
    assert shown(checked("\nprovider anthropic { concurency 4 }"), "short") == (
        "team.hmp:2:22: error[HM102]: `provider` has no setting `concurency` (did you mean `concurrency`?)\n"
    )
