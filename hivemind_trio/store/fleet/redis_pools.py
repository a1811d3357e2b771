"""Pools of slots in Redis or Valkey, which proxies share. The client is coredis, in the extra `redis`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import attrs
import msgspec

from hivemind_trio.scheduler.learning.lesson import LESSONS_MAX, LearnAnswer, LearnAsk, Lesson, Report, SharedVerdict
from hivemind_trio.scheduler.sharing.budget_ask import (
    ASK_AGAIN_MS,
    LEARN_AGAIN_MS,
    PRESENT_MS,
    USED_UP_AGAIN_MS,
    BudgetAnswer,
    BudgetAsk,
    BudgetsAnswer,
    BudgetsAsk,
)
from hivemind_trio.scheduler.sharing.budget_pot import PARTS, SLICES
from hivemind_trio.scheduler.sharing.share_row import (
    FORGET_MS,
    FencedNode,
    LeaseTerms,
    RowNotice,
    ShareAnswer,
    ShareRequest,
    ShareRow,
)
from hivemind_trio.scheduler.sharing.shared_pool import LAST_SEQ
from hivemind_trio.scheduler.sharing.window_ring import WindowAnswer, WindowAsk, WindowShape

from .budget_script import SPEND
from .card_script import INTRODUCE, LEADER, LEAVE
from .interface import BUDGETS, Notice, StoreUnreachable, learned
from .learn_script import LEARN
from .node_cards import CARDS_MAX, ListedNode, NodeCard
from .scripts import BYE, CLOCK, EPOCH, SYNC
from .window_script import WINDOW

if TYPE_CHECKING:
    from coredis import Redis

CONNECT_S: Final = 2.0

Reply = TypeVar("Reply")

FENCED: Final = "fenced"


class StoreNotInstalled(Exception):  # noqa: N818 - it becomes a message
    """The client library is not installed."""

    help = "install it with `pip install 'hivemind-trio[redis]'`"


@final
class _Row(msgspec.Struct):
    e: int
    q: int
    p: int
    a: int
    h: int
    w: int
    c: int
    f: int
    t: int
    k: bool
    s: int
    n: int = 0
    """Not there in rows that nodes of before 2026-11-27 have written."""

    def row(self) -> ShareRow:
        return ShareRow(
            epoch=self.e,
            seq=self.q,
            cap=self.p,
            share=self.a,
            held=self.h,
            demand=self.w,
            owed=self.c,
            floor=self.f,
            seen_ms=self.t,
            heard=self.k,
            suspect_ms=self.s if self.s >= 0 else None,
            changes=self.n,
        )


@final
class _Answer(msgspec.Struct):
    cap: int
    share: int
    run: str
    learning: bool
    blind: bool
    rows: dict[str, _Row]
    tell: str
    granted: str


@final
class _Notice(msgspec.Struct):
    node: str
    run: str
    row: _Row
    granted: dict[str, _Row] = {}


@final
class _WindowReply(msgspec.Struct):
    granted: int
    slot: int
    again: int
    used: int
    run: str
    anew: bool


@final
class _BudgetReply(msgspec.Struct):
    drawn: int
    settled: int
    spent: int
    out: int
    short: bool
    scarce: bool
    again: int
    opens: int
    sets: int
    anew: bool

    def answer(self) -> BudgetAnswer:
        return BudgetAnswer(
            drawn=self.drawn,
            settled=self.settled,
            spent=self.spent,
            out=self.out,
            short=self.short,
            scarce=self.scarce,
            again_ms=self.again,
            opens_ms=self.opens,
            sets=self.sets,
            anew=self.anew,
        )


@final
class _BudgetsReply(msgspec.Struct):
    run: str
    accounts: list[_BudgetReply]
    wake: str


_Step = tuple[int, int, str, int, bool, str, int, int]
"""`Lesson`, in the order of its fields."""


@final
class _VerdictReply(msgspec.Struct):
    l: int  # noqa: E741 - as short as the fields of a row
    d: bool
    c: str
    o: int


@final
class _ReportReply(msgspec.Struct):
    n: str
    e: int
    h: int
    b: bool
    s: list[_Step] | None

    def report(self) -> Report:
        lessons = tuple(
            Lesson(
                call=call,
                age_ms=age_ms,
                kind=kind,
                lasted_ms=lasted_ms,
                is_probe=is_probe,
                outcome=outcome,
                said_ms=said_ms,
                tokens=tokens,
            )
            for call, age_ms, kind, lasted_ms, is_probe, outcome, said_ms, tokens in self.s or ()
        )
        return Report(node=self.n, epoch=self.e, held=self.h, binds=self.b, lessons=lessons)


@final
class _LearnReply(msgspec.Struct):
    leads: bool
    verdict: _VerdictReply | None
    probe: bool
    reports: list[_ReportReply] | None
    wake: str

    def answer(self, ask: LearnAsk) -> LearnAnswer:
        told, verdict = self.verdict, None
        if told is not None:
            verdict = SharedVerdict(limit=told.l, doubling=told.d, circuit=told.c, opens_ms=told.o)
        return LearnAnswer(
            seq=ask.seq,
            leads=self.leads,
            verdict=verdict,
            probe=self.probe,
            reports=tuple(one.report() for one in self.reports or ()),
            wake=tuple(self.wake.split("\n")) if self.wake else (),
        )


@final
class _CardReply(msgspec.Struct):
    n: str
    e: int
    p: str
    v: str
    a: int
    o: bool

    def known(self) -> ListedNode:
        card = NodeCard(node=self.n, epoch=self.e, policy=self.p, version=self.v)
        return ListedNode(card=card, age_ms=self.a, present=self.o)


def learn_text(ask: LearnAsk) -> str:
    """Return the argument of `LEARN` for a report."""
    told = ask.verdict
    return json_of(
        {
            "h": ask.held,
            "b": ask.binds,
            "u": ask.urgent,
            "leads": ask.leads,
            "wants": ask.wants_probe,
            "probes": ask.probes,
            "v": told and {"l": told.limit, "d": told.doubling, "c": told.circuit, "o": told.opens_ms},
            "s": [attrs.astuple(lesson) for lesson in ask.lessons],
        }
    )


def budget_text(ask: BudgetAsk) -> str:
    """Return the argument of `SPEND` for an account."""
    return json_of(
        {
            "i": ask.life,
            "m": ask.limit,
            "w": ask.window_ms,
            "z": ask.slot,
            "d": ask.drawn,
            "p": ask.settled,
            "r": ask.returned,
            "least": ask.least,
            "waits": ask.waits,
            "idle": ask.idle,
            "report": ask.report,
            "closes": ask.closes,
            "set": ask.spent,
            "o": ask.spent_seq,
        }
    )


def json_of(value: object) -> str:
    """Return an argument of a script."""
    return msgspec.json.encode(value).decode()


_decode_learned: Final = msgspec.json.Decoder(_LearnReply, strict=False).decode
_decode_budgets: Final = msgspec.json.Decoder(_BudgetsReply, strict=False).decode
_decode_cards: Final = msgspec.json.Decoder(list[_CardReply], strict=False).decode
_decode_window: Final = msgspec.json.Decoder(_WindowReply, strict=False).decode
_decode_notice: Final = msgspec.json.Decoder(_Notice, strict=False).decode
_decode: Final = msgspec.json.Decoder(_Answer, strict=False).decode


@contextmanager
def _reached() -> Iterator[None]:
    """Say in one way that the store cannot be used."""
    from coredis.exceptions import RedisError

    try:
        yield
    except (RedisError, OSError, TimeoutError, msgspec.MsgspecError) as error:
        raise StoreUnreachable(f"{type(error).__name__}: {error}") from error
    except BaseExceptionGroup as errors:
        ours, others = errors.split((RedisError, OSError, TimeoutError))
        if others is not None:
            raise
        assert ours is not None
        first: BaseException = ours
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise StoreUnreachable(f"{type(first).__name__}: {first}") from errors


@final
@attrs.define(eq=False)
class RedisPools:
    """`FleetStore` on a server. Every method raises `StoreUnreachable` where the store cannot be used."""

    _client: Redis[str]
    namespace: str
    _terms: LeaseTerms
    clock: str = CLOCK

    async def epoch(self) -> int:
        """Return the store's time, in milliseconds: the start of a node."""
        return int(await self.run(EPOCH, (), ()))

    async def sync(self, pool: str, ask: ShareRequest) -> ShareAnswer:
        """Report, and return what is granted.

        Raises:
            FencedNode: A newer process serves under the node's name.
            StoreUnreachable: No answer.
        """
        return answer_of(ask, await self.run(self.clock + SYNC, self._keys(pool), self.arguments(ask)))

    async def draw(self, pool: str, window: str, ask: WindowAsk, shape: WindowShape) -> WindowAnswer:
        """Draw of a window, and return what is granted.

        Raises:
            FencedNode: A newer process serves under the node's name.
            StoreUnreachable: No answer.
        """
        words = (ask.node, ask.epoch, ask.seq, ask.run, ask.nodes, ask.limit, ask.least, ask.want, ask.more)
        lists = (json_of(ask.back), json_of(ask.report))
        lengths = (shape.window_ms, shape.slot_ms, shape.good_ms, self._terms.learning_ms, FORGET_MS)
        key = f"hm:{{{self.namespace}:{pool}}}:{window}"
        answer = await self.run(self.clock + WINDOW, (key,), (*words, *lists, *lengths))
        found = _granted(answer, _decode_window)
        return WindowAnswer(
            seq=ask.seq,
            granted=found.granted,
            slot=found.slot,
            again_ms=found.again,
            used=found.used,
            run=found.run,
            anew=found.anew,
        )

    async def spend(self, ask: BudgetsAsk) -> BudgetsAnswer:
        """Report on budgets, and return what is granted.

        Raises:
            FencedNode: A newer process serves under the node's name.
            StoreUnreachable: No answer.
        """
        tag = f"hm:{{{self.namespace}:b}}"
        keys = (f"{tag}:m", *(f"{tag}:a:{name}" for name, _ in ask.accounts))
        words = (ask.node, ask.epoch, ask.seq, ask.nodes, ask.run, int(ask.complete), self._channel(""))
        bounds = (self._terms.learning_ms, FORGET_MS, PRESENT_MS, ASK_AGAIN_MS, USED_UP_AGAIN_MS, LEARN_AGAIN_MS)
        texts = tuple(budget_text(one) for _, one in ask.accounts)
        known_ms = FORGET_MS + self._terms.lease_ms
        answer = await self.run(self.clock + SPEND, keys, (*words, *bounds, SLICES, PARTS, known_ms, BUDGETS, *texts))
        found = _granted(answer, _decode_budgets)
        return BudgetsAnswer(
            seq=ask.seq,
            run=found.run,
            accounts=tuple(one.answer() for one in found.accounts),
            wake=tuple(found.wake.split("\n")) if found.wake else (),
        )

    async def learn(self, pool: str, ask: LearnAsk) -> LearnAnswer:
        """Report on attempts at a provider, and return what all nodes have learned of it.

        Raises:
            StoreUnreachable: No answer.
        """
        terms = self._terms
        bounds = (terms.grace_ms, terms.gone_ms, LESSONS_MAX, FORGET_MS + 60_000)
        calls = (self._channel(""), learned(pool))
        _, record = self._keys(pool)
        arguments = (ask.node, ask.epoch, ask.seq, learn_text(ask), *bounds, *calls)
        answer = await self.run(self.clock + LEARN, (self._learned_key(pool), record), arguments)
        with _reached():
            return _decode_learned(answer).answer(ask)

    async def bye(self, pool: str, node: str, epoch: int) -> None:
        """Free what a node has that ends in order."""
        await self.run(BYE, (*self._keys(pool), self._learned_key(pool)), (node, epoch, LAST_SEQ, self._channel("")))

    async def introduce(self, card: NodeCard) -> tuple[ListedNode, ...]:
        """Put a node on the list of nodes, and return the list by name."""
        words = (card.node, card.epoch, card.policy, card.version, FORGET_MS, CARDS_MAX, self._channel(""))
        answer = await self.run(self.clock + INTRODUCE, (self._list_key,), words)
        with _reached():
            return tuple(sorted((one.known() for one in _decode_cards(answer)), key=lambda one: one.card.node))

    async def leave(self, node: str, epoch: int) -> None:
        """Take a node that ends in order off the list."""
        await self.run(LEAVE, (self._list_key,), (node, epoch))

    async def leader(self, pool: str) -> str:
        """Return the node that leads what is learned of a provider; empty: none does."""
        return str(await self.run(LEADER, (self._learned_key(pool),), ()))

    async def run(self, script: str, keys: tuple[str, ...], arguments: tuple[str | int, ...]) -> Any:
        """Run a script."""
        from coredis.exceptions import NoScriptError

        with _reached():
            digest = sha1_of(script)
            try:
                return await self._client.evalsha(digest, keys, arguments)
            except NoScriptError:
                return await self._client.eval(script, keys, arguments)

    def arguments(self, ask: ShareRequest) -> tuple[str | int, ...]:
        """Return the arguments of `SYNC`."""
        terms = self._terms
        asked = (ask.node, ask.epoch, ask.seq, ask.cap, ask.nodes, ask.keep, ask.held, ask.demand, ask.target)
        bounds = (terms.lease_ms, terms.grace_ms, terms.gone_ms, FORGET_MS)
        return (*asked, ask.owed, ask.floor, *bounds, self._channel(""), ask.run, json_of(ask.parts))

    async def listen(self, node: str, on_open: Callable[[], None], on_call: Callable[[Notice], None]) -> None:
        """Hear what other nodes say to this one, until the connection breaks.

        Raises:
            StoreUnreachable: It broke, or there was none.
        """
        from coredis.retry import NoRetryPolicy

        with _reached():
            async with self._client.pubsub(
                channels=[self._channel(node)], ignore_subscribe_messages=True, retry_policy=NoRetryPolicy()
            ) as heard:
                on_open()
                async for message in heard:
                    on_call(self._notice(str(message["data"])))
        raise StoreUnreachable("the subscription has ended")

    def _notice(self, text: str) -> Notice:
        """Return what a message says: a row follows the key of its pool. What cannot be read is a call to report."""
        key, _, row = text.partition("\n")
        try:
            found = _decode_notice(row)
        except msgspec.MsgspecError:
            return key
        pool = key.removeprefix(f"hm:{{{self.namespace}:").removesuffix("}:n")
        granted = {name: row.row() for name, row in found.granted.items()}
        return RowNotice(pool=pool, node=found.node, run=found.run, row=found.row.row(), granted=granted)

    def _keys(self, pool: str) -> tuple[str, ...]:
        return f"hm:{{{self.namespace}:{pool}}}:n", f"hm:{{{self.namespace}:{pool}}}:m"

    @property
    def _list_key(self) -> str:
        return f"hm:{{{self.namespace}}}:nodes"

    def _learned_key(self, pool: str) -> str:
        return f"hm:{{{self.namespace}:{pool}}}:l"

    def _channel(self, node: str) -> str:
        return f"hm:{{{self.namespace}}}:to:{node}"


def _granted(answer: str, decode: Callable[[str], Reply]) -> Reply:
    """Return the reply of a script that only the newest process of a node's name may run.

    Raises:
        FencedNode: A newer process serves under the node's name.
        StoreUnreachable: It is no such reply.
    """
    if answer == FENCED:
        raise FencedNode
    with _reached():
        return decode(answer)


def sha1_of(script: str) -> str:
    """Return the name of a script at the server."""
    return sha1(script.encode(), usedforsecurity=False).hexdigest()


def answer_of(ask: ShareRequest, answer: str) -> ShareAnswer:
    """Return the answer of `SYNC`.

    Raises:
        FencedNode: A newer process serves under the node's name.
    """
    found = _granted(answer, _decode)
    return ShareAnswer(
        seq=ask.seq,
        cap=found.cap,
        share=found.share,
        run=found.run,
        learning=found.learning,
        blind=found.blind,
        rows={name: row.row() for name, row in found.rows.items()},
        tell=tuple(found.tell.split("\n")) if found.tell else (),
        granted=tuple(found.granted.split("\n")) if found.granted else (),
    )


@asynccontextmanager
async def open_pools(url: str, namespace: str, terms: LeaseTerms) -> AsyncIterator[RedisPools]:
    """Connect, as needed, to the store within the context.

    Raises:
        StoreNotInstalled: There is no client.
    """
    try:
        import coredis
    except ImportError:
        raise StoreNotInstalled("`store redis` needs the package coredis") from None
    # It logs tracebacks of connections that end; those are `StoreUnreachable` here.
    logging.getLogger("coredis").setLevel(logging.CRITICAL + 1)
    client = coredis.Redis.from_url(url, decode_responses=True, verify_version=False, connect_timeout=CONNECT_S)
    async with client:
        yield RedisPools(client, namespace, terms)
