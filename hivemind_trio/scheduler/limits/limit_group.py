"""One limits group of one provider: its slots, and what the provider allows it per window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

import attrs

from hivemind_trio.policy import LimitGroupSettings as Block
from hivemind_trio.scheduler.protocol.ablation import ALL_PARTS, Features
from hivemind_trio.scheduler.protocol.beliefs import WindowBelief
from hivemind_trio.scheduler.protocol.snapshot import GateSnapshot

from .concurrency_limit import ConcurrencyLimit
from .rate_limits import RateLimits

MODELS_MAX: Final = 64
"""With quotas of their own: models are the callers' words. The others share one."""


@final
@attrs.define(eq=False)
class LimitGroup:
    """Found by its glob, it lives on while something is held of it or counts against it."""

    parts: Features = ALL_PARTS
    slots: ConcurrencyLimit = attrs.field(factory=ConcurrencyLimit, init=False)
    _quotas: RateLimits = attrs.field(init=False)
    _models: dict[str, RateLimits] = attrs.field(factory=dict, init=False)
    """Rate limits by model, where the policy has no block: providers count by model."""
    _block: Block | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._quotas = RateLimits(self.parts)

    def load(self, block: Block | None, now_ns: int, *, learns: bool) -> None:
        """Take the settings of a new policy. What was learned, and what counts, stays.

        Args:
            block: None: the policy has none for these models.
            learns: Whether the provider's rate-limit headers are believed.
        """
        self._block = block
        self.slots.resize(block.concurrency if block is not None else None)
        self._quotas.load(block.quotas if block is not None else (), now_ns, learns=learns)
        for quotas in self._models.values():
            quotas.load((), now_ns, learns=learns)

    def gates(self, now_ns: int) -> dict[str | None, GateSnapshot]:
        """Return what is believed, by model; None: what counts as one. Only of what may restrict dispatch."""
        each: dict[str | None, RateLimits] = {None: self._quotas}
        if self._block is None:
            each.update(self._models)
        return {model: quotas.snapshot(now_ns) for model, quotas in each.items() if quotas.restricts}

    def rate_limits(self) -> Iterator[RateLimits]:
        """Yield the rate limits of all models together, then those of each model that has its own."""
        yield self._quotas
        yield from self._models.values()

    def beliefs(self, glob: str | None, now_ns: int) -> list[WindowBelief]:
        """Return the use of its declared windows, to be kept."""
        return self._quotas.beliefs(glob, now_ns)

    def restore(self, belief: WindowBelief, age_ns: int, now_ns: int) -> None:
        """Count what an earlier process took."""
        self._quotas.restore(belief, age_ns, now_ns)

    def quotas(self, model: str) -> RateLimits:
        """Return the rate limits that calls of a model count against."""
        if self._block is not None:
            return self._quotas
        known = self._models.get(model)
        if known is None:
            if len(self._models) >= MODELS_MAX:
                return self._quotas
            known = self._models[model] = RateLimits(self.parts)
        return known
