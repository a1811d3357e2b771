"""What a policy says, as the program has it: one table for each kind of declaration, with what holds unsaid first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hivemind_trio.model import Api, PlanSpan, SecretRef, SecretSource
from hivemind_trio.policy import (
    AimdSettings,
    CircuitBreakerSettings,
    DegradedSettings,
    MemoryFiles,
    PlanOverage,
    PlanPace,
    PlanRelease,
    PlanReserve,
    PlanSettings,
    Program,
    ProviderSettings,
    Reaper,
    RetrySettings,
    Severity,
    SlotShare,
    Timeouts,
    WhileOpen,
    check,
)
from hivemind_trio.policy.language.condition_typing import AllOf, Flag, Negation, Relation
from hivemind_trio.policy.language.list_prices import BUILT_IN_PRICES

MS = 10**6
S = 10**9
MINUTE = 60 * S


def program(text: str) -> Program:
    checked = check("team.hmp", MemoryFiles({"team.hmp": text}))
    assert checked.program is not None, [one for one in checked.diagnostics if one.severity is Severity.ERROR]
    return checked.program


def fields(thing: object, names: Mapping[str, object]) -> dict[str, object]:
    return {name: getattr(thing, name) for name in names}


def env(name: str) -> SecretRef:
    return SecretRef(SecretSource.ENV, name)


# ---- providers ----


OTHER = 'provider other { api anthropic; base "https://other.example" }\n'


def provider(settings: str) -> ProviderSettings:
    return program(f"provider anthropic {{\n{settings}\n}}\nretry patient {{ }}\n{OTHER}").providers["anthropic"]


PROVIDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "nothing": ("", {
        "name": "anthropic", "api": Api.ANTHROPIC, "base": "https://api.anthropic.com", "keys": (), "serves": (),
        "limit": 64, "aimd": AimdSettings(low=2, start=8), "groups": (), "queue": None, "retry": "default",
        "while_open": WhileOpen.HOLD,
        "breaker": CircuitBreakerSettings(trip=0.5, of=20, over_ns=30 * S, open_ns=5 * S, probes=1), "at": "team.hmp:1",
        "timeouts": Timeouts(connect_ns=5 * S, first_byte_ns=5 * MINUTE, idle_ns=5 * MINUTE, total_ns=30 * MINUTE),
        "degraded": None, "learns": True, "reaper": Reaper(first_byte=4.0, idle=10.0),
    }),
    "another dialect has another base": ("api openai", {"api": Api.OPENAI, "base": "https://api.openai.com"}),
    "a base": ('base "https://eu.example/v1/"', {"base": "https://eu.example/v1"}),
    "a base that is a secret": ("base env(GATEWAY)", {"base": env("GATEWAY")}),
    "a key": ("key env(K)", {"keys": (env("K"),)}),
    "a pool of keys": (
        'key file("/run/k")', {"keys": (SecretRef(SecretSource.FILE, "/run/k"),)},
    ),
    "what it serves": ('serves ["a*", "b"]', {"serves": ("a*", "b")}),
    "what it serves, one": ('serves "a*"', {"serves": ("a*",)}),
    "fixed slots": ("concurrency 3", {"limit": 3, "aimd": None}),
    "fixed slots, written as a range": ("concurrency 3..3", {"limit": 3, "aimd": None}),
    "slots that adapt": ("concurrency 2..32", {"limit": 32, "aimd": AimdSettings(low=2, start=8)}),
    "where they begin": ("concurrency 2..32 start 20", {"limit": 32, "aimd": AimdSettings(low=2, start=20)}),
    "they begin within their bounds": ("concurrency 10..12", {"aimd": AimdSettings(low=10, start=10)}),
    "how they adapt": (
        "concurrency 1..4\naimd increase 2 decrease 75% cooldown 10s slow first-byte 8s",
        {"aimd": AimdSettings(low=1, start=4, increase=2, decrease=0.75, cooldown_ns=10 * S, slow_ns=8 * S)},
    ),
    "a part of how": ("concurrency 1..4\naimd decrease 30%", {"aimd": AimdSettings(low=1, start=4, decrease=0.3)}),
    "fixed slots do not adapt": ("concurrency 4\naimd increase 2", {"limit": 4, "aimd": None}),
    "a queue": ("queue 2k", {"queue": 2_000}),
    "no queue": ("queue 0", {"queue": 0}),
    "a part of the timeouts": (
        "timeout connect 250ms total 1h30m",
        {"timeouts": Timeouts(connect_ns=250 * MS, first_byte_ns=5 * MINUTE, idle_ns=5 * MINUTE, total_ns=90 * MINUTE)},
    ),
    "all timeouts": (
        "timeout connect 1s first-byte 2s idle 3s total 4s",
        {"timeouts": Timeouts(connect_ns=S, first_byte_ns=2 * S, idle_ns=3 * S, total_ns=4 * S)},
    ),
    "a breaker": (
        "breaker trip 40% of 50 over 1m open 10s probes 1",
        {"breaker": CircuitBreakerSettings(trip=0.4, of=50, over_ns=MINUTE, open_ns=10 * S, probes=1)},
    ),
    "a part of a breaker": ("breaker open 10s", {"breaker": CircuitBreakerSettings(open_ns=10 * S)}),
    "open means refused": ("open refuse", {"while_open": WhileOpen.REFUSE}),
    "open means held": ("open hold", {"while_open": WhileOpen.HOLD}),
    "a fallback": ("fallback other", {"fallback": "other", "while_open": WhileOpen.FALLBACK}),
    "a fallback, said": ("fallback other; open fallback", {"fallback": "other", "while_open": WhileOpen.FALLBACK}),
    "a fallback, not to be used": ("fallback other; open hold", {"fallback": "other", "while_open": WhileOpen.HOLD}),
    "a retry class": ("retry patient", {"retry": "patient"}),
    "headers that are believed": ("headers trust", {"learns": True}),
    "headers that are not": ("headers ignore", {"learns": False}),
    "a reaper": ("reaper first-byte 2x idle 1.5x", {"reaper": Reaper(first_byte=2.0, idle=1.5)}),
    "a part of a reaper": ("reaper idle 100x", {"reaper": Reaper(first_byte=4.0, idle=100.0)}),
    "answers that are worth nothing": (
        "degraded when tokens.out == 0 and not stream",
        {"degraded": DegradedSettings(AllOf((Relation("tokens.out", "==", 0), Negation(Flag("stream")))))},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "expected"), PROVIDERS.values(), ids=PROVIDERS)
def test_a_provider_is_what_it_says_and_the_defaults(settings: str, expected: dict[str, Any]) -> None:
    assert fields(provider(settings), expected) == expected


@pytest.mark.parametrize(
    ("name", "api", "base"),
    [
        ("anthropic", Api.ANTHROPIC, "https://api.anthropic.com"),
        ("openai", Api.OPENAI, "https://api.openai.com"),
        ("gemini", Api.GEMINI, "https://generativelanguage.googleapis.com"),
        ("ollama", Api.OLLAMA, "http://127.0.0.1:11434"),
    ],
)
def test_a_known_name_needs_neither_api_nor_base(name: str, api: Api, base: str) -> None:
    one = program(f"provider {name} {{ }}").providers[name]

    assert (one.api, one.base) == (api, base)


def test_limits_are_groups_in_their_order_and_one_may_be_for_all_models() -> None:
    one = provider('limits { requests 5/min }\nlimits "a*" { concurrency 2 }\nlimits "ab" { concurrency 1 }')

    assert [(group.glob, group.concurrency) for group in one.groups] == [(None, None), ("a*", 2), ("ab", 1)]


def test_a_plan_is_its_reserves_its_paces_and_what_is_done_beyond_it() -> None:
    one = program(
        "provider anthropic { plan { reserve 30% of session for [work, default]; reserve 0.125 of week for work "
        "release forecast\npace week for default; overage deny } }\nlane work { }"
    ).providers["anthropic"]

    assert one.plan == PlanSettings(
        reserves=(
            PlanReserve(300_000, PlanSpan.SESSION, ("work", "default")),
            PlanReserve(125_000, PlanSpan.WEEK, ("work",), PlanRelease.FORECAST),
        ),
        paces=(PlanPace(PlanSpan.WEEK, ("default",)),),
        overage=PlanOverage.DENY,
    )
    assert one.plan.reserves[0].release is PlanRelease.NEVER
    assert one.plan.kept_from("work", PlanSpan.WEEK) == ()
    assert one.plan.kept_from("default", PlanSpan.WEEK) == one.plan.reserves[1:]
    assert program("provider anthropic { }").providers["anthropic"].plan is None


LIMITS = {
    "requests": ("requests 50/min", [("requests", 50, MINUTE)]),
    "tokens of each kind": (
        "output 8k/min; input 30k/s; tokens 1M/day",
        [("input", 30_000, S), ("output", 8_000, MINUTE), ("tokens", 10**6, 1_440 * MINUTE)],
    ),
    "two windows of one kind": (
        "requests 5/s; requests 100/10m", [("requests", 5, S), ("requests", 100, 10 * MINUTE)],
    ),
    "a cap alone": ("concurrency 2", []),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "expected"), LIMITS.values(), ids=LIMITS)
def test_what_a_provider_allows_per_window_is_in_its_groups(
    settings: str, expected: list[tuple[str, int, int]]
) -> None:
    (group,) = provider(f"limits {{ {settings} }}").groups

    assert [(quota.dimension, quota.amount, quota.window_ns) for quota in group.quotas] == expected
    assert all((quota.headroom, quota.window) == (None, "learn") for quota in group.quotas)


def test_headroom_and_the_kind_of_window_are_of_every_quota_of_their_block_alone() -> None:
    one, other = provider(
        'limits { requests 5/min; input 5/min; headroom 10%; window bucket }\nlimits "a*" { requests 5/min }'
    ).groups

    assert [(quota.headroom, quota.window) for quota in one.quotas] == [(0.1, "bucket")] * 2
    assert [(quota.headroom, quota.window) for quota in other.quotas] == [(None, "learn")]


# ---- retry classes ----

RETRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "nothing": ("", {
        "attempts": 8, "first_ns": 500 * MS, "last_ns": 5 * S, "jitter": "full", "ratio": 0.2,
        "honor_max_ns": 10 * MINUTE,
        "statuses": {429, 500, 502, 503, 504, *range(520, 525), 529},
        "failures": {"connect", "reset", "first-byte"}, "at": "team.hmp:2",
    }),
    "statuses, alone and in ranges": ("on [429, 500..503]", {"statuses": {429, 500, 501, 502, 503}, "failures": set()}),
    "failures": (
        "on [connect, reset, first-byte, timeout, idle]",
        {"statuses": set(), "failures": {"connect", "reset", "first-byte", "timeout", "idle"}},
    ),
    "one thing, without brackets": ("on 529", {"statuses": {529}, "failures": set()}),
    "nothing at all": ("on []", {"statuses": set(), "failures": set()}),
    "attempts": ("attempts 1", {"attempts": 1}),
    "a back-off": ("backoff 250ms..15s", {"first_ns": 250 * MS, "last_ns": 15 * S, "jitter": "full"}),
    "jitter": ("backoff 1s..1s jitter none", {"first_ns": S, "last_ns": S, "jitter": "none"}),
    "equal jitter": ("backoff 1s..2s jitter equal", {"jitter": "equal"}),
    "how long a wish is honoured": ("honor retry-after max 2m", {"honor_max_ns": 2 * MINUTE}),
    "as long as unsaid": ("honor retry-after", {"honor_max_ns": 10 * MINUTE}),
    "a ratio": ("ratio 10%", {"ratio": 0.1}),
    "no ratio": ("ratio 0%", {"ratio": 0.0}),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "expected"), RETRIES.values(), ids=RETRIES)
def test_a_retry_class_is_what_it_says_and_the_defaults(settings: str, expected: dict[str, Any]) -> None:
    policy = program(f"provider anthropic {{ retry mine }}\nretry mine {{ {settings} }}")

    assert fields(policy.retries["mine"], expected) == expected
    assert policy.retries["default"] == RetrySettings()


def test_a_retry_class_named_default_is_that_of_every_call() -> None:
    policy = program("provider anthropic { }\nretry default { attempts 2 }")

    assert policy.providers["anthropic"].retry == "default"
    assert policy.retries["default"].attempts == 2
    assert list(policy.retries) == ["default"]


# ---- lanes ----

LANES: dict[str, tuple[str, dict[str, Any]]] = {
    "nothing": ("", {
        "weight": 1, "reserve": SlotShare(), "max": None, "deadline_ns": None, "queue": None, "shed_oldest": False,
        "priority": 0, "aging_ns": None, "at": "team.hmp:2", "name": "mine",
    }),
    "a weight": ("weight 8", {"weight": 8}),
    "a reserve of slots": ("reserve 4", {"reserve": SlotShare(slots=4)}),
    "a reserve that is a share": ("reserve 25%", {"reserve": SlotShare(ratio=0.25)}),
    "a share written as a fraction": ("reserve 0.5", {"reserve": SlotShare(ratio=0.5)}),
    "all of it is a share": ("max 100%", {"max": SlotShare(ratio=1.0)}),
    "one slot is none": ("max 1", {"max": SlotShare(slots=1)}),
    "a deadline": ("deadline 1m30s", {"deadline_ns": 90 * S}),
    "a queue": ("queue 2k", {"queue": 2_000, "shed_oldest": False}),
    "a queue that refuses": ("queue 5 overflow deny", {"queue": 5, "shed_oldest": False}),
    "a queue that sheds": ("queue 5 overflow shed-oldest", {"queue": 5, "shed_oldest": True}),
    "a priority": ("priority 100", {"priority": 100}),
    "aging by one": ("aging 1 every 30s", {"aging_ns": 30 * S}),
    "aging by more is aging more often": ("aging 3 every 30s", {"aging_ns": 10 * S}),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "expected"), LANES.values(), ids=LANES)
def test_a_lane_is_what_it_says_and_the_defaults(settings: str, expected: dict[str, Any]) -> None:
    policy = program(f"provider anthropic {{ }}\nlane mine {{ {settings} }}")

    assert fields(policy.lanes["mine"], expected) == expected
    assert list(policy.lanes) == ["mine", "default"]


def test_the_default_lane_bounds_nothing_and_may_be_declared() -> None:
    unsaid, said = program("provider anthropic { }"), program("lane default { queue 5 }\nprovider anthropic { }")

    expected = {**LANES["nothing"][1], "name": "default", "at": ""}
    assert fields(unsaid.lanes["default"], expected) == expected
    assert (said.lanes["default"].queue, said.lanes["default"].at) == (5, "team.hmp:1")


@pytest.mark.parametrize(
    ("settings", "limit", "reserve", "cap"),
    [
        ("", 8, 0, None),
        ("reserve 25%; max 50%", 10, 2, 5),
        ("reserve 4; max 6", 10, 4, 6),
        ("max 10%", 5, 0, 1),  # a share that rounds to nothing would shut the lane out
        ("max 100%", 5, 0, 5),
    ],
)
def test_a_share_is_of_the_providers_slots(settings: str, limit: int, reserve: int, cap: int | None) -> None:
    lane = program(f"provider anthropic {{ concurrency {limit} }}\nlane mine {{ {settings} }}").lanes["mine"]

    assert (lane.reserve.of(limit), lane.cap(limit)) == (reserve, cap)


# ---- agents, teams, models, the server ----

AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "nothing": (
        "",
        {"name": "ci", "team": "none", "tokens": (), "concurrency": None, "queue": None, "at": "team.hmp:1"},
    ),
    "a team": ("team red", {"team": "red"}),
    "a token": ("token env(T)", {"tokens": (env("T"),)}),
    "two tokens, while one is being replaced": ("token [env(T), env(U)]", {"tokens": (env("T"), env("U"))}),
    "slots": ("concurrency 40", {"concurrency": 40}),
    "a queue": ("queue 0", {"queue": 0}),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "expected"), AGENTS.values(), ids=AGENTS)
def test_an_agent_is_what_it_says(settings: str, expected: dict[str, Any]) -> None:
    policy = program(f"agent ci {{ {settings} }}\nteam red {{ }}\nprovider anthropic {{ }}")

    assert fields(policy.agents["ci"], expected) == expected
    assert policy.agent("ci") is policy.agents["ci"]
    assert fields(policy.agent("nobody"), {"name": 0, "queue": 0, "tokens": 0}) == {
        "name": "unknown", "queue": None, "tokens": (),
    }  # fmt: skip
    assert list(policy.teams) == ["red"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", {}),
        ("capacity 4; queue 0", {"capacity": 4, "queue": 0}),
        ("lease 30s", {"lease_ns": 30 * S}),
        ("lease 10m max 4h", {"lease_max_ns": 240 * MINUTE}),
        ("allow a", {"allow": ("a",)}),
        ("allow [a]", {"allow": ("a",)}),
    ],
)
def test_a_resource_is_what_it_says_and_the_defaults(settings: str, expected: dict[str, Any]) -> None:
    resource = program(f"agent a {{ token env(A) }}\nresource gpu {{ {settings} }}").resources["gpu"]

    defaults = {"capacity": 1, "lease_ns": 10 * MINUTE, "lease_max_ns": None, "queue": 100, "allow": ()}
    assert {name: getattr(resource, name) for name in defaults} == defaults | expected
    assert resource.may_ask("a")
    assert resource.may_ask("b") is not bool(resource.allow)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", {}),
        ("allow a", {"allow": ("a",)}),
        ("allow [a]; capacity 9; queue 0", {"allow": ("a",), "capacity": 9, "queue": 0}),
        ("patience 5m", {"patience_ns": 5 * MINUTE}),
    ],
)
def test_jobs_are_what_they_say_and_the_defaults(settings: str, expected: dict[str, Any]) -> None:
    jobs = program(f'agent a {{ token env(A) }}\njobs {{ commands ["make *", "just"]; {settings} }}').jobs

    defaults = {"allow": (), "commands": ("make *", "just"), "capacity": 4, "queue": 1_000, "patience_ns": MINUTE}
    assert {name: getattr(jobs, name) for name in defaults} == defaults | expected


@pytest.mark.parametrize(
    ("globs", "command", "may"),
    [
        ('["make *"]', ["make", "all"], True),
        ('["make *"]', ["make"], False),
        ('["make *"]', ["/usr/bin/make", "all"], False),
        ('["make *"]', ["sh", "-c", "make all"], False),
        ('["make *"]', ["make", "all\nrm -rf /"], True),  # one argument: no shell splits it
        ('["make test", "just *"]', ["make", "test"], True),
        ('["make test", "just *"]', ["make", "test", "-j"], False),
        ('["* --version"]', ["codex", "--version"], True),
    ],
)
def test_a_glob_is_compared_with_the_whole_command(globs: str, command: list[str], may: bool) -> None:
    assert program(f"jobs {{ commands {globs} }}").jobs.may_run(command) is may


def test_without_jobs_no_command_may_run() -> None:
    assert not program("agent a { }").jobs.may_run(["make", "all"])


def test_without_jobs_no_agent_may_submit_one() -> None:
    assert program("agent a { token env(A) }").jobs.allow == ()


SERVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "nothing": ("", {
        "host": "127.0.0.1", "port": 8787, "timezone": "", "drain_ns": 30 * S, "max_body": 32 << 20,
        "max_header": 64 << 10, "max_waiting": 10_000, "refuse_unknown": False, "silent_ns": 15 * S,
        "hold_ns": 240 * S, "identify": ("url", "header", "session", "user", "connection"), "log_json": False,
        "hosts": (),
    }),
    "an address": ('listen "[::1]:0"', {"host": "::1", "port": 0}),
    "a time zone": ('timezone "Europe/Paris"', {"timezone": "Europe/Paris"}),
    "a drain": ("drain 2m", {"drain_ns": 2 * MINUTE}),
    "bounds": (
        "max-body 1MB; max-header 8KiB; max-waiting 5; workers 3",
        {"max_body": 10**6, "max_header": 8 << 10, "max_waiting": 5, "workers": 3},
    ),
    "no doors": (
        "admin off; metrics off", {"admin": None, "has_control": False, "metrics": None, "is_measured": False},
    ),
    "a socket": (
        'admin "unix:/run/team.sock"', {"admin": None, "has_control": True, "control_path": "/run/team.sock"},
    ),
    "metrics alone": ('admin off; metrics "[::1]:9464"', {"metrics": ("::1", 9464), "is_measured": True}),
    "the control API alone": ("metrics off", {"has_control": True, "is_measured": True}),
    "unknown callers": ("unknown-agent deny", {"refuse_unknown": True}),
    "unknown callers of a network": ('listen "0.0.0.0:1"', {"refuse_unknown": True}),
    "unknown callers of another interface": ('listen "proxy.example.com:1"', {"refuse_unknown": True}),
    "unknown callers of a network, served": (
        'listen "[::]:1"; unknown-agent allow', {"refuse_unknown": False},
    ),
    "unknown callers of this machine": ('listen "[::1]:1"', {"refuse_unknown": False}),
    "names": ('hosts ["LLM.example.com", "*.a-b.example"]', {"hosts": ("llm.example.com", "*.a-b.example")}),
    "a name": ('hosts "a.example"', {"hosts": ("a.example",)}),
    "who is told apart by what": ("identify [connection, client]", {"identify": ("connection", "client")}),
    "by one thing": ("identify session", {"identify": ("session",)}),
    "by one thing, said twice": ("identify [user, url, user]", {"identify": ("user", "url")}),
    "a log of objects": ("log json", {"log_json": True}),
    "a log of words": ("log text", {"log_json": False}),
    "a part of the wait": ("wait hold 1m", {"silent_ns": 15 * S, "hold_ns": MINUTE}),
    "the wait": ("wait silent 1s hold 2s", {"silent_ns": S, "hold_ns": 2 * S}),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "expected"), SERVERS.values(), ids=SERVERS)
def test_the_server_is_what_it_says_and_the_defaults(settings: str, expected: dict[str, Any]) -> None:
    assert fields(program(f"server {{ {settings} }}\nprovider anthropic {{ }}").server, expected) == expected


def test_no_server_is_as_one_that_says_nothing() -> None:
    assert program("provider anthropic { }").server == program("server { }\nprovider anthropic { }").server


def test_a_model_replaces_the_list_price_of_its_glob_and_the_most_specific_holds() -> None:
    policy = program(
        "provider anthropic { }\n"
        'model "gpt-*" { price input $1/Mtok output $0.01/ktok cache-read $0.5/Mtok; context 8k; max-output 1k }\n'
        'model "mine-7" { }\n'
    )

    own, mine, *listed = policy.models
    assert (own.glob, mine.glob, tuple(listed)) == ("gpt-*", "mine-7", BUILT_IN_PRICES)
    assert (own.input, own.output, own.cache_read, own.cache_write) == (10**6, 10**7, 500_000, None)
    assert (own.context, own.max_output) == (8_000, 1_000)
    assert own.cost_microusd(1_000, 100) == 1_000 + 1_000
    assert mine.cost_microusd(10**9, 10**9) == 0
    assert policy.price("gpt-5", None) is own
    assert policy.price("unheard-of", None) is None


PRICED = """\
provider anthropic { }
provider second { api anthropic; base "https://second.example" }
model "claude-*" { price input $1/Mtok; max-output 9k }
model "claude-opus-*" on second { price input $100/Mtok }
model "claude-*" on second { price input $50/Mtok; context 5k }
model "claude-opus-4-1" { context 7k }
"""


@pytest.mark.parametrize(
    ("model", "provider", "expected"),
    [
        ("claude-opus-4-1", "second", (100, 5_000, 9_000)),
        ("claude-opus-4-1", "anthropic", (1, 7_000, 9_000)),  # the list price of `claude-opus-4-*` is more specific
        ("claude-opus-4-1", None, (1, 7_000, 9_000)),
        ("claude-haiku-4-5", "second", (50, 5_000, 9_000)),
        ("claude-haiku-4-5", "anthropic", (1, 200_000, 9_000)),
        ("gpt-4.1-mini", "second", (0.4, 1_000_000, None)),
    ],
)
def test_a_setting_of_a_model_is_of_the_first_declaration_that_has_it(
    model: str, provider: str | None, expected: tuple[float, int, int | None]
) -> None:
    price = program(PRICED).price(model, provider)

    assert price is not None
    assert ((price.input or 0) / 10**6, price.context, price.max_output) == expected


def test_a_price_that_is_declared_holds_for_more_specific_list_prices_too() -> None:
    policy = program('provider anthropic { }\nmodel "claude-opus-*" { price input $100/Mtok }\n')

    price = policy.price("claude-opus-4-1", "anthropic")
    assert price is not None
    assert (price.input, price.context) == (100 * 10**6, 200_000)


def test_the_estimated_cost_is_at_the_provider_before_any_rule() -> None:
    policy = program(
        "provider anthropic { }\n"
        'provider second { api anthropic; base "https://second.example"; serves ["claude-opus-*"] }\n'
        'model "claude-*" on second { price input $50/Mtok }\nmodel "claude-*" { price input $1/Mtok }\n'
    )

    assert policy.estimated_cost((Api.ANTHROPIC,), "claude-opus-4-1", 1_000, 0) == 50_000
    assert policy.estimated_cost((Api.ANTHROPIC,), "claude-haiku-4-5", 1_000, 0) == 1_000


def test_serving_needs_each_secret_once() -> None:
    policy = program(
        "provider anthropic { key env(A); base env(URL) }\nprovider openai { key env(A) }\n"
        "agent ci { token env(T) }\nagent cd { token [env(T), env(B)] }\n"
    )

    assert [str(secret) for secret in policy.secrets] == ["env(A)", "env(URL)", "env(T)", "env(B)"]


def test_tables_keep_the_order_of_the_file_and_the_hash_is_of_the_text() -> None:
    text = "provider openai { }\nlane b { }\nprovider anthropic { }\nagent z { }\nlane a { }\nagent y { }\n"
    policy = program(text)

    assert (list(policy.providers), list(policy.lanes)) == (["openai", "anthropic"], ["b", "a", "default"])
    assert list(policy.agents) == ["z", "y"]
    assert policy.hash == program(text).hash != program(f"{text}# but\n").hash


def test_the_steps_of_a_budget_stand_by_their_share_and_the_whole_denies_unless_it_says_otherwise() -> None:
    budgets = """
    budget open   { tokens 1k/day; at 90% { lane slow }; at 50% { warn } }
    budget closed { tokens 1k/day; at 100% { hold } }
    lane slow { }
    """

    steps = {
        name: budget.thresholds for name, budget in program(f"provider anthropic {{ }}\n{budgets}").budgets.items()
    }

    assert [(one.share, one.stops) for one in steps["open"]] == [(0.5, False), (0.9, False), (1.0, True)]
    assert [(one.share, one.hold, one.deny) for one in steps["closed"]] == [(1.0, True, None)]
