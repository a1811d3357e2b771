"""The places of calls that left unserved, kept for a while for their clients to come back to.

A client that was refused, or gave up, sends the same call again. It should not have to wait from the beginning: then
those who are patient would overtake it each time, and a fleet of retries would never get through.
"""

from __future__ import annotations

from typing import Final, final

import attrs

KEPT_NS: Final = 10 * 60 * 1_000_000_000
"""Far longer than any SDK rests between two tries, and than a client waits for one of them."""

KEPT_MAX: Final = 4_096
"""Places; beyond it the one that was left first is given up."""


@final
@attrs.frozen
class KeptPosition:
    """Former position of a call in the queue."""

    since_ns: int
    """When it first stood in line."""
    seq: int
    left_ns: int
    """When it left, or was told to come back."""


@final
@attrs.define(eq=False)
class KeptPositions:
    """Each place is given back once, so nobody gains an age that no call of his has waited for. O(1) each."""

    kept: dict[str, KeptPosition] = attrs.field(factory=dict, init=False)
    """By what the call is known by, in the order in which they were left."""

    def __len__(self) -> int:
        return len(self.kept)

    def keep(self, again: str, since_ns: int, seq: int, now_ns: int, *, from_ns: int = 0) -> None:
        """Keep the place of a call that leaves unserved.

        Args:
            again: What it will be known by; empty: nothing would tell it from another.
            from_ns: Its client was told to come back then.
        """
        if not again:
            return
        self.kept.pop(again, None)
        self.kept[again] = KeptPosition(since_ns, seq, max(now_ns, from_ns))
        while len(self.kept) > KEPT_MAX or self._oldest().left_ns + KEPT_NS <= now_ns:
            del self.kept[next(iter(self.kept))]

    def take(self, again: str, now_ns: int) -> KeptPosition | None:
        """Return the old place of a call that has come again; None if it has none, or no longer."""
        kept = self.kept.pop(again, None)
        return kept if kept is not None and now_ns < kept.left_ns + KEPT_NS else None

    def _oldest(self) -> KeptPosition:
        return self.kept[next(iter(self.kept))]
