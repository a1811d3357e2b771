"""The bursts of the overhead bench: every case on every subject, by turns, in rounds and a drawn order."""

from __future__ import annotations

import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, TypeAlias, final

import attrs
import trio

from .load import Sample, closed_loop, open_loop
from .subjects import Subject
from .wire import BODY_BYTES, Answer, request

Figures: TypeAlias = dict[str, dict[str, float]]
"""Subject -> what -> figure."""

Taken: TypeAlias = Mapping[tuple[str, str], Sequence[tuple[Sample, float]]]
"""Subject and case -> each round's sample, and CPU per call in nanoseconds."""


@final
@attrs.frozen(kw_only=True)
class Case:
    """One burst of calls."""

    name: str
    model: str
    clients: int
    calls: int
    body_bytes: int = BODY_BYTES


@final
@attrs.frozen(kw_only=True)
class Size:
    """How much is measured."""

    rounds: int
    one: int
    """Calls of the single client."""
    crowd: int
    """Calls of 32 clients."""
    slow: int
    """Of 32 clients whose provider takes 200 ms."""
    big: int
    """With bodies of 300 KB."""
    lonely_streams: int
    streams: int
    offered: Sequence[int]
    """Calls per second."""
    offered_s: float
    """For how long."""


EVENTS: Final = 50
GAP_MS: Final = 20
FEW_EVENTS: Final = 10
BIG_BYTES: Final = 300_000

ONE_STREAM: Final = Answer.STREAM.model(EVENTS, 5)
STREAMS: Final = Answer.STREAM.model(EVENTS, GAP_MS)
SHORT_STREAMS: Final = Answer.STREAM.model(FEW_EVENTS, GAP_MS)
SLOW: Final = Answer.JSON.model(200)
PLAIN: Final = Answer.JSON.model()
MODELS: Final = (PLAIN, SLOW, ONE_STREAM, STREAMS, SHORT_STREAMS)

CALM_NS: Final = 5_000_000
"""CPU in a tenth of a second, below which a process has got over an overload."""


def cases(size: Size) -> list[Case]:
    """What every subject is put through in every round."""
    return [
        Case(name="one", model=PLAIN, clients=1, calls=size.one),
        Case(name="crowd", model=PLAIN, clients=32, calls=size.crowd),
        Case(name="slow", model=SLOW, clients=32, calls=size.slow),
        Case(name="big", model=PLAIN, clients=1, calls=size.big, body_bytes=BIG_BYTES),
        Case(name="stream", model=ONE_STREAM, clients=1, calls=size.lonely_streams),
        Case(name="streams", model=STREAMS, clients=32, calls=size.streams),
        Case(name="short streams", model=SHORT_STREAMS, clients=32, calls=size.streams),
    ]


async def bursts(there: Sequence[Subject], size: Size, seed: int) -> Figures:
    """All closed loops on all subjects, the first of which is no proxy; then the open one."""
    chance = Random(seed)
    taken: dict[tuple[str, str], list[tuple[Sample, float]]] = defaultdict(list)
    for number in range(size.rounds):
        turns = [(case, subject) for case in cases(size) for subject in there]
        chance.shuffle(turns)
        for case, subject in turns:
            asked = request(case.model, body_bytes=case.body_bytes, extra=subject.headers)
            cpu_ns = subject.cpu_ns()
            sample = await closed_loop(subject.port, asked, clients=case.clients, calls=case.calls)
            # The calls that open the connections are part of what the process worked for.
            per_call_ns = (subject.cpu_ns() - cpu_ns) / (sample.calls + sample.failed + case.clients)
            taken[subject.name, case.name].append((sample, per_call_ns))
        print(f"round {number + 1} of {size.rounds}", file=sys.stderr)
    figures = {subject.name: figures_of(subject, there[0], taken) for subject in there}
    for offered in size.offered:
        for subject in there:
            figures[subject.name] |= await _offered(subject, offered, size.offered_s)
        print(f"{offered} calls/s offered", file=sys.stderr)
    for found in figures.values():
        reached = [found[f"open_{offered}"] for offered in size.offered]
        found["collapse"] = reached[-1] / max(*reached, 1e-9)
    return figures


async def _offered(subject: Subject, offered: int, seconds: float) -> dict[str, float]:
    asked = request(PLAIN, extra=subject.headers)
    await closed_loop(subject.port, asked, clients=32, calls=64)  # so that most connections upstream are there
    sample = await open_loop(subject.port, asked, per_second=offered, seconds=seconds)
    # Whoever was overloaded works on what nobody waits for any more, and must not take that into the next turn.
    for _ in range(100):
        before_ns = subject.cpu_ns()
        await trio.sleep(0.1)
        if subject.cpu_ns() - before_ns < CALM_NS:
            break
    late = {f"open_{offered}_p99_ms": percentile(sample.latency_ns, 0.99) / 1e6} if sample.calls else {}
    return {f"open_{offered}": sample.per_second, **late}


def percentile(values: Sequence[float], share: float) -> float:
    """By rank."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))]


def figures_of(subject: Subject, direct: Subject, taken: Taken) -> dict[str, float]:
    """The medians of the rounds. Of a case in which it answered no call there is no figure: nothing is not quick."""

    def over_rounds(name: str, case: str, figure: Callable[[Sample, float], float]) -> float:
        found = [figure(sample, cpu_ns) for sample, cpu_ns in taken[name, case] if sample.calls]
        return statistics.median(found) if found else math.nan

    def at(share: float, unit_ns: float) -> Callable[[Sample, float], float]:
        return lambda sample, _cpu: percentile(sample.latency_ns, share) / unit_ns

    def cpu_us(case: str) -> float:
        return over_rounds(subject.name, case, lambda _sample, cpu_ns: cpu_ns / 1e3)

    def added(case: str, share: float, unit_ns: float) -> float:
        figure = at(share, unit_ns)
        return over_rounds(subject.name, case, figure) - over_rounds(direct.name, case, figure)

    mine = subject.name
    figures = {
        "crowd_per_second": over_rounds(mine, "crowd", lambda sample, _cpu: sample.per_second),
        "crowd_p99_ms": over_rounds(mine, "crowd", at(0.99, 1e6)),
        "first_byte_p95_ms": over_rounds(mine, "streams", lambda s, _cpu: percentile(s.first_byte_ns, 0.95) / 1e6),
        "failed": float(sum(s.failed for (name, _), all_ in taken.items() if name == mine for s, _ in all_)),
    }
    if subject.process is not None:
        figures |= {
            "one_added_p50_us": added("one", 0.5, 1e3),
            "one_added_p99_us": added("one", 0.99, 1e3),
            "one_cpu_us": cpu_us("one"),
            "crowd_cpu_us": cpu_us("crowd"),
            "slow_added_p50_ms": added("slow", 0.5, 1e6),
            "slow_added_p99_ms": added("slow", 0.99, 1e6),
            "big_added_p50_us": added("big", 0.5, 1e3),
            "big_cpu_us": cpu_us("big"),
            "stream_cpu_us": cpu_us("stream"),
            "event_cpu_us": (cpu_us("streams") - cpu_us("short streams")) / (EVENTS - FEW_EVENTS),
        }
    return {key: value for key, value in figures.items() if not math.isnan(value)}
