"""What goes wrong at the simulated provider: in the shares, at the times and within the quotas that were asked for."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.sim import Accepted, Answer, Ask, Dropped, Metered, Provider, Quota, Refused, Traits, Trouble

SECOND = 1_000_000_000


def ask(key: str = "hello", *, tokens_in: int = 50, stream: bool = False) -> Ask:
    return Ask(key=key, tokens_in=tokens_in, tokens_max_out=1024, stream=stream)


def outcomes(traits: Traits, asks: list[Ask], seed: int = 7) -> list[Answer]:
    provider = Provider(traits=traits, seed=seed)
    return [provider.arrive(each, 0) for each in asks]


FAULTY = Traits(bad_gateways=0.1, resets=0.2, breaks=0.3)


@pytest.mark.slow
def test_faults_come_in_their_shares_and_streams_alone_can_break() -> None:
    count = 4000
    streamed = outcomes(FAULTY, [ask(str(n), stream=True) for n in range(count)])
    plain = outcomes(FAULTY, [ask(str(n)) for n in range(count)])

    def share(answers: list[Answer], of: str) -> float:
        kinds = Counter(
            "break" if isinstance(answer, Accepted) and answer.breaks_after is not None else type(answer).__name__
            for answer in answers
        )
        return kinds[of] / count

    assert share(streamed, "Refused") == pytest.approx(0.1, abs=0.02)
    assert share(streamed, "Dropped") == pytest.approx(0.2, abs=0.025)
    assert share(streamed, "break") == pytest.approx(0.3 * 0.7, abs=0.03)  # of those that are answered
    # What was to break and is no stream is whole; nothing else has changed.
    assert share(plain, "break") == 0
    assert [type(answer) for answer in plain] == [type(answer) for answer in streamed]


@given(keys=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=20), seed=st.integers(0, 9), data=st.data())
@settings(max_examples=60)
def test_what_goes_wrong_depends_on_the_request_and_on_how_often_it_came_not_on_the_others(
    keys: list[str], seed: int, data: st.DataObject
) -> None:
    def met(order: list[str]) -> dict[str, list[object]]:
        provider, by_key = Provider(traits=FAULTY, seed=seed), dict[str, list[object]]()
        for key in order:
            answer = provider.arrive(ask(key, stream=True), 0)
            what = answer.breaks_after if isinstance(answer, Accepted) else answer
            by_key.setdefault(key, []).append(what)
        return by_key

    assert met(keys) == met(data.draw(st.permutations(keys)))


def test_a_retry_has_a_chance_of_its_own() -> None:
    provider = Provider(traits=FAULTY, seed=1)
    kinds = {type(provider.arrive(ask("the same", stream=True), 0)) for _ in range(100)}

    assert kinds == {Accepted, Refused, Dropped}


def test_what_is_to_break_is_not_lost_on_a_request_that_a_quota_refuses() -> None:
    limited = Provider(traits=Traits(breaks=0.5, requests=Quota(limit=60, burst=1)), seed=2)
    free = Provider(traits=Traits(breaks=0.5), seed=2)
    for n in range(40):
        wanted, now_ns = ask(str(n), stream=True), 2 * n * SECOND
        limited.arrive(ask(f"other {n}", stream=True), now_ns)
        assert isinstance(limited.arrive(wanted, now_ns), Refused)

        accepted, same = limited.arrive(wanted, now_ns + SECOND), free.arrive(wanted, 0)

        assert isinstance(accepted, Accepted)
        assert isinstance(same, Accepted)
        assert accepted.breaks_after == same.breaks_after


def test_a_stream_breaks_after_its_first_byte_and_before_its_last_event() -> None:
    broken = [
        answer
        for answer in outcomes(Traits(breaks=1.0), [ask(str(n), stream=True) for n in range(500)])
        if isinstance(answer, Accepted)
    ]
    places = {answer.breaks_after for answer in broken}

    assert len(broken) == 500
    assert all(
        answer.breaks_after is not None and 0 <= answer.breaks_after < len(answer.service.events) for answer in broken
    )
    assert {0, 1, 5, 10} <= places


def test_faults_hold_nothing_and_cost_nothing() -> None:
    traits = Traits(concurrency=1, bad_gateways=0.5, resets=0.5, requests=Quota(limit=1))
    provider = Provider(traits=traits, seed=3)
    answers = [provider.arrive(ask(str(n)), 0) for n in range(200)]

    assert {type(answer) for answer in answers} == {Refused, Dropped}
    assert {answer.status for answer in answers if isinstance(answer, Refused)} == {502}
    assert (provider.inflight, provider.tokens_in, provider.readings(0)[Metered.REQUESTS].remaining) == (0, 0, 1)
    assert provider.met[Trouble.BAD_GATEWAY] + provider.met[Trouble.RESET] == provider.attempts == 200
    assert provider.refused == provider.met[Trouble.BAD_GATEWAY]


@pytest.mark.parametrize(
    ("traits", "trouble"),
    [
        (Traits(overloads=0.25), Trouble.OVERLOAD),
        (Traits(unavailable=0.25), Trouble.OUTAGE),
        (Traits(unreachable=0.25), Trouble.UNREACHABLE),
    ],
    ids=["529", "503", "connect"],
)
def test_a_share_of_requests_fails_with_what_the_scenario_names(traits: Traits, trouble: Trouble) -> None:
    provider = Provider(traits=traits, seed=3)
    answers = [provider.arrive(ask(str(n)), 0) for n in range(4_000)]

    failed = [answer for answer in answers if not isinstance(answer, Accepted)]
    assert {answer.trouble for answer in failed} == {trouble}
    assert provider.met == {trouble: len(failed)}
    assert 900 < len(failed) < 1_100


def test_during_an_outage_whatever_arrives_is_refused_with_503_and_what_is_under_way_goes_on() -> None:
    provider = Provider(traits=Traits(outages=((100, 200), (300, 301))))
    before = provider.arrive(ask(), 99)
    assert isinstance(before, Accepted)
    times = [100, 199, 200, 299, 300, 301]

    during = [provider.arrive(ask(), now_ns) for now_ns in times]

    assert [isinstance(answer, Refused) and answer.status for answer in during] == [503, 503, False, False, 503, False]
    provider.generate(before, 5, 150)
    provider.leave(before, 150)
    assert provider.met == {Trouble.OUTAGE: 3}


@pytest.mark.parametrize(
    ("traits", "trouble", "wait_s"),
    [
        (Traits(requests=Quota(limit=60, burst=3)), Trouble.REQUESTS, 1),
        (Traits(input=Quota(limit=3000, burst=199)), Trouble.INPUT, 0.02),
        (Traits(input=Quota(limit=60, window_ns=SECOND, burst=150)), Trouble.INPUT, 50 / 60),
        # Of two that are short, the one that takes longer is named.
        (Traits(requests=Quota(limit=60, burst=3), input=Quota(limit=600, burst=199)), Trouble.REQUESTS, 1),
        (Traits(requests=Quota(limit=60, burst=3), input=Quota(limit=6, burst=199)), Trouble.INPUT, 10),
    ],
    ids=["requests", "input tokens", "another window", "both, requests longer", "both, input longer"],
)
def test_beyond_a_quota_it_says_429_what_for_and_when_to_come_back(
    traits: Traits, trouble: Trouble, wait_s: float
) -> None:
    provider = Provider(traits=traits)
    first = [provider.arrive(ask(str(n)), 0) for n in range(3)]
    refused = provider.arrive(ask("one more"), 0)

    assert all(isinstance(answer, Accepted) for answer in first)
    assert isinstance(refused, Refused)
    assert (refused.status, refused.trouble, refused.kind) == (429, trouble, "rate_limit_error")
    assert refused.dimension is not None
    assert refused.dimension.value in refused.message
    assert refused.retry_after_ns == pytest.approx(wait_s * SECOND, abs=1)
    assert refused.retry_after_ns is not None
    assert isinstance(provider.arrive(ask("early"), refused.retry_after_ns - 1), Refused)
    assert isinstance(provider.arrive(ask("in time"), refused.retry_after_ns), Accepted)
    assert provider.met == {trouble: 2}


def test_a_request_that_one_quota_refuses_takes_of_none() -> None:
    provider = Provider(traits=Traits(requests=Quota(limit=10), input=Quota(limit=100)))
    for n in range(4):
        provider.arrive(ask(str(n)), 0)  # the third and fourth find no tokens

    readings = provider.readings(0)

    assert provider.met == {Trouble.INPUT: 2}
    assert (readings[Metered.REQUESTS].remaining, readings[Metered.INPUT].remaining) == (8, 0)
    assert Metered.OUTPUT not in readings


def test_output_counts_as_it_is_generated_and_the_last_answer_may_overdraw_it() -> None:
    provider = Provider(traits=Traits(output=Quota(limit=60, burst=100)))
    first, second = provider.arrive(ask("a"), 0), provider.arrive(ask("b"), 0)
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)

    provider.generate(first, 99, 0)
    assert provider.readings(0)[Metered.OUTPUT].remaining == 1
    provider.generate(second, 30, 0)
    refused = provider.arrive(ask("c"), 0)

    assert isinstance(refused, Refused)
    # 29 are owed, and one must be there: 30 at one a second.
    assert (refused.trouble, refused.retry_after_ns) == (Trouble.OUTPUT, 30 * SECOND)


def test_a_prompt_larger_than_a_full_bucket_is_not_told_to_come_back() -> None:
    provider = Provider(traits=Traits(input=Quota(limit=1000, burst=49)))

    refused = provider.arrive(ask(tokens_in=50), 0)

    assert isinstance(refused, Refused)
    assert (refused.status, refused.retry_after_ns) == (413, None)
    assert provider.readings(0)[Metered.INPUT].remaining == 49


def test_what_broke_or_was_not_wanted_to_its_end_is_lost() -> None:
    provider = Provider(traits=attrs.evolve(FAULTY, bad_gateways=0, resets=0, breaks=1.0))
    broken, left, whole = (provider.arrive(ask(key, stream=key != "whole"), 0) for key in ("broken", "left", "whole"))
    assert isinstance(broken, Accepted)
    assert isinstance(left, Accepted)
    assert isinstance(whole, Accepted)

    provider.generate(broken, 30, 1)
    provider.break_off(broken, 2)
    assert provider.tokens_lost == 80
    provider.generate(left, 10, 3)
    provider.leave(left, 4, whole=False)
    provider.generate(whole, 100, 5)
    provider.leave(whole, 6)

    assert (provider.tokens_in, provider.tokens_out, provider.tokens_lost) == (150, 140, 140)
    assert provider.met == {Trouble.BREAK: 1}
    assert (provider.inflight, provider.refused) == (0, 0)


@pytest.mark.parametrize(
    "shares",
    [(0.6, 0.5, 0.0), (0.0, 0.0, 1.1), (-0.1, 0.0, 0.0)],
    ids=["too many", "more than all", "negative"],
)
def test_shares_are_shares_of_one_whole(shares: tuple[float, float, float]) -> None:
    resets, bad_gateways, breaks = shares

    with pytest.raises(AssertionError):
        Traits(resets=resets, bad_gateways=bad_gateways, breaks=breaks)
