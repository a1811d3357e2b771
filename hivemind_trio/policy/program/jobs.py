"""Jobs: commands that agents may have the proxy run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import attrs

from hivemind_trio.policy.language.globs import any_matcher

SECOND_NS: Final = 1_000_000_000


@final
@attrs.frozen(kw_only=True)
class JobsSettings:
    """Commands that run for agents. Without `allow` nothing does."""

    allow: tuple[str, ...] = ()
    """Agents that may submit, see and cancel jobs."""
    commands: tuple[str, ...] = ()
    """Globs over the arguments of a command, joined by single spaces."""
    capacity: int = 4
    """Jobs that run at once."""
    queue: int = 1_000
    """Jobs waiting at most."""
    patience_ns: int = 60 * SECOND_NS
    """Wait of a call beyond which no job is added."""

    def may_run(self, argv: Sequence[str]) -> bool:
        """Return True if a glob matches the whole of a command."""
        return bool(self.commands) and any_matcher(self.commands)(" ".join(argv))


NO_JOBS: Final = JobsSettings()
