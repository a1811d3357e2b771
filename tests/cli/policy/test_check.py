"""`hivemind-trio check`: what it prints where, and with what status it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import Run

CLEAN = "provider anthropic { concurrency 4 }\n"
WARNING = "lane batch { weight 1 }\nprovider anthropic { }\n"
INFO = "rule r when stream == true { priority 2 }\nprovider anthropic { }\n"
ERROR = "provider anthropic { concurency 4 }\n"
FORMATS = ("text", "short", "json", "sarif", "github", "junit")


@pytest.mark.parametrize(("text", "status"), [(CLEAN, 0), (WARNING, 0), (INFO, 0), (ERROR, 1)])
@pytest.mark.parametrize("format_", FORMATS)
def test_the_status_is_one_exactly_if_there_is_an_error(
    run: Run, folder: Path, text: str, status: int, format_: str
) -> None:
    (folder / "team.hmp").write_text(text)

    result = run("check", "team.hmp", "--format", format_)

    assert result.exit_code == status
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("text", "denied", "status"),
    [
        (CLEAN, "warnings", 0),
        (WARNING, "warnings", 1),
        (INFO, "warnings", 0),
        (WARNING, "HM308", 1),
        (INFO, "HM903", 1),
        (WARNING, "HM407", 0),
    ],
)
def test_what_is_denied_fails_and_nothing_else(run: Run, folder: Path, text: str, denied: str, status: int) -> None:
    (folder / "team.hmp").write_text(text)

    assert run("check", "team.hmp", "--deny", denied).exit_code == status


def test_a_folder_stands_for_the_policies_in_it(run: Run, folder: Path) -> None:
    (folder / "policies" / "common").mkdir(parents=True)
    (folder / "policies" / "team.hmp").write_text(CLEAN)
    (folder / "policies" / "solo.hmp").write_text(ERROR)
    (folder / "policies" / "common" / "part.hmp").write_text(ERROR)
    (folder / "policies" / ".git").mkdir()
    (folder / "policies" / ".git" / "old.hmp").write_text(ERROR)

    result = run("check", "policies", "--format", "json")

    assert json.loads(result.stdout)["policies"] == [
        "policies/common/part.hmp", "policies/solo.hmp", "policies/team.hmp",
    ]  # fmt: skip
    assert result.stderr == ""
    assert result.exit_code == 1


def test_a_file_of_a_folder_that_another_includes_is_skipped_and_said(run: Run, folder: Path) -> None:
    (folder / "common").mkdir()
    (folder / "common" / "lanes.hmp").write_text("lane batch { }\n")
    (folder / "team.hmp").write_text('include "common/*.hmp"\nrule r { lane batch }\n' + CLEAN)

    result = run("check", ".", "--format", "json")

    assert json.loads(result.stdout)["policies"] == ["team.hmp"]
    assert json.loads(result.stdout)["diagnostics"] == []
    assert result.stderr == "skipped common/lanes.hmp: checked as a part of team.hmp\n"
    named = run("check", "common/lanes.hmp", "team.hmp", "--format", "json")
    assert json.loads(named.stdout)["policies"] == ["common/lanes.hmp", "team.hmp"]


def test_files_that_include_each_other_are_all_checked(run: Run, folder: Path) -> None:
    (folder / "a.hmp").write_text('include "b.hmp"\n' + CLEAN)
    (folder / "b.hmp").write_text('include "a.hmp"\n')

    assert json.loads(run("check", "--format", "json").stdout)["policies"] == ["a.hmp", "b.hmp"]


def test_a_folder_without_a_policy_is_wrong_usage(run: Run, folder: Path) -> None:
    (folder / "policies").mkdir()

    result = run("check", "policies")

    assert result.exit_code == 2
    assert "no *.hmp in policies" in result.stderr


@pytest.mark.parametrize(
    ("content", "is_reported"),
    [
        (b"sk-one\nsk-two\n", True),
        (b" sk-one\n", True),
        (b"sk-\xff\n", True),
        (b"sk-one\r\n", False),
        (b"\xef\xbb\xbfsk-one\n", False),
        (b"", False),
        (None, False),
    ],
)
def test_a_secret_file_that_holds_no_secret_is_an_error_without_env_too(
    run: Run, folder: Path, content: bytes | None, is_reported: bool
) -> None:
    (folder / "team.hmp").write_text('provider anthropic { key file("key") }\n')
    if content is not None:
        (folder / "key").write_bytes(content)

    result = run("check", "team.hmp", "--format", "json")

    assert result.exit_code == (1 if is_reported else 0)
    assert ["HM209"] * is_reported == [one["code"] for one in json.loads(result.stdout)["diagnostics"]]
    assert "sk-" not in result.output


@pytest.mark.parametrize(
    ("base", "codes"),
    [("https://example.com/v1/", []), ("example.com", ["HM217"]), ("http://10.0.0.7", ["HM604"])],
    ids=["good", "no URL", "plain"],
)
def test_env_looks_at_the_base_urls_of_this_machine(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, base: str, codes: list[str]
) -> None:
    (folder / "team.hmp").write_text("provider anthropic { base env(BASE); key env(KEY) }\n")
    monkeypatch.setenv("BASE", base)
    monkeypatch.setenv("KEY", "sesame")

    result = run("check", "team.hmp", "--env", "--format", "json")

    assert [one["code"] for one in json.loads(result.stdout)["diagnostics"]] == codes
    assert run("check", "team.hmp").exit_code == 0


def test_several_codes_can_be_denied(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text(INFO)

    assert run("check", "--deny", "HM407", "--deny", "HM903").exit_code == 1


def test_denying_what_there_is_not_is_wrong_usage(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text(CLEAN)

    result = run("check", "team.hmp", "--deny", "HM999")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "hivemind-trio: --deny HM999: no such code\n  `warnings`, or a code such as HM407\n"


def test_without_a_name_every_policy_of_the_folder_is_checked(run: Run, folder: Path) -> None:
    (folder / "a.hmp").write_text(CLEAN)
    (folder / "b.hmp").write_text(ERROR)
    (folder / "below").mkdir()
    (folder / "below" / "c.hmp").write_text(ERROR)

    result = run("check", "--format", "json")

    report = json.loads(result.stdout)
    assert report["policies"] == ["a.hmp", "b.hmp", str(Path("below/c.hmp"))]
    assert {one["file"] for one in report["diagnostics"]} == {"b.hmp", str(Path("below/c.hmp"))}


def test_a_folder_without_policies_is_wrong_usage(run: Run) -> None:
    result = run("check")

    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "hivemind-trio: no *.hmp in this folder or below",
        "  name a file: `hivemind-trio check team.hmp`",
    ]


def test_standard_input_is_a_policy_whose_includes_are_here(run: Run, folder: Path) -> None:
    (folder / "lanes.hmp").write_text("lane batch { burst 4 }\nrule r { lane batch }\n")

    result = run("check", "-", "--format", "short", stdin='include "lanes.hmp"\n' + ERROR)

    assert result.exit_code == 1
    assert [line.split(" error")[0] for line in result.stdout.splitlines()] == ["<stdin>:2:22:", "lanes.hmp:1:14:"]


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"\0"], ids=["missing", "utf16", "nul"])
def test_a_file_that_cannot_be_read_is_a_finding_in_every_format(
    run: Run, folder: Path, format_: str, content: bytes | None
) -> None:
    if content is not None:
        (folder / "team.hmp").write_bytes(content)

    result = run("check", "team.hmp", "--format", format_)

    assert result.exit_code == 2
    assert result.stderr == ""
    if format_ == "json":
        assert [one["code"] for one in json.loads(result.stdout)["diagnostics"]] == ["HM007"]
    elif format_ == "sarif":
        assert [one["ruleId"] for one in json.loads(result.stdout)["runs"][0]["results"]] == ["HM007"]
    else:
        assert "HM007" in result.stdout


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir], ids=["pipe", "folder"])
def test_an_include_or_a_key_that_is_no_file_is_said_to_be_none(
    run: Run, folder: Path, make: Callable[[Path], None]
) -> None:
    make(folder / "other.hmp")
    (folder / "team.hmp").write_text('include "other.hmp"\nprovider anthropic { }\n')
    (folder / "key.hmp").write_text(f'provider anthropic {{ key file("{folder}/other.hmp") }}\n')

    included, key = run("check", "team.hmp"), run("check", "key.hmp")

    assert "cannot read `other.hmp`: not a regular file\n --> team.hmp:1:9" in included.stdout
    assert f"error[HM209]: `{folder}/other.hmp` is not a regular file" in key.stdout
    assert (included.exit_code, key.exit_code) == (2, 1)


def test_on_github_the_findings_are_annotations_unless_another_format_is_asked_for(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "team.hmp").write_text(ERROR)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")

    assert run("check").stdout.startswith("::error file=team.hmp,")
    assert run("check", "--format", "text").stdout.startswith("error[HM102]")


def test_secrets_are_looked_for_only_if_asked(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "team.hmp").write_text('provider anthropic { key env(TEST_KEY) }\nprovider openai { key file("key") }\n')
    (folder / "key").write_text("x")
    (folder / "key").chmod(0o644)
    monkeypatch.delenv("TEST_KEY", raising=False)

    assert "HM" not in run("check", "--format", "short").stdout
    asked = run("check", "--format", "short", "--env")
    assert asked.exit_code == 0
    assert [line.split("[")[1][:5] for line in asked.stdout.splitlines()] == ["HM209", "HM605"]
    assert run("check", "--env", "--deny", "warnings").exit_code == 1

    monkeypatch.setenv("TEST_KEY", "not to be shown")
    (folder / "key").chmod(0o600)
    found = run("check", "--env", "--deny", "warnings")
    assert (found.exit_code, found.stdout) == (0, "team.hmp: no problems\n")


# ---- colour ----


@pytest.mark.parametrize(
    ("environment", "option", "colored"),
    [
        ({}, [], False),
        ({}, ["--color", "always"], True),
        ({"FORCE_COLOR": "1"}, [], True),
        ({"FORCE_COLOR": "1"}, ["--color", "never"], False),
        ({"NO_COLOR": "1"}, ["--color", "always"], True),
    ],
)
def test_into_a_pipe_there_are_colours_only_if_forced(
    run: Run,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    option: list[str],
    colored: bool,
) -> None:
    (folder / "team.hmp").write_text(ERROR)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert ("\x1b[" in run("check", *option).stdout) is colored
    assert ("\x1b[" in run("check", "--format", "short", *option).stdout) is colored
    assert "\x1b[" not in run("check", "--format", "json", *option).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "colored"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_on_a_terminal_there_are_colours_unless_it_says_no(
    folder: Path, environment: dict[str, str], colored: bool
) -> None:
    (folder / "team.hmp").write_text(ERROR)
    ours, theirs = os.openpty()
    try:
        kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
        command = [sys.executable, "-m", "hivemind_trio", "check", "team.hmp"]
        ended = subprocess.run(
            command, stdout=theirs, env=kept | {"TERM": "xterm"} | environment, check=False, timeout=60
        )
        os.close(theirs)
        seen = os.read(ours, 65_536)
    finally:
        os.close(ours)

    assert ended.returncode == 1
    assert (b"\x1b[" in seen) is colored
    assert b"HM102" in seen


# ---- tests in the policy ----

TESTED = """provider anthropic { concurrency 1 }
rule night when hour in 22..23 { priority 6 }
rule others { priority 2 }
test "by day" { given { hour 9 }; expect priority == 2 }
test "at night" { given any when hour == 23; expect priority == 2 }
test "a run" {
  load work { arrive 6/min }
  upstream anthropic { latency 1s..1s }
  run 1m seed 2
  expect work.wait.max <= 1ms
}
"""


@pytest.mark.parametrize(
    ("args", "codes"),
    [
        ([], ["HM501", "HM503"]),
        (["--tests", "calls"], ["HM501"]),
        (["--tests", "none"], []),
        (["--coverage"], ["HM501", "HM503"]),
    ],
    ids=lambda one: " ".join(one),
)
def test_the_tests_of_a_policy_are_run_as_far_as_is_asked(
    run: Run, folder: Path, args: list[str], codes: list[str]
) -> None:
    (folder / "team.hmp").write_text(TESTED.replace("latency 1s..1s", "latency 9s..9s"))

    result = run("check", "team.hmp", "--format", "json", *args)

    assert [one["code"] for one in json.loads(result.stdout)["diagnostics"]] == codes
    assert result.exit_code == (1 if codes else 0)
    assert result.stderr == ""


def test_coverage_names_the_rules_that_no_test_exercises_and_is_no_failure(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text(CLEAN + "rule a when stream { priority 2 }\nrule b when tools { priority 3 }\n"
                                     'test "t" { given { tools }; expect priority == 3 }\n')  # fmt: skip

    result = run("check", "team.hmp", "--coverage", "--format", "short")

    assert result.exit_code == 0
    assert re.findall(r"HM\d+|rule `\w+`", result.stdout) == ["HM311", "rule `a`"]
    assert "HM311" not in run("check", "team.hmp").stdout
    assert run("check", "team.hmp", "--coverage", "--deny", "HM311").exit_code == 1


def test_coverage_without_tests_is_wrong_usage(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text(CLEAN)

    result = run("check", "--coverage", "--tests", "none")

    assert result.exit_code == 2
    assert "--tests none" in result.stderr


def test_junit_has_a_case_for_each_policy_and_for_each_of_its_tests(run: Run, folder: Path) -> None:
    (folder / "a.hmp").write_text(TESTED.replace('"by day"', '"at night"'))
    (folder / "b.hmp").write_text(ERROR)
    (folder / "c.hmp").write_text(WARNING + 'test "\x1b[31m<&\\"" { given { }; expect admitted }\n')

    result = run("check", "--format", "junit", "--deny", "warnings")

    root = ElementTree.fromstring(result.stdout)
    assert result.exit_code == 1
    assert {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "7", "failures": "3", "errors": "0", "skipped": "0",
    }  # fmt: skip
    cases = [(case.get("name"), [inner.get("type") for inner in case]) for case in root.iter("testcase")]
    assert cases == [
        ("the policy itself", []),
        ("at night", []),
        ("at night", ["HM501"]),
        ("a run", []),
        ("the policy itself", ["HM102"]),
        ("the policy itself", ["HM308"]),
        ('␛[31m<&"', []),
    ]
    failure = root.find(".//failure")
    assert failure is not None
    assert "counterexample" in (failure.text or "")
    assert "error" not in (failure.text or "").splitlines()[-1], "how many there are is not one test's"
    assert ": got " in failure.get("message", "")


JUNIT: dict[str, tuple[set[str], set[str]]] = {
    "testsuites": ({"name", "tests", "failures", "errors", "skipped", "time"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors", "skipped", "time", "file"}, {"testcase"}),
    "testcase": ({"name", "classname", "time", "file", "line"}, {"failure", "error", "skipped"}),
    "failure": ({"message", "type"}, set()),
    "error": ({"message", "type"}, set()),
    "skipped": ({"message"}, set()),
}
"""Element -> the attributes and elements that services know of it."""


def test_junit_has_what_services_know_and_nothing_else_and_its_sums_are_right(run: Run, folder: Path) -> None:
    (folder / "a.hmp").write_text(TESTED.replace('"by day"', '"at night"'))
    (folder / "b.hmp").write_text(ERROR + TESTED)
    (folder / "c.hmp").write_text(CLEAN)

    for choice in ("all", "calls"):
        root = ElementTree.fromstring(run("check", "--format", "junit", "--tests", choice).stdout)
        for element in root.iter():
            attributes, inside = JUNIT[element.tag]
            assert set(element.keys()) - {"line"} == attributes - {"line"}, element.tag
            assert {inner.tag for inner in element} <= inside
            assert re.fullmatch(r"\d+\.\d{3}", element.get("time", "0.000"))
        for suite in (root, *root.iter("testsuite")):
            cases = list(suite.iter("testcase"))
            assert int(suite.get("tests", "")) == len(cases)
            assert float(suite.get("time", "")) == pytest.approx(sum(float(case.get("time", "")) for case in cases))
            for tag, many in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
                assert int(suite.get(many, "")) == len(list(suite.iter(tag)))


def test_junit_says_where_each_test_stands(run: Run, folder: Path) -> None:
    (folder / "a.hmp").write_text(TESTED)

    root = ElementTree.fromstring(run("check", "--format", "junit").stdout)
    lines = TESTED.splitlines()
    for case in list(root.iter("testcase"))[1:]:
        assert case.get("file") == "a.hmp"
        assert f'test "{case.get("name")}"' in lines[int(case.get("line", "")) - 1]


@pytest.mark.parametrize(
    ("text", "args", "said"),
    [
        (TESTED, (), "tests: 2 passed, 1 failed"),
        (TESTED, ("--tests", "calls"), "tests: 1 passed, 1 failed, 1 left out"),
        (TESTED, ("--tests", "none"), "tests: 3 left out"),
        (ERROR + TESTED, (), "tests: 3 not run, for the policy has errors"),
        (CLEAN, (), "team.hmp: no problems"),
    ],
    ids=["all", "calls", "none", "of a policy with errors", "there are none"],
)
def test_what_came_of_the_tests_is_counted_last(
    run: Run, folder: Path, text: str, args: tuple[str, ...], said: str
) -> None:
    (folder / "team.hmp").write_text(text)

    assert run("check", "team.hmp", *args).stdout.splitlines()[-1] == said
    assert "tests: " not in run("check", "team.hmp", "--format", "short", *args).stdout


def test_junit_says_what_was_left_out(run: Run, folder: Path) -> None:
    (folder / "a.hmp").write_text(TESTED)

    root = ElementTree.fromstring(run("check", "--format", "junit", "--tests", "none").stdout)

    assert [case.get("name") for case in root.iter("testcase") if case.find("skipped") is not None] == [
        "by day", "at night", "a run",
    ]  # fmt: skip
    assert [suite.get("skipped") for suite in root.iter("testsuite")] == ["3"]


def test_what_a_test_finds_can_be_allowed_unless_it_is_an_error(run: Run, folder: Path) -> None:
    nothing = 'test "t" {{\n{allow}\ngiven any when hour == 1 and hour == 2\nexpect admitted\n}}\n'
    (folder / "a.hmp").write_text(CLEAN + nothing.format(allow=""))
    (folder / "b.hmp").write_text(CLEAN + nothing.format(allow="# hmp: allow HM502 it is kept for later"))

    assert "HM502" in run("check", "a.hmp").stdout
    assert run("check", "b.hmp").stdout == "b.hmp: no problems\ntests: 1 passed\n"
    assert "HM502" not in run("check", "b.hmp", "--format", "junit", "--deny", "warnings").stdout


def test_a_folder_outside_the_policy_s_is_included_only_if_allowed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "team.hmp").write_text('include "../common.hmp"\nprovider anthropic { }\n')
    (tmp_path / "common.hmp").write_text("lane batch { }\nrule r { lane batch }\n")
    policy = str(tmp_path / "p" / "team.hmp")

    refused = run("check", policy)
    allowed = run("--allow-include", str(tmp_path), "check", policy)

    assert refused.exit_code == 1
    assert "HM011" in refused.output
    assert "--allow-include" in refused.output
    assert allowed.exit_code == 0, allowed.output


@pytest.mark.parametrize("through", ["file", "folder"])
def test_an_include_does_not_leave_the_folder_through_a_link(run: Run, folder: Path, through: str) -> None:
    (folder / "secret").mkdir()
    (folder / "secret" / "more.hmp").write_text("lane secret-lane { }\n")
    (folder / "team").mkdir()
    (folder / "team" / "own").mkdir()
    (folder / "team" / "own" / "lanes.hmp").write_text("lane own { }\n")
    if through == "file":
        (folder / "team" / "more.hmp").symlink_to(folder / "secret" / "more.hmp")
    else:
        (folder / "team" / "linked").symlink_to(folder / "secret")
    name = "more.hmp" if through == "file" else "linked/more.hmp"
    policy = folder / "team" / "team.hmp"
    policy.write_text(f'include "{name}"\nprovider anthropic {{ key env(K) }}\n')

    refused = run("check", str(policy))
    allowed = run("--allow-include", str(folder / "secret"), "check", str(policy))
    (folder / "team" / "inside.hmp").symlink_to("own/lanes.hmp")
    policy.write_text('include "inside.hmp"\nprovider anthropic { key env(K) }\n')

    assert "HM011" in refused.output
    assert "secret-lane" not in refused.output
    assert "HM011" not in allowed.output
    assert "HM011" not in run("check", str(policy)).output


def test_a_policy_of_a_mounted_volume_includes_its_neighbours(run: Run, folder: Path) -> None:
    (folder / "..2026").mkdir()
    (folder / "..2026" / "lanes.hmp").write_text("lane own { }\n")
    (folder / "..2026" / "team.hmp").write_text('include "lanes.hmp"\nprovider anthropic { key env(K) }\n')
    (folder / "..data").symlink_to("..2026")
    for name in ("team.hmp", "lanes.hmp"):
        (folder / name).symlink_to(f"..data/{name}")
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "team.hmp").symlink_to("../team.hmp")

    assert "HM011" not in run("check", "team.hmp").output
    assert "HM008" in run("check", "elsewhere/team.hmp").output
