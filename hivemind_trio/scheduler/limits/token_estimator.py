"""Token estimator: usage of a call from earlier calls of its client and model at this provider."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

import attrs

from hivemind_trio.dialects import DIALECTS
from hivemind_trio.model import Api, Dimension, Request, Usage
from hivemind_trio.scheduler.protocol.beliefs import ModelBelief

from .cost import Cost

WEIGHT: Final = 0.1
"""Weight of a new sample in the running means."""

OUTPUT_UNKNOWN: Final = 1_024
"""Tokens of output, until a model has shown what it does; or what the request allows, if that is less."""

OUTPUT_MARGIN: Final = 1.3
"""Over the mean: more than half of the answers should take less than was thought."""

MODELS_MAX: Final = 256
"""Pairs of client and model remembered for one provider: models are the callers' words."""


@final
@attrs.define
class _Learned:
    counted_scale: float = 1.0
    """Input tokens counted by the provider for each that was counted before; begins anew with each process."""
    scale: float = 1.0
    """Input tokens counted by the provider for each that we estimate from bytes."""
    output: float | None = None
    """Mean of the output."""
    expected: int = OUTPUT_UNKNOWN
    """Expected output of the next call; kept, because every call asks several times."""

    def input_of(self, request: Request) -> int:
        """Return the expected input of a call."""
        if request.tokens_counted:
            return int(request.tokens_counted * self.counted_scale)
        return int(request.tokens_in * self.scale)


_UNSEEN: Final = _Learned()
"""Estimate without samples."""


@final
@attrs.define(eq=False)
class TokenEstimator:
    """One provider's."""

    models: dict[tuple[str, str], _Learned] = attrs.field(factory=dict, init=False)
    """By client and model: a client's tools and instructions are a good part of what its calls hold."""

    def beliefs(self) -> tuple[ModelBelief, ...]:
        """Return what is learned, to be kept."""
        return tuple(
            ModelBelief(client=client, model=model, scale=learned.scale, output=learned.output)
            for (client, model), learned in self.models.items()
            if learned.output is not None
        )

    def restore(self, beliefs: Iterable[ModelBelief]) -> None:
        """Begin with what an earlier process learned, as far as it is new to this one."""
        for one in beliefs:
            if (one.client, one.model) not in self.models and len(self.models) < MODELS_MAX:
                learned = self.models[one.client, one.model] = _Learned(
                    scale=min(4.0, max(0.05, one.scale)), output=max(0.0, one.output)
                )
                learned.expected = int(one.output * OUTPUT_MARGIN) + 1

    def cost(self, request: Request, api: Api) -> Cost:
        """Return the estimated cost of the call."""
        learned = self.models.get((request.client, request.model), _UNSEEN)
        tokens_in, output = learned.input_of(request), learned.expected
        if 0 < request.tokens_max_out < output:
            output = request.tokens_max_out
        cost = cost_of(tokens_in, output)
        on_arrival = DIALECTS[api].tokens_on_arrival
        if on_arrival is not None:
            cost[Dimension.TOKENS] = on_arrival(tokens_in, request.tokens_max_out or output)
        return cost

    def most(self, request: Request) -> Usage:
        """Return the most that the call may take, as far as known: `max_tokens` is a promise of the provider."""
        learned = self.models.get((request.client, request.model), _UNSEEN)
        return Usage(input=learned.input_of(request), output=request.tokens_max_out or learned.expected)

    def likely(self, request: Request) -> Usage:
        """Return the usage that calls like it have."""
        learned = self.models.get((request.client, request.model), _UNSEEN)
        output = learned.expected
        if request.tokens_max_out:
            output = min(output, request.tokens_max_out)
        return Usage(input=learned.input_of(request), output=output, exact=False)

    def settled(self, request: Request, api: Api, cost: Cost, usage: Usage) -> Cost:
        """Return the real cost of the call, as far as `usage` reports it.

        What the provider counted itself is learned from.
        """
        self.learn(request, api, usage)
        return actual_cost(api, cost, usage)

    def learn(self, request: Request, api: Api, usage: Usage) -> None:
        """Believe what the provider has counted itself."""
        tokens_in, tokens_out = counted(usage, api), usage.output
        if not usage.exact or tokens_in is None:
            return
        learned = self.models.get((request.client, request.model))
        if learned is None:
            if len(self.models) >= MODELS_MAX:
                self.models.clear()
            learned = self.models[request.client, request.model] = _Learned()
        if request.tokens_in:
            sample = tokens_in / request.tokens_in
            if not 0.05 <= sample <= 4.0:
                # One odd call, all cached or full of pictures, must not turn the estimate over.
                sample = min(4.0, max(0.05, sample))
            learned.scale += WEIGHT * (sample - learned.scale)
        if request.tokens_counted:
            sample = min(4.0, max(0.05, tokens_in / request.tokens_counted))
            learned.counted_scale += WEIGHT * (sample - learned.counted_scale)
        before = float(tokens_out) if learned.output is None else learned.output
        learned.output = before + WEIGHT * (tokens_out - before)
        learned.expected = int(learned.output * OUTPUT_MARGIN) + 1


def counted(usage: Usage, api: Api) -> int | None:
    """Input tokens that such a provider counts against its limits; None: it did not say how many it has read."""
    if usage.input is None:
        return None
    return usage.input + usage.cache_write + (usage.cache_read if DIALECTS[api].counts_cache_reads else 0)


def actual_cost(api: Api, cost: Cost, usage: Usage) -> Cost:
    """Return the cost that such a provider counts, where it was estimated so."""
    tokens_in = counted(usage, api)
    actual = cost_of(cost[Dimension.INPUT] if tokens_in is None else tokens_in, usage.output)
    if DIALECTS[api].tokens_on_arrival is not None:
        actual[Dimension.TOKENS] = cost[Dimension.TOKENS]
    return actual


def cost_of(tokens_in: int, tokens_out: int) -> Cost:
    """One request with so many tokens."""
    return {
        Dimension.REQUESTS: 1,
        Dimension.INPUT: tokens_in,
        Dimension.OUTPUT: tokens_out,
        Dimension.TOKENS: tokens_in + tokens_out,
    }
