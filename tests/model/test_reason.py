"""Reasons: public codes, the table of rejections, its use in the code and in `docs/rejections.md`.

`python -m tests.model.test_reason` writes the tables of the document anew.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import hivemind_trio
from hivemind_trio.model import REJECTIONS, WAITS, Reason, rejection_text

PACKAGE: Final = Path(hivemind_trio.__file__).parent
DOCUMENT: Final = PACKAGE / "docs/rejections.md"


def shown(template: str) -> str:
    """Return a template as the document shows it."""
    return re.sub(r"\{(\w+):[^}]*\}", r"{\1}", template).replace("{{", "{").replace("}}", "}")


def rejections() -> str:
    lines = ["| code | status | retry | message |", "|---|---|---|---|"]
    for reason, row in REJECTIONS.items():
        for number, words in enumerate(row.words.values()):
            first = f"`{reason}` | {row.status} | {'no' if row.is_final else 'yes'} |" if not number else "| | |"
            lines.append(f"| {first} {shown(words)} |")
    return "\n".join(lines) + "\n"


def waits() -> str:
    lines = ["| code | the call waited because |", "|---|---|"]
    lines += [f"| `{reason}` | {shown(words)} |" for reason, words in WAITS.items()]
    return "\n".join(lines) + "\n"


def rewritten(text: str) -> str:
    for name, table in (("rejections", rejections()), ("waits", waits())):
        begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = f"{head}{begin}\n{table}\n{end}{tail}"
    return text


def names_in(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def uses() -> Iterator[tuple[str, Reason, str, set[str]]]:
    """Yield each call of `rejection_text` with a literal reason and case: place, reason, case and names of values."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    for path in [path for path, text in texts.items() if "rejection_text(" in text]:
        for node in ast.walk(ast.parse(texts[path])):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            if node.func.id != "rejection_text" or not isinstance(node.args[0], ast.Attribute):
                continue
            case = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else ""
            at = f"{path.relative_to(PACKAGE)}:{node.lineno}"
            if len(node.args) < 2 or isinstance(node.args[1], ast.Constant):
                yield at, Reason[node.args[0].attr], str(case), {one.arg for one in node.keywords if one.arg}


USES: Final = list(uses())


def test_a_member_is_named_as_the_code_that_users_see() -> None:
    assert [reason for reason in Reason if reason.name != reason.value.upper().replace("-", "_")] == []


def test_every_reason_is_one_of_a_wait_or_a_rejection() -> None:
    both = {Reason.BUDGET, Reason.BREAKER_OPEN}

    assert set(REJECTIONS) | set(WAITS) == set(Reason) - {Reason.NONE, Reason.JOURNAL_BEHIND}
    assert both <= set(REJECTIONS) & set(WAITS)


def test_the_tables_of_the_document_are_those_of_the_code() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")

    assert text == rewritten(text), "python -m tests.model.test_reason writes them anew"


@pytest.mark.parametrize(("at", "reason", "case", "names"), USES, ids=lambda one: str(one))
def test_a_use_gives_each_value_that_the_words_name(at: str, reason: Reason, case: str, names: set[str]) -> None:
    assert names == names_in(REJECTIONS[reason].words[case]), at


def test_all_words_are_used() -> None:
    used = {(reason, case) for _, reason, case, _ in USES}
    elsewhere = {
        *((Reason.QUEUE_FULL, case) for case in REJECTIONS[Reason.QUEUE_FULL].words),  # one call for all
        *((reason, "") for reason in (Reason.HEADER_TOO_LARGE, Reason.PROXY_OVERLOADED)),  # `listen/refusing.py`
        *((Reason.PLAN_RESERVE, ""), (Reason.PLAN_PACE, "")),  # the reason is in a variable
        *((Reason.BAD_REQUEST, "http"), (Reason.UPSTREAM_BROKE, "late"), (Reason.UPSTREAM_UNREACHABLE, "")),
        *((Reason.UPSTREAM_REFUSED, ""), (Reason.UPSTREAM_UNREACHABLE, "cause")),  # the reason is in a variable
    }

    assert used | elsewhere == {(reason, case) for reason, row in REJECTIONS.items() for case in row.words}


@pytest.mark.parametrize("reason", REJECTIONS)
def test_a_message_says_the_condition_first_and_no_advice_to_come_back(reason: Reason) -> None:
    for words in REJECTIONS[reason].words.values():
        assert not words.endswith(".")
        assert "come back" not in words  # the time of a retry is added where the answer is made
        assert not words.startswith(("it ", "its ", "this "))


def test_values_with_braces_are_shown_as_they_are() -> None:
    assert "{name}" in rejection_text(Reason.NO_PROVIDER, "path", path="/{name}")


@pytest.mark.parametrize("reason", REJECTIONS)
def test_a_status_is_an_error_and_not_529(reason: Reason) -> None:
    status = REJECTIONS[reason].status

    assert 400 <= status < 600
    assert status != 529  # counts towards Claude Code's overload fallback
    assert not (REJECTIONS[reason].is_final and status >= 500)


if __name__ == "__main__":
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
