"""Output of a job in files of bounded size."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, Self, final

import attrs

TAIL_BYTES: Final = 64 * 1024
"""End of the output that is kept to find out how a job ended."""


@final
@attrs.define(eq=False)
class BoundedFile:
    """The latest output of a job. The file before it has the suffix `.1`; together they hold at most `limit` bytes."""

    path: Path
    limit: int
    _file: BinaryIO
    _size: int
    on_write: Callable[[], None] | None = None
    _tail: bytearray = attrs.field(factory=bytearray, init=False)

    @classmethod
    def open(cls, path: Path, limit: int) -> Self:
        """Open the file for more output.

        Raises:
            OSError: It cannot be written.
        """
        file = path.open("ab", buffering=0)
        os.fchmod(file.fileno(), 0o600)
        return cls(path, limit, file, file.tell())

    def write(self, piece: bytes) -> None:
        """Write a piece, and move to a new file where the bound is reached.

        Raises:
            OSError: It cannot be written.
        """
        self._tail += piece
        del self._tail[: max(0, len(self._tail) - TAIL_BYTES)]
        if self.on_write is not None:
            self.on_write()
        half = max(1, self.limit // 2)
        while piece:
            if self._size >= half:
                self._file.close()
                os.replace(self.path, self.path.with_name(self.path.name + ".1"))
                self._file = self.path.open("ab", buffering=0)
                os.fchmod(self._file.fileno(), 0o600)
                self._size = 0
            written = self._file.write(piece[: half - self._size]) or 0
            self._size += written
            piece = piece[written:]

    @property
    def tail(self) -> str:
        """End of what was written since it was opened."""
        return self._tail.decode("utf-8", "replace")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def end_of(out: Path, err: Path, chars: int) -> str:
    """Return the end of what a job has printed, standard error after standard output."""
    parts = []
    for path in (out, err):
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - chars))
                parts.append(file.read(chars).decode("utf-8", "replace"))
        except OSError:
            continue
    return "\n".join(part.rstrip() for part in parts if part.strip())
