"""Calls as a test thinks of them: what the engine and the door would say of each, and what should be read of it."""

from __future__ import annotations

import attrs

from hivemind_trio.model import Decision, Outcome, Reason, RecordedAttempt, RecordedCall, Request, Usage, Verdict
from hivemind_trio.policy import Failure
from hivemind_trio.proxy import CallRecord
from hivemind_trio.scheduler import (
    AttemptEnded,
    AttemptResult,
    Call,
    CallArrived,
    CallCancelled,
    CallId,
    Grant,
    Permit,
    Reject,
)
from hivemind_trio.store import Journal

MS = 1_000_000


CALL = RecordedCall(
    arrived_ns=0,
    request=Request(model="claude-x", headers={"user-agent": "claude-cli/2"}, tokens_in=900),
    caller="me@1234",
    agent="ci",
    again="a1",
    attempts=(
        RecordedAttempt(
            granted_ns=5 * MS,
            waited_ns=5 * MS,
            provider="anthropic",
            model="claude-x",
            ended_ns=105 * MS,
            outcome=Outcome.SUCCEEDED,
            status=200,
            committed=True,
            first_byte_ns=40 * MS,
            usage=Usage(input=900, output=70),
        ),
    ),
    status=200,
    ended_ns=106 * MS,
)


TWICE = attrs.evolve(
    CALL,
    attempts=(
        RecordedAttempt(
            granted_ns=MS,
            waited_ns=MS,
            provider="anthropic",
            model="claude-x",
            ended_ns=3 * MS,
            outcome=Outcome.OVERLOADED,
            status=529,
        ),
        *CALL.attempts,
    ),
)


def moved(call: RecordedCall, by_ns: int) -> RecordedCall:
    assert call.ended_ns is not None
    return attrs.evolve(
        call,
        arrived_ns=call.arrived_ns + by_ns,
        attempts=tuple(
            attrs.evolve(each, granted_ns=each.granted_ns + by_ns, ended_ns=(each.ended_ns or 0) + by_ns)
            for each in call.attempts
        ),
        ended_ns=call.ended_ns + by_ns,
    )


def treated(*, agent: str = "unknown", provider: str = "anthropic", model: str | None = None) -> Decision:
    return Decision(
        agent=agent,
        team="none",
        provider=provider,
        group=None,
        lane="default",
        priority=0,
        deadline_ns=None,
        retry=None,
        verdict=Verdict.ALLOW,
        model=model,
    )


def answered(call: RecordedCall, number: int | None) -> CallRecord:
    """What the door keeps of it."""
    assert call.status is not None
    return CallRecord(
        id=f"boot-{number}",
        number=None if number is None else CallId(number),
        agent=call.agent or "unknown",
        caller=call.caller,
        provider=None,
        instead_of=None,
        lane=None,
        model=call.request.model,
        sent_model=None,
        tags=(),
        method=call.request.method,
        path=call.request.path,
        status=call.status,
        rejected=call.refused is not None,
        reason=call.refused or Reason.NONE,
        upstream_error=None,
        upstream_detail=None,
        waited_ms=0,
        duration_ms=0,
        attempts=len(call.attempts),
        bytes_out=0,
        usage=None,
    )


def tell(journal: Journal, call: RecordedCall, number: int, *, failure: Failure | None = None) -> None:
    """Tell a journal of a call as it went; times are the engine's."""
    call_id = CallId(number)
    arriving = Call(
        id=call_id,
        request=call.request,
        caller=call.caller,
        credential=call.credential,
        prefix=call.prefix,
        job=call.job,
        again=call.again,
        needs_slot=call.needs_slot,
    )
    journal.record(call.arrived_ns, CallArrived(arriving), ())
    for place, attempt in enumerate(call.attempts, start=1):
        model = attempt.model if attempt.model != call.request.model else None
        treatment = treated(agent=call.agent, provider=attempt.provider, model=model)
        permit = Permit(
            call_id=call_id, provider=attempt.provider, group=None, lane="default", agent=call.agent, declared=False
        )
        grant = Grant(
            call_id=call_id,
            treatment=treatment,
            permit=permit,
            waited_ns=attempt.waited_ns,
            reason=Reason.NONE,
            attempt=place,
        )
        # Somebody else's event lets it go.
        journal.record(attempt.granted_ns, CallCancelled(CallId(0)), (grant,))
        if attempt.ended_ns is not None:
            assert attempt.outcome is not None
            ended = AttemptResult(
                outcome=attempt.outcome,
                status=attempt.status,
                failure=failure,
                committed=attempt.committed,
                first_byte_ns=attempt.first_byte_ns,
                usage=attempt.usage,
            )
            journal.record(attempt.ended_ns, AttemptEnded(call_id, ended), ())
    last_ns = max([call.arrived_ns, *(each.ended_ns or each.granted_ns for each in call.attempts)])
    if call.refused is not None:
        refuse = Reject(
            call_id=call_id,
            treatment=treated(agent=call.agent) if call.agent else None,
            reason=call.refused,
            waited_ns=0,
            message="no",
            retry_after_ns=None,
        )
        journal.record(last_ns, CallCancelled(CallId(0)), (refuse,))
    if call.ended_ns is not None:
        journal.over(call.ended_ns, answered(call, number))
