"""Operators of other languages, as signs and as words."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from hivemind_trio.model.dates import WEEKDAYS
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.syntax.lexeme import Lexeme

from .speller import OPERANDS, Speller

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

_FLIPPED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_JOINS: Final = frozenset({"EQUAL", "CMP", "WHEN", "EXPECT", "AND", "OR", "NOT", "IN", "COMMA", "LPAR", "LSQB"})


def operator(speller: Speller, piece: Lexeme) -> bool:
    """Read signs that are one operator elsewhere."""
    if speller.at_start():
        return False
    for count in (3, 2, 1):
        run = speller.pieces[speller.at : speller.at + count]
        if len(run) < count or any(a.span.end != b.span.start for a, b in pairwise(run)):
            continue
        sign = "".join(one.text for one in run)
        span = piece.span.to(run[-1].span)
        if sign == "!~":
            return _unlike(speller, span)
        if sign not in _OPERATORS or (count == 1 and piece.type != "ERROR"):
            continue
        instead = _OPERATORS[sign]
        if instead != "not" and (last := speller.last) is not None and last.type in _JOINS:
            speller.report_foreign(span, "delete it: it has no left operand", "")
            speller.at += count
            return True
        speller.report_foreign(
            span, f"write `{instead}`", speller.padded(instead, span) if instead.isalpha() else instead
        )
        speller.at += count
        speller.put(_TYPES.get(instead, "CMP"), instead, span)
        return True
    return False


def _unlike(speller: Speller, span: Span) -> bool:
    """Read `model !~ "x"`."""
    field, value = speller.last, speller.ahead(2)
    if field is None or field.type != "NAME" or value is None or value.type not in ("STRING", "NAME"):
        return False
    put = f"not {field.text} ~ {speller.written(value)}"
    whole = field.span.to(value.span)
    speller.report(whole, "`!~` is not in the language", f"write `{put}`", put)
    speller.at += 3
    speller.out[-1:] = [Lexeme("NOT", "not", field.span), field, Lexeme("CMP", "~", span), value]
    return True


def plus(speller: Speller, piece: Lexeme) -> bool:
    """Read a sum: one of tokens has a field of its own, any other needs the computed number."""
    last, after = speller.last, speller.ahead()
    if piece.text != "+" or last is None or after is None or last.type not in OPERANDS:
        return False
    if after.type not in OPERANDS:
        return False
    span = last.span.to(after.span)
    both = {last.text, after.text} == {"tokens.in", "tokens.max-out"}
    help_ = "write `tokens.total`" if both else "there is no arithmetic: write the number that it comes to"
    speller.report(span if both else piece.span, "`+` is not in the language", help_, "tokens.total" if both else None)
    speller.at += 2
    if both:
        speller.out[-1] = Lexeme("NAME", "tokens.total", span)
    return True


def chain(speller: Speller, piece: Lexeme) -> bool:
    """Read `1k < tokens.in < 5k` as two comparisons."""
    out, after, beyond = speller.out[speller.begin :], speller.ahead(), speller.ahead(2)
    if not speller.in_condition or len(out) < 3 or out[-2].type != "CMP" or piece.text == "~" or out[-2].text == "~":
        return False
    first, sign, middle = out[-3:]
    if after is None or {first.type, middle.type, after.type} - OPERANDS:
        return False
    if beyond is not None and beyond.type in ("LPAR", "_DOTDOT", "SLASH"):
        return False
    left = _compared(first, sign, middle)
    right = _compared(middle, piece, after)
    span = first.span.to(after.span)
    put = " and ".join(" ".join(_shown(speller, one) for one in side) for side in (left, right))
    speller.report(span, "a comparison cannot be chained", f"write `{put}`", put, code="HM003")
    speller.out[-3:] = [*left, Lexeme("AND", "and", piece.span), *right]
    speller.at += 2
    return True


def _shown(speller: Speller, piece: Lexeme) -> str:
    return piece.text if piece.type == "CMP" else speller.written(piece)


def word_operator(speller: Speller, piece: Lexeme) -> bool:
    """Read `AND`, `is not`, `contains "x"`: operators of other languages that are words."""
    last, after = speller.last, speller.ahead()
    if not speller.in_condition or last is None or after is None:
        return False
    word = piece.text.lower()
    if word in ("and", "or", "not", "in"):
        follows = last.type in OPERANDS or last.type in ("RPAR", "RSQB")
        if follows == (word == "not" and after.text.lower() != "in"):
            return False
        speller.report_foreign(piece.span, f"write `{word}`", word)
        speller.take(Lexeme(word.upper(), word, piece.span))
        return True
    sign = _WORDS.get(word.replace("-", "").replace("_", ""))
    if sign is None or last.type != "NAME":
        return False
    if "{" in sign or sign == "~":
        return after.type == "STRING" and _text_operator(speller, piece, after, sign if "{" in sign else "{}")
    if sign == "==" and after.text.lower() == "not":
        sign, span, after = "!=", piece.span.to(after.span), speller.ahead(2)
        speller.at += 1
    else:
        span = piece.span
    if after is None or after.type not in OPERANDS:
        speller.at -= span != piece.span
        return False
    speller.report_foreign(span, f"write `{sign}`", sign)
    speller.at += 1
    speller.put("CMP", sign, span)
    return True


_COMPARED: Final = frozenset(
    {"agent", "team", "provider", "lane", "retry", "model", "path", "method", "date", "priority", "attempt", "hour"}
    | {"weekday", "deadline", "max-output"}
)
"""Fields that a text, a name or a number is mostly equal to."""


def no_operator(speller: Speller, piece: Lexeme) -> bool:
    """Read `expect lane batch`: a field and its value without an operator."""
    last, after = speller.last, speller.ahead()
    if not speller.in_condition or last is None or last.type != "NAME" or len(speller.out) - speller.begin < 2:
        return False
    if speller.out[-2].type not in ("WHEN", "EXPECT", "AND", "OR", "NOT", "LPAR"):
        return False
    if after is not None and after.type not in ("AND", "OR", "_NL", "RBRACE", "LBRACE", "RPAR"):
        return False
    if last.text not in _COMPARED and not last.text.startswith(("header.", "meta.")):
        return False
    sign = "~" if piece.type == "STRING" and "*" in piece.text else "=="
    put = f"{last.text} {sign} {speller.written(piece)}"
    message = f"an operator is missing before `{speller.written(piece)}`"
    speller.report(last.span.to(piece.span), message, f"write `{put}`", put, code="HM003")
    speller.put("CMP", sign, piece.span)
    speller.take(piece)
    return True


def range_words(speller: Speller, piece: Lexeme) -> bool:
    """Read `between a and b`, `from a to b` and `in a to b` as a range, and `in mon..fri` as one of numbers."""
    last, word = speller.last, piece.text.lower()
    if not speller.in_condition or last is None:
        return False
    after = speller.ahead()
    if (day := WEEKDAYS.get(word[:3])) is not None and "_DOTDOT" in (last.type, after.type if after else ""):
        speller.report(
            piece.span, "days of the week are numbers", f"write `{day}`: 1 is Monday", str(day), code="HM003"
        )
        speller.at += 1
        speller.put("QTY", str(day), piece.span)
        return True
    if word in _THROUGH and last.type in OPERANDS and speller.out[-2].type == "IN":
        speller.report_foreign(piece.span, "ranges have two dots: write `..`", "..")
        speller.at += 1
        speller.put("_DOTDOT", "..", piece.span)
        return True
    if word not in ("between", "from") or last.type != "NAME":
        return False
    low, joint, high = (speller.ahead(by) for by in (1, 2, 3))
    if low is None or joint is None or high is None or joint.text.lower() not in ("and", "..", *_THROUGH):
        return False
    if low.type not in OPERANDS or high.type not in OPERANDS:
        return False
    put = f"in {low.text}..{high.text}"
    speller.report(piece.span.to(high.span), f"`{piece.text}` is not in the language", f"write `{put}`", put)
    speller.at += 4
    for one in (Lexeme("IN", "in", piece.span), low, Lexeme("_DOTDOT", "..", joint.span), high):
        speller.push(one)
    return True


def _text_operator(speller: Speller, piece: Lexeme, text: Lexeme, shape: str) -> bool:
    """Read `contains "x"`, `like "x%"` and the like as a glob."""
    inner = text.text[1:-1].replace("%", "*") if piece.text.lower() == "like" else text.text[1:-1]
    put = f'"{shape.format(inner)}"'
    message = f"`{piece.text}` is not in the language"
    speller.report(piece.span.to(text.span), message, f"write `~ {put}`", f"~ {put}")
    speller.at += 2
    speller.put("CMP", "~", piece.span)
    speller.put("STRING", put, text.span)
    return True


def parentheses(speller: Speller, piece: Lexeme) -> bool:
    """Read `in ("a", "b")` as a list."""
    last = speller.last
    if not speller.in_condition or last is None or (last.type != "IN" and last.text != "~"):
        return False
    end = next((at for at in range(speller.at, len(speller.pieces)) if speller.pieces[at].type == "RPAR"), None)
    if end is None or any(
        one.type not in OPERANDS | {"COMMA", "_DOTDOT"} for one in speller.pieces[speller.at + 1 : end]
    ):
        return False
    span = piece.span.to(speller.pieces[end].span)
    put = f"[{speller.text[piece.span.end : speller.pieces[end].span.start]}]"
    speller.report(span, "a list has square brackets", f"write `{put}`", put, code="HM003")
    speller.take(Lexeme("LSQB", "[", piece.span))
    speller.pieces[end] = Lexeme("RSQB", "]", speller.pieces[end].span)
    return True


def _compared(left: Lexeme, sign: Lexeme, right: Lexeme) -> list[Lexeme]:
    """Return one comparison, the field on the left."""
    if left.type == "NAME" or right.type != "NAME":
        return [left, sign, right]
    return [right, Lexeme("CMP", _FLIPPED[sign.text], sign.span), left]
