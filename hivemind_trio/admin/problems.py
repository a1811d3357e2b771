"""Failures of operations, each with a stable code."""

from __future__ import annotations

from enum import StrEnum
from typing import final


class ProblemKind(StrEnum):
    """Public code of a failed operation."""

    NO_SUCH_RESOURCE = "no-such-resource"
    BAD_ARGUMENT = "bad-argument"
    CONFLICT = "conflict"
    NOT_ALLOWED = "not-allowed"
    QUEUE_FULL = "queue-full"
    PRECONDITION_FAILED = "precondition-failed"
    POLICY_REJECTED = "policy-rejected"


@final
class OperationFailed(Exception):  # noqa: N818 - one of the ways in which an operation ends
    """The operation cannot be done. The message says why, and what to do instead."""

    def __init__(self, kind: ProblemKind, message: str, diagnostics: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.diagnostics = diagnostics
        """Lines about a policy with errors."""
