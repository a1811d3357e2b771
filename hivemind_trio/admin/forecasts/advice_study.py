"""Study of the last hour: the calls of a journal, simulated with one limit of the policy lifted at a time.

The runs are those of `hivemind-trio simulate --trace`, at a fifth of a processor and for a bounded time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

import attrs

from hivemind_trio.admin.operated import SECOND_NS, seconds
from hivemind_trio.admin.views import AdviceLaneView, AdviceRowView, AdviceState, AdviceView
from hivemind_trio.model import Outcome, RecordedCall
from hivemind_trio.policy import MemoryFiles, Program, check
from hivemind_trio.sim import Advice as FoundAdvice
from hivemind_trio.sim import (
    AdviceStudy,
    LaneChange,
    LaneWait,
    OutOfTime,
    Scenario,
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
CPU_NS: Final = 20 * SECOND_NS
"""After so much there is no further run."""
SHARE: Final = 0.2
"""Share of a processor that runs take."""
SEEDS: Final = (1, 2)
ROWS_MAX: Final = 5
"""Sentences that are shown."""
WAITED_NS: Final = 2 * SECOND_NS
"""Waits from which on it is said that the simulation does not have them."""
REFUSED_SHARE: Final = 0.05
"""Share of the attempts at a provider, refused, from which on no limit there is advised to be raised."""
REFUSED: Final = frozenset(
    {Outcome.QUOTA, Outcome.BURST, Outcome.TOO_FAST, Outcome.CONCURRENCY, Outcome.OVERLOADED, Outcome.TERMINAL}
)


@final
@attrs.frozen(kw_only=True)
class AdviceTask:
    """Subject of a study."""

    journal: str
    """Path of the file."""
    since_ns: int
    """Arrivals from then on, ns since 1970."""
    policy: str
    """Path of the policy in force."""
    files: dict[str, str]
    """Path -> text, the policy's own file and those that it includes."""
    refuse_unknown: bool
    """The proxy rejects callers that are no agent of the policy."""

    def program(self) -> Program | None:
        """Return the policy, compiled; None: it has errors."""
        folders = tuple(f"{Path(name).parent}" for name in self.files)
        program = check(self.policy, MemoryFiles(self.files), allowed=folders).program
        if program is None:
            return None
        return attrs.evolve(program, server=attrs.evolve(program.server, refuse_unknown=self.refuse_unknown))


@final
@attrs.frozen(kw_only=True)
class StudiedAdvice:
    """Result of a study."""

    view: AdviceView
    """Without its time."""
    cost_ns: int = 0
    """Processor time that it took."""


def studied(task: AdviceTask, pace: Pace) -> StudiedAdvice:
    """Simulate the calls of a journal."""
    try:
        program = task.program()
        if program is None:
            return StudiedAdvice(
                view=without_study(AdviceState.UNAVAILABLE, "the policy in force cannot be read again")
            )
        chosen = CallFilter(since_ns=task.since_ns, newest=CALLS_MAX)
        calls = [one for one in read_journal(task.journal, chosen) if one.needs_slot]
        if len(calls) < CALLS_MIN:
            text = f"{len(calls)} calls came in the last hour, too few to simulate"
            return StudiedAdvice(view=without_study(AdviceState.UNAVAILABLE, text))
        calls = _from_zero(calls)
        scenario = parse_scenario("", name="the last hour", trace=calls)
        for misfit in misfits(scenario, [program]):
            text = f"the last hour cannot be simulated under this policy: {misfit}"
            return StudiedAdvice(view=without_study(AdviceState.UNAVAILABLE, text))
        view = _view(calls, scenario, advise(program, scenario, SEEDS, pace.keep))
    except (JournalError, ScenarioError) as error:
        view = without_study(AdviceState.UNAVAILABLE, f"the last hour cannot be simulated: {error}")
    except OutOfTime:
        text = f"to simulate the last hour takes more than {CPU_NS // SECOND_NS} s of computing"
        view = without_study(AdviceState.UNAVAILABLE, text)
    return StudiedAdvice(view=view, cost_ns=pace.used_ns())


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
class Pace:
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


def without_study(state: AdviceState, text: str) -> AdviceView:
    """Return an answer without advice."""
    return AdviceView(
        state=state, text=text, at=None, calls=0, span_s=0.0, tried=0, limits=0, waited_p95_s=0.0, lanes=(), advice=()
    )


def _view(calls: list[RecordedCall], scenario: Scenario, study: AdviceStudy) -> AdviceView:
    refusing = _refusing(calls)
    barred = {one.lift.provider for one in study.advice if one.lift.provider in refusing}
    study = attrs.evolve(study, advice=tuple(one for one in study.advice if one.lift.provider not in barred))
    return AdviceView(
        state=AdviceState.READY,
        text="; ".join(
            [
                _unsimulated(calls, study) or _summary(scenario, study),
                *(refusing[name] for name in sorted(barred, key=str)),
            ]
        ),
        at=None,
        calls=len(calls),
        span_s=seconds(calls[-1].arrived_ns),
        tried=study.tried,
        limits=study.lifts,
        waited_p95_s=seconds(_waited_p95_ns(calls)),
        lanes=tuple(_lane(name, wait) for name, wait in study.lanes.items() if wait.served or wait.rejected),
        advice=tuple(_row(one) for one in study.advice[:ROWS_MAX]),
    )


def _refusing(calls: Sequence[RecordedCall]) -> dict[str | None, str]:
    """Return the providers that refuse what they have, each with what is true of it: no limit there is to be raised."""
    attempts = Counter(one.provider.partition(".")[0] for call in calls for one in call.attempts)
    refused = Counter(
        one.provider.partition(".")[0] for call in calls for one in call.attempts if one.outcome in REFUSED
    )
    return {
        name: f"no limit of provider {name} is to be raised, which refused {n} of {attempts[name]} attempts: "
        "declare its `limits` as its account has them, or take a second account, `fallback` or fewer agents"
        for name, n in refused.items()
        if n >= REFUSED_SHARE * attempts[name]
    }


def _waited_p95_ns(calls: Sequence[RecordedCall]) -> int:
    """Return the 95th percentile of what the calls that were sent waited for their turns."""
    waits = sorted(one.attempts[-1].waited_ns for one in calls if one.attempts)
    return waits[int(0.95 * (len(waits) - 1))] if waits else 0


def _unsimulated(calls: Sequence[RecordedCall], study: AdviceStudy) -> str:
    """Return that the calls waited for something that the simulation does not have; empty: they did not."""
    waited_ns = _waited_p95_ns(calls)
    simulated_ns = max((one.p95_ns for one in study.lanes.values()), default=0.0)
    if study.advice or waited_ns < WAITED_NS or simulated_ns > waited_ns / 2:
        return ""
    attempts = Counter(one.provider for call in calls for one in call.attempts)
    refused = Counter(one.provider for call in calls for one in call.attempts if one.outcome in REFUSED)
    text = f"calls waited {_span(waited_ns)} (p95), and no limit of the policy explains that"
    if refused:
        met = "; ".join(f"{name} refused {n} of {attempts[name]} attempts" for name, n in refused.most_common(3))
        return f"{text}: {met}"
    return f"{text}; `hivemind-trio explain --slow` has the reasons"


def _summary(scenario: Scenario, study: AdviceStudy) -> str:
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
    met = "; ".join(f"{name} accepted {most}" for name, most in scenario.met.items())
    shown = f": {met}" if met else ", or agents wait for their own calls"
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
    if change.is_of_mean:
        return f"mean waits{of_lane} would have been {_span(after.mean_ns)} instead of {_span(before.mean_ns)}"
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
