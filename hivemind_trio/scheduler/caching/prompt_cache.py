"""Model of a provider's prompt cache: the prefixes that it has read lately.

Providers charge what their prompt caches hold a tenth or nothing, and do not count it against input limits ("Prompt
caching", Anthropic; OpenAI). A fleet that is woken with one long prompt would have it read once for each agent, because
the cache is filled only when an answer begins. So of calls with the same cold beginning one goes ahead, and the others
wait for its first byte, for no longer than `LEAD_NS`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Protocol, final

import attrs

from hivemind_trio.scheduler.protocol.call import Call, CallId

SECOND_NS: Final = 1_000_000_000

WARM_NS: Final = 300 * SECOND_NS
"""Lifetime of an unused cache entry: Anthropic's five minutes, OpenAI's five to ten."""

LEAD_NS: Final = 3 * SECOND_NS
"""Time for which other calls wait for the first with their prefix."""

LONG_TOKENS: Final = 2_048
"""Input below which nothing is worth waiting for: caches begin at 1,024 tokens, at 4,096 for some models."""

KNOWN_MAX: Final = 1_024
"""Beginnings; of more, those asked for last."""


class PromptUser(Hashable, Protocol):
    """A call that waits for another with the same prompt prefix."""

    @property
    def call(self) -> Call:
        """The call."""
        ...


@final
@attrs.define
class _Prefix:
    leader: CallId | None = None
    leads_until_ns: int = 0
    warm_until_ns: int = 0
    followers: list[PromptUser] = attrs.field(factory=list)
    """Calls that wait for the leader; some may have left the queue."""

    def free(self) -> list[PromptUser]:
        """Nobody leads any more."""
        followers, self.leader, self.followers = self.followers, None, []
        return followers


@final
@attrs.define(eq=False)
class PromptCacheModel:
    """Prompt cache of one provider."""

    _known: dict[str, _Prefix] = attrs.field(factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._known)

    def warm_until_ns(self, prefix: str, now_ns: int) -> int | None:
        """Until when the provider remembers it; None: it does not."""
        known = self._known.get(prefix)
        return known.warm_until_ns if known is not None and known.warm_until_ns > now_ns else None

    def follow(self, waiter: PromptUser, now_ns: int) -> int | None:
        """Until when a call had better wait for another that went ahead; None: there is none."""
        known = self._known.get(waiter.call.prefix)
        if known is None or known.leader is None or known.warm_until_ns > now_ns or known.leads_until_ns <= now_ns:
            return None
        known.followers.append(waiter)
        return known.leads_until_ns

    def on_granted(self, prefix: str, call_id: CallId, now_ns: int) -> None:
        """Note a dispatched call; it goes ahead of the others if the cache is cold."""
        known = self._known.pop(prefix, None) or _Prefix()
        self._known[prefix] = known
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
        if known.warm_until_ns <= now_ns and (known.leader is None or known.leads_until_ns <= now_ns):
            known.leader, known.leads_until_ns, known.followers = call_id, now_ns + LEAD_NS, []

    def on_read(self, prefix: str, now_ns: int) -> list[PromptUser]:
        """Note that an answer has begun, so the prompt is cached; return the calls that waited for that."""
        known = self._known.get(prefix)
        if known is None:
            return []
        known.warm_until_ns = now_ns + WARM_NS
        return known.free()

    def on_over(self, prefix: str, call_id: CallId) -> list[PromptUser]:
        """Note that an attempt is over; return the calls that waited for it, if it was first and got no answer."""
        known = self._known.get(prefix)
        return known.free() if known is not None and known.leader == call_id else []
