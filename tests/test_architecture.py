"""Rules of the architecture that no linter holds."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import attrs
import pytest

import hivemind_trio
from hivemind_trio.model import Api

PACKAGE: Final = Path(hivemind_trio.__file__).parent
FILES: Final = sorted(PACKAGE.rglob("*.py"))

RIDDLE: Final = re.compile(r"(What|Who|Whose|Whoever|Whether|Where|Which|How|Of|It)\b")
RIDDLES_MAX: Final = 0
"""Docstrings that open with one of these words. They were 1,005 of 4,041 once."""

LONG_MAX: Final = 70
"""Lines of a function, its docstring included."""


def tree(path: Path) -> ast.Module:
    """Return a syntax tree. Kept, those of all files would slow down each garbage collection of the run."""
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(parsed: ast.AST) -> Iterator[ast.AST]:
    """Yield a module and every statement in it, without their expressions, which are nine in ten of its nodes."""
    yield parsed
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        below = getattr(parsed, name, None)
        for one in below if isinstance(below, list) else ():
            yield from statements(one)


def defined_names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.AnnAssign() | ast.Assign():
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for one in (one for target in targets for one in ast.walk(target)):
                match one:
                    case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name):
                        yield name


@attrs.frozen
class ModuleFacts:
    """A module of the package, as far as a rule asks for it."""

    path: Path
    opening: str | None
    """Docstring of the module itself."""
    docstrings: tuple[str, ...]
    """Docstrings of the module, its classes, functions and attributes."""
    classes: tuple[str, ...]
    functions: tuple[tuple[str, int], ...]
    """Names and lines."""
    private: frozenset[str]
    """Names that begin with an underscore."""

    @classmethod
    def of(cls, path: Path) -> ModuleFacts:
        parsed = tree(path)
        nodes = list(statements(parsed))
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        texts = [node.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
        names = [name for node in nodes for name in defined_names(node)]
        return cls(
            path=path.relative_to(PACKAGE),
            opening=ast.get_docstring(parsed),
            docstrings=tuple(text.value for text in texts if isinstance(text.value, str)),
            classes=tuple(node.name for node in nodes if isinstance(node, ast.ClassDef)),
            functions=tuple((node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for node in functions),
            private=frozenset(n for n in names if n.startswith("_") and not n.startswith("__") and n != "_"),
        )


@cache
def modules() -> Sequence[ModuleFacts]:
    return [ModuleFacts.of(path) for path in FILES]


FILES_MAX: Final = 13
"""Modules of a folder, beside its `__init__`."""

LARGER_FOLDERS: Final = {"dialects": 20}
"""Folders that may have more: `dialects` has a file for each provider dialect."""


def test_a_folder_has_about_a_dozen_files() -> None:
    folders = Counter(str(path.parent.relative_to(PACKAGE)) for path in FILES if path.name != "__init__.py")

    assert {folder: size for folder, size in folders.items() if size > LARGER_FOLDERS.get(folder, FILES_MAX)} == {}


def test_no_class_name_is_defined_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        for name in module.classes:
            places[name].append(str(module.path))

    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_every_folder_names_its_concern_in_one_line() -> None:
    for module in modules():
        if module.path.name == "__init__.py":
            assert module.opening is not None, module.path
            assert module.opening.splitlines()[0].endswith("."), module.path


def test_no_function_is_longer_than_a_screen() -> None:
    long = [(str(module.path), *one) for module in modules() for one in module.functions if one[1] > LONG_MAX]

    assert long == []


def test_docstrings_that_open_with_a_question_word_become_fewer() -> None:
    found = [(str(module.path), text) for module in modules() for text in module.docstrings if RIDDLE.match(text)]

    assert len(found) <= RIDDLES_MAX, f"{len(found)} open so; write the subject first: {found[:20]}"


def members_named(parsed: ast.Module) -> Iterator[int]:
    """Yield the lines of a module that name a member of `Api`, or a word that can only be compared with one."""
    aliases = {
        alias.asname or alias.name
        for node in ast.walk(parsed)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == "Api"
    }
    words, members = {api.value for api in Api}, {api.name for api in Api}

    def is_enum(node: ast.expr) -> bool:
        return (isinstance(node, ast.Name) and node.id in aliases) or (
            isinstance(node, ast.Attribute) and node.attr == "Api"
        )

    def is_api(node: ast.expr) -> bool:
        return (isinstance(node, ast.Name) and node.id == "api") or (
            isinstance(node, ast.Attribute) and node.attr == "api"
        )

    def is_word(node: ast.AST) -> bool:
        return any(isinstance(one, ast.Constant) and one.value in words for one in ast.walk(node))

    for node in ast.walk(parsed):
        match node:
            case ast.Attribute(value=value, attr=name) if is_enum(value) and name in members:
                yield node.lineno
            case ast.Call(func=value, args=[ast.Constant()]) if is_enum(value):
                yield node.lineno
            case ast.Subscript(value=value, slice=ast.Constant()) if is_enum(value):
                yield node.lineno
            case ast.Compare(left=left, comparators=[*others]) if any(map(is_api, [left, *others])):
                if any(map(is_word, [left, *others])):
                    yield node.lineno
            case ast.Match(subject=subject, cases=cases) if is_api(subject):
                if any(is_word(case.pattern) for case in cases):
                    yield node.lineno
            case ast.ImportFrom(module=str(module)) if module.rpartition(".")[0] == "hivemind_trio.dialects":
                if module.rpartition(".")[2] in words:
                    yield node.lineno


MAY_NAME_MEMBERS: Final = re.compile(r"\bApi\b|\bapi\b|\bdialects\b")
"""Words of which a module has one that `members_named` finds something in."""


def test_what_differs_by_dialect_is_in_its_record() -> None:
    """A field of `Dialect` says it; a member of `Api` is named nowhere but in `dialects`."""
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in FILES
        if path.relative_to(PACKAGE).parts[0] != "dialects" and MAY_NAME_MEMBERS.search(path.read_text("utf-8"))
        for line in members_named(tree(path))
    ]

    assert found == []


@pytest.mark.parametrize(
    "planted",
    [
        "from hivemind_trio.model import Api\nif provider.api is Api.OPENAI: pass",
        "from hivemind_trio.model import Api\nif provider.api == Api.OPENAI: pass",
        "from hivemind_trio.model import Api as A\nif api in (A.OPENAI, A.AZURE): pass",
        "from hivemind_trio.model import Api\nbases = {Api.OPENAI: 1}",
        "from hivemind_trio.model import Api\nmatch api:\n    case Api.OPENAI: pass",
        "from hivemind_trio import model\nif api is model.Api.OPENAI: pass",
        "from hivemind_trio.model import Api\nif api is Api('openai'): pass",
        "from hivemind_trio.model import Api\nif api is Api['OPENAI']: pass",
        "if provider.api == 'openai': pass",
        "if api in ('openai', 'azure'): pass",
        "match provider.api:\n    case 'openai' | 'azure': pass",
        "from hivemind_trio.dialects.openai import OPENAI",
    ],
)
def test_a_planted_comparison_with_a_dialect_is_found(planted: str) -> None:
    assert MAY_NAME_MEMBERS.search(planted)
    assert list(members_named(ast.parse(planted)))


# ---- tests ----

TESTS: Final = Path(__file__).parent
SLOW_FOLDERS: Final = {"e2e", "bench"}
"""End to end, and the benches: processes, sockets and long simulations, which `-m "not slow"` leaves out."""


def is_slow(test: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(decorator) == "pytest.mark.slow" for decorator in test.decorator_list)


@pytest.mark.parametrize(
    "room",
    sorted({path.parent.name for path in TESTS.glob("*/test_*.py")} - SLOW_FOLDERS),
)
def test_most_tests_of_a_room_are_fast(room: str) -> None:
    tests = [
        node
        for path in (TESTS / room).rglob("test_*.py")
        for node in statements(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    fast = [test for test in tests if not is_slow(test)]

    assert len(fast) >= 0.6 * len(tests) > 0, f"{len(tests) - len(fast)} of {len(tests)} tests of {room} are slow"


CODE_AROUND: Final = sorted(path for name in ("tests", "bench", "fuzz") for path in (TESTS.parent / name).rglob("*.py"))

PRIVATE_ALLOWED: Final = {
    "tests/listen/test_pin.py": "Hypercorn's own methods, which the listener overrides; a new version may rename them",
}
"""Files that name what begins with an underscore, and why."""


def private_names(parsed: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the lines where a module names a private member of another object, or imports one from the package."""
    for node in ast.walk(parsed):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] == "hivemind_trio":
                for name in [*module.split("."), *(alias.name for alias in names)]:
                    if name.startswith("_") and not name.startswith("__"):
                        yield node.lineno, name
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=name) if name in private():
                yield node.lineno, name
            case ast.Constant(value=str(text)) if text.startswith("hivemind_trio.") and "._" in text:
                yield node.lineno, text


MAY_BE_PRIVATE: Final = re.compile(
    r"(?<!\bself)(?<!\bcls)\._[A-Za-z]"
    r"|\bimport\b[^\n(]*\b_[A-Za-z]"
    r"|\bimport \([^)]*\b_[A-Za-z]"
)
"""Text of which a module has some that `private_names` finds something in."""


@cache
def private() -> frozenset[str]:
    """Return the names of the package that begin with an underscore."""
    return frozenset().union(*(module.private for module in modules()))


def test_code_around_the_package_uses_public_names() -> None:
    found = [
        f"{path.relative_to(TESTS.parent)}:{line} {name}"
        for path in CODE_AROUND
        if str(path.relative_to(TESTS.parent)) not in PRIVATE_ALLOWED
        if MAY_BE_PRIVATE.search(path.read_text("utf-8"))
        for line, name in private_names(tree(path))
    ]

    assert found == []


@pytest.mark.parametrize(
    "planted",
    [
        "from hivemind_trio.serve.command import _serve",
        "from hivemind_trio.serve.command import (\n    serve,\n    _serve,\n)",
        "from hivemind_trio._serve import command",
        "engine._finish()",
        "world.run()._nursery",
        "monkeypatch.setattr('hivemind_trio.serve.command._serve', None)",
    ],
)
def test_a_planted_private_name_is_found(planted: str) -> None:
    assert MAY_BE_PRIVATE.search(planted)
    assert list(private_names(ast.parse(planted)))


def test_the_allowed_files_need_it() -> None:
    for name in PRIVATE_ALLOWED:
        assert list(private_names(tree(TESTS.parent / name))), f"{name} needs no exception"
