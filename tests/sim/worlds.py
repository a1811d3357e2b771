"""Policies and scenarios for worlds, small enough to read."""

from __future__ import annotations

from typing import Any

from hivemind_trio.policy import MemoryFiles, Program, check
from hivemind_trio.sim import Amount, Efforts, Figures, Fleet, Quota, Scenario, Traits, UpstreamSpec, Way, World

MS = 1_000_000
SECOND = 1_000 * MS


def compiled(text: str) -> Program:
    """A policy's program; its key is nowhere."""
    checked = check("test.hmp", MemoryFiles({"test.hmp": text.encode()}))
    assert checked.program is not None, checked.diagnostics
    return checked.program


def one_provider(*settings: str, rest: str = "") -> Program:
    """One Anthropic provider with these settings, which retries soon and for long."""
    lines = "\n".join(settings)
    return compiled(
        f"""
        provider anthropic {{ key env(K); retry patient
        {lines}
        }}
        retry patient {{
          on [429, 500..504, 529, connect, reset, first-byte]; attempts 12; backoff 200ms..5s; ratio 100%
        }}
        {rest}
        """
    )


def fleet(count: int = 5, turns: int = 4, **more: Any) -> Fleet:
    return Fleet(**{"name": "worker", "count": count, "turns": Amount(turns), "think_ns": Amount(50 * MS), **more})


def scenario(*fleets: Fleet, traits: Traits | None = None, **more: Any) -> Scenario:
    upstreams = (UpstreamSpec(traits=traits or Traits()),)
    return Scenario(**{"fleets": fleets or (fleet(),), "upstreams": upstreams, "until_ns": 3_600 * SECOND, **more})


def run(
    program: Program,
    of: Scenario,
    *,
    seed: int = 7,
    way: Way = Way.PROXY,
    audit: bool = True,
    efforts: Efforts | None = None,
) -> Figures:
    return World(program, of, seed=seed, way=way, audit=audit, efforts=efforts).run()


def per_minute(limit: int, **more: Any) -> Quota:
    return Quota(limit=limit, **more)
