"""Forecasts and an agent's status over a whole proxy, for every policy that is shipped."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx2
import pytest
import trio

from hivemind_trio.admin import Facts, Operated, OperationFailed, PolicyKeeper, ReloadResult, TimeSeries
from hivemind_trio.admin.agents import forecast, status
from hivemind_trio.admin.agents.asking import AskingAgent
from hivemind_trio.admin.agents.forecast import NewAgents
from hivemind_trio.admin.forecasts import turns
from hivemind_trio.admin.forecasts.turns import LIVE_MAX
from hivemind_trio.demo import ScriptedReply
from hivemind_trio.host import DiskFiles
from hivemind_trio.listen import bind
from hivemind_trio.model import SecretRef
from hivemind_trio.policy import check
from hivemind_trio.serve import ProxyServer, open_house
from tests.e2e.house import CAP_3, PATIENCE_S, Place, messages, standing, until

SHIPPED: Final = sorted((Path(__file__).parents[2] / "policies").glob("*.hmp"))

pytestmark = pytest.mark.slow


def operated(house: ProxyServer) -> Operated:
    def never() -> PolicyKeeper:
        raise NotImplementedError

    return Operated(
        facts=Facts(version="0", pid=1, address=house.url, policy="p.hmp", journal=None),
        engine=house.engine,
        leases=house.leases,
        door=house.door,
        tally=house.tally,
        conduct=house.conduct,
        starts=house.starts,
        metrics=house.metrics,
        hour=house.hour,
        providers=house.providers,
        series=TimeSeries(house.engine, house.metrics.attempts),
        wall_ns=time.time_ns,
        policy=PolicyKeeper(never, never, ReloadResult),  # type: ignore[arg-type]  # nothing here asks for the policy
        disk_troubles={},
        note=lambda *_: None,
    )


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[Operated]:
    """A proxy of a policy whose secrets are made up; nobody calls it."""
    checked = check(str(path), DiskFiles())
    assert checked.program is not None, checked.diagnostics
    secrets: dict[SecretRef, str] = {
        one: f"http://127.0.0.1:1/{number}" for number, one in enumerate(checked.program.secrets)
    }
    async with open_house(checked.program, secrets, bind("127.0.0.1", 0), audit=True) as house:
        yield operated(house)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
async def test_every_shipped_policy_has_forecasts_for_each_of_its_agents(path: Path) -> None:
    async with served(path) as proxy:
        before = proxy.engine.snapshot().pools
        for name in ("", "stranger", *proxy.engine.program.agents):
            eight = await forecast.forecast(proxy, NewAgents(agent=name, agents=8, calls=2, tokens_in=3_000))
            mine = await status.agent(proxy, status.WhichAgent(agent=name))

            assert 0 <= eight.fits <= 8
            assert (eight.fits == 8) == (eight.bound_by is None and eight.would_break is None), eight
            assert len(eight.starts_s) == 8
            assert eight.text
            assert mine.advice in ("go", "slow", "hand_over")
            assert mine.you.lane == eight.lane
            if name in proxy.engine.program.agents:
                assert mine.you.agent in (name, "unknown")
        assert {name: pool.inflight for name, pool in proxy.engine.snapshot().pools.items()} == dict.fromkeys(before, 0)


async def call(place: Place, http: httpx2.AsyncClient, name: str, model: str) -> None:
    body = {"model": model, "max_tokens": 50, "messages": messages()}
    await http.post(f"/@{name}/v1/messages", json=body)


async def test_what_an_agent_has_called_lately_shapes_its_forecast() -> None:
    async with standing(CAP_3) as place, httpx2.AsyncClient(base_url=place.url, timeout=PATIENCE_S) as http:
        proxy = operated(place.house)
        first = await forecast.forecast(proxy, NewAgents(agent="a", agents=4))
        await call(place, http, "a", "claude-haiku-4-5")
        await call(place, http, "b", "claude-opus-4-1")
        own = await forecast.forecast(proxy, NewAgents(agent="a"))
        other = await forecast.forecast(proxy, NewAgents(agent="b"))
        stranger = await forecast.forecast(proxy, NewAgents(agent="c"))

    assert "no call has ended yet" in first.basis
    assert (first.fits, first.starts_s) == (3, (0, 0, 0, 15.0))
    assert "the last 2 answers" in own.basis
    assert (own.model, other.model, stranger.model) == ("claude-haiku-4-5", "claude-opus-4-1", "claude-opus-4-1")
    assert own.cost_usd is not None
    assert other.cost_usd is not None
    assert own.cost_usd < other.cost_usd


LOGINS: Final = """
hmp 1
provider sim { api anthropic; base env(UPSTREAM) }
agent ci { }
budget each per agent { requests 10/day }
budget by-model per model { requests 10/day }
"""


def week(used: float) -> ScriptedReply:
    """An answer of an account that has used so much of its week."""
    name = b"anthropic-ratelimit-unified-7d"
    return ScriptedReply(
        headers=[
            (name + b"-utilization", str(used).encode()),
            (name + b"-reset", str(time.time_ns() // 10**9 + 9_999).encode()),
        ]
    )


async def test_an_agent_is_told_of_the_plan_of_its_own_login_and_of_its_own_budgets() -> None:
    async with standing(LOGINS) as place, httpx2.AsyncClient(base_url=place.url, timeout=PATIENCE_S) as http:
        proxy = operated(place.house)
        for name, used, model in (("ci", 0.97, "claude-haiku-4-5"), ("eve", 0.2, "claude-opus-4-1")):
            place.provider.replies.append(week(used))
            body = {"model": model, "max_tokens": 50, "messages": messages()}
            await http.post(f"/@{name}/v1/messages", json=body, headers={"authorization": f"Bearer login of {name}"})
        ci = await status.agent(proxy, status.WhichAgent(agent="ci"))
        eve = await status.agent(proxy, status.WhichAgent(agent="eve"))
        new = await status.agent(proxy, status.WhichAgent(agent="new"))
        claimed = await status.status_for(proxy, AskingAgent(name="eve", caller="eve@-", address="10.0.0.9"))

    assert [(one.window, one.used) for one in ci.plan] == [("week", 0.97)]
    assert (ci.advice, [one.name for one in ci.budgets]) == ("hand_over", ["each", "by-model"])
    assert [(one.window, one.used) for one in eve.plan] == [("week", 0.2)]
    assert (eve.advice, new.plan) == ("go", ())
    assert claimed.plan == ()  # at the door of agents anybody says so


async def test_an_agent_is_told_that_no_provider_serves_its_likely_model() -> None:
    policy = 'hmp 1\nprovider sim { api openai; base env(UPSTREAM); serves ["qwen*"] }\nbudget all { requests 9/day }\n'
    async with standing(policy) as place:
        found = await status.agent(operated(place.house), status.WhichAgent(agent="new"))

    assert "no provider in the policy serves model" in (found.next_turn.bound_by or "")
    assert (found.budgets, found.plan) == ((), ())


async def test_a_crowded_proxy_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "LIVE_MAX", 2)
    async with (
        standing(CAP_3) as place,
        httpx2.AsyncClient(base_url=place.url, timeout=PATIENCE_S) as http,
        trio.open_nursery() as nursery,
    ):
        gate = trio.Event()
        place.provider.default = ScriptedReply(hold=gate)
        for _ in range(5):
            nursery.start_soon(call, place, http, "a", "claude-haiku-4-5")
        await until(lambda: (place.inflight, place.waiting) == (3, 2))
        monkeypatch.setattr(place.house.engine, "copies", None)  # it would raise
        crowded = await forecast.forecast(operated(place.house), NewAgents(agents=4))
        mine = await status.agent(operated(place.house), status.WhichAgent(agent="a"))
        gate.set()

    assert LIVE_MAX > 2
    assert (crowded.fits, crowded.bound_by) == (0, "2 calls wait already")
    assert (mine.you.waiting, mine.you.inflight, mine.advice) == (2, 3, "slow")
    assert mine.next_turn.p50_s is None


async def test_forecasts_beyond_a_number_are_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WAITING_MAX", 0)
    async with standing(CAP_3) as place:
        with pytest.raises(OperationFailed, match="0 forecasts wait already; ask again in a few seconds"):
            await forecast.forecast(operated(place.house), NewAgents(agents=4))
