"""A scenario over sockets does the same work as in the virtual world, whatever its agents and its providers are."""

from __future__ import annotations

import re
import signal

import attrs
import pytest
import trio

from bench.simulated.worlds import REGIMES, compiled
from bench.sockets.cases import CannotRun, cases
from bench.sockets.measured import Measured
from bench.sockets.obstacles import obstacles
from bench.sockets.runs import Case, Run, Together, performed
from bench.sockets.sockets import Stage, staged
from hivemind_trio.sim import CLIENTS, Fleet, Scenario, Traits, UpstreamSpec, Way, parse_scenario

POLICY = """
provider first {
  api anthropic; base "http://127.0.0.1:9"; concurrency 40; key env(FIRST); retry never
  limits "claude-opus*" { requests 6k/min }
}
provider second { api openai; base "http://127.0.0.1:9"; concurrency 40; key env(SECOND); retry never }
provider third { api azure; base "http://127.0.0.1:9"; concurrency 40; key env(THIRD); serves ["az-*"]; retry never }
retry never { attempts 1 }
lane slow { weight 1 }
agent ci { token env(CI) }
rule ci when agent == ci { lane slow }
"""

FLEETS = [
    ("none", 0.0, "claude-sonnet-4-5", "[]"),
    ("anthropic-sdk", 0.5, "claude-opus-4-1", "[]"),
    ("openai-sdk", 0.5, "gpt-4.1", "[]"),
    ("claude-code", 1.0, "claude-sonnet-4-5", '["ci"]'),
    ("codex", 1.0, "gpt-4.1", "[]"),
    ("openai-sdk", 0.5, "az-gpt", "[]"),
]


def everybody() -> Scenario:
    """Each kind of client, three dialects, and faults that are drawn for the work, not for the order of arrival."""
    fleets = "".join(
        f"""
        [[agents]]
        name = "fleet{number}"
        count = 2
        turns = 3
        think = "5ms"
        input = "~200"
        grows = 100
        stream = {stream}
        model = "{model}"
        as = {identities}
        client = "{client}"
        """
        for number, (client, stream, model, identities) in enumerate(FLEETS)
    )
    text = f"""
    until = "2m"
    {fleets}
    [[upstream]]
    provider = "first"
    latency = "20ms"
    answer = "~40"
    cache = "5m"
    fail = {{ "502" = "10%", reset = "10%", break = "10%" }}
    limits = {{ requests = "100k/min", input = "50M/min" }}
    [[upstream]]
    latency = "20ms"
    answer = "~40"
    fail = {{ "502" = "10%", break = "10%" }}
    limits = {{ tokens = "50M/min" }}
    """
    return attrs.evolve(parse_scenario(text, name="everybody"), policy=POLICY)


def of(measured: Measured) -> dict[str, object]:
    """What does not depend on time."""
    names = ("agents", "dead", "undone", "turns", "turns_done", "calls", "attempts", "tokens", "cost_microusd", "met")
    return {name: getattr(measured, name) for name in names} | {
        "wasted": measured.tokens_wasted,
        "turns taken": measured.turn.count,
    }


@pytest.mark.slow
def test_every_client_in_every_dialect_does_in_both_worlds_the_same() -> None:
    assert {client for client, *_ in FLEETS} == set(CLIENTS)
    scenario = everybody()
    case = Case(scenario=scenario, program=compiled(POLICY))
    runs = [Run.of(case, way, 6) for way in Way]
    together = Together(runs, 0.0)

    trio.run(together.perform)

    for run in runs:
        simulated, real = Measured.of(run.simulated), together.found[run]
        assert of(real) == of(simulated)
        for lane, spread in simulated.lanes.items():
            # A stream that breaks with its first event counts as served in one world and not in the other.
            assert abs(real.lanes[lane].count - spread.count) <= real.met["reset mid-stream"]
        assert real.met["502"] > 0
        assert real.met["reset mid-stream"] > 0
        assert 0 < real.dead < real.agents
        assert real.calls > real.turns_done + real.dead
    assert {lane: spread.count > 0 for lane, spread in together.found[runs[1]].lanes.items()} == {
        "default": True,
        "slow": True,
    }


@pytest.mark.slow
def test_what_can_be_waited_for_in_vain_is() -> None:
    """Silence at first, silence mid-stream, nobody there, and a word of when to come back."""
    text = """
    until = "1m"
    [[agents]]
    count = 3
    turns = 2
    input = 100
    stream = true
    client = "anthropic-sdk"
    silence = "700ms"
    [[upstream]]
    latency = "20ms"
    answer = 60
    fail = { stall = "40%", hang = "30%" }
    hang = "2s..3s"
    storms = [{ from = "0s", to = "300ms", with = "connect" }]
    """
    program = compiled(PLAIN.format(api="anthropic"))
    case = Case(scenario=parse_scenario(text, name="vain"), program=program)
    simulated = Measured.of(Run.of(case, Way.DIRECT, 2).simulated)

    async def run() -> Measured:
        async with staged(case.program, case.scenario, 2, Way.DIRECT) as stage:
            return await stage.run()

    real = trio.run(run)

    assert of(real) == of(simulated)
    assert real.calls > real.attempts  # some came to a closed port
    assert {"silence at first", "silence mid-stream"} == set(real.met)
    assert real.died_of == {"no byte for too long": real.dead}


PLAIN = 'provider one {{ api {api}; base "http://127.0.0.1:9"; concurrency 9; retry no }}\nretry no {{ attempts 1 }}\n'
ONE = "[[agents]]\n{agents}\n[[upstream]]\n{upstream}\n"


@pytest.mark.parametrize(
    ("api", "rest", "agents", "upstream", "why"),
    [
        ("gemini", "", "", "", "provider `one` speaks gemini"),
        ("anthropic", "", 'path = "/v1/complete"', "", "call `/v1/complete`; over sockets there is `/v1/messages`"),
        ("anthropic", "", 'name = "ä b"', "", "have a name that no URL holds"),
        (
            "anthropic",
            "",
            "",
            'storms = [{ from = "0s", to = "1s", share = "50%", with = "connect" }]',
            "`share` must be 100%",
        ),
        ("anthropic", 'rule night when hour < 6 { deny "at night" }', "", "", "asks for the hour"),
        ("anthropic", "server { identify [header] }", "", "", "`identify` must have `url`"),
        ("anthropic", "agent ci { token env(CI) }", 'as = ["ci"]', "", "provider `one` has no `key`"),
    ],
    ids=["dialect", "path", "name", "share", "time", "identify", "key"],
)
def test_what_cannot_be_had_over_sockets_is_said(api: str, rest: str, agents: str, upstream: str, why: str) -> None:
    program = compiled(PLAIN.format(api=api) + rest)
    scenario = parse_scenario(ONE.format(agents=agents, upstream=upstream), name="one")

    assert why in " / ".join(obstacles(program, scenario))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("strom", "there is no scenario `strom`; there is paper, regimes"),
        ("fleet", "has no policy"),
        ("grid", "take some of its cells by name, such as `requests bind, bucket"),
    ],
)
def test_a_name_that_cannot_be_run_says_why(name: str, why: str) -> None:
    with pytest.raises(CannotRun, match=re.escape(why)):
        cases([name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("paper", 16),
        ("ablation", 32),
        ("agentrm", 30),
        ("regimes", 5 * len(REGIMES)),
        ("requests bind, gcra, declared right, refusals free", 1),
    ],
)
def test_the_evaluation_s_tables_can_be_run_over_sockets(name: str, count: int) -> None:
    assert len(cases([name])) == count


async def test_what_is_over_when_it_is_interrupted_has_been_found(capsys: pytest.CaptureFixture[str]) -> None:
    quick = parse_scenario('[[agents]]\nturns = 2\n[[upstream]]\nlatency = "10ms"', name="quick")
    slow = parse_scenario('[[agents]]\nturns = 2\n[[upstream]]\nlatency = "10m"', name="slow")
    program = compiled(PLAIN.format(api="anthropic"))
    runs = [Run.of(Case(scenario=each, program=program), Way.DIRECT, 1) for each in (quick, slow)]
    together = Together(runs, 0.0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(together.perform)
        while not together.found:  # noqa: ASYNC110 - it has nobody to tell
            await trio.sleep(0.01)
        signal.raise_signal(signal.SIGINT)

    assert together.interrupted
    assert list(together.found) == runs[:1]
    assert "[1/2] quick, direct: " in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("traits", "calls"),
    [
        (
            Traits(latency_mean_ns=10**7, bad_gateways=1.0),
            {"none": 1, "anthropic-sdk": 3, "claude-code": 11, "codex": 5},
        ),
        (Traits(latency_mean_ns=10**7, breaks=1.0), {"none": 1, "anthropic-sdk": 1, "claude-code": 2, "codex": 6}),
    ],
    ids=["502", "broken streams"],
)
def test_a_client_asks_as_often_as_its_kind_does_and_no_more(traits: Traits, calls: dict[str, int]) -> None:
    for kind, often in calls.items():
        hasty = attrs.evolve(CLIENTS[kind], first_ns=1_000_000, last_ns=1_000_000)
        fleet = Fleet(name="agent", count=2, stream=1.0, client=hasty, models=("claude-sonnet-4-5",))
        scenario = Scenario(name=kind, fleets=(fleet,), upstreams=(UpstreamSpec(traits=traits),))

        measured = trio.run(direct, Case(scenario=scenario, program=compiled(PLAIN.format(api="anthropic"))))

        assert (measured.calls, measured.dead) == (2 * often, 2)


async def direct(case: Case) -> Measured:
    with trio.fail_after(120):  # who never gives up fails
        async with staged(case.program, case.scenario, 1, Way.DIRECT) as stage:
            return await stage.run()


@pytest.mark.slow
def test_what_is_over_when_another_run_crashes_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    well = Stage.run

    async def crashes(stage: Stage) -> Measured:
        measured = await well(stage)
        assert stage.scenario.name != "bad", "the sky has fallen"
        return measured

    monkeypatch.setattr(Stage, "run", crashes)
    program = compiled(PLAIN.format(api="anthropic"))
    bad = parse_scenario('[[agents]]\nturns = 2\n[[upstream]]\nlatency = "300ms"', name="bad")
    good = parse_scenario('[[agents]]\n[[upstream]]\nlatency = "10ms"', name="good")
    runs = [Run.of(Case(scenario=each, program=program), Way.DIRECT, 1) for each in (bad, good)]

    found, whole = performed(runs, 0.0)

    assert not whole
    assert list(found) == runs[1:]
    assert "the sky has fallen" in capsys.readouterr().err
