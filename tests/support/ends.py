"""How attempts end, for tests to which it is all one."""

from __future__ import annotations

from hivemind_trio.model import Outcome
from hivemind_trio.scheduler import AttemptResult

SUCCEEDED = AttemptResult(outcome=Outcome.SUCCEEDED, status=200, committed=True)
IGNORED = AttemptResult(outcome=Outcome.IGNORED, committed=True)
ENDS = (SUCCEEDED, IGNORED)
"""Of which the agent has had something, and after which a provider is thought of as before."""
