"""`hivemind-trio explain`: of a call, of a declaration, of a code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hivemind_trio.policy import PAGES, page_text
from tests.cli.conftest import Run

TEAM = """\
defaults provider { queue 50 }
provider anthropic { concurrency 12 }
provider openai { serves ["gpt-*"] }
lane people { weight 8; reserve 4; deadline 90s }
agent ci when header.x-ci != "" { concurrency 4 }
rule no when agent == ci and model ~ "claude-opus-*" { deny "ask for Haiku" }  # hmp: allow HM603 a courtesy
rule urgent when stream { priority 9; lane people }
rule all { lane people; priority 5 }
"""


@pytest.fixture
def team(folder: Path) -> str:
    (folder / "team.hmp").write_text(TEAM)
    return "team.hmp"


def test_a_call_is_explained_as_a_table(run: Run, team: str) -> None:
    result = run("explain", team, "agent=ci", "model=claude-haiku-4-5", "stream=true")

    assert result.exit_code == 0
    assert result.stdout == (
        "verdict   admitted             built-in\n"
        "dialect   anthropic or openai  assumed: `path=` or `api=` says it\n"
        "agent     ci                   claim ci (team.hmp:5)\n"
        "team      none                 built-in\n"
        "provider  anthropic            built-in\n"
        "lane      people               rule urgent (team.hmp:7)\n"
        "priority  9                    rule urgent (team.hmp:7)\n"
        "deadline  1m30s                lane people (team.hmp:4)\n"
        "retry     default              built-in\n"
        "\n"
        "rules, top to bottom:\n"
        "  no      -                                      team.hmp:6\n"
        "  urgent  matches  decides lane, priority        team.hmp:7\n"
        "  all     matches  lane, priority decided above  team.hmp:8\n"
        "\n"
        "counts against:\n"
        "  provider anthropic  12 in flight  team.hmp:2\n"
        "  provider anthropic  50 waiting    team.hmp:2\n"
        "  agent ci            4 in flight   team.hmp:5\n"
    )


def test_a_denial_shows_its_words(run: Run, team: str) -> None:
    lines = run("explain", team, "agent=ci", "model=claude-opus-4-1").stdout.splitlines()

    assert lines[0].split("  ")[0] == "verdict"
    assert 'denied: "ask for Haiku"' in lines[0]
    assert "rule no" in lines[0]


def test_words_of_a_policy_cannot_act_on_the_terminal(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text('rule no { deny "\x1b[2J" }\nprovider anthropic { serves ["\x1b[2J"] }\n')

    assert "\x1b" not in run("explain", "team.hmp").stdout
    assert "\x1b" not in run("explain", "team.hmp", "--settings", "provider", "anthropic").stdout


def test_a_call_as_json_has_its_fields(run: Run, team: str) -> None:
    said = json.loads(run("explain", team, "agent=ci", "model=claude-haiku-4-5", "stream=true", "--json").stdout)

    assert said["format_version"] == 1
    assert (said["verdict"], said["lane"], said["priority"], said["deadline_s"]) == ("allow", "people", 9, 90.0)
    assert said["decided_by"]["lane"] == {"kind": "rule", "name": "urgent", "at": "team.hmp:7"}
    assert said["rules"][2] == {
        "rule": "all", "at": "team.hmp:8", "matches": True, "decides": [], "late": ["lane", "priority"],
    }  # fmt: skip
    assert {"of": "agent ci", "bound": "4 in flight", "at": "team.hmp:5"} in said["bounds"]


def test_a_path_says_which_dialect_is_spoken(run: Run, team: str) -> None:
    def provider(*fields: str) -> object:
        return json.loads(run("explain", team, *fields, "--json").stdout)["provider"]

    assert provider("path=/v1/messages") == "anthropic"
    assert provider("path=/v1/chat/completions") == "openai"
    assert provider("path=/v1/chat/completions", "api=anthropic") == "anthropic"


def test_a_path_keeps_all_its_dialects_as_the_proxy_does(run: Run, folder: Path) -> None:
    (folder / "two.hmp").write_text(
        'provider ollama { serves ["llama*"] }\nprovider anthropic { serves ["claude-*"] }\n'
    )

    def said(*fields: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(run("explain", "two.hmp", "path=/v1/messages", *fields, "--json").stdout)
        return found

    assert said("model=llama3.1")["provider"] == "ollama"
    assert said("model=claude-haiku-4-5")["provider"] == "anthropic"
    assert said()["apis"] == ["anthropic", "vllm", "ollama", "generic"]
    assert said("api=anthropic", "model=llama3.1")["verdict"] == "deny"


def test_a_path_that_is_shared_is_told_apart_by_the_headers(run: Run, team: str) -> None:
    def dialect(*fields: str) -> str:
        line = run("explain", team, "path=/v1/models", *fields).stdout.splitlines()[1]
        return " ".join(line.split()[1:])

    assert dialect() == "openai or anthropic by the path"
    assert dialect("header.anthropic-version=2023-06-01") == "anthropic by the path"
    assert dialect("header.x-goog-api-key=k") == "gemini by the path"


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ([], "anthropic or openai assumed: `path=` or `api=` says it"),
        (["api=openai"], "openai given"),
        (["api=none"], "none that is known given"),
        (["path=/v1/messages"], "anthropic by the path"),
        (["path=/nowhere"], "none that is known by the path"),
    ],
)
def test_the_dialect_is_shown_with_its_origin(run: Run, team: str, fields: list[str], shown: str) -> None:
    line = run("explain", team, *fields).stdout.splitlines()[1]

    assert " ".join(line.split()) == f"dialect {shown}"


REJECTED = """\
server { unknown-agent deny }
provider anthropic { serves ["claude-*"]; key env(K) }
agent ci { token env(CI_TOKEN) }
rule all { allow }
"""


@pytest.mark.parametrize(
    ("fields", "message", "by"),
    [
        (
            [],
            "unknown agent: this policy only accepts declared agents",
            {"kind": "server", "name": "", "at": "t.hmp:1"},
        ),
        (
            ["claim=ci"],
            "unknown agent: this policy only accepts declared agents",
            {"kind": "server", "name": "", "at": "t.hmp:1"},
        ),
        (["agent=ci", "model=gpt-5"], "no provider serves this call", {"kind": "built-in", "name": "", "at": ""}),
    ],
)
def test_a_call_that_the_proxy_rejects_is_not_admitted(
    run: Run, folder: Path, fields: list[str], message: str, by: dict[str, str]
) -> None:
    (folder / "t.hmp").write_text(REJECTED)

    said = json.loads(run("explain", "t.hmp", *fields, "--json").stdout)
    shown = run("explain", "t.hmp", *fields).stdout

    assert (said["verdict"], said["message"], said["decided_by"]["verdict"]) == ("deny", message, by)
    assert said["bounds"] == []
    assert f'denied: "{message}"' in shown.splitlines()[0]
    assert "counts against" not in shown


def test_a_declared_agent_is_admitted_where_unknown_ones_are_not(run: Run, folder: Path) -> None:
    (folder / "t.hmp").write_text(REJECTED)

    said = json.loads(run("explain", "t.hmp", "agent=ci", "--json").stdout)

    assert (said["verdict"], said["decided_by"]["verdict"]["name"]) == ("allow", "all")


def test_where_the_time_matters_it_is_now_and_is_said(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text("rule r when hour in 0..23 { priority 2 }\nprovider anthropic { }\n")

    here = run("explain", "team.hmp").stdout
    asked = run("explain", "team.hmp", "hour=23", "weekday=7").stdout

    dated = run("explain", "team.hmp", "time=22:30", "date=2026-12-25").stdout

    assert "; `time=` and `date=` ask for another time" in here
    assert "at 23:00 on weekday 7;" in asked
    assert "at 22:30 on 2026-12-25 (weekday 5);" in dated


def test_words_that_describe_no_call_are_wrong_usage(run: Run, team: str) -> None:
    result = run("explain", team, "mdel=x")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("hivemind-trio: no field `mdel`; did you mean `model`?\n")


@pytest.mark.parametrize(("text", "status"), [("provider anthropic { concurency 4 }", 1), (None, 2)])
def test_a_policy_with_errors_cannot_be_explained_and_they_are_shown(
    run: Run, folder: Path, text: str | None, status: int
) -> None:
    if text is not None:
        (folder / "team.hmp").write_text(text)

    result = run("explain", "team.hmp", "model=x")

    assert (result.exit_code, result.stdout) == (status, "")
    assert result.stderr.startswith("error[HM102]" if text is not None else "error[HM007]")


def test_standard_input_can_be_explained(run: Run) -> None:
    assert run("explain", "-", "model=x", stdin=TEAM).exit_code == 0


def test_colour_is_for_the_answers_and_only_if_asked(run: Run, team: str) -> None:
    plain = run("explain", team)
    colored = run("explain", team, "--color", "always")

    assert "\x1b" not in plain.stdout
    assert "\x1b[1madmitted" in colored.stdout


# ---- a declaration ----


def test_settings_are_listed_with_their_origin(run: Run, team: str) -> None:
    lines = run("explain", team, "--settings", "provider", "openai").stdout.splitlines()

    cells = {line.split()[0]: " ".join(line.split()[1:]) for line in lines[1:]}
    assert lines[0] == "provider openai"
    assert cells["serves"] == '["gpt-*"] own team.hmp:3'
    assert cells["queue"] == "50 defaults provider team.hmp:1"
    assert cells["concurrency"] == "2..64 start 8 built-in"
    assert cells["key"] == "- built-in"


def test_settings_as_json_are_the_same(run: Run, team: str) -> None:
    said = json.loads(run("explain", team, "--settings", "provider", "openai", "--json").stdout)

    rows = {row["setting"]: row for row in said["settings"]}
    assert (said["kind"], said["name"]) == ("provider", "openai")
    assert rows["queue"]["value"] == "50"
    assert rows["queue"]["origin"] == "defaults provider team.hmp:1"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("provider", "gemini"), "no provider `gemini`"),
        (("providers", "openai"), "did you mean `provider`?"),
        (("provider", "opnai"), "did you mean `openai`?"),
        (("nonsense", "openai"), "there are `server`, "),
        (("resource", "x"), "the policy declares no resource"),
        (("let", "x"), "no kind of declaration is called `let`"),
        (("provider", "openai", "model=x"), "--settings takes no fields"),
    ],
)
def test_settings_of_what_there_is_not_is_wrong_usage(run: Run, team: str, args: tuple[str, ...], says: str) -> None:
    kind, name, *fields = args

    result = run("explain", "--settings", kind, name, team, *fields)

    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


# ---- a code ----


@pytest.mark.parametrize("code", ["HM303", "hm101"])
def test_a_code_is_explained_by_its_page(run: Run, code: str) -> None:
    result = run("explain", code)

    assert (result.exit_code, result.stdout) == (0, page_text(PAGES[code.upper()]))


def test_the_beginning_of_codes_lists_them(run: Run) -> None:
    every = run("explain", "HM").stdout.splitlines()
    some = run("explain", "hm2").stdout.splitlines()

    assert [line[:5] for line in every] == list(PAGES)
    assert [line[:5] for line in some] == [code for code in PAGES if code.startswith("HM2")]
    assert "HM902  deprecated  (not looked for by this version)" in every


def test_a_code_that_there_is_not_is_wrong_usage(run: Run) -> None:
    result = run("explain", "HM999")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "hivemind-trio: no code HM999\n  `hivemind-trio explain HM` lists them all\n"


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [("", "denied"), ('rule admin when path ~ "/v1/organization*" { allow }\n', "admitted")],
    ids=["no rule", "allowed"],
)
def test_a_path_that_administers_an_account_is_explained_as_the_proxy_answers(
    run: Run, folder: Path, rule: str, verdict: str
) -> None:
    (folder / "team.hmp").write_text("provider anthropic { key env(K) }\n" + rule)

    text = run("explain", "team.hmp", "path=/v1/organizations/api_keys").stdout

    assert text.splitlines()[0].split()[1].rstrip(":") == verdict
    assert ("administers the provider's account" in text) is (verdict == "denied")


@pytest.mark.parametrize(
    ("words", "rule", "verdict"),
    [
        (["path=/favicon.ico"], "", "denied"),
        (["path=/favicon.ico"], 'rule open when path == "/favicon.ico" { allow }', "admitted"),
        (["path=/tokenize", "header.authorization=mine"], "", "admitted"),
        (["path=/tokenize", "token=ci"], "", "admitted"),
        (["path=/v1/news"], "", "admitted"),
        ([], "", "admitted"),
    ],
)
def test_a_path_of_no_api_is_explained_as_the_proxy_answers(
    run: Run, folder: Path, words: list[str], rule: str, verdict: str
) -> None:
    (folder / "team.hmp").write_text(f"provider anthropic {{ key env(K) }}\nagent ci {{ token env(CI) }}\n{rule}\n")

    text = run("explain", "team.hmp", *words).stdout

    assert text.splitlines()[0].split()[1].rstrip(":") == verdict
    assert ("unknown API path" in text) is (verdict == "denied")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["agent=ci", "path=/v1/messages"], "provider `anthropic` has no `key`"),
        (["path=/v1/messages", "method=TRACE"], "method TRACE is not forwarded"),
        (["path=/v1/v1/messages"], "take `/v1` off the base URL"),
        (["path=/chat/completions"], "end its base URL with `/v1`"),
        (["path=/v1/v1beta/models/gemini-2.5-flash:generateContent"], "the client adds `/v1beta`"),
        (["path=/v1/messages"], ""),
    ],
)
def test_what_the_proxy_does_not_forward_is_denied_in_its_words(
    run: Run, folder: Path, words: list[str], said: str
) -> None:
    (folder / "team.hmp").write_text("provider anthropic { }\nagent ci { token env(CI) }\n")

    text = run("explain", "team.hmp", *words).stdout

    assert text.splitlines()[0].split()[1].rstrip(":") == ("denied" if said else "admitted")
    assert said in text


def test_a_call_of_a_provider_with_accounts_names_those_that_it_may_use(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text(
        "provider anthropic {\n  concurrency 4\n  account prod { key env(A); for default }\n"
        "  account batch { key env(B); for night }\n"
        "  account trial { key env(C); concurrency 2; limits { requests 50/min } }\n  spread first\n}\n"
        'lane night { }\nrule late when model == "night" { lane night }\n'
    )
    result = run("explain", "team.hmp", "model=claude-haiku-4-5")

    assert "account   prod or trial  `spread first` of those with room (team.hmp:1)\n" in result.stdout
    assert "account anthropic.prod     4 in flight" in result.stdout
    assert "account anthropic.trial    2 in flight" in result.stdout
    assert "limits of anthropic.trial  50 requests per minute" in result.stdout
    assert "anthropic.batch" not in result.stdout
    assert "batch or trial" in run("explain", "team.hmp", "model=night").stdout
