"""The disk, as the language reads it."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Final, final

import attrs

READ_MAX: Final = 64 << 20
"""The language refuses far less; this keeps a device or a log that was named by mistake out of memory."""


@final
@attrs.frozen
class DiskFiles:
    """`policy.Files` over the file system. Relative paths are relative to the working directory."""

    def read(self, path: str) -> bytes:
        """The file's bytes, bounded.

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

    def glob(self, pattern: str) -> list[str]:
        """Regular files that match, sorted; `**` crosses folders."""
        return sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
