"""The attempt: from the permit to the last byte of the provider's answer. It never talks to the agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from email.utils import formatdate
from typing import Final, Protocol, final

import attrs

from hivemind_trio.model import Outcome, PlanReading, QuotaReading
from hivemind_trio.policy import Failure, Timeouts
from hivemind_trio.scheduler import AttemptResult
from hivemind_trio.upstream import NotSent, Upstream, UpstreamError, UpstreamErrorKind, UpstreamResponse
from hivemind_trio.wire import (
    StreamError,
    Text,
    UsageMeter,
    error_types,
    read_plan,
    read_ratelimits,
    read_signal,
    used_up,
)

from .progress_timer import Stopwatch
from .request.header_filter import Headers, for_agent
from .response_buffer import AgentStalled, Outbox

HELD_BYTES_MAX: Final = 64 * 1024
"""Bytes held while a retry is possible: an error's body, or a stream before its first content event."""

OF_A_STREAM: Final = frozenset({b"content-type", b"content-length", b"content-encoding", b"trailer"})
"""Headers of an event stream that do not hold for the error found in it."""

NO_CONTENT: Final = "truncated: the stream ended before any content"
NO_END: Final = "truncated: the stream ended without its closing event"

FAILURES: Final = {
    UpstreamErrorKind.CONNECT: (Outcome.UNREACHABLE, Failure.CONNECT),
    UpstreamErrorKind.TLS: (Outcome.UNREACHABLE, Failure.CONNECT),
    UpstreamErrorKind.RESET: (Outcome.FAILED, Failure.RESET),
    UpstreamErrorKind.PROTOCOL: (Outcome.FAILED, Failure.RESET),
    UpstreamErrorKind.TRUNCATED: (Outcome.FAILED, Failure.RESET),
    UpstreamErrorKind.FIRST_BYTE: (Outcome.FAILED, Failure.FIRST_BYTE),
    UpstreamErrorKind.IDLE: (Outcome.FAILED, Failure.IDLE),
    UpstreamErrorKind.TOTAL: (Outcome.FAILED, Failure.TIMEOUT),
}
"""Outcome of each kind of failure, and its name in a policy."""


UNSENT: Final = AttemptResult(outcome=Outcome.IGNORED, unsent=True)

UNCONNECTED: Final = frozenset({UpstreamErrorKind.CONNECT, UpstreamErrorKind.TLS})

FIRST_ATTEMPTS: Final = 3
"""Attempts at a provider that has never answered: it may be starting, beside the proxy."""

SLOW_CONNECT_NS: Final = 1_000_000_000
"""An attempt to reach it that takes longer is the last: then no packet comes back at all."""


@final
@attrs.frozen(kw_only=True)
class UpstreamRequest:
    """Request as it is sent upstream."""

    base: str
    method: str
    target: bytes
    headers: Headers = attrs.field(repr=False)
    body: Text = attrs.field(repr=False)
    timeouts: Timeouts
    version_in_base: bool = False
    """True if a version in the base URL is in place of that in the target."""
    metered: bool = True
    """True if its usage counts: it is a generation."""
    may_be_array: bool = False
    """True if its answer may be a stream in the form of a JSON array."""
    attempt: int = 1
    """Number of the attempt."""
    has_fallback: bool = False
    """Another provider takes its calls while this one is down."""
    slow_ns: int | None = None
    """A first byte that takes longer says that the provider has much to do; None: latency says nothing."""


class HeadListener(Protocol):
    """Listener of the head of an answer."""

    def __call__(self, readings: tuple[QuotaReading, ...], good: bool, plan: PlanReading | None = None, /) -> None:
        """Take the provider's quotas, whether the answer is a good one, and the account's plan."""


async def fetch(
    upstream: Upstream,
    outgoing: UpstreamRequest,
    outbox: Outbox,
    heard: HeadListener,
    may_send: Callable[[], bool] | None = None,
    received: Callable[[int], None] | None = None,
) -> AttemptResult:
    """Send the request and put the answer into the outbox, piece by piece.

    An error's answer is held whole, if it is short, and so is a stream until its first content event: the agent shall
    not see it if another attempt does better.

    Args:
        heard: Told at once what the head of the answer says of quotas and the plan, and whether it is a good one; again
            when a stream has its first content event, or a plain answer cannot be an error any more.
        may_send: Asked right before the request is written; None: it may be sent.
        received: Told the bytes of each piece of a stream; None: nobody wants to know.
    """
    watch = Stopwatch()
    status = 0
    try:
        async with upstream.send(
            base=outgoing.base,
            method=outgoing.method,
            target=outgoing.target,
            headers=outgoing.headers,
            body=outgoing.body,
            timeouts=outgoing.timeouts,
            may_send=may_send,
            version_in_base=outgoing.version_in_base,
        ) as response:
            status = response.status
            words = _words(response.headers)
            meter = _meter(words, outgoing.may_be_array) if outgoing.metered and status < 400 else None
            is_held = meter is not None and not meter.begun
            readings, plan = read_ratelimits(words), read_plan(words)
            is_good = status < 400 and (meter is None or not (is_held or meter.may_be_error))
            if readings or is_good or plan is not None:
                heard(readings, is_good, plan)
            if status >= 400 and await _held(response, outbox):
                return _of_error(status, outbox)
            outbox.meter = meter
            if meter is not None and is_held and (refused := await _opened(response, outbox, meter)) is not None:
                return refused
            watch.headed()
            if meter is not None and (refused := await _no_error(response, outbox, meter)) is not None:
                return refused
            if meter is not None and not is_good:
                heard((), True)
            if outbox.head is None:
                outbox.begin(status, for_agent(response.headers))
            await _pass_on(response, outbox, watch, received)
        if status >= 400:
            outbox.end(response.trailers)
            return attrs.evolve(_of_error(status, outbox), committed=True)
        return _over(response, outgoing, outbox, watch)
    except UpstreamError as error:
        ended = _failed(error, status, outbox, watch)
        return _never_reached(ended, error, upstream, outgoing, watch) or ended
    except NotSent:
        return UNSENT
    except AgentStalled:
        return left(outbox)
    finally:
        outbox.close()


async def _pass_on(
    response: UpstreamResponse, outbox: Outbox, watch: Stopwatch, received: Callable[[int], None] | None
) -> None:
    """Put the rest of an answer into the outbox, as fast as the agent takes it."""
    async for piece in response:
        watch.came()
        if received is not None:
            received(len(piece))
        if not outbox.put(piece):
            response.pause()
            await outbox.room()
            watch.resumed()
    watch.came()


def _never_reached(
    ended: AttemptResult, error: UpstreamError, upstream: Upstream, outgoing: UpstreamRequest, watch: Stopwatch
) -> AttemptResult | None:
    """Return the end of an attempt at a provider that cannot be reached for good; None: it may be reached yet."""
    if error.kind not in UNCONNECTED or outgoing.has_fallback:
        return None
    if upstream.has_reached(outgoing.base) and not error.certificate:
        return None
    # A mistake in the policy or the network, and no outage: the circuit is not to hold back what can be told now.
    last = error.certificate or outgoing.attempt >= FIRST_ATTEMPTS or watch.waited_ns >= SLOW_CONNECT_NS
    return attrs.evolve(ended, outcome=Outcome.IGNORED, final=last)


async def _opened(response: UpstreamResponse, outbox: Outbox, meter: UsageMeter) -> AttemptResult | None:
    """Hold a stream until its first content event; None: it is on its way to the agent.

    Return the end of the attempt if an error came first.

    Raises:
        UpstreamError: It ended without content, or without its first content in time.
    """
    outbox.expect(response.status, for_agent(response.headers))
    response.opening()
    refused = None
    async for piece in response:
        outbox.put(piece)
        refused = meter.refusal
        if meter.begun or refused is not None or outbox.head is not None or outbox.size > HELD_BYTES_MAX:
            break
    else:
        refused = meter.last_refusal()
        if refused is None and outbox.head is None and meter.unfinished:
            raise UpstreamError(UpstreamErrorKind.TRUNCATED, NO_CONTENT, sent=True)
    if refused is not None and outbox.head is None:
        return _refused(refused, response, outbox)
    meter.begin()
    response.opened()
    outbox.release()
    return None


async def _no_error(response: UpstreamResponse, outbox: Outbox, meter: UsageMeter) -> AttemptResult | None:
    """Hold a plain answer until its first bytes show that it is no error object; None: it is on its way to the agent.

    Return the end of the attempt if all of it is one: gateways whose own provider fails late say so in a 200.
    """
    if not meter.may_be_error:
        return None
    outbox.expect(response.status, for_agent(response.headers))
    async for piece in response:
        outbox.put(piece)
        if not meter.may_be_error or outbox.head is not None or outbox.size > HELD_BYTES_MAX:
            break
    else:
        refused = meter.whole_error()
        if refused is not None and outbox.head is None:
            return _refused(refused, response, outbox)
    outbox.release()
    return None


def _refused(refused: StreamError, response: UpstreamResponse, outbox: Outbox) -> AttemptResult:
    """Treat an error that came before any content as the plain answer with its status."""
    headers = [each for each in for_agent(response.headers) if each[0].lower() not in OF_A_STREAM]
    outbox.hold(refused.status, [*headers, (b"content-type", b"application/json")], refused.body)
    signal = refused.signal
    return AttemptResult(
        outcome=signal.outcome,
        status=refused.status,
        retry_after_ns=signal.retry_after_ns,
        by_reset=signal.by_reset,
        final=signal.final,
        error_types=error_types({}, refused.body),
    )


def _failed(error: UpstreamError, status: int, outbox: Outbox, watch: Stopwatch) -> AttemptResult:
    """End the attempt after a failure of the provider."""
    committed = outbox.head is not None
    outbox.fail(error)
    if unsayable(error):
        return AttemptResult(outcome=Outcome.IGNORED)
    outcome, failure = FAILURES[error.kind]
    # The agent is not charged for an attempt of which it has had nothing.
    usage = outbox.usage() if committed else None
    ended = AttemptResult(outcome=outcome, status=status, failure=failure, committed=committed, usage=usage)
    return _as_said(_given_up(ended, watch), outbox)


def _over(response: UpstreamResponse, outgoing: UpstreamRequest, outbox: Outbox, watch: Stopwatch) -> AttemptResult:
    """End the attempt after an answer that came to its end, if not to its closing event."""
    if outbox.meter is None or not outbox.meter.unfinished:
        outbox.end(response.trailers)
        return _whole(response.status, outgoing, outbox, watch)
    error = UpstreamError(UpstreamErrorKind.TRUNCATED, NO_END, sent=True)
    outbox.end(response.trailers, error)
    outcome, failure = FAILURES[error.kind]
    return AttemptResult(
        outcome=outcome,
        status=response.status,
        failure=failure,
        committed=True,
        usage=outbox.usage(),
        facts=outbox.facts(),
    )


def _whole(status: int, outgoing: UpstreamRequest, outbox: Outbox, watch: Stopwatch) -> AttemptResult:
    """Return the result of an answer that is no error and is complete."""
    assert watch.first_byte_ns is not None
    slow = outgoing.slow_ns is not None and watch.first_byte_ns > outgoing.slow_ns
    ended = AttemptResult(
        outcome=Outcome.SLOW if slow else Outcome.SUCCEEDED,
        status=status,
        committed=True,
        usage=outbox.usage(),
        facts=outbox.facts(),
        first_byte_ns=watch.first_byte_ns,
        silence_ns=watch.silence_ns,
    )
    return _as_said(ended, outbox)


def _given_up(ended: AttemptResult, watch: Stopwatch) -> AttemptResult:
    """Add the time waited to the result of an attempt that hung: evidence for the adaptive timeout."""
    if ended.status >= 400:
        return ended
    if ended.failure is Failure.FIRST_BYTE:
        return attrs.evolve(ended, first_byte_ns=watch.waited_ns)
    if ended.failure is Failure.IDLE:
        return attrs.evolve(ended, first_byte_ns=watch.first_byte_ns, silence_ns=watch.waited_ns)
    return ended


def left(outbox: Outbox) -> AttemptResult:
    """Return the result of an attempt whose agent has gone; only the provider's own failure is evidence.

    An SDK that reads an error event hangs up on it, so this is how most such streams end.
    """
    head = outbox.head or outbox.pending
    status = head[0] if head is not None else 0
    usage, facts = outbox.usage(), outbox.facts()
    ended = AttemptResult(outcome=Outcome.IGNORED, status=status, committed=True, usage=usage, facts=facts)
    return _as_said(ended, outbox)


def _as_said(ended: AttemptResult, outbox: Outbox) -> AttemptResult:
    """Return the result with the error that the stream reported, which precedes the way it ended."""
    said = outbox.said()
    if said is None:
        return ended
    return attrs.evolve(
        ended,
        outcome=said.outcome,
        retry_after_ns=said.retry_after_ns,
        final=said.final,
        first_byte_ns=None,
        silence_ns=None,
    )


def unsayable(error: UpstreamError) -> bool:
    """Return True if the request itself cannot be forwarded (`OPTIONS *`, a target that is a URL)."""
    return error.kind is UpstreamErrorKind.PROTOCOL and not error.sent


async def _held(response: UpstreamResponse, outbox: Outbox) -> bool:
    """Keep a whole error's answer back; False: it is too long for that, and what has come is on its way."""
    pieces: list[bytes] = []
    size = 0
    async for piece in response:
        pieces.append(piece)
        size += len(piece)
        if size > HELD_BYTES_MAX:
            outbox.begin(response.status, for_agent(response.headers))
            outbox.put(b"".join(pieces))
            return False
    outbox.hold(response.status, for_agent(response.headers), b"".join(pieces))
    return True


def _meter(words: Mapping[str, str], may_be_array: bool) -> UsageMeter:
    return UsageMeter(words.get("content-type", ""), words.get("content-encoding", ""), may_be_array)


def _words(headers: Headers) -> dict[str, str]:
    """Return lower-case name -> its first value, with the time of receipt where the answer has no `date` (RFC 9110)."""
    words = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in reversed(headers)}
    if "date" not in words:
        words["date"] = formatdate(usegmt=True)
    return words


def _of_error(status: int, outbox: Outbox) -> AttemptResult:
    """Return the result of an error response, and whether a retry makes sense."""
    head = outbox.held or outbox.head
    assert head is not None
    words = _words(head[1])
    signal = read_signal(status, words, outbox.held_body)
    return AttemptResult(
        outcome=signal.outcome,
        status=status,
        retry_after_ns=signal.retry_after_ns,
        by_reset=signal.by_reset,
        used_up=used_up(words, outbox.held_body) if signal.outcome is Outcome.QUOTA else (),
        final=signal.final,
        error_types=error_types(words, outbox.held_body),
    )
