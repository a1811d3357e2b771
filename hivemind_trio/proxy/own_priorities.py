"""Priorities that agents have asked for themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias, final

import attrs

KEPT_MAX: Final = 1_000
"""Agents; beyond it the one that asked first is forgotten. Names are anybody's to claim."""

Whose: TypeAlias = tuple[Literal["token", "name", "session"], str]
"""(what it is known by, name). A name that is claimed may be any text, that of a session, too."""


def whose(token_agent: str | None, claimed: str | None, session: str = "") -> Whose | None:
    """Return the key of an agent; None: it has neither name nor session, so nothing can be kept for it."""
    if token_agent is not None:
        return "token", token_agent
    if claimed:
        return "name", claimed
    return ("session", session) if session else None


def shown(agent: Whose) -> str:
    """Return an agent as messages name it."""
    kind, name = agent
    return f"session {name}" if kind == "session" else name


def _ignore(*_: object) -> None:
    pass


@final
@attrs.define(eq=False)
class OwnPriorities:
    """Asked priorities by agent; they end with the proxy."""

    on_asked: Callable[[Whose, int | None], None] = attrs.field(default=_ignore, init=False)
    """Told what agents ask of this process."""
    _asked: dict[Whose, int] = attrs.field(factory=dict, init=False)

    def ask(self, agent: Whose, priority: int | None) -> None:
        """Keep what an agent asks for its calls from now on; None: the policy's again."""
        self.keep(agent, priority)
        self.on_asked(agent, priority)

    def keep(self, agent: Whose, priority: int | None) -> None:
        """Keep what an agent has asked of another process."""
        self._asked.pop(agent, None)
        if priority is not None:
            if len(self._asked) >= KEPT_MAX:
                del self._asked[next(iter(self._asked))]
            self._asked[agent] = priority

    def kept(self) -> list[tuple[Whose, int]]:
        """Return what agents have asked for."""
        return list(self._asked.items())

    def of(self, agent: Whose | None) -> int | None:
        """Return what an agent has asked for; None: nothing."""
        return self._asked.get(agent) if agent is not None and self._asked else None
