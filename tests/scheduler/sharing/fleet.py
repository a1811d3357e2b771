"""A small world: nodes with their own clocks, links that lose and delay, one store, and calls that begin and end."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import final

import attrs

from hivemind_trio.scheduler.sharing.node_law import NodeLaw
from hivemind_trio.scheduler.sharing.share_row import FencedNode, LeaseTerms, ShareAnswer, ShareRequest
from hivemind_trio.scheduler.sharing.shared_pool import SharedPool

TERMS = LeaseTerms(lease_ms=6_000, renew_ms=200, gone_ms=1_000)
MS = 1_000_000
DEADLINE_MS = 25


@final
@attrs.define(eq=False)
class SmallNode:
    law: NodeLaw
    drift: float = 1.0
    alive: bool = True
    cut: bool = False
    """Nothing passes between it and the store, and its connection is reset."""
    connected: bool = True
    """Its subscription is open; where it is not, the node knows."""
    stopped: bool = False
    """SIGSTOP: it stays connected, hears nothing, and does not notice that its calls have ended."""
    inbox: list[Callable[[], None]] = attrs.field(factory=list)
    ends_ms: list[int] = attrs.field(factory=list)
    """When its calls in flight end."""
    waiting: int = 0
    begun: int = 0

    @property
    def held(self) -> int:
        return len(self.ends_ms)


@attrs.define(eq=False)
class Fleet:
    """K nodes. `allowance` and `pool` are what a planted bug replaces."""

    random: Random
    size: int
    cap: int
    pool: SharedPool = attrs.field(factory=lambda: SharedPool(TERMS))
    loss: float = 0.15
    trip_ms: tuple[int, int] = (1, 6)
    """Range of the time that a message takes one way."""
    load: float = 1.5
    """Calls at once that the fleet would like to have, of the cap."""
    now_ms: int = 0
    away: bool = False
    run: int = 1
    nodes: list[SmallNode] = attrs.field(factory=list)
    messages: list[tuple[int, int, Callable[[], object]]] = attrs.field(factory=list)
    peak: int = 0
    asks: int = 0
    lately: deque[tuple[SmallNode, ShareRequest]] = attrs.field(factory=lambda: deque(maxlen=12))
    """Messages to the store that may come again."""
    idle_while_waiting_ms: int = 0
    _number: int = 0
    _epoch: int = 0
    make_law: Callable[..., NodeLaw] = NodeLaw

    def __attrs_post_init__(self) -> None:
        self.nodes = [self.born(f"n{i}") for i in range(self.size)]

    def born(self, name: str) -> SmallNode:
        self._epoch += 1
        law = self.make_law(name, self._epoch, self.cap, self.size, 250, TERMS)
        return SmallNode(law, drift=self.random.uniform(0.99, 1.01))

    def send(self, deliver: Callable[[], object], lossy: bool = True) -> None:
        if lossy and self.random.random() < self.loss:
            return
        for _ in range(2 if lossy and self.random.random() < self.loss / 2 else 1):
            late = self.random.randrange(0, 400) if lossy and self.random.random() < self.loss else 0
            self._number += 1
            heapq.heappush(
                self.messages, (self.now_ms + self.random.randrange(*self.trip_ms) + late, self._number, deliver)
            )

    def local_ns(self, node: SmallNode) -> int:
        return round(self.now_ms * node.drift) * MS

    def sync(self, node: SmallNode) -> None:
        demand = node.held + node.waiting
        ask = node.law.request(self.local_ns(node), node.held, demand)
        self.asks += 1
        self.lately.append((node, ask))
        self.send(lambda: self.store(node, ask))
        sent = ask.seq

        def deadline() -> None:
            if node.alive and not node.stopped and node.law.pending is not None and node.law.pending[0].seq == sent:
                node.law.failed(self.local_ns(node))
                if node.cut or self.away:
                    node.law.cut(self.local_ns(node))

        self._number += 1
        heapq.heappush(self.messages, (self.now_ms + DEADLINE_MS, self._number, deadline))

    def store(self, node: SmallNode, ask: ShareRequest) -> None:
        if self.away or node.cut:
            return
        present = {one.law.node for one in self.nodes if one.alive and one.connected and not one.cut}
        try:
            answer = self.pool.sync(ask, self.now_ms, str(self.run), present)
        except FencedNode:
            node.law.fenced()
            return
        self.send(lambda: self.hear(node, answer))
        notice = answer.notice("p", ask.node)
        for other in self.nodes:
            if other.law.node in answer.tell and other.alive and not other.cut:
                self.send(partial(other.law.told, notice))

    def hear(self, node: SmallNode, answer: ShareAnswer) -> None:
        if node.stopped:
            node.inbox.append(lambda: node.law.answered(answer))
        elif node.alive and not node.cut:
            node.law.answered(answer)

    def deliver(self) -> None:
        """Deliver what has arrived by now."""
        while self.messages and self.messages[0][0] <= self.now_ms:
            heapq.heappop(self.messages)[2]()

    def step(self, step_ms: int = 5) -> None:
        self.now_ms += step_ms
        self.deliver()
        for node in self.nodes:
            if not node.alive or node.stopped:
                continue
            node.ends_ms = [end for end in node.ends_ms if end > self.now_ms]
            while node.waiting and node.held < node.law.allowance(
                self.local_ns(node), node.held, node.held + node.waiting
            ):
                node.waiting -= 1
                node.begun += 1
                node.ends_ms.append(self.now_ms + self.random.randrange(20, 400))
            if node.law.is_due(self.local_ns(node), node.held, node.held + node.waiting):
                self.sync(node)
        # The provider knows which calls have ended, though a stopped node does not.
        total = sum(end > self.now_ms for node in self.nodes for end in node.ends_ms)
        self.peak = max(self.peak, total)
        if total < self.cap and any(node.waiting for node in self.nodes if node.alive):
            self.idle_while_waiting_ms += step_ms

    def arrive(self) -> None:
        """Calls come where they come: now here, now there."""
        hot = self.nodes[self.now_ms // 2_000 % len(self.nodes)]
        wanted = round(self.cap * self.load)
        if sum(node.held + node.waiting for node in self.nodes if node.alive) < wanted:
            node = hot if self.random.random() < 0.6 else self.random.choice(self.nodes)
            if node.alive:
                node.waiting += 1

    def resume(self, node: SmallNode) -> None:
        """Let it go on: what it does first is to report calls that have ended long ago."""
        node.stopped = False
        for heard in node.inbox:
            heard()
        node.inbox.clear()
        if node.law.pending is not None:
            node.law.failed(self.local_ns(node))
        while not node.law.is_due(self.local_ns(node), node.held, node.held + node.waiting):
            self.now_ms += 1
        self.sync(node)

    def kill(self, index: int) -> None:
        node = self.nodes[index]
        node.alive, node.ends_ms, node.waiting = False, [], 0

    def restart(self, index: int, name: str = "") -> None:
        self.nodes[index] = self.born(name or f"n{index}")

    def wipe(self) -> None:
        self.pool.rows.clear()
        self.run += 1

    def again(self) -> None:
        """Let a few messages come again, late: links may double what they carry."""
        for node, ask in self.lately:
            if self.random.random() < 0.3:
                self._number += 1
                comes: Callable[[], None] = partial(self.store, node, ask)
                heapq.heappush(self.messages, (self.now_ms + self.random.randrange(1, 300), self._number, comes))

    def disconnect(self, node: SmallNode, for_ms: int) -> None:
        """Reset the connection on which a node is called; it connects anew later."""
        if not node.alive:
            return
        node.connected = False
        node.law.cut(self.local_ns(node))

        def connect() -> None:
            node.connected = True
            node.law.heard()

        self._number += 1
        heapq.heappush(self.messages, (self.now_ms + for_ms, self._number, connect))


def hard_life(fleet: Fleet, steps: int = 1_600) -> Fleet:
    """All faults of honest links and stores, which cut no node off for good.

    Links lose and double, connections are reset, nodes are killed and replaced under their names or others, the store
    is away, with or without connections that end, and is wiped, and what was said before comes once more.
    """
    random = fleet.random
    fleet.loss = random.choice([0.0, 0.1, 0.25])
    often = random.choice([0.5, 1.0, 3.0])
    for _ in range(steps):
        fleet.arrive()
        luck = random.random() / often
        if luck < 0.002:
            fleet.kill(random.randrange(fleet.size))
        elif luck < 0.006:
            for index, node in enumerate(fleet.nodes):
                if not node.alive and random.random() < 0.5:
                    fleet.restart(index, node.law.node if random.random() < 0.5 else f"{node.law.node}'")
        elif luck < 0.008:
            fleet.away = not fleet.away
            if fleet.away and random.random() < 0.5:
                for node in fleet.nodes:
                    fleet.disconnect(node, random.randrange(1, 600))
        elif luck < 0.010:
            fleet.disconnect(random.choice(fleet.nodes), random.randrange(1, 300))
        elif luck < 0.012:
            fleet.wipe()
            fleet.again()
        fleet.step()
        if fleet.peak > fleet.cap:
            break
    return fleet
