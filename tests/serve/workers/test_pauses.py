"""Pauses hold for a worker that begins to serve while the others are told of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from hivemind_trio.admin import OPERATIONS, OperationFailed, ProblemKind
from hivemind_trio.admin.change import Pausee
from hivemind_trio.admin.views import PausedView
from hivemind_trio.runtime import Engine
from hivemind_trio.scheduler import Pausable
from hivemind_trio.serve.workers.answers import FleetAnswers
from hivemind_trio.serve.workers.worker import pause_only
from tests.support.policies import compiled

KEY = Pausable.AGENT, "ci"


@pytest.mark.parametrize(("name", "before", "meanwhile"), [("pause", {}, {KEY: None}), ("resume", {KEY: None}, {})])
@pytest.mark.parametrize("is_refused", [False, True])
async def test_the_supervisor_notes_a_pause_before_it_asks_and_takes_it_back_if_none_does_it(
    name: str, before: dict[Any, None], meanwhile: dict[Any, None], is_refused: bool
) -> None:
    fleet: Any = SimpleNamespace(paused=dict(before))
    seen: list[dict[Any, None]] = []

    async def operate(*_: Any, **__: Any) -> PausedView:
        await trio.lowlevel.checkpoint()
        seen.append(dict(fleet.paused))
        if is_refused:
            raise OperationFailed(ProblemKind.NO_SUCH_RESOURCE, "no such agent")
        return PausedView(paused=())

    fleet.ready = lambda: [SimpleNamespace(name="worker-1", operate=operate)]
    unused: Any = None
    answers = FleetAnswers(fleet=fleet, facts=unused, policy=unused, note=unused, disk_troubles={})
    asked = answers.ask(OPERATIONS[name], Pausee(kind=KEY[0], name=KEY[1]), "me")
    if is_refused:
        with pytest.raises(OperationFailed, match="no such agent"):
            await asked
    else:
        await asked

    assert seen == [meanwhile]
    assert fleet.paused == (before if is_refused else meanwhile)


async def test_a_worker_pauses_what_it_is_told_and_nothing_else() -> None:
    engine = Engine(compiled("provider anthropic { }"))
    lane = Pausable.LANE, "default"

    pause_only(engine, [KEY])
    first = engine.snapshot().paused
    pause_only(engine, [lane])

    assert first == (KEY,)
    assert engine.snapshot().paused == (lane,)
