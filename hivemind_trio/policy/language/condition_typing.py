"""Match expressions, typed. Total and two-valued: what is not said has a value, so nothing can fail at run time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, TypeAlias, final

import attrs

from hivemind_trio.model.addresses import ADDRESS_MOST, as_network, network_span
from hivemind_trio.model.dates import MINUTES, WEEKDAYS, is_date
from hivemind_trio.model.plan import WHOLE
from hivemind_trio.policy.diagnostics.collector import DiagnosticCollector
from hivemind_trio.policy.diagnostics.diagnostic import Fix, Label, Severity
from hivemind_trio.policy.diagnostics.suggest import suggestion
from hivemind_trio.policy.source.edits import Edit, addition, swapped
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.source.string_literals import quote
from hivemind_trio.policy.syntax.ast import (
    And,
    CallValue,
    Clock,
    Compare,
    Contains,
    Expr,
    ListValue,
    Name,
    Not,
    Or,
    Quantity,
    RangeValue,
    String,
)

from .dates import as_date, is_some_day
from .globs import is_glob
from .list_prices import BUILT_IN_PRICES
from .meant import NO, YES, field_meant, let_meant, method_meant
from .units import UnitError, as_clock, clock_minutes, count, duration_ns, money_microusd, ratio, share
from .values import declared_as

_ROUTED_AS: Final = "provider as "

_WHEN: Final = re.compile(r"[ \t]*\bwhen\s*\Z")
_GOES_ON: Final = re.compile(r"\s*(?:and|or)\b")


class Kind(Enum):
    """The type of a field."""

    TEXT = auto()
    ENUM = auto()
    NUMBER = auto()
    MONEY = auto()
    DURATION = auto()
    RATIO = auto()
    SHARE = auto()
    """A ratio in whole millionths: conditions of calls are solved exactly."""
    FLAG = auto()
    TIME = auto()
    """A time of day, in minutes since midnight."""
    DATE = auto()
    """A text, `YYYY-MM-DD`."""
    ADDRESS = auto()
    """An IP address as a number, and as a text in a policy."""


TEXTS: Final = (Kind.TEXT, Kind.DATE)
"""Types whose literals are quoted, and which globs match."""


@final
@attrs.frozen
class Field:
    """Something an expression can read."""

    name: str
    kind: Kind
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int | None = None


@final
@attrs.frozen
class Always:
    """A rule without `when`."""


@final
@attrs.frozen
class AllOf:
    """Every one holds."""

    items: tuple[Condition, ...]


@final
@attrs.frozen
class AnyOf:
    """One holds."""

    items: tuple[Condition, ...]


@final
@attrs.frozen
class Negation:
    """Negation of a condition."""

    item: Condition


@final
@attrs.frozen
class Flag:
    """The flag is set."""

    field: str


@final
@attrs.frozen
class Relation:
    """`field OP value`; `op` is one of `== != < <= > >=`."""

    field: str
    op: str
    value: str | int | float


@final
@attrs.frozen
class Member:
    """The field is one of `values`, or within one of `ranges`, both ends included."""

    field: str
    values: tuple[str | int | float, ...]
    ranges: tuple[tuple[int, int], ...]


@final
@attrs.frozen
class Like:
    """The field matches one of the globs."""

    field: str
    globs: tuple[str, ...]


Condition: TypeAlias = Always | AllOf | AnyOf | Negation | Flag | Relation | Member | Like

NUMBERS: Final = {
    "tokens.in": 0,
    "tokens.max-out": 0,
    "tokens.total": 0,
    "attempt": 1,
}

PLAN_SHARES: Final = ("plan.session", "plan.week", "plan.month")
"""Used shares of the windows of an account's plan."""

SESSION_FIELDS: Final = {
    "session.context": Kind.NUMBER,
    "session.turns": Kind.NUMBER,
    "session.cost": Kind.MONEY,
    "session.age": Kind.DURATION,
}
"""Facts of the session that a call belongs to, as they stood before it."""

CYCLIC: Final = ("time", "hour", "weekday")
"""Fields that begin again after their greatest value: `22..5` is a range of hours."""

LATE: Final = ("agent", "team", "provider", *PLAN_SHARES, "plan.overage", *SESSION_FIELDS)
"""Fields that follow from who calls, so that no condition of an agent can read them; that of a team reads `agent`."""

FLIPPED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def request_fields(agents: list[str], teams: list[str], providers: list[str]) -> dict[str, Field]:
    """Return the fields of a call that a rule, an agent or a budget can read.

    `header.NAME` and `meta.NAME` are known beside these.
    """
    fields = [
        Field("agent", Kind.ENUM, (*agents, "unknown")),
        Field("team", Kind.ENUM, (*teams, "none")),
        Field("provider", Kind.ENUM, tuple(providers)),
        *(Field(name, Kind.TEXT) for name in ("model", "path", "method")),
        *(Field(name, Kind.FLAG) for name in ("stream", "tools", "images")),
        *(Field(name, Kind.NUMBER, least=least) for name, least in NUMBERS.items()),
        Field("hour", Kind.NUMBER, most=23),
        Field("weekday", Kind.NUMBER, least=1, most=7),
        Field("time", Kind.TIME, most=MINUTES - 1),
        Field("date", Kind.DATE),
        Field("client.address", Kind.ADDRESS, most=ADDRESS_MOST),
        Field("cost", Kind.MONEY),
        *(Field(name, Kind.SHARE, most=WHOLE) for name in PLAN_SHARES),
        Field("plan.overage", Kind.FLAG),
        *(Field(name, kind) for name, kind in SESSION_FIELDS.items()),
    ]
    return {field.name: field for field in fields}


class _Wrong(Exception):  # noqa: N818 - it never leaves this module
    """The expression is not well typed; the report has it."""


@final
@attrs.define(eq=False)
class Typer:
    """Reads expressions for one policy.

    Args:
        fields: What may be read here.
        lets: What `let` names stand for.
        used: Where references are noted, as (kind, name).
    """

    report: DiagnosticCollector
    fields: Mapping[str, Field]
    lets: Mapping[str, Expr]
    used: set[tuple[str, str]]
    dynamic: Callable[[str], Field | None] = attrs.field(default=lambda _: None)
    """Fields whose names come from the policy, such as `people.wait.p95` in a test."""
    dynamic_names: Sequence[str] = ()
    """Names that `dynamic` knows, for suggestions."""
    of_request: bool = True
    """`header.NAME` and `meta.NAME` may be read: whatever the caller sends."""

    def condition(self, expr: Expr) -> Condition | None:
        """Return the condition of an expression.

        None after reporting why it is not one. Both sides of an `and` are read.
        """
        match expr:
            case Or() if self._alternatives(expr):
                return None
            case And(items=items) | Or(items=items):
                read = [self.condition(item) for item in items]
                if any(item is None for item in read):
                    return None
                parts = tuple(item for item in read if item is not None)
                return AllOf(parts) if isinstance(expr, And) else AnyOf(parts)
            case Not(item=item):
                inner = self.condition(item)
                return None if inner is None else Negation(inner)
            case _:
                try:
                    return self._test(expr)
                except _Wrong:
                    return None

    def _test(self, expr: Expr) -> Condition:
        match expr:
            case Name(text=text) if text in self.lets:
                self.used.add(("let", text))
                value = self._meaning(expr)
                if not isinstance(value, (And, Or, Not, Compare, Contains)) and not self._is_flag(value):
                    # It may be a fine value: what is wrong is that it stands where a condition is wanted.
                    label = Label(value.span, f"the value of `{text}`")
                    field = self.fields.get(value.text) if isinstance(value, Name) else None
                    shown = _comparison(text, value) if field is None else _example(field)
                    self.report.add(
                        "HM211",
                        f"`{text}` is {'not a condition' if field is None else f'{_a(field)}, not a condition'}",
                        expr.span,
                        labels=(label,),
                        help=f"compare {'a field with it' if field is None else 'it'}: `{shown}`"
                        if shown
                        else _none(field),
                        choices=Fix.choosing(expr.span, [shown] if shown else []),
                    )
                    raise _Wrong
                inner = self.condition(value)
                if inner is None:
                    raise _Wrong
                return inner
            case Name(text="true" | "false" as word) if word not in self.fields:
                help_ = "delete the `when`: without it every call matches"
                if word == "false":
                    help_ = "no call would match: delete the declaration, or comment it out"
                fix = self._without_when(expr.span) if word == "true" else None
                self.report.add("HM211", f"`{word}` is a constant, not a condition", expr.span, help=help_, fix=fix)
                raise _Wrong
            case Name():
                field = self._field(expr)
                if field.kind is not Kind.FLAG:
                    shown = _example(field)
                    self.report.add(
                        "HM211",
                        f"`{field.name}` is {_a(field)}, not a condition",
                        expr.span,
                        help=f"compare it: `{shown}`" if shown else _none(field),
                        choices=Fix.choosing(expr.span, [shown] if shown else []),
                    )
                    raise _Wrong
                return Flag(field.name)
            case Compare():
                return self._compare(expr)
            case Contains(left=String(value=part), right=Name() as right, negated=negated) if self._is_text(right):
                put = f"{'not ' if negated else ''}{right.text} ~ {quote(f'*{part}*')}"
                self._write("a field must be on the left", expr, put)
                raise _Wrong
            case Contains(left=left, right=right, negated=negated):
                field = self._field(left)
                member = self._member(field, right, expr)
                return Negation(member) if negated else member
            case CallValue() if (condition := method_meant(expr)) is not None:
                self._write("this is not a condition", expr, condition, code="HM211")
                raise _Wrong
            case _:
                self.report.add(
                    "HM211", "this is not a condition", expr.span, help='compare a field with it: `model == "..."`'
                )
                raise _Wrong

    def _write(self, what: str, expr: Expr, put: str, *, code: str = "HM212") -> None:
        """Report an expression that is to be written in another way."""
        self.report.add(code, what, expr.span, help=f"write `{put}`", replacement=put)

    def _is_text(self, expr: Name) -> bool:
        field = self.fields.get(expr.text) or self._open_field(expr.text)
        return field is not None and field.kind is Kind.TEXT

    def _alternatives(self, expr: Or) -> bool:
        """Report `agent == ci or cd`, whose sides are values of one field; False if it is something else."""
        first, *others = expr.items
        if not isinstance(first, Compare) or first.op not in ("==", "~") or not self._is_field(first.left):
            return False
        if not isinstance(first.right, (Name, String, Quantity)) or any(self._is_field(one) for one in others):
            return False
        if not all(isinstance(one, (Name, String, Quantity)) for one in others):
            return False
        if any(isinstance(one, Name) and one.text in self.lets for one in others):
            return False
        items = ", ".join(self._text(one) for one in (first.right, *others))
        put = f"{self._text(first.left)} {'in' if first.op == '==' else '~'} [{items}]"
        self._write("each side of `or` is a condition", expr, put)
        return True

    def _compare(self, expr: Compare) -> Condition:
        left, right, op = expr.left, expr.right, expr.op
        if not self._is_field(left) and self._is_field(right) and op in FLIPPED:
            self.report.add(
                "HM212",
                "the field must be on the left",
                expr.span,
                help=f"write `{self._text(right)} {FLIPPED[op]} {self._text(left)}`",
                replacement=f"{self._text(right)} {FLIPPED[op]} {self._text(left)}",
            )
            raise _Wrong
        field = self._field(left)
        if op == "~":
            return self._like(field, right, expr)
        if field.kind is Kind.FLAG:
            return self._flag(field, expr)
        if field.kind in (*TEXTS, Kind.ENUM, Kind.ADDRESS) and op not in ("==", "!="):
            self.report.add("HM212", f"`{field.name}` is {_a(field)}; `{op}` compares numbers", expr.op_span)
            raise _Wrong
        if field.kind is Kind.ADDRESS:
            same = Member(field.name, (), (self._network(field, right),))
            return same if op == "==" else Negation(same)
        value = self._literal(field, right)
        if field.kind in TEXTS and is_glob(str(value)):
            self._wildcard(op, field, right.span, expr, right)
        return Relation(field.name, op, value)

    def _wildcard(self, op: str, field: Field, span: Span, expr: Compare | Contains, right: Expr) -> None:
        """Report a glob that is compared as a text."""
        negated = expr.negated if isinstance(expr, Contains) else op == "!="
        like = f"{'not ' if negated else ''}{field.name} ~"
        choices = Fix.choosing(expr.span, [f"{like} {self._text(right)}"])
        help_ = f"for a glob write `{like} ...`"
        self.report.warn("HM215", f"`{op}` does not match wildcards", span, help=help_, choices=choices)

    def _like(self, field: Field, right: Expr, expr: Compare) -> Condition:
        if field.kind not in TEXTS:
            self.report.add("HM212", f"`~` matches text; `{field.name}` is {_a(field)}", expr.op_span)
            raise _Wrong
        globs = []
        for item in self._items(right):
            if not isinstance(item, String):
                self._unquoted("`~` needs a quoted glob or a list of them", field, item, glob=True)
                raise _Wrong
            if field.kind is Kind.DATE and not is_some_day(item.value):
                raise self._no_date(item.value, item.span)
            globs.append(item.value)
        if globs and not any(is_glob(glob) for glob in globs):
            instead = "==" if len(globs) == 1 else "in"
            self.report.warn(
                "HM215",
                "this glob has no wildcard",
                right.span,
                help=f"write `{field.name} {instead} ...`, or add a `*`",
                fix=Fix((self._other_sign(expr, instead),)),
            )
        return Like(field.name, tuple(globs))

    def _flag(self, field: Field, expr: Compare) -> Condition:
        right = expr.right
        if expr.op not in ("==", "!=") or not (isinstance(right, Name) and right.text in ("true", "false")):
            put = None
            said = (
                right.text if isinstance(right, (Name, Quantity)) else right.value if isinstance(right, String) else ""
            )
            if said.lower() in (*YES, *NO, "0", "1") and expr.op in ("==", "!="):
                put = field.name if (said.lower() in (*YES, "1")) == (expr.op == "==") else f"not {field.name}"
            help_ = f"write `{field.name}` or `not {field.name}`" if put is None else f"write `{put}`"
            choices = Fix.choosing(expr.span, [field.name, f"not {field.name}"] if put is None else [])
            what = f"`{field.name}` is a flag"
            self.report.add("HM212", what, expr.span, help=help_, replacement=put, choices=choices)
            raise _Wrong
        wanted = (right.text == "true") == (expr.op == "==")
        simple = field.name if wanted else f"not {field.name}"
        self.report.add(
            "HM903",
            f"`{self._text(expr)}` can be written `{simple}`",
            expr.span,
            severity=Severity.INFO,
            help=f"write `{simple}`",
            replacement=simple,
        )
        return Flag(field.name) if wanted else Negation(Flag(field.name))

    def _member(self, field: Field, right: Expr, expr: Contains) -> Member:
        if field.kind is Kind.FLAG:
            self.report.add("HM212", f"`{field.name}` is a flag", right.span, help=f"write `{field.name}`")
            raise _Wrong
        values: list[str | int | float] = []
        ranges: list[tuple[int, int]] = []
        is_wrong = False
        for item in self._items(right):
            try:
                if field.kind is Kind.ADDRESS:
                    ranges.append(self._network(field, item))
                    continue
                if isinstance(item, RangeValue):
                    ranges += self._ranges(field, item)
                    continue
                value = self._literal(field, item)
            except _Wrong:  # which does not hide what is wrong with the others
                is_wrong = True
                continue
            if field.kind in TEXTS and is_glob(str(value)):
                self._wildcard("in", field, item.span, expr, right)
            values.append(value)
        if is_wrong:
            raise _Wrong
        return Member(field.name, tuple(values), tuple(ranges))

    def _ranges(self, field: Field, item: RangeValue) -> list[tuple[int, int]]:
        """Return the range; two for one that goes over midnight, or over the end of the week."""
        if field.kind in (*TEXTS, Kind.ENUM):
            self.report.add("HM212", f"`{field.name}` is {_a(field)}; a range is of numbers", item.span)
            raise _Wrong
        bounds: list[str | int | float | None] = []
        for bound in (item.low, item.high):
            try:
                bounds.append(self._literal(field, bound))
            except _Wrong:  # which does not hide what is wrong with the other
                bounds.append(None)
        low, high = bounds
        if low is None or high is None:
            raise _Wrong
        assert isinstance(low, int)
        assert isinstance(high, int)
        if low > high and field.name in CYCLIC:
            assert field.most is not None
            return [(low, field.most), (field.least, high)]
        if low > high:
            put = swapped(self._text(item))
            help_ = f"the smaller bound comes first: write `{put}`"
            self.report.add("HM206", "this range is empty", item.span, help=help_, replacement=put)
            raise _Wrong
        return [(low, high)]

    def _network(self, field: Field, expr: Expr) -> tuple[int, int]:
        """Return the first and the last address of a network, or of one address."""
        if isinstance(expr, Name) and expr.text in self.lets:
            self.used.add(("let", expr.text))
            return self._network(field, self.lets[expr.text])
        span = network_span(expr.value) if isinstance(expr, String) else None
        if span is not None:
            return span
        meant = as_network(expr.value) if isinstance(expr, String) else None
        put = f'"{meant}"' if meant is not None else None
        help_ = f"write `{put}`" if put is not None else 'write one such as `"10.0.0.0/8"`, `"10.1.2.3"` or `"::1"`'
        what = f"`{field.name}` is {_a(field)}, but this is not"
        self.report.add("HM212", what, expr.span, help=help_, replacement=put)
        raise _Wrong

    def _items(self, expr: Expr) -> list[Expr]:
        if isinstance(expr, Name) and expr.text in self.lets:
            self.used.add(("let", expr.text))
            return self._items(self.lets[expr.text])
        if isinstance(expr, ListValue):
            return [inner for item in expr.items for inner in self._items(item)]
        self._check_prefix(expr)
        return [expr]

    def _check_prefix(self, expr: Expr) -> None:
        """Report `local.NAME` for the name of a `let`."""
        if isinstance(expr, Name) and (name := let_meant(expr.text, self.lets)) is not None:
            self.used.add(("let", name))
            self._write(f"`{expr.text}` is not a value", expr, name)
            raise _Wrong

    def _literal(self, field: Field, expr: Expr) -> str | int | float:
        if isinstance(expr, Name) and expr.text in self.lets and expr.text not in field.choices:
            self.used.add(("let", expr.text))
            return self._literal(field, self.lets[expr.text])
        self._check_prefix(expr)
        try:
            return self._plain(field, expr)
        except UnitError as error:
            self.report.add(
                error.code,
                error.message,
                expr.span,
                help=error.help,
                fix=error.fix(expr.span),
                choices=error.choices_at(expr.span),
            )
            raise _Wrong from error

    def _plain(self, field: Field, expr: Expr) -> str | int | float:
        match field.kind, expr:
            case Kind.TEXT, String(value=value):
                return value
            case Kind.DATE, String(value=value, span=span):
                if not (is_date(value) or is_glob(value)):
                    raise self._no_date(value, span)
                return value
            case ((Kind.TEXT | Kind.DATE), Name()):
                self._unquoted(f"`{field.name}` is text", field, expr, glob=False)
                raise _Wrong
            case Kind.ENUM, Name(text=text, span=span):
                if text not in field.choices:
                    is_of_language = field.name not in ("agent", "team", "provider", "lane")
                    meant = self.report.unknown(
                        "HM214",
                        f"unknown {field.name}",
                        text,
                        span,
                        list(field.choices),
                        hint="" if is_of_language else f"declare it: `{declared_as(field.name, text)}`",
                        is_of_language=is_of_language,
                    )
                    if meant is not None:
                        self.used.add((field.name, meant))
                    raise _Wrong
                self.used.add((field.name, text))
                return text
            case Kind.ENUM, String(value=value, span=span):
                self.report.add(
                    "HM212",
                    f"`{field.name}` is a name, written without quotes",
                    span,
                    help=f"write `{value}`",
                    replacement=value,
                )
                raise _Wrong
            case Kind.NUMBER, Quantity(text=text, span=span):
                return self._within(field, count(text), span)
            case Kind.NUMBER, Clock(text=text, span=span) if field.name == "hour":
                hour = str(int(text[:-3]))
                put = hour if text.endswith("00") else None
                help_ = f"write `{hour}`" if put is not None else f"for minutes write `time`, such as `time >= {text}`"
                message = f"`hour` is a number from 0 to 23, not `{text}`"
                # `22` is the whole hour, so the end of a range changes.
                self.report.add("HM212", message, span, help=help_, replacement=put, is_safe_fix=False)
                raise _Wrong
            case Kind.TIME, Clock(text=text):
                return clock_minutes(text)
            case Kind.TIME, (Quantity(text=text) | String(value=text)) if (clock := as_clock(text)) is not None:
                what, help_ = f"`{field.name}` is {_a(field)}, but this is not", f"write `{clock}`"
                self.report.add("HM212", what, expr.span, help=help_, replacement=clock)
                raise _Wrong
            case Kind.MONEY, Quantity(text=text):
                return money_microusd(text)
            case Kind.DURATION, Quantity(text=text):
                return duration_ns(text)
            case Kind.RATIO, Quantity(text=text):
                return ratio(text)
            case Kind.SHARE, Quantity(text=text):
                return share(text)
        word = expr.text if isinstance(expr, Name) else expr.value if isinstance(expr, String) else ""
        day = WEEKDAYS.get(word.lower()[:3]) if field.name == "weekday" else None
        help_ = f"write `{day}`: 1 is Monday" if day is not None else ""
        what = f"`{field.name}` is {_a(field)}, but this is not"
        self.report.add("HM212", what, expr.span, help=help_, replacement=None if day is None else str(day))
        raise _Wrong

    def _no_date(self, text: str, span: Span) -> _Wrong:
        put = as_date(text)
        help_ = f'write `"{put}"`' if put is not None else 'write one such as `"2026-12-25"` or `"*-12-25"`'
        replacement = f'"{put}"' if put is not None else None
        self.report.add("HM220", f"`{text}` is not a date", span, help=help_, replacement=replacement)
        return _Wrong()

    def _within(self, field: Field, value: int, span: Span) -> int:
        if value < field.least or (field.most is not None and value > field.most):
            bounds = f"{field.least} to {field.most}" if field.most is not None else f"{field.least} or more"
            self.report.add("HM205", f"`{field.name}` must be {bounds}", span)
            raise _Wrong
        return value

    def _meaning(self, expr: Expr) -> Expr:
        """Return the meaning of a word, through one `let` after the other."""
        while isinstance(expr, Name) and expr.text in self.lets:
            self.used.add(("let", expr.text))
            expr = self.lets[expr.text]
        return expr

    def _is_flag(self, expr: Expr) -> bool:
        """Return True if it is a flag, or a word that is no field, which is a mistake of its own."""
        if not isinstance(expr, Name):
            return False
        field = self.fields.get(expr.text) or self._open_field(expr.text) or self.dynamic(expr.text)
        return field is None or field.kind is Kind.FLAG

    def _is_field(self, expr: Expr) -> bool:
        return isinstance(expr, Name) and (
            expr.text in self.fields or self._open_field(expr.text) is not None or self.dynamic(expr.text) is not None
        )

    def _field(self, expr: Expr) -> Field:
        if not isinstance(expr, Name):
            help_ = 'begin with a field: `model == "..."`'
            self.report.add("HM212", "a field must be on the left", expr.span, help=help_)
            raise _Wrong
        field = self.fields.get(expr.text) or self._open_field(expr.text) or self.dynamic(expr.text)
        if field is None and self.of_request and expr.text in LATE:
            help_ = "test a property of the request: `header.NAME`, `path`, `model`"
            self.report.add(
                "HM213", f"`{expr.text}` is not known yet where this condition is evaluated", expr.span, help=help_
            )
            raise _Wrong
        if field is None:
            put = field_meant(expr.text)
            meant = put.partition(" ")[0] if put is not None else ""
            if meant in self.fields or self._open_field(meant) is not None:
                what = f"unknown field `{expr.text}`"
                self.report.add("HM213", what, expr.span, help=f"write `{put}`", replacement=put)
                raise _Wrong
            known = [*self.fields, *self.dynamic_names, *(("header.NAME", "meta.NAME") if self.of_request else ())]
            self.report.unknown("HM213", "unknown field", expr.text, expr.span, known)
            raise _Wrong
        return field

    def _open_field(self, name: str) -> Field | None:
        """`header.x-team`, `meta.user`."""
        family, dot, rest = name.partition(".")
        if self.of_request and dot and rest and family in ("header", "meta"):
            return Field(f"header.{rest.lower()}" if family == "header" else name, Kind.TEXT)
        return None

    def _unquoted(self, message: str, field: Field, expr: Expr, *, glob: bool) -> None:
        """Report a word where a text is wanted: a `let` that was misspelt or is missing, or a text without quotes."""
        help_, put = "", None
        choices: tuple[Fix, ...] = ()
        if isinstance(expr, Name):
            put = suggestion(expr.text, self.lets)
            quoted = f'"{expr.text}*"' if glob else f'"{expr.text}"'
            if put is not None:
                help_ = f"did you mean `{put}`?"
            elif expr.text.lower() in _NULLS:
                message = f"there is no `{expr.text}`: a text that a call does not have is empty"
                put, help_ = '""', 'write `""`'
            elif field.name == "model" and glob and _is_family(expr.text):
                put = f'"*{expr.text}*"'
                help_ = f"write `{put}`"
            elif field.name == "model" and not (glob and _begins_a_model(expr.text)) and not _has_digit(expr.text):
                # A model's name has its version in it; this is the name of a list of models.
                message = f"no `let` is named `{expr.text}`"
                declared = f'let {expr.text} = ["claude-haiku-*"]'
                help_ = f"declare it: `{declared}`"
                added = addition(self.report.sources[expr.span.source].text, expr.span.source, declared)
                choices = (Fix((added,), is_safe=False),)
            else:
                put, help_ = quoted, f"write `{quoted}`"
        is_guess = put is not None and put in self.lets
        self.report.add(
            "HM212", message, expr.span, help=help_, replacement=put, is_safe_fix=not is_guess, choices=choices
        )

    def _without_when(self, span: Span) -> Fix | None:
        """Return the fix that deletes `when` and a condition; None if it is only a part of the condition."""
        text = self.report.sources[span.source].text
        when = _WHEN.search(text, 0, span.start)
        if when is None or _GOES_ON.match(text, span.end):
            return None
        return Fix((Edit(Span(span.source, when.start(), span.end), ""),), is_safe=False)

    def _other_sign(self, expr: Compare, sign: str) -> Edit:
        """Return the edit that puts another operator between the operands of a comparison."""
        text, span = self.report.sources[expr.op_span.source].text, expr.op_span
        before = " " if sign.isalpha() and not text[span.start - 1].isspace() else ""
        after = " " if sign.isalpha() and not text[span.end].isspace() else ""
        return Edit(span, f"{before}{sign}{after}")

    def _text(self, expr: Expr) -> str:
        return self.report.sources[expr.span.source].text[expr.span.start : expr.span.end]


_NULLS: Final = frozenset({"null", "none", "nil", "undefined", "nothing"})
"""Words of other languages for a value that is not there."""


def routed_as(model: str) -> str:
    """Return the name of a field that no policy can write: the provider that would serve the call with this model."""
    return f"{_ROUTED_AS}{model}"


def is_routed_as(field: str) -> bool:
    """Return True if the field is one of `routed_as`."""
    return field.startswith(_ROUTED_AS)


def as_model(field: str) -> str:
    """Return the model of a field of `routed_as`."""
    return field.removeprefix(_ROUTED_AS)


def fields_of(condition: Condition) -> Iterator[str]:
    """Yield the fields that a condition compares, with repetitions."""
    match condition:
        case AllOf(items=items) | AnyOf(items=items):
            for item in items:
                yield from fields_of(item)
        case Negation(item=item):
            yield from fields_of(item)
        case Always():
            return
        case _:
            yield condition.field


def reads(condition: Condition, field: str) -> bool:
    """Return True if the condition depends on a field."""
    match condition:
        case AllOf(items=items) | AnyOf(items=items):
            return any(reads(item, field) for item in items)
        case Negation(item=item):
            return reads(item, field)
        case Always():
            return False
        case _:
            return condition.field == field


def fields_read(condition: Condition) -> frozenset[str]:
    """Return the fields that the condition depends on."""
    match condition:
        case AllOf(items=items) | AnyOf(items=items):
            return frozenset[str]().union(*map(fields_read, items))
        case Negation(item=item):
            return fields_read(item)
        case Always():
            return frozenset()
        case _:
            return frozenset({condition.field})


def compared(condition: Condition, field: str) -> frozenset[str | int | float]:
    """Return the values that the condition compares a field with."""
    match condition:
        case AllOf(items=items) | AnyOf(items=items):
            return frozenset[str | int | float]().union(*(compared(item, field) for item in items))
        case Negation(item=item):
            return compared(item, field)
        case Relation(field=name, value=value) if name == field:
            return frozenset({value})
        case Member(field=name, values=values) if name == field:
            return frozenset(values)
        case _:
            return frozenset()


def _a(field: Field) -> str:
    names: dict[Kind, Any] = {
        Kind.TEXT: "text",
        Kind.ENUM: "a name",
        Kind.NUMBER: "a number",
        Kind.MONEY: "an amount of money",
        Kind.DURATION: "a duration",
        Kind.RATIO: "a ratio",
        Kind.SHARE: "a ratio",
        Kind.FLAG: "a flag",
        Kind.TIME: "a time of day",
        Kind.DATE: "a date",
        Kind.ADDRESS: "an address or a network",
    }
    return str(names[field.kind])


def _has_digit(word: str) -> bool:
    return any(letter.isdigit() for letter in word)


def _is_family(word: str) -> bool:
    """Return True if models have this word within their names: `opus`, `sonnet`."""
    return any(word in re.split(r"[-*]", price.glob)[1:] for price in BUILT_IN_PRICES)


def _begins_a_model(word: str) -> bool:
    return any(price.glob.startswith(word) for price in BUILT_IN_PRICES)


def _comparison(word: str, value: Expr) -> str:
    """Return the comparison by which a `let` that is no condition is used."""
    items = value.items if isinstance(value, ListValue) else (value,)
    texts = [item.value for item in items if isinstance(item, String)]
    if any(map(is_glob, texts)):
        return f"model ~ {word}"
    if texts:
        return f"model {'in' if isinstance(value, ListValue) else '=='} {word}"
    return f"tokens.in {'in' if isinstance(value, (ListValue, RangeValue)) else '>'} {word}"


def _example(field: Field) -> str:
    """Return a comparison of the field; empty if there is nothing to compare it with."""
    literal = {Kind.TEXT: '!= ""', Kind.NUMBER: "> 0", Kind.MONEY: "> $0.10", Kind.DURATION: "> 1s", Kind.RATIO: "> 1%"}
    literal |= {Kind.SHARE: "> 80%", Kind.TIME: ">= 08:30", Kind.DATE: '== "2026-12-25"'}
    literal |= {Kind.ADDRESS: 'in ["10.0.0.0/8"]'}
    if field.kind is Kind.ENUM:
        return f"{field.name} == {field.choices[0]}" if field.choices else ""
    return f"{field.name} {literal[field.kind]}"


def _none(field: Field | None) -> str:
    return f"declare one first: `{field.name} anthropic {{ }}`" if field is not None else ""
