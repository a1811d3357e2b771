"""The proxy of a run: where its jobs send their calls, and what it knows of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol, final

import attrs

from hivemind_trio.policy import Measure
from hivemind_trio.proxy import CallRecord
from hivemind_trio.serve import ProxyServer

from .ending import LIMIT_STATUSES, LastCall
from .gate import Signals

SECOND_NS: Final = 1_000_000_000
FINISHED_MAX: Final = 100
"""Jobs that what one takes is learned from: the latest."""


@final
@attrs.define
class JobUsage:
    """Usage of one job, by its calls."""

    calls: int = 0
    input: int = 0
    output: int = 0
    cost_microusd: int = 0
    waited_s: float = 0.0
    session: str = ""
    """As the client names it; empty: it does not."""
    last: LastCall | None = None
    """The latest that is over, of its process."""
    limit: LastCall | None = None
    """The latest that met a limit, of its process."""

    def of(self, measure: Measure) -> int:
        """Return the amount in a budget's unit."""
        match measure:
            case Measure.COST:
                return self.cost_microusd
            case Measure.TOKENS:
                return self.input + self.output
            case Measure.INPUT:
                return self.input
            case Measure.OUTPUT:
                return self.output
            case Measure.REQUESTS:
                return self.calls


class JobProxy(Protocol):
    """Proxy that jobs call."""

    @property
    def url(self) -> str:
        """Base URL without `/@NAME` and `/v1`."""

    def usage(self, job: str) -> JobUsage:
        """Return what the job's calls have taken, as far as it is known."""

    def signals(self) -> Signals:
        """Return what the scheduler says of the calls of another job."""


@final
@attrs.define(eq=False)
class RemoteProxy:
    """A proxy in another process: nothing is known of its calls."""

    url: str

    def usage(self, job: str) -> JobUsage:
        """Return zeros."""
        return JobUsage()

    def signals(self) -> Signals:
        """Return that nothing is known."""
        return Signals()


@final
@attrs.define(eq=False)
class OwnProxy:
    """A proxy in this process."""

    house: ProxyServer
    provider: str
    """The provider that the jobs' agents call; empty: not known."""
    clock: Callable[[], float]
    """Time of the wall clock."""
    on_call: Callable[[str], None]
    """Told the name of a job when a call of it is over."""
    _usages: dict[str, JobUsage] = attrs.field(factory=dict, init=False)
    _finished: deque[JobUsage] = attrs.field(factory=lambda: deque(maxlen=FINISHED_MAX), init=False)

    @property
    def url(self) -> str:
        """Base URL without `/@NAME` and `/v1`."""
        return self.house.url

    def usage(self, job: str) -> JobUsage:
        """Return what the job's calls have taken."""
        return self._usages.setdefault(job, JobUsage())

    def finished(self, job: str) -> None:
        """Learn from a job that is done what one takes."""
        self._finished.append(attrs.evolve(self.usage(job)))

    def forget(self, job: str) -> None:
        """Forget a job that is over."""
        self._usages.pop(job, None)

    def record(self, call: CallRecord) -> None:
        """Count a call that is over."""
        if not call.claimed:
            return
        usage = self.usage(call.claimed)
        usage.calls += 1
        usage.waited_s += call.waited_ms / 1_000
        usage.session = call.job.partition("/")[0] or usage.session
        if call.usage is not None:
            usage.input += call.usage.total - call.usage.output
            usage.output += call.usage.output
            price = self.house.engine.program.price(call.sent_model or call.model, call.provider)
            if price is not None and price.has_price and call.usage.input is not None:
                usage.cost_microusd += price.cost_of(call.usage)
        usage.last = LastCall(
            status=call.status,
            reason=f"{call.reason}",
            was_rejected=call.rejected,
            opens_s=self._opens_s(call) if call.status in LIMIT_STATUSES else None,
        )
        if call.status in LIMIT_STATUSES:
            usage.limit = usage.last
        self.on_call(call.claimed)

    def _opens_s(self, call: CallRecord) -> float | None:
        """Return when a call that met a limit would be served."""
        now_s = self.clock()
        told = [now_s + call.retry_after_s] if call.retry_after_s is not None else []
        held = self._hold_s(call.provider or self.provider)
        # What an agent is told is capped by what SDKs heed, and the scheduler knows the whole wait.
        return max([*told, *([now_s + held] if held else [])], default=None)

    def _hold_s(self, provider: str) -> float:
        """Return how long no call passes any gate of a provider; 0: one would."""
        pool = self.house.engine.snapshot().pools.get(provider)
        if pool is None or not pool.gates:
            return 0.0
        now_ns = self.house.engine.now_ns()
        holds = [gate.hold_until_ns or 0 for gate in pool.gates.values()]
        return max(0, min(holds) - now_ns) / SECOND_NS

    def signals(self) -> Signals:
        """Return what the scheduler says of the calls of another job."""
        engine = self.house.engine
        now_ns = engine.now_ns()
        waiters = engine.scheduler.state.waiters.values()
        oldest = min(waiters, key=lambda one: one.since_ns, default=None)
        hold_s = self._hold_s(self.provider)
        return Signals(
            longest_wait_s=(now_ns - oldest.since_ns) / SECOND_NS if oldest is not None else 0.0,
            wait_reason=f"{oldest.blocked}" if oldest is not None else "",
            opens_s=self.clock() + hold_s if hold_s else None,
            room=self._room(now_ns),
        )

    def _room(self, now_ns: int) -> int | None:
        """Return for how many jobs at once budgets have room, by what earlier ones took; None: unbounded or unknown."""
        if not self._finished:
            return None
        rooms = []
        for key, account in self.house.engine.scheduler.state.budgets.accounts.items():
            mean = sum(one.of(key.measure) for one in self._finished) / len(self._finished)
            if not key.whose and mean > 0:
                left = account.allowance.amount - account.spent(now_ns)
                rooms.append(max(0, int(left / mean)))
        return min(rooms, default=None)


def job_environment(inherited: Mapping[str, str], own: Mapping[str, str], *, job: str, run: str) -> dict[str, str]:
    """Return the variables of a job's process."""
    return {**inherited, **own, "HIVEMIND_JOB": job, "HIVEMIND_RUN": run}
