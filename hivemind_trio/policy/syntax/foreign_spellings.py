"""Spellings of other languages, each reported and read as the one of this language.

A text with a syntax error is read again through this pass: each slip becomes the lexemes that it stands for, so that
it hides nothing else of its statement. Each report carries the edit that mends it, where one edit does.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, final

import attrs

from hivemind_trio.model.dates import WEEKDAYS
from hivemind_trio.policy.diagnostics.diagnostic import Diagnostic, Fix, Severity
from hivemind_trio.policy.schema import DECLARATIONS, LIMITS, TEST_STATEMENTS, Type
from hivemind_trio.policy.source.edits import Edit
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.source.string_literals import quote

from .lexeme import Lexeme
from .lexer import CONTINUES_AFTER, CONTINUES_BEFORE, ENDS_BRACKETS, words

_OPERATORS: Final = {
    "&&": "and",
    "||": "or",
    "&": "and",
    "|": "or",
    "!": "not",
    "===": "==",
    "!==": "!=",
    "<>": "!=",
    "=~": "~",
    "~=": "~",
    "=>": ">=",
    "=<": "<=",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "…": "..",
    "...": "..",
    ":=": "=",
}
"""Operators of other languages -> the one of this language."""

_WORDS: Final = {
    "is": "==",
    "equals": "==",
    "eq": "==",
    "ne": "!=",
    "matches": "~",
    "like": "~",
    "contains": "*{}*",
    "includes": "*{}*",
    "startswith": "{}*",
    "endswith": "*{}",
}
"""Words that are operators elsewhere -> the operator of this language, or the glob for the text behind the word."""

_THROUGH: Final = ("to", "until", "till", "through", "thru")
"""Words between the ends of a range."""

_TYPES: Final = {"and": "AND", "or": "OR", "not": "NOT", "..": "_DOTDOT", "=": "EQUAL"}
"""Terminals of operators that are no comparison."""

_QUOTES: Final = {"'": "'", "`": "`", "“": '”“"', "”": "”", "„": "“”", "‘": "’", "’": "’", "«": "»", "»": "«"}
"""Other quotes -> the marks that may close a text that they open."""

CONDITIONALS: Final = frozenset({"if", "else", "elif", "elsif"})
"""Words that begin a statement in other languages; in this one they could be the name of a setting."""

_ARROWS: Final = "→⇒⟶➔"
_DASHES: Final = "-–—−"
_FLIPPED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_JOINS: Final = frozenset({"EQUAL", "CMP", "WHEN", "EXPECT", "AND", "OR", "NOT", "IN", "COMMA", "LPAR", "LSQB"})
_OPERANDS: Final = frozenset({"NAME", "QTY", "STRING", "CLOCK"})
_CLOSES: Final = {"RBRACE": "LBRACE", "RSQB": "LSQB", "RPAR": "LPAR"}
_CLOSED_BY: Final = {"]": "LSQB", ")": "LPAR", "}": "LBRACE"}

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_BARE: Final = re.compile(r"[^\s;,{}\[\]()\"#]+")
_VARIABLE: Final = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_CLOSED_TEXT: Final = re.compile(r'((?:[^"\\]|\\["\\])*)"')
_PATTERN: Final = re.compile(r"/([^/\s][^/\n]*)/[gimsuxy]{0,3}(?![^\s;,{}\[\]()])")
_GLOB: Final = re.compile(r"[^\s;,{}\[\]()\"#=~<>!:]*")
_CLOSERS: Final = re.compile(r"[\])};,\s]*\Z")
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?![0-9A-Za-z_-])")
_CLOCK: Final = re.compile(r"([0-9]{1,2}):([0-9])(?![0-9A-Za-z_:])")
_ADDRESS: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9.])")
_CONTROLS: Final = {"\r": "a carriage return", "\u2028": "a line separator", "\u0085": "a next-line character"}


def respelled(text: str, pieces: Sequence[Lexeme]) -> tuple[list[Lexeme], list[Diagnostic], tuple[Span, ...]]:
    """Replace every slip by what it stands for; report each. Last, the parts that may have been meant otherwise.

    Args:
        pieces: Of a text with a syntax error, without white space and comments.
    """
    speller = _Speller(text, list(pieces))
    speller.run()
    return speller.out, speller.found, tuple(speller.doubtful)


@final
@attrs.define(eq=False)
class _Speller:
    text: str
    pieces: list[Lexeme]
    """Lexemes still to be read, from `at` on; a text whose end was found elsewhere puts its rest back here."""
    at: int = attrs.field(init=False, default=0)
    out: list[Lexeme] = attrs.field(init=False, factory=list)
    found: list[Diagnostic] = attrs.field(init=False, factory=list)
    doubtful: list[Span] = attrs.field(init=False, factory=list)
    _open: list[Lexeme] = attrs.field(init=False, factory=list)
    _begin: int = attrs.field(init=False, default=0)
    """Index in `out` at which the current statement begins."""
    _asked: bool = attrs.field(init=False, default=False)
    """The statement has come to a condition, or to the value of a `let`."""
    _ends: list[int] = attrs.field(init=False, factory=list)
    """Offsets at which a block ends that was written by indentation."""
    _lacks_a_brace: bool = attrs.field(init=False, default=False)

    def run(self) -> None:
        types = [one.type for one in self.pieces]
        self._lacks_a_brace = types.count("LBRACE") > types.count("RBRACE")
        while self.at < len(self.pieces):
            piece = self.pieces[self.at]
            while self._ends and piece.span.start >= self._ends[-1]:
                self._put("_NL", "\n", piece.span)
                self._put("RBRACE", "}", piece.span)
                self._ends.pop()
            if not any(read(self, piece) for read in _READERS.get(piece.type, ())):
                self._take(piece)
        end = Span(self.out[-1].span.source, len(self.text), len(self.text)) if self.out else None
        while self._ends and end is not None:
            self._put("RBRACE", "}", end)
            self._ends.pop()

    # ---- reading on ----

    def _take(self, piece: Lexeme) -> None:
        self.at += 1
        self._push(piece)

    def _put(self, type_: str, text: str, span: Span) -> None:
        self._push(Lexeme(type_, text, span))

    def _push(self, piece: Lexeme) -> None:
        """Append a lexeme, and follow where in a statement it is."""
        if piece.type in ENDS_BRACKETS:
            while self._open and self._open[-1].type != "LBRACE":
                self._open.pop()
        if piece.type in ("LBRACE", "LSQB", "LPAR"):
            self._open.append(piece)
        elif piece.type in _CLOSES and self._open and self._open[-1].type == _CLOSES[piece.type]:
            self._open.pop()
        self.out.append(piece)
        if piece.type in ("LET", "EXPECT"):
            self._begin, self._asked = len(self.out) - 1, False
        if piece.type in ("LBRACE", "RBRACE") or (piece.type == "_NL" and self._separates(piece)):
            self._begin, self._asked = len(self.out), False
        elif piece.type in ("WHEN", "EXPECT", "EQUAL"):
            self._asked = True

    def _separates(self, piece: Lexeme) -> bool:
        if piece.text == ";":
            return True
        before = next((one for one in reversed(self.out) if one.type != "_NL"), None)
        after = next((one for one in self.pieces[self.at :] if one.type != "_NL"), None)
        if before is None or after is None:
            return True
        goes_on = before.type in CONTINUES_AFTER or after.type in CONTINUES_BEFORE
        return not self._in_brackets() and not goes_on and not (self._asked and self._joins(after))

    def _joins(self, sign: Lexeme) -> bool:
        """Return True if a line that begins with this sign goes on with the condition of the line before."""
        behind = next((one for one in self.pieces[self.at :] if one.span.start >= sign.span.end), None)
        return sign.text in ("&", "|") and behind is not None and behind.type not in ("LBRACE", "_NL")

    def _in_brackets(self) -> bool:
        return bool(self._open) and self._open[-1].type != "LBRACE"

    def _starts(self) -> bool:
        """Return True where a statement begins."""
        return len(self.out) == self._begin

    @property
    def _last(self) -> Lexeme | None:
        """The lexeme before, on any line but not beyond the statement's begin."""
        return self.out[-1] if len(self.out) > self._begin else None

    def _next(self, by: int = 1) -> Lexeme | None:
        return self.pieces[self.at + by] if self.at + by < len(self.pieces) else None

    def _skip_to(self, end: int) -> None:
        """Drop what is left of the text before an offset; a lexeme that goes beyond is cut into its letters' rest."""
        while self.at < len(self.pieces) and self.pieces[self.at].span.end <= end:
            self.at += 1
        if self.at < len(self.pieces) and self.pieces[self.at].span.start < end:
            cut = self.pieces[self.at]
            rest = _lexed(self.text, end, cut.span.end, cut.span.source) if self.text[end] != "\r" else []
            self.pieces[self.at : self.at + 1] = rest

    def _relex(self, start: int, source: int) -> None:
        """Read the rest of a line anew: a text ends elsewhere than was thought."""
        end = self._line_end(start)
        self._skip_to(end)
        self.pieces[self.at : self.at] = _lexed(self.text, start, end, source)

    def _line_end(self, offset: int) -> int:
        end = self.text.find("\n", offset)
        end = len(self.text) if end < 0 else end
        return end - (end > offset and self.text[end - 1] == "\r")

    def _is_blank(self, offset: int) -> bool:
        return not 0 <= offset < len(self.text) or self.text[offset].isspace()

    def _padded(self, word: str, span: Span) -> str:
        """Return a word in the place of a sign, which needs no blanks around it."""
        before = "" if self._is_blank(span.start - 1) or self.text[span.start - 1] in "(!" else " "
        return before + word + ("" if self._is_blank(span.end) else " ")

    def _say(
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

    def _foreign(self, span: Span, help_: str, replacement: str | None = None, *, is_safe: bool = True) -> None:
        written = self.text[span.start : span.end]
        self._say(span, f"`{written}` is not in the language", help_, replacement, is_safe=is_safe)

    def _of(self, start: int, end: int, like: Lexeme) -> Span:
        return Span(like.span.source, start, end)

    # ---- white space and comments ----

    def _space(self, piece: Lexeme) -> bool:
        """Read a blank other than space and tab, or an invisible character."""
        letter = piece.text
        if unicodedata.category(letter) not in ("Zs", "Zl", "Zp", "Cf", "Cc"):
            return False
        end = self.at
        while end < len(self.pieces) and self.pieces[end].text == letter and self._touch(end):
            end += 1
        span = piece.span.to(self.pieces[end - 1].span)
        name = _CONTROLS.get(letter) or f"a {unicodedata.name(letter, 'control character').lower()}"
        between_words = not self._is_blank(span.start - 1) and not self._is_blank(span.end)
        put = " " if between_words or unicodedata.category(letter) == "Zs" else ""
        message = f"{name} (U+{ord(letter):04X}) is not in the language"
        self._say(span, message, "write a space" if put else "delete it", put)
        self.at = end
        return True

    def _touch(self, index: int) -> bool:
        """Return True if a piece directly follows the one before it, or is the current one."""
        return index == self.at or self.pieces[index - 1].span.end == self.pieces[index].span.start

    def _comment(self, piece: Lexeme) -> bool:
        """`// ...`, `-- ...` and `/* ... */`."""
        start = piece.span.start
        mark = self.text[start : start + 2]
        if mark == "/*":
            return self._long_comment(piece)
        if mark != "//" and not (mark == "--" and (self._starts() or self._is_blank(start + 2))):
            return False
        span = self._of(start, start + 2, piece)
        self._say(span, f"`{mark}` is not in the language", "comments begin with `#`: write `#`", "#")
        self._skip_to(self._line_end(start))
        return True

    def _long_comment(self, piece: Lexeme) -> bool:
        start = piece.span.start
        close = self.text.find("*/", start + 2)
        end = len(self.text) if close < 0 else close + 2
        body = self.text[start + 2 : end - 2 if close >= 0 else end]
        lines = [line.strip().removeprefix("*").strip() for line in body.split("\n")]
        put = "\n".join(f"# {line}".rstrip() for line in lines)
        if self.text[end : self._line_end(end)].strip():
            put += "\n"  # a statement stands behind it
        span = self._of(start, end if close >= 0 else start + 2, piece)
        message = "`/*` is not in the language"
        self._say(span, message, "a comment begins with `#`, on each of its lines", put if close >= 0 else None)
        self._skip_to(end)
        return True

    # ---- texts ----

    def _quoted(self, piece: Lexeme) -> bool:
        """Read a text in other quotes."""
        if piece.text not in _QUOTES:
            return False
        start = piece.span.end
        line = self.text[start : self._line_end(start)]
        length = next((at for at, letter in enumerate(line) if letter in _QUOTES[piece.text]), -1)
        end = length + 1
        span, put = self._of(piece.span.start, start + end, piece), quote(line[:length])
        if length < 0:  # begun with one mark, and ended with this language's or not at all
            closed = _CLOSED_TEXT.match(line)
            inner = closed[1] if closed is not None else line[: self._text_end(line)]
            span = self._of(piece.span.start, start + (closed.end() if closed is not None else len(inner)), piece)
            put = f'"{inner}"' if closed is not None else quote(inner)
        self._say(span, f"`{piece.text}` is not in the language", f"write `{put}`", put)
        self._put("STRING", put, span)
        self._relex(span.end, span.source)
        return True

    def _unended(self, piece: Lexeme) -> bool:
        """Read a text without its last quote, or without its first one."""
        last = self._last
        start = piece.span.start
        inner = self.text[start + 1 : self._line_end(start)]
        if last is not None and last.type == "NAME" and last.span.end == start and _CLOSERS.match(inner):
            self.out.pop()
            return self._ended(last.span.start, last.span.start, start, piece, "begun")
        return self._ended(start, start + 1, start + 1 + self._text_end(inner), piece, "closed")

    def _text_end(self, inner: str) -> int:
        """Return the end of a text that takes the rest of its line: before the brackets that close it."""
        comment = re.search(r"\s+#(?=\s)", inner)
        inner = (inner[: comment.start()] if comment is not None else inner).rstrip()
        if inner.endswith("{") and (head := inner[:-1].rstrip()):
            return len(head)
        run = re.search(r"[\])};,\s]*\Z", inner)
        assert run is not None
        waiting = [one.type for one in reversed(self._open)]
        for start in range(run.start(), len(inner) + 1):
            closed = [_CLOSED_BY[letter] for letter in inner[start:] if letter in _CLOSED_BY]
            if closed == waiting[: len(closed)]:
                return len(inner[:start].rstrip())
        return len(inner)

    def _swallowing(self, piece: Lexeme) -> bool:
        """Read a text without its last quote that another one on its line has closed: `["gpt-*, "o3*"]`."""
        after = self._next()
        if after is None or after.span.start != piece.span.end or after.type not in ("NAME", "QTY", "ERROR", "CLOCK"):
            return False
        rest = self.pieces[self.at + 1 :]
        line = next((number for number, one in enumerate(rest) if one.type == "_NL" and one.text != ";"), len(rest))
        inner = piece.text[1:-1]
        kept = len(inner) - len(_trailing(inner))
        if not kept or kept == len(inner) or not any(one.type == "BADSTRING" for one in rest[:line]):
            return False
        start = piece.span.start
        return self._ended(start, start + 1, start + 1 + kept, piece, "closed")

    def _ended(self, start: int, inner: int, end: int, piece: Lexeme, what: str) -> bool:
        """Report a text that lacks a quote, and read on behind it."""
        kept = self.text[inner:end]
        escapes = (len(kept) - len(kept.rstrip("\\"))) % 2  # a backslash at the end would take the quote with it
        put = f'"{kept[: len(kept) - escapes]}"'
        mark_end = end if what == "closed" else piece.span.start + 1
        span = self._of(start, mark_end, piece)
        self._say(
            span, f"missing {'closing' if what == 'closed' else 'opening'} quote", f"write `{put}`", put, code="HM002"
        )
        self._put("STRING", put, span)
        self._relex(mark_end, piece.span.source)
        return True

    def _url(self, piece: Lexeme) -> bool:
        """Quote the URL of `base https://host`."""
        last = self._last
        if last is None or last.type != "NAME" or last.text not in ("http", "https"):
            return False
        if last.span.end != piece.span.start or self.text[piece.span.start : piece.span.start + 3] != "://":
            return False
        self.out.pop()
        return self._in_quotes(last.span.start, piece)

    def _address(self, piece: Lexeme) -> bool:
        """Quote `0.0.0.0:9000`, `10.0.0.0/8`, and the address of `listen localhost:9000` and `listen :9000`."""
        last, after = self._last, self._next()
        if last is None:
            return False
        begin = last.span.start if last.span.end == piece.span.start else piece.span.start
        if last.type == "QTY" and _ADDRESS.match(self.text, begin):
            self.out.pop()
            return self._in_quotes(begin, piece)
        is_port = after is not None and after.span.start == piece.span.end and after.text.isdecimal()
        if piece.text != ":" or not is_port or self.out[self._begin].text != "listen":
            return False
        if begin == last.span.start and last.text != "listen":
            self.out.pop()
            return self._in_quotes(begin, piece)
        assert after is not None
        span, put = piece.span.to(after.span), f'"127.0.0.1:{after.text}"'
        self._say(span, "an address is a quoted text", f"write `{put}`", put, code="HM003")
        self.at += 2
        self._put("STRING", put, span)
        return True

    def _in_quotes(self, start: int, piece: Lexeme) -> bool:
        found = _BARE.match(self.text, start)
        assert found is not None
        span, put = self._of(start, found.end(), piece), f'"{found[0]}"'
        self._say(span, f"`{found[0]}` needs quotes", f"write `{put}`", put)
        self._skip_to(found.end())
        self._put("STRING", put, span)
        return True

    def _glob(self, piece: Lexeme) -> bool:
        """Quote the glob of `serves gpt-*`."""
        last = self._last
        start = piece.span.start
        touches = last is not None and last.type in ("NAME", "QTY") and last.span.end == start
        found = _GLOB.match(self.text, start)
        assert found is not None
        if piece.text != "*" or (not touches and found[0] == "*" and not self._wants_text()):
            return False
        if touches and last is not None:
            if len(self.out) - 1 == self._begin:
                return False
            start = last.span.start
            self.out.pop()
        end = found.end()
        if self.text[end : end + 1] == '"' and _CLOSERS.match(self.text[end + 1 : self._line_end(end)]):
            last_quote = attrs.evolve(piece, span=Span(piece.span.source, end, end + 1))
            return self._ended(start, start, end, last_quote, "begun")
        span = self._of(start, found.end(), piece)
        put = f'"{self.text[start : found.end()]}"'
        self._foreign_text(span, f"write `{put}`: a glob is a quoted text", put, sign="*")
        self._skip_to(found.end())
        self._put("STRING", put, span)
        return True

    def _foreign_text(self, span: Span, help_: str, put: str, *, sign: str) -> None:
        self._say(span, f"`{sign}` is not in the language", help_, put)

    def _wants_text(self) -> bool:
        last = self._last
        return last is not None and (last.text in ("~", "[", ",", "serves", "model", "limits", "path"))

    def _slash(self, piece: Lexeme) -> bool:
        """`/regular expression/`, or a path without quotes."""
        last = self._last
        before = next((one for one in reversed(self.out) if one.type != "_NL"), None)
        if last is None or (before is not None and before.type == "QTY"):  # `40k /min` is a rate
            return False
        if last.span.end == piece.span.start and last.type not in ("LSQB", "COMMA", "CMP"):
            return False
        pattern = _PATTERN.match(self.text, piece.span.start)
        if pattern is None:
            bare = _BARE.match(self.text, piece.span.start)
            return bare is not None and len(bare[0]) > 1 and self._in_quotes(piece.span.start, piece)
        span = self._of(piece.span.start, pattern.end(), piece)
        glob = _as_glob(pattern[1])
        put = f'"{glob}"' if glob is not None else None
        help_ = f"write `{put}`" if put is not None else 'compare with a glob, such as `"claude-*"`, or a list of them'
        self._say(span, "there are no regular expressions", help_, put)
        self._skip_to(pattern.end())
        self._put("STRING", put or '"*"', span)
        return True

    # ---- numbers, names, secrets ----

    def _variable(self, piece: Lexeme) -> bool:
        """`$NAME` and `${NAME}`."""
        found = _VARIABLE.match(self.text, piece.span.start) if piece.text == "$" else None
        if found is None:
            return False
        span, name = self._of(piece.span.start, found.end(), piece), found[1] or found[2]
        if any(one.text in _ENVIRONED for one in self.out[self._begin :]):
            put = f"env({name})"
            self._foreign(span, f"write `{put}`", put)
            self._skip_to(found.end())
            for type_, text in _call("env", name):
                self._put(type_, text, span)
            return True
        where = "`key`, `token`, `base` and `url`"
        self._foreign(span, f"write the value itself: only {where} read the environment, with `env({name})`")
        self._skip_to(found.end())
        self._put("NAME", name, span)
        return True

    def _moment(self, piece: Lexeme) -> bool:
        """`2026-12-25` without quotes, and `6:5` for a time of day."""
        last = self._last
        if last is None or last.type != "QTY" or last.span.end != piece.span.start or not self._asked:
            return False
        found = (_DATE if piece.text == "-" else _CLOCK).match(self.text, last.span.start)
        if found is None:
            return False
        span = self._of(last.span.start, found.end(), piece)
        if piece.text == "-":
            put, type_ = f'"{int(found[1]):04}-{int(found[2]):02}-{int(found[3]):02}"', "STRING"
            message = "a date is a quoted text"
        else:
            put, type_ = f"{int(found[1]):02}:{int(found[2]):02}", "CLOCK"
            message = "the minutes of a time of day are two digits"
        self._say(span, message, f"write `{put}`", put)
        self.out.pop()
        self._put(type_, put, span)
        self._skip_to(found.end())
        return True

    def _arrow(self, piece: Lexeme) -> bool:
        """`fallback a -> b`: what follows something else stands behind it."""
        count = 2 if self.text.startswith("->", piece.span.start) else 1
        if count == 1 and piece.text not in _ARROWS:
            return False
        self._foreign(self._of(piece.span.start, piece.span.start + count, piece), "delete it", "", is_safe=False)
        self.at += count
        return True

    def _subscript(self, piece: Lexeme) -> bool:
        """`header["x-role"]`: the name is a part of the field's."""
        last, name, closer = self._last, self._next(1), self._next(2)
        if last is None or last.text not in ("header", "meta") or last.span.end != piece.span.start:
            return False
        if name is None or closer is None or closer.type != "RSQB" or name.type not in ("NAME", "STRING"):
            return False
        inner = name.text.strip('"')
        if not _WORD.fullmatch(inner):
            return False
        span, put = last.span.to(closer.span), f"{last.text}.{inner}"
        self._say(span, f"`{self.text[span.start : span.end]}` is no field", f"write `{put}`", put, code="HM003")
        self.at += 3
        self.out[-1] = Lexeme("NAME", put, span)
        return True

    def _minus(self, piece: Lexeme) -> bool:
        """`-5`, and `9-17` for a range."""
        if piece.text not in _DASHES:
            return False
        dashes = self._dashes()
        last, after = self._last, self._next(len(dashes))
        if after is None or after.type not in ("QTY", "CLOCK"):
            return False
        if last is not None and last.type in ("QTY", "CLOCK"):
            span = piece.span.to(dashes[-1].span)
            self._foreign(span, "ranges have two dots: write `..`", "..")
            self.at += len(dashes)
            self._put("_DOTDOT", "..", span)
            return True
        if after.span.start != dashes[-1].span.end or (last is not None and last.type == "NAME" and self._asked):
            return False
        unit = after.text.lstrip("$0123456789_.")
        least = "0" if last is not None and (last.type in ("CMP", "IN") or last.text == "priority") else "1"
        put = ("$" if after.text.startswith("$") else "") + least + unit
        span = piece.span.to(after.span)
        self._say(span, "there are no negative numbers", f"write `{put}` or more", put, is_safe=False)
        self.at += len(dashes) + 1
        self._put("QTY", put, span)
        return True

    def _dashes(self) -> list[Lexeme]:
        """Return the dashes from here on that nothing parts: deleting one would leave the mistake."""
        found = [self.pieces[self.at]]
        while (
            (piece := self._next(len(found))) is not None
            and piece.text in _DASHES
            and piece.span.start == found[-1].span.end
        ):
            found.append(piece)
        return found

    def _percent(self, piece: Lexeme) -> bool:
        last = self._last
        if piece.text != "%" or last is None or last.type != "QTY" or not last.text[-1].isdigit():
            return False
        span = last.span.to(piece.span)
        self._say(span, "a blank before `%`", f"write `{last.text}%`", f"{last.text}%")
        self.out[-1] = Lexeme("QTY", f"{last.text}%", span)
        self.at += 1
        return True

    def _dollar(self, piece: Lexeme) -> bool:
        """`5$`."""
        last = self._last
        if piece.text != "$" or last is None or last.type != "QTY" or last.span.end != piece.span.start:
            return False
        span, put = last.span.to(piece.span), f"${last.text.removeprefix('$')}"
        self._foreign(span, f"write `{put}`", put)
        self.out[-1] = Lexeme("QTY", put, span)
        self.at += 1
        return True

    def _currency(self, piece: Lexeme) -> bool:
        after = self._next()
        if piece.text not in "€£¥" or after is None or after.type != "QTY" or after.span.start != piece.span.end:
            return False
        self._foreign(piece.span, f"amounts are in dollars: write `${after.text}`", "$", is_safe=False)
        self.at += 2
        self._put("QTY", f"${after.text}", after.span)
        return True

    def _at_sign(self, piece: Lexeme) -> bool:
        after = self._next()
        if piece.text != "@" or after is None or after.type != "NAME" or after.span.start != piece.span.end:
            return False
        self._foreign(piece.span, f"write `{after.text}`", "")
        self.at += 1
        return True

    def _plus(self, piece: Lexeme) -> bool:
        """Read a sum: one of tokens has a field of its own, any other needs the computed number."""
        last, after = self._last, self._next()
        if piece.text != "+" or last is None or after is None or last.type not in _OPERANDS:
            return False
        if after.type not in _OPERANDS:
            return False
        span = last.span.to(after.span)
        both = {last.text, after.text} == {"tokens.in", "tokens.max-out"}
        help_ = "write `tokens.total`" if both else "there is no arithmetic: write the number that it comes to"
        self._say(span if both else piece.span, "`+` is not in the language", help_, "tokens.total" if both else None)
        self.at += 2
        if both:
            self.out[-1] = Lexeme("NAME", "tokens.total", span)
        return True

    def _backslash(self, piece: Lexeme) -> bool:
        after = self._next()
        if piece.text != "\\":
            return False
        if after is not None and after.type in ("STRING", "BADSTRING") and after.span.start == piece.span.end:
            # Deleting it would leave a text that begins where one was meant to go on.
            self._foreign(piece.span, "it stands before a quote within a text: this text has ended, or never began")
            self.at += 1
            return True
        if after is not None and after.type != "_NL":
            return False
        self._foreign(piece.span, "delete it: a statement goes on after an operator, a comma and within brackets", "")
        self.at += 1
        return True

    # ---- signs ----

    def _operator(self, piece: Lexeme) -> bool:
        """Two or three signs that are one operator elsewhere."""
        if self._starts():
            return False
        for count in (3, 2, 1):
            run = self.pieces[self.at : self.at + count]
            if len(run) < count or any(a.span.end != b.span.start for a, b in pairwise(run)):
                continue
            sign = "".join(one.text for one in run)
            span = piece.span.to(run[-1].span)
            if sign == "!~":
                return self._unlike(span)
            if sign not in _OPERATORS or (count == 1 and piece.type != "ERROR"):
                continue
            instead = _OPERATORS[sign]
            if instead != "not" and (last := self._last) is not None and last.type in _JOINS:
                self._foreign(span, "delete it: it has no left operand", "")
                self.at += count
                return True
            self._foreign(span, f"write `{instead}`", self._padded(instead, span) if instead.isalpha() else instead)
            self.at += count
            self._put(_TYPES.get(instead, "CMP"), instead, span)
            return True
        return False

    def _unlike(self, span: Span) -> bool:
        """`model !~ "x"`."""
        field, value = self._last, self._next(2)
        if field is None or field.type != "NAME" or value is None or value.type not in ("STRING", "NAME"):
            return False
        put = f"not {field.text} ~ {self._raw(value)}"
        whole = field.span.to(value.span)
        self._say(whole, "`!~` is not in the language", f"write `{put}`", put)
        self.at += 3
        self.out[-1:] = [Lexeme("NOT", "not", field.span), field, Lexeme("CMP", "~", span), value]
        return True

    def _raw(self, piece: Lexeme) -> str:
        return self.text[piece.span.start : piece.span.end]

    def _equals(self, piece: Lexeme) -> bool:
        """`=` in a condition, or either sign in a setting."""
        last, after = self._last, self._next()
        if last is None or after is None or (piece.type == "CMP" and (piece.text != "==" or self._asked)):
            return False
        if after.type not in _OPERANDS | {"LSQB", "LPAR", "LBRACE"}:
            return False
        if len(self.out) - self._begin == 2 and self.out[self._begin].type == "LET":
            if piece.type == "EQUAL":
                return False
            self._say(piece.span, "unexpected `==`", "write `=`", "=", code="HM003")
            self._take(Lexeme("EQUAL", "=", piece.span))
            return True
        note = "`=` is for `let`" if piece.type == "EQUAL" else ""
        before_block = after.type == "LBRACE"
        if self._asked and piece.type == "EQUAL" and not before_block:
            help_ = f"write `{self._raw(last)} == {self._raw(after)}`"
            self._say(piece.span, "unexpected `=`", help_, "==", code="HM003", note=note)
            self._take(Lexeme("CMP", "==", piece.span))
            return True
        if last.type != "NAME" and not before_block:
            return False
        help_ = "delete it" if before_block else f"write `{self._raw(last)} {self._whole(after)}`"
        message = f"unexpected `{piece.text}`"
        self._say(piece.span, message, help_, code="HM003", note=note, fix=self._removed(piece.span))
        self.at += 1
        return True

    def _whole(self, piece: Lexeme) -> str:
        """Return the text of a value as it is written: a price or a rate is several lexemes."""
        found = _BARE.match(self.text, piece.span.start) if piece.type == "QTY" else None
        return found[0] if found is not None else self._raw(piece)

    def _removed(self, span: Span) -> Fix:
        """Return the fix that removes a sign, and one of the blanks if it has them on both sides."""
        both = span.start and self.text[span.start - 1] == " " and self.text[span.end : span.end + 1] == " "
        end = span.end + 1 if both else span.end
        return Fix((Edit(Span(span.source, span.start, end), "" if both else self._gap(span)),))

    def _gap(self, span: Span) -> str:
        """Return the text between two words once a sign between them is removed."""
        return "" if self._is_blank(span.start - 1) or self._is_blank(span.end) else " "

    def _colon(self, piece: Lexeme) -> bool:
        last, after = self._last, self._next()
        if piece.text != ":" or last is None or self._in_brackets():
            return False
        if last.text in ("env", "file") and after is not None and after.type == "NAME" and not self._asked:
            span, put = last.span.to(after.span), f"env({after.text})"
            self._foreign(span, f"write `{put}`", put, is_safe=last.text == "env")
            self.at += 2
            self.out[-1:] = [Lexeme(type_, text, span) for type_, text in _call("env", after.text)]
            return True
        if self._asked and after is not None and after.type in _OPERANDS:
            self._foreign(
                piece.span, f"write `{self._raw(last)} == {self._raw(after)}`", self._padded("==", piece.span)
            )
            self._take(Lexeme("CMP", "==", piece.span))
            return True
        if last.type == "STRING" and _WORD.fullmatch(last.text[1:-1]):
            word, span = last.text[1:-1], last.span.to(piece.span)
            self._say(span, "`:` is not in the language", f"write `{word}`", word + self._gap(span))
            self.out[-1] = Lexeme("NAME", word, last.span)
            self.at += 1
            return True
        if last.type != "NAME":
            return False
        if after is None or after.type == "_NL":
            return self._indented(piece)
        shown = f"write `{last.text} {self._raw(after)}`" if after.type in _OPERANDS else "delete it"
        self._say(piece.span, "`:` is not in the language", shown, fix=self._removed(piece.span))
        self.at += 1
        return True

    def _indented(self, piece: Lexeme) -> bool:
        """Read a block by indentation: `provider anthropic:` and lines that are further in."""
        begin = self.text.rfind("\n", 0, piece.span.start) + 1
        line = self.text[begin : piece.span.start]
        indent = line[: len(line) - len(line.lstrip())]
        end = at = self._line_end(piece.span.start)
        while at < len(self.text):
            stop = self._line_end(at + 1)
            more = self.text[at + 1 : stop]
            if more.strip():
                if len(more) - len(more.lstrip()) <= len(indent):
                    break
                end = stop
            at = stop
        first = self._line_end(piece.span.start)
        if end == first:
            self._foreign(piece.span, "delete it", "")
            self.at += 1
            return True
        span = self._of(piece.span.start, end, piece)
        put = f" {{{self.text[first:end]}\n{indent}}}"
        self._say(
            piece.span, "`:` is not in the language", "write `{` here, and `}` below the lines that are further in"
        )
        self.found[-1] = attrs.evolve(self.found[-1], span=span, fix=Fix.replacing(span, put))
        self.at += 1
        self._put("LBRACE", "{", piece.span)
        self._ends.append(end)
        return True

    def _comma(self, piece: Lexeme) -> bool:
        """Read a comma between settings, or between the items of a list without its brackets."""
        last, after = self._last, self._next()
        if self._in_brackets() or last is None:
            return False
        is_alone = len(self.out) - 1 == self._begin and after is not None and after.type in ("QTY", "STRING")
        if after is None or after.type in ("_NL", "RBRACE") or is_alone:
            self._say(piece.span, "unexpected `,`", "delete it", self._gap(piece.span), code="HM003")
            self.at += 1
            return True
        if last.type in _OPERANDS and not self._asked_beside() and len(self.out) - 1 > self._begin:
            run = self._items()
            if len(run) > 1:
                span = last.span.to(run[-1].span)
                put = f"[{self.text[span.start : span.end]}]"
                self._say(span, "unexpected `,`", f"write `{put}`", put, code="HM003")
                self.out[-1:] = [Lexeme("LSQB", "[", last.span)]
                for one in run:
                    self.out += [one, Lexeme("COMMA", ",", one.span)]
                self._skip_to(span.end)
                self._put("RSQB", "]", Span(span.source, span.end, span.end))
                return True
        if last.type == "RPAR" and after.text in ("env", "file"):
            return self._secrets(piece)
        self._say(piece.span, "unexpected `,`", "write `;`", ";", code="HM003")
        self._take(Lexeme("_NL", ";", piece.span))
        return True

    def _secrets(self, piece: Lexeme) -> bool:
        """Read `token env(A), env(B)` as a list, and the first of the keys of a provider."""
        head = self.out[self._begin]
        stop = self.at
        while (
            stop + 4 < len(self.pieces) and self.pieces[stop].type == "COMMA" and self.pieces[stop + 4].type == "RPAR"
        ):
            stop += 5
        if stop == self.at:
            return False
        rest = self.pieces[self.at : stop]
        if head.text != "token":
            span = piece.span.to(rest[-1].span)
            help_ = "delete it: a further key needs a provider of its own"
            self._say(span, f"`{head.text}` takes one secret", help_, "", code="HM003", is_safe=False)
            self.at = stop
            return True
        first = self.out[self._begin + 1]
        span = first.span.to(rest[-1].span)
        put = f"[{self.text[span.start : span.end]}]"
        self._say(span, "unexpected `,`", f"write `{put}`", put, code="HM003")
        self.out[self._begin + 1 : self._begin + 1] = [Lexeme("LSQB", "[", first.span)]
        self.out += rest
        self.at = stop
        self._put("RSQB", "]", rest[-1].span)
        return True

    def _asked_beside(self) -> bool:
        return self._asked and self.out[self._begin].type != "LET"

    def _items(self) -> list[Lexeme]:
        """Return the values that commas join from the last one on; a name that begins a setting is none of them."""
        run = [self.out[-1]]
        at = self.at
        while at + 1 < len(self.pieces) and self.pieces[at].type == "COMMA":
            value = self.pieces[at + 1]
            after = self.pieces[at + 2].type if at + 2 < len(self.pieces) else "_NL"
            is_word = value.type == "NAME" and after in ("COMMA", "_NL", "RBRACE") and value.text not in _SETTINGS
            if value.type not in ("STRING", "QTY") and not is_word:
                break
            run.append(value)
            at += 2
        return run

    def _chain(self, piece: Lexeme) -> bool:
        """`1k < tokens.in < 5k`."""
        out, after, beyond = self.out[self._begin :], self._next(), self._next(2)
        if not self._asked or len(out) < 3 or out[-2].type != "CMP" or piece.text == "~" or out[-2].text == "~":
            return False
        first, sign, middle = out[-3:]
        if after is None or {first.type, middle.type, after.type} - _OPERANDS:
            return False
        if beyond is not None and beyond.type in ("LPAR", "_DOTDOT", "SLASH"):
            return False
        left = _compared(first, sign, middle)
        right = _compared(middle, piece, after)
        span = first.span.to(after.span)
        put = " and ".join(" ".join(self._shown(one) for one in side) for side in (left, right))
        self._say(span, "a comparison cannot be chained", f"write `{put}`", put, code="HM003")
        self.out[-3:] = [*left, Lexeme("AND", "and", piece.span), *right]
        self.at += 2
        return True

    def _shown(self, piece: Lexeme) -> str:
        return piece.text if piece.type == "CMP" else self._raw(piece)

    def _spelt(self, piece: Lexeme) -> bool:
        """`AND`, `is not`, `contains "x"`: operators of other languages that are words."""
        last, after = self._last, self._next()
        if not self._asked or last is None or after is None:
            return False
        word = piece.text.lower()
        if word in ("and", "or", "not", "in"):
            follows = last.type in _OPERANDS or last.type in ("RPAR", "RSQB")
            if follows == (word == "not" and after.text.lower() != "in"):
                return False
            self._foreign(piece.span, f"write `{word}`", word)
            self._take(Lexeme(word.upper(), word, piece.span))
            return True
        sign = _WORDS.get(word.replace("-", "").replace("_", ""))
        if sign is None or last.type != "NAME":
            return False
        if "{" in sign or sign == "~":
            return after.type == "STRING" and self._text_operator(piece, after, sign if "{" in sign else "{}")
        if sign == "==" and after.text.lower() == "not":
            sign, span, after = "!=", piece.span.to(after.span), self._next(2)
            self.at += 1
        else:
            span = piece.span
        if after is None or after.type not in _OPERANDS:
            self.at -= span != piece.span
            return False
        self._foreign(span, f"write `{sign}`", sign)
        self.at += 1
        self._put("CMP", sign, span)
        return True

    def _ranged(self, piece: Lexeme) -> bool:
        """Read `between a and b`, `from a to b` and `in a to b` as a range, and `in mon..fri` as one of numbers."""
        last, word = self._last, piece.text.lower()
        if not self._asked or last is None:
            return False
        after = self._next()
        if (day := WEEKDAYS.get(word[:3])) is not None and "_DOTDOT" in (last.type, after.type if after else ""):
            self._say(piece.span, "days of the week are numbers", f"write `{day}`: 1 is Monday", str(day), code="HM003")
            self.at += 1
            self._put("QTY", str(day), piece.span)
            return True
        if word in _THROUGH and last.type in _OPERANDS and self.out[-2].type == "IN":
            self._foreign(piece.span, "ranges have two dots: write `..`", "..")
            self.at += 1
            self._put("_DOTDOT", "..", piece.span)
            return True
        if word not in ("between", "from") or last.type != "NAME":
            return False
        low, joint, high = (self._next(by) for by in (1, 2, 3))
        if low is None or joint is None or high is None or joint.text.lower() not in ("and", "..", *_THROUGH):
            return False
        if low.type not in _OPERANDS or high.type not in _OPERANDS:
            return False
        put = f"in {low.text}..{high.text}"
        self._say(piece.span.to(high.span), f"`{piece.text}` is not in the language", f"write `{put}`", put)
        self.at += 4
        for one in (Lexeme("IN", "in", piece.span), low, Lexeme("_DOTDOT", "..", joint.span), high):
            self._push(one)
        return True

    def _text_operator(self, piece: Lexeme, text: Lexeme, shape: str) -> bool:
        """Read `contains "x"`, `like "x%"` and the like as a glob."""
        inner = text.text[1:-1].replace("%", "*") if piece.text.lower() == "like" else text.text[1:-1]
        put = f'"{shape.format(inner)}"'
        self._foreign_text(piece.span.to(text.span), f"write `~ {put}`", f"~ {put}", sign=piece.text)
        self.at += 2
        self._put("CMP", "~", piece.span)
        self._put("STRING", put, text.span)
        return True

    def _tuple(self, piece: Lexeme) -> bool:
        """Read `in ("a", "b")` as a list."""
        last = self._last
        if not self._asked or last is None or (last.type != "IN" and last.text != "~"):
            return False
        end = next((at for at in range(self.at, len(self.pieces)) if self.pieces[at].type == "RPAR"), None)
        if end is None or any(
            one.type not in _OPERANDS | {"COMMA", "_DOTDOT"} for one in self.pieces[self.at + 1 : end]
        ):
            return False
        span = piece.span.to(self.pieces[end].span)
        put = f"[{self.text[piece.span.end : self.pieces[end].span.start]}]"
        self._say(span, "a list has square brackets", f"write `{put}`", put, code="HM003")
        self._take(Lexeme("LSQB", "[", piece.span))
        self.pieces[end] = Lexeme("RSQB", "]", self.pieces[end].span)
        return True

    def _side(self, piece: Lexeme) -> bool:
        """`price in $3/Mtok`: the side that a price is of, by its short name."""
        if self._asked or len(self.out) == self._begin or self.out[self._begin].text != "price":
            return False
        self._say(piece.span, "`in` is no side of a price", "write `input`", "input", code="HM003")
        self.at += 1
        self._put("NAME", "input", piece.span)
        return True

    # ---- statements ----

    def _word(self, piece: Lexeme) -> bool:
        """`if`, `else`, `elif` and `then`: a rule is all that there is."""
        after, text = self._next(), piece.text
        if text in ("then", "do") and self._asked and after is not None and after.type == "LBRACE":
            self._say(piece.span, f"`{text}` is not in the language", "delete it", "", code="HM003")
            self.at += 1
            return True
        if self._open or not self._starts() or after is None:
            return False
        if text == "if":
            return self._rule(piece, piece.span, "", conditional=True)
        if text not in CONDITIONALS or not self.out:
            return False
        on_its_line = "\n" not in self.text[self.out[-1].span.end : piece.span.start] and self.out[-1].type != "_NL"
        conditional = text != "else" or after.text == "if"
        span = piece.span.to(after.span) if text == "else" and conditional else piece.span
        return self._rule(piece, span, "; " if on_its_line else "", conditional=conditional)

    def _rule(self, piece: Lexeme, span: Span, before: str, *, conditional: bool) -> bool:
        taken = {one.text for one in self.pieces}
        base = "otherwise" if piece.text.startswith("el") else "first"
        name = next(name for name in (base, *(f"{base}-{n}" for n in range(2, len(taken) + 3))) if name not in taken)
        put = f"rule {name}{' when' if conditional else ''}"
        help_ = f"write `{put}`: of the rules that match, the first decides"
        if before:
            help_ = f"begin another rule with `{before}{put}`: of the rules that match, the first decides"
        self._say(span, f"`{piece.text}` is not in the language", help_, before + put, code="HM003")
        if before:
            self._put("_NL", ";", span)
        self._put("NAME", "rule", span)
        self._put("NAME", name, span)
        if conditional:
            self._put("WHEN", "when", span)
        self._skip_to(span.end)
        return True

    def _unclosed(self, piece: Lexeme) -> bool:
        """Read a declaration at the left edge inside of an unclosed block: the block ends before it."""
        start = piece.span.start
        if not self._lacks_a_brace or not self._starts() or (start and self.text[start - 1] != "\n"):
            return False
        line = self._line_end(start)
        ahead = (one for one in self.pieces[self.at + 1 :] if one.span.start < line)
        if piece.text not in DECLARATIONS or not any(one.type == "LBRACE" for one in ahead):
            return False
        braces = [one for one in self._open if one.type == "LBRACE"]
        if not braces:
            return False
        number = self.text.count("\n", 0, start) + 1
        for brace in reversed(braces):
            help_ = f"add `}}` before line {number}, where `{piece.text}` begins"
            fix = Fix((Edit(Span(piece.span.source, start, start), "}\n"),))
            self._say(brace.span, "unclosed `{`", help_, code="HM004", fix=fix)
            self.doubtful.append(Span(piece.span.source, brace.span.start, start))
            self._put("RBRACE", "}", Span(piece.span.source, start, start))
        self._put("_NL", "\n", Span(piece.span.source, start, start))
        return False


_READERS: Final[dict[str, tuple[Callable[[_Speller, Lexeme], bool], ...]]] = {
    "ERROR": (
        _Speller._space,
        _Speller._url,
        _Speller._address,
        _Speller._arrow,
        _Speller._comment,
        _Speller._variable,
        _Speller._moment,
        _Speller._minus,
        _Speller._percent,
        _Speller._dollar,
        _Speller._currency,
        _Speller._at_sign,
        _Speller._plus,
        _Speller._backslash,
        _Speller._operator,
        _Speller._glob,
        _Speller._colon,
        _Speller._quoted,
    ),
    "SLASH": (_Speller._comment, _Speller._slash),
    "CMP": (_Speller._operator, _Speller._equals, _Speller._chain),
    "EQUAL": (_Speller._operator, _Speller._equals),
    "COMMA": (_Speller._comma,),
    "STRING": (_Speller._swallowing,),
    "BADSTRING": (_Speller._unended,),
    "NAME": (_Speller._unclosed, _Speller._word, _Speller._spelt, _Speller._ranged),
    "IN": (_Speller._side,),
    "LPAR": (_Speller._tuple,),
    "LSQB": (_Speller._subscript,),
    "_DOTDOT": (_Speller._operator,),
}
"""Terminal -> what it may be a slip of; the first that is one reads on."""


def _lexed(text: str, start: int, end: int, source: int) -> list[Lexeme]:
    """Return the lexemes of a part of the text."""
    return [
        Lexeme(one.type, one.text, Span(source, one.span.start + start, one.span.end + start))
        for one in words(text[start:end], source)
    ]


def _call(function: str, name: str) -> tuple[tuple[str, str], ...]:
    """Return the terminals and texts of `function(name)`."""
    return ("NAME", function), ("LPAR", "("), ("NAME", name), ("RPAR", ")")


def _trailing(inner: str) -> str:
    found = _CLOSERS.search(inner)
    return found[0] if found is not None else ""


def _as_glob(pattern: str) -> str | None:
    """Return a glob for a simple regular expression; None: it is none."""
    begins, ends = pattern.startswith("^"), pattern.endswith("$")
    body = pattern.removeprefix("^").removesuffix("$")
    glob = ""
    for letters in re.findall(r"\\.|\.[*+]|.", body):
        if letters in (".*", ".+"):
            glob += "*"
        elif letters == ".":
            glob += "?"
        elif letters[0] == "\\" and len(letters) == 2 and not letters[1].isalnum() and letters[1] not in '"\\':
            glob += letters[1]
        elif letters in '[](){}|+*?\\^$"':
            return None
        else:
            glob += letters
    return re.sub(r"\*+", "*", ("" if begins else "*") + glob + ("" if ends else "*"))


def _compared(left: Lexeme, sign: Lexeme, right: Lexeme) -> list[Lexeme]:
    """One comparison, the field on the left."""
    if left.type == "NAME" or right.type != "NAME":
        return [left, sign, right]
    return [right, Lexeme("CMP", _FLIPPED[sign.text], sign.span), left]


_SETTINGS: Final = frozenset(
    {name for declaration in DECLARATIONS.values() for name in declaration.settings}
    | {*DECLARATIONS, *TEST_STATEMENTS, *LIMITS}
)
"""Every word that can begin a statement."""

_ENVIRONED: Final = frozenset(
    name
    for declaration in DECLARATIONS.values()
    for name, setting in declaration.settings.items()
    if any(slot.type in (Type.SECRET, Type.SECRETS, Type.URL, Type.STORE_URL) for slot in setting.args)
)
"""Settings that take `env(NAME)`."""
