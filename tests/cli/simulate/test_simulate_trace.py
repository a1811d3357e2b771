"""`hivemind-trio simulate --trace`, in process: agents that were recorded, before another policy."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import attrs
import pytest
import trio

from hivemind_trio.model import Api, Outcome, RecordedCall, Usage
from hivemind_trio.store import open_journal
from hivemind_trio.store.journal.journal_file import JournalFile
from hivemind_trio.store.journal.tables import VERSION
from tests.cli.conftest import Run
from tests.store.written import CALL, moved, tell

POLICY = "provider anthropic { key env(K); concurrency 1 }\n"
SECOND = 1_000_000_000


def write(path: Path, calls: Sequence[RecordedCall]) -> None:
    async def written() -> None:
        async with open_journal(str(path), on_trouble=print) as journal:
            journal.began("0", "hash", 0)
            for number, call in enumerate(calls, start=1):
                tell(journal, call, number)

    trio.run(written)


def calls(*callers: str) -> list[RecordedCall]:
    """Of each of them one, all at once."""
    request = attrs.evolve(CALL.request, apis=(Api.ANTHROPIC,), path="/v1/messages", headers={})
    return [attrs.evolve(CALL, request=request, caller=caller, again=caller) for caller in callers]


@pytest.fixture
def files(folder: Path) -> Path:
    (folder / "team.hmp").write_text(POLICY)
    (folder / "wide.hmp").write_text(POLICY.replace("concurrency 1", "concurrency 3"))
    asking = calls("a", "b", "c")
    later = [moved(call, 60 * SECOND) for call in asking[:1]]
    count = attrs.evolve(moved(asking[0], 90 * SECOND), needs_slot=False, attempts=())
    write(folder / "team.journal", [*asking, *later, count])
    return folder


def test_recorded_agents_are_put_to_another_policy(run: Run, files: Path) -> None:
    result = run("simulate", "team.hmp", "--trace", "team.journal", "--seeds", "2", "--audit", "--compare", "wide.hmp")

    assert result.exit_code == 0, result.output
    head, *_ = result.stdout.splitlines()
    assert head == ("team.journal: 4 recorded calls, 3 chains of them, over 0:01:00; 1 that need no slot are left out")
    said = {line.split("  ")[0]: line.split() for line in result.stdout.splitlines()}
    assert said["lane default"][2:6] == ["4", "0", "0", "s"]
    assert "no agent" not in result.stdout
    assert "0.2 s" in result.stdout, "the third waited for the two before it"


def test_a_reserve_is_tried_on_the_plan_that_was_read(run: Run, folder: Path) -> None:
    policy = "provider anthropic { PLAN }\nlane mine { }\nrule mine when agent != ci { lane mine }\nagent ci { }\n"
    (folder / "old.hmp").write_text(policy.replace("PLAN", ""))
    plan = "plan { reserve 90% of session for mine release never }"
    (folder / "new.hmp").write_text(policy.replace("PLAN", plan))
    made = [moved(calls(str(number))[0], number * 10 * SECOND) for number in range(10)]
    used = Usage(input=9_000, output=1_000)
    made = [
        attrs.evolve(
            call,
            credential="me",
            request=attrs.evolve(call.request, token_agent="ci"),
            attempts=tuple(attrs.evolve(each, usage=used) for each in call.attempts),
        )
        for call in made
    ]
    write(folder / "team.journal", made)
    with closing(sqlite3.connect(folder / "team.journal")) as database:
        database.execute(
            "INSERT INTO plans SELECT session, call, at_ns, 'anthropic', 'me', '5h', 'session', '', "
            "40000 * (SELECT count(*) FROM ends AS e WHERE e.at_ns <= ends.at_ns), 9000000000000, 0 FROM ends"
        )
        database.commit()

    result = run("simulate", "old.hmp", "--trace", "team.journal", "--seeds", "1", "--compare", "new.hmp")

    assert "plans as they were read then: anthropic: session of about 250,000 tokens" in result.output
    used_at_most = [line.split()[2] for line in result.output.splitlines() if line.startswith("anthropic session")]
    assert len(used_at_most) == 2
    old, new = (float(share.rstrip("%")) for share in used_at_most)
    assert old == pytest.approx(44, abs=5)
    assert new <= 15, "calls of others wait from 10 % on"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "1h"], "4 recorded calls"),
        (["--agent", "ci"], "4 recorded calls"),
        (["--until", "2020-01-01"], "the journal has no calls of that time and agent"),
        (["--agent", "nobody"], "the journal has no calls of that time and agent"),
    ],
)
def test_calls_of_some_time_or_agent_are_replayed(run: Run, files: Path, options: list[str], said: str) -> None:
    result = run("simulate", "team.hmp", "--trace", "team.journal", "--seeds", "1", *options)

    assert said in result.output


def test_a_choice_of_calls_needs_a_trace(run: Run, files: Path) -> None:
    result = run("simulate", "team.hmp", "--since", "1h")

    assert result.exit_code == 2
    assert "add `--trace JOURNAL`" in result.output


def test_of_the_recorded_day_it_is_said_how_many_calls_failed(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text(POLICY)
    ended = [
        attrs.evolve(call, status=status) for call, status in zip(calls("a", "b", "c"), (529, 0, 200), strict=True)
    ]
    write(folder / "bad.journal", ended)

    said = " ".join(run("simulate", "team.hmp", "--trace", "bad.journal", "--seeds", "1").stdout.split())

    assert "On the recorded day 2 of 3 calls failed; the simulated providers fail only as the policy" in said
    assert "would die" not in said


def test_of_the_recorded_day_it_is_said_how_many_attempts_were_refused(run: Run, folder: Path) -> None:
    """Every agent got through then, for the proxy retried: the provider has refused all the same."""
    (folder / "team.hmp").write_text(POLICY)
    ended = []
    for call in calls("a", "b"):
        (attempt,) = call.attempts
        bad = attrs.evolve(attempt, outcome=Outcome.OVERLOADED, status=529)
        ended.append(attrs.evolve(call, attempts=(bad, attempt)))
    write(folder / "rough.journal", ended)

    said = " ".join(run("simulate", "team.hmp", "--trace", "rough.journal", "--seeds", "1").stdout.split())

    assert "On the recorded day 0 of 2 calls failed, and providers refused 2 of 4 attempts; the simulated" in said


def test_a_limit_that_a_provider_showed_is_the_simulated_provider_s(run: Run, folder: Path) -> None:
    """Thirty agents at once, of which a provider took four: nobody may say that all thirty would get through."""
    (folder / "team.hmp").write_text("provider anthropic { key env(K); concurrency 2..64 }\n")
    (accepted,) = CALL.attempts
    refused = attrs.evolve(accepted, outcome=Outcome.OVERLOADED, status=529, committed=False, usage=None)
    day = [
        attrs.evolve(call, attempts=(accepted if number < 4 else refused,), status=200 if number < 4 else 529)
        for number, call in enumerate(calls(*(f"agent-{number}" for number in range(30))))
    ]
    write(folder / "bad.journal", day)

    said = " ".join(run("simulate", "team.hmp", "--trace", "bad.journal", "--seeds", "1").stdout.split())
    met = json.loads(run("simulate", "team.hmp", "--trace", "bad.journal", "--seeds", "1", "--json").stdout)

    assert "On the recorded day 26 of 30 calls failed." in said
    assert "anthropic refused 26 attempts then, 26 of them beyond 4 requests at once; it is simulated with" in said
    assert "Directly at the providers 26 would die." in said
    assert met["limits_met"]["anthropic"]["limit"] == 4


def test_agents_that_a_policy_does_not_have_are_said_to_be_unknown_there(run: Run, files: Path) -> None:
    told = [attrs.evolve(each, request=attrs.evolve(each.request, token_agent="ci")) for each in calls("a", "b")]
    write(files / "ci.journal", told)
    (files / "ci.hmp").write_text(POLICY + "agent ci { token env(T) }\n")

    result = run("simulate", "team.hmp", "--trace", "ci.journal", "--seeds", "1", "--compare", "ci.hmp")
    known = run("simulate", "ci.hmp", "--trace", "ci.journal", "--seeds", "1")

    assert "Recorded calls with the token of `ci` are unknown callers' where the policy has no such agent." in (
        " ".join(result.stdout.split())
    )
    assert "unknown callers" not in known.stdout


def test_a_plot_and_json_are_made_of_them(run: Run, files: Path) -> None:
    result = run("simulate", "team.hmp", "--trace", "team.journal", "--seeds", "1", "--json", "--plot", "out.svg")

    said = json.loads(result.stdout)
    assert said["scenario"] == "team.journal"
    assert [(each["calls"], each["turns_done"]) for each in said["proxy"]] == [(4, 4)]
    assert said["proxy"][0]["lanes"]["default"]["max"] == 200_000_000
    assert (files / "out.svg").read_text().startswith("<svg")


def test_a_scenario_says_what_the_providers_are_like(run: Run, files: Path) -> None:
    (files / "slow.toml").write_text('[[agents]]\ncount = 99\n[[upstream]]\nlatency = "7s"\nas-declared = true\n')

    result = run("simulate", "team.hmp", "--trace", "team.journal", "--scenario", "slow.toml", "--seeds", "1", "--json")

    run_ = json.loads(result.stdout)["proxy"][0]
    assert (run_["agents"], run_["lanes"]["default"]["max"]) == (3, 14 * SECOND)


def test_a_scenario_s_own_agents_may_be_recorded_beside_it(run: Run, files: Path) -> None:
    (files / "days").mkdir()
    (files / "team.journal").rename(files / "days" / "monday.journal")
    (files / "days" / "mine.toml").write_text('[[agents]]\njournal = "monday.journal"\n[[agents]]\nname = "more"\n')

    result = run("simulate", "team.hmp", "--scenario", "days/mine.toml", "--seeds", "1", "--json")

    assert json.loads(result.stdout)["proxy"][0]["agents"] == 4
    compared = run("diff", "team.hmp", "wide.hmp", "--simulate", "--scenario", "days/mine.toml", "--seeds", "1")
    assert compared.exit_code in (0, 1), compared.output
    assert "days/mine.toml" in compared.stdout


def test_a_journal_that_is_being_written_is_read(run: Run, files: Path) -> None:
    with closing(sqlite3.connect("team.journal", isolation_level=None)) as other:
        file = JournalFile.open("team.journal")
        try:
            other.execute("BEGIN IMMEDIATE")
            result = run("simulate", "team.hmp", "--trace", "team.journal", "--seeds", "1")
            assert result.exit_code == 0, result.output
            other.execute("ROLLBACK")
        finally:
            file.close(None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("team.hmp", "--trace", "no.journal"), "--trace no.journal: no such file"),
        (("team.hmp", "--trace", "."), "--trace .: it is a folder"),
        (("team.hmp", "--trace", "/dev/null"), "--trace /dev/null: not a regular file"),
        (
            ("team.hmp", "--trace", "team.hmp"),
            "--trace team.hmp: not a journal\n  name a file that",
        ),
        (("team.hmp", "--trace", "newer.journal"), f"version {VERSION + 1}, and this hivemind-trio knows up to"),
        (("team.hmp", "--trace", "empty.journal"), "has no calls"),
        (("team.hmp", "--trace", "counts.journal"), "has only calls that need no slot"),
        (("--trace", "team.journal"), "simulate team.hmp --trace team.journal"),
        (("other.hmp", "--trace", "team.journal"), "agents `ci`: no provider serves `claude-x`"),
        (("team.hmp", "--scenario", "bad.toml"), "bad.toml:2: agents[1].journal: `team.hmp`: not a journal"),
        (("team.hmp", "--trace", "team.journal", "--scenario", "bad2.toml"), "bad2.toml:2: upstream[1].latency"),
    ],
    ids=str,
)
def test_what_cannot_be_replayed_is_told_with_what_to_do_instead(
    run: Run, files: Path, args: tuple[str, ...], said: str
) -> None:
    write(files / "empty.journal", [])
    write(files / "counts.journal", [attrs.evolve(call, needs_slot=False, attempts=()) for call in calls("a")])
    write(files / "newer.journal", calls("a"))
    with closing(sqlite3.connect(files / "newer.journal")) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    (files / "other.hmp").write_text('provider anthropic { key env(K); serves ["gpt-*"] }\n')
    (files / "bad.toml").write_text('[[agents]]\njournal = "team.hmp"\n')
    (files / "bad2.toml").write_text("[[upstream]]\nlatency = 5\n")

    result = run("simulate", *args)

    assert result.exit_code == 2, result.output
    assert said in result.output
    assert "Traceback" not in result.output


def test_what_agents_once_asked_for_cannot_act_on_the_terminal(run: Run, files: Path) -> None:
    strange = [attrs.evolve(each, request=attrs.evolve(each.request, model="\x1b[2J")) for each in calls("a")]
    write(files / "strange.journal", strange)
    (files / "other.hmp").write_text('provider anthropic { key env(K); serves ["gpt-*"] }\n')

    result = run("simulate", "other.hmp", "--trace", "strange.journal")

    assert "no provider serves `␛[2J`" in result.stderr
    assert "\x1b" not in result.output
