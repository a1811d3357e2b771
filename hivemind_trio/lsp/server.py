"""The protocol's requests, each answered by a function of `editor`. A process of its own, on standard input and output.

pygls runs on asyncio; nothing else of ours does, and nothing of the proxy runs here. Its loop only reads and writes: a
policy of thousands of lines takes a second to check. All that is known of the files belongs to one worker thread, which
does what it is told in the order in which it was said, so that every answer is about the text as it was when it was
asked for; what the editor takes back before its turn is not done at all. Only two questions do not wait for the end of
a long check. A hover is answered from the last check, if its line has not changed since, or else, unless it is about a
name, from the declaration around it alone; a completion from the text as it is and the names of the last check, if
there was one.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - pygls's loop, in a process without Trio
import logging
import posixpath
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar, final

import attrs
from lsprotocol import types
from pygls.exceptions import JsonRpcContentModified, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

from hivemind_trio import __version__
from hivemind_trio.editor import (
    Mend,
    Occurrence,
    Positions,
    RenameError,
    Symbol,
    Workspace,
    complete,
    declaration_around,
    hints,
    hover,
    line_before,
    mends,
    occurrence_at,
    occurrences,
    outline,
    rename,
)
from hivemind_trio.host import DiskFiles
from hivemind_trio.policy import Checked, Diagnostic, FormatError, MemoryFiles, Span, check, format_text

from .conversion import completion_items, diagnostic, path_of, range_of, symbol, uri_of, workspace_edit

TYPING_PAUSE_S: Final = 0.2
"""After the last letter, before the text is checked."""

PATIENCE_S: Final = 0.1
"""A hover or a completion that has waited for so long is answered from the last check."""

LETTERS_TRIED_MAX: Final = 400_000
"""Checked to try what would mend the findings at one place, all tries together: two or three seconds."""

SUPERSEDED: Final = "the text has changed since"

Findings = dict[str, list[types.Diagnostic]]
"""Path -> what is to be shown in it."""


class Superseded(Exception):  # noqa: N818 - nothing is wrong
    """A text is being checked that has been typed over."""


def is_news(record: logging.LogRecord) -> bool:
    """Return True unless the record is about an answer that refuses a request, which the editor shows."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (JsonRpcInvalidParams, JsonRpcContentModified))


def serve() -> None:
    """Serve one editor until it says `exit` or hangs up."""
    logging.getLogger("pygls.protocol.json_rpc").addFilter(is_news)
    server = LanguageServer("hivemind-trio", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full)
    LanguageSession(server).listen()
    server.start_io()


_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


class _Asked(Protocol):
    """Parameters of a request about a place."""

    @property
    def text_document(self) -> types.TextDocumentIdentifier: ...

    @property
    def position(self) -> types.Position: ...


@final
@attrs.frozen
class _At:
    """A place in a document, looked up."""

    checked: Checked
    source: int
    positions: Positions
    offset: int
    names: tuple[Occurrence, ...]

    @property
    def occurrence(self) -> Occurrence | None:
        return occurrence_at(self.names, self.source, self.offset)


@final
@attrs.define(eq=False)
class LanguageSession:
    """One session of the language server: documents, diagnostics and requests."""

    server: LanguageServer
    workspace: Workspace = attrs.field(init=False, factory=lambda: Workspace(DiskFiles()))
    _uris: dict[str, str] = attrs.field(init=False, factory=dict)
    """Path -> how the editor spells it."""
    _published: set[str] = attrs.field(init=False, factory=set)
    """Paths that the editor shows findings of."""
    _changes: int = attrs.field(init=False, default=0)
    _applied: int = attrs.field(init=False, default=0)
    """The number of the change that the workspace has."""
    _newest: dict[str, int] = attrs.field(init=False, factory=dict)
    """URI -> the number of its last change."""
    _mended: dict[str, tuple[Checked, dict[Diagnostic, tuple[Mend, ...]]]] = attrs.field(init=False, factory=dict)
    """Path of a policy -> what would mend its findings, as far as it was tried; editors ask at each move."""
    _named: tuple[Checked, tuple[Occurrence, ...]] | None = attrs.field(init=False, default=None)
    """The policy that was asked about last, and its names."""
    analysed: dict[str, _At] = attrs.field(init=False, factory=dict)
    """URI -> the last check that came to its end, which nobody changes any more."""
    _typed: dict[str, str] = attrs.field(init=False, factory=dict)
    """URI -> the text as the editor has it."""
    _worker: ThreadPoolExecutor = attrs.field(init=False, factory=lambda: ThreadPoolExecutor(max_workers=1))
    """Thread that owns the workspace, and of the fields above those that are not named here.

    The loop owns `_published` and `_changes`, writes `_newest` and `_typed`, and reads `analysed`.
    """

    def listen(self) -> None:
        """Say what we answer."""

        def on_soon(method: str, handler: Callable[[Any], Coroutine[Any, Any, object]], options: object = None) -> None:
            async def answer(params: Any) -> object:
                try:
                    return await handler(params)
                except Superseded as error:
                    raise JsonRpcContentModified(SUPERSEDED) from error

            self.server.feature(method, options)(answer)

        def on(method: str, handler: Callable[[Any], object], options: object = None) -> None:
            on_soon(method, lambda params: self.work(handler, params), options)

        def on_news(method: str, handler: Callable[[Any], Findings]) -> None:
            async def heard(params: Any) -> None:
                if isinstance(params, types.DidOpenTextDocumentParams):
                    self._typed[params.text_document.uri] = params.text_document.text
                with suppress(Superseded):  # the change that it was for has its own findings
                    self._show_all(await self.work(handler, params))

            self.server.feature(method)(heard)

        async def changed(params: types.DidChangeTextDocumentParams) -> None:
            await self.changed(params)

        on(types.INITIALIZED, self.initialized)
        on(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, self.initialized)
        on_news(types.TEXT_DOCUMENT_DID_OPEN, self.opened)
        on_news(types.TEXT_DOCUMENT_DID_CLOSE, self.closed)
        on_news(types.WORKSPACE_DID_CHANGE_WATCHED_FILES, self.changed_on_disk)
        self.server.feature(types.TEXT_DOCUMENT_DID_CHANGE)(changed)
        triggers = types.CompletionOptions(trigger_characters=[" ", ".", "["])
        on_soon(types.TEXT_DOCUMENT_COMPLETION, self.complete_soon, triggers)
        on_soon(types.TEXT_DOCUMENT_HOVER, self.hover_soon)
        on(types.TEXT_DOCUMENT_DEFINITION, self.definition)
        on(types.TEXT_DOCUMENT_REFERENCES, self.references)
        on(types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT, self.highlights)
        on(types.TEXT_DOCUMENT_PREPARE_RENAME, self.prepare_rename)
        on(types.TEXT_DOCUMENT_RENAME, self.rename, types.RenameOptions(prepare_provider=True))
        on(types.TEXT_DOCUMENT_FORMATTING, self.format)
        kinds = [types.CodeActionKind.QuickFix]
        on(types.TEXT_DOCUMENT_CODE_ACTION, self.actions, types.CodeActionOptions(code_action_kinds=kinds))
        on(types.TEXT_DOCUMENT_INLAY_HINT, self.hints)
        on(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL, self.outline)

    # ---- what is open ----

    def initialized(self, _: object) -> None:
        """Check the policies of the workspace."""
        folders = self.server.workspace.folders.values()
        self.workspace.folders = tuple(path_of(folder.uri).rstrip("/") for folder in folders)
        self.workspace.changed_on_disk()

    def opened(self, params: types.DidOpenTextDocumentParams) -> Findings:
        """Check a document that the editor opened."""
        path = self._path(params.text_document.uri)
        self.workspace.open(path, params.text_document.text)
        found = self._everything()
        self._analyse(params.text_document.uri)
        return found

    async def changed(self, params: types.DidChangeTextDocumentParams) -> None:
        """Check the newest text: one that has been typed over is neither checked nor shown."""
        uri, text = params.text_document.uri, params.content_changes[-1].text
        self._changes += 1
        number = self._newest[uri] = self._changes
        self._typed[uri] = text
        await self.work(self._edit, (uri, text, number))
        await asyncio.sleep(TYPING_PAUSE_S)
        if self._newest.get(uri) == number:
            with suppress(Superseded):
                found = await self.work(self._around, (uri, number))
                if self._newest.get(uri) == number:
                    self._show(found)
                    await self.work(self._analyse, uri)

    def _edit(self, change: tuple[str, str, int]) -> None:
        uri, text, self._applied = change
        self.workspace.progress = self._unless_superseded
        self.workspace.edit(self._path(uri), text)

    def _unless_superseded(self, doing: str, done: int, of: int, /) -> None:
        """End a check of what has been typed over.

        Raises:
            Superseded: There is a newer change, which waits for the worker.
        """
        if self._changes > self._applied:
            raise Superseded

    def closed(self, params: types.DidCloseTextDocumentParams) -> Findings:
        """Use the file on disk again."""
        path = self._path(params.text_document.uri)
        self.workspace.close(path)
        self._uris.pop(path)
        self._newest.pop(params.text_document.uri, None)
        self._typed.pop(params.text_document.uri, None)
        self.analysed.pop(params.text_document.uri, None)
        return self._everything()

    def changed_on_disk(self, _: types.DidChangeWatchedFilesParams) -> Findings:
        """Check what a changed file is a part of."""
        self.workspace.changed_on_disk()
        return self._everything()

    async def work(self, do: Callable[[_Given], _Made], given: _Given) -> _Made:
        """Have the worker do it, after all that it was told before."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, do, given)

    def _path(self, uri: str) -> str:
        path = path_of(uri)
        path = posixpath.normpath(path) if path.startswith("/") else path
        self._uris[path] = uri
        return path

    # ---- findings ----

    def _around(self, change: tuple[str, int]) -> Findings:
        """Return the findings of all files that a change may concern."""
        uri, number = change
        if self._newest.get(uri) != number:
            return {}
        return {path: self._findings(path) for path in self.workspace.touched(self._path(uri))}

    def _everything(self) -> Findings:
        shown = dict.fromkeys(other for path in self.workspace.opened for other in self.workspace.touched(path))
        return {path: self._findings(path) for path in shown}

    def _findings(self, path: str) -> list[types.Diagnostic]:
        texts = {id(checked): self._texts(checked) for checked in self.workspace.policies(path)}
        findings = self.workspace.findings(path)
        return [diagnostic(one, checked, texts[id(checked)]) for checked, one in findings]

    def _show_all(self, found: Findings) -> None:
        gone: Findings = {path: [] for path in sorted(self._published - found.keys())}
        self._show(gone | found)

    def _show(self, findings: Findings) -> None:
        for path, found in findings.items():
            if found:
                self._published.add(path)
            else:
                self._published.discard(path)
            uri = self._uris.get(path, uri_of(path))
            self.server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found))

    # ---- questions ----

    async def complete_soon(self, params: types.CompletionParams) -> types.CompletionList:
        """Return the completions at a position, with the names of the last check if the worker takes long.

        The editor is told that the list is not complete then, so that it asks again at the next letter.
        """
        asked = asyncio.ensure_future(self.work(self.complete, params))
        await asyncio.wait({asked}, timeout=PATIENCE_S)
        uri, place = params.text_document.uri, params.position
        last = self.analysed.get(uri)
        text = self._typed.get(uri, last.positions.text if last is not None else None)
        if asked.done() or text is None:
            return await asked
        asked.cancel()
        names = last.checked if last is not None else self._alone("").checked
        positions = Positions(text, self._encoding)
        offset = positions.offset(place.line, place.character)
        found = await asyncio.to_thread(complete, positions.text, offset, names)
        return types.CompletionList(is_incomplete=True, items=completion_items(found, positions))

    def complete(self, params: types.CompletionParams) -> types.CompletionList:
        """Return the completions at a position."""
        here = self._at(params)
        found = completion_items(complete(here.positions.text, here.offset, here.checked), here.positions)
        return types.CompletionList(is_incomplete=False, items=found)

    async def hover_soon(self, params: types.HoverParams) -> types.Hover | None:
        """Return the documentation of the word at a position, without a check of the whole text if that takes long."""
        asked = asyncio.ensure_future(self.work(self.hover, params))
        await asyncio.wait({asked}, timeout=PATIENCE_S)
        if not asked.done():
            found = await asyncio.to_thread(self._hover_now, params.text_document.uri, params.position)
            if found is not None:
                asked.cancel()
                return found[0]
        return await asked

    def _hover_now(self, uri: str, place: types.Position) -> tuple[types.Hover | None] | None:
        """Return what the last check or the declaration alone says of a place; None: what is there is not known yet."""
        last = self.analysed.get(uri)
        text = self._typed.get(uri, last.positions.text if last is not None else None)
        if last is not None and text is not None:
            line = line_before(last.positions.text, text, place.line)
            if line is not None:
                here = attrs.evolve(last, offset=last.positions.offset(line, place.character))
                return (self._hover(here, place.line - line),)
        around = declaration_around(text, place.line) if text is not None else None
        if around is None:
            return None
        first, declaration = around
        alone = self._alone(declaration)
        offset = alone.positions.offset(place.line - first, place.character)
        found = self._hover(attrs.evolve(alone, offset=offset), first)
        return (found,) if found is not None else None

    def _alone(self, text: str) -> _At:
        """Return the beginning of a text of which no names are known."""
        checked = check("alone.hmp", MemoryFiles({"alone.hmp": text}))
        return _At(checked, 0, Positions(text, self._encoding), 0, ())

    def hover(self, params: types.HoverParams) -> types.Hover | None:
        """Return the documentation of the word at a position."""
        return self._hover(self._at(params), 0)

    def _hover(self, here: _At, moved: int) -> types.Hover | None:
        """Return it for a place, so many lines further down than where it was looked up."""
        said = hover(here.checked, here.source, here.offset, here.names)
        if said is None:
            return None
        span, text = said
        found = range_of(span, here.positions)
        for end in (found.start, found.end):
            end.line += moved
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text), found)

    def definition(self, params: types.DefinitionParams) -> list[types.Location]:
        """Return the place of a declaration."""
        here = self._at(params)
        return self._locations(here, lambda one: one.declares)

    def references(self, params: types.ReferenceParams) -> list[types.Location]:
        """Return all places of a symbol."""
        here = self._at(params)
        return self._locations(here, lambda one: params.context.include_declaration or not one.declares)

    def highlights(self, params: types.DocumentHighlightParams) -> list[types.DocumentHighlight]:
        """Return the places of a symbol in its document."""
        here = self._at(params)
        spans = [one.span for one in self._same(here) if one.span.source == here.source]
        return [types.DocumentHighlight(range_of(span, here.positions)) for span in spans]

    def prepare_rename(self, params: types.PrepareRenameParams) -> types.PrepareRenamePlaceholder | None:
        """Return the range of the name that would be changed."""
        here = self._at(params)
        if here.occurrence is None or not any(one.declares for one in self._same(here)):
            return None
        span = here.occurrence.span
        return types.PrepareRenamePlaceholder(range_of(span, here.positions), here.occurrence.symbol.name)

    def rename(self, params: types.RenameParams) -> types.WorkspaceEdit | None:
        """Return the edits that rename a symbol."""
        here = self._at(params)
        if here.occurrence is None:
            return None
        symbol_: Symbol = here.occurrence.symbol
        changes: dict[str, list[types.TextEdit]] = {}
        for checked in self.workspace.policies(here.checked.paths[here.source]):
            try:
                edits = rename(checked, symbol_, params.new_name, self.workspace)
            except RenameError as error:
                raise JsonRpcInvalidParams(str(error)) from error
            found = workspace_edit(edits, checked, self._texts(checked)).changes or {}
            for uri, listed in found.items():
                known = changes.setdefault(uri, [])
                known += [one for one in listed if one not in known]
        return types.WorkspaceEdit(changes=changes)

    def format(self, params: types.DocumentFormattingParams) -> list[types.TextEdit] | None:
        """Return the edits that format a document."""
        checked, source = self.workspace.policy(self._path(params.text_document.uri))
        positions = self._texts(checked)[checked.paths[source]]
        try:
            formatted = format_text(positions.text)
        except FormatError:
            return None  # there is a finding that says why
        whole = range_of(Span(source, 0, len(positions.text)), positions)
        return [types.TextEdit(whole, formatted)] if formatted != positions.text else []

    def actions(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """Return the quick fixes at a range."""
        path = self._path(params.text_document.uri)
        here = []
        for checked, found in self.workspace.findings(path):
            texts = self._texts(checked)
            shown = diagnostic(found, checked, texts)
            if _overlap(shown.range, params.range):
                here.append((checked, found, texts, shown))
        letters = sum(len(source.text) for source in here[0][0].sources) if here else 0
        tries = max(1, LETTERS_TRIED_MAX // max(1, letters))
        return [
            types.CodeAction(
                title=mend.title,
                kind=types.CodeActionKind.QuickFix,
                diagnostics=[shown],
                is_preferred=mend.preferred or None,
                edit=workspace_edit(mend.edits, checked, texts),
            )
            for checked, found, texts, shown in here[:tries]
            for mend in self._mends(checked, found, tries // len(here[:tries]))
        ]

    def _mends(self, checked: Checked, found: Diagnostic, tries: int) -> tuple[Mend, ...]:
        known, tried = self._mended.get(checked.paths[0], (None, {}))
        if known is not checked:
            tried = {}
            self._mended[checked.paths[0]] = checked, tried
        if found not in tried:
            tried[found] = tuple(mends(checked, found, self.workspace, tries))
        return tried[found]

    def hints(self, params: types.InlayHintParams) -> list[types.InlayHint]:
        """Return the inlay hints of a range."""
        checked, source = self.workspace.policy(self._path(params.text_document.uri))
        positions = self._texts(checked)[checked.paths[source]]
        listed = []
        for offset, text in hints(checked, source):
            line, character = positions.place(offset)
            if params.range.start.line <= line <= params.range.end.line:
                listed.append(types.InlayHint(types.Position(line, character), text))
        return listed

    def outline(self, params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
        """Return the outline of a document."""
        checked, source = self.workspace.policy(self._path(params.text_document.uri))
        positions = self._texts(checked)[checked.paths[source]]
        return [symbol(one, positions) for one in outline(checked, source)]

    # ---- places ----

    def _at(self, params: _Asked) -> _At:
        here = self._analyse(params.text_document.uri)
        offset = here.positions.offset(params.position.line, params.position.character)
        return attrs.evolve(here, offset=offset)

    def _analyse(self, uri: str) -> _At:
        """Return the beginning of a document, looked up."""
        checked, source = self.workspace.policy(self._path(uri))
        positions = self._texts(checked)[checked.paths[source]]
        if self._named is None or self._named[0] is not checked:
            self._named = checked, occurrences(checked)
        self.analysed[uri] = _At(checked, source, positions, 0, self._named[1])
        return self.analysed[uri]

    def _texts(self, checked: Checked) -> Mapping[str, Positions]:
        both = zip(checked.paths, checked.sources, strict=True)
        return {path: Positions(source.text, self._encoding) for path, source in both}

    @property
    def _encoding(self) -> str:
        agreed = self.server.workspace.position_encoding
        return str(getattr(agreed, "value", agreed))

    def _same(self, here: _At) -> list[Occurrence]:
        wanted = here.occurrence
        return [] if wanted is None else [one for one in here.names if one.symbol == wanted.symbol]

    def _locations(self, here: _At, wanted: Callable[[Occurrence], bool]) -> list[types.Location]:
        texts, paths = self._texts(here.checked), here.checked.paths
        return [
            types.Location(
                self._uris.get(paths[one.span.source], uri_of(paths[one.span.source])),
                range_of(one.span, texts[paths[one.span.source]]),
            )
            for one in self._same(here)
            if wanted(one)
        ]


def _overlap(one: types.Range, other: types.Range) -> bool:
    return one.start <= other.end and other.start <= one.end
