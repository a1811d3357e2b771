"""References to secrets. The value itself never enters the policy."""

from __future__ import annotations

from enum import Enum
from typing import Final, final

import attrs

CREDENTIAL_NAME: Final = 8
"""Characters of a credential's name that are shown."""


class SecretSource(Enum):
    """The two places a policy may name."""

    ENV = "env"
    FILE = "file"


@final
@attrs.frozen
class SecretRef:
    """A secret by reference: `env(NAME)` or `file("path")`.

    Safe to print, journal and compare. Whoever resolves it (`hivemind_trio.host`) keeps the value.
    """

    source: SecretSource
    name: str
    """The variable's name, or the file's path as the policy has it, made absolute by the loader."""

    def __str__(self) -> str:
        if self.source is SecretSource.ENV:
            return f"env({self.name})"
        return f'file("{self.name}")'


def shown_credential(name: str) -> str:
    """Return the name of a credential (a keyed hash) as every place shows it: journal, log, status and callers."""
    return name[:CREDENTIAL_NAME]
