"""Small policies and calls for them, drawn: few names and low bounds, so that everything collides and is full soon."""

from __future__ import annotations

from hypothesis import strategies as st

from hivemind_trio.policy import DEFAULT_LANE, UNKNOWN_AGENT, Agent, Lane, Program, Provider
from tests.support.programs import agent, lane, program, provider, wish

PROVIDERS = ("p", "q")
LANES = ("a", "b")
AGENTS = ("ci", "bot")
CALLERS = ("x", "ci")
"""One of them calls itself what a declared agent is called."""

few = st.integers(1, 3)
bound = st.none() | st.integers(0, 3)
"""Of a queue."""


def cap(highest: int = 3) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(1, highest)


def providers(name: str) -> st.SearchStrategy[Provider]:
    groups = st.dictionaries(st.sampled_from([None, "opus*"]), cap(2), max_size=2)
    return st.builds(provider, st.just(name), limit=st.integers(1, 4), groups=groups, queue=bound)


def lanes(name: str) -> st.SearchStrategy[Lane]:
    return st.builds(
        lane,
        st.just(name),
        weight=st.integers(1, 4),
        reserve=st.sampled_from([0, 0, 1, 2, "50%"]),
        max=st.sampled_from([None, None, 1, 2, "25%"]),
        deadline_ns=st.none() | st.integers(0, 9),
        queue=bound,
        shed_oldest=st.booleans(),
        priority=st.integers(0, 2),
        aging_ns=st.none() | st.integers(1, 4),
    )


def agents(name: str) -> st.SearchStrategy[Agent]:
    return st.builds(agent, st.just(name), concurrency=cap(), queue=bound)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    def some(names: tuple[str, ...]) -> list[str]:
        return draw(st.lists(st.sampled_from(names), unique=True))

    return program(
        providers=[draw(providers(name)) for name in some(PROVIDERS)],
        lanes=[draw(lanes(name)) for name in some((*LANES, DEFAULT_LANE))],
        agents=[draw(agents(name)) for name in some(AGENTS)],
        unknown=draw(agents(UNKNOWN_AGENT)),
        max_waiting=draw(st.sampled_from([100, 100, 100, 4, 1, 0])),
        refuse_unknown=draw(st.sampled_from([False, False, False, True])),
        hash=f"drawn {draw(st.integers(0, 9))}",
    )


wishes = st.builds(
    wish,
    agent=st.sampled_from([None, *AGENTS]),
    provider=st.sampled_from([None, *PROVIDERS]),
    model=st.sampled_from(["opus-1", "haiku-1"]),
    lane=st.sampled_from([None, *LANES]),
    priority=st.none() | st.integers(0, 2),
    deadline_ns=st.none() | st.integers(0, 9),
    deny=st.sampled_from([False] * 9 + [True]),
)
