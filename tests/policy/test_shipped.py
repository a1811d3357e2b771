"""The policies that ship: they compile without a finding, and they do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from hivemind_trio.policy import Checked, MemoryFiles, check, parse_request, run_tests, with_tests

FOLDER = Path(__file__).parents[2] / "policies"
FILES = {path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.hmp")}


def checked(name: str) -> Checked:
    return check(name, MemoryFiles(FILES))


@pytest.mark.parametrize("name", FILES)
def test_a_shipped_policy_compiles_and_nothing_in_it_is_wrong(name: str) -> None:
    policy = checked(name)
    tests = run_tests(policy)

    assert policy.program is not None
    assert with_tests(policy, tests).diagnostics == ()


# ---- what they say ----

TREATED = {
    "CI is batch work": (
        "team.hmp", "agent=ci model=claude-haiku-4-5 tokens.in=12k hour=14",
        {"verdict": "allow", "lane": "batch", "priority": 2, "team": "product", "provider": "anthropic"},
    ),
    "CI may not use Opus": ("team.hmp", "agent=ci model=claude-opus-4-1 hour=14", {"verdict": "deny"}),
    "night work goes before CI's own priority": ("team.hmp", "agent=ci hour=22", {"lane": "batch", "priority": 6}),
    "an urgent call of the team": (
        "team.hmp", "agent=reviewer header.x-priority=urgent tokens.in=200k hour=2",
        {"lane": "interactive", "priority": 9},
    ),
    "which CI cannot make": ("team.hmp", "agent=ci header.x-priority=urgent hour=14", {"lane": "batch", "priority": 2}),
    "a huge call": ("team.hmp", "agent=notebook model=gpt-5 tokens.in=200k hour=14", {"lane": "batch", "priority": 1}),
    "a huge call of a cheap model": (
        "team.hmp", "agent=notebook model=gpt-4.1-mini tokens.in=200k hour=14",
        {"lane": "interactive", "priority": 5, "provider": "openai", "deadline_ns": 60 * 10**9},
    ),
    "data cannot reach Opus": ("fleet.hmp", "agent=labeler model=claude-opus-4-1", {"verdict": "deny"}),
    "platform can": (
        "fleet.hmp", "agent=triage model=claude-opus-4-1",
        {"verdict": "allow", "lane": "interactive", "provider": "anthropic-a", "group": "claude-opus-*"},
    ),
    "a second attempt is not sent to the back": (
        "fleet.hmp", "agent=refactor model=claude-sonnet-4-5 tokens.in=50k attempt=2",
        {"priority": 8, "lane": "agents"},
    ),
    "a stream that is not long goes first": ("fleet.hmp", "stream=true tokens.in=30k", {"priority": 7}),
    "a long call is not tried again": (
        "fleet.hmp", "tokens.in=150k tokens.max-out=1 attempt=2", {"priority": 2, "retry": "never"},
    ),
    "embeddings by their path": ("ollama-gpu.hmp", "path=/api/embed stream=true", {"lane": "embed"}),
    "embeddings by their model": ("ollama-gpu.hmp", "model=nomic-embed-text", {"lane": "embed", "provider": "gpu"}),
    "a customer's": (
        "company.hmp", "agent=assistant model=claude-opus-4-1",
        {"verdict": "allow", "lane": "customers", "priority": 9, "deadline_ns": 20 * 10**9, "group": "claude-opus-*"},
    ),
    "a task's": (
        "swebench.hmp", "agent=solver model=claude-sonnet-4-5 tokens.in=40k",
        {"verdict": "allow", "lane": "tasks", "priority": 5},
    ),
    "a chat": ("ollama-gpu.hmp", "model=qwen3 stream=true", {"lane": "chat", "deadline_ns": 45 * 10**9}),
    "what is neither": ("ollama-gpu.hmp", "model=qwen3", {"lane": "batch", "deadline_ns": None}),
    "a model that is not there": ("ollama-gpu.hmp", "model=gpt-5", {"provider": None}),
    "one person's": ("solo.hmp", "model=claude-opus-4-1", {"verdict": "allow", "lane": "default", "priority": 0}),
    "the demo's": ("demo.hmp", "api=anthropic model=claude-haiku-4-5", {"lane": "fleet", "provider": "simulated"}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "words", "expected"), TREATED.values(), ids=TREATED)
def test_a_shipped_policy_treats_a_call_as_its_words_say(name: str, words: str, expected: dict[str, object]) -> None:
    policy = checked(name)
    assert policy.program is not None

    treatment = policy.program.decide(parse_request(policy, words.split()))

    assert {field: getattr(treatment, field) for field in expected} == expected


def test_the_smallest_policy_needs_a_key_and_nothing_else() -> None:
    program = checked("solo.hmp").program
    assert program is not None

    assert [str(secret) for secret in program.secrets] == ["env(ANTHROPIC_API_KEY)"]
    assert program.providers["anthropic"].base == "https://api.anthropic.com"
    assert (program.server.host, program.server.port) == ("127.0.0.1", 8787)
