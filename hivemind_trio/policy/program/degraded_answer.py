"""Fields of a provider's answer for `degraded when`."""

from __future__ import annotations

from typing import final

import attrs

from hivemind_trio.model import Usage
from hivemind_trio.policy.language.condition_eval import holds
from hivemind_trio.policy.language.condition_typing import Condition, Field, Kind, reads


def answer_fields() -> dict[str, Field]:
    """Return the fields of such a condition."""
    fields = [
        *(Field(name, Kind.NUMBER) for name in ("status", "tokens.in", "tokens.out", "tokens.total")),
        Field("model", Kind.TEXT),
        Field("stream", Kind.FLAG),
    ]
    return {field.name: field for field in fields}


@final
@attrs.frozen(kw_only=True)
class FinishedAnswer:
    """One that has come to its end."""

    status: int
    model: str
    """That the call was sent with."""
    stream: bool
    usage: Usage | None
    """None: how many tokens it took is not known."""


@final
@attrs.frozen
class DegradedSettings:
    """Condition of good answers that count as failures."""

    condition: Condition

    def counts(self, answer: FinishedAnswer) -> bool:
        """Return True if this is such an answer.

        A condition on tokens that the answer does not count is not met: a missing figure is no failure.
        """
        usage = answer.usage
        unknown = ["tokens.in", "tokens.out", "tokens.total"] if usage is None else []
        if usage is not None and usage.input is None:
            unknown = ["tokens.in", "tokens.total"]
        if any(reads(self.condition, name) for name in unknown):
            return False
        usage = usage or Usage()
        values: dict[str, str | int | bool] = {
            "status": answer.status,
            "model": answer.model,
            "stream": answer.stream,
            "tokens.in": usage.total - usage.output,
            "tokens.out": usage.output,
            "tokens.total": usage.total,
        }
        return holds(self.condition, values)
