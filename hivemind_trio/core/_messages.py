"""What happened, and what to do about it: the whole conversation between the engine and the scheduler."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias, final

import attrs

from hivemind_trio.model import Reason, Treatment
from hivemind_trio.policy import Program

from ._call import Call, CallId


class Outcome(StrEnum):
    """What an attempt says about its provider."""

    SUCCEEDED = "succeeded"
    IGNORED = "ignored"
    """Nothing: the agent hung up, or the request itself was wrong."""
    DROPPED = "dropped"
    """The provider refused it for load, or failed."""


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
class AttemptEnded:
    """The upstream exchange is over and its permit can be given to someone else."""

    call_id: CallId
    outcome: Outcome


@final
@attrs.frozen
class PolicyLoaded:
    """From now on this program holds. What is in flight keeps what it has; what waits is classified anew."""

    program: Program


@final
@attrs.frozen
class Draining:
    """No new work: waiting and arriving calls are refused, attempts in flight go on."""


@final
@attrs.frozen
class TimePassed:
    """The wake-up that was asked for."""


Event: TypeAlias = CallArrived | CallCancelled | AttemptEnded | PolicyLoaded | Draining | TimePassed


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
    """Which of the two: a caller that merely calls itself what an agent is called shares no cap with it."""


@final
@attrs.frozen(kw_only=True)
class Grant:
    """Start an attempt now."""

    call_id: CallId
    treatment: Treatment
    permit: Permit | None
    """None: it needs no slot, and no `AttemptEnded` is expected."""
    waited_ns: int
    reason: Reason
    """What it waited for last, as far as is known without following every waiter; `NONE` if it did not wait."""


@final
@attrs.frozen(kw_only=True)
class Refuse:
    """Answer the agent with a refusal; the call is over."""

    call_id: CallId
    treatment: Treatment | None
    reason: Reason
    waited_ns: int
    message: str
    """For the agent: which limit, and what would help."""
    retry_after_ns: int | None
    """When it is worth coming back; None: never, as it stands."""


Command: TypeAlias = Grant | Refuse
