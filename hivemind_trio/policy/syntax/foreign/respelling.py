"""Spellings of other languages, each reported and read as the one of this language.

A text with a syntax error is read again through this pass: each slip becomes the lexemes that it stands for, so that
it hides nothing else of its statement. Each report carries the edit that mends it, where one edit does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hivemind_trio.policy.diagnostics.diagnostic import Diagnostic
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.syntax.lexeme import Lexeme

from . import blanks, blocks, operators, separators, statements, texts, values
from .speller import Speller

_READERS: Final[dict[str, tuple[Callable[[Speller, Lexeme], bool], ...]]] = {
    "ERROR": (
        blanks.space,
        texts.url,
        texts.address,
        separators.arrow,
        blanks.comment,
        values.variable,
        values.placeholder,
        values.moment,
        values.minus,
        values.percent,
        values.dollar,
        values.currency,
        values.at_sign,
        operators.plus,
        values.backslash,
        operators.operator,
        texts.glob,
        separators.colon,
        texts.quoted,
    ),
    "SLASH": (blanks.comment, values.environ, texts.divided, texts.slash),
    "CMP": (values.placeholder, operators.operator, separators.equals, operators.chain),
    "EQUAL": (operators.operator, separators.equals),
    "COMMA": (separators.comma,),
    "STRING": (texts.swallowing, separators.no_comma, operators.no_operator),
    "QTY": (separators.no_comma, operators.no_operator, statements.amount_of_budget),
    "LBRACE": (values.placeholder,),
    "BADSTRING": (texts.unended,),
    "NAME": (
        statements.unclosed,
        blocks.local_values,
        blocks.input_variable,
        blocks.zone,
        blocks.requests_of_zone,
        statements.conditional,
        statements.condition_word,
        operators.word_operator,
        operators.range_words,
        operators.no_operator,
        separators.no_comma,
        values.unit_word,
        texts.words,
    ),
    "IN": (statements.price_side,),
    "LPAR": (operators.parentheses, separators.empty_call),
    "LSQB": (values.subscript,),
    "_DOTDOT": (operators.operator,),
}
"""Terminal -> the readers of the slips that it may begin; the first that finds its own reads on."""


def respelled(text: str, pieces: Sequence[Lexeme]) -> tuple[list[Lexeme], list[Diagnostic], tuple[Span, ...]]:
    """Replace every slip by what it stands for, and report each.

    Args:
        pieces: Of a text with a syntax error, without white space and comments.

    Returns:
        The lexemes, the reports, and the parts of the text that may have been meant otherwise.
    """
    speller = Speller(text, list(pieces))
    while speller.at < len(speller.pieces):
        piece = speller.pieces[speller.at]
        while speller.block_ends and piece.span.start >= speller.block_ends[-1]:
            speller.put("_NL", "\n", piece.span)
            _close_block(speller, piece.span)
        if not any(read(speller, piece) for read in _READERS.get(piece.type, ())):
            speller.take(piece)
    while speller.block_ends:
        _close_block(speller, speller.span_of(len(text), len(text), speller.out[-1]))
    return speller.out, speller.found, tuple(speller.doubtful)


def _close_block(speller: Speller, span: Span) -> None:
    """End a block by indentation."""
    speller.put("RBRACE", "}", span)
    speller.block_ends.pop()
