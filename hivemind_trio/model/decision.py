"""The policy's decision about one call, and the declarations that made it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import final

import attrs


class Verdict(StrEnum):
    """The values of one setting, so that an earlier `allow` exempts from a later `hold` or `deny`."""

    ALLOW = "allow"
    HOLD = "hold"
    """The call waits until another verdict holds for it."""
    DENY = "deny"


@final
@attrs.frozen
class Decider:
    """Declaration that decided a setting, and its place."""

    kind: str
    """`rule`, `agent`, `team`, `lane`, `budget`, `operator`, `defaults` or `built-in`."""
    name: str
    at: str
    """`team.hmp:61`; empty for the built-in."""

    def __str__(self) -> str:
        if not self.at:
            return self.kind
        return f"{self.kind} {self.name} ({self.at})" if self.name else f"{self.kind} ({self.at})"


@final
@attrs.frozen(kw_only=True)
class Decision:
    """The outcome of the rules for one call. Cheap to make: one per call, and one per waiting call at a reload."""

    agent: str
    """A declared agent, or `unknown`."""
    team: str
    """A declared team, or `none`."""
    provider: str | None
    """None: no declared provider serves this call."""
    account: str | None = None
    """The account whose key it is sent with, where that shares the limits of `provider`; None: that of `provider`."""
    group: str | None
    """The glob of the provider's `limits` block that the model falls under; None: the block without a glob, or none."""
    lane: str
    priority: int
    deadline_ns: int | None
    """Longest wait in the queue; None: as long as the client waits."""
    retry: str | None
    """The retry class; None: the provider's."""
    verdict: Verdict
    affinity_ns: int | None = None
    """Time for which calls of a loaded model may pass it; None: it takes its turn."""
    max_output: int | None = None
    """Output tokens that the call may ask for at most; None: as many as it does."""
    message: str = ""
    """The rule's words, where the verdict is hold or deny."""
    model: str | None = None
    """Model that the call is sent with instead of the requested one; None: the requested one."""
    instead_of: str | None = None
    """The provider that it would go to, were that not down; None: it goes where it should."""
    tags: tuple[str, ...] = ()
    """Words for the log, of every rule that matched."""
    warnings: tuple[str, ...] = ()
    """Words for the agent, of every rule that matched."""
    budgets: tuple[str, ...] = ()
    """The budgets that its cost counts against."""
    budget_warnings: tuple[str, ...] = ()
    """Budgets that are nearly used up."""
    decided: Mapping[str, Decider] = attrs.field(factory=dict)
    """Setting -> who decided it; shared between calls that were decided alike."""

    def output_limit(self, tokens_thinking: int) -> int | None:
        """Return the output tokens that the call is to ask for at most; None: what it asks for stays.

        A provider rejects a limit that does not exceed the budget of thinking.
        """
        return None if self.max_output is None else max(self.max_output, tokens_thinking + 1)

    @property
    def sender(self) -> str | None:
        """Provider or account that the call is sent to: whose key it has. None: it is sent nowhere."""
        return self.account or self.provider

    @property
    def is_allowed_by_rule(self) -> bool:
        """True if a rule says `allow`, which administering a provider's account needs."""
        decider = self.decided.get("verdict")
        return self.verdict is Verdict.ALLOW and decider is not None and decider.kind == "rule"
