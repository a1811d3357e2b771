"""Attempts that end as they are told to, and retries that come on the second."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import trio

from hivemind_trio.model import Outcome
from hivemind_trio.policy import Failure, Jitter, RetrySettings
from hivemind_trio.scheduler import AttemptResult
from tests.support.programs import SECOND_NS

OVERLOADED: Final = AttemptResult(outcome=Outcome.OVERLOADED, status=529)
BROKEN: Final = AttemptResult(outcome=Outcome.FAILED, status=500)
RESET: Final = AttemptResult(outcome=Outcome.FAILED, failure=Failure.RESET)
IN_TEN_SECONDS: Final = attrs.evolve(OVERLOADED, retry_after_ns=10 * SECOND_NS)

PUNCTUAL: Final = RetrySettings(attempts=4, first_ns=SECOND_NS, last_ns=4 * SECOND_NS, jitter=Jitter.NONE)
"""Rests one second, then two, then four."""


def ends(ended: AttemptResult, after_s: float = 0.0) -> Callable[[], Awaitable[AttemptResult]]:
    """An attempt that takes so long and ends so."""

    async def attempt() -> AttemptResult:
        await trio.sleep(after_s)
        return ended

    return attempt
