"""Text to lexemes. Total: every text lexes, and the lexemes' texts put together are the text again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hivemind_trio.policy.diagnostics.collector import ProgressListener, untold
from hivemind_trio.policy.source.span import Span

from .lexeme import Lexeme

TOLD_EVERY: Final = 1_000
"""Words between two reports of progress: some milliseconds."""

TRIVIA: Final = frozenset({"WS", "COMMENT"})

CONTINUES_AFTER: Final = frozenset({"CMP", "OR", "AND", "NOT", "IN", "COMMA", "WHEN", "EQUAL", "_DOTDOT", "SLASH"})
"""A newline after one of these separates nothing."""
CONTINUES_BEFORE: Final = frozenset({"OR", "AND", "IN", "WHEN", "CMP", "_DOTDOT", "SLASH", "LBRACE", "RBRACE"})
"""Nor does one before these."""

_OPENS: Final = frozenset({"LPAR", "LSQB"})
_CLOSES: Final = frozenset({"RPAR", "RSQB"})
ENDS_BRACKETS: Final = frozenset({"LBRACE", "RBRACE", "LET", "EXPECT"})
"""Whatever bracket is open, it ends here: one missing `]` must not eat the file."""


def lexemes(text: str, source: int) -> list[Lexeme]:
    """Every piece of the text in order, white space and comments included."""
    from .grammar import pieces

    return [Lexeme(name, value, Span(source, at, at + len(value))) for name, value, at in pieces(text)]


def words(text: str, source: int, progress: ProgressListener = untold) -> list[Lexeme]:
    """Return the same without white space and comments."""
    from .grammar import pieces

    found: list[Lexeme] = []
    for name, value, at in pieces(text):
        if name not in TRIVIA:
            if len(found) % TOLD_EVERY == 0:
                progress("dividing into words", at, len(text))
            found.append(Lexeme(name, value, Span(source, at, at + len(value))))
    return found


def significant(lexemes: Iterable[Lexeme]) -> Iterator[Lexeme]:
    """Yield the lexemes of the parser: no trivia, and only newlines that separate two statements.

    A newline separates unless it stands inside brackets, or where a statement plainly goes on; `;` always does.
    A bracket that nothing closes ends where a line begins with a word and has no comma before it.
    """
    pieces = [lexeme for lexeme in lexemes if lexeme.type not in TRIVIA]
    closed = _closed(pieces)
    previous: Lexeme | None = None
    separator: Lexeme | None = None
    brackets: list[bool] = []  # of those that are open, whether they are closed further on
    for index, lexeme in enumerate(pieces):
        if lexeme.type == "_NL":
            if separator is None or separator.text != ";":
                separator = lexeme
            continue
        if lexeme.type in ENDS_BRACKETS:
            brackets.clear()
        if separator is not None and previous is not None:
            if (
                brackets
                and not brackets[-1]
                and lexeme.type == "NAME"
                and previous.type not in _OPENS | CONTINUES_AFTER
            ):
                brackets.clear()
            if _separates(separator, previous, lexeme, bool(brackets)):
                yield separator
        separator = None
        if lexeme.type in _OPENS:
            brackets.append(index in closed)
        elif lexeme.type in _CLOSES and brackets:
            brackets.pop()
        yield lexeme
        previous = lexeme


def _closed(words: Sequence[Lexeme]) -> set[int]:
    """Return the indices of brackets that are closed."""
    opened: list[int] = []
    closed: set[int] = set()
    for index, lexeme in enumerate(words):
        if lexeme.type in ENDS_BRACKETS:
            opened.clear()
        elif lexeme.type in _OPENS:
            opened.append(index)
        elif lexeme.type in _CLOSES and opened:
            closed.add(opened.pop())
    return closed


def _separates(separator: Lexeme, previous: Lexeme, following: Lexeme, in_brackets: bool) -> bool:
    if previous.type == "LBRACE":
        return False  # an empty statement is no statement
    if separator.text == ";":
        return True
    return not in_brackets and previous.type not in CONTINUES_AFTER and following.type not in CONTINUES_BEFORE
