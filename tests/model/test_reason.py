"""Reasons: public codes, and what belongs to each."""

from __future__ import annotations

from hivemind_trio.model import Reason


def test_a_member_is_named_as_the_code_that_users_see() -> None:
    assert [reason for reason in Reason if reason.name != reason.value.upper().replace("-", "_")] == []
