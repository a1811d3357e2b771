"""Signs between the parts of a statement: arrows, equals signs, colons and commas."""

from __future__ import annotations

import re
from typing import Final

import attrs

from hivemind_trio.policy.diagnostics.diagnostic import Fix
from hivemind_trio.policy.schema import DECLARATIONS, LIMITS, TEST_STATEMENTS
from hivemind_trio.policy.source.edits import Edit
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.syntax.lexeme import Lexeme

from .speller import OPERANDS, WORD, Speller, call_pieces

_ARROWS: Final = "→⇒⟶➔"
_SETTINGS: Final = frozenset(
    {name for declaration in DECLARATIONS.values() for name in declaration.settings}
    | {*DECLARATIONS, *TEST_STATEMENTS, *LIMITS}
)
"""Every word that can begin a statement."""
_OPTIONS: Final = {
    name: frozenset(setting.options)
    for declaration in DECLARATIONS.values()
    for name, setting in declaration.settings.items()
    if setting.options
}
"""Setting -> its options."""
_ASSIGNS: Final = ("const", "var", "set", "def", "local", "locals", "val")
_REST: Final = re.compile(r'(?:"[^"\n]*"|\([^)\n]*\)|\[[^\]\n]*\]|[^\s;,{}\[\]()#])+')
"""A value, as far as it goes."""


def arrow(speller: Speller, piece: Lexeme) -> bool:
    """Read `fallback a -> b`: one thing that follows another stands behind it."""
    count = 2 if speller.text.startswith("->", piece.span.start) else 1
    if count == 1 and piece.text not in _ARROWS:
        return False
    speller.report_foreign(
        speller.span_of(piece.span.start, piece.span.start + count, piece), "delete it", "", is_safe=False
    )
    speller.at += count
    return True


def equals(speller: Speller, piece: Lexeme) -> bool:
    """Read `=` in a condition, or either sign in a setting."""
    last, after = speller.last, speller.ahead()
    if last is None or after is None or (piece.type == "CMP" and (piece.text != "==" or speller.in_condition)):
        return False
    if after.type not in OPERANDS | {"LSQB", "LPAR", "LBRACE"}:
        return False
    if piece.type == "EQUAL" and after.type != "LBRACE" and _assigned(speller, piece):
        return True
    if len(speller.out) - speller.begin == 2 and speller.out[speller.begin].type == "LET":
        if piece.type == "EQUAL":
            return False
        speller.report(piece.span, "unexpected `==`", "write `=`", "=", code="HM003")
        speller.take(Lexeme("EQUAL", "=", piece.span))
        return True
    note = "`=` is for `let`" if piece.type == "EQUAL" else ""
    before_block = after.type == "LBRACE"
    if speller.in_condition and piece.type == "EQUAL" and not before_block:
        help_ = f"write `{speller.written(last)} == {speller.written(after)}`"
        speller.report(piece.span, "unexpected `=`", help_, "==", code="HM003", note=note)
        speller.take(Lexeme("CMP", "==", piece.span))
        return True
    if last.type != "NAME" and not before_block:
        return False
    help_ = "delete it" if before_block else f"write `{speller.written(last)} {_whole(speller, after)}`"
    message = f"unexpected `{piece.text}`"
    speller.report(piece.span, message, help_, code="HM003", note=note, fix=speller.removed(piece.span))
    speller.at += 1
    return True


def _assigned(speller: Speller, piece: Lexeme) -> bool:
    """Read `NAME = VALUE` and `const NAME = VALUE` at the top of a file as a `let`."""
    words = speller.out[speller.begin :]
    if speller.opened or any(one.type != "NAME" for one in words):
        return False
    after = speller.ahead()
    is_text = after is not None and after.type in ("STRING", "LSQB")
    if len(words) == 1 and is_text and words[0].text not in _SETTINGS:
        put = f"let {words[0].text}"
        speller.report(words[0].span, "`=` is for `let`", f"write `{put} = ...`", put, code="HM003")
    elif len(words) == 2 and words[0].text in _ASSIGNS:
        speller.report_foreign(words[0].span, "write `let`", "let")
    else:
        return False
    name = words[-1]
    del speller.out[speller.begin :]
    for one in (Lexeme("LET", "let", words[0].span), name, Lexeme("EQUAL", "=", piece.span)):
        speller.push(one)
    speller.at += 1
    return True


def _whole(speller: Speller, piece: Lexeme) -> str:
    """Return the text of a value as it is written: a price, a call or a URL is several lexemes."""
    found = _REST.match(speller.text, piece.span.start)
    return found[0] if found is not None else speller.written(piece)


def colon(speller: Speller, piece: Lexeme) -> bool:
    """Read `name: value`, `env:NAME` and a block by indentation."""
    last, after = speller.last, speller.ahead()
    if piece.text != ":" or last is None or speller.in_brackets():
        return False
    if last.text in ("env", "file") and after is not None and after.type == "NAME" and not speller.in_condition:
        span, put = last.span.to(after.span), f"env({after.text})"
        speller.report_foreign(span, f"write `{put}`", put, is_safe=last.text == "env")
        speller.at += 2
        speller.out[-1:] = [Lexeme(type_, text, span) for type_, text in call_pieces("env", after.text)]
        return True
    if speller.in_condition and after is not None and after.type in OPERANDS:
        speller.report_foreign(
            piece.span, f"write `{speller.written(last)} == {speller.written(after)}`", speller.padded("==", piece.span)
        )
        speller.take(Lexeme("CMP", "==", piece.span))
        return True
    if last.type == "STRING" and WORD.fullmatch(last.text[1:-1]):
        word, span = last.text[1:-1], last.span.to(piece.span)
        speller.report(span, "`:` is not in the language", f"write `{word}`", word + speller.gap(span))
        speller.out[-1] = Lexeme("NAME", word, last.span)
        speller.at += 1
        return True
    if last.type != "NAME":
        return False
    if after is None or after.type == "_NL":
        return _indented(speller, piece)
    shown = f"write `{last.text} {_whole(speller, after)}`" if after.type in OPERANDS else "delete it"
    speller.report(piece.span, "`:` is not in the language", shown, fix=speller.removed(piece.span))
    speller.at += 1
    return True


def _indented(speller: Speller, piece: Lexeme) -> bool:
    """Read a block by indentation: `provider anthropic:` and lines that are further in."""
    begin = speller.text.rfind("\n", 0, piece.span.start) + 1
    line = speller.text[begin : piece.span.start]
    indent = line[: len(line) - len(line.lstrip())]
    end = at = speller.line_end(piece.span.start)
    while at < len(speller.text):
        stop = speller.line_end(at + 1)
        more = speller.text[at + 1 : stop]
        if more.strip():
            if len(more) - len(more.lstrip()) <= len(indent):
                break
            end = stop
        at = stop
    first = speller.line_end(piece.span.start)
    if end == first:
        speller.report_foreign(piece.span, "delete it", "")
        speller.at += 1
        return True
    span = speller.span_of(piece.span.start, end, piece)
    put = f" {{{speller.text[first:end]}\n{indent}}}"
    speller.report(
        piece.span, "`:` is not in the language", "write `{` here, and `}` below the lines that are further in"
    )
    speller.found[-1] = attrs.evolve(speller.found[-1], span=span, fix=Fix.replacing(span, put))
    speller.at += 1
    speller.put("LBRACE", "{", piece.span)
    speller.block_ends.append(end)
    return True


def comma(speller: Speller, piece: Lexeme) -> bool:
    """Read a comma between settings, or between the items of a list without its brackets."""
    last, after = speller.last, speller.ahead()
    if speller.in_brackets() or last is None:
        return False
    if _thousands(speller, last) or _before_option(speller, piece) or _names(speller, piece):
        return True
    is_alone = len(speller.out) - 1 == speller.begin and after is not None and after.type in ("QTY", "STRING")
    # The window of a rate is no item; `requests 5/min, input 20k/min` are two settings, which begin with names.
    is_alone |= len(speller.out) > 1 and speller.out[-2].type == "SLASH" and after is not None and after.type == "QTY"
    if after is None or after.type in ("_NL", "RBRACE") or is_alone:
        speller.report(piece.span, "unexpected `,`", "delete it", speller.gap(piece.span), code="HM003")
        speller.at += 1
        return True
    if last.type in OPERANDS and not _asked_beside(speller) and len(speller.out) - 1 > speller.begin:
        run = _items(speller)
        if len(run) > 1:
            span = last.span.to(run[-1].span)
            put = f"[{speller.text[span.start : span.end]}]"
            speller.report(span, "unexpected `,`", f"write `{put}`", put, code="HM003")
            speller.out[-1:] = [Lexeme("LSQB", "[", last.span)]
            for one in run:
                speller.out += [one, Lexeme("COMMA", ",", one.span)]
            speller.skip_to(span.end)
            speller.put("RSQB", "]", Span(span.source, span.end, span.end))
            return True
    if last.type == "RPAR" and after.text in ("env", "file"):
        return _secrets(speller, piece)
    speller.report(piece.span, "unexpected `,`", "write `;`", ";", code="HM003")
    speller.take(Lexeme("_NL", ";", piece.span))
    return True


def _before_option(speller: Speller, piece: Lexeme) -> bool:
    """Read a comma between the options of a setting: `timeout connect 5s, total 30s`."""
    step = 1
    while (after := speller.ahead(step)) is not None and after.type == "_NL" and after.text != ";":
        step += 1
    head = speller.out[speller.begin].text
    if after is None or after.type != "NAME" or after.text not in _OPTIONS.get(head, ()):
        return False
    gap = Span(piece.span.source, piece.span.start, after.span.start)
    fix = Fix((Edit(gap, " "),))
    speller.report(
        piece.span, "unexpected `,`", f"delete it: write `{after.text}` on the same line", code="HM003", fix=fix
    )
    speller.at += step
    return True


def _names(speller: Speller, piece: Lexeme) -> bool:
    """Read `agent ci, cd { }` as two declarations."""
    head, after = speller.out[speller.begin], speller.ahead()
    if speller.opened or head.text not in DECLARATIONS or len(speller.out) - speller.begin != 2:
        return False
    if after is None or after.type != "NAME" or after.text in _SETTINGS or speller.out[-1].type != "NAME":
        return False
    shown = " and ".join(f"`{head.text} {name} {{ ... }}`" for name in (speller.out[-1].text, after.text))
    speller.report(piece.span, "unexpected `,`", f"declare each by itself: {shown}", code="HM003")
    speller.put("_NL", ";", piece.span)
    speller.at += 1
    speller.put("NAME", head.text, piece.span)
    return True


def no_comma(speller: Speller, piece: Lexeme) -> bool:
    """Read `[429 529]`: the items of a list without their commas."""
    if not speller.opened or speller.opened[-1].type != "LSQB":
        return False
    before = next((one for one in reversed(speller.out) if one.type != "_NL"), None)
    if before is None or before.type not in OPERANDS | {"RPAR"}:
        return False
    ends = ("RSQB", "LSQB", "LBRACE", "RBRACE", "EQUAL", "_NL")
    ahead = (one for one in speller.pieces[speller.at :] if one.type in ends)
    is_alone = "\n" in speller.text[before.span.end : piece.span.start]
    closer = next((one for one in ahead if one.type != "_NL" or one.text == ";"), None)
    if closer is None or closer.type != "RSQB" or (is_alone and piece.text in _SETTINGS):
        return False
    put = f", {speller.written(piece)}"
    end = Span(piece.span.source, before.span.end, before.span.end)
    fix = Fix((Edit(end, ","),)) if is_alone else Fix.replacing(piece.span, put)
    help_ = "a list has commas: put one before it" if is_alone else f"a list has commas: write `{put}`"
    speller.report(piece.span, f"unexpected `{speller.written(piece)}`", help_, code="HM003", fix=fix)
    speller.put("COMMA", ",", piece.span)
    speller.take(piece)
    return True


def empty_call(speller: Speller, piece: Lexeme) -> bool:
    """Read `deny()` without its parentheses."""
    last, after = speller.last, speller.ahead()
    if speller.in_condition or last is None or last.type != "NAME" or after is None or after.type != "RPAR":
        return False
    if len(speller.out) - speller.begin != 1:
        return False
    speller.report(piece.span.to(after.span), "unexpected `()`", "delete it", "", code="HM003")
    speller.at += 2
    return True


def _thousands(speller: Speller, last: Lexeme) -> bool:
    """Read `450,000` as one count. Behind `on` they are two statuses."""
    if last.type != "QTY" or not last.text.isdecimal() or len(last.text) > 3 or speller.out[speller.begin].text == "on":
        return False
    stop = speller.at
    while stop + 1 < len(speller.pieces) and speller.pieces[stop].type == "COMMA":
        comma, group = speller.pieces[stop : stop + 2]
        is_group = group.type == "QTY" and group.text[:3].isdecimal() and not group.text[3:4].isdecimal()
        before_ends = speller.pieces[stop - 1].span.end
        if not is_group or (before_ends, comma.span.end) != (comma.span.start, group.span.start):
            break
        stop += 2
    if stop == speller.at:
        return False
    span = last.span.to(speller.pieces[stop - 1].span)
    put = speller.text[span.start : span.end].replace(",", "_")
    speller.report(span, "unexpected `,` in a number", f"write `{put}`", put, code="HM003")
    speller.out[-1] = Lexeme("QTY", put, span)
    speller.at = stop
    return True


def _secrets(speller: Speller, piece: Lexeme) -> bool:
    """Read `token env(A), env(B)` as a list, and the first of the keys of a provider."""
    head = speller.out[speller.begin]
    stop = speller.at
    while (
        stop + 4 < len(speller.pieces)
        and speller.pieces[stop].type == "COMMA"
        and speller.pieces[stop + 4].type == "RPAR"
    ):
        stop += 5
    if stop == speller.at:
        return False
    rest = speller.pieces[speller.at : stop]
    if head.text != "token":
        span = piece.span.to(rest[-1].span)
        help_ = "delete it: a further key needs a provider of its own"
        speller.report(span, f"`{head.text}` takes one secret", help_, "", code="HM003", is_safe=False)
        speller.at = stop
        return True
    first = speller.out[speller.begin + 1]
    span = first.span.to(rest[-1].span)
    put = f"[{speller.text[span.start : span.end]}]"
    speller.report(span, "unexpected `,`", f"write `{put}`", put, code="HM003")
    speller.out[speller.begin + 1 : speller.begin + 1] = [Lexeme("LSQB", "[", first.span)]
    speller.out += rest
    speller.at = stop
    speller.put("RSQB", "]", rest[-1].span)
    return True


def _asked_beside(speller: Speller) -> bool:
    return speller.in_condition and speller.out[speller.begin].type != "LET"


def _items(speller: Speller) -> list[Lexeme]:
    """Return the values that commas join from the last one on; a name that begins a setting is none of them."""
    run = [speller.out[-1]]
    at = speller.at
    while at + 1 < len(speller.pieces) and speller.pieces[at].type == "COMMA":
        value = speller.pieces[at + 1]
        after = speller.pieces[at + 2].type if at + 2 < len(speller.pieces) else "_NL"
        is_word = value.type == "NAME" and after in ("COMMA", "_NL", "RBRACE") and value.text not in _SETTINGS
        if value.type not in ("STRING", "QTY") and not is_word:
            break
        run.append(value)
        at += 2
    return run
