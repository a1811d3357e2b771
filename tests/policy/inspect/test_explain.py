"""`explain` says of a call what the proxy would do with it, and of a setting where it comes from."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hivemind_trio.model import Api, Moment, Request, Verdict
from hivemind_trio.policy import (
    Checked,
    MemoryFiles,
    NotDeclared,
    RequestError,
    Step,
    check,
    explain,
    parse_request,
    reads_time,
    settings,
)

TEAM = """\
server { timezone "UTC" }
defaults provider { timeout connect 3s; queue 50 }
defaults agent { queue 20 }
defaults lane { queue 500 }

provider anthropic {
  concurrency 12
  limits { concurrency 10 }
  limits "claude-opus-*" { concurrency 4 }
}
provider openai extends anthropic {
  api openai
  serves ["gpt-*", # the cheap ones
          "o3*"]
}
lane people { weight 8; reserve 4; deadline 60s; priority 3 }
lane batch  { max 25%; queue 2k }
team product { }
agent ci when header.x-ci != "" { team product; lane batch; concurrency 4 }
agent reviewer { token env(REVIEWER); priority 7 }
agent second extends reviewer { token env(SECOND) }

rule big when tokens.in > 100k { lane batch; priority 1 }
rule exempt when agent == reviewer { allow }
rule no when model ~ "claude-opus-*" { deny "ask for Haiku"; priority 2 }
rule night when hour in 0..5 { priority 6; deadline 10m }
rule to-openai when model == "any" { provider openai }
rule never when method == "GET" { deny; priority 2 }
rule also { priority 5; lane people }
"""


def checked(text: str) -> Checked:
    found = check("team.hmp", MemoryFiles({"team.hmp": text}))
    assert found.program is not None, found.diagnostics
    return found


POLICY = checked(TEAM)


def asked(*words: str) -> Request:
    return parse_request(POLICY, words)


# ---- the call that is meant ----


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("model=claude-opus-4-1", {"model": "claude-opus-4-1"}),
        ('model="claude-opus-4-1"', {"model": "claude-opus-4-1"}),
        ("model=", {"model": ""}),
        ("model=a=b", {"model": "a=b"}),
        ("path=/v1/messages", {"path": "/v1/messages"}),
        ("method=GET", {"method": "GET"}),
        ("stream=true", {"stream": True}),
        ("stream=false", {"stream": False}),
        ("tools=true", {"tools": True}),
        ("images=true", {"images": True}),
        ("tokens.in=12k", {"tokens_in": 12_000}),
        ("tokens.in=40_000", {"tokens_in": 40_000}),
        ("tokens.max-out=1.5k", {"tokens_max_out": 1_500}),
        ("cost=$0.10", {"cost_microusd": 100_000}),
        ("attempt=2", {"attempt": 2}),
        ("hour=23", {"hour": 23, "minute": 0}),
        ("time=22:30", {"hour": 22, "minute": 30}),
        ("date=2026-12-25", {"date": "2026-12-25", "weekday": 5}),
        ("weekday=7", {"weekday": 7}),
        ("header.X-Job=7", {"headers": {"x-job": "7"}}),
        ("meta.User=me", {"meta": {"User": "me"}}),
        ("agent=ci", {"claimed": "ci", "token_agent": None}),
        ("agent=reviewer", {"token_agent": "reviewer", "claimed": None}),
        ("agent=unknown", {"claimed": None, "token_agent": None}),
        ("api=openai", {"apis": (Api.OPENAI,)}),
    ],
)
def test_a_word_says_one_thing_of_the_call(word: str, expected: dict[str, object]) -> None:
    request = asked(word)

    assert {name: getattr(request, name) for name in expected} == expected


def test_what_is_not_said_has_the_languages_default() -> None:
    assert asked() == Request(apis=(Api.ANTHROPIC, Api.OPENAI))


def test_what_is_brought_along_gives_way_to_what_is_said() -> None:
    request = parse_request(POLICY, ["hour=3"], defaults={"time": "14:10", "date": "2026-12-25"})
    another = parse_request(POLICY, ["weekday=3"], defaults={"time": "14:10", "date": "2026-12-25"})

    assert (request.time, request.weekday) == (180, 5)
    assert (another.time, another.weekday, another.date) == (850, 3, "2001-01-10")


def test_what_contradicts_itself_is_no_call() -> None:
    with pytest.raises(RequestError, match="`time` 22:30 is not in `hour` 21"):
        asked("time=22:30", "hour=21")
    with pytest.raises(RequestError, match="`date` 2026-12-25 is `weekday` 5, not 4"):
        asked("date=2026-12-25", "weekday=4")


def test_the_cost_is_reckoned_from_the_models_price_unless_it_is_said() -> None:
    priced = checked('model "m" { price input $1/Mtok output $5/Mtok }\nprovider anthropic { }')

    assert parse_request(priced, ["model=m", "tokens.in=1M", "tokens.max-out=1M"]).cost_microusd == 6_000_000
    assert parse_request(priced, ["model=m", "tokens.in=1M", "cost=$2"]).cost_microusd == 2_000_000
    assert parse_request(priced, ["model=other", "tokens.in=1M"]).cost_microusd == 0


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("model", "`model` is no `field=value`"),
        ("", "`` is no `field=value`"),
        (
            "team=product",
            "`team` cannot be given: it follows from the agent, or a team's `when`; give `agent=...`",
        ),
        ("tokens.total=5k", "`tokens.total` cannot be given: give `tokens.in=...` and `tokens.max-out=...`"),
        (
            "provider=openai",
            "`provider` cannot be given: the provider follows from the model and the path; give `model=...`",
        ),
        ("mdel=x", "no field `mdel`; did you mean `model`?"),
        (
            "customer=acme",
            "no field `customer`; there are `agent`, `model`, `path`, `method`, `stream`, `tools`, `images`, "
            "`tokens.in`, `tokens.max-out`, `attempt`, `hour`, `weekday`, `time`, `date`, `client.address`, `cost`, "
            "`plan.session`, "
            "`plan.week`, `plan.month`, `plan.overage`, `session.context`, `session.turns`, `session.cost`, "
            "`session.age`, `api`, `token`, `claim`, "
            "`header.NAME` or `meta.NAME`",
        ),
        ("agent=cy", "no agent `cy`; did you mean `ci`?"),
        ("agent=nobody", "no agent `nobody`; there are `ci`, `reviewer`, `second` or `unknown`"),
        (
            "api=llama",
            "no api `llama`; there are `anthropic`, `openai`, `azure`, `gemini`, `mistral`, `ollama`, `vllm` or "
            "`generic`",
        ),
        ("stream=yes", "`stream` is a flag: `stream=true` or `stream=false`"),
        ("tokens.in=many", "`tokens.in=many`: a number such as `12k` is wanted"),
        ("hour=noon", "`hour=noon`: a number such as `14` is wanted"),
        ("weekday=Monday", "`weekday=Monday`: a number such as `3` is wanted"),
        ("attempt=", "`attempt=`: a number such as `2` is wanted"),
        ("cost=free", "`cost=free`: a number such as `$0.10` is wanted"),
        ("cost=2", "`cost=2`: an amount of money needs `$`; write `$2`"),
        ("tokens.in=12K", "`tokens.in=12K`: `K` is not a unit of a count; write `12k`"),
        ("tokens.in=0.5", "`tokens.in=0.5`: `0.5` rounds to zero"),
        ("hour=24", "`hour=24`: it is 0 to 23"),
        ("weekday=0", "`weekday=0`: it is 1 to 7"),
        ("time=22", "`time=22` is not a time of day; write `time=22:00`"),
        ("time=25:00", "`time=25:00` is not a time of day; write `time=22:30`"),
        ("date=25.12.2026", "`date=25.12.2026` is not a date; write `date=2026-12-25`"),
        ("date=2026-02-29", "`date=2026-02-29` is not a date; write `date=2026-12-25`"),
        ("attempt=0", "`attempt=0`: it is 1 or more"),
    ],
)
def test_a_word_that_describes_no_call_is_answered_with_what_to_write(word: str, message: str) -> None:
    with pytest.raises(RequestError) as refused:
        asked("agent=ci", word)

    assert str(refused.value) == message


@pytest.mark.slow
@given(st.text(max_size=12), st.text(max_size=12))
def test_any_words_make_a_call_or_a_request_error(name: str, value: str) -> None:
    for field in (name, "tokens.in", "cost", "hour", "stream", "agent", "api", f"header.{name}"):
        try:
            explain(POLICY, asked(f"{field}={value}"))
        except RequestError as refused:
            assert str(refused)  # noqa: PT017 - either outcome is right; none other is


# ---- who decided ----


def steps(*words: str) -> dict[str, Step]:
    return {step.rule: step for step in explain(POLICY, asked(*words)).steps}


def test_every_rule_is_a_step_in_order_with_its_place() -> None:
    found = explain(POLICY, asked()).steps

    assert [step.rule for step in found] == ["big", "exempt", "no", "night", "to-openai", "never", "also"]
    assert found[0].at == f"team.hmp:{TEAM[: TEAM.index('rule big')].count(chr(10)) + 1}"


def test_the_first_rule_that_names_a_setting_decides_it_and_later_ones_are_late() -> None:
    said = steps("tokens.in=200k", "hour=3", "model=claude-haiku-4-5")

    assert (said["big"].matches, said["big"].decides, said["big"].late) == (True, ("lane", "priority"), ())
    assert (said["night"].decides, said["night"].late) == (("deadline",), ("priority",))
    assert (said["also"].decides, said["also"].late) == ((), ("lane", "priority"))
    assert said["no"] == Step("no", said["no"].at, False, (), ())


@pytest.mark.parametrize(
    ("when", "words", "until"),
    [
        ("time in 8:00..17:59", ["time=9:30", "date=2026-12-24"], ("2026-12-24", 18 * 3_600)),
        ("time in 22:00..6:29", ["time=23:00", "date=2026-12-24"], ("2026-12-25", 6 * 3_600 + 1_800)),
        ("weekday in 6..7", ["time=9:30", "date=2026-12-26"], ("2026-12-28", 0)),
        ('not date ~ "*-01-01"', ["time=9:30", "date=2026-12-26"], ("2027-01-01", 0)),
        ("tokens.in > 5", ["tokens.in=9", "time=9:30"], None),
        ("time < 10:00 or stream", ["stream=true", "time=9:30"], None),
    ],
)
def test_a_held_call_is_told_until_when_by_the_clock(
    when: str, words: list[str], until: tuple[str, int] | None
) -> None:
    policy = checked(f'provider anthropic {{ }}\nrule r when {when} {{ hold "later" }}')

    explanation = explain(policy, parse_request(policy, words))

    assert (explanation.held, explanation.denied) == ("later", None)
    assert explanation.held_until == (Moment(*until) if until is not None else None)


def test_allow_and_deny_are_one_setting_and_the_first_of_them_holds() -> None:
    exempt = explain(POLICY, asked("agent=reviewer", "model=claude-opus-4-1"))
    denied = explain(POLICY, asked("model=claude-opus-4-1"))

    by_rule = {step.rule: step for step in exempt.steps}
    assert exempt.treatment.verdict is Verdict.ALLOW
    assert by_rule["exempt"].decides == ("allow",)
    assert by_rule["no"].late == ("deny",)
    assert (denied.treatment.verdict, denied.treatment.message) == (Verdict.DENY, "ask for Haiku")


ATOMS = [
    "stream", "not tools", "tokens.in > 10k", "tokens.in in [5, 10k..20k]", 'model ~ "claude-*"', 'model == "gpt-5"',
    "hour in 0..5", "agent == ci", "agent in [reviewer, unknown]", "team == product", 'header.x-job != ""',
    'meta.user ~ "a*"', "cost > $0.50", 'method != "POST"', "attempt > 1", 'path == "/v1/messages"',
]  # fmt: skip
EFFECTS = ["lane batch", "lane people", "priority 1", "priority 9", "deadline 5s", "allow", 'deny "no"', "deny", "hold"]

rule_lists = st.lists(
    st.tuples(
        st.lists(st.sampled_from(ATOMS), max_size=2),
        st.sampled_from(["and", "or"]),
        st.lists(
            st.sampled_from(EFFECTS),
            max_size=3,
            unique_by=lambda effect: {"deny": "allow", "hold": "allow"}.get(effect.split()[0], effect.split()[0]),
        ),
    ),
    max_size=6,
)
WORDS = [
    "stream=true", "tools=true", "tokens.in=5", "tokens.in=15k", "tokens.in=1M", "model=claude-opus-4-1", "model=gpt-5",
    "hour=3", "hour=14", "agent=ci", "agent=reviewer", "header.x-job=7", "meta.user=ab", "cost=$1", "method=GET",
    "attempt=2", "path=/v1/messages",
]  # fmt: skip

HEAD = TEAM[: TEAM.index("rule big")]


@pytest.mark.slow
@given(rules=rule_lists, words=st.lists(st.sampled_from(WORDS), max_size=6))
@example(rules=[(["stream"], "and", ["lane batch"]), ([], "and", ["lane people", "deny"])], words=["stream=true"])
def test_the_steps_agree_with_who_the_compiled_policy_says_decided(
    rules: list[tuple[list[str], str, list[str]]], words: list[str]
) -> None:
    text = HEAD
    for number, (atoms, word, effects) in enumerate(rules):
        when = f" when {f' {word} '.join(atoms)}" if atoms else ""
        text += f"rule r{number}{when} {{ {'; '.join(effects)} }}\n"
    # Lanes and teams that no drawn rule names are not the matter here.
    policy = checked(text)
    request = parse_request(policy, words)

    explanation = explain(policy, request)

    treatment = explanation.treatment
    assert policy.program is not None
    assert treatment == policy.program.decide(request)
    by_steps = {}
    for step in explanation.steps:
        assert step.matches or not (step.decides or step.late)
        for setting in step.decides:
            slot = "verdict" if setting in ("allow", "hold", "deny") else setting
            assert slot not in by_steps  # decided once
            by_steps[slot] = step.rule
    by_program = {setting: decider.name for setting, decider in treatment.decided.items() if decider.kind == "rule"}
    assert by_steps == by_program
    for step in explanation.steps:
        for setting in step.late:
            slot = "verdict" if setting in ("allow", "hold", "deny") else setting
            assert int(by_steps[slot][1:]) < int(step.rule[1:])


# ---- what it counts against ----


def bounds(*words: str) -> list[tuple[str, str]]:
    return [(of, bound) for of, bound, _ in explain(POLICY, asked(*words)).bounds]


def test_the_bounds_are_those_of_provider_limits_lane_and_agent() -> None:
    assert bounds("agent=ci", "model=claude-haiku-4-5", "tokens.in=200k") == [
        ("provider anthropic", "12 in flight"),
        ("provider anthropic", "50 waiting"),
        ("limits of anthropic", "10 in flight"),
        ("other lanes", "4 of the provider's slots reserved"),
        ("lane batch", "3 in flight at this provider"),
        ("lane batch", "2000 waiting"),
        ("agent ci", "4 in flight"),
        ("agent ci", "20 waiting"),
    ]


def test_a_model_with_limits_of_its_own_is_held_by_those_alone() -> None:
    found = bounds("agent=reviewer", "model=claude-opus-4-1")

    assert ('limits "claude-opus-*" of anthropic', "4 in flight") in found
    assert "limits of anthropic" not in dict(found)


def test_the_limits_per_window_and_the_budgets_are_named() -> None:
    policy = checked(
        "provider anthropic {\n"
        "  limits { requests 50/min; input 450k/min; headroom 5% }\n"
        '  limits "claude-opus-*" { output 8k/s; tokens 2M/90m }\n'
        "}\n"
        "budget month { cost $500/30d }\n"
        "budget each per agent { input 2M/hour; window sliding }\n"
    )

    def said(*words: str) -> set[tuple[str, str]]:
        return {(of, bound) for of, bound, _ in explain(policy, parse_request(policy, words)).bounds}

    budgets = {("budget month", "$500 per 30d"), ("budget each of this agent", "2,000,000 input per hour")}
    assert said("model=claude-haiku-4-5") == budgets | {
        ("provider anthropic", "64 in flight"),
        ("limits of anthropic", "50 requests per minute"),
        ("limits of anthropic", "450,000 input tokens per minute"),
    }
    assert said("model=claude-opus-4-1") == budgets | {
        ("provider anthropic", "64 in flight"),
        ('limits "claude-opus-*" of anthropic', "8,000 output tokens per second"),
        ('limits "claude-opus-*" of anthropic', "2,000,000 tokens per 1h30m"),
    }


def test_an_unknown_caller_is_bounded_as_each_of_its_kind() -> None:
    assert ("each unknown caller", "20 waiting") in bounds()


@pytest.mark.parametrize("words", [("model=claude-opus-4-1",), ("api=gemini",)])
def test_what_is_denied_or_served_by_nobody_counts_against_nothing(words: tuple[str, ...]) -> None:
    assert bounds(*words) == []


def test_the_time_matters_only_where_a_rule_or_an_agent_asks_for_it() -> None:
    assert reads_time(POLICY)
    assert reads_time(checked("rule r when not (stream or weekday in 6..7) { priority 2 }\nprovider anthropic { }"))
    assert reads_time(checked("agent night when hour < 6 { }\nprovider anthropic { }"))
    assert not reads_time(checked("rule r when stream { priority 2 }\nprovider anthropic { }"))


# ---- settings ----


def origin(kind: str, name: str, setting: str) -> tuple[str, str]:
    (row,) = [row for row in settings(POLICY, kind, name) if row.name == setting]
    return row.value, row.origin


def line_of(text: str) -> int:
    return TEAM[: TEAM.index(text)].count("\n") + 1


@pytest.mark.parametrize(
    ("kind", "name", "setting", "value", "where"),
    [
        ("provider", "anthropic", "concurrency", "12", f"own team.hmp:{line_of('concurrency 12')}"),
        ("provider", "openai", "concurrency", "12", f"extends anthropic team.hmp:{line_of('concurrency 12')}"),
        ("provider", "openai", "queue", "50", f"defaults provider team.hmp:{line_of('defaults provider')}"),
        (
            "provider",
            "anthropic",
            "timeout",
            "connect 3s",
            f"defaults provider team.hmp:{line_of('defaults provider')}",
        ),
        ("provider", "openai", "serves", '["gpt-*", "o3*"]', f"own team.hmp:{line_of('serves')}"),
        ("provider", "anthropic", "api", "anthropic", "built-in"),
        ("provider", "anthropic", "base", '"https://api.anthropic.com"', "built-in"),
        ("provider", "openai", "base", '"https://api.openai.com"', "built-in"),
        ("provider", "anthropic", "key", "", "built-in"),
        ("lane", "batch", "weight", "1", "built-in"),
        ("lane", "people", "queue", "500", f"defaults lane team.hmp:{line_of('defaults lane')}"),
        ("agent", "second", "priority", "7", f"extends reviewer team.hmp:{line_of('agent reviewer')}"),
        ("agent", "second", "token", "env(SECOND)", f"own team.hmp:{line_of('agent second')}"),
        ("agent", "ci", "queue", "20", f"defaults agent team.hmp:{line_of('defaults agent')}"),
    ],
)
def test_a_setting_has_its_value_and_its_origin(kind: str, name: str, setting: str, value: str, where: str) -> None:
    assert origin(kind, name, setting) == (value, where)


def test_a_repeated_setting_has_a_row_for_each() -> None:
    rows = [row.value for row in settings(POLICY, "provider", "anthropic") if row.name == "limits"]

    assert rows == ["{ concurrency 10 }", '"claude-opus-*" { concurrency 4 }']


def test_there_is_no_declaration_of_that_name() -> None:
    with pytest.raises(NotDeclared, match="no provider `gemini`") as raised:
        settings(POLICY, "provider", "gemini")
    assert raised.value.hint.startswith("there ")


@pytest.mark.parametrize(("workers", "shown"), [("4", "at 4 workers"), ("auto", "at all workers")])
def test_the_slots_of_several_workers_are_said_to_be_shared(workers: str, shown: str) -> None:
    text = f"server {{ workers {workers} }}\nprovider anthropic {{ concurrency 40 }}\n"
    found = [bound for _, bound, _ in explain(check("p.hmp", MemoryFiles({"p.hmp": text})), asked()).bounds]
    assert found[0] == f"40 in flight {shown} together"


def test_the_slots_of_several_nodes_are_said_to_be_shared() -> None:
    text = """
server { nodes 4 }
store redis { url "redis://127.0.0.1" }
provider anthropic { concurrency 40 }
"""
    shared = check("p.hmp", MemoryFiles({"p.hmp": text}))
    found = [bound for of, bound, _ in explain(shared, asked()).bounds if of == "provider anthropic"]
    assert found == ["40 in flight at up to 4 nodes together, 2 here while the store is away"]
