"""What agents did through the proxy is done again in virtual time, and comes to the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import openai
import pytest
import trio
from click.testing import CliRunner

from hivemind_trio.cli.main import main
from hivemind_trio.sim import Traits
from hivemind_trio.store import open_journal, read_journal
from tests.e2e.house import CAP_3, Place, messages, standing

# openai-python leaves its async generators half read at the end of every stream.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator '(openai|httpx2|httpcore2):ResourceWarning")

MS: Final = 1_000_000
AGENTS: Final = 8
TURNS: Final = 3
SLOW: Final = Traits(latency_mean_ns=120 * MS, latency_sigma_ns=40 * MS, latency_min_ns=50 * MS)


async def agent(place: Place, number: int) -> None:
    """Turns one after another, with a while in between."""
    url = f"{place.url}/@agent-{number}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=f"key-{number}", max_retries=0) as client:
        for turn in range(TURNS):
            await trio.sleep(0.03 * (number % 3))
            text = messages(f"turn {turn} of {number}")
            if turn % 2:
                stream = await client.chat.completions.create(
                    model="gpt-x", messages=text, stream=True, stream_options={"include_usage": True}
                )
                async for _ in stream:
                    pass
            else:
                await client.chat.completions.create(model="gpt-x", messages=text)


async def record(path: str) -> None:
    def broke(why: str) -> None:
        raise AssertionError(why)

    async with (
        open_journal(path, on_trouble=broke) as journal,
        standing(CAP_3, traits=SLOW, journal=journal) as place,
        trio.open_nursery() as nursery,
    ):
        for number in range(AGENTS):
            nursery.start_soon(agent, place, number)


def simulate(*args: str) -> Mapping[str, Any]:
    done = CliRunner().invoke(main, ["simulate", *args, "--json"])
    assert done.exit_code == 0, done.output
    said: Mapping[str, Any] = json.loads(done.stdout)
    return said


async def test_recorded_agents_make_the_same_calls_and_wait_as_long(tmp_path: Path) -> None:
    journal, policy = str(tmp_path / "team.journal"), str(tmp_path / "team.hmp")
    (tmp_path / "team.hmp").write_text(CAP_3)
    (tmp_path / "wide.hmp").write_text(CAP_3.replace("concurrency 3", "concurrency 8"))
    await record(journal)
    calls = read_journal(journal)
    waited_s = [call.attempts[0].waited_ns / 1e9 for call in calls]

    said = simulate(policy, "--trace", journal, "--seeds", "2", "--audit", "--compare", str(tmp_path / "wide.hmp"))

    for run in said["proxy"]:
        assert (run["calls"], run["turns_done"], run["dead"]) == (AGENTS * TURNS, AGENTS * TURNS, 0)
        assert run["agents"] == AGENTS, "each agent's calls are one chain"
        assert run["tokens"] == sum(each.attempts[0].usage.total for each in calls if each.attempts[0].usage)
        # The scheduler is the same one, and times are as recorded: only what comes between two events differs.
        lane = run["lanes"]["default"]
        assert lane["mean"] / 1e9 == pytest.approx(fmean(waited_s), rel=0.05)
        assert lane["max"] / 1e9 == pytest.approx(max(waited_s), rel=0.05)
    for run in said["compare"]["proxy"]:
        assert run["lanes"]["default"]["max"] == 0, "with room for all nobody waits"
