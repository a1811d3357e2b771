"""Silence of providers: calls are sent, and none has got an answer for long.

A standstill is another thing: there no call is sent. Providers that hang, and those that refuse every call that tests
them, are silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import attrs

from hivemind_trio.scheduler import AttemptEnded, AttemptResult, CallId, Command, Event, Grant, ResponseStarted
from hivemind_trio.scheduler.protocol.attempt_result import HEALTHY

from .time_series import DOWN, RATE

SECOND_NS: Final = 1_000_000_000

LONG_NS: Final = 20 * SECOND_NS
"""Silence that is worth a word, at least."""
USUAL_TIMES: Final = 4
"""The same in times of the longest wait for an answer that there was before."""
FORGETS: Final = 0.98
"""The longest wait fades with each answer."""
UNKNOWN_NS: Final = 60 * SECOND_NS
"""The same where no answer has come yet."""
CALLS_MIN: Final = 3
"""Calls without an answer from which on it is: a single one may be long."""
IDLE_NS: Final = 60 * SECOND_NS
"""A provider that no call was sent to for so long is not silent, but not asked."""


@final
@attrs.define(eq=False)
class ProviderSilence:
    """Attempts at one provider since its last answer."""

    since_ns: int | None = None
    """The last answer, or the begin of the first attempt after it; None: there has been none since."""
    answers: int = 0
    """Number of all answers."""
    refused: int = 0
    failed: int = 0
    pending: dict[CallId, int] = attrs.field(factory=dict)
    """Attempt without an answer -> its begin."""
    usual_ns: int | None = None
    """Longest wait for an answer lately; None: there has been no answer."""
    _latest_ns: int = 0
    """Begin or end of the latest attempt."""

    def on_granted(self, call_id: CallId, now_ns: int) -> None:
        """Note the begin of an attempt."""
        if self.since_ns is None or (not self.pending and now_ns - self._latest_ns > IDLE_NS):
            self.since_ns, self.refused, self.failed = now_ns, 0, 0
        self.pending[call_id] = self._latest_ns = now_ns

    def on_answered(self, call_id: CallId, now_ns: int) -> None:
        """Note that its answer has begun, and is no error."""
        begun_ns = self.pending.pop(call_id, None)
        if begun_ns is not None:
            self.usual_ns = max(int((self.usual_ns or 0) * FORGETS), now_ns - begun_ns)
        self.answers += 1
        self.since_ns = now_ns if self.pending else None
        self.refused = self.failed = 0

    def on_ended(self, call_id: CallId, ended: AttemptResult, now_ns: int) -> None:
        """Note the end of an attempt."""
        if ended.outcome in HEALTHY:
            self.on_answered(call_id, now_ns)
            return
        if self.pending.pop(call_id, None) is None:
            return
        self._latest_ns = now_ns
        self.refused += ended.outcome in RATE
        self.failed += ended.outcome in DOWN

    def lasts_ns(self, waiting: int, now_ns: int) -> int | None:
        """Return how long it has lasted, if it is worth a word.

        Args:
            waiting: Calls that wait for the provider.
        """
        if self.since_ns is None or len(self.pending) + waiting < CALLS_MIN:
            return None
        if not self.pending and now_ns - self._latest_ns > IDLE_NS:
            return None
        least_ns = UNKNOWN_NS if self.usual_ns is None else max(LONG_NS, USUAL_TIMES * self.usual_ns)
        lasts_ns = now_ns - self.since_ns
        return lasts_ns if lasts_ns > least_ns else None


@final
@attrs.define(eq=False)
class Silences:
    """Told of every event of the scheduler; O(1) each."""

    of: dict[str, ProviderSilence] = attrs.field(factory=dict, init=False)
    """Provider or account -> its silence."""
    _at: dict[CallId, ProviderSilence] = attrs.field(factory=dict, init=False)

    def observe(self, now_ns: int, event: Event, commands: Sequence[Command]) -> None:
        """Note an event."""
        match event:
            case ResponseStarted(call_id=call_id, good=True) if (one := self._at.get(call_id)) is not None:
                one.on_answered(call_id, now_ns)
            case AttemptEnded(call_id=call_id, ended=ended) if (one := self._at.pop(call_id, None)) is not None:
                one.on_ended(call_id, ended, now_ns)
            case _:
                pass
        for command in commands:
            if isinstance(command, Grant) and command.permit is not None:
                one = self.of.setdefault(command.permit.provider, ProviderSilence())
                self._at[command.call_id] = one
                one.on_granted(command.call_id, now_ns)
