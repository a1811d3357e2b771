"""Table of operations: name, arguments, result. Every door is a table from its own words to these names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, Final, final

import attrs

from . import change, explain, hour, policy, provider, show, story
from .agents import forecast, jobs, leases, priority, status
from .agents.views import (
    AgentStatusView,
    AskedLeaseView,
    ForecastView,
    LeaseView,
    OwnPriorityView,
    ReleasedView,
    ResourcesView,
    SubmittedView,
)
from .forecasts import advice
from .job_desk import JobsView
from .operated import NoArguments, Operated
from .views import (
    AdviceView,
    BudgetsView,
    CallsView,
    CallView,
    ExplainView,
    HourView,
    PausedView,
    PolicyDiffView,
    PolicySourceView,
    ProviderDetailView,
    QueueView,
    ReloadView,
    SeriesListView,
    SessionsView,
    StatusView,
    StoryView,
)


@final
@attrs.frozen
class Operation:
    """One operation."""

    name: str
    run: Callable[..., Any]
    """Given the proxy, the arguments and, if it changes anything, who asks; some await. Its docstring is for
    operators."""
    arguments: type
    result: type
    changes: bool = False
    """True if it changes the proxy."""

    @property
    def summary(self) -> str:
        """First line of the description, for documents."""
        return (self.run.__doc__ or "").split("\n")[0]


_ALL: Final = (
    Operation("status", show.status, NoArguments, StatusView),
    Operation("queue", show.queue, NoArguments, QueueView),
    Operation("provider", provider.provider, provider.WhichProvider, ProviderDetailView),
    Operation("calls", show.calls, show.WhichCalls, CallsView),
    Operation("call", show.call, show.OneCall, CallView),
    Operation("explain", explain.explain, show.OneCall, ExplainView),
    Operation("story", story.story, show.OneCall, StoryView),
    Operation("series", hour.series, hour.WhichPoints, SeriesListView),
    Operation("usage", hour.usage, NoArguments, HourView),
    Operation("sessions", hour.sessions, hour.WhichSessions, SessionsView),
    Operation("advice", advice.advice, NoArguments, AdviceView),
    Operation("budgets", show.budgets, NoArguments, BudgetsView),
    Operation("reset_budget", change.reset_budget, change.WhichBudget, BudgetsView, True),
    Operation("set_budget", change.set_budget, change.BudgetSpending, BudgetsView, True),
    Operation("paused", change.paused, NoArguments, PausedView),
    Operation("pause", change.pause, change.Pausee, PausedView, True),
    Operation("resume", change.resume, change.Pausee, PausedView, True),
    Operation("cancel", change.cancel, show.OneCall, CallView, True),
    Operation("policy", policy.policy, NoArguments, PolicySourceView),
    Operation("policy_diff", policy.policy_diff, NoArguments, PolicyDiffView),
    Operation("reload", policy.reload, policy.ReloadWhat, ReloadView, True),
    Operation("agent", status.agent, status.WhichAgent, AgentStatusView),
    Operation("forecast", forecast.forecast, forecast.NewAgents, ForecastView),
    Operation("own_priority", priority.set_own, priority.OwnPriority, OwnPriorityView, True),
    Operation("let_through", change.let_through, show.OneCall, CallView, True),
    Operation("set_priority", change.set_priority, change.CallPriority, CallView, True),
    Operation("resources", leases.resources, NoArguments, ResourcesView),
    Operation("lease", leases.lease, leases.WantedLease, AskedLeaseView, True),
    Operation("renew", leases.renew, leases.OneLease, LeaseView, True),
    Operation("release", leases.release, leases.OneLease, ReleasedView, True),
    Operation("submit", jobs.submit, jobs.WantedJobs, SubmittedView, True),
    Operation("jobs", jobs.jobs, jobs.WhichJobs, JobsView),
    Operation("cancel_job", jobs.cancel, jobs.OneJob, JobsView, True),
)

OPERATIONS: Final = {operation.name: operation for operation in _ALL}

Ask = Callable[[Operation, Any, str], Awaitable[Any]]
"""Does an operation: given its arguments and who asks, returns its result or raises `OperationFailed`."""


def asking(proxy: Operated) -> Ask:
    """Return what does operations on a proxy in this process."""

    async def ask(operation: Operation, arguments: Any, by: str) -> Any:
        result = operation.run(proxy, arguments, *((by,) if operation.changes else ()))
        return await result if isawaitable(result) else result

    return ask
