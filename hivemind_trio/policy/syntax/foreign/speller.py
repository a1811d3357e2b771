"""Cursor that readers of slips share."""

from __future__ import annotations

import re
from typing import Final, final

import attrs

from hivemind_trio.policy.diagnostics.diagnostic import Diagnostic, Fix, Severity
from hivemind_trio.policy.source.edits import Edit
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.syntax.lexeme import Lexeme
from hivemind_trio.policy.syntax.lexer import CONTINUES_AFTER, CONTINUES_BEFORE, ENDS_BRACKETS, words

_CLOSES: Final = {"RBRACE": "LBRACE", "RSQB": "LSQB", "RPAR": "LPAR"}
OPERANDS: Final = frozenset({"NAME", "QTY", "STRING", "CLOCK"})
WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
BARE: Final = re.compile(r"[^\s;,{}\[\]()\"#]+")


@final
@attrs.define(eq=False)
class Speller:
    """Cursor over a text with slips: the lexemes still to be read, those put in their place, and the reports."""

    text: str
    pieces: list[Lexeme]
    """Lexemes still to be read, from `at` on; a text whose end was found elsewhere puts its rest back here."""
    at: int = attrs.field(init=False, default=0)
    out: list[Lexeme] = attrs.field(init=False, factory=list)
    found: list[Diagnostic] = attrs.field(init=False, factory=list)
    doubtful: list[Span] = attrs.field(init=False, factory=list)
    """Parts of the text that may have been meant otherwise."""
    opened: list[Lexeme] = attrs.field(init=False, factory=list)
    """Brackets that are open in `out`."""
    begin: int = attrs.field(init=False, default=0)
    """Index in `out` at which the current statement begins."""
    in_condition: bool = attrs.field(init=False, default=False)
    """The statement has come to a condition, or to the value of a `let`."""
    block_ends: list[int] = attrs.field(init=False, factory=list)
    """Offsets at which a block ends that was written by indentation."""
    lacks_a_brace: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        types = [one.type for one in self.pieces]
        self.lacks_a_brace = types.count("LBRACE") > types.count("RBRACE")

    def take(self, piece: Lexeme) -> None:
        """Put this lexeme, which is the current one or stands for it, and go on."""
        self.at += 1
        self.push(piece)

    def put(self, type_: str, text: str, span: Span) -> None:
        """Append a lexeme of this type, with the text that was meant at this part of the policy."""
        self.push(Lexeme(type_, text, span))

    def push(self, piece: Lexeme) -> None:
        """Append a lexeme, and follow where in a statement it is."""
        if piece.type in ENDS_BRACKETS:
            while self.opened and self.opened[-1].type != "LBRACE":
                self.opened.pop()
        if piece.type in ("LBRACE", "LSQB", "LPAR"):
            self.opened.append(piece)
        elif piece.type in _CLOSES and self.opened and self.opened[-1].type == _CLOSES[piece.type]:
            self.opened.pop()
        self.out.append(piece)
        if piece.type in ("LET", "EXPECT"):
            self.begin, self.in_condition = len(self.out) - 1, False
        if piece.type in ("LBRACE", "RBRACE") or (piece.type == "_NL" and self._separates(piece)):
            self.begin, self.in_condition = len(self.out), False
        elif piece.type in ("WHEN", "EXPECT", "EQUAL"):
            self.in_condition = True

    def _separates(self, piece: Lexeme) -> bool:
        if piece.text == ";":
            return True
        before = next((one for one in reversed(self.out) if one.type != "_NL"), None)
        after = next((one for one in self.pieces[self.at :] if one.type != "_NL"), None)
        if before is None or after is None:
            return True
        goes_on = before.type in CONTINUES_AFTER or after.type in CONTINUES_BEFORE
        return not self.in_brackets() and not goes_on and not (self.in_condition and self._joins(after))

    def _joins(self, sign: Lexeme) -> bool:
        """Return True if a line that begins with this sign goes on with the condition of the line before."""
        behind = next((one for one in self.pieces[self.at :] if one.span.start >= sign.span.end), None)
        return sign.text in ("&", "|") and behind is not None and behind.type not in ("LBRACE", "_NL")

    def in_brackets(self) -> bool:
        """Return True within `(` or `[`."""
        return bool(self.opened) and self.opened[-1].type != "LBRACE"

    def at_start(self) -> bool:
        """Return True where a statement begins."""
        return len(self.out) == self.begin

    @property
    def last(self) -> Lexeme | None:
        """The lexeme before the current one, on any line but within the statement."""
        return self.out[-1] if len(self.out) > self.begin else None

    def ahead(self, by: int = 1) -> Lexeme | None:
        """Return the lexeme that many places behind the current one; None at the end."""
        return self.pieces[self.at + by] if self.at + by < len(self.pieces) else None

    def skip_to(self, end: int) -> None:
        """Drop what is left of the text before an offset; a lexeme that goes beyond is cut into its letters' rest."""
        while self.at < len(self.pieces) and self.pieces[self.at].span.end <= end:
            self.at += 1
        if self.at < len(self.pieces) and self.pieces[self.at].span.start < end:
            cut = self.pieces[self.at]
            rest = _lexed(self.text, end, cut.span.end, cut.span.source) if self.text[end] != "\r" else []
            self.pieces[self.at : self.at + 1] = rest

    def relex(self, start: int, source: int) -> None:
        """Read the rest of a line anew: a text ends elsewhere than was thought."""
        end = self.line_end(start)
        self.skip_to(end)
        self.pieces[self.at : self.at] = _lexed(self.text, start, end, source)

    def line_end(self, offset: int) -> int:
        """Return the offset at which the line ends, before its carriage return."""
        end = self.text.find("\n", offset)
        end = len(self.text) if end < 0 else end
        return end - (end > offset and self.text[end - 1] == "\r")

    def is_blank(self, offset: int) -> bool:
        """Return True at white space and beyond the text."""
        return not 0 <= offset < len(self.text) or self.text[offset].isspace()

    def padded(self, word: str, span: Span) -> str:
        """Return a word in the place of a sign, which needs no blanks around it."""
        before = "" if self.is_blank(span.start - 1) or self.text[span.start - 1] in "(!" else " "
        return before + word + ("" if self.is_blank(span.end) else " ")

    def written(self, piece: Lexeme) -> str:
        """Return the text of a lexeme as the policy has it."""
        return self.text[piece.span.start : piece.span.end]

    def gap(self, span: Span) -> str:
        """Return the text between two words once a sign between them is removed."""
        return "" if self.is_blank(span.start - 1) or self.is_blank(span.end) else " "

    def removed(self, span: Span) -> Fix:
        """Return the fix that removes a sign, and one of the blanks if it has them on both sides."""
        both = span.start and self.text[span.start - 1] == " " and self.text[span.end : span.end + 1] == " "
        end = span.end + 1 if both else span.end
        return Fix((Edit(Span(span.source, span.start, end), "" if both else self.gap(span)),))

    def report(
        self,
        span: Span,
        message: str,
        help_: str = "",
        replacement: str | None = None,
        *,
        code: str = "HM001",
        note: str = "",
        fix: Fix | None = None,
        is_safe: bool = True,
    ) -> None:
        """Report a slip, with the replacement of its span or with another fix."""
        self.found.append(
            Diagnostic(
                code=code,
                severity=Severity.ERROR,
                message=message,
                span=span,
                note=note,
                help=help_,
                fix=fix or Fix.replacing(span, replacement, is_safe=is_safe),
            )
        )

    def report_foreign(self, span: Span, help_: str, replacement: str | None = None, *, is_safe: bool = True) -> None:
        """Report that the text of a span is not in the language."""
        written = self.text[span.start : span.end]
        self.report(span, f"`{written}` is not in the language", help_, replacement, is_safe=is_safe)

    def span_of(self, start: int, end: int, like: Lexeme) -> Span:
        """Return a part of the file that a lexeme is of."""
        return Span(like.span.source, start, end)


def _lexed(text: str, start: int, end: int, source: int) -> list[Lexeme]:
    """Return the lexemes of a part of the text."""
    return [
        Lexeme(one.type, one.text, Span(source, one.span.start + start, one.span.end + start))
        for one in words(text[start:end], source)
    ]


def call_pieces(function: str, name: str) -> tuple[tuple[str, str], ...]:
    """Return the terminals and texts of `function(name)`."""
    return ("NAME", function), ("LPAR", "("), ("NAME", name), ("RPAR", ")")
