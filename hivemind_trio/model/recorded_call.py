"""Recorded calls: values read from a journal, in a form that can be replayed."""

from __future__ import annotations

from typing import final

import attrs

from .outcome import Outcome
from .plan import PlanSpan
from .reason import Reason
from .request import Request
from .usage import Usage


@final
@attrs.frozen(kw_only=True)
class RecordedAttempt:
    """One try upstream. Times are in ns since the record began."""

    granted_ns: int
    waited_ns: int
    """For its turn, earlier attempts' included."""
    provider: str
    model: str
    """As it was sent."""
    ended_ns: int | None = None
    """None: it had not ended when the record did; neither is anything known of what follows."""
    outcome: Outcome | None = None
    status: int = 0
    """Status of the provider's answer; 0: there was none."""
    committed: bool = False
    """The agent has had something of it."""
    first_byte_ns: int | None = None
    """From the request; None: it is not known."""
    usage: Usage | None = None


@final
@attrs.frozen(kw_only=True)
class RecordedWindow:
    """One window of an account's plan, as the answer of a call told of it. Times are in ns since the record began."""

    provider: str
    of_key: bool
    """The account is that of the provider's key; else of the call's credential."""
    span: PlanSpan
    at_ns: int
    used: int
    """Used share, in millionths."""
    resets_ns: int | None = None
    """None: not told."""
    models: str = ""
    """Word of the models that it counts; empty: all."""


@final
@attrs.frozen(kw_only=True)
class RecordedCall:
    """One call, from its arrival to its end, as far as the record goes."""

    arrived_ns: int
    """Since the record began."""
    request: Request
    """As the policy saw it, without whatever could be a credential."""
    caller: str
    agent: str = ""
    """As the policy of then told it apart; empty: it was turned away before that."""
    job: str = ""
    prefix: str = ""
    credential: str = ""
    """Tells credentials of one record apart, and is none."""
    again: str = ""
    """Equal where a client has sent the same call once more."""
    needs_slot: bool = True
    attempts: tuple[RecordedAttempt, ...] = ()
    plan: tuple[RecordedWindow, ...] = ()
    """Windows of its account, if its answer told news of them."""
    refused: Reason | None = None
    """Why it was turned away; None: it was not."""
    status: int | None = None
    """Status that the agent got; 0: it disconnected before; None: the record ends before the call."""
    ended_ns: int | None = None
    """When its agent had all of that; None: as above."""
