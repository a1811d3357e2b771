"""Names that other tools have for a setting, and amounts in words."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

import attrs

from hivemind_trio.policy.diagnostics.diagnostic import Fix
from hivemind_trio.policy.schema import Setting, Slot, Type
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.source.string_literals import quote
from hivemind_trio.policy.syntax.ast import Item, ListValue, Name, Quantity, Rate, String, Value

from .meant import meant, subscripted_variable
from .units import window_of, with_unit

RATES: Final = {
    "rps": ("requests", "s"),
    "qps": ("requests", "s"),
    "rpm": ("requests", "min"),
    "rph": ("requests", "hour"),
    "rpd": ("requests", "day"),
    "tps": ("tokens", "s"),
    "tpm": ("tokens", "min"),
    "tph": ("tokens", "hour"),
    "tpd": ("tokens", "day"),
    "itpm": ("input", "min"),
    "itpd": ("input", "day"),
    "otpm": ("output", "min"),
    "otpd": ("output", "day"),
}
"""Abbreviations of the providers -> the limit, and its window."""

_SYNONYMS: Final = {
    "api-key": "key",
    "api_key": "key",
    "apikey": "key",
    "type": "api",
    "url": "base",
    "api-base": "base",
    "api_base": "base",
    "base-url": "base",
    "base_url": "base",
    "endpoint": "base",
    "models": "serves",
    "max-concurrency": "concurrency",
    "max_concurrency": "concurrency",
    "parallel": "concurrency",
    "max-parallel": "concurrency",
    "max_parallel": "concurrency",
    "max_parallel_requests": "concurrency",
    "input_tokens": "input",
    "output_tokens": "output",
    "max-tokens": "max-output",
    "max_tokens": "max-output",
    "slots": "concurrency",
    "port": "listen",
    "bind": "listen",
    "address": "listen",
    "reject": "deny",
    "refuse": "deny",
    "block": "deny",
    "budget": "cost",
    "spend": "cost",
    "max_budget": "cost",
    "max-wait": "deadline",
    "max_wait": "deadline",
    "wait": "deadline",
    "ttl": "deadline",
    "host": "listen",
    "server_name": "hosts",
    "route": "provider",
    "use": "provider",
    "target": "provider",
    "upstream": "provider",
    "forward": "provider",
    "fallbacks": "fallback",
    "share": "weight",
}

_OF_OWNER: Final = {
    ("agent", "key"): "token",
    ("agent", "max"): "concurrency",
    ("lane", "timeout"): "deadline",
    ("lane", "concurrency"): "max",
    ("lane", "max_parallel_requests"): "max",
    ("retry", "max"): "attempts",
    ("retry", "times"): "attempts",
    ("resource", "concurrency"): "capacity",
    ("resource", "slots"): "capacity",
    ("rule", "timeout"): "deadline",
}
"""Kind of declaration and word -> its setting, where the word is a setting elsewhere."""

_EACH: Final = {"hourly": "hour", "daily": "day", "weekly": "week", "monthly": "month"}
"""Words for a window -> the window."""

OPTION_SYNONYMS: Final = {
    "in": "input",
    "out": "output",
    "prompt": "input",
    "completion": "output",
    "cached": "cache-read",
    "cache": "cache-read",
}
"""Names that other tools have for an option of a setting."""


@final
@attrs.frozen
class Instead:
    """A help for a word that is no setting."""

    span: Span
    help: str
    replacement: str | None
    fix: Fix | None = None
    """The edits, if they are elsewhere than the span."""


def instead_of(item: Item, settings: Mapping[str, Setting], owner: str, text: Callable[[Span], str]) -> Instead | None:
    """Return the setting of this language for one of another; None where there is none.

    Args:
        text: The text of a span.
    """
    word = item.head.text
    if word.lower() in RATES:
        return _rate(item, settings, text)
    if word == "per" and owner == "budget":
        return Instead(item.head.span.to(item.args[-1].span) if item.args else item.head.span, _per(item.args), None)
    if owner == "budget" and (known := _allowance(item, text)) is not None:
        return known
    if "attempts" in settings and (known := _attempts(item)) is not None:
        return known
    if "listen" in settings and (known := _listening(item)) is not None:
        return known
    if word == "limit_conn" and (known := _connections(item, owner, settings)) is not None:
        return known
    meant = _OF_OWNER.get((owner, word), _SYNONYMS.get(word.lower()))
    if meant is None or meant not in settings:
        return None
    return Instead(item.head.span, f"write `{meant}`", meant)


def synonym(word: str) -> str | None:
    """Return the setting that other tools call by a word; None if it is none."""
    return _SYNONYMS.get(word.lower())


def _listening(item: Item) -> Instead | None:
    """Return the setting for `port 9000`, `host "0.0.0.0"` and `server_name llm.example.com`."""
    match item.head.text, item.args:
        case ("port", (Quantity(text=port),)) if port.isdecimal():
            put = f'listen "127.0.0.1:{port}"'
        case (("host" | "bind" | "address"), (String(value=host) | Name(text=host),)) if ":" not in host:
            put = f'listen "{host}:8787"'
        case ("server_name", (String(value=name) | Name(text=name), *_)):
            put = f'hosts ["{name}"]'
        case _:
            return None
    return Instead(item.span, f"write `{put}`", put)


def _connections(item: Item, owner: str, settings: Mapping[str, Setting]) -> Instead | None:
    """Return the setting for `limit_conn ZONE 10`, as nginx has it."""
    setting = _OF_OWNER.get((owner, "concurrency"), "concurrency")
    match item.args:
        case (Name(), Quantity(text=number)) if number.isdecimal() and setting in settings:
            put = f"{setting} {number}"
            return Instead(item.span, f"write `{put}`", put)
    return None


def _allowance(item: Item, text: Callable[[Span], str]) -> Instead | None:
    """Return the setting for `limit $5/day` and `daily $5` in a budget."""
    word = item.head.text.lower().removeprefix("per-").removeprefix("per_")
    window = _EACH.get(word, word if word in _EACH.values() else None)
    match item.args:
        case (Quantity(text=amount) as value,) if window is not None:
            put = f"{'cost' if amount.startswith('$') else 'tokens'} {text(value.span)}/{window}"
        case (Rate(amount=amount) as rate,) if word in ("limit", "max", "amount", "limits"):
            put = f"{'cost' if amount.text.startswith('$') else 'tokens'} {text(rate.span)}"
        case _:
            return None
    return Instead(item.span, f"write `{put}`", put)


def _attempts(item: Item) -> Instead | None:
    """Return the setting for `max_retries 3`: attempts count the first one, too."""
    match item.head.text.lower().replace("_", "-"), item.args:
        case (("retries" | "max-retries" | "num-retries"), (Quantity(text=number),)) if number.isdecimal():
            put = f"attempts {int(number) + 1}"
            return Instead(item.span, f"write `{put}`: the first attempt counts, too", put)
    return None


def _rate(item: Item, settings: Mapping[str, Setting], text: Callable[[Span], str]) -> Instead | None:
    setting, window = RATES[item.head.text.lower()]
    match item.args:
        case (Quantity() as amount,):
            written = f"{setting} {text(amount.span)}/{window}"
        case (Rate() as rate,):
            written = f"{setting} {text(rate.span)}"
        case _:
            written = f"{setting} 50/{window}"
    span = item.head.span if not item.args else item.head.span.to(item.args[-1].span)
    if setting in settings:
        return Instead(span, f"write `{written}`", written)
    return None


def per_of_budget(rest: Sequence[Value], setting: Setting) -> Instead | None:
    """Return the help for `cost $5/day per agent`; None where it is something else."""
    match rest:
        case (Name(text="per") as word, *whom) if any(
            slot.type in (Type.COUNT_ALLOWANCE, Type.MONEY_ALLOWANCE) for slot in setting.args
        ):
            return Instead(word.span.to(rest[-1].span), _per(whom), None)
    return None


def _per(whom: Sequence[Value]) -> str:
    """Return the help for a `per` that stands in the block."""
    word = whom[0].text if whom and isinstance(whom[0], Name) else "agent"
    return f"it stands before the block: `budget NAME per {word} {{ ... }}`"


_LISTS: Final = frozenset({Type.SIGNALS, Type.GLOBS, Type.WORDS, Type.REFS, Type.SECRETS, Type.HOSTS, Type.NETWORKS})
_COUNTED: Final = frozenset({Type.COUNT, Type.COUNT_RATE, Type.COUNT_ALLOWANCE})
_SMALLER: Final = {"h": "m", "m": "s", "d": "h", "w": "d", "s": "ms"}
"""Unit of a duration -> the one that may stand behind it."""


def in_words(
    values: Sequence[Value], slot: Slot, text: Callable[[Span], str], *, options: Mapping[str, Slot] | None = None
) -> Instead | None:
    """Return the one value for one that is written in several: `30 sec`, `$5 per day`; None where it is none.

    Args:
        values: Those that are left of a setting.
        slot: Where the value stands.
        text: The text of a span.
        options: Options of the setting; None: `slot` is that of an option.
    """
    found = _amount_in_words(values, slot, text) or _bounds_in_words(values, slot)
    if found is None and options is not None and "every" in options:
        found = _count_in_time(values, slot)
    if found is None and options is not None:
        found = _list_in_words(values, slot, text, options)
    if found is None:
        return None
    last, put = found
    return Instead(values[0].span.to(last.span), f"write `{put}`", put)


def _amount_in_words(values: Sequence[Value], slot: Slot, text: Callable[[Span], str]) -> tuple[Value, str] | None:
    """Return the last of the words of an amount, and the amount."""
    match values:
        case (Name() as word, key, *_) if slot.type in (Type.SECRET, Type.SECRETS) and (
            put := subscripted_variable(word, key)
        ):
            return key, put
        case (Quantity() as amount, (Quantity() | Rate()) as rest, *_) if amount.span.end == rest.span.start:
            together = _run_together(amount.text, text(rest.span), slot)
            return (rest, together) if together is not None else None
        case (Quantity() as amount, Name(text=unit) as last, *_) if put := with_unit(amount.text, unit, slot.type):
            return last, put
        case (Quantity() as amount, Name(text="per" | "a" | "an" | "each" | "every"), Name(text=unit) as last, *_) if (
            slot.type in (Type.COUNT_RATE, Type.COUNT_ALLOWANCE, Type.MONEY_ALLOWANCE)
            and (window := window_of(unit, of_budget=slot.type is not Type.COUNT_RATE))
        ):
            return last, f"{text(amount.span)}/{window}"
    return None


def _run_together(first: str, second: str, slot: Slot) -> str | None:
    """Return the duration of `1m30`, and the count of `1e6`; the lexer divides both."""
    if slot.type is Type.DURATION and second.isdecimal() and first[-1] in _SMALLER:
        return f"{first}{second}{_SMALLER[first[-1]]}"
    power, slash, window = second.partition("/")
    if slot.type in _COUNTED and first[-1] in "eE" and first[:-1].isdecimal() and power.isdecimal() and len(power) < 3:
        return f"{int(first[:-1]) * 10 ** int(power)}{slash}{window}"
    return None


_EVERY: Final = {"s": "1s", "min": "1m", "hour": "1h", "day": "1d"}
"""Window of a rate -> the duration."""


def _count_in_time(values: Sequence[Value], slot: Slot) -> tuple[Value, str] | None:
    """Return the last of the words of `1/30s`, and `1 every 30s`."""
    match values:
        case (Rate(amount=amount, per=per) as rate, *_) if slot.type is Type.COUNT:
            return rate, f"{amount.text} every {_EVERY.get(per.text, per.text)}"
    return None


def _bounds_in_words(values: Sequence[Value], slot: Slot) -> tuple[Value, str] | None:
    """Return the last of the words of a range, and the range: `min 2 max 8`, `500ms to 20s`."""
    if slot.type not in (Type.CONCURRENCY, Type.BACKOFF):
        return None
    match values:
        case (Name(text="min" | "from" | "between"), Quantity(text=low), Name(), Quantity(text=high) as last, *_):
            return last, f"{low}..{high}"
        case (Quantity(text=low), Name(text="to" | "until" | "and"), Quantity(text=high) as last, *_):
            return last, f"{low}..{high}"
        case (Quantity(text=low), Quantity(text=high) as last, *_) if slot.type is Type.BACKOFF:
            return last, f"{low}..{high}"
        case (Name(text="max" | "limit"), Quantity(text=high) as last, *_) if slot.type is Type.CONCURRENCY:
            return last, high
    return None


def _list_in_words(
    values: Sequence[Value], slot: Slot, text: Callable[[Span], str], options: Mapping[str, Slot]
) -> tuple[Value, str] | None:
    """Return the last item of a list without brackets, and the list; and the last word of a text without quotes."""
    run = list(itertools.takewhile(lambda one: not (isinstance(one, Name) and one.text in options), values))
    if len(run) < 2:
        return None
    if slot.type in _LISTS and not any(isinstance(one, ListValue) for one in run):
        items = [meant(one, slot) or text(one.span) for one in run]
        return run[-1], f"[{', '.join(items)}]"
    if slot.type is Type.TEXT and isinstance(run[0], Name) and not any(isinstance(one, String) for one in run):
        return run[-1], quote(" ".join(text(run[0].span.to(run[-1].span)).split()))
    return None
