"""Numbers, names, dates and secrets as other languages spell them."""

from __future__ import annotations

import re
from typing import Final

from hivemind_trio.policy.schema import DECLARATIONS, Type
from hivemind_trio.policy.syntax.lexeme import Lexeme

from .speller import WORD, Speller, call_pieces

_DASHES: Final = "-–—−"
_VARIABLE: Final = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_PLACEHOLDER: Final = re.compile(r"(?:%(\w+)%|\{\{\s*(?:env\.)?(\w+)\s*\}\}|<(\w+)>)")
"""A variable as Windows, templates and manuals have it."""
_CURRENCIES: Final = frozenset({"usd", "dollar", "dollars", "eur", "euro", "euros", "bucks"})
_SUFFIXES: Final = {"million": "M", "millions": "M", "mil": "M", "thousand": "k", "billion": "G"}
_COUNTED: Final = frozenset({"requests", "request", "req", "reqs", "calls", "tokens", "token", "tok"})
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?![0-9A-Za-z_-])")
_CLOCK: Final = re.compile(r"([0-9]{1,2}):([0-9])(?![0-9A-Za-z_:])")
_ENVIRONED: Final = frozenset(
    name
    for declaration in DECLARATIONS.values()
    for name, setting in declaration.settings.items()
    if any(slot.type in (Type.SECRET, Type.SECRETS, Type.URL, Type.STORE_URL) for slot in setting.args)
)
"""Settings that take `env(NAME)`."""


def variable(speller: Speller, piece: Lexeme) -> bool:
    """Read `$NAME` and `${NAME}`."""
    found = _VARIABLE.match(speller.text, piece.span.start) if piece.text == "$" else None
    if found is None:
        return False
    span, name = speller.span_of(piece.span.start, found.end(), piece), found[1] or found[2]
    if any(one.text in _ENVIRONED for one in speller.out[speller.begin :]):
        put = f"env({name})"
        speller.report_foreign(span, f"write `{put}`", put)
        speller.skip_to(found.end())
        for type_, text in call_pieces("env", name):
            speller.put(type_, text, span)
        return True
    where = "`key`, `token`, `base` and `url`"
    speller.report_foreign(span, f"write the value itself: only {where} read the environment, with `env({name})`")
    speller.skip_to(found.end())
    speller.put("NAME", name, span)
    return True


def placeholder(speller: Speller, piece: Lexeme) -> bool:
    """Read `%NAME%`, `{{ env.NAME }}` and `<NAME>` where a secret stands."""
    if len(speller.out) - speller.begin != 1 or speller.out[speller.begin].text not in _ENVIRONED:
        return False
    found = _PLACEHOLDER.match(speller.text, piece.span.start)
    if found is None:
        return False
    name = found[1] or found[2] or found[3]
    span, put = speller.span_of(piece.span.start, found.end(), piece), f"env({name})"
    speller.report_foreign(span, f"write `{put}`", put)
    speller.skip_to(found.end())
    for type_, text in call_pieces("env", name):
        speller.put(type_, text, span)
    return True


def environ(speller: Speller, piece: Lexeme) -> bool:
    """Read `os.environ/NAME`, as LiteLLM has it."""
    last, name = speller.last, speller.ahead()
    if last is None or last.text not in ("os.environ", "env") or name is None or name.type != "NAME":
        return False
    if last.span.end != piece.span.start or name.span.start != piece.span.end or speller.in_condition:
        return False
    span, put = last.span.to(name.span), f"env({name.text})"
    speller.report_foreign(span, f"write `{put}`", put)
    speller.out.pop()
    for type_, text in call_pieces("env", name.text):
        speller.put(type_, text, span)
    speller.at += 2
    return True


def unit_word(speller: Speller, piece: Lexeme) -> bool:
    """Read `100 USD/month`, `1 million/day` and `50 requests/min`."""
    last, after, word = speller.last, speller.ahead(), piece.text.lower()
    if last is None or last.type != "QTY" or after is None or after.type != "SLASH":
        return False
    if word in _CURRENCIES:
        put = f"${last.text.removeprefix('$')}"
    elif word in _SUFFIXES and last.text[-1].isdigit():
        put = f"{last.text}{_SUFFIXES[word]}"
    elif word in _COUNTED:
        put = last.text
    else:
        return False
    span = last.span.to(piece.span)
    speller.report_foreign(span, f"write `{put}`", put)
    speller.out[-1] = Lexeme("QTY", put, span)
    speller.at += 1
    return True


def moment(speller: Speller, piece: Lexeme) -> bool:
    """Read `2026-12-25` without quotes, and `6:5` for a time of day."""
    last = speller.last
    if last is None or last.type != "QTY" or last.span.end != piece.span.start or not speller.in_condition:
        return False
    found = (_DATE if piece.text == "-" else _CLOCK).match(speller.text, last.span.start)
    if found is None:
        return False
    span = speller.span_of(last.span.start, found.end(), piece)
    if piece.text == "-":
        put, type_ = f'"{int(found[1]):04}-{int(found[2]):02}-{int(found[3]):02}"', "STRING"
        message = "a date is a quoted text"
    else:
        put, type_ = f"{int(found[1]):02}:{int(found[2]):02}", "CLOCK"
        message = "the minutes of a time of day are two digits"
    speller.report(span, message, f"write `{put}`", put)
    speller.out.pop()
    speller.put(type_, put, span)
    speller.skip_to(found.end())
    return True


def subscript(speller: Speller, piece: Lexeme) -> bool:
    """Read `header["x-role"]` as a field: the name is a part of the field's."""
    last, name, closer = speller.last, speller.ahead(1), speller.ahead(2)
    if last is None or last.text not in ("header", "meta") or last.span.end != piece.span.start:
        return False
    if name is None or closer is None or closer.type != "RSQB" or name.type not in ("NAME", "STRING"):
        return False
    inner = name.text.strip('"')
    if not WORD.fullmatch(inner):
        return False
    span, put = last.span.to(closer.span), f"{last.text}.{inner}"
    speller.report(span, f"`{speller.text[span.start : span.end]}` is no field", f"write `{put}`", put, code="HM003")
    speller.at += 3
    speller.out[-1] = Lexeme("NAME", put, span)
    return True


def minus(speller: Speller, piece: Lexeme) -> bool:
    """Read `-5`, and `9-17` for a range."""
    if piece.text not in _DASHES:
        return False
    dashes = _dashes(speller)
    last, after = speller.last, speller.ahead(len(dashes))
    if after is None or after.type not in ("QTY", "CLOCK"):
        return False
    if last is not None and last.type in ("QTY", "CLOCK"):
        span = piece.span.to(dashes[-1].span)
        speller.report_foreign(span, "ranges have two dots: write `..`", "..")
        speller.at += len(dashes)
        speller.put("_DOTDOT", "..", span)
        return True
    if after.span.start != dashes[-1].span.end or (last is not None and last.type == "NAME" and speller.in_condition):
        return False
    unit = after.text.lstrip("$0123456789_.")
    least = "0" if last is not None and (last.type in ("CMP", "IN") or last.text == "priority") else "1"
    put = ("$" if after.text.startswith("$") else "") + least + unit
    span = piece.span.to(after.span)
    speller.report(span, "there are no negative numbers", f"write `{put}` or more", put, is_safe=False)
    speller.at += len(dashes) + 1
    speller.put("QTY", put, span)
    return True


def _dashes(speller: Speller) -> list[Lexeme]:
    """Return the dashes from here on that nothing parts: deleting one would leave the mistake."""
    found = [speller.pieces[speller.at]]
    while (
        (piece := speller.ahead(len(found))) is not None
        and piece.text in _DASHES
        and piece.span.start == found[-1].span.end
    ):
        found.append(piece)
    return found


def percent(speller: Speller, piece: Lexeme) -> bool:
    """Read `5 %`."""
    last = speller.last
    if piece.text != "%" or last is None or last.type != "QTY" or not last.text[-1].isdigit():
        return False
    span = last.span.to(piece.span)
    speller.report(span, "a blank before `%`", f"write `{last.text}%`", f"{last.text}%")
    speller.out[-1] = Lexeme("QTY", f"{last.text}%", span)
    speller.at += 1
    return True


def dollar(speller: Speller, piece: Lexeme) -> bool:
    """Read `5$`."""
    last = speller.last
    if piece.text != "$" or last is None or last.type != "QTY" or last.span.end != piece.span.start:
        return False
    span, put = last.span.to(piece.span), f"${last.text.removeprefix('$')}"
    speller.report_foreign(span, f"write `{put}`", put)
    speller.out[-1] = Lexeme("QTY", put, span)
    speller.at += 1
    return True


def currency(speller: Speller, piece: Lexeme) -> bool:
    """Read an amount in another currency."""
    after = speller.ahead()
    if piece.text not in "€£¥" or after is None or after.type != "QTY" or after.span.start != piece.span.end:
        return False
    speller.report_foreign(piece.span, f"amounts are in dollars: write `${after.text}`", "$", is_safe=False)
    speller.at += 2
    speller.put("QTY", f"${after.text}", after.span)
    return True


def at_sign(speller: Speller, piece: Lexeme) -> bool:
    """Read `@name`."""
    after = speller.ahead()
    if piece.text != "@" or after is None or after.type != "NAME" or after.span.start != piece.span.end:
        return False
    speller.report_foreign(piece.span, f"write `{after.text}`", "")
    speller.at += 1
    return True


def backslash(speller: Speller, piece: Lexeme) -> bool:
    """Read a backslash before a quote or at the end of a line."""
    after = speller.ahead()
    if piece.text != "\\":
        return False
    if after is not None and after.type in ("STRING", "BADSTRING") and after.span.start == piece.span.end:
        # Deleting it would leave a text that begins where one was meant to go on.
        speller.report_foreign(
            piece.span, "it stands before a quote within a text: this text has ended, or never began"
        )
        speller.at += 1
        return True
    if after is not None and after.type != "_NL":
        return False
    speller.report_foreign(
        piece.span, "delete it: a statement goes on after an operator, a comma and within brackets", ""
    )
    speller.at += 1
    return True
