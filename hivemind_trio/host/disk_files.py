"""The disk, as the language reads it."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Final, final

import attrs

READ_MAX: Final = 64 << 20
"""The language refuses far less; this keeps a device or a log that was named by mistake out of memory."""


LINKS_MAX: Final = 40
"""Links on the way to a file, as Linux has it."""


@final
@attrs.frozen
class DiskFiles:
    """`policy.Files` over the file system. Relative paths are relative to the working directory."""

    def read(self, path: str) -> bytes:
        """Return the file's bytes, bounded.

        Raises:
            OSError: It cannot be read, or it is no regular file of a reasonable size.
        """
        place = Path(path)
        if place.exists() and not place.is_file():
            raise OSError(None, "not a regular file", path)
        with place.open("rb") as file:
            content = file.read(READ_MAX + 1)
        if len(content) > READ_MAX:
            raise OSError(None, f"larger than {READ_MAX >> 20} MiB", path)
        return content

    def resolve(self, path: str) -> str:
        """Return the absolute path without links on its way."""
        return os.path.realpath(path)

    def glob(self, pattern: str) -> list[str]:
        """Regular files that match, sorted; `**` crosses folders. What is named without wildcards need not be one."""
        if not glob.has_magic(pattern):
            return [pattern] if os.path.exists(pattern) else []
        return sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))


def folders(path: str) -> list[str]:
    """Return the folders in which a change can change what a path names: its own, and those of links on its way.

    A watch follows the folder, and not the link that led there; and a link that is replaced is a change of its folder.
    """
    found = dict.fromkeys([os.path.dirname(path) or "."])
    left = list(reversed(Path(os.path.abspath(path)).parts))
    here = left.pop()
    followed = 0
    while left and followed < LINKS_MAX:
        step = os.path.join(here, left.pop())
        try:
            target = os.readlink(step)
        except OSError:  # no link, or nothing there
            here = step
            continue
        followed += 1
        found[here] = None
        whole = os.path.normpath(os.path.join(here, target))
        left += reversed(Path(whole).parts[1:])
        here = Path(whole).anchor
    found[os.path.dirname(here)] = None
    absolute = os.path.abspath(os.path.dirname(path) or ".")
    return [folder for folder in found if folder == next(iter(found)) or folder != absolute]
