"""What a call is thought to take, and what it has taken, by how its provider counts."""

from __future__ import annotations

import attrs
import pytest

from hivemind_trio.model import Api, Request, Usage
from hivemind_trio.policy import Dimension
from hivemind_trio.scheduler.limits.token_estimator import MODELS_MAX, OUTPUT_MARGIN, OUTPUT_UNKNOWN, TokenEstimator

CALL = Request(model="m", tokens_in=100, tokens_max_out=5_000)


def test_before_anything_is_known_the_body_s_size_and_a_usual_answer() -> None:
    cost = TokenEstimator().cost(CALL, Api.ANTHROPIC)

    assert cost == {
        Dimension.REQUESTS: 1,
        Dimension.INPUT: 100,
        Dimension.OUTPUT: OUTPUT_UNKNOWN,
        Dimension.TOKENS: 100 + OUTPUT_UNKNOWN,
    }


def test_no_more_output_than_the_request_allows() -> None:
    assert TokenEstimator().cost(Request(tokens_max_out=7), Api.ANTHROPIC)[Dimension.OUTPUT] == 7


def test_both_bytes_per_token_and_the_length_of_answers_are_learned_per_model() -> None:
    estimates = TokenEstimator()
    for _ in range(100):
        estimates.settled(CALL, Api.ANTHROPIC, estimates.cost(CALL, Api.ANTHROPIC), Usage(input=150, output=300))

    learned = estimates.cost(CALL, Api.ANTHROPIC)
    assert learned[Dimension.INPUT] == pytest.approx(150, abs=1)
    assert learned[Dimension.OUTPUT] == int(300 * OUTPUT_MARGIN) + 1
    other = Request(model="other", tokens_in=100)
    assert estimates.cost(other, Api.ANTHROPIC) == TokenEstimator().cost(other, Api.ANTHROPIC)


def test_what_is_learned_of_one_client_is_not_believed_of_another_and_is_kept() -> None:
    codex, plain = attrs.evolve(CALL, client="codex"), CALL
    estimates = TokenEstimator()
    for _ in range(100):
        estimates.learn(codex, Api.OPENAI, Usage(input=70, output=300))
        estimates.learn(plain, Api.OPENAI, Usage(input=150, output=10))
    later = TokenEstimator()
    later.restore(estimates.beliefs())

    for one in (estimates, later):
        assert one.cost(codex, Api.OPENAI)[Dimension.INPUT] == pytest.approx(70, abs=1)
        assert one.cost(plain, Api.OPENAI)[Dimension.INPUT] == pytest.approx(150, abs=1)


def test_one_odd_call_does_not_turn_the_estimate_over() -> None:
    estimates = TokenEstimator()
    estimates.settled(CALL, Api.ANTHROPIC, estimates.cost(CALL, Api.ANTHROPIC), Usage(input=10**9, output=1))

    assert estimates.cost(CALL, Api.ANTHROPIC)[Dimension.INPUT] <= 130


def test_what_the_provider_did_not_count_itself_teaches_nothing() -> None:
    estimates = TokenEstimator()
    cost = estimates.cost(CALL, Api.ANTHROPIC)

    actual = estimates.settled(CALL, Api.ANTHROPIC, cost, Usage(output=3, exact=False))

    assert actual[Dimension.INPUT] == cost[Dimension.INPUT], "it said nothing of the input"
    assert actual[Dimension.OUTPUT] == 3
    assert estimates.cost(CALL, Api.ANTHROPIC) == cost


@pytest.mark.parametrize(
    ("api", "tokens_in"),
    [(Api.ANTHROPIC, 15), (Api.OPENAI, 1_015), (Api.GEMINI, 1_015), (Api.OLLAMA, 1_015)],
)
def test_what_a_cache_had_costs_no_tokens_per_minute_at_anthropic(api: Api, tokens_in: int) -> None:
    usage = Usage(input=10, cache_write=5, cache_read=1_000, output=1)

    assert TokenEstimator().settled(CALL, api, TokenEstimator().cost(CALL, api), usage)[Dimension.INPUT] == tokens_in


@pytest.mark.parametrize(("api", "tokens"), [(Api.OPENAI, 5_000), (Api.AZURE, 5_100)])
def test_who_counts_what_it_might_put_out_gives_nothing_back(api: Api, tokens: int) -> None:
    estimates = TokenEstimator()
    cost = estimates.cost(CALL, api)
    assert cost[Dimension.TOKENS] == tokens

    actual = estimates.settled(CALL, api, cost, Usage(input=100, output=1))

    assert actual[Dimension.TOKENS] == tokens
    assert actual[Dimension.OUTPUT] == 1


def test_callers_words_fill_no_memory() -> None:
    estimates = TokenEstimator()
    for number in range(MODELS_MAX * 3):
        call = Request(model=str(number), tokens_in=1)
        estimates.settled(call, Api.ANTHROPIC, estimates.cost(call, Api.ANTHROPIC), Usage(input=1, output=1))

    assert len(estimates.models) <= MODELS_MAX


def test_a_count_goes_before_the_size_of_the_body_and_is_corrected_by_answers() -> None:
    counted = attrs.evolve(CALL, tokens_counted=40)
    estimates = TokenEstimator()
    assert estimates.cost(counted, Api.OPENAI)[Dimension.INPUT] == 40
    for _ in range(100):
        estimates.learn(counted, Api.OPENAI, Usage(input=60, output=1))

    assert estimates.cost(counted, Api.OPENAI)[Dimension.INPUT] == pytest.approx(60, abs=1)
    assert estimates.likely(counted).input == pytest.approx(60, abs=1)
    assert estimates.cost(CALL, Api.OPENAI)[Dimension.INPUT] == pytest.approx(60, abs=1)
