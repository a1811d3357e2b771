"""Leases: order, shares, fencing tokens, ends and reloads, on a clock that is an argument."""

from __future__ import annotations

import pytest

from hivemind_trio.scheduler import LeaseEnd, LeaseRefusal

from .desk import Desk, S

TEAMS = """
team red { weight 3 }
team blue { weight 1 }
agent r1 { token env(R1); team red }
agent r2 { token env(R2); team red }
agent b { token env(B); team blue }
agent solo { token env(SOLO); weight 2 }
resource gpu { queue 1k; lease 1h }
"""


def test_a_free_resource_is_leased_at_once_and_the_next_request_waits_for_its_release() -> None:
    desk = Desk("resource gpu { }")
    first, second = desk.ask(), desk.ask()

    assert desk.held() == [first]
    assert desk.in_line() == [second]

    desk.release(first)

    assert desk.held() == [second]
    assert desk.ended == [("gpu-1", LeaseEnd.RELEASED)]


def test_a_lease_ends_at_its_time_and_a_renewed_one_later() -> None:
    desk = Desk("resource gpu { capacity 2; lease 10m }")
    kept, lost = desk.ask(), desk.ask()

    desk.pass_s(400)
    desk.renew(kept)
    desk.pass_s(200)

    assert desk.held() == [kept]
    assert desk.ended == [(desk.leases[lost].id, LeaseEnd.EXPIRED)]
    desk.pass_s(399)
    assert desk.held() == [kept]
    desk.pass_s(1)
    assert desk.held() == []


def test_no_renewal_passes_the_bound_on_the_whole_lease() -> None:
    desk = Desk("resource gpu { lease 10m max 25m }")
    only = desk.ask()

    for _ in range(9):
        desk.pass_s(180)
        desk.renew(only)

    assert desk.held() == []
    assert desk.leases[only].expires_ns == 25 * 60 * S


@pytest.mark.parametrize(("asked_s", "has_s"), [(None, 600), (30, 30), (3_600, 600)])
def test_a_request_may_ask_for_less_time_and_not_for_more(asked_s: float | None, has_s: int) -> None:
    desk = Desk("resource gpu { lease 10m }")
    only = desk.ask(ttl_s=asked_s)
    assert desk.leases[only].expires_ns == has_s * S
    desk.pass_s(10)
    desk.renew(only)

    assert desk.leases[only].expires_ns == (10 + has_s) * S


def test_a_higher_priority_goes_first_and_takes_nothing_away() -> None:
    desk = Desk(TEAMS)
    holder, low, high = desk.ask("r1"), desk.ask("b", priority=1), desk.ask("r1", priority=5)

    assert desk.held() == [holder]
    assert desk.in_line() == [high, low]


def test_teams_share_the_time_of_leases_by_weight_and_their_agents_share_within() -> None:
    desk = Desk(TEAMS)
    for _ in range(100):
        for agent in ("r1", "r2", "b"):
            desk.ask(agent)
    who = {1 + place: ("r1", "r2", "b")[place % 3] for place in range(300)}
    held_s = dict.fromkeys(("r1", "r2", "b"), 0.0)
    # Leases of `b` are four times as long: time is shared, not turns.
    while len(desk.order) < 120:
        (holder,) = desk.held()
        seconds = 40.0 if who[holder] == "b" else 10.0
        held_s[who[holder]] += seconds
        desk.pass_s(seconds)
        desk.release(holder)

    red = held_s["r1"] + held_s["r2"]
    assert 2.5 < red / held_s["b"] < 3.5
    assert abs(held_s["r1"] - held_s["r2"]) <= 20


def test_an_agent_without_a_team_is_a_team_of_its_own_with_its_weight() -> None:
    desk = Desk(TEAMS)
    who: dict[int, str] = {}
    for _ in range(60):
        for agent in ("solo", "b"):
            who[desk.ask(agent)] = agent
    for _ in range(60):
        (holder,) = desk.held()
        desk.pass_s(10)
        desk.release(holder)
    served = [who[number] for number in desk.order[:60]]

    assert served.count("solo") == 40


def test_idleness_earns_no_claim() -> None:
    desk = Desk(TEAMS)
    for _ in range(30):
        busy = desk.ask("b")
        desk.pass_s(100)
        desk.release(busy)
    both = [desk.ask(agent) for _ in range(8) for agent in ("b", "solo")]
    for _ in both:
        (holder,) = desk.held()
        desk.pass_s(10)
        desk.release(holder)

    # `solo` has weight 2: at most two turns for one, and not all of its turns first.
    solo = [number % 2 == 0 for number in desk.order[30:42]]
    assert solo.count(True) <= 8
    assert not all(solo[:4])


def test_undeclared_callers_share_by_their_names() -> None:
    desk = Desk("resource gpu { lease 1m }")
    first = desk.ask(caller="a")
    many = [desk.ask(caller="a") for _ in range(3)]
    other = desk.ask(caller="b")

    assert desk.in_line() == [other, *many]
    desk.pass_s(10)
    desk.release(first)
    assert desk.held() == [other]


def test_a_full_queue_refuses_and_a_request_that_is_served_at_once_needs_no_queue() -> None:
    desk = Desk("resource gpu { queue 1 }\nresource port { queue 0 }")
    desk.ask()
    waits, refused = desk.ask(), desk.ask()
    served, none = desk.ask(resource="port"), desk.ask(resource="port")

    assert desk.in_line() == [waits]
    assert desk.held("port") == [served]
    assert desk.refused == {refused: LeaseRefusal.QUEUE_FULL, none: LeaseRefusal.QUEUE_FULL}


def test_only_agents_of_allow_may_ask() -> None:
    desk = Desk("agent a { token env(A) }\nagent b { token env(B) }\nresource gpu { capacity 9; allow a }")
    good = desk.ask("a")
    bad = [desk.ask("b"), desk.ask(caller="a")]

    assert desk.held() == [good]
    assert desk.refused == dict.fromkeys(bad, LeaseRefusal.NOT_ALLOWED)


def test_an_unknown_resource_is_refused() -> None:
    desk = Desk("resource gpu { }")
    only = desk.ask(resource="gpus")

    assert desk.refused == {only: LeaseRefusal.NO_SUCH_RESOURCE}


def test_a_request_that_is_withdrawn_gets_nothing() -> None:
    desk = Desk("resource gpu { }")
    first, gone, last = desk.ask(), desk.ask(), desk.ask()
    desk.withdraw(gone)
    desk.release(first)

    assert desk.held() == [last]


def test_what_ends_twice_ends_once() -> None:
    desk = Desk("resource gpu { lease 1m }")
    only = desk.ask()
    desk.pass_s(60)
    desk.release(only)
    desk.renew(only)

    assert desk.ended == [("gpu-1", LeaseEnd.EXPIRED)]
    assert desk.held() == []


# ---- reloads and restarts ----


def test_a_lower_capacity_ends_nothing_and_begins_nothing_before_there_is_room() -> None:
    desk = Desk("resource gpu { capacity 3 }")
    a, b, c, d = (desk.ask() for _ in range(4))
    desk.load("resource gpu { capacity 1 }")

    assert desk.held() == [a, b, c]
    desk.release(a)
    desk.release(b)
    assert desk.held() == [c]
    desk.release(c)
    assert desk.held() == [d]


def test_a_higher_capacity_serves_those_that_wait() -> None:
    desk = Desk("resource gpu { capacity 1 }")
    a, b, c = (desk.ask() for _ in range(3))
    desk.load("resource gpu { capacity 2 }")

    assert desk.held() == [a, b]
    assert desk.in_line() == [c]


def test_the_leases_of_a_removed_resource_run_out_and_its_requests_are_refused() -> None:
    desk = Desk("resource gpu { lease 10m }")
    holds, waits = desk.ask(), desk.ask()
    desk.pass_s(300)
    desk.load("")
    late = desk.ask()
    desk.renew(holds)

    assert desk.refused == {waits: LeaseRefusal.REMOVED, late: LeaseRefusal.NO_SUCH_RESOURCE}
    assert desk.held() == [holds]
    desk.pass_s(300)
    assert desk.held() == []
    desk.load("resource gpu { }")
    again = desk.ask()
    assert desk.leases[again].fence == 2


def test_the_leases_of_a_removed_agent_stay_and_its_requests_are_refused() -> None:
    desk = Desk("agent a { token env(A) }\nresource gpu { }")
    holds, waits = desk.ask("a"), desk.ask("a")
    desk.load("resource gpu { }")

    assert desk.held() == [holds]
    assert desk.refused == {waits: LeaseRefusal.NOT_ALLOWED}


def test_a_rename_carries_leases_requests_and_fencing_tokens() -> None:
    desk = Desk("agent a { token env(A) }\nresource gpu { allow a }")
    for _ in range(3):
        desk.release(desk.ask("a"))
    holds, waits = desk.ask("a"), desk.ask("a")
    desk.load("agent b was a { token env(A) }\nresource card was gpu { allow b }")

    assert desk.held("card") == [holds]
    assert desk.leases[holds].agent == "b"
    assert desk.in_line("card") == [waits]
    desk.release(holds)
    assert desk.leases[waits].fence == 5
    assert desk.leases[waits].id == "card-5"
    desk.load("agent b { token env(A) }\nresource card { allow b }\nresource gpu { }")
    assert desk.leases[desk.ask("b")].fence == 5  # never below what the name had before


def test_a_restart_keeps_leases_and_goes_on_counting() -> None:
    desk = Desk("resource gpu { lease 10m }\nresource port { }")
    holds, other = desk.ask(), desk.ask(resource="port")
    desk.release(other)
    desk.restart("resource gpu { lease 10m }\nresource port { }")
    waits = desk.ask()

    assert desk.held() == [holds]
    assert desk.in_line() == [waits]
    assert desk.leases[desk.ask(resource="port")].fence == 2
    desk.pass_s(600)
    assert desk.leases[waits].fence == 2
