"""Completion at the cursor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from itertools import pairwise
from typing import Final, final

import attrs

from hivemind_trio.policy import (
    DECLARATIONS,
    FAILURES,
    FAULTS,
    LATE,
    LOAD,
    RESERVED,
    RUN_OPTIONS,
    Checked,
    FaultOf,
    Kind,
    Lexeme,
    Naming,
    Setting,
    Slot,
    Type,
    lexemes,
    links,
    request_fields,
)

from .cursor_context import Spot, last_block_end, settings_in, spots, word
from .field_descriptions import FAMILIES, FIELDS, OUTCOME_FAMILIES, OUTCOMES, TESTS, WORDS

_TYPED: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_.-]*\Z")
_REST: Final = re.compile(r"[A-Za-z0-9_-]*")


class Sort(Enum):
    """Kind of a proposal; editors show each with its own icon."""

    DECLARATION = auto()
    SETTING = auto()
    OPTION = auto()
    FIELD = auto()
    NAME = auto()
    CHOICE = auto()
    VALUE = auto()
    WORD = auto()


@final
@attrs.frozen
class Proposal:
    """One text that could be put in the place of what is being typed."""

    text: str
    sort: Sort
    detail: str = ""
    doc: str = ""


@final
@attrs.frozen
class Completion:
    """Proposals, and what of the text they replace."""

    start: int
    end: int
    proposals: tuple[Proposal, ...]


def complete(text: str, offset: int, checked: Checked) -> Completion:
    """Return the proposals at a code point of a text.

    Args:
        checked: The policy that it is part of, for the names; an older state of it will do.
    """
    typed = _TYPED.search(text, text.rfind("\n", 0, offset) + 1, offset)
    start = typed.start() if typed else offset
    rest = _REST.match(text, offset)
    end = rest.end() if rest is not None and typed else offset
    pieces = lexemes(text[last_block_end(text, start) : start] + "x", 0)
    if not pieces or pieces[-1].type != "NAME" or pieces[-1].text != "x":
        return Completion(start, end, ())  # within a text, a comment or a number
    *_, (_, spot) = spots(pieces)
    found = {one.text: one for one in _Proposer(checked, spot).proposals()}
    return Completion(start, end, tuple(found.values()))


@final
@attrs.frozen
class _Proposer:
    checked: Checked
    spot: Spot

    def proposals(self) -> Iterator[Proposal]:
        spot = self.spot
        kind = word(spot.path[0]) if spot.path else ""
        if spot.asks:
            yield from self._asked(kind or word(spot.statement))
        elif not spot.path:
            yield from self._top()
        elif kind == "test":
            yield from self._in_test()
        else:
            settings = settings_in(spot.path)
            if spot.index == 0:
                yield from (_setting(name, setting) for name, setting in settings.items())
            elif (setting := settings.get(word(spot.statement))) is not None:
                if word(spot.statement) == "shares" and spot.index == 1:
                    yield from (Proposal(name, Sort.NAME, "an account") for name in self._siblings())
                yield from self._values(setting.args, setting.options, spot.before[1:], setting.default)
                if setting.when and spot.index == 1:
                    yield _word("when")

    # ---- statements ----

    def _top(self) -> Iterator[Proposal]:
        spot = self.spot
        if spot.index == 0:
            for kind, declaration in DECLARATIONS.items():
                yield Proposal(kind, Sort.DECLARATION, "declaration", declaration.doc)
            yield _word("let")
            return
        first = spot.statement[0]
        if first.type == "LET":
            if spot.index >= 3:
                yield from self._conditions_begin("rule")
            return
        if (known := DECLARATIONS.get(first.text)) is None:
            return
        before = spot.before[1:]
        if known.naming is Naming.WORD and not before:
            yield from (Proposal(choice, Sort.CHOICE) for choice in known.words)
        if known.naming is not Naming.NOTHING:
            if not before:
                return
            before = before[1:]
        left = [*links(known)]
        while (link := word(before)) in left:
            if len(before) == 1:
                if link == "extends":
                    yield from (one for one in self._names(first.text) if one.text != word(spot.statement, 1))
                return
            left.remove(link)
            before = before[2:]
        if not before:
            yield from (_word(link, Sort.OPTION) for link in left)
        yield from self._values((), known.options, before, "")
        if known.when and (not before or len(before) % 2 == 0):
            yield _word("when")

    def _in_test(self) -> Iterator[Proposal]:
        spot = self.spot
        if len(spot.path) == 1:
            if spot.index == 0:
                yield from (Proposal(name, Sort.SETTING, "in a test", doc) for name, doc in TESTS.items())
                yield _word("expect")
            elif word(spot.statement) == "given" and spot.index == 1:
                yield Proposal("any", Sort.OPTION, "every call that there can be")
            elif word(spot.statement) == "given" and spot.index == 2:
                yield _word("when")
            elif word(spot.statement) == "upstream" and spot.index == 1:
                yield from self._names("provider")
                yield from (Proposal(name, Sort.NAME, "an account") for name in self._accounts())
            elif word(spot.statement) == "run" and spot.index in (2, 4):
                said = {word(spot.statement, 2)} if spot.index == 4 else set()
                for option, slot in RUN_OPTIONS.items():
                    if option not in said:
                        yield Proposal(option, Sort.OPTION, slot.shown())
            elif word(spot.statement) == "fault":
                yield from self._of_fault()
            return
        inside = word(spot.path[1])
        if inside == "upstream":
            if spot.index == 0:
                yield Proposal("latency", Sort.SETTING, "two durations, `2s..6s`")
                yield Proposal("fail", Sort.SETTING, "a failure and a share, `529 2%`")
            elif word(spot.statement) == "fail" and spot.index == 1:
                yield from (Proposal(failure, Sort.CHOICE) for failure in FAILURES)
            elif word(spot.statement) == "fail" and spot.index in (3, 5):
                yield from (Proposal(each, Sort.OPTION) for each in ("from", "to"))
        elif spot.index == 0:
            yield from _fields(FIELDS)
            if inside == "load":
                yield from (Proposal(name, Sort.SETTING, slot.shown()) for name, slot in LOAD.items())
        elif spot.index == 1:
            yield from self._of_field(word(spot.statement))

    def _of_fault(self) -> Iterator[Proposal]:
        """Yield what `fault store from 3m to 4m` or `fault node 2 from 5m` may have here."""
        spot = self.spot
        first = 2 if word(spot.statement, 1) == FaultOf.STORE else 3
        if spot.index == 1:
            yield from (Proposal(of, Sort.CHOICE, example) for of, example in FAULTS.items())
        elif spot.index in (first, first + 2):
            yield from (Proposal(each, Sort.OPTION) for each in ("from", "to"))

    # ---- values ----

    def _values(
        self, args: Sequence[Slot], options: Mapping[str, Slot], before: Sequence[Lexeme], default: str
    ) -> Iterator[Proposal]:
        values, bracket = _values(before)
        if bracket == "(":
            return
        if bracket == "[":
            values = values[:-1]
        for expected in _expected(args, options, values):
            if isinstance(expected, Slot):
                yield from self._of_slot(expected, within=bracket is not None)
            elif bracket is None and expected not in values:
                yield Proposal(expected, Sort.OPTION, options[expected].shown())
        if default and not before:
            yield Proposal(default, Sort.VALUE, "what holds unsaid")

    def _of_slot(self, slot: Slot, *, within: bool = False) -> Iterator[Proposal]:
        match slot.type:
            case Type.WORD | Type.PARTITION | Type.COUNT_OR_AUTO | Type.ADDRESS_OR_OFF | Type.CONTROL_ADDRESS:
                yield from (Proposal(choice, Sort.CHOICE) for choice in slot.words)
            case Type.REF | Type.REFS:
                yield from self._names(slot.words[0])
                return
            case Type.SECRET | Type.SECRETS | Type.URL | Type.STORE_URL:
                yield Proposal("env(NAME)", Sort.VALUE, "a variable of the environment")
                if slot.type not in (Type.URL, Type.STORE_URL):
                    yield Proposal('file("path")', Sort.VALUE, "a file, relative to the policy")
                return
            case Type.SIGNALS:
                if within:
                    yield from (Proposal(failure, Sort.CHOICE) for failure in FAILURES)
        if slot.type not in (Type.WORD, Type.PARTITION):
            yield from self._lets(slot.shown())

    def _names(self, kind: str) -> Iterator[Proposal]:
        for name in self.checked.declarations.reader.names.get(kind, ()):
            yield Proposal(name, Sort.NAME, kind)

    def _lets(self, detail: str = "") -> Iterator[Proposal]:
        for name in self.checked.declarations.let_spans:
            yield Proposal(name, Sort.NAME, "let", detail)

    # ---- conditions ----

    def _asked(self, kind: str) -> Iterator[Proposal]:
        before = self.spot.before
        last = before[-1]
        if last.type in ("WHEN", "EXPECT", "AND", "OR", "NOT") or (last.type == "LPAR"):
            yield from self._conditions_begin("test" if last.type == "EXPECT" or self._expects() else kind)
        elif last.type in ("CMP", "IN", "LSQB", "COMMA"):
            yield from self._of_field(_compared_field(before))
        else:
            flag = last.type == "NAME" and self._kind(last.text) is Kind.FLAG
            yield from map(_word, ("and", "or") if flag or _compared(before) else ("in", "not", "and", "or"))

    def _expects(self) -> bool:
        return any(lexeme.type == "EXPECT" for lexeme in self.spot.before)

    def _conditions_begin(self, kind: str) -> Iterator[Proposal]:
        early = [name for name in LATE if kind == "agent" or (kind == "team" and name != "agent")]
        yield from _fields({name: doc for name, doc in FIELDS.items() if name not in early})
        yield from (Proposal(f"{name}.", Sort.FIELD, f"{name}.NAME", doc) for name, doc in FAMILIES.items())
        if kind == "test":
            yield from _fields(OUTCOMES)
            yield from self._outcomes_of_names()
        yield _word("not")
        yield from self._lets()

    def _accounts(self) -> Iterator[str]:
        """Yield the accounts of providers as tests name them, `anthropic.batch`."""
        for name, declared in self.checked.declarations.of("provider").items():
            yield from (f"{name}.{given.value}" for given in declared.settings.get("account", ()))

    def _siblings(self) -> Iterator[str]:
        """Yield the other accounts of the provider that the cursor is in."""
        provider, own = self.spot.path[0], self.spot.path[-1]
        for name in self._accounts():
            owner, _, account = name.partition(".")
            if owner == word(provider, 1) and account != word(own, 1):
                yield account

    def _outcomes_of_names(self) -> Iterator[Proposal]:
        """Yield `account.NAME` and the like; tags and accounts are named where they are declared."""
        declarations = self.checked.declarations
        names: dict[str, Iterable[str]] = {"budget": declarations.of("budget")}
        for family, kind in (("account", "provider"), ("tag", "rule")):
            given = (one for declared in declarations.of(kind).values() for one in declared.settings.get(family, ()))
            names[family] = dict.fromkeys(one.value for one in given if one.args)
        for family, known in names.items():
            yield from _fields({f"{family}.{name}": OUTCOME_FAMILIES[family] for name in known})

    def _kind(self, field: str) -> Kind | None:
        known = request_fields([], [], []).get(field)
        return known.kind if known is not None else None

    def _of_field(self, field: str) -> Iterator[Proposal]:
        if field in ("agent", "team", "provider", "lane", "retry"):
            yield from self._names(field)
            yield from (Proposal(name, Sort.NAME, "who is none of them") for name in RESERVED.get(field, ()))
        elif self._kind(field) is Kind.FLAG:
            yield from (Proposal(value, Sort.CHOICE) for value in ("true", "false"))
            return
        yield from self._lets()


def _compared_field(before: Sequence[Lexeme]) -> str:
    """Return the left side of the comparison that the cursor is on the right side of."""
    for left, sign in reversed(list(pairwise(before))):
        if left.type == "NAME" and sign.type in ("CMP", "IN", "NOT"):
            return left.text
    return ""


def _compared(before: Sequence[Lexeme]) -> bool:
    """Return True if the comparison before the cursor has its right side."""
    for lexeme in reversed(before):
        if lexeme.type in ("CMP", "IN"):
            return True
        if lexeme.type in ("AND", "OR", "WHEN", "EXPECT"):
            return False
    return False


def _expected(args: Sequence[Slot], options: Mapping[str, Slot], values: Iterable[str]) -> Iterator[Slot | str]:
    """Yield what may follow the values so far: a value for a slot, or the name of an option."""
    rest = list(values)
    for slot in args:
        if rest and rest[0] not in options:
            rest.pop(0)
            continue
        yield slot
        if not slot.optional:
            return
    while rest:
        option = options.get(rest.pop(0))
        if option is None:
            return
        if option.type is Type.FLAG:
            continue
        if not rest:
            yield option
            return
        rest.pop(0)
    yield from options


def _values(before: Iterable[Lexeme]) -> tuple[list[str], str | None]:
    """Return the values of a statement so far, each by its first word, and the bracket that is open."""
    values: list[str] = []
    opened: list[str] = []
    joined = False
    for lexeme in before:
        if lexeme.type in ("LSQB", "LPAR"):
            if lexeme.type == "LSQB" and not opened and not joined:
                values.append(lexeme.text)
            opened.append(lexeme.text)
        elif lexeme.type in ("RSQB", "RPAR"):
            opened = opened[:-1]
        elif lexeme.type in ("SLASH", "_DOTDOT"):
            joined = True
        elif not opened:
            if not joined:
                values.append(lexeme.text)
            joined = False
    return values, opened[-1] if opened else None


def _fields(docs: Mapping[str, str]) -> Iterator[Proposal]:
    return (Proposal(name, Sort.FIELD, "field", doc) for name, doc in docs.items())


def _word(text: str, sort: Sort = Sort.WORD) -> Proposal:
    return Proposal(text, sort, "", WORDS[text])


def _setting(name: str, setting: Setting) -> Proposal:
    return Proposal(name, Sort.SETTING, takes(setting), described(setting))


def takes(setting: Setting) -> str:
    """Return the arguments of a setting, on one line."""
    parts = [slot.shown() + (", or nothing" if slot.optional else "") for slot in setting.args]
    parts += [name if slot.type is Type.FLAG else f"`{name}` {slot.shown()}" for name, slot in setting.options.items()]
    parts += ["`when` a condition"] * setting.when + ["a block"] * bool(setting.block)
    return ", ".join(parts)


def described(setting: Setting) -> str:
    """Return a description of a setting: its purpose and its default."""
    text = setting.doc + (" Several times." if setting.repeated else "")
    text += f"\n\nDefault: `{setting.default}`." if setting.default else ""
    return text
