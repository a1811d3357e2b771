"""Schedulers that share the windows of one provider: links that lose and delay, one store, and calls that end."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from random import Random
from typing import final

import attrs

from hivemind_trio.model import Dimension
from hivemind_trio.policy import LimitGroupSettings, Program, RateLimitSettings
from hivemind_trio.scheduler import Command, DrawWindow, Event, Grant, WindowAnswered, WindowsShared, WindowUnanswered
from hivemind_trio.scheduler.sharing.share_row import FencedNode
from hivemind_trio.scheduler.sharing.window_ring import WindowAnswer, WindowAsk, WindowRing, WindowShape
from tests.scheduler.driver import Driver
from tests.support.programs import program, provider

MS = 1_000_000
DEADLINE_MS = 25
LEARNING_MS = 2_000


def limited(limit: int, window_ms: int) -> Program:
    quota = RateLimitSettings(dimension=Dimension.REQUESTS, amount=limit, window_ns=window_ms * MS)
    block = LimitGroupSettings(glob=None, concurrency=None, quotas=(quota,))
    return program(providers=[attrs.evolve(provider("p"), groups=(block,))])


@final
@attrs.define(eq=False)
class WindowNode:
    driver: Driver
    epoch: int
    alive: bool = True
    cut: bool = False
    seen: int = 0
    """Grants of the driver that have been counted."""
    wakes_ns: int | None = None


@attrs.define(eq=False)
class WindowFleet:
    """K schedulers and one ring, which is what a planted bug replaces."""

    random: Random
    size: int
    limit: int = 30
    window_ms: int = 3_000
    local: float = 0.25
    loss: float = 0.1
    load: float = 2.0
    """Calls that come, of the limit."""
    away: bool = False
    slow_ms: int = 0
    """Time that an answer takes on top."""
    run: int = 1
    now_ms: int = 0
    ring: WindowRing = attrs.field(init=False)
    nodes: list[WindowNode] = attrs.field(init=False, factory=list)
    granted_ms: list[int] = attrs.field(init=False, factory=list)
    """When each call of the fleet began."""
    began: list[int] = attrs.field(init=False, factory=list)
    """Calls begun, by node."""
    asks: int = 0
    hot: int = 0
    events: list[tuple[int, int, Callable[[], None]]] = attrs.field(init=False, factory=list)
    _order: int = 0

    def __attrs_post_init__(self) -> None:
        self.ring = WindowRing(WindowShape(self.window_ms), LEARNING_MS)
        self.began = [0] * self.size
        for number in range(self.size):
            self.nodes.append(self._fresh(1))
            self.post(number, WindowsShared(self.size, self.local))

    def _fresh(self, epoch: int) -> WindowNode:
        return WindowNode(Driver(limited(self.limit, self.window_ms)), epoch)

    def at(self, ms: int, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self.events, (ms, self._order, action))

    def post(self, number: int, event: Event) -> None:
        node = self.nodes[number]
        node.driver.now_ns = self.now_ms * MS
        self.act(number, node, node.driver.post(event))

    def act(self, number: int, node: WindowNode, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Grant):
                self.granted_ms.append(self.now_ms)
                self.began[number] += 1
                self.at(self.now_ms + self.random.randrange(5, 300), partial(self.end, number, node, command.call_id))
            if isinstance(command, DrawWindow):
                self.draw(number, node, command)
        wakes_ns = node.driver.scheduler.wakeup_ns()
        if wakes_ns is not None and wakes_ns != node.wakes_ns:
            node.wakes_ns = wakes_ns
            self.at(max(self.now_ms, -(-wakes_ns // MS)), lambda: self.wake(number, node))

    def wake(self, number: int, node: WindowNode) -> None:
        wakes_ns = node.driver.scheduler.wakeup_ns()
        if node.alive and wakes_ns is not None and wakes_ns <= self.now_ms * MS:
            node.wakes_ns = None
            self.act(number, node, node.driver.at(self.now_ms * MS))

    def end(self, number: int, node: WindowNode, call_id: int) -> None:
        if node.alive:
            node.driver.now_ns = self.now_ms * MS
            node.driver.end(call_id)
            self.act(number, node, node.driver.last)

    def draw(self, number: int, node: WindowNode, draw: DrawWindow) -> None:
        self.asks += 1
        ask = WindowAsk(
            node=f"n{number}",
            epoch=node.epoch,
            seq=draw.seq,
            run=draw.run,
            nodes=self.size,
            limit=draw.limit,
            least=draw.least,
            want=draw.want,
            more=draw.more,
            back=draw.back,
            report=draw.report,
        )
        over = [False]

        def arrive() -> None:
            if self.away or node.cut:
                return
            try:
                answer = self.ring.draw(ask, self.now_ms, f"{self.run}")
            except FencedNode:
                return
            if self.random.random() >= self.loss:
                self.at(self.now_ms + self.random.choice([0, 1, 3]) + self.slow_ms // 2, lambda: back(answer))

        def back(answer: WindowAnswer) -> None:
            if node.alive and not over[0] and not node.cut:
                over[0] = True
                self.post(number, WindowAnswered(draw.window, answer))

        def give_up() -> None:
            if node.alive and not over[0]:
                over[0] = True
                self.post(number, WindowUnanswered(draw.window, draw.seq))

        if self.random.random() >= self.loss:
            self.at(self.now_ms + self.random.choice([0, 1, 1, 3, 20]) + self.slow_ms // 2, arrive)
        if self.random.random() < self.loss:
            self.at(self.now_ms + self.random.choice([5, 50, 700]), arrive)  # doubled, or very late
        self.at(self.now_ms + DEADLINE_MS + self.slow_ms, give_up)

    def arrivals(self) -> None:
        number = self.hot if self.random.random() < 0.5 else self.random.randrange(self.size)
        node = self.nodes[number]
        if node.alive:
            node.driver.now_ns = self.now_ms * MS
            node.driver.call()
            self.act(number, node, node.driver.last)
        gap_ms = self.window_ms / (self.limit * self.load)
        self.at(self.now_ms + max(1, round(self.random.expovariate(1 / gap_ms))), self.arrivals)

    def restart(self, number: int) -> None:
        """kill -9, and a new process under the same name."""
        self.nodes[number].alive = False
        self.nodes[number] = self._fresh(self.nodes[number].epoch + 1)
        self.post(number, WindowsShared(self.size, self.local))

    def play(self, until_ms: int) -> None:
        while self.events and self.events[0][0] <= until_ms:
            ms, _, action = heapq.heappop(self.events)
            self.now_ms = max(self.now_ms, ms)
            action()
        self.now_ms = until_ms

    def most(self) -> int:
        """Return the most that began in any window."""
        most, first, times = 0, 0, self.granted_ms
        for last, ms in enumerate(times):
            while times[first] <= ms - self.window_ms:
                first += 1
            most = max(most, last - first + 1)
        return most
