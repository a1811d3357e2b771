"""A budget of several nodes: never overspent, whatever is lost, killed or wiped, and no amount counted twice."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.model import Reason
from hivemind_trio.scheduler import Grant, Reject, SpendingSet
from hivemind_trio.scheduler.sharing.budget_ask import BudgetAnswer, BudgetAsk, BudgetsAnswer, BudgetsAsk
from hivemind_trio.scheduler.sharing.budget_pot import BudgetPot, BudgetPots, BudgetRow
from hivemind_trio.scheduler.sharing.store_life import StoreLife
from tests.scheduler.driver import Driver

from .budget_fleet import LEARNING_MS, MOST, BudgetFleet


def killed(fleet: BudgetFleet) -> BudgetFleet:
    """Kill nodes and take the store away, while calls come until the budget is used up."""
    random = fleet.random
    fleet.arrivals(20)
    ledgers = random.choice([1.0, 1.0, 0.7])
    for _ in range(40):
        fleet.play(fleet.now_ms + random.randrange(50, 400))
        luck = random.random()
        if luck < 0.15:
            fleet.restart(random.randrange(fleet.size), with_ledger=random.random() < ledgers)
        elif luck < 0.25:
            fleet.away = not fleet.away
    fleet.away = False
    fleet.play(fleet.now_ms + 4_000)
    return fleet


def wiped(fleet: BudgetFleet) -> BudgetFleet:
    """Empty the store, while calls come until the budget is used up."""
    random = fleet.random
    fleet.arrivals(20)
    for _ in range(30):
        fleet.play(fleet.now_ms + random.randrange(50, 800))
        if random.random() < 0.15:
            fleet.wipe()
    fleet.play(fleet.now_ms + 10_000)
    return fleet


def made(seed: int, **planted: object) -> BudgetFleet:
    random = Random(seed)
    return BudgetFleet(random, size=random.randrange(1, 6), **planted)  # type: ignore[arg-type]


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from([killed, wiped]))
def test_I6_a_budget_is_not_overspent_and_nothing_is_counted_twice(
    seed: int, history: Callable[[BudgetFleet], BudgetFleet]
) -> None:
    fleet = history(made(seed))
    # One call may go alone that may take more than is left.
    assert fleet.spent() < fleet.limit + MOST
    assert not fleet.exact or fleet.counted() <= fleet.spent() + fleet.charged


class Unfenced(BudgetPots):  # a late message, of whichever process, counts like a new one
    def spend(self, message: BudgetsAsk, now_ms: int, run: str) -> BudgetsAnswer:
        self.nodes.pop(message.node, None)
        return super().spend(message, now_ms, run)


class Additive(BudgetPots):  # what a node says that it has spent is added to what it has said before
    def spend(self, message: BudgetsAsk, now_ms: int, run: str) -> BudgetsAnswer:
        for name, ask in message.accounts:
            pot = self.pots.get(name)
            row = pot.rows.get(message.node) if pot is not None else None
            if row is not None and ask.settled == row.settled:
                row.settled = 0
        return super().spend(message, now_ms, run)


class Unclamped(BudgetPots):  # grants what is asked
    def spend(self, message: BudgetsAsk, now_ms: int, run: str) -> BudgetsAnswer:
        for name, _ in message.accounts:
            self.pots.setdefault(name, Rich())
        return super().spend(message, now_ms, run)


class Rich(BudgetPot):
    def out(self) -> int:
        return 0


class Forgiving(BudgetPots):  # charges nothing for a process that was killed
    def spend(self, message: BudgetsAsk, now_ms: int, run: str) -> BudgetsAnswer:
        for name, _ in message.accounts:
            self.pots.setdefault(name, Mild())
        return super().spend(message, now_ms, run)


class Mild(BudgetPot):
    def _left_open(self, row: BudgetRow, ask: BudgetAsk) -> int:
        return 0


class Unlearned(BudgetPots):  # grants at once after it was wiped
    def __attrs_post_init__(self) -> None:
        self.life = StoreLife(0)


def broken(history: Callable[[BudgetFleet], BudgetFleet], **planted: object) -> bool:
    for seed in range(40):
        fleet = history(made(seed, **planted))
        counts_twice = fleet.exact and fleet.counted() > fleet.spent() + fleet.charged
        if fleet.spent() >= fleet.limit + MOST or counts_twice:
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pots", "history"),
    [(Unfenced, killed), (Additive, killed), (Unclamped, killed), (Forgiving, killed), (Unlearned, wiped)],
)
def test_I6_fails_with_a_bug_in_the_store(
    pots: Callable[[int], BudgetPots], history: Callable[[BudgetFleet], BudgetFleet]
) -> None:
    assert broken(history, make_pots=pots)


def rich(driver: Driver) -> None:
    """A node that is born with the whole budget."""
    post = driver.post

    def posted(event: object) -> object:
        commands = post(event)  # type: ignore[arg-type]
        for account in driver.scheduler.state.budgets.accounts.values():
            if account.shared is not None and account.shared.answered_ns is None:
                account.shared.drawn, account.shared.answered_ns = account.allowance.amount, 0
        return commands

    driver.post = posted  # type: ignore[method-assign, assignment]


@pytest.mark.slow
def test_I6_fails_with_a_node_that_is_born_with_the_whole_budget() -> None:
    assert broken(killed, on_fresh=rich)


def quiet(size: int, **more: object) -> BudgetFleet:
    fleet = BudgetFleet(Random(1), size=size, loss=0.0, **more)  # type: ignore[arg-type]
    fleet.play(LEARNING_MS)
    fleet.random.seed(2)
    return fleet


def test_every_node_counts_what_all_have_spent() -> None:
    fleet = quiet(3)
    for _ in range(5):
        fleet.arrive(0)
        fleet.arrive(1)
        fleet.play(fleet.now_ms + 400)
    fleet.play(fleet.now_ms + 14_000)
    assert fleet.spent() > 20
    for number in range(3):
        assert fleet.account(number).spent(fleet.now_ms * 1_000_000) == fleet.spent() == fleet.counted()


def test_a_call_that_fits_the_credit_of_its_node_begins_without_a_trip() -> None:
    fleet = quiet(2, limit=10_000)
    fleet.arrive(0)
    fleet.play(fleet.now_ms + 100)
    assert fleet.begun == [1, 0]
    for _ in range(20):
        fleet.arrive(0)
    assert fleet.begun == [21, 0]  # in the same moment


def test_the_last_of_an_account_goes_to_one_node_for_one_call() -> None:
    fleet = quiet(2, limit=50, takes=(MOST,))
    for number in (0, 1, 0, 1):
        fleet.arrive(number)
    fleet.play(fleet.now_ms + 200)
    fleet.play(fleet.now_ms + 20_000)
    assert sum(fleet.begun) == 3  # 20 + 20, and one alone that takes 20 of 10
    assert fleet.spent() == 60


def test_credit_without_a_use_goes_to_the_node_where_a_call_waits() -> None:
    fleet = quiet(2, limit=3 * MOST)
    fleet.arrive(0, 2 * MOST)
    fleet.play(fleet.now_ms + 1)
    fleet.arrive(1)
    fleet.arrive(1)  # nothing is left for it until the other has ended
    fleet.play(fleet.now_ms + 2_500)
    assert fleet.begun == [1, 2]


def test_a_used_up_budget_is_refused_at_every_node_and_what_an_operator_sets_holds_for_all() -> None:
    fleet = quiet(2, limit=40, takes=(MOST,))
    fleet.arrive(0)
    fleet.arrive(0)
    fleet.play(fleet.now_ms + 3_000)
    fleet.arrive(1)
    fleet.play(fleet.now_ms + 100)
    assert fleet.begun == [2, 0]

    fleet.post(0, SpendingSet(fleet.account(0).key, 10))
    fleet.play(fleet.now_ms + 100)

    assert fleet.begun == [2, 1]
    fleet.play(fleet.now_ms + 12_000)
    assert fleet.account(0).spent(fleet.now_ms * 1_000_000) == 30
    assert fleet.account(1).spent(fleet.now_ms * 1_000_000) == 30


@pytest.mark.parametrize("waits", [False, True])
def test_a_call_is_denied_at_once_when_other_nodes_have_spent_the_budget(waits: bool) -> None:
    fleet = quiet(3, limit=60, takes=(MOST,), then='deny "enough"')
    for node in (0, 0, 1):
        fleet.arrive(node)
        fleet.play(fleet.now_ms + 30)
    if waits:
        fleet.arrive(2)  # while the calls of others run
        assert fleet.rejected == 0
    fleet.play(fleet.now_ms + 320)  # they have ended, and no node has reported by itself
    if not waits:
        fleet.arrive(2)
    fleet.play(fleet.now_ms + 100)

    assert (sum(fleet.begun), fleet.rejected) == (3, 1)
    asked = fleet.asks
    fleet.play(fleet.now_ms + 5_000)
    assert fleet.asks <= asked + 3 * 25  # the renewals: nobody is called again and again


def test_without_the_store_a_node_uses_what_it_has_drawn_and_then_its_calls_are_refused_in_time() -> None:
    fleet = quiet(2, limit=10_000)
    fleet.arrive(0)
    fleet.play(fleet.now_ms + 100)
    fleet.away = True
    for _ in range(400):
        fleet.arrive(0)
    begun = fleet.begun[0]
    assert begun * MOST <= 10_000 // 8 + MOST
    assert begun > 50
    fleet.play(fleet.now_ms + 9_000)
    driver = fleet.nodes[0].driver
    assert not any(isinstance(answer, Reject) for answer in driver.answers.values())
    fleet.play(fleet.now_ms + 2_000)
    assert {answer.reason for answer in driver.answers.values() if isinstance(answer, Reject)} == {
        Reason.STORE_UNAVAILABLE
    }
    fleet.away = False
    fleet.play(fleet.now_ms + 1_000)
    fleet.arrive(0)
    fleet.play(fleet.now_ms + 100)
    assert isinstance(driver.answers[driver.next_id - 1], Grant)


def test_I6_what_was_said_before_a_store_was_wiped_is_not_all_that_a_node_has_spent() -> None:
    pots = BudgetPots(LEARNING_MS)

    def ask(node: str, seq: int, run: str, settled: int = 0, least: int = 0) -> BudgetsAnswer:
        one = BudgetAsk(
            life=0, limit=50, window_ms=60_000, slot=0, drawn=settled, settled=settled, returned=0, least=least,
            report=((0, settled),),
        )  # fmt: skip
        message = BudgetsAsk(node=node, epoch=1, seq=seq, nodes=2, run=run, complete=True, accounts=(("b", one),))
        return pots.spend(message, 1_000 + seq, "1")

    life = ask("a", 1, "").run
    ask("a", 2, life)
    # The other one has spoken before it knew of any life, and before it spent all; that comes again.
    for run in ("", "1/before"):
        ask("b", 7 + bool(run), run)
        assert ask("a", 3 + bool(run), life, 0, 50).accounts[0].short
    ask("b", 9, life, 50)
    assert ask("a", 5, life, 0, 1).accounts[0].short


def test_the_lowest_limit_of_the_nodes_present_holds() -> None:
    pots = BudgetPots(LEARNING_MS)
    pots.life.begin("1")

    def ask(node: str, seq: int, limit: int, least: int) -> BudgetAnswer:
        one = BudgetAsk(
            life=0, limit=limit, window_ms=60_000, slot=0, drawn=0, settled=0, returned=0, least=least, report=()
        )
        message = BudgetsAsk(node=node, epoch=1, seq=seq, nodes=2, run="", complete=True, accounts=(("b", one),))
        return pots.spend(message, 1_000 + seq, "1").accounts[0]

    ask("low", 1, 50, 0)
    assert ask("high", 1, 100, 60).short
    assert ask("high", 2, 100, 50).drawn == 50
    assert ask("low", 2, 50, 1).short


def test_two_nodes_that_both_wait_do_not_call_each_other_for_ever() -> None:
    pots = BudgetPots(0)

    def asks(node: str, seq: int, drawn: int, least: int) -> tuple[str, ...]:
        one = BudgetAsk(
            life=0, limit=10, window_ms=60_000, slot=0, drawn=drawn, settled=0, returned=0, least=least, waits=True,
            report=(),
        )  # fmt: skip
        message = BudgetsAsk(node=node, epoch=1, seq=seq, nodes=2, run="", complete=True, accounts=(("b", one),))
        return pots.spend(message, 1_000, "1").wake

    asks("a", 1, 0, 6)
    asks("b", 1, 0, 4)
    assert asks("a", 2, 6, 3) == ("b",)  # it may have credit without a use
    assert asks("b", 2, 4, 3) == ()
    assert asks("a", 3, 6, 3) == ()
