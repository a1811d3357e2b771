"""The Lark grammar, loaded when first used, and the callbacks that build our tree from it.

Lark is imported here and nowhere else, inside functions: `import hivemind_trio` and `--help` must not pay for it.
Places come from our own lexemes; Lark's `propagate_positions` doubles the time of a parse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.source.string_literals import unescape

from .ast import (
    And,
    Block,
    CallValue,
    Clock,
    Compare,
    Contains,
    Expect,
    Expr,
    Item,
    Let,
    ListValue,
    Name,
    Not,
    Or,
    Quantity,
    RangeValue,
    Rate,
    String,
)
from .grammar_text import GRAMMAR
from .lexeme import Lexeme

if TYPE_CHECKING:
    from lark import Lark, Token
    from lark.lexer import BasicLexer

ERROR_TERMINALS: Final = ("BADSTRING", "ERROR")


@final
class _KeepErrorTerminals:
    """Post-lexer for Lark. Its use here is to keep the two error terminals, which no rule mentions."""

    always_accept = ERROR_TERMINALS

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        return stream


@cache
def grammar(*, strict: bool = False) -> Lark:
    """The LALR parser. About 80 ms the first time, the import of Lark included.

    Args:
        strict: Refuse a grammar with a conflict or colliding terminals (needs `interegular`, which the tests have).
    """
    from lark import Lark

    return Lark(
        GRAMMAR,
        parser="lalr",
        lexer="basic",
        strict=strict,
        postlex=_KeepErrorTerminals(),
        transformer=_builder(),
        keep_all_tokens=True,
        maybe_placeholders=False,
    )


@cache
def _lexer() -> BasicLexer:
    # Lark's own `lex` builds it anew for every text, and without a post-lexer would lack the error terminals.
    lexer: BasicLexer = grammar()._build_lexer(dont_ignore=True)
    return lexer


def pieces(text: str) -> Iterator[tuple[str, str, int]]:
    """The terminal, the text and the place of every piece, white space and comments included.

    What `Lark.lex` gives, without a `Token` and a count of lines and columns for each, which is half of its time.
    """
    from lark.lexer import UnlessCallback
    from lark.utils import TextSlice

    lexer = _lexer()
    match = lexer.scanner.match
    names = {
        name: unless.scanner.fullmatch for name, unless in lexer.callback.items() if isinstance(unless, UnlessCallback)
    }
    slice_, at, end = TextSlice.cast_from(text), 0, len(text)
    while at < end:
        found = match(slice_, at)
        assert found is not None  # there is a terminal for whatever no other takes
        value, name = found
        if name in names:
            name = names[name](value) or name  # a keyword, which is spelt like a name
        yield name, value, at
        at += len(value)


@final
@attrs.frozen
class _When:
    """An item's condition, told apart from its arguments."""

    condition: Expr
    span: Span


def _nodes(children: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(child for child in children if not isinstance(child, Lexeme))


def _span(children: Sequence[Any]) -> Span:
    first: Span = children[0].span
    last: Span = children[-1].span
    return first.to(last)


def _name(lexeme: Lexeme) -> Name:
    return Name(lexeme.text, lexeme.span)


def _builder() -> Any:
    from lark import Transformer

    class Builder(Transformer):  # type: ignore[type-arg]  # its two parameters say nothing here: every rule differs
        """One method per rule. Children are our nodes and every lexeme, punctuation included."""

        def start(self, children: Sequence[Any]) -> Any:
            return _nodes(children)

        def name(self, children: Sequence[Lexeme]) -> Any:
            return _name(children[0])

        def string(self, children: Sequence[Lexeme]) -> Any:
            return String(unescape(children[0].text[1:-1]), children[0].span)

        def quantity(self, children: Sequence[Lexeme]) -> Any:
            return Quantity(children[0].text, children[0].span)

        def clock(self, children: Sequence[Lexeme]) -> Any:
            return Clock(children[0].text, children[0].span)

        def rate(self, children: Sequence[Lexeme]) -> Any:
            amount, _, per = children
            unit = _name(per) if per.type == "NAME" else Quantity(per.text, per.span)
            return Rate(Quantity(amount.text, amount.span), unit, _span(children))

        def list(self, children: Sequence[Any]) -> Any:
            return ListValue(_nodes(children), _span(children))

        def range(self, children: Sequence[Any]) -> Any:
            low, high = _nodes(children)
            return RangeValue(low, high, _span(children))

        def call(self, children: Sequence[Any]) -> Any:
            return CallValue(_name(children[0]), _nodes(children), _span(children))

        def or_(self, children: Sequence[Any]) -> Any:
            return Or(_nodes(children), _span(children))

        def and_(self, children: Sequence[Any]) -> Any:
            return And(_nodes(children), _span(children))

        def not_(self, children: Sequence[Any]) -> Any:
            return Not(_nodes(children)[0], _span(children))

        def cmp(self, children: Sequence[Any]) -> Any:
            left, right = _nodes(children)
            operator = next(child for child in children if isinstance(child, Lexeme) and child.type == "CMP")
            return Compare(operator.text, operator.span, left, right, _span(children))

        def in_(self, children: Sequence[Any]) -> Any:
            left, right = _nodes(children)
            return Contains(left, right, False, _span(children))

        def not_in(self, children: Sequence[Any]) -> Any:
            left, right = _nodes(children)
            return Contains(left, right, True, _span(children))

        def when(self, children: Sequence[Any]) -> Any:
            return _When(_nodes(children)[0], _span(children))

        def block(self, children: Sequence[Any]) -> Any:
            return Block(_nodes(children), _span(children))

        def let(self, children: Sequence[Any]) -> Any:
            return Let(_name(children[1]), _nodes(children[2:])[0], _span(children))

        def expect(self, children: Sequence[Any]) -> Any:
            return Expect(_nodes(children)[0], _span(children))

        def item(self, children: Sequence[Any]) -> Any:
            parts = _nodes(children[1:])
            when = next((part.condition for part in parts if isinstance(part, _When)), None)
            block = next((part for part in parts if isinstance(part, Block)), None)
            args = tuple(part for part in parts if not isinstance(part, (_When, Block)))
            return Item(_name(children[0]), args, when, block, _span(children))

    return Builder()
