"""What an operator is told of a provider that is in trouble, and of what becomes of its calls."""

from __future__ import annotations

import io

import pytest
import trio

from hivemind_trio.model import Outcome
from hivemind_trio.policy import MemoryFiles
from hivemind_trio.scheduler import Circuit, LimitChanged
from hivemind_trio.serve import Options
from hivemind_trio.serve.load import load
from hivemind_trio.serve.log import LogFormat, Lossy, Notices
from hivemind_trio.serve.watcher import Watcher

from .conftest import Said

OTHER = 'provider other { api anthropic; base "https://other.example" }\n'


async def watcher(said: Said, settings: str) -> Watcher:
    text = f"provider anthropic {{ {settings} }}\n{OTHER}"
    made = Watcher(said.log, LogFormat(json=True), Lossy(io.StringIO()), Notices(said.log), Options())
    made.running = await trio.to_thread.run_sync(load, "team.hmp", MemoryFiles({"team.hmp": text}))
    return made


def adapted(circuit: Circuit, because: Outcome | None, limit: int = 8) -> LimitChanged:
    return LimitChanged(provider="anthropic", limit=limit, circuit=circuit, because=because)


@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        ("", {"calls": "hold"}),
        ("open refuse", {"calls": "refuse"}),
        ("fallback other", {"calls": "fallback", "fallback": "other"}),
        ("fallback other; open hold", {"calls": "hold"}),
    ],
)
async def test_one_that_is_left_alone_and_what_its_calls_do(said: Said, settings: str, calls: dict[str, str]) -> None:
    told = await watcher(said, settings)

    told.adapted(adapted(Circuit.OPEN, Outcome.FAILED))

    (line,) = said.lines
    assert (line["event"], line["level"], line["provider"]) == ("circuit_opened", "warning", "anthropic")
    assert line["outcome"] == "failed"
    assert {name: line[name] for name in ("calls", "fallback") if name in line} == calls


async def test_each_turn_of_a_circuit_is_one_line(said: Said) -> None:
    told = await watcher(said, "")

    for circuit, because in (
        (Circuit.CLOSED, Outcome.SUCCEEDED),
        (Circuit.OPEN, Outcome.UNREACHABLE),
        (Circuit.OPEN, Outcome.UNREACHABLE),
        (Circuit.HALF_OPEN, None),
        (Circuit.CLOSED, Outcome.SUCCEEDED),
    ):
        told.adapted(adapted(circuit, because))

    said_of_it = [line["event"] for line in said.lines if line["event"].startswith("circuit")]
    assert said_of_it == ["circuit_opened", "circuit_half_opened", "circuit_closed"]


async def test_that_fewer_calls_go_at_a_time_is_said_and_that_more_do_is_not(said: Said) -> None:
    told = await watcher(said, "")

    told.adapted(adapted(Circuit.CLOSED, Outcome.OVERLOADED))
    told.adapted(adapted(Circuit.CLOSED, Outcome.SUCCEEDED))

    (line,) = said.lines
    assert (line["event"], line["limit"], line["outcome"]) == ("concurrency_limit_lowered", 8, "overloaded")


async def test_a_limit_that_falls_far_within_a_minute_is_told_on_its_way(said: Said) -> None:
    """A storm of overloads lowers 64 to 1 in seconds, and the minute after it is the one in which somebody looks."""
    told = await watcher(said, "")

    for limit in (52, 50, 40, 26, 20, 10, 9, 5, 2, 1, 2, 1):
        told.adapted(adapted(Circuit.CLOSED, Outcome.OVERLOADED, limit))

    assert [line["limit"] for line in said.lines] == [52, 26, 10, 5, 2, 1]
