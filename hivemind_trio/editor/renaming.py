"""A name changed wherever it stands."""

from __future__ import annotations

import re
from typing import Final

import attrs

from hivemind_trio.policy import Checked, Edit, Files, Occurrence, Symbol, amended, made_worse, occurrences

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

SYNTAX: Final = frozenset({"HM001", "HM002", "HM003", "HM004", "HM005", "HM007", "HM008", "HM009"})
"""Errors beside which a part of the policy was not read."""


class RenameError(ValueError):
    """The name cannot be changed so; the message says why."""


def rename(checked: Checked, symbol: Symbol, name: str, files: Files) -> tuple[Edit, ...]:
    """Return the edits of a rename.

    Raises:
        RenameError: It is no name, a part of the policy cannot be read, or something else would be meant somewhere.
    """
    if not _NAME.fullmatch(name):
        raise RenameError(f"`{name}` is no name: letters, digits, `-` and `_`, with a letter first")
    for one in checked.diagnostics:
        if one.code in SYNTAX:
            source = checked.sources[one.span.source]
            raise RenameError(
                f"mend the syntax error in line {source.line(one.span.start) + 1} of {source.name} first, or a use of "
                f"`{symbol.name}` may be missed: {one.message}"
            )
    before = occurrences(checked)
    if not any(one.symbol == symbol and one.declares for one in before):
        raise RenameError(f"`{symbol.name}` is declared nowhere")
    edits = tuple(Edit(one.span, name) for one in before if one.symbol == symbol)
    after = amended(checked, edits, files)
    worse = made_worse(checked, after)
    if worse is not None:
        raise RenameError(f"with `{name}` there would be an error: {worse.message}")
    renamed = attrs.evolve(symbol, name=name)
    if [_meant(one, symbol, renamed) for one in before] != [_meant(one, symbol, renamed) for one in occurrences(after)]:
        raise RenameError(f"`{name}` means something else somewhere in this policy")
    return edits


def _meant(one: Occurrence, old: Symbol, new: Symbol) -> tuple[str, str, bool]:
    """Return the meaning of a place, the same before and after, wherever it has moved to."""
    meant = new if one.symbol == old else one.symbol
    return meant.kind, meant.name, one.declares
