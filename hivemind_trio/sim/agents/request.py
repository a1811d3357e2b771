"""One request of a client, and the two ways it can take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, final

import attrs

from hivemind_trio.model import Request

from .agent import Turn
from .client import ClientBehaviour, ClientReply


@final
@attrs.define(eq=False)
class Asking:
    """A request on its way."""

    request: Request
    caller: str
    turn: Turn
    load: str
    client: ClientBehaviour
    sent_ns: int
    retried: int
    """Requests for the same turn before this one."""
    replied: Callable[[ClientReply], None]
    """Called once, in virtual time, with what the client has had."""


class Route(Protocol):
    """Route of requests."""

    def send(self, asking: Asking) -> None:
        """Send the request of a client now."""
