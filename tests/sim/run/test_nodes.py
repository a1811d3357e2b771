"""Several nodes in virtual time: one limit and one circuit of a provider, whatever becomes of nodes and store."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import pytest

from hivemind_trio.scheduler.learning.learn_record import LearnRecord
from hivemind_trio.scheduler.learning.lesson import LearnAnswer, LearnAsk
from hivemind_trio.scheduler.learning.pool_learning import LearningRole, PoolLearning
from hivemind_trio.scheduler.sharing.node_shares import NodeShares, Usable
from hivemind_trio.scheduler.sharing.share_row import RowNotice
from hivemind_trio.sim import Amount, NodesSpec, Provider, Scenario, Storm, TimeSpan, Traits, Weather, World
from tests.sim.worlds import MS, SECOND, fleet, one_provider, scenario

TAKES = 20
BUSY = Traits(concurrency=TAKES, latency_mean_ns=2_000 * MS, latency_sigma_ns=500 * MS, latency_min_ns=500 * MS)


def busy(agents: int = 100, turns: int = 6, traits: Traits = BUSY) -> Scenario:
    return scenario(fleet(agents, turns, think_ns=Amount(200 * MS)), traits=traits)


def ran(spec: NodesSpec | None, of: Scenario, limit: str = "4..64", seed: int = 7) -> World:
    world = World(one_provider(f"concurrency {limit}"), of, seed=seed, nodes=spec)
    world.run()
    return world


def refused(world: World) -> float:
    """Return the share of attempts that the provider refused."""
    figures = world.figures()
    return figures.attempts_wasted / figures.attempts


def test_one_node_that_shares_decides_as_one_that_does_not() -> None:
    of = busy(40, 3)
    alone = World(one_provider("concurrency 8"), of, seed=7)
    shared = World(one_provider("concurrency 8"), of, seed=7, nodes=NodesSpec(count=1))
    one, other = alone.run(), shared.run()

    assert (one.turns_done, one.attempts) == (other.turns_done, other.attempts) == (120, 120)
    # The first call waits for the first answer of the store.
    assert abs(one.makespan_ns - other.makespan_ns) < 0.05 * one.makespan_ns


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2, 4, 16])
def test_nodes_find_together_what_the_provider_takes(nodes: int) -> None:
    world = ran(NodesSpec(count=nodes), busy())
    figures = world.figures()

    assert refused(world) <= 0.08
    assert figures.turns_done >= 0.99 * 600
    # The time of one node alone that knows the limit.
    ideal = ran(None, busy(), f"{TAKES}").figures()
    assert figures.makespan_ns <= 2 * ideal.makespan_ns


def test_simulated_nodes_are_told_what_others_report(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    def heard(self: NodeShares, notice: RowNotice) -> bool:
        told.append((self.node, notice.node))
        return False

    monkeypatch.setattr(NodeShares, "told", heard)
    world = ran(NodesSpec(count=3), busy(20, 3), f"{TAKES}")

    assert world.fleet is not None
    names = {node.name for node in world.fleet.nodes}
    assert {one for one, _ in told} == names == {other for _, other in told}
    assert all(one != other for one, other in told)


def test_a_simulated_node_uses_slots_that_it_is_given_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(one_provider(f"concurrency {TAKES}"), busy(60, 2), seed=7, nodes=NodesSpec(count=3))
    hears, looks, given, looked = NodeShares.told, NodeShares.usable, [], []

    def told(self: NodeShares, notice: RowNotice) -> bool:
        before = self.laws[notice.pool].share
        says = hears(self, notice)
        if self.laws[notice.pool].share > before:
            assert world.fleet is not None
            given.append((self.node, world.fleet.agenda.now_ns))
        return says

    def usable(self: NodeShares, now_ns: int, demand: Mapping[str, tuple[int, int]]) -> Usable | None:
        looked.append((self.node, now_ns))
        return looks(self, now_ns, demand)

    monkeypatch.setattr(NodeShares, "told", told)
    monkeypatch.setattr(NodeShares, "usable", usable)
    world.run()

    assert len(given) > 10
    assert set(given) <= set(looked)


@pytest.mark.slow
@pytest.mark.parametrize(("agents", "most"), [(5, 2.0), (20, 0.6), (60, 1.2)])
def test_nodes_ask_the_store_little_more_than_once_a_call(agents: int, most: float) -> None:
    world = ran(NodesSpec(count=4), busy(agents, 12), f"{TAKES}")
    figures, asked = world.figures(), world.fleet.figures().operations if world.fleet is not None else {}

    assert "spend" not in asked  # the policy has no budget
    assert sum(asked.values()) <= most * figures.attempts
    assert refused(world) == 0


@pytest.mark.slow
def test_planted_each_node_learns_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = PoolLearning.answered

    def alone(self: PoolLearning, answer: LearnAnswer) -> LearnAsk | None:
        answered(self, answer)
        self.role = LearningRole.ALONE
        return None

    monkeypatch.setattr(PoolLearning, "answered", alone)
    monkeypatch.setattr(LearnRecord, "limit", None)
    assert refused(ran(NodesSpec(count=16), busy())) > 0.2


FROM, UNTIL = 20 * SECOND, 80 * SECOND
DARK = attrs.evolve(BUSY, storms=(Storm(from_ns=FROM, to_ns=UNTIL, share=1.0, weather=Weather.OUTAGE),))


def probes(monkeypatch: pytest.MonkeyPatch, spec: NodesSpec | None) -> int:
    """Return how many attempts reached the provider in an outage, once every node could know of it."""
    met: list[int] = []
    arrive: Callable[..., object] = Provider.arrive

    def counted(self: Provider, ask: object, now_ns: int) -> object:
        if FROM + 10 * SECOND < now_ns < UNTIL:
            met.append(now_ns)
        return arrive(self, ask, now_ns)

    with monkeypatch.context() as patch:
        patch.setattr(Provider, "arrive", counted)
        ran(spec, busy(60, 6, DARK), "16")
    return len(met)


@pytest.mark.slow
def test_I11_one_probe_of_all_nodes_looks_for_the_end_of_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    one, eight = probes(monkeypatch, None), probes(monkeypatch, NodesSpec(count=8))
    assert 0 < eight <= 2 * one

    def each(self: LearnRecord, ask: LearnAsk, now_ms: int) -> bool:
        return ask.wants_probe

    with monkeypatch.context() as planted:
        planted.setattr(LearnRecord, "_may_probe", each)
        assert probes(monkeypatch, NodesSpec(count=8)) > 2 * one


@pytest.mark.slow
def test_another_node_leads_when_the_one_that_led_is_killed() -> None:
    world = World(one_provider("concurrency 4..64"), busy(), seed=7, nodes=NodesSpec(count=4))
    assert world.fleet is not None
    fleet_of = world.fleet
    killed: list[str] = []

    def kill() -> None:
        record = fleet_of.store.model.learned["anthropic"]
        killed.append(record.leader)
        next(node for node in fleet_of.nodes if node.name == record.leader).kill()

    world.at(30 * SECOND, kill)
    world.run()
    record = fleet_of.store.model.learned["anthropic"]

    assert record.leader not in killed
    assert record.verdict is not None
    assert TAKES / 2 <= record.verdict.limit <= 1.5 * TAKES
    assert refused(world) <= 0.08


@pytest.mark.slow
def test_a_node_learns_for_itself_while_the_store_is_away() -> None:
    away = TimeSpan(since_ns=20 * SECOND, until_ns=60 * SECOND)
    world = World(
        one_provider("concurrency 4..64", rest='store redis { url "redis://127.0.0.1:1"; lease 10s renew 1s gone 4s }'),
        busy(60, 12, attrs.evolve(BUSY, outages=())),
        seed=7,
        nodes=NodesSpec(count=4, away=(away,)),
    )
    assert world.fleet is not None
    roles: list[set[LearningRole]] = []
    links = [node.route.scheduler.state.pools["anthropic"].health.shared for node in world.fleet.nodes]
    for at_s in (10, 40, 75):
        world.at(at_s * SECOND, lambda: roles.append({link.link.role for link in links if link is not None}))
    figures = world.run()

    assert roles == [
        {LearningRole.LEADS, LearningRole.FOLLOWS},
        {LearningRole.ALONE},
        {LearningRole.LEADS, LearningRole.FOLLOWS},
    ]
    assert figures.turns_done >= 0.98 * 720
    assert refused(world) <= 0.08
