"""Parts of the scheduler that no policy can switch off, and an experiment can: to show what each of them is good for.

What a policy can switch off by itself (concurrency, its adapting, quotas, headers, retries, the circuit breaker, turns
of agents) is not here.
"""

from __future__ import annotations

from typing import Final, final

import attrs


@final
@attrs.frozen(kw_only=True)
class Features:
    """Features of the scheduler, each of which can be switched off."""

    bypass: bool = True
    """Backfill: smaller calls pass one that does not fit a rate limit, for a while."""
    patience: bool = True
    """Early rejection of calls whose expected wait exceeds their client's timeout."""
    prefixes: bool = True
    """Prompt caching: one call of a cold prefix goes first, and warm prefixes go before they are forgotten."""
    overdue: bool = True
    """Precedence of calls that have waited for too long."""


ALL_PARTS: Final = Features()
