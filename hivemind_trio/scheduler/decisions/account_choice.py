"""Choice of an account: which of a provider's keys a call is sent with, or waits for.

Each account is a pool of its own (`anthropic.prod`), with slots, windows, a learned limit and a circuit. A call goes to
one that has room for it now, in the same step in which it takes the room. Only if none has it waits, in the line of
one of them, and is drawn to whichever can take it first: at rest no call at the head of a line waits for an account
while another of its provider has room for it.

An account that `shares` another is a second key of one pool: it has no limits of its own, and calls choose between the
two by lane, by their session, and by turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from hivemind_trio.model import Decision, Reason
from hivemind_trio.policy import AccountSettings, AccountSpread, ProviderSettings
from hivemind_trio.scheduler.calls.placement import Placement
from hivemind_trio.scheduler.calls.waiting_call import WaitingCall
from hivemind_trio.scheduler.protocol.call import Call
from hivemind_trio.scheduler.protocol.circuit import Circuit
from hivemind_trio.scheduler.queueing.provider import ProviderQueue
from hivemind_trio.scheduler.state import SchedulerState

NEVER_NS: Final = 1 << 62

ONLY: Final = "the only one that takes it"
HOME: Final = "it served the session last"
ROOM: Final = "it has room"
WAITS: Final = "none has room"


def session_of(call: Call) -> str:
    """Return what shares a prompt cache: the session; else the beginning of the prompt, or the caller."""
    return call.job.partition("/")[0] or call.prefix or call.caller


def senders_for(books: SchedulerState, provider: str, lane: str) -> list[tuple[ProviderQueue, AccountSettings | None]]:
    """Return the accounts of a provider that take calls of a lane, with their pools; the provider, if it has none."""
    settings = books.program.providers[provider]
    if not settings.accounts:
        return [(books.pools[provider], None)]
    return [
        (books.pools[f"{provider}.{account.shares or account.name}"], account)
        for account in settings.accounts
        if account.takes_lane(lane)
    ]


def at_account(
    call: Call, treatment: Decision, pool: ProviderSettings, account: AccountSettings | None = None
) -> Decision:
    """Return the decision for this pool, whose `limits` may be its own, and the key of this account.

    Args:
        account: None: the one that the pool is named after.
    """
    group = pool.group_of(treatment.model or call.request.model)
    key = f"{pool.account_of}.{account.name}" if account is not None and account.shares is not None else None
    return attrs.evolve(treatment, provider=pool.name, account=key, group=group)


def choose(books: SchedulerState, call: Call, treatment: Decision, failed: ProviderQueue | None) -> Decision:
    """Return the decision with an account in place of a provider that has accounts.

    Args:
        failed: Where the call's last attempt has failed, if another account may do better.
    """
    if treatment.provider is None or not books.program.providers[treatment.provider].accounts:
        return treatment
    provider = books.program.providers[treatment.provider]
    senders = senders_for(books, treatment.provider, treatment.lane)
    home = (
        books.homes.home(provider.name, session_of(call), books.now_ns)
        if provider.spread is AccountSpread.STICKY
        else None
    )
    best: tuple[tuple[object, ...], Decision, Reason] | None = None
    for index, (pool, account) in enumerate(senders):
        assert pool.provider is not None, "accounts are those of the policy"
        assert account is not None, "the provider has accounts"
        there = at_account(call, treatment, pool.provider, account)
        place = books.place(call, there)
        blocked = _blocked(books, call, there, place)
        health = pool.health
        is_spent = blocked is Reason.PROVIDER_SPENT
        order = (
            pool is failed or pool.paused or not health.up or is_spent,
            # Another key of the same pool may have money.
            is_spent,
            blocked is not Reason.NONE,
            # Somebody must find out whether it is well again.
            health.breaker.circuit is not Circuit.HALF_OPEN,
            not account.lanes,
            _opens_ns(books, place, blocked),
            there.sender != home if home is not None else 0,
            _load(pool) if provider.spread is not AccountSpread.FIRST else 0,
            # Keys of one pool have the same room, and idle accounts the same load.
            _turn(books, pool.provider, there) if provider.spread is not AccountSpread.FIRST else 0,
            index,
        )
        if best is None or order < best[0]:
            best = order, there, blocked
    assert best is not None, "every lane has an account (HM424)"
    _, there, blocked = best
    why = ONLY if len(senders) == 1 else WAITS if blocked is not Reason.NONE else HOME if there.sender == home else ROOM
    return attrs.evolve(there, decided=books.homes.decided(there.decided, provider, why))


def _load(pool: ProviderQueue) -> float:
    """Return the used share of its slots."""
    return pool.slots.held / pool.limit if pool.limit else 1.0


def _turn(books: SchedulerState, pool: ProviderSettings, treatment: Decision) -> int:
    """Return a number that is the lower, the longer ago the key was used, where keys take turns."""
    return books.homes.turn(treatment.sender or "") if pool.takes_turns else 0


def _blocked(books: SchedulerState, call: Call, treatment: Decision, place: Placement) -> Reason:
    """Return what the account lacks for the call; a call that exceeds a whole window never fits."""
    if place.pool.health.spent.shut(books.billing_key(call, treatment), books.now_ns):
        return Reason.PROVIDER_SPENT
    if place.quotas.has_limits and place.too_large() is not None:
        return Reason.OVER_LIMITS
    return place.blocked(books.now_ns)


def _opens_ns(books: SchedulerState, place: Placement, blocked: Reason) -> int:
    """Return when its windows let the call go; 0: now."""
    if blocked is Reason.OVER_LIMITS:
        return NEVER_NS
    if blocked is Reason.NONE or not place.quotas.restricts:
        return 0
    opens_ns = place.quotas.opens_ns(place.cost, books.now_ns)
    return opens_ns if opens_ns > books.now_ns else 0


def with_siblings(books: SchedulerState, pools: Iterable[ProviderQueue]) -> list[ProviderQueue]:
    """Return pools with the other accounts of their providers."""
    found: dict[str, ProviderQueue] = {}
    for pool in pools:
        found[pool.name] = pool
        if pool.provider is not None and pool.provider.account_of:
            found.update((one.name, one) for one in books.accounts[pool.provider.account_of])
    return list(found.values())


def drawn(books: SchedulerState, pools: list[ProviderQueue], moved: set[int]) -> WaitingCall | None:
    """Return a call that waits for one account and could go at another of these; None: there is none.

    Where only time is missing, the account wakes then (`opens_ns`).

    Args:
        moved: Calls that have been drawn in this step, which stay where they are.
    """
    for pool in pools:
        if pool.provider is None or not pool.provider.account_of or not pool.slots.has_room:
            continue
        for other in books.accounts[pool.provider.account_of]:
            if other is pool or not other.waiting:
                continue
            for waiter in _heads(books, other):
                if waiter.call.id not in moved and _fits(books, waiter, pool):
                    return waiter
    return None


def _heads(books: SchedulerState, pool: ProviderQueue) -> Iterator[WaitingCall]:
    """Yield the calls that are next in the lines of a pool, of the lane first whose turn it is."""
    for lane in sorted(pool.lanes.values(), key=lambda one: one.tag):
        for entry in lane.heads():
            yield books.room.waiters[entry.call.id]


def _fits(books: SchedulerState, waiter: WaitingCall, pool: ProviderQueue) -> bool:
    """Return True if a call could go at this account now; else note when its windows open."""
    assert pool.provider is not None, "asked before"
    for account in pool.provider.keyring:
        if not account.takes_lane(waiter.treatment.lane):
            continue
        there = at_account(waiter.call, waiter.treatment, pool.provider, account)
        place = books.place(waiter.call, there)
        blocked = _blocked(books, waiter.call, there, place)
        opens_ns = max(_opens_ns(books, place, blocked), waiter.stays_away_ns(pool))
        if books.now_ns < opens_ns < NEVER_NS:
            pool.opens_ns = opens_ns if pool.opens_ns is None else min(pool.opens_ns, opens_ns)
        elif blocked is Reason.NONE:
            return True
    return False
