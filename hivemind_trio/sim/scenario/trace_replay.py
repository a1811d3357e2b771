"""Agents that have called before: from a journal's calls to jobs that can be set out to do again.

A job of the journal is what a caller says is one; within it calls follow one another. One that began after another had
ended waits for it here too, and for as long after it as then: what the agent thought about is taken for a matter of its
own. Calls that overlapped cannot have waited for each other: each begins a chain, at the time at which it came then.

How the providers failed was their condition of then and is not made again; that is the scenario's to say. So a call
that failed and was sent again is one turn, which takes what its good answer took; one that never had a good answer
takes what is usual among the others. What came after such a call, and whether because of it, nobody knows: that
begins a chain too.
"""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median_low
from typing import Final, final

import attrs

from hivemind_trio.model import Outcome, RecordedAttempt, RecordedCall
from hivemind_trio.model.dates import MINUTES, date_on, later
from hivemind_trio.policy import UNKNOWN_AGENT
from hivemind_trio.sim.agents.agent import AgentJob, Turn
from hivemind_trio.sim.agents.client import CLIENTS, ClientBehaviour
from hivemind_trio.sim.agents.fleet import Fleet
from hivemind_trio.sim.provider.latency_and_faults import Taken

KINDS: Final = (
    (re.compile(r"^claude-cli/"), "claude-code"),
    (re.compile(r"^(?:codex|ChatGPT)\b|^codex_", re.IGNORECASE), "codex"),
    (re.compile(r"^(?:Async)?Anthropic/"), "anthropic-sdk"),
    (re.compile(r"^(?:Async)?OpenAI/"), "openai-sdk"),
)
"""User-agent -> the client that behaves like it. Of any other nothing is known, and it dies of its first error."""

MINUTE_NS: Final = 60_000_000_000

_GOOD: Final = frozenset({Outcome.SUCCEEDED, Outcome.SLOW})

_OUTPUT_MOST: Final = 1_024
"""Largest output of a recorded request that sets none and had no answer."""


@final
@attrs.frozen
class _Turn:
    """One call of a job, and the same sent again until it had an answer."""

    calls: Sequence[RecordedCall]
    good: RecordedAttempt | None
    """The attempt that gave it its answer, or as much of one as its agent wanted; None: it never had one."""

    @property
    def first(self) -> RecordedCall:
        return self.calls[0]

    @property
    def ended_ns(self) -> int | None:
        """When its agent could go on; None: nobody knows."""
        # An agent that reads slowly has read the last of it later, which here is part of what it thinks.
        return self.good.ended_ns if self.good is not None else self.calls[-1].ended_ns


_Chain = list[_Turn]


def recorded_fleets(
    calls: Sequence[RecordedCall],
    *,
    from_ns: int = 0,
    for_ns: int | None = None,
    client: ClientBehaviour | None = None,
    silence_ns: int | None = None,
) -> tuple[Fleet, ...]:
    """Return the agents of a record: a fleet for each agent that its policy declared, and for each kind of client.

    Calls that need no slot never wait and are left out.

    Args:
        calls: In the order of arrival.
        from_ns: Of the record: what came before is left out, and what came then comes at the beginning.
        for_ns: What came so long after that, or later, is left out too; None: nothing is.
        client: What they all behave as; None: what each one's name says.
        silence_ns: How long they wait for a byte; None: as long as such a client does, and as these have done.
    """
    until_ns = None if for_ns is None else from_ns + for_ns
    within = [
        call
        for call in calls
        if call.needs_slot and call.arrived_ns >= from_ns and (until_ns is None or call.arrived_ns < until_ns)
    ]
    chains: dict[tuple[str, str], list[_Chain]] = {}
    for turns in _jobs(within):
        for chain in _chains(turns):
            first = chain[0].first
            kind = client.name if client is not None else _kind(first)
            chains.setdefault((first.agent or UNKNOWN_AGENT, kind), []).append(chain)
    usual = _UsualAnswers.of(turn for own in chains.values() for chain in own for turn in chain)
    kinds = Counter(agent for agent, _ in chains)
    fleets: list[Fleet] = []
    for (agent, kind), own in chains.items():
        name = agent if kinds[agent] == 1 else f"{agent} ({kind})"
        behaves = client or CLIENTS[kind]
        bears_ns = silence_ns or max([behaves.silence_ns, *(_borne_ns(turn) for chain in own for turn in chain)])
        jobs = (_job(f"{name}-{number}", chain, usual, from_ns) for number, chain in enumerate(own, start=1))
        fleets.append(
            Fleet(
                name=name,
                client=attrs.evolve(behaves, silence_ns=bears_ns),
                identities=(),
                recorded=tuple(jobs),
            )
        )
    return tuple(fleets)


def began(calls: Sequence[RecordedCall]) -> tuple[str, int] | None:
    """Return date and minute of the day at which a record begins, as its first call tells; None: there is none.

    Journals before version 6 tell of no date: it is one with that weekday.
    """
    if not calls:
        return None
    first = calls[0]
    request = first.request
    minutes = request.hour * 60 + request.minute - first.arrived_ns // MINUTE_NS
    return later(request.date or date_on(request.weekday), minutes // MINUTES), minutes % MINUTES


# ---- what belongs together ----


def _jobs(calls: Iterable[RecordedCall]) -> Iterator[list[_Turn]]:
    """Yield the turns of each job, in the order in which they first came."""
    jobs: dict[tuple[str, str], list[list[RecordedCall]]] = {}
    latest: dict[tuple[str, str, str], list[RecordedCall]] = {}
    for call in calls:
        whose = (call.caller, call.job)
        before = latest.get((*whose, call.again)) if call.again else None
        if before is not None and _failed_before(before[-1], call.arrived_ns):
            before.append(call)
            continue
        sent = latest[(*whose, call.again)] = [call]
        jobs.setdefault(whose, []).append(sent)
    for own in jobs.values():
        yield [_Turn(tuple(sent), next(filter(None, map(_answer, reversed(sent))), None)) for sent in own]


def _failed_before(call: RecordedCall, now_ns: int) -> bool:
    return _answer(call) is None and call.ended_ns is not None and call.ended_ns <= now_ns


def _chains(turns: Iterable[_Turn]) -> list[_Chain]:
    """Each turn behind the one that ended last before it came, where that ended well and nothing stands behind it."""
    chains: list[_Chain] = []
    free: list[tuple[int, int]] = []
    """When each chain's last turn ended, and its place among them; in order."""
    for turn in turns:
        found = bisect_right(free, (turn.first.arrived_ns, len(chains)))
        if found:
            _, place = free.pop(found - 1)
            chains[place].append(turn)
        else:
            place = len(chains)
            chains.append([turn])
        if turn.good is not None and turn.ended_ns is not None:
            insort(free, (turn.ended_ns, place))
    return chains


def _answer(call: RecordedCall) -> RecordedAttempt | None:
    """Return the attempt whose answer its agent had, or as much of it as it wanted."""
    if not call.attempts:
        return None
    last = call.attempts[-1]
    if last.ended_ns is None or not last.committed:
        # An error that is the request's own fault is an answer too.
        wrong = last.outcome is Outcome.IGNORED and 400 <= last.status < 500
        return last if wrong and last.ended_ns is not None else None
    left = last.outcome is Outcome.IGNORED and 0 < last.status < 500
    return last if last.outcome in _GOOD or left else None


def _kind(call: RecordedCall) -> str:
    name = call.request.headers.get("user-agent", "")
    return next((kind for pattern, kind in KINDS if pattern.search(name)), "none")


def _borne_ns(turn: _Turn) -> int:
    """Return the longest silence after which the client was still there."""
    good = turn.good
    if good is None or good.outcome not in _GOOD or good.ended_ns is None:
        return 0
    if turn.first.request.stream:
        return good.first_byte_ns or 0  # while it stood in line it may have been sent something to live on
    return good.ended_ns - turn.calls[-1].arrived_ns


# ---- what it takes ----


@final
@attrs.frozen
class _UsualAnswers:
    """Usual measurements of answers, by model and in all."""

    taken: Mapping[str | None, Taken]

    @classmethod
    def of(cls, turns: Iterable[_Turn]) -> _UsualAnswers:
        """Medians, each of its own."""
        all_of_them: dict[str | None, list[Taken]] = {}
        for turn in turns:
            good = turn.good
            if good is not None and good.outcome in _GOOD:
                for model in (turn.first.request.model, None):
                    all_of_them.setdefault(model, []).append(_taken(good))
        return cls({model: _median(each) for model, each in all_of_them.items()})

    def for_model(self, model: str) -> Taken:
        """Return the measurements for a model, else for all; unknown where no call had a good answer."""
        return self.taken.get(model) or self.taken.get(None, Taken())


def _median(taken: Sequence[Taken]) -> Taken:
    def of(values: Iterable[int | None]) -> int | None:
        there = [value for value in values if value is not None]
        return median_low(there) if there else None

    return Taken(
        latency_ns=of(each.latency_ns for each in taken),
        first_byte_ns=of(each.first_byte_ns for each in taken),
        tokens_out=of(each.tokens_out for each in taken),
    )


def _taken(attempt: RecordedAttempt) -> Taken:
    assert attempt.ended_ns is not None
    usage = attempt.usage
    return Taken(
        latency_ns=attempt.ended_ns - attempt.granted_ns,
        first_byte_ns=attempt.first_byte_ns,
        tokens_out=usage.output if usage is not None else None,
    )


def _job(name: str, chain: _Chain, usual: _UsualAnswers, free_ns: int) -> AgentJob:
    turns: list[Turn] = []
    for number, turn in enumerate(chain, start=1):
        turns.append(_turn(name, number, turn, usual, think_ns=turn.first.arrived_ns - free_ns))
        free_ns = turn.ended_ns or turn.first.arrived_ns
    return AgentJob(agent=name, turns=tuple(turns))


def _turn(name: str, number: int, turn: _Turn, usual: _UsualAnswers, *, think_ns: int) -> Turn:
    first, good = turn.first, turn.good
    request = first.request
    taken = usual.for_model(request.model) if good is None else _taken(good)
    if good is not None and good.status >= 400:
        taken = attrs.evolve(taken, tokens_out=0)
    tokens_in, cached = request.tokens_in, 0
    usage = good.usage if good is not None else None
    if usage is not None and usage.input is not None and usage.exact:
        cached = usage.cache_read
        tokens_in = usage.input + cached + usage.cache_write
    return Turn(
        number=number,
        think_ns=think_ns,
        stream=request.stream,
        prompt=f"{name}, turn {number}",
        tokens_max_out=request.tokens_max_out or taken.tokens_out or _OUTPUT_MOST,
        tokens_in=tokens_in,
        conversation=f"{first.caller} {first.job}",
        prefix=first.prefix,
        taken=attrs.evolve(taken, tokens_cached=cached),
        recorded=first,
    )
