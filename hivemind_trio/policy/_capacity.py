"""Checks that look at several declarations at once: capacity, money, circles, exposure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from hivemind_trio.model import SecretRef

from ._ast import Span
from ._declare import Declarations, Declared
from ._diagnostic import Label, Severity
from ._expr import Condition, compared
from ._globs import overlap, specificity
from ._lower import provider_api, provider_base, provider_limit, share
from ._prices import BUILT_IN_PRICES
from ._report import Report
from ._values import is_loopback

REFERENCED: Final = {
    "retry": "a provider or a rule",
    "team": "an agent",
    "lane": "a rule or an agent",
    "let": "a condition or a setting",
}
"""Kinds that exist to be named elsewhere, and where."""


def check_together(declarations: Declarations, conditions: Mapping[str, Mapping[str, Condition | None]]) -> None:
    """Report what only shows when declarations are seen beside each other."""
    report = declarations.report
    _required(declarations, report)
    _ambiguous_globs(declarations, report)
    _reserves(declarations, report)
    _fallback_circles(declarations, report)
    _same_keys(declarations, report)
    _unpriced(declarations, report)
    _exposure(declarations, report)
    _plain_http(declarations, report)
    _spoofable(declarations, conditions, report)
    _unused(declarations, report)


def _required(declarations: Declarations, report: Report) -> None:
    for declared in declarations.of("provider").values():
        if provider_api(declarations, declared) is None:
            if "api" in declared.unread or _orphan(declared):
                continue
            hint = "add `api anthropic` or what it speaks; a provider named `anthropic` or `openai` needs none"
            report.add("HM106", f"provider `{declared.name}` has no `api`", declared.name_span, help=hint)
        elif provider_base(declarations, declared) is None and "base" not in declared.unread:
            hint = 'add `base "https://..."`'
            report.add("HM106", f"provider `{declared.name}` has no `base`", declared.name_span, help=hint)
    for declared in declarations.of("budget").values():
        if not {"cost", "tokens", "input", "output", "requests"} & (declared.settings.keys() | declared.unread):
            hint = "add what it allows: `cost $20/day` or `tokens 8M/hour`"
            report.add("HM106", f"budget `{declared.name}` allows nothing in particular", declared.name_span, help=hint)
    for declared in declarations.of("resource").values():
        if "capacity" not in declared.settings.keys() | declared.unread:
            report.add(
                "HM106", f"resource `{declared.name}` has no `capacity`", declared.name_span, help="add `capacity 4`"
            )
    for declared in declarations.of("lane").values():
        for given in declared.settings.get("aging", []):
            if "every" not in given.options:
                report.add("HM112", "`aging` wants a time", given.span, help="write `aging 1 every 30s`")
    for declared in declarations.of("rule").values():
        if {"allow", "deny"} <= set(declared.settings):
            second = declared.settings["deny"][0].item.head.span
            report.add("HM105", "`allow` and `deny` are one setting", second, help="keep one of them")


def _orphan(declared: Declared) -> bool:
    """Whether it, or what it extends, extends what there is not: what it would have inherited is not known."""
    link: Declared | None = declared
    while link is not None:
        if link.extends is not None and link.parent is None:
            return True
        link = link.parent
    return False


def _ambiguous_globs(declarations: Declarations, report: Report) -> None:
    """Two globs over models that fit the same name equally well: which one holds would be chance."""
    scopes: list[list[tuple[str, Span]]] = [
        [(name, one.name_span) for name, one in declarations.of("model").items() if not one.options]
    ]
    for declared in declarations.of("provider").values():
        groups = declared.settings.get("limits", [])
        scopes.append([(given.args[0], given.span) for given in groups if given.args])
    for scope in scopes:
        for number, (glob, span) in enumerate(scope):
            for other, place in scope[:number]:
                if specificity(glob) == specificity(other) and overlap(glob, other):
                    report.add(
                        "HM113",
                        f"`{glob}` and `{other}` fit the same models equally well",
                        span,
                        labels=(Label(place, "the other one"),),
                        help="make one of them more specific",
                    )


def _reserves(declarations: Declarations, report: Report) -> None:
    for provider in declarations.of("provider").values():
        limit = provider_limit(declarations, provider)
        taken = 0
        for lane in declarations.of("lane").values():
            reserve = declarations.one(lane, "reserve")
            if reserve is None:
                continue
            wanted = share(reserve.value)
            assert wanted is not None
            taken += wanted.of(limit)
            if taken > limit:
                concurrency = declarations.one(provider, "concurrency")
                place = concurrency.span if concurrency is not None else provider.name_span
                report.add(
                    "HM401",
                    f"the lanes reserve {taken} slots, and `{provider.name}` has {limit}",
                    reserve.span,
                    labels=(Label(place, "the slots that there are"),),
                    help="reserve less, or a share such as `25%`",
                )
                break


def _fallback_circles(declarations: Declarations, report: Report) -> None:
    table = declarations.of("provider")
    reported: set[str] = set()
    for name, declared in table.items():
        path = [name]
        given = declarations.one(declared, "fallback")
        while given is not None and given.value in table and given.value not in path:
            path.append(given.value)
            given = declarations.one(table[given.value], "fallback")
        if given is not None and given.value == name and not reported & set(path):
            reported.update(path)
            own = declarations.one(declared, "fallback")
            assert own is not None
            report.add("HM416", "providers fall back on each other", own.span, note=" -> ".join([*path, name]))


def _same_keys(declarations: Declarations, report: Report) -> None:
    first: dict[SecretRef, tuple[Declared, Span]] = {}
    for declared in declarations.of("provider").values():
        given = declarations.one(declared, "key")
        for ref in given.value if given is not None else ():
            assert given is not None
            other, place = first.setdefault(ref, (declared, given.span))
            if other is not declared:
                report.add(
                    "HM418",
                    f"`{other.name}` and `{declared.name}` share the key {ref}",
                    given.span,
                    severity=Severity.WARNING,
                    labels=(Label(place, "first here"),),
                    help="a provider counts by key: one pool of slots would see both",
                )


def _unpriced(declarations: Declarations, report: Report) -> None:
    budgets = [one for one in declarations.of("budget").values() if "cost" in one.settings]
    if not budgets:
        return
    priced = [price.glob for price in BUILT_IN_PRICES]
    priced += [name for name, one in declarations.of("model").items() if "price" in one.settings]
    for provider in declarations.of("provider").values():
        serves = declarations.one(provider, "serves")
        for glob in serves.value if serves is not None else ():
            assert serves is not None
            if not any(overlap(glob, known) for known in priced):
                report.warn(
                    "HM407",
                    f"budget `{budgets[0].name}` counts money, and no model like `{glob}` has a price",
                    serves.span,
                    help=f'add `model "{glob}" {{ price input $1/Mtok output $5/Mtok }}`, or `$0/Mtok` if it is free',
                )


def _exposure(declarations: Declarations, report: Report) -> None:
    server = declarations.of("server").get("")
    if server is None:
        return
    listen = declarations.one(server, "listen")
    tokens = any(declarations.one(agent, "token") is not None for agent in declarations.of("agent").values())
    if listen is not None and not is_loopback(listen.value[0]) and not tokens:
        report.warn(
            "HM601",
            "whoever reaches this address can spend your keys",
            listen.span,
            help="give agents a `token env(NAME)`; `serve` does not start without",
        )
    admin = declarations.one(server, "admin")
    if admin is not None and not is_loopback(admin.value[0]):
        report.add(
            "HM602", "operators' commands must not be open to a network", admin.span, help='write `"127.0.0.1:8788"`'
        )


def _plain_http(declarations: Declarations, report: Report) -> None:
    for declared in declarations.of("provider").values():
        base = declarations.one(declared, "base")
        if base is None or not isinstance(base.value, str) or declarations.one(declared, "key") is None:
            continue
        parts = urlsplit(base.value)
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            fixed = f'"https{base.value[4:]}"'
            report.add(
                "HM604", "the key would travel unencrypted", base.span, help=f"write `{fixed}`", replacement=fixed
            )


def _spoofable(
    declarations: Declarations, conditions: Mapping[str, Mapping[str, Condition | None]], report: Report
) -> None:
    claimed = [
        name
        for name, one in declarations.of("agent").items()
        if one.when is not None and declarations.one(one, "token") is None
    ]
    for kind in ("rule", "budget"):
        for name, declared in declarations.of(kind).items():
            condition = conditions[kind].get(name)
            if condition is None or declared.when is None or not (kind == "budget" or "deny" in declared.settings):
                continue
            asked = compared(condition, "agent")
            named = [agent for agent in claimed if agent in asked]
            if named:
                what = "a denial" if kind == "rule" else "a budget"
                report.warn(
                    "HM603",
                    f"{what} hangs on agent `{named[0]}`, which anybody can claim or disclaim to be",
                    declared.when.span,
                    help=f"give `{named[0]}` a `token env(NAME)`",
                )


def _unused(declarations: Declarations, report: Report) -> None:
    used = declarations.reader.used
    for kind in REFERENCED:
        spans = (
            {name: span for name, span in declarations.let_spans.items() if name in declarations.lets}
            if kind == "let"
            else {name: one.name_span for name, one in declarations.of(kind).items()}
        )
        for name, span in spans.items():
            if (kind, name) not in used and (kind, name) != ("lane", "default"):
                report.warn(
                    "HM308", f"{kind} `{name}` is never used", span, help=f"name it in {REFERENCED[kind]}, or delete it"
                )
