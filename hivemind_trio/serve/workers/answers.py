"""Operations on a proxy of several workers: each is asked, and their answers become one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TypeVar, final

import attrs
import trio

from hivemind_trio.admin import OPERATIONS, Facts, Operation, OperationFailed, PolicyKeeper, ProblemKind
from hivemind_trio.admin.agents.forecast import NewAgents
from hivemind_trio.admin.agents.views import AgentStatusView, ForecastView, OwnPriorityView
from hivemind_trio.admin.change import Pausee, pauses_ended
from hivemind_trio.admin.history import UsageKey, UsageSum
from hivemind_trio.admin.hour import usage_of
from hivemind_trio.admin.operated import NoArguments
from hivemind_trio.admin.provider import WhichProvider
from hivemind_trio.admin.show import WhichCalls, disk_notices, policy_notices
from hivemind_trio.admin.views import BudgetsView, CallState, HourView, ProviderDetailView, StatusView, WorkerView
from hivemind_trio.control import HELP, of_process
from hivemind_trio.policy import Program
from hivemind_trio.scheduler import AccountKey, Pausable

from . import merging
from .channel import ChannelClosed, Failed
from .leases import SupervisedLeases
from .ledger import SharedLedger
from .metrics import PlainFamily, counter, gauge, plain, together
from .process import WorkerProcess
from .worker import WorkerLoad

ASK_S: Final = 8.0
"""Time for a worker to answer; it is left out then."""

OF_POLICY: Final = ("policy", "policy_diff", "reload")
"""Operations that the supervisor does by itself."""
OF_LEASES: Final = ("resources", "lease", "renew", "release")
"""The same with its leases."""
OF_ONE: Final = ("call", "explain", "story", "cancel", "let_through", "set_priority")
"""Operations on one call: that worker answers that has it."""

NO_WORKER: Final = "no worker serves now; ask again"
NO_JOBS: Final = "several workers run no jobs; serve the policy with one process: `workers 1`"

T = TypeVar("T")
Sums = list[tuple[tuple[str, str, str], dict[str, int], dict[int, int]]]


class Supervised(Protocol):
    """A proxy of several workers."""

    @property
    def names(self) -> Sequence[str]:
        """Names of all workers, also of one that is being started again."""
        ...

    @property
    def workers(self) -> Mapping[str, WorkerProcess]:
        """Name -> the process of now."""
        ...

    @property
    def starts(self) -> Mapping[str, int]:
        """Name -> processes so far."""
        ...

    @property
    def paused(self) -> MutableMapping[tuple[Pausable, str], None]:
        """Kinds and names that operators have paused."""
        ...

    @property
    def program(self) -> Program:
        """The policy in force."""
        ...

    @property
    def draining(self) -> bool:
        """True while calls in flight end."""
        ...

    @property
    def started_at_ns(self) -> int:
        """Start on the wall clock."""
        ...

    @property
    def began_s(self) -> float:
        """Start on Trio's clock."""
        ...

    @property
    def ledger(self) -> SharedLedger | None:
        """Ledger of budgets; None: they end with the proxy."""
        ...

    @property
    def leases(self) -> SupervisedLeases:
        """Leases of resources."""
        ...

    def ready(self) -> list[WorkerProcess]:
        """Return the workers that serve now."""
        ...


async def _done(operation: Operation, where: object, arguments: Any, by: str) -> Any:
    """Return what an operation comes to that the supervisor does itself."""
    result = operation.run(where, arguments, *((by,) if operation.changes else ()))
    return await result if hasattr(result, "__await__") else result


@final
@attrs.frozen(kw_only=True, eq=False)
class FleetAnswers:
    """Does operations.

    Args:
        fleet: The workers.
        facts: Of the supervisor.
        policy: Keeper of the policy.
        note: Told of every change.
        disk_troubles: Files of the supervisor -> why they cannot be written now.
    """

    fleet: Supervised
    facts: Facts
    policy: PolicyKeeper
    note: Callable[[str, str, str, str], None]
    disk_troubles: Mapping[str, str]

    @property
    def policy_hash(self) -> str:
        """Hash of the policy in force."""
        return self.fleet.program.hash

    async def ask(self, operation: Operation, arguments: Any, by: str) -> Any:
        """Do an operation.

        Raises:
            OperationFailed: It cannot be done.
        """
        name = operation.name
        if name in OF_POLICY:
            return await _done(operation, self, arguments, by)
        if name in OF_LEASES:
            return await _done(operation, self.fleet.leases, arguments, by)
        if name in OF_ONE:
            return await self._of_one(operation, arguments, by)
        match name:
            case "status":
                return await self._status()
            case "submit" | "jobs" | "cancel_job":
                raise OperationFailed(ProblemKind.CONFLICT, NO_JOBS)
            case "usage":
                return await self._usage()
            case "provider":
                return await self._provider(operation, arguments, by)
            case "forecast":
                return await self._forecast(operation, arguments, by)
            case "pause" | "resume":
                return merging.paused(await self._paused(operation, arguments, by))
        if name == "advice":
            # All workers write one journal, so any of them has the calls of all.
            return await self._of_first(operation, arguments, by)
        if name == "set_budget":
            # One worker tells the store, and all others hear of it there.
            return self._budgets(operation, arguments, [await self._of_first(operation, arguments, by)])
        views = await self._all(operation, arguments, by)
        match name:
            case "queue":
                return merging.queue(views)
            case "calls":
                return merging.calls(views, arguments.limit)
            case "sessions":
                return merging.sessions(views, arguments.limit)
            case "series":
                return merging.series(views, arguments.last)
            case "budgets" | "reset_budget":
                return self._budgets(operation, arguments, views)
            case "paused":
                return merging.paused(views)
            case "agent":
                return _agent(views)
            case "own_priority":
                return _own_priority(views)
            case _:
                raise AssertionError(f"no way to ask several workers for {name}")

    # ---- who answers ----

    async def _each(self, ask: Callable[[WorkerProcess], Any]) -> list[tuple[WorkerProcess, Any]]:
        """Return what each worker answers, or the failure that it answers with; one that is silent is left out."""
        found: dict[str, tuple[WorkerProcess, Any]] = {}

        async def one(worker: WorkerProcess) -> None:
            with trio.move_on_after(ASK_S):
                try:
                    found[worker.name] = worker, await ask(worker)
                except OperationFailed as failed:
                    found[worker.name] = worker, failed
                except (ChannelClosed, Failed):
                    pass  # it ends

        async with trio.open_nursery() as nursery:
            for worker in self.fleet.ready():
                nursery.start_soon(one, worker)
        return [found[name] for name in sorted(found)]

    async def _all(self, operation: Operation, arguments: Any, by: str) -> list[Any]:
        """Return the answers of all workers that do the operation.

        Raises:
            OperationFailed: None does it.
        """
        first = next(iter(self.fleet.ready()), None)
        answers = [
            answer
            for _, answer in await self._each(lambda one: one.operate(operation, arguments, by, is_noted=one is first))
        ]
        good = [answer for answer in answers if not isinstance(answer, OperationFailed)]
        if good:
            return good
        if answers:
            raise answers[0]
        raise OperationFailed(ProblemKind.CONFLICT, NO_WORKER)

    async def _of_one(self, operation: Operation, arguments: Any, by: str) -> Any:
        answers = [answer for _, answer in await self._each(lambda one: one.operate(operation, arguments, by))]
        failures = []
        for answer in answers:
            if not isinstance(answer, OperationFailed):
                return answer
            failures.append(answer)
        # One that knows the call says more than one that does not.
        failures.sort(key=lambda failed: failed.kind is ProblemKind.NO_SUCH_RESOURCE)
        if failures:
            raise failures[0]
        raise OperationFailed(ProblemKind.CONFLICT, NO_WORKER)

    async def _of_first(self, operation: Operation, arguments: Any, by: str) -> Any:
        """Return the answer of the first worker that does the operation."""
        failed = OperationFailed(ProblemKind.CONFLICT, NO_WORKER)
        for worker in self.fleet.ready():
            try:
                with trio.fail_after(ASK_S):
                    return await worker.operate(operation, arguments, by)
            except OperationFailed as error:
                failed = error
            except (ChannelClosed, Failed, trio.TooSlowError):
                pass  # it ends
        raise failed

    async def _paused(self, operation: Operation, which: Pausee, by: str) -> list[Any]:
        paused = self.fleet.paused
        before = dict(paused)
        # Noted first: a worker that begins to serve while the others are asked is told of it.
        if operation.name == "pause":
            paused[which.kind, which.name] = None
            changed = [(which.kind, which.name)]
        else:
            changed = pauses_ended(which, before)
            for key in changed:
                paused.pop(key)
        try:
            return await self._all(operation, which, by)
        except OperationFailed:
            for key in changed:
                if key in before:
                    paused[key] = None
                else:
                    paused.pop(key, None)
            raise

    # ---- what they answer together ----

    async def _status(self) -> StatusView:
        views = await self._all(OPERATIONS["status"], NoArguments(), "")
        agents: set[tuple[str, str]] = set()
        for state in (CallState.WAITING, CallState.INFLIGHT):
            for listed in await self._all(OPERATIONS["calls"], WhichCalls(state=state, limit=10_000), ""):
                agents |= {(one.agent, one.caller) for one in listed.calls}
        fleet = self.fleet
        merged = merging.status(views, fleet.program, len(agents))
        return attrs.evolve(
            merged,
            pid=self.facts.pid,
            address=self.facts.address,
            journal=self.facts.journal,
            started_at=_at(fleet.started_at_ns),
            uptime_s=round(trio.current_time() - fleet.began_s, 3),
            draining=fleet.draining,
            notices=(*self._notices(), *merged.notices)[: merging.NOTICES_MAX],
            nodes=merging.nodes([view.nodes for view in views]),
            workers=await self.workers(),
        )

    def _budgets(self, operation: Operation, arguments: Any, views: list[BudgetsView]) -> BudgetsView:
        """Return budgets; the ledger sees all calls of workers, and they have been told what other nodes have spent."""
        ledger, wall_ns = self.fleet.ledger, time.time_ns()
        if ledger is None:
            return merging.budgets(views, {})
        known = {}
        for key in ledger.accounts():
            budget = self.fleet.program.budgets.get(key.budget)
            for allowance in budget.allowances if budget is not None else ():
                if budget is not None and key == AccountKey.of(budget, allowance, key.whose):
                    known[budget.name, key.subject, allowance.shown()] = key
        shown = {(one.budget, one.whose, one.allowance) for view in views for one in view.budgets}
        if operation.changes:
            for key in [known[one] for one in shown if one in known]:
                ledger.set_spent(key, getattr(arguments, "spent", 0), wall_ns)
        if self.fleet.program.store.url is not None:
            return merging.budgets(views, {})
        return merging.budgets(views, {one: ledger.spent(key, wall_ns) for one, key in known.items()})

    def _notices(self) -> list[Any]:
        found = list(policy_notices(self.policy.result(), self.facts.policy))  # workers read no policy
        found += disk_notices(self.disk_troubles)  # and write no state
        serving = {worker.name for worker in self.fleet.ready()}
        for name in sorted(set(self.fleet.names) - serving):
            found.append(merging.notice("worker", name, f"{name} has ended, and is started again"))
        for worker in self.fleet.ready():
            if worker.taker.rests:
                text = f"{worker.name} does not answer, and is handed no connection"
                found.append(merging.notice("worker", worker.name, text))
        return found

    async def workers(self) -> tuple[WorkerView, ...]:
        """Return the workers, each with what it does."""
        found = {worker.name: load for worker, load in await self._each(lambda one: one.ask("load", None, WorkerLoad))}
        return tuple(
            WorkerView(
                name=name,
                pid=worker.pid if worker is not None else None,
                starts=self.fleet.starts.get(name, 0),
                inflight=load.inflight if load is not None else None,
                waiting=load.waiting if load is not None else None,
                connections=load.connections if load is not None else None,
                cpu_s=load.cpu_s if load is not None else None,
            )
            for name in self.fleet.names
            for worker, load in [(self.fleet.workers.get(name), found.get(name))]
        )

    async def in_flight(self) -> int:
        """Return the number of calls at providers."""
        loads = await self._each(lambda one: one.ask("load", None, WorkerLoad))
        return sum(load.inflight for _, load in loads)

    async def _usage(self) -> HourView:
        sums: dict[UsageKey, UsageSum] = {}
        for _, of_worker in await self._each(lambda one: one.ask("usage", None, Sums)):
            for key, counts, waits in of_worker:
                known = sums.setdefault(UsageKey(*key), UsageSum())
                known.add(UsageSum(**counts, waits=Counter(waits)))
        return usage_of(sums, self.fleet.program)

    async def _provider(self, operation: Operation, which: WhichProvider, by: str) -> ProviderDetailView:
        answers = {
            worker.name: answer for worker, answer in await self._each(lambda one: one.operate(operation, which, by))
        }
        good = {name: one for name, one in answers.items() if isinstance(one, ProviderDetailView)}
        if not good:
            raise next(iter(answers.values()), OperationFailed(ProblemKind.CONFLICT, NO_WORKER))
        return merging.provider(good, self.fleet.program)

    async def _forecast(self, operation: Operation, what: NewAgents, by: str) -> ForecastView:
        """Ask each worker for its part of the agents: their connections are spread over all."""
        workers = self.fleet.ready()
        if not workers:
            raise OperationFailed(ProblemKind.CONFLICT, NO_WORKER)
        used = workers[: what.agents]
        parts = {
            worker.name: what.agents // len(used) + (place < what.agents % len(used))
            for place, worker in enumerate(used)
        }

        async def ask(worker: WorkerProcess) -> Any:
            if worker.name not in parts:
                raise Failed("unused")
            return await worker.operate(operation, attrs.evolve(what, agents=parts[worker.name]), by)

        answers = [answer for _, answer in await self._each(ask)]
        good = [answer for answer in answers if isinstance(answer, ForecastView)]
        if not good:
            raise answers[0] if answers else OperationFailed(ProblemKind.CONFLICT, NO_WORKER)
        return _together(good, what)

    async def metrics(self) -> list[Any]:
        """Return the metrics of all processes as those of one."""
        own = await trio.to_thread.run_sync(lambda: plain(of_process()))
        found = await self._each(lambda one: one.ask("metrics", None, list[PlainFamily]))
        starts = sum(self.fleet.starts.values())
        serving = [
            gauge("workers", "Workers that serve.", len(self.fleet.ready())),
            counter("worker_starts", "Processes of workers that were started.", starts),
            gauge("state_writable", HELP["state_writable"], float("state" not in self.disk_troubles)),
        ]
        return together([own, serving, *(families for _, families in found)])


def _at(wall_ns: int) -> str:
    moment = datetime.fromtimestamp(round(wall_ns / 1_000_000) / 1_000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _agent(views: Sequence[AgentStatusView]) -> AgentStatusView:
    """Return an agent's state: that of the worker that has most of its calls, with the calls of all."""

    def own(view: AgentStatusView) -> int:
        return (view.you.waiting or 0) + (view.you.inflight or 0)

    most = max(views, key=own)
    if most.you.waiting is None:
        return most
    you = attrs.evolve(
        most.you,
        waiting=sum(view.you.waiting or 0 for view in views),
        inflight=sum(view.you.inflight or 0 for view in views),
    )
    return attrs.evolve(most, you=you)


def _own_priority(views: Sequence[OwnPriorityView]) -> OwnPriorityView:
    return attrs.evolve(views[0], waiting=sum(view.waiting for view in views))


def _together(views: Sequence[ForecastView], what: NewAgents) -> ForecastView:
    """Return the forecast of parts as that of the whole."""
    first = next((view for view in views if view.fits < view.asked), views[0])
    fits = sum(view.fits for view in views)
    starts = sorted((start for view in views for start in view.starts_s), key=lambda one: (one is None, one))
    ends = [view.ends_s for view in views if view.ends_s is not None]
    last = max(ends, key=lambda one: one.p90, default=None) if len(ends) == len(views) else None
    costs = [view.cost_usd for view in views if view.cost_usd is not None]
    text = first.text
    if fits < what.agents:
        _, _, rest = first.text.partition(";")
        text = f"{fits or 'none'} of {what.agents} fit now;{rest}" if rest else first.text
    elif what.agents > 1:
        text = f"all {fits} fit: no call waits longer than {what.within_s:g} s"
    return attrs.evolve(
        first,
        fits=fits,
        asked=what.agents,
        text=text,
        starts_s=tuple(starts),
        ends_s=last,
        cost_usd=round(sum(costs), 4) if len(costs) == len(views) else None,
    )
