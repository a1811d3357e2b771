"""Plan of a simulated account: windows follow one another, count all tokens, and are told in whole percents."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Api, Outcome, PlanReading, PlanSpan
from hivemind_trio.model.plan import DAY_NS, HOUR_NS, WHOLE
from hivemind_trio.sim import Accepted, Ask, PlanLimit, Refused, Traits
from hivemind_trio.sim.provider.plan_windows import STEP, SimulatedPlan
from hivemind_trio.sim.provider.provider import Provider, Trouble
from hivemind_trio.sim.provider.wire_format import ended, tells_plan
from tests.sim.worlds import SECOND


def limit(**more: int) -> PlanLimit:
    return PlanLimit(**{"span": PlanSpan.SESSION, "tokens": 1_000, "every_ns": 5 * HOUR_NS} | more)  # type: ignore[arg-type]


def told(plan: SimulatedPlan, now_ns: int) -> list[tuple[str, int, int | None]]:
    reading = plan.reading(now_ns)
    assert isinstance(reading, PlanReading)
    return [(one.name, one.used, one.resets_ns) for one in reading.windows]


def test_a_window_begins_with_what_is_used_and_resets_when_it_says() -> None:
    plan = SimulatedPlan((limit(used=100_000, resets_ns=2 * HOUR_NS),))
    plan.take(405, HOUR_NS)

    assert told(plan, HOUR_NS) == [("5h", 500_000, HOUR_NS)], "50.5 % is told as 50 %"
    assert told(plan, 2 * HOUR_NS) == [("5h", 0, 5 * HOUR_NS)]
    assert plan.windows[0].unused == [495_000]
    assert told(plan, 18 * HOUR_NS) == [("5h", 0, 4 * HOUR_NS)]
    assert plan.windows[0].unused == [495_000, WHOLE, WHOLE, WHOLE]


@given(
    used=st.integers(0, WHOLE),
    resets_h=st.integers(1, 9),
    calls=st.lists(st.tuples(st.integers(0, 4 * HOUR_NS), st.integers(1, 600))),
)
def test_the_windows_agree_with_a_count_of_all_tokens(used: int, resets_h: int, calls: list[tuple[int, int]]) -> None:
    plan = SimulatedPlan((limit(used=used, resets_ns=resets_h * HOUR_NS),))
    now_ns = 0
    taken: dict[int, int] = {-1: 1_000 * used // WHOLE}  # by the number of the window
    for after_ns, tokens in calls:
        now_ns += after_ns
        number = -1 if now_ns < resets_h * HOUR_NS else (now_ns - resets_h * HOUR_NS) // (5 * HOUR_NS)
        before = taken.get(number, 0)
        assert (plan.opens_ns(now_ns) is None) == (before < 1_000)
        plan.take(tokens, now_ns)
        taken[number] = before + tokens
        ((_, share, left_ns),) = told(plan, now_ns)
        assert share % STEP == 0
        assert share == min(WHOLE, (before + tokens) * WHOLE // 1_000) // STEP * STEP
        assert left_ns == resets_h * HOUR_NS + (number + 1) * 5 * HOUR_NS - now_ns
    shares = [min(WHOLE, tokens * WHOLE // 1_000) for tokens in taken.values()]
    assert plan.windows[0].used_max == max(shares)


def ask(key: str, tokens_in: int, account: str = "") -> Ask:
    return Ask(key=key, tokens_in=tokens_in, tokens_max_out=100, tokens_out=1, account=account)


def test_a_request_is_accepted_while_anything_is_left_of_every_window() -> None:
    week = PlanLimit(span=PlanSpan.WEEK, tokens=1_500, every_ns=7 * DAY_NS)
    provider = Provider(traits=Traits(plan=(limit(), week), tokens_out_min=1))

    assert isinstance(provider.arrive(ask("a", 999), 0), Accepted)
    assert isinstance(provider.arrive(ask("b", 300), 0), Accepted), "one token is left"
    refused = provider.arrive(ask("c", 1), HOUR_NS)
    assert isinstance(refused, Refused)
    assert (refused.trouble, refused.retry_after_ns) == (Trouble.PLAN, 4 * HOUR_NS)
    assert isinstance(provider.arrive(ask("d", 900), 5 * HOUR_NS), Accepted)
    refused = provider.arrive(ask("e", 1), 6 * HOUR_NS)
    assert isinstance(refused, Refused)
    assert refused.retry_after_ns == 7 * DAY_NS - 6 * HOUR_NS, "the week is used up as well"


def test_answers_count_as_they_are_generated_and_cached_input_a_tenth() -> None:
    provider = Provider(traits=Traits(plan=(limit(),), cache_ns=HOUR_NS))
    turn = Ask(key="a", tokens_in=200, tokens_max_out=100, conversation="c")
    accepted = provider.arrive(turn, 0)
    assert isinstance(accepted, Accepted)
    assert told(provider.plans[""], 0)[0][1] == 200_000
    provider.generate(accepted, 50, SECOND)
    provider.arrive(turn, 2 * SECOND)
    assert told(provider.plans[""], 2 * SECOND)[0][1] == 270_000


def test_every_account_has_its_own() -> None:
    own = (limit(tokens=10),)
    provider = Provider(traits=Traits(plan=(limit(),), plans=(("poor", own),)))
    provider.arrive(ask("a", 10, "poor"), 0)
    assert isinstance(provider.arrive(ask("b", 10, "poor"), 0), Refused)
    assert isinstance(provider.arrive(ask("c", 10, "rich"), 0), Accepted)


@pytest.mark.parametrize("api", [Api.ANTHROPIC, Api.OPENAI])
def test_the_proxy_understands_the_refusal_of_a_used_up_plan(api: Api) -> None:
    provider = Provider(traits=Traits(plan=(limit(used=WHOLE),)))
    refused = provider.arrive(ask("a", 1), 0)
    assert isinstance(refused, Refused)
    said = ended(api, refused)

    assert (said.outcome, said.status) == (Outcome.TERMINAL, 429)
    assert said.retry_after_ns == 5 * HOUR_NS
    assert tells_plan(api)


def test_gemini_tells_of_no_plan() -> None:
    assert not tells_plan(Api.GEMINI)
