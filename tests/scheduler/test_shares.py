"""Shares of this node: it starts no call beyond them, and one node alone behaves as if there were none."""

from __future__ import annotations

from random import Random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Api, Outcome, Reason, Request
from hivemind_trio.policy import AimdSettings, Program, StoreSettings
from hivemind_trio.scheduler import AttemptResult, Command, Draining, Finish, SharesSet
from tests.support.ends import SUCCEEDED
from tests.support.policies import compiled
from tests.support.programs import SECOND_NS, agent, lane, program, provider

from .driver import Driver

OVERLOADED = AttemptResult(outcome=Outcome.OVERLOADED, status=529, committed=False)
SLOW = AttemptResult(outcome=Outcome.SLOW, status=200, committed=True)


def house() -> Program:
    return program(
        providers=[provider("p", limit=6), provider("q", limit=4, aimd=AimdSettings(low=1, start=2))],
        lanes=[lane("fast", reserve=2), lane("slow")],
        agents=[agent("ci", concurrency=3), agent("dev")],
    )


def history(driver: Driver, seed: int, steps: int = 120) -> list[Command]:
    """Calls that come, fail, end and are hung up, and a reload; the commands of all of it."""
    random = Random(seed)
    said: list[Command] = []
    for _ in range(steps):
        driver.now_ns += random.randrange(0, 2_000_000_000)
        flying = list(driver.scheduler.state.inflight)
        luck = random.random()
        if luck < 0.5:
            driver.call(
                random.choice("xyz"),
                agent=random.choice(["ci", "dev"]),
                provider=random.choice("pq"),
                lane=random.choice(["fast", "slow"]),
            )
        elif luck < 0.85 and flying:
            driver.end(random.choice(flying), random.choice([SUCCEEDED, SUCCEEDED, OVERLOADED]))
        elif luck < 0.9 and driver.scheduler.state.room.waiters:
            driver.cancel(random.choice(list(driver.scheduler.state.room.waiters)))
        elif luck < 0.92:
            driver.load(house())
        else:
            driver.at(driver.now_ns)
        said += driver.last
    return said


@given(st.integers(0, 2**32))
def test_I9_a_node_that_has_everything_decides_as_one_that_is_alone(seed: int) -> None:
    alone, shared = Driver(house(), seed), Driver(house(), seed)
    assert shared.post(SharesSet({"p": 6, "q": 1_000})) == []
    assert history(shared, seed) == history(alone, seed)


def test_I9_fails_with_a_node_that_has_one_slot_less() -> None:
    def differs(seed: int) -> bool:
        alone, shared = Driver(house(), seed), Driver(house(), seed)
        shared.post(SharesSet({"p": 5, "q": 1_000}))
        return history(shared, seed) != history(alone, seed)

    assert any(differs(seed) for seed in range(10))


@pytest.mark.parametrize("share", [0, 1, 3])
def test_no_call_starts_beyond_the_share(share: int) -> None:
    driver = Driver(house())
    driver.post(SharesSet({"p": share}))
    driver.calls(5, provider="p", lane="fast")
    assert len(driver.granted) == share
    assert driver.call(provider="q", lane="slow") not in driver.granted  # a provider that is not named has none


def test_a_share_that_grows_starts_calls_and_one_that_shrinks_drains() -> None:
    driver = Driver(house())
    driver.post(SharesSet({"p": 1}))
    first, second, third, fourth = driver.calls(4, provider="p", lane="fast")
    driver.post(SharesSet({"p": 3}))
    assert driver.granted == [first, second, third]
    driver.post(SharesSet({"p": 1}))
    assert driver.end(first) == []
    assert driver.end(second) == []
    assert driver.end(third) == [fourth]


def test_a_reserve_in_slots_is_that_of_all_nodes_together() -> None:
    driver = Driver(house())
    driver.post(SharesSet({"p": 3}))
    slow = driver.calls(3, provider="p", lane="slow")
    # 2 of 6 are reserved: 1 of this node's 3.
    assert driver.granted == slow[:2]
    assert driver.call(provider="p", lane="fast") in driver.granted


def test_shares_outlive_a_reload_and_a_new_provider_begins_with_none() -> None:
    driver = Driver(house())
    driver.post(SharesSet({"p": 2, "q": 4}))
    more = program(providers=[provider("p", limit=6), provider("new", limit=6)], lanes=[lane("fast"), lane("slow")])
    driver.load(more)
    driver.calls(4, provider="new", lane="fast")
    driver.calls(4, provider="p", lane="fast")
    assert driver.scheduler.snapshot().pools["p"].inflight == 2
    assert driver.scheduler.snapshot().pools["new"].inflight == 0


def learning(nodes: int) -> Driver:
    alone = program(providers=[provider("p", limit=64, aimd=AimdSettings(low=4, start=16))], lanes=[lane("fast")])
    if nodes == 1:
        return Driver(alone)
    server, store = attrs.evolve(alone.server, nodes=nodes), StoreSettings(url="redis://127.0.0.1")
    return Driver(attrs.evolve(alone, server=server, store=store))


@pytest.mark.parametrize(("nodes", "first", "least"), [(1, 16, 4), (4, 4, 1), (16, 1, 1)])
def test_each_node_learns_its_part_of_a_limit_that_is_learned(nodes: int, first: int, least: int) -> None:
    driver = learning(nodes)
    if nodes > 1:
        driver.post(SharesSet({"p": 64}))
    assert driver.scheduler.snapshot().pools["p"].limit == first
    limits = []
    for _ in range(60):  # rounds at a provider that is slow however few there are
        driver.now_ns += 20_000_000_000
        driver.at(driver.now_ns)
        driver.calls(20, provider="p", lane="fast")
        for call in [*driver.scheduler.state.room.waiters]:
            driver.cancel(call)
        for call in [*driver.scheduler.state.inflight]:
            driver.end(call, SLOW)
        limits.append(driver.scheduler.snapshot().pools["p"].limit)
    assert min(limits[-10:]) == least


def test_shares_end_at_their_time_before_anything_is_granted() -> None:
    driver = Driver(house())
    driver.post(SharesSet({"p": 3}, 1_000, {"p": 1}))
    calls = driver.calls(6, provider="p", lane="fast")
    assert driver.granted == calls[:3]
    driver.now_ns = 999
    assert driver.end(calls[0]) == [calls[3]]
    driver.now_ns = 1_000  # nobody has said that they are over
    assert driver.end(calls[1]) == []
    driver.load(house())
    assert driver.end(calls[2]) == []
    assert driver.end(calls[3]) == [calls[4]]


UNSENT = AttemptResult(outcome=Outcome.IGNORED, unsent=True)


def test_a_call_that_was_not_sent_is_first_again_and_says_nothing_of_its_provider() -> None:
    driver = Driver(house())
    driver.post(SharesSet({"q": 1}))
    first, second = driver.calls(2, provider="q", lane="slow")
    before = driver.scheduler.beliefs()
    for _ in range(9):  # no class of retries has as many attempts
        assert driver.end(first, UNSENT) == [first]
    driver.post(SharesSet({"q": 0}))
    assert driver.end(first, UNSENT) == []
    assert driver.scheduler.snapshot().pools["q"].inflight == 0
    assert driver.scheduler.beliefs() == before
    driver.post(SharesSet({"q": 1}))
    assert driver.scheduler.state.inflight.keys() == {first}
    assert driver.end(first) == [second]


def test_a_call_that_was_not_sent_is_not_sent_while_the_proxy_drains() -> None:
    driver = Driver(house())
    (call,) = driver.calls(1, provider="p", lane="fast")
    driver.post(Draining())
    assert driver.end(call, UNSENT) == []
    assert not driver.scheduler.state.inflight
    refusal = driver.refusal(call)
    assert (refusal.reason, refusal.retry_after_ns) == (Reason.DRAINING, SECOND_NS)


def test_a_call_that_was_not_sent_and_may_not_be_any_more_is_told_why() -> None:
    text = "provider anthropic { concurrency 2 }\n"
    driver = Driver(compiled(text))
    call = driver.ask(Request(apis=(Api.ANTHROPIC,), model="claude-haiku-4-5"))
    driver.load(compiled(text + 'rule all { deny "closed" }'))
    assert driver.end(call, UNSENT) == []
    assert driver.refusal(call).reason is Reason.DENIED


def test_a_call_whose_last_attempt_was_sent_ends_with_it_while_the_proxy_drains() -> None:
    driver = Driver(house())
    (call,) = driver.calls(1, provider="p", lane="fast")
    driver.post(Draining())
    driver.end(call, AttemptResult(outcome=Outcome.FAILED, status=503))
    assert isinstance(driver.answers[call], Finish)
