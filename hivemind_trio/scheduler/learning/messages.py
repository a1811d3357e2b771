"""Messages between scheduler and store about what nodes learn of a provider together."""

from __future__ import annotations

from typing import final

import attrs

from .lesson import LearnAnswer, LearnAsk


@final
@attrs.frozen
class LearningShared:
    """From now on one limit and one circuit of each provider is learned with other nodes. Sent once."""

    renew_ns: int
    """Longest time between two reports."""
    alone_ns: int
    """Silence of the store after which this node learns for itself."""


@final
@attrs.frozen
class LearnAnswered:
    """The store has answered a report."""

    provider: str
    answer: LearnAnswer


@final
@attrs.frozen
class LearnUnanswered:
    """The store has not answered a report in time; its answer, should it come, is not told."""

    provider: str
    seq: int


@final
@attrs.frozen
class LearnCalled:
    """Another node has something to say about a provider."""

    provider: str


@final
@attrs.frozen
class AskLearning:
    """Tell the store, and answer with `LearnAnswered` or `LearnUnanswered`. At most one per provider is under way."""

    provider: str
    ask: LearnAsk
    """Without the node's name and start, which the driver knows."""
