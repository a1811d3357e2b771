"""Leases and requests for them, and what becomes of both."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias, final

import attrs

from hivemind_trio.policy import UNKNOWN_AGENT

Holder: TypeAlias = tuple[bool, str]
"""(True, declared agent), or (False, name that a caller gives itself)."""


@final
@attrs.frozen(kw_only=True)
class LeaseRequest:
    """A request for a lease that waits for its turn."""

    id: int
    """Grows with each request."""
    resource: str
    agent: str
    """Declared agent, or `unknown`."""
    caller: str
    """Name that it gives itself; of a declared agent too."""
    priority: int = 0
    """Higher is served first."""
    ttl_ns: int | None = None
    """Time without renewal that it asks for; None: as long as the policy allows."""
    purpose: str = ""
    """For people."""
    since_ns: int = 0
    """Time of the request."""

    @property
    def holder(self) -> Holder:
        """Identity that shares are counted for."""
        return _holder(self.agent, self.caller)


@final
@attrs.frozen(kw_only=True)
class Lease:
    """A part of a resource that one holder has until a time."""

    id: str
    """Resource and fence at its begin, `gpu-17`."""
    resource: str
    fence: int
    """Fencing token: higher than that of every earlier lease of the resource."""
    agent: str
    caller: str
    purpose: str
    granted_ns: int
    expires_ns: int
    """Time at which it ends unless it is renewed."""
    ttl_ns: int
    """Time that a renewal adds."""
    waited_ns: int = 0
    estimate_ns: int = 0
    """Time for which the holder's share is charged until the lease has ended."""

    @property
    def holder(self) -> Holder:
        """Identity that shares are counted for."""
        return _holder(self.agent, self.caller)


def _holder(agent: str, caller: str) -> Holder:
    return (True, agent) if agent != UNKNOWN_AGENT else (False, caller)


class LeaseEnd(StrEnum):
    """End of a lease."""

    RELEASED = "released"
    EXPIRED = "expired"
    SESSION = "session"
    """The connection of its holder is closed."""


class LeaseRefusal(StrEnum):
    """Public code of a request that gets no lease."""

    NO_SUCH_RESOURCE = "no-such-resource"
    NOT_ALLOWED = "not-allowed"
    QUEUE_FULL = "queue-full"
    REMOVED = "resource-removed"
    """A reload removed the resource while the request waited."""


@final
@attrs.frozen
class LeaseGranted:
    """A request has become a lease."""

    request_id: int
    lease: Lease


@final
@attrs.frozen
class LeaseRefused:
    """A request gets no lease."""

    request_id: int
    refusal: LeaseRefusal
    message: str


@final
@attrs.frozen
class LeaseChanged:
    """A lease is renewed, or has another name after a reload."""

    lease: Lease


@final
@attrs.frozen
class LeaseEnded:
    """A lease is over."""

    lease: Lease
    end: LeaseEnd


LeaseCommand: TypeAlias = LeaseGranted | LeaseRefused | LeaseChanged | LeaseEnded
