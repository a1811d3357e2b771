"""Lock of a database file, held by one process, whichever of its names the file is opened by."""

from __future__ import annotations

import fcntl
import os
from typing import Self, final

import attrs


@final
class HeldElsewhere(Exception):  # noqa: N818 - a state of the world, not a mistake
    """Another process has the file's lock."""


@final
@attrs.define(eq=False)
class FileLock:
    """The lock goes with the process, however that ends.

    It is taken on the file itself, so that links to it are the same file. SQLite locks with `fcntl`, which does not
    know of `flock`; but to close any descriptor of a file gives up the `fcntl` locks of the process. So this one is
    opened before the database and closed after it.
    """

    _file: int
    _path: str

    @classmethod
    def take(cls, path: str) -> Self:
        """Lock the file, and make it for nobody else to read if there is none.

        Raises:
            HeldElsewhere: Another process has it.
            OSError: It cannot be opened for writing.
        """
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file), os.stat(path)):
                    return cls(file, os.path.abspath(path))
            except BlockingIOError:
                os.close(file)
                raise HeldElsewhere from None
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # it was replaced in between

    @classmethod
    def beside(cls, path: str) -> Self:
        """Watch a file of which another process of this proxy has the lock.

        Raises:
            OSError: It cannot be opened.
        """
        return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC), os.path.abspath(path))

    @property
    def gone(self) -> bool:
        """True if the path is no longer the file's: the next process that opens it will not find what is written.

        So it is where the path cannot be looked at, such as in a folder that has become another user's.
        """
        try:
            return not os.path.samestat(os.fstat(self._file), os.stat(self._path))
        except OSError:
            return True

    def release(self) -> None:
        """Let go of it. The database has to be closed before."""
        os.close(self._file)
