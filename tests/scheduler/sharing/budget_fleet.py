"""Schedulers that share one budget: links that lose and delay, one store, calls that take less than they might."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from random import Random
from typing import final

import attrs

from hivemind_trio.model import Usage
from hivemind_trio.scheduler import (
    AskBudgets,
    BudgetsAnswered,
    BudgetsCalled,
    BudgetsShared,
    BudgetsUnanswered,
    Command,
    Event,
    Grant,
    LedgerOpened,
    Reject,
    RestoredAccount,
)
from hivemind_trio.scheduler.budgets.budget_account import BudgetAccount
from hivemind_trio.scheduler.sharing.budget_ask import BudgetsAnswer, BudgetsAsk
from hivemind_trio.scheduler.sharing.budget_pot import BudgetPots
from hivemind_trio.scheduler.sharing.share_row import FencedNode
from tests.scheduler.driver import Driver
from tests.scheduler.limits.test_budget import ask as call_of
from tests.support.ends import SUCCEEDED
from tests.support.policies import compiled

MS = 1_000_000
DEADLINE_MS = 25
LEARNING_MS = 2_000
MOST = 20
"""Most that a call may take."""

PROVIDER = 'provider anthropic { concurrency 100; base "http://127.0.0.1:9" }\n'


@final
@attrs.define(eq=False)
class BudgetNode:
    driver: Driver
    epoch: int
    alive: bool = True
    taken: dict[int, int] = attrs.field(factory=dict)
    """Call in flight -> amount that it will take."""
    settled: int = 0
    spends: list[tuple[int, int]] = attrs.field(factory=list)
    """(When in ms, amount) by the ledger, earlier processes included."""
    wakes_ns: int | None = None


@attrs.define(eq=False)
class BudgetFleet:
    """K schedulers. `pots` is what a planted bug replaces."""

    random: Random
    size: int
    limit: int = 200
    window: str = "hour"
    loss: float = 0.1
    takes: tuple[int, ...] = (0, 1, 3, 8, MOST)
    """Amounts that calls take."""
    make_pots: Callable[[int], BudgetPots] = BudgetPots
    away: bool = False
    run: int = 1
    now_ms: int = 0
    pots: BudgetPots = attrs.field(init=False)
    nodes: list[BudgetNode] = attrs.field(init=False, factory=list)
    spends: list[tuple[int, int]] = attrs.field(init=False, factory=list)
    """(When in ms, amount) of the whole fleet, as the provider counts it."""
    charged: int = 0
    """Amount that may have been charged for killed processes and was not spent."""
    exact: bool = True
    """No ledger was lost, so that nothing else is charged."""
    asks: int = 0
    rejected: int = 0
    begun: list[int] = attrs.field(init=False)
    events: list[tuple[int, int, Callable[[], None]]] = attrs.field(init=False, factory=list)
    on_fresh: Callable[[Driver], None] = lambda _: None
    then: str = "hold"
    """Action of the budget when it is used up."""
    _order: int = 0

    def __attrs_post_init__(self) -> None:
        self.pots = self.make_pots(LEARNING_MS)
        self.begun = [0] * self.size
        for number in range(self.size):
            self.nodes.append(self._fresh(1))
            self.post(number, LedgerOpened(()))
            self.post(number, BudgetsShared())

    def _fresh(self, epoch: int) -> BudgetNode:
        driver = Driver(
            compiled(
                f"{PROVIDER}server {{ nodes {self.size} }}\n"
                'store redis { url "redis://127.0.0.1:1"; lease 4s renew 250ms gone 1s }\n'
                f"budget b {{ output {self.limit}/{self.window}; at 100% {{ {self.then} }} }}"
            )
        )
        self.on_fresh(driver)
        return BudgetNode(driver, epoch)

    def account(self, number: int) -> BudgetAccount:
        (one,) = self.nodes[number].driver.scheduler.state.budgets.accounts.values()
        return one

    def at(self, ms: int, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self.events, (ms, self._order, action))

    def post(self, number: int, event: Event) -> None:
        node = self.nodes[number]
        node.driver.now_ns = self.now_ms * MS
        self.act(number, node, node.driver.post(event))

    def act(self, number: int, node: BudgetNode, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Grant):
                self.begun[number] += 1
                node.taken[command.call_id] = self.random.choice(self.takes)
                self.at(self.now_ms + self.random.randrange(5, 300), partial(self.end, number, node, command.call_id))
            elif isinstance(command, AskBudgets):
                self.ask(number, node, command)
            self.rejected += isinstance(command, Reject)
        wakes_ns = node.driver.scheduler.wakeup_ns()
        if wakes_ns is not None and wakes_ns != node.wakes_ns:
            node.wakes_ns = wakes_ns
            self.at(max(self.now_ms, -(-wakes_ns // MS)), lambda: self.wake(number, node))

    def wake(self, number: int, node: BudgetNode) -> None:
        wakes_ns = node.driver.scheduler.wakeup_ns()
        if node.alive and wakes_ns is not None and wakes_ns <= self.now_ms * MS:
            node.wakes_ns = None
            self.act(number, node, node.driver.at(self.now_ms * MS))

    def end(self, number: int, node: BudgetNode, call_id: int) -> None:
        if not node.alive:
            return
        amount = node.taken.pop(call_id)
        self.spends.append((self.now_ms, amount))
        node.spends.append((self.now_ms, amount))
        node.settled += amount
        node.driver.now_ns = self.now_ms * MS
        node.driver.end(call_id, attrs.evolve(SUCCEEDED, usage=Usage(input=0, output=amount)))
        self.act(number, node, node.driver.last)

    def ask(self, number: int, node: BudgetNode, asked: AskBudgets) -> None:
        self.asks += 1
        ends = [
            0 if one.left_ns is None else (self.now_ms * MS + one.left_ns) // (MS * 1_000) for one in asked.accounts
        ]
        ask = BudgetsAsk(
            node=f"n{number}",
            epoch=node.epoch,
            seq=asked.seq,
            nodes=self.size,
            run=asked.run,
            complete=asked.complete,
            accounts=tuple(
                ("b", attrs.evolve(one.ask, slot=slot)) for one, slot in zip(asked.accounts, ends, strict=True)
            ),
        )
        over = [False]

        def arrive() -> None:
            if self.away:
                return
            try:
                answer = self.pots.spend(ask, self.now_ms, f"{self.run}")
            except FencedNode:
                return
            if self.random.random() >= self.loss:
                self.at(self.now_ms + self.random.choice([0, 1, 3]), lambda: back(answer))
            for name in answer.wake:
                if self.random.random() >= self.loss:
                    self.at(self.now_ms + 1, partial(self.call, int(name[1:])))

        def back(answer: BudgetsAnswer) -> None:
            if node.alive and not over[0]:
                over[0] = True
                self.post(number, BudgetsAnswered(answer))

        def give_up() -> None:
            if node.alive and not over[0]:
                over[0] = True
                self.post(number, BudgetsUnanswered(asked.seq))

        if self.random.random() >= self.loss:
            self.at(self.now_ms + self.random.choice([0, 1, 1, 3, 20]), arrive)
        if self.random.random() < self.loss:
            self.at(self.now_ms + self.random.choice([5, 50, 700]), arrive)  # doubled, or very late
        self.at(self.now_ms + DEADLINE_MS, give_up)

    def call(self, number: int) -> None:
        if self.nodes[number].alive:
            self.post(number, BudgetsCalled())

    def arrive(self, number: int, most: int = MOST) -> None:
        node = self.nodes[number]
        if node.alive:
            node.driver.now_ns = self.now_ms * MS
            call_of(node.driver, most)
            self.act(number, node, node.driver.last)

    def arrivals(self, gap_ms: int) -> None:
        self.arrive(self.random.randrange(self.size))
        self.at(self.now_ms + self.random.randrange(1, 2 * gap_ms), partial(self.arrivals, gap_ms))

    def restart(self, number: int, *, with_ledger: bool = True) -> None:
        """kill -9, and a new process under the same name. The provider may serve what was in flight, or some of it."""
        old = self.nodes[number]
        old.alive = False
        account = self.account(number)
        for amount in old.taken.values():
            self.spends.append((self.now_ms, amount))
        claims = len(old.taken) * MOST
        self.charged += claims - sum(old.taken.values())
        # One that is killed before it has told of the one before it leaves that to be charged whole.
        self.exact &= with_ledger and (account.shared is None or account.shared.closes is None)
        node = self.nodes[number] = self._fresh(old.epoch + 1)
        if with_ledger:
            node.spends = [*old.spends, (self.now_ms, claims)]
            restored = RestoredAccount(key=account.key, spent=tuple((ms * MS, amount) for ms, amount in node.spends))
            self.post(number, LedgerOpened((restored,)))
            self.post(number, BudgetsShared(old.epoch, ((account.key, old.settled + claims),)))
        else:
            self.post(number, LedgerOpened(()))
            self.post(number, BudgetsShared())

    def wipe(self) -> None:
        """The store is emptied; the process stays, or is another one."""
        self.pots = self.make_pots(LEARNING_MS)
        self.run += self.random.random() < 0.5

    def play(self, until_ms: int) -> None:
        while self.events and self.events[0][0] <= until_ms:
            ms, _, action = heapq.heappop(self.events)
            self.now_ms = max(self.now_ms, ms)
            action()
        self.now_ms = until_ms

    def spent(self) -> int:
        """Return what the fleet has spent in the first window."""
        return sum(amount for _, amount in self.spends)

    def counted(self) -> int:
        """Return what the store has as spent."""
        pot = self.pots.pots.get("b")
        return sum(pot.slots.values()) if pot is not None else 0
