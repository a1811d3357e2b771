"""Window inference: the kind of a provider's window, from its headers.

Each kind explains an answer in its own way, and is wrong by a residual, a share of the window or of the limit:

- a bucket that refills: it is full again in `(depth - remaining) / limit` of a window, and how deep it is, the whole
  limit or less, is always the same;
- a fixed window: it ends at the same instant, whichever answer tells of it, or whole windows later;
- a sliding one: what remains is the limit without what we have taken within one window.

The kind whose median residual is small, and three times smaller than that of any other, is believed. Until there is
one, what is granted has to pass all three.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Final, NamedTuple, final

import attrs

from hivemind_trio.model import QuotaReading
from hivemind_trio.policy import Window

SAMPLES: Final = 20
"""Before that nothing is believed."""
KEPT: Final = 32
SPACING: Final = 64
"""At most so many samples in one window. Of answers that come all at once every kind says the same."""
BETTER: Final = 3.0
EXPLAINED: Final = 0.03
"""A larger residual explains nothing: two seconds of a minute."""
RESOLUTION: Final = 0.005
"""A smaller residual is as good as none. Headers tell of whole seconds, and take their time to arrive."""


class _HeaderSample(NamedTuple):
    used: float
    """Used share of the limit."""
    depth: float
    """Depth of the bucket, if it is one, as a share of the limit."""
    ends_ns: int
    back: float
    """Share of the limit that we took within the last window and that is no longer used. Less than nothing:
    others use it."""


@final
@attrs.define(eq=False)
class WindowClassifier:
    """Classifier of one window of a known length."""

    kind: Window = attrs.field(default=Window.LEARN, init=False)
    """`LEARN`: it could be any."""
    depth: float = attrs.field(default=1.0, init=False)
    """Depth of a full bucket, as a share of the limit."""
    _samples: deque[_HeaderSample] = attrs.field(factory=lambda: deque(maxlen=KEPT), init=False)
    _next_ns: int = attrs.field(default=0, init=False)

    @property
    def known(self) -> bool:
        """True if there are enough samples to tell."""
        return len(self._samples) >= SAMPLES

    def hint(self, kind: Window, depth: float) -> None:
        """Take what an earlier process found, until samples say otherwise."""
        if not self.known:
            self.kind, self.depth = kind, depth

    def on_headers(self, reading: QuotaReading, window_ns: int, seen: int, now_ns: int) -> None:
        """Take one answer into account. What tells neither limit nor end is no sample.

        Args:
            seen: What we had taken within the last window when the provider answered.
        """
        if reading.limit is None or reading.remaining is None or now_ns < self._next_ns:
            return
        resets_ns = reading.resets_ns
        if resets_ns is None:
            if reading.remaining + reading.rounding < reading.limit:
                return
            resets_ns = 0  # it is whole
        self._next_ns = now_ns + window_ns // SPACING
        used = (reading.limit - reading.remaining) / reading.limit
        self._samples.append(
            _HeaderSample(
                used=used,
                depth=resets_ns / window_ns + 1 - used,
                ends_ns=now_ns + resets_ns,
                back=min(1.0, seen / reading.limit) - used,
            )
        )
        if self.known:
            self._judge(window_ns)

    def _judge(self, window_ns: int) -> None:
        # Ends on a circle of one window, as seen from the last one: -1/2 to 1/2 of it.
        anchor_ns = self._samples[-1].ends_ns
        ends = [(sample.ends_ns - anchor_ns + window_ns // 2) % window_ns / window_ns - 0.5 for sample in self._samples]
        depths = [sample.depth for sample in self._samples]
        residuals = {
            # None is deeper than its limit: where calls age out one by one, a depth of more is constant, too.
            Window.BUCKET: _scattered(depths, min(1.0, median(depths))),
            Window.FIXED: _scattered(ends, median(ends)),
            Window.SLIDING: median(abs(sample.back) for sample in self._samples),
        }
        # While what is left hardly changes, that it hardly changes is all that these two explain; unless much has come
        # back meanwhile of what we had taken, as it does in a bucket alone.
        used = [sample.used for sample in self._samples]
        changed = _scattered(used, median(used))
        shown = {Window.BUCKET: max(changed, median(sample.back for sample in self._samples)), Window.SLIDING: changed}
        for kind, much in shown.items():
            if max(residuals[kind] * BETTER, RESOLUTION) > much:
                residuals[kind] = 1.0
        first, second = sorted(residuals, key=lambda kind: residuals[kind])[:2]
        if residuals[first] <= EXPLAINED and max(residuals[first], RESOLUTION) * BETTER <= residuals[second]:
            self.kind = first
        if self.kind is Window.BUCKET:
            self.depth = min(1.0, median(depths))


def _scattered(values: list[float], middle: float) -> float:
    """Return the median distance from where they should be."""
    return median(abs(value - middle) for value in values)
