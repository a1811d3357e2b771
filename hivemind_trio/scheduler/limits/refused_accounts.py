"""Accounts of one limits group that are refused together: until calls are accepted again, they go by one schedule.

Keys of one organization share its limits at most providers (Anthropic, "Rate limits"; OpenAI, "Rate limits"), and a
proxy cannot see that before they are refused. While each account tests for itself when it may go again, many of them
test more often than the provider accepts calls. Where refused calls count, too, hardly any is accepted then: congestion
collapse (Nagle, RFC 896, 1984). So accounts that were refused share one pause between attempts. It doubles with each
refusal and is halved with each accepted call, of whichever account, until it is so short that it restricts none.

One account alone is not affected, nor is one that was not refused. Accounts may have limits of their own, too, and one
whose limit is used up must not starve the others. So the account whose last attempt is the oldest goes first, whichever
call has waited longest, and one is free again after two accepted calls in a row.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from .learned_rate import SECOND_NS, jittered

PAUSE_NS: Final = SECOND_NS // 2
PAUSE_MAX_NS: Final = 5 * SECOND_NS
"""Least time between two attempts of these accounts: after the first refusal, and at most, which is as long as between
two probes of one account."""
PAUSE_LEAST_NS: Final = SECOND_NS // 50
"""A shorter pause restricts none."""
FREE_AFTER: Final = 2
"""Calls of one account accepted in a row that free it: its limits seem to be its own. After one, keys of one account
were refused again at once."""
TURNS: Final = 16
"""The account that went last goes later than the others by this part of a pause."""


@final
@attrs.define(eq=False)
class RefusedAccounts:
    """Accounts, by their gates, that were refused and are not free again."""

    members: int = attrs.field(default=0, init=False)
    """Accounts of the limits group, refused or not."""
    _opens_ns: int = attrs.field(default=0, init=False)
    """Earliest time of the next attempt."""
    _refused: dict[object, int] = attrs.field(factory=dict, init=False)
    """Gate -> time of the account's last attempt."""
    _good: dict[object, int] = attrs.field(factory=dict, init=False)
    """Gate -> calls accepted since the account's last refusal."""
    _pause_ns: int = attrs.field(default=0, init=False)
    """Least time between two attempts."""
    _granted_ns: int = attrs.field(default=0, init=False)
    """Time of the last attempt."""
    _first_ns: int = attrs.field(default=0, init=False)
    """Time of the first refusal."""
    _misses: int = attrs.field(default=0, init=False)
    """Refusals since a call was accepted. Those of calls that were in flight together count as one."""
    _missed_ns: int = attrs.field(default=-1, init=False)
    """Time of the last of them."""

    def restricts(self, gate: object) -> bool:
        """Return True if the account of this gate goes by the schedule: it was refused, and so was another."""
        return len(self._refused) > 1 and gate in self._refused

    def opens_ns(self, gate: object) -> int:
        """Return when the account of this gate may go, where `restricts`."""
        round_ns = len(self._refused) * PAUSE_MAX_NS
        age_ns = min(round_ns, self._granted_ns - self._refused[gate])
        return self._opens_ns + self._pause_ns * (round_ns - age_ns) // (TURNS * round_ns)

    def on_granted(self, gate: object, now_ns: int) -> None:
        """Let the next attempt wait."""
        if self.restricts(gate):
            self._granted_ns = self._refused[gate] = now_ns
            self._opens_ns = max(self._opens_ns, now_ns + jittered(self._pause_ns, self._misses))

    def on_refused(self, gate: object, granted_ns: int, now_ns: int) -> None:
        """Double the pause, once for all calls that were in flight together."""
        if not self._refused:
            self._first_ns = now_ns
        self._good.pop(gate, None)
        self._refused[gate] = max(granted_ns, self._refused.get(gate, 0))
        self._granted_ns = max(granted_ns, self._granted_ns)
        if granted_ns > self._missed_ns:
            self._misses, self._missed_ns = self._misses + 1, now_ns
            self._pause_ns = min(max(PAUSE_NS, 2 * self._pause_ns), PAUSE_MAX_NS)
            self._opens_ns = max(self._opens_ns, now_ns + jittered(self._pause_ns, self._misses))

    def on_good(self, gate: object, granted_ns: int) -> bool:
        """Halve the pause. Return True if a call may go earlier now.

        A call that was in flight at the first refusal says nothing.
        """
        if not self._refused or granted_ns <= self._first_ns:
            return False
        if gate in self._refused:
            self._good[gate] = self._good.get(gate, 0) + 1
            if self._good[gate] >= FREE_AFTER:
                del self._refused[gate], self._good[gate]
        self._misses = 0
        self._pause_ns //= 2
        self._opens_ns = min(self._opens_ns, self._granted_ns + self._pause_ns)
        if self._pause_ns < PAUSE_LEAST_NS or not self._refused:
            self._refused.clear()
            self._good.clear()
            self._pause_ns = self._opens_ns = 0
        return True

    def leave(self, gate: object) -> None:
        """Forget an account."""
        self.members -= 1
        self._refused.pop(gate, None)
        self._good.pop(gate, None)
