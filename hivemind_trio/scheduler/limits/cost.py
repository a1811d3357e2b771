"""Cost of one call in each limited dimension."""

from __future__ import annotations

from typing import Final

from hivemind_trio.model import Dimension

Cost = dict[Dimension, int]
"""Cost of one call in each dimension."""


DOUBT: Final = 1.5
"""An estimate may be so many times what the provider counts. For first calls of Claude Code and Codex it was up to 1.3
times (`bench/results/first_calls.md`), and it is corrected after them. More would have calls sent, each in an empty
window, of which the provider takes none."""

NOTHING: Final[Cost] = dict.fromkeys(Dimension, 0)
"""Cost of a call that no rate limit counts."""


def exceeds(cost: Cost, dimension: Dimension, most: int, *, exact: bool) -> bool:
    """Return True if it is sure that a call takes more than a whole window has: its rejection is final.

    Args:
        exact: The input has been counted. Requests always are, and tokens of output never.
    """
    is_sure = dimension is Dimension.REQUESTS or (exact and dimension is Dimension.INPUT)
    return cost[dimension] > most * (1 if is_sure else DOUBT)
