"""A refusal in its provider's words is understood as what it is."""

from __future__ import annotations

import pytest

from hivemind_trio.model import Api, Outcome
from hivemind_trio.sim import Acceleration, Ask, Quota, Refused, Storm, Traits, Weather
from hivemind_trio.sim.provider.provider import Provider
from hivemind_trio.sim.provider.wire_format import ended
from tests.sim.worlds import SECOND

APIS = (Api.ANTHROPIC, Api.OPENAI, Api.AZURE, Api.GEMINI, Api.MISTRAL)


def refused(traits: Traits, *, tokens_in: int = 50) -> Refused:
    """The second request in one instant."""
    provider = Provider(traits=traits)
    ask = Ask(key="x", tokens_in=tokens_in, tokens_max_out=100)
    provider.arrive(ask, 0)
    answer = provider.arrive(ask, 0)
    assert isinstance(answer, Refused)
    return answer


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("dimension", ["requests", "input"])
def test_a_quota_that_is_used_up_is_one_and_says_when_there_is_room(api: Api, dimension: str) -> None:
    limit = 2 if dimension == "requests" else 90
    quota = Quota(limit=limit, burst=1 if dimension == "requests" else 60)
    traits = Traits(requests=quota) if dimension == "requests" else Traits(input=quota)
    said = ended(api, refused(traits))

    assert (said.outcome, said.status, said.final) == (Outcome.QUOTA, 429, False)
    assert said.retry_after_ns is not None
    assert 26 * SECOND < said.retry_after_ns <= 60 * SECOND


@pytest.mark.parametrize("api", APIS)
def test_sudden_growth_is_no_quota(api: Api) -> None:
    said = ended(api, refused(Traits(acceleration=Acceleration(floor=1, factor=0))))

    assert said.outcome is Outcome.BURST
    assert said.retry_after_ns == SECOND


@pytest.mark.parametrize(
    ("traits", "outcome", "status"),
    [
        (Traits(concurrency=1), Outcome.OVERLOADED, 529),
        (Traits(bad_gateways=1.0), Outcome.FAILED, 502),
        (Traits(storms=(Storm(from_ns=0, to_ns=1, share=1, weather=Weather.OUTAGE),)), Outcome.OVERLOADED, 503),
    ],
    ids=["cap", "gateway", "outage"],
)
def test_what_is_the_provider_s_fault_is(traits: Traits, outcome: Outcome, status: int) -> None:
    for api in APIS:
        said = ended(api, refused(traits))
        assert (said.outcome, said.status, said.retry_after_ns) == (outcome, status, None)


def test_what_is_too_large_is_final() -> None:
    said = ended(Api.ANTHROPIC, refused(Traits(input=Quota(limit=10))))

    assert (said.outcome, said.status, said.final) == (Outcome.IGNORED, 413, True)
