"""Events of the scheduler: everything that the engine tells it."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias, final

import attrs

from hivemind_trio.model import Decision, Moment, Outcome, PlanReading, QuotaReading, Reason
from hivemind_trio.policy import Program, Timeouts
from hivemind_trio.scheduler.learning.messages import (
    AskLearning,
    LearnAnswered,
    LearnCalled,
    LearningShared,
    LearnUnanswered,
)
from hivemind_trio.scheduler.sharing.window_draw import DrawWindow, WindowAnswered, WindowsShared, WindowUnanswered

from .attempt_result import AttemptResult
from .beliefs import BeliefsRestored
from .budget_draw import AskBudgets, BudgetsAnswered, BudgetsCalled, BudgetsShared, BudgetsUnanswered
from .call import Call, CallId
from .circuit import Circuit
from .ledger import (
    Correction,
    CreditDrawn,
    Draw,
    LedgerOpened,
    LedgerWritable,
    Parts,
    Spend,
    SpendingSet,
)
from .plan import PlanChanged

# ---- events ----


@final
@attrs.frozen
class CallArrived:
    """An agent's request is complete."""

    call: Call


@final
@attrs.frozen
class CallCancelled:
    """The agent hung up, or its task was cancelled, while it waited. Allowed at any time; unknown ids are ignored."""

    call_id: CallId


@final
@attrs.frozen
class ResponseStarted:
    """The head of an attempt's answer is there, good or bad, and tells of quotas and of the account's plan."""

    call_id: CallId
    readings: tuple[QuotaReading, ...]
    good: bool = True
    """True if it is no error: the provider has read the prompt."""
    plan: PlanReading | None = None
    """None: it tells of no plan."""


@final
@attrs.frozen
class StreamsReceived:
    """Streams have received bytes since the last such event; about two a second while any does."""

    received: dict[CallId, int]
    """Bytes of each call that received any. Calls that are not in flight are ignored."""


@final
@attrs.frozen
class AttemptEnded:
    """The upstream exchange is over and its permit can be given to someone else.

    Where the agent has had nothing of the answer yet, the scheduler says what becomes of the call: `Finish`, or nothing
    now, and another `Grant` (or a `Reject`) later.
    """

    call_id: CallId
    ended: AttemptResult


@final
@attrs.frozen
class PolicyLoaded:
    """From now on this program holds. What is in flight keeps what it has; what waits is classified anew."""

    program: Program


@final
@attrs.frozen
class Draining:
    """No new work: waiting and arriving calls are refused, attempts in flight go on."""


class Pausable(StrEnum):
    """Kind of what an operator can pause."""

    PROVIDER = "provider"
    LANE = "lane"
    AGENT = "agent"
    """Declared, or a caller by the name that it is known by."""


@final
@attrs.frozen
class PauseSet:
    """An operator holds back the calls of a provider, lane or agent, or no longer. Attempts in flight go on."""

    kind: Pausable
    name: str
    paused: bool


@final
@attrs.frozen
class PrioritySet:
    """A waiting call has another priority than the policy's. Unknown ids are ignored."""

    call_id: CallId
    priority: int
    by: str = "operator"
    """`operator`, or `agent`: it has asked for it itself."""


@final
@attrs.frozen
class LetThrough:
    """An operator lets a waiting call go next at its provider, past the limits of lanes and agents and past its turn.

    Everything of the provider's still holds, and so do budgets and pauses. It is for one attempt. Unknown ids are
    ignored.
    """

    call_id: CallId


@final
@attrs.frozen
class SharesSet:
    """Slots of each provider that this node may use of those that several nodes share.

    From the first one on, a provider that it does not name has none. Attempts in flight beyond a share go on.
    """

    shares: dict[str, int]
    """Provider -> slots."""
    until_ns: int | None = None
    """When they end, though nobody says so: a process that was stopped has been given away. None: never."""
    then: dict[str, int] = attrs.field(factory=dict)
    """Provider -> slots from then on, no more than before."""


@final
@attrs.frozen
class TimePassed:
    """The wake-up that was asked for."""

    moment: Moment | None = None
    """Local time of now; None: no rule that holds calls reads it."""


Event: TypeAlias = (
    CallArrived
    | CallCancelled
    | ResponseStarted
    | StreamsReceived
    | AttemptEnded
    | PolicyLoaded
    | Draining
    | PauseSet
    | PrioritySet
    | LetThrough
    | SharesSet
    | TimePassed
    | LedgerOpened
    | CreditDrawn
    | LedgerWritable
    | SpendingSet
    | BeliefsRestored
    | WindowsShared
    | WindowAnswered
    | WindowUnanswered
    | BudgetsShared
    | BudgetsAnswered
    | BudgetsUnanswered
    | BudgetsCalled
    | LearningShared
    | LearnAnswered
    | LearnUnanswered
    | LearnCalled
)


# ---- commands ----


@final
@attrs.frozen(kw_only=True)
class Permit:
    """The right to one attempt in flight, by the names of what it was taken from. Held until `AttemptEnded`."""

    call_id: CallId
    provider: str
    group: str | None
    lane: str
    agent: str
    """The declared agent, or the caller."""
    declared: bool
    """True if the agent is declared: a caller that only claims its name shares no limit with it."""
    beyond: bool = False
    """True if an operator let it go beyond the limits of lane and agent."""


@final
@attrs.frozen(kw_only=True)
class Grant:
    """Start an attempt now."""

    call_id: CallId
    treatment: Decision
    permit: Permit | None
    """None: it needs no slot, and no `AttemptEnded` is expected."""
    waited_ns: int
    """In all, without the time that earlier attempts took."""
    reason: Reason
    """Limit that blocked it last, as far as known; `NONE` if it did not wait."""
    attempt: int = 1
    """1 for the first."""
    timeouts: Timeouts | None = None
    """The bounds of the attempt; None: the provider's."""
    claims: Parts = ()
    """Amounts that the call has put aside in accounts of the ledger, the most that it may take."""


@final
@attrs.frozen(kw_only=True)
class Reject:
    """Answer the agent with a refusal; the call is over."""

    call_id: CallId
    treatment: Decision | None
    reason: Reason
    waited_ns: int
    message: str
    """For the agent: which limit, and what would help."""
    retry_after_ns: int | None
    """When it is worth coming back; None: never, as it stands."""


class Unretried(StrEnum):
    """Reason for which the last attempt of a call was not followed by another one."""

    CLASS = "class"
    """The retry class does not list the failure."""
    ATTEMPTS = "attempts"
    """The retry class allows no further attempt."""
    RETRY_AFTER = "retry-after"
    """The provider's word is longer than the retry class waits for."""
    DEADLINE = "deadline"
    """The next attempt would begin after the deadline of the call."""
    BUDGET = "retry-budget"
    """The retry budget of the provider is used up."""


@final
@attrs.frozen
class Finish:
    """The attempt that has ended was the last: the agent is given what came of it, good or bad. The call is over."""

    call_id: CallId
    unretried: Unretried | None = attrs.field(default=None, eq=False, repr=False)
    """Why a failed attempt is not followed by another; None: it did not fail. It tells, and decides nothing."""


@final
@attrs.frozen(kw_only=True)
class LimitChanged:
    """For the operator, and for whoever keeps a provider's slots: what it is trusted with has changed. No call's."""

    provider: str
    limit: int
    """Slots, from now on."""
    circuit: Circuit
    because: Outcome | None
    """Outcome that caused the change, `SUCCEEDED` also for what streams receive; None: time, or a new policy."""


Command: TypeAlias = (
    Grant
    | Reject
    | Finish
    | LimitChanged
    | PlanChanged
    | Draw
    | Spend
    | Correction
    | DrawWindow
    | AskBudgets
    | AskLearning
)
