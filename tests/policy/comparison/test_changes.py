"""What is declared otherwise, and what is said of running state: a row for each kind of change."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.model import Api, SecretRef, SecretSource
from hivemind_trio.policy import (
    AccountSettings,
    AgentSettings,
    AimdSettings,
    BudgetSettings,
    CircuitBreakerSettings,
    JobsSettings,
    LaneSettings,
    LimitGroupSettings,
    PlanSettings,
    Program,
    ProviderSettings,
    Reaper,
    Resident,
    ResourceSettings,
    RetrySettings,
    Server,
    SlotShare,
    Team,
    Timeouts,
)
from hivemind_trio.policy.comparison.setting_rows import ROWS as ROWS_OF
from hivemind_trio.policy.comparison.settings import plan
from hivemind_trio.policy.language.unit_text import count, duration, money, size
from hivemind_trio.policy.language.units import count as read_count
from hivemind_trio.policy.language.units import duration_ns, money_microusd, size_bytes
from tests.policy.drawn import Drawn, policies
from tests.support.policies import compiled

P = "provider anthropic {{ {} }}\n"
LIMITS = 'provider anthropic {{ limits "gpt-*" {{ {} }} }}\n'
REST = "provider anthropic { }\n"
ANTHROPIC = "provider anthropic {{ }}\n"
LANE = ANTHROPIC + "lane l {{ {} }}\nrule r {{ lane l }}\n"
AGENT = ANTHROPIC + "team a {{ }}\nteam b {{ }}\nagent ci {{ {} }}\n"
BUDGET = ANTHROPIC + "budget b {{ {} }}\n"
RETRY = ANTHROPIC + "retry slow {{ {} }}\nrule r {{ retry slow }}\n"
SERVER = ANTHROPIC + "server {{ {} }}\n"
JOBS = ANTHROPIC + "agent ci {{ token env(T) }}\njobs {{ {} }}\n"
RESOURCE = ANTHROPIC + "agent ci {{ token env(T) }}\nresource gpu {{ {} }}\n"
MODEL = ANTHROPIC + 'model "m" {{ {} }}\n'

ROWS = {
    # policy, its setting before, after -> setting, verb, before, after, state, code
    "slots lowered": (P, "concurrency 8", "concurrency 4", "concurrency", "lowered", "8", "4", "drains", ""),
    "slots raised": (P, "concurrency 4", "concurrency 8", "concurrency", "raised", "4", "8", "kept", ""),
    "what an agent may ask for": (
        AGENT, "priority 2 max 5", "priority 2 max 9", "priority max", "raised", "5", "9", "kept", "",
    ),
    "what an agent starts, lowered": (
        AGENT, "limits { requests 30/min }", "limits { requests 20/min }", "limits requests", "lowered", "30/min",
        "20/min", "kept", "",
    ),
    "what an agent starts, in another window": (
        AGENT, "limits { requests 30/min }", "limits { requests 900/hour }", "limits requests", "changed", "30/min",
        "900/hour", "kept", "",
    ),
    "an upper bound lowered": (
        P, "concurrency 2..32", "concurrency 2..16", "concurrency", "lowered", "2..32", "2..16", "drains", "",
    ),
    "a lower bound raised": (
        P, "concurrency 2..32", "concurrency 4..32", "concurrency", "raised", "2..32", "4..32", "kept", "",
    ),
    "no longer learned": (
        P, "concurrency 2..32", "concurrency 32", "concurrency", "raised", "2..32", "32", "resets", "HM701",
    ),
    "learned from now on": (P, "concurrency 4", "concurrency 2..4", "concurrency", "lowered", "4", "2..4", "kept", ""),
    "aimd": (
        P, "concurrency 2..8", "concurrency 2..8; aimd decrease 30%",
        "aimd decrease", "lowered", "50%", "30%", "kept", "",
    ),
    "models in memory": (
        P, "resident 1", "resident 2 swap 9s", "resident", "changed", "1 swap 20s", "2 swap 9s", "kept", "",
    ),
    "parts of a plan": (
        P, "plan { reserve 30% of week for default }", "plan { pace week for default; overage deny }",
        "plan", "changed", "reserve 30% of week for [default]; overage warn",
        "pace week for [default] burst 4x; overage deny", "kept", "",
    ),
    "accounts": (
        P, "account a { key env(A); for default; concurrency 2 }",
        "account a { key env(A); concurrency 2..9 }; account b { key env(B); limits { requests 50/min } }",
        "account", "changed", "a (env(A); for default; concurrency 2)",
        "a (env(A); concurrency 2..9), b (env(B); concurrency 2..64; limits 50 requests per minute)", "drains", "",
    ),
    "accounts of one organisation": (
        P, "account a { key env(A); concurrency 2 }; account b { key env(B); concurrency 2 }",
        "account a { key env(A); concurrency 2 }; account b { key env(B); for default; shares a }",
        "account", "changed", "a (env(A); concurrency 2), b (env(B); concurrency 2)",
        "a (env(A); concurrency 2), b (env(B); for default; shares a)", "drains", "",
    ),
    "who counts tokens": (
        P, "", "estimate exact", "estimate", "changed", "learned", "exact", "kept", "",
    ),
    "their order": (
        P, "account a { key env(A) }", "account a { key env(A) }; spread first",
        "spread", "changed", "sticky", "first", "kept", "",
    ),
    "models that are minded": (P, "", "resident 1", "resident", "added", "none", "1 swap 20s", "kept", ""),
    "a fallback": (
        P + "".join(f'provider {name} {{{{ api anthropic; base "http://127.0.0.1:1" }}}}\n' for name in "bc"),
        "fallback b", "fallback c", "fallback", "changed", "b", "c", "kept", "",
    ),
    "an objective": (P, "", "objective makespan", "objective", "changed", "fair", "makespan", "kept", ""),
    "headers that are ignored": (P, "", "headers ignore", "headers", "changed", "trust", "ignore", "kept", ""),
    "a reaper": (P, "", "reaper idle 5x", "reaper idle", "lowered", "10x", "5x", "kept", ""),
    "answers that are worth nothing": (
        P, "", "degraded when tokens.out == 0", "degraded", "added", "none", "when ...", "kept", "",
    ),
    "a lane's objective": (
        LANE, "", "objective latency", "objective", "added", "the provider's", "latency", "kept", "",
    ),
    "a sticky lane": (LANE, "", "sticky agent", "sticky", "added", "none", "agent", "kept", ""),
    "what steals": (
        LANE, "sticky agent", "sticky agent; steal above 3", "steal above", "lowered", "8", "3", "kept", "",
    ),
    "an agent's weight": (AGENT, "", "weight 3", "weight", "raised", "1", "3", "kept", ""),
    "who is believed": (
        SERVER, "", "identify [header]", "identify", "changed", "[url, header, session, user, connection]",
        "[header]", "kept", "",
    ),
    "the log": (SERVER, "", "log json", "log", "changed", "text", "json", "kept", ""),
    "a timeout": (P, "", "timeout idle 90s", "timeout idle", "lowered", "5m", "1m30s", "kept", ""),
    "a breaker": (P, "", "breaker trip 80%", "breaker trip", "raised", "50%", "80%", "kept", ""),
    "while open": (P, "", "open refuse", "open", "changed", "hold", "refuse", "kept", ""),
    "where it is": (
        P, "", 'base "http://127.0.0.1:1"', "base", "changed", "https://api.anthropic.com", "http://127.0.0.1:1",
        "kept", "",
    ),
    "its key": (P, "key env(A)", "key env(B)", "key", "changed", "env(A)", "env(B)", "kept", ""),
    "no key any more": (P, "key env(A)", "", "key", "changed", "env(A)", "none", "kept", ""),
    "what it serves": (
        P, "", 'serves ["claude-*"]', "serves", "changed", "all models of its API", '["claude-*"]', "kept", "",
    ),
    "its queue bounded": (P, "", "queue 2k", "queue", "lowered", "none", "2k", "kept", ""),
    "its queue unbounded": (P, "queue 2k", "", "queue", "raised", "2k", "none", "kept", ""),
    "a group's slots": (
        LIMITS, "concurrency 4", "concurrency 2", 'limits "gpt-*" concurrency', "lowered", "4", "2", "drains", "",
    ),
    "a group's slots unbounded": (
        LIMITS, "concurrency 4", "", 'limits "gpt-*" concurrency', "raised", "4", "none", "kept", "",
    ),
    "a limit lowered": (
        LIMITS, "input 80k/min", "input 40k/min", 'limits "gpt-*" input', "lowered", "80k/min", "40k/min", "kept", "",
    ),
    "a limit of another window": (
        LIMITS, "input 80k/min", "input 80k/10m", 'limits "gpt-*" input', "changed", "80k/min", "80k/10m",
        "resets", "HM701",
    ),
    "a limit more": (LIMITS, "", "requests 5/s", 'limits "gpt-*" requests', "added", "", "5/s", "none", ""),
    "a limit less": (LIMITS, "requests 5/s", "", 'limits "gpt-*" requests', "removed", "5/s", "", "kept", ""),
    "headroom": (
        LIMITS, "requests 5/s", "requests 5/s; headroom 10%",
        'limits "gpt-*" requests headroom', "raised", "learned", "10%", "kept", "",
    ),
    "a kind of window": (
        LIMITS, "requests 5/s", "requests 5/s; window bucket",
        'limits "gpt-*" requests window', "changed", "learn", "bucket", "kept", "",
    ),
    "a weight": (LANE, "weight 1", "weight 8", "weight", "raised", "1", "8", "kept", ""),
    "a reserve": (LANE, "reserve 2", "reserve 1", "reserve", "lowered", "2", "1", "kept", ""),
    "a reserve as a share": (LANE, "reserve 2", "reserve 25%", "reserve", "changed", "2", "25%", "kept", ""),
    "a larger share": (LANE, "reserve 25%", "reserve 50%", "reserve", "raised", "25%", "50%", "kept", ""),
    "a lane's cap": (LANE, "", "max 25%", "max", "lowered", "none", "25%", "drains", ""),
    "a lane's cap gone": (LANE, "max 3", "", "max", "raised", "3", "none", "kept", ""),
    "a lane's queue": (LANE, "queue 10", "queue 5", "queue", "lowered", "10", "5", "kept", ""),
    "who is shed": (
        LANE, "queue 5", "queue 5 overflow shed-oldest", "queue overflow", "changed", "deny", "shed-oldest", "kept", "",
    ),
    "aging": (LANE, "", "aging 1 every 30s", "aging", "added", "none", "1 every 30s", "kept", ""),
    "an agent's team": (AGENT, "team a", "team b", "team", "changed", "a", "b", "kept", ""),
    "an agent's cap": (AGENT, "", "concurrency 2", "concurrency", "lowered", "none", "2", "drains", ""),
    "an agent's token": (AGENT, "", "token env(T)", "token", "changed", "[]", "[env(T)]", "kept", ""),
    "a budget's amount": (BUDGET, "cost $25/day", "cost $20/day", "cost", "lowered", "$25/day", "$20/day", "kept", ""),
    "a budget's window": (
        BUDGET, "cost $25/day", "cost $25/hour", "cost", "changed", "$25/day", "$25/hour", "resets", "HM701",
    ),
    "a budget's measure": (
        BUDGET, "cost $25/day", "tokens 5M/day", "allowance", "changed", "$25/day", "5M/day tokens", "resets", "HM701",
    ),
    "a budget's month": (
        BUDGET, "cost $25/31d", "cost $25/month", "cost", "changed", "$25/31d", "$25/month", "resets", "HM701",
    ),
    "a budget's zone": (
        BUDGET, 'cost $25/day; timezone "UTC"', 'cost $25/day; timezone "Asia/Tokyo"',
        "cost", "changed", "$25/day (UTC)", "$25/day (Asia/Tokyo)", "resets", "HM701",
    ),
    "a budget that slides": (
        BUDGET, "cost $25/day", "cost $25/day; window sliding",
        "cost", "changed", "$25/day", "$25/day (sliding)", "resets", "HM701",
    ),
    "an allowance more": (
        BUDGET, "cost $25/day", "cost $25/day; requests 5/s", "requests", "added", "", "5/s requests", "none", "",
    ),
    "an allowance less": (
        BUDGET, "cost $25/day; requests 5/s", "cost $25/day",
        "requests", "removed", "5/s requests", "", "resets", "HM701",
    ),
    "a threshold": (
        BUDGET, "cost $25/day; at 80% { warn }", "cost $25/day; at 80% { warn; hold }",
        "at 80%", "changed", "warn", "warn; hold", "kept", "",
    ),
    "the name of a model at its provider": (
        ANTHROPIC + 'model "m" on anthropic {{ {} }}\n', 'name "a"', 'name "b"', "name", "changed", '"a"', '"b"',
        "kept", "",
    ),
    "errors to retry by their type": (
        RETRY, 'on [429, "busy"]', 'on [429, "overloaded_error", "busy"]', "on", "changed", '["busy"]',
        '["busy", "overloaded_error"]', "kept", "",
    ),
    "what is tried again": (
        RETRY, "on [429, reset]", "on [429]", "on", "changed", "[reset]", "[]", "kept", "",
    ),
    "how often": (RETRY, "attempts 8", "attempts 3", "attempts", "lowered", "8", "3", "kept", ""),
    "a price": (
        MODEL, "price input $3/Mtok", "price input $2.50/Mtok",
        "price input", "lowered", "$3/Mtok", "$2.50/Mtok", "kept", "",
    ),
    "where it listens": (
        SERVER, "", 'listen "[::1]:9000"', "listen", "changed", "127.0.0.1:8787", "[::1]:9000", "restart", "HM702",
    ),
    "processes": (SERVER, "", "workers auto", "workers", "changed", "1", "auto", "restart", "HM702"),
    "a bound of the door": (SERVER, "", "max-body 64MiB", "max-body", "raised", "32MiB", "64MiB", "kept", ""),
    "a bound of the listener": (
        SERVER, "", "max-header 32KiB", "max-header", "lowered", "64KiB", "32KiB", "restart", "",
    ),
    "proxies": (
        SERVER, "", 'forwarded-by ["10.0.0.2", "10.1.0.0/16"]', "forwarded-by", "changed",
        "none", '["10.0.0.2", "10.1.0.0" to "10.1.255.255"]', "kept", "",
    ),
    "names": (SERVER, "", 'hosts ["a.example"]', "hosts", "changed", "none", '["a.example"]', "kept", ""),
    "address of the control API": (
        SERVER, 'admin "[::1]:8788" token env(T)', 'admin "127.0.0.1:8789" token env(T)', "admin", "changed",
        '"[::1]:8788"', '"127.0.0.1:8789"', "restart", "",
    ),
    "a path of the control API": (
        SERVER, "", 'admin "unix:/run/a.sock"', "admin path", "added", "in the runtime directory", '"/run/a.sock"',
        "restart", "",
    ),
    "no control API": (SERVER, "", "admin off", "admin socket", "changed", "on", "off", "restart", ""),
    "no metrics": (
        SERVER, 'metrics "[::1]:9464"', "metrics off", "metrics", "removed",
        '"[::1]:9464"', "the control API's", "restart", "",
    ),
    "address of the metrics": (
        SERVER, 'metrics "[::1]:9464"', 'metrics "127.0.0.1:9464"', "metrics", "changed",
        '"[::1]:9464"', '"127.0.0.1:9464"', "restart", "",
    ),
    "fewer leases": (RESOURCE, "capacity 4", "capacity 2", "capacity", "lowered", "4", "2", "drains", ""),
    "shorter leases": (RESOURCE, "lease 5m", "lease 1m", "lease", "lowered", "5m", "1m", "kept", ""),
    "a bound on leases": (RESOURCE, "", "lease 10m max 1h", "lease max", "lowered", "none", "1h", "kept", ""),
    "fewer requests for leases": (RESOURCE, "", "queue 5", "queue", "lowered", "100", "5", "kept", ""),
    "who may lease": (RESOURCE, "", "allow ci", "allow", "changed", "every agent", "[ci]", "kept", ""),
    "who may submit jobs": (
        JOBS, 'commands ["make *"]', 'commands ["make *"]; allow ci', "allow", "changed",
        "no agent", "[ci]", "kept", "",
    ),
    "other commands": (
        JOBS, 'commands ["make *"]', 'commands ["just *"]', "commands", "changed",
        '["make *"]', '["just *"]', "kept", "",
    ),
    "fewer jobs at once": (
        JOBS, 'commands ["make *"]', 'commands ["make *"]; capacity 2', "capacity", "lowered", "4", "2", "drains", "",
    ),
    "fewer jobs in line": (
        JOBS, 'commands ["make *"]', 'commands ["make *"]; queue 5', "queue", "lowered", "1k", "5", "kept", "",
    ),
    "more patience for jobs": (
        JOBS, 'commands ["make *"]', 'commands ["make *"]; patience 5m', "patience", "raised", "1m", "5m", "kept", "",
    ),
    "unknown agents": (SERVER, "", "unknown-agent deny", "unknown-agent", "changed", "allow", "deny", "kept", ""),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_setting_that_changes_is_told_with_what_it_does_to_what_runs(row: tuple[str, ...]) -> None:
    policy, before, after, *expected = row

    changes = plan(compiled(policy.format(before)), compiled(policy.format(after)))

    assert [[one.setting, one.verb, one.before, one.after, one.effect.state, one.effect.code] for one in changes] == [
        expected
    ]


WHOLE = {
    "a provider": (REST, "provider openai { }\n", "provider openai", ("none", ""), ("drains", "")),
    "a lane": (REST, "lane l { }\n", "lane l", ("kept", ""), ("kept", "")),
    "a team": (REST, "team t { }\n", "team t", ("kept", ""), ("kept", "")),
    "an agent": (REST, "agent ci { }\n", "agent ci", ("kept", ""), ("kept", "")),
    "a budget": (REST, "budget b { cost $1/day }\n", "budget b", ("none", ""), ("resets", "HM701")),
    "a retry class": (REST, "retry slow { }\n", "retry slow", ("none", ""), ("kept", "")),
    "a resource": (REST, "resource gpu { }\n", "resource gpu", ("none", ""), ("drains", "")),
    "prices": (REST, 'model "m" { price input $1/Mtok }\n', 'model "m"', ("kept", ""), ("kept", "")),
}


@pytest.mark.parametrize(("rest", "declaration", "subject", "added", "removed"), WHOLE.values(), ids=WHOLE)
def test_a_declaration_comes_and_goes(
    rest: str, declaration: str, subject: str, added: tuple[str, str], removed: tuple[str, str]
) -> None:
    without, with_it = compiled(rest), compiled(rest + declaration)

    (comes,), (goes,) = plan(without, with_it), plan(with_it, without)

    assert [comes.subject, comes.setting, comes.verb, goes.verb] == [subject, "", "added", "removed"]
    assert (comes.effect.state, comes.effect.code) == added
    assert (goes.effect.state, goes.effect.code) == removed
    assert comes.at == goes.at == "test.hmp:3"


def test_a_limit_under_another_glob_is_another_count() -> None:
    def limits(glob: str) -> Program:
        return compiled(f'provider openai {{ limits "{glob}" {{ requests 5/s }} }}')

    moved, elsewhere = plan(limits("gpt-*"), limits("gpt-5*")), plan(limits("gpt-*"), limits("o3*"))

    assert [(one.setting, one.verb, one.effect.code) for one in moved] == [
        ('limits "gpt-*"', "removed", "HM701"),
        ('limits "gpt-5*"', "added", ""),
    ]
    assert [one.effect.code for one in elsewhere] == ["", ""]


def test_where_there_was_no_policy_everything_that_is_declared_is_new() -> None:
    changes = plan(None, compiled(REST + "lane l { }\nrule r { lane l }\n"))

    assert [(one.subject, one.verb) for one in changes] == [("provider anthropic", "added"), ("lane l", "added")]


def test_what_holds_for_callers_that_are_no_declared_agent_is_told_under_their_name() -> None:
    (change,) = plan(compiled(REST), compiled(REST + "defaults agent { concurrency 2 }\n"))

    assert (change.subject, change.setting, change.verb) == ("agent unknown", "concurrency", "lowered")


def test_layout_order_and_where_a_value_is_said_are_no_changes() -> None:
    one = compiled("provider openai { concurrency 4 }\nlane a { }\nlane b { weight 2 }\nrule r { lane a }\n")
    other = compiled(
        "# the same\nlane b { weight 2 }\n\nlane a { weight 1 }\n"
        "defaults provider { concurrency 4 }\nprovider openai { }\nrule r { lane a }\n"
    )

    assert plan(one, other) == ()


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 4)
@given(drawn=policies())
def test_a_policy_changes_nothing_of_itself(drawn: Drawn) -> None:
    text = drawn.text

    assert plan(compiled(text), compiled("\n" + text)) == ()


# ---- nothing is passed over ----


UNGUESSED: dict[str, Any] = {
    "hosts": ("a.example",),
    "forwarded_by": ((1, 2),),
    "admin": ("127.0.0.1", 8788),
    "control_path": "/run/team.sock",
    "metrics": ("127.0.0.1", 9464),
    "api": Api.OPENAI,
    "serves": ("x",),
    "queue": 5,
    "max": SlotShare(slots=1),
    "deadline_ns": 5,
    "aging_ns": 5,
    "resident": Resident(1),
    "plan": PlanSettings(),
    "accounts": (
        AccountSettings(
            name="a", key=SecretRef(SecretSource.ENV, "A"), lanes=("default",), limit=8, aimd=None, groups=()
        ),
    ),
}
"""Fields whose default does not say what they hold."""

OTHER: dict[type, Any] = {bool: True, int: 77, float: 0.123, str: "other", type(None): 5}


def fields() -> list[tuple[str, str]]:
    nouns = {
        "server": Server,
        "provider": ProviderSettings,
        "lane": LaneSettings,
        "retry": RetrySettings,
        "budget": BudgetSettings,
    }
    return [
        (kind, field.name)
        for kind, noun in nouns.items()
        for field in attrs.fields(noun)
        if field.init and field.eq and field.name not in ("name", "at")
    ]


def other(value: Any) -> Any:
    """Another value of its type."""
    match value:
        case bool():
            return not value
        case int() | float() | str() if type(value) in OTHER:
            return OTHER[type(value)]
        case None:
            return AimdSettings(low=1, start=1)
        case CircuitBreakerSettings():
            return CircuitBreakerSettings(of=77)
        case frozenset():
            return frozenset({next(iter(value), "other")})
        case tuple():
            return (
                (LimitGroupSettings(glob="x", concurrency=1, quotas=()),)
                if not value or isinstance(value[0], LimitGroupSettings)
                else ()
            )
        case _ if attrs.has(type(value)):
            first = attrs.fields(type(value))[0].name
            return attrs.evolve(value, **{first: other(getattr(value, first))})
        case _:
            return next(one for one in type(value) if one is not value)


@pytest.mark.parametrize(("kind", "field"), fields(), ids=lambda value: value)
def test_every_field_of_a_program_is_compared(kind: str, field: str) -> None:
    old = compiled(REST + "lane default { }\nbudget b { requests 5/s }\n")
    table = {"provider": "providers", "lane": "lanes", "retry": "retries", "budget": "budgets"}
    if kind == "server":
        value = UNGUESSED[field] if field in UNGUESSED else other(getattr(old.server, field))
        new = attrs.evolve(old, server=attrs.evolve(old.server, **{field: value}))
    else:
        ((name, one),) = getattr(old, table[kind]).items()
        value = UNGUESSED[field] if field in UNGUESSED else other(getattr(one, field))
        changed: dict[str, Any] = {table[kind]: {name: attrs.evolve(one, **{field: value})}}
        new = attrs.evolve(old, **changed)

    assert plan(old, new)


# ---- values as they are written ----


@pytest.mark.parametrize(
    ("show", "value", "text"),
    [
        (duration, 5_400 * 10**9, "1h30m"),
        (duration, 9 * 86_400 * 10**9, "9d"),
        (duration, 14 * 86_400 * 10**9, "2w"),
        (duration, 1_500_000, "1.5ms"),
        (duration, 0, "0s"),
        (count, 40_000, "40k"),
        (count, 1_500, "1500"),
        (size, 32 << 20, "32MiB"),
        (money, 800_000, "$0.80"),
        (money, 125, "$0.000125"),
        (money, 4_000_000_000, "$4k"),
    ],
)
def test_values_are_shown_as_a_policy_has_them(show: Any, value: int, text: str) -> None:
    assert show(value) == text


@given(value=st.integers(0, 2**60) | st.integers(0, 2**33).map(lambda number: number * 10**6))
def test_what_is_shown_is_read_as_the_same_value(value: int) -> None:
    assert duration_ns(duration(value)) == value
    assert read_count(count(value)) == value
    assert size_bytes(size(value)) == value
    assert money_microusd(money(value)) == value


def test_every_field_has_a_row_of_its_own() -> None:
    """What has none is told of plainly, by the name of a field that no policy has."""
    blocks = {"timeouts": Timeouts, "breaker": CircuitBreakerSettings, "aimd": AimdSettings, "reaper": Reaper}
    told_elsewhere = {
        ("provider", "limit"), ("provider", "groups"), ("provider", "aimd.low"), ("server", "host"), ("server", "port"),
        ("agent", "limits"),
    }  # fmt: skip
    classes = {
        "server": Server,
        "provider": ProviderSettings,
        "lane": LaneSettings,
        "agent": AgentSettings,
        "team": Team,
        "retry": RetrySettings,
        "resource": ResourceSettings,
        "jobs": JobsSettings,
    }
    fields = [
        (kind, f"{name}.{inner.name}" if inner is not None else name)
        for kind, of in classes.items()
        for field in attrs.fields(of)
        if field.eq and (name := field.name) not in ("name", "at")
        for inner in (attrs.fields(blocks[name]) if name in blocks else [None])
    ]

    assert [one for one in fields if one not in told_elsewhere and one[1] not in ROWS_OF[one[0]]] == []
