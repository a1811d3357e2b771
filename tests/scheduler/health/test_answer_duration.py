"""Expected duration of an answer, from answers of different lengths."""

from __future__ import annotations

from math import isfinite
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.scheduler.health.answer_duration import AnswerDuration
from hivemind_trio.scheduler.health.throughput_search import Cohort


@given(st.floats(1e6, 1e10), st.floats(1e5, 1e8), st.integers(0, 999))
def test_the_two_times_are_found_whatever_the_lengths(fixed: float, per_token: float, seed: int) -> None:
    random, usual = Random(seed), AnswerDuration()
    for _ in range(60):
        tokens = round(random.lognormvariate(5, 1))
        usual.add(tokens, round((fixed + per_token * tokens) * random.uniform(0.99, 1.01)))

    found = usual.fit()

    for tokens in (50, 150, 500):
        assert found[0] + found[1] * tokens == pytest.approx(fixed + per_token * tokens, rel=0.03)


def test_answers_of_one_length_or_of_none_known_have_one_time() -> None:
    for tokens in (0, 100):
        usual = AnswerDuration()
        for _ in range(10):
            usual.add(tokens, 1_000)

        fixed, per_token = usual.fit()

        assert fixed + per_token * tokens == pytest.approx(1_000)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**12)), max_size=30))
def test_no_time_is_negative(answers: list[tuple[int, int]]) -> None:
    usual = AnswerDuration()
    for tokens, lasted_ns in answers:
        usual.add(tokens, lasted_ns)

    fixed, per_token = usual.fit()

    assert fixed >= 0 <= per_token
    assert isfinite(fixed + per_token)


def test_a_limit_at_which_all_answers_are_slower_does_not_change_what_their_lengths_explain() -> None:
    usual = AnswerDuration()
    for slowness, lengths in ((1, (50, 60, 200, 100)), (4, (300, 500, 900, 700))):
        cohort = Cohort(0, 10)
        for tokens in lengths:
            cohort.add(tokens, slowness * (1_000_000 + 10_000 * tokens))
        cohort.teach(usual)

    fixed, per_token = usual.fit()

    assert per_token / fixed == pytest.approx(0.01, rel=0.01)
