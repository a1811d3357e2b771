"""Match expressions: every one has an answer for every call, and what is ill typed is told once, where it stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Api, Decision, Request
from hivemind_trio.policy import Checked, MemoryFiles, Severity, check
from hivemind_trio.policy.language.condition_eval import field_values, holds
from tests.policy.strategies import Call, Meant, Scope, conditions, requests

DECLARED = """\
provider anthropic { }
provider openai { }
team product { }
team research { }
agent ci { team product }
agent reviewer { }
let cheap = ["*-mini", "claude-haiku-4-5"]
let much = 1k
let busy = stream and tokens.in > much or tools
"""
SCOPE = Scope(
    names={
        "agent": ("ci", "reviewer", "unknown"),
        "team": ("product", "research", "none"),
        "provider": ("anthropic", "openai"),
    },
    globs={"cheap": ("*-mini", "claude-haiku-4-5")},
    counts={"much": 1_000},
    conditions={
        "busy": Meant(
            "busy", lambda call: (call.read("stream") and call.read("tokens.in") > 1_000) or call.read("tools")
        )
    },
)


def with_rule(condition: str, more: str = "") -> Checked:
    text = f"{DECLARED}rule r when {condition} {{ priority 7 }}\n{more}"
    return check("team.hmp", MemoryFiles({"team.hmp": text}))


def errors(checked: Checked) -> list[str]:
    return [found.code for found in checked.diagnostics if found.severity is Severity.ERROR]


def answer(condition: str, request: Request) -> bool:
    """Whether a rule with this condition matches: compiled, and walked."""
    checked = with_rule(condition)
    tree, program = checked.conditions["rule"]["r"], checked.program
    assert tree is not None
    assert program is not None, condition
    treatment = program.decide(request)
    walked = holds(tree, values_of(request, treatment))
    assert (treatment.priority == 7) is walked
    return walked


def values_of(request: Request, treatment: Decision) -> dict[str, str | int | bool]:
    """What the interpreter is told of a call that no rule sends elsewhere."""
    return field_values(request, agent=treatment.agent, team=treatment.team, provider=treatment.provider)


# ---- total and two-valued ----

# What a hostile or careless client may send: the facts have their types, and nothing else is promised of them.
strange = st.builds(
    Request,
    apis=st.lists(st.sampled_from(Api), max_size=3).map(tuple),
    claimed=st.none() | st.text(max_size=5),
    model=st.text(max_size=30),
    path=st.text(max_size=10),
    method=st.text(max_size=5),
    tokens_in=st.integers(0, 10**30),
    tokens_max_out=st.integers(0, 10**30),
    cost_microusd=st.integers(0, 10**30),
    attempt=st.integers(1, 10**9),
    headers=st.dictionaries(st.sampled_from(["x-job", "x-kind", "x"]), st.text(max_size=5)),
    meta=st.dictionaries(st.sampled_from(["user", "a.b", ""]), st.text(max_size=5)),
)


@pytest.mark.slow
@given(condition=conditions(SCOPE, depth=3), calls=st.lists(requests() | strange, min_size=4, max_size=8))
def test_a_condition_holds_or_not_and_means_the_same_compiled_walked_and_read(
    condition: Meant, calls: list[Request]
) -> None:
    checked = with_rule(condition.text, f"lane inverse {{ }}\nrule n when not ({condition.text}) {{ lane inverse }}\n")
    tree, program = checked.conditions["rule"]["r"], checked.program
    assert tree is not None
    assert program is not None

    for request in [Request(), *calls]:
        treatment = program.decide(request)

        matched = treatment.priority == 7
        assert matched is holds(tree, values_of(request, treatment))
        assert matched is bool(
            condition.means(Call(request, treatment.agent, treatment.team, treatment.provider)),
        )
        assert matched is not (treatment.lane == "inverse")


@pytest.mark.slow
@given(data=st.data(), request=strange)
def test_any_field_with_any_operator_and_value_is_an_error_or_has_an_answer(
    data: st.DataObject, request: Request
) -> None:
    fields = [*FIELDS, "header.x", "meta.a.b", "hour", "busy", "cheap", "much", "nothing", '"text"', "5"]
    operands = [*LITERALS, "[]", '["a*", 5]', "cheap", "much", "busy", "stream", "env(KEY)", "5/min", "5..1", "99..1"]
    parts = []
    for _ in range(data.draw(st.integers(1, 3))):
        op = data.draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "~", "in", "not in"]))
        parts.append(f"{data.draw(st.sampled_from(fields))} {op} {data.draw(st.sampled_from(operands))}")
    checked = with_rule(data.draw(st.sampled_from([" and ", " or ", " and not "])).join(parts))

    assert (checked.program is None) is bool(errors(checked))
    if checked.program is not None:
        assert checked.program.decide(request).priority in (0, 7)


ABSENT = {
    "text is empty": 'model == "" and path == "" and not model ~ "?*" and model ~ "*"',
    "a header is empty": 'header.x-job == "" and header.x-job in [""] and not header.x-job ~ "?*"',
    "what the body says is empty": 'meta.user == "" and meta.a.b != "x"',
    "numbers are 0": "tokens.in == 0 and tokens.max-out == 0 and tokens.total == 0 and cost == $0",
    "numbers are below every other": "tokens.in < 1 and cost < $0.10 and not tokens.in in 1..1M",
    "it is the first attempt": "attempt == 1 and not attempt > 1",
    "flags are not set": "not stream and not tools and images == false and stream != true",
    "nobody calls": "agent == unknown and agent not in [ci, reviewer]",
    "of no team": "team == none and team != product",
    "and it goes nowhere": "provider != anthropic and provider not in [anthropic, openai]",
    "a method is there": 'method == "POST"',
}


@pytest.mark.parametrize("condition", ABSENT.values(), ids=ABSENT)
def test_what_a_call_does_not_say_has_a_value(condition: str) -> None:
    assert answer(condition, Request())
    assert not answer(f"not ({condition})", Request())


HOLDS = {
    "`and` binds tighter than `or`": ("stream or tools and images", Request(stream=True), True),
    "on either side": ("images and tools or stream", Request(stream=True), True),
    "brackets bind tightest": ("(stream or tools) and images", Request(stream=True), False),
    "`not` takes one test": ("not stream and tools", Request(stream=True, tools=True), False),
    "`not` before a comparison": ('not model == "a"', Request(model="b"), True),
    "`not` before brackets": ("not (stream and tools)", Request(stream=True), True),
    "`not` of `not`": ("not not stream", Request(stream=True), True),
    "`!=`": ('model != "a"', Request(model="b"), True),
    "`<` is below": ("tokens.in < 1k", Request(tokens_in=1_000), False),
    "`<=` is at": ("tokens.in <= 1k", Request(tokens_in=1_000), True),
    "`>` is above": ("tokens.in > 1k", Request(tokens_in=1_000), False),
    "`>=` is at": ("tokens.in >= 1k", Request(tokens_in=1_000), True),
    "a range has its lower end": ("hour in 22..23", Request(hour=22), True),
    "and its upper": ("hour in 0..5", Request(hour=5), True),
    "and no more": ("hour in 0..5", Request(hour=6), False),
    "a range of one number": ("hour in 5..5", Request(hour=5), True),
    "a list of values and ranges": ("hour in [3, 8..9]", Request(hour=8), True),
    "`not in`": ("hour not in [3, 8..9]", Request(hour=8), False),
    "hours over midnight": ("hour in 22..5", Request(hour=3), True),
    "and the hours of the day": ("hour in 22..5", Request(hour=6), False),
    "weekdays over the weekend": ("weekday in 6..1", Request(weekday=1), True),
    "and those within the week": ("weekday in 6..1", Request(weekday=2), False),
    "a time over midnight": ("time in 22:00..06:30", Request(hour=6, minute=30), True),
    "which ends with its minute": ("time in 22:00..06:30", Request(hour=6, minute=31), False),
    "and begins with its own": ("time in 22:00..06:30", Request(hour=21, minute=59), False),
    "one minute": ("time in 18:00..18:00", Request(hour=18, minute=0), True),
    "a time after another": ("time > 8:30", Request(hour=8, minute=31), True),
    "a date": ('date == "2026-12-25"', Request(date="2026-12-25"), True),
    "a day of each year": ('date ~ ["*-01-01", "*-12-25"]', Request(date="2031-12-25"), True),
    "an unknown date": ('date ~ "*"', Request(), True),
    "nothing is in an empty list": ('model in [] or model ~ []', Request(), False),
    "everything is not in it": ("model not in []", Request(model="a"), True),
    "the total is of both": ("tokens.total == 3", Request(tokens_in=1, tokens_max_out=2), True),
    "money in micro-dollars": ("cost == $0.10", Request(cost_microusd=100_000), True),
    "a range of money": ("cost in $0.10..$1", Request(cost_microusd=1_000_001), False),
    "a flag said to be true": ("stream == true", Request(stream=True), True),
    "text is of one case": ('model == "A"', Request(model="a"), False),
    "a glob is of one case": ('model ~ "A*"', Request(model="ab"), False),
    "a glob is of the whole text": ('model ~ "b*"', Request(model="abc"), False),
    "a star is also nothing": ('model ~ "a*"', Request(model="a"), True),
    "a question mark is one letter": ('model ~ "a?"', Request(model="a"), False),
    "one of several globs": ('model ~ ["x*", "*c"]', Request(model="abc"), True),
    "`==` knows no glob": ('model == "a*"', Request(model="abc"), False),
    "nor does `in`": ('model in ["a*"]', Request(model="abc"), False),
    "a dot in a glob is a dot": ('model ~ "*4.1*"', Request(model="gpt-4x1"), False),
    "a glob reaches over lines": ('meta.user ~ "a*b"', Request(meta={"user": "a\nb"}), True),
    "a header's name is of either case": ('header.X-Job == "7"', Request(headers={"x-job": "7"}), True),
    "a header's value is not": ('header.x-job == "urgent"', Request(headers={"x-job": "Urgent"}), False),
    "a name in the body is of one case": ('meta.User == "me"', Request(meta={"user": "me"}), False),
    "a name with dots": ('meta.a.b == "1"', Request(meta={"a.b": "1"}), True),
    "a `let` list": ("model ~ cheap", Request(model="o4-mini"), True),
    "a `let` in a list": ('model ~ ["x*", cheap]', Request(model="o4-mini"), True),
    "a `let` count": ("tokens.in > much", Request(tokens_in=1_001), True),
    "a `let` condition keeps together": ("busy and images", Request(tools=True), False),
    "and is inverted whole": ("not busy", Request(tools=True), False),
    "a claimed agent": ("agent == ci and team == product", Request(claimed="ci"), True),
    "the provider of the model's dialect": ("provider == openai", Request(apis=(Api.OPENAI,)), True),
}  # fmt: skip


@pytest.mark.parametrize(("condition", "request_", "expected"), HOLDS.values(), ids=HOLDS)
def test_an_operator_means_what_the_language_says(condition: str, request_: Request, expected: bool) -> None:
    assert answer(condition, request_) is expected


# ---- types ----

LITERALS = {
    '"text"': "text", "ci": "agent", "product": "team", "openai": "provider", "5": "count", "1k": "count",
    "$5": "money", "5s": "duration", "5%": "ratio", "5MiB": "size", "12:30": "clock", "true": "flag",
    "1..5": "counts", "$1..$5": "moneys", '["text"]': "texts", "[ci]": "agents",
}  # fmt: skip
FIELDS = {
    "model": ({"==": {"text"}, "~": {"text", "texts"}, "in": {"text", "texts"}}),
    "agent": ({"==": {"agent"}, "in": {"agent", "agents"}}),
    "team": ({"==": {"team"}, "in": {"team"}}),
    "provider": ({"==": {"provider"}, "in": {"provider"}}),
    "tokens.in": ({"==": {"count"}, "<": {"count"}, "in": {"count", "counts"}}),
    "attempt": ({"==": {"count"}, "<": {"count"}, "in": {"count", "counts"}}),
    "cost": ({"==": {"money"}, "<": {"money"}, "in": {"money", "moneys"}}),
    "stream": ({"==": {"flag"}}),
}
"""Field -> operator -> what may stand on its right; `!=` is as `==`, and all that order are as `<`."""

SAME = {"!=": "==", "<=": "<", ">": "<", ">=": "<", "not in": "in"}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("op", ["==", "!=", "<", "<=", ">", ">=", "~", "in", "not in"])
def test_an_operator_takes_operands_of_the_fields_type_and_of_no_other(field: str, op: str) -> None:
    for literal, kind in LITERALS.items():
        checked = with_rule(f"{field} {op} {literal}")

        fitting = kind in FIELDS[field].get(SAME.get(op, op), set())
        places = 2 if ".." in literal else 1  # each bound of a range is reported
        assert bool(errors(checked)) is not fitting, (field, op, literal, checked.diagnostics)
        assert len(errors(checked)) <= places, (field, op, literal, checked.diagnostics)
        assert (checked.program is not None) is fitting


ILL_TYPED = {
    "a text is no condition": ("model", ["HM211"]),
    "nor a number": ("tokens.in and stream", ["HM211"]),
    "nor a literal": ("stream or 5", ["HM211"]),
    "no such field": ("modal == 5", ["HM213"]),
    "no such flag": ("streaming", ["HM213"]),
    "no such agent": ("agent == cy", ["HM214"]),
    "an agent is no team": ("team == ci", ["HM214"]),
    "a name in quotes": ('agent == "ci"', ["HM212"]),
    "a text without": ("model == opus", ["HM212"]),
    "an order of texts": ('model < "b"', ["HM212"]),
    "an order of names": ("agent >= ci", ["HM212"]),
    "a glob of a name": ('agent ~ "c*"', ["HM212"]),
    "a range of texts": ("model in 1..2", ["HM212"]),
    "the field on the right": ("5 < tokens.in", ["HM212"]),
    "two literals": ("5 == 5", ["HM212"]),
    "two fields": ("tokens.in > tokens.max-out", ["HM212"]),
    "a flag and a number": ("stream == 1", ["HM212"]),
    "a flag in a list": ("stream in [true]", ["HM212"]),
    "a clock for an hour": ("hour > 22:00", ["HM212"]),
    "a number without its dollar": ("cost > 5", ["HM203"]),
    "a unit that counts something else": ("tokens.in > 5s", ["HM202"]),
    "a slip in a unit": ("tokens.in > 5K", ["HM202"]),
    "an hour past the day": ("hour == 24", ["HM205"]),
    "no attempt before the first": ("attempt == 0", ["HM205"]),
    "no eighth weekday": ("weekday in 6..8", ["HM205"]),
    "no weekday 0": ("weekday in [0, 6]", ["HM205"]),
    "a range from high to low": ("tokens.in in 2k..1k", ["HM206"]),
    "a time past the day": ("time >= 24:00", ["HM205"]),
    "minutes past the hour": ("time in 9:75..10:00", ["HM205"]),
    "a number for a time": ("time == 8", ["HM212"]),
    "a quoted time": ('time >= "08:30"', ["HM212"]),
    "a day in another order": ('date == "25.12.2026"', ["HM220"]),
    "no day of the calendar": ('date in ["2026-12-24", "2027-02-29"]', ["HM220"]),
    "a glob of no day": ('date ~ "25-12-*"', ["HM220"]),
    "an order of dates": ('date > "2026-12-25"', ["HM212"]),
    "a range of dates": ("date in 1..2", ["HM212"]),
    "less than a token": ("tokens.in > 0.5", ["HM207"]),
    "each side of an `and`": ("model == 5 and stream == 5", ["HM212", "HM212"]),
    "each side of an `or`, and within `not`": ("nope or not (agent == cy or hour == 99)", ["HM213", "HM214", "HM205"]),
}


@pytest.mark.parametrize(("condition", "codes"), ILL_TYPED.values(), ids=ILL_TYPED)
def test_what_is_ill_typed_is_told_once_at_its_place(condition: str, codes: list[str]) -> None:
    checked = with_rule(condition)

    assert errors(checked) == codes
    text, start = checked.sources[0].text, len(f"{DECLARED}rule r when ")
    for found in checked.diagnostics:
        if found.severity is Severity.ERROR:
            assert start <= found.span.start < found.span.end <= text.index(" { priority", start)


WRONG_LETS = {
    "a condition used twice": ("let odd = model == 5", "odd or odd", ["HM212"]),
    "a condition that nobody uses": ("let odd = model == 5", "stream", ["HM212"]),
    "a list used twice": ('let odd = ["a", 5]', "model in odd or path in odd", ["HM212", "HM212"]),
    "a value that is no count": ("let odd = 5s", "tokens.in > odd", ["HM202"]),
    "a list is no condition": ("let odd = []", "not odd", ["HM211"]),
}


@pytest.mark.parametrize(("let", "condition", "codes"), WRONG_LETS.values(), ids=WRONG_LETS)
def test_what_is_wrong_in_a_let_is_told_once_for_each_thing_it_is_not(
    let: str, condition: str, codes: list[str]
) -> None:
    assert errors(with_rule(condition, f"{let}\n")) == codes


@pytest.mark.parametrize("field", ["agent == ci", "team == product", "provider == openai"])
def test_who_calls_is_not_asked_of_the_agents_themselves(field: str) -> None:
    text = f"{DECLARED}agent night when {field} {{ }}\n"

    assert errors(check("team.hmp", MemoryFiles({"team.hmp": text}))) == ["HM213"]


CLAIMED = """\
agent job when header.x-job != "" { }
agent proven { token env(T); team job }
agent member { team open }
team job { }
team open { }
let by-job = agent == job
let jobs = [job, proven]
"""

DENIALS = {
    "itself": ("agent == job", True),
    "denied": ("agent != job", True),
    "in a list": ("tools and not agent in [proven, job]", True),
    "through a `let`": ("tools or by-job", True),
    "through a `let` that is a list": ("agent in jobs", True),
    "an agent with a token": ("agent == proven", False),
    "an agent that is only ever claimed": ("agent == member", True),
    "its team": ("team == open", True),
    "a team of the same name": ("team == job", False),
    "nobody": ('agent == unknown and model == "job"', False),
}


@pytest.mark.parametrize(("condition", "warned"), DENIALS.values(), ids=DENIALS)
def test_a_denial_that_hangs_on_who_anybody_can_claim_to_be_is_warned_of(condition: str, warned: bool) -> None:
    text = f"{CLAIMED}provider anthropic {{ }}\nrule r when {condition} {{ deny }}\n"

    codes = [found.code for found in check("team.hmp", MemoryFiles({"team.hmp": text})).diagnostics]

    assert ("HM603" in codes) is warned


def test_a_rule_that_sets_the_provider_reads_it_through_no_let_either() -> None:
    text = "let there = provider == openai\nrule s when tools and there { provider anthropic }\n"

    assert errors(with_rule("stream", text)) == ["HM216"]
