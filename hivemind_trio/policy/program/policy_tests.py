"""The tests of a policy, typed: what each asks, and what it expects."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias, final

import attrs

from hivemind_trio.model import PlanSpan
from hivemind_trio.model.addresses import LOOPBACK
from hivemind_trio.policy.language.condition_typing import Condition
from hivemind_trio.policy.source.span import Span

from .call_facts import Facts


@final
@attrs.frozen(kw_only=True)
class GivenCall:
    """`given { ... }`: one call."""

    facts: Facts
    span: Span


@final
@attrs.frozen(kw_only=True)
class GivenAny:
    """`given any [when ...]`: every call that meets the condition, and that a provider serves."""

    condition: Condition
    span: Span


@final
@attrs.frozen(kw_only=True)
class Arriving:
    """`load NAME { ... }`: calls that keep coming."""

    name: str
    agent: str | None
    """None: callers that are no declared agent."""
    model: str
    """Empty: the usual one of the first provider."""
    tokens_in: int
    tokens_out: int
    per_second: float
    stream: bool
    path: str
    headers: tuple[tuple[str, str], ...]
    time: int | None
    """Minutes since midnight at the beginning; None: the simulator's usual time."""
    date: str | None
    span: Span
    address: int = LOOPBACK
    """Address of the callers, as a number."""
    turns: int = 1
    """Calls of each arrival, one after another."""
    grows: int = 0
    """Input tokens that each of them has more than the one before."""


@final
@attrs.frozen(kw_only=True)
class Failing:
    """`fail 529 2% from 2m to 6m`, or `fail "overloaded_error" 2%`."""

    signal: str
    """A status, `connect`, `reset`, or an error type."""
    status: int | None = None
    """Status of the answer with that error type; None: it is none."""
    share: float
    from_ns: int
    to_ns: int | None
    """None: to the end."""


@final
@attrs.frozen(kw_only=True)
class PlanDeclared:
    """`plan session tokens 20M used 10% resets 3h`: a window of the plan of the provider's accounts."""

    span: PlanSpan
    tokens: int
    """Tokens of a whole window."""
    every_ns: int | None
    """None: the usual length."""
    used: float
    resets_ns: int | None
    """Time to the first reset; None: a whole window."""


@final
@attrs.frozen(kw_only=True)
class Behaving:
    """`upstream PROVIDER { ... }`: how it behaves in a run."""

    provider: str
    latency_ns: tuple[int, int] | None
    """None: as the simulator's own usual provider."""
    failing: tuple[Failing, ...]
    plan: tuple[PlanDeclared, ...] = ()


@final
class FaultOf(StrEnum):
    """Part of several nodes that is not there for a time."""

    STORE = "store"
    """Nobody reaches it."""
    NODE = "node"
    """Killed; another process starts in its place."""
    LINK = "link"
    """A node does not reach the store."""


@final
@attrs.frozen(kw_only=True)
class Fault:
    """`fault store from 3m to 4m`, or `fault node 2 from 5m`."""

    of: FaultOf
    node: int
    """Number of the node, from 1; 0 of the store."""
    from_ns: int
    to_ns: int | None
    """None: to the end."""
    span: Span


@final
@attrs.frozen(kw_only=True)
class Run:
    """A simulated run."""

    loads: tuple[Arriving, ...]
    upstreams: tuple[Behaving, ...]
    length_ns: int
    seed: int
    nodes: int = 1
    """Proxies that share the providers; 1: one, which is alone."""
    faults: tuple[Fault, ...] = ()


@final
@attrs.frozen(kw_only=True)
class Expectation:
    """One `expect`."""

    condition: Condition
    span: Span
    """Span of the condition."""


Asks: TypeAlias = tuple[GivenCall | GivenAny, ...]


@final
@attrs.frozen(kw_only=True)
class PolicyTest:
    """A test without mistakes: about calls, or about a run."""

    name: str
    span: Span
    """Span of its name."""
    at: str
    """`team.hmp:70`."""
    asks: Asks | Run
    expects: tuple[Expectation, ...]
