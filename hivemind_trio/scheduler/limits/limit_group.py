"""One limits group of one provider: its slots, and what the provider allows it per window."""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.policy import Group as Block
from hivemind_trio.scheduler.protocol.ablation import ALL_PARTS, Parts
from hivemind_trio.scheduler.protocol.snapshot import GateSnapshot

from .concurrency_limit import Slots
from .rate_limits import Quotas

MODELS_MAX: Final = 64
"""With quotas of their own: models are the callers' words. The others share one."""


@final
@attrs.define(eq=False)
class Group:
    """Found by its glob, it lives on while something is held of it or counts against it."""

    parts: Parts = ALL_PARTS
    slots: Slots = attrs.field(factory=Slots, init=False)
    _quotas: Quotas = attrs.field(init=False)
    _models: dict[str, Quotas] = attrs.field(factory=dict, init=False)
    """Where the policy has no such block: providers count by model, and only it could say which are counted as one."""
    _block: Block | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._quotas = Quotas(self.parts)

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
        each: dict[str | None, Quotas] = {None: self._quotas}
        if self._block is None:
            each.update(self._models)
        return {model: quotas.snapshot(now_ns) for model, quotas in each.items() if quotas.restricts}

    def quotas(self, model: str) -> Quotas:
        """What calls of a model count against."""
        if self._block is not None:
            return self._quotas
        known = self._models.get(model)
        if known is None:
            if len(self._models) >= MODELS_MAX:
                return self._quotas
            known = self._models[model] = Quotas(self.parts)
        return known
