"""Spans of calls: one for the call, and in it one for each wait and one for each attempt.

They are made when a call is over, from the times of the scheduler's events: while it runs, a call costs some entries in
a list. The names of the GenAI conventions are copied, for the library marks its constants of them as moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

import attrs

from hivemind_trio.dialects import dialect_of
from hivemind_trio.model import WAITS, AnswerFacts, Outcome, Reason, Usage
from hivemind_trio.policy import Program, ProviderSettings
from hivemind_trio.proxy import CallRecord
from hivemind_trio.scheduler import (
    AttemptEnded,
    AttemptResult,
    Call,
    CallArrived,
    CallId,
    Command,
    Event,
    Finish,
    Grant,
    Reject,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

Attributes = dict[str, str | bool | int | float | tuple[str, ...]]

WELL: Final = frozenset({Outcome.SUCCEEDED, Outcome.SLOW})
SECOND_NS: Final = 1_000_000_000
MS_NS: Final = 1_000_000


@final
@attrs.define(eq=False)
class WaitSpan:
    """A wait in the queue. Times are those of the engine."""

    began_ns: int
    ended_ns: int
    reason: Reason
    """Limit that blocked the call last."""


@final
@attrs.define(eq=False)
class AttemptSpan:
    """An attempt at a provider."""

    began_ns: int
    grant: Grant
    ended_ns: int | None = None
    """None: it is in flight, or it needed no slot and ended with the call."""
    result: AttemptResult | None = None


@final
@attrs.define(eq=False)
class CallHistory:
    """Course of a call, kept until its spans are made."""

    call: Call
    began_ns: int
    waits_since_ns: int | None
    """Time at which it was put into the queue; None: it is not there."""
    waits: list[WaitSpan] = attrs.field(factory=list, init=False)
    attempts: list[AttemptSpan] = attrs.field(factory=list, init=False)
    over: tuple[CallRecord, int] | None = attrs.field(default=None, init=False)
    """Its record and its end; None: its agent has not got its answer."""

    @property
    def is_in_flight(self) -> bool:
        """True while an attempt holds a slot."""
        return bool(self.attempts) and self.attempts[-1].ended_ns is None and self.attempts[-1].grant.permit is not None

    def waited(self, now_ns: int, reason: Reason) -> None:
        """End the wait; one that took no time is none."""
        if self.waits_since_ns is not None and now_ns > self.waits_since_ns:
            self.waits.append(WaitSpan(self.waits_since_ns, now_ns, reason))
        self.waits_since_ns = None


@final
@attrs.define(eq=False)
class CallTraces:
    """Makes the spans of calls. Exporting them is the tracer's."""

    _tracer: Tracer
    _wall_ns: Callable[[], int]
    """The time, ns since 1970."""
    _histories: dict[CallId, CallHistory] = attrs.field(factory=dict, init=False)
    """Calls that are not over, or have an attempt in flight."""

    def observe(self, now_ns: int, event: Event, commands: Sequence[Command], program: Program) -> None:
        """Note an event of the scheduler and what it decided; an engine's journal."""
        match event:
            case CallArrived(call):
                self._histories[call.id] = CallHistory(call, now_ns, now_ns)
            case AttemptEnded(call_id, result) if (known := self._histories.get(call_id)) is not None:
                attempt = known.attempts[-1]
                attempt.ended_ns, attempt.result = now_ns, result
                if known.over is not None:
                    self._make(known, now_ns, program)
                elif not result.committed:
                    known.waits_since_ns = now_ns
            case _:
                pass
        for command in commands:
            if isinstance(command, Grant | Reject | Finish):
                self._decided(now_ns, command)

    def _decided(self, now_ns: int, command: Grant | Reject | Finish) -> None:
        known = self._histories.get(command.call_id)
        if known is None:
            return
        if isinstance(command, Finish):
            known.waits_since_ns = None
            return
        known.waited(now_ns, command.reason)
        if isinstance(command, Grant):
            known.attempts.append(AttemptSpan(now_ns, command))

    def over(self, record: CallRecord, now_ns: int, program: Program) -> None:
        """Note that the agent of a call has its answer, or has gone."""
        known = self._histories.get(record.number) if record.number is not None else None
        if known is None:
            # Rejected before the scheduler saw it.
            ended_ns = self._wall_ns()
            root = self._begun(record, ended_ns - record.duration_ms * MS_NS, None)
            self._end_root(root, record, ended_ns)
            return
        known.waited(now_ns, record.reason)  # of a client that has left the queue
        known.over = record, now_ns
        if not known.is_in_flight:
            self._make(known, now_ns, program)

    def close(self, now_ns: int, program: Program) -> None:
        """Make the spans of calls whose attempts were cut off with the process."""
        for known in list(self._histories.values()):
            if known.over is not None:
                self._make(known, now_ns, program)

    def _make(self, known: CallHistory, now_ns: int, program: Program) -> None:
        """Make the spans of a call, children within their parent, however the two ends of the proxy raced."""
        from opentelemetry.trace import SpanKind, set_span_in_context

        del self._histories[known.call.id]
        assert known.over is not None
        record, over_ns = known.over
        since_1970_ns = self._wall_ns() - now_ns
        # The call began with its head; its body was read before the scheduler knew of it.
        began_ns = min(known.began_ns, over_ns - record.duration_ms * MS_NS)
        root = self._begun(record, since_1970_ns + began_ns, known.call)
        if root.is_recording():
            inside = set_span_in_context(root)
            for wait in known.waits:
                bound = {"hivemind.bound_by": str(wait.reason)} if wait.reason in WAITS else {}
                span = self._tracer.start_span(
                    "hivemind.wait", inside, attributes=bound, start_time=since_1970_ns + wait.began_ns
                )
                span.end(since_1970_ns + wait.ended_ns)
            for attempt in known.attempts:
                name, attributes, error = _of_attempt(attempt, known.call, record, program)
                span = self._tracer.start_span(
                    name,
                    inside,
                    kind=SpanKind.CLIENT,
                    attributes=attributes,
                    start_time=since_1970_ns + attempt.began_ns,
                )
                if error:
                    _fail(span, error)
                span.end(since_1970_ns + (attempt.ended_ns if attempt.ended_ns is not None else over_ns))
        last_ns = max((attempt.ended_ns or over_ns for attempt in known.attempts), default=over_ns)
        self._end_root(root, record, since_1970_ns + max(over_ns, last_ns))

    def _begun(self, record: CallRecord, start_time: int, call: Call | None) -> Span:
        """Begin the span of a call, in the trace that its agent is in."""
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        headers = call.request.headers if call is not None else {}
        return self._tracer.start_span(
            "hivemind.call",
            TraceContextTextMapPropagator().extract(headers) if "traceparent" in headers else Context(),
            kind=SpanKind.SERVER,
            attributes=_of_call(record, call),
            start_time=start_time,
        )

    def _end_root(self, root: Span, record: CallRecord, ended_ns: int) -> None:
        if record.status >= 500 or record.upstream_error is not None:
            _fail(root, record.upstream_error or str(record.status))
        root.end(ended_ns)


def _fail(span: Span, error: str) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", error)
    span.set_status(StatusCode.ERROR)


def _of_call(record: CallRecord, call: Call | None) -> Attributes:
    """Return the attributes of the span of a call. No header and no query is among them."""
    found: Attributes = {
        "http.request.method": record.method,
        "url.path": record.path,
        "hivemind.call": record.id,
        "hivemind.wait.duration": record.waited_ms / 1_000,
        "hivemind.attempts": record.attempts,
        "hivemind.rejected": record.rejected,
        "hivemind.reason": str(record.reason),
    }
    if record.status:
        found["http.response.status_code"] = record.status
    named = {
        "gen_ai.agent.name": record.agent,
        "gen_ai.conversation.id": record.job,
        "hivemind.caller": record.caller,
        "hivemind.lane": record.lane,
        "hivemind.provider": record.sender,
    }
    found |= {name: value for name, value in named.items() if value}
    if call is not None and call.priority is not None:
        found["hivemind.priority"] = call.priority
    return found


def _of_attempt(attempt: AttemptSpan, call: Call, record: CallRecord, program: Program) -> tuple[str, Attributes, str]:
    """Return name, attributes and error of the span of an attempt; empty: it is none."""
    treatment, request = attempt.grant.treatment, call.request
    provider = program.pools.get(treatment.provider or "")
    dialect = dialect_of(provider.api if provider is not None else None)
    found: Attributes = {
        "gen_ai.provider.name": dialect.telemetry_name or str(dialect.api),
        "hivemind.provider": treatment.sender or "",
        "hivemind.attempt": attempt.grant.attempt,
        "gen_ai.agent.name": treatment.agent,
        **_of_server(provider),
    }
    if record.job:
        found["gen_ai.conversation.id"] = record.job
    name = request.method
    model = treatment.model or request.model
    if call.needs_slot:
        operation = _operation(request.path, dialect.operation)
        name = f"{operation} {model}" if model else operation
        found |= {"gen_ai.operation.name": operation, "gen_ai.request.stream": request.stream}
        if model:
            found["gen_ai.request.model"] = model
        if request.tokens_max_out:
            found["gen_ai.request.max_tokens"] = request.tokens_max_out
    result = attempt.result
    if result is None:
        return name, found, ""
    found["hivemind.outcome"] = str(result.outcome)
    if result.status:
        found["http.response.status_code"] = result.status
    if result.first_byte_ns is not None and result.outcome in WELL:
        found["gen_ai.response.time_to_first_chunk"] = result.first_byte_ns / SECOND_NS
    if result.usage is not None:
        found |= _of_usage(result.usage)
    if result.facts is not None:
        found |= _of_facts(result.facts)
    if result.outcome in WELL or (result.outcome is Outcome.IGNORED and result.status < 400):
        return name, found, ""
    return name, found, str(result.failure or result.status or result.outcome)


def _of_server(provider: ProviderSettings | None) -> Attributes:
    """Return the address of a provider; one that is a secret is not shown."""
    if provider is None or not isinstance(provider.base, str):
        return {}
    base = urlsplit(provider.base)
    if base.hostname is None:
        return {}
    return {"server.address": base.hostname, "server.port": base.port or (443 if base.scheme == "https" else 80)}


def _of_usage(usage: Usage) -> Attributes:
    """Return the tokens of an answer. By the conventions `input_tokens` counts those of the cache, too."""
    found: Attributes = {"gen_ai.usage.output_tokens": usage.output}
    if usage.input is not None:
        found["gen_ai.usage.input_tokens"] = usage.input + usage.cache_read + usage.cache_write
    if usage.cache_read:
        found["gen_ai.usage.cache_read.input_tokens"] = usage.cache_read
    if usage.cache_write:
        found["gen_ai.usage.cache_creation.input_tokens"] = usage.cache_write
    return found


def _of_facts(facts: AnswerFacts) -> Attributes:
    """Return what an answer tells of its model and end."""
    found: Attributes = {}
    if facts.model:
        found["gen_ai.response.model"] = facts.model
    if facts.finish_reasons:
        found["gen_ai.response.finish_reasons"] = facts.finish_reasons
    return found


def _operation(path: str, usual: str) -> str:
    """Return the operation that a path stands for, in the words of the conventions."""
    if "embed" in path.rpartition("/")[2].lower():
        return "embeddings"
    return "text_completion" if path.endswith("/completions") and "/chat/" not in path else usual
