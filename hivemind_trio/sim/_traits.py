"""What kind of provider is simulated."""

from __future__ import annotations

from typing import Final, final

import attrs

from ._bucket import Dimension, Quota

MS: Final = 1_000_000


@final
@attrs.frozen(kw_only=True)
class Traits:
    """What kind of provider it is. The defaults are replay-11's of the HiveMind paper: 120 ± 60 ms, 150 ± 50 tokens.

    All times are since the provider was first asked. Without the last two groups it never fails.
    """

    latency_mean_ns: int = 120 * MS
    latency_sigma_ns: int = 60 * MS
    latency_min_ns: int = 10 * MS
    """Latency is from the request to the last byte, drawn from a normal distribution cut off here."""
    tokens_out_mean: int = 150
    tokens_out_sigma: int = 50
    tokens_out_min: int = 10
    first_byte: float = 0.25
    """The part of the latency after which a streamed answer begins."""
    tokens_per_event: int = 10
    """How many tokens one streamed event carries."""

    concurrency: int | None = None
    """Requests at once; one more is refused with 529. None: no cap."""
    requests: Quota | None = None
    """What is beyond it is refused with 429, as with the next two. None: unlimited."""
    input: Quota | None = None
    """Tokens of prompts, known when a request arrives."""
    output: Quota | None = None
    """Tokens as they are generated: a request is let in while anything is left, and may then take more than there
    was."""

    bad_gateways: float = 0.0
    """The share of requests that a gateway in front answers with 502."""
    resets: float = 0.0
    """The share of requests whose connection is reset before the answer."""
    breaks: float = 0.0
    """The share of streamed answers whose connection is reset between their first event and their last."""
    outages: tuple[tuple[int, int], ...] = ()
    """From and to, in ns: whatever arrives in between is refused with 503."""

    def __attrs_post_init__(self) -> None:
        shares = (self.bad_gateways, self.resets, self.breaks)
        assert min(shares) >= 0, shares
        assert max(self.bad_gateways + self.resets, self.breaks) <= 1, f"shares of one whole: {shares}"

    @property
    def quotas(self) -> dict[Dimension, Quota]:
        """The dimensions that are limited."""
        by = {Dimension.REQUESTS: self.requests, Dimension.INPUT: self.input, Dimension.OUTPUT: self.output}
        return {dimension: quota for dimension, quota in by.items() if quota is not None}
