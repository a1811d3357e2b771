"""Command lines and variables of agents."""

import re

import pytest

from hivemind_trio.cli.run import AGENTS
from hivemind_trio.jobs.adapters import (
    ADAPTERS,
    CONTINUE,
    NAMED,
    Invocation,
    adapter_of,
    invocation,
    result_in,
    session_in,
)

URL = "http://127.0.0.1:1/@job-1"
SESSION = "11111111-1111-4111-8111-111111111111"


def made(
    *argv: str, prompt: int | None = None, session: str = "", resumes: bool = False, model: str = ""
) -> Invocation:
    return invocation(adapter_of(argv), argv, prompt=prompt, url=URL, model=model, session=session, resumes=resumes)


def test_claude_gets_a_session_that_it_is_resumed_in() -> None:
    first = made("claude", "-p", "fix a", "--verbose", prompt=2)
    assert re.fullmatch(r"[0-9a-f-]{36}", first.session)
    assert first.argv == ("claude", "--session-id", first.session, "-p", "fix a", "--verbose")
    assert first.environment["ANTHROPIC_BASE_URL"] == URL
    again = made("claude", "-p", "fix a", "--verbose", prompt=2, session=first.session, resumes=True)
    assert again.argv == ("claude", "-p", "--resume", first.session, CONTINUE, "--verbose")
    assert again.session == first.session


def test_codex_is_pointed_at_the_proxy_by_an_argument() -> None:
    first = made("/usr/bin/codex", "exec", "fix a", prompt=2)
    assert first.argv == ("/usr/bin/codex", "-c", f'openai_base_url="{URL}/v1"', "exec", "fix a")
    assert first.session == ""
    again = made("codex", "exec", "--json", "fix a", prompt=3, session=SESSION, resumes=True)
    base = ("codex", "-c", f'openai_base_url="{URL}/v1"', "exec", "--json")
    assert again.argv == (*base, "resume", SESSION, CONTINUE)


def test_a_command_given_whole_has_its_prompt_at_the_end() -> None:
    again = made("claude", "-p", "fix a", session=SESSION, resumes=True)
    assert again.argv == ("claude", "-p", "--resume", SESSION, CONTINUE)
    piped = made("claude", "-p", session=SESSION, resumes=True)
    assert piped.argv == ("claude", "-p", "--resume", SESSION, CONTINUE)


def test_the_value_of_an_option_is_no_prompt() -> None:
    words = ("claude", "-p", "fix a", "--output-format", "json")
    again = made(*words, session=SESSION, resumes=True)
    assert again.argv == ("claude", "-p", "--resume", SESSION, CONTINUE, "--output-format", "json")
    piped = made("claude", "-p", "--output-format", "json", session=SESSION, resumes=True)
    assert piped.argv == ("claude", "-p", "--output-format", "json", "--resume", SESSION, CONTINUE)


@pytest.mark.parametrize("option", ["--continue", "--resume=abc", "--session-id"])
def test_a_command_that_names_its_session_keeps_it(option: str) -> None:
    assert made("claude", option, "-p", "x", prompt=3).argv == ("claude", option, "-p", "x")


def test_a_model_is_added_unless_the_command_has_one() -> None:
    assert made("gemini", "-p", "x", prompt=2, model="m").argv == ("gemini", "-m", "m", "-p", "x")
    assert made("gemini", "--model=n", "-p", "x", prompt=3, model="m").argv == ("gemini", "--model=n", "-p", "x")


def test_an_unknown_program_gets_variables_only() -> None:
    other = made("./agent.sh", "x", prompt=1, session=SESSION, resumes=True)
    assert other.argv == ("./agent.sh", "x")
    assert other.environment["OPENAI_BASE_URL"] == f"{URL}/v1"


def test_sessions_are_read_from_what_codex_prints() -> None:
    codex = NAMED["codex"]
    assert session_in(codex, f'{{"type":"thread.started","thread_id":"{SESSION}"}}') == SESSION
    assert session_in(codex, f"--------\nsession id: {SESSION}\n--------\n") == SESSION
    assert session_in(codex, "no session here") == ""


def test_the_result_of_claude_is_its_last_line() -> None:
    assert result_in('{"type":"system"}\n{"type":"result","is_error":true}\n') == {"type": "result", "is_error": True}
    assert result_in("some text\n") == {}
    assert result_in('{"type":"result", broken\n') == {}


def test_the_command_line_knows_every_adapter() -> None:
    assert set(AGENTS) == set(NAMED)
    assert all(re.compile(one.limit) for one in ADAPTERS)
