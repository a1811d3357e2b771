"""The tree of a policy file: shape only, each node with its place.

Values and expressions share their leaves. Nothing here knows which settings exist: that is the schema's.
"""

from __future__ import annotations

from typing import TypeAlias, final

import attrs

from hivemind_trio.policy.source.span import Span


@final
@attrs.frozen
class Name:
    """A bare word, dots and dashes included: `interactive`, `tokens.in`."""

    text: str
    span: Span


@final
@attrs.frozen
class String:
    """A quoted text, escapes resolved."""

    value: str
    span: Span


@final
@attrs.frozen
class Quantity:
    """A number with whatever stands at it: `2`, `40k`, `1h30m`, `80%`, `$25`. The unit is read later."""

    text: str
    span: Span


@final
@attrs.frozen
class Rate:
    """`50/min`, `$25/day`, `$3/Mtok`, `$50/10m`."""

    amount: Quantity
    per: Name | Quantity
    span: Span


@final
@attrs.frozen
class Clock:
    """`22:00`."""

    text: str
    span: Span


@final
@attrs.frozen
class ListValue:
    """`[a, b, 1..2]`."""

    items: tuple[Value, ...]
    span: Span


@final
@attrs.frozen
class RangeValue:
    """`low..high`, both ends included."""

    low: Quantity | Rate | Clock
    high: Quantity | Rate | Clock
    span: Span


@final
@attrs.frozen
class CallValue:
    """`env(NAME)`, `file("path")`."""

    name: Name
    args: tuple[Value, ...]
    span: Span


Value: TypeAlias = Name | String | Quantity | Rate | Clock | ListValue | RangeValue | CallValue


@final
@attrs.frozen
class Or:
    """Two or more conditions, one of which must hold."""

    items: tuple[Expr, ...]
    span: Span


@final
@attrs.frozen
class And:
    """Two or more conditions, all of which must hold."""

    items: tuple[Expr, ...]
    span: Span


@final
@attrs.frozen
class Not:
    """The opposite."""

    item: Expr
    span: Span


@final
@attrs.frozen
class Compare:
    """`left OP right`; `op` is one of `== != <= >= < > ~`."""

    op: str
    op_span: Span
    left: Expr
    right: Expr
    span: Span


@final
@attrs.frozen
class Contains:
    """`left in right`; `not in` where `negated`."""

    left: Expr
    right: Expr
    negated: bool
    span: Span


Expr: TypeAlias = Or | And | Not | Compare | Contains | Value


@final
@attrs.frozen
class Item:
    """`HEAD ARGS [when EXPR] [{ BLOCK }]`."""

    head: Name
    args: tuple[Value, ...]
    when: Expr | None
    block: Block | None
    span: Span


@final
@attrs.frozen
class Let:
    """`let NAME = EXPR`."""

    name: Name
    value: Expr
    span: Span


@final
@attrs.frozen
class Expect:
    """`expect EXPR`, in a test."""

    value: Expr
    span: Span


Statement: TypeAlias = Item | Let | Expect


@final
@attrs.frozen
class Block:
    """`{ ... }`."""

    statements: tuple[Statement, ...]
    span: Span


@final
@attrs.frozen
class File:
    """One source file's statements. What could not be read is missing, and a diagnostic says so."""

    source: int
    statements: tuple[Statement, ...]
    damaged: tuple[Span, ...] = ()
    """The parts that could not be read."""
