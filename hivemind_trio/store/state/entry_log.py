"""Log of ledger entries: appended by the event loop, so that the end of the process loses none.

A line is one entry. It is handed to the kernel before the call goes on, which costs microseconds and survives
`kill -9`; it is not waited for until it is on the disk. A loss of power may thus lose lines, and then the chunks that
were drawn beforehand are charged instead (`SqliteStore`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self, final

import attrs
import msgspec

from hivemind_trio.scheduler import AccountKey
from hivemind_trio.store.state.interface import Claim, Entry, Spent, account_of, account_text

_encode: Final = msgspec.json.Encoder().encode
_CLAIM: Final = 0
_SPENT: Final = 1

_TEXTS_MAX: Final = 20_000


@final
@attrs.define(eq=False)
class EntryLines:
    """Writes entries as lines."""

    _texts: dict[AccountKey, str] = attrs.field(factory=dict, init=False)
    """Accounts as they are written; kept because a few accounts have most entries."""

    def line(self, entry: Entry) -> bytes:
        """Return the line of an entry."""
        if isinstance(entry, Claim):
            claimed = [(self._text(key), amount) for key, amount in entry.parts]
            return _encode((_CLAIM, entry.call, entry.at_ns, claimed)) + b"\n"
        spent = [(self._text(key), slot, amount) for key, slot, amount in entry.parts]
        return _encode((_SPENT, entry.call, 0, spent)) + b"\n"

    def _text(self, key: AccountKey) -> str:
        text = self._texts.get(key)
        if text is None:
            if len(self._texts) >= _TEXTS_MAX:
                self._texts.clear()
            text = self._texts[key] = account_text(key)
        return text


@final
@attrs.define(eq=False)
class EntryLog:
    """One generation of the log, open for appending."""

    path: Path
    size: int
    """Bytes of whole lines."""
    _file: int
    _lines: EntryLines = attrs.field(factory=EntryLines, init=False)

    @classmethod
    def create(cls, path: Path) -> Self:
        """Begin a log; whatever was there is gone."""
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return cls(path, 0, file)

    def append(self, entry: Entry) -> None:
        """Write a line.

        Raises:
            OSError: It cannot be written; the log is as it was.
        """
        line = self._lines.line(entry)
        written = os.write(self._file, line)
        if written != len(line):
            # The disk is full: half a line would swallow the next one.
            os.ftruncate(self._file, self.size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.size += written

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


def read_entries(path: Path) -> Iterator[Entry]:
    """Yield the whole entries of a log, until one that is torn: what follows it was never acted on."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    for line in lines[:-1]:
        try:
            yield entry_of(line)
        except ValueError:
            return


def entry_of(line: bytes) -> Entry:
    """Return the entry of a line.

    Raises:
        ValueError: It is none.
    """
    try:
        kind, call, at_ns, parts = msgspec.json.decode(line, type=tuple[int, int, int, list[list[int | str]]])
    except msgspec.MsgspecError as error:
        raise ValueError("no entry") from error
    if kind == _CLAIM:
        return Claim(call, at_ns, tuple((account_of(str(text)), int(amount)) for text, amount in parts))
    return Spent(call, tuple((account_of(str(text)), int(slot), int(amount)) for text, slot, amount in parts))
