"""One thing that a new policy changes, and what becomes of running state when it is loaded.

What is said of running state is what `scheduler` and `runtime` do at a reload: state has the identity of its kind and
name (a budget's that of its window too), the same identity keeps it, and nothing in flight is ever cut off.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, final

import attrs


class Verb(StrEnum):
    """Change of a declaration or a setting."""

    ADDED = "added"
    REMOVED = "removed"
    RAISED = "raised"
    LOWERED = "lowered"
    CHANGED = "changed"
    RENAMED = "renamed"
    """Renamed (`was OLD`)."""


class State(StrEnum):
    """Fate of running state."""

    NONE = "none"
    """No state, or none yet."""
    KEPT = "kept"
    DRAINS = "drains"
    """Calls in flight end in their own time; no call begins before there is room."""
    RESETS = "resets"
    """Counters and learned values are forgotten."""
    RESTART = "restart"
    """Takes effect at the next start."""


@final
@attrs.frozen
class ReloadEffect:
    """Effect of a reload on one change."""

    state: State
    says: str
    code: str = ""
    """HM701, HM702, HM703."""


@final
@attrs.frozen(kw_only=True)
class Change:
    """One thing that is declared otherwise."""

    kind: str
    """`provider`."""
    name: str
    """Empty for `server`."""
    setting: str
    """`concurrency`, `limits "gpt-*" requests`; empty: the declaration itself."""
    verb: Verb
    before: str
    """As it would be written; empty where there was nothing."""
    after: str
    effect: ReloadEffect
    at: str
    """Place of the declaration, in the new policy if it is there: `team.hmp:24`."""

    @property
    def subject(self) -> str:
        """`provider anthropic`."""
        return f"{self.kind} {self.name}".rstrip()


AT_ONCE: Final = ReloadEffect(State.KEPT, "holds at once")
NEXT_CALL: Final = ReloadEffect(State.KEPT, "for calls from now on")
NEXT_ATTEMPT: Final = ReloadEffect(State.KEPT, "for attempts from now on; those in flight keep what they began with")
NEXT_FAILURE: Final = ReloadEffect(State.KEPT, "from the next failure on, of calls in flight too")
ANEW: Final = ReloadEffect(State.KEPT, "waiting calls are classified anew, and keep their age")
DRAINS: Final = ReloadEffect(
    State.DRAINS, "in flight beyond it ends in its own time; nothing begins before there is room"
)
FREED: Final = ReloadEffect(State.KEPT, "the new slots are free at once")
DROPS_NOBODY: Final = ReloadEffect(State.KEPT, "nobody who waits is dropped; new calls are refused until it has shrunk")
LEARNED: Final = ReloadEffect(State.KEPT, "for attempts from now on; what was learned of the provider stays")
COUNTED: Final = ReloadEffect(State.KEPT, "what was taken of the window stays taken")
SPENT: Final = ReloadEffect(State.KEPT, "what was spent stays spent")
THRESHOLDS: Final = ReloadEffect(State.KEPT, "from the next call on; waiting calls are asked again")
FORGOTTEN: Final = ReloadEffect(State.RESETS, "what was learned is forgotten", "HM701")
FROM_ZERO: Final = ReloadEffect(State.RESETS, "another window: it is counted from 0", "HM701")
CARRIED: Final = ReloadEffect(State.KEPT, "what was counted and learned of it stays, under its new name")
NEXT_START: Final = ReloadEffect(State.RESTART, "from the next start on")
NEW: Final = ReloadEffect(State.NONE, "")
