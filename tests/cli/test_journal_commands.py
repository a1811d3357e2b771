"""`usage`, `journal` and the story of a call, from journals that the proxy's own writer has written."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import attrs
import pytest
import trio
from click.testing import Result

from hivemind_trio.model import Outcome, Reason, RecordedCall
from hivemind_trio.policy import ModelPrice
from hivemind_trio.scheduler import Call, CallArrived, CallCancelled, CallId, Unretried
from hivemind_trio.store import open_journal
from tests.store.lines import JournalLine
from tests.store.written import CALL, MS, TWICE, answered, moved, tell
from tests.support.policies import compiled

DAY = 86_400 * 10**9
WALL = 1_800_000_000 * 10**9

Run = Callable[..., Result]

PROGRAM = compiled('provider anthropic { }\nmodel "*" { price input $1/Mtok output $10/Mtok }')


async def write(path: Path, days: int = 1) -> None:
    def price(model: str, provider: str | None) -> ModelPrice | None:
        return PROGRAM.price(model, provider)

    for day in range(days):
        wall_ns = WALL + day * DAY

        def clock(now: int = wall_ns) -> int:
            return now

        async with open_journal(str(path), on_trouble=pytest.fail, wall_ns=clock) as journal:
            journal.retain(10**18, 10**12)
            journal.began("0", "abcdef0123", 0, (), price)
            for number in range(1, 4):
                tell(journal, moved(TWICE if number == 3 else CALL, number * MS), number)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE answers SET name = replace(name, 'boot', 'abc123')")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    trio.run(write, path)
    return path


def names(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return [row[0] for row in database.execute("SELECT name FROM answers ORDER BY rowid")]


# ---- usage ----


def test_usage_adds_up_what_the_attempts_took(run: Run, journal: Path) -> None:
    found = run("usage", "--journal", str(journal), "--json")
    rows = json.loads(found.stdout)["rows"]

    usages = [attempt.usage for call in (CALL, CALL, TWICE) for attempt in call.attempts if attempt.usage is not None]
    assert found.exit_code == 0
    assert sum(row["calls"] for row in rows) == 3
    assert sum(row["attempts"] for row in rows) == sum(len(call.attempts) for call in (CALL, CALL, TWICE))
    assert sum(row["tokens_output"] for row in rows) == sum(usage.output for usage in usages)
    assert sum(row["tokens_input"] for row in rows) == sum(usage.input or 0 for usage in usages)
    prices = [price.cost_of(usage) for usage in usages if (price := PROGRAM.price("x", None)) is not None]
    assert sum(row["cost_usd"] for row in rows) == pytest.approx(sum(prices) / 1e6)


@pytest.mark.parametrize(
    "by",
    [
        "agent",
        "team",
        "caller",
        "credential",
        "model",
        "provider",
        "lane",
        "session",
        "day",
        "hour",
        "status",
        "reason",
    ],
)
def test_every_sum_is_the_same_whatever_it_is_divided_by(run: Run, journal: Path, by: str) -> None:
    whole = json.loads(run("usage", "--journal", str(journal), "--json").stdout)["rows"]
    rows = json.loads(run("usage", "--journal", str(journal), "--json", "--by", by).stdout)["rows"]

    for name in ("calls", "attempts", "tokens_output", "wait_s", "cost_usd"):
        assert sum(row[name] for row in rows) == pytest.approx(sum(row[name] for row in whole))


def test_usage_of_some_time_is_of_that_time(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    trio.run(write, path, 3)

    def calls(*options: str) -> int:
        rows = json.loads(run("usage", "--journal", str(path), "--json", *options).stdout)["rows"]
        return sum(row["calls"] for row in rows)

    assert calls() == 9
    assert calls("--since", "2027-01-16T00:00") == 6
    assert calls("--since", "2027-01-16T00:00", "--until", "2027-01-17T00:00") == 3
    assert calls("--until", "2020-01-01") == 0
    assert len(json.loads(run("usage", "--journal", str(path), "--by", "day", "--json").stdout)["rows"]) == 3


def test_usage_is_a_table_a_plot_and_csv_for_a_spreadsheet(run: Run, journal: Path) -> None:
    table = run("usage", "--journal", str(journal)).stdout
    plot = run("usage", "--journal", str(journal), "--plot", "--by", "day").stdout
    rows = list(csv.DictReader(io.StringIO(run("usage", "--journal", str(journal), "--csv").stdout)))

    assert table.splitlines()[0].split()[:3] == ["agent", "calls", "rejected"]
    assert "#" * 40 in plot
    assert [int(row["calls"]) for row in rows] == [3]


@pytest.mark.parametrize("agent", ["=cmd|' /C calc'!A0", "+1", "-1", "@x"])
def test_no_name_of_a_caller_is_a_formula(run: Run, tmp_path: Path, agent: str) -> None:
    path = tmp_path / "journal.db"
    trio.run(write, path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE grants SET agent = ?", (agent,))

    row, *_ = csv.DictReader(io.StringIO(run("usage", "--journal", str(path), "--csv").stdout))
    assert row["agent"] == f"'{agent}"


# ---- the story of a call ----


def test_the_story_of_a_call_has_its_waits_and_attempts(run: Run, journal: Path) -> None:
    name = names(journal)[-1]
    told = json.loads(run("explain", name, "--journal", str(journal), "--json").stdout)
    last = json.loads(run("explain", "--last", "--journal", str(journal), "--json").stdout)

    assert last["name"] == name
    assert told == last
    assert [one["provider"] for one in last["attempts"]] == [one.provider for one in TWICE.attempts]
    assert [one["outcome"] for one in last["attempts"]] == [str(one.outcome) for one in TWICE.attempts]
    assert sum(one["waited_ns"] for one in last["attempts"]) == max(one.waited_ns for one in TWICE.attempts)
    assert last["policy"] == "abcdef0123"


@pytest.mark.parametrize("why", [str(why) for why in Unretried])
def test_the_story_of_a_call_says_why_its_last_attempt_was_not_repeated(run: Run, journal: Path, why: str) -> None:
    with closing(sqlite3.connect(journal)) as database, database:
        database.execute("UPDATE ends SET unretried = ? WHERE rowid = (SELECT max(rowid) FROM ends)", (why,))

    told = run("explain", "--last", "--journal", str(journal))
    found = json.loads(run("explain", "--last", "--journal", str(journal), "--json").stdout)

    assert told.stdout.count("not retried: ") == 1
    assert [one["unretried"] for one in found["attempts"]] == [None] * (len(found["attempts"]) - 1) + [why]


def test_an_attempt_that_waited_in_vain_for_its_first_byte_has_none(run: Run, journal: Path) -> None:
    before = run("explain", "--last", "--journal", str(journal)).stdout
    with closing(sqlite3.connect(journal)) as database, database:
        database.execute("UPDATE ends SET failure = 'first-byte' WHERE rowid = (SELECT max(rowid) FROM ends)")

    after = run("explain", "--last", "--journal", str(journal)).stdout

    assert [text.count("  first byte") for text in (before, after)] == [1, 0]


def test_the_story_of_a_call_that_waited_for_its_turn_says_what_its_agent_had_had(run: Run, journal: Path) -> None:
    with closing(sqlite3.connect(journal)) as database, database:
        line = JournalLine(database)
        line.granted(1_000, 250, "hog")
        line.granted(1_260, 5, "new")
        call = line.granted(1_265, 5, "hog", waited_s=10, reason="turn")
        answer = "UPDATE answers SET call = ? WHERE rowid = (SELECT max(rowid) FROM answers)"
        database.execute(answer, (call,))

    told = run("explain", "--last", "--journal", str(journal)).stdout
    found = json.loads(run("explain", "--last", "--journal", str(journal), "--json").stdout)
    turn = found["attempts"][0]["turn"]
    text = (
        "another one went first: agent `hog` had had 250 slot-seconds of provider `sim` in the 5 minutes before, and "
        "that one 0.0"
    )

    assert (turn["caller"], turn["others"], turn["text"]) == ("hog", 1, text)
    assert f"             {text}\n" in told


def test_a_story_is_found_by_its_id_in_the_default_place(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for folder in ("a", "b"):
        (tmp_path / "hivemind-trio" / folder).mkdir(parents=True)
        trio.run(write, tmp_path / "hivemind-trio" / folder / "journal.db")
    with closing(sqlite3.connect(tmp_path / "hivemind-trio" / "a" / "journal.db")) as database, database:
        database.execute("UPDATE answers SET name = 'abc123-77' WHERE call = 2")
    os.utime(tmp_path / "hivemind-trio" / "a" / "journal.db", (1, 1))

    found = run("explain", "abc123-77")
    assert found.exit_code == 0
    assert "abc123-77" in found.stdout
    missing = run("explain", "abc123-78")
    assert missing.exit_code == 2
    assert "no call abc123-78 in 2 journals" in missing.stderr


def test_slow_calls_are_listed_the_slowest_first(run: Run, journal: Path) -> None:
    found = json.loads(run("explain", "--slow", "--since", "2020-01-01", "--journal", str(journal), "--json").stdout)

    waits = [one["waited_ns"] for one in found["calls"]]
    assert len(waits) == 3
    assert waits == sorted(waits, reverse=True)


async def write_left(path: Path) -> None:
    async with open_journal(str(path), on_trouble=pytest.fail) as journal:
        journal.began("0", "abcdef0123", 0)
        left = attrs.evolve(CALL, attempts=(), status=0)
        journal.record(0, CallArrived(Call(id=CallId(1), request=left.request, caller=left.caller)), ())
        journal.record(MS, CallCancelled(CallId(1)), ())
        waited = attrs.evolve(
            answered(left, 1), id="abc123-1", reason=Reason.PROVIDER_CONCURRENCY, lane="slow", waited_ms=900
        )
        journal.over(900 * MS, waited)
        refused = attrs.evolve(
            answered(left, None), id="abc123-2", status=426, rejected=True, reason=Reason.UPGRADE_REJECTED
        )
        journal.over(901 * MS, refused)


def test_the_story_of_a_call_that_left_says_what_it_waited_for_and_invents_no_decision(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "journal.db"
    trio.run(write_left, path)

    text = run("explain", "abc123-1", "--journal", str(path)).stdout

    assert "the client disconnected while the call waited (provider-concurrency)" in text
    assert "lane    slow" in text
    assert "decided by" not in text
    assert "raise `concurrency` of its provider" in text


def test_a_request_that_was_refused_before_it_was_a_call_is_found_by_its_name(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    trio.run(write_left, path)

    found = run("explain", "abc123-2", "--journal", str(path))

    assert found.exit_code == 2
    assert "answered with 426 (upgrade-rejected) before it was a call" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["explain"], "nothing to explain"),
        (["explain", "team.hmp", "--last"], "no call"),
        (["explain", "--last", "--agent", "nobody", "--journal", "JOURNAL"], "no call of agent nobody"),
        (["explain", "--slow", "--since", "yesterday", "--journal", "JOURNAL"], "--since yesterday: no time"),
        (["usage", "--journal", "missing.db"], "no such file"),
        (["usage", "--policy", "missing.hmp"], "missing.hmp: no such file"),
        (["journal", "vacuum", "--journal", "missing.db"], "no such file"),
        (["journal", "backup", "JOURNAL", "--journal", "JOURNAL"], "exists"),
    ],
)
def test_what_cannot_be_done_is_told_with_what_to_do_instead(
    run: Run, journal: Path, arguments: list[str], says: str
) -> None:
    found = run(*(str(journal) if word == "JOURNAL" else word for word in arguments))

    assert found.exit_code == 2
    assert says in found.stderr
    assert len(found.stderr.splitlines()) == 2


# ---- the file ----


def test_a_backup_is_a_journal_of_its_owner_alone(run: Run, journal: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"

    assert run("journal", "backup", str(copy), "--journal", str(journal)).exit_code == 0

    assert names(copy) == names(journal)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert run("usage", "--journal", str(copy)).exit_code == 0


def test_check_counts_the_bytes_of_a_journal_that_is_written(run: Run, journal: Path) -> None:
    with closing(sqlite3.connect(journal)) as writing:
        writing.execute("PRAGMA journal_mode = WAL")
        before = json.loads(run("journal", "check", "--journal", str(journal), "--json").stdout)["bytes"]
        with writing:
            writing.execute("INSERT INTO policies VALUES (1, 0, ?)", ("x" * 100_000,))

        after = json.loads(run("journal", "check", "--journal", str(journal), "--json").stdout)["bytes"]

    assert after > before + 100_000


def test_check_says_what_is_in_it_and_whether_it_is_sound(run: Run, journal: Path) -> None:
    found = json.loads(run("journal", "check", "--journal", str(journal), "--json").stdout)
    assert (found["calls"], found["sessions"], found["problems"]) == (3, 1, [])

    with closing(sqlite3.connect(journal)) as database, database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute("UPDATE sqlite_master SET rootpage = 3 WHERE name = 'calls_at'")
    damaged = run("journal", "check", "--journal", str(journal))
    assert damaged.exit_code in (1, 2)
    assert "sound" not in damaged.stdout


def test_a_vacuum_gives_the_room_of_deleted_rows_back(run: Run, journal: Path) -> None:
    with closing(sqlite3.connect(journal)) as database:
        database.execute("CREATE TABLE filler AS SELECT randomblob(2000000) AS x")
        database.commit()
        database.execute("PRAGMA auto_vacuum = NONE")
        database.execute("DROP TABLE filler")
        database.commit()
    before = journal.stat().st_size

    assert run("journal", "vacuum", "--journal", str(journal)).exit_code == 0
    assert journal.stat().st_size < before / 2
    assert len(names(journal)) == 3


def test_the_place_of_a_policy_is_printed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    policy = tmp_path / "team.hmp"
    policy.write_text('hmp 1\nprovider anthropic { }\nstore sqlite { path "here/state.db" }\n')
    missing = run("journal", "path", "--policy", str(policy))
    assert "no journal of" in missing.stderr
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "journal.db").touch()

    assert run("journal", "path", "--policy", str(policy)).stdout.strip() == str(tmp_path / "here" / "journal.db")


def test_rows_that_were_left_out_are_said_for_as_long_as_the_proxy_runs(
    journal: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacks = {"unwritten": 0, "waits_s": 0.0, "left_out": 1_200, "error": None}
    monkeypatch.setattr("hivemind_trio.cli.journal.behind.lacking", lambda _: [lacks])

    shown, listed = run("usage", "--journal", str(journal)), run("usage", "--journal", str(journal), "--json")

    said = "the journal lacks calls of the running proxy: 1,200 entries were left out for good, for too many waited"
    assert shown.stderr == listed.stderr == f"hivemind-trio: {said}\n"
    assert json.loads(listed.stdout)["journal_behind"] == lacks


S = 10**9
SERVED = CALL.attempts[0]


def refused_by(outcome: Outcome, status: int = 429, times: int = 1) -> RecordedCall:
    """A call whose first attempts the provider refused."""
    refused = attrs.evolve(SERVED, granted_ns=0, waited_ns=0, ended_ns=MS, outcome=outcome, status=status, usage=None)
    return attrs.evolve(CALL, attempts=(*(refused,) * times, SERVED))


def waited(reason: str, by_s: int = 9) -> RecordedCall:
    """A call that waited; of a rejection, one that was never sent."""
    if reason == "deadline":
        return attrs.evolve(CALL, attempts=(), refused=Reason.DEADLINE, status=429, ended_ns=by_s * S)
    attempt = attrs.evolve(SERVED, granted_ns=by_s * S, waited_ns=by_s * S, ended_ns=(by_s + 1) * S)
    return attrs.evolve(CALL, attempts=(attempt,), ended_ns=(by_s + 1) * S)


async def history(path: Path, before: list[RecordedCall], last: RecordedCall, reason: str) -> None:
    """Write calls one after another, a second apart, and one that waited for something."""
    async with open_journal(str(path), on_trouble=pytest.fail) as journal:
        journal.began("0", "abcdef0123", 0)
        for number, call in enumerate(before, 1):
            tell(journal, moved(call, number * S), number)
        tell(journal, moved(last, (len(before) + 1) * S), len(before) + 1)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE grants SET reason = ? WHERE call = ?", (reason, len(before) + 1))


FEW_REFUSED = [refused_by(Outcome.QUOTA), *[CALL] * 30]


@pytest.mark.parametrize(
    ("before", "last", "reason", "said"),
    [
        ([CALL] * 3, waited(""), "provider-concurrency", "raise `concurrency` of provider `anthropic`"),
        (FEW_REFUSED, waited(""), "provider-concurrency", "raise `concurrency` of provider `anthropic`"),
        ([refused_by(Outcome.QUOTA)], waited(""), "provider-concurrency", "it refused 1 of 3 attempts for their rate"),
        ([refused_by(Outcome.TOO_FAST)], waited(""), "limits", "it refused 1 of 3 attempts for their rate (429)"),
        ([refused_by(Outcome.BURST)], waited("deadline"), "", "it refused 1 of 2 attempts for their rate (429)"),
        ([CALL] * 2, waited("deadline"), "", "raise `deadline` of lane `default`, or `concurrency`"),
        ([refused_by(Outcome.CONCURRENCY)], waited(""), "retry", "because there were too many at once (429)"),
        ([refused_by(Outcome.OVERLOADED, 529)], waited(""), "retry", "it was overloaded and refused 1 of 3"),
        ([refused_by(Outcome.TERMINAL)], waited(""), "retry", "its credit or plan was used up (429)"),
        ([refused_by(Outcome.QUOTA)], waited(""), "lane-max", "raise `max` of lane `default`"),
        ([CALL], attrs.evolve(refused_by(Outcome.QUOTA), attempts=refused_by(Outcome.QUOTA).attempts[:1]), "none",
         "it refused 1 of 2 attempts for their rate (429)"),
        ([moved(refused_by(Outcome.QUOTA), -400 * S)], waited(""), "provider-concurrency", "raise `concurrency`"),
    ],
)  # fmt: skip
def test_no_limit_is_advised_to_be_raised_where_the_provider_refused_calls(
    before: list[RecordedCall], last: RecordedCall, reason: str, said: str, tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "refused.db"
    trio.run(history, path, before, last, reason)

    story = json.loads(run("explain", "--last", "--journal", str(path), "--json").stdout)
    text = run("explain", "--last", "--journal", str(path)).stdout

    assert said in story["faster"]
    assert f"faster: {story['faster']}\n" in text
    assert ("raise `" in story["faster"]) == said.startswith("raise `")
