"""Why a scenario cannot be run over sockets as it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from bench.simulated.worlds import text_of
from hivemind_trio.demo import ANSWER_FORMATS
from hivemind_trio.model import Api
from hivemind_trio.policy import Clue, MemoryFiles, Program, check, reads_time
from hivemind_trio.sim import Scenario, SimulatedCaller, Weather, populate

from .clients import CREDENTIAL
from .house import identity

SPOKEN: Final = (Api.ANTHROPIC, Api.OPENAI, Api.AZURE, Api.VLLM, Api.GENERIC)
"""What the simulated provider behind a socket speaks."""

_PREFIX: Final = re.compile(r"[A-Za-z0-9._~-]{1,64}")


def obstacles(program: Program, scenario: Scenario) -> Iterator[str]:
    """Each in a line, with what could be done about it."""
    for name, provider in program.providers.items():
        if provider.api not in SPOKEN:
            spoken = ", ".join(f"`{api}`" for api in SPOKEN)
            yield f"provider `{name}` speaks {provider.api}; over sockets there is {spoken}"
        for storm in scenario.upstream(name).traits.storms:
            if storm.weather is Weather.UNREACHABLE and storm.share < 1:
                yield "a storm with `connect` shuts a port to everybody: `share` must be 100%, or take `reset`"
    if Clue.URL not in program.server.identify:
        yield "agents say who they are in the URL: `identify` must have `url`"
    if reads_time(check("bench.hmp", MemoryFiles({"bench.hmp": text_of(program).encode()}))):
        yield "the policy asks for the hour or the weekday, which over sockets are this machine's"
    seen: set[tuple[str, str]] = set()
    for living in populate(program, scenario, 1):
        who = (living.fleet.name, living.identity or "")
        if who not in seen:
            seen.add(who)
            yield from _in_the_way(program, scenario, living)


def _in_the_way(program: Program, scenario: Scenario, living: SimulatedCaller) -> Iterator[str]:
    whose = f"agents `{living.fleet.name}`"
    if living.fleet.recorded:
        yield f"{whose} are recorded, and what they asked was not written down: there is nothing to send"
    if living.path not in ANSWER_FORMATS:
        yield f"{whose} call `{living.path}`; over sockets there is {', '.join(f'`{path}`' for path in ANSWER_FORMATS)}"
    if _PREFIX.fullmatch(living.agent.job.agent) is None:
        yield f"{whose} have a name that no URL holds: take letters, digits, `.`, `_`, `-` and at most 60 of them"
    _, token = identity(program, living)
    provider = program.decide(living.request(program, scenario, living.agent.job.turns[0], 0)).provider
    if token != CREDENTIAL and provider is not None and not program.providers[provider].keys:
        yield f"{whose} have a token, which is not sent upstream, and provider `{provider}` has no `key`"
