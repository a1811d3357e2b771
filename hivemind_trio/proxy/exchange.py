"""One call, from its head to its last byte. Reads downwards in the order in which it happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, final

import attrs
import trio

from hivemind_trio.dialects import DIALECTS, KeepAlive, dialect_of
from hivemind_trio.listen import Receive, Send
from hivemind_trio.model import REJECTIONS, Api, Decision, Outcome, Reason, Request, Usage, rejection_text
from hivemind_trio.policy import PlanOverage, ProviderSettings, WhileOpen, quote
from hivemind_trio.proxy.request import guard as guard
from hivemind_trio.runtime import Engine, Rejected, Ticket
from hivemind_trio.scheduler import AttemptResult, Grant
from hivemind_trio.upstream import Upstream, UpstreamError, UpstreamErrorKind
from hivemind_trio.wire import (
    Recognised,
    Text,
    TooManyMembers,
    at_boundary,
    base_url_hint,
    endpoint,
    error_event,
    is_admin,
    limiting,
    own_error,
    prefixing,
    provider_error,
    recognising,
    remodelling,
)

from .access_record import CallRecord
from .active_policy import InForce
from .attempt import UpstreamRequest, fetch, left, unsayable
from .counting.count_target import count_target
from .counting.prompt_counts import PromptCounts
from .error_responses import SECOND_NS, Refusal, error_message, refusal
from .hold import HeldTooLong, Patience, held_at_most_s
from .own_priorities import OwnPriorities, Whose, whose
from .plan_header import plan_header
from .plan_refusals import AccountModel, PlanRefusal, PlanRefusals
from .request.body_memory import BodyMemory
from .request.caller_identity import caller, job, session
from .request.client_address import client_address, counted_address
from .request.client_profile import ClientProfile, fingerprint, known_by
from .request.head import RequestHead
from .request.header_filter import Headers, first
from .request.provider_credential import with_key
from .response_buffer import Outbox
from .stepped_work import StepQueue, is_long

RETRY_AFTER_UNREACHABLE_NS: Final = 5 * SECOND_NS
"""A provider that cannot be reached: soon enough to notice its return, late enough not to hammer."""

RETRY_AFTER_NO_ROOM_NS: Final = 5 * SECOND_NS

RETRY_AFTER_HELD_NS: Final = 30 * SECOND_NS

RETRY_AFTER_CUT_NS: Final = SECOND_NS
"""A proxy that stops is usually replaced at once."""

HEADER_TEXT_MAX: Final = 1_024
"""Characters of a header's value of ours: some are the caller's words."""

CANCELLED_S: Final = 2.0
"""Time for an agent to take what has come of a cancelled stream, and the error behind it."""

KNOWN_AT_THE_END: Final = frozenset({b"x-hivemind-wait-ms", b"x-hivemind-attempts", b"x-hivemind-reason"})
"""Headers about the wait: a 200 that is given while the call waits does not have them."""

OF_PLANS: Final = frozenset({Reason.PLAN_RESERVE, Reason.PLAN_PACE, Reason.PROVIDER_SPENT})
"""Reasons of rejections that are about the plan of the call's account."""

OVERAGE: Final = "this account now pays beyond its plan (`plan { overage warn }`)"

TIMEOUTS: Final = frozenset({UpstreamErrorKind.FIRST_BYTE, UpstreamErrorKind.TOTAL, UpstreamErrorKind.IDLE})


class BodyRefused(Exception):  # noqa: N818 - it becomes an answer
    """The request's body is too large, by itself or with those of all other calls."""

    def __init__(self, reason: Reason, message: str, retry_after_ns: int | None = None) -> None:
        super().__init__(message)
        self.answer = reason, message, retry_after_ns


class Unsendable(Exception):  # noqa: N818 - it becomes an answer
    """The call cannot be sent as the policy wants it; the message says what to change."""

    def __init__(self, message: str, reason: Reason = Reason.DENIED) -> None:
        super().__init__(message)
        self.reason = reason


@final
@attrs.define(eq=False)
class Exchange:
    """One call's progress. What it knows grows; `record` may be asked at any time."""

    engine: Engine
    upstream: Upstream
    current: Callable[[], InForce]
    """The policy of now; `rules` is the one that the call began with, or was granted by."""
    rules: InForce
    call_id: str
    head: RequestHead
    send: Send
    abort: Callable[[], None]
    turns: StepQueue
    bodies: BodyMemory
    alias_key: bytes = attrs.field(repr=False)
    plan_refusals: PlanRefusals
    priorities: OwnPriorities
    counts: PromptCounts
    can_trail: bool = False
    """True if trailers can be sent on this connection."""
    asked: Recognised = attrs.field(init=False, default=Recognised(apis=(), generates=False))
    fingerprint: bytes = attrs.field(init=False, default=b"")
    """Fingerprint of the body; empty: not needed."""
    prefix: str = attrs.field(init=False, default="")
    """Prefix of the prompt; empty: not tracked."""
    client: ClientProfile = attrs.field(init=False, default=ClientProfile())
    provider: ProviderSettings | None = attrs.field(init=False, default=None)
    output_limit: int | None = attrs.field(init=False, default=None)
    """Output tokens that the body sent asks for by the policy; None: it is as the client sent it."""
    lane: str | None = attrs.field(init=False, default=None)
    agent: str = attrs.field(init=False, default="unknown")
    caller: str = attrs.field(init=False, default="")
    status: int = attrs.field(init=False, default=0)
    rejected: bool = attrs.field(init=False, default=False)
    reason: Reason = attrs.field(init=False, default=Reason.NONE)
    error: UpstreamError | None = attrs.field(init=False, default=None)
    waited_ns: int = attrs.field(init=False, default=0)
    treatment: Decision | None = attrs.field(init=False, default=None)
    """As it was granted last, or refused."""
    patience: Patience | None = attrs.field(init=False, default=None)
    ticket: Ticket | None = attrs.field(init=False, default=None)
    attempts: int = attrs.field(init=False, default=0)
    bytes_out: int = attrs.field(init=False, default=0)
    started_ns: int = attrs.field(init=False, default=0)
    retry_after_s: int | None = attrs.field(init=False, default=None)
    body_bytes: int = attrs.field(init=False, default=0)
    """Bytes of the request's body that are held for the call."""
    scope: trio.CancelScope | None = attrs.field(init=False, default=None)
    """Everything that is done for the call."""
    ended_by: Reason | None = attrs.field(init=False, default=None)
    """Why the proxy has ended it before its time: for an operator, or to stop; None: it has not."""
    outbox: Outbox | None = attrs.field(init=False, default=None)
    """Answer that is being delivered; None: none is."""
    usage: Callable[[], Usage | None] = attrs.field(init=False, default=lambda: None)
    """Usage of the latest attempt."""

    async def run(self, receive: Receive) -> None:
        """Serve the call. Returns when the agent has its answer; cancelled when it has gone."""
        self.started_ns = self.engine.now_ns()
        if (why := guard.refused(self.head, self.rules.program.server)) is not None:
            self.asked = Recognised(apis=endpoint(self.head.path_text, self.head.words).apis, generates=False)
            await self._reject(*why)
            return
        try:
            body = await self._read(receive)
        except BodyRefused as refused:
            self.asked = Recognised(apis=endpoint(self.head.path_text, self.head.words).apis, generates=False)
            await self._reject(*refused.answer)
            return
        try:
            await self._understand(body)
        except TooManyMembers as odd:
            await self._reject_members(odd)
            return
        # By the policy that decides about the call, not by that of when its body began to come.
        self.rules = self.current()
        words = self.head.words
        address = client_address(self.head.peer, self.head.headers, self.rules.program.server.forwarded_by)
        if (why := self._misdirected(address)) is not None:
            await self._reject(*why)
            return
        token_agent = self.rules.tokens.agent(self.head.headers, self.head.query)
        identify = self.rules.program.server.identify
        self.caller = caller(
            identify, words, self.head.claims, self.asked.user, self.head.credential, self.head.peer, self.alias_key
        )
        assert address is not None
        request = self.rules.request(self.head, self.asked, token_agent, address)
        outbox: Outbox | None = None
        client = self.client = ClientProfile.of(words)
        keep_alive = self._keep_alive()
        patience = self.patience = Patience.of(
            self.rules.program.server, client, keep_alive, self._commit, self._say_nothing
        )
        try:
            request = await self._counted(request, body, by_token=token_agent is not None)
            with self._ticket(request, speaks=keep_alive is not None) as ticket:
                self.ticket = ticket
                self._heed_own_priority(ticket, whose(token_agent, request.claimed, session(words)))
                grant: Grant | None = await patience.during(ticket.granted, settled=ticket.answered)
                while grant is not None:
                    outgoing = await self._outgoing(grant, body, by_token=token_agent is not None)
                    outbox = Outbox()
                    self.attempts = grant.attempt
                    self.usage = outbox.usage
                    ticket.start(partial(self._attempt, ticket, outgoing, outbox), partial(left, outbox))
                    if await self._begun(outbox, patience):
                        await self._deliver(outbox)
                        return
                    grant = await patience.during(ticket.again, settled=ticket.answered)
        # Below nothing is held any more: an agent may take its time over a refusal.
        except Rejected as rejected:
            await self._reject_by_scheduler(rejected)
            return
        except Unsendable as refused:
            await self._reject(refused.reason, str(refused))
            return
        except TooManyMembers as odd:  # of an object within the body, which is read only to change it
            await self._reject_members(odd)
            return
        except HeldTooLong:
            self.waited_ns = self.engine.now_ns() - self.started_ns
            await self._reject(Reason.HELD_TOO_LONG, self._held_text(), RETRY_AFTER_HELD_NS)
            return
        assert outbox is not None
        await self._settle(outbox)

    def _misdirected(self, address: int | None) -> tuple[Reason, str] | None:
        """Return why the call has come by a wrong way; None: it has not."""
        bases = map(self.rules.base, self.rules.program.providers.values())
        if hint := base_url_hint(self.head.path_text, bases):
            return Reason.NO_PROVIDER, rejection_text(Reason.NO_PROVIDER, "base", path=self.head.path_text, hint=hint)
        if address is None:
            return Reason.BAD_REQUEST, rejection_text(Reason.BAD_REQUEST, "forwarded")
        return None

    async def _reject_members(self, odd: TooManyMembers) -> None:
        await self._reject(Reason.BODY_TOO_LARGE, rejection_text(Reason.BODY_TOO_LARGE, "members", detail=odd))

    def _held_text(self) -> str:
        waited = f"{self.waited_ns / SECOND_NS:.0f} s"
        if self.ticket is None or self.ticket.gave_up is None:
            return rejection_text(Reason.HELD_TOO_LONG, waited=waited)
        return rejection_text(Reason.HELD_TOO_LONG, "because", waited=waited, wait=self.ticket.gave_up.words)

    def cancel(self) -> None:
        """End the call for an operator: its place in the queue, or its attempt. Its agent is told in either case."""
        if self.ended_by is not None:
            return
        self.ended_by = Reason.CANCELLED
        if self.ticket is not None and self.outbox is not None:
            self.ticket.hang_up()  # the slot does not wait for an agent that is behind
        self._stop()
        if self.scope is not None:
            self.scope.deadline = trio.current_time() + CANCELLED_S

    def cut_off(self) -> None:
        """End the call because the proxy stops: with an error event if its answer has begun, else with an error."""
        if self.ended_by is not None:
            return
        self.ended_by = Reason.DRAINING
        self._stop()

    def _stop(self) -> None:
        if self.outbox is not None:
            self.outbox.close()  # what has come is delivered first, and then the error
        elif self.scope is not None:
            self.scope.cancel()

    async def end_cancelled(self, reason: Reason) -> None:
        """Tell the agent, after `run` was cancelled for an operator, or to stop."""
        if self.bytes_out or (self.status and not self._committed):
            # Of an answer that has begun the agent must not take what it has for the whole.
            self.rejected, self.reason = True, reason
            self.abort()
            return
        if not self.asked.apis:
            self.asked = Recognised(apis=endpoint(self.head.path_text, self.head.words).apis, generates=False)
        if reason is Reason.DRAINING:
            await self._reject(reason, rejection_text(Reason.DRAINING, "cut"), RETRY_AFTER_CUT_NS)
        else:
            await self._reject(reason, rejection_text(Reason.CANCELLED))

    # ---- the request ----

    def _ticket(self, request: Request, *, speaks: bool) -> Ticket:
        head, client = self.head, self.client
        credential = head.credential
        held_s = held_at_most_s(self.rules.program.server, client, speaks=speaks)
        digest = credential.alias(self.alias_key) if credential is not None else ""
        # Not by its connection: whoever has given up on a call comes back on another one.
        whose = f"{digest} {request.claimed or ''}"
        again = ""
        if self.asked.generates:
            again = known_by(whose, head.method, head.path, head.query, head.words, self.fingerprint)
        return self.engine.ticket(
            request,
            self.caller,
            job=job(self.head.words, self.asked.user),
            address=counted_address(head.peer, request.client_address),
            again=again,
            # A client that dies of a rejection is kept as long as possible. A stream that is kept alive has had its
            # 200: no client tries it again.
            patience_ns=None
            if client.dies_of_429
            else round(held_s * (1 if speaks else 1 + client.tries_left) * SECOND_NS),
            held_ns=round(held_s * SECOND_NS),
            prefix=self.prefix,
            needs_slot=self.asked.generates,
            credential=digest,
        )

    def _heed_own_priority(self, ticket: Ticket, agent: Whose | None) -> None:
        """Give the call, if it waits, the priority that its agent has asked for."""
        asked = self.priorities.of(agent)
        if asked is not None:
            self.engine.ask_priority(ticket.id, asked)

    async def _understand(self, body: Text) -> None:
        """Read the body, in turns with other calls if it is long.

        Raises:
            TooManyMembers: It is not worth reading.
        """
        head = self.head
        long = is_long(body, head.words.get("content-encoding", ""))
        self.asked = Recognised(apis=endpoint(head.path_text, head.words).apis, generates=False)
        self.asked = await self.turns.of(recognising(head.method, head.path_text, head.words, body), long=long)
        if self.asked.generates:
            self.fingerprint = await self.turns.of(fingerprint(body), long=long)
            if self.current().program.heeds_prompts:
                self.prefix = await self.turns.of(prefixing(head.path_text, head.words, body), long=long)

    async def _read(self, receive: Receive) -> Text:
        """Return the body.

        Raises:
            BodyRefused: It is too large.
        """
        limit = self.rules.program.server.max_body
        declared = self.head.first.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        body: Text = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                await trio.sleep_forever()  # the hang-up cancels us
            piece: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) + len(piece) > limit:
                raise _too_large(limit)
            if not self.bodies.take(self.body_bytes, len(piece)):
                held = rejection_text(Reason.PROXY_OVERLOADED, "memory", limit=self.bodies.limit >> 20)
                raise BodyRefused(Reason.PROXY_OVERLOADED, held, RETRY_AFTER_NO_ROOM_NS)
            self.body_bytes += len(piece)
            if not body:
                body = piece
            else:
                # Grown in place: to join pieces at the end would hold the body twice, and stop the loop for it.
                body = body if isinstance(body, bytearray) else bytearray(body)
                body += piece
        return body

    def _prepare(self, grant: Grant, body: Text, *, by_token: bool) -> UpstreamRequest:
        """Return the request to send upstream.

        Raises:
            Unsendable: It has no credential to go with, or none that the provider's key could stand for.
        """
        treatment = grant.treatment
        self.waited_ns, self.reason = grant.waited_ns, grant.reason
        self.agent, self.lane = treatment.agent, treatment.lane
        self.treatment = treatment
        name = treatment.provider
        assert name is not None
        # A reload while it waited may have sent it elsewhere; what is granted now goes by the policy of now.
        now = self.current()
        if name in now.program.pools:
            self.rules = now
        provider = self.provider = self.rules.program.pools[name]
        key = self.rules.key(provider, treatment.account)
        if key is None and by_token:
            raise Unsendable(rejection_text(Reason.DENIED, "key", provider=name))
        path = self.head.path_text
        if not treatment.is_allowed_by_rule:
            if is_admin(path):
                raise Unsendable(rejection_text(Reason.DENIED, "admin", path=path))
            if key is not None and not self.asked.apis and self.head.credential is None:
                # Clients of an API have a credential; what a browser or a crawler looks for has none.
                words = rejection_text(Reason.NO_PROVIDER, "key", path=path, quoted=quote(path))
                raise Unsendable(words, Reason.NO_PROVIDER)
        headers, query = with_key(self.head, provider, key)
        if self._committed:
            # The 200 that the agent has had named no content-encoding.
            headers = [(name, value) for name, value in headers if name.lower() != b"accept-encoding"]
            headers.append((b"accept-encoding", b"identity"))
        return UpstreamRequest(
            base=self.rules.base(provider),
            method=self.head.method,
            target=self.head.path + (b"?" + query if query else b""),
            headers=headers,
            body=body,
            timeouts=grant.timeouts or provider.timeouts,
            version_in_base=all(dialect_of(api).version_in_base for api in (provider.api, self._api())),
            metered=self.asked.generates,
            may_be_array=self.asked.stream and any(DIALECTS[api].streams_arrays for api in self.asked.apis),
            attempt=grant.attempt,
            has_fallback=provider.fallback is not None and provider.while_open is WhileOpen.FALLBACK,
            slow_ns=provider.aimd.slow_ns if provider.aimd is not None else None,
        )

    async def _counted(self, request: Request, body: Text, *, by_token: bool) -> Request:
        """Return the request with its tokens counted, where its provider has them counted before a call is sent."""
        target = count_target(self.rules, request, by_token=by_token) if self.asked.generates else None
        if target is None:
            return request
        head = self.head
        long = is_long(body, head.words.get("content-encoding", ""))
        if target.needs_prefix and not self.prefix:
            self.prefix = await self.turns.of(prefixing(head.path_text, head.words, body), long=long)
        prompt = target.prompt(head, self.asked, body, self.prefix, long=long)
        counted = await self.counts.of(target.provider, prompt, target.sender(head, self.alias_key))
        if counted is None:
            return request
        return attrs.evolve(request, tokens_counted=counted[0], counted_by=counted[1])

    async def _attempt(self, ticket: Ticket, outgoing: UpstreamRequest, outbox: Outbox) -> AttemptResult:
        """Make one attempt; keep what it tells of the account, and all of it if it says until when that is used up."""
        of = self._account_model()
        received = ticket.received if self.asked.stream and self._adapts() else None
        ended = await fetch(self.upstream, outgoing, outbox, ticket.heard, ticket.may_send, received)
        if of is not None and (head := outbox.head or outbox.held) is not None:
            self.plan_refusals.note(of, head[1])
        if ended.outcome is Outcome.TERMINAL and ended.retry_after_ns and outbox.held is not None and of is not None:
            now_ns = self.engine.now_ns()
            kept = PlanRefusal(self._api(), *outbox.held, outbox.held_body, now_ns, now_ns + ended.retry_after_ns)
            self.plan_refusals.keep(of, kept)
        return attrs.evolve(ended, headed=True) if self._committed else ended

    def _adapts(self) -> bool:
        """Return True if the limit of the provider, as decided last, learns from streams."""
        provider = self.rules.program.pools.get(self.treatment.provider or "") if self.treatment is not None else None
        return provider is not None and provider.aimd is not None

    def _account_model(self) -> AccountModel | None:
        """Return whose plan the call counts against, as decided last; None: it goes nowhere."""
        treatment = self.treatment
        provider = self.rules.program.pools.get(treatment.provider or "") if treatment is not None else None
        if treatment is None or provider is None:
            return None
        credential = self.head.credential
        account = credential.alias(self.alias_key) if credential is not None and not provider.keys else ""
        account = treatment.account or account
        return provider.name, account, treatment.model or self.asked.model

    def _sent_as(self) -> str | None:
        """Return the model to send in place of the requested one, by the name that the provider has for it."""
        treatment = self.treatment
        if treatment is None or treatment.provider is None:
            return None
        named = self.rules.program.name_at(treatment.model or self.asked.model, treatment.provider)
        return named if named is not None else treatment.model

    async def _outgoing(self, grant: Grant, body: Text, *, by_token: bool) -> UpstreamRequest:
        """Return the request as the policy wants it to be sent.

        Raises:
            Unsendable: It cannot be.
            TooManyMembers: The body is not worth reading.
        """
        outgoing = self._prepare(grant, body, by_token=by_token)
        if (model := self._sent_as()) is not None:
            outgoing = await self._remodelled(outgoing, model)
        return await self._limited(outgoing, grant.treatment)

    async def _remodelled(self, outgoing: UpstreamRequest, model: str) -> UpstreamRequest:
        """Return the same with the model that the policy wants.

        Raises:
            Unsendable: The request names no model to replace.
        """
        encoding = self.head.words.get("content-encoding", "")
        steps = remodelling(self.head.path, outgoing.body, encoding, model)
        changed = await self.turns.of(steps, long=is_long(outgoing.body, encoding))
        headers = [(name, value) for name, value in outgoing.headers if name.lower() != b"content-encoding"]
        if changed is None and not self.asked.generates:
            return attrs.evolve(outgoing, headers=headers)  # a list of models asks for none
        if changed is None:
            raise Unsendable(rejection_text(Reason.DENIED, "model", model=model))
        path, body = changed
        return attrs.evolve(outgoing, target=path + outgoing.target[len(self.head.path) :], headers=headers, body=body)

    async def _limited(self, outgoing: UpstreamRequest, treatment: Decision) -> UpstreamRequest:
        """Return the same with the limit of its output that the policy wants.

        Raises:
            TooManyMembers: It is not worth reading.
        """
        self.output_limit = None
        most = treatment.output_limit(self.asked.tokens_thinking) if self.asked.generates else None
        if most is None:
            return outgoing
        headers = [(name, value) for name, value in outgoing.headers if name.lower() != b"content-encoding"]
        encoding = self.head.words.get("content-encoding", "") if len(headers) < len(outgoing.headers) else ""
        served_as = self.provider.api if self.provider is not None else None
        steps = limiting(self.head.path_text, outgoing.body, encoding, most, served_as)
        body = await self.turns.of(steps, long=is_long(outgoing.body, encoding))
        if body is None:
            return outgoing
        self.output_limit = most
        return attrs.evolve(outgoing, headers=headers, body=body)

    # ---- the answer ----

    async def _begun(self, outbox: Outbox, patience: Patience) -> bool:
        """Wait until there is something to deliver, and keep the agent's connection alive while a stream is held.

        Nothing is sent before the provider's head: keep-alive events must not hide a dead provider.
        """
        await outbox.headed()
        if outbox.head is not None or outbox.pending is None:
            return outbox.head is not None
        if patience.keep_alive is None:
            return await outbox.begun()
        if self._can_follow(*outbox.pending):
            return await patience.over_a_held_head(outbox.begun)
        if (begun := await patience.silence(outbox.begun)) is not None:
            return begun
        outbox.release()  # compressed, or of another kind: no event of ours can come before it
        return True

    async def _settle(self, outbox: Outbox) -> None:
        """No attempt did better: the agent is given what the last one came to."""
        if outbox.held is None:
            self.error = outbox.error
            await self._fail(outbox.error, headed=outbox.pending is not None)
            return
        status, headers = outbox.held
        if self._committed:
            encoding = first(headers).get(b"content-encoding", "")
            reason = Reason.UPSTREAM_REFUSED
            error = provider_error(self._api(), status, outbox.held_body, encoding, str(reason))
            await self._end_with_error(reason, error)
            return
        await self._begin(status, headers)
        self.bytes_out = len(outbox.held_body)
        await self.send({"type": "http.response.body", "body": outbox.held_body})

    async def _deliver(self, outbox: Outbox) -> None:
        assert outbox.head is not None
        status, headers = outbox.head
        if self._committed and not self._can_follow(status, headers):
            reason = Reason.UPSTREAM_REFUSED
            message = error_message(reason, rejection_text(reason, status=status))
            shown = status if status >= 400 else REJECTIONS[reason].status
            error = own_error(self._api(), shown, message, str(reason))
            await self._end_with_error(reason, error)
            return
        trailers = self.can_trail and not self._committed and b"trailer" in [name.lower() for name, _ in headers]
        self.outbox = outbox
        await self._begin(status, headers, trailers=trailers)
        tail = b""
        while True:
            piece, more = await outbox.take()
            whole = not more and outbox.whole
            if piece or whole:
                self.bytes_out += len(piece)
                tail = (tail + piece)[-4:]
                await self.send({"type": "http.response.body", "body": piece, "more_body": not whole})
            if not more:
                break
        if not outbox.whole:
            self.error = outbox.error
            await self._break_off(headers, tail)
            return
        self.error = outbox.error
        if trailers:
            await self.send({"type": "http.response.trailers", "headers": outbox.trailers})

    async def _begin(self, status: int, headers: Headers, *, trailers: bool = False) -> None:
        self.status = status
        if self._committed:
            return  # the head was sent while it waited
        if status >= 400 and (wait := first(headers).get(b"retry-after", "")).isdecimal():
            self.retry_after_s = int(wait)
        headers = [*headers, *self._own_headers()]
        await self.send({"type": "http.response.start", "status": status, "headers": headers, "trailers": trailers})

    async def _break_off(self, headers: Headers, tail: bytes) -> None:
        """End an answer that has begun and is not finished: say so in its dialect, and never end it cleanly."""
        said = {name.lower(): value for name, value in headers}
        content_type = said.get(b"content-type", b"").decode("latin-1").lower()
        if self.ended_by is not None and self.error is None:
            reason = self.ended_by
            words = rejection_text(reason, "cut" if reason is Reason.DRAINING else "")
            self.rejected, self.reason = True, reason
        else:
            kind = self.error.kind if self.error is not None else "the client did not read it in time"
            reason, words = Reason.UPSTREAM_BROKE, rejection_text(Reason.UPSTREAM_BROKE, "late", kind=kind)
        error = own_error(self._api(), REJECTIONS[reason].status, error_message(reason, words), str(reason))
        event = error_event(self._api(), self.head.path_text, content_type, error)
        # In a compressed body it would be noise, and within a stated length it could make the answer look whole.
        plain = said.get(b"content-encoding", b"identity") == b"identity" and b"content-length" not in said
        if event and plain and at_boundary(content_type, tail):
            await self.send({"type": "http.response.body", "body": event, "more_body": True})
        self.abort()

    async def _fail(self, error: UpstreamError | None, *, headed: bool) -> None:
        """Send an error status: the agent has had nothing from the provider.

        Args:
            headed: The head of a stream had come.
        """
        name = self.provider.name if self.provider is not None else ""
        if error is not None and unsayable(error):
            await self._reject(Reason.BAD_REQUEST, rejection_text(Reason.BAD_REQUEST, detail=error.message))
            return
        if error is not None and error.kind in TIMEOUTS:
            message = rejection_text(Reason.UPSTREAM_TIMEOUT, provider=name, kind=error.kind)
            await self._reject(Reason.UPSTREAM_TIMEOUT, message)
            return
        if error is not None and headed:
            message = rejection_text(Reason.UPSTREAM_BROKE, provider=name, kind=error.kind)
            await self._reject(Reason.UPSTREAM_BROKE, message)
            return
        reason = Reason.UPSTREAM_UNREACHABLE
        message = rejection_text(reason, provider=name)
        if error is not None:
            # Where the provider is, and what the system says of it, is the operator's to know.
            message = rejection_text(reason, "cause", provider=name, cause=error.cause or error.kind)
        await self._reject(reason, message, RETRY_AFTER_UNREACHABLE_NS)

    async def _reject_by_scheduler(self, rejected: Rejected) -> None:
        reject = rejected.reject
        self.waited_ns = reject.waited_ns
        if reject.treatment is not None:
            self.agent, self.lane = reject.treatment.agent, reject.treatment.lane
            self.treatment = reject.treatment
        if reject.reason is Reason.PROVIDER_SPENT and (of := self._account_model()) is not None:
            api, now_ns = self._api(), self.engine.now_ns()
            kept = self.plan_refusals.get(of, api, now_ns)
            if kept is None and reject.retry_after_ns is not None:
                kept = self.plan_refusals.of_reset(of, api, now_ns + reject.retry_after_ns)
            if kept is not None:
                await self._reject_as_provider(kept)
                return
        message = reject.message
        if reject.reason is Reason.NO_PROVIDER:
            names = ", ".join(
                f"{one.name} ({one.api}{': ' + ', '.join(one.serves) if one.serves else ''})"
                for one in self.rules.program.providers.values()
            )
            message = f"{message}; providers: {names}" if names else message
        of = self._account_model() if reject.reason in OF_PLANS else None
        told = self.plan_refusals.told(of) if of is not None else []
        await self._reject(reject.reason, message, reject.retry_after_ns, told)

    async def _reject_as_provider(self, kept: PlanRefusal) -> None:
        """Reject a call in the words of its provider, which has refused another of the same account."""
        self.rejected, self.reason = True, Reason.PROVIDER_SPENT
        headers = kept.headers_at(self.engine.now_ns())
        if self._committed:
            encoding = first(headers).get(b"content-encoding", "")
            error = provider_error(self._api(), kept.status, kept.body, encoding, str(self.reason))
            await self._end_with_error(self.reason, error)
            return
        await self._begin(kept.status, headers)
        self.bytes_out = len(kept.body)
        await self.send({"type": "http.response.body", "body": kept.body})

    async def _reject(
        self, reason: Reason, message: str, retry_after_ns: int | None = None, told: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        self.rejected, self.reason = True, reason
        if self._committed:
            error = own_error(
                self._api(), REJECTIONS[reason].status, error_message(reason, message, retry_after_ns), str(reason)
            )
            await self._end_with_error(reason, error)
            return
        answer: Refusal = refusal(self._api(), reason, message, retry_after_ns, self.client)
        await self._begin(answer.status, [*answer.headers, *told])
        body = b"" if self.head.method == "HEAD" else answer.body
        self.bytes_out = len(body)
        await self.send({"type": "http.response.body", "body": body})

    # ---- while it waits ----

    @property
    def _committed(self) -> bool:
        """The agent has had a 200 of ours, and keep-alive events: what follows must be a stream in its dialect."""
        return self.patience is not None and self.patience.committed

    def _keep_alive(self) -> KeepAlive | None:
        asked, head = self.asked, self.head
        if not (asked.stream and asked.generates and asked.apis):
            return None
        query = head.query.decode("latin-1")
        return DIALECTS[asked.apis[0]].keep_alive(head.path_text, query, asked.model, head.words)

    async def _commit(self, alive: KeepAlive) -> None:
        self.status = 200
        if not self.attempts:
            self.waited_ns = self.engine.now_ns() - self.started_ns
        ours = [one for one in self._own_headers() if one[0] not in KNOWN_AT_THE_END]
        headers = [(b"content-type", alive.content_type), (b"cache-control", b"no-cache"), *ours]
        await self.send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._say_nothing(alive)

    async def _say_nothing(self, alive: KeepAlive) -> None:
        await self.send({"type": "http.response.body", "body": alive.nothing, "more_body": True})

    def _can_follow(self, status: int, headers: Headers) -> bool:
        assert self.patience is not None
        assert self.patience.keep_alive is not None
        words = first(headers)
        plain = words.get(b"content-encoding", "identity") == "identity"
        return status == 200 and plain and self.patience.keep_alive.fits(words.get(b"content-type", ""))

    async def _end_with_error(self, reason: Reason, error: dict[str, Any]) -> None:
        """Send an error event in the dialect and a regular end: the status is sent already.

        Args:
            error: As the dialect's plain answers have it.
        """
        assert self.patience is not None
        assert self.patience.keep_alive is not None
        self.reason = reason
        content_type = self.patience.keep_alive.content_type.decode()
        event = error_event(self._api(), self.head.path_text, content_type, error, begun=False, model=self.asked.model)
        if event:
            self.bytes_out = len(event)
            await self.send({"type": "http.response.body", "body": event})
        else:
            self.abort()

    def _api(self) -> Api | None:
        """Return the dialect of the answer: the call's own, whoever serves it."""
        return next(iter(self.asked.apis), None)

    def _own_headers(self) -> Headers:
        return [
            (b"x-hivemind-call", self.call_id.encode()),
            (b"x-hivemind-wait-ms", str(self.waited_ns // 1_000_000).encode()),
            (b"x-hivemind-attempts", str(self.attempts).encode()),
            (b"x-hivemind-reason", str(self.reason).encode()),
            (b"x-hivemind-policy", self.rules.program.hash[:8].encode()),
            *self._swapped(),
            *([(b"x-hivemind-rewrote", b"max-output=%d" % self.output_limit)] if self.output_limit else []),
            *self._warnings(),
            *self._plan(),
        ]

    def _overage(self) -> tuple[str, ...]:
        """Return the warning that the account pays beyond its plan, where the policy wants it said."""
        provider, treatment = self.provider, self.treatment
        if provider is None or provider.plan is None or provider.plan.overage is not PlanOverage.WARN:
            return ()
        if self.ticket is None or treatment is None:
            return ()
        plan = self.ticket.plan(provider.name, treatment.model or self.asked.model)
        return (OVERAGE,) if plan.overage else ()

    def _plan(self) -> Headers:
        """Name how the plan of the caller's account stands, as far as answers have told of it."""
        treatment = self.treatment
        if self.ticket is None or treatment is None or treatment.provider is None:
            return []
        return plan_header(self.ticket.plan(treatment.provider, treatment.model or self.asked.model))

    def _swapped(self) -> Headers:
        """Name who serves the call, where that is not as it was asked for."""
        treatment, sent_as = self.treatment, self._sent_as()
        if treatment is None or (treatment.instead_of is None and sent_as is None):
            return []
        model = sent_as if sent_as is not None else self.asked.model
        named = [(b"x-hivemind-provider", treatment.sender), (b"x-hivemind-model", model)]
        return [(name, _header_text(text)) for name, text in named if text]

    def _warnings(self) -> Headers:
        if self.treatment is None:
            return []
        named = [
            (b"x-hivemind-warning", self.treatment.warnings),
            (b"x-hivemind-budget-warning", self.treatment.budget_warnings),
            (b"x-hivemind-warning", self._overage()),
        ]
        return [(name, _header_text(text)) for name, texts in named for text in texts]

    def record(self) -> CallRecord:
        """Return the access record."""
        gave_up = self.ticket.gave_up if self.ticket is not None else None
        if gave_up is not None:
            self.treatment, self.waited_ns = gave_up.treatment, gave_up.waited_ns
            self.agent, self.lane = gave_up.treatment.agent, gave_up.treatment.lane
            if not self.rejected:
                self.reason = gave_up.reason
        return CallRecord(
            id=self.call_id,
            number=self.ticket.id if self.ticket is not None else None,
            agent=self.agent,
            caller=self.caller,
            claimed=next(iter(self.head.claims.values()), ""),
            job=job(self.head.words, self.asked.user),
            provider=self.provider.name if self.provider is not None else None,
            account=self.treatment.account if self.treatment is not None and self.provider is not None else None,
            instead_of=self.treatment.instead_of if self.treatment is not None else None,
            team=self.treatment.team if self.treatment is not None else None,
            lane=self.lane,
            model=self.asked.model,
            sent_model=self.treatment.model if self.treatment is not None else None,
            tags=self.treatment.tags if self.treatment is not None else (),
            method=self.head.method,
            path=self.head.path_text,
            status=self.status,
            rejected=self.rejected,
            reason=self.reason,
            upstream_error=str(self.error.kind) if self.error is not None else None,
            upstream_detail=self.error.message if self.error is not None else None,
            upstream_cause=self.error.cause if self.error is not None else None,
            waited_ms=self.waited_ns // 1_000_000,
            duration_ms=(self.engine.now_ns() - self.started_ns) // 1_000_000,
            attempts=self.attempts,
            bytes_out=self.bytes_out,
            usage=self.usage(),
            retry_after_s=self.retry_after_s,
        )


def _too_large(limit: int) -> BodyRefused:
    return BodyRefused(Reason.BODY_TOO_LARGE, rejection_text(Reason.BODY_TOO_LARGE, limit=limit))


def _header_text(text: str) -> bytes:
    """Return a policy's words as a header's value: what a header cannot hold is left out or escaped."""
    shown = "".join(char if char.isprintable() else " " for char in text[:HEADER_TEXT_MAX])
    return " ".join(shown.split()).encode("ascii", "backslashreplace")
