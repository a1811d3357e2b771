"""Jobs that agents submit: the policy says who may, and which commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final, final

import attrs
import msgspec

from hivemind_trio.admin.job_desk import TASKS_MAX, JobDesk, JobId, JobRefused, JobsView, WantedTask
from hivemind_trio.admin.operated import Operated
from hivemind_trio.admin.problems import OperationFailed, ProblemKind
from hivemind_trio.model import Request

from .asking import AskingAgent
from .views import SubmittedView

NONE_ALLOWED: Final = (
    "the policy lets no agent submit jobs, so nothing runs; the operator allows it by "
    '`jobs { allow [AGENT]; commands ["claude -p *"] }`'
)

Name = Annotated[str, msgspec.Meta(max_length=64)]


@final
@attrs.frozen(kw_only=True)
class WantedJobs:
    """Jobs that an agent submits, and stopped ones that it resumes."""

    tasks: Annotated[tuple[WantedTask, ...], msgspec.Meta(max_length=TASKS_MAX)] = ()
    resume: Annotated[tuple[JobId, ...], msgspec.Meta(max_length=TASKS_MAX)] = ()
    """Stopped jobs that go on."""
    agent: Name = ""
    """Agent that submits; its budgets pay."""
    session: Name = ""


@final
@attrs.frozen(kw_only=True)
class WhichJobs:
    """The jobs to show."""

    job: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """Id of one, to see its output; empty: all."""
    agent: Name = ""
    """Agent that asks; empty: an operator."""
    session: Name = ""


@final
@attrs.frozen(kw_only=True)
class OneJob:
    """A job by its id."""

    id: JobId
    agent: Name = ""
    """Agent that asks; empty: an operator."""
    session: Name = ""


def submit(proxy: Operated, what: WantedJobs, by: str) -> SubmittedView:
    """Submit jobs as an agent that may, or resume stopped ones."""
    return submit_for(proxy, AskingAgent.named(what.agent, what.session, proxy.program), what, by)


def submit_for(proxy: Operated, agent: AskingAgent, what: WantedJobs, by: str) -> SubmittedView:
    """Do so for an agent that is known already."""
    desk, name = _desk(proxy), _allowed(proxy, agent)
    if not what.tasks and not what.resume:
        raise OperationFailed(ProblemKind.BAD_ARGUMENT, 'no `tasks`: `[{"command": ["claude", "-p", "..."]}]`')
    with _refusals():
        ids = desk.submit(name, what.tasks) if what.tasks else []
        for job in what.resume:
            desk.resume(job)
    for job in (*ids, *what.resume):
        proxy.note("submit" if job in ids else "resume job", job, by, name)
    text = "they start when their calls have room; ask `jobs`"
    return SubmittedView(submitted=tuple(ids), resumed=what.resume, text=text)


def jobs(proxy: Operated, which: WhichJobs) -> JobsView:
    """Return the jobs of agents that are not over and the latest that are, or one with the end of its output."""
    if which.agent or which.session:
        _allowed(proxy, AskingAgent.named(which.agent, which.session, proxy.program))
    with _refusals():
        return _desk(proxy).show(which.job)


def jobs_for(proxy: Operated, agent: AskingAgent, which: WhichJobs) -> JobsView:
    """Do so for an agent that is known already."""
    _allowed(proxy, agent)
    with _refusals():
        return _desk(proxy).show(which.job)


def cancel(proxy: Operated, which: OneJob, by: str) -> JobsView:
    """Cancel a job: its process ends, and it is not started again."""
    if which.agent or which.session:
        return cancel_for(proxy, AskingAgent.named(which.agent, which.session, proxy.program), which, by)
    return _cancel(proxy, which, by)


def cancel_for(proxy: Operated, agent: AskingAgent, which: OneJob, by: str) -> JobsView:
    """Do so for an agent that is known already."""
    _allowed(proxy, agent)
    return _cancel(proxy, which, by)


def _cancel(proxy: Operated, which: OneJob, by: str) -> JobsView:
    desk = _desk(proxy)
    with _refusals():
        desk.cancel(which.id, by)
        proxy.note("cancel job", which.id, by, "")
        return desk.show(which.id)


def may_submit(proxy: Operated, agent: AskingAgent) -> bool:
    """Return True if the policy lets this agent submit jobs."""
    return proxy.jobs is not None and _name(proxy, agent) in proxy.engine.program.jobs.allow


def _desk(proxy: Operated) -> JobDesk:
    if proxy.jobs is None:
        raise OperationFailed(ProblemKind.NOT_ALLOWED, "this proxy runs no jobs for agents; `hivemind-trio serve` does")
    return proxy.jobs


def _allowed(proxy: Operated, agent: AskingAgent) -> str:
    """Return the declared agent, if it may submit jobs.

    Raises:
        OperationFailed: It may not.
    """
    allow, name = proxy.engine.program.jobs.allow, _name(proxy, agent)
    if not allow:
        raise OperationFailed(ProblemKind.NOT_ALLOWED, NONE_ALLOWED)
    if name not in allow:
        names = ", ".join(f"`{one}`" for one in allow)
        said = agent.token_agent or agent.name or "this caller"
        raise OperationFailed(ProblemKind.NOT_ALLOWED, f"jobs are for {names}, and `{said}` is none of them")
    return name


def _name(proxy: Operated, agent: AskingAgent) -> str:
    asks = Request(token_agent=agent.token_agent, claimed=agent.name or None, headers=agent.headers)
    return proxy.engine.program.decide(asks).agent


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except JobRefused as refused:
        kind = ProblemKind.NO_SUCH_RESOURCE if refused.is_unknown else ProblemKind.CONFLICT
        raise OperationFailed(ProblemKind.QUEUE_FULL if refused.is_full else kind, str(refused)) from None
