"""Faults of the listener that an operator is told of."""

from __future__ import annotations

from enum import StrEnum


class ListenerFault(StrEnum):
    """Faults of the listener; the values are names of log events."""

    CONNECTION_CRASHED = "connection_crashed"
    """Internal error of a connection or of the app on it: the connection was closed."""
    ACCEPT_FAILED = "accept_failed"
    """No connection can be accepted: files or memory are exhausted."""
