"""Advice in the story of a call: it names what a policy has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from hivemind_trio.admin.story import advice
from hivemind_trio.store import CallStory


def test_a_fallback_is_advised_for_the_provider_of_an_account() -> None:
    attempt = SimpleNamespace(reason="retry", waited_ns=10**9, provider="claude.prod", budgets=(), outcome="succeeded")
    story = SimpleNamespace(
        attempts=(attempt,),
        refused=None,
        reason="retry",
        waited_ns=10**9,
        lane="default",
        agent="ci",
        refusals=None,
    )

    said = advice(cast(CallStory, story))

    assert said == "add `fallback` to provider `claude`, so that a retry goes elsewhere"


def test_limits_are_advised_where_a_provider_refused_calls_for_their_rate() -> None:
    attempt = SimpleNamespace(reason="growth", waited_ns=10**9, provider="claude", budgets=(), outcome="succeeded")
    story = SimpleNamespace(
        attempts=(attempt,),
        refused=None,
        reason="growth",
        waited_ns=10**9,
        lane="default",
        agent="ci",
        refusals=None,
    )

    assert advice(cast(CallStory, story)).startswith("declare the `limits` of provider `claude`")
