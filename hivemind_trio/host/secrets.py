"""Values of the policy's secret references, kept where nothing prints them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, final

from hivemind_trio.model import SecretRef, SecretSource
from hivemind_trio.policy import SecretState

VALUE_MAX: Final = 64 << 10
"""Bytes. No credential is that long; a log that was named by mistake is."""


def probe(ref: SecretRef) -> SecretState:
    """Return the state of a secret here; `Secrets.resolve` has OK, MALFORMED and EXPOSED ones only."""
    if ref.source is SecretSource.ENV:
        value = os.environ.get(ref.name, "")
        if not value:
            return SecretState.UNSET
        return SecretState.OK if _is_line(value) else SecretState.MALFORMED
    try:
        mode = os.stat(ref.name).st_mode
    except FileNotFoundError:
        return SecretState.UNSET
    except (OSError, ValueError):
        return SecretState.UNREADABLE
    if not stat.S_ISREG(mode):
        return SecretState.IRREGULAR
    try:
        value = _text(ref.name)
    except OSError:
        return SecretState.UNREADABLE
    except ValueError:
        return SecretState.MALFORMED
    if not value:
        return SecretState.UNSET
    if not _is_line(value):
        return SecretState.MALFORMED
    return SecretState.EXPOSED if mode & stat.S_IROTH else SecretState.OK


def probe_content(ref: SecretRef) -> SecretState:
    """Return what is wrong with a file that is here and holds no secret, else OK: so much is true on every machine."""
    found = probe(ref) if ref.source is SecretSource.FILE else SecretState.OK
    return found if found in (SecretState.MALFORMED, SecretState.IRREGULAR) else SecretState.OK


def _is_line(value: str) -> bool:
    """Return True if a header can carry the value as it is."""
    return value == value.strip() and value.isascii() and value.isprintable()


@final
class Secrets(Mapping[SecretRef, str]):
    """Reference -> value. Its repr names the references; the values show nowhere."""

    def __init__(self, values: Mapping[SecretRef, str]) -> None:
        self._values = dict(values)

    @classmethod
    def resolve(cls, refs: Iterable[SecretRef]) -> Secrets:
        """Take the values of all that can be had; `policy.check_secrets` has said what cannot.

        A file's value is its text without the newline at its end.
        """
        values = {}
        for ref in refs:
            value = _value(ref)
            if value:
                values[ref] = value
        return cls(values)

    def __getitem__(self, ref: SecretRef) -> str:
        return self._values[ref]

    def __iter__(self) -> Iterator[SecretRef]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Secrets({', '.join(map(str, self._values))})"


def _value(ref: SecretRef) -> str:
    if ref.source is SecretSource.ENV:
        return os.environ.get(ref.name, "")
    try:
        return _text(ref.name)
    except (OSError, ValueError):
        return ""


def _text(path: str) -> str:
    """Return a secret file's value.

    Raises:
        OSError: It cannot be read, or is no regular file: a pipe could be read once only, and might never end.
        ValueError: It is too long for a secret, or no UTF-8.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(None, "not a regular file", path)
    with open(path, "rb") as file:
        content = file.read(VALUE_MAX + 1)
    if len(content) > VALUE_MAX:
        raise ValueError(f"larger than {VALUE_MAX >> 10} KiB")
    # Windows editors begin UTF-8 with a byte order mark.
    return content.decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
