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
    """What there is of it."""

    bypass: bool = True
    """What does not fit a quota is passed by what does, for a while; without it nobody passes anybody."""
    patience: bool = True
    """Who would not wait until his turn comes is told so when he comes."""
    prefixes: bool = True
    """Of calls with the same cold beginning one goes ahead, and what a cache still knows goes before it forgets."""
    overdue: bool = True
    """Who has waited for too long goes before others."""


ALL_PARTS: Final = Features()
