"""Hot reload: when to read a policy again, and what to take of it. It prints nothing and knows no door."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final, Generic, Protocol, TypeVar, final

import attrs
import trio
import watchfiles

DEBOUNCE_S: Final = 0.2
"""Editors save in several steps, and a deployment changes several files."""
POLL_S: Final = 30.0
"""A net under the watch: network and overlay file systems tell nobody."""
REWATCH_S: Final = 0.5
"""Between two tries to watch directories that are not there or cannot be watched."""
TORN_MAX: Final = 5
"""Number of restarts, when files change while they are read, before the next event is awaited."""


class Loadable(Protocol):
    """A policy as it was read once, good or not."""

    @property
    def fingerprint(self) -> str:
        """Over the bytes of everything that was read; the same content has the same."""
        ...

    @property
    def good(self) -> bool:
        """True if it can be run."""
        ...

    @property
    def directories(self) -> Sequence[str]:
        """Folders of its files. Directories, because a watched file goes blind after one rename."""
        ...


L = TypeVar("L", bound=Loadable)


@final
@attrs.define(eq=False)
class Reloader(Generic[L]):
    """Reads again when something changed, and hands over what is new and good.

    Args:
        load: Reads and compiles everything; blocking, and run in a thread.
        apply: Given each good policy whose content differs from what was last tried. Runs in the Trio thread.
        report: Given each bad one, once per content. The running policy stays.
        own: Absolute paths of databases that the proxy writes all the time: a journal in the folder of the policy is
            no reason to read that.
    """

    _load: Callable[[], L]
    _apply: Callable[[L], None]
    _report: Callable[[L], None]
    _own: tuple[str, ...] = ()
    _stirred: trio.Event = attrs.field(init=False, factory=trio.Event)
    _asked: bool = attrs.field(init=False, default=False)
    _awaiting: list[trio.Event] = attrs.field(init=False, factory=list)
    """Requests for a reload that wait for its end."""

    def trigger(self) -> None:
        """Read again now, and apply what is good even if nothing changed: SIGHUP, and later an operator's request."""
        self._asked = True
        self._stirred.set()

    async def reload(self) -> None:
        """Do the same, and return when what was read is applied or reported."""
        done = trio.Event()
        self._awaiting.append(done)
        self.trigger()
        await done.wait()

    async def run(self, running: L) -> None:
        """Watch until cancelled, beginning with the policy that runs now."""
        tried = running.fingerprint
        directories = tuple(running.directories)
        async with trio.open_nursery() as nursery:
            watch = await nursery.start(self._watch, directories)
            while True:
                await self._stir()
                asked, self._asked = self._asked, False
                awaiting, self._awaiting = self._awaiting, []
                loaded = await self._load_whole(tried, asked)
                if loaded is None:
                    self._awaiting = awaiting + self._awaiting
                    continue
                tried = loaded.fingerprint
                if loaded.good:
                    wanted = tuple(loaded.directories)
                    self._apply(loaded)
                else:
                    # A broken file may include less than it did; what it included before is watched all the same.
                    wanted = tuple(dict.fromkeys([*directories, *loaded.directories]))
                    self._report(loaded)
                for done in awaiting:
                    done.set()
                # Also where they are the same by name: one that was missing may have come.
                watch.cancel()
                directories = wanted
                watch = await nursery.start(self._watch, directories)

    async def _stir(self) -> None:
        """Wait for a change, or for the poll; changes from here on are the next round's."""
        with trio.move_on_after(POLL_S):
            await self._stirred.wait()
            await trio.sleep(DEBOUNCE_S)
        self._stirred = trio.Event()

    async def _watch(
        self, directories: Sequence[str], *, task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED
    ) -> None:
        absolute = [os.path.abspath(directory) for directory in directories]  # noqa: ASYNC240 - joins strings only
        with trio.CancelScope() as scope:
            task_status.started(scope)
            while True:
                await self._watch_once(absolute)
                await trio.sleep(REWATCH_S)

    async def _watch_once(self, directories: Sequence[str]) -> None:
        """Watch until a directory is gone or has become another one of the same name: a watch follows the old one."""
        there = [directory for directory in directories if await trio.Path(directory).is_dir()]
        if not there:
            return
        watching = False
        try:
            # Whatever the event, everything is hashed again: a Kubernetes swap is reported under another name.
            async with aclosing(
                watchfiles.awatch(
                    *there,
                    watch_filter=None,
                    recursive=False,
                    debounce=50,
                    step=20,
                    rust_timeout=200,
                    yield_on_timeout=True,
                )
            ) as batches:
                async for changes in batches:
                    # The first batch, though it be empty, says that the watch is on. What changed before it was on,
                    # and after the last reading, is seen by reading once more.
                    if not watching or any(not self._is_own(path) for _, path in changes):
                        self._stirred.set()
                    watching = True
                    if any(path in there for _, path in changes):
                        return
        except* (OSError, RuntimeError):
            # It went away between the question and the watch, or the system has no watch left to give (watchfiles
            # makes a RuntimeError of that). The poll sees changes all the same, and the next try may do better.
            pass

    def _is_own(self, path: str) -> bool:
        """Return True for a database of the proxy and the files that SQLite or the ledger keeps beside it."""
        return any(path == own or path.startswith(f"{own}-") for own in self._own)

    async def _load_whole(self, tried: str, asked: bool) -> L | None:
        """Load until nothing changes while it is read; None: there is nothing new, or it never came to rest."""
        loaded = await trio.to_thread.run_sync(self._load)
        if loaded.fingerprint == tried and not asked:
            return None
        for _ in range(TORN_MAX):
            again = await trio.to_thread.run_sync(self._load)
            if again.fingerprint == loaded.fingerprint:
                break
            loaded = again
        else:
            self._stirred.set()
            self._asked = self._asked or asked
            return None
        # It may have come to rest on what was tried already: saved, and taken back before we had read it twice.
        return loaded if asked or loaded.fingerprint != tried else None
