"""Statements held against the schema: which declarations there are, and what each setting says, typed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, final

import attrs

from hivemind_trio.policy.diagnostics.collector import DiagnosticCollector
from hivemind_trio.policy.diagnostics.diagnostic import Fix, Label
from hivemind_trio.policy.diagnostics.suggest import one_of, suggestion
from hivemind_trio.policy.language.condition_typing import NUMBERS
from hivemind_trio.policy.language.synonyms import OPTION_SYNONYMS, Instead, in_words, instead_of, per_of_budget
from hivemind_trio.policy.language.values import Reader, Unreadable
from hivemind_trio.policy.schema import (
    DECLARATIONS,
    DEFAULTED,
    LINKS,
    TEST_STATEMENTS,
    Declaration,
    Naming,
    Setting,
    Slot,
    Type,
    links,
)
from hivemind_trio.policy.source.edits import deletion
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.syntax.ast import (
    Block,
    Expect,
    Expr,
    Item,
    Let,
    ListValue,
    Name,
    Quantity,
    RangeValue,
    Rate,
    Statement,
    String,
    Value,
)
from hivemind_trio.policy.syntax.includes import Closure
from hivemind_trio.policy.syntax.let_bindings import circles, too_large

from .misplaced import (
    behind,
    beside_block,
    bounds_in_block,
    elsewhere,
    in_wrong_block,
    labelled,
    needless,
    other_declaration,
    statements_of,
    unknown_word,
)

RESERVED: Final = {"agent": ("unknown",), "team": ("none",)}
"""Names that have a meaning of their own: a caller that is nobody, and no team."""

ALWAYS: Final = {"lane": "default", "retry": "default"}
"""Declarations that exist without being written."""

ONE: Final = "delete one of them"
ONE_NAME: Final = "delete one of them, or rename it"

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
"""Pattern of a name that needs no quotes."""

FIELD_NAMES: Final = frozenset(
    {"agent", "team", "provider", "model", "path", "method", "stream", "tools", "images", "cost"}
    | {"hour", "weekday", "time", "date"}
    | {"true", "false", *NUMBERS}
)


@final
@attrs.frozen
class SettingValue:
    """A setting as it was written, read."""

    name: str
    args: tuple[Any, ...]
    options: Mapping[str, Any]
    block: Mapping[str, list[SettingValue]]
    when: Expr | None
    item: Item

    @property
    def value(self) -> Any:
        """The one argument."""
        return self.args[0]

    @property
    def span(self) -> Span:
        """The smallest thing to point at: the arguments, or the word."""
        if not self.item.args:
            return self.item.head.span
        return self.item.args[0].span.to(self.item.args[-1].span)

    def place(self, option: str) -> Span:
        """Return the place of an option's value."""
        return place_of(self.item, option)


def place_of(item: Item, option: str) -> Span:
    """Return the place of the value of an option that the statement has."""
    pairs = zip(item.args, item.args[1:], strict=False)
    return next(value.span for word, value in pairs if isinstance(word, Name) and word.text == option)


@final
@attrs.define(eq=False)
class BoundDeclaration:
    """A declaration, read; a setting that could not be read is missing."""

    kind: str
    name: str
    name_span: Span
    item: Item
    at: str
    options: dict[str, Any] = attrs.field(factory=dict)
    extends: Name | None = None
    was: Name | None = None
    """Former name."""
    parent: BoundDeclaration | None = None
    settings: dict[str, list[SettingValue]] = attrs.field(factory=dict)
    unread: frozenset[str] = frozenset()
    """Settings that are there and could not be read, which has been reported."""

    @property
    def when(self) -> Expr | None:
        """The condition of an agent, a rule or a budget."""
        return self.item.when


def statements(closure: Closure) -> Iterator[Statement]:
    """All statements in reading order: what a file includes stands in the place of its `include`."""
    yield from _statements(closure, 0)


def _statements(closure: Closure, source: int) -> Iterator[Statement]:
    file = next((file for file in closure.files if file.source == source), None)
    for statement in file.statements if file is not None else ():
        yield statement
        for included in closure.includes.get(statement.span, ()):
            yield from _statements(closure, included)


@final
@attrs.define(eq=False)
class SymbolTable:
    """Everything that a policy declares."""

    report: DiagnosticCollector
    reader: Reader
    lets: dict[str, Expr]
    let_spans: dict[str, Span]
    by_kind: dict[str, dict[str, BoundDeclaration]] = attrs.field(factory=dict)
    defaults: dict[str, BoundDeclaration] = attrs.field(factory=dict)
    tests: list[BoundDeclaration] = attrs.field(factory=list)
    statements: dict[tuple[str, str], Span] = attrs.field(factory=dict)
    """Kind (`let` too) and name -> the whole declaration."""

    def of(self, kind: str) -> dict[str, BoundDeclaration]:
        """Return the declarations of a kind by name, in order."""
        return self.by_kind.get(kind, {})

    def effective(self, declared: BoundDeclaration, setting: str) -> tuple[list[SettingValue], str]:
        """Return the values in force: its own, its parent's, the kind's defaults.

        And their origin (`own`, ...; empty: none).
        """
        link: BoundDeclaration | None = declared
        while link is not None:
            if setting in link.settings:
                origin = "own" if link is declared else f"extends {link.name}"
                return link.settings[setting], origin
            link = link.parent
        defaults = self.defaults.get(declared.kind)
        if defaults is not None and setting in defaults.settings:
            return defaults.settings[setting], f"defaults {declared.kind} {defaults.at}"
        return [], ""

    def one(self, declared: BoundDeclaration, setting: str) -> SettingValue | None:
        """Return the effective setting, where it may be given once."""
        given, _ = self.effective(declared, setting)
        return given[0] if given else None


def declare(closure: Closure, report: DiagnosticCollector) -> SymbolTable:
    """Read every declaration. What is wrong is reported and left out."""
    return _Declarer(closure, report).run()


@final
class _Declarer:
    def __init__(self, closure: Closure, report: DiagnosticCollector) -> None:
        self.closure = closure
        self.report = report
        self.items: list[tuple[Item, Declaration, str, Span]] = []
        self.first: dict[tuple[str, str], Span] = {}
        self.owner: Item | None = None
        """The declaration that is being read."""
        names: dict[str, list[str]] = {}
        lets: dict[str, Expr] = {}
        self.all = SymbolTable(report, Reader(report, names, _plain(lets), folder=self._folder), lets, {})

    def run(self) -> SymbolTable:
        for statement in statements(self.closure):
            self._note(statement)
        self._check_lets()
        self.all.reader.lets = _plain(self.all.lets)
        for item, declaration, name, name_span in self.items:
            self._declare(item, declaration, name, name_span)
        self._link_parents()
        self._check_former_names()
        return self.all

    # ---- first pass: which names there are ----

    def _note(self, statement: Statement) -> None:
        match statement:
            case Let(name=name):
                self._note_let(statement, name)
            case Expect(span=span):
                self.report.add("HM103", "`expect` is only allowed in a `test`", span)
            case Item(head=head):
                declaration = DECLARATIONS.get(head.text)
                if declaration is None:
                    self._unknown_declaration(statement)
                else:
                    self._note_declaration(statement, head.text, declaration)

    def _note_let(self, statement: Let, name: Name) -> None:
        if name.text in FIELD_NAMES or "." in name.text:
            self.report.add(
                "HM111", f"`{name.text}` is the name of a field", name.span, help="choose another name for the `let`"
            )
        elif name.text in self.all.lets:
            label = Label(self.all.let_spans[name.text], "first here")
            self.report.add("HM104", f"`{name.text}` is defined twice", name.span, labels=(label,), help=ONE_NAME)
        else:
            self.all.lets[name.text] = statement.value
            self.all.let_spans[name.text] = name.span
            self.all.statements["let", name.text] = statement.span

    def _note_declaration(self, item: Item, kind: str, declaration: Declaration) -> None:
        if kind in ("hmp", "include"):
            self._check_preamble(item, kind)
            return
        named = self._name(item, kind, declaration)
        if named is None:
            return
        name, span = named
        if name in RESERVED.get(kind, ()):
            self.report.add("HM111", f"`{name}` is a reserved {kind} name", span)
            return
        names = self.all.reader.names.setdefault(kind, [])
        identity = "" if declaration.singular else _identity(item, name)
        first = self.first.get((kind, identity))
        if first is not None and kind != "test":
            what = f"{kind} `{identity}`" if name and not declaration.singular else f"`{kind}`"
            code = "HM113" if kind == "model" else "HM104"
            label = Label(first, "first here")
            self.report.add(code, f"{what} is declared twice", span, labels=(label,), help=ONE_NAME)
            return
        names.append(name)
        self.all.statements[kind, name] = item.span
        self.items.append((item, declaration, name, span))
        self.first.setdefault((kind, identity), span)

    def _name(self, item: Item, kind: str, declaration: Declaration) -> tuple[str, Span] | None:
        """Return name and place of a declaration; reports a missing or unfit name."""
        first = item.args[0] if item.args else None
        match declaration.naming, first:
            case Naming.NOTHING, _:
                return "", item.head.span
            case Naming.NAME, Name(text=text, span=span) if "." not in text and text not in LINKS:
                return text, span
            case Naming.WORD, Name(text=text, span=span):
                if text in declaration.words:
                    return text, span
                self.report.unknown("HM214", f"`{kind}` cannot be set for", text, span, list(declaration.words))
                return None
            case ((Naming.GLOB | Naming.TEXT), String(value=value, span=span)):
                return value, span
        if (known := labelled(item)) is not None:
            self._report_misplaced("HM112", f"`{kind}` is not declared so", known)
            return None
        wants = {
            Naming.NAME: f"{kind} NAME {'when ... ' if item.when is not None else ''}{{ ... }}",
            Naming.GLOB: f'{kind} "claude-*" {{ ... }}',
            Naming.TEXT: f'{kind} "..." {{ ... }}',
            Naming.WORD: f"{kind} {'|'.join(declaration.words)} {{ ... }}",
        }
        quoted = declaration.naming in (Naming.GLOB, Naming.TEXT)
        span, help_, put = item.head.span, f"write `{wants[declaration.naming]}`", None
        if isinstance(first, (Name, String)):
            span = first.span
            if quoted and isinstance(first, Name):
                put = f'"{first.text}"'
            elif isinstance(first, String) and _WORD.fullmatch(slug := re.sub(r"[^A-Za-z0-9_-]+", "-", first.value)):
                put = slug.strip("-")
            help_ = f"write `{put}`" if put is not None else help_
        elif first is not None:
            span = first.span
        what = "a quoted text" if quoted else "a name without quotes" if isinstance(first, String) else "a name"
        self.report.add("HM112", f"`{kind}` needs {what} here", span, help=help_, replacement=put)
        return None

    def _check_preamble(self, item: Item, kind: str) -> None:
        shape = "hmp 1" if kind == "hmp" else 'include "common/*.hmp"'
        wanted = Quantity if kind == "hmp" else String
        if len(item.args) != 1 or not isinstance(item.args[0], wanted) or item.block or item.when:
            put = shape if kind == "hmp" and not item.block else None
            help_ = f"write `{put}`" if put is not None else ""
            if kind == "include" and item.args and not item.block and not item.when:
                path = self.report.text(item.args[0].span.to(item.args[-1].span)).replace('"', "")
                help_ = f'the name of a file has quotes: `include "{path}"`'
            self.report.add("HM112", f"expected `{shape}`", item.span, help=help_, replacement=put)

    def _unknown_declaration(self, item: Item) -> None:
        head = item.head
        homes = [kind for kind, declaration in DECLARATIONS.items() if head.text in declaration.settings]
        if homes:
            self.report.add(
                "HM103", f"`{head.text}` is not allowed here", head.span, help=f"it belongs in {one_of(homes)}"
            )
        elif head.text in TEST_STATEMENTS:
            self.report.add("HM103", f"`{head.text}` is not allowed here", head.span, help="it belongs in `test`")
        elif (known := other_declaration(item, self.report.sources[head.span.source].text)) is not None:
            self._report_misplaced("HM101", f"unknown declaration `{head.text}`", known)
        else:
            hint = ""
            settings = {name for declaration in DECLARATIONS.values() for name in declaration.settings}
            if (near := suggestion(head.text, sorted(settings))) is not None and near.startswith(head.text):
                homes = [kind for kind, declaration in DECLARATIONS.items() if near in declaration.settings]
                hint = f"`{near}` belongs in {one_of(homes)}"
            self.report.unknown("HM101", "unknown declaration", head.text, head.span, list(DECLARATIONS), hint=hint)

    def _check_lets(self) -> None:
        spans = self.all.let_spans
        for circle in circles(self.all.lets):
            if all(name in self.all.lets for name in circle):  # of two that meet, one is the cause
                note = " -> ".join(circle)
                self.report.add(
                    "HM110",
                    f"`{circle[0]}` refers to itself",
                    spans[circle[0]],
                    note=note,
                    help="remove one of the references",
                )
            for name in circle:
                self.all.lets.pop(name, None)
        large = too_large(self.all.lets)
        for name, what in large.items():
            if what:
                self.report.add("HM007", f"`{name}`, with what it names, is {what}", spans[name])
        if large:  # which others are used is then not known
            self.all.reader.used.update(("let", name) for name in self.all.lets)
        for name in large:
            del self.all.lets[name]

    # ---- second pass: what they say ----

    def _declare(self, item: Item, declaration: Declaration, name: str, name_span: Span) -> None:
        kind = item.head.text
        declared = BoundDeclaration(kind, name, name_span, item, self.report.at(item.span))
        rest = item.args[1:] if declaration.naming is not Naming.NOTHING else item.args
        rest = self._take_links(declared, declaration, rest)
        slots = dict(declaration.options)
        settings = DEFAULTED[name] if kind == "defaults" else declaration.settings
        self.owner = item
        misplaced: frozenset[str] = frozenset()
        source = self.report.sources[item.span.source].text
        if (known := beside_block(item, rest, declaration, settings, self.all.reader.names, source)) is not None:
            self._report_misplaced("HM112", f"`{kind}` takes no `{self.report.text(known.span)}` here", known)
            self._mention(rest)
            rest, misplaced = (), frozenset(settings)
        declared.options = self._options(kind, rest, slots, {})
        if item.when is not None and not declaration.when:
            self.report.add("HM103", f"`{kind}` takes no `when`", item.when.span, help="delete the `when`")
        if kind == "test":
            self.all.tests.append(declared)
            return
        declared.settings = self._block(item.block, settings, kind if kind != "defaults" else name)
        written = {one.head.text for one in item.block.statements if isinstance(one, Item)} if item.block else set()
        declared.unread = frozenset(written - declared.settings.keys()) | misplaced
        if kind == "defaults":
            declared.kind = name
            self.all.defaults[name] = declared
        else:
            self.all.by_kind.setdefault(kind, {})[_identity(item, name)] = declared

    def _take_links(
        self, declared: BoundDeclaration, declaration: Declaration, rest: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        """Read `extends PARENT` and `was OLD`, in either order."""
        while rest and isinstance(rest[0], Name) and rest[0].text in LINKS:
            word, named = rest[0], rest[1] if len(rest) > 1 else None
            nameless = not isinstance(named, Name) or "." in named.text or named.text in LINKS
            rest = rest[1:] if isinstance(named, Name) and named.text in LINKS else rest[2:]
            if word.text not in links(declaration):
                whole = word.span if nameless or named is None else word.span.to(named.span)
                fix = Fix((deletion(self.report.sources[whole.source].text, whole),), is_safe=False)
                what = f"`{declared.kind}` takes no `{word.text}`"
                self.report.add("HM103", what, word.span, help="delete it", fix=fix)
            elif nameless:
                self.report.add("HM112", f"`{word.text}` needs a name", word.span, help=f"write `{word.text} NAME`")
            elif getattr(declared, word.text) is not None:
                self.report.add("HM105", f"`{word.text}` is set twice", word.span, help=ONE)
            else:
                setattr(declared, word.text, named)
        return rest

    def _link_parents(self) -> None:
        for kind, declared in [(kind, one) for kind, table in self.all.by_kind.items() for one in table.values()]:
            if declared.extends is None:
                continue
            parent = self.all.of(kind).get(declared.extends.text)
            other = next((k for k, table in self.all.by_kind.items() if declared.extends.text in table), None)
            if parent is not None:
                declared.parent = parent
            elif other is not None:
                what = f"`{declared.extends.text}` is {_an(other)} {other}"
                self.report.add("HM109", f"{what}, not {_an(kind)} {kind}", declared.extends.span)
                self.all.reader.used.add((other, declared.extends.text))
            else:
                try:
                    self.all.reader.reference(kind, declared.extends)
                except Unreadable:
                    continue
        for table in self.all.by_kind.values():
            for declared in table.values():
                self._break_circle(declared)

    def _check_former_names(self) -> None:
        """Check that a `was` names something that no longer exists, and that no two declarations share one."""
        for kind, table in self.all.by_kind.items():
            taken: dict[str, BoundDeclaration] = {}
            for declared in table.values():
                if declared.was is None:
                    continue
                old, span = declared.was.text, declared.was.span
                still, other = table.get(old), taken.setdefault(old, declared)
                if declared.name == ALWAYS.get(kind):
                    self.report.add(
                        "HM114", f"{kind} `{declared.name}` is built in, so nothing can be renamed to it", span
                    )
                elif old in RESERVED.get(kind, ()) or old == ALWAYS.get(kind):
                    self.report.add("HM114", f"{kind} `{old}` is built in, so it cannot be renamed", span)
                elif still is declared:
                    self.report.add("HM114", f"`{old}` is the current name", span, help=f"delete `was {old}`")
                elif still is not None:
                    label = Label(still.name_span, "declared here")
                    what = f"{kind} `{old}` still exists, so it was not renamed"
                    self.report.add("HM114", what, span, labels=(label,), help=f"delete `was {old}`, or {kind} `{old}`")
                elif other is not declared:
                    assert other.was is not None
                    label = Label(other.was.span, "first here")
                    self.report.add("HM114", f"{kind} `{old}` is renamed twice", span, labels=(label,))

    def _break_circle(self, declared: BoundDeclaration) -> None:
        seen = [declared]
        link = declared.parent
        while link is not None:
            if link is declared:
                assert declared.extends is not None
                circle = " -> ".join([one.name for one in [*seen, declared]])
                self.report.add(
                    "HM108",
                    f"`{declared.name}` extends itself",
                    declared.extends.span,
                    note=circle,
                    help="remove one of the `extends`",
                )
                declared.parent = None
                return
            if link in seen:
                return  # a circle further up, which its own members report
            seen.append(link)
            link = link.parent

    def _block(self, block: Block | None, settings: Mapping[str, Setting], owner: str) -> dict[str, list[SettingValue]]:
        read: dict[str, list[SettingValue]] = {}
        for statement in block.statements if block is not None else ():
            if not isinstance(statement, Item):
                word = "let" if isinstance(statement, Let) else "expect"
                home = "at the top level of a file" if word == "let" else "in a `test`"
                self.report.add("HM103", f"`{word}` is not allowed here", statement.span, help=f"it belongs {home}")
                continue
            setting = settings.get(statement.head.text)
            if setting is None:
                self._unknown_setting(statement, block, settings, owner)
                continue
            given = self._setting(statement, setting, settings)
            if given is None:
                continue
            same = read.setdefault(given.name, [])
            twice = next((one for one in same if not setting.repeated or _key(one) == _key(given)), None)
            if twice is not None and (not setting.repeated or given.block):
                # Of two globs neither is the more specific; anything else is merely said twice.
                glob = any(slot.type is Type.GLOB for slot in setting.args)
                code = "HM113" if glob else "HM105"
                label = Label(twice.item.head.span, "first here")
                self.report.add(code, f"`{given.name}` is set twice", statement.head.span, labels=(label,), help=ONE)
                continue
            same.append(given)
        return read

    def _unknown_setting(self, item: Item, block: Block | None, settings: Mapping[str, Setting], owner: str) -> None:
        head = item.head
        self._mention(item.args)
        source = self.report.sources[head.span.source].text
        outer = self.owner if self.owner is not None and self.owner.block is block else None
        known = (
            instead_of(item, settings, owner, self.report.text)
            or elsewhere(item, outer, self.all.reader.names, source)
            or in_wrong_block(item, block, settings, outer, source)
        )
        if known is not None:
            self._report_misplaced("HM102", f"`{owner}` has no setting `{head.text}`", known)
            return
        if (help_ := unknown_word(head.text)) is not None:
            self.report.add("HM102", f"`{owner}` has no setting `{head.text}`", head.span, help=help_)
            return
        homes = [
            kind for kind, declaration in DECLARATIONS.items() if head.text in declaration.settings and kind != owner
        ]
        near = suggestion(head.text, settings)
        if homes and near not in (f"{head.text}s", head.text.removesuffix("s")):
            self.report.add(
                "HM102", f"`{owner}` has no setting `{head.text}`", head.span, help=f"it belongs in {one_of(homes)}"
            )
        elif head.text in DECLARATIONS:
            self.report.add(
                "HM103", f"`{head.text}` is not allowed here", head.span, help="it belongs at the top level of a file"
            )
        else:
            self.report.unknown("HM102", f"`{owner}` has no setting", head.text, head.span, list(settings))

    def _report_misplaced(self, code: str, message: str, known: Instead) -> None:
        fix = known.fix or Fix.replacing(known.span, known.replacement)
        self.report.add(code, message, known.span, help=known.help, fix=fix)

    def _setting(self, item: Item, setting: Setting, siblings: Mapping[str, Setting]) -> SettingValue | None:
        """One setting, read; None after reporting why it could not be."""
        name = item.head.text
        args: list[Any] = []
        rest = list(item.args)
        ok = True
        source = self.report.sources[item.span.source].text
        if (known := needless(item, setting, source)) is not None:
            what = f"expected {setting.args[0].shown()}, found `{self.report.text(known.span)}`"
            self._report_misplaced("HM201", what, known)
            return None
        if (known := bounds_in_block(item, setting)) is not None:
            self._report_misplaced("HM112", f"`{name}` needs {setting.args[0].shown()}", known)
            return None
        if setting.args and not (item.args and isinstance(item.args[0], Name)):
            known = elsewhere(item, self.owner, self.all.reader.names, source)
            if known is not None:
                self._report_misplaced("HM112", f"`{name}` needs {setting.args[0].shown()}", known)
                return None
        for slot in setting.args:
            if not rest or (isinstance(rest[0], Name) and rest[0].text in setting.options):
                if slot.optional:
                    continue
                self.report.add("HM112", f"`{name}` needs {slot.shown()}", item.head.span)
                return None
            if slot.optional and self._begins_block(rest[0], setting):
                continue
            if (known := in_words(rest, slot, self.report.text, options=setting.options)) is not None:
                what = f"expected {slot.shown()}, found `{self.report.text(known.span)}`"
                self.report.add("HM201", what, known.span, help=known.help, replacement=known.replacement)
                rest = [value for value in rest if value.span.start >= known.span.end]
                ok = False
                continue
            try:
                args.append(self.all.reader.read(rest.pop(0), slot))
            except Unreadable:
                ok = False
        if self._lacks_braces(item, rest, setting):
            return None
        if (known := per_of_budget(rest, setting)) is not None:
            self.report.add("HM112", f"`{name}` takes no `per`", known.span, help=known.help)
            rest = []
        options = self._options(name, tuple(rest), setting.options, siblings)
        if item.when is not None and not setting.when:
            self.report.add(
                "HM103", f"`{name}` takes no `when`", item.when.span, help="a condition belongs to a `rule`"
            )
        if setting.when and item.when is None:
            self.report.add("HM112", f"`{name}` needs `when` and a condition", item.head.span)
        if item.block is not None and setting.block is None:
            self._unblock(name, item.block, setting)
        block = self._block(item.block, setting.block, name) if setting.block is not None else {}
        return SettingValue(name, tuple(args), options, block, item.when, item) if ok else None

    def _unblock(self, name: str, block: Block, setting: Setting) -> None:
        """Report a block where there is none; what it holds may be options of the setting: `timeout { total 5m }`."""
        text = self.report.text
        put = None
        if block.statements and all(
            isinstance(one, Item) and one.head.text in setting.options and one.args for one in block.statements
        ):
            put = " ".join(text(one.span) for one in block.statements)
        help_ = "delete the block" if put is None else f"write `{name} {put}`"
        self.report.add("HM103", f"`{name}` takes no block", block.span, help=help_, replacement=put)

    def _mention(self, values: Iterable[Value]) -> None:
        """Count the names in a setting that could not be read as used."""
        names = [value.text for value in values if isinstance(value, Name)]
        self.all.reader.used.update((kind, name) for kind in ("let", *DECLARATIONS) for name in names)

    def _begins_block(self, value: Value, setting: Setting) -> bool:
        """Return True if a word is a setting of the block that is missing."""
        return setting.block is not None and isinstance(value, Name) and value.text in setting.block

    def _lacks_braces(self, item: Item, rest: list[Value], setting: Setting) -> bool:
        """Report settings of a block that stand there without its braces: `at 80% warn`."""
        if not rest or setting.block is None or item.block is not None or item.when is not None:
            return False
        if not isinstance(rest[0], Name) or rest[0].text not in setting.block:
            return False
        body = "; ".join(statements_of(rest, setting.block, lambda one: self.report.text(one.span)))
        put = f"{{ {body} }}"
        self._mention(rest)
        span = rest[0].span.to(rest[-1].span)
        message = f"`{item.head.text}` takes `{rest[0].text}` in a block"
        self.report.add("HM112", message, span, help=f"write `{put}`", replacement=put)
        return True

    def _options(
        self, owner: str, rest: tuple[Value, ...], slots: Mapping[str, Slot], siblings: Mapping[str, Setting]
    ) -> dict[str, Any]:
        """`option value` pairs."""
        read: dict[str, Any] = {}
        values = list(rest)
        while values:
            word = values.pop(0)
            slot = slots.get(word.text) if isinstance(word, Name) else None
            if slot is None or not isinstance(word, Name):
                values = self._no_option(owner, [word, *values], slots, siblings)
                continue
            if word.text in read:
                self.report.add("HM105", f"`{word.text}` is set twice", word.span, help=ONE)
            if slot.type is Type.FLAG:
                read[word.text] = True
            elif not values:
                self.report.add("HM112", f"`{word.text}` needs {slot.shown()}", word.span)
            elif (known := in_words(values, slot, self.report.text)) is not None:
                what = f"expected {slot.shown()}, found `{self.report.text(known.span)}`"
                self._report_misplaced("HM201", what, known)
                values = [value for value in values if value.span.start >= known.span.end]
            else:
                try:
                    read[word.text] = self.all.reader.read(values.pop(0), slot)
                except Unreadable:
                    continue
        return read

    def _no_option(
        self, owner: str, values: list[Value], slots: Mapping[str, Slot], siblings: Mapping[str, Setting]
    ) -> list[Value]:
        """Report a value that is no option; return those behind it."""
        word, *rest = values
        source = self.report.sources[word.span.source].text
        if isinstance(word, Name) and slots and word.text not in siblings:
            meant = OPTION_SYNONYMS.get(word.text.lower(), "")
            if meant not in slots and len(slots) == 1 and word.text in ("per", "each", "in", "for"):
                (meant,) = slots
            self.report.unknown(
                "HM112",
                f"`{owner}` has no option",
                word.text,
                word.span,
                list(slots),
                hint=f"write `{meant}`" if meant in slots else "",
                fix=Fix.replacing(word.span, meant) if meant in slots else None,
            )
            return rest[1:] if rest and not (isinstance(rest[0], Name) and rest[0].text in slots) else rest
        known = behind(values, siblings, slots, source)
        if not isinstance(word, Name) and slots:
            self._report_misplaced("HM112", f"`{owner}` expects one of {one_of(slots)} here", known)
            return rest
        self._report_misplaced("HM112", f"`{owner}` takes no further argument", known)
        return []

    def _folder(self, span: Span) -> str:
        folder, slash, _ = self.closure.paths[span.source].rpartition("/")
        return folder + slash


def _key(given: SettingValue) -> tuple[Any, ...]:
    return given.args


def _plain(lets: Mapping[str, Expr]) -> dict[str, Value]:
    """Those that stand for a value; the others stand for conditions."""
    kinds = (Name, String, Quantity, Rate, ListValue, RangeValue)
    return {name: value for name, value in lets.items() if isinstance(value, kinds)}


def _identity(item: Item, name: str) -> str:
    """Return what tells a declaration apart from others of its kind: of a model, the provider too."""
    match item.head.text, item.args[1:]:
        case "model", (Name(text="on"), Name(text=provider), *_):
            return f"{name} on {provider}"
    return name


def _an(kind: str) -> str:
    return "an" if kind[0] in "aeiou" else "a"
