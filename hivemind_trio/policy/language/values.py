"""A value as written, read as what a setting wants there."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias, final
from urllib.parse import urlsplit

import attrs

from hivemind_trio.dialects import BILLING_CODES, ERROR_STATUSES
from hivemind_trio.model import SecretRef, SecretSource
from hivemind_trio.model.addresses import ADDRESS_MOST, address_number, as_network, network_span
from hivemind_trio.model.dates import is_date
from hivemind_trio.policy.diagnostics.collector import DiagnosticCollector
from hivemind_trio.policy.diagnostics.diagnostic import Fix
from hivemind_trio.policy.diagnostics.suggest import one_of, suggestion
from hivemind_trio.policy.schema import FAILURES, Slot, Type
from hivemind_trio.policy.source.edits import Edit, addition, swapped
from hivemind_trio.policy.source.secret_scan import SECRET_PLACES, find_keys
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.syntax.ast import CallValue, Clock, ListValue, Name, Quantity, RangeValue, Rate, String, Value

from .dates import as_date
from .meant import (
    NO,
    abbreviated_rate,
    called_variable,
    let_meant,
    meant,
    plain_rate,
    status_class,
    variable,
    whole_rate,
    word_meant,
)
from .time_zones import TIME_ZONES
from .units import (
    ALLOWANCE_WINDOWS,
    DURATIONS,
    MONTH,
    UnitError,
    as_clock,
    clock_duration,
    clock_minutes,
    count,
    duration_ns,
    money_microusd,
    multiple,
    nearest_count,
    price_per,
    ratio,
    size_bytes,
    window_ns,
)

PRIORITY_MAX: Final = 100
BUILT_IN: Final = frozenset({("lane", "default"), ("retry", "default")})
"""(kind, name) of what is there without being declared, and used without being named."""

_KEY: Final = re.compile(r"\bkey\s+$")
_IN_ACCOUNT: Final = re.compile(r"\baccount\s+\S+\s*\{[^{}]*$")
CHOICES_MAX: Final = 6
"""Names that an editor offers for one that is not declared."""

_NAMED: Final = re.compile(r"(?:(?:process\.|os\.)?env(?:iron)?\.)?([A-Za-z_][A-Za-z0-9_-]*)")
"""A variable without `env()` around its name."""

_UNQUOTED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@final
@attrs.frozen
class ErrorType:
    """Type or code of a provider's error."""

    name: str


Signal: TypeAlias = str | range | ErrorType
"""Sign of a failed attempt: a failure, statuses, or an error by its type."""

HOPELESS: Final = frozenset({400, 401, 403, 404, 413, 422})
"""Statuses that say of the request what no repetition changes."""


_PORTS: Final = {Type.ADDRESS_OR_OFF: 9464, Type.CONTROL_ADDRESS: 8788}
"""Type of an address -> its usual port, where it is not that for agents."""

_BODIES: Final = {
    "provider": 'api anthropic; base "https://llm.internal.example"',
    "budget": "cost $10/day",
}
"""Settings that a declaration of a kind must have."""


def declared_as(kind: str, name: str) -> str:
    """Return the shortest declaration of that name."""
    body = "attempts 1" if kind == "retry" and name.lower() in NO else _BODIES.get(kind, "")
    return f"{kind} {name} {{ {body} }}" if body else f"{kind} {name} {{ }}"


EVERY_ADDRESS: Final = (network_span("0.0.0.0/0"), (0, ADDRESS_MOST))


class Unreadable(Exception):  # noqa: N818 - it never leaves this module
    """The value is not what is wanted; the report has it."""


@final
@attrs.frozen
class RateOf:
    """So much per window."""

    amount: int
    window_ns: int
    is_month: bool = False
    """The window is a month of the calendar; `window_ns` is the longest one."""


@final
@attrs.define(eq=False)
class Reader:
    """Reads values for one policy.

    Args:
        names: Kind of declaration -> the names that there are.
        lets: `let` name -> what it stands for, where that is a plain value.
    """

    report: DiagnosticCollector
    names: dict[str, list[str]]
    lets: dict[str, Value]
    used: set[tuple[str, str]] = attrs.field(init=False, factory=set)
    """(kind, name) of every reference, for HM308. A misspelt one counts for what it was meant to be."""
    secrets: dict[SecretRef, Span] = attrs.field(init=False, factory=dict)
    folder: Callable[[Span], str] = attrs.field(default=lambda _: "")
    """The folder of a place's file: `file("...")` is relative to the policy."""

    def read(self, value: Value, slot: Slot) -> Any:
        """Return the typed value.

        Raises:
            Unreadable: After saying why.
        """
        if isinstance(value, Name) and value.text in self.lets and slot.type not in (Type.REF, Type.REFS):
            self.used.add(("let", value.text))
            value = self.lets[value.text]
        if isinstance(value, Name) and (name := let_meant(value.text, self.lets)) is not None:
            self.used.add(("let", name))
            self.report.add(
                "HM201", f"`{value.text}` is not a value", value.span, help=f"write `{name}`", replacement=name
            )
            raise Unreadable
        if isinstance(value, CallValue) and slot.type not in (Type.SECRET, Type.SECRETS, Type.URL, Type.STORE_URL):
            raise self._misplaced_call(value, slot)
        try:
            read = _READERS[slot.type](self, value, slot)
        except UnitError as error:
            self.report.add(
                error.code,
                error.message,
                value.span,
                help=error.help,
                fix=error.fix(value.span),
                choices=error.choices_at(value.span),
            )
            raise Unreadable from error
        if slot.least and (read.amount if isinstance(read, RateOf) else read) == 0:
            raise self._out_of_range(value, "must be greater than zero")
        return read

    def places(self, value: Value) -> tuple[Span, ...]:
        """Return the place of each item of a list, a `let`'s in the `let`; otherwise its own."""
        if isinstance(value, Name) and value.text in self.lets:
            value = self.lets[value.text]
        return tuple(item.span for item in self._items(value))

    # ---- one method per type ----

    def _count(self, value: Value, slot: Slot) -> int:
        text = self._quantity(value, slot)
        if (put := nearest_count(text)) is not None:
            what, help_ = f"`{text}` is not a whole number", f"write `{put}`"
            self.report.add("HM207", what, value.span, help=help_, replacement=put, is_safe_fix=False)
            raise Unreadable
        number = count(text)
        if number < slot.least:
            raise self._out_of_range(value, f"must be at least {slot.least}", slot.least)
        return number

    def _count_or_auto(self, value: Value, slot: Slot) -> int | None:
        """Return None for `auto`."""
        if isinstance(value, Name):
            self._word(value, slot)
            return None
        return self._count(value, slot)

    def _priority(self, value: Value, slot: Slot) -> int:
        number = count(self._quantity(value, slot))
        if number > PRIORITY_MAX:
            raise self._out_of_range(value, f"a priority is at most {PRIORITY_MAX}")
        return number

    def _duration(self, value: Value, slot: Slot) -> int:
        return duration_ns(self._quantity(value, slot))

    def _money(self, value: Value, slot: Slot) -> int:
        return money_microusd(self._quantity(value, slot))

    def _size(self, value: Value, slot: Slot) -> int:
        return size_bytes(self._quantity(value, slot))

    def _ratio(self, value: Value, slot: Slot) -> float:
        return ratio(self._quantity(value, slot))

    def _multiple(self, value: Value, slot: Slot) -> float:
        number = multiple(self._quantity(value, slot))
        if number < slot.least:
            raise self._out_of_range(value, f"must be at least {slot.least}x")
        return number

    def _share(self, value: Value, slot: Slot) -> int | float:
        text = self._quantity(value, slot)
        if text.endswith("%") or "." in text:
            return ratio(text)
        return count(text)

    def _concurrency(self, value: Value, slot: Slot) -> tuple[int, int]:
        if isinstance(value, RangeValue):
            self._check_bounds(value)
            low, high = (self.read(bound, Slot(Type.COUNT, least=1)) for bound in (value.low, value.high))
            self._check_range(value, low, high)
            return low, high
        number = self._count(value, attrs.evolve(slot, least=1))
        return number, number

    def _backoff(self, value: Value, slot: Slot) -> tuple[int, int]:
        if not isinstance(value, RangeValue):
            raise self._wrong(value, slot)
        self._check_bounds(value)
        low, high = (self.read(bound, Slot(Type.DURATION)) for bound in (value.low, value.high))
        self._check_range(value, low, high)
        return low, high

    def _count_rate(self, value: Value, slot: Slot) -> RateOf:
        rate = self._rate(value, slot)
        return RateOf(self._amount(rate), self._window(rate))

    def _count_allowance(self, value: Value, slot: Slot) -> RateOf:
        rate = self._rate(value, slot)
        return self._allowance(self._amount(rate), rate)

    def _money_allowance(self, value: Value, slot: Slot) -> RateOf:
        rate = self._rate(value, slot)
        return self._allowance(self._in(rate.amount, money_microusd), rate)

    def _amount(self, rate: Rate) -> int:
        """Return the number of a rate; what is less than one in its window, or no whole number, has a longer one."""
        if (put := plain_rate(rate)) is not None:
            what = f"`{rate.amount.text}` is not a count"
            self.report.add("HM202", what, rate.span, help=f"write `{put}`", replacement=put)
            raise Unreadable
        if (put := whole_rate(rate)) is not None:
            self.report.add(
                "HM207",
                f"`{rate.amount.text}` is not a whole number",
                rate.span,
                help=f"write `{put}`: the same rate over a longer window",
                replacement=put,
                is_safe_fix=False,
            )
            raise Unreadable
        return self._in(rate.amount, count)

    def _allowance(self, amount: int, rate: Rate) -> RateOf:
        quantity = isinstance(rate.per, Quantity)
        window = self._in(rate.per, lambda text: window_ns(text, quantity=quantity, windows=ALLOWANCE_WINDOWS))
        return RateOf(amount, window, is_month=not quantity and rate.per.text == MONTH)

    def _partition(self, value: Value, slot: Slot) -> str:
        """Return the words of a partition; a header's name in lower case."""
        if not isinstance(value, Name):
            raise self._wrong(value, slot)
        if value.text == "account":
            fix = Fix((Edit(value.span, "key"),))
            self.report.add("HM112", "a budget is not per account", value.span, help="write `per key`", fix=fix)
            raise Unreadable
        family, dot, name = value.text.partition(".")
        if dot and family == "header":
            return f"header.{name.lower()}"
        if (dot and family == "meta") or value.text in slot.words:
            return value.text
        self.report.unknown("HM214", "unknown value", value.text, value.span, list(slot.words))
        raise Unreadable

    def _price(self, value: Value, slot: Slot) -> int:
        """Micro-dollars for a million tokens."""
        rate = self._rate(value, slot)
        amount = self._in(rate.amount, money_microusd)
        return amount * 10**6 // self._in(rate.per, price_per)

    def _word(self, value: Value, slot: Slot) -> str:
        if not isinstance(value, Name):
            raise self._wrong(value, slot)
        if value.text not in slot.words:
            if (put := word_meant(value.text, slot)) is not None:
                what = f"unknown value `{value.text}`"
                self.report.add("HM214", what, value.span, help=f"write `{put}`", replacement=put, is_safe_fix=False)
            else:
                self.report.unknown("HM214", "unknown value", value.text, value.span, list(slot.words))
            raise Unreadable
        return value.text

    def _words(self, value: Value, slot: Slot) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._word(item, slot) for item in self._items(value)))

    def _ref(self, value: Value, slot: Slot) -> str:
        (kind,) = slot.words
        if not isinstance(value, Name):
            raise self._wrong(value, slot)
        return self.reference(kind, value)

    def _refs(self, value: Value, slot: Slot) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._ref(item, slot) for item in self._some_items(value, slot)))

    def reference(self, kind: str, name: Name) -> str:
        """Return the name of a declaration that exists.

        Raises:
            Unreadable: It does not; the one that was probably meant counts as used.
        """
        known = self.names.get(kind, [])
        self.used.add((kind, name.text))
        if name.text in known or (kind, name.text) in BUILT_IN:
            return name.text
        hint = f"declare it: `{declared_as(kind, name.text)}`"
        if known:
            hint = f"write {one_of(known)}, or {hint}"
        added = addition(self.report.sources[name.span.source].text, name.span.source, declared_as(kind, name.text))
        meant = self.report.unknown(
            "HM107",
            f"unknown {kind}",
            name.text,
            name.span,
            known,
            hint=hint,
            fix=Fix((added,), is_safe=False),
            is_of_language=False,
            choices=Fix.choosing(name.span, known[:CHOICES_MAX]),
        )
        if meant is not None:
            self.used.add((kind, meant))
        raise Unreadable

    def _name(self, value: Value, slot: Slot) -> str:
        if isinstance(value, Name):
            return value.text
        return self._text(value, slot)

    def _text(self, value: Value, slot: Slot) -> str:
        if not isinstance(value, String):
            raise self._wrong(value, slot)
        return value.value

    def _globs(self, value: Value, slot: Slot) -> tuple[str, ...]:
        return tuple(self._text(item, Slot(Type.GLOB)) for item in self._some_items(value, slot))

    def _one_secret(self, value: Value, slot: Slot) -> SecretRef:
        if not isinstance(value, ListValue):
            return self._secret(value, slot)
        for item in value.items:
            if isinstance(item, String):
                with suppress(Unreadable):  # a secret that is written down has a report of its own
                    self._secret(item, slot)
        source = self.report.sources[value.span.source].text
        calls = [source[item.span.start : item.span.end] for item in value.items if isinstance(item, CallValue)]
        key = _KEY.search(source, 0, value.span.start)
        inside = key is None or _IN_ACCOUNT.search(source, 0, key.start()) is not None
        if calls and key is not None and not inside:
            blocks = "; ".join(f"account key-{number} {{ key {call} }}" for number, call in enumerate(calls, 1))
            statement = Span(value.span.source, key.start(), value.span.end)
            fix: Fix | None = Fix((Edit(statement, blocks),), is_safe=False)
            help_ = f"write `{blocks}`: each key is an account with limits of its own"
        else:
            fix = Fix((Edit(value.span, calls[0]),), is_safe=False) if calls else None
            help_ = f"write `{calls[0] if calls else 'env(NAME)'}`; a further key needs an account of its own"
        self.report.add("HM201", "expected one secret, found a list", value.span, help=help_, fix=fix)
        raise Unreadable

    def _secret(self, value: Value, slot: Slot) -> SecretRef:
        match value:
            case String(value=text):
                if not any(find_keys(text)):  # which is reported wherever it stands
                    put = variable(text)
                    self.report.add(
                        "HM208",
                        "this secret is written in the policy",
                        value.span,
                        help='write `env(NAME)` or `file("path")`' if put is None else f"write `{put}`",
                        replacement=put,
                        choices=Fix.choosing(value.span, SECRET_PLACES if put is None else ()),
                    )
                raise Unreadable
            case Name(text=name, span=span) if name.startswith("var.") and "." not in name[4:]:
                put = f"env({name[4:].upper()})"
                message = f"expected {slot.shown()}, found `{name}`"
                self.report.add("HM201", message, span, help=f"write `{put}`", replacement=put, is_safe_fix=False)
                raise Unreadable
            case Name(text=name, span=span) if (found := _NAMED.fullmatch(name)) is not None:
                put = f"env({found[1] if found[1] not in ('env', 'file') else 'NAME'})"
                message = f"expected {slot.shown()}, found `{name}`"
                replacement = put if put != "env(NAME)" else None
                self.report.add("HM201", message, span, help=f"write `{put}`", replacement=replacement)
                raise Unreadable
            case CallValue(name=Name(text="env"), args=(Name(text=name),)) if "." not in name:
                ref = SecretRef(SecretSource.ENV, name)
            case CallValue(name=Name(text="file"), args=(String(value=path),)) if path:
                ref = SecretRef(SecretSource.FILE, path if path.startswith("/") else self.folder(value.span) + path)
            case CallValue(name=Name(text=("env" | "file") as word)):
                shape = "env(NAME)" if word == "env" else 'file("path")'
                what = "the name of one variable" if word == "env" else "one quoted path"
                put = _as_secret(word, value.args)
                help_ = f"write `{put or shape}`"
                self.report.add("HM112", f"`{word}` takes {what}", value.span, help=help_, replacement=put)
                raise Unreadable
            case CallValue(name=Name(text=word, span=span)):
                if (put := called_variable(value)) is not None:
                    what = f"unknown function `{word}`"
                    self.report.add("HM112", what, value.span, help=f"write `{put}`", replacement=put)
                else:
                    self.report.unknown("HM112", "unknown function", word, span, ["env", "file"])
                raise Unreadable
            case _:
                raise self._wrong(value, slot)
        self.secrets.setdefault(ref, value.span)
        return ref

    def _secrets(self, value: Value, slot: Slot) -> tuple[SecretRef, ...]:
        return tuple(self._secret(item, slot) for item in self._some_items(value, slot))

    def _url(self, value: Value, slot: Slot) -> str | SecretRef:
        if isinstance(value, CallValue):
            return self._secret(value, slot)
        text = self._text(value, slot)
        problem = url_problem(text)
        if problem:
            scheme = "http" if is_loopback(text.partition("/")[0].partition(":")[0]) else "https"
            put = f'"{scheme}://{text}"' if "://" not in text and "." in text else None
            if url_problem(f"{scheme}://{text}"):
                put = None
            shown = put or '"https://host/path"'
            what = f"`{text}` is not a base URL: {problem}"
            self.report.add("HM217", what, value.span, help=f"write `{shown}`", replacement=put, is_safe_fix=False)
            raise Unreadable
        return text.rstrip("/")

    def _store_url(self, value: Value, slot: Slot) -> str | SecretRef:
        if isinstance(value, CallValue):
            return self._secret(value, slot)
        text = self._text(value, slot)
        problem = store_url_problem(text)
        if not problem and "@" in text:
            problem = "a credential is not allowed"  # policies are shown and shared
        if problem:
            self.report.add(
                "HM217",
                f"this is not the URL of a Redis: {problem}",
                value.span,
                help='write `"redis://host:6379"`, or `env(REDIS_URL)` where it has a password',
            )
            raise Unreadable
        return text

    def _address(self, value: Value, slot: Slot) -> tuple[str, int]:
        text = self._text(value, slot)
        address = parse_address(text)
        usual = _PORTS.get(slot.type, 8787)
        if address is None and not text.isdecimal() and parse_address(f"{text}:{usual}") is not None:
            put = f'"{text}:{usual}"'
            what = "this is not an address to listen on"
            self.report.add("HM217", what, value.span, help=f"write `{put}`", replacement=put, is_safe_fix=False)
            raise Unreadable
        if address is None:
            port = text.removeprefix(":") if text.removeprefix(":").isdecimal() else "8787"
            shown = tuple(f'"{host}:{port}"' for host in ("127.0.0.1", "[::1]"))
            self.report.add(
                "HM217",
                "this is not an address to listen on",
                value.span,
                help=f"write {one_of(shown)}",
                choices=Fix.choosing(value.span, shown),
            )
            raise Unreadable
        return address

    def _address_or_off(self, value: Value, slot: Slot) -> tuple[str, int] | None:
        """Return None for `off`."""
        if isinstance(value, Name):
            self._word(value, slot)
            return None
        return self._address(value, slot)

    def _control_address(self, value: Value, slot: Slot) -> tuple[str, int] | str | None:
        """Return a path for `"unix:/path"`, and None for `off`."""
        if not isinstance(value, String) or not value.value.startswith("unix:"):
            return self._address_or_off(value, slot)
        path = value.value.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/") or path.endswith("/"):
            help_ = 'write one such as `"unix:/run/hivemind-trio/team.sock"`'
            self.report.add("HM217", "this is not the absolute path of a socket", value.span, help=help_)
            raise Unreadable
        return path

    def _hosts(self, value: Value, slot: Slot) -> tuple[str, ...]:
        names = []
        for item in self._some_items(value, slot):
            text = self._text(item, Slot(Type.GLOB))
            name = host_name(text)
            if name != text.lower():
                self.report.add(
                    "HM217",
                    f"`{text}` is not a host name",
                    item.span,
                    help=f'write `"{name}"`' if name else 'write one such as `"llm.example.com"`',
                    replacement=f'"{name}"' if name else None,
                )
                raise Unreadable
            names.append(name)
        return tuple(names)

    def _ip_address(self, value: Value, slot: Slot) -> int:
        text = self._text(value, slot)
        number = address_number(text)
        if number is None:
            self.report.add(
                "HM217", f"`{text}` is not an IP address", value.span, help='write one such as `"10.1.2.3"`'
            )
            raise Unreadable
        return number

    def _networks(self, value: Value, slot: Slot) -> tuple[tuple[int, int], ...]:
        found = []
        is_wrong = False
        for item in self._some_items(value, slot):
            text = self._text(item, Slot(Type.GLOB))
            span = network_span(text)
            if span is None:
                meant = as_network(text)
                self.report.add(
                    "HM217",
                    f"`{text}` is not an address or a network",
                    item.span,
                    help=f'write `"{meant}"`' if meant else 'write one such as `"10.0.0.2"` or `"10.1.0.0/16"`',
                    replacement=f'"{meant}"' if meant else None,
                )
                is_wrong = True
                continue
            if span in EVERY_ADDRESS:
                self.report.warn(
                    "HM609",
                    f"`{text}` is every address: callers choose their own `client.address`",
                    item.span,
                    help="name only the proxies in front of this one",
                )
            found.append(span)
        if is_wrong:
            raise Unreadable
        return tuple(found)

    def _timezone(self, value: Value, slot: Slot) -> str:
        text = self._text(value, slot)
        if text not in TIME_ZONES:
            near = suggestion(text, sorted(TIME_ZONES))
            help_ = f'did you mean `"{near}"`?' if near else 'write one such as `"Europe/Paris"` or `"UTC"`'
            put = f'"{near}"' if near else None
            self.report.add("HM219", f"unknown time zone `{text}`", value.span, help=help_, replacement=put)
            raise Unreadable
        return text

    def _clock(self, value: Value, slot: Slot) -> int:
        if not isinstance(value, Clock):
            raise self._wrong(value, slot)
        return clock_minutes(value.text)

    def _date(self, value: Value, slot: Slot) -> str:
        text = self._text(value, slot)
        if not is_date(text):
            put = as_date(text) or "2026-12-25"
            replacement = f'"{put}"' if as_date(text) is not None else None
            help_ = f'write `"{put}"`' if replacement else f'write one such as `"{put}"`'
            self.report.add("HM220", f"`{text}` is not a date", value.span, help=help_, replacement=replacement)
            raise Unreadable
        return text

    def _signals(self, value: Value, slot: Slot) -> tuple[Signal, ...]:
        signals: list[Signal] = []
        for item in self._items(value):
            match item:
                case Name(text=text) if text in FAILURES:
                    signals.append(text)
                case Name(text=text):
                    put = meant(item, slot)
                    if put is not None and not (isinstance(value, ListValue) and put.startswith("[")):
                        what = f"unknown failure `{text}`"
                        self.report.add("HM214", what, item.span, help=f"write `{put}`", replacement=put)
                    else:
                        self.report.unknown("HM214", "unknown failure", text, item.span, list(FAILURES))
                case RangeValue(low=Quantity(text=low), high=Quantity(text=high)) if low.isdigit() and high.isdigit():
                    self._check_range(item, count(low), count(high))
                    signals.append(self._statuses(item, count(low), count(high)))
                case Quantity(text=text) if text.isdigit():
                    signals.append(self._statuses(item, count(text), count(text)))
                case String(value=text) if text:
                    signals.append(self._error_type(item, text))
                case _:
                    raise self._wrong(item, slot)
        return tuple(signals)

    def _error_type(self, value: String, text: str) -> ErrorType:
        """Return an error type; one that is a status or a failure is meant as such."""
        plain = text if text in FAILURES or (text.isdigit() and len(text) == 3 and text[0] in "45") else None
        plain = plain or status_class(text)
        if plain is not None:
            self.report.warn(
                "HM218",
                f"`{text}` in quotes is an error type",
                value.span,
                help=f"write `{plain}`",
                fix=Fix.replacing(value.span, plain, is_safe=False),
            )
        elif ERROR_STATUSES.get(text.lower()) in HOPELESS or text in BILLING_CODES:
            self.report.warn(
                "HM218",
                f"retrying `{text}` cannot succeed",
                value.span,
                help="delete it: the same request is rejected again",
            )
        return ErrorType(text)

    def _statuses(self, value: Value, low: int, high: int) -> range:
        if not 100 <= low <= high <= 599:
            raise self._out_of_range(value, "an HTTP status is between 100 and 599")
        hopeless = sorted(HOPELESS & set(range(low, high + 1)))
        if hopeless:
            self.report.warn(
                "HM218", f"retrying {one_of(map(str, hopeless))} cannot succeed", value.span,
                help="delete it: the same request is rejected again",
            )  # fmt: skip
        return range(low, high + 1)

    # ---- shapes ----

    def _quantity(self, value: Value, slot: Slot) -> str:
        if not isinstance(value, Quantity):
            raise self._wrong(value, slot)
        return value.text

    def _rate(self, value: Value, slot: Slot) -> Rate:
        if not isinstance(value, Rate):
            raise self._wrong(value, slot)
        return value

    def _window(self, rate: Rate) -> int:
        return self._in(rate.per, lambda text: window_ns(text, quantity=isinstance(rate.per, Quantity)))

    def _in(self, part: Quantity | Name, read: Callable[[str], int]) -> int:
        """Read a part of a value; an error is shown at the part."""
        try:
            return read(part.text)
        except UnitError as error:
            self.report.add(
                error.code,
                error.message,
                part.span,
                help=error.help,
                fix=error.fix(part.span),
                choices=error.choices_at(part.span),
            )
            raise Unreadable from error

    def _items(self, value: Value) -> tuple[Value, ...]:
        if not isinstance(value, ListValue):
            return (value,)
        items: list[Value] = []
        for item in value.items:
            if isinstance(item, Name) and isinstance(self.lets.get(item.text), (String, ListValue)):
                self.used.add(("let", item.text))
                items += self._items(self.lets[item.text])
            else:
                items.append(item)
        return tuple(items)

    def _some_items(self, value: Value, slot: Slot) -> tuple[Value, ...]:
        """Return the same where an empty list would say nothing, or the reverse of what it looks like."""
        items = self._items(value)
        if not items:
            raise self._wrong(value, slot)
        return items

    def _check_bounds(self, value: RangeValue) -> None:
        """Report a bound without the unit that the other bound has: `1..20s`."""
        low, high = value.low, value.high
        for bound, other in ((low, high), (high, low)):
            if not (isinstance(bound, Quantity) and isinstance(other, Quantity)) or not bound.text.isdecimal():
                continue
            unit = other.text.lstrip("0123456789_.")
            if unit in DURATIONS:
                put = f"{bound.text}{unit}"
                self.report.add("HM203", "a duration needs a unit", bound.span, help=f"write `{put}`", replacement=put)
                raise Unreadable

    def _check_range(self, value: Value, low: int, high: int) -> None:
        if low > high:
            put = swapped(self.report.text(value.span))
            help_ = f"the smaller bound comes first: write `{put}`"
            self.report.add("HM206", "this range is empty", value.span, help=help_, replacement=put)
            raise Unreadable

    def _out_of_range(self, value: Value, why: str, least: int = 0) -> Unreadable:
        put = str(least) if least else None
        help_ = f"write `{put}` or more" if put is not None else ""
        what = f"{self._shown(value)} is out of range"
        self.report.add("HM205", what, value.span, note=why, help=help_, replacement=put, is_safe_fix=False)
        return Unreadable()

    def _wrong(self, value: Value, slot: Slot) -> Unreadable:
        put = meant(value, slot)
        help_ = f"write `{put}`" if put is not None else ""
        match slot.type, value:
            case Type.REF | Type.REFS | Type.WORD, String() if put is not None:
                help_ = f"write `{put}`: a name has no quotes"
            case Type.REF, Quantity():
                help_ = f"declare one, `{declared_as(slot.words[0], 'NAME')}`, and write its name"
            case Type.PRIORITY, Name(text="high" | "highest" | "low" | "lowest" | "normal" | "medium" as level):
                put = {"high": "75", "highest": "100", "normal": "50", "medium": "50"}.get(level, "0")
                help_ = f"write `{put}`: a priority is a number up to 100, and the higher is dispatched first"
            case Type.BACKOFF, Quantity():
                help_ = f"write `{put}`, or a higher second bound"
            case Type.CLOCK, (Quantity(text=text) | String(value=text)) if (clock := as_clock(text)) is not None:
                put = clock
                help_ = f"write `{put}`"
            case Type.DURATION, Clock(text=text):
                put = clock_duration(text)
                help_ = f"write `{put}`, with a unit for each number"
            case Type.COUNT_RATE | Type.COUNT_ALLOWANCE | Type.MONEY_ALLOWANCE, Quantity(text=text):
                put = abbreviated_rate(text) or f"{text}/{'min' if slot.type is Type.COUNT_RATE else 'day'}"
                put = f"${put}" if slot.type is Type.MONEY_ALLOWANCE and not put.startswith("$") else put
                help_ = f"write `{put}`, or another window"
        found = f"expected {slot.shown()}, found {self._shown(value)}"
        is_safe = slot.type is Type.REF or isinstance(value, String)
        self.report.add("HM201", found, value.span, help=help_, replacement=put, is_safe_fix=is_safe)
        return Unreadable()

    def _misplaced_call(self, value: CallValue, slot: Slot) -> Unreadable:
        if value.name.text in ("env", "file"):
            self.report.add("HM210", "a secret is not allowed here", value.span, note=f"expected {slot.shown()}")
        else:
            self.report.unknown("HM112", "unknown function", value.name.text, value.name.span, ["env", "file"])
        return Unreadable()

    def _shown(self, value: Value) -> str:
        source = self.report.sources[value.span.source].text
        text = source[value.span.start : value.span.end]
        return f"`{text}`" if len(text) <= 40 and "\n" not in text else "this"


_READERS: Final[dict[Type, Callable[[Reader, Any, Slot], Any]]] = {
    Type.COUNT: Reader._count,
    Type.COUNT_OR_AUTO: Reader._count_or_auto,
    Type.PRIORITY: Reader._priority,
    Type.DURATION: Reader._duration,
    Type.SIZE: Reader._size,
    Type.MONEY: Reader._money,
    Type.RATIO: Reader._ratio,
    Type.MULTIPLE: Reader._multiple,
    Type.SHARE: Reader._share,
    Type.CONCURRENCY: Reader._concurrency,
    Type.BACKOFF: Reader._backoff,
    Type.COUNT_RATE: Reader._count_rate,
    Type.COUNT_ALLOWANCE: Reader._count_allowance,
    Type.MONEY_ALLOWANCE: Reader._money_allowance,
    Type.PARTITION: Reader._partition,
    Type.PRICE: Reader._price,
    Type.WORD: Reader._word,
    Type.WORDS: Reader._words,
    Type.REF: Reader._ref,
    Type.REFS: Reader._refs,
    Type.NAME: Reader._name,
    Type.TEXT: Reader._text,
    Type.GLOB: Reader._text,
    Type.GLOBS: Reader._globs,
    Type.SECRET: Reader._one_secret,
    Type.SECRETS: Reader._secrets,
    Type.URL: Reader._url,
    Type.STORE_URL: Reader._store_url,
    Type.ADDRESS: Reader._address,
    Type.ADDRESS_OR_OFF: Reader._address_or_off,
    Type.CONTROL_ADDRESS: Reader._control_address,
    Type.HOSTS: Reader._hosts,
    Type.IP_ADDRESS: Reader._ip_address,
    Type.NETWORKS: Reader._networks,
    Type.TIMEZONE: Reader._timezone,
    Type.CLOCK: Reader._clock,
    Type.DATE: Reader._date,
    Type.SIGNALS: Reader._signals,
}


def _as_secret(word: str, args: tuple[Value, ...]) -> str | None:
    """Return `env("NAME")` and `file(path)` as they were meant; None: nobody knows."""
    match word, args:
        case "env", (String(value=text),) if _UNQUOTED.fullmatch(text):
            return f"env({text})"
        case "file", (Name(text=text),):
            return f'file("{text}")'
    return None


def url_problem(text: str) -> str:
    """Return the reason for which a text cannot be a base URL; empty: it can."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return "its host is malformed"  # the error's own words would quote it, and it may be a machine's secret
    try:
        port = parts.port
    except ValueError:
        return "its port is not a number up to 65535"
    if parts.scheme not in ("http", "https"):
        return "it does not begin with `https://` or `http://`"
    if not parts.hostname:
        return "it has no host"
    if parts.query or parts.fragment:
        return "a query is not allowed"
    if parts.username is not None:
        return "a credential is not allowed"
    return "its port is 0" if port == 0 else ""


def store_url_problem(text: str) -> str:
    """Return the reason for which a text cannot be the URL of a Redis; empty: it can. The text is not quoted."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return "its host or port is malformed"
    if parts.scheme not in ("redis", "rediss"):
        return "it does not begin with `redis://` or `rediss://`"
    if not parts.hostname:
        return "it has no host"
    return "its port is 0" if port == 0 else ""


_HOST: Final = re.compile(r"[a-z0-9_*?-]+(?:\.[a-z0-9_*?-]+)*")


def host_name(text: str) -> str:
    """Return the host name that a text was meant to be, in the form that `Host` has it; empty: there is none."""
    host = text.rpartition("://")[2].partition("/")[0].rpartition("@")[2]
    host = re.sub(r":[0-9]*$", "", host).strip().removesuffix(".").lower()
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            return ""
    return host if _HOST.fullmatch(host) else ""


def parse_address(text: str) -> tuple[str, int] | None:
    """`host:port` with a port between 0 and 65535; None if it is not that."""
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65_535:
        return None
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            return None
    elif ":" in host or not host:
        return None
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches it."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
