"""Results of operations for agents. The conventions are those of `views`."""

from __future__ import annotations

from typing import final

import attrs


@final
@attrs.frozen(kw_only=True)
class DurationView:
    """A forecast duration."""

    p50: float
    p90: float


@final
@attrs.frozen(kw_only=True)
class ForecastView:
    """Forecast for new agents."""

    fits: int
    """Agents that can start now: no call of theirs waits longer than asked for."""
    asked: int
    text: str
    """The answer in one sentence."""
    bound_by: str | None
    """Limit for which the next agent would wait, in words; null: all fit."""
    would_break: str | None
    """Rule, budget or queue that would reject a call of theirs; null: none."""
    starts_s: tuple[float | None, ...]
    """Time until the first call of each agent starts if all start now; null: not within the horizon."""
    ends_s: DurationView | None
    """Time until all calls are done; null: not within the horizon."""
    cost_usd: float | None
    """Cost of all calls; null: the model has no price."""
    provider: str | None
    lane: str
    model: str
    basis: str
    """Evidence of the forecast."""


@final
@attrs.frozen(kw_only=True)
class AgentView:
    """An agent, as the policy knows it."""

    agent: str
    """Declared agent, or `unknown`."""
    name: str
    """Name that it gives itself; empty: none."""
    team: str
    lane: str
    provider: str | None
    waiting: int | None
    """Calls of its own; null: it gives no name, so its calls are not known."""
    inflight: int | None


@final
@attrs.frozen(kw_only=True)
class NextTurnView:
    """Start of the agent's next call."""

    p50_s: float | None
    """Null: not within the horizon."""
    p90_s: float | None
    bound_by: str | None
    """Limit for which it would wait, in words; null: it would not wait."""


@final
@attrs.frozen(kw_only=True)
class BudgetLeftView:
    """Rest of a budget that the agent's calls count in."""

    name: str
    left: float
    unit: str
    """`dollars`, `tokens`, `input`, `output` or `requests`."""
    share_used: float
    resets_at: str | None
    """Null: the window slides."""


@final
@attrs.frozen(kw_only=True)
class PlanLeftView:
    """A window of a subscription plan that the agent's calls may count in."""

    window: str
    used: float
    """0 to 1."""
    resets_at: str | None


@final
@attrs.frozen(kw_only=True)
class AgentStatusView:
    """The proxy as one agent needs to know it."""

    you: AgentView
    next_turn: NextTurnView
    budgets: tuple[BudgetLeftView, ...]
    plan: tuple[PlanLeftView, ...]
    advice: str
    """`go`, `slow` or `hand_over`."""
    text: str
    """Reason of the advice."""


@final
@attrs.frozen(kw_only=True)
class OwnPriorityView:
    """Priority of an agent's calls."""

    level: int
    """From now on."""
    policy: int
    """Without the agent's wish."""
    waiting: int
    """Calls that wait and have it, too."""
    text: str


@final
@attrs.frozen(kw_only=True)
class LeaseView:
    """A lease of a resource."""

    lease: str
    """Its id."""
    resource: str
    fence: int
    """Fencing token: a store that remembers the highest one it has seen can refuse a holder whose lease has ended."""
    agent: str
    """Declared agent, or `unknown`."""
    caller: str
    """Name that the holder gives itself."""
    purpose: str
    granted_at: str | None
    expires_at: str | None
    """Time at which it ends unless it is renewed."""
    expires_in_s: float
    waited_s: float
    written: bool = True
    """False: it is not on disk yet, and its holder waits for that."""


@final
@attrs.frozen(kw_only=True)
class AskedLeaseView:
    """Answer to a request for a lease."""

    lease: LeaseView | None
    """Null: none was free for as long as the request waited."""
    before_you: int
    """Requests that would have been served before this one."""
    text: str
    unwritten: str | None = None
    """Why leases cannot be written to disk, and so none is given; null: they can."""


@final
@attrs.frozen(kw_only=True)
class ReleasedView:
    """A lease that has ended."""

    released: str


@final
@attrs.frozen(kw_only=True)
class RequestView:
    """A request for a lease that waits."""

    agent: str
    caller: str
    priority: int
    purpose: str
    waited_s: float


@final
@attrs.frozen(kw_only=True)
class ResourceView:
    """A resource with its leases."""

    name: str
    capacity: int
    removed: bool
    """No longer in the policy: its leases run out."""
    leases: tuple[LeaseView, ...]
    waiting: int
    requests: tuple[RequestView, ...]
    """Those that wait, the next first; at most 100."""


@final
@attrs.frozen(kw_only=True)
class ResourcesView:
    """Resources of the policy."""

    resources: tuple[ResourceView, ...]
    declared: tuple[str, ...]
    """Names in the policy."""
    unwritten: str | None = None
    """Why leases cannot be written to disk, and so none is given; null: they can."""


@final
@attrs.frozen(kw_only=True)
class SubmittedView:
    """Jobs that are in line."""

    submitted: tuple[str, ...]
    """Ids, in the order of the tasks."""
    resumed: tuple[str, ...]
    text: str
