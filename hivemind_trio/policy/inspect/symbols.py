"""Every place of a policy where a declared name stands: to go to it, to find its uses, to rename it.

Read from the trees and the schema, as the checker reads them but without giving up at an error: what a name refers to
is known although the statement around it is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, final

import attrs

from hivemind_trio.policy.compile.checked import Checked
from hivemind_trio.policy.schema import DECLARATIONS, DEFAULTED, Naming, Setting, Slot, Type, links
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.syntax.ast import (
    And,
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
    Statement,
    Value,
)
from hivemind_trio.policy.testing.block_typing import LOAD

NAMED: Final = ("agent", "team", "provider")
"""Fields of a call that hold the name of a declaration; a test's `expect` can ask for these as well:"""
NAMED_OUTCOMES: Final = (*NAMED, "lane", "retry")


@final
@attrs.frozen
class Symbol:
    """Symbol: the meaning of a name. Lanes, agents and `let`s of the same name are different things."""

    kind: str
    """A declaration's keyword, `let`, `load`, or `account`: accounts of one name are one symbol, for `expect
    account.NAME` means all of them."""
    name: str
    test: Span | None = None
    """Test that a `load` is known in; None: not a `load`."""


@final
@attrs.frozen
class Occurrence:
    """A symbol's name at one place."""

    span: Span
    symbol: Symbol
    declares: bool


def occurrences(checked: Checked) -> tuple[Occurrence, ...]:
    """All of a policy and its includes, in the order of the text."""
    finder = _Finder(checked)
    for file in checked.files:
        for statement in file.statements:
            finder.top(statement)
    return tuple(finder.found[span] for span in sorted(finder.found))


def occurrence_at(found: Iterable[Occurrence], source: int, offset: int) -> Occurrence | None:
    """Return the one that a cursor is in, or stands right behind."""
    for one in found:
        if one.span.source == source and one.span.start <= offset <= one.span.end:
            return one
    return None


@final
class _Finder:
    def __init__(self, checked: Checked) -> None:
        self.names = checked.declarations.reader.names
        self.lets: Mapping[str, Expr] = checked.declarations.lets
        self.let_names = set(checked.declarations.let_spans)
        self.accounts = {
            given.value
            for declared in checked.declarations.of("provider").values()
            for given in declared.settings.get("account", ())
            if given.args
        }
        self.found: dict[Span, Occurrence] = {}
        self._followed: set[tuple[str, str]] = set()
        self._loads: dict[str, Symbol] = {}

    # ---- statements ----

    def top(self, statement: Statement) -> None:
        match statement:
            case Let(name=name, value=value):
                self._note(name, "let", declares=True)
                self._condition(value, NAMED)
            case Item(head=head) if head.text in DECLARATIONS:
                self._declaration(statement)

    def _declaration(self, item: Item) -> None:
        kind = item.head.text
        declaration = DECLARATIONS[kind]
        rest = item.args
        if declaration.naming is not Naming.NOTHING:
            if declaration.naming is Naming.NAME and rest and isinstance(rest[0], Name):
                self._note(rest[0], kind, declares=True)
            rest = rest[1:]
        while len(rest) > 1 and isinstance(rest[0], Name) and rest[0].text in links(declaration):
            if rest[0].text == "extends":  # what stands behind `was` is the name of nothing
                self._value(rest[1], Slot(Type.REF, (kind,)))
            rest = rest[2:]
        self._options(rest, declaration.options)
        if item.when is not None:
            self._condition(item.when, NAMED)
        if kind == "test":
            self._test(item)
        elif item.block is not None:
            settings: Mapping[str, Setting] = declaration.settings
            if kind == "defaults" and item.args and isinstance(item.args[0], Name):
                settings = DEFAULTED.get(item.args[0].text, {})
            self._settings(item.block.statements, settings)

    def _settings(self, statements: Iterable[Statement], settings: Mapping[str, Setting]) -> None:
        for statement in statements:
            if not isinstance(statement, Item) or statement.head.text not in settings:
                continue
            setting = settings[statement.head.text]
            rest = list(statement.args)
            if statement.head.text in ("account", "shares") and rest and isinstance(rest[0], Name):
                self._note(rest[0], "account", declares=statement.head.text == "account")
            for slot in setting.args:
                if rest and not (isinstance(rest[0], Name) and rest[0].text in setting.options):
                    self._value(rest.pop(0), slot)
            self._options(rest, setting.options)
            if statement.when is not None:
                self._condition(statement.when, ())
            if statement.block is not None:
                self._settings(statement.block.statements, setting.block or {})

    def _options(self, values: Iterable[Value], slots: Mapping[str, Slot]) -> None:
        rest = list(values)
        while rest:
            option = rest.pop(0)
            slot = slots.get(option.text) if isinstance(option, Name) else None
            if slot is not None and slot.type is not Type.FLAG and rest:
                self._value(rest.pop(0), slot)

    def _test(self, item: Item) -> None:
        statements = item.block.statements if item.block is not None else ()
        self._loads = {}
        for statement in statements:
            match statement:
                case Item(head=Name(text="load"), args=(Name(text=text) as name, *_)):
                    self._loads[text] = Symbol("load", text, item.span)
                    self.found[name.span] = Occurrence(name.span, self._loads[text], declares=True)
        for statement in statements:
            match statement:
                case Expect(value=value):
                    self._condition(value, NAMED_OUTCOMES)
                case Item(head=Name(text=("given" | "load"))):
                    if statement.when is not None:
                        self._condition(statement.when, NAMED)
                    self._fields(statement)
                case Item(head=Name(text="upstream"), args=(provider, *_)):
                    # `anthropic.batch` is an account of a provider.
                    first = _part(provider, 0) if isinstance(provider, Name) else provider
                    self._value(first, Slot(Type.REF, ("provider",)))
                    if isinstance(provider, Name) and "." in provider.text:
                        self._note(_part(provider, 1), "account")
        self._loads = {}

    def _fields(self, statement: Item) -> None:
        """Add the fields of a call that a `given` or a `load` sets."""
        for inner in statement.block.statements if statement.block is not None else ():
            if isinstance(inner, Item) and inner.args:
                field = inner.head.text
                if field in NAMED:
                    known = statement.head.text == "load" and field in LOAD
                    slot = LOAD[field] if known else Slot(Type.WORD, (field,))
                    if known:
                        self._value(inner.args[0], slot)
                    else:
                        self._literal(inner.args[0], field, lets_first=True)
                else:
                    self._value(inner.args[0], Slot(Type.TEXT))

    # ---- values and conditions ----

    def _value(self, value: Value, slot: Slot) -> None:
        match value:
            case Name() if slot.type in (Type.REF, Type.REFS):
                self._note(value, slot.words[0])
            case Name(text=text) if text in self.let_names:
                self._note(value, "let")
            case ListValue(items=items):
                for item in items:
                    self._value(item, Slot(Type.REF, slot.words) if slot.type is Type.REFS else Slot(Type.TEXT))

    def _condition(self, expr: Expr, named: tuple[str, ...]) -> None:
        """Add the occurrences in a condition.

        Args:
            named: The fields that hold names of declarations here.
        """
        match expr:
            case And(items=items) | Or(items=items):
                for item in items:
                    self._condition(item, named)
            case Not(item=item):
                self._condition(item, named)
            case Compare(left=left, right=right):
                self._measured(left)
                self._literal(right, _field(left, named), lets_first=False)
            case Contains(left=left, right=right):
                self._measured(left)
                self._literal(right, _field(left, named), lets_first=True)
            case Name(text=text) if text in self.let_names:
                self._note(expr, "let")
            case Name(text=text) if text.startswith("account."):
                self._note(_part(expr, 1), "account")
            case Name() | ListValue():
                self._literal(expr, None, lets_first=True)

    def _literal(self, expr: Expr, kind: str | None, *, lets_first: bool) -> None:
        """Record the literal that a field is compared with.

        Args:
            kind: Of the declarations whose names these are; None: of none.
            lets_first: As in a list: a `let` goes before a declaration of the same name.
        """
        match expr:
            case ListValue(items=items):
                for item in items:
                    self._literal(item, kind, lets_first=True)
            case Name(text=text):
                declared = kind is not None and text in self.names.get(kind, ())
                if text in self.let_names and (lets_first or not declared):
                    self._note(expr, "let")
                    self._follow(text, kind)
                elif kind is not None:
                    self._note(expr, kind)

    def _follow(self, let: str, kind: str | None) -> None:
        """Add the names that a `let` holds, as what it is used for."""
        if kind is not None and (let, kind) not in self._followed and let in self.lets:
            self._followed.add((let, kind))
            self._literal(self.lets[let], kind, lets_first=True)

    def _measured(self, field: Expr) -> None:
        """`people.wait.p95` begins with the name of a load, `anthropic.breaker.opened` with a provider's."""
        if not isinstance(field, Name) or "." not in field.text:
            return
        first = _part(field, 0)
        owner = first.text
        if owner in self._loads:
            self.found[first.span] = Occurrence(first.span, self._loads[owner], declares=False)
            return
        for kind, ending in (("provider", (".opened", ".max")), ("budget", (".spent",))):
            of_status = kind == "provider" and ".status-" in field.text
            if owner in self.names.get(kind, ()) and (field.text.endswith(ending) or of_status):
                self._note(first, kind)
                if kind == "provider" and (account := _part(field, 1)).text in self.accounts:
                    self._note(account, "account")
                return

    def _note(self, name: Name, kind: str, *, declares: bool = False) -> None:
        self.found[name.span] = Occurrence(name.span, Symbol(kind, name.text), declares)


def _part(name: Name, index: int) -> Name:
    """Return one of the names between the dots of a name, by its place from the left."""
    parts = name.text.split(".")
    start = name.span.start + sum(len(part) + 1 for part in parts[:index])
    return Name(parts[index], Span(name.span.source, start, start + len(parts[index])))


def _field(left: Expr, named: tuple[str, ...]) -> str | None:
    return left.text if isinstance(left, Name) and left.text in named else None
