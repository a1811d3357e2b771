"""What the server does about policies that take long: in process, over files that are as slow as the test wants."""

from __future__ import annotations

import asyncio  # noqa: TID251 - pygls's loop, as in the server
import logging
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from hivemind_trio.editor import Workspace
from hivemind_trio.lsp import server
from hivemind_trio.lsp.server import LanguageSession
from hivemind_trio.policy import Checked, RanTest

URI = "file:///srv/team.hmp"
PATIENCE_S = 120


@attrs.define
class Slow:
    """Files of which one is read when the test lets it."""

    reads: int = 0
    began: threading.Event = attrs.field(factory=threading.Event)
    go: threading.Event = attrs.field(factory=threading.Event)

    def read(self, path: str) -> bytes:
        self.reads += 1
        self.began.set()
        assert self.go.wait(PATIENCE_S)
        return b"lane people { weight 8 }\n"

    def resolve(self, path: str) -> str:
        return path

    def glob(self, pattern: str) -> list[str]:
        return [] if "*" in pattern else [pattern]


@attrs.define
class Shown:
    """A server that keeps what it is given to show."""

    findings: list[types.PublishDiagnosticsParams] = attrs.field(factory=list)
    feature: Any = None
    workspace: Any = attrs.field(factory=lambda: SimpleNamespace(position_encoding="utf-16", folders={}))

    def text_document_publish_diagnostics(self, params: types.PublishDiagnosticsParams) -> None:
        self.findings.append(params)


def session_over(files: Slow) -> tuple[LanguageSession, Shown]:
    shown = Shown()
    session = LanguageSession(cast("Any", shown))
    session.workspace = Workspace(files)
    return session, shown


def typed(text: str) -> types.DidChangeTextDocumentParams:
    document = types.VersionedTextDocumentIdentifier(version=1, uri=URI)
    return types.DidChangeTextDocumentParams(document, [types.TextDocumentContentChangeWholeDocument(text)])


def test_what_was_found_in_a_text_that_has_been_typed_over_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TYPING_PAUSE_S", 0)
    files = Slow()
    session, shown = session_over(files)

    async def typing() -> None:
        first = asyncio.create_task(session.changed(typed('include "lanes.hmp"\nlane one { weight 1x }\n')))
        assert await asyncio.to_thread(files.began.wait, PATIENCE_S)  # it is being checked
        second = asyncio.create_task(session.changed(typed("lane two { weight 2x }\n")))
        await asyncio.sleep(0)
        files.go.set()
        await asyncio.gather(first, second)

    asyncio.run(typing())

    (params,) = shown.findings
    assert ["2x" in one.message for one in params.diagnostics if one.severity == 1] == [True]


def test_of_texts_that_wait_for_their_turn_only_the_newest_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TYPING_PAUSE_S", 0)
    files = Slow()
    session, shown = session_over(files)

    async def typing() -> None:
        tasks = [asyncio.create_task(session.changed(typed('include "lanes.hmp"\n')))]
        assert await asyncio.to_thread(files.began.wait, PATIENCE_S)
        for number in range(5):
            tasks.append(asyncio.create_task(session.changed(typed(f'include "lanes.hmp"\nlane l{number} {{ }}\n'))))
        await asyncio.sleep(0)
        files.go.set()
        await asyncio.gather(*tasks)

    asyncio.run(typing())

    assert files.reads == 2
    assert len(shown.findings) == 2, "the policy and what it includes, once each"


def test_a_check_of_what_has_been_typed_over_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TYPING_PAUSE_S", 0)
    files = Slow()
    session, shown = session_over(files)
    finished: list[str] = []

    def run(checked: Checked) -> tuple[RanTest, ...]:
        finished.append(checked.sources[0].text)
        return ()

    monkeypatch.setattr("hivemind_trio.editor.workspace.run_tests", run)
    texts = ['include "lanes.hmp"\nlane one { }\n', 'include "lanes.hmp"\nlane two { }\n']

    async def typing() -> None:
        first = asyncio.create_task(session.changed(typed(texts[0])))
        assert await asyncio.to_thread(files.began.wait, PATIENCE_S)
        symbols = types.DocumentSymbolParams(types.TextDocumentIdentifier(URI))
        second = asyncio.create_task(session.changed(typed(texts[1])))
        await asyncio.sleep(0)
        files.go.set()
        await asyncio.gather(first, second)
        assert await session.work(session.outline, symbols)

    asyncio.run(typing())

    assert texts[0] not in finished
    assert texts[1] in finished
    assert shown.findings


def test_a_refused_request_is_no_news_for_the_log_and_a_bug_is() -> None:
    def record(error: Exception) -> logging.LogRecord:
        return logging.LogRecord("pygls", logging.ERROR, "x", 1, "failed", (), (type(error), error, None))

    assert not server.is_news(record(JsonRpcInvalidParams("`5x` is no name")))
    assert server.is_news(record(ValueError("a bug")))


def test_the_loop_goes_on_while_a_policy_is_checked() -> None:
    files = Slow()
    session, _ = session_over(files)
    done: list[str] = []

    async def asking() -> None:
        await session.work(lambda text: session.workspace.edit("/srv/team.hmp", text), 'include "lanes.hmp"\n')
        hint = types.InlayHintParams(types.TextDocumentIdentifier(URI), types.Range(*[types.Position(0, 0)] * 2))
        busy = asyncio.create_task(session.work(session.hints, hint))
        assert await asyncio.to_thread(files.began.wait, PATIENCE_S)
        waiting = asyncio.create_task(session.work(done.append, "taken back"))
        after = asyncio.create_task(session.work(done.append, "in its turn"))
        _, pending = await asyncio.wait([waiting, after], timeout=0.1)
        assert pending == {waiting, after}, "one thing after the other"
        assert waiting.cancel(), "the editor has taken it back"
        await asyncio.sleep(0)
        files.go.set()
        assert await busy == []
        await after

    asyncio.run(asking())

    assert done == ["in its turn"]


def test_a_hover_is_answered_by_the_last_check_while_the_next_one_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TYPING_PAUSE_S", 0)
    files = Slow()
    files.go.set()
    session, _ = session_over(files)
    text = 'include "lanes.hmp"\nlane one { weight 3 }\nlane two { weight 5 }\n'
    longer = text.replace("lane one { weight 3 }", "# first\nlane one { weight 4 }")

    async def asking() -> None:
        await session.changed(typed(text))
        monkeypatch.setattr(server, "PATIENCE_S", 0)
        files.began.clear()
        files.go.clear()
        checking = asyncio.create_task(session.changed(typed(longer)))
        assert await asyncio.to_thread(files.began.wait, PATIENCE_S)
        below, within, named = hovering(3, 13), hovering(2, 13), hovering(2, 6)
        told = await session.hover_soon(below)
        assert told is not None
        assert told.range == types.Range(types.Position(3, 11), types.Position(3, 17))
        assert "weight" in cast("types.MarkupContent", told.contents).value
        alone = await session.hover_soon(within)
        assert alone is not None
        assert alone.range == types.Range(types.Position(2, 11), types.Position(2, 17))
        changed = asyncio.create_task(session.hover_soon(named))
        _, pending = await asyncio.wait([changed], timeout=0.1)
        assert pending == {changed}, "of a name in a line that was changed nothing is known yet"
        files.go.set()
        await checking
        assert await changed is not None

    asyncio.run(asking())


def test_a_completion_is_of_the_text_as_it_is_and_of_names_of_the_last_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TYPING_PAUSE_S", 0)
    files = Slow()
    files.go.set()
    session, _ = session_over(files)
    text = 'include "lanes.hmp"\nlane one { weight 3 }\nlane two { weight 5 }\n'
    longer = f"{text}# 🙂\nlane three {{ }}\nagent ci {{ lane t"

    async def asking() -> None:
        await session.changed(typed(text))
        monkeypatch.setattr(server, "PATIENCE_S", 0)
        files.began.clear()
        files.go.clear()
        checking = asyncio.create_task(session.changed(typed(longer)))
        assert await asyncio.to_thread(files.began.wait, PATIENCE_S)
        there = types.CompletionParams(types.TextDocumentIdentifier(URI), types.Position(5, 17))
        soon = await asyncio.wait_for(session.complete_soon(there), PATIENCE_S)
        files.go.set()
        await checking
        monkeypatch.setattr(server, "PATIENCE_S", PATIENCE_S)
        later = await session.complete_soon(there)
        assert [one.label for one in soon.items] == ["people", "one", "two"]
        assert soon.is_incomplete, "the editor asks again"
        assert [one.label for one in later.items] == ["people", "one", "two", "three"]
        assert not later.is_incomplete
        edits = [[cast("types.TextEdit", one.text_edit).range for one in them.items[:3]] for them in (soon, later)]
        assert edits[0] == edits[1]

    asyncio.run(asking())


def test_the_first_check_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    files = Slow()
    session, shown = session_over(files)
    heard: dict[str, Any] = {}
    shown.feature = lambda method, options=None: partial(heard.__setitem__, method)
    session.listen()
    monkeypatch.setattr(server, "PATIENCE_S", 0)
    text = 'include "lanes.hmp"\n# 🙂\nlane one {\n  weight 3\n}\nagent ci { la }\n'

    async def asking() -> None:
        document = types.TextDocumentItem(URI, "hmp", 1, text)
        opening = asyncio.create_task(heard[types.TEXT_DOCUMENT_DID_OPEN](types.DidOpenTextDocumentParams(document)))
        assert await asyncio.to_thread(files.began.wait, PATIENCE_S)
        told = await asyncio.wait_for(session.hover_soon(hovering(3, 4)), PATIENCE_S)
        there = types.CompletionParams(types.TextDocumentIdentifier(URI), types.Position(5, 13))
        found = await asyncio.wait_for(session.complete_soon(there), PATIENCE_S)
        assert told is not None
        assert told.range == types.Range(types.Position(3, 2), types.Position(3, 8))
        assert "lane" in [one.label for one in found.items]
        assert found.is_incomplete
        files.go.set()
        await opening

    asyncio.run(asking())


def test_a_document_that_was_closed_is_forgotten() -> None:
    files = Slow()
    files.go.set()
    session, _ = session_over(files)
    document = types.TextDocumentItem(URI, "hmp", 1, "lane one { weight 3 }\n")
    session.opened(types.DidOpenTextDocumentParams(document))
    assert session.hover(hovering(0, 13)) is not None
    session.closed(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(URI)))

    assert not session.analysed


def hovering(line: int, character: int) -> types.HoverParams:
    return types.HoverParams(types.TextDocumentIdentifier(URI), types.Position(line, character))


def test_what_mends_a_finding_is_tried_once_and_not_at_each_move() -> None:
    files = Slow()
    files.go.set()
    session, _ = session_over(files)
    session.workspace.open("/srv/team.hmp", 'include "lanes.hmp"\nlane one { deadline 60 }\n')
    place = types.Range(types.Position(1, 20), types.Position(1, 20))
    params = types.CodeActionParams(types.TextDocumentIdentifier(URI), place, types.CodeActionContext([]))

    offered = session.actions(params)
    tried = files.reads
    again = session.actions(params)

    assert [one.title for one in offered] == ["write `60s`", "write `60ms`"]
    assert again == offered
    assert files.reads == tried > 2


def test_in_a_large_policy_less_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    files = Slow()
    files.go.set()
    session, _ = session_over(files)
    many = "".join(f"lane l{number} {{ deadline 60 }}\n" for number in range(20))
    session.workspace.open("/srv/team.hmp", f'include "lanes.hmp"\n{many}')
    session.workspace.check("/srv/team.hmp")
    before = files.reads
    monkeypatch.setattr(server, "LETTERS_TRIED_MAX", 3 * (len(many) + 60))
    everywhere = types.Range(types.Position(0, 0), types.Position(30, 0))

    offered = session.actions(
        types.CodeActionParams(types.TextDocumentIdentifier(URI), everywhere, types.CodeActionContext([]))
    )

    assert files.reads - before <= 3
    assert offered
