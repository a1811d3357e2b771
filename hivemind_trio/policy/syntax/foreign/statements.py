"""Statements of other languages, and blocks that nothing closes."""

from __future__ import annotations

from typing import Final

from hivemind_trio.policy.diagnostics.diagnostic import Fix
from hivemind_trio.policy.schema import DECLARATIONS
from hivemind_trio.policy.source.edits import Edit
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.syntax.lexeme import Lexeme

from .speller import Speller

CONDITIONALS: Final = frozenset({"if", "else", "elif", "elsif", "where"})
"""Words that begin a statement in other languages; in this one they could be the name of a setting."""


def price_side(speller: Speller, piece: Lexeme) -> bool:
    """Read `price in $3/Mtok`: the side that a price is of, by its short name."""
    if speller.in_condition or len(speller.out) == speller.begin or speller.out[speller.begin].text != "price":
        return False
    speller.report(piece.span, "`in` is no side of a price", "write `input`", "input", code="HM003")
    speller.at += 1
    speller.put("NAME", "input", piece.span)
    return True


def conditional(speller: Speller, piece: Lexeme) -> bool:
    """Read `if`, `else`, `elif` and `then` as rules."""
    after, text = speller.ahead(), piece.text
    if text in ("then", "do") and speller.in_condition and after is not None and after.type == "LBRACE":
        speller.report(piece.span, f"`{text}` is not in the language", "delete it", "", code="HM003")
        speller.at += 1
        return True
    if speller.opened or not speller.at_start() or after is None:
        return False
    if text == "if":
        return _rule(speller, piece, piece.span, "", is_conditional=True)
    if text not in CONDITIONALS or not speller.out:
        return False
    on_its_line = (
        "\n" not in speller.text[speller.out[-1].span.end : piece.span.start] and speller.out[-1].type != "_NL"
    )
    is_conditional = text != "else" or after.text == "if"
    span = piece.span.to(after.span) if text == "else" and is_conditional else piece.span
    return _rule(speller, piece, span, "; " if on_its_line else "", is_conditional=is_conditional)


def condition_word(speller: Speller, piece: Lexeme) -> bool:
    """Read `agent NAME if CONDITION`."""
    after = speller.ahead()
    if piece.text.lower() not in ("if", "where") or speller.opened or len(speller.out) - speller.begin < 2:
        return False
    declaration = DECLARATIONS.get(speller.out[speller.begin].text)
    if declaration is None or not declaration.when or speller.in_condition:
        return False
    if after is None or after.type not in ("NAME", "NOT", "LPAR", "STRING"):
        return False
    speller.report_foreign(piece.span, "write `when`", "when")
    speller.take(Lexeme("WHEN", "when", piece.span))
    return True


def amount_of_budget(speller: Speller, piece: Lexeme) -> bool:
    """Read `budget b { $5/day }`: the setting is missing."""
    after = speller.ahead()
    if not speller.at_start() or not piece.text.startswith("$") or after is None or after.type != "SLASH":
        return False
    if not speller.opened:
        return False
    brace = next(at for at in range(len(speller.out) - 1, -1, -1) if speller.out[at] is speller.opened[-1])
    if "budget" not in [one.text for one in speller.out[max(0, brace - 2) : brace]]:
        return False
    put = f"cost {piece.text}"
    speller.report(piece.span, f"unexpected `{piece.text}`", f"write `{put}`", put, code="HM003")
    speller.put("NAME", "cost", piece.span)
    speller.take(piece)
    return True


def _rule(speller: Speller, piece: Lexeme, span: Span, before: str, *, is_conditional: bool) -> bool:
    taken = {one.text for one in speller.pieces}
    base = "otherwise" if piece.text.startswith("el") else "first"
    name = next(name for name in (base, *(f"{base}-{n}" for n in range(2, len(taken) + 3))) if name not in taken)
    put = f"rule {name}{' when' if is_conditional else ''}"
    help_ = f"write `{put}`: of the rules that match, the first decides"
    if before:
        help_ = f"begin another rule with `{before}{put}`: of the rules that match, the first decides"
    speller.report(span, f"`{piece.text}` is not in the language", help_, before + put, code="HM003")
    if before:
        speller.put("_NL", ";", span)
    speller.put("NAME", "rule", span)
    speller.put("NAME", name, span)
    if is_conditional:
        speller.put("WHEN", "when", span)
    speller.skip_to(span.end)
    return True


def unclosed(speller: Speller, piece: Lexeme) -> bool:
    """Read a declaration at the left edge inside of an unclosed block: the block ends before it."""
    start = piece.span.start
    if not speller.lacks_a_brace or not speller.at_start() or (start and speller.text[start - 1] != "\n"):
        return False
    line = speller.line_end(start)
    ahead = (one for one in speller.pieces[speller.at + 1 :] if one.span.start < line)
    if piece.text not in DECLARATIONS or not any(one.type == "LBRACE" for one in ahead):
        return False
    braces = [one for one in speller.opened if one.type == "LBRACE"]
    if not braces:
        return False
    number = speller.text.count("\n", 0, start) + 1
    for brace in reversed(braces):
        help_ = f"add `}}` before line {number}, where `{piece.text}` begins"
        fix = Fix((Edit(Span(piece.span.source, start, start), "}\n"),))
        speller.report(brace.span, "unclosed `{`", help_, code="HM004", fix=fix)
        speller.doubtful.append(Span(piece.span.source, brace.span.start, start))
        speller.put("RBRACE", "}", Span(piece.span.source, start, start))
    speller.put("_NL", "\n", Span(piece.span.source, start, start))
    return False
