"""Expected duration of an answer by its length: a time for every answer, and one for each token of output.

Answers of one provider differ in length by a factor of ten and more, and so do their durations. Divided by what their
length explains, a handful of them tells how fast the provider is (in statistics, adjustment for a covariate). The two
times are fitted by least squares of the relative error, so that a long answer counts no more than a short one.
"""

from __future__ import annotations

from typing import Final, final

import attrs

FORGET: Final = 1 / 256
"""Share of what is known that each answer takes the place of."""


@final
@attrs.define(eq=False)
class AnswerDuration:
    """Sums of the normal equations for `1 = (fixed + per_token * tokens) / duration`."""

    _fixed: float = attrs.field(default=0.0, init=False)
    """Sum of 1/d², where d is a duration."""
    _both: float = attrs.field(default=0.0, init=False)
    """Sum of t/d², where t are the tokens."""
    _token: float = attrs.field(default=0.0, init=False)
    """Sum of t²/d²."""
    _fixed_one: float = attrs.field(default=0.0, init=False)
    """Sum of 1/d."""
    _token_one: float = attrs.field(default=0.0, init=False)
    """Sum of t/d."""

    @property
    def is_known(self) -> bool:
        """True if there has been an answer."""
        return self._fixed > 0

    def add(self, tokens: int, lasted_ns: float) -> None:
        """Learn from an answer."""
        fixed = 1 / max(1.0, lasted_ns)
        token = tokens * fixed
        keep = 1 - FORGET
        self._fixed = keep * self._fixed + fixed * fixed
        self._both = keep * self._both + fixed * token
        self._token = keep * self._token + token * token
        self._fixed_one = keep * self._fixed_one + fixed
        self._token_one = keep * self._token_one + token

    def fit(self) -> tuple[float, float]:
        """Return the time of every answer and that of a token, in nanoseconds; neither is negative."""
        alone = self._fixed_one / self._fixed if self._fixed else 1.0
        determinant = self._fixed * self._token - self._both * self._both
        if determinant <= 1e-9 * self._fixed * self._token:
            return alone, 0.0  # all answers are of one length
        fixed = (self._fixed_one * self._token - self._token_one * self._both) / determinant
        per_token = (self._token_one * self._fixed - self._fixed_one * self._both) / determinant
        if per_token <= 0:
            return alone, 0.0
        if fixed <= 0:
            return 0.0, self._token_one / self._token
        return fixed, per_token
