"""Store of slots, windows and budgets that workers share: the supervisor has it, and they reach it by their channel."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, final

import attrs
import msgspec
import trio

from hivemind_trio.scheduler import AccountKey
from hivemind_trio.scheduler.learning.lesson import LearnAnswer, LearnAsk
from hivemind_trio.scheduler.sharing.budget_ask import NO_LIMIT, BudgetsAnswer, BudgetsAsk
from hivemind_trio.scheduler.sharing.share_row import FencedNode, RowNotice, ShareAnswer, ShareRequest
from hivemind_trio.scheduler.sharing.window_ring import WindowAnswer, WindowAsk, WindowShape
from hivemind_trio.store.fleet.interface import CreditNotKept, FleetStore, Notice, StoreUnreachable
from hivemind_trio.store.fleet.node_cards import ListedNode, NodeCard
from hivemind_trio.store.state.interface import account_of

from .channel import Channel, ChannelClosed, Failed, body_of

FENCED: Final = "fenced"
UNWRITABLE: Final = "unwritable"
CALL: Final = "store.call"
"""Notice to a worker that it is to speak to the store."""
TOLD: Final = "store.told"
"""Notice to a worker of another one's row."""

Cover = Callable[[AccountKey, int, int], Awaitable[None]]
"""Given an account, what workers have drawn of it and not spent, and its limit: makes that durable."""

T = TypeVar("T")


@final
@attrs.define(eq=False)
class ChannelStore:
    """`FleetStore` at the other end of a channel."""

    _channel: Channel

    async def epoch(self) -> int:
        """Return the start of a node."""
        return await self._ask("store.epoch", None, int)

    async def sync(self, pool: str, ask: ShareRequest) -> ShareAnswer:
        """Report on a pool of slots, and return what is granted."""
        return await self._ask("store.sync", (pool, ask), ShareAnswer)

    async def draw(self, pool: str, window: str, ask: WindowAsk, shape: WindowShape) -> WindowAnswer:
        """Draw of a window, and return what is granted."""
        return await self._ask("store.draw", (pool, window, ask, shape), WindowAnswer)

    async def spend(self, ask: BudgetsAsk) -> BudgetsAnswer:
        """Report on budgets, and return what is granted."""
        return await self._ask("store.spend", ask, BudgetsAnswer)

    async def learn(self, pool: str, ask: LearnAsk) -> LearnAnswer:
        """Report on attempts, and return what all nodes have learned."""
        return await self._ask("store.learn", (pool, ask), LearnAnswer)

    async def bye(self, pool: str, node: str, epoch: int) -> None:
        """Free what a node has that ends in order."""
        await self._ask("store.bye", (pool, node, epoch), type(None))

    async def introduce(self, card: NodeCard) -> tuple[ListedNode, ...]:
        """Put a node on the list of nodes, and return the list."""
        return await self._ask("store.introduce", card, tuple[ListedNode, ...])

    async def leave(self, node: str, epoch: int) -> None:
        """Take a node that ends in order off the list."""
        await self._ask("store.leave", (node, epoch), type(None))

    async def leader(self, pool: str) -> str:
        """Return the node that leads what is learned of a provider."""
        return await self._ask("store.leader", pool, str)

    async def listen(self, node: str, on_open: Callable[[], None], on_call: Callable[[Notice], None]) -> None:
        """Hear what other nodes say to this one until the channel ends."""
        self._channel.listeners[CALL] = lambda about: on_call(body_of(about, str))
        self._channel.listeners[TOLD] = lambda row: on_call(body_of(row, RowNotice))
        self._channel.tell("store.listen", node)
        on_open()
        await self._channel.closed.wait()
        raise StoreUnreachable("the supervisor has ended")

    async def _ask(self, name: str, value: object, kind: type[T]) -> T:
        try:
            return await self._channel.ask(name, value, kind)
        except Failed as failed:
            if failed.code == FENCED:
                raise FencedNode from None
            if failed.code == UNWRITABLE:
                raise CreditNotKept(str(failed)) from None
            raise StoreUnreachable(str(failed)) from None
        except ChannelClosed:
            raise StoreUnreachable("the supervisor has ended") from None


def serve_store(store: FleetStore, channel: Channel, nursery: trio.Nursery, cover: Cover | None = None) -> None:
    """Let the worker at the other end of a channel reach a store, for as long as the nursery is open.

    Args:
        cover: Makes credit of budgets durable before a worker may use it; None: it ends with the supervisor.
    """

    async def epoch(_: msgspec.Raw) -> int:
        return await store.epoch()

    async def sync(body: msgspec.Raw) -> ShareAnswer:
        pool, ask = body_of(body, tuple[str, ShareRequest])
        return await _or_fenced(store.sync(pool, ask))

    async def draw(body: msgspec.Raw) -> WindowAnswer:
        pool, window, ask, shape = body_of(body, tuple[str, str, WindowAsk, WindowShape])
        return await _or_fenced(store.draw(pool, window, ask, shape))

    async def spend(body: msgspec.Raw) -> BudgetsAnswer:
        ask = body_of(body, BudgetsAsk)
        answer = await _or_fenced(store.spend(ask))
        if cover is not None and answer.accounts:
            try:
                for (text, asked), granted in zip(ask.accounts, answer.accounts, strict=True):
                    if asked.limit != NO_LIMIT and granted.drawn > asked.drawn:
                        await cover(account_of(text), granted.out, asked.limit)
            except (OSError, sqlite3.Error) as error:
                raise Failed(UNWRITABLE, str(error)) from None
        return answer

    async def learn(body: msgspec.Raw) -> LearnAnswer:
        return await store.learn(*body_of(body, tuple[str, LearnAsk]))

    async def bye(body: msgspec.Raw) -> None:
        await store.bye(*body_of(body, tuple[str, str, int]))

    async def introduce(body: msgspec.Raw) -> tuple[ListedNode, ...]:
        return await store.introduce(body_of(body, NodeCard))

    async def leave(body: msgspec.Raw) -> None:
        await store.leave(*body_of(body, tuple[str, int]))

    async def leader(body: msgspec.Raw) -> str:
        return await store.leader(body_of(body, str))

    def listen(body: msgspec.Raw) -> None:
        node = body_of(body, str)

        def called(about: Notice) -> None:
            channel.tell(TOLD if isinstance(about, RowNotice) else CALL, about)

        nursery.start_soon(store.listen, node, lambda: None, called)

    channel.handlers |= {
        "store.epoch": epoch, "store.sync": sync, "store.draw": draw, "store.spend": spend, "store.bye": bye,
        "store.learn": learn, "store.introduce": introduce, "store.leave": leave, "store.leader": leader,
    }  # fmt: skip
    channel.listeners["store.listen"] = listen


async def _or_fenced(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except FencedNode:
        raise Failed(FENCED) from None
