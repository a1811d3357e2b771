"""Resources: what agents share beside providers, such as a browser or a test database, one lease at a time."""

from __future__ import annotations

from typing import Final, final

import attrs

SECOND_NS: Final = 1_000_000_000


@final
@attrs.frozen(kw_only=True)
class ResourceSettings:
    """A resource and its leases."""

    name: str
    capacity: int = 1
    """Leases at a time."""
    lease_ns: int = 600 * SECOND_NS
    """Time of a lease without renewal."""
    lease_max_ns: int | None = None
    """Time of a lease in all; None: as long as it is renewed."""
    queue: int = 100
    """Requests waiting at most."""
    allow: tuple[str, ...] = ()
    """Agents that may ask; empty: each whose calls are accepted."""
    at: str

    def may_ask(self, agent: str) -> bool:
        """Return True if this agent may ask for a lease."""
        return not self.allow or agent in self.allow
