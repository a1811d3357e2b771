"""What a provider does at certain times and to certain requests, one by one."""

from __future__ import annotations

from collections import Counter

import attrs

from hivemind_trio.sim import (
    Acceleration,
    Accepted,
    Ask,
    Counting,
    Dropped,
    Neighbour,
    Provider,
    Quota,
    Refused,
    Storm,
    Traits,
    Trouble,
    Wave,
    Weather,
)
from tests.sim.worlds import SECOND, fleet, one_provider, run, scenario


def ask(key: object = "x", *, tokens_in: int = 50, conversation: str = "", stream: bool = False) -> Ask:
    return Ask(key=f"{key}", tokens_in=tokens_in, tokens_max_out=1_000, conversation=conversation, stream=stream)


def met(traits: Traits, times_s: list[float], *, tokens_in: int = 50) -> list[object]:
    """What becomes of one request at each time: its trouble, or None."""
    provider = Provider(traits=traits, seed=1)
    found: list[object] = []
    for number, at_s in enumerate(times_s):
        answer = provider.arrive(ask(number, tokens_in=tokens_in), round(at_s * SECOND))
        found.append(None if isinstance(answer, Accepted) else answer.trouble)
        if isinstance(answer, Accepted):
            provider.leave(answer, round(at_s * SECOND))
    return found


def test_a_storm_has_a_beginning_and_an_end() -> None:
    for weather, trouble in [(Weather.OVERLOAD, Trouble.OVERLOAD), (Weather.UNREACHABLE, Trouble.UNREACHABLE)]:
        traits = Traits(storms=(Storm(from_ns=SECOND, to_ns=2 * SECOND, share=1.0, weather=weather),))

        assert met(traits, [0.9, 1.0, 1.9, 2.0]) == [None, trouble, trouble, None]


def test_a_storm_hits_the_share_that_it_says() -> None:
    traits = Traits(storms=(Storm(from_ns=0, to_ns=SECOND, share=0.3, weather=Weather.RESET),))

    assert 0.25 < Counter(met(traits, [0.0] * 2_000))[Trouble.RESET] / 2_000 < 0.35


def test_a_neighbour_takes_its_part_while_it_is_there_and_no_longer() -> None:
    quota = Quota(limit=60, burst=1, window_ns=60 * SECOND)  # one a second
    free = Traits(requests=quota)
    shared = Traits(requests=quota, neighbours=(Neighbour(from_ns=0, to_ns=60 * SECOND, share=0.5),))
    each_second = [float(second) for second in range(120)]

    assert Counter(met(free, each_second))[None] == 120
    served = met(shared, each_second)
    assert 25 <= Counter(served[:60])[None] <= 35
    assert Counter(served[61:])[None] == 59


def test_sudden_growth_is_refused_and_steady_load_is_not() -> None:
    traits = Traits(acceleration=Acceleration(factor=3, over_ns=10 * SECOND, floor=2))
    steady = [number / 2 for number in range(60)]

    assert Counter(met(traits, steady))[None] == 60
    burst = met(traits, [*steady, *(30 + number / 100 for number in range(20))])[60:]
    assert 2 <= Counter(burst)[None] <= 7
    assert Counter(burst)[Trouble.ACCELERATION] >= 13


def test_what_was_read_a_while_ago_need_not_be_read_again_but_for_so_long() -> None:
    provider = Provider(traits=Traits(cache_ns=300 * SECOND))
    cached = []
    for at_s, tokens in [(0, 100), (10, 150), (309, 200), (700, 250)]:
        answer = provider.arrive(ask(at_s, tokens_in=tokens, conversation="one"), at_s * SECOND)
        assert isinstance(answer, Accepted)
        cached.append(answer.tokens_cached)

    assert cached == [0, 100, 150, 0]


def test_what_all_have_in_common_is_read_once_its_first_answer_begins() -> None:
    provider = Provider(traits=Traits(cache_ns=300 * SECOND))
    cached = []
    for at_ns, who in [(0, "a"), (1, "b"), (SECOND, "c"), (200 * SECOND, "d"), (502 * SECOND, "e")]:
        asked = attrs.evolve(ask(at_ns, tokens_in=900, conversation=who), prefix="all", prefix_tokens=700)
        answer = provider.arrive(asked, at_ns)
        assert isinstance(answer, Accepted)
        cached.append(answer.tokens_cached)

    assert cached == [0, 0, 700, 700, 0]


def test_a_neighbour_who_finds_nothing_comes_again() -> None:
    quota = Quota(limit=60, burst=1, window_ns=60 * SECOND)
    shared = Traits(requests=quota, neighbours=(Neighbour(from_ns=0, to_ns=60 * SECOND, share=0.4),))
    all_the_time = [number / 100 for number in range(6_000)]

    assert 35 <= Counter(met(shared, all_the_time))[None] <= 38, "asking all the time takes nothing from it"


def test_what_was_refused_has_not_been_read() -> None:
    provider = Provider(traits=Traits(cache_ns=300 * SECOND, input=Quota(limit=100, window_ns=SECOND)))
    one = ask(1, tokens_in=100, conversation="one")
    assert isinstance(provider.arrive(ask(0, tokens_in=60), 0), Accepted)
    assert isinstance(provider.arrive(one, 0), Refused)

    assert isinstance(provider.arrive(one, 0), Refused)


def test_refused_requests_may_count() -> None:
    for count, served in [(False, 10), (True, 1)]:
        traits = Traits(
            requests=Quota(limit=1, window_ns=SECOND, counting=Counting.SLIDING), refusals_count=count
        )  # one a second; somebody asks five times a second

        assert Counter(met(traits, [number / 5 for number in range(50)]))[None] == served


def test_output_may_count_when_the_request_comes_and_then_for_good() -> None:
    traits = Traits(tokens=Quota(limit=2_100, counting=Counting.FIXED), charges_most=True)
    provider = Provider(traits=traits)
    answers = [provider.arrive(ask(number), 0) for number in range(3)]

    assert [type(answer) for answer in answers] == [Accepted, Accepted, Refused]
    assert isinstance(answers[0], Accepted)
    provider.generate(answers[0], 150, 0)
    assert next(iter(provider.readings(0).values())).remaining == 0


def test_a_retry_after_may_be_a_lie() -> None:
    provider = Provider(traits=Traits(requests=Quota(limit=1), says_retry_after_ns=SECOND))
    provider.arrive(ask(1), 0)
    answer = provider.arrive(ask(2), 0)

    assert isinstance(answer, Refused)
    assert answer.retry_after_ns == SECOND


def test_hangs_come_and_go_with_their_wave_and_delay_the_first_byte() -> None:
    traits = Traits(hangs=0.5, hang_wave=Wave(amplitude=0.5, period_ns=40 * SECOND), hang_ns=(SECOND, SECOND))

    def hung(at_s: int) -> int:
        provider = Provider(traits=traits, seed=2)
        return sum(
            isinstance(answer, Accepted) and answer.service.first_byte_ns > SECOND
            for answer in (provider.arrive(ask(number, stream=True), at_s * SECOND) for number in range(200))
        )

    assert hung(10) == 200
    assert hung(30) == 0
    assert 70 < hung(20) < 130


def test_a_stream_that_falls_silent_is_given_up_by_the_proxy_before_its_client_would() -> None:
    program = one_provider("timeout connect 1s first-byte 30s idle 5s total 10m")
    world = scenario(fleet(1, 1, stream=1.0), traits=Traits(stalls=1.0))

    figures = run(program, world)

    assert figures.died_of == {"the stream broke (idle)": 1}
    assert 5 * SECOND <= figures.makespan_ns < 6 * SECOND
    assert figures.tokens_wasted == figures.tokens > 50


def test_an_answer_that_does_not_begin_is_tried_again_after_the_policy_s_time_out() -> None:
    program = one_provider("timeout connect 1s first-byte 3s idle 5s total 10m")
    slow = Traits(hangs=0.5, hang_ns=(100 * SECOND, 100 * SECOND))

    figures = run(program, scenario(fleet(4, 3), traits=slow))

    assert figures.dead == 0
    assert figures.met["silence at first"] > 0
    assert figures.makespan_ns < 100 * SECOND


def test_what_broke_off_is_billed_as_far_as_it_got() -> None:
    figures = run(one_provider("concurrency 9"), scenario(fleet(8, 1, stream=1.0), traits=Traits(breaks=1.0)))

    assert figures.dead == 8
    assert figures.tokens == figures.tokens_wasted > 8 * 50
    assert figures.cost_microusd > 0


def test_a_reset_is_no_answer() -> None:
    assert Provider(traits=Traits(resets=1.0)).arrive(ask(), 0) == Dropped()
