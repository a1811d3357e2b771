"""The formatter: only white space changes, once is enough, and what cannot be read is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hivemind_trio.policy import FormatError, format_text
from hivemind_trio.policy.syntax.lexer import lexemes
from hivemind_trio.policy.syntax.parser import parse
from tests.policy.layouts import bare, policies
from tests.policy.regenerate import FOLDER

SHIPPED = sorted((Path(__file__).parents[3] / "policies").rglob("*.hmp"))


def comments(text: str) -> list[str]:
    return [piece.text.rstrip() for piece in lexemes(text, 0) if piece.type == "COMMENT"]


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(policies())
def test_any_layout_is_brought_to_one_that_says_the_same_and_stays(text: str) -> None:
    tree, problems = parse(text, 0)
    assert not problems  # what is drawn has no syntax error, or this test would look at nothing

    formatted = format_text(text)

    again, problems = parse(formatted, 0)
    assert not problems
    assert bare(again.statements) == bare(tree.statements)
    assert comments(formatted) == comments(text)
    assert format_text(formatted) == formatted
    assert formatted == "" or formatted.endswith("\n")
    assert not any(line != line.rstrip() for line in formatted.split("\n"))
    assert "\r" not in formatted
    assert "\n\n\n" not in formatted


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=50)
@given(text=policies(), data=st.data())
def test_what_cannot_be_read_is_refused_with_its_line(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    broken = text[:cut] + data.draw(st.sampled_from(["&", "}", '"', "{", "= ", "]"])) + text[cut:]
    _, problems = parse(broken, 0)
    assume(problems)

    with pytest.raises(FormatError) as refused:
        format_text(broken)

    assert str(refused.value).startswith("line ")
    assert problems[0].message in str(refused.value)


@given(st.text(st.sampled_from(list('ab {}[]();,="#~<.&:\n\r\t/$1%\\')), max_size=60))
def test_any_text_at_all_is_laid_out_or_refused(text: str) -> None:
    _, problems = parse(text, 0)
    if problems:
        with pytest.raises(FormatError, match=r"^line "):
            format_text(text)
    else:
        assert format_text(format_text(text)) == format_text(text)


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_the_shipped_policies_are_as_fmt_would_lay_them_out(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert format_text(text) == text


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.hmp")), ids=lambda path: path.stem)
def test_every_case_of_a_diagnostic_is_laid_out_or_has_a_syntax_error(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    _, problems = parse(text, 0)

    if problems:
        with pytest.raises(FormatError):
            format_text(text)
    else:
        assert bare(parse(format_text(text), 0)[0].statements) == bare(parse(text, 0)[0].statements)


LAYOUTS = {
    "nothing": ("", ""),
    "only white space": ("\n \n\t\n", ""),
    "only a comment": ("\n\n# why\n\n", "# why\n"),
    "no newline at the end": ("provider a { }", "provider a { }\n"),
    "an empty block": ("provider a {}", "provider a { }\n"),
    "an empty block over lines": ("provider a {\n\n}", "provider a {\n}\n"),
    "a block with only a comment": ("provider a {\n# why\n}", "provider a {\n  # why\n}\n"),
    "a block on one line": ("provider a {queue 4;concurrency 2}", "provider a { queue 4; concurrency 2 }\n"),
    "a semicolon at the end": ("provider a { queue 4; }\n", "provider a { queue 4; }\n"),
    "an indented block": ("provider a {\nqueue 4\n}\n", "provider a {\n  queue 4\n}\n"),
    "a brace on its own line": ("provider a\n{\n  queue 4\n}\n", "provider a {\n  queue 4\n}\n"),
    "a brace behind a comment": ("provider a # why\n{ queue 4 }\n", "provider a  # why\n{ queue 4 }\n"),
    "a closing brace behind the last setting": (
        "provider a {\n  queue 4 }\n",
        "provider a {\n  queue 4\n}\n",
    ),
    "a setting behind the brace": (
        "provider a { queue 4\nconcurrency 2 }",
        "provider a {\n  queue       4\n  concurrency 2\n}\n",
    ),
    "values in one column": (
        "provider a {\n  queue 4\n  concurrency 4..32 start 8\n  key env( K )\n}\n",
        "provider a {\n  queue       4\n  concurrency 4..32 start 8\n  key         env(K)\n}\n",
    ),
    "an empty line ends the column": (
        "provider a {\n  queue 4\n\n  concurrency 2\n}\n",
        "provider a {\n  queue 4\n\n  concurrency 2\n}\n",
    ),
    "a remark does not": (
        "provider a {\n  queue 4\n  # why\n  concurrency 2\n}\n",
        "provider a {\n  queue       4\n  # why\n  concurrency 2\n}\n",
    ),
    "a block within ends it too": (
        'provider a {\n  queue 4\n  limits "x" { requests 5/min }\n  concurrency 2\n}\n',
        'provider a {\n  queue 4\n  limits "x" { requests 5/min }\n  concurrency 2\n}\n',
    ),
    "braces of the same kind in one column": (
        "lane interactive { weight 8 }\nlane batch { weight 1 }\n",
        "lane interactive { weight 8 }\nlane batch       { weight 1 }\n",
    ),
    "not of different kinds": (
        "lane interactive { weight 8 }\nteam product { weight 1 }\n",
        "lane interactive { weight 8 }\nteam product { weight 1 }\n",
    ),
    "not with a condition": (
        "rule a when stream { priority 2 }\nrule longer { priority 3 }\n",
        "rule a when stream { priority 2 }\nrule longer { priority 3 }\n",
    ),
    "comments at the end of lines": (
        "queue 4 # four\nconcurrency 2# two\n",
        "queue 4  # four\nconcurrency 2  # two\n",
    ),
    "empty lines": ("\n\na\n\n\n\nb {\n\n  c 1\n\n\n  d 2\n\n}\n\n", "a\n\nb {\n  c 1\n\n  d 2\n}\n"),
    "a list on one line": ('serves [ "a","b" ,"c", ]', 'serves ["a", "b", "c",]\n'),
    "a list over lines": ('serves [\n"a",\n   "b"\n]\n', 'serves [\n  "a",\n  "b"\n]\n'),
    "a list with remarks": (
        'let x = [ # cheap\n"a", # one\n# two\n"b"]\n',
        'let x = [  # cheap\n  "a",  # one\n  # two\n  "b"]\n',
    ),
    "a condition over lines": (
        "rule a when stream\nand tools\n  or images { priority 2 }\n",
        "rule a when stream\n    and tools\n    or images { priority 2 }\n",
    ),
    "a condition in brackets over lines": (
        "rule a when (stream\nor tools) { priority 2 }\n",
        "rule a when (stream\n  or tools) { priority 2 }\n",
    ),
    "signs": (
        'rule a when tokens.in>5k and model=="x"and hour in 1 .. 5 { cost $5 / day }',
        'rule a when tokens.in > 5k and model == "x" and hour in 1..5 { cost $5/day }\n',
    ),
    "two statements on a line": ("a 1;b 2\n", "a 1; b 2\n"),
    "a semicolon on its own": ("a 1\n;\nb 2\n", "a 1\n;\nb 2\n"),
    "lines of Windows": ("a 1\r\nb {\r\n  c 2\r\n}\r\n", "a 1\nb {\n  c 2\n}\n"),
    "tabs": ("a\t1\nb {\n\tc\t2\n}\n", "a 1\nb {\n  c 2\n}\n"),
    "white space within a text stays": ('deny "a  \t b"  \n', 'deny "a  \t b"\n'),
}


@pytest.mark.parametrize(("text", "expected"), LAYOUTS.values(), ids=LAYOUTS)
def test_a_layout_is_laid_out_so(text: str, expected: str) -> None:
    formatted = format_text(text)

    assert formatted == expected
    assert format_text(formatted) == formatted
