"""Check of the lines of `serve`'s log against the registered events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hivemind_trio.serve.events import EVENTS, field_names

REGISTERED: Final = {event.name: event for event in EVENTS}
ALWAYS: Final = {"timestamp", "level", "event"}
OF_WORKERS: Final = {"worker"}
"""On every line of a worker."""


def unregistered(line: Mapping[str, Any]) -> str:
    """Return the difference between a line and the registered event of its name; empty: there is none."""
    event = REGISTERED.get(line["event"])
    if event is None:
        return f"no event: {line['event']}"
    if line["level"] != event.level:
        return f"level {line['level']} of {event.name}, which is {event.level}"
    fields = field_names(event)
    unknown = line.keys() - fields.keys() - ALWAYS - OF_WORKERS
    missing = {name for name, optional in fields.items() if not optional} - line.keys()
    if unknown:
        return f"with {', '.join(sorted(unknown))}: {event.name}"
    return f"without {', '.join(sorted(missing))}: {event.name}" if missing else ""
