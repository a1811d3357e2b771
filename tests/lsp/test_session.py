"""Whole sessions of an editor with the language server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from .client import Editor, Refused, editor

TEAM: Final = """hmp 1
include "common/*.hmp"

provider anthropic { key env(KEY); concurrency 8 }

# 🙂 people first
lane people { weight 8 }
lane batch { weight 1 }

agent ci { token env(CI) ; lane batch }

rule ci when agent == ci and not model ~ cheap { lane batch; priority 2 }

test "🙂 ci waits" { given { agent ci; model "claude-opus-4-1" }; expect lane == batch and priority == 2 }
"""
COMMON: Final = 'let cheap = ["claude-haiku-*"]\nrule people when agent == unknown { lane people }\n'


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    with editor(tmp_path_factory.mktemp("elsewhere")) as one:
        yield one


@pytest.fixture
def team(tmp_path: Path) -> Path:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "all.hmp").write_text(COMMON, encoding="utf-8")
    (tmp_path / "team.hmp").write_text(TEAM, encoding="utf-8")
    return tmp_path / "team.hmp"


def place(text: str, marked: str) -> tuple[int, int]:
    """Line and character, in UTF-16, of the `|` in a part of the text."""
    offset = text.index(marked.replace("|", "")) + marked.index("|")
    before = text[:offset].split("\n")
    return len(before) - 1, len(before[-1].encode("utf-16-le")) // 2


def codes(found: list[dict[str, Any]]) -> list[str]:
    return [one["code"] for one in found]


def lines(found: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(one["uri"].rpartition("/")[2], one["range"]["start"]["line"]) for one in found]


def changed(edit: dict[str, Any], uri: str, text: str) -> str:
    """The text with a workspace's edit made, as an editor would."""
    rows = [row.encode("utf-16-le") for row in text.split("\n")]

    def offset(at: dict[str, int]) -> int:
        return sum(len(row) + 2 for row in rows[: at["line"]]) + 2 * at["character"]

    content = text.encode("utf-16-le")
    edits = sorted(edit["changes"][uri], key=lambda one: offset(one["range"]["start"]), reverse=True)
    for one in edits:
        start, end = offset(one["range"]["start"]), offset(one["range"]["end"])
        content = content[:start] + one["newText"].encode("utf-16-le") + content[end:]
    return content.decode("utf-16-le")


@pytest.mark.slow
def test_what_is_wrong_is_said_as_one_types_and_taken_back(session: Editor, team: Path) -> None:
    uri = session.open(team)
    assert codes(session.found(uri)) == []

    session.type(uri, TEAM.replace("lane batch; priority", "lane bach; priority"))
    (found,) = [one for one in session.found(uri) if one["severity"] == 1 and one["code"] == "HM107"]

    line, character = place(TEAM, "lane |batch; priority")
    assert found["range"] == {
        "start": {"line": line, "character": character}, "end": {"line": line, "character": character + 4}
    }  # fmt: skip
    assert "did you mean `batch`?" in found["message"]
    session.type(uri, TEAM)
    assert codes(session.found(uri)) == []
    session.close(uri)


@pytest.mark.slow
def test_letters_in_a_row_are_checked_once(session: Editor, team: Path) -> None:
    uri = session.open(team)
    session.found(uri)

    for number in range(5):
        session.type(uri, TEAM + "# x" * number + "\nlone x { }\n" * (number == 4))

    assert codes(session.found(uri)) == ["HM101"]
    session.type(uri, TEAM)
    assert codes(session.found(uri)) == []
    assert session.published.count(uri) < 6  # 3, or a slow machine took a moment for a pause; one each would be 7
    session.close(uri)


def test_what_is_open_goes_before_the_disk_in_what_includes_it(session: Editor, team: Path) -> None:
    uri = session.open(team)
    session.found(uri)
    common = session.open(team.parent / "common" / "all.hmp", COMMON.replace("cheap", "cheep"))

    assert "HM212" in codes(session.found(uri))
    session.close(common)
    assert codes(session.found(uri)) == []
    session.close(uri)


@pytest.mark.slow
def test_an_included_file_is_judged_as_part_of_its_policy(session: Editor, team: Path) -> None:
    with editor(team.parent) as beside:
        common = beside.open(team.parent / "common" / "all.hmp")

        assert codes(beside.found(common)) == []  # alone it would know no lane
        assert codes(beside.found(team.as_uri())) == []
        beside.type(common, COMMON.replace("lane people", "lane peeple"))
        assert codes(beside.found(common)) == ["HM107"]
        assert codes(beside.found(team.as_uri())) == []
        team.write_text(TEAM.replace("weight 8", "wieght 8"), encoding="utf-8")
        beside.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": team.as_uri(), "type": 2}]})
        assert codes(beside.found(team.as_uri())) == ["HM102"]
        beside.close(common)
        assert beside.found(team.as_uri()) == []


def test_names_are_found_over_all_files(session: Editor, team: Path) -> None:
    uri = session.open(team)

    assert lines(session.ask("definition", uri, *place(TEAM, "~ ch|eap"))) == [("all.hmp", 0)]
    assert lines(session.ask("definition", uri, *place(TEAM, "lane |batch; priority"))) == [("team.hmp", 7)]
    uses = session.ask("references", uri, *place(TEAM, "lane people| {"), context={"includeDeclaration": True})
    assert sorted(lines(uses)) == [("all.hmp", 1), ("team.hmp", 6)]
    assert len(session.ask("documentHighlight", uri, *place(TEAM, "agent |ci {"))) == 3
    assert session.ask("definition", uri, *place(TEAM, "we|ight 8")) == []
    session.close(uri)


def test_a_name_is_changed_wherever_it_stands(session: Editor, team: Path) -> None:
    uri = session.open(team)
    at = place(TEAM, "agent == c|i")

    assert session.ask("prepareRename", uri, *at)["placeholder"] == "ci"
    edit = session.ask("rename", uri, *at, newName="build")

    after = changed(edit, uri, TEAM)
    assert after == TEAM.replace("agent ci", "agent build").replace("agent == ci", "agent == build")
    edit = session.ask("rename", uri, *place(TEAM, "~ ch|eap"), newName="small")
    assert len(edit["changes"]) == 2
    for name, why in (("not a name", "is no name"), ("unknown", "reserved"), ("in", "error")):
        with pytest.raises(Refused, match=why):
            session.ask("rename", uri, *at, newName=name)
    assert session.ask("prepareRename", uri, *place(TEAM, "we|ight 8")) is None
    session.type(uri, TEAM + "rule broken when agent == ci ^ { }\n")
    with pytest.raises(Refused, match="mend the syntax error in line"):
        session.ask("rename", uri, *at, newName="build")
    session.close(uri)


def test_settings_and_names_are_completed_and_explained(session: Editor, team: Path) -> None:
    uri = session.open(team)
    text = TEAM.replace("lane batch; priority 2", "lane b").replace("weight 8", "we")
    session.type(uri, text)

    proposed = session.ask("completion", uri, *place(text, "{ lane b| }"))["items"]
    assert [one["label"] for one in proposed] == ["people", "batch"]
    after = changed({"changes": {uri: [proposed[1]["textEdit"]]}}, uri, text)
    assert after == text.replace("{ lane b }", "{ lane batch }")
    proposed = session.ask("completion", uri, *place(text, "people { we| }"))["items"]
    assert "weight" in [one["label"] for one in proposed]
    said = session.ask("hover", uri, *place(text, "concurr|ency 8"))["contents"]["value"]
    assert "Most attempts in flight" in said
    assert "`start`" in said
    said = session.ask("hover", uri, *place(text, "agent == c|i"))["contents"]["value"]
    assert "agent ci { token env(CI) ; lane batch }" in said
    assert session.ask("hover", uri, *place(text, "# 🙂 peo|ple")) is None
    session.close(uri)


def test_a_finding_is_mended(session: Editor, team: Path) -> None:
    text = TEAM.replace("weight 8", "deadline 60")
    uri = session.open(team, text)
    (found,) = [one for one in session.found(uri) if one["code"] == "HM203"]

    actions = session.request(
        "textDocument/codeAction",
        {"textDocument": {"uri": uri}, "range": found["range"], "context": {"diagnostics": [found]}},
    )

    assert [one["title"] for one in actions] == ["write `60s`", "write `60ms`"]
    assert changed(actions[0]["edit"], uri, text) == text.replace("deadline 60", "deadline 60s")
    session.close(uri)


def test_a_document_is_formatted_outlined_and_annotated(session: Editor, team: Path) -> None:
    uri = session.open(team)
    options = {"textDocument": {"uri": uri}, "options": {"tabSize": 2, "insertSpaces": True}}

    (edit,) = session.request("textDocument/formatting", options)
    assert "token env(CI); lane batch" in changed({"changes": {uri: [edit]}}, uri, TEAM)
    outlined = session.request("textDocument/documentSymbol", {"textDocument": {"uri": uri}})
    assert [one["name"] for one in outlined] == [
        "common/*.hmp",
        "anthropic",
        "people",
        "batch",
        "ci",
        "ci",
        "🙂 ci waits",
    ]
    everything = {"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}}
    (hint,) = session.request("textDocument/inlayHint", {"textDocument": {"uri": uri}, "range": everything})
    assert hint["label"].strip() == "lane: rule ci (team.hmp:12), priority: rule ci (team.hmp:12)"
    line, character = place(TEAM, "priority == 2| }")
    assert hint["position"] == {"line": line, "character": character}
    session.type(uri, "provider {")
    assert session.request("textDocument/formatting", options) is None
    session.close(uri)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("offered", "agreed", "character"),
    [(None, "utf-16", 8), (["utf-8", "utf-16"], "utf-8", 10), (["utf-32"], "utf-32", 7), (["utf-7"], "utf-16", 8)],
)
def test_places_are_in_the_encoding_that_was_agreed_on(
    tmp_path: Path, offered: list[str] | None, agreed: str, character: int
) -> None:
    text = 'test "🙂 x" { }\nlane people { }\n'
    general = {"positionEncodings": offered} if offered else {}

    with editor(tmp_path, **general) as one:
        uri = one.open(tmp_path / "a.hmp", text)
        (found,) = [finding for finding in one.found(uri) if finding["code"] == "HM502"]

        assert one.capabilities["positionEncoding"] == agreed
        end = found["range"]["end"]
        assert (found["range"]["start"], end["line"]) == ({"line": 0, "character": 5}, 0)
        assert end["character"] == character + 3


def test_a_document_that_is_on_no_disk_is_helped_with_too(session: Editor) -> None:
    uri = "untitled:Untitled-1"
    document = {"uri": uri, "languageId": "hmp", "version": 1, "text": "lone x { }\n"}
    session.notify("textDocument/didOpen", {"textDocument": document})

    assert codes(session.found(uri)) == ["HM101"]
    session.close(uri)


def test_a_key_is_shown_in_no_finding(session: Editor, tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "A" * 40
    uri = session.open(tmp_path / "a.hmp", f'provider anthropic {{ key "{key}" }}\n')

    assert "HM208" in codes(session.found(uri))
    assert key not in str(session.findings)
    session.close(uri)
