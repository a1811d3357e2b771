"""Which account of its provider a call is sent with, and when it goes to another."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Outcome, Reason
from hivemind_trio.policy import MemoryFiles, Program, check
from hivemind_trio.scheduler import (
    AttemptResult,
    CallId,
    Circuit,
    DrawWindow,
    Finish,
    Grant,
    Pausable,
    PauseSet,
    Reject,
    WindowsShared,
)
from hivemind_trio.scheduler.decisions.account_choice import at_account
from tests.support.programs import SECOND_NS

from .driver import Driver

REFUSED = AttemptResult(outcome=Outcome.QUOTA, status=429, retry_after_ns=60 * SECOND_NS)
BROKEN = AttemptResult(outcome=Outcome.FAILED, status=500)
SPENT = AttemptResult(outcome=Outcome.TERMINAL, status=402, retry_after_ns=3_600 * SECOND_NS)


def policy(accounts: str, more: str = "", provider: str = "concurrency 2; headers ignore") -> Program:
    text = f'hmp 1\nprovider sim {{ api anthropic; base "http://127.0.0.1:1"; {provider}\n{accounts} }}\n{more}\n'
    checked = check("p.hmp", MemoryFiles({"p.hmp": text}))
    assert checked.program is not None, checked.diagnostics
    return checked.program


BOTH = "account a { key env(A) }\naccount b { key env(B) }\n"


def where(driver: Driver, call: int) -> str:
    permit = driver.grant(call).permit
    assert permit is not None
    return permit.provider


def circuit(driver: Driver) -> Circuit:
    return driver.rest.pools["sim.a"].circuit


def waits(driver: Driver, call: int) -> bool:
    return driver.scheduler.waiting(CallId(call), driver.now_ns) is not None


def test_each_account_has_slots_of_its_own() -> None:
    driver = Driver(policy(BOTH + "spread first"))
    calls = driver.calls(5)

    assert [where(driver, call) for call in calls[:4]] == ["sim.a", "sim.a", "sim.b", "sim.b"]
    assert waits(driver, calls[4])
    assert {name: pool.inflight for name, pool in driver.rest.pools.items()} == {"sim.a": 2, "sim.b": 2}


def test_even_takes_the_least_loaded() -> None:
    driver = Driver(policy(BOTH + "spread even"))

    assert [where(driver, call) for call in driver.calls(4)] == ["sim.a", "sim.b", "sim.a", "sim.b"]


def test_even_takes_idle_accounts_by_turns() -> None:
    driver = Driver(policy(BOTH + "spread even"))
    went = []
    for _ in range(4):
        call = driver.call()
        went.append(where(driver, call))
        driver.end(call)

    assert went == ["sim.a", "sim.b", "sim.a", "sim.b"]


def test_a_session_stays_with_its_account_while_its_cache_is_warm() -> None:
    driver = Driver(policy(BOTH))
    one = driver.call(job="one")
    driver.end(one)
    other = driver.call(job="other")  # a is as free as b again
    stays = driver.call(job="other/child")
    driver.end(other)
    driver.end(stays)
    assert [where(driver, each) for each in (one, other, stays)] == ["sim.a", "sim.a", "sim.a"]

    held = driver.call(job="held")
    later = driver.call(job="new")
    assert (where(driver, held), where(driver, later)) == ("sim.a", "sim.b")
    driver.end(held)
    driver.end(later)
    again = driver.call(job="new")
    assert where(driver, again) == "sim.b"
    driver.end(again)
    driver.at(600 * SECOND_NS)
    assert where(driver, driver.call(job="new")) == "sim.a"


def test_a_session_goes_elsewhere_rather_than_wait() -> None:
    driver = Driver(policy(BOTH))
    driver.calls(2, job="one")
    third = driver.call(job="one")

    assert where(driver, third) == "sim.b"
    assert str(driver.grant(third).treatment.decided["account"]).startswith("spread sticky: it has room")


def test_a_waiting_call_is_drawn_to_the_account_that_has_room_first() -> None:
    driver = Driver(policy(BOTH))
    calls = driver.calls(4)
    waiting = driver.calls(2)
    of_b = [call for call in calls if where(driver, call) == "sim.b"]

    assert [driver.end(call) for call in of_b] == [[waiting[0]], [waiting[1]]]
    assert {where(driver, call) for call in waiting} == {"sim.b"}


def test_a_refused_account_yields_and_comes_back_when_it_has_said() -> None:
    driver = Driver(policy(BOTH + "spread first"))
    call = driver.call()
    assert where(driver, call) == "sim.a"
    assert driver.end(call, REFUSED) == [call], "it goes at once, with the other key"
    assert where(driver, call) == "sim.b"
    second, third = driver.calls(2)
    assert where(driver, second) == "sim.b"
    assert waits(driver, third), "a is held, and b has no room"

    driver.at(61 * SECOND_NS)
    assert where(driver, third) == "sim.a"


def test_a_failing_account_yields_and_is_probed() -> None:
    breaker = "breaker trip 100% of 2 over 30s open 5s probes 1"
    driver = Driver(
        policy(BOTH + "spread first", "retry default { attempts 3; backoff 0s..0s }", f"concurrency 2; {breaker}")
    )
    calls = driver.calls(2)
    for call in calls:
        driver.end(call, BROKEN)
    assert [where(driver, call) for call in calls] == ["sim.b", "sim.b"]
    assert circuit(driver) is Circuit.OPEN
    third = driver.call()
    assert waits(driver, third)

    opens_ns = driver.rest.pools["sim.a"].opens_ns
    assert opens_ns is not None
    driver.at(opens_ns)
    assert where(driver, third) == "sim.a"
    driver.end(third)
    assert circuit(driver) is Circuit.CLOSED


def test_a_spent_account_yields_and_all_spent_is_a_rejection() -> None:
    driver = Driver(policy(BOTH + "spread first"))
    call = driver.call()
    driver.end(call, SPENT)
    assert where(driver, call) == "sim.b"
    driver.end(call, SPENT)
    assert isinstance(driver.answers[call], Finish | Reject)
    assert driver.refusal(driver.call()).reason is Reason.PROVIDER_SPENT


def test_only_named_lanes_use_an_account_and_they_use_it_first() -> None:
    accounts = "account open { key env(A) }\naccount own { key env(B); for batch }\n"
    driver = Driver(policy(accounts, 'lane batch { }\nrule r when model == "night" { lane batch }'))
    of_batch = driver.calls(3, model="night")
    others = driver.calls(2, model="day")

    assert [where(driver, call) for call in of_batch] == ["sim.own", "sim.own", "sim.open"]
    assert where(driver, others[0]) == "sim.open"
    assert waits(driver, others[1])
    driver.end(of_batch[0])
    assert waits(driver, others[1]), "the account is not for its lane"


def test_own_limits_hold_for_one_account() -> None:
    accounts = (
        "account a { key env(A); limits { requests 1/min; window sliding } }\naccount b { key env(B) }\nspread first"
    )
    driver = Driver(policy(accounts))
    first, second = driver.call(), driver.call()

    assert (where(driver, first), where(driver, second)) == ("sim.a", "sim.b")


def test_an_operator_pauses_one_account_or_all() -> None:
    driver = Driver(policy(BOTH + "spread first"))
    driver.post(PauseSet(Pausable.PROVIDER, "sim.a", True))
    assert where(driver, driver.call()) == "sim.b"
    driver.post(PauseSet(Pausable.PROVIDER, "sim", True))
    call = driver.call()
    assert waits(driver, call)
    driver.post(PauseSet(Pausable.PROVIDER, "sim", False))
    assert where(driver, call) == "sim.b"


def test_a_reload_without_an_account_moves_its_waiting_calls() -> None:
    driver = Driver(policy(BOTH + "spread first"))
    calls = driver.calls(5)
    driver.load(policy("account b { key env(B) }"))
    assert waits(driver, calls[4])
    driver.end(calls[0])
    assert waits(driver, calls[4]), "a is gone"
    driver.end(calls[2])
    assert where(driver, calls[4]) == "sim.b"


def test_a_renamed_provider_keeps_the_state_of_its_accounts() -> None:
    driver = Driver(policy(BOTH + "spread first"))
    held = driver.call()
    text = 'provider new was sim { api anthropic; base "http://127.0.0.1:1"; concurrency 2\n' + BOTH + "spread first }"
    checked = check("p.hmp", MemoryFiles({"p.hmp": text}))
    assert checked.program is not None
    driver.load(checked.program)
    assert {name: pool.inflight for name, pool in driver.rest.pools.items()} == {"new.a": 1, "new.b": 0}
    driver.end(held)
    assert driver.rest.pools["new.a"].inflight == 0


def test_a_renamed_account_keeps_its_state_and_its_sessions() -> None:
    driver = Driver(policy(BOTH + "spread sticky"))
    held = driver.call()
    (name,) = (name for name, pool in driver.rest.pools.items() if pool.inflight)
    old = name.removeprefix("sim.")
    driver.load(policy(BOTH.replace(f"account {old}", f"account new was {old}") + "spread sticky"))
    assert driver.rest.pools["sim.new"].inflight == 1
    assert where(driver, driver.call()) == "sim.new", "its prompt cache is warm there, though the other is idle"
    driver.end(held)
    assert driver.rest.pools["sim.new"].inflight == 1


def test_fallback_only_when_no_account_is_up() -> None:
    more = 'provider other { api anthropic; base "http://127.0.0.1:2" }\nretry default { attempts 1 }'
    breaker = "concurrency 2; fallback other; breaker trip 100% of 2 over 30s open 50s probes 1"
    driver = Driver(policy(BOTH + "spread first", more, breaker))
    for call in driver.calls(2):
        driver.end(call, BROKEN)
    calls = driver.calls(2)
    assert {where(driver, call) for call in calls} == {"sim.b"}
    for call in calls:
        driver.end(call, BROKEN)
    call = driver.call()
    assert where(driver, call) == "other"
    assert driver.grant(call).treatment.instead_of == "sim"


def test_calls_that_were_decided_alike_share_who_decided() -> None:
    driver = Driver(policy(BOTH + "spread first"))
    first, second = driver.calls(2)

    assert driver.grant(first).treatment.decided is driver.grant(second).treatment.decided


SHARED = "account a { key env(A) }\naccount b { key env(B); shares a }\n"


def test_two_keys_of_one_organisation_have_one_pool() -> None:
    driver = Driver(policy(SHARED + "spread even"))
    calls = driver.calls(3)

    assert [where(driver, call) for call in calls[:2]] == ["sim.a", "sim.a"]
    assert [driver.grant(call).treatment.sender for call in calls[:2]] == ["sim.a", "sim.b"], "the keys take turns"
    assert waits(driver, calls[2]), "two slots for both"
    waiting = [calls[2], *driver.calls(3)]
    for call in (*calls[:2], *waiting):
        driver.end(call)
    sent = [driver.grant(call).treatment.sender for call in waiting]
    assert sent == ["sim.a", "sim.b", "sim.a", "sim.b"], "also those that have waited"
    calls = driver.calls(2)
    assert {name: pool.inflight for name, pool in driver.rest.pools.items()} == {"sim.a": 2}


def test_a_question_about_a_call_uses_up_no_turn() -> None:
    driver = Driver(policy(SHARED + "spread even"))
    (first,) = driver.calls(1)
    driver.scheduler.routed(driver.scheduler.state.inflight[CallId(first)].call)
    (second,) = driver.calls(1)

    assert [driver.grant(call).treatment.sender for call in (first, second)] == ["sim.a", "sim.b"]


def test_a_refusal_of_one_key_holds_the_other_of_its_organisation() -> None:
    driver = Driver(policy(SHARED + "account c { key env(C) }\nspread first"))
    call = driver.call()
    driver.end(call, REFUSED)

    assert driver.grant(call).treatment.sender == "sim.c", "not the other key, which has the same windows"


def test_a_spent_key_yields_to_the_other_of_its_pool() -> None:
    driver = Driver(policy(SHARED))
    call = driver.call(job="one")
    assert driver.grant(call).treatment.sender == "sim.a"
    driver.end(call, SPENT)
    assert driver.grant(call).treatment.sender == "sim.b"
    driver.end(call, SPENT)
    assert isinstance(driver.answers[call], Finish)
    assert driver.refusal(driver.call()).reason is Reason.PROVIDER_SPENT


def test_calls_that_wait_for_a_spent_key_go_with_the_other() -> None:
    driver = Driver(policy(SHARED + "spread first"))
    first, second, third = driver.calls(3)
    assert waits(driver, third)
    driver.end(first, SPENT)
    assert isinstance(driver.answers[first], Grant), "it has taken the other key"
    driver.end(second)

    assert {driver.grant(call).treatment.sender for call in (first, third)} == {"sim.b"}


def test_a_session_stays_with_its_key() -> None:
    driver = Driver(policy(SHARED))
    sent = []
    for job in ("one", "two", "one", "two", "one"):
        call = driver.call(job=job)
        sent.append(driver.grant(call).treatment.sender)
        driver.end(call)

    assert sent == ["sim.a", "sim.b", "sim.a", "sim.b", "sim.a"]


def test_a_key_of_some_lanes_is_used_by_these_first() -> None:
    accounts = "account a { key env(A) }\naccount n { key env(B); for batch; shares a }\n"
    more = 'lane batch { }\nrule r when model == "night" { lane batch }'
    driver = Driver(policy(accounts, more))
    night, day = driver.call(model="night"), driver.call(model="day")

    assert (driver.grant(night).treatment.sender, driver.grant(day).treatment.sender) == ("sim.n", "sim.a")


def test_a_budget_per_key_counts_keys_that_share_each_by_itself() -> None:
    more = "budget b per key { requests 1/day; at 100% { deny } }"
    driver = Driver(policy(SHARED + "spread even", more))
    first, second, third = driver.calls(3)
    driver.end(first)
    driver.end(second)

    assert [driver.grant(call).treatment.sender for call in (first, second)] == ["sim.a", "sim.b"]
    assert driver.refusal(third).reason is Reason.BUDGET


def test_a_renamed_provider_keeps_the_keys_of_its_waiting_calls() -> None:
    driver = Driver(policy(SHARED + "spread even"))
    first, second, third = driver.calls(3)
    text = 'provider new was sim { api anthropic; base "http://127.0.0.1:1"; concurrency 2\n' + SHARED + "spread even }"
    checked = check("p.hmp", MemoryFiles({"p.hmp": text}))
    assert checked.program is not None
    driver.load(checked.program)
    driver.end(first)
    driver.end(second)

    assert driver.grant(third).treatment.sender in ("new.a", "new.b")
    assert driver.rest.pools["new.a"].inflight == 1


def test_nodes_share_the_windows_of_keys_that_share_once() -> None:
    driver = Driver(policy(SHARED, provider="concurrency 2; limits { requests 600/min }"))
    driver.post(WindowsShared(2, 500))

    asked = [command.window.provider for command in driver.last if isinstance(command, DrawWindow)]
    assert asked == ["sim.a"]


def test_nodes_share_the_windows_of_each_account_by_itself() -> None:
    accounts = "account a { key env(A); limits { requests 60/min } }\naccount b { key env(B) }\nspread first"
    driver = Driver(policy(accounts, provider="concurrency 2; limits { requests 600/min }"))
    driver.post(WindowsShared(2, 500))

    asked = {command.window.provider: command.limit for command in driver.last if isinstance(command, DrawWindow)}
    assert asked == {"sim.a": 60, "sim.b": 600}


STEP = st.one_of(
    st.tuples(st.just("call"), st.sampled_from(["day", "night"]), st.sampled_from(["one", "two", "three"])),
    st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from([None, REFUSED, BROKEN])),
    st.tuples(st.just("pass"), st.integers(1, 90), st.none()),
)


@pytest.mark.slow
@given(st.lists(STEP, max_size=60), st.sampled_from(["sticky", "first", "even"]))
def test_at_rest_nobody_waits_while_an_account_has_room(steps: list[tuple[str, Any, Any]], spread: str) -> None:
    accounts = (
        "account a { key env(A) }\naccount b { key env(B); concurrency 1 }\n"
        "account n { key env(C); for night; limits { requests 3/min; window sliding } }\n"
        "account s { key env(D); for default; shares n }\naccount t { key env(E); shares b }\n"
    )
    more = 'lane night { }\nrule r when model == "night" { lane night }\nretry default { attempts 9; backoff 1s..2s }'
    driver = Driver(policy(accounts + f"spread {spread}", more))
    for kind, what, how in steps:
        books = driver.scheduler.state
        match kind:
            case "call":
                driver.call(str(how), model=what, job=str(how))
            case "end" if books.inflight:
                assert isinstance(what, int)
                call = sorted(books.inflight)[what % len(books.inflight)]
                driver.end(call, how) if isinstance(how, AttemptResult) else driver.end(call)
            case "pass":
                assert isinstance(what, int)
                until_ns = driver.now_ns + what * SECOND_NS
                while (wakes_ns := driver.scheduler.wakeup_ns()) is not None and wakes_ns <= until_ns:
                    driver.at(max(wakes_ns, driver.now_ns + 1))
                driver.at(until_ns)
        for flight in books.inflight.values():
            account = flight.place.pool.provider
            assert account is not None
            assert flight.treatment.provider == account.name
            sender = next(one for one in account.keyring if f"sim.{one.name}" == flight.treatment.sender)
            assert sender.takes_lane(flight.treatment.lane)
        held = Counter(flight.place.pool.name for flight in books.inflight.values())
        assert all(pool.inflight == held[name] <= pool.limit for name, pool in driver.rest.pools.items())
        for waiter in books.room:
            if not waiter.in_line:
                continue
            for pool in books.accounts["sim"]:
                if pool.provider is None or not pool.provider.takes_lane(waiter.treatment.lane):
                    continue
                if waiter.stays_away_ns(pool) > driver.now_ns:
                    continue
                there = books.place(waiter.call, at_account(waiter.call, waiter.treatment, pool.provider))
                assert there.blocked(driver.now_ns) is not Reason.NONE, (waiter.call.id, pool.name)
            wakes_ns = driver.scheduler.wakeup_ns()
            assert books.inflight or (wakes_ns is not None and wakes_ns >= driver.now_ns), "nobody would wake it"
