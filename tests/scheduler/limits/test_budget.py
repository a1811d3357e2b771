"""Budgets: calls on their way together do not go beyond them, and what was spent decides how the next are treated."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.model import Api, Outcome, Reason, Request, Usage
from hivemind_trio.policy import BudgetWindow, Measure
from hivemind_trio.scheduler import AttemptResult, Call, CallArrived, CallId, Scheduler
from hivemind_trio.scheduler.budgets import budgets
from hivemind_trio.scheduler.budgets.budget_account import BudgetAccount
from tests.scheduler.driver import Driver
from tests.support.ends import SUCCEEDED
from tests.support.policies import compiled

S = 1_000_000_000
HOUR = 3_600 * S

ANTHROPIC = 'provider anthropic { concurrency 100; base "http://127.0.0.1:9" }\n'


def driver_of(text: str) -> Driver:
    return Driver(compiled(ANTHROPIC + text))


def ask(
    driver: Driver, tokens_out: int = 10, *, caller: str = "x", credential: str = "", address: str = "", **facts: Any
) -> int:
    request = Request(apis=(Api.ANTHROPIC,), model="claude-haiku-4-5", tokens_max_out=tokens_out)
    return driver.ask(attrs.evolve(request, **facts), caller=caller, credential=credential, address=address)


def took(tokens_out: int, tokens_in: int = 0) -> AttemptResult:
    return attrs.evolve(SUCCEEDED, usage=Usage(input=tokens_in, output=tokens_out))


def spend(driver: Driver, tokens_out: int, **facts: Any) -> None:
    """A call that takes so much."""
    driver.end(ask(driver, tokens_out, **facts), took(tokens_out))


def nothing_claimed(driver: Driver) -> bool:
    accounts = driver.scheduler.state.budgets.accounts.values()
    return not any(account.claimed or account.held for account in accounts)


# ---- no more than it says ----


def test_calls_on_their_way_count_at_the_most_that_they_may_take() -> None:
    driver = driver_of("budget b { output 100/hour }")
    first, second = ask(driver, 60), ask(driver, 60)
    assert driver.granted == [first]

    driver.end(first, took(30))

    assert driver.granted == [first, second]
    assert driver.grant(second).reason is Reason.BUDGET


@pytest.mark.parametrize("asked", [60, 0])
def test_calls_whose_output_a_rule_limits_count_at_that_limit(asked: int) -> None:
    driver = driver_of("budget b { output 100/hour }\nrule r { max-output 40 }")

    calls = [ask(driver, asked) for _ in range(3)]

    assert driver.granted == calls[:2]


def test_a_limit_below_the_thinking_budget_counts_at_what_is_sent() -> None:
    driver = driver_of("budget b { output 100/hour }\nrule r { max-output 40 }")

    calls = [ask(driver, 90, tokens_thinking=60) for _ in range(2)]

    assert driver.granted == calls[:1]


def test_what_is_used_up_is_refused_with_the_time_of_its_turn() -> None:
    driver = driver_of('budget b { output 100/hour; at 100% { deny "no more today" } }')
    spend(driver, 100)
    driver.now_ns = 600 * S

    refusal = driver.refusal(ask(driver))

    assert refusal.reason is Reason.BUDGET
    assert refusal.message == "no more today (100 output per hour); it resets in 50 min"
    assert refusal.retry_after_ns == HOUR - 600 * S
    driver.now_ns = HOUR
    assert ask(driver) in driver.granted
    assert driver.rest.agents == 1


def test_money_is_counted_at_the_price_of_the_provider_that_served_the_call() -> None:
    driver = driver_of(
        'provider second { api anthropic; base "http://127.0.0.1:9" }\n'
        'rule there when stream { provider second }\nrule as when tools { provider second; model "claude-opus-4-1" }\n'
        'model "claude-*" { price output $1/Mtok }\nmodel "claude-*" on second { price output $10/Mtok }\n'
        'model "claude-opus-*" on second { price output $20/Mtok }\n'
        "budget b { cost $100/hour; at 10% { warn } }"
    )

    def spent(**facts: bool) -> str:
        spend(driver, 10**6, **facts)
        return driver.grant(ask(driver, 0)).treatment.budget_warnings[0]

    spend(driver, 10**6)
    assert spent(stream=True) == "budget b: 11%, $11 of $100 per hour"
    assert spent(tools=True) == "budget b: 31%, $31 of $100 per hour"


def test_a_claim_is_at_the_price_of_the_provider_that_the_call_goes_to() -> None:
    driver = driver_of(
        'provider second { api anthropic; base "http://127.0.0.1:9" }\nrule there when stream { provider second }\n'
        'model "claude-*" { price output $1/Mtok }\nmodel "claude-*" on second { price output $10/Mtok }\n'
        "budget b { cost $12/hour; at 100% { hold } }"
    )

    calls = [ask(driver, 10**6, stream=True), ask(driver, 10**6), ask(driver, 10**6), ask(driver, 10**6)]

    assert driver.granted == calls[:3]


def test_a_budget_without_a_stop_stops_at_the_whole() -> None:
    driver = driver_of("budget b { output 100/hour; at 50% { warn } }")
    spend(driver, 100)

    assert driver.refusal(ask(driver)).reason is Reason.BUDGET


def test_a_budget_may_only_watch() -> None:
    driver = driver_of("lane slow { }\nbudget b { output 100/hour; at 100% { lane slow; priority 0 } }")
    spend(driver, 500)

    assert driver.grant(ask(driver)).treatment.lane == "slow"


def test_a_call_that_might_take_more_than_is_left_goes_alone() -> None:
    driver = driver_of("budget b { output 100/hour }")
    spend(driver, 60)

    large, next_ = ask(driver, 1_000), ask(driver, 1)

    assert driver.granted[1:] == [large]
    driver.end(large, took(5))
    assert driver.granted[1:] == [large, next_]


def test_who_is_held_goes_before_those_who_come_later() -> None:
    driver = driver_of("budget b { output 100/hour }")
    first = ask(driver, 60)
    large, small, urgent = ask(driver, 60), ask(driver, 10), ask(driver, 10, headers={})
    assert driver.granted == [first]

    driver.end(first, took(0))

    assert driver.granted == [first, large, small, urgent]


def test_hold_waits_for_the_window_to_turn() -> None:
    driver = driver_of("budget b { output 100/hour; at 100% { hold } }")
    spend(driver, 100)
    held = ask(driver)
    assert driver.scheduler.wakeup_ns() == HOUR

    driver.at(HOUR)

    assert driver.granted[-1] == held
    assert driver.grant(held).waited_ns == HOUR


def test_those_whose_priority_the_budget_had_changed_are_all_asked_when_it_changes_back() -> None:
    """The first to be asked is behind the others then, who still have the priority of before."""
    driver = driver_of("budget b { output 100/hour; window sliding; at 50% { priority 5 }; at 100% { hold } }")
    spend(driver, 100)
    driver.now_ns = S
    held = [ask(driver) for _ in range(3)]
    assert not set(held) & set(driver.granted)

    driver.at(HOUR + HOUR // 64 + S)

    assert driver.granted[1:] == held


def test_a_sliding_window_makes_room_as_time_passes() -> None:
    driver = driver_of("budget b { output 100/hour; window sliding; at 100% { hold } }")
    driver.now_ns = HOUR // 2
    spend(driver, 60)
    driver.now_ns = HOUR
    spend(driver, 40)
    held = ask(driver)
    wakeup_ns = driver.scheduler.wakeup_ns()
    assert wakeup_ns is not None

    assert HOUR * 3 // 2 <= wakeup_ns <= HOUR * 3 // 2 + HOUR // 60
    driver.at(wakeup_ns)

    assert driver.granted[-1] == held


def test_money_is_counted_by_the_price_of_each_kind_of_token() -> None:
    policy = 'model "claude-haiku-*" { price input $1/Mtok output $5/Mtok cache-read $0.10/Mtok cache-write $2/Mtok }'
    driver = driver_of(policy + "\nbudget b { cost $1/hour; at 50% { warn } }")
    usage = Usage(input=100_000, cache_read=1_000_000, cache_write=50_000, output=60_000)  # 0.1 + 0.1 + 0.1 + 0.3

    driver.end(ask(driver), attrs.evolve(SUCCEEDED, usage=usage))

    (warning,) = driver.grant(ask(driver)).treatment.budget_warnings
    assert warning == "budget b: 60%, $0.6 of $1 per hour"


@pytest.mark.parametrize("measure", ["tokens", "input"])
@pytest.mark.parametrize(
    "usage",
    [Usage(input=600, output=0), Usage(input=0, output=0, cache_read=600), Usage(input=0, output=0, cache_write=600)],
    ids=["input", "cache_read", "cache_write"],
)
def test_tokens_read_from_a_cache_and_written_to_it_are_tokens(measure: str, usage: Usage) -> None:
    driver = driver_of(f"budget b {{ {measure} 1000/hour; at 50% {{ warn }} }}")

    driver.end(ask(driver), attrs.evolve(SUCCEEDED, usage=usage))

    (warning,) = driver.grant(ask(driver)).treatment.budget_warnings
    assert warning.startswith("budget b: 60%, 600 "), warning


def test_requests_count_when_they_are_answered() -> None:
    driver = driver_of("retry default { attempts 1 }\nbudget b { requests 2/hour }")
    driver.end(ask(driver), AttemptResult(outcome=Outcome.OVERLOADED, status=529))
    driver.end(ask(driver), AttemptResult(outcome=Outcome.UNREACHABLE))
    driver.end(ask(driver), AttemptResult(outcome=Outcome.IGNORED, status=400, committed=True))
    driver.end(ask(driver), SUCCEEDED)

    assert driver.refusal(ask(driver)).reason is Reason.BUDGET


def test_an_answer_that_says_nothing_is_charged_what_is_likely() -> None:
    driver = driver_of("budget b { input 100/hour }")
    driver.end(ask(driver, tokens_in=100), SUCCEEDED)

    assert driver.refusal(ask(driver)).reason is Reason.BUDGET


# ---- whose ----


def test_each_agent_has_its_own() -> None:
    driver = driver_of("agent ci { }\nagent bot { }\nbudget each per agent { output 100/hour }")
    spend(driver, 100, claimed="ci")

    assert driver.refusal(ask(driver, claimed="ci")).reason is Reason.BUDGET
    assert ask(driver, claimed="bot") in driver.granted
    assert ask(driver, caller="ci") in driver.granted, "a caller of that name is another"


EACH = "budget each per agent { output 100/hour }"
KEYED = ANTHROPIC.replace("100;", "100; key env(KEY);")


@pytest.mark.parametrize("claimed", [None, "a-new-name"])
@pytest.mark.parametrize("agents", ["", "agent ci { }\n"])
def test_an_unproven_caller_has_no_more_under_another_name(claimed: str | None, agents: str) -> None:
    driver = driver_of(agents + EACH)
    spend(driver, 100, caller="first", credential="c", address="10.0.0.1")

    again = ask(driver, caller="second", credential="c", address="10.0.0.2", claimed=claimed)
    other = ask(driver, caller="first", credential="d", address="10.0.0.1")

    assert driver.refusal(again).reason is Reason.BUDGET
    assert other in driver.granted, "what goes upstream pays"


def test_without_a_credential_an_unproven_caller_is_known_by_its_address() -> None:
    driver = driver_of(EACH)
    spend(driver, 100, caller="first", address="10.0.0.1")

    assert driver.refusal(ask(driver, caller="second", address="10.0.0.1")).reason is Reason.BUDGET
    assert ask(driver, caller="first", address="10.0.0.2") in driver.granted


def test_a_credential_that_is_not_sent_upstream_is_a_name_like_any_other() -> None:
    driver = Driver(compiled(KEYED + EACH))
    spend(driver, 100, caller="first", credential="c", address="10.0.0.1")

    again = ask(driver, caller="second", credential="d", address="10.0.0.1")

    assert driver.refusal(again).reason is Reason.BUDGET
    assert ask(driver, caller="first", credential="c", address="10.0.0.2") in driver.granted


def test_partitions_are_bounded_and_nobody_slips_through_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "ACCOUNTS_MAX", 100)
    monkeypatch.setattr(budgets, "SWEEP_EVERY", 10)
    driver = driver_of("budget each per model { output 100/hour }")
    accounts = driver.scheduler.state.budgets
    for number in range(100):
        spend(driver, 99, model=f"m-{number}")

    for number in range(100, 110):
        spend(driver, 10, model=f"m-{number}")
    refused = ask(driver, model="m-200")
    kept = ask(driver, model="m-0")

    assert len(accounts.accounts) <= 101
    assert driver.refusal(refused).reason is Reason.BUDGET, "those beyond the bound share one"
    assert kept in driver.granted, "who has a share keeps it"
    driver.end(kept, took(1))
    assert driver.refusal(ask(driver, model="m-0")).reason is Reason.BUDGET

    driver.at(2 * HOUR)
    assert all(ask(driver, model=f"n-{number}") in driver.granted for number in range(11))
    for number in range(200):
        ask(driver, 50, model=f"o-{number}")
    assert len(accounts.accounts) <= 101


@pytest.mark.parametrize("per", ["", " per agent", " per team", " per provider"])
def test_strangers_take_no_account_from_what_the_policy_names(per: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "ACCOUNTS_MAX", 20)
    driver = driver_of(
        "team core { }\nagent ci { team core }\n"
        "budget strangers per model when agent != ci { output 100/hour }\n"
        f"budget ours{per} when agent == ci {{ output 100/hour }}"
    )
    for number in range(30):
        spend(driver, 5, model=f"m-{number}")

    spend(driver, 60, claimed="ci")

    ours = [one for one in driver.scheduler.state.budgets.accounts.values() if one.key.budget == "ours"]
    assert [(one.key.subject, one.spent(driver.now_ns)) for one in ours] == [
        ({"": "", " per agent": "ci", " per team": "core", " per provider": "anthropic"}[per], 60)
    ]
    others = [one.key.subject for one in driver.scheduler.state.budgets.accounts.values() if one not in ours]
    assert "(others)" in others


@pytest.mark.slow
def test_a_new_partition_costs_no_search_through_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "ACCOUNTS_MAX", 1_000)
    monkeypatch.setattr(budgets, "SWEEP_EVERY", 125)
    looked_at = 0
    idle = BudgetAccount.idle

    def counted(account: BudgetAccount, now_ns: int) -> bool:
        nonlocal looked_at
        looked_at += 1
        return idle(account, now_ns)

    monkeypatch.setattr(BudgetAccount, "idle", counted)
    driver = driver_of("budget each per model { output 1M/hour }")
    for number in range(3_000):
        spend(driver, 10, model=f"m-{number}")

    # Each call looks twice, and each look pays for eight accounts.
    assert 0 < looked_at <= 2 * 8 * 2_000 + 1_000


def test_each_model_and_provider_has_its_own() -> None:
    driver = driver_of("budget models per model { output 100/hour }")
    spend(driver, 100, model="claude-opus-4")

    assert driver.refusal(ask(driver, model="claude-opus-4")).reason is Reason.BUDGET
    assert ask(driver, model="claude-haiku-4-5") in driver.granted


def test_only_what_it_is_for_counts() -> None:
    driver = driver_of("team a { }\nagent x { team a }\nbudget a when team == a { output 100/hour }")
    spend(driver, 100)
    spend(driver, 100, claimed="x")

    assert driver.refusal(ask(driver, claimed="x")).reason is Reason.BUDGET
    assert ask(driver) in driver.granted


# ---- what it does before it is used up ----


def test_the_highest_step_that_is_passed_decides_each_setting() -> None:
    driver = driver_of(
        "lane fast { }\nlane slow { }\nlane slower { }\nrule all { lane fast; priority 7 }\n"
        "budget b { output 100/hour; at 50% { warn; lane slow; priority 2 }; at 80% { lane slower } }"
    )
    assert driver.grant(ask(driver, 1)).treatment.lane == "fast"
    spend(driver, 50)
    treatment = driver.grant(ask(driver, 1)).treatment
    assert (treatment.lane, treatment.priority) == ("slow", 2)
    assert treatment.budget_warnings == ("budget b: 50%, 50 output of 100 output per hour",)
    assert str(treatment.decided["lane"]).startswith("budget b ")
    spend(driver, 30)
    treatment = driver.grant(ask(driver, 1)).treatment
    assert (treatment.lane, treatment.priority) == ("slower", 2)


def test_another_model_goes_where_it_is_served() -> None:
    driver = Driver(
        compiled(
            'provider a { api anthropic; base "http://127.0.0.1:9"; serves ["claude-opus-*"] }\n'
            'provider b { api anthropic; base "http://127.0.0.1:9"; serves ["claude-haiku-*"] }\n'
            'rule no-haiku when model ~ "claude-haiku-*" { deny "ask for what you need" }\n'
            'budget b { output 100/hour; at 50% { model "claude-haiku-4-5" } }'
        )
    )
    spend(driver, 50, model="claude-opus-4")

    treatment = driver.grant(ask(driver, model="claude-opus-4")).treatment

    assert (treatment.model, treatment.provider) == ("claude-haiku-4-5", "b")


def test_who_is_held_until_nobody_serves_what_it_is_to_be_is_refused_and_forgotten() -> None:
    driver = Driver(
        compiled(
            'provider a { api anthropic; base "http://127.0.0.1:9"; serves ["claude-opus-*"] }\n'
            'budget b { output 100/hour; at 50% { model "claude-haiku-4-5" } }'
        )
    )
    running = ask(driver, 60, model="claude-opus-4")
    held = ask(driver, 60, model="claude-opus-4", caller="y")

    driver.end(running, took(60))

    assert driver.refusal(held).reason is Reason.NO_PROVIDER
    assert driver.rest.agents == 0


# ---- nothing is forgotten ----


def test_who_leaves_gives_back_what_he_claimed() -> None:
    driver = Driver(
        compiled(ANTHROPIC.replace("100;", "1;") + "lane default { deadline 10s }\nbudget b { output 100/hour }")
    )
    running = ask(driver, 10)
    waiting, held = ask(driver, 80), ask(driver, 80)
    driver.cancel(waiting)  # which lets the other one in
    late = ask(driver, 80)
    driver.at(10 * S)
    assert {driver.refusal(held).reason, driver.refusal(late).reason} == {Reason.DEADLINE}

    driver.end(running, took(1))

    assert nothing_claimed(driver)
    assert driver.rest.agents == 0


def test_an_attempt_that_is_tried_again_keeps_its_claim() -> None:
    driver = driver_of("retry default { attempts 3; backoff 1s..1s jitter none }\nbudget b { output 100/hour }")
    call = ask(driver, 80)
    driver.end(call, AttemptResult(outcome=Outcome.OVERLOADED, status=529))
    other = ask(driver, 80)

    driver.at(60 * S)

    assert driver.granted == [call, call]
    driver.end(call, took(10))
    assert driver.granted == [call, call, other]
    driver.end(other, took(10))
    assert nothing_claimed(driver)


def test_draining_gives_everything_back() -> None:
    driver = driver_of("budget b { output 100/hour }")
    running, _held = ask(driver, 80), ask(driver, 80)
    driver.drain()
    driver.end(running, took(1))

    assert nothing_claimed(driver)


# ---- reload ----


def test_what_was_spent_is_spent_under_the_next_policy() -> None:
    driver = driver_of("budget b { output 100/hour }")
    spend(driver, 90)

    driver.load(compiled(ANTHROPIC + "budget b { output 90/hour }"))
    assert driver.refusal(ask(driver)).reason is Reason.BUDGET
    driver.load(compiled(ANTHROPIC + "budget b { output 200/hour }"))
    assert ask(driver) in driver.granted


def test_another_window_is_another_account() -> None:
    driver = driver_of("budget b { output 100/hour }")
    spend(driver, 100)

    driver.load(compiled(ANTHROPIC + "budget b { output 100/day }"))

    assert ask(driver) in driver.granted


def test_more_room_lets_in_who_is_held() -> None:
    driver = driver_of("budget b { output 100/hour; at 100% { hold } }")
    first, held = ask(driver, 80), ask(driver, 80)

    driver.load(compiled(ANTHROPIC + "budget b { output 200/hour; at 100% { hold } }"))

    assert driver.granted == [first, held]
    driver.load(compiled(ANTHROPIC))
    driver.end(first, took(1))
    driver.end(held, took(1))
    assert nothing_claimed(driver)


def test_a_retry_that_was_held_in_between_is_not_due_before_its_time() -> None:
    retry = "retry slow { on [500]; attempts 3; backoff 60s..60s jitter none }\nrule r { retry slow }\n"
    small = compiled(ANTHROPIC + retry + "budget b { output 10/hour; at 100% { hold } }")
    driver = driver_of(retry + "budget b { output 100/hour; at 100% { hold } }")
    failed, other = ask(driver, 50), ask(driver, 50)
    driver.end(failed, AttemptResult(outcome=Outcome.FAILED, status=500))

    driver.load(small)
    driver.load(compiled(ANTHROPIC + retry))

    assert driver.granted == [failed, other]
    driver.at(60 * S - 1)
    assert driver.granted == [failed, other]
    driver.at(60 * S)
    assert driver.granted == [failed, other, failed]


# ---- whatever happens ----

amounts = st.integers(0, 60)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), amounts, st.sampled_from(["ci", "bot"])),
        st.tuples(st.just("end"), st.integers(0, 5), st.sampled_from([0.0, 0.5, 1.0])),
        st.tuples(st.just("fail"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("wait"), st.integers(0, 90), st.just(0)),
        st.tuples(st.just("reload"), st.sampled_from([50, 100, 150]), st.booleans()),
    ),
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=200)
@given(steps, st.booleans(), st.booleans())
def test_after_any_story_no_window_holds_more_and_nobody_waits_for_nothing(
    story: list[tuple[str, Any, Any]], hold: bool, sliding: bool
) -> None:
    def policy(amount: int, retries: bool, times: int = 0) -> str:
        """Budgets have another name after each reload, and say what they were."""
        was = f" was all{times - 1}", f" was each{times - 1}"
        stop = "hold" if hold else "deny"
        window = "; window sliding" if sliding else ""
        return (
            f"{ANTHROPIC.replace('100;', '3;')}agent ci {{ }}\nagent bot {{ }}\n"
            f"retry default {{ attempts {3 if retries else 1} }}\n"
            f"budget all{times}{was[0] if times else ''} {{ output {amount}/hour; at 100% {{ {stop} }}{window} }}\n"
            f"budget each{times}{was[1] if times else ''} per agent {{ output 60/hour; at 90% {{ {stop} }}{window} }}"
        )

    driver = Driver(compiled(policy(100, True)))
    most: dict[int, int] = {}
    spent: list[tuple[int, int]] = []
    largest = reloads = 0
    for what, one, other in story:
        running = [call for call in most if call in driver.scheduler.state.inflight]
        match what:
            case "ask":
                most[ask(driver, one, claimed=other)] = one
            case "end" if running:
                call = running[one % len(running)]
                tokens = int(most[call] * other)
                spent.append((driver.now_ns, tokens))
                driver.end(call, took(tokens))
            case "fail" if running:
                failed = AttemptResult(outcome=Outcome.OVERLOADED, status=529, committed=other)
                driver.end(running[one % len(running)], failed)
            case "cancel" if most:
                waiting = [call for call in most if CallId(call) in driver.scheduler.state.room]
                if waiting:
                    driver.cancel(waiting[one % len(waiting)])
            case "wait":
                driver.at(driver.now_ns + one * 60 * S)
            case "reload":
                reloads += 1
                driver.load(compiled(policy(one, other, reloads)))
                largest = max(largest, one)
        # Alone, a call may go beyond what is left; together they may not.
        hour = driver.now_ns - driver.now_ns % HOUR
        within = [tokens for at, tokens in spent if (driver.now_ns - at < HOUR if sliding else at >= hour)]
        assert sum(within) <= max(100, largest) + 60
        if driver.rest.waiting and not driver.rest.inflight:
            assert driver.scheduler.wakeup_ns() is not None, "somebody waits for nothing"

    for _ in range(200):
        for call in [call for call in most if call in driver.scheduler.state.inflight]:
            driver.end(call, took(0))
        if not driver.rest.waiting and not driver.rest.inflight:
            break
        wakeup_ns = driver.scheduler.wakeup_ns()
        assert driver.rest.inflight or wakeup_ns is not None
        if wakeup_ns is not None and not driver.rest.inflight:
            driver.at(max(wakeup_ns, driver.now_ns))
    assert driver.rest.waiting == 0
    assert nothing_claimed(driver)
    assert driver.rest.agents == 0


def test_every_measure_is_counted() -> None:
    for measure in Measure:
        amount = "$0.000001" if measure is Measure.COST else "1"
        driver = driver_of(f"budget b {{ {measure} {amount}/hour }}")
        driver.end(ask(driver), took(1_000, 1_000))

        assert driver.refusal(ask(driver)).reason is Reason.BUDGET, measure


# ---- windows of the calendar ----


def test_the_calendar_is_asked_for_the_month_in_the_budget_s_zone() -> None:
    policy = compiled(ANTHROPIC + 'budget b { cost $5/month; requests 9/week; timezone "Asia/Tokyo" }')
    asked: list[BudgetWindow] = []

    def turns(now_ns: int, window: BudgetWindow) -> int:
        asked.append(window)
        return now_ns + HOUR

    scheduler = Scheduler(policy, turns=turns)
    request = Request(apis=(Api.ANTHROPIC,), model="claude-haiku-4-5", tokens_max_out=10)
    scheduler.handle(CallArrived(Call(id=CallId(0), request=request, caller="x")), 0)

    day_ns = 24 * HOUR
    assert set(asked) == {
        BudgetWindow(31 * day_ns, is_month=True, timezone="Asia/Tokyo"),
        BudgetWindow(7 * day_ns, timezone="Asia/Tokyo"),
    }
