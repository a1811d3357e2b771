"""Checks of `account` blocks of a provider: a key each, names, and an account for every lane."""

from __future__ import annotations

import re
from typing import Final

from hivemind_trio.policy.compile.binder import BoundDeclaration, SettingValue, SymbolTable
from hivemind_trio.policy.diagnostics.collector import DiagnosticCollector
from hivemind_trio.policy.diagnostics.diagnostic import Label
from hivemind_trio.policy.syntax.ast import Item

RESERVED_ACCOUNTS: Final = ("plan", "breaker", "concurrency")
"""Words that stand behind the name of a provider elsewhere."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

DEFAULT: Final = "default"


def check_accounts(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Report accounts that cannot be meant."""
    for declared in declarations.of("provider").values():
        given, _ = declarations.effective(declared, "account")
        if given:
            _beside_key(declarations, declared, given, report)
            _each(given, report)
            _sharing(declared, given, report)
            _former_names(given, report)
            _lanes_without(declarations, declared, given, report)
        elif (spread := declared.settings.get("spread")) and "account" not in declared.unread:
            report.warn(
                "HM431",
                f"`{declared.name}` has no accounts to spread calls over",
                spread[0].item.head.span,
                help="write `account NAME { key env(NAME) }` for each key, or delete `spread`",
            )


def _beside_key(
    declarations: SymbolTable, declared: BoundDeclaration, given: list[SettingValue], report: DiagnosticCollector
) -> None:
    key = declarations.one(declared, "key")
    if key is not None:
        report.add(
            "HM103",
            "`key` is not allowed beside `account`",
            key.item.head.span,
            labels=(Label(given[0].item.head.span, "an account"),),
            help=f"delete it, or write `account NAME {{ key {key.value} }}`",
        )


def _each(given: list[SettingValue], report: DiagnosticCollector) -> None:
    for one in given:
        if not _NAME.fullmatch(one.value):
            report.add("HM201", f"expected a name, found `{one.value}`", one.span, help="write letters, digits and `-`")
        elif one.value in RESERVED_ACCOUNTS:
            report.add("HM111", f"`{one.value}` is a reserved account name", one.span)
        written = one.item.block.statements if one.item.block is not None else ()
        if not any(isinstance(inner, Item) and inner.head.text == "key" for inner in written):
            report.add(
                "HM112",
                f"account `{one.value}` needs `key`",
                one.span,
                help="write `key env(NAME)`; logins of people and their plans are no accounts: they pass through a "
                "provider without key",
            )


def _sharing(declared: BoundDeclaration, given: list[SettingValue], report: DiagnosticCollector) -> None:
    """Report `shares` of what is no account with limits of its own, and limits beside it."""
    owners = {one.value: one for one in given if "shares" not in one.block}
    names = {one.value for one in given}
    for one in given:
        if "shares" not in one.block:
            continue
        shares = one.block["shares"][0]
        if shares.value == one.value or (shares.value in names and shares.value not in owners):
            itself = shares.value == one.value
            other = f"name an account with limits of its own: {', '.join(f'`{name}`' for name in owners)}"
            if itself:
                help_ = "delete `shares`: without it the account has limits of its own"
                help_ = f"{help_}; or {other}" if owners else help_
            else:
                help_ = other if owners else "delete `shares` in one of them: its limits are those of all"
            what = "itself" if itself else f"`{shares.value}`, which shares another"
            report.add("HM115", f"account `{one.value}` shares {what}", shares.span, help=help_)
        elif shares.value not in names:
            what = f"`{declared.name}` has no account"
            others = [name for name in owners if name != one.value]
            report.unknown("HM107", what, shares.value, shares.span, others, is_of_language=False)
        for setting in ("concurrency", "limits"):
            for limit in one.block.get(setting, ()):
                report.add(
                    "HM103",
                    f"`{setting}` is not allowed beside `shares`",
                    limit.item.head.span,
                    labels=(Label(shares.item.head.span, f"the limits are those of `{shares.value}`"),),
                    help=f"delete it, or write it in account `{shares.value}`",
                )


def _former_names(given: list[SettingValue], report: DiagnosticCollector) -> None:
    """Report a `was` that names an account which is still there, or that two accounts claim."""
    names = {one.value: one for one in given}
    taken: dict[str, SettingValue] = {}
    for one in given:
        old = one.options.get("was")
        if old is None:
            continue
        span, help_ = one.place("was"), f"delete `was {old}`"
        if old == one.value:
            report.add("HM114", f"`{old}` is the current name", span, help=help_)
        elif old in names:
            label = Label(names[old].item.args[0].span, "declared here")
            what = f"account `{old}` still exists, so it was not renamed"
            report.add("HM114", what, span, labels=(label,), help=f"{help_}, or account `{old}`")
        elif (other := taken.setdefault(old, one)) is not one:
            label = Label(other.place("was"), "first here")
            report.add("HM114", f"account `{old}` is renamed twice", span, labels=(label,))


def _lanes_without(
    declarations: SymbolTable, declared: BoundDeclaration, given: list[SettingValue], report: DiagnosticCollector
) -> None:
    if any("for" not in one.block for one in given):
        return  # also where a `for` could not be read, which has been reported
    taken = {lane for one in given for named in one.block["for"] for lane in named.value}
    lacking = [lane for lane in dict.fromkeys([*declarations.of("lane"), DEFAULT]) if lane not in taken]
    if lacking:
        listed = ", ".join(f"`{lane}`" for lane in lacking)
        report.add(
            "HM424",
            f"no account of `{declared.name}` takes calls of lane {listed}",
            given[-1].block["for"][0].span,
            help="name it after `for` in an account, or delete a `for`",
        )
