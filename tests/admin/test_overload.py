"""Notices of a proxy's status to its operator: overload, standstills, and a policy on disk that is not in force."""

from __future__ import annotations

import attrs
import msgspec
import pytest
import trio

from hivemind_trio.admin import PolicyKeeper, ReloadResult, show
from hivemind_trio.admin.history import ProviderSilence
from hivemind_trio.admin.operated import NoArguments
from hivemind_trio.cli.control.status import header
from hivemind_trio.listen import LoopLag
from hivemind_trio.model import Outcome, Reason
from hivemind_trio.scheduler import AttemptResult, CallId, Circuit
from hivemind_trio.scheduler.protocol.snapshot import Standstill

from .test_forecast import SHIPPED, served

PROBLEMS = [
    (ReloadResult(error="the new policy has errors"), "the new policy has errors (`hivemind-trio check team.hmp`)"),
    (ReloadResult(error="`listen` changed", help="restart the proxy"), "`listen` changed; restart the proxy"),
]

pytestmark = pytest.mark.slow


async def test_the_status_says_how_many_calls_were_refused_unread_and_since_when() -> None:
    async with served(SHIPPED[0]) as proxy:
        lag = LoopLag(0.01)
        proxy = attrs.evolve(proxy, lag=lag)
        before = await show.status(proxy, NoArguments())
        for _ in range(7):
            lag.refuse()
        lag.noted(trio.current_time() - 30)
        lag.noted(trio.current_time() - 1)
        view = await show.status(proxy, NoArguments())

    assert (before.calls.unread, before.notices) == (0, ())
    assert view.calls.unread == 7
    (notice,) = view.notices
    assert notice.kind == "overload"
    assert "for 30 s calls have been refused unread (503 `proxy-overloaded`)" in notice.text
    assert notice.since_at is not None
    shown = header(msgspec.to_builtins(view))
    assert "; 7 refused unread for overload" in shown
    assert "! the proxy's CPU cannot keep up" in shown


@pytest.mark.parametrize(("result", "said"), PROBLEMS)
async def test_the_status_says_that_the_policy_on_disk_is_not_in_force(result: ReloadResult, said: str) -> None:
    async with served(SHIPPED[0]) as proxy:
        facts = attrs.evolve(proxy.facts, policy="team.hmp")
        keeper = PolicyKeeper(proxy.policy.running, proxy.policy.read, lambda: result)
        view = await show.status(attrs.evolve(proxy, facts=facts, policy=keeper), NoArguments())

    (notice,) = view.notices
    assert (notice.kind, notice.subject) == ("policy", "team.hmp")
    assert notice.text == f"the policy has changed on disk and is not in force: {said}"
    assert f"! {notice.text}" in header(msgspec.to_builtins(view))


async def test_the_status_says_why_nothing_goes_and_when_it_goes_on() -> None:
    async with served(SHIPPED[0]) as proxy:
        snapshot = proxy.engine.snapshot()
        (name, pool), *_ = snapshot.pools.items()
        stands = Standstill(since_ns=0, reason=Reason.PROVIDER_QUOTA, until_ns=300_000_000_000)
        stood = attrs.evolve(pool, waiting=7, stands=stands)
        at_ns = (4_000_000_000, 6_000_000_000, 301_000_000_000)
        told = [
            [one.text for one in show.standstill_notices(proxy, attrs.evolve(snapshot, pools={name: stood}), now_ns)]
            for now_ns in at_ns
        ]

    why = f"7 calls wait for provider `{name}` and none is in flight: provider `{name}` had reported that a quota was "
    assert told == [[], [f"{why}used up; the next goes in 294 s at the latest"], [f"{why}used up"]]


async def test_the_status_says_that_a_provider_answers_none_of_its_calls() -> None:
    async with served(SHIPPED[0]) as proxy:
        snapshot = proxy.engine.snapshot()
        (name, pool), *_ = snapshot.pools.items()
        silence = proxy.providers.silences.of.setdefault(name, ProviderSilence())
        for number in range(2):
            silence.on_granted(CallId(number), 0)
        silence.on_ended(CallId(1), AttemptResult(outcome=Outcome.BURST, status=429), 1)
        waits = attrs.evolve(snapshot, pools={name: attrs.evolve(pool, waiting=4)})
        opened = attrs.evolve(snapshot, pools={name: attrs.evolve(pool, waiting=4, circuit=Circuit.OPEN)})
        told = [
            [one.text for one in show.silence_notices(proxy, shot, now_ns)]
            for shot, now_ns in ((waits, 50_000_000_000), (waits, 61_000_000_000), (opened, 61_000_000_000))
        ]

    text = f"provider `{name}` has answered no call for 61 s: 1 in flight have no answer, 4 wait; meanwhile 1 refused"
    assert told == [[], [text], []]
