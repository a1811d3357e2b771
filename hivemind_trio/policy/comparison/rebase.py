"""A policy in the names of a later one, so that the two can be compared by what they say."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from hivemind_trio.policy.checker import check
from hivemind_trio.policy.compile.checked import Checked
from hivemind_trio.policy.compile.lowering import provider_api
from hivemind_trio.policy.inspect.symbols import Occurrence, occurrences
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
    found = occurrences(old)
    for one in found:
        name = renames.name(one.symbol.kind, one.symbol.name)
        if name != one.symbol.name:
            yield one.span, name
    yield from _accounts(old, found, renames)
    for table in old.declarations.by_kind.values():
        for declared in table.values():
            if declared.was is not None:  # its own renames are done, and may be taken back by the new policy
                args = declared.item.args
                word = args[args.index(declared.was) - 1]
                assert isinstance(word, Name)
                yield word.span.to(declared.was.span), ""
    if renames.of("provider"):
        yield from _dialects(old)


def _accounts(old: Checked, found: Iterable[Occurrence], renames: Renames) -> Iterator[tuple[Span, str]]:
    """Yield the edits of accounts, which have names within their provider."""
    declared = old.declarations.of("provider")
    given = {name: old.declarations.effective(one, "account")[0] for name, one in declared.items()}
    names = {
        provider: {one.value: _account(renames, provider, one.value) for one in accounts}
        for provider, accounts in given.items()
    }
    for one in found:
        if one.symbol.kind == "account":
            span, account = one.span, one.symbol.name
            within = [name for name, other in declared.items() if _is_in(span, other.item.span)]
            # Elsewhere, in tests, a name stands for accounts of all providers.
            now = {names[provider][account] for provider in within or names if account in names[provider]}
            if len(now) == 1 and now != {account}:
                yield span, now.pop()
    for setting in {id(one): one for accounts in given.values() for one in accounts}.values():
        if "was" in setting.options:
            word, was = setting.item.args[1:3]
            yield word.span.to(was.span), ""


def _is_in(span: Span, whole: Span) -> bool:
    return span.source == whole.source and whole.start <= span.start < whole.end


def _account(renames: Renames, provider: str, account: str) -> str:
    return renames.name("provider", f"{provider}.{account}").partition(".")[2]


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
