"""The least time that any scheduler could need.

For any moment t before the end of a job there is a part of the work that must have begun by then: the calls from which
on a job takes at least as long as is left. So of the calls with a tail of at least q the last cannot begin before all
of them have been let in, and the end is at least q later. The bound is the largest of these sums over all q (Jackson's,
for one machine with delivery times; Carlier, "The one-machine sequencing problem", 1982), for each quota and for the
slots. With q = 0 it is the fluid bound, with the largest q the chain of the longest job.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Final, final

import attrs

from hivemind_trio.sim.agents.agent import AgentJob, Turn
from hivemind_trio.sim.provider.latency_and_faults import Service, service_once
from hivemind_trio.sim.provider.profile import Acceleration, Traits
from hivemind_trio.sim.provider.token_bucket import Counting, Metered, Quota

from .supply_curve import DemandCurve, SlotSupply, Span, Supply, opened_ns, ramped_ns

Where = Callable[[AgentJob, Turn], str]
"""Function from a turn to its provider, whoever schedules it."""

CUTS: Final = 96
"""Tails that are looked at: a sum that is not is only a bound that is not found."""


@final
@attrs.frozen(kw_only=True)
class Bound:
    """A lower bound on the makespan, the largest of several. What fails at random is not in it."""

    chain_ns: int
    """The longest job by itself: its turns and what the agent does between them, and the provider there."""
    concurrency_ns: int
    """When all service time can have gone through the slots, of which an agent that has not started uses none and any
    other one, and what follows be done; 0 where the provider has no cap."""
    quotas_ns: dict[Metered, int] = attrs.field(factory=dict)
    """Limited dimension -> when its last calls can have been let in, and what follows them be done."""
    growth_ns: int = 0
    """The same, of a guard against sudden growth; 0 where there is none."""

    @property
    def ns(self) -> int:
        """The largest of the lower bounds."""
        return max(self._all.values())

    @property
    def binds(self) -> str:
        """Name of the binding bound: `chain`, `concurrency`, `growth` or a dimension."""
        bounds = self._all
        return max(bounds, key=bounds.__getitem__)

    @property
    def _all(self) -> dict[str, int]:
        quotas = {dimension.value: ns for dimension, ns in self.quotas_ns.items()}
        return {"chain": self.chain_ns, "concurrency": self.concurrency_ns, "growth": self.growth_ns, **quotas}


def lower_bound(jobs: Sequence[AgentJob], traits: Traits, seed: int) -> Bound:
    """Bound the makespan of `jobs` on a provider with these traits and this seed."""
    return lower_bound_of_several(jobs, {"": traits}, lambda _job, _turn: "", seed)


def lower_bound_of_several(jobs: Sequence[AgentJob], traits: Mapping[str, Traits], where: Where, seed: int) -> Bound:
    """Bound the makespan of `jobs` whose turns go to several providers; each provider's own bound is one of all.

    Args:
        traits: Provider -> what it is like. A turn of any other provider takes no time.
    """
    away = {name: _away(each) for name, each in traits.items()}
    steps: dict[str, list[_Step]] = {name: [] for name in traits}
    shared = _shared(jobs)
    chain_ns = 0
    for number, job in enumerate(jobs):
        own, end_ns = _chained(number, job, traits, where, seed, away, shared)
        chain_ns = max(chain_ns, end_ns)
        for name, step in own:
            steps[name].append(step)
    concurrency_ns = growth_ns = 0
    quotas_ns: dict[Metered, int] = {}
    for name, there in steps.items():
        if not there:
            continue
        provider = traits[name]
        if provider.concurrency is not None:
            concurrency_ns = max(concurrency_ns, _through(there, provider.concurrency, away[name]))
        if provider.acceleration is not None:
            growth_ns = max(growth_ns, _grown(there, provider.acceleration))
        for dimension, quota in provider.quotas.items():
            found_ns = _let_in(there, provider, dimension, quota, away[name])
            quotas_ns[dimension] = max(quotas_ns.get(dimension, 0), found_ns)
    return Bound(chain_ns=chain_ns, concurrency_ns=concurrency_ns, quotas_ns=quotas_ns, growth_ns=growth_ns)


@final
@attrs.define(kw_only=True)
class _Step:
    """One call of a job."""

    job: int
    turn: Turn
    served: Service
    head_ns: int
    """When it can be made at the earliest."""
    tokens_new: int
    """Input tokens that must be read if everything possible is still cached."""
    tail_ns: int = 0
    """From then to the end of its job at least, wherever it stands."""

    @property
    def after_ns(self) -> int:
        """From its end to that of its job."""
        return self.tail_ns - self.served.latency_ns


def _shared(jobs: Sequence[AgentJob]) -> frozenset[str]:
    """Conversations of several jobs, as recorded ones may be: what is remembered of those is anybody's prompt."""
    whose: dict[str, int] = {}
    return frozenset(
        turn.conversation
        for number, job in enumerate(jobs)
        for turn in job.turns
        if turn.conversation and whose.setdefault(turn.conversation, number) != number
    )


def _chained(
    number: int,
    job: AgentJob,
    traits: Mapping[str, Traits],
    where: Where,
    seed: int,
    away: Mapping[str, Sequence[Span]],
    shared: Container[str],
) -> tuple[list[tuple[str, _Step]], int]:
    """Return the calls of one job that go to a known provider, and when it is done if it never waits."""
    own: list[tuple[str, _Step]] = []
    gaps_ns: list[int] = []
    """Before each of them, what the agent does by itself."""
    known: dict[tuple[str, str], int] = {}
    """Provider and conversation -> tokens of the last prompt."""
    end_ns = gap_ns = 0
    for turn in job.turns:
        gap_ns += turn.think_ns
        end_ns += turn.think_ns
        name = where(job, turn)
        if name not in traits:
            continue
        tokens = turn.tokens
        cached = turn.taken.tokens_cached if turn.taken is not None else 0
        if traits[name].cache_ns:
            before = tokens if turn.conversation in shared else known.get((name, turn.conversation), 0)
            cached = max(before, turn.prefix_tokens)
            if turn.conversation:
                known[name, turn.conversation] = tokens
        step = _Step(
            job=number,
            turn=turn,
            served=service_once(traits[name], seed, turn.ask),
            head_ns=opened_ns(end_ns, away[name]),
            tokens_new=max(0, tokens - cached),
        )
        own.append((name, step))
        gaps_ns.append(gap_ns)
        end_ns, gap_ns = step.head_ns + step.served.latency_ns, 0
    left_ns = gap_ns
    for (_, step), before_ns in zip(reversed(own), reversed(gaps_ns), strict=True):
        left_ns += step.served.latency_ns
        step.tail_ns = left_ns
        left_ns += before_ns
    return own, end_ns


def _away(traits: Traits) -> list[Span]:
    """When nothing is let in at all, in order."""
    spans = [*traits.outages, *((storm.from_ns, storm.to_ns) for storm in traits.storms if storm.share >= 1)]
    return sorted(spans)


def _cuts(steps: Sequence[_Step], tail: Callable[[_Step], int]) -> Iterator[tuple[int, Sequence[_Step]]]:
    """Yield tails, and for each the calls whose own is as long, the last of them those that are new."""
    ordered = sorted(steps, key=tail, reverse=True)
    every = max(1, len(ordered) // CUTS)
    before = 0
    for end in range(len(ordered) - 1, -1, -every)[::-1]:
        yield tail(ordered[end]), ordered[before : end + 1]
        before = end + 1


def _through(steps: Sequence[_Step], slots: int, away: Sequence[Span]) -> int:
    """Until all service time has gone through the slots, and what follows it."""
    starts_ns: dict[int, int] = {}
    for step in steps:
        starts_ns[step.job] = min(starts_ns.get(step.job, step.head_ns), step.head_ns)
    through = SlotSupply.of([*starts_ns.values()], slots, away, [step.served.latency_ns for step in steps])
    work_ns = bound_ns = 0
    for after_ns, new in _cuts(steps, lambda step: step.after_ns):
        work_ns += sum(step.served.latency_ns for step in new)
        bound_ns = max(bound_ns, through.done_ns(work_ns) + after_ns)
    return bound_ns


def _grown(steps: Sequence[_Step], acceleration: Acceleration) -> int:
    """Until a guard against sudden growth has let all of them in, and what follows."""
    let_in_ns = ramped_ns(acceleration, len(steps), min(step.head_ns for step in steps))
    count = bound_ns = 0
    for tail_ns, new in _cuts(steps, lambda step: step.tail_ns):
        count += len(new)
        bound_ns = max(bound_ns, let_in_ns[count - 1] + tail_ns)
    return bound_ns


def _let_in(steps: Sequence[_Step], traits: Traits, dimension: Metered, quota: Quota, away: Sequence[Span]) -> int:
    """Until a quota has let all of them in, and what follows."""
    amounts = {id(step): _amount(step, traits, dimension) for step in steps}
    asked = [(step.head_ns, amounts[id(step)]) for step in steps]
    # Of what several share the beginning, one has it read, and before any other of them is let in.
    reads = traits.cache_ns > 0 and dimension in (Metered.INPUT, Metered.TOKENS)
    unread = {step.turn.prefix: step.turn.prefix_tokens for step in steps if step.turn.prefix} if reads else {}
    once = sum(unread.values())
    supply = Supply(quota, DemandCurve.of([(min(asked)[0], once), *asked]), traits.neighbours)
    overshoots = dimension in (Metered.OUTPUT, Metered.TOKENS) and not traits.charges_most
    late = _Late(len({step.job for step in steps}) if traits.concurrency is None else traits.concurrency)
    needed = bound_ns = 0
    for tail_ns, new in _cuts(steps, lambda step: step.tail_ns):
        needed += sum(amounts[id(step)] + unread.pop(step.turn.prefix, 0) for step in new)
        if overshoots:
            for step in new:
                late.add(step.job, step.served.tokens_out)
            let_in_ns = supply.let_in_ns(
                needed, late.at_the_end, late.beyond if quota.counting is not Counting.BUCKET else ()
            )
        else:
            let_in_ns = supply.let_in_ns(needed)
        bound_ns = max(bound_ns, opened_ns(let_in_ns, away) + tail_ns)
    return bound_ns


def _amount(step: _Step, traits: Traits, dimension: Metered) -> int:
    """Return the amount that a call takes."""
    output = step.turn.tokens_max_out if traits.charges_most else step.served.tokens_out
    match dimension:
        case Metered.REQUESTS:
            return 1
        case Metered.INPUT:
            return step.tokens_new
        case Metered.OUTPUT:
            return output
        case Metered.TOKENS:
            return step.tokens_new + output


@attrs.define(eq=False)
class _Late:
    """Answers that are counted only as they are generated, of so many requests at once."""

    at_once: int
    _last: dict[int, int] = attrs.field(init=False, factory=dict)
    """Job -> tokens of the latest of its answers that are looked at. Each job has one under way when the last call of
    all is let in, and that is its last."""
    _all: list[int] = attrs.field(init=False, factory=list)
    """Tokens of all answers, the fewest first."""

    def add(self, job: int, tokens: int) -> None:
        """Add a later answer of that job."""
        self._last[job] = tokens
        insort(self._all, tokens)

    @property
    def at_the_end(self) -> int:
        """Amount that may be missing when the last call is admitted."""
        return sum(sorted(self._last.values())[-self.at_once :])

    @property
    def beyond(self) -> list[int]:
        """Amounts by which windows may have been exceeded, forgiven at their ends: the longest answers."""
        longest = self._all[::-1]
        return [sum(longest[place : place + self.at_once]) for place in range(0, len(longest), self.at_once)]
