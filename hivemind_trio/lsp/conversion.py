"""Our nouns as the protocol's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from lsprotocol import types

from hivemind_trio.editor import Completion, Edit, Outlined, Positions, Sort
from hivemind_trio.policy import Checked, Diagnostic, Severity, Span, masked

SEVERITIES: Final = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.INFO: types.DiagnosticSeverity.Information,
}
_UNUSED: Final = frozenset({"HM303", "HM308"})
"""Tag of declarations that could be deleted: editors grey them."""

_PROPOSED: Final[Mapping[Sort, types.CompletionItemKind]] = {
    Sort.DECLARATION: types.CompletionItemKind.Class,
    Sort.SETTING: types.CompletionItemKind.Property,
    Sort.OPTION: types.CompletionItemKind.Keyword,
    Sort.FIELD: types.CompletionItemKind.Field,
    Sort.NAME: types.CompletionItemKind.Reference,
    Sort.CHOICE: types.CompletionItemKind.EnumMember,
    Sort.VALUE: types.CompletionItemKind.Value,
    Sort.WORD: types.CompletionItemKind.Keyword,
}

_OUTLINED: Final[Mapping[str, types.SymbolKind]] = {
    "provider": types.SymbolKind.Interface,
    "model": types.SymbolKind.Struct,
    "agent": types.SymbolKind.Class,
    "team": types.SymbolKind.Namespace,
    "lane": types.SymbolKind.Array,
    "rule": types.SymbolKind.Function,
    "test": types.SymbolKind.Event,
    "let": types.SymbolKind.Constant,
}
"""Every other kind of declaration is an object."""


def path_of(uri: str) -> str:
    """Return the path of a document; one that is on no disk is named by its URI."""
    parts = urlsplit(uri)
    return unquote(parts.path, errors="surrogateescape") if parts.scheme == "file" else uri


def uri_of(path: str) -> str:
    """Return the other way."""
    return Path(path).as_uri() if path.startswith("/") else path


def range_of(span: Span, positions: Positions) -> types.Range:
    """Return a span of that text."""
    (line, character), (end_line, end_character) = positions.place(span.start), positions.place(span.end)
    return types.Range(types.Position(line, character), types.Position(end_line, end_character))


def diagnostic(found: Diagnostic, checked: Checked, texts: Mapping[str, Positions]) -> types.Diagnostic:
    """One finding; no key is shown in it.

    Args:
        texts: Path -> its positions, of every source of the policy.
    """

    def where(span: Span) -> types.Location:
        path = checked.paths[span.source]
        return types.Location(uri_of(path), range_of(span, texts[path]))

    message = masked("\n".join(part for part in (found.message, found.note, found.help) if part))
    related = [types.DiagnosticRelatedInformation(where(label.span), masked(label.text)) for label in found.labels]
    return types.Diagnostic(
        range=where(found.span).range,
        message=message,
        severity=SEVERITIES[found.severity],
        code=found.code,
        source="hivemind-trio",
        tags=[types.DiagnosticTag.Unnecessary] if found.code in _UNUSED else None,
        related_information=related or None,
    )


def completion_items(completion: Completion, positions: Positions) -> list[types.CompletionItem]:
    """Return the proposals in our order."""
    replaced = range_of(Span(0, completion.start, completion.end), positions)
    return [
        types.CompletionItem(
            label=one.text,
            kind=_PROPOSED[one.sort],
            detail=one.detail or None,
            documentation=types.MarkupContent(types.MarkupKind.Markdown, one.doc) if one.doc else None,
            sort_text=f"{number:04}",
            text_edit=types.TextEdit(replaced, one.text),
        )
        for number, one in enumerate(completion.proposals)
    ]


def symbol(one: Outlined, positions: Positions) -> types.DocumentSymbol:
    """One line of the outline."""
    return types.DocumentSymbol(
        name=one.name,
        detail=one.detail,
        kind=_OUTLINED.get(one.kind, types.SymbolKind.Object),
        range=range_of(one.span, positions),
        selection_range=range_of(one.name_span, positions),
    )


def workspace_edit(edits: Iterable[Edit], checked: Checked, texts: Mapping[str, Positions]) -> types.WorkspaceEdit:
    """Edits of a policy's files."""
    changes: dict[str, list[types.TextEdit]] = {}
    for edit in edits:
        path = checked.paths[edit.span.source]
        changes.setdefault(uri_of(path), []).append(types.TextEdit(range_of(edit.span, texts[path]), edit.text))
    return types.WorkspaceEdit(changes=changes)
