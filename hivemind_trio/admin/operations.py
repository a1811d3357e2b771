"""Table of operations: name, arguments, result. Every door is a table from its own words to these names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import attrs

from . import show
from .operated import Operated
from .views import BudgetsView, CallsView, CallView, QueueView, StatusView


@final
@attrs.frozen
class Operation:
    """One operation."""

    name: str
    run: Callable[[Operated, Any], Any]
    """Given the proxy and the arguments; its docstring describes the operation to operators."""
    arguments: type
    result: type

    @property
    def summary(self) -> str:
        """First line of the description, for documents."""
        return (self.run.__doc__ or "").split("\n")[0]


_ALL: Final = (
    Operation("status", show.status, show.NoArguments, StatusView),
    Operation("queue", show.queue, show.NoArguments, QueueView),
    Operation("calls", show.calls, show.WhichCalls, CallsView),
    Operation("call", show.call, show.OneCall, CallView),
    Operation("budgets", show.budgets, show.NoArguments, BudgetsView),
)

OPERATIONS: Final = {operation.name: operation for operation in _ALL}
