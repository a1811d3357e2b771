"""`hivemind-trio run`."""

from __future__ import annotations

import sys

import click

from .console import color_option, fail, wants_color
from .policy_files import allowed_folders

AGENTS = ("claude", "codex", "opencode", "gemini", "aider", "mini-swe-agent", "generic")
"""Names of `hivemind_trio.jobs.adapters`, which are not imported for a `--help`."""


@click.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    epilog="""\b
Examples:
  hivemind-trio run -n 11 -- claude -p "fix the tests in {}" ::: pkg/*     a job for each folder
  hivemind-trio run --from tasks.jsonl -n 8 --policy team.hmp              a job for each task of a file
  gh issue list --json number,title | hivemind-trio run --from - -- codex exec "fix #{number}: {title}"
  hivemind-trio run --continue last                                        what a run has left undone
  hivemind-trio run --proxy http://127.0.0.1:8787 -- claude -p "{}" ::: a b   behind a running proxy

\b
A task is a line of text, or a JSON object:
  {"id": "a", "prompt": "...", "cwd": "pkg/a", "after": ["b"], "priority": 5, "deadline": "6h", "model": "...",
   "budget": "$2", "command": ["claude", "-p", "..."]}
The command's `{}` stands for the prompt or the argument, `{name}` for a value of the object.

\b
A job that meets a limit is parked without a process and resumed in its session when the limit opens.
First SIGINT: no further job starts. Second: all are stopped, and can be continued.
Exit status: 0 all jobs are done, 1 some are not, 2 wrong usage, 130 interrupted.""",
)
@click.option("-n", "--agents", default=8, show_default=True, type=click.IntRange(1), help="Jobs that run at once.")
@click.option("--from", "tasks", metavar="FILE", help="File of tasks: lines, JSON lines or a JSON array. `-`: stdin.")
@click.option("--policy", type=click.Path(dir_okay=False), help="Policy of the proxy. Default: made from the agents.")
@click.option("--proxy", metavar="URL", help="Use a running proxy instead of one of the run's own.")
@click.option("--agent", type=click.Choice(AGENTS), default=None, help="Kind of the agent. Default: by its program.")
@click.option("--continue", "continues", metavar="RUN", help="Go on with a run that ended or was killed, or `last`.")
@click.option("--retry-failed", is_flag=True, help="With --continue: run jobs again that have failed.")
@click.option("--patience", default="60s", show_default=True, help="No job is added while a call waits for longer.")
@click.option("--max-wait", default="24h", show_default=True, help="Longest time that a job stays parked.")
@click.option("--idempotent", is_flag=True, help="Start commands without sessions anew after a crash or a limit.")
@click.option("--output-limit", default=16, show_default=True, type=click.IntRange(1), help="MB kept of each output.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and no progress.")
@color_option
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND... [::: ARGUMENTS...]]")
def run(
    agents: int,
    tasks: str | None,
    policy: str | None,
    proxy: str | None,
    agent: str | None,
    continues: str | None,
    retry_failed: bool,
    patience: str,
    max_wait: str,
    idempotent: bool,
    output_limit: int,
    as_json: bool,
    color: str,
    words: tuple[str, ...],
) -> None:
    """Run a command of an agent for each task, behind a proxy.

    Starts jobs when their calls have room, keeps their output, and goes on after limits, crashes and a kill. Claude
    Code, Codex and opencode are resumed in their sessions.
    """
    from hivemind_trio.jobs import RunOptions, RunSettings, groups_of, main, seconds

    command, groups = groups_of(words)
    text = None
    if continues is not None:
        if words or tasks is not None:
            fail("--continue takes no command and no tasks", hint="the run has them")
    else:
        text = _tasks(tasks, command, groups)
    spans = {"--patience": seconds(patience), "--max-wait": seconds(max_wait)}
    for option, value in spans.items():
        if value is None:
            fail(f"{option}: no duration", hint="write for example 90s, 10m or 6h")
    if policy is not None and proxy is not None:
        fail("--policy and --proxy exclude each other", hint="a running proxy has a policy of its own")
    options = RunOptions(
        command=command,
        groups=groups,
        tasks=text,
        continues=continues,
        retries_failed=retry_failed,
        settings=RunSettings(
            agents=agents,
            patience_s=spans["--patience"] or 0.0,
            max_wait_s=spans["--max-wait"] or 0.0,
            policy=policy,
            proxy=proxy,
            adapter=agent or "",
            is_idempotent=idempotent,
            output_bytes=output_limit * 1_000_000,
        ),
        as_json=as_json,
        allow_include=allowed_folders(),
        color=wants_color(color, sys.stderr),
    )
    sys.exit(main(options))


def _tasks(tasks: str | None, command: tuple[str, ...], groups: tuple[tuple[str, ...], ...]) -> tuple[str, str] | None:
    """Return the name and the text of the list of tasks; None: the arguments are the tasks."""
    if groups:
        if tasks is not None:
            fail("--from and `:::` exclude each other", hint="write the tasks in one place")
        if not command:
            fail("no command before `:::`", hint='write for example: run -- claude -p "fix {}" ::: a b')
        return None
    if tasks is None and (not command or sys.stdin.isatty()):
        fail(
            "no tasks",
            hint='write them after `:::`, as in: run -- claude -p "fix {}" ::: a b; or pass a file with --from',
        )
    if tasks is None or tasks == "-":
        return "standard input", sys.stdin.read()
    try:
        with open(tasks, encoding="utf-8") as file:
            return tasks, file.read()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{tasks}: {getattr(error, 'strerror', None) or error}")
