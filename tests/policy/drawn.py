"""Whole policies as text that compile, drawn together with what they say.

`Drawn` holds what was drawn, so that what a policy should do is known without reading its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
from hypothesis import strategies as st

from hivemind_trio.model import Api
from hivemind_trio.policy import MemoryFiles

from .strategies import AGENTS, GLOBS, Meant, Scope, conditions, quoted

TEAMS: Final = ("product", "research")
LANES: Final = ("people", "batch", "default")
RETRIES: Final = ("patient", "never")
SIGNALS: Final = ("", "on [429, 500..504, connect]", 'on ["overloaded_error", "slow_down", 529]')
PROVIDERS: Final = ("anthropic", "openai", "gemini", "spare")
DURATIONS: Final = {"5s": 5 * 10**9, "1m30s": 90 * 10**9, "2h": 7_200 * 10**9}


@attrs.frozen
class DrawnProvider:
    """A provider, what it inherits included."""

    name: str
    told: Api | None
    """Its `api`; None: its name says it."""
    serves: tuple[str, ...]
    limits: tuple[str, ...]
    """The globs of its blocks."""

    @property
    def api(self) -> Api:
        return self.told or Api(self.name)


@attrs.frozen
class DrawnAgent:
    """An agent; the settings it was given itself."""

    name: str
    extends: str | None
    when: Meant | None
    settings: Mapping[str, Any]


@attrs.frozen
class DrawnTeam:
    """A team, and the calls that are in it if their agent names none."""

    name: str
    when: Meant | None


@attrs.frozen
class DrawnRule:
    """A rule. `effects`: `lane`, `priority`, ..., `allow`, `deny`, `tag`, `warn` -> its value."""

    name: str
    when: Meant | None
    effects: Mapping[str, Any]


@attrs.frozen
class DrawnBudget:
    """A budget, as far as it is known whom it is for."""

    name: str
    when: Meant | None


@attrs.frozen
class Drawn:
    """A policy: its text, and what that says."""

    text: str = attrs.field(repr=lambda text: f"\n{text}")
    providers: tuple[DrawnProvider, ...] = attrs.field(repr=False)
    lanes: Mapping[str, Mapping[str, Any]] = attrs.field(repr=False)
    """Declared ones, `default` not always among them -> the settings that they were given themselves."""
    agents: tuple[DrawnAgent, ...] = attrs.field(repr=False)
    teams: tuple[DrawnTeam, ...] = attrs.field(repr=False)
    rules: tuple[DrawnRule, ...] = attrs.field(repr=False)
    budgets: tuple[DrawnBudget, ...] = attrs.field(repr=False)
    defaults: Mapping[str, Mapping[str, Any]] = attrs.field(repr=False)
    """`agent`, `lane` -> settings; no entry where there is no such declaration."""

    @property
    def files(self) -> MemoryFiles:
        """The policy, as `team.hmp`."""
        return MemoryFiles({"team.hmp": self.text})

    def at(self, *words: str) -> str:
        """Where a declaration stands that begins with these words."""
        start = " ".join(words) + " "
        (line,) = [number for number, line in enumerate(self.text.split("\n"), 1) if line.startswith(start)]
        return f"team.hmp:{line}"


def _written(settings: Mapping[str, Any]) -> str:
    """Settings as a block; a duration by its spelling."""
    spelt = {value: text for text, value in DURATIONS.items()}
    parts = []
    for name, value in settings.items():
        match name, value:
            case "allow", _:
                parts.append("allow")
            case "deny" | "hold", None:
                parts.append(name)
            case "deny" | "hold" | "model" | "warn", _:
                parts.append(f"{name} {quoted(value)}")
            case "deadline", _:
                parts.append(f"deadline {spelt[value]}")
            case "affinity", _:
                parts.append(f"affinity model max {spelt[value]}")
            case "token", _:
                parts.append(f"token env({value})")
            case "limits", _:
                parts.append(f"limits {{ {value} }}")
            case _:
                parts.append(f"{name} {value}")
    return "{ " + "; ".join(parts) + " }"


PRIORITIES: Final = st.sampled_from([0, 1, 5, 100])
DEADLINES: Final = st.sampled_from(sorted(DURATIONS.values()))
LANE_SETTINGS: Final = st.fixed_dictionaries({}, optional={"priority": PRIORITIES, "deadline": DEADLINES})
VERDICTS: Final[st.SearchStrategy[dict[str, Any]]] = st.sampled_from(
    [{}, {}, {"allow": True}, {"deny": None}, {"deny": 'not "here"'}, {"hold": None}, {"hold": "later"}]
)
SERVES: Final = st.none() | st.lists(st.sampled_from(GLOBS), unique=True, min_size=1, max_size=3)
ACCOUNTS: Final = (
    (), (), (),
    ("account one was eins { key env(KEY_1) }", "account two { key env(KEY_2); shares one }"),
    ("account two { key env(KEY_2); shares one; for people }", "account one { key env(KEY_1) }", "spread even"),
)  # fmt: skip
PLANS: Final = (
    (), (), (),
    ("plan { pace week for people }",),
    ("plan { reserve 30% of session for people; pace week for [batch, default] burst 2x; overage deny }",),
    ("plan { pace session for batch burst 1.5x; reserve 20% of week for [people, batch] release never }",),
)  # fmt: skip
LIMITS: Final = st.none() | st.lists(st.sampled_from(GLOBS), unique=True, max_size=3)


def _blocks(globs: Iterable[str]) -> list[str]:
    return [f"limits {quoted(glob)} {{ concurrency 2 }}" for glob in globs]


@st.composite
def _providers(draw: st.DrawFn) -> tuple[list[str], list[DrawnProvider]]:
    defaults = draw(st.sampled_from([(), (), ("gpt-*", "*"), ("claude-opus-*",)]))
    lines = [f"defaults provider {{ {'; '.join(_blocks(defaults))} }}"] if defaults else []
    drawn: list[DrawnProvider] = []
    for name in draw(st.lists(st.sampled_from(PROVIDERS), unique=True, min_size=1, max_size=3)):
        parent = draw(st.sampled_from([None, *drawn]))
        told = parent.told if parent is not None else None
        settings = []
        if (told is None and name == "spare") or draw(st.integers(0, 2)) == 0:
            told = draw(st.sampled_from([Api.ANTHROPIC, Api.OPENAI]))
            settings.append(f"api {told}")
        own_serves, own_limits = draw(SERVES), draw(LIMITS)
        if own_serves is not None:
            settings.append(f"serves [{', '.join(map(quoted, own_serves))}]")
        settings += _blocks(own_limits or ())
        settings += [one.replace("KEY", name.upper()) for one in draw(st.sampled_from(ACCOUNTS))]
        settings += draw(st.sampled_from(PLANS))
        extends = f" extends {parent.name}" if parent is not None else ""
        lines.append(f"provider {name}{extends} {{ {'; '.join(settings)} }}")
        inherited = (parent.serves, parent.limits) if parent is not None else ((), defaults)
        serves = tuple(own_serves) if own_serves is not None else inherited[0]
        limits = tuple(own_limits) if own_limits else inherited[1]
        drawn.append(DrawnProvider(name, told, serves, limits))
    return lines, drawn


def _agent_settings(lanes: Iterable[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "team": st.sampled_from(TEAMS),
            "lane": st.sampled_from(list(lanes)),
            "priority": PRIORITIES,
            "limits": st.sampled_from(
                ["requests 30/min", "requests 5/min; input 200k/hour", "output 1k/10s; tokens 2M/day"]
            ),
        },
    )


def _effects(lanes: Iterable[str], providers: Iterable[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "lane": st.sampled_from(list(lanes)),
            "priority": PRIORITIES,
            "deadline": DEADLINES,
            "provider": st.sampled_from(list(providers)),
            "model": st.sampled_from(["claude-haiku-4-5", "gpt-5"]),
            "retry": st.sampled_from(RETRIES),
            "affinity": DEADLINES,
            "max-output": st.sampled_from([500, 16_000]),
            "tag": st.sampled_from(["big", "slow"]),
            "warn": st.just('too "large"'),
        },
    )


@st.composite
def _agents(draw: st.DrawFn, scope: Scope, lanes: Iterable[str]) -> tuple[list[str], list[DrawnAgent]]:
    drawn: list[DrawnAgent] = []
    lines = []
    for name in draw(st.lists(st.sampled_from(AGENTS), unique=True, max_size=3)):
        settings = dict(draw(_agent_settings(lanes)))
        if draw(st.integers(0, 2)) == 0:
            settings["token"] = f"{name.replace('-', '_').upper()}_TOKEN"
        when = draw(st.none() | conditions(scope, depth=1))
        extends = draw(st.sampled_from([None, None, *(one.name for one in drawn)]))
        drawn.append(DrawnAgent(name, extends, when, settings))
        head = f"agent {name}" + (f" extends {extends}" if extends else "") + (f" when {when.text}" if when else "")
        lines.append(f"{head} {_written(settings)}")
    return lines, drawn


@st.composite
def _rules(draw: st.DrawFn, scope: Scope, lanes: Iterable[str]) -> tuple[list[str], list[DrawnRule]]:
    drawn: list[DrawnRule] = []
    lines = []
    for name in [f"r{number}" for number in range(draw(st.integers(0, 6)))]:
        effects = draw(_effects(lanes, scope.names["provider"])) | draw(VERDICTS)
        asked = scope
        if "provider" in effects:  # it must not read what it sets (HM216)
            asked = attrs.evolve(scope, names={f: v for f, v in scope.names.items() if f != "provider"})
        when = draw(st.none() | conditions(asked) | conditions(asked, depth=1))
        drawn.append(DrawnRule(name, when, effects))
        lines.append(f"rule {name} " + (f"when {when.text} " if when else "") + _written(effects))
    return lines, drawn


@st.composite
def _budgets(draw: st.DrawFn, scope: Scope) -> tuple[list[str], list[DrawnBudget]]:
    drawn = [
        DrawnBudget(f"b{number}", draw(st.none() | conditions(scope, depth=1)))
        for number in range(draw(st.integers(0, 3)))
    ]
    lines = [
        f"budget {one.name} " + (f"when {one.when.text} " if one.when else "") + "{ requests 5/hour }" for one in drawn
    ]
    return lines, drawn


@st.composite
def _prices(draw: st.DrawFn, providers: Iterable[str]) -> list[str]:
    """Prices of some models, at some provider or at all; whole micro-dollars a token."""
    places = st.sampled_from(["", *(f" on {name}" for name in providers)])
    scopes = draw(st.lists(st.tuples(st.sampled_from(["claude-*", "gpt-*", "*"]), places), unique=True, max_size=2))
    dollars = st.sampled_from([0, 1, 20])
    names = st.sampled_from(["", 'name "eu.model-v1:0"; '])
    return [
        f"model {quoted(glob)}{place} {{ "
        f"{draw(names) if place else ''}price input ${draw(dollars)}/Mtok output ${draw(dollars)}/Mtok }}"
        for glob, place in scopes
    ]


@st.composite
def _resources(draw: st.DrawFn, agents: list[DrawnAgent]) -> list[str]:
    """Resources, which change nothing for calls."""
    proven = [one.name for one in agents if "token" in one.settings]
    lines = []
    for name in draw(st.lists(st.sampled_from(["gpu", "port"]), unique=True)):
        drawn: dict[str, st.SearchStrategy[Any]] = {
            "capacity": st.integers(1, 9),
            "lease": st.sampled_from(["30s", "5m", "10m max 4h"]),
            "queue": st.integers(0, 200),
            "allow": st.just(f"[{', '.join(proven)}]"),
        }
        settings = []
        for setting in list(drawn)[: 4 if proven else 3]:
            chosen: bool = draw(st.booleans())
            if chosen:
                settings.append(f"{setting} {draw(drawn[setting])}")
        lines.append(f"resource {name} {{ {'; '.join(settings)} }}")
    return lines


@st.composite
def _jobs(draw: st.DrawFn, agents: list[DrawnAgent]) -> list[str]:
    """The jobs of agents, which change nothing for calls."""
    chosen: bool = draw(st.booleans())
    if not chosen:
        return []
    proven = [one.name for one in agents if "token" in one.settings]
    commands = draw(st.sampled_from(['["make *"]', '["claude -p *", "codex exec *"]']))
    lines = [f"commands {commands}"]
    if proven:
        lines.append(f"allow [{', '.join(draw(st.lists(st.sampled_from(proven), min_size=1, unique=True)))}]")
    for setting, values in (("capacity", st.integers(1, 9)), ("queue", st.integers(0, 200))):
        is_set: bool = draw(st.booleans())
        if is_set:
            lines.append(f"{setting} {draw(values)}")
    if len(lines) % 2:
        lines.append(f"patience {draw(st.sampled_from(['0s', '30s', '5m']))}")
    return [f"jobs {{ {'; '.join(draw(st.permutations(lines)))} }}"]


@st.composite
def policies(draw: st.DrawFn) -> Drawn:
    """A policy without an error; the order of its declarations is drawn too, where it has no meaning."""
    counts: dict[str, tuple[str, int]] = draw(
        st.sampled_from([{}, {"much": ("1k", 1_000)}, {"much": ("1M", 1_000_000)}])
    )
    globs: dict[str, tuple[str, ...]] = draw(
        st.sampled_from([{}, {"cheap": ("*-mini", "claude-haiku-4-5")}, {"cheap": ()}])
    )
    own = Scope(globs=globs, counts={name: value for name, (_, value) in counts.items()})
    busy = draw(st.none() | conditions(own, depth=1))
    own = attrs.evolve(own, conditions={"busy": busy} if busy is not None else {})
    lets = [f"let {name} = {text}" for name, (text, _) in counts.items()]
    lets += [f"let {name} = [{', '.join(map(quoted, one))}]" for name, one in globs.items()]
    lets += [f"let {name} = {meant.text}" for name, meant in own.conditions.items()]

    # A lane `default` is there in any case, and can be named where it is declared.
    lanes = {name: draw(LANE_SETTINGS) for name in LANES if name != "default" or draw(st.booleans())}
    provider_lines, providers = draw(_providers())
    agent_lines, agents = draw(_agents(own, lanes))
    teams = [DrawnTeam(name, draw(st.none() | conditions(own, depth=1))) for name in TEAMS]
    names = {
        "agent": (*(one.name for one in agents), "unknown"),
        "team": (*TEAMS, "none"),
        "provider": tuple(one.name for one in providers),
    }
    rule_lines, rules = draw(_rules(attrs.evolve(own, names=names), lanes))
    budget_lines, budgets = draw(_budgets(attrs.evolve(own, names=names)))
    resource_lines: list[str] = draw(_resources(agents))
    jobs_lines: list[str] = draw(_jobs(agents))
    defaults = {
        kind: draw(settings)
        for kind, settings in {"agent": _agent_settings(lanes), "lane": LANE_SETTINGS}.items()
        if draw(st.booleans())
    }
    sections = [
        lets,
        provider_lines,
        agent_lines,
        rule_lines,
        budget_lines,
        draw(_prices(names["provider"])),
        [f"lane {name} {_written(settings)}" for name, settings in lanes.items()],
        [f"defaults {kind} {_written(settings)}" for kind, settings in defaults.items()],
        [f"team {one.name} " + (f"when {one.when.text} " if one.when else "") + "{ }" for one in teams],
        [f"retry {name} {{ {draw(st.sampled_from(SIGNALS))} }}" for name in RETRIES],
        resource_lines,
        jobs_lines,
    ]
    lines = [line for section in draw(st.permutations(sections)) for line in section]
    text = "\n".join(lines) + "\n"
    return Drawn(text, tuple(providers), lanes, tuple(agents), tuple(teams), tuple(rules), tuple(budgets), defaults)
