"""Whatever could be a credential is not written down."""

from __future__ import annotations

import pytest

from hivemind_trio.dialects import CREDENTIAL_HEADERS
from hivemind_trio.model import shown_credential
from hivemind_trio.store.journal.redaction import HEADERS, METADATA, kept_credential, told


@pytest.mark.parametrize(
    "name",
    [
        *(name.decode() for name in CREDENTIAL_HEADERS),
        "cookie",
        "proxy-authorization",
        "x-amz-security-token",
        "x-hivemind-token",
        "x-my-company-secret",
        "X-Auth-Request",
        "idempotency-key",
        "x-password",
    ],
)
def test_what_is_called_like_a_credential_is_left_out(name: str) -> None:
    assert told({name: "anything"}, frozenset({name})) == {}


@pytest.mark.parametrize(
    "value",
    [
        *("Bearer abc", "bearer abc", "Authorization: Bearer abc", "Basic Zm9v", "eyJhbGciOi", "ya29.a0"),
        *("sk-ant-api03-x", "x sk-proj-1", "AIzaSyA", "gsk_1", "hf_1", "xai-1", "pplx-1", "nvapi-1"),
        *("ghp_a1", "github_pat_1", "glpat-1"),
    ],
)
def test_what_looks_like_a_credential_is_left_out(value: str) -> None:
    assert told({"user-agent": value}, HEADERS) == {}


def test_what_rules_are_written_about_is_kept() -> None:
    words = {
        "user-agent": "claude-cli/2.1.190 (external, cli)",
        "x-claude-code-session-id": "7d0a1c1e-6f0e-4f0e-9f0e-000000000001",
        "anthropic-beta": "task-budgets-2026, skills",
        "x-priority": "urgent",
        "x-ci-job": "17",
        "x-stainless-read-timeout": "600",
    }
    assert told(words, HEADERS | {"x-priority", "x-ci-job"}) == words


@pytest.mark.parametrize("name", ["x-db", "x-customer", "x-vault-path", "prompt", "x-priority", "HOST"])
def test_what_nobody_has_asked_for_is_left_out(name: str) -> None:
    assert told({name: "postgres://me:hunter2@db"}, HEADERS) == {}
    assert told({name: "postgres://me:hunter2@db"}, METADATA) == {}


def test_of_what_is_long_no_more_is_kept_than_says_something_of_a_call() -> None:
    assert told({"prompt": "x" * 100_000}, frozenset({"prompt"})) == {"prompt": "x" * 2_048}
    assert len(told({f"x-stainless-{number}": "y" for number in range(1_000)}, HEADERS)) == 128
    assert told({"user-agent": "x" * 2_040 + " sk-ant-api03"}, HEADERS) == {}, "nor the beginning of a key"


def test_rows_keep_the_beginning_of_a_credential_s_name_and_more_than_is_shown() -> None:
    name = "0123456789abcdef0123456789abcdef"

    assert name.startswith(kept_credential(name))
    assert len(shown_credential(name)) < len(kept_credential(name)) < len(name)
    assert shown_credential(kept_credential(name)) == shown_credential(name)
    assert kept_credential("") == ""
