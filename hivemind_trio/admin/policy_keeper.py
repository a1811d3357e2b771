"""The policy of a running proxy, as operations reach it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, final

import attrs

from hivemind_trio.policy import Checked, Diagnostic, Source


class ReadPolicy(Protocol):
    """A policy as it was read once, good or not."""

    @property
    def checked(self) -> Checked:
        """Result of the check."""
        ...

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Diagnostics of the check and of this machine's secrets."""
        ...

    @property
    def good(self) -> bool:
        """True if it can be run."""
        ...

    @property
    def sources(self) -> tuple[Source, ...]:
        """For the renderer."""
        ...


@final
@attrs.frozen(kw_only=True)
class ReloadResult:
    """Result of the last reload."""

    error: str = ""
    """Empty: the policy is in force."""
    help: str = ""
    diagnostics: tuple[str, ...] = ()


@final
@attrs.define(eq=False)
class PolicyKeeper:
    """Reads and reloads the policy of a running proxy."""

    running: Callable[[], ReadPolicy]
    read: Callable[[], ReadPolicy]
    """Reads the file anew; blocking."""
    result: Callable[[], ReloadResult]
    """Result of the last reload."""
    reload: Callable[[], Awaitable[None]] | None = attrs.field(init=False, default=None)
    """Reads the file and takes it into force if it is good; None: the proxy still starts, or has no file."""
