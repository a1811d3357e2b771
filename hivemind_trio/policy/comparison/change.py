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


AT_ONCE: Final = ReloadEffect(State.KEPT, "takes effect at once")
NEXT_CALL: Final = ReloadEffect(State.KEPT, "applies to new calls")
NEXT_ATTEMPT: Final = ReloadEffect(State.KEPT, "applies to new attempts; attempts in flight keep the old value")
NEXT_FAILURE: Final = ReloadEffect(State.KEPT, "applies from the next failure on, also to calls in flight")
ANEW: Final = ReloadEffect(State.KEPT, "waiting calls are classified again and keep their age")
DRAINS: Final = ReloadEffect(
    State.DRAINS, "calls in flight above the limit finish; no new dispatch until there is room"
)
FREED: Final = ReloadEffect(State.KEPT, "the new slots are available at once")
DROPS_NOBODY: Final = ReloadEffect(
    State.KEPT, "no waiting call is dropped; new calls are rejected until the queue has shrunk"
)
LEARNED: Final = ReloadEffect(State.KEPT, "applies to new attempts; learned values of the provider stay")
COUNTED: Final = ReloadEffect(State.KEPT, "use of the current window still counts")
SPENT: Final = ReloadEffect(State.KEPT, "spending so far still counts")
THRESHOLDS: Final = ReloadEffect(State.KEPT, "applies to new calls and to waiting calls")
FORGOTTEN: Final = ReloadEffect(State.RESETS, "learned values are lost", "HM701")
FROM_ZERO: Final = ReloadEffect(State.RESETS, "the window is another one: counting starts at 0", "HM701")
CARRIED: Final = ReloadEffect(State.KEPT, "counters and learned values move to the new name")
NEXT_START: Final = ReloadEffect(State.RESTART, "takes effect at the next start")
NEW: Final = ReloadEffect(State.NONE, "")
FIRST_COUNT: Final = ReloadEffect(State.NONE, "counting starts at 0")
