"""Status of several workers: what their supervisor alone knows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from hivemind_trio.admin import OPERATIONS, Facts, Operation, PolicyKeeper, ReloadResult
from hivemind_trio.admin.operated import NoArguments
from hivemind_trio.admin.views import CallsView
from hivemind_trio.serve.workers.answers import FleetAnswers
from hivemind_trio.serve.workers.metrics import gauge
from hivemind_trio.serve.workers.worker import WorkerLoad

from .test_merging import PROGRAM, status

FACTS = Facts(version="0", pid=1, address="", policy="team.hmp", journal=None)


class IdleWorker:
    """A worker without calls."""

    pid = 2
    taker = SimpleNamespace(rests=False)

    def __init__(self, name: str) -> None:
        self.name = name

    async def operate(self, operation: Operation, *_: Any, **__: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return status() if operation.name == "status" else CallsView(calls=())

    async def ask(self, name: str, *_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        if name == "metrics":
            return [gauge("state_writable", "", 1)]  # a worker writes no state, and knows of no trouble
        return WorkerLoad(pid=self.pid, inflight=0, waiting=0, connections=0, cpu_s=0.0)


def idle_fleet() -> Any:
    workers = {name: IdleWorker(name) for name in ("worker-1", "worker-2")}
    return SimpleNamespace(
        names=list(workers), workers=workers, starts={}, program=PROGRAM, draining=False, started_at_ns=0, began_s=0.0,
        ready=lambda: list(workers.values()),
    )  # fmt: skip


def answering(fleet: Any, last: ReloadResult | None = None, **troubles: str) -> FleetAnswers:
    unused: Any = None
    keeper = PolicyKeeper(unused, unused, lambda: last if last is not None else ReloadResult())
    return FleetAnswers(fleet=fleet, facts=FACTS, policy=keeper, note=unused, disk_troubles=troubles)


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (ReloadResult(), []),
        (
            ReloadResult(error="it has errors"),
            [("policy", "team.hmp", "it has errors (`hivemind-trio check team.hmp`)")],
        ),
        (ReloadResult(error="`listen` changed", help="restart"), [("policy", "team.hmp", "`listen` changed; restart")]),
    ],
)
async def test_the_status_of_workers_says_that_the_policy_on_disk_is_not_in_force(
    last: ReloadResult, said: list[tuple[str, str, str]]
) -> None:
    fleet = idle_fleet()
    answers = answering(fleet, last)
    view = await answers.ask(OPERATIONS["status"], NoArguments(), "me")

    start = "the policy has changed on disk and is not in force: "
    assert [(one.kind, one.subject, one.text.removeprefix(start)) for one in view.notices] == said


async def test_workers_say_that_the_supervisor_cannot_write_the_state() -> None:
    troubled, sound = answering(idle_fleet(), state="Read-only file system"), answering(idle_fleet())

    (notice,) = (await troubled.ask(OPERATIONS["status"], NoArguments(), "me")).notices
    writable = [
        sample.value
        for answers in (sound, troubled)
        for family in await answers.metrics()
        for sample in family.samples
        if sample.name == "hivemind_state_writable"
    ]

    assert (notice.kind, notice.subject) == ("disk", "state")
    assert "cannot be written: Read-only file system; calls that count against a budget wait" in notice.text
    assert writable == [1, 0]
    assert (await sound.ask(OPERATIONS["status"], NoArguments(), "me")).notices == ()
