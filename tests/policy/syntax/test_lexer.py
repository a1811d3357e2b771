"""The lexer is total: whatever the text, it is cut into pieces that put together are the text again."""

from __future__ import annotations

import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lark.lexer import LexerThread

from hivemind_trio.policy.syntax.grammar import grammar, pieces
from hivemind_trio.policy.syntax.lexer import TRIVIA, lexemes, significant
from hivemind_trio.policy.syntax.lexer import words as spoken
from hivemind_trio.policy.syntax.parser import parse

SIGNS = st.sampled_from(
    ['"', "\\", "\n", "\r", "\r\n", "\0", "#", ";", "{", "}", "[", "]", "(", ")", "..", ".", ":", "/", "=", "==", "<=",
     "~", ",", "$", "%", "-", "_", "1", "22:00", "4k", "1h30m", "not", "in", "when", "let", "a", "tokens.in", " ", "\t",
     "\f", "\v", "\x85", "\u2028", "\ufeff", "é", "界", "٣", "Ⅷ", "🙂", "\u0301", "\u202e", "&", "'", "“"]
)  # fmt: skip
"""What the language has, what it is next to, and what other alphabets have that looks like it."""

TEXTS = st.one_of(st.text(max_size=60), st.lists(SIGNS, max_size=40).map("".join))


def types(text: str) -> list[str]:
    return [piece.type for piece in lexemes(text, 0)]


def words(text: str) -> list[tuple[str, str]]:
    return [(piece.type, piece.text) for piece in lexemes(text, 0) if piece.type != "WS"]


def seen(text: str) -> list[str]:
    """What the parser is given, a separator written as `|`."""
    return ["|" if piece.type == "_NL" else piece.text for piece in significant(lexemes(text, 0))]


def assert_covers(text: str) -> None:
    pieces = lexemes(text, 7)

    assert "".join(piece.text for piece in pieces) == text
    assert all(piece.text for piece in pieces)
    assert all(text[piece.span.start : piece.span.end] == piece.text for piece in pieces)
    assert all(piece.span.source == 7 for piece in pieces)
    ends = [0, *(end for piece in pieces for end in (piece.span.start, piece.span.end)), len(text)]
    assert all(left == right for left, right in list(pairwise(ends))[::2])


# ---- total ----


@given(TEXTS)
def test_the_pieces_of_any_text_are_the_text(text: str) -> None:
    assert_covers(text)


@pytest.mark.slow
@given(TEXTS)
def test_the_pieces_are_those_that_lark_gives(text: str) -> None:
    lexer = grammar()._build_lexer(dont_ignore=True)
    tokens = LexerThread.from_text(lexer, text).lex(None)  # type: ignore[no-untyped-call]  # Lark's

    assert list(pieces(text)) == [(token.type, token.value, token.start_pos) for token in tokens]


@given(TEXTS)
def test_the_words_are_the_pieces_but_for_white_space_and_comments(text: str) -> None:
    assert spoken(text, 7) == [piece for piece in lexemes(text, 7) if piece.type not in TRIVIA]


@pytest.mark.slow
@given(TEXTS)
def test_any_text_is_parsed_or_complained_of_where_it_stands(text: str) -> None:
    tree, problems = parse(text, 3)

    assert tree.source == 3
    for problem in problems:
        for span in (problem.span, *(label.span for label in problem.labels)):
            assert span.source == 3
            assert 0 <= span.start <= span.end <= len(text)


def test_characters_of_every_block_lex() -> None:
    every = [*range(0x3000), *range(0x3000, sys.maxunicode + 1, 251), *range(0xD7F0, 0xE010), *range(0xFF00, 0x10010)]

    assert_covers("".join(map(chr, every)))


@pytest.mark.parametrize("letter", [*map(chr, range(256)), "\u2028", "\ufeff", "\ud800", "٣", "Ａ", "Ⅷ", "\U0010ffff"])
def test_a_character_lexes_alone_in_a_text_and_behind_a_backslash(letter: str) -> None:
    for text in (letter, f'a "{letter}" b', f'"\\{letter}"', f'"{letter}', f"# {letter}", f"4{letter}", f"a.{letter}"):
        assert_covers(text)


LONG = {
    "a word": "a" * (1 << 20),
    "a path": "a." * (1 << 19) + "a",
    "a number": "9" * (1 << 20),
    "a quantity in many parts": "1h" * (1 << 19),
    "a text": f'"{"a" * (1 << 20)}"',
    "a text of escapes": '"' + '\\"' * (1 << 19) + '"',
    "a text that never ends": '"' + "a" * (1 << 20),
    "a text of escapes that never ends": '"' + "\\\\" * (1 << 19),
    "a comment": "#" * (1 << 20),
    "white space": " \t" * (1 << 19),
    "what is in no language": "\0" * (1 << 14),  # a piece for each, so fewer of them
}
"""One line each, of a megabyte."""


@pytest.mark.slow
@pytest.mark.parametrize("line", LONG.values(), ids=LONG)
def test_a_very_long_line_lexes(line: str) -> None:
    assert_covers(f"provider a {{ }}\n{line}\nprovider b {{ }}\n")


@pytest.mark.slow
def test_a_very_long_line_of_white_space_or_of_one_text_is_one_piece() -> None:
    assert types(LONG["white space"]) == ["WS"]
    assert types(LONG["a text"]) == ["STRING"]
    assert types(LONG["a comment"]) == ["COMMENT"]


# ---- which pieces ----

PIECES = {
    "nothing": ("", []),
    "a dash in a word": ("first-byte", [("NAME", "first-byte")]),
    "a path is one word": ("header.x-team", [("NAME", "header.x-team")]),
    "the `in` of a path is no operator": ("tokens.in in", [("NAME", "tokens.in"), ("IN", "in")]),
    "a reserved word": ("when", [("WHEN", "when")]),
    "a word that begins with a reserved one": ("whenever", [("NAME", "whenever")]),
    "a word that ends with one": ("x-in", [("NAME", "x-in")]),
    "reserved words are in small letters": ("When", [("NAME", "When")]),
    "a point at the end of a word": ("a.", [("NAME", "a"), ("ERROR", ".")]),
    "a range of words": ("a..b", [("NAME", "a"), ("_DOTDOT", ".."), ("NAME", "b")]),
    "a range of numbers": ("4..32", [("QTY", "4"), ("_DOTDOT", ".."), ("QTY", "32")]),
    "three points": ("1...2", [("QTY", "1"), ("_DOTDOT", ".."), ("ERROR", "."), ("QTY", "2")]),
    "a fraction in a range": ("0.5..0.9", [("QTY", "0.5"), ("_DOTDOT", ".."), ("QTY", "0.9")]),
    "a compound duration": ("1h30m", [("QTY", "1h30m")]),
    "a share": ("50%", [("QTY", "50%")]),
    "money": ("$0.80", [("QTY", "$0.80")]),
    "money of nothing": ("$x", [("ERROR", "$"), ("NAME", "x")]),
    "a rate": ("50/min", [("QTY", "50"), ("SLASH", "/"), ("NAME", "min")]),
    "thousands": ("40_000", [("QTY", "40_000")]),
    "a number that is below zero": ("-1", [("ERROR", "-"), ("QTY", "1")]),
    "a fraction without its zero": (".5", [("ERROR", "."), ("QTY", "5")]),
    "a clock is no number and a rest": ("22:00", [("CLOCK", "22:00")]),
    "a clock with a letter behind it": ("5:30m", [("CLOCK", "5:30"), ("NAME", "m")]),
    "a number and a colon": ("22:", [("QTY", "22"), ("ERROR", ":")]),
    "two signs that are one": ("<=", [("CMP", "<=")]),
    "two signs that are two": ("=<", [("EQUAL", "="), ("CMP", "<")]),
    "an empty text": ('""', [("STRING", '""')]),
    "a quote in a text": ('"a\\"b"', [("STRING", '"a\\"b"')]),
    "a backslash at the end of a text": ('"a\\\\" b', [("STRING", '"a\\\\"'), ("NAME", "b")]),
    "a hash in a text is no comment": ('"#" # "', [("STRING", '"#"'), ("COMMENT", '# "')]),
    "a text that never ends": ('"ab', [("BADSTRING", '"ab')]),
    "a text does not cross a line": ('"a\nb"', [("BADSTRING", '"a'), ("_NL", "\n"), ("NAME", "b"), ("BADSTRING", '"')]),
    "nor behind a backslash": ('"a\\\nb', [("BADSTRING", '"a'), ("ERROR", "\\"), ("_NL", "\n"), ("NAME", "b")]),
    "a comment ends with its line": ("#a\n#b", [("COMMENT", "#a"), ("_NL", "\n"), ("COMMENT", "#b")]),
    "a line of Windows": ("a\r\nb", [("NAME", "a"), ("_NL", "\r\n"), ("NAME", "b")]),
    "a line of an old Macintosh": ("a\rb", [("NAME", "a"), ("ERROR", "\r"), ("NAME", "b")]),
    "a NUL": ("a\0b", [("NAME", "a"), ("ERROR", "\0"), ("NAME", "b")]),
    "a byte order mark": ("\ufeffa", [("ERROR", "\ufeff"), ("NAME", "a")]),
    "a space of another width": ("a\u00a0b", [("NAME", "a"), ("ERROR", "\u00a0"), ("NAME", "b")]),
    "a line separator of Unicode separates nothing": ("a\u2028b", [("NAME", "a"), ("ERROR", "\u2028"), ("NAME", "b")]),
    "digits of another alphabet": ("٣", [("ERROR", "٣")]),
    "letters of another alphabet": ("né", [("NAME", "n"), ("ERROR", "é")]),
    "they may stand in texts and comments": ('"é界" # é界', [("STRING", '"é界"'), ("COMMENT", "# é界")]),
}


@pytest.mark.parametrize(("text", "expected"), PIECES.values(), ids=PIECES)
def test_a_text_is_cut_so(text: str, expected: list[tuple[str, str]]) -> None:
    assert words(text) == expected
    assert_covers(text)


def test_only_white_space_and_comments_are_left_out_for_the_parser() -> None:
    text = "a { # why\n\tb 4\n} # end"

    assert {piece.type for piece in lexemes(text, 0)} & TRIVIA == TRIVIA
    assert seen(text) == ["a", "{", "b", "4", "}"]


# ---- which newlines separate ----

SEPARATES = {
    "two lines": ("a 1\nb 2", "a 1 | b 2"),
    "two lines of Windows": ("a 1\r\nb 2", "a 1 | b 2"),
    "several empty lines separate once": ("a\n\n \n# why\n\nb", "a | b"),
    "none before the first": ("\n\na", "a"),
    "none behind the last": ("a\n\n", "a"),
    "in a list": ("a [\n1\n,\n2\n]\nb", "a [ 1 , 2 ] | b"),
    "in brackets": ("a when (\nb\n)\nc", "a when ( b ) | c"),
    "in brackets in brackets": ("a when ((\nb\n)\n)\nc", "a when ( ( b ) ) | c"),
    "behind an opening brace": ("a {\nb\n}", "a { b }"),
    "before one": ("a\n{ b }", "a { b }"),
    "between a block and what follows": ("a { }\nb", "a { } | b"),
    "behind `=`": ("let a =\n1\nb", "let a = 1 | b"),
    "behind `and`": ("a when b and\nc\nd", "a when b and c | d"),
    "before `and`": ("a when b\nand c\nd", "a when b and c | d"),
    "behind `or`": ("a when b or\nc", "a when b or c"),
    "before `or`": ("a when b\nor c", "a when b or c"),
    "behind `not`": ("a when not\nb", "a when not b"),
    "before `not` a statement may begin": ("a\nnot b", "a | not b"),
    "around `in`": ("a when b\nin\n[1]", "a when b in [ 1 ]"),
    "around a comparison": ("a when b\n<=\n1", "a when b <= 1"),
    "around `..`": ("a 1\n..\n2", "a 1 .. 2"),
    "around `/`": ("a 1\n/\nmin", "a 1 / min"),
    "around `when`": ("a\nwhen\nb", "a when b"),
    "a semicolon": ("a; b", "a | b"),
    "a semicolon separates where a newline does not": ("a [1; 2]", "a [ 1 | 2 ]"),
    "a semicolon behind an operator": ("a when b and; c", "a when b and | c"),
    "a semicolon is not outdone by newlines around it": ("a\n;\nand b", "a | and b"),
    "nothing stands before a semicolon": ("{ ; a }", "{ a }"),
    "a semicolon at the end of a block": ("a { b; }", "a { b | }"),
    "a bracket that is never closed ends at a brace": ("a [ 1,\nb {\nc\nd\n}\ne", "a [ 1 , b { c | d } | e"),
    "or where a line begins with a word": ("a [\n1,\n2\nb 3\nc 4", "a [ 1 , 2 | b 3 | c 4"),
    "not behind a comma": ("a [ b,\nc\nd", "a [ b , c | d"),
    "nor behind the bracket": ("a [\nb\nc", "a [ b | c"),
    "nor where no word begins the line": ("a [ 1\n2\nb", "a [ 1 2 | b"),
    "a bracket that is closed does not": ("a [\nb\nc\n]\nd", "a [ b c ] | d"),
    "one in it does, and both end": ("a (b [ 1\nc\nd 2\ne", "a ( b [ 1 | c | d 2 | e"),
    "a later bracket closes none before its brace": ("a [ 1\nb [ 2 ]\nc { d ] }", "a [ 1 | b [ 2 ] | c { d ] }"),
    "or at `let`": ("a [ 1\nlet b = 2\nc", "a [ 1 | let b = 2 | c"),
    "or at `expect`": ("a [ 1\nexpect b\nc", "a [ 1 | expect b | c"),
    "a bracket that was never opened opens none": ("a ]\nb [\n1 ]\nc", "a ] | b [ 1 ] | c"),
}


@pytest.mark.parametrize(("text", "expected"), SEPARATES.values(), ids=SEPARATES)
def test_a_newline_separates_two_statements_and_nothing_else(text: str, expected: str) -> None:
    assert seen(text) == expected.split()


@pytest.mark.slow
@given(TEXTS)
def test_what_the_parser_sees_is_in_the_order_of_the_text_with_no_two_separators_together(text: str) -> None:
    pieces = list(significant(lexemes(text, 0)))

    assert all(left.span.end <= right.span.start for left, right in pairwise(pieces))
    assert not any(left.type == right.type == "_NL" for left, right in pairwise(pieces))
    assert not pieces or pieces[0].type != "_NL"
    assert not pieces or pieces[-1].type != "_NL"
    kept = [piece for piece in lexemes(text, 0) if piece.type not in {*TRIVIA, "_NL"}]
    assert [piece for piece in pieces if piece.type != "_NL"] == kept
