"""Options of `hivemind-trio serve`, and what they decide together with the policy."""

from __future__ import annotations

import os
from typing import Final, final

import attrs

from hivemind_trio.policy import (
    Program,
    is_loopback,
)


@final
@attrs.frozen(kw_only=True)
class Options:
    """Options of the command line."""

    policy: str | None = None
    listen: str | None = None
    log_json: bool | None = None
    """None: as the policy says."""
    log_calls: bool = False
    records: bool = False
    """Keep every event of the scheduler in the journal, for `replay`."""
    journal: str | None = None
    """Path of the journal; None: as the policy says."""
    state_folder: str | None = None
    """Folder of state and journal where there is no policy; None: by the port."""
    allow_include: tuple[str, ...] = ()
    """Folders that the policy may include from, beside its own."""
    node: str | None = None
    """Name among the nodes that share; None: host and port."""
    workers: int | None = None
    """Processes that serve; 0: as many as there are cores; None: as the policy says."""
    stock_transport: bool = False
    print_policy: bool = False
    color: bool = False


WORKERS_MAX: Final = 8
"""Most processes of `auto`."""


def worker_count(options: Options, program: Program) -> int:
    """Return the number of processes that serve."""
    wanted = program.server.workers if options.workers is None else options.workers
    return wanted or min(WORKERS_MAX, usable_cores())


def unshared(program: Program) -> str:
    """Return why several processes cannot serve this policy; empty: they can."""
    if program.jobs.allow:
        return "`jobs` are run by one process, and --workers starts several; write --workers 1"
    if program.store.durable:
        return ""
    return "`store memory` ends with each process, and --workers starts several; remove it, or write --workers 1"


def usable_cores() -> int:
    """Return the cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def exposed(host: str, program: Program) -> str:
    """Why it would not be safe to listen there; empty: it is."""
    if is_loopback(host) or any(agent.tokens for agent in program.agents.values()):
        return ""
    return (
        f"will not listen on {host}: whoever reaches it could spend your keys; "
        "give agents a `token env(NAME)`, or listen on 127.0.0.1"
    )


def wants_json(options: Options, program: Program) -> bool:
    """Return whether the log is written as JSON."""
    return program.server.log_json if options.log_json is None else options.log_json
