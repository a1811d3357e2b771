"""An agent is known again by the key that its own priority is kept under."""

from __future__ import annotations

import pytest

from hivemind_trio.admin import AskingAgent
from hivemind_trio.proxy import whose


@pytest.mark.parametrize(
    ("token_agent", "name", "session"),
    [(None, "ci", ""), (None, "nightly session 3", ""), (None, "", "3"), (None, "", "a session 3"), ("ci", "ci", "")],
)
def test_an_agent_is_its_keys(token_agent: str | None, name: str, session: str) -> None:
    key = whose(token_agent, name, session)
    assert key is not None

    agent = AskingAgent.of(key)

    assert (agent.token_agent, agent.name, agent.session) == (token_agent, name, session)
