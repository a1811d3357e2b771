"""Call: the unit that is scheduled, and facts of the session that it belongs to."""

from __future__ import annotations

from typing import NewType, final

import attrs

from hivemind_trio.model import Request
from hivemind_trio.policy import Renames

CallId = NewType("CallId", int)


@final
@attrs.frozen(kw_only=True)
class Call:
    """One request of an agent, from its arrival to its last attempt."""

    id: CallId
    """A counter: the order of arrival."""
    request: Request
    caller: str
    """Identity for fairness and concurrency, where the policy knows only `unknown`."""
    credential: str = ""
    """A name for what the agent brought to prove itself with, where that is what goes upstream."""
    address: str = ""
    """The network that it came from, by which unproven callers are counted; empty in a simulation."""
    prefix: str = ""
    """Key of its prompt's beginning, for the provider's cache; empty: none."""
    job: str = ""
    """Job of its agent; empty: not given, and all such calls are one job."""
    again: str = ""
    """Identity of the call if its client sends it again; empty: none."""
    patience_ns: int | None = None
    """Time for which its client waits, over all its retries; None: unknown."""
    held_ns: int | None = None
    """Time after which its client is sent away if it still waits; None: unknown."""
    since_ns: int | None = None
    """When it first stood in line, if its client has come back with it. The scheduler's to know."""
    priority: int | None = None
    """Priority that an operator has given it, or its agent has asked for; None: the policy's."""
    priority_by: str = "operator"
    """`operator` or `agent`."""
    needs_slot: bool = True
    """False for what is cheap (a list of models, a token count): it never waits and holds no slot."""

    def renamed(self, renames: Renames) -> Call:
        """Return the same call, by the name that its agent has now."""
        request = renames.request(self.request)
        return self if request is self.request else attrs.evolve(self, request=request)


@final
@attrs.frozen(kw_only=True)
class SessionFacts:
    """Facts of a call's session when it arrives, as conditions read them."""

    context: int
    turns: int
    cost: int
    """In millionths of a dollar."""
    age_ns: int
