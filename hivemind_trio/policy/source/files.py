"""Files: the source of a policy's texts. The disk is one such place, and it is above the waterline."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Protocol, final

import attrs


class Files(Protocol):
    """Paths are text with `/`, as the user would type them; relative ones are relative to where the user stands."""

    def read(self, path: str) -> bytes:
        """Return the file's bytes.

        Raises:
            OSError: There is no such file, or it cannot be read.
        """
        ...

    def glob(self, pattern: str) -> list[str]:
        """Return the files that match, sorted; a pattern without wildcards matches the file of that name.

        Wildcards are those of `fnmatch`: `[*]` is a `*` in a name.
        """
        ...

    def resolve(self, path: str) -> str:
        """Return the path of a file or folder without symbolic links on its way."""
        ...


@final
@attrs.frozen
class MemoryFiles:
    """Files by name: for tests, for standard input, and for the policy that `serve` makes when it is given none."""

    texts: Mapping[str, str | bytes]

    def read(self, path: str) -> bytes:
        """Return the text under that name, as UTF-8."""
        try:
            text = self.texts[posixpath.normpath(path)]
        except KeyError:
            raise FileNotFoundError(2, "no such file", path) from None
        return text.encode() if isinstance(text, str) else text

    def resolve(self, path: str) -> str:
        """Return the path: there are no links."""
        return path

    def glob(self, pattern: str) -> list[str]:
        """Names that match; `*` crosses no `/`."""
        wanted = posixpath.normpath(pattern).split("/")
        return sorted(name for name in self.texts if _matches(name.split("/"), wanted))


def _matches(name: list[str], wanted: list[str]) -> bool:
    return len(name) == len(wanted) and all(map(fnmatchcase, name, wanted))
