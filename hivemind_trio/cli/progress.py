"""Progress display of a simulation or a long check."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

import click

if TYPE_CHECKING:
    from hivemind_trio.policy import ProgressListener as CheckTold
    from hivemind_trio.sim import Told


def on_terminal() -> bool:
    """Return True if standard error is a terminal."""
    return sys.stderr.isatty()


@final
class ProgressLine:
    """One line that is written over, on a terminal alone, once a run takes long enough to be told of."""

    def __init__(self) -> None:
        self.shown = on_terminal()
        self._written = False

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._written:
            click.echo("\r\x1b[K", nl=False, err=True, color=True)

    def write(self, words: str) -> None:
        """Instead of what stands there."""
        from hivemind_trio.policy import visible

        click.echo(f"\r\x1b[K{visible(words)}", nl=False, err=True, color=True)
        self._written = True


class RunProgress:
    """Progress of the runs of several seeds."""

    def __init__(self, line: ProgressLine, seeds: range) -> None:
        self._line = line
        self._seeds = seeds

    def of(self, seed: int) -> Told | None:
        """Whom to tell of that seed's runs."""
        if not self._line.shown:
            return None

        def told(now_ns: int, ended: int, agents: int) -> None:
            place = self._seeds.index(seed) + 1
            self._line.write(f"seed {place} of {len(self._seeds)}: {ended} of {agents} agents, {now_ns / 1e9:,.0f} s")

        return told


QUIET_S: Final = 1.0
"""Before the first line about a check: most are over by then."""
EVERY_S: Final = 0.2


class CheckProgress:
    """Progress of checks that take long.

    Args:
        clock: Seconds from any moment on.
    """

    def __init__(self, line: ProgressLine, clock: Callable[[], float]) -> None:
        self._line = line
        self._clock = clock
        self._next_s = clock() + QUIET_S

    def of(self, path: str) -> CheckTold | None:
        """Return what to tell of that policy; None where nobody is looking."""
        if not self._line.shown:
            return None

        def told(doing: str, done: int, of: int, /) -> None:
            now_s = self._clock()
            if now_s >= self._next_s:
                self._next_s = now_s + EVERY_S
                self._line.write(f"{path}: {doing}, {100 * done // max(1, of)}%")

        return told
