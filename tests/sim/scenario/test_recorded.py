"""Calls that were recorded are made again: in their order, as far apart, and as large as they were."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from hivemind_trio.model import Api, Outcome, Reason, RecordedAttempt, RecordedCall, Request, Usage
from hivemind_trio.scheduler import CallArrived, Event
from hivemind_trio.sim import (
    CLIENTS,
    Figures,
    Fleet,
    Scenario,
    ScenarioError,
    ScenarioValueError,
    Traits,
    UpstreamSpec,
    Way,
    World,
    bound_of,
    misfits,
    parse_scenario,
    recorded_fleets,
    settled,
)
from tests.sim.worlds import MS, SECOND, compiled, fleet, one_provider, run, scenario

WIDE = one_provider("concurrency 50")
USED = Usage(input=100, output=50)


def call(
    at_s: float,
    took_s: float | None = 1,
    *,
    wait_s: float = 0,
    outcome: Outcome = Outcome.SUCCEEDED,
    status: int | None = 200,
    committed: bool | None = None,
    usage: Usage | None = USED,
    first_byte_s: float | None = None,
    request: dict[str, Any] | None = None,
    **more: Any,
) -> RecordedCall:
    """One that came at that time, waited, and took so long at its provider; None: it never got there."""
    arrived_ns, granted_ns = round(at_s * SECOND), round((at_s + wait_s) * SECOND)
    attempts: tuple[RecordedAttempt, ...] = ()
    ended_ns = granted_ns
    if took_s is not None:
        ended_ns = granted_ns + round(took_s * SECOND)
        attempts = (
            RecordedAttempt(
                granted_ns=granted_ns,
                waited_ns=granted_ns - arrived_ns,
                provider="anthropic",
                model="claude-x",
                ended_ns=ended_ns,
                outcome=outcome,
                status=status or 0,
                committed=outcome is Outcome.SUCCEEDED if committed is None else committed,
                first_byte_ns=None if first_byte_s is None else round(first_byte_s * SECOND),
                usage=usage,
            ),
        )
    asked = Request(**{"apis": (Api.ANTHROPIC,), "model": "claude-x", "path": "/v1/messages", **(request or {})})
    given = {"caller": "me@1", "job": "", "attempts": attempts, "status": status, "ended_ns": ended_ns}
    return RecordedCall(arrived_ns=arrived_ns, request=asked, **{**given, **more})


def failed(at_s: float, **more: Any) -> RecordedCall:
    return call(at_s, 0.1, outcome=Outcome.OVERLOADED, status=529, usage=None, **more)


def shape(*calls: RecordedCall, **options: Any) -> list[list[tuple[float, float]]]:
    """Of each chain the turns: seconds before each, and what its answer takes."""
    return [
        [(turn.think_ns / SECOND, (turn.taken.latency_ns or 0) / SECOND if turn.taken else 0) for turn in job.turns]
        for fleet in recorded_fleets(calls, **options)
        for job in fleet.recorded
    ]


def again(*calls: RecordedCall, policy: Any = WIDE, way: Way = Way.PROXY, **options: Any) -> Figures:
    scenario = Scenario(fleets=recorded_fleets(calls), **options)
    return World(policy, scenario, 7, way, audit=True).run()


# ---- what follows what ----


@pytest.mark.parametrize(
    ("calls", "chains"),
    [
        ([call(0), call(3), call(10, 2)], [[(0, 1), (2, 1), (6, 2)]]),
        ([call(5), call(7)], [[(5, 1), (1, 1)]]),
        ([call(0), call(0.5, 2), call(4)], [[(0, 1)], [(0.5, 2), (1.5, 1)]]),
        ([call(0, 3), call(0.5), call(2, 0.5), call(4)], [[(0, 3), (1, 1)], [(0.5, 1), (0.5, 0.5)]]),
        ([call(0), call(1)], [[(0, 1), (0, 1)]]),
        ([call(0, job="a"), call(3, job="b"), call(5, job="a")], [[(0, 1), (4, 1)], [(3, 1)]]),
        ([call(0, caller="x"), call(3, caller="y")], [[(0, 1)], [(3, 1)]]),
        ([call(0, wait_s=2), call(4)], [[(0, 1), (1, 1)]]),
        ([call(0, ended_ns=9 * SECOND), call(3)], [[(0, 1), (2, 1)]]),
    ],
    ids=[
        "one after another",
        "the first comes when it came",
        "overlapping",
        "behind the one that ended last",
        "at once",
        "another job",
        "another caller",
        "its wait is not thought",
        "a slow reader",
    ],
)
def test_turns_follow_one_another_and_what_overlaps_stands_for_itself(
    calls: list[RecordedCall], chains: list[list[tuple[float, float]]]
) -> None:
    assert shape(*calls) == chains


def test_the_same_call_sent_again_until_it_is_answered_is_one_turn() -> None:
    calls = [failed(0, again="a"), failed(2, again="a"), call(5, 2, again="a"), call(9, again="b")]

    assert shape(*calls) == [[(0, 2), (2, 1)]]


def test_the_same_call_after_a_good_answer_or_beside_itself_is_another() -> None:
    assert shape(call(0, again="a"), call(3, again="a")) == [[(0, 1), (2, 1)]]
    assert shape(failed(0, again="a", ended_ns=4 * SECOND), call(3, again="a")) == [[(0, 1)], [(3, 1)]]
    assert shape(failed(0), call(3)) == [[(0, 1)], [(3, 1)]], "who says nothing says not that it is the same"


@pytest.mark.parametrize(
    "bad",
    [
        failed(0),
        call(0, None, status=429, refused=Reason.QUEUE_FULL),
        call(0, None, status=0),
        call(0, 1, outcome=Outcome.FAILED, committed=True),
        call(0, 1, ended_ns=None, status=None, attempts=()),
        call(0, 1, outcome=Outcome.TERMINAL, status=400),
    ],
    ids=["529", "refused", "hung up while it waited", "broke off", "the record ends", "no money"],
)
def test_a_call_without_a_good_answer_takes_what_is_usual_and_nothing_stands_behind_it(bad: RecordedCall) -> None:
    others = [call(100, 2, caller="x"), call(100, 4, caller="y"), call(100, 9, caller="z")]

    assert shape(bad, call(50), *others)[:2] == [[(0, 2)], [(50, 1)]], "the lower middle of 1, 2, 4 and 9"


def test_usual_is_what_is_so_with_the_model() -> None:
    calls = [
        failed(0, request={"model": "slow"}),
        call(10, 9, request={"model": "slow"}, usage=Usage(input=1, output=7)),
        *(call(20 + n, 0.1) for n in range(5)),
    ]
    turn = recorded_fleets(calls)[0].recorded[0].turns[0]

    assert turn.taken is not None
    assert (turn.taken.latency_ns, turn.taken.tokens_out) == (9 * SECOND, 7)


def test_what_its_agent_would_not_hear_to_the_end_ends_where_it_did() -> None:
    left = call(0, 3, outcome=Outcome.IGNORED, committed=True, usage=Usage(input=100, output=8))
    (fleet,) = recorded_fleets([left, call(5)])

    first, second = fleet.recorded[0].turns
    assert first.taken is not None
    assert (first.taken.latency_ns, first.taken.tokens_out, second.think_ns) == (3 * SECOND, 8, 2 * SECOND)


def test_an_error_that_was_the_request_s_own_is_its_answer() -> None:
    wrong = call(0, 0.2, outcome=Outcome.IGNORED, status=400, usage=None)

    assert shape(wrong, call(5)) == [[(0, 0.2), (4.8, 1)]]
    assert again(wrong, call(5)).turns_done == 2


def test_what_needs_no_slot_is_left_out_and_is_part_of_what_the_agent_does_by_itself() -> None:
    assert shape(call(0), call(2, None, needs_slot=False), call(5)) == [[(0, 1), (4, 1)]]
    assert recorded_fleets([call(0, needs_slot=False)]) == ()


def test_a_part_of_a_record_begins_at_its_beginning() -> None:
    calls = [call(0), call(10), call(20), call(30)]

    assert shape(*calls, from_ns=8 * SECOND, for_ns=20 * SECOND) == [[(2, 1), (9, 1)]]


# ---- who they are ----


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("claude-cli/2.1.190 (external, cli)", "claude-code"),
        ("codex_cli_rs/0.60.1", "codex"),
        ("Codex Desktop/1", "codex"),
        ("Anthropic/Python 1.2.0", "anthropic-sdk"),
        ("AsyncAnthropic/Python 1.2.0", "anthropic-sdk"),
        ("AsyncOpenAI/Python 3.3.1", "openai-sdk"),
        ("OpenAI/JS 6.0", "openai-sdk"),
        ("curl/8.5", "none"),
        ("", "none"),
    ],
)
def test_a_client_is_known_by_its_name(name: str, kind: str) -> None:
    (fleet,) = recorded_fleets([call(0, request={"headers": {"user-agent": name}})])

    assert fleet.client == CLIENTS[kind]
    (told,) = recorded_fleets([call(0)], client=CLIENTS["codex"], silence_ns=5)
    assert told.client == attrs.evolve(CLIENTS["codex"], silence_ns=5)


def test_a_client_bears_what_it_has_borne() -> None:
    (plain,) = recorded_fleets([call(0, 290, wait_s=10)])
    (stream,) = recorded_fleets([call(0, 290, wait_s=10, first_byte_s=200, request={"stream": True})])

    assert plain.client.silence_ns == 300 * SECOND
    assert stream.client.silence_ns == 200 * SECOND
    assert again(call(0, 290)).dead == 0


def test_agents_are_told_apart_as_the_policy_of_then_did() -> None:
    cli = {"headers": {"user-agent": "claude-cli/2"}}
    fleets = recorded_fleets([call(0, agent="ci"), call(1, agent="ci", job="b", request=cli), call(2, caller="y")])

    assert [(fleet.name, len(fleet.recorded)) for fleet in fleets] == [
        ("ci (none)", 1),
        ("ci (claude-code)", 1),
        ("unknown", 1),
    ]


def test_a_request_is_what_it_was_at_the_prices_and_with_the_agents_of_the_policy() -> None:
    request = {
        "token_agent": "gone",
        "claimed": "ci",
        "stream": True,
        "tokens_in": 1_000_000,
        "hour": 23,
        "cost_microusd": 5,
        "headers": {"x-ci-job": "1"},
        "meta": {"user": "x"},
    }
    recorded = call(0, request=request, job="j", prefix="p", credential="c", caller="me@9")
    priced = compiled('provider anthropic { key env(K) }\nmodel "claude-*" { price input $3/Mtok output $15/Mtok }')
    seen: list[Event] = []

    World(priced, Scenario(fleets=recorded_fleets([recorded])), observe=lambda _, event, __: seen.append(event)).run()

    (arrived,) = (event.call for event in seen if isinstance(event, CallArrived))
    assert arrived.request == attrs.evolve(recorded.request, token_agent=None, cost_microusd=3_000_000)
    assert (arrived.caller, arrived.job, arrived.prefix, arrived.credential) == ("me@9", "j", "p", "c")


# ---- what it takes ----


def test_an_answer_takes_what_it_took_both_ways_whatever_the_seed() -> None:
    calls = [call(0, 7), call(9, 2, usage=Usage(input=10, output=5))]
    runs = [World(WIDE, Scenario(fleets=recorded_fleets(calls)), seed, way).run() for seed in (1, 2) for way in Way]

    assert {run.makespan_ns for run in runs} == {11 * SECOND}
    assert {run.tokens for run in runs} == {165}
    assert {run.bound_ns for run in runs} == {11 * SECOND}


def test_a_scenario_that_says_how_long_answers_take_is_believed() -> None:
    calls = [call(0, 7), call(9, 2)]
    slower = parse_scenario('[[upstream]]\nlatency = "30s"\nconcurrency = 1\n', name="x", trace=calls)
    same = parse_scenario("[[upstream]]\nconcurrency = 1\n", name="x", trace=calls)

    assert World(WIDE, slower).run().makespan_ns == (30 + 2 + 30) * SECOND
    assert World(WIDE, same).run().makespan_ns == 11 * SECOND


def test_a_stream_begins_when_it_did() -> None:
    turn = recorded_fleets([call(0, 10, first_byte_s=4, request={"stream": True})])[0].recorded[0].turns[0]
    short = one_provider("timeout first-byte 3s")

    assert turn.taken is not None
    assert turn.taken.first_byte_ns == 4 * SECOND
    calls = [call(0, 10, first_byte_s=4, request={"stream": True})]
    assert again(*calls, policy=short).dead == 1
    assert again(*calls, policy=one_provider("timeout first-byte 5s")).dead == 0


def test_waits_are_those_of_the_policy_under_test() -> None:
    calls = [call(0, 10, caller=name) for name in "abc"]

    narrow = again(*calls, policy=one_provider("concurrency 1"))
    assert narrow.lanes["default"].max == 20 * SECOND
    assert again(*calls).lanes["default"].max == 0


def test_what_was_read_from_a_cache_is_no_input_unless_the_scenario_has_a_cache_of_its_own() -> None:
    usage = Usage(input=10, cache_read=990, output=5)
    policy = one_provider("limits { input 1000/min }")
    warm = [call(n, 0.5, usage=usage, request={"tokens_in": 10}) for n in range(9)]
    cold = [call(n, 0.5, usage=Usage(input=600, output=5), request={"tokens_in": 600}) for n in range(3)]

    assert again(*warm, policy=policy).lanes["default"].max == 0
    assert again(*warm, policy=policy).bound_ns == 8.5 * SECOND
    assert again(*cold, policy=policy).lanes["default"].max > 50 * SECOND
    own = parse_scenario('[[upstream]]\ncache = "5m"\n', name="x", trace=warm)
    assert World(policy, own).run().tokens == World(policy, Scenario(fleets=recorded_fleets(warm))).run().tokens


def test_how_providers_failed_then_is_not_made_again_and_how_the_scenario_says_it_is() -> None:
    calls = [failed(0), failed(1, caller="b"), call(2, caller="c")]
    storm = '[[upstream]]\nstorms = [{ from = "0s", to = "1m" }]\n'

    assert again(*calls).dead == 0
    assert World(WIDE, parse_scenario(storm, name="x", trace=calls), way=Way.DIRECT).run().dead == 3


def test_an_answer_as_long_as_no_answer_is_does_not_fill_the_memory() -> None:
    (fleet,) = recorded_fleets([call(0, usage=Usage(input=1, output=(1 << 63) - 1))])

    assert World(WIDE, Scenario(fleets=(fleet,))).run().tokens == 1_000_001


def test_an_answer_without_a_token_is_one_all_the_same() -> None:
    assert again(call(0, usage=Usage(input=1, output=0)), call(2, usage=None)).turns_done == 2


@pytest.mark.slow
def test_many_calls_at_once_are_sorted_soon() -> None:
    calls = [call(n / 1_000, 30) for n in range(5_000)]

    assert len(recorded_fleets(calls)[0].recorded) == 5_000


# ---- in a scenario ----


def journals(path: str) -> list[RecordedCall]:
    if path != "team.journal":
        raise ScenarioValueError(f"`{path}`: no such file", "name one")
    return [call(0, agent="ci"), call(40, agent="ci"), call(50, caller="y", agent="people")]


def parsed(text: str) -> tuple[Fleet, ...]:
    return parse_scenario(text, name="mine.toml", journals=journals).fleets


def test_agents_of_a_scenario_may_be_a_journal_s() -> None:
    fleets = parsed(
        '[[agents]]\njournal = "team.journal"\nclient = "codex"\nsilence = "9s"\nfrom = "30s"\nfor = "15s"\n'
        '[[agents]]\nname = "more"\ncount = 2\n'
    )

    assert [(fleet.name, len(fleet.jobs(1))) for fleet in fleets] == [("ci", 1), ("more", 2)]
    assert fleets[0].client == attrs.evolve(CLIENTS["codex"], silence_ns=9 * SECOND)
    assert fleets[0].recorded[0].turns[0].think_ns == 10 * SECOND


def test_two_journals_are_told_apart_by_a_name() -> None:
    fleets = parsed('[[agents]]\njournal = "team.journal"\n[[agents]]\nname = "b"\njournal = "team.journal"\n')

    assert [fleet.name for fleet in fleets] == ["ci", "people", "b ci", "b people"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('journal = "other"', "mine.toml:2: agents[1].journal: `other`: no such file"),
        ("journal = 5", "`5` is no text"),
        ('journal = "team.journal"\ncount = 5', "mine.toml:3: agents[1].count: unknown key `count`"),
        ('journal = "team.journal"\nfrom = "5h"', "it has no call between `from` and `for`"),
        ('journal = "team.journal"\n[[agents]]\njournal = "team.journal"', "`ci` is the name of earlier agents"),
    ],
    ids=["missing", "no text", "another key", "nothing in it", "twice"],
)
def test_mistakes_have_their_line(text: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parsed(f"[[agents]]\n{text}\n")

    assert said in caught.value.text()


def test_without_somebody_to_read_it_a_journal_is_none() -> None:
    with pytest.raises(ScenarioError, match="there are no journals here"):
        parse_scenario('[[agents]]\njournal = "team.journal"\n', name="x")


def test_a_record_is_run_to_its_end_however_long_it_is() -> None:
    calls = [call(0), call(3 * 86_400)]

    assert World(WIDE, parse_scenario("", name="x", trace=calls)).run().turns_done == 2


def test_models_that_were_served_and_would_not_be_are_said() -> None:
    calls = [
        call(0, request={"model": "gpt-5"}),
        call(5, None, request={"model": "nobody-s"}, refused=Reason.NO_PROVIDER),
    ]
    narrow = compiled('provider anthropic { key env(K); serves ["claude-*"] }')
    scenario = Scenario(fleets=recorded_fleets(calls))

    assert list(misfits(scenario, [narrow])) == ["agents `unknown`: no provider serves `gpt-5`; served is `claude-*`"]
    assert list(misfits(scenario, [narrow, WIDE])) == []
    assert settled(scenario, [WIDE, narrow]).fleets == scenario.fleets


def test_each_policy_is_asked_as_it_knows_the_caller() -> None:
    text = 'provider anthropic { key env(K); serves ["claude-*"] }\n'
    narrow, knows = compiled(text), compiled(text + 'agent ci { token env(T) }\nrule no when agent == ci { deny "no" }')
    scenario = Scenario(fleets=recorded_fleets([call(0, request={"model": "gpt-5", "token_agent": "ci"})]))

    assert list(misfits(scenario, [narrow]))
    assert list(misfits(scenario, [narrow, knows])) == list(misfits(scenario, [knows, narrow])) == []


def test_the_bound_is_one() -> None:
    calls = [call(n / 10, 3, caller=f"c{n % 7}") for n in range(40)]
    scenario = Scenario(fleets=recorded_fleets(calls), upstreams=(UpstreamSpec(traits=Traits(concurrency=2)),))
    policy = one_provider("concurrency 2")

    assert bound_of(policy, scenario, 1).ns <= World(policy, scenario, 1).run().makespan_ns
    assert bound_of(policy, scenario, 1).ns > 30 * MS


@pytest.mark.parametrize(
    ("arrived_s", "request_", "text", "begins"),
    [
        (0, {"hour": 23, "minute": 30, "weekday": 6, "date": "2026-11-21"}, "", ("2026-11-21", 23 * 60 + 30)),
        (5_400, {"hour": 0, "minute": 30, "weekday": 7, "date": "2026-11-22"}, "", ("2026-11-21", 23 * 60)),
        (60, {"hour": 9, "weekday": 3}, "", ("2001-01-10", 9 * 60 - 1)),
        (0, {"hour": 23, "date": "2026-11-21"}, "hour = 3\n", ("2026-11-21", 3 * 60)),
        (0, {"hour": 23, "date": "2026-11-21"}, "weekday = 3\n", ("2001-01-10", 23 * 60)),
    ],
)
def test_a_record_begins_when_it_did_unless_the_scenario_says_when(
    arrived_s: int, request_: dict[str, Any], text: str, begins: tuple[str, int]
) -> None:
    found = parse_scenario(text, name="x", trace=[call(arrived_s, request=request_)])

    assert (found.date, found.time) == begins


def test_a_rule_of_the_night_decides_recorded_calls_of_the_night() -> None:
    night = one_provider("concurrency 5", rest='rule night when hour in 22..5 { deny "later" }')
    asked = {"minute": 0, "weekday": 3, "date": "2026-11-25"}

    by_day = parse_scenario("", name="x", trace=[call(0, request={"hour": 12, **asked})])
    at_night = parse_scenario("", name="x", trace=[call(0, request={"hour": 23, **asked})])

    assert World(night, by_day).run().turns_done == 1
    assert World(night, at_night).run().turns_done == 0


def test_a_rule_limits_the_output_of_calls() -> None:
    short = one_provider("concurrency 5", rest="rule short { max-output 20 }")
    recorded = [call(0, usage=Usage(input=100, output=50)), call(5, usage=Usage(input=100, output=10))]

    assert again(*recorded).tokens == 260
    assert again(*recorded, policy=short).tokens == 230
    drawn = scenario(fleet(2, 3), traits=Traits(tokens_out_mean=500, tokens_out_sigma=0))
    assert run(WIDE, drawn).tokens - run(short, drawn).tokens == 6 * (500 - 20)
