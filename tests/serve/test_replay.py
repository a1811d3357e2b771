"""Recorded sessions are repeated exactly, and what would differ is found."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import msgspec
import pytest
import trio
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from hivemind_trio.cli.main import main
from hivemind_trio.policy import MemoryFiles, Program, check
from hivemind_trio.runtime import Engine
from hivemind_trio.scheduler import LetThrough, Pausable, PauseSet, PrioritySet, SpendingSet
from hivemind_trio.serve import Difference, NotReplayable, Replay
from hivemind_trio.store import (
    Journal,
    PolicyFiles,
    first_policy,
    open_journal,
    policy_files,
    questioned,
    recorded_events,
    recorded_sessions,
)
from tests.proxy.house import body_of, house
from tests.support.agent import Agent
from tests.support.upstream import JSON, FakeProvider, Reply, Request

POLICY = """hmp 1
provider anthropic { base "http://127.0.0.1:9"; concurrency 1..4 start 2; limits { requests 20/min } }
lane batch { weight 2; max 2 }
lane urgent { priority 5 }
rule batch when header.x-role == "batch" { lane batch }
rule urgent when stream { lane urgent }
budget day { requests 12/day; at 50% { warn } }
budget each per session { output 4k/hour; at 100% { hold } }
"""
LATER = POLICY.replace("weight 2", "weight 7").replace("12/day", "15/day")


def of(text: str) -> tuple[Program, PolicyFiles]:
    checked = check("team.hmp", MemoryFiles({"team.hmp": text}))
    assert checked.program is not None, checked.diagnostics
    return checked.program, PolicyFiles(checked.program.hash, "team.hmp", {"team.hmp": text}, None)


class Moods:
    """A provider that refuses, breaks and reports usage by chance."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def __call__(self, _: Request) -> Reply:
        mood, took_s = self.random.random(), self.random.uniform(0, 3)
        if mood < 0.15:
            return Reply(before=(took_s,), status=429, headers=[JSON, (b"retry-after", b"2")], steps=(b"{}",))
        if mood < 0.25:
            return Reply(before=(took_s,), status=529, steps=(b"{}",))
        headers = [
            JSON,
            (b"anthropic-ratelimit-requests-limit", b"20"),
            (b"anthropic-ratelimit-requests-remaining", b"%d" % self.random.randint(0, 20)),
            (b"anthropic-ratelimit-requests-reset", b"2026-11-23T12:00:10Z"),
            (b"date", b"Mon, 23 Nov 2026 12:00:00 GMT"),
        ]
        usage = b'{"usage": {"input_tokens": 50, "output_tokens": %d}}' % self.random.randint(1, 200)
        return Reply(before=(took_s,), headers=headers, steps=(usage,))


async def live(path: Path, seed: int, calls: int = 25) -> None:
    """A session of some calls, hang-ups and a reload, recorded."""
    random = Random(seed)
    program, files = of(POLICY)
    async with open_journal(str(path), on_trouble=pytest.fail) as journal:
        journal.policy(files)
        journal.began("test", program.hash, 0, program.reads)
        await _calls(journal, program, random, calls)


async def _calls(journal: Journal, program: Program, random: Random, calls: int) -> None:
    provider = FakeProvider(Moods(random.randrange(10**6)))
    async with house(program, provider, journal=journal.record, recorder=journal.record_event) as opened:
        for number in range(calls):
            if number == calls // 2:
                later, files = of(LATER)
                journal.policy(files)
                opened.engine.load(later)
            role = random.choice([b"batch", b"work"])
            headers = [(b"x-role", role), (b"x-api-key", b"sk-ant-secret"), (b"x-claude-code-session-id", b"s")]
            agent = Agent(headers=headers, body=body_of(stream=random.random() < 0.3, max_tokens=100))
            opened.nursery.start_soon(_patiently, agent, opened.door, random.uniform(1, 400))
            await trio.sleep(random.uniform(0, 2))
            _act(opened.engine, random)


def _act(engine: Engine, random: Random) -> None:
    """Do something as an operator might, and look at everything: looking must not be seen in the record."""
    occupancy, accounts = engine.occupancy(), engine.accounts()
    targets = [(Pausable.LANE, "batch"), (Pausable.PROVIDER, "anthropic"), (Pausable.AGENT, "unknown")]
    kind, name = random.choice(targets)
    match random.randrange(7):
        case 0:
            engine.post(PauseSet(kind, name, True))
        case 1:
            for paused in engine.snapshot().paused:
                engine.post(PauseSet(*paused, False))
        case 2 if occupancy.waiting:
            engine.post(PrioritySet(random.choice(occupancy.waiting).call_id, random.randint(-5, 5)))
        case 3 if occupancy.waiting:
            engine.post(LetThrough(random.choice(occupancy.waiting).call_id))
        case 4 if accounts:
            engine.post(SpendingSet(random.choice(accounts).key, random.randint(0, 12)))


async def _patiently(agent: Agent, door: object, patience_s: float) -> None:
    with trio.move_on_after(patience_s):
        await agent.call(door)  # type: ignore[arg-type]


def record(path: Path, seed: int) -> None:
    trio.run(live, path, seed, clock=MockClock(autojump_threshold=0))


def replayed(path: Path) -> tuple[Replay, Difference | None]:
    def question(database: sqlite3.Connection) -> tuple[Replay, Difference | None]:
        [(session, events, version)] = recorded_sessions(database)
        assert version == "test"
        told = Replay(lambda policy_hash: policy_files(database, policy_hash))
        found = told.run(first_policy(database, session), recorded_events(database, session))
        assert found is not None or told.events == events
        return told, found

    return questioned(str(path), question)


@pytest.mark.slow
@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_a_session_is_repeated_command_by_command(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    path = tmp_path_factory.mktemp("replay") / "j.db"
    record(path, seed)

    told, found = replayed(path)

    assert found is None
    assert told.commands > 5
    assert told.policies == 2
    assert b"sk-ant-secret" not in path.read_bytes()


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "j.db"
    record(path, 3)
    return path


def edited(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        assert database.execute(statement, values).rowcount > 0


def test_the_first_command_that_differs_is_shown(recorded: Path) -> None:
    with closing(sqlite3.connect(recorded)) as database:
        rows = database.execute("SELECT number, commands FROM events ORDER BY number").fetchall()
    number, commands = next((number, told) for number, body in rows if (told := msgspec.msgpack.decode(body)))
    name, fields = commands[0]
    assert name == "Grant"
    fields["treatment"]["lane"] = "elsewhere"
    edited(recorded, "UPDATE events SET commands = ? WHERE number = ?", msgspec.msgpack.encode(commands), number)

    _, found = replayed(recorded)
    assert found is not None
    assert found.number == number
    [(field, was, now)] = found.fields()
    assert (field, was) == ("1 Grant.treatment.lane", "elsewhere")
    assert now in ("batch", "default", "urgent")

    result = CliRunner().invoke(main, ["replay", "--journal", f"{recorded}"])
    assert result.exit_code == 1
    assert 'recorded: "elsewhere"' in result.stdout


def test_another_policy_decides_otherwise(recorded: Path) -> None:
    text = msgspec.json.encode({"team.hmp": POLICY.replace("weight 2", "priority 9")}).decode()
    edited(recorded, "UPDATE policy_files SET files = ? WHERE files LIKE '%weight 2%'", text)

    _, found = replayed(recorded)

    assert found is not None


def test_a_gap_ends_the_repetition(recorded: Path) -> None:
    edited(recorded, "DELETE FROM events WHERE number = 7")

    with pytest.raises(NotReplayable, match="events 7 to 7 are missing"):
        replayed(recorded)


def test_the_command_says_what_is_the_same_and_what_is_missing(recorded: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["replay", "--journal", f"{recorded}"])
    assert result.exit_code == 0
    assert result.stdout.endswith("commands: the same\n")

    edited(recorded, "DELETE FROM events")
    result = CliRunner().invoke(main, ["replay", "--journal", f"{recorded}"])
    assert result.exit_code == 2
    assert "serve --record" in result.stderr
