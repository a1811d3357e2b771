"""Adapters of agents, as data: how each is pointed at the proxy, and how its session is resumed."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, final

import attrs

from hivemind_trio.clients import EVERY_CLIENT

CONTINUE: Final = "Continue where you were interrupted."
"""Prompt of a resumed session: the task itself is in the session."""


@final
@attrs.frozen(kw_only=True)
class Adapter:
    """One agent's command line. Words may hold `{url}`, `{session}`, `{model}` and `{prompt}`."""

    name: str
    programs: tuple[str, ...] = ()
    """File names of its program."""
    provider: str = ""
    """The provider that it calls; empty: not known."""
    default: tuple[str, ...] = ()
    """Command of a task that has only a prompt; empty: a task needs a command."""
    arguments: tuple[str, ...] = ()
    """Arguments that point it at the proxy, after the program."""
    environment: Mapping[str, str] = attrs.field(factory=dict)
    model: tuple[str, ...] = ()
    """Arguments that choose a model."""
    named: tuple[str, ...] = ()
    """Arguments that give a new session its id; empty: the agent chooses it."""
    asked_by: tuple[str, ...] = ()
    """Options that the prompt may follow, though they take no value."""
    session_options: tuple[str, ...] = ()
    """Arguments by which a command says itself which session it uses."""
    session: str = ""
    """Pattern of the session's id in the output, with a group; empty: it is not printed."""
    resume: tuple[str, ...] = ()
    """Arguments that resume a session, before the prompt; empty: it has no sessions."""
    lost: str = ""
    """Pattern of the output where a session cannot be resumed because there is none."""
    limit: str = ""
    """Pattern of the output where a limit ended it."""

    @property
    def has_sessions(self) -> bool:
        """True if it can go on where it ended."""
        return bool(self.resume)


_LIMIT: Final = (
    r"(?i)\b429\b|rate.?limit|usage limit|\bhit your [^·]{1,40}\blimit\b|quota (?:exceeded|exhausted)"
    r"|hivemind-trio: .*(?:can start|resets) in \d"
)

GENERIC: Final = Adapter(name="generic", environment=EVERY_CLIENT, limit=_LIMIT)

ADAPTERS: Final = (
    Adapter(
        name="claude",
        programs=("claude",),
        provider="anthropic",
        default=("claude", "-p", "{prompt}"),
        environment=EVERY_CLIENT,
        model=("--model", "{model}"),
        named=("--session-id", "{session}"),
        asked_by=("-p", "--print"),
        session_options=("--session-id", "--resume", "-r", "--continue", "-c", "--no-session-persistence"),
        resume=("--resume", "{session}"),
        lost=r"No conversation found",
        limit=_LIMIT,
    ),
    Adapter(
        name="codex",
        programs=("codex",),
        provider="openai",
        default=("codex", "exec", "--skip-git-repo-check", "{prompt}"),
        # It does not read OPENAI_BASE_URL.
        arguments=("-c", 'openai_base_url="{url}/v1"'),
        environment=EVERY_CLIENT,
        model=("-m", "{model}"),
        session_options=("resume", "fork", "--ephemeral"),
        session=r'"thread_id": ?"([0-9a-f-]{36})"|session id: ([0-9a-f-]{36})',
        resume=("resume", "{session}"),
        lost=r"(?i)no (?:saved |recorded )?(?:session|thread|rollout) found|thread/resume.*not found",
        limit=_LIMIT,
    ),
    Adapter(
        name="opencode",
        programs=("opencode",),
        default=("opencode", "run", "{prompt}"),
        environment=EVERY_CLIENT,
        model=("-m", "{model}"),
        session_options=("--session", "-s", "--continue", "-c"),
        session=r'"sessionID": ?"(ses_\w+)"',
        resume=("--session", "{session}"),
        limit=_LIMIT,
    ),
    Adapter(
        name="gemini",
        programs=("gemini",),
        provider="gemini",
        default=("gemini", "-p", "{prompt}"),
        environment=EVERY_CLIENT,
        model=("-m", "{model}"),
        limit=_LIMIT,
    ),
    Adapter(
        name="aider",
        programs=("aider",),
        default=("aider", "--yes-always", "--message", "{prompt}"),
        environment=EVERY_CLIENT,
        model=("--model", "{model}"),
        limit=_LIMIT,
    ),
    Adapter(
        name="mini-swe-agent",
        programs=("mini", "mini-swe-agent"),
        default=("mini", "--yolo", "--exit-immediately", "--task", "{prompt}"),
        environment=EVERY_CLIENT,
        model=("--model", "{model}"),
        limit=_LIMIT,
    ),
)
NAMED: Final[Mapping[str, Adapter]] = {one.name: one for one in (*ADAPTERS, GENERIC)}


def adapter_of(argv: Sequence[str]) -> Adapter:
    """Return the adapter of a command, by the file name of its program."""
    program = PurePath(argv[0]).name
    return next((one for one in ADAPTERS if program in one.programs), GENERIC)


@final
@attrs.frozen(kw_only=True)
class Invocation:
    """The command and the variables of a job's process."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    session: str
    """Id of its session, as far as it is known before."""


def invocation(
    adapter: Adapter, argv: Sequence[str], *, prompt: int | None, url: str, model: str, session: str, resumes: bool
) -> Invocation:
    """Return the command and the variables of a job.

    Args:
        adapter: Of the agent.
        argv: The task's command.
        prompt: Index of the prompt in it.
        url: Base URL of the job at the proxy, without `/v1`.
        model: Model that the task asks for; empty: none.
        session: Id of the session to resume, or of an earlier try; empty: none is known.
        resumes: Go on in the session instead of beginning one.
    """
    named = {"url": url, "model": model, "session": session}
    words, where = list(argv), prompt
    owns = any(word.partition("=")[0] in adapter.session_options for word in words)
    if resumes and session and adapter.has_sessions and not owns:
        where = where if where is not None else _prompt_in(adapter, words)
        words[where : where + 1] = [*_filled(adapter.resume, named), CONTINUE]
    elif adapter.named and not owns:
        session = named["session"] = session or f"{uuid.uuid4()}"
        words[1:1] = _filled(adapter.named, named)
    if model and adapter.model and not any(word.partition("=")[0] in (adapter.model[0], "--model") for word in words):
        words[1:1] = _filled(adapter.model, named)
    words[1:1] = _filled(adapter.arguments, named)
    environment = {name: _fill(value, named) for name, value in adapter.environment.items()}
    return Invocation(argv=tuple(words), environment=environment, session=session)


def _prompt_in(adapter: Adapter, words: Sequence[str]) -> int:
    """Return the index of the prompt in a command that was given whole, or that of its end: it comes otherwise."""
    for place, word in enumerate(words[1:], 1):
        if words[place - 1] in adapter.asked_by and not word.startswith("-"):
            return place
    is_value = words[-1].startswith("-") or words[-2].startswith("-")
    return len(words) if is_value else len(words) - 1


def _filled(words: Sequence[str], named: Mapping[str, str]) -> list[str]:
    return [_fill(word, named) for word in words]


def _fill(word: str, named: Mapping[str, str]) -> str:
    for name, value in named.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def session_in(adapter: Adapter, output: str) -> str:
    """Return the session's id that the agent printed; empty: none."""
    match = re.search(adapter.session, output) if adapter.session else None
    return next((group for group in match.groups() if group), "") if match is not None else ""


def result_in(output: str) -> dict[str, Any]:
    """Return the result object that Claude Code prints last with `--output-format json` or `stream-json`."""
    for line in reversed(output.rstrip().splitlines()[-5:]):
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(found, dict) and found.get("type") == "result":
                return found
    return {}
