"""Rules of the architecture that no linter holds."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import hivemind_trio

PACKAGE: Final = Path(hivemind_trio.__file__).parent
FILES: Final = sorted(PACKAGE.rglob("*.py"))

RIDDLE: Final = re.compile(r"(What|Who|Whose|Whoever|Whether|Where|Which|How|Of|It)\b")
RIDDLES_MAX: Final = 0
"""Docstrings that open with one of these words. They were 1,005 of 4,041 once."""

LONG_MAX: Final = 70
"""Lines of a function, its docstring included."""

LONG: Final = {"simulate", "parse_request", "_builder", "open_house", "_serve"}
"""Functions that are longer: each is one list of options, cases or steps. The set only shrinks."""


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield path.relative_to(PACKAGE), node


def docstrings() -> Iterator[tuple[Path, str]]:
    """Yield docstrings of modules, classes, functions and attributes."""
    for path, node in nodes():
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for one in body:
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                yield path, one.value.value


def test_no_class_name_is_defined_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path, node in nodes():
        if isinstance(node, ast.ClassDef):
            places[node.name].append(str(path))

    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_every_folder_names_its_concern_in_one_line() -> None:
    for path in FILES:
        if path.name == "__init__.py":
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            assert text is not None, path
            assert text.splitlines()[0].endswith("."), path


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        (str(path), node.name, node.end_lineno - node.lineno + 1)
        for path, node in nodes()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= LONG_MAX
    ]

    assert {name for _, name, _ in long} <= LONG, long


def test_docstrings_that_open_with_a_question_word_become_fewer() -> None:
    found = [(str(path), text) for path, text in docstrings() if RIDDLE.match(text)]

    assert len(found) <= RIDDLES_MAX, f"{len(found)} open so; write the subject first: {found[:20]}"
