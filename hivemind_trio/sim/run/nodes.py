"""Several proxies before the same providers: each with its own scheduler, sharing one store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, final
from zlib import crc32

import attrs

from hivemind_trio.policy import Program
from hivemind_trio.scheduler import (
    AskBudgets,
    AskLearning,
    BudgetsAnswered,
    BudgetsCalled,
    BudgetsShared,
    BudgetsUnanswered,
    DrawWindow,
    LearnAnswered,
    LearnCalled,
    LearningShared,
    LearnUnanswered,
    PoolSnapshot,
    SharesSet,
    Snapshot,
    WindowAnswered,
    WindowsShared,
    WindowUnanswered,
)
from hivemind_trio.scheduler.learning.lesson import LearnAnswer, SharedVerdict
from hivemind_trio.scheduler.sharing.budget_ask import BudgetsAnswer, BudgetsAsk
from hivemind_trio.scheduler.sharing.fleet_model import FleetModel
from hivemind_trio.scheduler.sharing.node_shares import NodeShares
from hivemind_trio.scheduler.sharing.share_row import LeaseTerms, RowNotice, ShareAnswer, ShareRequest
from hivemind_trio.scheduler.sharing.window_ring import WindowShape
from hivemind_trio.sim.agents.client import ClientReply
from hivemind_trio.sim.agents.request import Asking
from hivemind_trio.sim.results.figures import FleetFigures, NodeFigures

from .event_queue import Agenda, Due
from .fleet_invariants import FleetAudit
from .proxied_route import Proxied
from .shared_store import SimulatedStore

MS: Final = 1_000_000
SECOND_NS: Final = 1_000 * MS

BUDGETS: Final = "budgets"
"""Word of a call that is about budgets."""

LEARNED: Final = "learned:"
"""Beginning of one that is about what is learned of a provider."""


@final
@attrs.frozen(kw_only=True)
class TimeSpan:
    """Time in which something is not there."""

    since_ns: int
    until_ns: int


@final
@attrs.frozen(kw_only=True)
class NodesSpec:
    """Nodes of a world, and what happens to them."""

    count: int
    away: tuple[TimeSpan, ...] = ()
    """Times at which nobody reaches the store."""
    dies: tuple[tuple[int, int], ...] = ()
    """(Number of a node, from 1, when it is killed)."""
    returns: tuple[tuple[int, int], ...] = ()
    """(Number of a node, when another process starts in the place of the one that was killed); one for a death, but for
    the deaths that are for ever. Of times that overlap the last counts."""
    cuts: tuple[tuple[int, TimeSpan], ...] = ()
    """(Number of a node, when it does not reach the store)."""
    loss: float = 0.0
    """Share of messages to and from the store that are lost."""
    sticky: bool = True
    """True if each conversation has its own node; else each call goes to the next one."""


def shared_by(program: Program, nodes: int) -> Program:
    """Return the program as it is for so many nodes."""
    return attrs.evolve(program, server=attrs.evolve(program.server, nodes=nodes, processes=1))


@final
@attrs.define(eq=False)
class SimulatedNode:
    """One proxy, and its messages to the store.

    Args:
        name: Its name.
        epoch: Its start.
        route: The proxy.
        store: The store.
    """

    name: str
    epoch: int
    route: Proxied
    store: SimulatedStore
    agenda: Agenda
    before: BudgetsShared = attrs.field(factory=BudgetsShared)
    """Ledger of the process before it."""
    shares: NodeShares = attrs.field(init=False)
    _alarm: Due | None = attrs.field(init=False, default=None)
    """The next look."""

    def __attrs_post_init__(self) -> None:
        program = self.route.program
        self.shares = NodeShares(self.name, self.epoch, self.store.terms)
        self.route.store = self._ask
        self.route.post(SharesSet({}))
        self.route.post(WindowsShared(program.server.sharers, program.store.local))
        self.route.post(self.before)
        terms = self.store.terms
        self.route.post(LearningShared(terms.renew_ms * MS, terms.gone_ms * MS))
        self.route.stirred = self._stir
        self.connect()

    @property
    def down(self) -> bool:
        """True if it was killed."""
        return self.route.down

    def connect(self) -> None:
        """Listen to the store."""
        if not self.down and self.store.reaches(self.name):
            self.store.listening[self.name] = self._called
            self._called("")
            self.route.post(BudgetsCalled())

    def disconnect(self, *, notices: bool) -> None:
        """Lose the connection to the store."""
        self.store.listening.pop(self.name, None)
        if notices:
            self.shares.cut(self.agenda.now_ns)
            self._stir()

    def kill(self) -> None:
        """End at once; its clients see their connections break."""
        self.disconnect(notices=False)
        self.route.kill()

    # ---- slots ----

    def _stir(self) -> None:
        self._look_at(self.agenda.now_ns)

    def _look_at(self, at_ns: int) -> None:
        if self._alarm is not None and self._alarm[0] <= at_ns:
            return
        if self._alarm is not None:
            self.agenda.forget(self._alarm)
        self._alarm = self.agenda.at(at_ns, self._look)

    def _look(self) -> None:
        self._alarm = None
        if self.down:
            return
        now_ns = self.agenda.now_ns
        self.shares.follow(self.route.program)
        demand = self.route.scheduler.demand()
        due = self.shares.due(now_ns, demand)
        self._use_shares(demand)
        for pool, ask in due:
            self._sync(pool, ask)
        self._look_at(max(now_ns, self.shares.wakes_ns(now_ns, demand)))

    def _use_shares(self, demand: Mapping[str, tuple[int, int]]) -> None:
        usable = self.shares.usable(self.agenda.now_ns, demand)
        if usable is not None:
            self.route.post(SharesSet(usable.shares, usable.until_ns, usable.then))

    def _sync(self, pool: str, ask: ShareRequest) -> None:
        law = self.shares.laws[pool]

        def answered(answer: ShareAnswer) -> None:
            law.answered(answer)
            self._stir()

        def failed() -> None:
            law.failed(self.agenda.now_ns)
            self._stir()

        def run(model: FleetModel, now_ms: int) -> ShareAnswer:
            answer = model.sync(pool, ask, now_ms, self.store.present())
            if answer.tell:
                self.store.wake(answer.tell, answer.notice(pool, ask.node))
            return answer

        self.store.ask(self.name, "sync", run, answered, failed, law.fenced)

    def _called(self, about: str | RowNotice) -> None:
        if isinstance(about, RowNotice):
            if self.shares.told(about):
                self._stir()
            return
        if about == BUDGETS:
            self.route.post(BudgetsCalled())
            return
        if about.startswith(LEARNED):
            self.route.post(LearnCalled(about.removeprefix(LEARNED)))
            return
        self.shares.heard()
        self._stir()

    # ---- what the scheduler asks ----

    def _ask(self, command: DrawWindow | AskBudgets | AskLearning) -> None:
        if isinstance(command, AskBudgets):
            self._spend(command)
        elif isinstance(command, AskLearning):
            self._learn(command)
        else:
            self._draw(command)

    def _draw(self, draw: DrawWindow) -> None:
        key = draw.window
        ask = draw.of_node(self.name, self.epoch, self.route.program.server.sharers)
        name, shape = f"{key.glob}:{key.dimension}:{key.window_ns}", WindowShape(max(1, key.window_ns // MS))
        failed: Callable[[], None] = lambda: self.route.post(WindowUnanswered(key, draw.seq))  # noqa: E731 - its type is given
        self.store.ask(
            self.name,
            "draw",
            lambda model, now_ms: model.draw(key.provider, name, ask, shape, now_ms),
            lambda answer: self.route.post(WindowAnswered(key, answer)),
            failed,
            failed,
        )

    def _learn(self, asked: AskLearning) -> None:
        pool = asked.provider
        ask = attrs.evolve(asked.ask, node=self.name, epoch=self.epoch)
        if ask.leads:
            self._limit(pool, ask.verdict)

        def run(model: FleetModel, now_ms: int) -> LearnAnswer:
            answer = model.learn(pool, ask, now_ms)
            self.store.wake(answer.wake, LEARNED + pool)
            return answer

        def answered(answer: LearnAnswer) -> None:
            self._limit(pool, answer.verdict)
            self._use_shares(self.route.scheduler.demand())  # before anything more is granted
            self.route.post(LearnAnswered(pool, answer))

        def failed() -> None:
            self.route.post(LearnUnanswered(pool, ask.seq))

        self.store.ask(self.name, "learn", run, answered, failed, failed)

    def _limit(self, pool: str, verdict: SharedVerdict | None) -> None:
        """Use no more than this node's part of what nodes have learned."""
        self.shares.limited(pool, verdict)
        self._stir()

    def _spend(self, asked: AskBudgets) -> None:
        now_ns = self.agenda.now_ns
        ask = BudgetsAsk(
            node=self.name,
            epoch=self.epoch,
            seq=asked.seq,
            nodes=self.route.program.server.sharers,
            run=asked.run,
            complete=asked.complete,
            accounts=tuple(
                # Every node's calendar is the world's: a window is known by its end.
                (f"{draw.account}", attrs.evolve(draw.ask, slot=_slot(now_ns, draw.left_ns)))
                for draw in asked.accounts
            ),
        )
        failed: Callable[[], None] = lambda: self.route.post(BudgetsUnanswered(asked.seq))  # noqa: E731 - its type is given

        def run(model: FleetModel, now_ms: int) -> BudgetsAnswer:
            answer = model.spend(ask, now_ms)
            self.store.wake(answer.wake, BUDGETS)
            return answer

        self.store.ask(self.name, "spend", run, lambda answer: self.route.post(BudgetsAnswered(answer)), failed, failed)


@final
@attrs.define(eq=False)
class Nodes:
    """Route of requests through several proxies."""

    spec: NodesSpec
    agenda: Agenda
    nodes: list[SimulatedNode]
    store: SimulatedStore
    _proxies: Callable[[int], Proxied]
    audit: FleetAudit | None = attrs.field(init=False, default=None)
    """Checks of all nodes together."""
    _turn: int = attrs.field(init=False, default=0)
    _ended: list[SimulatedNode] = attrs.field(init=False, factory=list)
    """Processes that were killed and replaced."""
    _faults: Counter[int] = attrs.field(init=False, factory=Counter)
    """Number of a node, from 0 -> number of faults for which it is down."""
    _died_ns: dict[str, int] = attrs.field(init=False, factory=dict)
    """Node -> when it was killed last."""
    _returned_ns: dict[str, int] = attrs.field(init=False, factory=dict)
    """Node -> when it was started again last."""

    @classmethod
    def of(
        cls, spec: NodesSpec, agenda: Agenda, seed: int, program: Program, proxies: Callable[[int], Proxied]
    ) -> Nodes:
        """Start the nodes, and put what happens to them in the agenda.

        Args:
            proxies: Makes the proxy of a node's number, from 0.
        """
        settings = program.store
        terms = LeaseTerms(
            lease_ms=settings.lease_ns // MS, renew_ms=settings.renew_ns // MS, gone_ms=settings.gone_ns // MS
        )
        random = Random(f"{seed}/store")  # noqa: S311 - to be repeatable
        store = SimulatedStore(agenda, random, terms, spec.loss)
        nodes = [
            SimulatedNode(f"node-{number + 1}", number + 1, proxies(number), store, agenda)
            for number in range(spec.count)
        ]
        one = cls(spec, agenda, nodes, store, proxies)
        if any(node.route.audit is not None for node in nodes):
            one.audit = FleetAudit(program)
        for node in nodes:
            one._join(node)
        one._plan()
        return one

    def _join(self, node: SimulatedNode) -> None:
        node.route.snapshot, node.route.circuits = self.snapshot, self.nodes[0].route.circuits
        if self.audit is not None and node.route.audit is not None:
            self.audit.joined(node.name, node.route.audit)

    def send(self, asking: Asking) -> None:
        """Send the request of a client to its node; if that is down, to another one."""
        nodes = [node for node in self.nodes if not node.down]
        if not nodes:
            self.nodes[0].route.books.call_over(asking.load, None, None)
            asking.replied(ClientReply(status=0, why="no proxy answers"))
            return
        if self.spec.sticky:
            number = crc32(f"{asking.caller} {asking.turn.conversation}".encode())
        else:
            number, self._turn = self._turn, self._turn + 1
        nodes[number % len(nodes)].route.send(asking)

    def _plan(self) -> None:
        at = self.agenda.at
        for span in self.spec.away:
            at(span.since_ns, self._store_is, True)
            at(span.until_ns, self._store_is, False)
        for number, at_ns in self.spec.dies:
            at(at_ns, self._kill, number - 1)
        for number, at_ns in self.spec.returns:
            at(at_ns, self._start, number - 1)
        for number, span in self.spec.cuts:
            at(span.since_ns, self._cut, number - 1, True)
            at(span.until_ns, self._cut, number - 1, False)

    def _kill(self, number: int) -> None:
        self._faults[number] += 1
        node = self.nodes[number]
        if node.down:
            return
        node.kill()
        self._died_ns[node.name] = self.agenda.now_ns
        if self.audit is not None:
            self.audit.left(node.name)

    def _start(self, number: int) -> None:
        """Start another process of a node once no fault keeps it down; it has the ledger of the one before."""
        self._faults[number] -= 1
        if self._faults[number]:
            return
        old = self.nodes[number]
        self._returned_ns[old.name] = self.agenda.now_ns
        route = self._proxies(number)
        self._ended.append(old)
        self.nodes[number] = node = SimulatedNode(
            old.name,
            old.epoch + len(self.nodes),
            route,
            self.store,
            self.agenda,
            BudgetsShared(old.epoch, old.route.scheduler.spent_here()),
        )
        self._join(node)

    def _store_is(self, away: bool) -> None:
        self.store.away += 1 if away else -1
        if self.audit is not None:
            self.audit.fault(self.agenda.now_ns, begins=away)
        for node in self.nodes:
            if away:
                node.disconnect(notices=True)
            else:
                node.connect()

    def _cut(self, number: int, cut: bool) -> None:
        node = self.nodes[number]
        self.store.cut[node.name] += 1 if cut else -1
        if self.audit is not None:
            self.audit.fault(self.agenda.now_ns, begins=cut)
            self.audit.cut(node.name, is_cut=bool(self.store.cut[node.name]))
        if cut:
            node.disconnect(notices=True)
        else:
            node.connect()

    def figures(self) -> FleetFigures:
        """Return what each node has served, and what the store was asked."""
        lives = [*self._ended, *self.nodes]
        learned = self.store.model.learned
        return FleetFigures(
            nodes=tuple(
                NodeFigures(
                    name=node.name,
                    calls=sum(life.route.calls for life in lives if life.name == node.name),
                    attempts=sum(life.route.attempts for life in lives if life.name == node.name),
                    died_ns=self._died_ns.get(node.name),
                    returned_ns=None if node.down else self._returned_ns.get(node.name),
                )
                for node in self.nodes
            ),
            operations=dict(self.store.asked),
            limits={name: record.limit or 0 for name, record in learned.items()},
        )

    def snapshot(self) -> Snapshot:
        """Return the state of all nodes as if they were one."""
        snapshots = [node.route.scheduler.snapshot() for node in self.nodes if not node.down]
        first = snapshots[0]
        pools = {name: _summed([one.pools[name] for one in snapshots if name in one.pools]) for name in first.pools}
        return attrs.evolve(first, now_ns=self.agenda.now_ns, pools=pools)


def _slot(now_ns: int, left_ns: int | None) -> int:
    return (now_ns + left_ns) // SECOND_NS if left_ns is not None else 0


def _summed(pools: Sequence[PoolSnapshot]) -> PoolSnapshot:
    return attrs.evolve(
        pools[0],
        limit=sum(pool.limit for pool in pools),
        inflight=sum(pool.inflight for pool in pools),
        waiting=sum(pool.waiting for pool in pools),
    )
