"""Values as other tools and languages write them, and the value of this language that each means."""

from __future__ import annotations

import re
from collections.abc import Container
from fractions import Fraction
from typing import Final

from hivemind_trio.policy.schema import Slot, Type
from hivemind_trio.policy.source.string_literals import quote
from hivemind_trio.policy.syntax.ast import CallValue, ListValue, Name, Quantity, Rate, String, Value

from .units import COUNTS, DURATIONS, QUANTITY, WINDOWS

YES: Final = frozenset({"yes", "true", "on", "enabled", "enable", "always"})
NO: Final = frozenset({"no", "false", "off", "disabled", "disable", "none", "never"})
UNBOUNDED: Final = frozenset(
    {"unlimited", "unbounded", "infinite", "infinity", "inf", "none", "no", "null", "nil", "never", "off", "disabled"}
)
"""Words for a limit that there is not."""
OWN: Final = frozenset({"auto", "automatic", "adaptive", "dynamic", "default"})
"""Words for a limit that the program finds for itself."""

METRICS: Final = '"127.0.0.1:9464"'
"""Usual address of metrics: the port that OpenTelemetry gives them."""

AMOUNTS: Final = frozenset(
    {
        Type.COUNT,
        Type.COUNT_OR_AUTO,
        Type.SHARE,
        Type.CONCURRENCY,
        Type.COUNT_RATE,
        Type.DURATION,
        Type.SIZE,
        Type.RATIO,
        Type.MULTIPLE,
    }
)
"""Types of limits."""

_ADDRESSES: Final = frozenset({Type.ADDRESS, Type.ADDRESS_OR_OFF, Type.CONTROL_ADDRESS})
TEXTS: Final = frozenset({Type.TEXT, Type.GLOB, Type.GLOBS, Type.TIMEZONE, Type.DATE, Type.IP_ADDRESS, Type.HOSTS})
"""Types that are written in quotes."""

_NAMES: Final = frozenset({Type.REF, Type.REFS, Type.WORD, Type.WORDS, Type.PARTITION})
_BARE: Final = frozenset(
    {*AMOUNTS, Type.PRIORITY, Type.BACKOFF, Type.COUNT_ALLOWANCE, Type.MONEY_ALLOWANCE, Type.MONEY, Type.PRICE}
)
_AMOUNT: Final = re.compile(r"\$?[0-9][0-9_]*(?:\.[0-9]+)?[A-Za-z%]*(?:(?:/|\.\.)[0-9.]*[A-Za-z]*)?")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

_SIGNALS: Final = {
    "ratelimit": "429",
    "rate-limit": "429",
    "rate-limited": "429",
    "ratelimiterror": "429",
    "overloaded": "529",
    "server-error": "500..504",
    "internal-server-error": "500",
    "unavailable": "503",
    "connection": "connect",
    "connection-reset": "reset",
    "disconnect": "reset",
    "all": "[429, 500..504, 529, connect, reset, first-byte]",
    "default": "[429, 500, 502..504, 520..524, 529, connect, reset, first-byte]",
}
"""Words for failures -> statuses and failures."""

_VARIABLE: Final = re.compile(
    r"(?:\$\{?|os\.environ[/.]|process\.env\.|(?:\$?env)[:.]|%|\{\{\s*(?:env\.)?)"
    r"([A-Za-z_][A-Za-z0-9_]*)(?:\}|%|\s*\}\})?"
)
"""A variable as shells, LiteLLM, Node, PowerShell and templates have it."""
_SUBSCRIPTED: Final = frozenset({"os.environ", "ENV", "env", "environ", "process.env"})
_FUNCTIONS: Final = frozenset(
    {"getenv", "os.getenv", "os.environ.get", "environ", "ENV", "Env", "secret", "secrets", "var", "variable"}
)


def variable(text: str) -> str | None:
    """Return `env(NAME)` for the name of a variable as other tools write it; None if it is none."""
    found = _VARIABLE.fullmatch(text)
    return None if found is None else f"env({found[1]})"


def let_meant(word: str, lets: Container[str]) -> str | None:
    """Return the `let` that `local.NAME` and `var.NAME` mean; None if there is none of that name."""
    family, _, name = word.partition(".")
    return name if family in ("local", "locals", "let", "var") and name in lets else None


def called_variable(value: CallValue) -> str | None:
    """Return `env(NAME)` for `os.getenv("NAME")` and the like; None if it is something else."""
    first = value.args[0] if value.args else None
    name = first.text if isinstance(first, Name) else first.value if isinstance(first, String) else ""
    return f"env({name})" if value.name.text in _FUNCTIONS and _WORD.fullmatch(name) else None


def subscripted_variable(word: Name, key: Value) -> str | None:
    """Return `env(NAME)` for `os.environ["NAME"]`; None if it is something else."""
    if not isinstance(key, ListValue) or word.text not in _SUBSCRIPTED or word.span.end != key.span.start:
        return None
    item = key.items[0] if len(key.items) == 1 else None
    name = item.text if isinstance(item, Name) else item.value if isinstance(item, String) else ""
    return f"env({name})" if _WORD.fullmatch(name) else None


def meant(value: Value, slot: Slot) -> str | None:
    """Return the value that another one means where a slot wants one; None if it means none."""
    match value:
        case Name(text=word) if slot.type in (Type.URL, Type.STORE_URL) and re.fullmatch(r"var\.[A-Za-z_]\w*", word):
            return f"env({word.removeprefix('var.').upper()})"
        case Name(text=word) if slot.type in (Type.URL, Type.STORE_URL) and "." in word:
            return f'"{"https" if slot.type is Type.URL else "redis"}://{word}"'
        case Name(text=word) if slot.type in TEXTS:
            return quote(word)
        case Name(text=word) if slot.type is Type.DURATION and word.lower() in UNBOUNDED:
            return "24h"
        case String(value=text) if slot.type in _NAMES and _WORD.fullmatch(text):
            return text
        case String(value=text) if slot.type in _BARE and _AMOUNT.fullmatch(text):
            return text
        case Name(text=word) if slot.type is Type.BACKOFF and word.lower() in ("exponential", "default", "auto"):
            return "500ms..5s"
        case Name(text=word) if slot.type is Type.SIGNALS:
            return _SIGNALS.get(word.lower().replace("_", "-"))
        case ListValue(items=(Name(text=word), *_)) if slot.type is Type.REF:
            return word
        case Quantity(text=text) if slot.type is Type.SIGNALS and (statuses := status_class(text)) is not None:
            return statuses
        case Quantity(text=text) if slot.type in _ADDRESSES and text.isdecimal():
            return f'"127.0.0.1:{text}"'
        case Quantity(text=text) if slot.type is Type.BACKOFF:
            return f"{text}..{text}"
    return None


def word_meant(word: str, slot: Slot) -> str | None:
    """Return the word of a slot, or its value, for `yes`, `no` and their like; None if it has none."""
    lower = word.lower()
    for words, choices in ((NO, ("off", "deny", "ignore", "none", "never")), (YES, ("allow", "trust", "full"))):
        if lower in words:
            for choice in choices:
                if choice in slot.words:
                    return choice
    return METRICS if lower in YES and slot.type is Type.ADDRESS_OR_OFF else None


def status_class(text: str) -> str | None:
    """Return the range of `5xx`; None if it is no class of statuses."""
    return f"{text[0]}00..{text[0]}99" if re.fullmatch(r"[1-5][xX]{2}", text) else None


def whole_rate(rate: Rate) -> str | None:
    """Return the same rate over the shortest window in which it is a whole number; None if none is."""
    found = QUANTITY.fullmatch(rate.amount.text)
    if found is None or found[1] or found[3] not in COUNTS or len(rate.amount.text) > 20:
        return None
    window: Fraction | None = None
    if isinstance(rate.per, Name):
        window = Fraction(WINDOWS[rate.per.text]) if rate.per.text in WINDOWS else None
    elif (per := QUANTITY.fullmatch(rate.per.text)) is not None and per[3] in DURATIONS:
        window = Fraction(per[2].replace("_", "")) * DURATIONS[per[3]]
    if not window:
        return None
    amount = Fraction(found[2].replace("_", "")) * COUNTS[found[3]]
    if amount.denominator == 1:
        return None
    for name, length in WINDOWS.items():
        number = amount * length / window
        if length > window and number >= 1 and number.denominator == 1:
            return f"{number}/{name}"
    return None


_ABBREVIATED: Final = {"s": "s", "m": "min", "h": "hour", "d": "day", "ps": "s", "pm": "min", "ph": "hour", "pd": "day"}
_REQUESTS: Final = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?[kMG]?)(?:r|req|reqs|rq|requests|tok|tokens|t)")
_RATE: Final = re.compile(r"([0-9][0-9_]*[kMG]?)(?:[rqt]|req)(p[smhd])", re.IGNORECASE)


def abbreviated_rate(text: str) -> str | None:
    """Return the rate of `50rpm`; None if it is none."""
    found = _RATE.fullmatch(text)
    return f"{found[1]}/{_ABBREVIATED[found[2].lower()]}" if found is not None else None


def plain_rate(rate: Rate) -> str | None:
    """Return the rate of `50r/m`, as nginx has it; None if its number has no such word behind it."""
    found = _REQUESTS.fullmatch(rate.amount.text)
    return f"{found[1]}/{_ABBREVIATED.get(rate.per.text, rate.per.text)}" if found is not None else None


_FIELDS: Final = {
    "input_tokens": "tokens.in",
    "prompt_tokens": "tokens.in",
    "tokens_in": "tokens.in",
    "tokens.input": "tokens.in",
    "output_tokens": "tokens.max-out",
    "max_tokens": "tokens.max-out",
    "max_output_tokens": "tokens.max-out",
    "tokens.out": "tokens.max-out",
    "total_tokens": "tokens.total",
    "day": "weekday",
    "day_of_week": "weekday",
    "ip": "client.address",
    "client_ip": "client.address",
    "remote_addr": "client.address",
    "url": "path",
    "uri": "path",
    "endpoint": "path",
    "request.path": "path",
    "request.method": "method",
    "request.model": "model",
    "model_name": "model",
    "streaming": "stream",
    "price": "cost",
    "spend": "cost",
    "caller": "agent",
    "weekend": "weekday in 6..7",
    "workday": "weekday in 1..5",
    "weekdays": "weekday in 1..5",
    "deny": "denied",
    "rejected": "denied",
    "blocked": "denied",
    "allow": "admitted",
    "allowed": "admitted",
    "accepted": "admitted",
    "hold": "held",
    "waiting": "held",
}
"""Fields by other names -> the field, or the condition."""
_METHODS: Final = {"startswith": "{}*", "endswith": "*{}", "contains": "*{}*", "includes": "*{}*"}


def field_meant(name: str) -> str | None:
    """Return the field that another name means; None if it means none."""
    family, dot, rest = name.partition(".")
    if dot and family in ("headers", "request.headers", "http"):
        return f"header.{rest.lower().replace('_', '-')}"
    if dot and family == "metadata":
        return f"meta.{rest}"
    return _FIELDS.get(name.lower())


def method_meant(value: CallValue) -> str | None:
    """Return the condition for `model.startswith("claude")`; None if it is something else."""
    field, dot, method = value.name.text.rpartition(".")
    shape = _METHODS.get(method.lower().replace("_", ""))
    if not dot or shape is None or len(value.args) != 1 or not isinstance(value.args[0], String):
        return None
    return f"{field} ~ {quote(shape.format(value.args[0].value))}"
