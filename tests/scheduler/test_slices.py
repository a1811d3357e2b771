"""Calls that are decided again in slices: one event decides a few of them, and time that passes decides the next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Api, Reason, Request, Usage
from hivemind_trio.policy import Program
from hivemind_trio.scheduler import (
    AttemptResult,
    Call,
    CallArrived,
    CallId,
    Command,
    Draining,
    Event,
    Grant,
    LetThrough,
    Pausable,
    PauseSet,
    PlanChanged,
    PolicyLoaded,
    PrioritySet,
    Reject,
    ResponseStarted,
    Scheduler,
    TimePassed,
)
from hivemind_trio.scheduler.scheduler import SLICE
from tests.support.ends import SUCCEEDED
from tests.support.programs import SECOND_NS

from .driver import Driver
from .test_holds import BY_DAY, House, policy, read

CROWD = 2 * SLICE + 7
BY_PLAN = 'rule rest when model ~ "*opus*" and plan.session > 90% { hold "the rest is for people" }'


class Slices(House):
    """A house whose scheduler is told of time only by `turn`: what it decides in each turn of a loop is seen."""

    def post(self, event: Event) -> list[Command]:
        commands = self.scheduler.handle(event, self.now_ns)
        for command in commands:
            if isinstance(command, Grant | Reject):
                self.answers[command.call_id] = command
            if isinstance(command, Grant):
                self.granted.append(command.call_id)
        return commands

    def turn(self) -> list[Command]:
        assert self.scheduler.wakeup_ns() == self.now_ns, "it waits for time to pass"
        return self.post(TimePassed(self.moment()))

    def turns(self) -> list[int]:
        """Let time pass until nothing is left to decide; return how many calls were told something, turn by turn."""
        told = []
        while self.scheduler.wakeup_ns() == self.now_ns:
            told.append(len(self.turn()))
        return told


def crowd(rules: str, provider: str = "concurrency 1k", *, used: int = 95) -> tuple[Slices, int, list[int]]:
    house = Slices(policy(rules, provider))
    teller = house.arrive("claude-haiku-4-5")
    house.post(ResponseStarted(CallId(teller), (), plan=read(used)))
    held = [house.arrive() for _ in range(CROWD)]
    assert house.rest.held == CROWD
    return house, teller, held


def test_a_reading_of_the_plan_ends_many_holds_in_slices_and_in_order() -> None:
    house, teller, held = crowd(BY_PLAN)

    house.post(ResponseStarted(CallId(teller), (), plan=read(40)))

    assert house.granted == [teller, *held[:SLICE]]
    assert house.turns() == [SLICE, CROWD - 2 * SLICE]
    assert house.granted == [teller, *held]


def test_readings_that_come_meanwhile_begin_nothing_anew() -> None:
    house, teller, held = crowd(BY_PLAN)

    for used in (40, 41, 42):
        house.post(ResponseStarted(CallId(teller), (), plan=read(used)))

    assert house.granted == [teller, *held[:SLICE]]
    house.turns()
    assert house.granted == [teller, *held]


def test_a_reading_asks_only_about_calls_of_its_account() -> None:
    house = Slices(policy(BY_PLAN, "concurrency 9"))  # no key: everybody has a plan of their own
    tellers = [house.arrive("claude-haiku-4-5", credential=name) for name in ("a", "b")]
    for teller in tellers:
        house.post(ResponseStarted(CallId(teller), (), plan=read(95)))
    mine, other = (house.arrive(credential=name) for name in ("a", "b"))
    waiter = house.scheduler.state.room.waiters[CallId(other)]

    house.post(ResponseStarted(CallId(tellers[0]), (), plan=read(40)))

    assert house.granted == [*tellers, mine]
    assert house.scheduler.state.room.get(CallId(other)) is waiter, "it was not decided again"


def test_the_clock_ends_many_holds_in_slices() -> None:
    house = Slices(policy(BY_DAY, "concurrency 1k"))
    held = [house.arrive() for _ in range(CROWD)]

    house.now_ns = 3_600 * SECOND_NS
    assert len([one for one in house.post(TimePassed(house.moment())) if isinstance(one, Grant)]) == SLICE
    house.turns()

    assert house.granted == held


def test_a_held_call_that_gives_up_between_two_slices_is_not_missed() -> None:
    house, teller, held = crowd(BY_PLAN)
    house.post(ResponseStarted(CallId(teller), (), plan=read(40)))

    house.cancel(held[-1])
    house.turns()

    assert house.granted == [teller, *held[:-1]]
    assert house.rest.waiting == house.rest.held == 0


def test_a_budget_that_has_room_again_lets_many_in_by_slices() -> None:
    house = Slices(policy("budget all { tokens 1k/hour; at 100% { hold } }", "concurrency 1k"))

    def ask(tokens: int) -> int:
        return house.ask(Request(apis=(Api.ANTHROPIC,), model="claude-haiku-4-5", tokens_in=tokens, tokens_max_out=1))

    first = ask(999)
    house.end(first, AttemptResult(outcome=SUCCEEDED.outcome, usage=Usage(input=999, output=1)))
    held = [ask(1) for _ in range(CROWD)]
    assert house.granted == [first]
    wakeup_ns = house.scheduler.wakeup_ns()
    assert wakeup_ns is not None

    house.now_ns = wakeup_ns
    house.turns()

    assert house.granted == [first, *held]


def in_line(calls: int = CROWD) -> tuple[Slices, int, list[int]]:
    house = Slices(policy("", "concurrency 1"))
    running = house.arrive("claude-haiku-4-5")
    return house, running, [house.arrive("claude-haiku-4-5") for _ in range(calls)]


def test_a_reload_decides_in_slices_and_grants_when_all_are_decided() -> None:
    house, running, waiting = in_line()
    reversed_order = 'rule last when model == "claude-opus-4-1" { priority 9 }'

    house.load(policy(reversed_order, "concurrency 4"))
    late = house.arrive()
    assert house.granted == [running], "a call that is not decided yet might come first"
    assert house.rest.waiting == CROWD + 1
    house.end(running)
    house.turns()

    assert house.granted == [running, *waiting[:4]], "those who waited come before one that came meanwhile"
    house.end(waiting[0])
    assert house.granted[-1] == late, "its priority counts from then on"


def test_a_resumed_provider_grants_in_slices_and_in_order() -> None:
    house = Slices(policy("", "concurrency 1k"))
    house.post(PauseSet(Pausable.PROVIDER, "anthropic", True))
    held = [house.arrive() for _ in range(CROWD)]

    house.post(PauseSet(Pausable.PROVIDER, "anthropic", False))
    late = house.arrive()

    assert house.granted == held[:SLICE]
    assert house.turns() == [SLICE, CROWD - 2 * SLICE + 1]
    assert house.granted == [*held, late]


def let_go() -> tuple[Slices, list[int]]:
    """A crowd that a reload has let go, of which the first slice is granted."""
    house = Slices(policy('rule rest { hold "later" }', "concurrency 1k"))
    held = [house.arrive() for _ in range(CROWD)]
    house.load(policy("", "concurrency 1k"))
    assert [len(house.turn()) for _ in range(2)] == [0, 3 * SLICE - CROWD]
    return house, held


def test_a_reload_grants_in_slices_and_in_order() -> None:
    house, held = let_go()

    assert house.turns() == [SLICE, 2 * CROWD - 4 * SLICE]
    assert house.granted == held


def test_what_happens_between_two_slices_of_grants_changes_no_order() -> None:
    house, held = let_go()
    begun = list(house.granted)

    late = house.arrive()
    house.cancel(held[-2])
    house.end(begun[0])
    house.post(PrioritySet(CallId(held[-1]), 9, "operator"))
    assert house.granted == begun
    house.turns()

    assert house.granted == [*begun, held[-1], *held[len(begun) : -2], late]


def test_a_reload_between_two_slices_of_grants_decides_the_rest() -> None:
    house, held = let_go()
    begun = list(house.granted)

    house.load(policy('rule no { deny "closed" }', "concurrency 1k"))
    house.turns()

    assert house.granted == begun
    assert [one for one in held if isinstance(house.answers[one], Reject)] == held[len(begun) :]


def test_between_two_slices_of_a_reload_calls_can_give_up_and_get_a_priority() -> None:
    house, running, waiting = in_line()
    house.load(policy("", "concurrency 1"))

    house.cancel(waiting[-1])
    late = house.arrive()
    house.cancel(late)
    house.post(PrioritySet(CallId(waiting[-2]), 9, "operator"))
    house.post(LetThrough(CallId(waiting[-3])))
    house.end(running)
    house.turns()
    house.end(waiting[-3])

    assert house.granted == [running, waiting[-3], waiting[-2]]
    assert house.rest.waiting == CROWD - 3


def test_a_call_that_comes_between_two_slices_of_a_reload_keeps_the_priority_that_is_asked_for() -> None:
    house, running, waiting = in_line()
    house.load(policy("", "concurrency 1"))

    late = house.arrive()
    house.post(PrioritySet(CallId(late), 9, "agent"))
    house.end(running)
    house.turns()
    house.end(waiting[0])

    assert house.granted == [running, waiting[0], late]


def test_a_drain_between_two_slices_refuses_every_call() -> None:
    house, _, waiting = in_line()
    house.load(policy("", "concurrency 2"))
    late = house.arrive()

    house.post(Draining())
    house.turns()

    assert {house.refusal(one).reason for one in (*waiting, late)} == {Reason.DRAINING}
    assert house.rest.waiting == 0


def test_a_reload_between_two_slices_of_another_decides_all_calls() -> None:
    house, running, waiting = in_line()
    house.load(policy("", "concurrency 2"))
    house.turn()

    house.load(policy('rule no { deny "closed" }', "concurrency 2"))
    house.turns()

    assert house.granted == [running]
    assert {house.refusal(one).reason for one in waiting} == {Reason.DENIED}


def test_every_call_is_seen_between_two_slices() -> None:
    house, _, waiting = in_line()
    house.load(policy("", "concurrency 1"))

    seen = [one.call_id for one in house.scheduler.occupancy(house.now_ns).waiting]

    assert sorted(seen) == waiting
    assert all(house.scheduler.waiting(CallId(one), house.now_ns) is not None for one in waiting)


stories = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(0, 5), st.integers(0, 3)),
        st.tuples(st.just("end"), st.integers(0, 5), st.integers(0, 3)),
        st.tuples(st.just("load"), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("read"), st.integers(80, 99), st.integers(0, 3)),
    ),
    max_size=40,
)
MODELS = ("claude-opus-4-1", "claude-haiku-4-5", "claude-sonnet-4-5")


def drawn(variant: int) -> Program:
    rules = [
        BY_PLAN,
        BY_PLAN + '\nrule up when model ~ "*haiku*" { priority 2 }',
        "budget all { requests 12/hour; at 100% { hold } }",
        'rule no when model ~ "*sonnet*" { deny "no" }\nbudget all { requests 30/hour; at 100% { hold } }',
    ]
    return policy(rules[variant], f"concurrency {1 + variant}")


def told(story: list[tuple[str, int, int]], most: int) -> list[Command]:
    driver = Driver(drawn(0))
    driver.scheduler = Scheduler(drawn(0), most=most)
    commands: list[Command] = []
    running: dict[int, None] = {}
    for what, number, more in story:
        driver.now_ns += SECOND_NS
        if what == "arrive":
            for _ in range(1 + more):
                request = Request(apis=(Api.ANTHROPIC,), model=MODELS[number % 3], path="/v1/messages")
                call = Call(id=CallId(driver.next_id), request=request, caller="x")
                driver.next_id += 1
                commands += driver.post(CallArrived(call))
        elif what == "load":
            commands += driver.post(PolicyLoaded(drawn(number)))
        elif running and what == "end":
            first = list(running)[number % len(running)]
            del running[first]
            driver.end(first, AttemptResult(outcome=SUCCEEDED.outcome, usage=Usage(input=1, output=1)))
            commands += driver.last
        elif running:
            commands += driver.post(ResponseStarted(CallId(next(iter(running))), (), plan=read(number)))
        running = dict.fromkeys(one for one in driver.granted if one in driver.scheduler.state.inflight)
    return [one for one in commands if not isinstance(one, PlanChanged)]


@given(stories)
def test_slices_come_to_the_same_as_one_step(story: list[tuple[str, int, int]]) -> None:
    def calls(commands: list[Command]) -> list[tuple[str, int]]:
        return [(type(one).__name__, one.call_id) for one in commands if isinstance(one, Grant | Reject)]

    assert calls(told(story, most=1)) == calls(told(story, most=1_000))
