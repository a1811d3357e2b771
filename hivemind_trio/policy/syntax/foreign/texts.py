"""Texts in other quotes, without one of their quotes, or without any: URLs, addresses, globs, paths."""

from __future__ import annotations

import re
from typing import Final

import attrs

from hivemind_trio.policy.schema import DECLARATIONS, Type
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.source.string_literals import quote
from hivemind_trio.policy.syntax.lexeme import Lexeme

from .speller import BARE, Speller

_QUOTES: Final = {"'": "'", "`": "`", "“": '”“"', "”": "”", "„": "“”", "‘": "’", "’": "’", "«": "»", "»": "«"}
"""Other quotes -> the marks that may close a text that they open."""

_CLOSED_BY: Final = {"]": "LSQB", ")": "LPAR", "}": "LBRACE"}
_CLOSED_TEXT: Final = re.compile(r'((?:[^"\\]|\\["\\])*)"')
_PATTERN: Final = re.compile(r"/([^/\s][^/\n]*)/[gimsuxy]{0,3}(?![^\s;,{}\[\]()])")
_GLOB: Final = re.compile(r"[^\s;,{}\[\]()\"#=~<>!:]*")
_CLOSERS: Final = re.compile(r"[\])};,\s]*\Z")
_BEHIND_A_TEXT: Final = re.compile(r"\s*(?:[\])};,]|\Z)")
"""Rest of a line behind the last quote of a text."""
_ADDRESS: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9.])")


def quoted(speller: Speller, piece: Lexeme) -> bool:
    """Read a text in other quotes."""
    if piece.text not in _QUOTES:
        return False
    start = piece.span.end
    line = speller.text[start : speller.line_end(start)]
    length = next((at for at, letter in enumerate(line) if letter in _QUOTES[piece.text]), -1)
    end = length + 1
    span, put = speller.span_of(piece.span.start, start + end, piece), quote(line[:length])
    if length < 0:  # begun with one mark, and ended with this language's or not at all
        closed = _CLOSED_TEXT.match(line)
        inner = closed[1] if closed is not None else line[: _text_end(speller, line)]
        span = speller.span_of(piece.span.start, start + (closed.end() if closed is not None else len(inner)), piece)
        put = f'"{inner}"' if closed is not None else quote(inner)
    speller.report(span, f"`{piece.text}` is not in the language", f"write `{put}`", put)
    speller.put("STRING", put, span)
    speller.relex(span.end, span.source)
    return True


def unended(speller: Speller, piece: Lexeme) -> bool:
    """Read a text without its last quote, or without its first one."""
    last = speller.last
    start = piece.span.start
    inner = speller.text[start + 1 : speller.line_end(start)]
    if last is not None and last.type == "NAME" and last.span.end == start and _BEHIND_A_TEXT.match(inner):
        speller.out.pop()
        return _ended(speller, last.span.start, last.span.start, start, piece, "begun")
    return _ended(speller, start, start + 1, start + 1 + _text_end(speller, inner), piece, "closed")


def _text_end(speller: Speller, inner: str) -> int:
    """Return the end of a text that takes the rest of its line: before the brackets that close it."""
    comment = re.search(r"\s+#(?=\s)", inner)
    inner = (inner[: comment.start()] if comment is not None else inner).rstrip()
    if inner.endswith("{") and (head := inner[:-1].rstrip()):
        return len(head)
    run = re.search(r"[\])};,\s]*\Z", inner)
    assert run is not None
    waiting = [one.type for one in reversed(speller.opened)]
    for start in range(run.start(), len(inner) + 1):
        closed = [_CLOSED_BY[letter] for letter in inner[start:] if letter in _CLOSED_BY]
        if closed == waiting[: len(closed)]:
            return len(inner[:start].rstrip())
    return len(inner)


def swallowing(speller: Speller, piece: Lexeme) -> bool:
    """Read a text without its last quote that another one on its line has closed: `["gpt-*, "o3*"]`."""
    after = speller.ahead()
    if after is None or after.span.start != piece.span.end or after.type not in ("NAME", "QTY", "ERROR", "CLOCK"):
        return False
    rest = speller.pieces[speller.at + 1 :]
    line = next((number for number, one in enumerate(rest) if one.type == "_NL" and one.text != ";"), len(rest))
    inner = piece.text[1:-1]
    kept = len(inner) - len(_trailing(inner))
    if not kept or kept == len(inner) or not any(one.type == "BADSTRING" for one in rest[:line]):
        return False
    start = piece.span.start
    return _ended(speller, start, start + 1, start + 1 + kept, piece, "closed")


def _ended(speller: Speller, start: int, inner: int, end: int, piece: Lexeme, what: str) -> bool:
    """Report a text that lacks a quote, and read on behind it."""
    kept = speller.text[inner:end]
    escapes = (len(kept) - len(kept.rstrip("\\"))) % 2  # a backslash at the end would take the quote with it
    put = f'"{kept[: len(kept) - escapes]}"'
    mark_end = end if what == "closed" else piece.span.start + 1
    span = speller.span_of(start, mark_end, piece)
    speller.report(
        span, f"missing {'closing' if what == 'closed' else 'opening'} quote", f"write `{put}`", put, code="HM002"
    )
    speller.put("STRING", put, span)
    speller.relex(mark_end, piece.span.source)
    return True


def url(speller: Speller, piece: Lexeme) -> bool:
    """Quote the URL of `base https://host`."""
    last = speller.last
    if last is None or last.type != "NAME" or last.text not in ("http", "https"):
        return False
    if last.span.end != piece.span.start or speller.text[piece.span.start : piece.span.start + 3] != "://":
        return False
    speller.out.pop()
    return _in_quotes(speller, last.span.start, piece)


def address(speller: Speller, piece: Lexeme) -> bool:
    """Quote `0.0.0.0:9000`, `10.0.0.0/8`, and the address of `listen localhost:9000` and `listen :9000`."""
    last, after = speller.last, speller.ahead()
    if last is None:
        return False
    begin = last.span.start if last.span.end == piece.span.start else piece.span.start
    if last.type == "QTY" and _ADDRESS.match(speller.text, begin):
        speller.out.pop()
        return _in_quotes(speller, begin, piece)
    is_port = after is not None and after.span.start == piece.span.end and after.text.isdecimal()
    if piece.text != ":" or not is_port or speller.out[speller.begin].text != "listen":
        return False
    if begin == last.span.start and last.text != "listen":
        speller.out.pop()
        return _in_quotes(speller, begin, piece)
    assert after is not None
    span, put = piece.span.to(after.span), f'"127.0.0.1:{after.text}"'
    speller.report(span, "an address is a quoted text", f"write `{put}`", put, code="HM003")
    speller.at += 2
    speller.put("STRING", put, span)
    return True


def _in_quotes(speller: Speller, start: int, piece: Lexeme) -> bool:
    found = BARE.match(speller.text, start)
    assert found is not None
    span, put = speller.span_of(start, found.end(), piece), f'"{found[0]}"'
    speller.report(span, f"`{found[0]}` needs quotes", f"write `{put}`", put)
    speller.skip_to(found.end())
    speller.put("STRING", put, span)
    return True


_WORDS_OF_A_TEXT: Final = re.compile(r'[^;{}\n"#]*[^;{}\s"#]')
_TEXTUAL: Final = frozenset(
    name
    for declaration in DECLARATIONS.values()
    for name, setting in declaration.settings.items()
    if any(slot.type in (Type.TEXT, Type.URL, Type.TIMEZONE, Type.GLOBS) for slot in setting.args)
) | {"include"}
"""Settings that take a quoted text."""


def words(speller: Speller, piece: Lexeme) -> bool:
    """Read `deny CI may not`: a message without its quotes."""
    after = speller.ahead()
    if len(speller.out) - speller.begin != 1 or speller.out[-1].text not in ("deny", "hold", "warn"):
        return False
    found = _WORDS_OF_A_TEXT.match(speller.text, piece.span.start)
    if found is None or after is None or after.span.start >= found.end():
        return False
    span, put = speller.span_of(piece.span.start, found.end(), piece), quote(found[0])
    speller.report(span, "a message is a quoted text", f"write `{put}`", put, code="HM003")
    speller.skip_to(found.end())
    speller.put("STRING", put, span)
    return True


def divided(speller: Speller, piece: Lexeme) -> bool:
    """Quote the text of `timezone Europe/Paris` and `model == openai/gpt-5`."""
    last = speller.last
    if last is None or last.type != "NAME" or last.span.end != piece.span.start:
        return False
    head = speller.out[speller.begin]
    if last is head or not (speller.in_condition or head.text in _TEXTUAL):
        return False
    start = last.span.start
    speller.out.pop()
    return _in_quotes(speller, start, piece)


def glob(speller: Speller, piece: Lexeme) -> bool:
    """Quote the glob of `serves gpt-*`."""
    last = speller.last
    start = piece.span.start
    touches = last is not None and last.type in ("NAME", "QTY") and last.span.end == start
    found = _GLOB.match(speller.text, start)
    assert found is not None
    if piece.text != "*" or (not touches and found[0] == "*" and not _wants_text(speller)):
        return False
    if touches and last is not None:
        if len(speller.out) - 1 == speller.begin:
            return False
        start = last.span.start
        speller.out.pop()
    end = found.end()
    if speller.text[end : end + 1] == '"' and _BEHIND_A_TEXT.match(speller.text[end + 1 : speller.line_end(end)]):
        last_quote = attrs.evolve(piece, span=Span(piece.span.source, end, end + 1))
        return _ended(speller, start, start, end, last_quote, "begun")
    span = speller.span_of(start, found.end(), piece)
    put = f'"{speller.text[start : found.end()]}"'
    speller.report(span, "`*` is not in the language", f"write `{put}`: a glob is a quoted text", put)
    speller.skip_to(found.end())
    speller.put("STRING", put, span)
    return True


def _wants_text(speller: Speller) -> bool:
    last = speller.last
    return last is not None and (last.text in ("~", "[", ",", "serves", "model", "limits", "path"))


def slash(speller: Speller, piece: Lexeme) -> bool:
    """Read `/regular expression/`, or a path without quotes."""
    last = speller.last
    before = next((one for one in reversed(speller.out) if one.type != "_NL"), None)
    if last is None or (before is not None and before.type == "QTY"):  # `40k /min` is a rate
        return False
    if last.span.end == piece.span.start and last.type not in ("LSQB", "COMMA", "CMP"):
        return False
    pattern = _PATTERN.match(speller.text, piece.span.start)
    if pattern is None:
        bare = BARE.match(speller.text, piece.span.start)
        return bare is not None and len(bare[0]) > 1 and _in_quotes(speller, piece.span.start, piece)
    span = speller.span_of(piece.span.start, pattern.end(), piece)
    glob = _as_glob(pattern[1])
    put = f'"{glob}"' if glob is not None else None
    help_ = f"write `{put}`" if put is not None else 'compare with a glob, such as `"claude-*"`, or a list of them'
    speller.report(span, "there are no regular expressions", help_, put)
    speller.skip_to(pattern.end())
    speller.put("STRING", put or '"*"', span)
    return True


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
