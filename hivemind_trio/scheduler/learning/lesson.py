"""Values that nodes and their store exchange about what attempts teach of a provider.

One node of those that share a provider learns for all: it leads. The others report their attempts to it and follow its
verdict, both by way of the store. A report that is lost costs evidence and nothing else.
"""

from __future__ import annotations

from typing import Final, final

import attrs

LESSONS_MAX: Final = 512
"""Lessons of one node that are kept until the node that leads has taken them; the oldest are dropped."""


@final
@attrs.frozen(kw_only=True)
class Lesson:
    """One step of an attempt: it has begun, its answer begins well, or it has ended; or all of one that went well."""

    call: int
    """Number of the call at its node."""
    age_ms: int
    """Time since the step."""
    kind: str
    """`granted`, `accepted` or `ended`; `served`: it has begun and ended, and nothing was reported of it before."""
    lasted_ms: int = 0
    """Time from its grant to its end."""
    is_probe: bool = False
    """A half-open circuit has let it through."""
    outcome: str = ""
    """`Outcome` of one that has ended."""
    said_ms: int = -1
    """The provider's `retry-after`; -1: it has none."""
    tokens: int = 0
    """Output of one that has ended."""


@final
@attrs.frozen(kw_only=True)
class SharedVerdict:
    """State of a provider, as the node that leads believes it."""

    limit: int
    """Concurrency limit of all nodes together; 0: it is not learned."""
    doubling: bool
    """No refusal has shown the limit yet."""
    circuit: str
    """`Circuit`."""
    opens_ms: int = 0
    """Time until an open circuit lets a probe through."""


@final
@attrs.frozen(kw_only=True)
class LearnAsk:
    """Report of a node on its attempts."""

    node: str
    epoch: int
    """Start of the node: a higher one replaces a lower one."""
    seq: int
    """Grows with every report; an older one that arrives late changes nothing."""
    held: int
    """Attempts in flight."""
    binds: bool
    """Calls wait for a higher limit."""
    lessons: tuple[Lesson, ...] = ()
    """In the order in which they happened."""
    urgent: bool = False
    """One of them may change the verdict at once."""
    verdict: SharedVerdict | None = None
    """State that this node believes; the store takes it from the node that leads."""
    leads: bool = False
    """The node takes itself for the one that leads."""
    wants_probe: bool = False
    """A call waits that could be the probe of a half-open circuit."""
    probes: bool = False
    """Its call is the probe."""


@final
@attrs.frozen(kw_only=True)
class Report:
    """Report of another node, for the one that leads."""

    node: str
    epoch: int
    held: int
    binds: bool
    lessons: tuple[Lesson, ...]


@final
@attrs.frozen(kw_only=True)
class LearnAnswer:
    """Answer of the store."""

    seq: int
    leads: bool
    """The node leads from now on, or still."""
    verdict: SharedVerdict | None
    """None: there is none yet."""
    probe: bool = False
    """The node's next call is the probe of the half-open circuit."""
    reports: tuple[Report, ...] = ()
    wake: tuple[str, ...] = ()
    """Nodes that are to speak to the store now."""
