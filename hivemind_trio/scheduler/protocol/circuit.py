"""State of a circuit breaker."""

from __future__ import annotations

from enum import StrEnum


class Circuit(StrEnum):
    """CLOSED lets calls through, OPEN none, HALF_OPEN one at a time."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"
