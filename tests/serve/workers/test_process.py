"""A worker from its start to its end, as the supervisor sees it."""

from __future__ import annotations

import errno
import os
import time
from typing import Any

import pytest
import trio

from hivemind_trio.serve.workers.handing import ConnectionBoard
from hivemind_trio.serve.workers.process import WorkerProcess


async def test_a_process_that_cannot_be_started_has_ended_and_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fails(*_: Any, **__: Any) -> trio.Process:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(trio.lowlevel, "open_process", fails)
    board = ConnectionBoard.create(1)
    before = os.listdir("/proc/self/fd")
    worker = WorkerProcess.create("worker-1", 0, 1, board)

    with trio.fail_after(20):
        ended, charged = await worker.run(None, time.time_ns)

    assert (ended, dict(charged)) == ("it could not be started: Cannot allocate memory", {})
    assert worker.channel.closed.is_set()
    assert os.listdir("/proc/self/fd") == before
