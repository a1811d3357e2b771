"""Where `serve` does not start: before anything listens, with a status and a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from hivemind_trio.policy import MemoryFiles, Program, check
from hivemind_trio.serve import Options, main
from hivemind_trio.serve.load import load
from hivemind_trio.serve.options import exposed

OPEN = "hmp 1\nprovider anthropic { key env(A_KEY) }\n"
GUARDED = OPEN + "agent ci { token env(A_TOKEN) }\n"
EVERYWHERE = 'server { listen "0.0.0.0:0" }\n'


def program(text: str) -> Program:
    checked = check("p.hmp", MemoryFiles({"p.hmp": text}))
    assert checked.program is not None, checked.diagnostics
    return checked.program


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.53", "::1", "localhost"])
def test_this_machine_alone_may_be_listened_on_without_tokens(host: str) -> None:
    assert exposed(host, program(OPEN)) == ""


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "proxy.example.com", "localhost.example.com", ""])
def test_anything_else_takes_tokens(host: str) -> None:
    assert "token env(NAME)" in exposed(host, program(OPEN))
    assert exposed(host, program(GUARDED)) == ""


@pytest.mark.parametrize(
    ("text", "host", "refuses"),
    [
        (GUARDED, None, False),
        (GUARDED, "0.0.0.0", True),
        (GUARDED + EVERYWHERE, None, True),
        (GUARDED + EVERYWHERE, "127.0.0.1", False),
        (GUARDED + "server { unknown-agent allow }\n", "::", False),
        (GUARDED + "server { unknown-agent deny }\n", "127.0.0.1", True),
    ],
)
def test_unknown_callers_are_rejected_where_a_network_reaches_the_proxy(
    text: str, host: str | None, refuses: bool
) -> None:
    loaded = load("p.hmp", MemoryFiles({"p.hmp": text}), host)

    assert loaded.program.server.refuse_unknown is refuses


@pytest.mark.parametrize(
    ("more", "codes"),
    [
        ("", {"HM606"}),
        ("server { unknown-agent allow }\n", {"HM601", "HM606"}),
        ("agent laptop { }\n", {"HM601", "HM606"}),
        (EVERYWHERE, {"HM606"}),
    ],
)
def test_an_address_of_the_command_line_is_judged_as_one_of_the_policy(more: str, codes: set[str]) -> None:
    text = GUARDED + more

    here = load("p.hmp", MemoryFiles({"p.hmp": text}), "127.0.0.1")
    everywhere = load("p.hmp", MemoryFiles({"p.hmp": text}), "0.0.0.0")

    assert {one.code for one in here.checked.diagnostics} == {one.code for one in here.diagnostics} - {"HM209"}
    assert {one.code for one in everywhere.diagnostics} - {"HM209"} == codes
    assert len({(one.code, one.message) for one in everywhere.diagnostics}) == len(everywhere.diagnostics)


@pytest.mark.parametrize(
    ("text", "listen", "status", "words"),
    [
        (OPEN + EVERYWHERE, None, 2, "will not listen on 0.0.0.0"),
        (OPEN, "0.0.0.0:0", 2, "will not listen on 0.0.0.0"),
        (OPEN, "nonsense", 2, "--listen nonsense: no address; write 127.0.0.1:8787"),
        (OPEN, "192.0.2.1:0", 2, "will not listen"),
        (GUARDED, "192.0.2.1:0", 2, "this machine does not have that address"),
        (OPEN.replace("A_KEY", "NOT_SET_ANYWHERE"), None, 1, "`export NOT_SET_ANYWHERE=...`"),
        (OPEN + "lane { }\n", None, 1, "error[HM"),
        ("provider anthropic { base env(A_KEY) }\n", None, 1, "the value of `env(A_KEY)` is not a base URL"),
    ],
)
def test_it_does_not_start_and_says_why(
    text: str,
    listen: str | None,
    status: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    policy = tmp_path / "team.hmp"
    policy.write_text(text)
    monkeypatch.setenv("A_KEY", "a-secret-value")
    monkeypatch.setenv("A_TOKEN", "a-secret-value")

    ended = main(Options(policy=str(policy), listen=listen))

    shown = capsys.readouterr()
    assert ended == status
    assert words in shown.err
    assert shown.out == ""
    assert "a-secret-value" not in shown.err


def test_a_bad_policy_is_coloured_only_if_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "team.hmp"
    policy.write_text("lane {")

    for color in (False, True):
        assert main(Options(policy=str(policy), color=color)) == 1
        assert ("\x1b[" in capsys.readouterr().err) is color
