"""Account that served each session last: providers keep prompt caches by account, for minutes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs

from hivemind_trio.model import Decider
from hivemind_trio.policy import ProviderSettings, Renames

from .prompt_cache import WARM_NS

DECIDED_MAX: Final = 1_024

KNOWN_MAX: Final = 10_000
"""Sessions are callers' words; of more, those served last."""


@final
@attrs.define(eq=False)
class AccountHomes:
    """Home of each session at a provider."""

    _known: dict[tuple[str, str], tuple[str, int]] = attrs.field(factory=dict, init=False)

    _chosen: int = attrs.field(default=0, init=False)
    _turns: dict[str, int] = attrs.field(factory=dict, init=False)
    """Account -> number of the call that it was chosen for last."""

    _decided: dict[tuple[int, str, str], tuple[Mapping[str, Decider], Mapping[str, Decider]]] = attrs.field(
        factory=dict, init=False
    )
    """Deciders by their identity, which they keep while they are here."""

    def __len__(self) -> int:
        return len(self._known)

    def rename(self, renames: Renames) -> None:
        """Take the new names of a policy."""
        self._known = {
            (renames.swapped("provider", provider), session): (renames.swapped("provider", account), until_ns)
            for (provider, session), (account, until_ns) in self._known.items()
        }
        self._turns = renames.rekeyed("provider", self._turns)

    def home(self, provider: str, session: str, now_ns: int) -> str | None:
        """Return the account whose prompt cache is warm for a session; None: no account's is."""
        account, until_ns = self._known.get((provider, session), (None, 0))
        return account if until_ns > now_ns else None

    def decided(self, decided: Mapping[str, Decider], provider: ProviderSettings, why: str) -> Mapping[str, Decider]:
        """Return who decided about a call, and why it has its account; the same for calls that were decided alike."""
        known = self._decided.get((id(decided), provider.at, why))
        if known is None:
            if len(self._decided) >= DECIDED_MAX:
                self._decided.clear()
            decider = Decider("spread", f"{provider.spread}: {why}", provider.at)
            known = self._decided[id(decided), provider.at, why] = decided, {**decided, "account": decider}
        return known[1]

    def turn(self, account: str) -> int:
        """Return a number that is the lower, the longer ago the account was chosen for a call."""
        return self._turns.get(account, 0)

    def chosen(self, account: str) -> None:
        """Note that a call is to go to the account, now or later."""
        self._chosen += 1
        self._turns.pop(account, None)
        self._turns[account] = self._chosen
        if len(self._turns) > KNOWN_MAX:
            del self._turns[next(iter(self._turns))]

    def served(self, provider: str, session: str, account: str, now_ns: int) -> None:
        """Note that a call of the session goes to this account."""
        self._known.pop((provider, session), None)
        self._known[provider, session] = account, now_ns + WARM_NS
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
