"""Formats of limits: the headers that report quotas, and the words of errors that say which limit was met."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, final

import attrs

from hivemind_trio.model import Dimension

COUNTED: Final[Mapping[str | None, Dimension]] = {
    None: Dimension.REQUESTS,
    "req": Dimension.REQUESTS,
    "request": Dimension.REQUESTS,
    "requests": Dimension.REQUESTS,
    "tokens": Dimension.TOKENS,
    "input-tokens": Dimension.INPUT,
    "tokens-prompt": Dimension.INPUT,
    "output-tokens": Dimension.OUTPUT,
    "tokens-generated": Dimension.OUTPUT,
}
"""Units as headers name them."""


@final
@attrs.frozen(kw_only=True)
class QuotaHeaders:
    """Headers that report how quotas stand."""

    pattern: str
    """Regular expression of their names. Its groups: `part` (limit, remaining, reset or renewalperiod), `what` is
    counted, `window` and `scope`."""
    counted: Mapping[str | None, Dimension] = COUNTED
    rounded_to: int = 1
    """Remaining tokens are rounded to the nearest multiple of this."""


@final
class PlanPart(StrEnum):
    """Meaning of one header of a plan's window."""

    USED = "used"
    """Used share, of `whole`."""
    RESETS_AT = "resets-at"
    """Seconds since 1970."""
    RESETS_IN = "resets-in"
    """Seconds from the answer."""
    MINUTES = "minutes"
    """Length of the window."""
    STATUS = "status"
    """`rejected` if it is used up."""
    MODELS = "models"
    """Name of the model that all windows of this `scope` count."""


@final
@attrs.frozen(kw_only=True, eq=False)
class PlanHeaders:
    """Headers that report the used share of a plan's windows."""

    pattern: str
    """Regular expression of their names. Its groups: `part`, `window`, and `scope` if windows count some models."""
    parts: Mapping[str, PlanPart]
    """Word in the group `part` -> its meaning."""
    whole: int
    """Value of a window that is used up."""
    lengths: Mapping[str, int] = attrs.field(factory=dict)
    """Word in the group `window` -> its usual length in seconds; other words say theirs, as `5h` and `7d` do."""
    every_model: frozenset[str] = frozenset({""})
    """Scopes that count every model. Another scope is the word of the models that it counts, or has a header that
    names them."""
    named_scopes: bool = False
    """True if a scope that no header explains counts nothing that is known."""
    overage: tuple[str, ...] = ()
    """Headers of which one is `true` while the account pays beyond its plan."""
    credit: tuple[str, ...] = ()
    """Headers of which one is `true` if the account pays once a window is used up."""
    of_account: frozenset[str] = frozenset()
    """Headers of every answer that tell of the account and of no window. Its clients take a refusal with them for one
    of the account, and not of the server."""


@final
@attrs.frozen(kw_only=True)
class LimitSigns:
    """Signs in headers and error bodies of the limit that was met.

    They are read in the answers of all providers, because gateways pass on the answers of theirs.
    """

    quota_headers: tuple[QuotaHeaders, ...] = ()
    remaining: tuple[tuple[str, str], ...] = ()
    """Headers of what is left of a quota, and of its reset."""
    plan_prefix: str | None = None
    """Beginning of the headers of a plan's windows, whose `status` says that one has turned the request away."""
    plan: PlanHeaders | None = None
    plan_headers: tuple[str, ...] = ()
    """Headers of what a plan has left: at 0, waiting for minutes does not help."""
    quota_words: Mapping[Dimension, str] = attrs.field(factory=dict)
    """Regular expressions by which errors name a quota that is used up."""
    window_words: str | None = None
    """Regular expression of a 429 for a quota of a window."""
    minute_words: str | None = None
    """The same where the wait is a minute at most; a longer one is for a request that is larger than the window."""
    short_waits: tuple[str, ...] = ()
    """Beginnings of header names of a provider whose `retry-after` is too short: a quota's own reset is believed."""
    billing_codes: frozenset[str] = frozenset()
    """Error codes of money or plan used up: waiting for minutes does not help."""
    billing_words: str | None = None
    """The same in words, where there is no code."""
    overload_words: str | None = None
    """Regular expression of a 429 that is about the provider as a whole, and about no limit of the key."""
    statuses: Mapping[str, int] = attrs.field(factory=dict)
    """The word for an error, in lower case -> the status of a plain answer that says it."""
