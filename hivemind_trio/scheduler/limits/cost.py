"""Cost of one call in each limited dimension."""

from __future__ import annotations

from typing import Final

from hivemind_trio.model import Dimension

Cost = dict[Dimension, int]
"""Cost of one call in each dimension."""


NOTHING: Final[Cost] = dict.fromkeys(Dimension, 0)
"""Cost of a call that no rate limit counts."""
