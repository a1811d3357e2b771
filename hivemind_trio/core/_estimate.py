"""What a call will take, from what calls of its model have taken at this provider."""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.model import Request
from hivemind_trio.policy import Dimension

from ._quota import Cost

WEIGHT: Final = 0.1
"""Of a new sample in the running means."""

OUTPUT_UNKNOWN: Final = 1_024
"""Tokens of output, until a model has shown what it does; or what the request allows, if that is less."""

OUTPUT_MARGIN: Final = 1.3
"""Over the mean: more than half of the answers should take less than was thought."""

MODELS_MAX: Final = 256
"""Remembered for one provider: models are the callers' words."""


@final
@attrs.define
class _Learned:
    scale: float = 1.0
    """Input tokens counted by the provider for each that we estimate from bytes."""
    output: float | None = None
    """Mean of the output."""


@final
@attrs.define(eq=False)
class Estimates:
    """One provider's."""

    _models: dict[str, _Learned] = attrs.field(factory=dict, init=False)

    def cost(self, request: Request) -> Cost:
        """What the call is thought to take of each dimension."""
        learned = self._models.get(request.model, _Learned())
        output = OUTPUT_UNKNOWN if learned.output is None else int(learned.output * OUTPUT_MARGIN) + 1
        if request.tokens_max_out:
            output = min(output, request.tokens_max_out)
        return cost_of(int(request.tokens_in * learned.scale), output)

    def learn(self, request: Request, tokens_in: int, tokens_out: int) -> None:
        """What a call has taken, as its provider says."""
        learned = self._models.get(request.model)
        if learned is None:
            if len(self._models) >= MODELS_MAX:
                self._models.clear()
            learned = self._models[request.model] = _Learned()
        if request.tokens_in:
            # One odd call, all cached or full of pictures, must not turn the estimate over.
            sample = min(4.0, max(0.05, tokens_in / request.tokens_in))
            learned.scale += WEIGHT * (sample - learned.scale)
        learned.output = (
            float(tokens_out) if learned.output is None else (learned.output + WEIGHT * (tokens_out - learned.output))
        )


def cost_of(tokens_in: int, tokens_out: int) -> Cost:
    """One request with so many tokens."""
    return {
        Dimension.REQUESTS: 1,
        Dimension.INPUT: tokens_in,
        Dimension.OUTPUT: tokens_out,
        Dimension.TOKENS: tokens_in + tokens_out,
    }
