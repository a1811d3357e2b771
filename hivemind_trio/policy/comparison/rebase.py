"""A policy in the names of a later one, so that the two can be compared by what they say."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from hivemind_trio.policy.checker import check
from hivemind_trio.policy.compile.checked import Checked
from hivemind_trio.policy.compile.lowering import provider_api
from hivemind_trio.policy.inspect.symbols import occurrences
from hivemind_trio.policy.program.renames import Renames
from hivemind_trio.policy.source.files import MemoryFiles
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.syntax.ast import Name


def in_the_names_of(old: Checked, new: Checked) -> Checked:
    """Return the old policy as it would be written with the names that the new one gives to the same things.

    Both are without errors. It is checked anew where anything is called otherwise; every line stays where it is.
    """
    assert old.program is not None
    assert new.program is not None
    renames = Renames.between(old.program, new.program)
    if not renames:
        return old
    texts = [source.text for source in old.sources]
    # From the end, so that what stands before keeps its place.
    for span, written in sorted(_edits(old, renames), key=lambda edit: edit[0].start, reverse=True):
        text = texts[span.source]
        texts[span.source] = text[: span.start] + written + text[span.end :]
    files = MemoryFiles({posixpath.normpath(path): text for path, text in zip(old.paths, texts, strict=True)})
    renamed = check(old.paths[0], files)
    # Where a new name meant something else in the old policy, a `let` for instance, they are compared as they are.
    return renamed if renamed.program is not None else old


def _edits(old: Checked, renames: Renames) -> Iterator[tuple[Span, str]]:
    """Yield the edits."""
    for one in occurrences(old):
        name = renames.name(one.symbol.kind, one.symbol.name)
        if name != one.symbol.name:
            yield one.span, name
    for table in old.declarations.by_kind.values():
        for declared in table.values():
            if declared.was is not None:  # its own renames are done, and may be taken back by the new policy
                args = declared.item.args
                word = args[args.index(declared.was) - 1]
                assert isinstance(word, Name)
                yield word.span.to(declared.was.span), ""
    if renames.of("provider"):
        yield from _dialects(old)


def _dialects(old: Checked) -> Iterator[tuple[Span, str]]:
    """Yield the dialects of providers that are given by well-known names alone."""
    for declared in old.declarations.of("provider").values():
        api, block = provider_api(old.declarations, declared), declared.item.block
        if api is None or old.declarations.one(declared, "api") is not None:
            continue
        if block is None:
            end = declared.item.span.end
            yield Span(declared.item.span.source, end, end), f" {{ api {api} }}"
        else:
            begin = block.span.start + 1
            yield Span(block.span.source, begin, begin), f" api {api};"
