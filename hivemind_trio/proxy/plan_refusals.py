"""Words of providers about accounts, kept for the calls that the proxy rejects for their plans.

Clients read the reset of their plan in the provider's own body and headers: Claude Code says "resets 10:13pm" of them
and nothing of the kind of an answer of the proxy's own.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.dialects import IN_ORDER
from hivemind_trio.model import Api

from .request.header_filter import Headers

ACCOUNTS_MAX: Final = 1_024
"""Credentials and models are callers' words: beyond it the refusal that was kept first is forgotten."""

BYTES_MAX: Final = 16 * 1024
"""Size of a body that is kept, at most; such errors are short."""

SECOND_NS: Final = 1_000_000_000

SAME_NS: Final = 60 * SECOND_NS
"""Two resets of one window are as far apart at most: they are rounded, and clocks differ."""

RELATIVE: Final = (b"retry-after", b"-reset-after-seconds")
"""Ends of the names of headers that count seconds from the answer."""

OF_THEN: Final = frozenset({b"date", b"age"})
"""Headers that tell of the answer's own time."""

_PLANS: Final = tuple(prefix.encode() for dialect in IN_ORDER if (prefix := dialect.limits.plan_prefix) is not None)
"""Beginnings of the names of headers by which an answer tells of a plan."""
_OF_ACCOUNT: Final = frozenset(
    name.encode() for dialect in IN_ORDER if dialect.limits.plan is not None for name in dialect.limits.plan.of_account
)

AccountModel = tuple[str, str, str]
"""Provider, account (empty: the provider's key) and the model that was sent."""


@final
@attrs.frozen
class PlanRefusal:
    """Answer of a provider whose account has nothing left until a time."""

    api: Api | None
    """API of the call that it answered."""
    status: int
    headers: Headers
    body: bytes
    at_ns: int
    until_ns: int

    def headers_at(self, now_ns: int) -> Headers:
        """Return its headers as the provider would send them now: what counts seconds has fewer left."""
        gone_s = (now_ns - self.at_ns) // SECOND_NS
        return [
            (name, _less(value, gone_s) if name.lower().endswith(RELATIVE) else value)
            for name, value in self.headers
            if name.lower() not in OF_THEN
        ]


@final
@attrs.define(eq=False)
class PlanRefusals:
    """The last such answer of each account and model, and what the last answer told of each account."""

    _kept: dict[AccountModel, PlanRefusal] = attrs.field(factory=dict, init=False)
    _told: dict[tuple[str, str], Headers] = attrs.field(factory=dict, init=False)
    """Headers of the account in the last answer that told of its plan."""

    def keep(self, of: AccountModel, refusal: PlanRefusal) -> None:
        """Keep an answer, in place of the one before."""
        if len(refusal.body) > BYTES_MAX:
            return
        self._kept.pop(of, None)
        self._kept[of] = refusal
        if len(self._kept) > ACCOUNTS_MAX:
            del self._kept[next(iter(self._kept))]

    def note(self, of: AccountModel, headers: Headers) -> None:
        """Keep what an answer tells of its account; one that tells of no plan changes nothing."""
        told = [(name, value) for name, value in headers if name.lower().startswith(_PLANS)]
        if not told:
            return
        self._told.pop(of[:2], None)
        self._told[of[:2]] = [(name, value) for name, value in told if name.lower() in _OF_ACCOUNT]
        if len(self._told) > ACCOUNTS_MAX:
            del self._told[next(iter(self._told))]

    def told(self, of: AccountModel) -> Headers:
        """Return the headers of its account for a refusal by the proxy that its plan is the reason of."""
        return self._told.get(of[:2], [])

    def get(self, of: AccountModel, api: Api | None, now_ns: int) -> PlanRefusal | None:
        """Return the answer for a call of this API; None: there is none, or its account has been renewed since."""
        kept = self._kept.get(of)
        return kept if kept is not None and kept.api is api and now_ns < kept.until_ns else None

    def of_reset(self, of: AccountModel, api: Api | None, resets_ns: int) -> PlanRefusal | None:
        """Return the last answer for any model of the account that names this reset: of a window that counts both."""
        return next(
            (
                kept
                for (provider, account, _), kept in reversed(self._kept.items())
                if (provider, account) == of[:2] and kept.api is api and abs(kept.until_ns - resets_ns) <= SAME_NS
            ),
            None,
        )


def _less(value: bytes, seconds: int) -> bytes:
    """Return a number of seconds less those that are over; other values as they are."""
    return str(max(1, int(value) - seconds)).encode() if value.isdigit() else value
