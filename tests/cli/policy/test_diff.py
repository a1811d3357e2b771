"""`hivemind-trio diff`: what it prints where, and with what status it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hivemind_trio.cli.policy.diff import FORMATS
from hivemind_trio.policy import DIFF_FORMATS
from tests.cli.conftest import Run
from tests.host.test_git import commit, git

OLD = """\
provider anthropic { concurrency 8 }
lane people { weight 8 }
lane batch { weight 1 }
agent ci { lane batch }
rule big when tokens.in > 120k { lane batch; priority 1 }
rule opus when agent == ci and model ~ "claude-opus-*" { deny "CI may not use Opus" }
budget money { cost $25/day }
"""
NEW = """\
provider anthropic { concurrency 4 }
lane people { weight 8 }
lane batch { weight 1 }
agent ci { lane people }
rule big when tokens.in > 120k { lane batch; priority 2 }
budget money { cost $25/hour }
"""
BROKEN = "provider anthropic { concurency 4 }\n"

TEXT = """\
old.hmp -> new.hmp: 2 settings and 3 kinds of calls change

provider anthropic (new.hmp:1)
  concurrency  8 -> 4, lowered
               drains: calls in flight above the limit finish; no new dispatch until there is room

budget money (new.hmp:6)
  cost  $25/day -> $25/hour
        resets: the window is another one: counting starts at 0 [HM701]

calls

  agent=ci
    lane  batch -> people  agent ci (old.hmp:4) -> agent ci (new.hmp:4)

  agent=ci model=claude-opus-4-1
    verdict  denied: "CI may not use Opus" -> admitted  rule opus (old.hmp:6) -> built-in

  tokens.in=120001
    priority  1 -> 2  rule big (old.hmp:5) -> rule big (new.hmp:5)
"""


@pytest.fixture
def policies(folder: Path) -> None:
    """`old.hmp`, `new.hmp`, `same.hmp` and `broken.hmp`."""
    for name, text in {"old": OLD, "new": NEW, "same": "# the same\n" + OLD, "broken": BROKEN}.items():
        (folder / f"{name}.hmp").write_text(text)


@pytest.mark.usefixtures("policies")
def test_it_says_what_changes_and_shows_a_call_for_each_way_in_which_calls_are_treated_otherwise(run: Run) -> None:
    result = run("diff", "old.hmp", "new.hmp")

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == TEXT


@pytest.mark.usefixtures("policies")
@pytest.mark.parametrize(("new", "status"), [("new.hmp", 1), ("same.hmp", 0)])
@pytest.mark.parametrize("format_", FORMATS)
def test_the_status_says_whether_anything_changes_if_that_is_asked(
    run: Run, new: str, status: int, format_: str
) -> None:
    assert run("diff", "old.hmp", new, "--format", format_).exit_code == 0
    assert run("diff", "old.hmp", new, "--format", format_, "--exit-code").exit_code == status


@pytest.mark.usefixtures("policies")
def test_where_nothing_changes_it_says_so(run: Run) -> None:
    assert run("diff", "old.hmp", "same.hmp").stdout == "old.hmp -> same.hmp: nothing changes\n"


@pytest.mark.usefixtures("policies")
@pytest.mark.parametrize("order", [("old.hmp", "broken.hmp"), ("broken.hmp", "old.hmp"), ("old.hmp", "none.hmp")])
def test_a_policy_with_errors_is_shown_as_check_shows_it_and_not_compared(run: Run, order: tuple[str, str]) -> None:
    result = run("diff", *order, "--exit-code", "--format", "json")

    assert (result.exit_code, result.stdout) == (2, "")
    (bad,) = set(order) - {"old.hmp"}
    assert result.stderr == run("check", bad).stdout.removesuffix("1 fixable with --fix\n")


@pytest.mark.usefixtures("policies")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["old.hmp"], "expected two files"),
        (["old.hmp", "new.hmp", "same.hmp"], "expected two files"),
        (["--git", "HEAD", "old.hmp", "new.hmp"], "expected one file"),
        (["-", "-"], "standard input can be only one of the two"),
        (["--git", "HEAD", "-"], "standard input has no history"),
    ],
)
def test_wrong_usage_is_told_with_what_to_write(run: Run, words: list[str], message: str) -> None:
    result = run("diff", *words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert "hivemind-trio diff" in result.stderr


@pytest.mark.usefixtures("policies")
def test_one_of_the_two_may_be_piped_in(run: Run) -> None:
    assert run("diff", "old.hmp", "-", stdin=NEW).stdout == TEXT.replace("new.hmp", "<stdin>")


@pytest.mark.usefixtures("policies")
def test_for_machines_each_change_has_its_parts(run: Run) -> None:
    report = json.loads(run("diff", "old.hmp", "new.hmp", "--format", "json").stdout)

    assert [report[name] for name in ("format_version", "old", "new", "complete")] == [1, "old.hmp", "new.hmp", True]
    assert report["changes"][1] == {
        "kind": "budget",
        "name": "money",
        "setting": "cost",
        "change": "changed",
        "before": "$25/day",
        "after": "$25/hour",
        "state": "resets",
        "effect": "the window is another one: counting starts at 0",
        "code": "HM701",
        "at": "new.hmp:6",
    }
    assert report["calls"][1] == {
        "example": ["agent=ci", "model=claude-opus-4-1"],
        "call": {"agent": "ci", "model": "claude-opus-4-1"},
        "changes": [
            {
                "setting": "verdict",
                "before": 'denied: "CI may not use Opus"',
                "after": "admitted",
                "by_before": "rule opus (old.hmp:6)",
                "by_after": "built-in",
            }
        ],
    }


@pytest.mark.usefixtures("policies")
def test_for_a_pull_request_it_is_two_tables(run: Run) -> None:
    assert run("diff", "old.hmp", "new.hmp", "--format", "markdown").stdout == (
        "### `old.hmp` → `new.hmp`: 2 settings and 3 kinds of calls change\n"
        "\n"
        "| | setting | before | after | what runs |\n"
        "|---|---|---|---|---|\n"
        "| `provider anthropic` | `concurrency` | `8` | `4` (lowered) "
        "| drains: calls in flight above the limit finish; no new dispatch until there is room |\n"
        "| `budget money` | `cost` | `$25/day` | `$25/hour` "
        "| resets: the window is another one: counting starts at 0 [HM701] |\n"
        "\n"
        "Calls with a different decision, one example each:\n"
        "\n"
        "| a call such as | | before | after |\n"
        "|---|---|---|---|\n"
        "| `agent=ci` | lane | `batch`<br>agent ci (old.hmp:4) | `people`<br>agent ci (new.hmp:4) |\n"
        "| `agent=ci model=claude-opus-4-1` | verdict "
        '| `denied: "CI may not use Opus"`<br>rule opus (old.hmp:6) | `admitted`<br>built-in |\n'
        "| `tokens.in=120001` | priority | `1`<br>rule big (old.hmp:5) | `2`<br>rule big (new.hmp:5) |\n"
    )


def test_a_policy_s_words_are_no_markup_and_act_on_no_terminal(run: Run, folder: Path) -> None:
    (folder / "old.hmp").write_text(OLD)
    (folder / "new.hmp").write_text(OLD.replace("CI may not use Opus", "a|b ``c`` <b>\x1b[2J\u202e"))

    table = run("diff", "old.hmp", "new.hmp", "--format", "markdown").stdout
    text = run("diff", "old.hmp", "new.hmp").stdout

    assert '| ``` denied: "a\\|b ``c`` <b>' in table
    for shown in (table, text, run("diff", "old.hmp", "new.hmp", "--format", "json").stdout):
        assert not set("\x1b\u202e") & set(shown)


@pytest.mark.usefixtures("policies")
def test_into_a_pipe_there_are_colours_only_if_forced(run: Run) -> None:
    assert "\x1b[" not in run("diff", "old.hmp", "new.hmp").stdout
    assert "\x1b[" in run("diff", "old.hmp", "new.hmp", "--color", "always").stdout
    assert "\x1b[" not in run("diff", "old.hmp", "new.hmp", "--color", "always", "--format", "markdown").stdout


def test_the_formats_of_the_command_are_those_that_are_rendered() -> None:
    assert FORMATS == DIFF_FORMATS


# ---- git ----


def test_the_old_policy_may_be_what_git_has_with_all_that_it_included(run: Run, folder: Path) -> None:
    git(folder, "init", "-q")
    commit(folder, {"team.hmp": 'include "lanes.hmp"\nprovider anthropic { key file("key") }\n', "lanes.hmp": ""})
    (folder / "lanes.hmp").write_text("lane people { weight 8 }\nrule all { lane people }\n")

    result = run("diff", "--git", "HEAD", "team.hmp")

    assert result.stdout == (
        "HEAD:./team.hmp -> team.hmp: 1 setting and 1 kind of calls change\n"
        "\n"
        "lane people (lanes.hmp:1)\n"
        "  added\n"
        "    kept: waiting calls are classified again and keep their age\n"
        "\n"
        "calls\n"
        "\n"
        "  any call without these facts\n"
        "    lane  default -> people  built-in -> rule all (lanes.hmp:2)\n"
    )


def test_a_policy_that_git_does_not_have_yet_is_all_new(run: Run, folder: Path) -> None:
    git(folder, "init", "-q")
    commit(folder, {})
    (folder / "team.hmp").write_text("provider anthropic { }\n")

    result = run("diff", "--git", "HEAD", "team.hmp", "--exit-code")

    assert result.exit_code == 1
    assert result.stdout == ("(no policy) -> team.hmp: 1 setting changes\n\nprovider anthropic (team.hmp:1)\n  added\n")


def test_an_error_in_the_old_policy_is_shown_where_git_has_it(run: Run, folder: Path) -> None:
    git(folder, "init", "-q")
    commit(folder, {"team.hmp": BROKEN})
    (folder / "team.hmp").write_text(OLD)

    result = run("diff", "--git", "HEAD", "team.hmp")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "--> HEAD:./team.hmp:1:22" in result.stderr


def test_what_git_cannot_give_is_said_in_a_line(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(folder.parent))
    (folder / "team.hmp").write_text(OLD)

    assert run("diff", "--git", "HEAD", "team.hmp").stderr.startswith("hivemind-trio: `.` is in no git repository\n")
    git(folder, "init", "-q")
    commit(folder, {})
    result = run("diff", "--git", "v1", "team.hmp")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("hivemind-trio: no revision `v1` in the repository of `.`\n")
