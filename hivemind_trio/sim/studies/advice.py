"""Advice on limits: the same work with one limit of the policy lifted at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Final, final

import attrs

from hivemind_trio.policy import AgentSettings, LimitGroupSettings, Program, ProviderSettings, SlotShare
from hivemind_trio.sim.bound.work import Work
from hivemind_trio.sim.results.figures import Figures, Spread
from hivemind_trio.sim.run.world import Told, World
from hivemind_trio.sim.scenario.scenario import Scenario

SECOND_NS: Final = 10**9

FACTOR: Final = 1.5
"""A limit is lifted to so many times its value, rounded up."""
GAIN_NS: Final = SECOND_NS
"""Least change of a lane's wait that is worth a word."""
GAIN_SHARE: Final = 0.2
"""The same, as a share of the wait; and of the rejected calls."""


@final
@attrs.frozen(kw_only=True)
class Lift:
    """A policy with one limit lifted."""

    change: str
    """`max 12 instead of 8 in lane batch`."""
    provider: str | None
    """Provider that would have to accept this; None: the limit is the policy's own."""
    program: Program


@final
@attrs.frozen(kw_only=True)
class LaneWait:
    """Wait of the calls of a lane: mean over the seeds."""

    p95_ns: float
    mean_ns: float
    served: float
    rejected: float
    """Calls that were rejected, or given up in the queue."""

    @classmethod
    def of(cls, spreads: Sequence[Spread]) -> LaneWait:
        """Return the means."""
        return cls(
            p95_ns=fmean(one.p95 for one in spreads),
            mean_ns=fmean(one.mean for one in spreads),
            served=fmean(one.count for one in spreads),
            rejected=fmean(one.unserved for one in spreads),
        )

    def plainly_below(self, other: LaneWait) -> bool:
        """Return True if calls wait plainly less than in `other`, or plainly fewer are rejected.

        Calls that are served instead of rejected may wait long, so fewer rejections count for more than waits. Waits
        are less if the 95th percentile or the mean is, and the other one is not more: where a window of a rate limit
        is waited for, the percentile moves by whole windows.
        """
        fewer = other.rejected - self.rejected
        if abs(fewer) >= max(1.0, GAIN_SHARE * max(self.rejected, other.rejected)):
            return fewer > 0
        is_less = _is_less(self.p95_ns, other.p95_ns) or _is_less(self.mean_ns, other.mean_ns)
        return is_less and not _is_less(other.p95_ns, self.p95_ns) and not _is_less(other.mean_ns, self.mean_ns)


@final
@attrs.frozen(kw_only=True)
class LaneChange:
    """Waits of one lane, as the policy is and with a lift."""

    lane: str
    before: LaneWait
    after: LaneWait

    @property
    def saved_ns(self) -> float:
        """Waits that are saved, and a minute for each call that is served instead of rejected."""
        calls = max(self.before.served, self.after.served)
        rejections = self.before.rejected - self.after.rejected
        return (self.before.mean_ns - self.after.mean_ns) * calls + rejections * 60 * SECOND_NS

    @property
    def is_of_mean(self) -> bool:
        """True if the mean of the waits has changed plainly, and the 95th percentile has not."""
        before, after = self.before, self.after
        return not _is_less(after.p95_ns, before.p95_ns) and not _is_less(before.p95_ns, after.p95_ns)


def _is_less(time_ns: float, than_ns: float) -> bool:
    return than_ns - time_ns >= max(GAIN_NS, GAIN_SHARE * than_ns)


@final
@attrs.frozen(kw_only=True)
class Advice:
    """One lift that plainly helps."""

    lift: Lift
    gains: tuple[LaneChange, ...]
    """Lanes that gain, the one that gains most first; at least one."""
    losses: tuple[LaneChange, ...]
    """Lanes that plainly lose by it."""


@final
@attrs.frozen(kw_only=True)
class AdviceStudy:
    """All that a study has found."""

    lanes: Mapping[str, LaneWait]
    """As the policy is."""
    advice: tuple[Advice, ...]
    """Largest gain first."""
    tried: int
    """Lifts that were simulated."""
    lifts: int
    """Lifts that there are."""
    together: bool
    """True if to lift all limits of the policy's own plainly helps, though no single one does."""

    @property
    def calls_wait(self) -> bool:
        """True if calls of some lane waited so long that a change could be worth a word, or were rejected."""
        return any(one.p95_ns >= GAIN_NS or one.rejected >= 1 for one in self.lanes.values())


class OutOfTime(Exception):  # noqa: N818 - no error
    """Raised by `told`: there is to be no further run."""


def lifts(program: Program) -> Iterator[Lift]:
    """Yield the policy with each of its limits on concurrency and rate lifted: its own ones, then the providers'.

    Budgets and plans are left out: an hour says nothing of a day's money.
    """
    for name, lane in program.lanes.items():
        if lane.max is not None:
            most, was, becomes = _lifted_share(lane.max)
            lifted = {**program.lanes, name: attrs.evolve(lane, max=most)}
            yield _own(f"max {becomes} instead of {was} in lane {name}", attrs.evolve(program, lanes=lifted))
        if lane.reserve != SlotShare():
            lifted = {**program.lanes, name: attrs.evolve(lane, reserve=SlotShare())}
            change = f"no reserve instead of {_shown(lane.reserve)} in lane {name}"
            yield _own(change, attrs.evolve(program, lanes=lifted))
    for agent in program.agents.values():
        for change, settings in _agent_lifts(agent):
            agents = {**program.agents, agent.name: settings}
            yield _own(f"{change} of agent {agent.name}", attrs.evolve(program, agents=agents))
    for change, settings in _agent_lifts(program.unknown):
        yield _own(f"{change} of each unknown agent", attrs.evolve(program, unknown=settings))
    for name, provider in program.providers.items():
        for change, declared in _provider_lifts(provider):
            lifted_program = attrs.evolve(program, providers={**program.providers, name: declared})
            yield Lift(change=change, provider=name, program=lifted_program)


def advise(program: Program, scenario: Scenario, seeds: Sequence[int], told: Told | None = None) -> AdviceStudy:
    """Run the scenario with each lift, and return those that plainly help under every seed.

    Args:
        told: Called now and then; may raise `OutOfTime` to leave the rest out, once the policy as it is has run.
    """
    runs = _Runs(program, scenario, seeds, told)
    before = runs.of(program)
    lanes = {lane: LaneWait.of([one.lanes[lane] for one in before]) for lane in before[0].lanes}
    found: list[Advice] = []
    all_lifts = list(lifts(program))
    tried, together = 0, False
    if any(one.p95_ns >= GAIN_NS or one.rejected >= 1 for one in lanes.values()):
        try:
            for lift in all_lifts:
                advice = _compared(lift, before, runs.of(lift.program))
                tried += 1
                if advice is not None:
                    found.append(advice)
            if not found:
                together = _compared(_all_own(program), before, runs.of(_all_own(program).program)) is not None
        except OutOfTime:
            pass
    found.sort(key=lambda one: -one.gains[0].saved_ns)
    return AdviceStudy(lanes=lanes, advice=tuple(found), tried=tried, lifts=len(all_lifts), together=together)


@final
@attrs.frozen
class _Runs:
    """Runs of the same work under several policies."""

    program: Program
    scenario: Scenario
    seeds: Sequence[int]
    told: Told | None
    _work: dict[int, Work] = attrs.field(init=False, factory=dict)

    def of(self, program: Program) -> list[Figures]:
        """Return the figures under each seed."""
        return [self._run(program, seed) for seed in self.seeds]

    def _run(self, program: Program, seed: int) -> Figures:
        # A lift leaves the decisions about requests alone, so all policies can share the requests and the bound.
        if self.told is not None:
            self.told(0, 0, 0)  # short runs may not tell at all
        work = self._work.setdefault(seed, Work(self.program, self.scenario, seed))
        return World(program, self.scenario, seed, work=work, told=self.told).run()


def _compared(lift: Lift, before: Sequence[Figures], after: Sequence[Figures]) -> Advice | None:
    """Return what a lift changes; None: no lane plainly gains, or the lanes lose more than they gain."""
    gains, losses = [], []
    for lane in before[0].lanes:
        pairs = [(one.lanes[lane], other.lanes[lane]) for one, other in zip(before, after, strict=True)]
        change = LaneChange(
            lane=lane,
            before=LaneWait.of([one for one, _ in pairs]),
            after=LaneWait.of([other for _, other in pairs]),
        )
        singles = [(LaneWait.of([one]), LaneWait.of([other])) for one, other in pairs]
        if all(other.plainly_below(one) for one, other in singles):
            gains.append(change)
        elif change.before.plainly_below(change.after):
            losses.append(change)
    gains.sort(key=lambda one: -one.saved_ns)
    if not gains or sum(one.saved_ns for one in (*gains, *losses)) <= 0:
        return None
    return Advice(lift=lift, gains=tuple(gains), losses=tuple(losses))


# ---- lifted limits ----


def _own(change: str, program: Program) -> Lift:
    return Lift(change=change, provider=None, program=program)


def _all_own(program: Program) -> Lift:
    """Return the policy with all its own limits lifted together; those of providers stay."""
    lanes = {name: attrs.evolve(lane, max=None, reserve=SlotShare()) for name, lane in program.lanes.items()}
    agents = {name: attrs.evolve(one, concurrency=None, limits=()) for name, one in program.agents.items()}
    unknown = attrs.evolve(program.unknown, concurrency=None, limits=())
    return _own("all limits of lanes and agents", attrs.evolve(program, lanes=lanes, agents=agents, unknown=unknown))


def _lifted(amount: float) -> int:
    return math.ceil(amount * FACTOR)


def _shown(share: SlotShare) -> str:
    return str(share.slots) if share.ratio is None else f"{share.ratio * 100:g}%"


def _lifted_share(share: SlotShare) -> tuple[SlotShare, str, str]:
    """Return the lifted share, and both in words."""
    ratio = share.ratio
    # In whole percents, so that the policy can be changed as the words say.
    lifted = SlotShare(_lifted(share.slots)) if ratio is None else SlotShare(ratio=min(1.0, _lifted(ratio * 100) / 100))
    return lifted, _shown(share), _shown(lifted)


def _agent_lifts(agent: AgentSettings) -> Iterator[tuple[str, AgentSettings]]:
    if agent.concurrency is not None:
        more = _lifted(agent.concurrency)
        change = f"concurrency {more} instead of {agent.concurrency}"
        yield change, attrs.evolve(agent, concurrency=more)
    for place, limit in enumerate(agent.limits):
        more_of = attrs.evolve(limit, amount=_lifted(limit.amount))
        limits = (*agent.limits[:place], more_of, *agent.limits[place + 1 :])
        yield f"limits of {more_of} instead of {limit}", attrs.evolve(agent, limits=limits)


def _provider_lifts(provider: ProviderSettings) -> Iterator[tuple[str, ProviderSettings]]:
    whose = f"provider {provider.name}"
    if not provider.accounts:
        more = _lifted(provider.limit)
        change = f"concurrency {more} instead of {provider.limit} at {whose}"
        yield change, attrs.evolve(provider, limit=more)
        for change, groups in _group_lifts(provider.groups):
            yield f"{change} at {whose}", attrs.evolve(provider, groups=groups)
    for place, account in enumerate(provider.accounts):
        if account.shares is not None:
            continue
        rest = provider.accounts[:place], provider.accounts[place + 1 :]
        more = _lifted(account.limit)
        change = f"concurrency {more} instead of {account.limit} of account {account.name} at {whose}"
        lifted = attrs.evolve(account, limit=more)
        yield change, attrs.evolve(provider, accounts=(*rest[0], lifted, *rest[1]))
        for change, groups in _group_lifts(account.groups):
            lifted = attrs.evolve(account, groups=groups)
            words = f"{change} of account {account.name} at {whose}"
            yield words, attrs.evolve(provider, accounts=(*rest[0], lifted, *rest[1]))


def _group_lifts(groups: tuple[LimitGroupSettings, ...]) -> Iterator[tuple[str, tuple[LimitGroupSettings, ...]]]:
    for place, group in enumerate(groups):
        rest = groups[:place], groups[place + 1 :]
        models = f" for {group.glob}" if group.glob else ""
        if group.concurrency is not None:
            more = _lifted(group.concurrency)
            lifted = attrs.evolve(group, concurrency=more)
            change = f"limits concurrency {more} instead of {group.concurrency}{models}"
            yield change, (*rest[0], lifted, *rest[1])
        for at, quota in enumerate(group.quotas):
            more_of = attrs.evolve(quota, amount=_lifted(quota.amount))
            lifted = attrs.evolve(group, quotas=(*group.quotas[:at], more_of, *group.quotas[at + 1 :]))
            yield f"limits of {more_of} instead of {quota}{models}", (*rest[0], lifted, *rest[1])
