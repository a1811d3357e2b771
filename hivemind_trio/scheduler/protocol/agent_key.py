"""Identity of an agent in the scheduler, and its spelling."""

from __future__ import annotations

from hivemind_trio.policy import Renames

AgentKey = tuple[bool, str]
"""(declared, name). A caller that merely calls itself `ci` is not the declared agent `ci` and shares no cap with it."""


def agent_word(key: AgentKey) -> str:
    """Return the key as one word, where others are told apart by a word too."""
    declared, name = key
    return f"{declared} {name}"


def is_declared(word: str) -> bool:
    """Return True if the word is that of a declared agent."""
    return word.startswith("True ")


def name_of_word(word: str) -> str:
    """Return the name alone, for people: that of a declared agent, or the credential or address of another."""
    declared, space, name = word.partition(" ")
    return name if space else declared


def renamed_word(word: str, renames: Renames) -> str:
    """Return the same agent's, by the name that it has now."""
    return agent_word(renames.agent_key((True, name_of_word(word)))) if is_declared(word) else word
