"""Renames of a new policy: `was OLD` keeps counters and learned values (Terraform's `moved`).

A rename holds between two programs: the running one has the old name and not yet the new one. So the same text loaded
again renames nothing, and a `was` that has done its work may stay.

Beside what is declared there are remnants under names that no longer are: a provider whose last attempt still runs, an
agent's part of a budget. One of them may have the very name that is taken now. So a rename is a *swap* of two names:
nothing is lost and no two things ever have one name, whoever keeps them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import product
from typing import Any, Final, Self, TypeVar, final

import attrs

from hivemind_trio.model import Decision, Request

from .program import Program

T = TypeVar("T")

_TABLES: Final[Mapping[str, str]] = {
    "provider": "providers",
    "lane": "lanes",
    "team": "teams",
    "agent": "agents",
    "budget": "budgets",
    "retry": "retries",
    "resource": "resources",
}
"""Kind -> where a program has what is declared of it."""

_NAMED: Final[Mapping[str, str]] = {
    "agent": "agent",
    "team": "team",
    "provider": "provider",
    "account": "provider",
    "instead_of": "provider",
    "lane": "lane",
    "retry": "retry",
}
"""Names in a decision -> their kinds."""


def _accounts(renamed: Mapping[str, str], new: Program, before: frozenset[str] | None) -> dict[str, str]:
    """Return the former names of accounts, and their names: theirs may have changed, that of their provider, or both.

    Args:
        renamed: Former name of each renamed provider -> its name.
        new: The new policy.
        before: Accounts of the running policy, `claude.prod`; None: an earlier process has kept what there is.
    """
    formerly = {name: former for former, name in renamed.items()}
    found: dict[str, str] = {}
    for name, provider in new.providers.items():
        declared = {account.name for account in provider.accounts}
        # What an earlier process has kept may be older than the new name of the provider, or not.
        providers = {formerly.get(name, name), *([name] if before is None else [])}
        for account in provider.accounts:
            own = {account.name} if name in formerly else set()
            if account.was is not None and account.was not in declared:
                own |= {account.was}
            for former, one in product(providers, own):
                is_known = before is None or (
                    f"{former}.{one}" in before and (one == account.name or f"{former}.{account.name}" not in before)
                )
                if is_known and (former, one) != (name, account.name):
                    found[f"{former}.{one}"] = f"{name}.{account.name}"
    return found


def _account_names(program: Program) -> frozenset[str]:
    return frozenset(f"{name}.{one.name}" for name, provider in program.providers.items() for one in provider.accounts)


@final
@attrs.frozen
class Renames:
    """Between two programs."""

    _by_kind: Mapping[str, Mapping[str, str]]
    """Kind -> old name -> new name."""
    _claims: Mapping[str, str]
    """The same for agents that are known by a claim."""

    @classmethod
    def between(cls, old: Program, new: Program) -> Self:
        """Return the names that `new` has changed since `old`, which runs."""
        by_kind: dict[str, dict[str, str]] = {}
        for kind, was in new.was.items():
            before = getattr(old, _TABLES[kind])
            by_kind[kind] = {former: name for name, former in was.items() if former in before and name not in before}
        providers = by_kind.get("provider", {})
        by_kind["provider"] = providers | _accounts(providers, new, _account_names(old))
        by_kind = {kind: renamed for kind, renamed in by_kind.items() if renamed}
        agents = by_kind.get("agent", {})
        return cls(by_kind, {former: name for former, name in agents.items() if not old.agents[former].tokens})

    @classmethod
    def since_restart(cls, new: Program) -> Self:
        """Return the names of what an earlier process may have kept, and `new` calls otherwise."""
        by_kind = {
            kind: {former: name for name, former in was.items() if former not in getattr(new, _TABLES[kind])}
            for kind, was in new.was.items()
        }
        providers = by_kind.get("provider", {})
        by_kind["provider"] = providers | _accounts(providers, new, None)
        return cls({kind: names for kind, names in by_kind.items() if names}, {})

    def __bool__(self) -> bool:
        return bool(self._by_kind)

    def of(self, kind: str) -> Mapping[str, str]:
        """Old name -> new name."""
        return self._by_kind.get(kind, {})

    def name(self, kind: str, old: str) -> str:
        """Return the present name."""
        return self.of(kind).get(old, old)

    def swapped(self, kind: str, name: str) -> str:
        """Return the name of a counter, or of a remnant that had the name which is taken now."""
        renamed = self.of(kind)
        return renamed.get(name) or next((old for old, new in renamed.items() if new == name), name)

    def rekeyed(self, kind: str, table: Mapping[str, T]) -> dict[str, T]:
        """Return a table of counters by name, in its order."""
        return {self.swapped(kind, name): one for name, one in table.items()}

    def agent_key(self, key: tuple[bool, str]) -> tuple[bool, str]:
        """Return the present key of (declared, name): a caller that only claims a name is not renamed."""
        declared, name = key
        return (True, self.swapped("agent", name)) if declared else key

    def contender(self, key: Hashable) -> Hashable:
        """Return the present key of a contender in a lane: a team's name, or an agent's key."""
        match key:
            case (bool() as declared, str() as name):
                return self.agent_key((declared, name))
            case str():
                return self.swapped("team", key)
            case _:
                return key

    def request(self, request: Request) -> Request:
        """Return the request with the caller's new name."""
        token_agent, claimed = request.token_agent, request.claimed
        said: dict[str, Any] = {
            "token_agent": self.name("agent", token_agent) if token_agent is not None else None,
            "claimed": self._claims.get(claimed, claimed) if claimed is not None else None,
        }
        if said == {"token_agent": token_agent, "claimed": claimed}:
            return request
        return attrs.evolve(request, **said)

    def treatment(self, treatment: Decision) -> Decision:
        """Return the same treatment, in the names of now."""
        said: dict[str, Any] = {
            field: self.name(kind, getattr(treatment, field))
            for field, kind in _NAMED.items()
            if getattr(treatment, field) in self.of(kind)
        }
        if any(name in self.of("budget") for name in treatment.budgets):
            said["budgets"] = tuple(self.name("budget", name) for name in treatment.budgets)
        return attrs.evolve(treatment, **said) if said else treatment
