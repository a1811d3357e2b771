"""Cost of one call in each limited dimension."""

from __future__ import annotations

from typing import Final

from hivemind_trio.model import Dimension

Cost = dict[Dimension, int]
"""What one call takes of each dimension."""


NOTHING: Final[Cost] = dict.fromkeys(Dimension, 0)
"""Of a call that no quota is counted for."""
