"""Names that other tools have for a setting, and amounts in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

import attrs

from hivemind_trio.policy.schema import Setting, Slot, Type
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.syntax.ast import Block, Item, Name, Quantity, Rate, Value

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
    "max-retries": "attempts",
    "max_retries": "attempts",
    "num_retries": "attempts",
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
}

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


def instead_of(
    item: Item, block: Block | None, settings: Mapping[str, Setting], owner: str, text: Callable[[Span], str]
) -> Instead | None:
    """Return the setting of this language for one of another; None where there is none.

    Args:
        block: The block that the setting stands in.
        text: The text of a span.
    """
    word = item.head.text
    if word.lower() in RATES:
        return _rate(item, block, settings, owner, text)
    if word == "per" and owner == "budget":
        return Instead(item.head.span.to(item.args[-1].span) if item.args else item.head.span, _per(item.args), None)
    meant = _SYNONYMS.get(word.lower())
    if meant is None or meant not in settings:
        return None
    return Instead(item.head.span, f"write `{meant}`", meant)


def _rate(
    item: Item, block: Block | None, settings: Mapping[str, Setting], owner: str, text: Callable[[Span], str]
) -> Instead | None:
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
    if "limits" in settings:
        others = (
            [one for one in block.statements if isinstance(one, Item) and one.head.text.lower() in {"limits", *RATES}]
            if block is not None
            else []
        )
        if len(others) > 1:
            return Instead(span, f"put `{written}` into the block of one `limits`", None)
        return Instead(span, f"write `limits {{ {written} }}`", f"limits {{ {written} }}")
    if owner == "agent":
        return Instead(span, f"a budget counts for an agent: `budget NAME when agent == NAME {{ {written} }}`", None)
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


def in_words(values: Sequence[Value], slot: Slot, text: Callable[[Span], str]) -> Instead | None:
    """Return the one value for an amount of several words: `30 sec`, `$5 per day`; None where it is none.

    Args:
        values: Those that are left of a setting.
        text: The text of a span.
    """
    match values:
        case (Quantity() as amount, Name(text=unit) as last, *_) if put := with_unit(amount.text, unit, slot.type):
            pass
        case (Quantity() as amount, Name(text="per" | "a" | "an" | "each" | "every"), Name(text=unit) as last, *_) if (
            slot.type in (Type.COUNT_RATE, Type.COUNT_ALLOWANCE, Type.MONEY_ALLOWANCE) and (window := window_of(unit))
        ):
            put = f"{text(amount.span)}/{window}"
        case _:
            return None
    return Instead(amount.span.to(last.span), f"write `{put}`", put)
