"""Statements of Terraform and nginx that have no word here: `locals`, `variable`, `limit_req_zone` and `limit_req`."""

from __future__ import annotations

import re
from typing import Final

from hivemind_trio.policy.diagnostics.diagnostic import Fix
from hivemind_trio.policy.source.edits import Edit, deletion
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.syntax.lexeme import Lexeme

from .speller import WORD, Speller

_OPENS: Final = frozenset({"LBRACE", "LSQB", "LPAR"})
_CLOSES: Final = frozenset({"RBRACE", "RSQB", "RPAR"})
_ZONE: Final = re.compile(r"\bzone=([A-Za-z_][A-Za-z0-9_-]*)")
_RATE: Final = re.compile(r"\brate=([0-9]+)r/([sm])\b")
_WINDOWS: Final = {"s": "s", "m": "min"}
_ZONES: Final = {"limit_req_zone": "limit_req", "limit_conn_zone": "limit_conn"}
"""Declaration of a zone -> the statement that uses it."""


def local_values(speller: Speller, piece: Lexeme) -> bool:
    """Read `locals { NAME = VALUE }` as one `let` for each value."""
    closer = _block_end(speller, speller.at + 1)
    if piece.text != "locals" or speller.opened or not speller.at_start() or closer is None:
        return False
    names = _assigned(speller, speller.at + 2, closer)
    if not names:
        return False
    pieces, text = speller.pieces, speller.text
    source = piece.span.source
    first, *others = (pieces[at].span.start for at in names)
    edits = [Edit(Span(source, piece.span.start, first), "let ")]
    for start in others:
        begin = len(text[:start].rstrip(" \t"))
        edits.append(Edit(Span(source, begin if text[begin - 1] == "\n" else start, start), "let "))
    last = closer - 1
    while pieces[last].type == "_NL":
        last -= 1
    edits.append(Edit(Span(source, pieces[last].span.end, pieces[closer].span.end), ""))
    value_end = _value_end(speller, names[0] + 2, closer)
    shown = text[first : pieces[value_end - 1].span.end].partition("\n")[0]
    help_ = f"write `let {shown}`, outside of a block"
    speller.report(
        piece.span.to(pieces[speller.at + 1].span), "unknown declaration `locals`", help_, code="HM101",
        fix=Fix(tuple(edits)),
    )  # fmt: skip
    read = [
        one
        for at in range(names[0], last + 1)
        for one in ((Lexeme("LET", "let", pieces[at].span), pieces[at]) if at in names else (pieces[at],))
    ]
    pieces[speller.at : closer + 1] = read
    return True


def input_variable(speller: Speller, piece: Lexeme) -> bool:
    """Read `variable "NAME" { default = VALUE }` as a `let`, and one without a default as nothing."""
    label = speller.ahead()
    closer = _block_end(speller, speller.at + 2)
    if piece.text != "variable" or speller.opened or not speller.at_start() or closer is None:
        return False
    if label is None or label.type != "STRING" or WORD.fullmatch(label.text[1:-1]) is None:
        return False
    name, pieces = label.text[1:-1], speller.pieces
    span = piece.span.to(pieces[closer].span)
    assigned = _assigned(speller, speller.at + 3, closer)
    default = next((at for at in assigned if pieces[at].text == "default"), None)
    if default is None:
        fix = Fix((deletion(speller.text, span),), is_safe=False)
        speller.report(span, "unknown declaration `variable`", no_variable(name), code="HM101", fix=fix)
        speller.at = closer + 1
        return True
    end = _value_end(speller, default + 2, closer)
    value = speller.text[pieces[default + 2].span.start : pieces[end - 1].span.end]
    put = f"let {name} = {value}"
    speller.report(span, "unknown declaration `variable`", f"write `{put}`", put, code="HM101", is_safe=False)
    let = Lexeme("LET", "let", piece.span), Lexeme("NAME", name, label.span), pieces[default + 1]
    pieces[speller.at : closer + 1] = [*let, *pieces[default + 2 : end]]
    return True


def no_variable(name: str) -> str:
    """Return the help for a `variable` without a default."""
    return f"delete it: a policy reads the environment with `env({name.upper()})`, and `let` names a value"


def zone(speller: Speller, piece: Lexeme) -> bool:
    """Read `limit_req_zone`, whose rate is that of `limits`, and `limit_conn_zone`."""
    if piece.text not in _ZONES or speller.opened or not speller.at_start():
        return False
    span = _statement(speller, piece)
    user, name = _ZONES[piece.text], _ZONE.search(speller.text, span.start, span.end)
    put = _limits(_RATE.search(speller.text, span.start, span.end)) if user == "limit_req" else "concurrency 10"
    is_used = name is not None and re.search(rf"\b{user}\s[^;]*\b{name[1]}\b", speller.text) is not None
    help_ = f"{'delete it, and ' if is_used else ''}write `{put}` in a provider or an agent"
    fix = Fix((deletion(speller.text, span),), is_safe=False) if is_used else None
    speller.report(span, f"unknown declaration `{piece.text}`", help_, code="HM101", fix=fix)
    return True


def requests_of_zone(speller: Speller, piece: Lexeme) -> bool:
    """Read `limit_req zone=one burst=5 nodelay` as `limits`, with the rate of its zone."""
    if piece.text != "limit_req" or not speller.opened or not speller.at_start():
        return False
    brace = next(at for at in range(len(speller.out) - 1, -1, -1) if speller.out[at] is speller.opened[-1])
    owner = {one.text for one in speller.out[max(0, brace - 2) : brace]}
    span = _statement(speller, piece)
    name = _ZONE.search(speller.text, span.start, span.end)
    rate = None
    if name is not None:
        declared = re.search(rf"\blimit_req_zone\s[^;\n]*\bzone={name[1]}\b[^;\n]*", speller.text)
        rate = _RATE.search(declared[0]) if declared is not None else None
    put = _limits(rate)
    message = "`limit_req` is not in the language"
    if owner.isdisjoint({"provider", "agent"}):
        speller.report(span, message, f"write `{put}` in a provider or an agent: calls beyond it wait", code="HM102")
        return True
    speller.report(span, message, f"write `{put}`: calls beyond it wait", put, code="HM102", is_safe=False)
    _, _, setting, amount, _ = put.split()
    number, _, window = amount.partition("/")
    for type_, text in (
        ("NAME", "limits"), ("LBRACE", "{"), ("NAME", setting), ("QTY", number), ("SLASH", "/"), ("NAME", window),
        ("RBRACE", "}"),
    ):  # fmt: skip
        speller.put(type_, text, span)
    return True


def _limits(rate: re.Match[str] | None) -> str:
    """Return the setting for the rate of a zone, or an example where it is elsewhere."""
    return f"limits {{ requests {rate[1]}/{_WINDOWS[rate[2]]} }}" if rate is not None else "limits { requests 50/min }"


def _statement(speller: Speller, piece: Lexeme) -> Span:
    """Go to the end of a statement of nginx, which a `;` or the line ends; return its span."""
    last = piece
    while speller.at < len(speller.pieces) and speller.pieces[speller.at].type not in ("_NL", "LBRACE", "RBRACE"):
        last = speller.pieces[speller.at]
        speller.at += 1
    return piece.span.to(last.span)


def _block_end(speller: Speller, brace: int) -> int | None:
    """Return the index of the brace that closes a block; None where no block begins or ends."""
    if brace >= len(speller.pieces) or speller.pieces[brace].type != "LBRACE":
        return None
    depth = 0
    for at in range(brace, len(speller.pieces)):
        depth += (speller.pieces[at].type in _OPENS) - (speller.pieces[at].type in _CLOSES)
        if not depth:
            return at
    return None


def _assigned(speller: Speller, start: int, end: int) -> list[int]:
    """Return the indices of the names of `NAME = VALUE` in a block."""
    found, depth = [], 0
    for at in range(start, end - 1):
        one, after = speller.pieces[at : at + 2]
        depth += (one.type in _OPENS) - (one.type in _CLOSES)
        if not depth and one.type == "NAME" and after.type == "EQUAL" and "." not in one.text:
            found.append(at)
    return found


def _value_end(speller: Speller, start: int, end: int) -> int:
    """Return the index behind a value, which the line or the block ends."""
    depth = 0
    for at in range(start, end):
        one = speller.pieces[at]
        if one.type == "_NL" and not depth and at > start:
            return at
        depth += (one.type in _OPENS) - (one.type in _CLOSES)
    return end
