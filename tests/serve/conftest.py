"""A log that can be read."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from hivemind_trio.serve.log import LogFormat, Lossy, make_log
from tests.support.log_lines import unregistered


class Said:
    """A log, and what was written to it."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.log = make_log(Lossy(self.stream), form=LogFormat(json=True), color=False)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Without their times; each is a registered event with its fields."""
        found = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        assert [wrong for one in found if (wrong := unregistered(one))] == []
        for one in found:
            del one["timestamp"]
        return found


@pytest.fixture
def said() -> Said:
    return Said()
