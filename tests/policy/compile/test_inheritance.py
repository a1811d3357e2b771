"""Own setting, then what is extended, then `defaults`, then what is built in; whole, never merged; and who decided."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.model import Api, Request, SecretRef, SecretSource
from hivemind_trio.policy import (
    AimdSettings,
    CircuitBreakerSettings,
    MemoryFiles,
    Program,
    ProviderSettings,
    SlotShare,
    Timeouts,
    WhileOpen,
    check,
)

S = 10**9


def program(text: str, **files: str) -> Program:
    texts = {"team.hmp": text} | {f"{name}.hmp": other for name, other in files.items()}
    checked = check("team.hmp", MemoryFiles(texts))
    assert checked.program is not None, checked.diagnostics
    return checked.program


# ---- the nearest one that says it ----

SAYINGS: dict[str, dict[str, tuple[str, Any]]] = {
    "queue": {"queue 1": ("queue", 1), "queue 0": ("queue", 0)},
    "serves": {'serves ["a*", "b"]': ("serves", ("a*", "b")), 'serves "c"': ("serves", ("c",))},
    "key": {"key env(A)": ("keys", (SecretRef(SecretSource.ENV, "A"),))},
    "base": {'base "https://a.example"': ("base", "https://a.example")},
    "timeout": {
        "timeout connect 1s": (
            "timeouts", Timeouts(connect_ns=S, first_byte_ns=300 * S, idle_ns=300 * S, total_ns=1800 * S),
        ),
        "timeout idle 2s": (
            "timeouts", Timeouts(connect_ns=5 * S, first_byte_ns=300 * S, idle_ns=2 * S, total_ns=1800 * S),
        ),
    }, "breaker": {"breaker of 3": ("breaker", CircuitBreakerSettings(of=3)), "breaker open 9s": ("breaker",
    CircuitBreakerSettings(open_ns=9 * S))}, "concurrency": {"concurrency 3": ("limit", 3), "concurrency 2..5 start 3":
    ("limit", 5)}, "open": {"open refuse": ("while_open", WhileOpen.REFUSE), "open hold": ("while_open",
    WhileOpen.HOLD)}, "retry": {"retry patient": ("retry", "patient"), "retry default": ("retry", "default")},
    "limits": {
        'limits "a*" { concurrency 1 }': ("groups", [("a*", 1)]),
        'limits { concurrency 2 }; limits "b" { concurrency 3 }': ("groups", [(None, 2), ("b", 3)]),
    },
}  # fmt: skip
"""Setting -> how it is written -> the program's field, and what it is then."""


def seen(provider: ProviderSettings, field: str) -> object:
    if field == "groups":
        return [(group.glob, group.concurrency) for group in provider.groups]
    return getattr(provider, field)


said = st.fixed_dictionaries({}, optional={name: st.sampled_from(sorted(rows)) for name, rows in SAYINGS.items()})


@settings(max_examples=settings().max_examples // 2)
@given(links=st.lists(said, min_size=1, max_size=4), defaults=st.none() | said, order=st.randoms(use_true_random=False))
def test_every_setting_is_that_of_the_nearest_who_says_it_whole(
    links: list[dict[str, str]], defaults: dict[str, str] | None, order: Any
) -> None:
    lines = ["retry patient { }", "retry default { }"]
    for number, link in enumerate(links):
        extends = f" extends p{number - 1}" if number else ""
        told = ["api anthropic"] if not number else []
        lines.append(f"provider p{number}{extends} {{ {'; '.join([*told, *link.values()])} }}")
    if defaults is not None:
        lines.append(f"defaults provider {{ {'; '.join(defaults.values())} }}")
    order.shuffle(lines)  # where a declaration stands says nothing
    policy = program("\n".join(lines))

    built_in = program("provider anthropic { }").providers["anthropic"]
    for number in range(len(links)):
        nearest = [*reversed(links[: number + 1]), defaults or {}]
        for name, rows in SAYINGS.items():
            text = next((one[name] for one in nearest if name in one), None)
            field = next(iter(rows.values()))[0]
            expected = rows[text][1] if text is not None else seen(built_in, field)
            assert seen(policy.providers[f"p{number}"], field) == expected, (number, name)


@pytest.mark.parametrize(
    ("child", "expected"),
    [
        ("", AimdSettings(low=2, start=6, increase=3, decrease=0.1)),
        ("aimd cooldown 9s", AimdSettings(low=2, start=6, cooldown_ns=9 * S)),
        ("concurrency 2..20", AimdSettings(low=2, start=8, increase=3, decrease=0.1)),
        ("concurrency 4", None),
    ],
    ids=["both", "its own `aimd`", "its own slots", "fixed slots"],
)
def test_how_slots_adapt_and_between_what_are_inherited_each_whole(child: str, expected: AimdSettings | None) -> None:
    parent = "provider anthropic { concurrency 2..9 start 6; aimd increase 3 decrease 10% }"

    policy = program(f"{parent}\nprovider second extends anthropic {{ api anthropic; {child} }}")

    assert policy.providers["second"].aimd == expected


@pytest.mark.parametrize(
    ("text", "name", "api"),
    [
        ("provider anthropic { }\nprovider openai extends anthropic { }", "openai", Api.OPENAI),
        ("provider first { api gemini }\nprovider openai extends first { }", "openai", Api.GEMINI),
        ("provider first { api gemini }\nprovider second extends first { api ollama }", "second", Api.OLLAMA),
        ("defaults provider { api gemini }\nprovider openai { }", "openai", Api.GEMINI),
    ],
    ids=["a name is not inherited", "what was said is", "unless it says otherwise", "also by default"],
)
def test_what_is_said_of_the_dialect_comes_before_what_the_name_says(text: str, name: str, api: Api) -> None:
    assert program(text).providers[name].api is api


def test_a_base_that_nobody_says_follows_from_the_providers_own_dialect() -> None:
    policy = program(
        "provider first { api gemini }\nprovider second extends first { api ollama }\n"
        'provider third { api gemini; base "https://x.example" }\nprovider fourth extends third { api ollama }\n'
    )

    assert policy.providers["second"].base == "http://127.0.0.1:11434"
    assert policy.providers["fourth"].base == "https://x.example"


LANE_ROWS = [
    ("weight", "weight 2", 2), ("reserve", "reserve 1", SlotShare(slots=1)), ("max", "max 50%", SlotShare(ratio=0.5)),
    ("deadline_ns", "deadline 5s", 5 * S), ("queue", "queue 7", 7), ("priority", "priority 4", 4),
    ("aging_ns", "aging 2 every 4s", 2 * S), ("shed_oldest", "queue 1 overflow shed-oldest", True),
]  # fmt: skip


@pytest.mark.parametrize(("field", "written", "value"), LANE_ROWS, ids=[field for field, _, _ in LANE_ROWS])
def test_defaults_hold_for_every_lane_that_does_not_say_otherwise_the_undeclared_one_too(
    field: str, written: str, value: object
) -> None:
    unsaid = getattr(program("provider anthropic { }").lanes["default"], field)
    policy = program(f"lane own {{ {written} }}\nlane silent {{ }}\nprovider anthropic {{ }}")
    assert [getattr(policy.lanes[name], field) for name in ("own", "silent", "default")] == [value, unsaid, unsaid]

    policy = program(f"lane silent {{ }}\nprovider anthropic {{ }}\ndefaults lane {{ {written} }}")
    assert [getattr(policy.lanes[name], field) for name in ("silent", "default")] == [value, value]


def test_a_queue_that_says_only_how_long_it_is_does_not_shed_as_the_defaults_would() -> None:
    policy = program(
        "defaults lane { queue 9 overflow shed-oldest }\nlane own { queue 3 }\nprovider anthropic { }",
    )

    assert (policy.lanes["own"].queue, policy.lanes["own"].shed_oldest) == (3, False)


def test_agents_inherit_all_but_the_condition() -> None:
    policy = program(
        "team red { }\nlane batch { }\nprovider anthropic { }\ndefaults agent { queue 9; concurrency 8 }\n"
        'agent first when header.x == "1" { team red; concurrency 4; lane batch; priority 7 }\n'
        "agent second extends first { priority 0 }\nagent third extends second { concurrency 2 }\n"
    )

    for name, concurrency in (("first", 4), ("second", 4), ("third", 2)):
        agent = policy.agents[name]
        assert (agent.team, agent.concurrency, agent.queue) == ("red", concurrency, 9)
    assert [policy.decide(Request(claimed=name)).priority for name in policy.agents] == [7, 0, 0]
    assert policy.decide(Request(headers={"x": "1"})).agent == "first"


def test_a_token_is_inherited_and_then_nothing_else_makes_a_caller_that_agent() -> None:
    policy = program(
        "provider anthropic { }\nagent first { token env(T) }\nagent second extends first when stream { queue 1 }\n"
    )

    assert policy.agents["second"].tokens == (SecretRef(SecretSource.ENV, "T"),)
    assert policy.decide(Request(claimed="second", stream=True)).agent == "unknown"


def test_the_defaults_of_agents_hold_for_unknown_callers_but_for_what_proves_and_places_an_agent() -> None:
    policy = program(
        "team red { }\nlane batch { }\nprovider anthropic { }\n"
        "defaults agent { team red; token env(T); lane batch; priority 3; queue 5; concurrency 2 }\n"
    )

    nobody, treatment = policy.unknown, policy.decide(Request())
    assert (nobody.team, nobody.tokens, nobody.queue, nobody.concurrency) == ("none", (), 5, 2)
    assert (treatment.agent, treatment.team) == ("unknown", "none")
    assert (treatment.lane, treatment.priority) == ("batch", 3)


def test_the_defaults_of_one_kind_are_not_those_of_another() -> None:
    policy = program("defaults agent { queue 1 }\ndefaults lane { queue 2 }\nprovider anthropic { }\nagent ci { }")

    assert policy.agents["ci"].queue == 1
    assert policy.lanes["default"].queue == 2
    assert policy.providers["anthropic"].queue is None


def test_defaults_and_parents_may_stand_in_another_file() -> None:
    policy = program(
        'provider second extends anthropic { api anthropic }\nagent ci { }\ninclude "common.hmp"\n',
        common="defaults agent { lane batch }\nprovider anthropic { queue 4 }\nlane batch { }\n",
    )

    assert policy.providers["second"].queue == 4
    who = policy.decide(Request(claimed="ci")).decided["lane"]
    assert (who.kind, who.at) == ("defaults", "common.hmp:1")


# ---- who decided ----

DECIDED = """\
defaults agent { lane batch; priority 1 }
defaults lane { deadline 9s; priority 2 }
lane batch { }
lane people { deadline 5s; priority 0 }
agent own { lane people; priority 3 }
agent child extends own { }
agent silent { }
provider anthropic { }
rule r when tools { lane people; priority 4; deadline 1s }
"""

WHO = {
    "a rule": (DECIDED, Request(claimed="own", tools=True), "rule r:9", "rule r:9", "rule r:9"),
    "the agent, its lane": (DECIDED, Request(claimed="own"), "agent own:5", "agent own:5", "lane people:4"),
    "who extends it": (DECIDED, Request(claimed="child"), "agent child:6", "agent child:6", "lane people:4"),
    "defaults": (DECIDED, Request(claimed="silent"), "defaults agent:1", "defaults agent:1", "defaults lane:2"),
    "defaults, for nobody in particular": (
        DECIDED, Request(), "defaults agent:1", "defaults agent:1", "defaults lane:2",
    ),
    "nobody": ("provider anthropic { }", Request(), "built-in", "built-in", "built-in"),
    "the lane of the agent": (
        "provider anthropic { }\nlane people { deadline 5s; priority 0 }\nagent own { lane people }",
        Request(claimed="own"), "agent own:3", "lane people:2", "lane people:2",
    ),
    "the lane `default`, declared": (
        "provider anthropic { }\nlane default { deadline 5s; priority 0 }",
        Request(), "built-in", "lane default:2", "lane default:2",
    ),
    "the lane `default`, by the defaults of lanes": (
        "provider anthropic { }\ndefaults lane { deadline 5s; priority 0 }",
        Request(), "built-in", "defaults lane:2", "defaults lane:2",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "request_", "lane", "priority", "deadline"), WHO.values(), ids=WHO)
def test_who_decided_is_who_said_it(text: str, request_: Request, lane: str, priority: str, deadline: str) -> None:
    decided = program(text).decide(request_).decided

    names = {
        setting: f"{who.kind} {who.name}:{who.at.removeprefix('team.hmp:')}" if who.at else str(who)
        for setting, who in decided.items()
    }
    assert (names["lane"], names["priority"], names["deadline"]) == (lane, priority, deadline)
