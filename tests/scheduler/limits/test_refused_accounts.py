"""Accounts that are refused together go by one schedule until calls are accepted again."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Outcome
from hivemind_trio.scheduler import AttemptResult, CallId, ResponseStarted
from hivemind_trio.scheduler.limits.learned_rate import JITTER
from hivemind_trio.scheduler.limits.limit_group import ACCOUNTS_MAX, LimitGroup
from hivemind_trio.scheduler.limits.refused_accounts import (
    PAUSE_LEAST_NS,
    PAUSE_MAX_NS,
    PAUSE_NS,
    TURNS,
    RefusedAccounts,
)
from tests.scheduler.driver import Driver
from tests.support.programs import SECOND_NS, program, provider, wish

BARE = AttemptResult(outcome=Outcome.QUOTA, status=429, committed=True)
HALVINGS = (PAUSE_MAX_NS // PAUSE_LEAST_NS).bit_length()
"""Accepted calls that free all accounts, whatever the pause is."""


def refused(accounts: RefusedAccounts, *gates: str, now_ns: int = 0) -> None:
    """Let a call of each be refused; they were in flight together."""
    for gate in gates:
        accounts.on_refused(gate, now_ns, now_ns)


def paused(opens_ns: int, since_ns: int, pause_ns: int) -> bool:
    """Return True if an account goes after such a pause, or later by its place in the round."""
    return since_ns + pause_ns <= opens_ns <= since_ns + pause_ns + pause_ns // TURNS


def test_an_account_that_is_refused_alone_goes_by_its_own_gate() -> None:
    accounts = RefusedAccounts()
    refused(accounts, "a")

    assert not accounts.restricts("a")


def test_an_account_that_was_not_refused_is_free() -> None:
    accounts = RefusedAccounts()
    refused(accounts, "a", "b")

    assert [accounts.restricts(gate) for gate in "abc"] == [True, True, False]


def test_one_attempt_of_any_account_lets_all_wait() -> None:
    accounts = RefusedAccounts()
    refused(accounts, "a", "b")
    assert paused(accounts.opens_ns("b"), 0, PAUSE_NS)

    accounts.on_granted("a", PAUSE_NS)

    assert paused(accounts.opens_ns("b"), PAUSE_NS, PAUSE_NS)


def test_the_pause_doubles_with_each_refusal_up_to_its_most() -> None:
    accounts, now_ns, pauses = RefusedAccounts(), 0, []
    for _ in range(12):
        refused(accounts, "a", "b", now_ns=now_ns)
        pauses.append(accounts.opens_ns("a") - now_ns)
        now_ns = accounts.opens_ns("a")

    assert paused(pauses[0], 0, PAUSE_NS)
    assert paused(pauses[1], 0, 2 * PAUSE_NS)
    most_ns = PAUSE_MAX_NS + PAUSE_MAX_NS // TURNS
    assert all((1 - JITTER) * PAUSE_MAX_NS <= pause_ns <= most_ns for pause_ns in pauses[4:])


def test_refusals_of_calls_in_flight_together_double_it_once() -> None:
    accounts = RefusedAccounts()
    refused(accounts, *"abcdefgh")

    assert paused(accounts.opens_ns("b"), 0, PAUSE_NS)


def test_an_accepted_call_halves_the_pause() -> None:
    accounts = RefusedAccounts()
    refused(accounts, "a", "b")
    accounts.on_granted("a", SECOND_NS)
    assert paused(accounts.opens_ns("b"), SECOND_NS, PAUSE_NS)

    assert accounts.on_good("c", SECOND_NS)

    assert accounts.restricts("a")
    assert paused(accounts.opens_ns("b"), SECOND_NS, PAUSE_NS // 2)


def test_a_call_from_before_the_first_refusal_says_nothing() -> None:
    accounts = RefusedAccounts()
    refused(accounts, "a", "b", now_ns=SECOND_NS)

    assert not accounts.on_good("c", SECOND_NS - 1)
    assert paused(accounts.opens_ns("b"), SECOND_NS, PAUSE_NS)


def test_the_account_whose_last_attempt_is_the_oldest_goes_first() -> None:
    accounts = RefusedAccounts()
    for number, gate in enumerate("abc"):
        refused(accounts, gate, now_ns=number * SECOND_NS)
    for number, gate in enumerate("bac"):
        accounts.on_granted(gate, (10 + number) * SECOND_NS)

    assert accounts.opens_ns("b") < accounts.opens_ns("a") < accounts.opens_ns("c")


def test_two_accepted_calls_in_a_row_free_their_account() -> None:
    accounts = RefusedAccounts()
    for number in range(1, 6):
        refused(accounts, "a", "b", "c", now_ns=number * SECOND_NS)
    accounts.on_good("c", 10 * SECOND_NS)
    accounts.on_refused("c", 11 * SECOND_NS, 11 * SECOND_NS)
    accounts.on_good("c", 12 * SECOND_NS)
    assert accounts.restricts("c")

    accounts.on_good("c", 13 * SECOND_NS)

    assert [accounts.restricts(gate) for gate in "abc"] == [True, True, False]


@given(st.lists(st.tuples(st.sampled_from("gra"), st.sampled_from("abc"), st.integers(0, 10 * SECOND_NS))))
def test_no_account_waits_longer_than_the_longest_pause_and_accepted_calls_free_all(
    steps: list[tuple[str, str, int]],
) -> None:
    accounts, now_ns = RefusedAccounts(), 0
    for kind, gate, after_ns in steps:
        now_ns += after_ns
        match kind:
            case "g":
                accounts.on_granted(gate, now_ns)
            case "r":
                accounts.on_refused(gate, now_ns, now_ns)
            case _:
                accounts.on_good(gate, now_ns)
        opens = [accounts.opens_ns(one) for one in "abc" if accounts.restricts(one)]
        assert max(opens, default=0) <= now_ns + PAUSE_MAX_NS + PAUSE_MAX_NS // TURNS

    for _ in range(HALVINGS):
        accounts.on_good("other", now_ns + 1)

    assert not any(accounts.restricts(gate) for gate in "abc")


# ---- wired ----


def accounts_of(driver: Driver, credentials: str) -> list[int]:
    return [driver.ask(wish(), credential, credential=credential) for credential in credentials]


def test_refused_accounts_wait_for_each_other_until_others_are_accepted() -> None:
    driver = Driver(program(providers=[attrs.evolve(provider("p", limit=100), keys=())]))
    for call_id in accounts_of(driver, "ab"):
        driver.end(call_id, BARE)
    first, second = accounts_of(driver, "ab")
    driver.at(2 * PAUSE_MAX_NS)
    assert first in driver.granted
    assert second not in driver.granted

    for call_id in accounts_of(driver, "c" * HALVINGS):
        assert call_id in driver.granted
        driver.post(ResponseStarted(CallId(call_id), ()))

    assert second in driver.granted


def test_accounts_whose_limits_are_used_up_do_not_starve_one_that_was_refused() -> None:
    driver = Driver(program(providers=[attrs.evolve(provider("p", limit=100), keys=())]))
    for call_id in accounts_of(driver, "abc"):
        driver.end(call_id, BARE)
    earlier = accounts_of(driver, "ab" * 20)
    (starving,) = accounts_of(driver, "c")

    for step in range(20 * 50):
        driver.at(step * SECOND_NS // 50)
        for call_id in [one for one in earlier if one in driver.granted]:
            driver.end(call_id, BARE)
            earlier.remove(call_id)

    assert starving in driver.granted
    assert len(earlier) > 20, "they have not gone before it because they were over"


def test_the_accounts_of_another_model_are_others() -> None:
    group = LimitGroup()
    group.load(None, 0, learns=True)

    same = group.quotas("m", "a").gate.accounts is group.quotas("m", "b").gate.accounts

    assert same
    assert group.quotas("m", "a").gate.accounts is not group.quotas("n", "a").gate.accounts


def test_forgotten_accounts_leave() -> None:
    group = LimitGroup()
    group.load(None, 0, learns=True)
    first = group.quotas("m", "0").gate
    second = group.quotas("m", "1").gate
    for gate in (first, second):
        gate.on_refused(CallId(0), 0, 0, 0)
    assert first.accounts.restricts(first)

    for number in range(2, 2 * ACCOUNTS_MAX):
        group.quotas("n", f"{number}")

    assert not first.accounts.restricts(first)
    assert first.accounts.members == 0
    assert group.quotas("m", "0").gate.accounts is not first.accounts
