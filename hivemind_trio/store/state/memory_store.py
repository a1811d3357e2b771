"""State in memory: ends with the process, and otherwise behaves as the durable stores do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import final

import attrs

from hivemind_trio.scheduler import AccountKey
from hivemind_trio.store.state.interface import Charge, Claim, Entry, Learned, Restored, counts_still, slot_ns


@final
@attrs.define(eq=False)
class MemoryStore:
    """`StateStore` of one process. `reopen` is what a restart is to the durable stores."""

    _spends: dict[AccountKey, dict[int, int]] = attrs.field(factory=dict, init=False)
    _claims: dict[int, Claim] = attrs.field(factory=dict, init=False)
    _learned: dict[tuple[str, str], tuple[str, int]] = attrs.field(factory=dict, init=False)
    _runs: int = attrs.field(default=0, init=False)

    def reopen(self, wall_ns: int, left_ns: Mapping[AccountKey, int] | None = None) -> Restored:
        """Charge the claims that are open, and return what a new process begins with."""
        charges = charge_claims(self._claims.values())
        for charge in charges:
            slot = slot_ns(charge.account, wall_ns, (left_ns or {}).get(charge.account, charge.account.window_ns))
            self._add(charge.account, slot, charge.amount)
        self._claims.clear()
        runs, self._runs = self._runs, self._runs + 1
        kept = {
            account: {slot: amount for slot, amount in slots.items() if counts_still(account, slot, wall_ns)}
            for account, slots in self._spends.items()
        }
        # Forgotten, so that a clock that is put back later does not bring them back.
        self._spends = {account: slots for account, slots in kept.items() if slots}
        spends = {
            account: tuple(sorted((slot, amount) for slot, amount in slots.items() if amount))
            for account, slots in self._spends.items()
        }
        return Restored(
            spends={account: slots for account, slots in spends.items() if slots},
            charges=charges,
            learned=dict(self._learned),
            runs=runs,
        )

    def append(self, entry: Entry) -> None:
        """Note an entry."""
        if isinstance(entry, Claim):
            self._claims[entry.call] = entry
            return
        self._claims.pop(entry.call, None)
        for account, slot, amount in entry.parts:
            self._add(account, slot, amount)

    def _add(self, account: AccountKey, slot: int, amount: int) -> None:
        slots = self._spends.setdefault(account, {})
        slots[slot] = slots.get(slot, 0) + amount

    def draw(self, draws: Sequence[tuple[AccountKey, int]]) -> None:
        """Grant the chunks: there is no machine to go down under them."""

    def rotate(self) -> None:
        """Return None: there is no log."""
        return

    def fold(self, batch: object) -> None:
        """Do nothing."""

    def learn(self, learned: Learned, wall_ns: int) -> None:
        """Keep hints."""
        self._learned |= {key: (value, wall_ns) for key, value in learned.items()}

    def rename(self, names: Mapping[AccountKey, AccountKey]) -> None:
        """Keep accounts under new keys."""
        spends = self._spends
        self._spends = {names.get(account, account): slots for account, slots in spends.items()}

    def join(self, node: str, epoch: int) -> None:
        """Do nothing: what is spent ends with the process."""

    def bye(self) -> None:
        """End; open claims stay."""


def charge_claims(claims: Iterable[Claim]) -> tuple[Charge, ...]:
    """Return what is charged for calls that were in flight."""
    amounts: dict[AccountKey, tuple[int, int]] = {}
    for claim in claims:
        for account, amount in claim.parts:
            if not amount:
                continue
            before, calls = amounts.get(account, (0, 0))
            amounts[account] = before + amount, calls + 1
    return tuple(Charge(account=account, amount=amount, calls=calls) for account, (amount, calls) in amounts.items())
