"""Plans in the scheduler: for which account a reading holds, for how long, and what is news of it."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import PlanReading, PlanSpan, PlanStanding, PlanWindow, Reason, SecretRef, SecretSource
from hivemind_trio.policy import MemoryFiles, Program, check
from hivemind_trio.scheduler import BeliefsRestored, Call, CallId, Command, PlanChanged, ResponseStarted
from hivemind_trio.scheduler.plans.plan_accounts import ACCOUNTS_MAX, PlanAccounts
from tests.scheduler.driver import Driver
from tests.support.programs import SECOND_NS, program, provider, wish

HOUR = 3_600 * SECOND_NS
DAY = 24 * HOUR


def policy(*, key: bool = False) -> Program:
    keys = (SecretRef(SecretSource.ENV, "K"),) if key else ()
    return program(providers=[attrs.evolve(provider("p"), keys=keys)])


def reading(percent: int, *, resets_ns: int | None = 2 * HOUR, name: str = "5h", overage: bool = False) -> PlanReading:
    length = {"5h": 5 * HOUR, "7d": 7 * DAY, "7d_opus": 7 * DAY}[name]
    models = name.partition("_")[2]
    window = PlanWindow(name=name, used=percent * 10_000, window_ns=length, resets_ns=resets_ns, models=models)
    return PlanReading(windows=(window,), overage=overage)


def hear(driver: Driver, told: PlanReading, credential: str = "a") -> list[PlanChanged]:
    """A call's answer tells of its account's plan."""
    call_id = driver.ask(wish(), credential=credential)
    commands: list[Command] = driver.post(ResponseStarted(CallId(call_id), (), plan=told))
    driver.end(call_id)
    return [one for one in commands if isinstance(one, PlanChanged)]


def standing(driver: Driver, credential: str = "a", model: str = "claude-sonnet-4-5") -> PlanStanding:
    call = Call(id=CallId(9_999), request=wish(), caller="x", credential=credential)
    return driver.scheduler.plan(call, "p", model)


def percents(plan: PlanStanding) -> dict[PlanSpan, int]:
    return {one.span: one.used // 10_000 for one in plan.uses}


def test_a_reading_holds_for_the_credential_that_was_sent_and_for_no_other() -> None:
    driver = Driver(policy())

    hear(driver, reading(93), "a")

    assert percents(standing(driver, "a")) == {PlanSpan.SESSION: 93}
    assert standing(driver, "b").uses == ()


def test_callers_of_one_key_share_its_plan() -> None:
    driver = Driver(policy(key=True))

    hear(driver, reading(93), "a")

    assert percents(standing(driver, "b")) == {PlanSpan.SESSION: 93}


def test_a_window_that_has_begun_anew_is_unused() -> None:
    driver = Driver(policy())
    hear(driver, reading(93))

    driver.at(2 * HOUR)

    (use,) = standing(driver).uses
    assert (use.used, use.resets_ns) == (0, None)


def test_a_week_of_one_family_counts_its_calls_alone_and_the_fullest_window_counts() -> None:
    driver = Driver(policy())
    hear(driver, reading(40, name="7d"))
    hear(driver, reading(90, name="7d_opus"))

    assert percents(standing(driver)) == {PlanSpan.WEEK: 40}
    assert percents(standing(driver, model="claude-opus-4-1")) == {PlanSpan.WEEK: 90}


def test_a_change_is_told_once_and_so_is_a_share_that_is_crossed() -> None:
    driver = Driver(policy())

    told = [hear(driver, reading(percent)) for percent in (40, 40, 91, 92, 89, 91)]

    assert [len(each) for each in told] == [1, 0, 1, 1, 1, 1]
    crossed = [[one.share // 10_000 for one in each.crossed] for changes in told for each in changes]
    assert crossed == [[], [90], [], [], [90]]
    (change,) = told[2]
    assert (change.provider, change.account, change.overage) == ("p", "a", False)


def test_paying_beyond_the_plan_is_news() -> None:
    driver = Driver(policy())
    hear(driver, reading(100))

    (change,) = hear(driver, reading(100, overage=True))

    assert change.overage
    assert standing(driver).overage


def test_a_restart_keeps_windows_that_have_not_begun_anew() -> None:
    driver = Driver(policy())
    hear(driver, reading(93), "a")
    hear(driver, reading(61, name="7d", resets_ns=None), "a")
    hear(driver, reading(50, resets_ns=HOUR // 2), "b")

    later = Driver(policy())
    later.post(BeliefsRestored(driver.scheduler.beliefs(), {"p": HOUR}))

    assert percents(standing(later, "a")) == {PlanSpan.SESSION: 93, PlanSpan.WEEK: 61}
    assert standing(later, "a").uses[0].resets_ns == HOUR
    assert standing(later, "b").uses == ()


def test_accounts_are_bounded_and_the_one_read_longest_ago_is_forgotten() -> None:
    plans = PlanAccounts()
    plans.on_read("first", reading(10), 0)
    plans.on_read("second", reading(10), 0)
    plans.on_read("first", reading(20), 0)
    for number in range(ACCOUNTS_MAX - 1):
        plans.on_read(f"{number}", reading(10), 0)

    assert len(list(plans)) == ACCOUNTS_MAX
    assert plans.standing("first", "", 0).uses
    assert not plans.standing("second", "", 0).uses


READINGS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 100), st.sampled_from(["5h", "7d"]), st.integers(0, 3 * HOUR)),
    max_size=20,
)


@given(READINGS)
def test_of_each_account_the_last_reading_holds_until_its_reset(
    told: list[tuple[str, int, str, int]],
) -> None:
    driver = Driver(policy())
    last: dict[tuple[str, str], tuple[int, int]] = {}
    for credential, percent, name, pause_ns in told:
        driver.at(driver.now_ns + pause_ns)
        hear(driver, reading(percent, name=name), credential)
        last[credential, name] = percent, driver.now_ns + 2 * HOUR

    for credential in "abc":
        found = percents(standing(driver, credential))
        for name, span in (("5h", PlanSpan.SESSION), ("7d", PlanSpan.WEEK)):
            percent, until_ns = last.get((credential, name), (0, 0))
            assert found.get(span, 0) == (percent if until_ns > driver.now_ns else 0)


# ---- in rules ----


def ruled(text: str, provider: str = 'provider p { api anthropic; base "http://127.0.0.1:9" }') -> Program:
    checked = check("p.hmp", MemoryFiles({"p.hmp": f"hmp 1\n{provider}\n{text}\n"}))
    assert checked.program is not None, checked.diagnostics
    return checked.program


def test_a_rule_reads_the_plan_of_the_caller_and_of_no_other() -> None:
    driver = Driver(ruled('rule r when plan.week > 80% { deny "the week is nearly used" }'))
    hear(driver, reading(81, name="7d"), "a")

    assert driver.refusal(driver.ask(wish(), credential="a")).reason is Reason.DENIED
    assert driver.grant(driver.ask(wish(), credential="b"))


def test_a_rule_reads_the_windows_of_the_model_as_they_stand_now() -> None:
    driver = Driver(ruled("lane batch { }\nrule r when plan.week >= 90% { lane batch }"))
    hear(driver, reading(90, name="7d_opus"))

    def lane(model: str) -> str:
        return driver.grant(driver.ask(wish(model=model), credential="a")).treatment.lane

    assert (lane("claude-opus-4-1"), lane("claude-sonnet-4-5")) == ("batch", "default")
    driver.at(2 * HOUR)
    assert lane("claude-opus-4-1") == "default", "the window has begun anew"


def test_a_rule_reads_whether_the_account_pays() -> None:
    driver = Driver(ruled('rule r when plan.overage and plan.session == 100% { warn "paid" }'))
    hear(driver, reading(100, overage=True))

    assert driver.grant(driver.ask(wish(), credential="a")).treatment.warnings == ("paid",)
    assert driver.grant(driver.ask(wish(), credential="b")).treatment.warnings == ()


def test_a_reload_judges_waiting_calls_by_the_plan_of_now() -> None:
    one = 'provider p { api anthropic; base "http://127.0.0.1:9"; concurrency 1 }'
    driver = Driver(ruled("", provider=one))
    hear(driver, reading(95))
    driver.ask(wish(), credential="b")
    waiting = [driver.ask(wish(), credential=credential) for credential in "ab"]

    driver.load(ruled('rule r when plan.session > 90% { deny "no" }', provider=one))

    assert driver.refusal(waiting[0]).reason is Reason.DENIED
    assert waiting[1] not in driver.answers
