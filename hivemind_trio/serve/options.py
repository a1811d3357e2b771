"""Options of `hivemind-trio serve`, and what they decide together with the policy."""

from __future__ import annotations

from typing import final

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
    stock_transport: bool = False
    print_policy: bool = False
    color: bool = False


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
