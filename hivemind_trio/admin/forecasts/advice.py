"""Advice on limits: the calls of the last hour, simulated with one limit of the policy lifted at a time.

The calls come from the journal, the runs are those of `hivemind-trio simulate --trace`. They run when somebody asks, in
a thread at a fifth of a processor, and for a bounded time; the result is kept.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Final, final

import attrs
import trio

from hivemind_trio.admin.history import DatedAdvice
from hivemind_trio.admin.operated import SECOND_NS, NoArguments, Operated, seconds
from hivemind_trio.admin.views import AdviceLaneView, AdviceRowView, AdviceState, AdviceView
from hivemind_trio.model import RecordedCall
from hivemind_trio.policy import Program
from hivemind_trio.sim import Advice as FoundAdvice
from hivemind_trio.sim import (
    AdviceStudy,
    LaneChange,
    LaneWait,
    OutOfTime,
    ScenarioError,
    advise,
    misfits,
    parse_scenario,
)
from hivemind_trio.store import CallFilter, JournalError, read_journal

SPAN_NS: Final = 3_600 * SECOND_NS
CALLS_MIN: Final = 10
CALLS_MAX: Final = 3_000
"""More calls of an hour than these, the newest, are not simulated."""
JOURNAL_MAX: Final = 64 << 20
"""Bytes: a journal is read as a whole, which takes memory and the processor of the proxy."""
CPU_NS: Final = 20 * SECOND_NS
"""After so much there is no further run."""
SHARE: Final = 0.2
"""Share of a processor that runs take."""
SEEDS: Final = (1, 2)
ROWS_MAX: Final = 5
"""Sentences that are shown."""


def advice(proxy: Operated, _: NoArguments) -> AdviceView:
    """Return which limit, lifted alone, would have shortened the waits of the last hour."""
    keeper = proxy.advice
    last = keeper.last
    if proxy.facts.journal is None:
        text = "there is no journal to simulate the last hour from: the policy has `journal off`"
        return _without_study(AdviceState.UNAVAILABLE, text, None)
    if last is None or not last.fresh(proxy.engine.now_ns(), proxy.policy_hash):
        keeper.want()
    if last is None or last.policy_hash != proxy.policy_hash:
        return _without_study(AdviceState.COMPUTING, "the last hour is being simulated", None)
    if last.study is None:
        return _without_study(AdviceState.UNAVAILABLE, last.problem, proxy.at(last.taken_ns))
    return _view(last, last.study, proxy.at(last.taken_ns))


async def keep_advised(proxy: Operated) -> None:
    """Compute advice whenever somebody wants it and it is old, for ever."""
    keeper = proxy.advice
    while True:
        await keeper.wanted()
        path, program, now_ns = proxy.facts.journal, proxy.engine.program, proxy.engine.now_ns()
        if path is None or (keeper.last is not None and keeper.last.fresh(now_ns, program.hash)):
            continue
        since_ns = proxy.wall_ns() - SPAN_NS
        study = partial(studied, path, program, since_ns, now_ns, _Pace())
        keeper.last = await trio.to_thread.run_sync(study, abandon_on_cancel=True)


def studied(path: str, program: Program, since_ns: int, now_ns: int, pace: _Pace) -> DatedAdvice:
    """Simulate the calls of a journal since then. Runs in a thread of its own."""
    dated = DatedAdvice(taken_ns=now_ns, policy_hash=program.hash)
    try:
        if Path(path).stat().st_size > JOURNAL_MAX:
            more = f"the journal has more than {JOURNAL_MAX >> 20} MiB, too much to read beside serving"
            return attrs.evolve(
                dated, problem=f"{more}; `store sqlite {{ journal keep 2d max 60MB }}` keeps it smaller"
            )
        calls = [one for one in read_journal(path, CallFilter(since_ns=since_ns)) if one.needs_slot]
        if len(calls) < CALLS_MIN:
            return attrs.evolve(dated, problem=f"{len(calls)} calls came in the last hour, too few to simulate")
        calls = _from_zero(calls[-CALLS_MAX:])
        scenario = parse_scenario("", name="the last hour", trace=calls)
        for misfit in misfits(scenario, [program]):
            return attrs.evolve(dated, problem=f"the last hour cannot be simulated under this policy: {misfit}")
        study = advise(program, scenario, SEEDS, pace.keep)
    except (JournalError, ScenarioError) as error:
        return attrs.evolve(dated, problem=f"the last hour cannot be simulated: {error}")
    except OutOfTime:
        what = f"more than {CPU_NS // SECOND_NS} s of computing"
        return attrs.evolve(dated, cost_ns=pace.used_ns(), problem=f"to simulate the last hour takes {what}")
    except Exception as error:  # noqa: BLE001 - advice must never end the proxy
        problem = f"the last hour cannot be simulated: {type(error).__name__}: {error}"
        return attrs.evolve(dated, cost_ns=pace.used_ns(), problem=problem)
    return attrs.evolve(
        dated,
        cost_ns=pace.used_ns(),
        span_ns=calls[-1].arrived_ns,
        calls=len(calls),
        study=study,
        providers=tuple(f"{name} accepted {met}" for name, met in scenario.met.items()),
    )


def _from_zero(calls: list[RecordedCall]) -> list[RecordedCall]:
    """Return calls as if the record had begun with the first of them."""
    by_ns = calls[0].arrived_ns

    def moved(call: RecordedCall) -> RecordedCall:
        attempts = tuple(
            attrs.evolve(
                one,
                granted_ns=one.granted_ns - by_ns,
                ended_ns=None if one.ended_ns is None else one.ended_ns - by_ns,
            )
            for one in call.attempts
        )
        ended_ns = None if call.ended_ns is None else call.ended_ns - by_ns
        return attrs.evolve(call, arrived_ns=call.arrived_ns - by_ns, ended_ns=ended_ns, attempts=attempts)

    return [moved(call) for call in calls] if by_ns else calls


@final
class _Pace:
    """Keeps a thread to its share of a processor, and to a bound in all."""

    def __init__(self) -> None:
        self._began_ns: int | None = None
        self._rested_ns = 0

    def used_ns(self) -> int:
        """Return the processor time of this thread since the first call."""
        now_ns = time.thread_time_ns()
        self._began_ns = now_ns if self._began_ns is None else self._began_ns
        return now_ns - self._began_ns

    def keep(self, *_: int) -> None:
        """Sleep as long as the share asks for.

        Raises:
            OutOfTime: The bound is reached.
        """
        used_ns = self.used_ns()
        if used_ns > CPU_NS:
            raise OutOfTime
        time.sleep((used_ns - self._rested_ns) * (1 / SHARE - 1) / SECOND_NS)
        self._rested_ns = used_ns


# ---- in words ----


def _without_study(state: AdviceState, text: str, at: str | None) -> AdviceView:
    return AdviceView(state=state, text=text, at=at, calls=0, span_s=0.0, tried=0, limits=0, lanes=(), advice=())


def _view(last: DatedAdvice, study: AdviceStudy, at: str | None) -> AdviceView:
    return AdviceView(
        state=AdviceState.READY,
        text=_summary(last, study),
        at=at,
        calls=last.calls,
        span_s=seconds(last.span_ns),
        tried=study.tried,
        limits=study.lifts,
        lanes=tuple(_lane(name, wait) for name, wait in study.lanes.items() if wait.served or wait.rejected),
        advice=tuple(_row(one) for one in study.advice[:ROWS_MAX]),
    )


def _summary(last: DatedAdvice, study: AdviceStudy) -> str:
    """Return the answer in one sentence."""
    untried = f" ({study.tried} of {study.lifts} limits were tried)" if study.tried < study.lifts else ""
    if not study.calls_wait:
        return "hardly a call waited: no limit needs to be lifted"
    if study.advice:
        count = len(study.advice)
        return f"{count} limit{'s' * (count != 1)}, lifted alone, would have shortened waits{untried}"
    if study.tried < study.lifts:
        return f"no limit that was tried would have shortened waits{untried}"
    if study.together:
        return "no limit lifted alone would have shortened waits: several limits of lanes and agents bind together"
    shown = f": {'; '.join(last.providers)}" if last.providers else ", or agents wait for their own calls"
    return f"nothing in the policy would have shortened waits; the bottleneck is the provider{shown}"


def _row(found: FoundAdvice) -> AdviceRowView:
    gain = found.gains[0]
    return AdviceRowView(
        text=_sentence(found),
        change=found.lift.change,
        provider=found.lift.provider,
        lane=gain.lane,
        before=_lane(gain.lane, gain.before),
        after=_lane(gain.lane, gain.after),
    )


def _sentence(found: FoundAdvice) -> str:
    gain, change = found.gains[0], found.lift.change
    of_lane = "" if change.endswith(f" lane {gain.lane}") else f" of lane {gain.lane}"
    text = f"with {change}, {_changed(gain, of_lane)}"
    if found.losses:
        loss = found.losses[0]
        text = f"{text}; {_changed(loss, f' of lane {loss.lane}')}"
    return f"{text}, if {found.lift.provider} accepts that" if found.lift.provider is not None else text


def _changed(change: LaneChange, of_lane: str) -> str:
    before, after = change.before, change.after
    if round(before.rejected) != round(after.rejected):
        return f"{after.rejected:.0f} calls{of_lane} would have been rejected instead of {before.rejected:.0f}"
    return f"waits p95{of_lane} would have been {_span(after.p95_ns)} instead of {_span(before.p95_ns)}"


def _span(time_ns: float) -> str:
    of_seconds = time_ns / SECOND_NS
    if of_seconds < 10:
        return f"{of_seconds:.1f} s".replace(".0 s", " s")
    whole = round(of_seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60} s"


def _lane(name: str, wait: LaneWait) -> AdviceLaneView:
    return AdviceLaneView(
        lane=name, served=round(wait.served), wait_p95_s=seconds(round(wait.p95_ns)), rejected=round(wait.rejected)
    )
