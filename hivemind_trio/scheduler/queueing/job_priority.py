"""Jobs of agents and their order: the `objective` of a lane.

A job is one piece of work of an agent, told apart by what its client says of the session. Levels of service attained
are those of a multi-level feedback queue (Corbató, 1962), by tokens instead of time: a job sinks as it is served, and
is lifted again after `BOOST_NS`. A call keeps the order that it was given when it stood in line.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import Final, final

import attrs

from hivemind_trio.model import Request, Usage
from hivemind_trio.policy import Objective, Renames
from hivemind_trio.scheduler.protocol.agent_key import AgentKey

LEVELS: Final = (25_000, 100_000, 400_000)
"""Tokens of service after which a job is one level further back."""

BOOST_NS: Final = 120 * 1_000_000_000
"""After so long a job is as good as new."""

STEP: Final = 4_000
"""Tokens; what has been served is compared in doublings of it."""

OUTPUT_WEIGHT: Final = 20
"""A token put out takes about as long as so many read."""

JOBS_MAX: Final = 4_096
"""Jobs that are remembered; of more, those that were seen last."""

REMAINING: Final = "x-hivemind-remaining"
"""A header in which a client may say how many calls a job has still to make, this one included."""


@final
@attrs.define(eq=False)
class JobRecord:
    """Service that a job has had."""

    calls: int = attrs.field(default=0, init=False)
    """That have ended."""
    tokens: int = attrs.field(default=0, init=False)
    _recent: int = attrs.field(default=0, init=False)
    _since_ns: int = attrs.field(default=0, init=False)

    def on_ended(self, tokens: int, now_ns: int) -> None:
        """One of its calls has been served."""
        if now_ns - self._since_ns >= BOOST_NS:
            self._since_ns, self._recent = now_ns, 0
        self.calls += 1
        self.tokens += tokens
        self._recent += tokens

    def level(self, now_ns: int) -> int:
        """0 for one that has had little as of late."""
        if now_ns - self._since_ns >= BOOST_NS:
            return 0
        return bisect_right(LEVELS, self._recent)


@final
@attrs.define(eq=False)
class JobOrdering:
    """The jobs of all agents, as many as were seen lately."""

    _jobs: dict[tuple[AgentKey, str], JobRecord] = attrs.field(factory=dict, init=False)
    """Those seen last at the end."""
    _longest: int = attrs.field(default=1, init=False)
    """Calls of the longest job so far."""

    def __len__(self) -> int:
        return len(self._jobs)

    def rename(self, renames: Renames) -> None:
        """Agents are called otherwise from now on."""
        self._jobs = {(renames.agent_key(agent), job): known for (agent, job), known in self._jobs.items()}

    def on_ended(self, agent: AgentKey, job: str, tokens: int, now_ns: int) -> None:
        """Note a served call, with its tokens as far as they are known."""
        known = self._jobs.pop((agent, job), None)
        if known is None:
            known = JobRecord()
            if len(self._jobs) >= JOBS_MAX:
                del self._jobs[next(iter(self._jobs))]
        self._jobs[agent, job] = known
        known.on_ended(tokens, now_ns)
        if known.calls > self._longest:
            self._longest = known.calls

    def key(
        self,
        objective: Objective,
        agent: AgentKey,
        job: str,
        request: Request,
        likely: Callable[[Request], Usage],
        now_ns: int,
    ) -> int:
        """Return the order of a call of this job among calls of equal priority, lowest first.

        Args:
            request: As it is sent.
            likely: Says what such a request is thought to take.
        """
        known = self._jobs.get((agent, job))
        match objective:
            case Objective.FAIR:
                return 0 if known is None else known.level(now_ns)
            case Objective.LATENCY:
                usage = likely(request)
                return (usage.input or 0) + OUTPUT_WEIGHT * usage.output
            case Objective.MEAN_COMPLETION:
                # Finish what has been begun, first what is furthest on.
                return 0 if known is None else -((known.tokens // STEP).bit_length() + 1)
            case Objective.MAKESPAN:
                said = request.headers.get(REMAINING, "")
                # Jobs that do not say how long they are, are thought to be as long as the longest.
                left = self._longest - (known.calls if known is not None else 0) + 1
                return -(int(said) if re.fullmatch(r"[0-9]{1,9}", said) else left)
