"""Figures that others have published, or that we have measured of theirs.

HiveMind's (arXiv 2604.17111) and hivemind-scheduler's were measured over sockets in real time; AgentRM's (arXiv
2603.13110) are simulated, as is what they stand beside in our tables, unless it says so.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Paper(NamedTuple):
    """HiveMind's own: dead agents, %."""

    direct: float
    proxied: float


class Scheduler(NamedTuple):
    """hivemind-scheduler 0.2.0 from PyPI, three runs on its paper's mock, measured by us."""

    dead: str
    over_bound: str


PAPER: Final = {
    "micro-5": Paper(0, 0),
    "micro-10": Paper(100, 10),
    "micro-20": Paper(100, 10),
    "micro-50": Paper(100, 0),
    "replay-11": Paper(73, 18),
    "stress": Paper(100, 10),
    "latency-spike": Paper(100, 0),
}

SCHEDULER: Final = {
    "micro-5": Scheduler("0", "1.0"),
    "micro-10": Scheduler("0", "1.00–1.09"),
    "micro-20": Scheduler("0", "1.00–1.01"),
    "micro-50": Scheduler("0–4", "1.20"),
    "replay-11": Scheduler("0", "1.07–1.30"),
    "stress": Scheduler("0–10", "1.01–1.12"),
    "latency-spike": Scheduler("0", "1.05–1.10"),
    "replay-11, real resets": Scheduler("27–36", "–"),
}

ABLATION: Final = {
    "full": "0",
    "without caps": "0",
    "without quotas": "0 (its switch does nothing)",
    "without aimd": "9.1 (its switch does nothing)",
    "without retry": "63.6",
    "caps alone": "81.8",
}
"""The paper's, on replay-11: dead agents, %. What it calls rate limit is our quotas, backpressure our AIMD."""

AGENTRM: Final = {
    "normal": "70 → 4.5",
    "high-load": "640 → 323",
    "burst": "50 → 47",
    "faulty": "563 → 77.5",
    "cascade": "90 → 43",
}
"""AgentRM's p95 in seconds, FIFO without a reaper → its own queue with one."""
