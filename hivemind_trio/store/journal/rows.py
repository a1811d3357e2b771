"""Journal rows of events; pure, computed on the writer's thread."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, final

import attrs
import msgspec

from hivemind_trio.model import Decider, Decision, Reason, Request
from hivemind_trio.model.addresses import address_text
from hivemind_trio.policy import ModelPrice
from hivemind_trio.scheduler import (
    AttemptEnded,
    CallArrived,
    CallCancelled,
    CallId,
    Command,
    Event,
    Finish,
    Grant,
    PlanChanged,
    PolicyLoaded,
    Reject,
    SessionFacts,
)
from hivemind_trio.store.journal.recorded_events import PolicyFiles, Recorded, event_row
from hivemind_trio.store.journal.redaction import HEADERS, LONGEST, METADATA, kept_credential, told

DECIDERS_MAX: Final = 1_024
"""Kept in memory; the same is written once more if there are others in between."""

HEADER_SETS_MAX: Final = 1_024
"""The same. A call has the number of one of the last so many sets before it, or of a later one."""

MILLISECOND_NS: Final = 1_000_000

INT_MAX: Final = (1 << 63) - 1
"""Largest integer of SQLite.

A request may ask for as many tokens as it likes, and a policy may let it wait for as many years.
"""

_json: Final = msgspec.json.Encoder().encode


class Answered(Protocol):
    """Facts of a call whose agent has its answer or has disconnected."""

    @property
    def id(self) -> str:
        """Id of the call in the journal."""
        ...

    @property
    def number(self) -> CallId | None:
        """Id of the call in the scheduler; None if it never got there."""
        ...

    @property
    def method(self) -> str:
        """HTTP method."""
        ...

    @property
    def path(self) -> str:
        """Path of the request."""
        ...

    @property
    def agent(self) -> str:
        """Name of the agent."""
        ...

    @property
    def status(self) -> int:
        """HTTP status that the client got."""
        ...

    @property
    def rejected(self) -> bool:
        """True if the proxy rejected the call."""
        ...

    @property
    def reason(self) -> Reason:
        """Reason of the rejection or of the longest wait."""
        ...

    @property
    def upstream_error(self) -> str | None:
        """Error of the provider; None if there was none."""
        ...

    @property
    def attempts(self) -> int:
        """Number of attempts."""
        ...

    @property
    def bytes_out(self) -> int:
        """Bytes sent to the client."""
        ...

    @property
    def lane(self) -> str | None:
        """Lane of the call; None if it has none."""
        ...

    @property
    def waited_ms(self) -> int:
        """Time in the queue."""
        ...


Price: TypeAlias = Callable[[str, str | None], ModelPrice | None]
"""`Program.price`."""


def no_price(model: str, provider: str | None) -> None:
    """Know no price."""


class _Attempt(NamedTuple):
    number: int
    provider: str | None
    model: str


_UNKNOWN: Final = _Attempt(1, None, "")


@final
@attrs.frozen
class Began:
    """A session has."""

    version: str
    policy_hash: str
    reads: frozenset[str]
    price: Price


@final
@attrs.frozen
class Over:
    """A call is."""

    answered: Answered


@final
@attrs.frozen
class InSession:
    """A call has arrived, with what is known of its session."""

    arrived: CallArrived
    session: SessionFacts


Entry: TypeAlias = tuple[int, int, Event | InSession | Began | Over | Recorded | PolicyFiles, Sequence[Command]]
"""When, by the engine and by the clock on the wall; what; and what came of it."""


@final
@attrs.define(eq=False)
class Scribe:
    """Turns entries into rows. It knows what was written before, so each entry is its to see once."""

    session: int
    decided: int
    """The last number that was given to deciders."""
    header_set: int
    """The last number that was given to a set of headers."""
    _salt: bytes = attrs.field(repr=False)
    _deciders: dict[int, tuple[Mapping[str, Decider], int]] = attrs.field(init=False, factory=dict)
    """Identity -> what is kept alive for it, and its number."""
    _header_sets: dict[bytes, int] = attrs.field(init=False, factory=dict)
    """Digest of all headers and metadata of a call -> the number of what is kept of them.

    A digest, for they have credentials, and any length.
    """
    _headers_kept: frozenset[str] = attrs.field(init=False, default=HEADERS)
    _metadata_kept: frozenset[str] = attrs.field(init=False, default=METADATA)
    _keeps_addresses: bool = attrs.field(init=False, default=False)
    """True if a condition reads the address of the caller."""
    _models: dict[CallId, str] = attrs.field(init=False, factory=dict)
    """Model that each call asked for, until its answer."""
    _attempts: dict[CallId, _Attempt] = attrs.field(init=False, factory=dict)
    """Attempt of each call in flight."""
    _price: Price = attrs.field(init=False, default=no_price)

    def rows(self, entries: Sequence[Entry]) -> dict[str, list[tuple[Any, ...]]]:
        """Table -> its new rows, in order."""
        rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        session = self.session
        for at_ns, wall_ns, what, commands in entries:
            match what:
                case CallArrived():
                    rows["calls"].append(self._call(what, None, at_ns, wall_ns, rows))
                case InSession(arrived=arrived, session=known):
                    rows["calls"].append(self._call(arrived, known, at_ns, wall_ns, rows))
                case AttemptEnded():
                    rows["ends"].append(self._end(what, at_ns, commands))
                case Over(answered=answered):
                    if answered.number is not None:
                        self._models.pop(answered.number, None)
                    rows["answers"].append(self._answer(answered, at_ns))
                case CallCancelled(call_id=call_id):
                    rows["departures"].append((session, call_id, at_ns))
                case PolicyLoaded(program=program):
                    self._read(program.reads)
                    self._price = program.price
                    rows["policies"].append((session, at_ns, program.hash))
                case Recorded():
                    rows["events"].append(event_row(session, at_ns, self._redacted(what)))
                case PolicyFiles():
                    row = (what.hash, what.path, _object(what.files), what.host)
                    rows["policy_files"].append(row)
                case Began():
                    self._read(what.reads)
                    self._price = what.price
                    rows["sessions"].append((session, wall_ns - at_ns, what.version, None, os.getpid()))
                    rows["policies"].append((session, at_ns, what.policy_hash))
            for command in commands:
                if isinstance(command, Grant):
                    rows["grants"].append(self._grant(command, at_ns, rows))
                elif isinstance(command, Reject):
                    rows["refusals"].append(self._rejection(command, at_ns, rows))
                elif isinstance(command, PlanChanged):
                    rows["plans"] += self._plan(command, at_ns)
        return rows

    def _redacted(self, recorded: Recorded) -> Recorded:
        """Return the same without headers and metadata that the journal does not keep."""
        if not isinstance(recorded.event, CallArrived):
            return recorded
        call = recorded.event.call
        request = attrs.evolve(
            call.request,
            headers=told(call.request.headers, self._headers_kept),
            meta=told(call.request.meta, self._metadata_kept),
        )
        return attrs.evolve(recorded, event=CallArrived(attrs.evolve(call, request=request)))

    def _call(
        self,
        arrived: CallArrived,
        known: SessionFacts | None,
        at_ns: int,
        wall_ns: int,
        rows: dict[str, list[tuple[Any, ...]]],
    ) -> tuple[Any, ...]:
        call = arrived.call
        request = call.request
        if call.needs_slot:
            self._models[call.id] = request.model
        facts: tuple[int | None, ...] = (None,) * 4
        if known is not None:
            facts = _fit(known.context), known.turns, _fit(known.cost), known.age_ns
        return (
            *(self.session, call.id, at_ns, wall_ns),
            *(" ".join(request.apis), request.method, request.path, request.model[:LONGEST]),
            *(int(request.stream), int(request.tools), int(request.images)),
            *(_fit(request.tokens_in), _fit(request.tokens_max_out)),
            *(_fit(request.cost_microusd), request.hour, request.weekday),
            *(request.token_agent, request.claimed),
            *("", ""),
            *(call.caller, call.job, call.prefix, kept_credential(call.credential), call.again),
            *(_fit(call.patience_ns), int(call.needs_slot), self._headers(request, rows)),
            *(request.minute, request.date, *facts),
            address_text(request.client_address) if self._keeps_addresses else None,
            *(_fit(request.tokens_counted or None), request.counted_by),
        )

    def _headers(self, request: Request, rows: dict[str, list[tuple[Any, ...]]]) -> int:
        """Return the number of what is kept of a call's headers and metadata; calls of one client share it."""
        sets = self._header_sets
        if len(sets) >= HEADER_SETS_MAX:
            sets.clear()
        words = (*request.headers, *request.headers.values(), "", *request.meta, *request.meta.values())
        key = blake2b("\0".join(words).encode(errors="surrogatepass"), key=self._salt, digest_size=16).digest()
        number = sets.get(key)
        if number is None:
            self.header_set += 1
            number = sets[key] = self.header_set
            headers, meta = told(request.headers, self._headers_kept), told(request.meta, self._metadata_kept)
            rows["header_sets"].append((number, _object(headers), _object(meta)))
        return number

    def _read(self, fields: frozenset[str]) -> None:
        """Keep what the policy of now depends on."""
        self._headers_kept = HEADERS | _named(fields, "header.")
        self._metadata_kept = METADATA | _named(fields, "meta.")
        self._keeps_addresses = "client.address" in fields
        self._header_sets.clear()

    def _grant(self, grant: Grant, at_ns: int, rows: dict[str, list[tuple[Any, ...]]]) -> tuple[Any, ...]:
        treatment = grant.treatment
        if grant.permit is not None:
            model = treatment.model or self._models.get(grant.call_id, "")
            self._attempts[grant.call_id] = _Attempt(grant.attempt, treatment.provider, model)
        return (
            *(self.session, grant.call_id, grant.attempt, at_ns, grant.waited_ns, str(grant.reason)),
            *(treatment.agent, treatment.team, treatment.lane, treatment.priority),
            *(treatment.provider or "", treatment.group, treatment.model, treatment.instead_of),
            *(" ".join(treatment.tags), " ".join(treatment.budgets), self._by(treatment, rows)),
            int(grant.permit is not None),
            treatment.account,
        )

    def _end(self, over: AttemptEnded, at_ns: int, commands: Sequence[Command]) -> tuple[Any, ...]:
        last = next((one for one in commands if isinstance(one, Finish) and one.call_id == over.call_id), None)
        ended, usage = over.ended, over.ended.usage
        attempt = self._attempts.pop(over.call_id, _UNKNOWN)
        taken: tuple[Any, ...] = (None,) * 6
        if usage is not None:
            price = self._price(attempt.model, attempt.provider)
            cost = price.cost_of(usage) if price is not None and price.has_price and usage.input is not None else None
            counts = (usage.input, usage.cache_read, usage.cache_write, usage.output)
            taken = *map(_fit, counts), int(usage.exact), _fit(cost)
        return (
            *(self.session, over.call_id, attempt.number, at_ns, str(ended.outcome)),
            *(ended.status, str(ended.failure) if ended.failure is not None else None, int(ended.committed)),
            *(ended.first_byte_ns, ended.silence_ns, ended.retry_after_ns),
            *taken,
            str(last.unretried) if last is not None and last.unretried is not None else None,
        )

    def _rejection(self, reject: Reject, at_ns: int, rows: dict[str, list[tuple[Any, ...]]]) -> tuple[Any, ...]:
        treatment = reject.treatment
        who: tuple[Any, ...] = (None,) * 4
        if treatment is not None:
            who = (treatment.agent, treatment.team, treatment.lane, self._by(treatment, rows))
        return (
            *(self.session, reject.call_id, at_ns, reject.waited_ns, str(reject.reason), reject.message),
            *(_fit(reject.retry_after_ns), *who),
        )

    def _plan(self, changed: PlanChanged, at_ns: int) -> list[tuple[Any, ...]]:
        account = kept_credential(changed.account)
        return [
            (
                *(self.session, changed.call_id, at_ns, changed.provider, account),
                *(one.name, str(one.span), one.models[:LONGEST], one.used, one.resets_ns, int(changed.overage)),
            )
            for one in changed.windows
        ]

    def _answer(self, answered: Answered, at_ns: int) -> tuple[Any, ...]:
        return (
            *(self.session, answered.number, answered.id, at_ns, answered.method, answered.path, answered.agent),
            *(answered.status, int(answered.rejected), str(answered.reason), answered.upstream_error),
            *(answered.attempts, answered.bytes_out, answered.lane, answered.waited_ms * MILLISECOND_NS),
        )

    def _by(self, treatment: Decision, rows: dict[str, list[tuple[Any, ...]]]) -> int:
        """Return the number of those who decided; calls that were decided alike share it."""
        decided = treatment.decided
        known = self._deciders.get(id(decided))
        if known is None:
            if len(self._deciders) >= DECIDERS_MAX:
                self._deciders.clear()
            self.decided += 1
            known = self._deciders[id(decided)] = decided, self.decided
            rows["deciders"].append((self.decided, _object({name: str(by) for name, by in decided.items()})))
        return known[1]


def _named(fields: frozenset[str], prefix: str) -> frozenset[str]:
    return frozenset(field.removeprefix(prefix) for field in fields if field.startswith(prefix))


def _fit(number: int | None) -> int | None:
    return None if number is None else min(number, INT_MAX)


def _object(words: Mapping[str, str]) -> str:
    return _json(words).decode()
