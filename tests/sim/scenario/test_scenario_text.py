"""Scenario files: what they say is what is run, and every mistake has its line and its remedy."""

from __future__ import annotations

from contextlib import suppress
from importlib import resources
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.model import PlanSpan
from hivemind_trio.model.plan import DAY_NS, HOUR_NS
from hivemind_trio.policy import MemoryFiles, Severity, check
from hivemind_trio.sim import (
    CLIENTS,
    Amount,
    Arrivals,
    Counting,
    Neighbour,
    PlanLimit,
    Quota,
    Scenario,
    ScenarioError,
    Shape,
    Storm,
    UpstreamSpec,
    Wave,
    Way,
    Weather,
    World,
    bound_of,
    parse_scenario,
)
from tests.sim.worlds import MS, SECOND

MINUTE = 60 * SECOND
SHIPPED = {
    entry.name.removesuffix(".toml"): entry.read_text("utf-8")
    for entry in (resources.files("hivemind_trio.sim") / "scenarios").iterdir()
    if entry.name.endswith(".toml")
}
AGENT = "[[agents]]\n"


def agents(line: str) -> object:
    return parse_scenario(f"{AGENT}{line}\n", name="x").fleets[0]


def upstream(*lines: str) -> UpstreamSpec:
    return parse_scenario(f"{AGENT}[[upstream]]\n" + "\n".join(lines), name="x").upstreams[0]


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("count = 7", "count", 7),
        ('turns = "4..12"', "turns", Amount(8, 4, Shape.UNIFORM)),
        ("turns = 8", "turns", Amount(8)),
        ('start = "0s..3s"', "start_ns", Amount(1.5 * SECOND, 1.5 * SECOND, Shape.UNIFORM)),
        ('think = "2s +- 500ms"', "think_ns", Amount(2 * SECOND, 500 * MS, Shape.NORMAL)),
        ('input = "~8k"', "tokens_in", Amount(8_000, 6_400, Shape.LOGNORMAL)),
        ('input = "~8k cv 0.5"', "tokens_in", Amount(8_000, 4_000, Shape.LOGNORMAL)),
        ('grows = "1k"', "grows", 1_000),
        ("output-max = 4096", "tokens_max_out", 4_096),
        ("stream = true", "stream", 1.0),
        ('stream = "25%"', "stream", 0.25),
        ('arrive = "300/min"\nfor = "10m"', "arrive", Arrivals(per_second=5.0, for_ns=10 * MINUTE)),
        (
            'arrive = "60/min"\nfor = "8h"\nfrom = "1d"',
            "arrive",
            Arrivals(per_second=1.0, for_ns=8 * HOUR_NS, from_ns=DAY_NS),
        ),
        ('as = "ci"', "identities", ("ci",)),
        ("as = []", "identities", ()),
        ('model = ["a", "b"]', "models", ("a", "b")),
        ('client = "codex"', "client", CLIENTS["codex"]),
        ('headers = { X-Job = "1" }', "headers", {"x-job": "1"}),
        ('prefix = "20k"', "prefix", 20_000),
        ("says-remaining = true", "says_remaining", Amount(1.0)),
        ("says-remaining = false", "says_remaining", None),
        ('says-remaining = "~1 cv 0.6"', "says_remaining", Amount(1, 0.6, Shape.LOGNORMAL)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_agents_are_told_they_are(line: str, field: str, value: object) -> None:
    assert getattr(agents(line), field) == value


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ('latency = "2s..6s"', "latency_shape", Shape.UNIFORM),
        ('latency = "120ms +- 60ms"', "latency_sigma_ns", 60 * MS),
        ("concurrency = 5", "concurrency", 5),
        ('limits = { requests = "50/min" }', "requests", Quota(limit=50)),
        ('limits = { tokens = "30k/10s" }\nwindow = "sliding"', "tokens",
         Quota(limit=30_000, window_ns=10 * SECOND, counting=Counting.SLIDING)),
        ('limits = { input = { rate = "6/min", window = "fixed", phase = "20s" } }', "input",
         Quota(limit=6, counting=Counting.FIXED, phase_ns=20 * SECOND)),
        ('limits = { output = "120/min" }\nwindow = "gcra"', "output", Quota(limit=120, burst=2)),
        ('limits = { requests = "9/min" }\nwindow = "fixed-lazy"', "requests",
         Quota(limit=9, counting=Counting.FIXED, lazy=True)),
        ('charges = "most"', "charges_most", True),
        ("refusals-count = true", "refusals_count", True),
        ('cache = "5m"', "cache_ns", 5 * MINUTE),
        ('fail = { "502" = "8%", reset = 0.05 }', "bad_gateways", 0.08),
        ('fail = { "502" = "8%", reset = 0.05 }', "resets", 0.05),
        ('fail = { 529 = "20%", 503 = "2%", connect = "1%" }', "overloads", 0.2),
        ('fail = { 529 = "20%", 503 = "2%", connect = "1%" }', "unavailable", 0.02),
        ('fail = { 529 = "20%", 503 = "2%", connect = "1%" }', "unreachable", 0.01),
        ('hang = "50s..120s"', "hang_ns", (50 * SECOND, 120 * SECOND)),
        ('hang-wave = { by = "10%", every = "10m" }', "hang_wave", Wave(amplitude=0.1, period_ns=10 * MINUTE)),
        ('storms = [{ from = "1m", to = "2m", with = "connect" }]', "storms",
         (Storm(from_ns=MINUTE, to_ns=2 * MINUTE, share=1.0, weather=Weather.UNREACHABLE),)),
        ('neighbours = [{ from = "1m", to = "2m" }]', "neighbours",
         (Neighbour(from_ns=MINUTE, to_ns=2 * MINUTE, share=0.3),)),
        ('plan = { session = { tokens = "20M" }, week = { tokens = "9M", used = "40%", resets = "3d" } }', "plan",
         (PlanLimit(span=PlanSpan.SESSION, tokens=20_000_000, every_ns=5 * HOUR_NS),
          PlanLimit(span=PlanSpan.WEEK, tokens=9_000_000, every_ns=7 * DAY_NS, used=400_000, resets_ns=3 * DAY_NS))),
        ("headers = false", "tells", False),
        ('says-retry-after = "1s"', "says_retry_after_ns", SECOND),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_a_provider_is_told_it_is(line: str, field: str, value: object) -> None:
    assert getattr(upstream(line).traits, field) == value


@pytest.mark.parametrize(
    ("text", "line", "where", "help"),
    [
        ('[[agents]]\nsays-remaining = "soon"\n', 2, "agents[1].says-remaining", '"~1 cv 0.6"'),
        ("[[agents]]\nthink = 5\n", 2, "agents[1].think", '`"5s"`'),
        ('[[agents]]\n[[agents]]\nname = "b"\nthinkk = "5s"\n', 4, "agents[2].thinkk", "`think`"),
        ('[[agents]]\nturns = "9..4"\n', 2, "agents[1].turns", '`"4..9"`'),
        ('[[agents]]\nclient = "curl"\n', 2, "agents[1].client", "`claude-code`"),
        ('[[agents]]\nmodel = 4\n', 2, "agents[1].model", '`"ci"`'),
        ('[[agents]]\narrive = "5/min"\n', 2, "agents[1].arrive", '`for = "10m"`'),
        ('[[agents]]\ncount = 4\narrive = "5/min"\nfor = "1m"\n', 2, "agents[1].count", "delete"),
        ("[[agents]]\ncount = 0\n", 2, "agents[1].count", "leave it out"),
        ('[[agents]]\n[[upstream]]\nlimits = { requestz = "5/min" }\n', 3, "upstream[1].limits.requestz", "`requests`"),
        ('[[agents]]\n[[upstream]]\n[upstream.limits]\ninput = 5\n', 4, "upstream[1].limits.input", "`"),
        ('[[agents]]\n[[upstream]]\nfail = { "502" = "70%", reset = "70%" }\n', 3, "upstream[1].fail", "100%"),
        ('[[agents]]\n[[upstream]]\nfail = { 529 = "70%", 502 = "70%" }\n', 3, "upstream[1].fail", "`529`"),
        ('[[agents]]\n[[upstream]]\nfail = { 530 = "1%" }\n', 3, "upstream[1].fail.530", "`5"),
        ('[[agents]]\n[[upstream]]\nstorms = [{ from = "3m", to = "1m" }]\n', 3, "upstream[1].storms[1].to", "from"),
        ('[[agents]]\n[[upstream]]\nplan = { week = { used = "4%" } }\n', 3, "upstream[1].plan.week", "tokens"),
        ('[[agents]]\n[[upstream]]\nplan = { day = { tokens = 4 } }\n', 3, "upstream[1].plan.day", "`session`"),
        ('[[agents]]\n[[upstream]]\nplan = { week = { tokens = 4, every = "5h" } }\n', 3, "upstream[1].plan.week.every",
         "up to 8"),
        ('[[agents]]\n[[upstream]]\nwindow = "monthly"\n', 3, "upstream[1].window", "`sliding`"),
        ('about = "nobody"\n', 0, "", "[[agents]]"),
        ("[[agents]]\ncount = \n", 2, "", "key"),
        ("hour = 25\n[[agents]]\n", 1, "hour", "0 to 23"),
        ('agents = 4\n', 1, "agents", "[[agents]]"),
        ("[[agents]]\n[[agents]]\nname = 'agent'\n", 3, "agents[2].name", "another name"),
    ],
    ids=lambda value: value.replace("\n", "; ") if isinstance(value, str) else "",
)  # fmt: skip
def test_a_mistake_has_its_line_and_its_remedy(text: str, line: int, where: str, help: str) -> None:  # noqa: A002 - as the error calls it
    with pytest.raises(ScenarioError) as raised:
        parse_scenario(text, name="x.toml")

    problem = raised.value.problems[0]
    assert (problem.line, problem.where) == (line, where)
    assert help in problem.help
    assert raised.value.text().startswith(f"x.toml:{line}: " if line else "x.toml: ")


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ScenarioError) as raised:
        parse_scenario('until = 5\n[[agents]]\nthink = 5\n[[upstream]]\nlatency = "soon"\nspeed = 1\n', name="x")

    assert [problem.line for problem in raised.value.problems] == [1, 3, 5, 6]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 10**20)
    | st.floats()
    | st.text("0123456789.~+-/ kMsmincv%", max_size=12),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["rate", "from", "to", "502"]), inner),
    max_leaves=4,
)
KEYS = st.sampled_from(
    ["count", "turns", "think", "arrive", "for", "as", "input", "stream", "latency", "limits", "fail", "hang", "storms"]
)


@pytest.mark.slow
@given(fleet=st.dictionaries(KEYS, VALUES, max_size=3), provider=st.dictionaries(KEYS, VALUES, max_size=3))
@settings(max_examples=150)
def test_whatever_a_file_holds_is_a_scenario_or_a_list_of_mistakes(
    fleet: dict[str, object], provider: dict[str, object]
) -> None:
    text = f"[[agents]]\n{_toml(fleet)}\n[[upstream]]\n{_toml(provider)}"
    with suppress(ScenarioError):
        assert isinstance(parse_scenario(text, name="x"), Scenario)


def _toml(table: dict[str, object]) -> str:
    return "\n".join(f'"{key}" = {_value(value)}' for key, value in table.items())


def _value(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case list():
            return "[" + ", ".join(map(_value, value)) + "]"
        case dict():
            return "{" + ", ".join(f'"{key}" = {_value(each)}' for key, each in value.items()) + "}"
        case float() | int():
            return str(value)
        case _:
            return f'"{value}"'


@given(mean=st.integers(1, 10**6), shape=st.sampled_from(Shape), part=st.floats(0, 1.5), seed=st.integers(0, 9))
@settings(max_examples=100)
def test_an_amount_is_never_below_nothing(mean: int, shape: Shape, part: float, seed: int) -> None:
    assert Amount(mean, mean * part, shape).draw(Random(seed)) >= 0


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_what_ships_can_be_run_with_its_own_policy_and_says_what_it_is_about(name: str) -> None:
    scenario = parse_scenario(SHIPPED[name], name=name)
    assert scenario.about
    if scenario.policy is None:
        return
    checked = check("own.hmp", MemoryFiles({"own.hmp": scenario.policy.encode()}))

    assert not [each for each in checked.diagnostics if each.severity is not Severity.INFO]
    assert checked.program is not None
    bound = bound_of(checked.program, scenario, 1)
    world = World(checked.program, scenario, 1, Way.DIRECT, bound=bound)
    assert world.run().attempts > 0


@pytest.mark.parametrize(
    ("name", "binds", "seconds"),
    [
        ("micro-10", "requests", 60),
        ("micro-20", "requests", 180),
        ("micro-50", "requests", 300),
        ("replay-11", "requests", 60),
        ("stress", "requests", 540),
        ("latency-spike", "requests", 60),
    ],
)
def test_the_paper_s_scenarios_have_the_bounds_that_can_be_worked_out_by_hand(
    name: str, binds: str, seconds: int
) -> None:
    scenario = parse_scenario(SHIPPED[name], name=name)
    assert scenario.policy is not None
    program = check("own.hmp", MemoryFiles({"own.hmp": scenario.policy.encode()})).program
    assert program is not None

    bound = bound_of(program, scenario, 3)

    # So many windows, and in the last of them what is left of the work.
    assert bound.binds == binds
    assert seconds * SECOND < bound.ns < (seconds + 2) * SECOND
