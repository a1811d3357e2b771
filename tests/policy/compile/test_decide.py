"""The compiled function decides as the language says: held against plain readings of the same policy.

`decided` below is the language's order of evaluation in a page: who calls, where to, the rules from the top, then the
agent, the defaults, the lane. It is told what was drawn and never reads the text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.model import Api, Decider, Decision, Request, Verdict
from hivemind_trio.policy import Checked, MemoryFiles, check, parse_request
from hivemind_trio.policy.compile import codegen  # for the bound of its parts
from hivemind_trio.policy.language.condition_eval import field_values, holds
from tests.policy.drawn import Drawn, DrawnAgent, policies
from tests.policy.strategies import Call, fits, requests

BUILT_IN = Decider("built-in", "", "")
NO_WILDCARDS = str.maketrans("", "", "*?")

Asked = Callable[[str, str, Call], bool]
"""Whether the condition of (`agent`, `rule` or `budget`, its name) holds for a call."""


def compiled(text: str) -> Checked:
    checked = check("team.hmp", MemoryFiles({"team.hmp": text}))
    assert checked.program is not None, checked.diagnostics
    return checked


# ---- the language's order, in plain words ----


def said(drawn: Drawn, agent: DrawnAgent | None, setting: str) -> tuple[Any, Decider] | None:
    """What an agent has: its own, what it extends, the defaults; an unknown caller has the defaults."""
    link = agent
    while agent is not None and link is not None:
        if setting in link.settings:
            return link.settings[setting], Decider("agent", agent.name, drawn.at("agent", agent.name))
        link = next((one for one in drawn.agents if one.name == link.extends), None)
    if setting in drawn.defaults.get("agent", {}):
        return drawn.defaults["agent"][setting], Decider("defaults", "agent", drawn.at("defaults", "agent"))
    return None


def said_by_lane(drawn: Drawn, lane: str, setting: str) -> tuple[Any, Decider] | None:
    if setting in drawn.lanes.get(lane, {}):
        return drawn.lanes[lane][setting], Decider("lane", lane, drawn.at("lane", lane))
    if setting in drawn.defaults.get("lane", {}):
        return drawn.defaults["lane"][setting], Decider("defaults", "lane", drawn.at("defaults", "lane"))
    return None


def identified(drawn: Drawn, request: Request, asked: Asked) -> tuple[DrawnAgent | None, Decider]:
    """A token first, then a claim, then the first `when` that holds; an agent with a token is had by that alone."""
    by_name = {agent.name: agent for agent in drawn.agents}
    open_ones = [agent for agent in drawn.agents if said(drawn, agent, "token") is None]
    if request.token_agent is not None:
        agent, kind = by_name[request.token_agent], "token"
    elif by_name.get(request.claimed or "") in open_ones:
        agent, kind = by_name[request.claimed or ""], "claim"
    else:
        matching = [one for one in open_ones if one.when is not None and asked("agent", one.name, Call(request))]
        if not matching:
            return None, BUILT_IN
        agent, kind = matching[0], "agent"
    return agent, Decider(kind, agent.name, drawn.at("agent", agent.name))


def routed(drawn: Drawn, request: Request) -> str | None:
    """By dialect and model: who says that it serves the model, then who serves every one; each in the call's order."""
    if not request.apis:
        return drawn.providers[0].name if len(drawn.providers) == 1 else None
    for says_so in (True, False):
        for api in request.apis:
            for one in drawn.providers:
                listed = bool(one.serves and request.model)
                serves = not listed or any(fits(glob, request.model) for glob in one.serves)
                if one.api is api and serves and listed is says_so:
                    return one.name
    return None


def decided(drawn: Drawn, request: Request, asked: Asked) -> Decision:
    """What the policy says of a call."""
    agent, by_agent = identified(drawn, request, asked)
    name = agent.name if agent is not None else "unknown"
    in_team = said(drawn, agent, "team") if agent is not None else None
    route = routed(drawn, request)
    joined = None
    if in_team is None:
        without = Call(request, name)
        matching = (one.name for one in drawn.teams if one.when is not None and asked("team", one.name, without))
        joined = next(matching, None)
    call = Call(request, name, in_team[0] if in_team is not None else joined or "none", route)

    first: dict[str, tuple[Any, Decider]] = {}
    tags: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    for rule in drawn.rules:
        if rule.when is None or asked("rule", rule.name, call):
            tags += (rule.effects["tag"],) if "tag" in rule.effects else ()
            warnings += (rule.effects["warn"],) if "warn" in rule.effects else ()
            for effect, worth in rule.effects.items():
                setting = "verdict" if effect in ("allow", "hold", "deny") else effect
                told = worth
                if setting == "verdict":
                    done = {"allow": "", "hold": "held by the rule", "deny": "denied by the rule"}[effect]
                    words = worth if isinstance(worth, str) else f"{done} `{rule.name}`" if done else ""
                    told = (Verdict(effect), words)
                first.setdefault(setting, (told, Decider("rule", rule.name, drawn.at("rule", rule.name))))

    sent = attrs.evolve(request, model=first["model"][0]) if "model" in first else request
    lane = first.get("lane") or said(drawn, agent, "lane") or ("default", BUILT_IN)
    in_lane = str(lane[0])
    found = {
        "agent": (name, by_agent),
        "lane": lane,
        "priority": first.get("priority")
        or said(drawn, agent, "priority")
        or said_by_lane(drawn, in_lane, "priority")
        or (0, BUILT_IN),
        "deadline": first.get("deadline") or said_by_lane(drawn, in_lane, "deadline") or (None, BUILT_IN),
        "provider": first.get("provider", (routed(drawn, sent), BUILT_IN)),
        "model": first.get("model", (None, BUILT_IN)),
        "retry": first.get("retry", (None, BUILT_IN)),
        "verdict": first.get("verdict", ((Verdict.ALLOW, ""), BUILT_IN)),
        "affinity": first.get("affinity", (None, BUILT_IN)),
        "max-output": first.get("max-output", (None, BUILT_IN)),
    }
    if joined is not None:
        found["team"] = joined, Decider("team", joined, drawn.at("team", joined))
    value: dict[str, Any] = {setting: value for setting, (value, _) in found.items()}
    return Decision(
        agent=name,
        team=call.team,
        provider=value["provider"],
        group=group(drawn, value["provider"], sent.model),
        model=sent.model if sent.model != request.model else None,
        tags=tags,
        warnings=warnings,
        budgets=tuple(one.name for one in drawn.budgets if one.when is None or asked("budget", one.name, call)),
        lane=in_lane,
        priority=value["priority"],
        deadline_ns=value["deadline"],
        retry=value["retry"],
        verdict=value["verdict"][0],
        message=value["verdict"][1],
        affinity_ns=value["affinity"],
        max_output=value["max-output"],
        decided={setting: decider for setting, (_, decider) in found.items()},
    )


def group(drawn: Drawn, provider: str | None, model: str) -> str | None:
    """The most specific block of the provider's `limits`: an exact name, then the one with the most letters."""
    limits = [glob for one in drawn.providers if one.name == provider for glob in one.limits]
    fitting = [glob for glob in limits if model and fits(glob, model)]
    return max(fitting, key=lambda glob: (not set("*?") & set(glob), len(glob.translate(NO_WILDCARDS))), default=None)


def calls(drawn: Drawn) -> st.SearchStrategy[list[Request]]:
    proven = [agent.name for agent in drawn.agents if said(drawn, agent, "token") is not None]
    return st.lists(requests(proven), min_size=6, max_size=10)


# ---- the properties ----


def interpreted(checked: Checked) -> Asked:
    """Conditions by the interpreter that walks their trees."""

    def asked(kind: str, name: str, call: Call) -> bool:
        condition = checked.conditions[kind][name]
        assert condition is not None
        values = field_values(call.request, agent=call.agent, team=call.team, provider=call.provider)
        return holds(condition, values)

    return asked


def meant(drawn: Drawn) -> Asked:
    """Conditions as they were drawn."""
    whens = {("agent", agent.name): agent.when for agent in drawn.agents}
    whens |= {("team", team.name): team.when for team in drawn.teams}
    whens |= {("rule", rule.name): rule.when for rule in drawn.rules}
    whens |= {("budget", budget.name): budget.when for budget in drawn.budgets}

    def asked(kind: str, name: str, call: Call) -> bool:
        when = whens[kind, name]
        assert when is not None
        return when.means(call)

    return asked


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 2)
@given(drawn=policies(), data=st.data())
def test_the_compiled_function_decides_every_setting_as_the_interpreter_does_and_as_the_text_means(
    drawn: Drawn, data: st.DataObject
) -> None:
    with patch.object(codegen, "RULES_IN_FUNCTION", data.draw(st.sampled_from([500, 1, 2]))):
        checked = compiled(drawn.text)
    assert checked.program is not None

    # Many calls of one policy: routes, groups and who decided are remembered between them, and must change no answer.
    for request in data.draw(calls(drawn)):
        treatment = checked.program.decide(request)

        assert treatment == decided(drawn, request, interpreted(checked))
        assert treatment == decided(drawn, request, meant(drawn))


# ---- one promise each ----

PLACES = """\
provider anthropic { }
provider openai { }
retry patient { }
lane people { priority 3; deadline 1m }
lane batch { }
team product { }
agent ci { lane batch; priority 2 }
agent reviewer { token env(REVIEWER) }
"""

FIRST_MATCHES = {
    "no rule": ("", "", {"lane": "default", "priority": 0, "verdict": "allow"}, {}),
    "the first of two": (
        "rule a { priority 4 }\nrule b { priority 5 }", "", {"priority": 4}, {"priority": "a"},
    ),
    "the first that matches": (
        "rule a when tools { priority 4 }\nrule b { priority 5 }", "", {"priority": 5}, {"priority": "b"},
    ),
    "a rule that does not name the setting leaves it open": (
        "rule a { lane batch }\nrule b { lane people; priority 5 }", "",
        {"lane": "batch", "priority": 5}, {"lane": "a", "priority": "b"},
    ),
    "each setting on its own": (
        "rule a { priority 4 }\nrule b { deadline 5s; priority 9 }\nrule c { retry patient; provider openai }\n"
        "rule d { lane batch; retry default; deadline 9s }\nretry default { }", "",
        {"lane": "batch", "priority": 4, "deadline_ns": 5 * 10**9, "provider": "openai", "retry": "patient"},
        {"lane": "d", "priority": "a", "deadline": "b", "provider": "c", "retry": "c"},
    ),
    "the first limit of the output": (
        "rule a when tools { max-output 4k }\nrule b { max-output 16k }", "",
        {"max_output": 16_000}, {"max-output": "b"},
    ),
    "affinity for so long, or for 90 s": (
        "rule a when tools { affinity model }\nrule b { affinity model max 5m }\nrule c { affinity model }", "",
        {"affinity_ns": 300 * 10**9}, {"affinity": "b"},
    ),
    "priority 0 is a decision": (
        "rule a { priority 0 }\nrule b { priority 5 }", "agent=ci", {"priority": 0}, {"priority": "a"},
    ),
    "deadline 0 is one too": (
        "rule a { deadline 0s }\nrule b { deadline 9s }", "", {"deadline_ns": 0}, {"deadline": "a"},
    ),
    "allow exempts from a deny below": (
        'rule a { allow }\nrule b { deny "no" }', "", {"verdict": "allow", "message": ""}, {"verdict": "a"},
    ),
    "allow comes too late below a deny": (
        'rule a { deny "no" }\nrule b { allow }', "", {"verdict": "deny", "message": "no"}, {"verdict": "a"},
    ),
    "allow exempts from a hold below": (
        'rule a { allow }\nrule b { hold "later" }', "", {"verdict": "allow", "message": ""}, {"verdict": "a"},
    ),
    "a hold comes before a deny below": (
        'rule a { hold "later" }\nrule b { deny "no" }', "", {"verdict": "hold", "message": "later"}, {"verdict": "a"},
    ),
    "a hold without words names its rule": (
        "rule a { hold }", "", {"verdict": "hold", "message": "held by the rule `a`"}, {"verdict": "a"},
    ),
    "the words of the first deny": (
        'rule a { deny "one" }\nrule b { deny "two" }', "", {"message": "one"}, {"verdict": "a"},
    ),
    "a deny without words names its rule": (
        "rule a { deny }", "", {"verdict": "deny", "message": "denied by the rule `a`"}, {"verdict": "a"},
    ),
    "a denial does not end the reading": (
        "rule a { deny }\nrule b { lane batch }", "", {"lane": "batch"}, {"lane": "b", "verdict": "a"},
    ),
    "a rule comes before the agent": (
        "rule a { lane people; priority 9 }", "agent=ci", {"lane": "people", "priority": 9},
        {"lane": "a", "priority": "a"},
    ),
    "the agent comes before the lane": (
        "rule a { lane people }", "agent=ci", {"lane": "people", "priority": 2, "deadline_ns": 60 * 10**9},
        {"lane": "a"},
    ),
    "the lane that a rule gives has its priority and deadline": (
        "rule a { lane people }", "", {"priority": 3, "deadline_ns": 60 * 10**9}, {"lane": "a"},
    ),
    "a rule's deadline comes before its lane's": (
        "rule a { lane people; deadline 2m }", "", {"deadline_ns": 120 * 10**9}, {"lane": "a", "deadline": "a"},
    ),
    "rules read the provider that the model has, not the one that a rule gave": (
        "rule a { provider openai }\nrule b when provider == openai { priority 9 }", "api=anthropic",
        {"provider": "openai", "priority": 0}, {"provider": "a"},
    ),
    "a rule without a setting decides nothing": ("rule a { }\nrule b { priority 5 }", "", {}, {"priority": "b"}),
}  # fmt: skip


@pytest.mark.parametrize(("rules", "words", "values", "by"), FIRST_MATCHES.values(), ids=FIRST_MATCHES)
def test_the_first_rule_that_matches_and_names_a_setting_decides_it(
    rules: str, words: str, values: dict[str, object], by: dict[str, str]
) -> None:
    policy = compiled(PLACES + rules)
    assert policy.program is not None

    treatment = policy.program.decide(parse_request(policy, words.split()))

    assert {name: getattr(treatment, name) for name in values} == values
    assert {name: who.name for name, who in treatment.decided.items() if who.kind == "rule"} == by


CALLERS = """\
provider anthropic { }
agent ci when header.x-ci != "" { token env(CI) }
agent nightly when header.x-ci == "night" { }
agent any-job when header.x-ci != "" { }
agent quiet { }
"""

WHO = {
    "nobody": (Request(), "unknown", "built-in"),
    "a token": (Request(token_agent="ci"), "ci", "token"),
    "a token before a claim": (Request(token_agent="ci", claimed="quiet"), "ci", "token"),
    "a claim": (Request(claimed="quiet"), "quiet", "claim"),
    "a claim before a condition": (Request(claimed="quiet", headers={"x-ci": "night"}), "quiet", "claim"),
    "a claim to be who has a token is none": (Request(claimed="ci"), "unknown", "built-in"),
    "a claim to be nobody that is declared": (Request(claimed="root"), "unknown", "built-in"),
    "a condition does not make who has a token": (Request(headers={"x-ci": "1"}), "any-job", "agent"),
    "the first condition that holds": (Request(headers={"x-ci": "night"}), "nightly", "agent"),
    "a vain claim leaves it to the conditions": (Request(claimed="ci", headers={"x-ci": "1"}), "any-job", "agent"),
    "a token of who has left the policy while the call waited": (Request(token_agent="gone"), "unknown", "built-in"),
    "such a token, and a claim": (Request(token_agent="gone", claimed="quiet"), "quiet", "claim"),
}


@pytest.mark.parametrize(("request_", "name", "kind"), WHO.values(), ids=WHO)
def test_a_caller_is_known_by_its_token_then_its_claim_then_the_first_condition(
    request_: Request, name: str, kind: str
) -> None:
    program = compiled(CALLERS).program
    assert program is not None

    treatment = program.decide(request_)

    assert treatment.agent == name
    assert treatment.decided["agent"].kind == kind


ROUTED = """\
provider first { api anthropic; limits "claude-*" { concurrency 1 } }
provider listed { api anthropic; serves ["claude-opus-*"]; limits "claude-opus-*" { concurrency 1 } }
provider gpt { api openai; serves ["gpt-*"] }
provider rest { api openai; limits "gpt-*" { concurrency 2 }; limits "*5" { concurrency 2 } }
"""
ANTHROPIC, OPENAI = (Api.ANTHROPIC,), (Api.OPENAI,)

ROUTES = {
    "who says that it serves the model": (ANTHROPIC, "claude-opus-4-1", ("listed", "claude-opus-*")),
    "else who serves every model": (ANTHROPIC, "claude-haiku-4-5", ("first", "claude-*")),
    "what no block covers": (ANTHROPIC, "mine", ("first", None)),
    "a list shuts out what is not on it": (OPENAI, "o3", ("rest", None)),
    "without a model a list says nothing": (ANTHROPIC, "", ("first", None)),
    "who says so, though of the less likely dialect": (ANTHROPIC + OPENAI, "gpt-5", ("gpt", None)),
    "the likelier dialect, where nobody says so": (OPENAI + ANTHROPIC, "text-5", ("rest", "*5")),
    "nobody speaks it": ((Api.GEMINI,), "claude-opus-4-1", (None, None)),
    "an unknown dialect, and several providers": ((), "claude-opus-4-1", (None, None)),
}


@pytest.mark.parametrize(("apis", "model", "expected"), ROUTES.values(), ids=ROUTES)
def test_a_call_goes_to_who_speaks_its_dialect_and_serves_its_model(
    apis: tuple[Api, ...], model: str, expected: tuple[str | None, str | None]
) -> None:
    program = compiled(ROUTED).program
    assert program is not None
    for other_apis, other_model, _ in ROUTES.values():  # what is remembered of these is not taken for this one
        program.decide(Request(apis=other_apis, model=other_model))

    treatment = program.decide(Request(apis=apis, model=model))

    assert (treatment.provider, treatment.group) == expected


def test_where_a_rule_sends_a_call_the_limits_there_hold() -> None:
    program = compiled(ROUTED + "rule r when tools { provider rest }").program
    assert program is not None

    found = [program.decide(Request(apis=ANTHROPIC, model="gpt-5", tools=tools)) for tools in (False, True, False)]

    assert [(one.provider, one.group) for one in found] == [("first", None), ("rest", "gpt-*"), ("first", None)]


def test_the_only_provider_has_what_is_of_no_known_dialect() -> None:
    program = compiled("provider anthropic { }").program
    assert program is not None

    assert program.decide(Request(path="/elsewhere")).provider == "anthropic"


@pytest.mark.parametrize(
    ("rule", "agent", "expected"),
    [
        ("", "", (3, "lane")),
        ("", "priority 7", (7, "agent")),
        ("rule all { priority 9 }", "priority 7", (9, "rule")),
    ],
    ids=["lane", "agent", "rule"],
)
def test_a_priority_is_the_rule_s_then_the_agent_s_then_the_lane_s(
    rule: str, agent: str, expected: tuple[int, str]
) -> None:
    text = f"lane batch {{ priority 3 }}\nagent ci {{ lane batch; {agent} }}\n{rule}\nprovider anthropic {{ }}"
    program = compiled(text).program
    assert program is not None

    treatment = program.decide(Request(apis=ANTHROPIC, claimed="ci"))

    assert (treatment.priority, treatment.decided["priority"].kind) == expected


TEAMS_BY_CONDITION = """\
provider anthropic { }
team research when header.x-team == "research" { }
team late when header.x-team ~ "res*" or agent == night { }
team product { }
agent ci { team product }
agent night { }
agent day { }
"""


@pytest.mark.parametrize(
    ("claimed", "header", "team", "by"),
    [
        ("ci", "research", "product", None),
        ("day", "research", "research", "team research (team.hmp:2)"),
        ("night", "research", "research", "team research (team.hmp:2)"),
        ("night", "", "late", "team late (team.hmp:3)"),
        ("day", "res", "late", "team late (team.hmp:3)"),
        ("day", "", "none", None),
        (None, "research", "research", "team research (team.hmp:2)"),
    ],
)
def test_a_call_is_in_its_agent_s_team_or_in_the_first_whose_condition_it_meets(
    claimed: str | None, header: str, team: str, by: str | None
) -> None:
    program = compiled(TEAMS_BY_CONDITION).program
    assert program is not None

    decision = program.decide(Request(claimed=claimed, headers={"x-team": header} if header else {}))

    assert decision.team == team
    assert str(decision.decided.get("team", "None")) == str(by)
    assert "header.x-team" in program.reads
