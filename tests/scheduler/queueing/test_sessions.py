"""Facts of sessions in rules: context, turns, cost and age, by job and by caller."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Outcome, Reason, Usage
from hivemind_trio.policy import MemoryFiles, Program, check
from hivemind_trio.scheduler import AttemptResult, BeliefsRestored, KeptSessions
from hivemind_trio.scheduler.queueing.sessions import KEPT_MAX, SESSIONS_MAX
from tests.scheduler.driver import Driver
from tests.support.ends import SUCCEEDED
from tests.support.programs import wish

MINUTE = 60 * 10**9


def ruled(text: str) -> Program:
    provider = 'provider p { api anthropic; base "http://127.0.0.1:9"; concurrency 1000 }'
    checked = check("p.hmp", MemoryFiles({"p.hmp": f"hmp 1\n{provider}\nlane batch {{ }}\n{text}\n"}))
    assert checked.program is not None, checked.diagnostics
    return checked.program


def used(tokens_in: int, output: int = 0, **more: Any) -> AttemptResult:
    """An answer with this usage; a third of the input was cached."""
    cached = tokens_in // 3
    return attrs.evolve(SUCCEEDED, usage=Usage(input=tokens_in - cached, cache_read=cached, output=output), **more)


def turn(driver: Driver, ended: AttemptResult, job: str = "j", caller: str = "x", **wishes: Any) -> None:
    driver.end(driver.ask(attrs.evolve(wish(), **wishes), caller, job=job), ended)


def lane(driver: Driver, job: str = "j", caller: str = "x") -> str:
    return driver.grant(driver.call(caller, job=job)).treatment.lane


def test_the_context_is_of_the_last_call_with_cache_and_output() -> None:
    driver = Driver(ruled("rule r when session.context == 1000 { lane batch }"))
    turn(driver, used(5_000, 7))
    turn(driver, used(900, 100))

    assert lane(driver) == "batch"
    assert lane(driver, "another") == "default"
    assert lane(driver, "") == "default"
    assert lane(driver, caller="y") == "default", "another caller may say the same of its session"


def test_what_failed_is_no_turn() -> None:
    driver = Driver(ruled("rule r when session.turns == 1 { lane batch }"))
    turn(driver, used(900, outcome=Outcome.IGNORED, status=400, committed=True))
    assert lane(driver) == "default"
    turn(driver, used(900))
    assert lane(driver) == "batch"


def test_a_sub_agent_has_a_context_of_its_own_and_the_cost_of_the_session() -> None:
    driver = Driver(
        ruled(
            'model "m" { price input $1/Mtok output $1/Mtok cache-read $1/Mtok }\n'
            "rule r when session.turns == 0 and session.cost == $2 and session.context == 0 { lane batch }"
        )
    )
    turn(driver, used(1_500_000, 500_000), "s/main", model="m")

    assert lane(driver, "s/sub") == "batch"
    assert lane(driver, "s/main") == "default"


def test_calls_beside_a_conversation_with_tools_are_no_turns() -> None:
    driver = Driver(ruled("rule r when session.turns == 2 and session.context == 800 { lane batch }"))
    turn(driver, used(50))
    for tokens in (700, 800):
        turn(driver, used(tokens), tools=True)
        turn(driver, used(60))

    assert lane(driver) == "batch"


def test_the_age_is_since_the_first_call_arrived() -> None:
    driver = Driver(ruled("rule r when session.age >= 2m { deny }"))
    driver.at(MINUTE)
    turn(driver, used(10))
    driver.at(3 * MINUTE - 1)
    turn(driver, used(10))
    driver.at(3 * MINUTE)

    assert driver.refusal(driver.call(job="j")).reason is Reason.DENIED


def test_a_session_that_was_not_seen_for_long_is_forgotten() -> None:
    driver = Driver(ruled("rule r when session.turns > 0 { lane batch }"))
    turn(driver, used(10))
    turn(driver, used(10), "again")
    for number in range(SESSIONS_MAX - 1):
        turn(driver, used(10), f"other-{number}")

    assert lane(driver) == "default"
    assert lane(driver, "again") == "batch"
    table = driver.scheduler.state.sessions
    assert max(len(table.threads), len(table.totals)) <= SESSIONS_MAX


@given(turns=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 10**6), st.integers(0, 10**4)), max_size=8))
def test_facts_are_those_of_the_turns_of_a_session(turns: list[tuple[str, int, int]]) -> None:
    driver = Driver(ruled('model "m" { price input $3/Mtok output $15/Mtok cache-read $0.3/Mtok }'))
    for job, tokens_in, output in turns:
        turn(driver, used(tokens_in, output), job, model="m")
    for job in "ab":
        its = [(tokens_in, output) for one, tokens_in, output in turns if one == job]
        table = driver.scheduler.state.sessions
        thread = table.threads.get(("@x", job))
        assert (thread.turns if thread else 0) == len(its)
        assert (thread.context if thread else 0) == (sum(its[-1]) if its else 0)


@pytest.mark.parametrize("text", ["agent a when session.turns > 3 { }", "rule r when session.cost > 5 { deny }"])
def test_conditions_that_cannot_be_are_errors(text: str) -> None:
    checked = check("p.hmp", MemoryFiles({"p.hmp": f"hmp 1\nprovider anthropic {{ }}\n{text}\n"}))

    assert checked.program is None


def restarted(driver: Driver, rules: str, later_ns: int) -> Driver:
    """A scheduler that begins so much later than the one before began, with what that has kept."""
    after = Driver(ruled(rules))
    after.post(BeliefsRestored({}, {}, driver.scheduler.sessions().shifted(-later_ns)))
    return after


def test_sessions_go_on_after_a_restart() -> None:
    rules = (
        'model "m" { price input $1/Mtok output $1/Mtok cache-read $1/Mtok }\n'
        "rule r when session.turns == 2 and session.context == 800 and session.cost == $1.5 and session.age >= 1h "
        "{ lane batch }"
    )
    driver = Driver(ruled(rules))
    driver.at(5 * MINUTE)
    turn(driver, used(1_499_200), "s/main", model="m", tools=True)
    turn(driver, used(800), "s/main", model="m", tools=True)
    turn(driver, used(70), "s/main")
    after = restarted(driver, rules, 60 * MINUTE)

    after.at(5 * MINUTE - 1)
    assert lane(after, "s/main") == "default"
    after.at(5 * MINUTE)
    assert lane(after, "s/main") == "batch"
    assert lane(after, "another/main") == "default"
    turn(after, used(50), "s/main")
    assert lane(after, "s/main") == "batch", "it still has tools, so this was no turn"


def test_of_many_sessions_those_seen_last_are_kept() -> None:
    driver = Driver(ruled(""))
    for number in range(KEPT_MAX + 3):
        turn(driver, used(10), f"s-{number}")
    turn(driver, used(10), "s-0")
    kept = driver.scheduler.sessions()

    expected = [f"s-{number}" for number in range(4, KEPT_MAX + 3)] + ["s-0"]
    assert [one.job for one in kept.threads] == [one.session for one in kept.totals] == expected
    assert restarted(driver, "", 0).scheduler.sessions() == kept


def test_a_session_that_is_seen_before_the_old_ones_are_known_stays() -> None:
    driver = Driver(ruled(""))
    turn(driver, used(10))
    kept = driver.scheduler.sessions()
    after = Driver(ruled("rule r when session.turns == 2 { lane batch }"))
    turn(after, used(20))
    turn(after, used(30))
    after.post(BeliefsRestored({}, {}, kept))

    assert lane(after) == "batch"


def test_a_clock_that_was_put_back_makes_no_age_below_zero() -> None:
    driver = Driver(ruled(""))
    turn(driver, used(10))
    after = Driver(ruled("rule r when session.age == 0s and session.turns == 1 { lane batch }"))
    after.post(BeliefsRestored({}, {}, driver.scheduler.sessions().shifted(60 * MINUTE)))

    assert lane(after) == "batch"


def test_a_thread_knows_its_agent_model_and_provider() -> None:
    driver = Driver(ruled("agent ci { }"))
    turn(driver, used(10), model="m", claimed="ci")
    turn(driver, used(10), "other", model="n")
    (first, second) = driver.scheduler.sessions().threads

    assert (first.agent, first.model, first.provider) == ("ci", "m", "p")
    assert (second.agent, second.model, second.provider) == ("x", "n", "p")
    assert KeptSessions() == Driver(ruled("")).scheduler.sessions()
