"""What is usual, and from when on an attempt is taken to hang."""

from __future__ import annotations

import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Api, Outcome, Request
from hivemind_trio.policy import Failure, Program, Reaper, Timeouts
from hivemind_trio.scheduler import AttemptResult, PolicyLoaded
from hivemind_trio.scheduler.health.adaptive_timeout import (
    KEYS_MAX,
    SAMPLES_MAX,
    SAMPLES_MIN,
    AdaptiveTimeout,
    LatencyHistogram,
)
from tests.scheduler.driver import Driver
from tests.support.policies import compiled

MS = 1_000_000
S = 1_000 * MS
MINUTE = 60 * S
LONGEST_NS = (1 << 22) * MS

TIMEOUTS = Timeouts(connect_ns=5 * S, first_byte_ns=5 * MINUTE, idle_ns=5 * MINUTE, total_ns=30 * MINUTE)
ASKED = Request(apis=(Api.ANTHROPIC,), model="m", stream=True, tokens_in=1_000)


def took(first_byte_ns: int | None, silence_ns: int | None = None) -> AttemptResult:
    return AttemptResult(
        outcome=Outcome.SUCCEEDED, status=200, committed=True, first_byte_ns=first_byte_ns, silence_ns=silence_ns
    )


def learned(*all_ended: AttemptResult, request: Request = ASKED) -> AdaptiveTimeout:
    progress = AdaptiveTimeout()
    for ended in all_ended:
        progress.on_ended(request, ended)
    return progress


def bounds(
    progress: AdaptiveTimeout, request: Request = ASKED, reaper: Reaper | None = None, given_up: int = 0
) -> Timeouts:
    return progress.bounds(request, TIMEOUTS, reaper or Reaper(), given_up)


# ---- the sketch ----


@pytest.mark.slow
@given(st.lists(st.integers(0, LONGEST_NS - 1) | st.integers(0, 100 * MS), min_size=SAMPLES_MIN, max_size=400))
def test_what_is_usual_is_the_99th_percentile_and_an_eighth_more_at_most(times: list[int]) -> None:
    sketch = LatencyHistogram()
    for time_ns in times:
        sketch.add(time_ns)
        sketch.usual_ns()  # what was found before does not stay

    exact_ns = sorted(times)[math.ceil(0.99 * len(times)) - 1]

    usual_ns = sketch.usual_ns()
    assert usual_ns is not None
    assert exact_ns < usual_ns <= max(exact_ns // MS * MS * 9 // 8, exact_ns // MS * MS + MS)


def test_one_in_a_hundred_is_not_usual_and_two_are() -> None:
    sketch = LatencyHistogram()
    for time_ns in [S] * 99 + [100 * S]:
        sketch.add(time_ns)
    one = sketch.usual_ns()
    sketch.add(100 * S)

    assert one is not None
    assert one < 2 * S
    assert (sketch.usual_ns() or 0) > 100 * S


def test_nothing_is_usual_before_there_are_enough() -> None:
    sketch = LatencyHistogram()
    for _ in range(SAMPLES_MIN - 1):
        sketch.add(S)
    assert sketch.usual_ns() is None

    sketch.add(S)

    assert sketch.usual_ns() is not None


def test_what_takes_longer_than_can_be_counted_is_counted_as_the_longest() -> None:
    sketch = LatencyHistogram()
    for _ in range(SAMPLES_MIN):
        sketch.add(10**18)

    assert sketch.usual_ns() == LONGEST_NS


def test_what_was_usual_fades() -> None:
    sketch = LatencyHistogram()
    for time_ns in [100 * S] * 500 + [S] * 10 * SAMPLES_MAX:
        sketch.add(time_ns)

    assert sketch.samples < SAMPLES_MAX
    usual_ns = sketch.usual_ns()
    assert usual_ns is not None
    assert usual_ns < 2 * S


# ---- the deadlines ----


@pytest.mark.parametrize(
    ("usual", "reaper", "first_byte_ns", "idle_ns"),
    [
        ((16 * S, 8 * S), Reaper(), 4 * 16 * S, 10 * 8 * S),
        ((16 * S, 8 * S), Reaper(first_byte=2.0, idle=3.5), 32 * S, 28 * S),
        ((2 * S, S), Reaper(), 30 * S, 20 * S),
        ((128 * S, 64 * S), Reaper(), 5 * MINUTE, 5 * MINUTE),
        ((16 * S, 8 * S), Reaper(first_byte=1e60, idle=1e60), 5 * MINUTE, 5 * MINUTE),
        ((16 * S, None), Reaper(), 4 * 16 * S, 5 * MINUTE),
        ((None, 8 * S), Reaper(), 5 * MINUTE, 10 * 8 * S),
    ],
    ids=["so many times", "as the policy says", "floors", "timeouts", "out of force", "one of them", "the other"],
)
def test_an_attempt_is_given_so_many_times_what_is_usual(
    usual: tuple[int | None, int | None], reaper: Reaper, first_byte_ns: int, idle_ns: int
) -> None:
    got = bounds(learned(*[took(*usual)] * SAMPLES_MIN), reaper=reaper)

    assert got.first_byte_ns == pytest.approx(first_byte_ns, rel=1 / 8)
    assert got.idle_ns == pytest.approx(idle_ns, rel=1 / 8)
    assert got.first_byte_ns >= first_byte_ns
    assert got.idle_ns >= idle_ns
    assert attrs.evolve(got, first_byte_ns=0, idle_ns=0) == attrs.evolve(TIMEOUTS, first_byte_ns=0, idle_ns=0)


def test_a_policy_that_allows_less_than_the_floors_has_its_way() -> None:
    short = attrs.evolve(TIMEOUTS, first_byte_ns=10 * S, idle_ns=5 * S)
    progress = learned(*[took(S, S)] * SAMPLES_MIN)

    assert progress.bounds(ASKED, short, Reaper(), 4) == short


def test_until_anything_is_known_the_policy_s_timeouts_hold() -> None:
    assert bounds(AdaptiveTimeout()) is TIMEOUTS


def test_until_enough_is_known_of_plain_answers_the_policy_s_timeouts_hold() -> None:
    plain = attrs.evolve(ASKED, stream=False)

    progress = learned(*[took(S, S)] * (SAMPLES_MIN - 1), request=plain)
    assert bounds(progress) is TIMEOUTS  # nor do they say anything of streams
    progress.on_ended(ASKED, took(S, S))
    assert bounds(progress, plain) is TIMEOUTS

    progress.on_ended(plain, took(S, S))

    assert bounds(progress, plain) is not TIMEOUTS


@pytest.mark.parametrize(
    "other",
    [attrs.evolve(ASKED, model="other"), attrs.evolve(ASKED, stream=False)],
    ids=["another model", "a plain answer"],
)
def test_what_is_of_another_kind_says_nothing_of_this_one(other: Request) -> None:
    progress = learned(*[took(S, S)] * SAMPLES_MIN)

    assert bounds(progress, other) is TIMEOUTS
    assert bounds(progress, attrs.evolve(ASKED, tokens_in=900)) != TIMEOUTS


@pytest.mark.parametrize(
    ("samples", "first_byte_s", "idle_s"),
    [(1, 4 * 20, 10 * 20), (2, 4 * 10, 10 * 10), (5, 30, 10 * 4), (SAMPLES_MIN - 1, 30, 20)],
)
def test_of_few_streams_the_longest_counts_and_more_the_fewer_they_are(
    samples: int, first_byte_s: int, idle_s: int
) -> None:
    got = bounds(learned(*[took(S, S), *[took(MS, MS)] * (samples - 1)]))

    assert got.first_byte_ns == pytest.approx(first_byte_s * S, rel=0.06)
    assert got.idle_ns == pytest.approx(idle_s * S, rel=0.06)


@pytest.mark.parametrize(
    ("tokens_in", "first_byte_s"),
    [(0, 30), (1_000, 30), (4_000, 4 * 16), (16_000, 16 * 16)],
    ids=["none", "as long", "four times as long", "sixteen times as long"],
)
def test_a_stream_of_another_size_has_as_much_more_time_as_its_input_is_longer(
    tokens_in: int, first_byte_s: int
) -> None:
    progress = learned(*[took(4 * S, 4 * S)] * 5 * SAMPLES_MIN)

    got = bounds(progress, attrs.evolve(ASKED, tokens_in=tokens_in))

    assert got.first_byte_ns == pytest.approx(first_byte_s * S, rel=1 / 8)
    assert got.idle_ns == pytest.approx(40 * S, rel=1 / 8)  # to read its input comes before it


def test_a_stream_of_a_model_that_little_is_known_of_has_no_less_than_any_stream_has_needed() -> None:
    progress = learned(*[took(250 * S, 200 * S)] * 3, request=attrs.evolve(ASKED, model="thinker"))
    for _ in range(SAMPLES_MIN - 1):
        progress.on_ended(ASKED, took(S, S))
    assert bounds(progress).first_byte_ns == 250 * S
    assert bounds(progress).idle_ns == 200 * S

    progress.on_ended(ASKED, took(S, S))

    assert (bounds(progress).first_byte_ns, bounds(progress).idle_ns) == (30 * S, 20 * S)


@pytest.mark.slow
@given(st.lists(st.integers(MS, 20 * S), min_size=1, max_size=3 * SAMPLES_MIN), st.lists(st.sampled_from([1, 2, 3])))
def test_no_stream_is_given_up_within_so_many_times_what_any_has_needed(times: list[int], sizes: list[int]) -> None:
    progress, reaper = AdaptiveTimeout(), Reaper()
    of_one_size = [0] * 5
    for number, time_ns in enumerate(times):
        size = sizes[number % len(sizes)] if sizes else 1
        request = attrs.evolve(ASKED, tokens_in=4**size)
        of_one_size[size] += 1
        progress.on_ended(request, took(time_ns, time_ns))

        for other in range(5):
            got = bounds(progress, attrs.evolve(ASKED, tokens_in=4**other), reaper)
            # Of twenty of its own size 1 in 100 may be longer than is usual: of so few that is none.
            if of_one_size[other] < SAMPLES_MIN:
                so_far_ns = max(times[: number + 1])
                assert got.first_byte_ns >= min(TIMEOUTS.first_byte_ns, 4 * so_far_ns)
                assert got.idle_ns >= min(TIMEOUTS.idle_ns, 10 * so_far_ns)


def test_a_larger_input_that_was_quick_is_taken_for_what_larger_ones_need() -> None:
    progress = learned(*[took(4 * S, 4 * S)] * SAMPLES_MIN)
    longer = attrs.evolve(ASKED, tokens_in=16_000)
    assert bounds(progress, longer).first_byte_ns == 16 * 16 * S

    progress.on_ended(longer, took(S, S))

    assert bounds(progress, longer).first_byte_ns == 30 * S


KINDS = [attrs.evolve(ASKED, model=model, tokens_in=size) for model in "ab" for size in (10, 1_000, 90_000)]
answers = st.tuples(
    st.sampled_from(KINDS),
    st.integers(MS, 40 * S),
    st.sampled_from([None, None, None, Failure.FIRST_BYTE, Failure.IDLE]),
)


@given(st.lists(answers, min_size=1, max_size=2 * SAMPLES_MIN), st.integers(1, 30))
def test_bounds_that_were_kept_are_those_of_one_that_keeps_none(
    events: list[tuple[Request, int, Failure | None]], times: int
) -> None:
    keeps, forgets, reaper = AdaptiveTimeout(), AdaptiveTimeout(), Reaper()
    for request, time_ns, failure in events * (1 + times // 10):
        for progress in (keeps, forgets):
            progress.on_ended(request, in_vain(time_ns, failure) if failure else took(time_ns, time_ns // 2))
        for asked in KINDS:
            for kind in forgets.kinds.values():
                kind.bounds = None
            assert bounds(keeps, asked, reaper) == bounds(forgets, asked, reaper)


def test_a_first_byte_that_was_heard_of_when_it_came_is_not_counted_again_at_the_end() -> None:
    progress = AdaptiveTimeout()
    progress.on_begun(ASKED, S)
    progress.on_ended(ASKED, took(S, S), begun=True)

    assert bounds(progress) == bounds(learned(took(S, S)))


def test_an_attempt_has_twice_the_time_of_the_one_that_was_given_up() -> None:
    progress = learned(*[took(2 * S, S)] * SAMPLES_MIN)

    assert [bounds(progress, given_up=given_up).first_byte_ns // S for given_up in (0, 1, 2, 3, 4, 1_000)] == [
        30, 60, 120, 240, 300, 300,
    ]  # fmt: skip
    assert bounds(progress, given_up=1).idle_ns == 40 * S


def in_vain(time_ns: int, failure: Failure = Failure.FIRST_BYTE) -> AttemptResult:
    if failure is Failure.IDLE:
        return AttemptResult(outcome=Outcome.FAILED, status=200, failure=failure, first_byte_ns=S, silence_ns=time_ns)
    return AttemptResult(outcome=Outcome.FAILED, failure=failure, first_byte_ns=time_ns)


def deadline_ns(progress: AdaptiveTimeout, failure: Failure) -> int:
    got = bounds(progress)
    return got.idle_ns if failure is Failure.IDLE else got.first_byte_ns


@pytest.mark.parametrize("failure", [Failure.FIRST_BYTE, Failure.IDLE])
@pytest.mark.parametrize("honest_s", [35, 100, 250])
def test_a_model_that_has_become_slower_for_good_is_not_given_up_for_ever(honest_s: int, failure: Failure) -> None:
    progress = learned(*[took(S, S)] * 900)
    given_up = answered = 0

    # From now on every call waits so long, and its agent calls again when it is given up.
    while answered < 50:
        given_ns = deadline_ns(progress, failure)
        if given_ns < honest_s * S:
            given_up += 1
            progress.on_ended(ASKED, in_vain(given_ns, failure))
        else:
            answered += 1
            progress.on_ended(ASKED, took(honest_s * S, honest_s * S))

    assert 1 <= given_up <= 40
    assert deadline_ns(progress, failure) >= honest_s * S


def test_a_provider_that_hangs_often_is_cut_short_all_the_same() -> None:
    progress = learned(*[took(S, S)] * SAMPLES_MIN)

    for _ in range(50):
        progress.on_ended(ASKED, in_vain(30 * S))
        progress.on_ended(ASKED, took(S, S))

    assert bounds(progress).first_byte_ns == 30 * S


@pytest.mark.parametrize("failure", [Failure.FIRST_BYTE, Failure.IDLE])
def test_each_time_in_vain_doubles_the_time_for_those_after_it_until_an_answer_comes(failure: Failure) -> None:
    progress = learned(*[took(S, S)] * SAMPLES_MIN)
    given = []
    for _ in range(7):
        given.append(deadline_ns(progress, failure))
        progress.on_ended(ASKED, in_vain(given[-1], failure))

    first = given[0]
    assert [one // first for one in given[:4]] == [1, 2, 4, 8]
    assert given[4:] == [min(16 * first, 5 * MINUTE)] * 3
    progress.on_ended(ASKED, took(S, S))
    assert deadline_ns(progress, failure) == first


def test_those_that_hang_together_are_one_piece_of_news() -> None:
    progress = learned(*[took(S, S)] * SAMPLES_MIN)

    for late_ns in range(40):
        progress.on_ended(ASKED, in_vain(30 * S + late_ns * MS))

    assert bounds(progress).first_byte_ns == 60 * S


def test_a_call_that_was_given_up_is_not_given_the_time_twice_over() -> None:
    progress = learned(*[took(S, S)] * SAMPLES_MIN)
    progress.on_ended(ASKED, in_vain(30 * S))

    assert bounds(progress, given_up=1).first_byte_ns == 60 * S


def test_of_all_that_callers_ask_for_a_bounded_part_is_kept() -> None:
    progress = learned(*[took(S, S)] * SAMPLES_MIN)
    for number in range(KEYS_MAX - 1):
        progress.on_ended(attrs.evolve(ASKED, model=f"m{number}"), took(S, S))
    for _ in range(2):
        progress.on_ended(ASKED, took(S, S))
    assert len(progress.kinds) == KEYS_MAX  # who is known already pushes nobody out
    assert any(model == "m0" for model, _, _ in progress.kinds)

    progress.on_ended(attrs.evolve(ASKED, model="one more"), took(S, S))

    assert len(progress.kinds) == KEYS_MAX
    assert bounds(progress) != TIMEOUTS  # it was heard of lately


def test_an_end_that_says_nothing_of_time_is_not_counted() -> None:
    assert (
        len(
            learned(AttemptResult(outcome=Outcome.IGNORED), AttemptResult(outcome=Outcome.OVERLOADED, status=529)).kinds
        )
        == 0
    )


# ---- through the scheduler ----


def policy(reaper: str = "", timeout: str = "") -> Program:
    return compiled(
        f"provider anthropic {{ {reaper}\n{timeout} }}\nrule big when model ~ 'b*' {{ model 'm' }}".replace("'", '"')
    )


def test_a_grant_says_how_long_the_attempt_may_take() -> None:
    driver = Driver(policy("reaper first-byte 8x", "timeout idle 1m"))
    assert driver.grant(driver.ask(ASKED)).timeouts == attrs.evolve(TIMEOUTS, idle_ns=MINUTE)
    for _ in range(SAMPLES_MIN):
        driver.end(driver.ask(attrs.evolve(ASKED, model="big")), took(16 * S, 16 * S))

    timeouts = driver.grant(driver.ask(ASKED)).timeouts

    assert timeouts is not None
    assert timeouts.first_byte_ns // S in range(8 * 16, 8 * 18 + 1)
    assert timeouts.idle_ns == MINUTE


@pytest.mark.parametrize(
    ("ended", "doubled"),
    [
        (AttemptResult(outcome=Outcome.QUOTA, status=429), 0),
        (AttemptResult(outcome=Outcome.OVERLOADED, status=529), 0),
        (AttemptResult(outcome=Outcome.FAILED, failure=Failure.RESET), 0),
        (AttemptResult(outcome=Outcome.FAILED, failure=Failure.FIRST_BYTE), 3),
    ],
)
def test_only_an_attempt_that_was_given_up_gives_its_call_more_time(ended: AttemptResult, doubled: int) -> None:
    driver = Driver(policy())
    for _ in range(SAMPLES_MIN):
        driver.end(driver.ask(ASKED), took(S, S))
    call = driver.ask(ASKED)

    for attempt in range(2, 5):
        driver.end(call, ended)
        driver.post(PolicyLoaded(policy()))  # the count outlives it
        while driver.granted.count(call) < attempt:
            wakeup_ns = driver.scheduler.wakeup_ns()
            assert wakeup_ns is not None
            driver.at(wakeup_ns)

    timeouts = driver.grant(call).timeouts
    assert timeouts is not None
    assert timeouts.first_byte_ns == min(TIMEOUTS.first_byte_ns, (30 * S) << doubled)


def test_what_was_learned_outlives_a_reload_and_the_new_policy_s_multiples_hold() -> None:
    driver = Driver(policy())
    for _ in range(SAMPLES_MIN):
        driver.end(driver.ask(ASKED), took(16 * S, 16 * S))

    driver.post(PolicyLoaded(policy("reaper first-byte 2x")))

    timeouts = driver.grant(driver.ask(ASKED)).timeouts
    assert timeouts is not None
    assert timeouts.first_byte_ns // S in range(2 * 16, 2 * 18 + 1)


def test_a_call_that_needs_no_slot_has_the_provider_s() -> None:
    driver = Driver(policy())

    assert driver.grant(driver.call(needs_slot=False)).timeouts is None
