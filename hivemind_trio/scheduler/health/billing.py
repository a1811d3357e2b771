"""Accounts whose money or plan is used up, as their provider says.

Waiting does not help there, so nobody waits: calls are refused until the provider is asked again. It is asked again
with one call at a time, every few minutes at the least, whatever it has said of its reset: a limit can be raised, and
an account paid, at any moment, and nobody tells a proxy.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.model import Outcome
from hivemind_trio.scheduler.protocol.attempt_result import HEALTHY

SECOND_NS: Final = 1_000_000_000
FIRST_NS: Final = 30 * SECOND_NS
LAST_NS: Final = 300 * SECOND_NS
"""Time without calls to such an account, doubled at each repetition."""

TRY_NS: Final = 30 * SECOND_NS
"""Time for the one call that asks again, before another is let through."""

KNOWN_MAX: Final = 1_024
"""Models are callers' words: beyond it what was learned first is forgotten."""

SpentKey = tuple[str, str]
"""(what the agent pays with, where that is its own; the model). A provider's daily quotas are each of one model, and
an empty account is found out once for each."""


@final
@attrs.define
class _Known:
    said_ns: int
    """When."""
    renewed_ns: int | None
    """When the provider says there is more; None: it does not say."""
    pause_ns: int
    asked_ns: int
    """Until then nobody is let through."""


@final
@attrs.define(eq=False)
class BillingExhausted:
    """Accounts of one provider that are used up."""

    known: bool = attrs.field(default=False, init=False)
    """The provider has said it of anybody. Kept: it hardly ever has, and every call asks."""
    _known: dict[SpentKey, _Known] = attrs.field(factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        """There may be other keys now."""
        self._known.clear()
        self.known = False

    def on_ended(
        self, key: SpentKey, outcome: Outcome, *, granted_ns: int, now_ns: int, retry_after_ns: int | None
    ) -> bool:
        """Learn from one attempt; whether it says that nothing is left.

        Args:
            granted_ns: When it began. Those that were in flight together tell one piece of news.
            retry_after_ns: How long until there is more, if the provider says.
        """
        if outcome in HEALTHY:
            self._known.pop(key, None)
            self.known = bool(self._known)
        if outcome is not Outcome.TERMINAL:
            return False
        before = self._known.pop(key, None)
        pause_ns = FIRST_NS
        if before is not None:
            pause_ns = min(before.pause_ns * 2, LAST_NS) if granted_ns > before.said_ns else before.pause_ns
        # "At once" is no answer here: the call that asked has just heard that there is nothing.
        renewed_ns = now_ns + retry_after_ns if retry_after_ns else None
        asked_ns = now_ns + min(pause_ns, retry_after_ns or pause_ns)
        self.known = True
        self._known[key] = _Known(now_ns, renewed_ns, pause_ns, asked_ns)
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
        return True

    def shut(self, key: SpentKey, now_ns: int) -> bool:
        """Return True if no call may use the account."""
        known = self._known.get(key)
        return known is not None and now_ns < known.asked_ns

    def ask(self, key: SpentKey, now_ns: int) -> None:
        """Note a call that is let through; if it is the probe, others are rejected until it answers."""
        known = self._known.get(key)
        if known is not None:
            known.asked_ns = now_ns + TRY_NS

    def renewed_ns(self, key: SpentKey, now_ns: int) -> int | None:
        """Return the time until the account is renewed, as the provider says; None: unknown, or the word was wrong."""
        known = self._known.get(key)
        if known is None or known.renewed_ns is None or known.renewed_ns <= now_ns:
            return None
        return known.renewed_ns - now_ns
