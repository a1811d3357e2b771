"""Faults of several nodes in virtual time: no more in flight than the cap, and no trip for a call that fits a share."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pytest

from hivemind_trio.scheduler.sharing.fair_shares import FairShare, fair_shares
from hivemind_trio.scheduler.sharing.fleet_model import FleetModel
from hivemind_trio.scheduler.sharing.node_law import NodeLaw
from hivemind_trio.scheduler.sharing.share_row import ShareRow
from hivemind_trio.scheduler.sharing.window_ring import WindowAnswer, WindowAsk, WindowShape
from hivemind_trio.sim import CLIENTS, Amount, NodesSpec, Scenario, TimeSpan, Traits, World
from hivemind_trio.sim.run.invariants import Broken
from tests.sim.worlds import MS, SECOND, fleet, one_provider, scenario

CAP = 12
STORE = 'store redis { url "redis://127.0.0.1:1"; lease 10s renew 1s gone 4s; outage local 50% }'
LONG = Traits(latency_mean_ns=3_000 * MS, latency_sigma_ns=500 * MS, latency_min_ns=1_000 * MS)


def loaded(agents: int = 40, turns: int = 10, think_ms: int = 100) -> Scenario:
    agent = fleet(agents, turns, think_ns=Amount(think_ms * MS), client=CLIENTS["anthropic-sdk"])
    return scenario(agent, traits=LONG)


def ran(spec: NodesSpec, of: Scenario | None = None, seed: int = 7, *, more: str = "", audit: bool = True) -> World:
    policy = one_provider(f"concurrency {CAP}", more, rest=STORE)
    world = World(policy, of or loaded(), seed=seed, nodes=spec, audit=audit)
    world.run()
    return world


def peak(world: World) -> int:
    return world.figures().upstreams["anthropic"].inflight_max


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        NodesSpec(count=4, dies=((2, 20 * SECOND), (3, 40 * SECOND))),
        NodesSpec(count=4, away=(TimeSpan(since_ns=20 * SECOND, until_ns=70 * SECOND),)),
        NodesSpec(count=4, loss=0.1),
        NodesSpec(count=4, loss=0.05, dies=((1, 30 * SECOND),), sticky=False),
    ],
    ids=["two die", "store away", "messages lost", "one dies, lossy"],
)
def test_I1_no_more_is_in_flight_than_the_cap_whatever_ends(spec: NodesSpec) -> None:
    world = ran(spec)

    assert peak(world) <= CAP
    assert world.figures().turns_done >= 0.97 * 400


def test_planted_each_node_keeps_the_whole_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeLaw, "allowance", lambda self, *_: self.cap)
    assert peak(ran(NodesSpec(count=4), loaded(turns=2), audit=False)) > CAP
    with pytest.raises(Broken, match="13 calls of all nodes are within 12 of provider anthropic"):
        ran(NodesSpec(count=4), loaded(turns=2))


def test_planted_each_node_draws_the_whole_window(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = FleetModel.draw

    def apart(self: FleetModel, pool: str, name: str, ask: WindowAsk, shape: WindowShape, now_ms: int) -> WindowAnswer:
        return draw(self, pool, f"{name} of {ask.node}", ask, shape, now_ms)

    of, nodes, limit = loaded(agents=24, turns=1), NodesSpec(count=4), "limits { requests 20/min; window sliding }"
    ran(nodes, of, more=limit)
    monkeypatch.setattr(FleetModel, "draw", apart)
    with pytest.raises(Broken, match="21 requests of all nodes are within"):
        ran(nodes, of, more=limit)


def test_a_node_that_is_started_again_serves_and_has_its_ledger() -> None:
    back = NodesSpec(count=2, dies=((1, 5 * SECOND), (2, 9 * SECOND)), returns=((1, 8 * SECOND), (2, 12 * SECOND)))
    policy = one_provider(f"concurrency {CAP}", rest=f"{STORE}\nbudget all {{ tokens 1M/day }}")
    world = World(policy, loaded(10, 6), seed=7, nodes=back, audit=True)
    figures = world.run()

    assert world.fleet is not None
    first, second = world.fleet.figures().nodes
    assert (first.died_ns, first.returned_ns, second.returned_ns) == (5 * SECOND, 8 * SECOND, 12 * SECOND)
    assert figures.turns_done == 60  # the SDK tries again at the other node
    # Without the ledger, all that was drawn before counts as spent.
    (account,) = world.fleet.nodes[0].route.scheduler.accounts(figures.makespan_ns)
    assert figures.tokens <= account.spent < 2 * figures.tokens


CUT = NodesSpec(count=4, cuts=((1, TimeSpan(since_ns=20 * SECOND, until_ns=90 * SECOND)),))


@pytest.mark.slow
def test_I2_a_node_that_is_cut_off_falls_to_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its part of half the cap comes on top, and its calls in flight at the moment of taking.
    assert peak(ran(CUT)) <= CAP + CAP // 2

    with monkeypatch.context() as planted:
        planted.setattr(NodeLaw, "_whole_until_ns", 1 << 62)  # it keeps what it has for good
        kept = peak(ran(CUT))
    assert kept > peak(ran(CUT))


def waits(world: World) -> float:
    """Return the share of calls that waited."""
    waited = [wait > 0 for each in world.recorder.waits_ns.values() for wait in each]
    return sum(waited) / len(waited)


@pytest.mark.slow
def test_I10_a_call_that_fits_the_share_waits_for_no_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    few = scenario(fleet(4, 30, think_ns=Amount(2_000 * MS)), traits=LONG)
    assert waits(ran(NodesSpec(count=2), few)) <= 0.1

    def by_demand(cap: int, rows: Mapping[str, ShareRow]) -> dict[str, FairShare]:
        found = fair_shares(cap, rows)
        return {name: attrs.evolve(one, whole=min(one.whole, rows[name].demand)) for name, one in found.items()}

    # No slot is lent in advance, and none is kept.
    monkeypatch.setattr("hivemind_trio.scheduler.sharing.node_law.fair_shares", by_demand)
    monkeypatch.setattr(NodeLaw, "others_wait", lambda self: True)
    assert waits(ran(NodesSpec(count=2), few)) > 0.5
