"""State that survives a restart: the interface of its stores, and the values that pass through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeAlias, final

import attrs
import msgspec

from hivemind_trio.policy import Measure, Per
from hivemind_trio.scheduler import AccountKey, Lease, Parts

KNOWN_FIRST: Final = 6
"""Fields of an account's key since the first version."""
_Known: TypeAlias = tuple[str, str, str, str, int, bool]
_Whole: TypeAlias = tuple[str, str, str, str, int, bool, bool, str, str]

SLICES: Final = 64
"""Parts of a sliding window in which spends are added up."""

Learned: TypeAlias = Mapping[tuple[str, str], str]
"""(Provider, what) -> a JSON value."""


CORRECTION: Final = 0
"""Call of an entry that no call has spent: an operator has changed what was spent. It settles no credit."""


@final
@attrs.frozen
class Claim:
    """A call begins, and may take so much."""

    call: int
    at_ns: int
    """On the wall clock."""
    parts: Parts


@final
@attrs.frozen
class Spent:
    """A call is over; its claim is, too."""

    call: int
    parts: tuple[tuple[AccountKey, int, int], ...]
    """(Account, end of the slice or calendar window on the wall clock in ns, amount)."""


Entry: TypeAlias = Claim | Spent


@final
@attrs.frozen(kw_only=True)
class Charge:
    """Amount charged for what an earlier process left open."""

    account: AccountKey
    amount: int
    calls: int
    """Calls in flight; 0: the machine went down, and the chunk that was drawn is charged instead."""


@final
@attrs.frozen(kw_only=True)
class Restored:
    """State as earlier processes left it."""

    spends: Mapping[AccountKey, tuple[tuple[int, int], ...]]
    """Account -> (end of the slice or window on the wall clock, amount), oldest first."""
    charges: tuple[Charge, ...]
    """Included in the spends."""
    learned: Mapping[tuple[str, str], tuple[str, int]]
    """(Provider, what) -> (JSON value, when it was learned on the wall clock)."""
    shared_by: tuple[str, int] | None = None
    """Node, and its start by the store of several nodes, that spent what is in `settled`; None: unknown."""
    settled: Mapping[AccountKey, int] = attrs.field(factory=dict)
    """Total that it has spent of each account, charges included."""
    runs: int
    """Processes that used this state before."""
    leases: tuple[Lease, ...] = ()
    """Leases of resources that were in hand; times on the wall clock."""
    fences: Mapping[str, int] = attrs.field(factory=dict)
    """Resource -> highest fencing token that was given."""


class StateStore(Protocol):
    """Keeper of ledger and hints of one proxy.

    `append` and `rotate` belong to the event loop and never wait for the disk; the other methods block, and one thread
    calls them at a time.
    """

    def append(self, entry: Entry) -> None:
        """Note an entry so that it survives the end of this process, however it ends.

        Raises:
            OSError: It cannot be written now; nothing of it was.
        """

    def draw(self, draws: Sequence[tuple[AccountKey, int]]) -> None:
        """Add chunks to what the accounts may spend; on the disk when this returns.

        Raises:
            OSError, sqlite3.Error: It cannot be written now; nothing of it was.
        """

    def rotate(self) -> object | None:
        """Begin a new log; return what `fold` is to take, None: there is nothing.

        Raises:
            OSError: It cannot be done now.
        """

    def fold(self, batch: object) -> None:
        """Fold what was noted before a `rotate` into the totals. On an error it may be tried again."""

    def learn(self, learned: Learned, wall_ns: int) -> None:
        """Keep hints. They may be lost with the machine."""

    def rename(self, names: Mapping[AccountKey, AccountKey]) -> None:
        """Keep accounts under new keys."""

    def join(self, node: str, epoch: int) -> None:
        """Share budgets with other nodes from now on: what this process spends is kept under this name."""

    def bye(self) -> None:
        """End in order: unused credit is given back. Claims that are open stay, and are charged at the next start."""


class OpenedState(StateStore, Protocol):
    """A store that is open, and what earlier processes left in it."""

    @property
    def restored(self) -> Restored:
        """State as earlier processes left it."""
        ...

    @property
    def alias_key(self) -> bytes:
        """Key of the names that stand for credentials, the same in every run."""
        ...

    def keep_leases(self, kept: Sequence[Lease], ended: Sequence[Lease]) -> None:
        """Write leases of resources and the ends of others; on the disk when this returns."""


def slot_ns(account: AccountKey, wall_ns: int, left_ns: int) -> int:
    """Return the slice that a spend of now falls into: its end on the wall clock.

    Args:
        left_ns: Time until the account's calendar window ends; unused for sliding windows.
    """
    if account.calendar:
        second = 1_000_000_000
        return (wall_ns + left_ns + second // 2) // second * second
    length_ns = max(1, account.window_ns // SLICES)
    return wall_ns - wall_ns % length_ns + length_ns


def counts_still(account: AccountKey, slot: int, wall_ns: int) -> bool:
    """Return True if a slice counts in the window of now. A clock that was put back ends no window early."""
    return slot > wall_ns if account.calendar else slot + account.window_ns > wall_ns


def account_text(account: AccountKey) -> str:
    """Return the key as it stands on disk: what a version did not know yet is left out where it says nothing."""
    values = tuple(account)
    return msgspec.json.encode(values if any(values[KNOWN_FIRST:]) else values[:KNOWN_FIRST]).decode()


def account_of(text: str) -> AccountKey:
    """Return the key of a text.

    Raises:
        ValueError: The text is none of `account_text`.
    """
    try:
        values = msgspec.json.decode(text, type=list[str | int | bool])
        shape = _Known if len(values) == KNOWN_FIRST else _Whole
        budget, per, whose, measure, *window = msgspec.convert(values, shape)
    except msgspec.MsgspecError as error:
        raise ValueError(f"no account: {text}") from error
    return AccountKey(budget, Per(per), whose, Measure(measure), *window)


def lease_text(lease: Lease) -> str:
    """Return a lease as it stands on disk."""
    return msgspec.json.encode(lease).decode()


def lease_of(text: str) -> Lease:
    """Return the lease of a text.

    Raises:
        ValueError: The text is none of `lease_text`.
    """
    try:
        return msgspec.json.decode(text, type=Lease)
    except msgspec.MsgspecError as error:
        raise ValueError(f"no lease: {text}") from error
