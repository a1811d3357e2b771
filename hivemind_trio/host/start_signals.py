"""Signals of `serve`, from before it can heed them."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Self, final

import attrs
import trio


@final
@attrs.define(eq=False)
class StartSignals:
    """A SIGHUP that comes while `serve` starts is one reload once it serves, and not the end of the process.

    SIGTERM and SIGINT end a process that starts at once: it has nothing in flight. There is a handler, and no blocked
    signal, because children would inherit that.
    """

    _hung_up: bool = attrs.field(init=False, default=False)

    @classmethod
    @contextmanager
    def kept(cls) -> Iterator[Self]:
        """Keep SIGHUP within the context. To be called in the main thread."""
        kept = cls()
        before = signal.signal(signal.SIGHUP, kept._note)
        try:
            yield kept
        finally:
            signal.signal(signal.SIGHUP, before)

    @contextmanager
    def heeded(self) -> Iterator[AsyncIterator[int]]:
        """Receive the signals of `serve` within the context, with the SIGHUP that came before."""
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            if self._hung_up:
                signal.raise_signal(signal.SIGHUP)
            yield signals

    def _note(self, *_: object) -> None:
        self._hung_up = True
