"""One run: a policy, a scenario and a seed, from the first request to the last answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, final

import attrs

from hivemind_trio.policy import Program
from hivemind_trio.scheduler import ALL_PARTS, Features, Scheduler
from hivemind_trio.sim.agents.client import ClientReply
from hivemind_trio.sim.agents.request import Asking, Route
from hivemind_trio.sim.bound.lower_bound import Bound
from hivemind_trio.sim.bound.work import Work
from hivemind_trio.sim.provider.provider import Provider
from hivemind_trio.sim.results.figures import Figures, Way
from hivemind_trio.sim.results.recorder import RunRecorder
from hivemind_trio.sim.results.tally import tally
from hivemind_trio.sim.scenario.population import Key, SimulatedCaller, providers
from hivemind_trio.sim.scenario.scenario import Scenario

from .direct_route import Direct
from .event_queue import Agenda
from .nodes import Nodes, NodesSpec, shared_by
from .overhead_model import Efforts, Road
from .proxied_route import Observe, Proxied

Told = Callable[[int, int, int], None]
"""Callback of a long run: virtual time, agents that have ended, all agents."""

TOLD_EVERY: Final = 2_000


@final
@attrs.define(eq=False)
class World:
    """Everything that happens in one run."""

    program: Program
    scenario: Scenario
    seed: int = 0
    way: Way = Way.PROXY
    audit: bool = False
    """Check the invariants after every event."""
    bound: Bound | None = None
    """Bound of this policy, scenario and seed, if known; None: compute or omit it."""
    told: Told | None = None
    parts: Features = ALL_PARTS
    """For experiments: what the scheduler is made of."""
    efforts: Efforts | None = None
    """Overhead of code, bytes and kernels; None: none."""
    observe: Observe | None = None
    """Called after each event of the scheduler's, as a journal is."""
    nodes: NodesSpec | None = None
    """Proxies that share the providers; None: one, which is alone."""
    work: Work = attrs.field()
    """Work of this policy, scenario and seed, if another world has computed it."""
    _agenda: Agenda = attrs.field(init=False, factory=Agenda)
    _providers: dict[Key, Provider] = attrs.field(init=False)
    _books: RunRecorder = attrs.field(init=False)
    _route: Route = attrs.field(init=False)
    _road: Road | None = attrs.field(init=False, default=None)
    _proxied: Proxied | None = attrs.field(init=False, default=None)
    fleet: Nodes | None = attrs.field(init=False, default=None)
    """Proxies of a run through several; None: it is one."""
    _living: list[SimulatedCaller] = attrs.field(init=False)
    _ended: int = attrs.field(init=False, default=0)
    _end_ns: int = attrs.field(init=False, default=0)

    @work.default
    def _draw_work(self) -> Work:
        return Work(self.program, self.scenario, self.seed)

    def __attrs_post_init__(self) -> None:
        self._books = RunRecorder(self.program)
        self._providers = providers(self.program, self.scenario, self.seed)
        if self.efforts is not None:
            self._road = Road(self._agenda, self.efforts, self.way is Way.PROXY)
        if self.way is Way.DIRECT:
            self._route = Direct(self.program, self._agenda, self._providers, self._books, self._road)
        elif self.nodes is not None:
            program = shared_by(self.program, self.nodes.count)
            self._route = self.fleet = Nodes.of(
                self.nodes, self._agenda, self.seed, program, lambda number: self._proxy(program, number)
            )
        else:
            self._route = self._proxied = self._proxy(self.program, 0)
        self._living = self.work.living()
        for living in self._living:
            self._agenda.at(living.agent.job.turns[0].think_ns, self._ask, living)

    def _proxy(self, program: Program, number: int) -> Proxied:
        return Proxied(
            program,
            self.seed + number,
            self._agenda,
            self._providers,
            self._books,
            self.audit,
            self.parts,
            self._road,
            self.observe,
            shares=self.nodes is not None,
        )

    @property
    def scheduler(self) -> Scheduler:
        """Scheduler of a run through us."""
        assert self._proxied is not None
        return self._proxied.scheduler

    @property
    def recorder(self) -> RunRecorder:
        """Record of the run."""
        return self._books

    def at(self, at_ns: int, do: Callable[[], None]) -> None:
        """Have something done at a time; for tests and experiments."""
        self._agenda.at(at_ns, do)

    def run(self) -> Figures:
        """Let it happen; what came of it."""
        agenda, until_ns = self._agenda, self.scenario.until_ns
        everybody = len(self._living)
        while agenda.run(until_ns, TOLD_EVERY):
            if self.told is not None:
                self.told(agenda.now_ns, self._ended, everybody)
        if self._ended == everybody:
            routes = [self._proxied] if self.fleet is None else [node.route for node in self.fleet.nodes]
            for route in routes:
                if route is not None and route.audit is not None:
                    route.audit.done()
        return self.figures()

    def figures(self) -> Figures:
        """Return the figures so far."""
        everybody_done = self._ended == len(self._living)
        return tally(
            self.program,
            self.scenario,
            way=self.way,
            seed=self.seed,
            books=self._books,
            living=self._living,
            providers=self._providers,
            bound=self.bound or self.work.bound,
            now_ns=self._end_ns if everybody_done else self._agenda.now_ns,
            ended=self._ended,
            nodes=self.fleet.figures() if self.fleet is not None else None,
        )

    # ---- agents ----

    def _ask(self, living: SimulatedCaller) -> None:
        living.began_ns, living.retried, living.broken = self._agenda.now_ns, 0, 0
        self._send(living)

    def _send(self, living: SimulatedCaller) -> None:
        now_ns = self._agenda.now_ns
        turn = living.agent.job.turns[living.agent.turns_done]
        request = living.request(self.program, self.scenario, turn, now_ns)
        books, load = self._books, living.fleet.name
        books.calls += 1
        books.asked[load] += 1
        if now_ns >= books.series.next_ns and self.way is Way.DIRECT:
            books.series.add_direct(now_ns, self._providers)
        asking = Asking(
            request=request,
            caller=living.caller,
            turn=turn,
            load=load,
            client=living.fleet.client,
            sent_ns=now_ns,
            retried=living.retried,
            replied=partial(self._replied if self._road is None else self._answered, living),
        )
        if self._road is None:
            self._route.send(asking)
        else:
            self._road.out(turn.number == 1 and living.retried == 0, self._sent, asking)

    def _sent(self, asking: Asking) -> None:
        asking.sent_ns = self._agenda.now_ns
        self._route.send(asking)

    def _answered(self, living: SimulatedCaller, reply: ClientReply) -> None:
        assert self._road is not None
        self._road.home(self._replied, living, reply)

    def _replied(self, living: SimulatedCaller, reply: ClientReply) -> None:
        now_ns = self._agenda.now_ns
        agent = living.agent
        if reply.whole:
            agent.succeeded(reply.tokens)
            living.tokens_good += reply.tokens
            self._books.turns_ns[living.fleet.name].append(now_ns - living.began_ns)
            if agent.done:
                self._over(now_ns)
            else:
                self._agenda.at(now_ns + agent.job.turns[agent.turns_done].think_ns, self._ask, living)
            return
        if living.chance is None:
            living.chance = Random(f"{self.seed}/client/{agent.job.agent}")  # noqa: S311 - to be repeatable
        pause_ns = living.fleet.client.pause_ns(reply, living.retried, living.broken, living.chance)
        if pause_ns is None:
            agent.failed(reply.why, tokens=reply.tokens)
            self._over(now_ns)
            return
        agent.tokens += reply.tokens
        living.retried += 1
        living.broken += reply.broken
        self._agenda.at(now_ns + pause_ns, self._send, living)

    def _over(self, now_ns: int) -> None:
        self._ended += 1
        self._end_ns = now_ns
        if self._ended == len(self._living):
            self._agenda.close()
