"""The files of an editor's session: what is open goes before the disk, and which policy a file is part of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, final

import attrs

from hivemind_trio.policy import (
    Checked,
    Diagnostic,
    Files,
    MemoryFiles,
    ProgressListener,
    check,
    run_tests,
    untold,
    with_tests,
)

CANDIDATES_MAX: Final = 200
"""Files that are asked whether they include what is open."""

_WILDCARD: Final = re.compile(r"[*?\[]")


@final
@attrs.define(eq=False)
class Workspace:
    """Open texts over files. It is itself a `Files`.

    Args:
        disk: What is not open.
        folders: How far up policies are looked for that include what is open.
    """

    disk: Files
    folders: tuple[str, ...] = ()
    progress: ProgressListener = untold
    """Told of how far a check is; what it raises ends the check."""
    _open: dict[str, str] = attrs.field(init=False, factory=dict)
    _checked: dict[str, Checked] = attrs.field(init=False, factory=dict)
    _including: list[str] | None = attrs.field(init=False, default=None)

    # ---- what is there ----

    def read(self, path: str) -> bytes:
        """Return the open text, or the file's.

        Raises:
            OSError: It is neither open nor on the disk.
        """
        if path in self._open:
            return self._open[path].encode("utf-8", "surrogatepass")
        return self.disk.read(path)

    def resolve(self, path: str) -> str:
        """Return the path without links of the disk."""
        return self.disk.resolve(path)

    def glob(self, pattern: str) -> list[str]:
        """Return matching files of the disk, and those that are open and perhaps not saved."""
        return sorted({*self.disk.glob(pattern), *MemoryFiles(self._open).glob(pattern)})

    def open(self, path: str, text: str) -> None:
        """Use the text of the editor from now on."""
        self._open[path] = text
        self.changed_on_disk()

    def edit(self, path: str, text: str) -> None:
        """Its text is another one now."""
        if ("include" in text) != ("include" in self._open.get(path, "")):
            self._including = None
        self._open[path] = text
        for root in [root for root, checked in self._checked.items() if path in checked.paths]:
            del self._checked[root]

    def close(self, path: str) -> None:
        """Forget the open text of a file; the disk holds again."""
        self._open.pop(path, None)
        self.changed_on_disk()

    def changed_on_disk(self) -> None:
        """Nothing that was read is known to hold."""
        self._checked.clear()
        self._including = None

    @property
    def opened(self) -> tuple[str, ...]:
        """Open files, in the order of opening."""
        return tuple(self._open)

    # ---- which policy ----

    def check(self, path: str) -> Checked:
        """Return a file as a policy of its own, with what its tests about calls find; simulated ones take too long."""
        if path not in self._checked:
            checked = check(path, self, self.progress)
            self._checked[path] = with_tests(checked, run_tests(checked))
        return self._checked[path]

    def policies(self, path: str) -> tuple[Checked, ...]:
        """Return the policies that a file is part of: those that include it, and are included by none; or it alone."""
        roots = [root for root in self._roots() if root != path and path in self.check(root).paths]
        return tuple(self.check(root) for root in roots) or (self.check(path),)

    def policy(self, path: str) -> tuple[Checked, int]:
        """Return the first of them, and which of its sources the file is."""
        checked = self.policies(path)[0]
        return checked, checked.paths.index(path)

    def findings(self, path: str) -> Iterator[tuple[Checked, Diagnostic]]:
        """Yield the findings of a file, by every policy that it is part of; each finding once."""
        seen: set[tuple[object, ...]] = set()
        for checked in self.policies(path):
            for one in checked.diagnostics:
                key = (one.code, one.message, one.span.start, one.span.end)
                if checked.paths[one.span.source] == path and key not in seen:
                    seen.add(key)
                    yield checked, one

    def touched(self, path: str) -> tuple[str, ...]:
        """Every file whose findings a change of this one may change, itself first."""
        every = [path, *(other for checked in self.policies(path) for other in checked.paths)]
        return tuple(dict.fromkeys(every))

    def _roots(self) -> list[str]:
        """Policies that include others and that no other includes."""
        if self._including is None:
            candidates = dict.fromkeys([*self._open, *self._near()])
            self._including = [path for path in candidates if self._includes(path)]
        included = {other for path in self._including for other in self.check(path).paths if other != path}
        return [path for path in self._including if path not in included]

    def _near(self) -> list[str]:
        """Policies beside what is open, and above it as far as the session's folders go: that is who includes it."""
        places = dict.fromkeys(
            place
            for path in self._open
            for place in parents(path)
            if any(_is_inside(place, folder) for folder in self.folders)
        )
        found: list[str] = []
        for place in places:
            if len(found) < CANDIDATES_MAX:
                folder = _WILDCARD.sub(r"[\g<0>]", place)  # a folder's own name is no pattern
                found += self.disk.glob(f"{folder}/*.hmp")
        return found[:CANDIDATES_MAX]

    def _includes(self, path: str) -> bool:
        try:
            return b"include" in self.read(path)
        except (OSError, ValueError):
            return False


def parents(path: str) -> Iterator[str]:
    """Yield the folders of an absolute POSIX path, the innermost first."""
    while path not in ("", "/"):
        path = path.rpartition("/")[0] or "/"
        yield path


def _is_inside(path: str, folder: str) -> bool:
    """Return True if the path is the folder or something in it."""
    folder = folder.rstrip("/")
    return path == folder or path.startswith(f"{folder}/")
