"""The Lark grammar, loaded when first used, and the callbacks that build our tree from it.

Lark is imported here and nowhere else, inside functions: `import hivemind_trio` and `--help` must not pay for it.
Places come from our own lexemes; Lark's `propagate_positions` doubles the time of a parse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
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
    """Return the LALR parser. About 80 ms the first time, the import of Lark included.

    Args:
        strict: Refuse a grammar with a conflict or colliding terminals (needs `interegular`, which the tests have).
    """
    from lark import Lark

    with _collisions_looked_for(strict):
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
    with _collisions_looked_for(False):
        lexer: BasicLexer = grammar()._build_lexer(dont_ignore=True)
    return lexer


@contextmanager
def _collisions_looked_for(wanted: bool) -> Iterator[None]:
    """Let Lark look for colliding terminals only where that is wanted.

    Lark looks for them wherever `interegular` is installed. That takes half a second of each start, for a grammar that
    a test has checked.
    """
    from lark import lexer

    installed = lexer.has_interegular
    lexer.has_interegular = installed and wanted
    try:
        yield
    finally:
        lexer.has_interegular = installed


def pieces(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield the terminal, the text and the place of every piece, white space and comments included.

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


def _string(children: Sequence[Lexeme]) -> String:
    return String(unescape(children[0].text[1:-1]), children[0].span)


def _rate(children: Sequence[Lexeme]) -> Rate:
    amount, _, per = children
    unit = _name(per) if per.type == "NAME" else Quantity(per.text, per.span)
    return Rate(Quantity(amount.text, amount.span), unit, _span(children))


def _range(children: Sequence[Any]) -> RangeValue:
    low, high = _nodes(children)
    return RangeValue(low, high, _span(children))


def _compare(children: Sequence[Any]) -> Compare:
    left, right = _nodes(children)
    operator = next(child for child in children if isinstance(child, Lexeme) and child.type == "CMP")
    return Compare(operator.text, operator.span, left, right, _span(children))


def _contains(negated: bool, children: Sequence[Any]) -> Contains:
    left, right = _nodes(children)
    return Contains(left, right, negated, _span(children))


def _item(children: Sequence[Any]) -> Item:
    parts = _nodes(children[1:])
    when = next((part.condition for part in parts if isinstance(part, _When)), None)
    block = next((part for part in parts if isinstance(part, Block)), None)
    args = tuple(part for part in parts if not isinstance(part, (_When, Block)))
    return Item(_name(children[0]), args, when, block, _span(children))


_BUILD: Final[dict[str, Callable[[Sequence[Any]], Any]]] = {
    "start": _nodes,
    "name": lambda children: _name(children[0]),
    "string": _string,
    "quantity": lambda children: Quantity(children[0].text, children[0].span),
    "clock": lambda children: Clock(children[0].text, children[0].span),
    "rate": _rate,
    "list": lambda children: ListValue(_nodes(children), _span(children)),
    "range": _range,
    "call": lambda children: CallValue(_name(children[0]), _nodes(children), _span(children)),
    "or_": lambda children: Or(_nodes(children), _span(children)),
    "and_": lambda children: And(_nodes(children), _span(children)),
    "not_": lambda children: Not(_nodes(children)[0], _span(children)),
    "cmp": _compare,
    "in_": partial(_contains, False),
    "not_in": partial(_contains, True),
    "when": lambda children: _When(_nodes(children)[0], _span(children)),
    "block": lambda children: Block(_nodes(children), _span(children)),
    "let": lambda children: Let(_name(children[1]), _nodes(children[2:])[0], _span(children)),
    "expect": lambda children: Expect(_nodes(children)[0], _span(children)),
    "item": _item,
}
"""Rule of the grammar -> its node. Children are our nodes and every lexeme, punctuation included."""


def _builder() -> Any:
    from lark import Transformer

    builder: Any = Transformer()
    for rule, build in _BUILD.items():
        setattr(builder, rule, build)
    return builder
