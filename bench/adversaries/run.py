"""One drawing of the adversary bench in virtual time: a fleet of agents, a provider, and a way between them.

Every way gets the same jobs, the same provider with the same seed and agents with the same client. The client is the
Anthropic SDK's: 2 retries, 0.5 to 8 s, `retry-after` up to 60 s. An agent repeats a turn whose stream broke, five
times. `code` alone has a client with 10 retries, like Claude Code's. All calls are streams, so behind the proxy one
that waits for long gets a 200 and keep-alive events; an error after that is one more way for a stream to break.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from email.utils import formatdate
from enum import StrEnum
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Any, Final, Protocol, final

import attrs

from hivemind_trio.model import Outcome, QuotaReading, Reason, Request, Usage
from hivemind_trio.policy import Failure, Program, Server
from hivemind_trio.scheduler import (
    AttemptEnded,
    AttemptResult,
    Call,
    CallArrived,
    CallCancelled,
    CallId,
    Command,
    Event,
    Finish,
    Grant,
    LimitChanged,
    Reject,
    ResponseStarted,
    Scheduler,
    StreamsReceived,
    TimePassed,
)
from hivemind_trio.sim import CLIENTS, ClientBehaviour, ClientReply
from hivemind_trio.wire import read_ratelimits, read_signal, used_up

from .provider import EPOCH_S, SECOND_NS, Answer, Ask, Exchange, Provider, Stage, Traits, error_event

RETRY_AFTER_MAX_NS: Final = 60 * SECOND_NS
BROKEN_RETRIES: Final = 5
FIXED: Final = 8
"""Concurrency of the way `fixed`."""
PING_NS: Final = 15 * SECOND_NS
HEADED_NS: Final = 5 * SECOND_NS
"""As in `proxy/hold.py`."""
REPORT_NS: Final = SECOND_NS // 2
"""Time between two reports of what streams have received, as in the proxy."""
EVENT_TOKENS: Final = 10
"""Tokens of one event of a stream."""
EVENTS_MAX: Final = 400_000
"""Of one run: more is a livelock."""


@final
class Way(StrEnum):
    """What is between the agents and the provider."""

    DIRECT = "direct"
    """Nothing; the SDK's client."""
    CODE = "code"
    """Nothing; a client with 10 retries."""
    FIXED = "fixed"
    """Eight at once, first come first served, ten retries."""
    AIMD = "aimd"
    """2 to 64 at once by additive increase and multiplicative decrease, ten retries."""
    OURS = "ours"
    """The scheduler, told `concurrency 2..64`."""
    DECLARED = "declared"
    """The scheduler, told the limits."""


@final
@attrs.frozen(kw_only=True)
class Turn:
    """One call of a job."""

    ask: Ask
    think_ns: int


@final
@attrs.frozen(kw_only=True)
class Job:
    """The turns of one agent, one after another."""

    agent: str
    start_ns: int
    turns: tuple[Turn, ...]


@final
@attrs.frozen(kw_only=True)
class Drawing:
    """A provider and a fleet."""

    name: str
    seed: int
    traits: Traits
    jobs: tuple[Job, ...]
    patience_ns: int
    own_keys: bool = False
    """Each agent has a key of its own for the one account."""

    @property
    def turns(self) -> int:
        """Of all jobs."""
        return sum(len(job.turns) for job in self.jobs)


@final
@attrs.frozen
class Level:
    """State at one time, for the picture."""

    at_ns: int
    limit: int
    inflight: int
    waiting: int
    troubles: int


@final
@attrs.frozen(kw_only=True)
class Result:
    """What came of one drawing, one way."""

    way: Way
    makespan_ns: int
    turns: int
    """Done."""
    turns_all: int
    dead: int
    """Agents that died, or were still at work when time was up."""
    died_of: dict[str, int]
    attempts: int
    refused: dict[str, int]
    """The provider's true reasons."""
    standstill_ns: int
    """Longest time in which calls waited and nothing was in flight."""
    standstill_at_ns: int
    behind: int
    """Errors that the proxy sent behind a 200 of its own, as an event of the stream."""
    crashed: str
    """An exception of the scheduler."""
    digest: str
    levels: tuple[Level, ...]

    @property
    def wasted(self) -> float:
        """Attempts without a turn, per turn of all jobs."""
        return (self.attempts - self.turns) / self.turns_all


# ---- virtual time ----


@attrs.define(eq=False)
class Loop:
    """Events in the order of their time, the provider's among them."""

    provider: Provider
    jitter: Random | None = None
    """Of the way to the provider; None: a request arrives at once."""
    now_ns: int = 0
    over: bool = False
    events: int = 0
    heap: list[list[Any]] = attrs.field(init=False, factory=list)
    _entries: int = attrs.field(init=False, default=0)

    def at(self, at_ns: int, do: Callable[..., None], *args: Any) -> list[Any]:
        """Call `do(*args)` then."""
        self._entries += 1
        entry = [max(at_ns, self.now_ns), self._entries, do, args]
        heappush(self.heap, entry)
        return entry

    @staticmethod
    def forget(entry: list[Any] | None) -> None:
        """Do not call it."""
        if entry is not None:
            entry[2] = None

    def run(self, until_ns: int) -> None:
        """Until nothing is left, `over` is set, or the time has come."""
        heap, provider = self.heap, self.provider
        while not self.over:
            while heap and heap[0][2] is None:
                heappop(heap)
            due_ns = provider.next_ns()
            if due_ns is not None and (not heap or due_ns <= heap[0][0]):
                if due_ns > until_ns:
                    return
                self.now_ns = max(self.now_ns, due_ns)
                for exchange, stage in provider.due(self.now_ns):
                    if exchange.owner is not None:
                        exchange.owner.came(stage)
            elif heap and heap[0][0] <= until_ns:
                at_ns, _, do, args = heappop(heap)
                self.now_ns = at_ns
                do(*args)
            else:
                return
            self.events += 1
            if self.events > EVENTS_MAX:
                return


# ---- attempts ----


@final
class How(StrEnum):
    """End of an attempt."""

    WHOLE = "whole"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    RESET = "reset"
    ERROR = "error event"
    NO_END = "no end"
    FIRST_BYTE = "first byte"
    IDLE = "idle"
    TOTAL = "total"
    LEFT = "client left"


@final
@attrs.frozen(kw_only=True)
class End:
    """What became of an attempt."""

    how: How
    content: bool = False
    answer: Answer | None = None
    lasted_ns: int = 0
    first_ns: int | None = None
    silence_ns: int | None = None
    """Usual time between two events of the stream."""
    tokens_out: int = 0


@attrs.define(eq=False)
class Attempt:
    """One exchange, as its sender sees it. `over` is called once."""

    loop: Loop
    ask: Ask
    over: Callable[[End], None]
    first_byte_ns: int
    """Bound on the time to the first content event."""
    idle_ns: int
    total_ns: int
    headed: Callable[[dict[str, str]], None] | None = None
    contented: Callable[[], None] | None = None
    exchange: Exchange | None = attrs.field(init=False, default=None)
    _began_ns: int = attrs.field(init=False, default=0)
    content_ns: int | None = attrs.field(init=False, default=None)
    _alarm: list[Any] | None = attrs.field(init=False, default=None)
    _done: bool = attrs.field(init=False, default=False)

    def begin(self) -> None:
        """Send it."""
        loop = self.loop
        self._began_ns = loop.now_ns
        self._watch(How.FIRST_BYTE, min(self.first_byte_ns, self.total_ns))
        if loop.jitter is None:
            self._arrive()
        else:
            loop.at(loop.now_ns + int(loop.jitter.random() * loop.provider.traits.rtt_ns / 2), self._arrive)

    def _arrive(self) -> None:
        if self._done:
            return
        loop = self.loop
        exchange = self.exchange = loop.provider.arrive(self.ask, loop.now_ns)
        back_ns = self._began_ns + loop.provider.traits.rtt_ns
        if exchange.unreachable:
            loop.at(back_ns, self._end, How.UNREACHABLE)
        elif exchange.refused is not None:
            loop.at(back_ns, self._end, How.REFUSED, exchange.refused)
        else:
            exchange.owner = self

    def came(self, stage: Stage) -> None:
        """A milestone has come."""
        if self._done:
            return
        match stage:
            case Stage.HEAD:
                assert self.exchange is not None
                if self.headed is not None:
                    self.headed(self.exchange.head)
            case Stage.CONTENT:
                self.content_ns = self.loop.now_ns
                if self.contented is not None:
                    self.contented()
                # The closing event comes later than any gap between two events, so silence is bounded by a stall.
                assert self.exchange is not None
                if self.exchange.stalled:
                    self._watch(How.IDLE, self.idle_ns)
                else:
                    left_ns = self._began_ns + self.total_ns - self.loop.now_ns
                    self._watch(How.TOTAL, left_ns)
            case Stage.END:
                self._end(How.WHOLE)
            case Stage.ERROR:
                traits = self.loop.provider.traits
                event = error_event(traits.api, traits.error_status)
                self._end(How.ERROR, Answer(traits.error_status, {}, event, "error event"))
            case Stage.CUT:
                self._end(How.RESET)
            case Stage.NO_END:
                self._end(How.NO_END)

    def leave(self, how: How = How.LEFT) -> None:
        """Cancel it."""
        self._end(how)

    def _watch(self, how: How, after_ns: int) -> None:
        self.loop.forget(self._alarm)
        self._alarm = self.loop.at(self.loop.now_ns + max(0, after_ns), self._end, how)

    def _end(self, how: How, answer: Answer | None = None) -> None:
        if self._done:
            return
        self._done = True
        self.loop.forget(self._alarm)
        exchange, out = self.exchange, 0
        if exchange is not None and exchange.admitted:
            self.loop.provider.leave(exchange, self.loop.now_ns)
            out = self.loop.provider.generated(exchange)
        content_ns = self.content_ns
        self.over(
            End(
                how=how,
                content=content_ns is not None,
                answer=answer,
                lasted_ns=self.loop.now_ns - self._began_ns,
                first_ns=None if content_ns is None else content_ns - self._began_ns,
                silence_ns=None
                if content_ns is None
                else (self.loop.now_ns - content_ns) // max(1, out // EVENT_TOKENS),
                tokens_out=out,
            )
        )


# ---- agents ----


class Road(Protocol):
    """A way from a client to the provider."""

    def send(self, agent: Agent) -> None: ...


@attrs.define(eq=False)
class Agent:
    """A job under way."""

    job: Job
    number: int
    client: ClientBehaviour
    patience_ns: int
    world: World
    chance: Random
    had: int = 0
    retried: int = 0
    broken: int = 0
    asked_ns: int = 0
    """When the request of now was sent."""
    died_of: str = ""

    @property
    def turn(self) -> Turn:
        """The turn of now."""
        return self.job.turns[self.had]

    def think(self) -> None:
        """Work on the last answer, then ask."""
        self.retried = self.broken = 0
        self.world.loop.at(self.world.loop.now_ns + self.turn.think_ns, self.ask)

    def ask(self) -> None:
        """Send the request."""
        self.asked_ns = self.world.loop.now_ns
        self.world.road.send(self)

    def replied(self, reply: ClientReply) -> None:
        """The client has an answer, or has none and gives up."""
        world = self.world
        if reply.whole:
            self.had += 1
            world.turned(self)
            if self.had < len(self.job.turns):
                self.think()
            else:
                world.ended(self)
            return
        pause_ns = self.client.pause_ns(reply, self.retried, self.broken, self.chance)
        if pause_ns is None:
            self.died_of = reply.why
            world.say(f"{self.job.agent} DIES of {reply.why}")
            world.ended(self)
            return
        self.retried += 1
        self.broken += reply.broken
        world.loop.at(world.loop.now_ns + pause_ns, self.ask)


@attrs.define(eq=False)
class World:
    """One run."""

    drawing: Drawing
    way: Way
    program: Program
    told: Callable[[str], None] | None = None
    """Gets a line for everything that happens."""
    observe: Callable[[int, Event, Sequence[Command]], None] | None = None
    """Called after each event of the scheduler's, as a journal is."""
    road_number: int = 0
    """Other times on the way to the provider, everything else the same."""
    provider: Provider = attrs.field(init=False)
    loop: Loop = attrs.field(init=False)
    road: Road = attrs.field(init=False)
    attempts: int = attrs.field(init=False, default=0)
    troubles: int = attrs.field(init=False, default=0)
    behind: int = attrs.field(init=False, default=0)
    waiting: int = attrs.field(init=False, default=0)
    inflight: int = attrs.field(init=False, default=0)
    crashed: str = attrs.field(init=False, default="")
    refused: Counter[str] = attrs.field(init=False, factory=Counter)
    sampled_ns: int = attrs.field(init=False, default=0)
    """When the next sample is due."""
    agents: list[Agent] = attrs.field(init=False, factory=list)
    _left: int = attrs.field(init=False, default=0)
    _turns: int = attrs.field(init=False, default=0)
    _ended_ns: int = attrs.field(init=False, default=0)
    _still_ns: int | None = attrs.field(init=False, default=None)
    _longest: tuple[int, int] = attrs.field(init=False, default=(0, 0))
    _levels: list[Level] = attrs.field(init=False, factory=list)
    _step_ns: int = attrs.field(init=False, default=SECOND_NS // 10)
    _hash: Any = attrs.field(init=False, factory=lambda: hashlib.blake2b(digest_size=8))

    def __attrs_post_init__(self) -> None:
        self.provider = Provider(self.drawing.traits, self.drawing.seed)
        number = f"/{self.road_number}" if self.road_number else ""
        self.loop = Loop(self.provider, Random(f"{self.drawing.seed}/road{number}"))
        client = CLIENTS["claude-code" if self.way is Way.CODE else "anthropic-sdk"]
        patience_ns = self.drawing.patience_ns
        client = attrs.evolve(client, broken_retries=BROKEN_RETRIES, silence_ns=patience_ns, known_ns=patience_ns)
        self.agents = [
            Agent(job, number, client, patience_ns, self, Random(f"{self.drawing.seed}/client/{number}"))
            for number, job in enumerate(self.drawing.jobs)
        ]
        self._left = len(self.agents)
        self.road = _ROADS[self.way](self)

    def run(self, until_ns: int) -> Result:
        """Let it happen."""
        for agent in self.agents:
            self.loop.at(agent.job.start_ns, agent.think)
        self.loop.run(until_ns)
        self.stood()
        undone = 0
        for agent in self.agents:
            undone += not agent.died_of and agent.had < len(agent.job.turns)
        died_of = Counter(agent.died_of for agent in self.agents if agent.died_of)
        if undone:
            died_of["crash" if self.crashed else "time is up"] = undone
        whole = not undone
        return Result(
            way=self.way,
            makespan_ns=self._ended_ns if whole else self.loop.now_ns,
            turns=self._turns,
            turns_all=self.drawing.turns,
            dead=sum(died_of.values()),
            died_of=dict(died_of),
            attempts=self.attempts,
            refused=dict(self.refused),
            standstill_ns=self._longest[0],
            standstill_at_ns=self._longest[1],
            behind=self.behind,
            crashed=self.crashed,
            digest=self._hash.hexdigest(),
            levels=tuple(self._levels),
        )

    # ---- what happens ----

    def turned(self, agent: Agent) -> None:
        """A turn is done."""
        self._turns += 1
        self._hash.update(f"{agent.number} {self.loop.now_ns};".encode())

    def ended(self, agent: Agent) -> None:
        """An agent has died, or is done."""
        self._hash.update(f"{agent.number} {agent.died_of} {self.loop.now_ns}.".encode())
        self._ended_ns = self.loop.now_ns
        self._left -= 1
        if not self._left:
            self.loop.over = True

    def begun(self) -> None:
        """An attempt begins."""
        self.attempts += 1
        self.inflight += 1
        self.stood()

    def finished(self, end: End) -> None:
        """An attempt is over."""
        self.inflight -= 1
        if end.how is not How.WHOLE:
            self.troubles += 1
            why = end.answer.why if end.answer is not None else end.how.value
            self.refused[why] += 1

    def stood(self) -> None:
        """Look whether calls wait while nothing is in flight."""
        now_ns = self.loop.now_ns
        if self.waiting > 0 and not self.inflight:
            if self._still_ns is None:
                self._still_ns = now_ns
        elif self._still_ns is not None:
            if now_ns - self._still_ns > self._longest[0]:
                self._longest = now_ns - self._still_ns, self._still_ns
            self._still_ns = None

    def sample(self, limit: int) -> None:
        """Keep the state of now for the picture."""
        now_ns, levels = self.loop.now_ns, self._levels
        if now_ns < self.sampled_ns:
            return
        levels.append(Level(now_ns, limit, self.inflight, max(0, self.waiting), self.troubles))
        if len(levels) > 1_000:
            del levels[1::2]
            self._step_ns *= 2
        self.sampled_ns = now_ns + self._step_ns

    def say(self, line: str) -> None:
        """Tell who listens."""
        if self.told is not None:
            self.told(f"{self.loop.now_ns / 1e9:9.3f}  {line}")


# ---- without a scheduler ----


def client_reply(end: End) -> ClientReply:
    """What a client of the provider itself makes of an attempt."""
    match end.how:
        case How.WHOLE:
            return ClientReply(status=200, whole=True)
        case How.REFUSED:
            assert end.answer is not None
            signal = read_signal(end.answer.status, end.answer.headers, end.answer.body)
            why = f"{end.answer.status} {end.answer.why}"
            return ClientReply(status=end.answer.status, retry_after_ns=signal.retry_after_ns, why=why)
        case How.UNREACHABLE:
            return ClientReply(status=0, why="connection refused")
        case How.RESET if not end.content:
            return ClientReply(status=0, why="connection reset")
        case How.FIRST_BYTE | How.LEFT:
            return ClientReply(status=0, timed_out=True, why="no answer for too long")
        case _:
            return ClientReply(status=200, broken=True, why=f"stream broke: {end.how.value}")


@final
@attrs.define(eq=False)
class Direct:
    """Clients call the provider."""

    world: World

    def send(self, agent: Agent) -> None:
        """Begin an attempt at once."""
        world = self.world
        world.begun()
        patience_ns = agent.patience_ns
        Attempt(
            world.loop,
            agent.turn.ask,
            partial(self._over, agent),
            first_byte_ns=patience_ns,
            idle_ns=patience_ns,
            total_ns=1 << 62,
        ).begin()

    def _over(self, agent: Agent, end: End) -> None:
        self.world.finished(end)
        self.world.sample(0)
        agent.replied(client_reply(end))


@attrs.define(eq=False)
class _Held:
    """One call in `Limited`."""

    agent: Agent
    alarm: list[Any] | None = None
    attempt: Attempt | None = None
    retried: int = 0
    gone: bool = False


@final
@attrs.define(eq=False)
class Limited:
    """Limits concurrency, fixed or by AIMD, and retries ten times with back-off: what simple proxies do."""

    world: World
    adapts: bool
    limit: float = 8.0
    _queue: deque[_Held] = attrs.field(init=False, factory=deque)
    _cut_ns: int = attrs.field(init=False, default=-(1 << 62))
    _inflight: int = attrs.field(init=False, default=0)
    _chance: Random = attrs.field(init=False)
    _client: ClientBehaviour = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._chance = Random(f"{self.world.drawing.seed}/limited")
        self._client = attrs.evolve(CLIENTS["claude-code"], last_ns=8 * SECOND_NS)

    def send(self, agent: Agent) -> None:
        """Queue a call."""
        held = _Held(agent)
        held.alarm = self.world.loop.at(agent.asked_ns + agent.patience_ns, self._gone, held)
        self.world.waiting += 1
        self._enter(held)

    def _enter(self, held: _Held) -> None:
        if not held.gone:
            self._queue.append(held)
            self._dispatch()

    def _dispatch(self) -> None:
        world = self.world
        while self._queue and self._inflight < int(self.limit):
            held = self._queue.popleft()
            if held.gone:
                continue
            self._inflight += 1
            world.waiting -= 1
            world.begun()
            held.attempt = Attempt(
                world.loop,
                held.agent.turn.ask,
                partial(self._over, held),
                first_byte_ns=1 << 62,
                idle_ns=held.agent.patience_ns,
                total_ns=1 << 62,
                contented=partial(world.loop.forget, held.alarm),
            )
            held.attempt.begin()

    def _gone(self, held: _Held) -> None:
        """Its client has waited for too long."""
        held.gone = True
        if held.attempt is not None:
            held.attempt.leave()
            return
        self.world.waiting -= 1
        held.agent.replied(ClientReply(status=0, timed_out=True, why="no answer for too long"))

    def _over(self, held: _Held, end: End) -> None:
        world = self.world
        held.attempt = None
        self._inflight -= 1
        world.finished(end)
        reply = client_reply(end)
        if self.adapts:
            self._adapt(end, reply)
        pause_ns = None
        if not (reply.whole or reply.broken or held.gone):
            pause_ns = self._client.pause_ns(reply, held.retried, 0, self._chance)
        if pause_ns is None:
            world.loop.forget(held.alarm)
            held.agent.replied(reply)
        else:
            held.retried += 1
            world.waiting += 1
            world.loop.at(world.loop.now_ns + pause_ns, self._enter, held)
        self._dispatch()
        world.stood()
        world.sample(int(self.limit))

    def _adapt(self, end: End, reply: ClientReply) -> None:
        if end.how is How.WHOLE:
            self.limit = min(64.0, self.limit + 1 / self.limit)
        elif reply.status in (429, 503, 529) and self.world.loop.now_ns >= self._cut_ns + 5 * SECOND_NS:
            self.limit = max(2.0, self.limit / 2)
            self._cut_ns = self.world.loop.now_ns


# ---- the scheduler ----


_STATUS: Final = {Reason.OVER_LIMITS: 413, Reason.DRAINING: 503, Reason.BREAKER_OPEN: 503}
"""Of refusals, as in `proxy/error_responses.py`; else 429."""

_FINAL: Final = frozenset({Reason.OVER_LIMITS, Reason.BUDGET, Reason.PROVIDER_SPENT})

_BROKE: Final = {
    How.UNREACHABLE: (Outcome.UNREACHABLE, Failure.CONNECT),
    How.RESET: (Outcome.FAILED, Failure.RESET),
    How.NO_END: (Outcome.FAILED, Failure.RESET),
    How.FIRST_BYTE: (Outcome.FAILED, Failure.FIRST_BYTE),
    How.IDLE: (Outcome.FAILED, Failure.IDLE),
    How.TOTAL: (Outcome.FAILED, Failure.TIMEOUT),
}


def readings_of(headers: dict[str, str]) -> tuple[QuotaReading, ...]:
    """Rate limits in the head of an answer, by the proxy's reader."""
    return read_ratelimits(headers)


def refused_as(answer: Answer) -> AttemptResult:
    """A refusal, by the proxy's reader (`proxy/attempt.py`, `_of_error`)."""
    signal = read_signal(answer.status, answer.headers, answer.body)
    return AttemptResult(
        outcome=signal.outcome,
        status=answer.status,
        retry_after_ns=signal.retry_after_ns,
        by_reset=signal.by_reset,
        used_up=used_up(answer.headers, answer.body) if signal.outcome is Outcome.QUOTA else (),
        final=signal.final,
    )


def ended_as(end: End, ask: Ask) -> AttemptResult:
    """The end of an attempt, as the proxy tells its scheduler (`proxy/attempt.py`).

    Errors, resets, stalls and ends before the first content event are failed attempts of which the client has had
    nothing (design `feedback.md`, principle 9).
    """
    usage = Usage(input=ask.tokens_in, output=end.tokens_out)
    match end.how:
        case How.WHOLE:
            return AttemptResult(
                outcome=Outcome.SUCCEEDED,
                status=200,
                committed=True,
                usage=usage,
                first_byte_ns=end.first_ns,
                silence_ns=end.silence_ns,
            )
        case How.REFUSED:
            assert end.answer is not None
            return refused_as(end.answer)
        case How.ERROR:
            assert end.answer is not None
            ended = refused_as(end.answer)
            return attrs.evolve(ended, status=200, committed=True, usage=usage) if end.content else ended
        case How.LEFT:
            return AttemptResult(outcome=Outcome.IGNORED, committed=True, usage=usage if end.content else None)
        case _:
            outcome, failure = _BROKE[end.how]
            hung = end.how in (How.FIRST_BYTE, How.IDLE)
            return AttemptResult(
                outcome=outcome,
                status=200 if end.content or end.how is How.NO_END else 0,
                failure=failure,
                committed=end.content,
                usage=usage if end.content else None,
                first_byte_ns=(end.first_ns or end.lasted_ns) if hung else None,
                silence_ns=end.lasted_ns - (end.first_ns or 0) if end.how is How.IDLE else None,
            )


@attrs.define(eq=False)
class _Talk:
    """One call in the proxy. What its client hears while it waits, and when, is `proxy/hold.py`'s."""

    agent: Agent
    speaks_ns: int
    """When its client hears of the proxy next."""
    gives_up_ns: int
    """When it is sent away, if it waits."""
    ping_ns: int
    attempt: Attempt | None = None
    end: End | None = None
    alarm: list[Any] | None = None
    """Alarm that sends the call away, or at which its client leaves."""
    voice: list[Any] | None = None
    """Its client gets a 200 or a keep-alive event."""
    heard_ns: int = 0
    """When its client had a byte last, or began to wait for one."""
    headed: bool = False
    """Its client has a 200 of the proxy."""
    granted_ns: int = 0

    @classmethod
    def of(cls, agent: Agent, server: Server) -> _Talk:
        """A streamed call that arrives now; both dialects have a keep-alive event."""
        often_ns, now_ns = agent.patience_ns // 2, agent.asked_ns
        return cls(
            agent,
            speaks_ns=now_ns + min(server.silent_ns, often_ns),
            gives_up_ns=now_ns + server.silent_ns + server.hold_ns,
            ping_ns=min(PING_NS, often_ns),
            heard_ns=now_ns,
        )


@final
@attrs.define(eq=False)
class Ours:
    """Drives the real scheduler with the events that the runtime sends."""

    world: World
    scheduler: Scheduler = attrs.field(init=False)
    talks: dict[CallId, _Talk] = attrs.field(init=False, factory=dict)
    _ids: int = attrs.field(init=False, default=0)
    _alarm_ns: int | None = attrs.field(init=False, default=None)
    _streaming: dict[CallId, int] = attrs.field(init=False, factory=dict)
    """Tokens that each stream has received, as reported."""

    def __attrs_post_init__(self) -> None:
        self.scheduler = Scheduler(self.world.program, self.world.drawing.seed)

    def send(self, agent: Agent) -> None:
        """A request arrives at the proxy."""
        world, ask = self.world, agent.turn.ask
        self._ids += 1
        call_id = CallId(self._ids)
        talk = self.talks[call_id] = _Talk.of(agent, world.program.server)
        held_ns = talk.gives_up_ns - agent.asked_ns
        call = Call(
            id=call_id,
            request=Request(
                apis=(world.drawing.traits.api,),
                model=model_of(ask.group),
                path="/v1/messages",
                stream=True,
                tokens_in=ask.tokens_in,
                tokens_max_out=ask.tokens_max,
            ),
            caller=agent.job.agent,
            credential=agent.job.agent if world.drawing.own_keys else "",
            again=ask.key,
            # Its client does not try again by itself: it will have had its 200.
            patience_ns=held_ns,
            held_ns=held_ns,
        )
        world.waiting += 1
        self._wait(call_id, talk)
        world.say(f"{agent.job.agent} asks: call {call_id}, {ask.key}")
        self._post(CallArrived(call))

    # ---- the scheduler's side ----

    def _post(self, event: Event) -> None:
        world, now_ns = self.world, self.world.loop.now_ns
        if world.crashed:
            return
        try:
            commands = self.scheduler.handle(event, now_ns)
            wakeup_ns = self.scheduler.wakeup_ns()
        except Exception as error:  # noqa: BLE001 - a crash is a result of this bench
            world.crashed = f"{type(error).__name__}: {error} ({type(event).__name__})"
            world.say(f"CRASH {world.crashed}")
            world.loop.over = True
            return
        if world.observe is not None:
            world.observe(now_ns, event, commands)
        for command in commands:
            match command:
                case Grant():
                    self._begin(command)
                case Finish(call_id):
                    self._settle(call_id)
                case Reject():
                    self._refuse(command)
                case LimitChanged():
                    because = "" if command.because is None else f" because {command.because}"
                    world.say(f"    limit {command.limit}, circuit {command.circuit.name}{because}")
        world.stood()
        if wakeup_ns is not None and (self._alarm_ns is None or wakeup_ns < self._alarm_ns):
            self._arm(wakeup_ns)
        if now_ns >= world.sampled_ns:
            self._look()

    def _look(self) -> None:
        (pool,) = self.scheduler.snapshot().pools.values()
        self.world.sample(pool.limit)

    def _arm(self, wakeup_ns: int) -> None:
        self._alarm_ns = max(wakeup_ns, self.world.loop.now_ns)
        self.world.loop.at(self._alarm_ns, self._ring, self._alarm_ns)

    def _ring(self, alarm_ns: int) -> None:
        if alarm_ns != self._alarm_ns:
            return
        self._alarm_ns = None
        wakeup_ns = self.scheduler.wakeup_ns()
        if wakeup_ns is not None and wakeup_ns <= alarm_ns:
            self._post(TimePassed())
        elif wakeup_ns is not None:
            self._arm(wakeup_ns)

    # ---- attempts ----

    def _begin(self, grant: Grant) -> None:
        world, talk = self.world, self.talks[grant.call_id]
        self._hush(talk)
        world.waiting -= 1
        timeouts = grant.timeouts or world.program.providers["p"].timeouts
        agent = talk.agent
        world.begun()
        if world.told is not None:
            world.provider.advance(world.loop.now_ns)
            world.say(
                f"  grant {grant.call_id} ({agent.turn.ask.key}) attempt {grant.attempt}, waited "
                f"{grant.waited_ns / 1e9:.2f} for {grant.reason}; {self._state()}"
            )
        talk.granted_ns = world.loop.now_ns
        talk.attempt = Attempt(
            world.loop,
            agent.turn.ask,
            partial(self._over, grant.call_id),
            first_byte_ns=timeouts.first_byte_ns,
            idle_ns=min(timeouts.idle_ns, agent.patience_ns),
            total_ns=timeouts.total_ns,
            # The head of a stream is held, so it is not known yet whether the answer is good (`proxy/attempt.py`).
            headed=partial(self._streams, grant.call_id),
            contented=partial(self._contented, grant.call_id),
        )
        # Nothing is said before the head of the answer, so a client may have heard nothing for too long.
        talk.alarm = world.loop.at(talk.heard_ns + agent.patience_ns, talk.attempt.leave)
        talk.attempt.begin()

    def _streams(self, call_id: CallId, headers: dict[str, str]) -> None:
        """A stream has its head, and is held until its first content event."""
        talk, loop = self.talks[call_id], self.world.loop
        if not talk.headed:
            talk.speaks_ns = max(talk.speaks_ns, loop.now_ns + HEADED_NS)
        talk.voice = loop.at(talk.speaks_ns, self._speak, call_id)
        self._headed(call_id, False, headers)

    def _state(self) -> str:
        (pool,) = self.scheduler.snapshot().pools.values()
        provider = self.world.provider
        rooms = [
            f"{meter.quota.counted.value} {meter.room(self.world.loop.now_ns):,.1f}"
            for meters in provider.meters
            for meter in meters
        ]
        opens = "" if pool.opens_ns is None else f" opens {pool.opens_ns / 1e9:.2f}"
        return (
            f"limit {pool.limit}, in flight {pool.inflight}, waiting {pool.waiting}, {pool.circuit.name.lower()}{opens}"
            f" | truth: in flight {provider.inflight}, room: {', '.join(rooms) or 'no quota'}"
        )

    def _headed(self, call_id: CallId, good: bool, headers: dict[str, str]) -> None:
        readings = readings_of(self._received(headers))
        if readings:
            if self.world.told is not None:
                said = ", ".join(
                    f"{one.dimension.value} {one.remaining}/{one.limit}"
                    + ("" if one.resets_ns is None else f" reset {one.resets_ns / 1e9:.2f}")
                    for one in readings
                )
                self.world.say(f"    heard of {call_id}: {said}")
            self._post(ResponseStarted(call_id, readings, good))

    def _received(self, headers: dict[str, str]) -> dict[str, str]:
        """The head of an answer with the time of receipt, where it has no date, as the proxy reads it."""
        if "date" in headers:
            return headers
        return headers | {"date": formatdate(EPOCH_S + self.world.loop.now_ns // SECOND_NS, usegmt=True)}

    def _contented(self, call_id: CallId) -> None:
        self._hush(self.talks[call_id])
        if not self._streaming:
            self.world.loop.at(self.world.loop.now_ns + REPORT_NS, self._report)
        self._streaming[call_id] = 0
        self._post(ResponseStarted(call_id, (), True))

    def _report(self) -> None:
        """Tell the scheduler what streams have received."""
        world, received = self.world, {}
        world.provider.advance(world.loop.now_ns)
        for call_id, before in list(self._streaming.items()):
            attempt = self.talks[call_id].attempt if call_id in self.talks else None
            if attempt is None or attempt.exchange is None or attempt.content_ns is None:
                del self._streaming[call_id]
                continue
            out = world.provider.generated(attempt.exchange)
            if out > before:
                received[call_id] = out - before
                self._streaming[call_id] = out
        if self._streaming:
            world.loop.at(world.loop.now_ns + REPORT_NS, self._report)
        if received:
            self._post(StreamsReceived(received))

    def _over(self, call_id: CallId, end: End) -> None:
        world, talk = self.world, self.talks[call_id]
        if end.answer is not None:
            end = attrs.evolve(end, answer=attrs.evolve(end.answer, headers=self._received(end.answer.headers)))
        if end.answer is not None and end.how is How.REFUSED:
            self._headed(call_id, False, end.answer.headers)
        world.finished(end)
        self._hush(talk)
        talk.attempt, talk.end = None, end
        ended = attrs.evolve(ended_as(end, talk.agent.turn.ask), headed=talk.headed)
        if world.told is not None:
            said = "" if ended.retry_after_ns is None else f", retry-after {ended.retry_after_ns / 1e9:.2f}"
            why = "" if end.answer is None else f" {end.answer.status} (truth: {end.answer.why})"
            lasted = (world.loop.now_ns - talk.granted_ns) / 1e9
            world.say(f"  end {call_id} after {lasted:.2f}: {end.how.value}{why} -> {ended.outcome}{said}")
        if not ended.committed:
            world.waiting += 1
            self._wait(call_id, talk)
        self._post(AttemptEnded(call_id, ended))
        if ended.committed:
            self._reply(call_id, client_reply(end))

    # ---- the client's side ----

    def _wait(self, call_id: CallId, talk: _Talk) -> None:
        """Start the keep-alive events of a call that waits, and the alarm that sends it away."""
        loop = self.world.loop
        talk.alarm = loop.at(talk.gives_up_ns, self._tired, call_id)
        talk.voice = loop.at(talk.speaks_ns, self._speak, call_id)

    def _hush(self, talk: _Talk) -> None:
        """Stop the alarms of a call that waits no more, or not for now."""
        self.world.loop.forget(talk.alarm)
        self.world.loop.forget(talk.voice)
        talk.alarm = talk.voice = None

    def _speak(self, call_id: CallId) -> None:
        """Its client gets a 200 and a keep-alive event."""
        talk, loop = self.talks[call_id], self.world.loop
        if not talk.headed:
            talk.headed = True
            self.world.say(f"  {call_id} ({talk.agent.turn.ask.key}) gets its 200")
        if talk.attempt is not None:
            loop.forget(talk.alarm)  # from now on its client hears something often enough
            talk.alarm = None
        talk.heard_ns, talk.speaks_ns = loop.now_ns, loop.now_ns + talk.ping_ns
        talk.voice = loop.at(talk.speaks_ns, self._speak, call_id)

    def _tired(self, call_id: CallId) -> None:
        """It has waited for as long as the proxy holds a call."""
        self.world.waiting -= 1
        self.world.say(f"  held too long: {call_id}; {self._state()}")
        self._post(CallCancelled(call_id))
        self._reply(call_id, ClientReply(status=429, retry_after_ns=30 * SECOND_NS, why="held too long"))

    def _settle(self, call_id: CallId) -> None:
        """The last attempt was the last: its failure is the answer."""
        end = self.talks[call_id].end
        assert end is not None
        self.world.waiting -= 1
        self.world.say(f"  settled {call_id}: {end.how.value}")
        match end.how:
            case How.REFUSED | How.ERROR:
                assert end.answer is not None
                said = refused_as(end.answer)
                reply = ClientReply(
                    status=said.status, retry_after_ns=said.retry_after_ns, why=f"{said.status} {end.answer.why}"
                )
            case How.FIRST_BYTE | How.IDLE | How.TOTAL:
                reply = ClientReply(status=504, why="504 upstream-timeout")
            case _:
                reply = ClientReply(status=503, retry_after_ns=5 * SECOND_NS, why="503 upstream-unreachable")
        self._reply(call_id, reply)

    def _refuse(self, refuse: Reject) -> None:
        self.world.waiting -= 1
        after_ns = refuse.retry_after_ns
        if after_ns is not None:
            after_ns = max(1, -(-min(RETRY_AFTER_MAX_NS, after_ns) // SECOND_NS)) * SECOND_NS
        self.world.say(f"  refused {refuse.call_id}: {refuse.reason}, come back after {(after_ns or 0) / 1e9:.0f} s")
        reply = ClientReply(
            status=_STATUS.get(refuse.reason, 429),
            retry_after_ns=after_ns,
            final=refuse.reason in _FINAL,
            why=f"refused: {refuse.reason}",
        )
        self._reply(refuse.call_id, reply)

    def _reply(self, call_id: CallId, reply: ClientReply) -> None:
        talk = self.talks.pop(call_id)
        self._hush(talk)
        if talk.headed and not (reply.whole or reply.timed_out or reply.broken):
            # The status is gone: it is told by an error event, and its SDK does not try again.
            self.world.behind += 1
            reply = attrs.evolve(reply, status=200, broken=True)
        talk.agent.replied(reply)


def model_of(group: int) -> str:
    """Model name of a limits group."""
    return f"model-{'abc'[group]}"


_ROADS: Final[dict[Way, Callable[[World], Road]]] = {
    Way.DIRECT: Direct,
    Way.CODE: Direct,
    Way.FIXED: partial(Limited, adapts=False, limit=float(FIXED)),
    Way.AIMD: partial(Limited, adapts=True),
    Way.OURS: Ours,
    Way.DECLARED: Ours,
}
