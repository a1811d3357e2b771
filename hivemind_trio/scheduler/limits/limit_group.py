"""One limits group of one provider: its slots, and what the provider allows it per window.

Where callers bring credentials of their own, what answers tell holds for the credential that was sent: each has rate
limits and a gate of its own. Windows that the policy declares are of all of them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

import attrs

from hivemind_trio.policy import LimitGroupSettings as Block
from hivemind_trio.scheduler.protocol.ablation import ALL_PARTS, Features
from hivemind_trio.scheduler.protocol.beliefs import WindowBelief
from hivemind_trio.scheduler.protocol.snapshot import GateSnapshot

from .concurrency_limit import ConcurrencyLimit
from .rate_limiter import RateLimiter
from .rate_limits import RateLimits
from .refused_accounts import RefusedAccounts

MODELS_MAX: Final = 64
"""With quotas of their own: models are the callers' words. The others share one."""


ACCOUNTS_MAX: Final = 1_024
"""Rate limits of accounts, for each model: credentials are callers' words, too. Those that were used longest ago and
hold nothing are forgotten."""


@final
@attrs.define(eq=False)
class LimitGroup:
    """Found by its glob, it lives on while something is held of it or counts against it."""

    parts: Features = ALL_PARTS
    slots: ConcurrencyLimit = attrs.field(factory=ConcurrencyLimit, init=False)
    _quotas: RateLimits = attrs.field(init=False)
    _models: dict[str, RateLimits] = attrs.field(factory=dict, init=False)
    """Rate limits by model, where the policy has no block: providers count by model."""
    _own: dict[tuple[str, str], RateLimits] = attrs.field(factory=dict, init=False)
    """(Account, model) -> rate limits of callers' own credentials. The model is empty where the policy has a block."""
    _together: dict[str, RefusedAccounts] = attrs.field(factory=dict, init=False)
    """Model, as in `_own` -> accounts that were refused."""
    _first: str | None = attrs.field(default=None, init=False)
    """The first account whose calls count here; None: there has been none."""
    _several: bool = attrs.field(default=False, init=False)
    """Another account's calls have come since."""
    _learns: bool = attrs.field(default=False, init=False)
    _block: Block | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._quotas = RateLimits(self.parts)

    def load(self, block: Block | None, now_ns: int, *, learns: bool) -> None:
        """Take the settings of a new policy. What was learned, and what counts, stays.

        Args:
            block: None: the policy has none for these models.
            learns: Whether the provider's rate-limit headers are believed.
        """
        if block is None or self._block is None:
            for key in [key for key in self._own if (key[1] == "") is (block is None)]:
                self._forget(key)
        self._block, self._learns = block, learns
        self.slots.resize(block.concurrency if block is not None else None)
        self._quotas.load(block.quotas if block is not None else (), now_ns, learns=learns)
        if self._several and block is not None and block.quotas:
            self._quotas.share(self._quotas, alone=False)
        for quotas in self._models.values():
            quotas.load((), now_ns, learns=learns)
        for quotas in self._own.values():
            self._prepare(quotas, now_ns)

    def _prepare(self, quotas: RateLimits, now_ns: int) -> None:
        """Point the rate limits of an account at what the policy declares."""
        if self._block is not None and self._block.quotas:
            quotas.share(self._quotas, alone=not self._several)
        else:
            quotas.load((), now_ns, learns=self._learns)

    def gates(self, now_ns: int) -> dict[str | None, GateSnapshot]:
        """Return what is believed, by model; None: what counts as one. Only of what may restrict dispatch.

        Of several accounts it is the one that is held for longest.
        """
        each: dict[str | None, RateLimits] = {None: self._quotas}
        if self._block is None:
            each.update(self._models)
        found = {model: quotas.snapshot(now_ns) for model, quotas in each.items() if quotas.restricts}
        for (_, name), quotas in self._own.items():
            if not quotas.restricts:
                continue
            model, gate = name or None, quotas.snapshot(now_ns)
            if model not in found or (gate.hold_until_ns or 0) > (found[model].hold_until_ns or 0):
                found[model] = gate
        return found

    def rate_limits(self) -> Iterator[RateLimits]:
        """Yield the rate limits of all models together, then those of each model that has its own."""
        yield self._quotas
        yield from self._models.values()
        yield from self._own.values()

    def declared(self) -> list[RateLimiter]:
        """Return the windows that the policy declares."""
        return [bucket for bucket in self._quotas.buckets.values() if bucket.declared]

    def beliefs(self, glob: str | None, now_ns: int) -> list[WindowBelief]:
        """Return the use of its declared windows, to be kept."""
        return self._quotas.beliefs(glob, now_ns)

    def restore(self, belief: WindowBelief, age_ns: int, now_ns: int) -> None:
        """Count what an earlier process took."""
        self._quotas.restore(belief, age_ns, now_ns)

    def quotas(self, model: str, account: str = "", now_ns: int = 0) -> RateLimits:
        """Return the rate limits that calls of a model count against.

        Args:
            account: The caller's own credential; empty: the provider's key, or none.
        """
        if self._first is None:
            self._first = account
        elif account != self._first and not self._several:
            self._several = True
            if self._block is not None and self._block.quotas:
                self._quotas.share(self._quotas, alone=False)
                self._quotas.forget(now_ns)
                for quotas in self._own.values():
                    self._prepare(quotas, now_ns)
        if account:
            return self._of_account(account, model if self._block is None else "", now_ns)
        if self._block is not None:
            return self._quotas
        known = self._models.get(model)
        if known is None:
            if len(self._models) >= MODELS_MAX:
                return self._quotas
            known = self._models[model] = RateLimits(self.parts)
        return known

    def _of_account(self, account: str, model: str, now_ns: int) -> RateLimits:
        known = self._own.pop((account, model), None)
        if known is None:
            if len(self._own) >= ACCOUNTS_MAX:
                idle = (key for key, quotas in self._own.items() if not quotas.inflight)
                self._forget(next(idle, next(iter(self._own))))
            known = RateLimits(self.parts)
            known.gate.accounts = self._together.setdefault(model, RefusedAccounts())
            known.gate.accounts.members += 1
            self._prepare(known, now_ns)
        self._own[account, model] = known
        return known

    def _forget(self, key: tuple[str, str]) -> None:
        """Forget an account."""
        gate = self._own.pop(key).gate
        gate.accounts.leave(gate)
        if not gate.accounts.members:
            del self._together[key[1]]
