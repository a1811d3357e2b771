"""The simulated provider's behaviour: repeatable, capped, and indifferent to the order of arrival."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.sim import Accepted, Ask, Provider, Refused, Traits

KEYS = st.text(max_size=20)


def ask(key: str = "hello", tokens_max_out: int = 1024) -> Ask:
    return Ask(key=key, tokens_in=50, tokens_max_out=tokens_max_out)


@given(keys=st.lists(KEYS, unique=True, min_size=1, max_size=8), seed=st.integers(0, 3), data=st.data())
@settings(max_examples=50)
def test_what_an_answer_takes_does_not_depend_on_when_it_was_asked_for(
    keys: list[str], seed: int, data: st.DataObject
) -> None:
    def served(order: list[str]) -> dict[str, object]:
        provider = Provider(traits=Traits(), seed=seed)
        answers = {key: provider.arrive(ask(key), now_ns) for now_ns, key in enumerate(order)}
        return {key: answer.service for key, answer in answers.items() if isinstance(answer, Accepted)}

    assert served(keys) == served(data.draw(st.permutations(keys)))


@given(key=KEYS, seed=st.integers(), tokens_max_out=st.integers(1, 300), per_event=st.integers(1, 40))
@settings(max_examples=100)
def test_the_events_of_a_stream_add_up_and_fit_into_its_latency(
    key: str, seed: int, tokens_max_out: int, per_event: int
) -> None:
    provider = Provider(traits=Traits(tokens_per_event=per_event), seed=seed)
    answer = provider.arrive(ask(key, tokens_max_out), 0)

    assert isinstance(answer, Accepted)
    service = answer.service
    assert sum(service.events) == service.tokens_out <= tokens_max_out
    assert all(0 < tokens <= per_event for tokens in service.events)
    assert 0 <= service.first_byte_ns + service.gap_ns * len(service.events) <= service.latency_ns


@pytest.mark.slow
@given(cap=st.integers(1, 4), steps=st.lists(st.integers(0, 6), max_size=60))
@settings(max_examples=100)
def test_above_the_cap_it_refuses_and_what_is_refused_holds_nothing(cap: int, steps: list[int]) -> None:
    provider = Provider(traits=Traits(concurrency=cap))
    held: list[Accepted] = []
    for now_ns, step in enumerate(steps):
        if step and held:
            leaving = held.pop(step % len(held))
            provider.generate(leaving, 1, now_ns)
            provider.leave(leaving, now_ns)
        else:
            answer = provider.arrive(ask(str(now_ns)), now_ns)
            assert isinstance(answer, Refused) == (len(held) == cap)
            if isinstance(answer, Accepted):
                held.append(answer)
            else:
                assert isinstance(answer, Refused)
                assert answer.status == 529

        assert provider.inflight == len(held) <= cap

    assert provider.attempts - provider.refused == len(held) + provider.tokens_out


def test_another_seed_is_another_provider() -> None:
    services = [Provider(traits=Traits(), seed=seed).arrive(ask(), 0) for seed in (1, 2, 1)]

    assert services[0] == services[2] != services[1]


def test_the_numbers_are_those_of_the_paper_s_replay() -> None:
    provider = Provider(traits=Traits(), seed=7)
    answers = [provider.arrive(ask(str(n)), 0) for n in range(2000)]
    services = [answer.service for answer in answers if isinstance(answer, Accepted)]

    def mean(values: list[int]) -> float:
        return sum(values) / len(values)

    assert 115e6 < mean([service.latency_ns for service in services]) < 127e6
    assert 146 < mean([service.tokens_out for service in services]) < 154
    assert min(service.latency_ns for service in services) == Traits().latency_min_ns


def test_slot_time_is_counted_while_it_is_held() -> None:
    provider = Provider(traits=Traits(concurrency=2))
    first, second = provider.arrive(ask("a"), 100), provider.arrive(ask("b"), 150)
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)

    provider.leave(first, 300)
    provider.leave(second, 400)

    assert provider.busy_ns == 450
    assert attrs.asdict(provider.traits)["concurrency"] == provider.inflight_max == 2
