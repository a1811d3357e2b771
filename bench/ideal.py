"""How much of the time over the bound is that nobody knows how long a job is?

Budget: none; it says what a simple order comes to that knows all of the provider. Nothing here is our scheduler: at
every moment the first call in order is let in if the provider has room for it, and else the provider is waited for.
Once the order is by what jobs have still to do, as an oracle would tell, and once by what they have had: of jobs of
which nobody says how long they are, the one that has had least is likely to have most to do. What is between the two is
the worth of a hint; what our own figures are above the second is ours.

    python -m bench.ideal [--seeds 5] [--md F] [SCENARIO ...]
    python -m bench.ideal --smoke      a second; for the tests

No call is passed by smaller ones. What fails, neighbours and guards against growth are no part of it, so scenarios with
these cannot be had.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from pathlib import Path
from typing import Final, NamedTuple

import attrs

from bench.simulated.worlds import own_policy, shipped, smaller
from hivemind_trio.sim import Accepted, Provider, Refused, Scenario, bound_of, populate, providers

SCENARIOS: Final = (
    *("requests-bind", "input-binds", "concurrency-binds", "mixed"),
    *("fixed-window", "sliding-window", "gcra", "undeclared"),
)
"""Nothing fails in them, and the quota is nobody else's."""

Order = Callable[[int, int], int]
"""Of the first call in line: calls that its job has had, and has still to make. The lowest goes first."""

ORDERS: Final[dict[str, Order]] = {
    "most left first": lambda _had, left: -left,
    "least had first": lambda had, _left: had,
}


class _Event(NamedTuple):
    at_ns: int
    job: int
    ended: Accepted | None
    """The answer that is whole now; None: the job asks."""


def over_bound(scenario: Scenario, seed: int, order: Order) -> float:
    """Makespan over the bound."""
    program = own_policy(scenario)
    (truth,) = {id(provider): provider for provider in providers(program, scenario, seed).values()}.values()
    # What is refused here is only how we ask whether there is room.
    provider = Provider(traits=attrs.evolve(truth.traits, refusals_count=False), seed=seed)
    jobs = [living.agent.job for living in populate(program, scenario, seed)]
    had = [0] * len(jobs)
    line: list[tuple[int, int]] = []
    events: list[_Event] = []
    for number, job in enumerate(jobs):
        heappush(events, _Event(job.turns[0].think_ns, number, None))
    now_ns, shut_until_ns = 0, 0
    while events or line:
        if line and (not events or now_ns < shut_until_ns <= events[0].at_ns):
            now_ns = max(now_ns, shut_until_ns)
        elif events:
            now_ns, number, ended = heappop(events)
            turns = jobs[number].turns
            if ended is None:
                heappush(line, (order(had[number], len(turns) - had[number]), number))
            else:
                provider.generate(ended, ended.service.tokens_out, now_ns)
                provider.leave(ended, now_ns)
                had[number] += 1
                if had[number] < len(turns):
                    heappush(events, _Event(now_ns + turns[had[number]].think_ns, number, None))
        while line and now_ns >= shut_until_ns:
            number = line[0][1]
            answer = provider.arrive(jobs[number].turns[had[number]].ask, now_ns)
            if not isinstance(answer, Accepted):
                assert isinstance(answer, Refused), "nothing breaks here"
                # Where all slots are taken there is nothing to wait for but the next end.
                shut_until_ns = now_ns + answer.retry_after_ns if answer.retry_after_ns else 0
                if not answer.retry_after_ns:
                    break
            else:
                heappop(line)
                heappush(events, _Event(now_ns + answer.service.latency_ns, number, answer))
    return now_ns / bound_of(program, scenario, seed).ns


def table(names: Iterable[str], seeds: range, *, small: bool = False) -> str:
    """Markdown: the mean over the seeds, and the least and the most."""
    lines = [f"| scenario | {' | '.join(ORDERS)} |", "|---" * (len(ORDERS) + 1) + "|"]
    for name in names:
        scenario = smaller(shipped(name), 3, 2) if small else shipped(name)
        cells = []
        for order in ORDERS.values():
            found = [over_bound(scenario, seed, order) for seed in seeds]
            cells.append(f"{sum(found) / len(found):.2f} ({min(found):.2f} to {max(found):.2f})")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="What a scheduler could reach that knows all of the provider.")
    parser.add_argument("scenarios", nargs="*", default=SCENARIOS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--md", type=Path)
    parser.add_argument("--smoke", action="store_true", help="small, and one seed")
    given = parser.parse_args(arguments)
    strange = [name for name in given.scenarios if name not in SCENARIOS]
    if strange:
        parser.error(f"`{strange[0]}` cannot be had; there is {', '.join(SCENARIOS)}")
    text = table(given.scenarios, range(1, 2 if given.smoke else given.seeds + 1), small=given.smoke)
    print(text, end="")
    if given.md is not None:
        given.md.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
