"""Outline of a file's declarations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import attrs

from hivemind_trio.policy import DECLARATIONS, Checked, Item, Let, Name, Naming, Span, String


@final
@attrs.frozen
class Outlined:
    """One declaration."""

    kind: str
    name: str
    span: Span
    name_span: Span
    detail: str = ""


def outline(checked: Checked, source: int) -> Iterator[Outlined]:
    """Yield the declarations of one source, in order; those that cannot be read are left out."""
    text = checked.sources[source].text
    for file in checked.files:
        for statement in file.statements if file.source == source else ():
            match statement:
                case Let(name=name, span=span):
                    yield Outlined("let", name.text, span, name.span)
                case Item(head=Name(text=kind), args=args, span=span, when=when) if kind in DECLARATIONS:
                    first = args[0] if args else None
                    detail = kind
                    if when is not None:
                        detail += f" when {' '.join(text[when.span.start : when.span.end].split())}"
                    if DECLARATIONS[kind].naming is not Naming.NOTHING and isinstance(first, (Name, String)):
                        shown = first.text if isinstance(first, Name) else first.value
                        yield Outlined(kind, shown or '""', span, first.span, detail)
                    elif kind not in ("hmp", "include"):
                        yield Outlined(kind, kind, span, statement.head.span, detail)
