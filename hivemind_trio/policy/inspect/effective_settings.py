"""Every setting of a declaration as it is in the end, and where it comes from: `explain --settings`.

And the reference of all settings, from the same table.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Final, final

import attrs

from hivemind_trio.dialects import KNOWN_BASES, KNOWN_NAMES
from hivemind_trio.model import Api
from hivemind_trio.policy.compile.binder import BoundDeclaration, SettingValue
from hivemind_trio.policy.compile.checked import Checked
from hivemind_trio.policy.diagnostics.suggest import one_of, suggestion
from hivemind_trio.policy.schema import DECLARATIONS, Declaration, Naming, Setting, Slot, Type
from hivemind_trio.policy.syntax.lexer import lexemes

BUILT_IN: Final = "built-in"


@final
@attrs.frozen
class SettingOrigin:
    """One effective setting."""

    name: str
    value: str
    """As it would be written; empty where nothing holds."""
    origin: str
    """`own team.hmp:24`, `extends anthropic-a fleet.hmp:31`, `defaults provider team.hmp:14`, `built-in`."""


@final
class NotDeclared(LookupError):  # noqa: N818  what is asked for is not there; nothing has gone wrong
    """Nothing is declared by that kind and name.

    Attributes:
        hint: What to ask for instead.
    """

    def __init__(self, says: str, hint: str) -> None:
        super().__init__(says)
        self.hint = hint


def settings(checked: Checked, kind: str, name: str) -> tuple[SettingOrigin, ...]:
    """Every setting that a declaration could have, in the table's order.

    Raises:
        NotDeclared: Nothing of this kind has this name.
    """
    declared = _declared(checked, kind, name)
    rows: list[SettingOrigin] = []
    for setting_name, setting in DECLARATIONS[kind].settings.items():
        given, origin = checked.declarations.effective(declared, setting_name)
        for one in given:
            at = checked.declarations.report.at(one.item.span)
            where = origin if origin.startswith("defaults") else f"{origin} {at}"
            rows.append(SettingOrigin(setting_name, _written(checked, one), where))
        if not given:
            value = _built_in(checked, declared, setting_name, setting)
            rows.append(SettingOrigin(setting_name, value, BUILT_IN))
    return tuple(rows)


def _declared(checked: Checked, kind: str, name: str) -> BoundDeclaration:
    kinds = [kind for kind, declaration in DECLARATIONS.items() if declaration.settings]
    if kind not in kinds:
        meant = suggestion(kind, kinds)
        hint = f"did you mean `{meant}`?" if meant else f"there are {one_of(kinds, most=99).replace(' or ', ' and ')}"
        raise NotDeclared(f"no kind of declaration is called `{kind}`", hint)
    table = checked.declarations.of(kind)
    if name in table:
        return table[name]
    if DECLARATIONS[kind].naming is Naming.NOTHING and table:
        raise NotDeclared(f"`{kind}` has no name", f'write `--settings {kind} ""`')
    what = f"no {kind} `{name}`" if name else f"a {kind} has a name"
    if not table:
        raise NotDeclared(what, f"the policy declares no {kind}; what holds without one stands in the reference")
    meant = suggestion(name, table)
    hint = (
        f"did you mean `{meant}`?"
        if meant
        else f"there {'are' if len(table) > 1 else 'is'} {one_of(table).replace(' or ', ' and ')}"
    )
    raise NotDeclared(what, hint)


def _written(checked: Checked, given: SettingValue) -> str:
    """Return the text behind the setting's name, on one line and without comments."""
    span = given.item.span
    text = checked.sources[span.source].text[given.item.head.span.end : span.end]
    return " ".join("".join(piece.text for piece in lexemes(text, span.source) if piece.type != "COMMENT").split())


def _built_in(checked: Checked, declared: BoundDeclaration, name: str, setting: Setting) -> str:
    if declared.kind != "provider" or name not in ("api", "base"):
        return setting.default
    given = checked.declarations.one(declared, "api")
    api = Api(given.value) if given is not None else KNOWN_NAMES.get(declared.name)
    if api is None:
        return ""
    return api.value if name == "api" else f'"{KNOWN_BASES[api]}"' if api in KNOWN_BASES else ""


# ---- the reference ----


COLUMNS: Final = 100
"""Width of the documents."""


def reference() -> str:
    """All declarations and settings as Markdown, for `grammar/README.md`."""
    return "\n".join(line for kind, declaration in DECLARATIONS.items() for line in _section(kind, declaration))


def _section(kind: str, declaration: Declaration) -> Iterator[str]:
    yield f"### `{kind}`"
    yield ""
    yield from textwrap.wrap(declaration.doc, COLUMNS, break_on_hyphens=False)
    yield ""
    yield "```hmp"
    yield _shape(kind, declaration)
    yield "```"
    yield ""
    if declaration.settings:
        yield "| setting | takes | default | |"
        yield "|---|---|---|---|"
        yield from _rows(declaration.settings, "")
        yield ""


def _shape(kind: str, declaration: Declaration) -> str:
    if kind == "hmp":
        return "hmp 1"
    if kind == "include":
        return 'include "common/*.hmp"'
    words = {
        Naming.NOTHING: "",
        Naming.NAME: " NAME",
        Naming.GLOB: ' "GLOB"',
        Naming.TEXT: ' "TEXT"',
        Naming.WORD: f" {'|'.join(declaration.words)}",
    }
    shape = kind + words[declaration.naming]
    if declaration.extends:
        shape += f" [extends {kind.upper()}]"
    if declaration.was:
        shape += " [was OLD]"
    for option, slot in declaration.options.items():
        named = "PARTITION" if slot.type is Type.PARTITION else slot.words[0].upper()
        shape += f" [{option} {'|'.join(slot.words) if slot.type is Type.WORD else named}]"
    if declaration.when:
        shape += " [when CONDITION]"
    return f"{shape} {{ ... }}"


def _rows(settings: Mapping[str, Setting], inside: str) -> Iterator[str]:
    for name, setting in settings.items():
        takes = [_cell(slot) for slot in setting.args]
        takes += [f"`{option}` {_cell(slot)}".rstrip() for option, slot in setting.options.items()]
        takes += ["`when` a condition"] * setting.when + ["a block"] * bool(setting.block)
        default = f"`{setting.default}`" if setting.default else ""
        doc = setting.doc + (" Several times." if setting.repeated else "")
        yield f"| `{inside}{name}` | {_escaped(', '.join(takes))} | {_escaped(default)} | {_escaped(doc)} |"
        if setting.block:
            yield from _rows(setting.block, f"{inside}{name} / ")


def _cell(slot: Slot) -> str:
    if slot.type is Type.FLAG:
        return ""
    return slot.shown() + (", or nothing" if slot.optional else "")


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
