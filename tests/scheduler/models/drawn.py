"""Small policies and calls for them, drawn: few names and low bounds, so that everything collides and is full soon."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from hypothesis import strategies as st

from hivemind_trio.policy import DEFAULT_LANE, UNKNOWN_AGENT, Program
from tests.support.programs import agent, lane, program, provider, wish

PROVIDERS = ("p", "q")
LANES = ("a", "b")
AGENTS = ("ci", "bot")
CALLERS = ("x", "ci")
"""One of them calls itself what a declared agent is called."""

CAPS = (None, 1, 2)
QUEUES = (*[None] * 16, 0, 1, 2, 3)
LANE_QUEUES = (*[None] * 4, 0, 1, 2, 3)
SCATTER = 2_654_435_761
"""A prime: times that, every number is another one still."""
PATIENCE_NS = (*[None] * 6, 0, 3, 9)
"""A bound of its own is the exception: with all of them at once hardly anybody would ever wait."""


def settings(**options: Sequence[object]) -> st.SearchStrategy[dict[str, Any]]:
    """One option of each, in a single draw, because drawing is what takes the time here. Shrinks to the first ones."""

    def pick(number: int) -> dict[str, Any]:
        return _picked(number, options)

    return st.integers(0, prod(map(len, options.values())) - 1).map(pick)


def scattered(**options: Sequence[object]) -> st.SearchStrategy[dict[str, Any]]:
    """The same where there are many: of a wide range mostly small numbers are drawn, which would hardly ever pick
    anything but the first option of what is named last. Shrinks to the first ones less surely."""
    combinations = prod(map(len, options.values()))

    def pick(number: int) -> dict[str, Any]:
        return _picked(number * SCATTER % combinations, options)

    return st.integers(0, combinations - 1).map(pick)


def _picked(number: int, options: dict[str, Sequence[object]]) -> dict[str, Any]:
    picked = {}
    for name, choices in options.items():
        number, index = divmod(number, len(choices))
        picked[name] = choices[index]
    return picked


providers = settings(
    declared=[True] * 5 + [False],
    limit=[1, 2, 3, 4],
    groups=[{}, {"opus*": 1}, {"opus*": 2}, {None: 1}, {None: 2, "opus*": 1}, {"opus*": None}],
    queue=QUEUES,
)
lanes = settings(
    declared=[True] * 5 + [False],
    weight=[1, 2, 3],
    reserve=[0, 0, 1, 2, "50%"],
    max=[None, None, 1, 2, "25%"],
    deadline_ns=PATIENCE_NS,
    queue=LANE_QUEUES,
    shed_oldest=[False, True],
    priority=[0, 1],
    aging_ns=[None, 1, 3],
)
agents = settings(declared=[True] * 5 + [False], concurrency=CAPS, queue=QUEUES)
server = settings(
    max_waiting=[100] * 15 + [4, 1, 0],
    refuse_unknown=[False] * 29 + [True],
    hash=["drawn", "drawn again"],
    backwards=[False, True],
)

wishes = settings(
    agent=[None, *AGENTS],
    provider=[None, *PROVIDERS],
    model=["opus-1", "haiku-1"],
    lane=[None, *LANES],
    priority=[None, 0, 1, 2],
    deadline_ns=PATIENCE_NS,
    deny=[False] * 19 + [True],
).map(lambda picked: wish(**picked))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Mostly with everything in it: what is missing is only interesting where it was there before."""

    def some(kind: st.SearchStrategy[dict[str, Any]], names: Sequence[str]) -> dict[str, dict[str, Any]]:
        drawn = {name: draw(kind) for name in names}
        return {name: each for name, each in drawn.items() if each.pop("declared")}

    whole = draw(server)
    order = -1 if whole.pop("backwards") else 1
    return program(
        providers=[provider(name, **each) for name, each in some(providers, PROVIDERS[::order]).items()],
        lanes=[lane(name, **each) for name, each in some(lanes, (*LANES, DEFAULT_LANE)[::order]).items()],
        agents=[agent(name, **each) for name, each in some(agents, AGENTS).items()],
        unknown=agent(UNKNOWN_AGENT, **some(agents, [UNKNOWN_AGENT]).get(UNKNOWN_AGENT, {})),
        **whole,
    )
