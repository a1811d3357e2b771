"""Checks that look at several declarations at once: capacity, money, circles, exposure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from hivemind_trio.dialects import speakers
from hivemind_trio.model import Api, SecretRef
from hivemind_trio.policy.compile.binder import BoundDeclaration, SettingValue, SymbolTable, place_of
from hivemind_trio.policy.compile.lowering import (
    keys_of,
    provider_api,
    provider_base,
    provider_limit,
    refuses_unknown,
    share,
)
from hivemind_trio.policy.diagnostics.collector import DiagnosticCollector
from hivemind_trio.policy.diagnostics.diagnostic import Fix, Label, Severity
from hivemind_trio.policy.language.condition_typing import Condition, compared, fields_read
from hivemind_trio.policy.language.globs import overlap, specificity
from hivemind_trio.policy.language.list_prices import BUILT_IN_PRICES
from hivemind_trio.policy.language.values import BUILT_IN, is_loopback
from hivemind_trio.policy.program.budgets import NAMED_PARTS, Measure, Per
from hivemind_trio.policy.source.edits import Edit, addition, deletion, insertion
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.syntax.ast import Rate

from .accounts import check_accounts
from .bases import check_bases
from .estimates import check_estimates
from .plans import check_plans
from .resources import check_jobs, check_resources
from .sizes import check_nodes, check_stores
from .timing import check_timing

REFERENCED: Final = {
    "retry": "a provider or a rule",
    "team": "an agent, give it a `when`",
    "lane": "a rule or an agent",
    "let": "a condition or a setting",
}
"""Kinds that exist to be named elsewhere, and where."""

PLAIN_REDIS: Final = "what nodes tell the store, and its password, would be sent unencrypted"


def check_together(declarations: SymbolTable, conditions: Mapping[str, Mapping[str, Condition | None]]) -> None:
    """Report what only shows when declarations are seen beside each other."""
    report = declarations.report
    _required(declarations, report)
    _starts(declarations, report)
    _own_priorities(declarations, report)
    _steps(declarations, report)
    _ambiguous_globs(declarations, report)
    _reserves(declarations, report)
    _fallback_circles(declarations, report)
    _same_keys(declarations, report)
    _same_tokens(declarations, report)
    check_plans(declarations, report)
    check_accounts(declarations, report)
    check_estimates(declarations, report)
    check_bases(declarations, report)
    check_timing(declarations, report)
    check_nodes(declarations)
    check_stores(declarations)
    _unpriced(declarations, report)
    _exposure(declarations, report)
    _keyless(declarations, report)
    _fallbacks(declarations, report)
    _plain_http(declarations, report)
    _plain_redis(declarations, report)
    _spoofable(declarations, conditions, report)
    _sliding_months(declarations, report)
    check_resources(declarations, report)
    check_jobs(declarations, report)
    _unused(declarations, report)
    _no_provider(declarations, report)


def _required(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    for declared in declarations.of("provider").values():
        if provider_api(declarations, declared) is None:
            if "api" in declared.unread or _orphan(declared):
                continue
            given = declarations.one(declared, "base")
            base = given.value if given is not None and isinstance(given.value, str) else ""
            put = f"api {'anthropic' if 'anthropic' in base else 'openai' if base else 'anthropic'}"
            if given is None and "base" not in declared.unread:
                put += '; base "https://llm.internal.example"'
            named = "a provider named `anthropic` or `openai` needs none"
            if declared.item.block is None:
                put = f"{{ {put} }}"
            hint = f"add `{put}`, or another dialect; {named}"
            _lacks(report, declared, "`api`", hint, put)
        elif provider_base(declarations, declared) is None and "base" not in declared.unread:
            hint = 'add `base "https://..."`'
            _lacks(report, declared, "`base`", hint, 'base "https://..."')
    for declared in declarations.of("budget").values():
        if not {"cost", "tokens", "input", "output", "requests"} & (declared.settings.keys() | declared.unread):
            hint = "add `cost $20/day` or `tokens 8M/hour`"
            _lacks(report, declared, "limit", hint, "cost $20/day", "tokens 8M/hour")
    for declared in declarations.of("jobs").values():
        if "commands" not in declared.settings.keys() | declared.unread:
            hint = 'add `commands ["claude -p *"]`: a glob for each kind of command that may run'
            _lacks(report, declared, "`commands`", hint, 'commands ["claude -p *"]')
    for declared in declarations.of("lane").values():
        for given in declared.settings.get("aging", []):
            if "every" not in given.options:
                choices = Fix.choosing(given.item.span, ("aging 1 every 30s",))
                report.add(
                    "HM112", "`aging` needs a time", given.span, help="write `aging 1 every 30s`", choices=choices
                )
    for declared in declarations.of("model").values():
        for given in declared.settings.get("name", []):
            if "on" not in declared.options:
                report.add(
                    "HM112",
                    "`name` needs the provider that has it",
                    given.item.head.span,
                    help=f'write `model "{declared.name}" on PROVIDER {{ ... }}`',
                )
    for declared in declarations.of("rule").values():
        said = [name for name in ("allow", "hold", "deny") if name in declared.settings]
        if len(said) > 1:
            second = declared.settings[said[1]][0].item.head.span
            what = f"`{said[0]}` and `{said[1]}` exclude each other"
            report.add("HM105", what, second, help="keep one of them")


def _lacks(report: DiagnosticCollector, declared: BoundDeclaration, what: str, help_: str, *settings: str) -> None:
    """Report a declaration without a setting that it must have; an editor offers examples."""
    who = f"{declared.kind} `{declared.name}`" if declared.name else f"`{declared.kind}`"
    message = f"{who} has no {what}"
    choices = _additions(report, declared, *settings)
    report.add("HM106", message, declared.name_span, help=help_, choices=choices)


def _additions(report: DiagnosticCollector, declared: BoundDeclaration, *settings: str) -> tuple[Fix, ...]:
    """Return the fixes that add one of some settings to a declaration."""
    block = declared.item.block
    if block is None:
        end = Span(declared.item.span.source, declared.item.span.end, declared.item.span.end)
        bodies = (one if one.startswith("{") else f"{{ {one} }}" for one in settings)
        return tuple(Fix((Edit(end, f" {body}"),), is_safe=False) for body in bodies)
    text = report.sources[block.span.source].text
    edits = (insertion(text, block.span, one, is_empty=not block.statements) for one in settings)
    return tuple(Fix((edit,), is_safe=False) for edit in edits)


def _starts(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Check that `start` is within the bounds of the concurrency."""
    for given in _own(declarations, "provider", "concurrency"):
        if "start" not in given.options:
            continue
        (low, high), start, place = given.value, given.options["start"], given.place("start")
        bounds = (Label(given.item.args[0].span, "its bounds"),)
        if low == high:
            put = f"concurrency 1..{high} start {min(start, high)}"
            choices = Fix.choosing(given.item.span, (put,))
            shape = f"write `{put}`, or delete `start`"
            report.add("HM112", "`start` needs a range", place, labels=bounds, help=shape, choices=choices)
        elif not low <= start <= high:
            note = f"must be within `{low}..{high}`"
            report.add("HM205", f"`{start}` is out of range", place, note=note, labels=bounds)


def _own(declarations: SymbolTable, kind: str, setting: str) -> Iterator[SettingValue]:
    """Yield a setting wherever it is written, in declarations of a kind and in their defaults."""
    everything = [*declarations.of(kind).values()]
    if kind in declarations.defaults:
        everything.append(declarations.defaults[kind])
    for declared in everything:
        yield from declared.settings.get(setting, [])


def _own_priorities(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Check that what an agent may ask for is no less than what it has."""
    for given in _own(declarations, "agent", "priority"):
        most = given.options.get("max")
        if most is not None and most < given.value:
            help_ = f"write `priority {most} max {given.value}`, or `max {given.value}`"
            report.add("HM206", "this range is empty", given.place("max"), help=help_)


def _steps(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Check the steps of a budget: each says something, and none follows the step that stops calls."""
    for given in _own(declarations, "budget", "at"):
        written = given.item.block.statements if given.item.block is not None else ()
        if not written:
            what = report.text(given.span)
            help_ = f"write `at {what} {{ warn }}`, or put `lane`, `priority`, `model`, `hold` or `deny` in the block"
            whole = given.span if given.item.block is None else given.span.to(given.item.block.span)
            put = f"{what} {{ warn }}"
            report.add("HM112", f"`at {what}` needs an action", whole, help=help_, replacement=put, is_safe_fix=False)
        if {"hold", "deny"} <= given.block.keys():
            second = given.block["deny"][0].item.head.span
            report.add("HM105", "`hold` and `deny` exclude each other", second, help="keep one of them")
    for declared in (*declarations.of("budget").values(), *filter(None, [declarations.defaults.get("budget")])):
        steps = sorted(declared.settings.get("at", []), key=lambda step: step.value)
        stop = next((step for step in steps if {"hold", "deny"} & step.block.keys()), None)
        for step in steps[steps.index(stop) + 1 :] if stop is not None else ():
            assert stop is not None
            report.warn(
                "HM402",
                f"`at {report.text(step.span)}` is unreachable: calls stop earlier",
                step.span,
                labels=(Label(stop.span, "calls stop here"),),
                help="use a lower share, or delete it",
            )


def _orphan(declared: BoundDeclaration) -> bool:
    """Return True if it, or its parent, extends an undeclared name: its inherited settings are unknown."""
    link: BoundDeclaration | None = declared
    while link is not None:
        if link.extends is not None and link.parent is None:
            return True
        link = link.parent
    return False


def _ambiguous_globs(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Two globs over models that fit the same name equally well: which one holds would be chance."""
    models = declarations.of("model").values()
    scopes: list[list[tuple[str, Span]]] = [
        [(one.name, one.name_span) for one in models if one.options.get("on") == provider]
        for provider in dict.fromkeys(one.options.get("on") for one in models)
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
                        f"`{glob}` and `{other}` match the same models and are equally specific",
                        span,
                        labels=(Label(place, "the other glob"),),
                        help="make one of them more specific",
                    )


def _reserves(declarations: SymbolTable, report: DiagnosticCollector) -> None:
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
                    f"the lanes reserve {taken} slots, but `{provider.name}` has {limit}",
                    reserve.span,
                    labels=(Label(place, "slots of the provider"),),
                    help="reserve less, or a share such as `25%`",
                )
                break


def _fallback_circles(declarations: SymbolTable, report: DiagnosticCollector) -> None:
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
            report.add(
                "HM416",
                "circular fallback",
                own.span,
                note=" -> ".join([*path, name]),
                help="remove one of the fallbacks",
            )


SPEAKING: Final = tuple(frozenset(speakers(api)) for api in Api)
"""Dialects of servers that have the same paths: Anthropic's Messages, OpenAI's Chat."""


def _fallbacks(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    table = declarations.of("provider")
    for declared in table.values():
        given, how = declarations.one(declared, "fallback"), declarations.one(declared, "open")
        if given is None and how is not None and how.value == "fallback":
            report.add("HM106", "`open fallback` without a `fallback`", how.span, help="add `fallback PROVIDER`")
        if given is None or given.value not in table:
            continue
        one, other = (provider_api(declarations, table[name]) for name in (declared.name, given.value))
        if one is None or other is None or one is other or any({one, other} <= both for both in SPEAKING):
            continue
        report.add(
            "HM419",
            f"`{given.value}` speaks {other} and cannot serve calls of `{declared.name}`, which speaks {one}",
            given.span,
            severity=Severity.WARNING,
            help=f"name a provider that speaks {one}",
        )


def _same_keys(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    first: dict[SecretRef, tuple[BoundDeclaration, Span]] = {}
    for declared in declarations.of("provider").values():
        for given in keys_of(declarations, declared):
            other, place = first.setdefault(given.value, (declared, given.span))
            if place == given.span:
                continue
            who = f"two accounts of `{other.name}`" if other is declared else f"`{other.name}` and `{declared.name}`"
            report.warn(
                "HM418",
                f"{who} share the key {given.value}",
                given.span,
                labels=(Label(place, "first here"),),
                help="providers limit by key: use one declaration for one key",
            )


def _items(declarations: SymbolTable, given: SettingValue | None) -> Iterator[tuple[Any, Span]]:
    """Yield the items of a list, and where each stands."""
    if given is not None:
        yield from zip(given.value, declarations.reader.places(given.item.args[0]), strict=True)


def _same_tokens(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Report a token that several agents have: it identifies the first, so the others never match by it."""
    first: dict[SecretRef, tuple[BoundDeclaration, Span]] = {}
    for declared in declarations.of("agent").values():
        own = "token" in declared.settings
        lost: list[tuple[BoundDeclaration, Span, Span]] = []
        tokens = list(_items(declarations, declarations.one(declared, "token")))
        for ref, span in tokens:
            other, place = first.setdefault(ref, (declared, span))
            if other is not declared:
                lost.append((other, place, span if own else declared.name_span))
        never = bool(tokens) and len(lost) == len(tokens)
        for other, place, span in lost[: 1 if never else None]:
            what = f"agent `{declared.name}` never matches: its token belongs to" if never else "this token belongs to"
            report.warn(
                "HM306",
                f"{what} agent `{other.name}`",
                span,
                labels=(Label(place, "first here"),) if place != span else (),
                help=f"give `{declared.name}` a token of its own",
            )


def _unpriced(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    budgets = [one for one in declarations.of("budget").values() if "cost" in one.settings]
    if not budgets:
        return
    priced = [price.glob for price in BUILT_IN_PRICES]
    declared = [one for one in declarations.of("model").values() if "price" in one.settings]
    for provider in declarations.of("provider").values():
        here = priced + [one.name for one in declared if one.options.get("on") in (None, provider.name)]
        serves = declarations.one(provider, "serves")
        for glob, span in _items(declarations, serves):
            if not any(overlap(glob, known) for known in here):
                put = f'model "{glob}" {{ price input $1/Mtok output $5/Mtok }}'
                report.warn(
                    "HM407",
                    f"budget `{budgets[0].name}` counts money, and no model like `{glob}` has a price",
                    span,
                    help=f"add `{put}`, or `$0/Mtok` if it is free",
                    choices=(Fix((addition(report.sources[span.source].text, span.source, put),), is_safe=False),),
                )


def _exposure(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    server = declarations.of("server").get("")
    if server is None:
        return
    listen = declarations.one(server, "listen")
    if listen is not None and not is_loopback(listen.value[0]):
        exposed_at(declarations, listen.span, report)
    admin = declarations.one(server, "admin")
    if admin is not None and isinstance(admin.value, tuple) and not admin.options.get("token"):
        host, port = admin.value
        put = f'"{f"[{host}]" if ":" in host else host}:{port}" token env(HIVEMIND_ADMIN_TOKEN)'
        report.add(
            "HM602",
            "`admin` needs a `token`: every program and web page of this machine reaches an address",
            admin.span,
            help=f"write `{put}`, or leave `admin` out: the control API has a Unix socket for this user",
            replacement=put,
        )

    metrics = declarations.one(server, "metrics")
    address = metrics.value if metrics is not None else None
    if metrics is not None and address is not None and not metrics.options.get("token") and not is_loopback(address[0]):
        host, port = address
        put = f'"{f"[{host}]" if ":" in host else host}:{port}" token env(HIVEMIND_METRICS_TOKEN)'
        report.add(
            "HM602",
            "`metrics` beyond loopback needs a `token`: it tells names of agents and what they spend",
            metrics.span,
            help=f"write `{put}`",
            replacement=put,
        )


def exposed_at(declarations: SymbolTable, span: Span, report: DiagnosticCollector) -> None:
    """Report how callers without a token are served by a proxy that others than this machine reach.

    Args:
        span: Where it is said that they reach it.
    """
    tokens = {name: declarations.one(one, "token") for name, one in declarations.of("agent").items()}
    if not any(tokens.values()):
        report.warn(
            "HM601",
            "this address is open to the network, and no agent has a token",
            span,
            help="give agents a `token env(NAME)`: `serve` does not start without one",
        )
        return
    server = declarations.of("server").get("")
    unknown = declarations.one(server, "unknown-agent") if server is not None else None
    if unknown is not None and unknown.value == "allow":
        report.warn(
            "HM601",
            "callers without a token are served on an address that is open to the network",
            unknown.span,
            help="write `unknown-agent deny`, or delete the setting: that is the default beyond loopback",
            fix=Fix.replacing(unknown.span, "deny", is_safe=False),
        )
    for name, token in tokens.items():
        if token is None:
            report.warn(
                "HM601",
                f"agent `{name}` has no token, so any caller can claim to be it",
                declarations.of("agent")[name].name_span,
                help=f"add `token env(NAME)` to agent `{name}`",
                choices=_additions(report, declarations.of("agent")[name], "token env(NAME)"),
            )
    if server is None or "hosts" not in server.settings.keys() | server.unread:
        report.add(
            "HM606",
            "no `hosts` are declared: callers can use only the IP address or a local name",
            span,
            severity=Severity.INFO,
            help='add `hosts ["llm.example.com"]` with the name that callers use',
            choices=_additions(report, server, 'hosts ["llm.example.com"]') if server is not None else (),
        )


def _keyless(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Report providers that no agent with a token can call."""
    agents = declarations.of("agent").values()
    first = next((token for one in agents if (token := declarations.one(one, "token")) is not None), None)
    if first is None:
        return
    for name, provider in declarations.of("provider").items():
        if not keys_of(declarations, provider) and provider.unread.isdisjoint(("key", "account")):
            key = f"key env({name.upper().replace('-', '_')}_API_KEY)"
            report.warn(
                "HM610",
                f"agents with a token cannot call provider `{name}`: it has no `key`, and tokens are not sent upstream",
                provider.name_span,
                labels=(Label(first.span, "a token"),),
                help=f"add `{key}` to it",
                fix=_added(provider, key, report),
            )


def _added(declared: BoundDeclaration, setting: str, report: DiagnosticCollector) -> Fix | None:
    """Return the fix that adds a setting to a declaration; None if it has no block."""
    block = declared.item.block
    if block is None:
        return None
    text = report.sources[block.span.source].text
    return Fix((insertion(text, block.span, setting, is_empty=not block.statements),), is_safe=False)


def in_the_open(url: str) -> bool:
    """Return True if others can read what is sent there."""
    parts = urlsplit(url)
    return parts.scheme in ("http", "redis") and not is_loopback(parts.hostname or "")


def _plain_http(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    for declared in declarations.of("provider").values():
        base = declarations.one(declared, "base")
        if base is None or not isinstance(base.value, str) or not keys_of(declarations, declared):
            continue
        if in_the_open(base.value):
            fixed = f'"https{base.value[4:]}"'
            report.add(
                "HM604",
                "the key would be sent unencrypted",
                base.span,
                help=f"write `{fixed}`",
                replacement=fixed,
                is_safe_fix=False,
            )


def _plain_redis(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    for store in declarations.of("store").values():
        url = declarations.one(store, "url")
        if url is not None and isinstance(url.value, str) and in_the_open(url.value):
            fixed = f'"rediss{url.value[5:]}"'
            report.warn(
                "HM611",
                PLAIN_REDIS,
                url.span,
                help=f"write `{fixed}`, for which Redis needs `tls-port`",
                fix=Fix.replacing(url.span, fixed, is_safe=False),
            )


LOOPBACK: Final = "127.0.0.1"


def _spoofable(
    declarations: SymbolTable, conditions: Mapping[str, Mapping[str, Condition | None]], report: DiagnosticCollector
) -> None:
    claimed = {
        name: declarations.one(one, "team")
        for name, one in declarations.of("agent").items()
        if declarations.one(one, "token") is None
    }
    made = [name for name, one in conditions["team"].items() if one is not None and _reads_words(one)]
    for kind in ("rule", "budget"):
        for name, declared in declarations.of(kind).items():
            condition = conditions[kind].get(name)
            if condition is None or declared.when is None or not (kind == "budget" or "deny" in declared.settings):
                continue
            what = "this denial" if kind == "rule" else "this budget"
            agents, teams = compared(condition, "agent"), compared(condition, "team")
            if worded := next((team for team in made if team in teams), None):
                report.warn(
                    "HM603",
                    f"{what} depends on team `{worded}`, which any caller can claim or drop by a header",
                    declared.when.span,
                    help=f"name `team {worded}` in agents with a `token env(NAME)`",
                )
                continue
            for agent, team in claimed.items():
                if agent in agents:
                    whom = f"agent `{agent}`, which"
                elif team is not None and team.value in teams:
                    whom = f"team `{team.value}`, whose `{agent}`"
                else:
                    continue
                report.warn(
                    "HM603",
                    f"{what} depends on {whom} any caller can claim or drop",
                    declared.when.span,
                    help=f"give `{agent}` a `token env(NAME)`",
                )
                break
    server = declarations.of("server").get("")
    listen = declarations.one(server, "listen") if server is not None else None
    if not claimed and refuses_unknown(declarations, listen.value[0] if listen is not None else LOOPBACK):
        return
    for declared in declarations.of("budget").values():
        family, _, named = declared.options.get("per", "").partition(".")
        if family == Per.TEAM and made:
            report.warn(
                "HM603",
                f"this budget depends on team `{made[0]}`, which any caller can claim or drop by a header",
                place_of(declared.item, "per"),
                help="give each agent a `token env(NAME)`, and write `server { unknown-agent deny }`",
            )
        if family in NAMED_PARTS:
            where = f"the header `{named}`" if family == Per.HEADER else f"`metadata.{named}`"
            report.warn(
                "HM603",
                f"this budget depends on {where}, which any caller can claim or drop",
                place_of(declared.item, "per"),
                help="give each agent a `token env(NAME)`, and write `server { unknown-agent deny }`",
            )


def _reads_words(condition: Condition) -> bool:
    """Return True if a condition reads what a caller writes as it likes."""
    return any(field.startswith(("header.", "meta.")) for field in fields_read(condition))


def _sliding_months(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    for declared in declarations.of("budget").values():
        window = declarations.one(declared, "window")
        if window is None or window.value != "sliding":
            continue
        for measure in Measure:
            given = declarations.one(declared, measure.value)
            if given is None or not given.value.is_month:
                continue
            (rate,) = (value for value in given.item.args if isinstance(value, Rate))
            report.add(
                "HM204",
                "a month has no fixed length, so it cannot be a sliding window",
                rate.per.span,
                help="write `/30d`, or remove `window sliding`",
                replacement="30d",
                is_safe_fix=False,
            )


def _unused(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    used = declarations.reader.used
    for kind in REFERENCED:
        spans = (
            {name: span for name, span in declarations.let_spans.items() if name in declarations.lets}
            if kind == "let"
            else {name: one.name_span for name, one in declarations.of(kind).items()}
        )
        for name, span in spans.items():
            if kind == "team" and declarations.of(kind)[name].when is not None:
                continue
            if (kind, name) not in used | BUILT_IN:
                whole = declarations.statements[kind, name]
                report.warn(
                    "HM308",
                    f"{kind} `{name}` is never used",
                    span,
                    help=f"use it in {REFERENCED[kind]}, or delete it",
                    # A lane that no call is in still reserves slots; a `let` does nothing.
                    fix=Fix((deletion(report.sources[whole.source].text, whole),), is_safe=kind == "let"),
                )


def _no_provider(declarations: SymbolTable, report: DiagnosticCollector) -> None:
    """Said last, and of a policy that is right otherwise: what keeps a provider from being read has been said."""
    if set(declarations.by_kind) == {"model"}:
        return  # a price list, to be included
    if declarations.of("provider") or any(one.severity is Severity.ERROR for one in report.found):
        return
    is_empty = not any(declarations.by_kind.values()) and not declarations.let_spans and not declarations.tests
    if is_empty and not declarations.defaults:
        put = "provider anthropic { }"
        message = "this policy is empty: every call would be rejected"
        help_ = f"write `{put}`, or `provider openai {{ }}`"
        report.add("HM307", message, Span(0, 0, 0), help=help_, replacement=f"{put}\n", is_safe_fix=False)
        return
    report.warn(
        "HM307",
        "no provider is declared: every call would be rejected",
        Span(0, 0, 0),
        help="add `provider anthropic { }`, or `provider openai { }`",
        fix=Fix((addition(report.sources[0].text, 0, "provider anthropic { }"),), is_safe=False),
        choices=(Fix((addition(report.sources[0].text, 0, "provider openai { }"),), is_safe=False),),
    )
