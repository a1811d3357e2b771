"""Access record of a call that is over: no body, no query, no credential."""

from __future__ import annotations

from typing import final

import attrs

from hivemind_trio.model import Reason, Usage
from hivemind_trio.policy import UNKNOWN_AGENT
from hivemind_trio.scheduler import CallId


@final
@attrs.frozen(kw_only=True)
class CallRecord:
    """One call, for the log."""

    id: str
    """As in `x-hivemind-call`."""
    number: CallId | None = None
    """As the scheduler knows it; None: it was turned away before that."""
    agent: str = UNKNOWN_AGENT
    caller: str = ""
    claimed: str = ""
    """Name that the caller gives itself in the URL or a header."""
    job: str = ""
    """Unit of work that the call belongs to: `x-hivemind-job`, or the client's session."""
    provider: str | None = None
    account: str | None = None
    """Account whose key it was sent with, where that shares the limits of `provider`."""
    instead_of: str | None = None
    """The provider that it should have gone to, which is down; None: it went where it should."""
    team: str | None = None
    """None: none was decided."""
    lane: str | None = None
    model: str = ""
    """As asked for."""
    sent_model: str | None = None
    """The one that the policy sent it with instead; None: none."""
    tags: tuple[str, ...] = ()
    """Words of the rules that matched."""
    method: str = ""
    path: str = ""
    status: int
    """Status that the agent got; 0: it disconnected before an answer."""
    rejected: bool
    """The answer is ours, not the provider's."""
    reason: Reason
    """Reason of its wait or its rejection."""
    upstream_error: str | None = None
    """Error on the way to the provider."""
    upstream_detail: str | None = None
    """The same at length, for the operator alone."""
    upstream_cause: str | None = None
    """Why the provider could not be reached, in words; None: it could, or that is not known."""
    waited_ms: int = 0
    duration_ms: int = 0
    attempts: int = 0
    """Upstream; 0: none was begun."""
    bytes_out: int = 0
    usage: Usage | None = None
    """Usage of the answer; None: it reported none."""
    retry_after_s: int | None = None
    """Time until a retry, as the agent was told; None: it was told none."""

    @property
    def sender(self) -> str | None:
        """Provider or account that it was sent to; None: it was sent nowhere."""
        return self.account or self.provider
