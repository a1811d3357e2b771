"""What the policy's secret references stand for, kept where nothing prints it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import final

from hivemind_trio.model import SecretRef, SecretSource
from hivemind_trio.policy import SecretState


def probe(ref: SecretRef) -> SecretState:
    """Whether a secret can be had here, without taking it."""
    if ref.source is SecretSource.ENV:
        return SecretState.OK if os.environ.get(ref.name) else SecretState.UNSET
    path = Path(ref.name)
    try:
        mode = path.stat().st_mode
        with path.open("rb") as file:
            empty = not file.read(1)
    except FileNotFoundError:
        return SecretState.UNSET
    except OSError:
        return SecretState.UNREADABLE
    if empty:
        return SecretState.UNSET
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        return SecretState.EXPOSED
    return SecretState.OK


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
        return Path(ref.name).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError):
        return ""
