"""Events of operators: pauses and priorities. What they hold back goes on when they let it, and nothing else waits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Api, Outcome, Reason, Request
from hivemind_trio.policy import Program, Renames
from hivemind_trio.scheduler import (
    AttemptResult,
    CallId,
    CallInFlight,
    Correction,
    CreditDrawn,
    Draw,
    LedgerOpened,
    LetThrough,
    Pausable,
    PauseSet,
    PrioritySet,
    QueuedCall,
    SpendingSet,
)
from hivemind_trio.scheduler.queueing.pauses import NAMES_MAX, PAST_MAX, Pauses
from tests.support.policies import compiled
from tests.support.programs import SECOND_NS, agent, lane, program, provider

from .driver import Driver

PROVIDER = 'provider p { api anthropic; base "http://127.0.0.1:1"; key env(K) }\n'
PROVIDERS, LANES, AGENTS = ("p", "q"), ("fast", "slow"), ("ci", "dev")


LIMITS = {"p": 3, "q": 2}
ALL = [
    *((Pausable.PROVIDER, name) for name in PROVIDERS),
    *((Pausable.LANE, name) for name in LANES),
    *((Pausable.AGENT, name) for name in AGENTS),
]


def house() -> Program:
    return program(
        providers=[provider(name, limit=limit) for name, limit in LIMITS.items()],
        lanes=[lane("fast", reserve=1), lane("slow")],
        agents=[agent("ci", concurrency=1), agent("dev")],
    )


def pause(driver: Driver, kind: Pausable, name: str, *, paused: bool = True) -> None:
    driver.post(PauseSet(kind, name, paused))


def reasons(driver: Driver) -> list[Reason]:
    return [call.reason for call in driver.scheduler.occupancy(driver.now_ns).waiting]


TARGETS = [(Pausable.PROVIDER, "p"), (Pausable.LANE, "slow"), (Pausable.AGENT, "dev"), (Pausable.AGENT, "x")]


@pytest.mark.parametrize(("kind", "name"), TARGETS)
def test_what_is_paused_waits_until_it_is_resumed(kind: Pausable, name: str) -> None:
    driver = Driver(house())
    wishes: dict[str, Any] = {"agent": "unknown" if name == "x" else "dev", "provider": "p", "lane": "slow"}
    running = driver.call("x", **wishes)
    pause(driver, kind, name)
    held = driver.call("x", **wishes)
    other = driver.call("y", agent="ci", provider="q", lane="fast")

    assert driver.granted == [running, other]
    assert reasons(driver) == [Reason.PAUSED]
    assert driver.rest.paused == ((kind, name),)

    driver.end(running)
    assert held not in driver.granted

    pause(driver, kind, name, paused=False)
    assert driver.granted == [running, other, held]
    assert driver.grant(held).reason is Reason.PAUSED
    assert not driver.rest.paused


@pytest.mark.parametrize(("kind", "name"), TARGETS)
@pytest.mark.parametrize("paused_s", [9, 1])
def test_a_call_has_waited_for_a_pause_that_was_the_longer_part(kind: Pausable, name: str, paused_s: int) -> None:
    driver = Driver(house())
    wishes: dict[str, Any] = {"agent": "unknown" if name == "x" else "dev", "provider": "p", "lane": "slow"}
    running = driver.calls(3, provider="p", lane="fast")
    held = driver.call("x", **wishes)
    driver.at((10 - paused_s) * SECOND_NS)
    pause(driver, kind, name)
    assert reasons(driver) == [Reason.PAUSED]
    later = driver.call("z", provider="p", lane="fast", agent="ci")
    driver.end(running[0])
    driver.at(10 * SECOND_NS)
    pause(driver, kind, name, paused=False)
    for one in (*running[1:], later):
        if one in driver.granted:
            driver.end(one)

    others = (Reason.TURN, Reason.PROVIDER_CONCURRENCY)
    assert driver.grant(held).reason in ((Reason.PAUSED,) if paused_s > 5 else others)


def test_a_call_that_arrived_in_a_short_pause_has_waited_for_its_slot() -> None:
    driver = Driver(house())
    running = driver.calls(2, provider="q", lane="fast", agent="dev")
    pause(driver, Pausable.PROVIDER, "q")
    held = driver.call(provider="q", lane="slow")
    driver.at(SECOND_NS)
    pause(driver, Pausable.PROVIDER, "q", paused=False)
    driver.at(9 * SECOND_NS)
    for one in running:
        driver.end(one)

    assert driver.grant(held).reason is Reason.PROVIDER_CONCURRENCY


def test_the_time_of_a_pause_counts_once_whatever_was_paused_and_under_its_new_name() -> None:
    pauses = Pauses()
    lane, agent = (Pausable.LANE, "old"), (Pausable.AGENT, "ci")
    pauses.begin(lane, 10)
    pauses.begin(lane, 12)  # it is paused already
    pauses.begin(agent, 15)
    pauses.end(lane, 20)
    pauses.end(lane, 21)
    before = compiled(PROVIDER + "lane old { weight 2 }")
    pauses.rename(Renames.between(before, compiled(PROVIDER + "lane new was old { weight 2 }")))
    both = [(Pausable.LANE, "new"), agent]

    assert pauses.length_ns(both, 0, 30) == 20
    assert [pauses.length_ns(both, *span) for span in ((0, 12), (12, 18), (18, 25))] == [2, 6, 7]
    assert pauses.length_ns([lane], 0, 30) == 0
    assert pauses.of_now() == (agent,)


def test_no_more_pauses_are_kept_than_are_needed() -> None:
    pauses = Pauses()
    for number in range(NAMES_MAX + 9):
        pauses.begin((Pausable.AGENT, f"agent-{number}"), number)
        pauses.end((Pausable.AGENT, f"agent-{number}"), number + 1)
    for number in range(1_000, 1_000 + PAST_MAX + 9):
        pauses.begin((Pausable.LANE, "slow"), number * 2)
        pauses.end((Pausable.LANE, "slow"), number * 2 + 1)

    assert pauses.length_ns([(Pausable.AGENT, "agent-0")], 0, 10**9) == 0
    assert pauses.length_ns([(Pausable.AGENT, f"agent-{NAMES_MAX}")], 0, 10**9) == 1
    assert pauses.length_ns([(Pausable.LANE, "slow")], 0, 10**9) == PAST_MAX


@pytest.mark.parametrize(("kind", "name"), TARGETS[:3])
def test_a_pause_outlives_a_reload_and_the_last_call_of_an_agent(kind: Pausable, name: str) -> None:
    driver = Driver(house())
    wishes: dict[str, Any] = {"agent": "dev", "provider": "p", "lane": "slow"}
    pause(driver, kind, name)
    gone = driver.call(**wishes)
    driver.cancel(gone)
    driver.load(house())
    held = driver.call(**wishes)
    driver.load(house())

    assert driver.granted == []
    pause(driver, kind, name, paused=False)
    assert driver.granted == [held]


def test_a_pause_outlives_the_absence_of_its_provider() -> None:
    driver = Driver(house())
    pause(driver, Pausable.PROVIDER, "p")
    driver.load(program(providers=[provider("q")]))
    driver.load(house())
    held = driver.call(provider="p", lane="slow")

    assert driver.granted == []
    pause(driver, Pausable.PROVIDER, "p", paused=False)
    assert driver.granted == [held]


def test_what_a_paused_lane_has_in_reserve_is_free_for_others() -> None:
    driver = Driver(house())
    first, second, third = driver.calls(3, provider="p", lane="slow")
    assert driver.granted == [first, second]

    pause(driver, Pausable.LANE, "fast")
    assert driver.granted == [first, second, third]


def test_a_call_goes_before_others_by_the_priority_of_an_operator_and_keeps_it_over_a_reload() -> None:
    driver = Driver(house())
    running = driver.call(provider="q", lane="slow")
    first, second, third = (driver.call(str(number), provider="q", lane="slow") for number in range(3))
    driver.post(PrioritySet(CallId(third), 5))
    driver.load(house())

    assert driver.end(running) == [third]
    decision = driver.grant(third).treatment
    assert decision.priority == 5
    assert str(decision.decided["priority"]) == "operator"
    assert driver.end(third) == [first]
    driver.post(PrioritySet(CallId(third), 9))  # it is in flight, or gone
    assert driver.end(first) == [second]


@pytest.mark.parametrize("window", ["calendar", "sliding"])
@pytest.mark.parametrize("kept", [False, True])
def test_a_budget_that_is_reset_lets_calls_go_and_the_ledger_is_told(window: str, kept: bool) -> None:
    driver = budgeted(f"budget b {{ requests 2/hour; window {window}; at 100% {{ hold }} }}", kept=kept)
    for _ in range(2):
        driver.end(ask(driver))
        driver.now_ns += SECOND_NS
    held = ask(driver)
    (account,) = driver.scheduler.accounts(driver.now_ns)
    assert (account.spent, account.held, held in driver.granted) == (2, 1, False)

    commands = driver.post(SpendingSet(account.key, 0))
    (account,) = driver.scheduler.accounts(driver.now_ns)
    assert (account.spent, account.held, held in driver.granted) == (0, 0, True)
    corrections = [one for one in commands if isinstance(one, Correction)]
    assert [sum(change for _, change in one.changes) for one in corrections] == ([-2] if kept else [])

    driver.post(SpendingSet(account.key, 7))
    (account,) = driver.scheduler.accounts(driver.now_ns)
    assert account.spent == 7
    driver.post(SpendingSet(account.key._replace(whose="nobody"), 0))


@given(
    st.sampled_from(["calendar", "sliding"]),
    st.lists(st.tuples(st.integers(0, 900), st.one_of(st.none(), st.integers(0, 20))), max_size=20),
)
def test_changes_that_the_ledger_is_told_add_up_to_what_counts(
    window: str, story: list[tuple[int, int | None]]
) -> None:
    driver = budgeted(f"budget b {{ requests 1000/hour; window {window} }}", kept=True)
    driver.end(ask(driver))
    (account,) = driver.scheduler.accounts(driver.now_ns)
    for pause_s, spent in story:
        driver.now_ns += pause_s * SECOND_NS
        driver.at(driver.now_ns)
        (before,) = driver.scheduler.accounts(driver.now_ns)
        if spent is None:
            driver.end(ask(driver))
            continue
        (correction,) = (one for one in driver.post(SpendingSet(account.key, spent)) if isinstance(one, Correction))
        assert before.spent + sum(change for _, change in correction.changes) == spent
        assert all(0 <= age_ns <= 3_600 * SECOND_NS for age_ns, _ in correction.changes)
        (after,) = driver.scheduler.accounts(driver.now_ns)
        assert after.spent == spent


def budgeted(text: str, *, kept: bool) -> Driver:
    driver = Driver(compiled(f'provider sim {{ api generic; base "http://127.0.0.1:9"; concurrency 1 }}\n{text}\n'))
    if kept:
        driver.post(LedgerOpened(()))
    return driver


def ask(driver: Driver) -> int:
    call = driver.ask(Request(apis=(Api.GENERIC,), model="m"))
    for command in driver.last:
        if isinstance(command, Draw):
            driver.post(CreditDrawn(command.account, command.amount))
    return call


events = st.one_of(
    st.tuples(st.just("call"), st.sampled_from(AGENTS), st.sampled_from(PROVIDERS), st.sampled_from(LANES)),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("load")),
    st.tuples(st.just("pause"), st.sampled_from(ALL), st.booleans()),
    st.tuples(st.just("priority"), st.integers(0, 9), st.integers(-3, 3)),
    st.tuples(st.just("let"), st.integers(0, 9)),
)  # fmt: skip


def name_of(call: QueuedCall | CallInFlight, kind: Pausable) -> str | None:
    decision = call.decision
    return {Pausable.PROVIDER: decision.provider, Pausable.LANE: decision.lane, Pausable.AGENT: decision.agent}[kind]


@given(st.lists(events, max_size=60))
def test_nothing_begins_while_it_is_paused_and_nothing_else_is_held_back(story: list[Any]) -> None:
    driver = Driver(house())
    paused: set[tuple[Pausable, str]] = set()
    let: set[CallId] = set()
    for what, *values in story:
        view = driver.scheduler.occupancy(driver.now_ns)
        before = {call.call_id for call in view.inflight}
        match what:
            case "call":
                driver.call(agent=values[0], provider=values[1], lane=values[2])
            case "end" if view.inflight:
                driver.end(view.inflight[values[0] % len(view.inflight)].call_id)
            case "cancel" if view.waiting:
                driver.cancel(view.waiting[values[0] % len(view.waiting)].call_id)
            case "load":
                driver.load(house())
            case "pause":
                (paused.add if values[1] else paused.discard)(values[0])
                pause(driver, *values[0], paused=values[1])
            case "priority" if view.waiting:
                driver.post(PrioritySet(view.waiting[values[0] % len(view.waiting)].call_id, values[1]))
            case "let" if view.waiting:
                let.add(call_id := view.waiting[values[0] % len(view.waiting)].call_id)
                driver.post(LetThrough(call_id))
        view = driver.scheduler.occupancy(driver.now_ns)
        begun = [call for call in view.inflight if call.call_id not in before]
        assert not [call for call in begun if any((kind, name_of(call, kind)) in paused for kind in Pausable)]
        held = Counter(name_of(call, kind) for call in view.inflight for kind in Pausable)
        _nobody_waits_in_vain(view.waiting, held, paused)
        assert all(held[name] <= limit for name, limit in LIMITS.items())
        for call in begun:
            permit = driver.grant(call.call_id).permit
            assert permit is not None
            assert call.call_id in let if permit.beyond else held["ci"] <= 1 or call.decision.agent != "ci"
        for queued in view.waiting:
            is_paused = any((kind, name_of(queued, kind)) in paused for kind in Pausable)
            full = held[queued.decision.provider] >= LIMITS[queued.decision.provider or ""]
            assert queued.call_id not in let or is_paused or full

    for kind, name in paused:
        pause(driver, kind, name, paused=False)
    while driver.scheduler.occupancy(0).inflight:
        driver.end(driver.scheduler.occupancy(0).inflight[0].call_id)
    assert driver.rest.waiting == 0


def _nobody_waits_in_vain(
    waiting: tuple[QueuedCall, ...], held: Counter[str | None], paused: set[tuple[Pausable, str]]
) -> None:
    for call in waiting:
        is_paused = any((kind, name_of(call, kind)) in paused for kind in Pausable)
        limit = LIMITS[call.decision.provider or ""]
        agent_full = call.decision.agent == "ci" and held["ci"] >= 1
        reserved = 1 if call.decision.lane == "slow" and (Pausable.LANE, "fast") not in paused else 0
        assert is_paused or agent_full or held[call.decision.provider] >= limit - reserved, call


# ---- let through ----


def limited(rest: str = "", lanes: str = "lane default { max 1 }") -> Driver:
    return Driver(compiled(f"provider anthropic {{ key env(K); concurrency 3; {rest} }}\n{lanes}\n"))


def lets(driver: Driver, call_id: int) -> list[int]:
    """Let a call through, and return the calls that it leads to be granted."""
    before = len(driver.granted)
    driver.post(LetThrough(CallId(call_id)))
    return driver.granted[before:]


def api(driver: Driver, caller: str, **more: Any) -> int:
    return driver.ask(Request(apis=(Api.ANTHROPIC,), model="claude-x", **more), caller)


@pytest.mark.parametrize(
    ("lanes", "wishes"),
    [
        ("lane default { max 1 }", {}),
        ("lane default { }\nlane people { reserve 2 }\nagent dev { token env(D); lane people }", {}),
        ("agent ci { token env(T); concurrency 1 }", {"token_agent": "ci"}),
        ("agent ci { token env(T); limits { requests 1/min } }", {"token_agent": "ci"}),
    ],
    ids=["lane-max", "lane-reserve", "agent-concurrency", "agent-limit"],
)
def test_a_call_is_let_through_past_the_limits_of_lanes_and_agents(lanes: str, wishes: dict[str, Any]) -> None:
    driver = limited(lanes=lanes)
    first, second, third = (api(driver, "x", **wishes) for _ in range(3))
    assert driver.granted == [first]

    assert lets(driver, third) == [third]
    grant = driver.grant(third)
    assert grant.permit is not None
    assert grant.permit.beyond
    assert str(grant.treatment.decided["let-through"]) == "operator"
    assert lets(driver, third) == []  # it is in flight
    driver.end(third)
    assert second not in driver.granted or "agent" not in lanes
    driver.now_ns += 120 * SECOND_NS
    driver.at(driver.now_ns)
    driver.end(first)
    assert second in driver.granted
    driver.end(second)
    assert driver.rest.inflight == 0


def test_what_is_beyond_a_limit_drains_before_others_go() -> None:
    driver = limited()
    first, second, third = (api(driver, str(number)) for number in range(3))
    lets(driver, second)

    assert driver.end(first) == []
    assert driver.end(second) == [third]
    driver.end(third)
    assert driver.rest.inflight == 0


def test_a_call_that_is_let_through_is_next_where_its_provider_is_full() -> None:
    driver = limited(lanes="lane default { }")
    running = [api(driver, "x") for _ in range(3)]
    first, second = api(driver, "y"), api(driver, "z")

    assert lets(driver, second) == []
    assert driver.end(running[0]) == [second]
    assert driver.end(running[1]) == [first]


def test_a_rate_limit_of_the_provider_holds_and_the_call_goes_when_it_opens() -> None:
    driver = limited("limits { requests 1/min; window fixed }", lanes="lane default { max 1 }")
    first, second = api(driver, "x"), api(driver, "y")
    assert lets(driver, second) == []

    wake = driver.scheduler.wakeup_ns()
    assert wake is not None
    driver.at(wake)
    assert driver.granted == [first, second]


steps = st.one_of(
    st.tuples(st.just("call"), st.sampled_from(["claude-x", "claude-y"])),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("fail"), st.integers(0, 9)),
    st.tuples(st.just("let"), st.integers(0, 9)),
    st.tuples(st.just("time"), st.sampled_from([1, 7, 30])),
)


@given(st.lists(steps, max_size=60))
def test_no_limit_of_the_provider_is_passed_and_a_retry_waits_again(story: list[Any]) -> None:
    limits = 'limits { requests 6/min; window sliding }\nlimits "claude-x" { concurrency 1 }\nretry again'
    driver = limited(
        limits, lanes="lane default { max 1 }\nretry again { on [500]; attempts 9; backoff 1s..1s; ratio 100% }"
    )
    let: set[int] = set()
    starts: list[int] = []
    for what, value in story:
        before = len(driver.granted)
        view = driver.scheduler.occupancy(driver.now_ns)
        match what:
            case "call":
                driver.ask(Request(apis=(Api.ANTHROPIC,), model=value), f"caller-{len(driver.granted)}")
            case "end" if view.inflight:
                driver.end(view.inflight[value % len(view.inflight)].call_id)
            case "fail" if view.inflight:
                failed = AttemptResult(outcome=Outcome.FAILED, status=500)
                driver.end(view.inflight[value % len(view.inflight)].call_id, failed)
            case "let" if view.waiting:
                let.add(call_id := view.waiting[value % len(view.waiting)].call_id)
                driver.post(LetThrough(call_id))
            case "time":
                driver.now_ns += value * SECOND_NS
                driver.at(driver.now_ns)
        view = driver.scheduler.occupancy(driver.now_ns)
        permits = [driver.grant(call_id).permit for call_id in driver.granted[before:]]
        # The quota is of the models that have no block of their own.
        starts += [driver.now_ns for permit in permits if permit is not None and permit.group is None]
        assert len([one for one in starts if one > driver.now_ns - 60 * SECOND_NS]) <= 6
        assert len(view.inflight) <= 3
        assert [call.decision.group for call in view.inflight].count("claude-x") <= 1
        for permit in permits:
            assert permit is not None
            assert not permit.beyond or permit.call_id in let
            let.discard(permit.call_id)


@pytest.mark.parametrize("kind", [Pausable.PROVIDER, Pausable.LANE, Pausable.AGENT])
def test_a_pause_holds_a_call_that_is_let_through(kind: Pausable) -> None:
    driver = limited()
    name = {Pausable.PROVIDER: "anthropic", Pausable.LANE: "default", Pausable.AGENT: "y"}[kind]
    first = api(driver, "x")
    second = api(driver, "y")
    pause(driver, kind, name)

    assert lets(driver, second) == []
    pause(driver, kind, name, paused=False)
    assert driver.granted == [first, second]


def test_a_call_that_has_gone_is_forgotten() -> None:
    driver = limited(lanes="lane default { }")
    running = [api(driver, "x") for _ in range(3)]
    gone = api(driver, "y")
    lets(driver, gone)
    driver.cancel(gone)
    driver.end(running[0])

    assert driver.scheduler.state.let_through == {}
