"""Limits of providers as their recorded refusals show them."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Outcome, RecordedAttempt, RecordedCall
from hivemind_trio.sim.provider.profile import Traits
from hivemind_trio.sim.provider.token_bucket import MINUTE_NS, Metered, Quota
from hivemind_trio.sim.scenario.limits_met import MetLimit, limits_met
from tests.store.written import CALL

SECOND = 1_000_000_000

Refuses = Callable[[int, int, int], bool]
"""In flight, accepted within a minute, their input -> whether a provider refuses one more of 900 tokens."""


def record(refuses: Refuses, *, seed: int = 1, calls: int = 400, rate: float = 2.0) -> list[RecordedCall]:
    """Calls at a rate a second to a provider that refuses some, each with an answer of 1 to 5 s."""
    chance = Random(seed)
    now_ns = 0
    busy: list[int] = []
    accepted: list[int] = []
    made = []
    for _ in range(calls):
        now_ns += int(chance.expovariate(rate) * SECOND) + 1
        while busy and busy[0] <= now_ns:
            heapq.heappop(busy)
        recent = sum(at_ns > now_ns - MINUTE_NS for at_ns in accepted)
        refused = refuses(len(busy), recent, recent * 900)
        ended_ns = now_ns + (SECOND // 10 if refused else chance.randrange(SECOND, 5 * SECOND))
        if not refused:
            heapq.heappush(busy, ended_ns)
            accepted.append(now_ns)
        attempt = RecordedAttempt(
            granted_ns=now_ns,
            waited_ns=0,
            provider="anthropic",
            model="claude-x",
            ended_ns=ended_ns,
            outcome=Outcome.OVERLOADED if refused else Outcome.SUCCEEDED,
            status=529 if refused else 200,
            committed=not refused,
        )
        made.append(attrs.evolve(CALL, arrived_ns=now_ns, attempts=(attempt,)))
    return made


@given(cap=st.integers(1, 8), seed=st.integers(0, 1_000))
def test_a_cap_on_requests_at_once_is_found(cap: int, seed: int) -> None:
    calls = record(lambda busy, *_: busy >= cap, seed=seed, rate=4.0)

    found = limits_met(calls)["anthropic"]

    refusals = sum(call.attempts[0].status == 529 for call in calls)
    assert found == MetLimit(metered=None, limit=cap, refusals=refusals, explained=refusals)
    assert str(found) == ("1 request at once" if cap == 1 else f"{cap} requests at once")


@given(limit=st.integers(10, 90), seed=st.integers(0, 1_000))
def test_a_limit_on_requests_a_minute_is_found(limit: int, seed: int) -> None:
    found = limits_met(record(lambda _, recent, __: recent >= limit, seed=seed))["anthropic"]

    assert (found.metered, found.limit) == (Metered.REQUESTS, limit)


def test_a_limit_on_input_is_found_where_calls_differ() -> None:
    chance = Random(5)
    sizes = [chance.randrange(100, 40_000) for _ in range(400)]
    taken: list[tuple[int, int]] = []
    calls = []
    for number, call in enumerate(record(lambda *_: False)):
        size, now_ns = sizes[number], call.arrived_ns
        refused = sum(each for at_ns, each in taken if at_ns > now_ns - MINUTE_NS) + size > 500_000
        if not refused:
            taken.append((now_ns, size))
        outcome = Outcome.QUOTA if refused else Outcome.SUCCEEDED
        attempt = attrs.evolve(call.attempts[0], outcome=outcome)
        calls.append(attrs.evolve(call, request=attrs.evolve(call.request, tokens_in=size), attempts=(attempt,)))

    found = limits_met(calls)["anthropic"]

    assert found.metered is Metered.INPUT
    assert 480_000 < found.limit <= 500_000
    assert found.explained == found.refusals


@pytest.mark.parametrize("share", [0.05, 0.5, 0.7, 0.9])
def test_refusals_by_chance_show_no_limit(share: float) -> None:
    chance = Random(3)

    assert limits_met(record(lambda *_: chance.random() < share)) == {}


@pytest.mark.parametrize("accepted", [1, 2, 10])
def test_a_provider_that_refuses_most_and_whatever_comes_shows_no_limit(accepted: int) -> None:
    """One attempt of three is served: any threshold has twice as many refusals as accepted attempts beyond it."""
    order = iter(range(3 * accepted + 3))

    assert limits_met(record(lambda *_: next(order) % 3 != 1, calls=3 * accepted + 3)) == {}


def test_two_refusals_show_no_limit() -> None:
    refused = iter([True, True])

    assert limits_met(record(lambda busy, *_: busy >= 3 and next(refused, False))) == {}


@pytest.mark.parametrize(("declared", "applied"), [(None, 5), (8, 5), (3, 3)], ids=["none", "higher", "lower"])
def test_the_lower_of_the_declared_and_the_met_limit_holds(declared: int | None, applied: int) -> None:
    at_once = MetLimit(metered=None, limit=5, refusals=9, explained=9)
    a_minute = attrs.evolve(at_once, metered=Metered.REQUESTS)
    requests = Quota(limit=declared, window_ns=MINUTE_NS) if declared is not None else None

    assert at_once.applied(Traits(concurrency=declared)).concurrency == applied
    limited = a_minute.applied(Traits(requests=requests)).requests
    assert limited is not None
    assert limited.limit == applied
