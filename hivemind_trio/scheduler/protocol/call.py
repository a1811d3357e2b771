"""What is scheduled."""

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
    """Who to be fair to, and whose concurrency counts, where the policy says only `unknown`."""
    credential: str = ""
    """A name for what the agent brought to prove itself with, where that is what goes upstream."""
    address: str = ""
    """The network that it came from, by which unproven callers are counted; empty in a simulation."""
    prefix: str = ""
    """What stands for the beginning of its prompt, as far as a provider's cache goes by it; empty: it has none."""
    job: str = ""
    """Which piece of the agent's work it belongs to; empty: it does not say, and all of those are one."""
    again: str = ""
    """What it would be known by if its client sent it again; empty: nothing."""
    patience_ns: int | None = None
    """How long its client waits for its turn, over all the times that it will come back; None: nobody knows."""
    since_ns: int | None = None
    """When it first stood in line, if its client has come back with it. The scheduler's to know."""
    needs_slot: bool = True
    """False for what is cheap (a list of models, a token count): it never waits and holds no slot."""

    def renamed(self, renames: Renames) -> Call:
        """The same call, by the name that its agent has now."""
        request = renames.request(self.request)
        return self if request is self.request else attrs.evolve(self, request=request)
