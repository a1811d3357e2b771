"""What a policy is made of: which files are read, in which order, and what is said of those that cannot be."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.host import DiskFiles
from hivemind_trio.policy import Checked, Closure, MemoryFiles, check, read_closure, render
from hivemind_trio.policy.compile.binder import statements
from hivemind_trio.policy.syntax.ast import Item

DEPTH_MAX = 64


@final
@attrs.frozen
class LockedFiles:
    """Files of which some are there and cannot be read, as where they are another user's."""

    texts: Mapping[str, str | bytes]
    locked: frozenset[str]

    def read(self, path: str) -> bytes:
        if path in self.locked:
            raise PermissionError(13, "Permission denied", path)
        return MemoryFiles(self.texts).read(path)

    def resolve(self, path: str) -> str:
        return path

    def glob(self, pattern: str) -> list[str]:
        return MemoryFiles(self.texts).glob(pattern)


@final
class EndlessFiles:
    """A folder that holds itself, as a symbolic link to `.` does, without an end to it."""

    def __init__(self) -> None:
        self.reads = 0

    def read(self, path: str) -> bytes:
        self.reads += 1
        return b'include "again/team.hmp"\n'

    def resolve(self, path: str) -> str:
        return path

    def glob(self, pattern: str) -> list[str]:
        return [pattern]


def closure(texts: Mapping[str, str | bytes], path: str = "team.hmp") -> Closure:
    return read_closure(path, MemoryFiles(texts))


def heads(read: Closure) -> list[str]:
    """The first words of all statements in reading order, includes left out."""
    items = [one for one in statements(read) if isinstance(one, Item)]
    return [one.head.text for one in items if one.head.text != "include"]


def codes(read: Closure | Checked) -> list[str]:
    return [found.code for found in read.diagnostics]


def chain(length: int) -> dict[str, str]:
    """A file that includes a file, and so on, `length` files in all."""
    texts = {f"f{number}.hmp": f'include "f{number + 1}.hmp"\nn{number}\n' for number in range(length - 1)}
    return {**texts, f"f{length - 1}.hmp": f"n{length - 1}\n"}


# ---- order ----

ORDERS: dict[str, tuple[dict[str, str], str, str]] = {
    "one file": ({"team.hmp": "a\nb\n"}, "a b", "team"),
    "in the place of the include": (
        {"team.hmp": 'a\ninclude "x.hmp"\nb\n', "x.hmp": "x1\nx2\n"},
        "a x1 x2 b",
        "team x",
    ),
    "an include of an include": (
        {"team.hmp": 'a\ninclude "x.hmp"\nb\n', "x.hmp": 'x1\ninclude "y.hmp"\nx2\n', "y.hmp": "y\n"},
        "a x1 y x2 b",
        "team x y",
    ),
    "several that match are in the order of their names": (
        {"team.hmp": 'include "c/*.hmp"\na\n', "c/z.hmp": "z\n", "c/B.hmp": "B\n", "c/b.hmp": "b\n", "c/10.hmp": "t\n"},
        "t B b z a",
        "team c/10 c/B c/b c/z",
    ),
    "a file met twice is taken where it is met first": (
        {"team.hmp": 'include "x.hmp"\na\ninclude "x.hmp"\n', "x.hmp": "x\n"},
        "x a",
        "team x",
    ),
    "also under another spelling of its name": (
        {"team.hmp": 'include "x.hmp"\na\ninclude "./c/../x.hmp"\n', "x.hmp": "x\n"},
        "x a",
        "team x",
    ),
    "a diamond": (
        {
            "team.hmp": 'include "l.hmp"\ninclude "r.hmp"\na\n',
            "l.hmp": 'include "base.hmp"\nl\n',
            "r.hmp": 'include "base.hmp"\nr\n',
            "base.hmp": "base\n",
        },
        "base l r a",
        "team l base r",
    ),
    "a diamond with a long side": (
        {
            "team.hmp": 'include "l.hmp"\ninclude "base.hmp"\na\n',
            "l.hmp": 'include "m.hmp"\nl\n',
            "m.hmp": 'include "base.hmp"\nm\n',
            "base.hmp": "base\n",
        },
        "base m l a",
        "team l m base",
    ),
    "two on one line": (
        {"team.hmp": 'include "y.hmp"; include "x.hmp"\n', "x.hmp": "x\n", "y.hmp": "y\n"},
        "y x",
        "team y x",
    ),
    "a pattern and a name of it": (
        {"team.hmp": 'include "c/b.hmp"\ninclude "c/*.hmp"\n', "c/a.hmp": "a\n", "c/b.hmp": "b\n", "c/c.hmp": "c\n"},
        "b a c",
        "team c/b c/a c/c",
    ),
    "an empty file": ({"team.hmp": 'include "x.hmp"\na\n', "x.hmp": ""}, "a", "team x"),
}


@pytest.mark.parametrize(("texts", "expected", "read"), ORDERS.values(), ids=ORDERS)
def test_statements_stand_in_the_order_of_reading_and_each_file_once(
    texts: dict[str, str], expected: str, read: str
) -> None:
    found = closure(texts)

    assert heads(found) == expected.split()
    assert list(found.paths) == [f"{name}.hmp" for name in read.split()]
    assert [source.name for source in found.sources] == list(found.paths)
    assert [source.text for source in found.sources] == [texts[name] for name in found.paths]
    assert not found.diagnostics


# ---- where a path leads ----


@pytest.mark.parametrize(
    ("including", "pattern", "included"),
    [
        ("team.hmp", "x.hmp", "x.hmp"),
        ("conf/team.hmp", "x.hmp", "conf/x.hmp"),
        ("conf/team.hmp", "./x.hmp", "conf/x.hmp"),
        ("conf/team.hmp", "../x.hmp", "x.hmp"),
        ("conf/team.hmp", "../../x.hmp", "../x.hmp"),
        ("conf/team.hmp", "deep/er/../x.hmp", "conf/deep/x.hmp"),
        ("/etc/hm/team.hmp", "x.hmp", "/etc/hm/x.hmp"),
        ("/etc/hm/team.hmp", "../../../x.hmp", "/x.hmp"),
        ("conf/team.hmp", "/etc/x.hmp", "/etc/x.hmp"),
        ("team.hmp", "with a space.hmp", "with a space.hmp"),
        ("team.hmp", "é界.hmp", "é界.hmp"),
        ("team.hmp", '\\"x\\".hmp', '"x".hmp'),
        ("team.hmp", "x\\\\y.hmp", "x\\y.hmp"),
        ("team.hmp", "x\\n.hmp", "x\n.hmp"),
        ("team.hmp", "a[[]1].hmp", "a[1].hmp"),
        ("conf[1]/team.hmp", "x.hmp", "conf[1]/x.hmp"),
        ("conf[1]/team.hmp", "x.hm?", "conf[1]/x.hmp"),
        ("a*b/c?/team.hmp", "x.hmp", "a*b/c?/x.hmp"),
    ],
)
def test_a_path_is_relative_to_the_file_that_includes(including: str, pattern: str, included: str) -> None:
    decoys = {"conf1/x.hmp": "wrong\n", "axb/cx/x.hmp": "wrong\n"}
    texts = {including: f'include "{pattern}"\n', included: "x\n", **decoys}
    found = read_closure(including, MemoryFiles(texts), allowed=[posixpath.dirname(included) or "."])

    assert heads(found) == ["x"]
    assert list(found.paths) == [including, included]
    assert not found.diagnostics


def test_of_an_included_file_as_well() -> None:
    texts = {
        "team.hmp": 'include "a/b/x.hmp"\n',
        "a/b/x.hmp": 'include "../y.hmp"\n',
        "a/y.hmp": "y\n",
        "y.hmp": "wrong\n",
    }

    assert heads(closure(texts)) == ["y"]


def test_a_star_crosses_no_folder() -> None:
    texts = {"team.hmp": 'include "c/*"\n', "c/x.hmp": "x\n", "c/d/y.hmp": "y\n", "c.hmp": "c\n", "c/.z": "z\n"}

    assert "y" not in heads(closure(texts))
    assert "c" not in heads(closure(texts))


def test_on_a_disk_it_is_the_same(tmp_path: Path) -> None:
    for name, text in {
        "p[1]/team.hmp": 'include "*/*.hmp"\ninclude "../y.hmp"\ninclude "c/a.hmp"\ninclude "c/../../y.hmp"\n',
        "p[1]/c/b.hmp": "b\n",
        "p[1]/c/a.hmp": "a\n",
        "p1/c/a.hmp": "wrong\n",
        "y.hmp": "y\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    found = read_closure(f"{tmp_path}/p[1]/team.hmp", DiskFiles(), allowed=[str(tmp_path)])

    assert heads(found) == ["a", "b", "y"]
    assert not found.diagnostics


def test_on_a_disk_a_circle_is_one_under_any_spelling(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "team.hmp").write_text('include "./c/../team.hmp"\na\n')

    found = read_closure(f"{tmp_path}/c/../team.hmp", DiskFiles())

    assert codes(found) == ["HM009"]
    assert heads(found) == ["a"]


# ---- circles, and chains without an end ----

CIRCLES: dict[str, tuple[dict[str, str], str, str]] = {
    "itself": ({"team.hmp": 'a\ninclude "team.hmp"\nb\n'}, "team.hmp -> team.hmp", "a b"),
    "itself by a pattern": ({"team.hmp": 'include "*.hmp"\na\n', "x.hmp": "x\n"}, "team.hmp -> team.hmp", "x a"),
    "two": (
        {"team.hmp": 'include "x.hmp"\na\n', "x.hmp": 'x\ninclude "./team.hmp"\n'},
        "team.hmp -> x.hmp -> team.hmp",
        "x a",
    ),
    "three, and a way in": (
        {
            "team.hmp": 'include "x.hmp"\na\n',
            "x.hmp": 'include "y.hmp"\nx\n',
            "y.hmp": 'include "z.hmp"\ny\n',
            "z.hmp": 'include "x.hmp"\nz\n',
        },
        "x.hmp -> y.hmp -> z.hmp -> x.hmp",
        "z y x a",
    ),
}


@pytest.mark.parametrize(("texts", "note", "expected"), CIRCLES.values(), ids=CIRCLES)
def test_a_circle_is_an_error_where_it_closes_and_everything_is_read_once(
    texts: dict[str, str], note: str, expected: str
) -> None:
    found = closure(texts)

    assert [(one.code, one.note) for one in found.diagnostics] == [("HM009", note)]
    span = found.diagnostics[0].span
    closing = note.split(" -> ")[-2]
    assert found.sources[span.source].name == closing
    assert texts[closing][span.start : span.end].startswith('"')
    assert heads(found) == expected.split()


@pytest.mark.parametrize("length", [2, DEPTH_MAX, DEPTH_MAX + 1])
def test_a_chain_of_includes_is_read_to_its_end(length: int) -> None:
    found = closure(chain(length), "f0.hmp")

    assert not found.diagnostics
    assert heads(found) == [f"n{number}" for number in reversed(range(length))]


@pytest.mark.parametrize("length", [DEPTH_MAX + 2, 5_000])
def test_a_chain_that_is_too_long_is_an_error_where_it_becomes_so(length: int) -> None:
    checked = check("f0.hmp", MemoryFiles(chain(length)))

    deep = [found for found in checked.diagnostics if found.code == "HM007"]
    assert [checked.sources[found.span.source].name for found in deep] == [f"f{DEPTH_MAX}.hmp"]
    assert len(checked.paths) == DEPTH_MAX + 1


def test_at_the_end_of_a_chain_a_file_that_was_read_before_is_no_error() -> None:
    texts = chain(DEPTH_MAX + 1)
    texts["f0.hmp"] = f'include "x.hmp"\n{texts["f0.hmp"]}'
    texts[f"f{DEPTH_MAX}.hmp"] = 'include "x.hmp"\n'

    assert not closure({**texts, "x.hmp": ""}, "f0.hmp").diagnostics


def test_a_folder_that_holds_itself_is_left_at_the_same_depth() -> None:
    files = EndlessFiles()

    assert codes(read_closure("team.hmp", files)) == ["HM007"]
    assert files.reads == DEPTH_MAX + 1


# ---- what is not there, or cannot be read ----


def test_the_file_asked_for_is_not_there() -> None:
    found = closure({"other.hmp": "a\n"})

    assert codes(found) == ["HM007"]
    assert found.unreadable
    assert [source.name for source in found.sources] == ["team.hmp"]  # so that there is a place to show


def test_every_include_that_matches_nothing_is_reported_and_the_rest_is_read() -> None:
    found = closure(
        {"team.hmp": 'include "no.hmp"\na\ninclude "none/*.hmp"\ninclude "x.hmp"\n', "x.hmp": 'x\ninclude ""\n'}
    )

    assert codes(found) == ["HM008", "HM008", "HM008"]
    assert [found.sources[one.span.source].name for one in found.diagnostics] == ["team.hmp", "team.hmp", "x.hmp"]
    assert heads(found) == ["a", "x"]
    assert not found.unreadable


UNREADABLE = {
    "UTF-16": b"\xff\xfex\0",
    "a NUL": b"x\0\n",
    "not UTF-8": b"x \xff\n",
    "too large": b"#" * ((4 << 20) + 1),
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_an_included_file_that_is_no_text_is_an_error_in_that_file(content: bytes) -> None:
    found = closure({"team.hmp": 'a\ninclude "x.hmp"\ninclude "y.hmp"\n', "x.hmp": content, "y.hmp": "y\n"})

    assert codes(found) == ["HM007"]
    assert found.sources[found.diagnostics[0].span.source].name == "x.hmp"
    assert found.unreadable
    assert heads(found) == ["a", "y"]
    assert list(found.paths) == ["team.hmp", "x.hmp", "y.hmp"]  # it is watched: it may be mended


@pytest.mark.slow
def test_a_file_of_the_largest_size_is_read() -> None:
    assert not closure({"team.hmp": b"#" * (4 << 20)}).diagnostics


@pytest.mark.parametrize(
    "locked", [["c/a"], ["c/b"], ["c/c"], ["c/a", "c/b"], ["c/a", "c/b", "c/c"], ["z"]], ids=" ".join
)
def test_an_included_file_that_cannot_be_read_is_left_out_and_no_other_is_taken_for_it(locked: list[str]) -> None:
    texts = {
        "team.hmp": 'include "c/*.hmp"\ninclude "z.hmp"\nend\n',
        **{f"c/{one}.hmp": f"{one}\n" for one in "abc"},
        "z.hmp": "z\n",
    }
    names = frozenset(f"{name}.hmp" for name in locked)

    found = read_closure("team.hmp", LockedFiles(texts, names))

    assert codes(found) == ["HM007"] * len(locked)
    assert all(found.sources[one.span.source].name == "team.hmp" for one in found.diagnostics)
    assert found.unreadable
    assert heads(found) == [name[-1] for name in ("c/a", "c/b", "c/c", "z") if name not in locked] + ["end"]


def test_a_finding_in_an_included_file_is_shown_there() -> None:
    texts = {"team.hmp": 'provider anthropic { }\ninclude "x.hmp"\n', "x.hmp": "lane a { }\nlane b { weight 4s }\n"}

    checked = check("team.hmp", MemoryFiles(texts))

    wrong = next(found for found in checked.diagnostics if found.code == "HM202")
    assert checked.sources[wrong.span.source].name == "x.hmp"
    assert texts["x.hmp"][wrong.span.start : wrong.span.end] == "4s"


@pytest.mark.parametrize(
    "text",
    [
        "include", "include x", 'include "x.hmp" "y.hmp"', 'include "x.hmp" { }', 'include ["x.hmp"]',
        'include "x.hmp" when stream',
    ],
)  # fmt: skip
def test_an_include_that_is_not_one_reads_nothing_and_is_an_error(text: str) -> None:
    checked = check(
        "team.hmp", MemoryFiles({"team.hmp": f"{text}\nprovider anthropic {{ }}\n", "x.hmp": "", "y.hmp": ""})
    )

    assert checked.paths == ("team.hmp",)
    assert checked.program is None


# ---- the hash ----


def test_the_hash_is_of_every_byte_and_name_that_was_read_and_of_nothing_else() -> None:
    texts = {"team.hmp": 'include "c/*.hmp"\n', "c/x.hmp": "x\n", "c/y.hmp": "y\n"}
    same = closure(texts).hash

    assert closure({**texts, "other.hmp": "z\n"}).hash == same
    changes: list[dict[str, str]] = [
        {**texts, "c/x.hmp": "x \n"},
        {**texts, "c/z.hmp": ""},
        {"team.hmp": texts["team.hmp"], "c/x.hmp": "x\n", "c/z.hmp": "y\n"},
        {**texts, "c/x.hmp": "x\ny\n", "c/y.hmp": ""},
        {**texts, "c/x.hmp": "y\n", "c/y.hmp": "x\n"},
    ]
    hashes = [closure(changed).hash for changed in changes]
    assert len({same, *hashes}) == len(changes) + 1


def test_the_same_policy_in_another_folder_has_the_same_hash() -> None:
    texts = {"team.hmp": 'include "c/*.hmp"\n', "c/x.hmp": "x\n"}
    elsewhere = {f"/srv/node-2/{name}": text for name, text in texts.items()}

    assert closure(elsewhere, "/srv/node-2/team.hmp").hash == closure(texts).hash


# ---- any graph ----


@given(st.lists(st.lists(st.integers(0, 7), max_size=4), min_size=1, max_size=7))
def test_any_graph_of_files_is_read_once_and_a_circle_is_found_exactly_if_there_is_one(graph: list[list[int]]) -> None:
    files = len(graph)
    texts = {
        f"{name}.hmp": "".join(f'include "{to}.hmp"\n' for to in edges) + f"n{name}\n"
        for name, edges in enumerate(graph)
    }
    order: list[int] = []
    expected: list[str] = []
    read: set[int] = set()

    def walk(at: int, path: tuple[int, ...]) -> None:
        read.add(at)
        for to in graph[at]:
            if to >= files:
                expected.append("HM008")
            elif to in (*path, at):
                expected.append("HM009")
            elif to not in read:
                walk(to, (*path, at))
        order.append(at)

    walk(0, ())
    found = closure(texts, "0.hmp")

    assert heads(found) == [f"n{name}" for name in order]
    assert codes(found) == expected
    assert len(found.paths) == len(set(found.paths)) == len(read)


# ---- what may be included ----

PASSWORDS = "root:x:0:0:root:/root:/bin/bash\nhunter2\n"
OUTSIDE = ["../y.hmp", "/etc/passwd", "../p2/y.hmp", "../*.hmp", "sub/../../y.hmp", "../p/../y.hmp", "/**/*.hmp"]


@pytest.mark.parametrize("root", ["p/team.hmp", "/p/team.hmp", "./p/team.hmp"])
@pytest.mark.parametrize("pattern", OUTSIDE)
def test_nothing_outside_the_policys_folder_is_read(root: str, pattern: str) -> None:
    place = root.removesuffix("p/team.hmp").removeprefix("./")
    texts = {f"{place}p/team.hmp": f'include "{pattern}"\n'}
    texts |= {f"{place}{name}": "lane secret { }\n" for name in ("y.hmp", "p2/y.hmp")} | {"/etc/passwd": PASSWORDS}

    found = read_closure(root, MemoryFiles(texts))

    assert [one.code for one in found.diagnostics] == ["HM011"]
    assert len(found.sources) == 1
    assert len(found.paths) == 1


@pytest.mark.parametrize("pattern", ["../y.hmp", "../out/*.hmp", "../*/y.hmp", "/etc/z/y.hmp", "sub/../../out/y.hmp"])
@pytest.mark.parametrize("root", ["a/p/team.hmp", "p/team.hmp", "/srv/p/team.hmp"])
def test_the_folder_that_the_help_names_is_what_has_to_be_allowed(root: str, pattern: str) -> None:
    place = root.removesuffix("p/team.hmp")
    names = [f"{place}y.hmp", f"{place}out/y.hmp", "/etc/z/y.hmp"]
    files = MemoryFiles({root: f'include "{pattern}"\n', **dict.fromkeys(names, "lane other { }\n")})
    (outside,) = read_closure(root, files).diagnostics
    folder = (outside.help or "").partition("--allow-include ")[2].removesuffix(" ...`")

    found = read_closure(root, files, allowed=[folder])

    assert not found.diagnostics
    assert len(found.paths) == 2


def test_a_policy_in_the_working_directory_includes_nothing_above_it() -> None:
    texts = {"team.hmp": 'include "c/x.hmp"\ninclude "./..x.hmp"\n', "c/x.hmp": "a\n", "..x.hmp": "b\n"}
    above = {"team.hmp": 'include "../x.hmp"\n', "../x.hmp": "a\n"}

    assert heads(closure(texts)) == ["a", "b"]
    assert [one.code for one in closure(above).diagnostics] == ["HM011"]


@pytest.mark.parametrize("rest", ["", "rule r { lane a }\n"])
def test_a_file_that_is_not_included_may_settle_what_is_missing(rest: str) -> None:
    texts = {"p/team.hmp": f'include "../x.hmp"\n{rest}', "x.hmp": "provider anthropic { }\nlane a { }\n"}

    assert [one.code for one in check("p/team.hmp", MemoryFiles(texts)).diagnostics] == ["HM011"]


def test_a_folder_that_the_command_line_allows_is_read() -> None:
    texts = {"p/team.hmp": 'include "../common/a.hmp"\n', "common/a.hmp": "a\n", "commonly/a.hmp": "b\n"}

    found = read_closure("p/team.hmp", MemoryFiles(texts), allowed=["common/"])
    other = read_closure("p/team.hmp", MemoryFiles(texts), allowed=["commonl"])

    assert heads(found) == ["a"]
    assert not found.diagnostics
    assert [one.code for one in other.diagnostics] == ["HM011"]


@pytest.mark.parametrize("name", ["link.hmp", "passwd", "c/key"])
@pytest.mark.parametrize("content", [PASSWORDS, "-----BEGIN KEY-----\nhunter2\n", "a=hunter2", '{"k": "hunter2"}'])
def test_of_a_file_that_is_no_policy_nothing_is_quoted(name: str, content: str) -> None:
    checked = check("team.hmp", MemoryFiles({"team.hmp": f'include "{name}"\n', name: content}))
    shown = "".join(render([checked], form, color=False) for form in ("text", "short", "json", "github"))

    assert "HM011" in [one.code for one in checked.diagnostics]
    assert "hunter2" not in shown
    assert "root:" not in shown


def test_one_word_in_a_file_of_another_kind_is_not_quoted() -> None:
    checked = check("team.hmp", MemoryFiles({"team.hmp": 'include "password"\n', "password": "hunter2\n"}))

    assert "hunter2" not in render([checked], "text", color=False)


def test_a_script_with_an_if_is_no_policy_and_is_not_shown() -> None:
    script = "if production {\n  password hunter2\n}\n"
    found = check("team.hmp", MemoryFiles({"team.hmp": 'include "x.hmp"\nprovider anthropic { }\n', "x.hmp": script}))

    assert [one.code for one in found.diagnostics] == ["HM011"]
    assert "hunter2" not in found.sources[-1].text
