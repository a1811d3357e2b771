"""Result of checking a policy: sources, diagnostics, declarations and the compiled program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import attrs

from hivemind_trio.model import SecretRef
from hivemind_trio.policy.diagnostics.diagnostic import Diagnostic
from hivemind_trio.policy.language.condition_typing import Condition
from hivemind_trio.policy.program.policy_tests import PolicyTest
from hivemind_trio.policy.program.program import Program
from hivemind_trio.policy.source.source_text import Source
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.syntax.ast import File
from hivemind_trio.policy.syntax.includes import Allow

from .binder import SymbolTable


@final
@attrs.frozen(kw_only=True)
class Checked:
    """Result of the check of a policy file."""

    sources: tuple[Source, ...]
    paths: tuple[str, ...]
    """The files that were read, to watch."""
    files: tuple[File, ...]
    """Their trees, of those that are text."""
    diagnostics: tuple[Diagnostic, ...]
    """In the order of the text."""
    program: Program | None
    """None if and only if there is an error."""
    unreadable: bool
    """Some file could not be read at all."""
    hash: str
    secret_spans: Mapping[SecretRef, Span]
    """First place of each secret."""
    declarations: SymbolTable
    conditions: Mapping[str, Mapping[str, Condition | None]]
    """Kind (`agent`, `rule`, `budget`; of a `provider`, what its `degraded` says) -> name -> its typed condition."""
    tests: tuple[PolicyTest, ...]
    """Those without mistakes, in order."""
    allows: tuple[Allow, ...]
