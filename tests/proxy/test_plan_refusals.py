"""Refusals of providers that are kept for the calls that the proxy rejects meanwhile."""

from __future__ import annotations

from hivemind_trio.model import Api
from hivemind_trio.proxy.plan_refusals import ACCOUNTS_MAX, BYTES_MAX, AccountModel, PlanRefusal, PlanRefusals

S = 1_000_000_000
OF: AccountModel = ("claude", "a", "m")


def refusal(body: bytes = b"{}", *, at_s: int = 0, until_s: int = 600) -> PlanRefusal:
    headers = [
        (b"Date", b"Mon, 23 Nov 2026 15:00:00 GMT"),
        (b"Retry-After", b"600"),
        (b"x-codex-primary-reset-after-seconds", b"600"),
        (b"anthropic-ratelimit-unified-reset", b"1795446600"),
    ]
    return PlanRefusal(Api.ANTHROPIC, 429, headers, body, at_s * S, until_s * S)


def test_what_counts_seconds_has_fewer_left_and_never_none() -> None:
    for now_s, left in ((0, b"600"), (100, b"500"), (599, b"1"), (700, b"1")):
        assert refusal().headers_at(now_s * S) == [
            (b"Retry-After", left),
            (b"x-codex-primary-reset-after-seconds", left),
            (b"anthropic-ratelimit-unified-reset", b"1795446600"),
        ]


def test_it_is_for_its_account_model_and_api_until_the_reset() -> None:
    kept = PlanRefusals()
    kept.keep(OF, refusal())

    assert kept.get(OF, Api.ANTHROPIC, 599 * S) is not None
    assert kept.get(OF, Api.ANTHROPIC, 600 * S) is None
    assert kept.get(OF, Api.OPENAI, 0) is None
    assert kept.get(("claude", "b", "m"), Api.ANTHROPIC, 0) is None
    assert kept.get(("claude", "a", "other"), Api.ANTHROPIC, 0) is None


def test_one_that_names_a_reset_is_for_all_models_that_wait_for_it() -> None:
    kept = PlanRefusals()
    kept.keep(OF, refusal(b"week", until_s=9_000))
    kept.keep(("claude", "a", "other"), refusal(b"session"))
    kept.keep(("claude", "b", "m"), refusal(b"another's"))
    asking = ("claude", "a", "third")

    found = kept.of_reset(asking, Api.ANTHROPIC, 601 * S)
    assert found is not None
    assert found.body == b"session"
    assert kept.of_reset(asking, Api.ANTHROPIC, 800 * S) is None
    assert kept.of_reset(asking, Api.OPENAI, 600 * S) is None


def test_what_answers_tell_of_an_account_is_told_of_all_its_models_and_of_no_window() -> None:
    never = (b"Anthropic-RateLimit-Unified-Overage-Disabled-Reason", b"org_level_disabled")
    used = (b"anthropic-ratelimit-unified-5h-utilization", b"0.5")
    kept = PlanRefusals()
    kept.note(OF, [(b"date", b"now"), used, never])
    other = ("claude", "a", "other")

    assert kept.told(other) == [never]
    assert kept.told(("claude", "b", "m")) == []
    kept.note(OF, [(b"date", b"a gateway's own answer")])
    assert kept.told(other) == [never]
    kept.note(OF, [used])
    assert kept.told(other) == [], "it pays now"


def test_they_are_bounded() -> None:
    kept = PlanRefusals()
    kept.note(OF, [(b"anthropic-ratelimit-unified-overage-disabled-reason", b"x")])
    for number in range(ACCOUNTS_MAX):
        kept.note(("claude", f"{number}", "m"), [(b"anthropic-ratelimit-unified-overage-disabled-reason", b"x")])
    assert kept.told(OF) == []
    assert kept.told(("claude", "0", "m")) != []

    kept.keep(OF, refusal())
    kept.keep(("claude", "long", "m"), refusal(b"x" * (BYTES_MAX + 1)))
    for number in range(ACCOUNTS_MAX):
        kept.keep(("claude", f"{number}", "m"), refusal())

    assert kept.get(OF, Api.ANTHROPIC, 0) is None
    assert kept.get(("claude", "long", "m"), Api.ANTHROPIC, 0) is None
    assert kept.get(("claude", "0", "m"), Api.ANTHROPIC, 0) is not None
