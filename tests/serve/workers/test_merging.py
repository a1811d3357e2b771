"""Views of workers become one."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from hivemind_trio.admin.views import (
    AgentLimitView,
    BucketView,
    CallCounts,
    CircuitTurnView,
    ConcurrencyBeliefView,
    GateView,
    JournalBehindView,
    LaneView,
    LaneWaitView,
    NodeShareView,
    NodeState,
    NodeView,
    NoticeView,
    PausedView,
    PauseView,
    PolicyView,
    ProviderDetailView,
    ProviderModelView,
    ProviderView,
    SessionsView,
    SessionView,
    StartView,
    StatusView,
)
from hivemind_trio.serve.workers import merging
from tests.support.policies import compiled

PROGRAM = compiled('provider sim { api anthropic; base "http://127.0.0.1:1"; key env(K); concurrency 2..8 }\n')
PROVIDER = ProviderView(
    name="sim", inflight=1, limit=4, learned=True, waiting=2, circuit="closed", probe_at=None, limits=(), plans=()
)
BUCKET = BucketView(measure="requests", window_s=60.0, kind="learn", limit=100, used=30, foreign=5, declared=True)
GATE = GateView(
    group=None, model="haiku", inflight=1, holds_until_at=None, believed=True, rate_per_s=2.5, allowed=None,
    probes_refused=0, evidence_age_s=4.0, limits=(BUCKET,),
)  # fmt: skip
MODEL = ProviderModelView(
    model="haiku", inflight=1, attempts=4, refused=1, failed=0, tokens_in=10, cached=2, tokens_out=3, begun=3,
    first_byte_s=1.0,
)  # fmt: skip
DETAIL = ProviderDetailView(
    provider=PROVIDER,
    concurrency=ConcurrencyBeliefView(accepts=4, accepts_until_at="2026-01-01T00:00:09.000Z", stays_until_at=None),
    gates=(GATE,),
    circuit=(CircuitTurnView(at="2026-01-01T00:00:05.000Z", circuit="open", because="failed"),),
    models=(MODEL,),
)


def status(**other: Any) -> StatusView:
    view = StatusView(
        version="0", pid=1, address="", policy=PolicyView(path="", hash=""), journal=None, started_at=None,
        uptime_s=0.0, draining=False, waiting=2, inflight=1, cap=4, agents=1, held=1, oldest_wait_s=None,
        calls=CallCounts(ended=1, rejected=0, failed=0, left=0, per_min=1, unread=3), providers=(PROVIDER,), lanes=(),
        agent_limits=(), notices=(),
    )  # fmt: skip
    return attrs.evolve(view, **other)


def test_a_status_has_the_held_calls_and_the_fullest_agents_limits_of_all() -> None:
    ci = AgentLimitView(agent="ci", measure="requests", window_s=60.0, limit=10, used=3)
    bob = attrs.evolve(ci, agent="bob", used=9)
    merged = merging.status(
        [status(agent_limits=(ci,)), status(held=4, agent_limits=(attrs.evolve(ci, used=5), bob))], PROGRAM, 2
    )

    assert (merged.held, merged.waiting, merged.agents) == (5, 4, 2)
    assert [(one.agent, one.used) for one in merged.agent_limits] == [("bob", 9), ("ci", 5)]


def test_what_two_workers_say_of_one_subject_is_said_once_the_worst_first() -> None:
    refused, full = (
        NoticeView(kind=kind, subject=subject, text=kind, since_at=None)
        for kind, subject in (("policy", "team.hmp"), ("disk", "journal"))
    )
    merged = merging.status([status(notices=(full, refused)), status(notices=(refused, full))], PROGRAM, 0)

    assert merged.notices == (refused, full)


def test_the_journal_lacks_what_any_worker_has_not_written() -> None:
    lacks = JournalBehindView(unwritten=3, waits_s=2.0, left_out=1, error=None)
    more = attrs.evolve(lacks, unwritten=4, waits_s=9.0, error="disk full")

    assert merging.status([status(), status()], PROGRAM, 0).journal_behind is None
    assert merging.status([status(journal_behind=lacks), status()], PROGRAM, 0).journal_behind == lacks
    merged = merging.status([status(journal_behind=lacks), status(journal_behind=more)], PROGRAM, 0)
    assert merged.journal_behind == JournalBehindView(unwritten=7, waits_s=9.0, left_out=2, error="disk full")


def test_a_lane_has_what_the_calls_of_all_workers_wait_for() -> None:
    unknown = StartView(p50_at=None, p90_at=None)
    growth, retry = LaneWaitView(reason="growth", n=3), LaneWaitView(reason="retry", n=4)
    lane = LaneView(name="default", waiting=7, inflight=1, waits=(retry, growth), first=unknown, last=unknown)
    merged = merging.status(
        [status(lanes=(lane,)), status(lanes=(attrs.evolve(lane, waiting=3, waits=(growth,)),))], PROGRAM, 2
    )

    (found,) = merged.lanes
    assert found.waiting == 10
    assert found.waits == (attrs.evolve(growth, n=6), retry)


def test_a_provider_is_tried_when_the_first_worker_would_try_it() -> None:
    late = attrs.evolve(PROVIDER, circuit="open", probe_at="2026-01-01T00:00:09.000Z")
    early = attrs.evolve(PROVIDER, circuit="open", probe_at="2026-01-01T00:00:05.000Z")
    views = [status(providers=(one,)) for one in (PROVIDER, late, early)]

    (merged,) = merging.status(views, PROGRAM, 2).providers
    assert (merged.circuit, merged.probe_at) == ("open", early.probe_at)


def test_a_name_that_one_worker_knows_is_known() -> None:
    slip = PauseView(kind="agent", name="ci", waiting=0, known=False)
    merged = merging.paused([PausedView(paused=(slip,)), PausedView(paused=(attrs.evolve(slip, known=True),))])

    assert [(one.name, one.known) for one in merged.paused] == [("ci", True)]


def test_a_provider_has_the_models_of_all_workers_and_each_turn_of_a_circuit_its_worker() -> None:
    earlier = CircuitTurnView(at="2026-01-01T00:00:01.000Z", circuit="open", because="failed")
    other = attrs.evolve(
        DETAIL,
        circuit=(earlier,),
        models=(attrs.evolve(MODEL, attempts=2, begun=1, first_byte_s=5.0), attrs.evolve(MODEL, model="opus")),
    )
    merged = merging.provider({"worker-1": DETAIL, "worker-2": other}, PROGRAM)

    assert (merged.provider.inflight, merged.provider.limit) == (2, 8)
    assert [(one.worker, one.at) for one in merged.circuit] == [
        ("worker-2", earlier.at),
        ("worker-1", DETAIL.circuit[0].at),
    ]
    assert [(one.model, one.attempts, one.begun, one.first_byte_s) for one in merged.models] == [
        ("haiku", 6, 4, 2.0), ("opus", 4, 3, 1.0)
    ]  # fmt: skip


def test_of_a_gate_the_strictest_is_shown() -> None:
    held = attrs.evolve(
        GATE, holds_until_at="2026-01-01T00:00:09.000Z", believed=False, rate_per_s=0.5, evidence_age_s=1.0
    )
    free = attrs.evolve(
        DETAIL, concurrency=ConcurrencyBeliefView(accepts=None, accepts_until_at=None, stays_until_at=None)
    )
    (gate,) = merging.provider({"a": DETAIL, "b": attrs.evolve(free, gates=(held,))}, PROGRAM).gates
    both = merging.provider({"a": DETAIL, "b": DETAIL}, PROGRAM)
    one_free = merging.provider({"a": DETAIL, "b": free}, PROGRAM)

    assert (gate.holds_until_at, gate.believed, gate.rate_per_s, gate.evidence_age_s) == (
        held.holds_until_at,
        False,
        3.0,
        1.0,
    )
    assert [(one.used, one.foreign, one.limit) for one in gate.limits] == [(60, 0, 100)]
    assert both.concurrency is not None
    assert both.concurrency.accepts == 8
    assert one_free.concurrency is not None
    assert one_free.concurrency.accepts is None


@pytest.mark.parametrize(
    ("seen", "foreign"),
    [
        ([(30, 12)], 12),
        ([(30, 12), (30, 18)], 0),  # each has used what the other takes for foreign
        ([(50, 32), (50, 38)], 20),
        ([(50, 32), (12, 0)], 20),  # the second has heard of nobody yet
        ([(40, 30), (40, 30), (40, 30)], 10),
    ],
)
def test_workers_are_no_foreign_users_to_each_other(seen: list[tuple[int, int]], foreign: int) -> None:
    views = {
        f"worker-{number}": attrs.evolve(
            DETAIL, gates=(attrs.evolve(GATE, limits=(attrs.evolve(GATE.limits[0], used=used, foreign=others),)),)
        )
        for number, (used, others) in enumerate(seen)
    }
    (gate,) = merging.provider(views, PROGRAM).gates

    assert [one.foreign for one in gate.limits] == [foreign]


SESSION = SessionView(
    session="s",
    agent="ci",
    model="m",
    context=50,
    turns=1,
    growth=0,
    window=100,
    turns_left=None,
    cost=0.5,
    age_s=1.0,
    seen_at="2026-11-24T10:00:02.000Z",
)


def test_a_session_of_several_workers_is_as_the_last_of_them_knows_it() -> None:
    older = attrs.evolve(SESSION, context=90, seen_at="2026-11-24T10:00:01.000Z")
    larger = attrs.evolve(SESSION, session="t", context=60)
    unknown = attrs.evolve(SESSION, session="u", window=None, context=99)
    views = [SessionsView(sessions=(SESSION, unknown)), SessionsView(sessions=(older, larger))]

    assert merging.sessions(views, 9).sessions == (larger, SESSION, unknown)
    assert merging.sessions(views, 1).sessions == (larger,)


def node(name: str, inflight: int, seen_s: float | None, *, own: bool = False) -> NodeView:
    share = NodeShareView(provider="sim", share=4, inflight=inflight, waiting=0, leads=False)
    return NodeView(
        name=name, own=own, state=NodeState.ALIVE, seen_s=seen_s, policy="one", version="1", shares=(share,)
    )


def test_each_worker_tells_of_itself_and_the_last_to_hear_of_another_node_tells_of_that() -> None:
    first = [node("a", 1, 0.0, own=True), node("b", 2, 1.5), node("c", 3, 1.0)]
    second = [node("a", 4, 1.2), node("b", 5, 0.0, own=True), node("c", 6, 0.2)]

    found = merging.nodes([first, second])

    assert [(one.name, one.own, one.shares[0].inflight) for one in found] == [
        ("a", True, 1),
        ("b", True, 5),
        ("c", False, 6),
    ]
    assert merging.nodes([(), ()]) == ()
