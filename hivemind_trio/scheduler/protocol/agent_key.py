"""Identity of an agent in the scheduler, and its spelling."""

from __future__ import annotations

from hivemind_trio.policy import Renames

AgentKey = tuple[bool, str]
"""(declared, name). A caller that merely calls itself `ci` is not the declared agent `ci` and shares no cap with it."""


def agent_word(key: AgentKey) -> str:
    """Return the key as one word, where others are told apart by a word too."""
    declared, name = key
    return f"{declared} {name}"


def name_of_word(word: str) -> str:
    """Return the name alone, for people: that of a declared agent, or the credential or address of another."""
    return word.partition(" ")[2]


def renamed_word(word: str, renames: Renames) -> str:
    """Return the same agent's, by the name that it has now."""
    declared, _, name = word.partition(" ")
    return agent_word(renames.agent_key((True, name))) if declared == "True" else word
