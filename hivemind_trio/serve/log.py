"""Log for operators: one line for each event that needs attention, on standard error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO, final

import attrs
import structlog
import trio

from hivemind_trio.policy import visible

from .events import REPEATS, LogEvent, Notice, key_of, values

SHOWN_MAX: Final = 2_048
"""Characters of a value: a caller may call itself, or its model, anything."""

QUIET_S: Final = 60.0
"""The same notice is not repeated within this time; how often it happened again is said once at its end."""


@final
@attrs.frozen
class Lossy:
    """A stream whose reader may go, or whose disk may fill up: a log that nobody reads must not end a proxy."""

    _stream: TextIO

    def write(self, text: str) -> int:
        """Write what can be written."""
        with self._survived():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what can be flushed."""
        with self._survived():
            self._stream.flush()

    @contextmanager
    def _survived(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            # Gone for good. What is still buffered has to go somewhere, or Python ends with a status of its own (120).
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
        except OSError:
            pass  # a full disk may have room again


@final
@attrs.define
class LogFormat:
    """Format of the log: text for people, or one JSON object a line. May change with the policy."""

    json: bool


@final
@attrs.frozen(eq=False)
class EventLog:
    """Writes events, one line each; nothing else writes to the log."""

    _logger: structlog.typing.FilteringBoundLogger

    def emit(self, event: LogEvent, *, repeats: int = 0) -> None:
        """Write an event.

        Args:
            repeats: Number of further occurrences that this line stands for; 0: it is the event itself.
        """
        counted = {REPEATS: repeats} if repeats else {}
        getattr(self._logger, event.level)(event.name, **values(event), **counted)


def make_log(stream: Lossy, *, form: LogFormat, color: bool, worker: str = "") -> EventLog:
    """Return a log that writes one line per event to `stream`, in the form of that moment.

    Args:
        worker: Process that every line is of; empty: there is only one.
    """
    as_object = structlog.processors.JSONRenderer()
    for_people = structlog.dev.ConsoleRenderer(colors=color, pad_event_to=0, sort_keys=False)

    def with_process(_logger: Any, _method: str, fields: structlog.typing.EventDict) -> structlog.typing.EventDict:
        return {**fields, "worker": worker} if worker else fields

    def render(logger: Any, method: str, fields: structlog.typing.EventDict) -> Any:
        if form.json:
            return as_object(logger, method, _event_first(logger, method, fields))
        return for_people(logger, method, _escaped(fields))

    return EventLog(
        structlog.wrap_logger(
            structlog.WriteLogger(stream),  # type: ignore[arg-type]  # it asks of a file to write and flush
            wrapper_class=structlog.make_filtering_bound_logger("info"),
            processors=[
                with_process,
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                render,
            ],
        )
    )


def _escaped(fields: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape what callers and providers say of themselves, so that a terminal shows it and does not obey it."""
    return {name: _safe(value) for name, value in fields.items()}


def _safe(value: Any) -> Any:
    match value:
        case str():
            return visible(value[:SHOWN_MAX]) + ("…" if len(value) > SHOWN_MAX else "")
        case list() | tuple():
            return [_safe(one) for one in value]
        case _:
            return value


def _event_first(_logger: Any, _method: str, fields: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """When, how bad and what before the details: a line of JSON is read by people too."""
    return {name: fields.pop(name) for name in ("timestamp", "level", "event")} | dict(fields)


@final
@attrs.define
class _Repeated:
    quiet_until: float
    latest: Notice
    repeats: int = 0


@final
@attrs.define(eq=False)
class Notices:
    """Reports an event when it first happens, and then how often it happened again, without flooding the log."""

    log: EventLog
    _repeated: dict[tuple[str, ...], _Repeated] = attrs.field(init=False, factory=dict)
    """Bounded: the fields that tell notices apart are names of the policy, and words and numbers of closed sets."""

    def say(self, event: Notice) -> None:
        """Report `event` now, or count it if the same was reported within the last minute."""
        key = key_of(event)
        now = trio.current_time()
        known = self._repeated.get(key)
        if known is not None:
            if now < known.quiet_until:
                known.repeats += 1
                known.latest = event
                return
            self._say_repeats(known)  # `run` has not come round to it yet
        self._repeated[key] = _Repeated(now + QUIET_S, event)
        self.log.emit(event)

    async def run(self) -> None:
        """Say what was counted, until cancelled."""
        while True:
            await trio.sleep(QUIET_S / 4)
            self.flush()

    def flush(self, *, everything: bool = False) -> None:
        """Say the counts of notices whose quiet minute is over, or all of them."""
        now = trio.current_time()
        for key, known in list(self._repeated.items()):
            if everything or now >= known.quiet_until:
                del self._repeated[key]
                self._say_repeats(known)

    def _say_repeats(self, known: _Repeated) -> None:
        if known.repeats:
            self.log.emit(known.latest, repeats=known.repeats)
