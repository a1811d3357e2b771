"""Budgets that a ledger keeps: nothing begins before its claim is durable, and the ledger is told of every end."""

from __future__ import annotations

from collections import defaultdict

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hivemind_trio.model import Api, Outcome, Reason, Request, Usage
from hivemind_trio.scheduler import (
    AccountKey,
    AttemptEnded,
    AttemptResult,
    CallCancelled,
    CallId,
    Command,
    CreditDrawn,
    Draw,
    Event,
    Grant,
    LedgerOpened,
    LedgerWritable,
    Reject,
    RestoredAccount,
    Spend,
)
from hivemind_trio.scheduler.budgets.budget_account import BudgetAccount
from tests.scheduler.driver import Driver
from tests.support.ends import SUCCEEDED
from tests.support.policies import compiled

from .test_budget import ANTHROPIC, HOUR, S, ask, driver_of, nothing_claimed, took

BROKEN = AttemptResult(outcome=Outcome.FAILED, status=502)


def opened(text: str, *accounts: RestoredAccount) -> Driver:
    driver = driver_of(text)
    driver.post(LedgerOpened(accounts))
    return driver


def account(driver: Driver) -> BudgetAccount:
    (one,) = driver.scheduler.state.budgets.accounts.values()
    return one


def credit(driver: Driver) -> list[Command]:
    return driver.post(CreditDrawn(account(driver).key, account(driver).chunk(0) * 100))


def test_a_wait_for_a_slot_after_the_write_is_named_after_the_longer_of_both() -> None:
    driver = Driver(compiled("provider p { api anthropic; concurrency 1 }\nbudget b { output 1k/hour }"))
    driver.post(LedgerOpened(()))
    first, second, third = (ask(driver, 60) for _ in range(3))
    driver.at(1 * S)
    credit(driver)  # one has its slot now; the others have waited 1 s for the disk, and wait for a slot from here
    driver.at(1 * S + S // 2)
    driver.end(first)
    assert driver.grant(second).reason is Reason.STORE_WRITE
    driver.at(9 * S)
    driver.end(second)
    assert driver.grant(third).reason is Reason.PROVIDER_CONCURRENCY


def test_a_call_waits_for_its_claim_to_be_durable_and_carries_it() -> None:
    driver = opened("budget b { output 1k/hour }")
    call = ask(driver, 60)
    assert driver.granted == []

    credit(driver)

    grant = driver.grant(call)
    assert grant.reason is Reason.STORE_WRITE
    assert grant.claims == ((account(driver).key, 60),)
    (spend,) = [one for one in driver.post(AttemptEnded(CallId(call), took(25))) if isinstance(one, Spend)]
    assert spend == Spend(CallId(call), ((account(driver).key, 25),))
    assert nothing_claimed(driver)


def test_what_has_credit_goes_at_once_and_more_is_drawn_ahead() -> None:
    driver = opened("budget b { output 1k/hour; tokens 1M/day }")
    ask(driver, 10)
    for key in list(driver.scheduler.state.budgets.accounts):
        driver.post(CreditDrawn(key, 100))
    assert len(driver.granted) == 1

    calls = [ask(driver, 10) for _ in range(9)]

    assert driver.granted[1:] == calls


def test_a_ledger_that_cannot_write_holds_for_ten_seconds_and_then_refuses() -> None:
    driver = opened("budget b { output 1k/hour }\nrule free when stream { tag free }")
    call = ask(driver, 60)
    driver.at(10 * S - 1)
    assert call not in driver.answers

    driver.at(10 * S)

    refusal = driver.refusal(call)
    assert (refusal.reason, refusal.retry_after_ns) == (Reason.STORE_UNAVAILABLE, 10 * S)
    assert driver.rest.waiting == 0
    assert nothing_claimed(driver)


def test_nobody_waits_longer_than_that_for_being_behind_others() -> None:
    driver = opened("budget b { output 1k/hour }")
    calls = [ask(driver, 60) for _ in range(5)]

    driver.at(10 * S)

    assert {driver.refusal(call).reason for call in calls} == {Reason.STORE_UNAVAILABLE}
    assert nothing_claimed(driver)


def test_who_has_a_deadline_of_its_own_is_refused_for_that() -> None:
    driver = opened("budget b { output 1k/hour }\nlane default { deadline 3s }")
    call = ask(driver, 60)

    driver.at(3 * S)

    assert driver.refusal(call).reason is Reason.DEADLINE


def test_calls_without_a_budget_that_stops_do_not_wait() -> None:
    driver = opened("budget b { output 1k/hour; at 90% { warn }; at 100% { lane default } }\nlane default { }")
    assert ask(driver, 60) in driver.granted


def test_a_ledger_that_fails_holds_new_calls_and_lets_them_go_when_it_is_back() -> None:
    driver = opened("budget b { output 1k/hour }")
    first = ask(driver, 10)
    credit(driver)
    driver.post(LedgerWritable(False))
    second = ask(driver, 10)
    assert driver.granted == [first]

    driver.post(LedgerWritable(True))

    assert driver.granted == [first, second]


def key_of(text: str) -> AccountKey:
    budget = compiled(ANTHROPIC + text).budgets["b"]
    return AccountKey.of(budget, budget.allowances[0], "")


SLIDING = 'budget b { output 1k/hour; window sliding; at 100% { deny "no" } }'


def test_what_was_spent_before_the_restart_counts_until_it_slides_out() -> None:
    driver = opened(SLIDING, RestoredAccount(key=key_of(SLIDING), spent=((-1800 * S, 700), (-60 * S, 300))))

    assert driver.refusal(ask(driver, 10)).reason is Reason.BUDGET
    driver.at(HOUR // 2 + 120 * S)
    again = ask(driver, 10)
    credit(driver)
    assert again in driver.granted


def test_what_was_spent_before_the_restart_counts_in_a_window_of_the_calendar() -> None:
    text = 'budget b { output 1k/day; at 100% { deny "no" } }'
    driver = opened(text, RestoredAccount(key=key_of(text), spent=((3600 * S, 1000),)))

    assert driver.refusal(ask(driver, 10)).reason is Reason.BUDGET


def test_a_budget_that_the_policy_has_no_more_is_not_restored() -> None:
    key = key_of("budget b { output 1k/hour }")
    driver = opened(
        "budget b { output 2k/hour }",
        RestoredAccount(key=key._replace(budget="gone"), spent=((0, 5000),)),
        RestoredAccount(key=key._replace(window_ns=5), spent=((0, 5000),)),
        RestoredAccount(key=key, spent=((0, 500),)),
    )
    (one,) = driver.scheduler.state.budgets.accounts.values()
    assert one.spent(0) == 500


class Credit(RuleBasedStateMachine):
    """The ledger's side: what has begun was durable before, and what is over was said once."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = driver_of(
            "budget all { output 5k/hour; at 100% { hold } }\nbudget each per agent { requests 8/min; tokens 9k/day }\n"
            "budget watched { output 100/hour; at 50% { warn }; at 100% { warn } }\nlane default { deadline 5m }\n"
        )
        self.credit: dict[AccountKey, int] = defaultdict(int)
        self.over: dict[AccountKey, int] = defaultdict(int)
        """Spent beyond claims: nobody could know."""
        self.asked: dict[AccountKey, list[int]] = defaultdict(list)
        self.open: dict[int, dict[AccountKey, int]] = {}
        self.inflight: list[int] = []
        self.waiting: set[int] = set()
        self.post(LedgerOpened(()))

    def post(self, event: Event) -> None:
        self.take(self.driver.post(event))

    def take(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Draw(account=key, amount=amount):
                    assert not self.asked[key], "one at a time"
                    self.asked[key].append(amount)
                case Grant(call_id=call, claims=claims):
                    self.waiting.discard(call)
                    self.inflight.append(call)
                    for key, amount in claims:
                        if key.budget != "watched":
                            known = self.open.get(call, {}).get(key, 0)
                            durable = self.credit[key] + self.over[key] + known
                            assert durable >= amount, "it was durable before it began"
                        self.credit[key] -= amount - self.open.get(call, {}).get(key, 0)
                    self.open[call] = dict(claims)
                case Spend(call_id=call, parts=parts):
                    claimed = self.open.pop(call)
                    assert set(claimed) == {key for key, _ in parts}
                    for key, amount in parts:
                        self.credit[key] += claimed[key] - amount
                        self.over[key] += max(0, amount - claimed[key])
                case Reject(call_id=call):
                    self.waiting.discard(call)

    @rule(tokens=st.integers(1, 3000), caller=st.sampled_from("abc"), address=st.sampled_from(["1", "2"]))
    def arrive(self, tokens: int, caller: str, address: str) -> None:
        request = Request(apis=(Api.ANTHROPIC,), model="claude-haiku-4-5", tokens_max_out=tokens)
        self.waiting.add(self.driver.ask(request, caller, address=address))
        self.take(self.driver.last)

    @precondition(lambda self: any(self.asked.values()))
    @rule(which=st.integers(0, 99))
    def drawn(self, which: int) -> None:
        keys = [key for key, amounts in self.asked.items() if amounts]
        key = keys[which % len(keys)]
        amount = self.asked[key].pop()
        self.credit[key] += amount
        self.post(CreditDrawn(key, amount))

    @precondition(lambda self: self.inflight)
    @rule(tokens=st.integers(0, 4000), failed=st.booleans(), which=st.integers(0, 99))
    def end(self, tokens: int, failed: bool, which: int) -> None:
        call = self.inflight.pop(which % len(self.inflight))
        ended = BROKEN if failed else attrs.evolve(SUCCEEDED, usage=Usage(input=0, output=tokens))
        self.waiting.add(call)
        self.post(AttemptEnded(CallId(call), ended))

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 99))
    def cancel(self, which: int) -> None:
        call = sorted(self.waiting)[which % len(self.waiting)]
        self.waiting.discard(call)
        self.post(CallCancelled(CallId(call)))

    @rule(seconds=st.floats(0.01, 40))
    def wait(self, seconds: float) -> None:
        until_ns = self.driver.now_ns + int(seconds * S)
        while (wakeup_ns := self.driver.scheduler.wakeup_ns()) is not None and wakeup_ns <= until_ns:
            self.take(self.driver.at(max(wakeup_ns, self.driver.now_ns)))
        self.take(self.driver.at(until_ns))

    @rule(writable=st.booleans())
    def disk(self, writable: bool) -> None:
        self.post(LedgerWritable(writable))

    @invariant()
    def credits_agree(self) -> None:
        for key, one in self.driver.scheduler.state.budgets.accounts.items():
            waiting = one.claimed - sum(parts.get(key, 0) for parts in self.open.values())
            assert one.credit == self.credit[key] - waiting, key


TestCredit = pytest.mark.slow(Credit.TestCase)
