"""Tasks of a run, as they are read from arguments, JSON or lines."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Container, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, final

import attrs

_ID: Final = re.compile(r"[A-Za-z0-9._~-]{1,64}")
"""As in the base URL of a caller: `/@NAME`."""
_PLACE: Final = re.compile(r"\{(\w*)\}")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_MONEY: Final = re.compile(r"\$(\d+(?:\.\d+)?)")


@final
class TaskError(Exception):
    """A list of tasks cannot be run. The message says where and why, `help` what to write instead."""

    def __init__(self, message: str, help_text: str = "") -> None:
        super().__init__(message)
        self.help = help_text


@final
@attrs.frozen(kw_only=True)
class Task:
    """One job, before it has run."""

    id: str
    """Unique within the run; the proxy knows the job's calls by it."""
    argv: tuple[str, ...]
    """The command with its placeholders filled in, without what the agent's adapter adds."""
    prompt: int | None = None
    """Index in `argv` of what the agent is asked; None: the command has none, or it is not known."""
    cwd: str | None = None
    """None: the folder of the run."""
    after: tuple[str, ...] = ()
    """Ids of the jobs that have to be done first."""
    priority: int = 0
    """Higher starts first."""
    deadline_s: float | None = None
    """Seconds from the run's begin, after which the job is stopped; None: none."""
    budget_microusd: int | None = None
    """Money that the job's calls may cost; None: no bound."""
    model: str = ""
    """Empty: the agent's own choice."""
    budget_tokens: int | None = None
    """Tokens that the job's calls may take; None: no bound."""


def seconds(text: str) -> float | None:
    """Return the seconds of a duration such as `90s`, `10m` or `6h`; None: it is none."""
    match = _DURATION.fullmatch(text.strip())
    return None if match is None else float(match[1]) * _UNITS_S[match[2]]


def from_arguments(command: Sequence[str], groups: Sequence[Sequence[str]]) -> list[Task]:
    """Return a task for each combination of one argument of each group.

    `{}` and `{1}` stand for the argument of the first group, `{2}` for that of the second. A command without a
    placeholder gets the arguments at its end.

    Raises:
        TaskError: There is no argument.
    """
    if not groups or not all(groups):
        raise TaskError("no argument follows `:::`", "write for example `::: pkg/a pkg/b`")
    tasks = []
    for number, values in enumerate(itertools.product(*groups), 1):
        named = {"": values[0]} | {f"{place}": value for place, value in enumerate(values, 1)}
        argv, prompt = _filled(command, named, strict=False)
        if prompt is None:
            argv, prompt = (*argv, *values), len(argv) + len(values) - 1
        tasks.append(Task(id=f"job-{number}", argv=argv, prompt=prompt))
    return tasks


def from_text(text: str, command: Sequence[str], default: Sequence[str], where: str) -> list[Task]:
    """Return the tasks of a JSON array, of a JSON object for each line, or of a plain line for each.

    Args:
        text: What is read.
        command: The command of tasks that have none of their own; empty: `default`.
        default: Command of a known agent, with `{prompt}`.
        where: Name of the file, for errors.

    Raises:
        TaskError: A task is malformed.
    """
    records = list(_records(text, where))
    if not records:
        raise TaskError(f"{where}: no task", 'write a task for each line, such as {"id": "a", "prompt": "..."}')
    tasks = [_task(place, number, one, command, default) for number, (place, one) in enumerate(records, 1)]
    check_order(tasks)
    return tasks


def check_order(tasks: Iterable[Task], known: Container[str] = ()) -> None:
    """Check ids and dependencies.

    Args:
        tasks: New ones.
        known: Ids of earlier ones, which come after none of these.

    Raises:
        TaskError: Two tasks have one id, or `after` names an unknown one, or goes round in a circle.
    """
    graph: dict[str, tuple[str, ...]] = {}
    for task in tasks:
        if task.id in graph or task.id in known:
            raise TaskError(f"two tasks have the id `{task.id}`", "give each an `id` of its own")
        graph[task.id] = task.after
    for name, after in graph.items():
        for other in after:
            if other not in graph and other not in known:
                known = ", ".join(list(graph)[:5]) + (", ..." if len(graph) > 5 else "")
                raise TaskError(f"task `{name}` comes after `{other}`, which is no task", f"the tasks are {known}")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        raise TaskError(f"the tasks wait for each other: {circle}", "remove one of the `after`") from None


def _records(text: str, where: str) -> Iterable[tuple[str, Mapping[str, Any] | str]]:
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith("["):
        try:
            array = json.loads(start)
        except json.JSONDecodeError as error:
            raise TaskError(f"{where}: the JSON array is malformed: {error}") from None
        for number, one in enumerate(array, 1):
            yield f"{where}: task {number}", one
        return
    structured = start.startswith("{")
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        if not line.strip():
            continue
        place = f"{where}:{number}"
        if not structured:
            yield place, line.strip()
            continue
        try:
            yield place, json.loads(line)
        except json.JSONDecodeError as error:
            raise TaskError(f"{place}: no JSON object: {error.msg} (column {error.colno})") from None


def _task(
    place: str, number: int, record: Mapping[str, Any] | str, command: Sequence[str], default: Sequence[str]
) -> Task:
    if isinstance(record, str):
        argv, prompt = _filled(command or default, {"": record, "prompt": record}, strict=False)
        if prompt is None:
            argv, prompt = (*argv, record), len(argv)
        return Task(id=f"job-{number}", argv=argv, prompt=prompt)
    if not isinstance(record, dict):
        raise TaskError(f"{place}: a task is an object or a string", 'write for example {"prompt": "..."}')
    identity = f"{record.get('id', f'job-{number}')}"
    if not _ID.fullmatch(identity):
        raise TaskError(f"{place}: id `{identity}`", "write up to 64 letters, digits, `.`, `_`, `~` or `-`")
    own = _own_command(place, record)
    template = own or command or default
    named = {name: value if isinstance(value, str) else json.dumps(value) for name, value in record.items()}
    try:
        argv, prompt = _filled(template, named | {"": named.get("prompt", "")}, strict=not own)
    except KeyError as error:
        known = ", ".join(f"`{name}`" for name in record)
        raise TaskError(f"{place}: the command uses `{{{error.args[0]}}}`; the task has {known}") from None
    return Task(
        id=identity,
        argv=argv,
        prompt=prompt,
        cwd=_text(place, record, "cwd") or None,
        after=_names(place, record),
        priority=_number(place, record),
        deadline_s=_deadline(place, record),
        budget_microusd=_budget(place, record),
        model=_text(place, record, "model"),
        budget_tokens=_tokens(place, record),
    )


def task_of(place: str, number: int, record: Mapping[str, Any]) -> Task:
    """Return the task of an object that has a whole command: braces in it stand for themselves.

    Raises:
        TaskError: It is malformed.
    """
    argv = _own_command(place, record)
    if not argv:
        raise TaskError(f"{place}: `command` is empty", 'write ["claude", "-p", "fix"]')
    return attrs.evolve(_task(place, number, {**record, "command": ["-"]}, (), ()), argv=argv, prompt=None)


def _filled(template: Sequence[str], named: Mapping[str, str], *, strict: bool) -> tuple[tuple[str, ...], int | None]:
    """Return the command with its placeholders filled in, and the place of the last argument that had one.

    Raises:
        KeyError: A placeholder has no value, if `strict`.
    """
    place = None
    argv = []
    for index, word in enumerate(template):

        def value(match: re.Match[str]) -> str:
            if match[1] in named:
                return named[match[1]]
            if strict:
                raise KeyError(match[1])
            return match[0]

        filled = _PLACE.sub(value, word)
        if filled != word:
            place = index
        argv.append(filled)
    return tuple(argv), place


def _own_command(place: str, record: Mapping[str, Any]) -> tuple[str, ...]:
    command = record.get("command", [])
    if isinstance(command, str):
        try:
            return tuple(shlex.split(command))
        except ValueError as error:
            raise TaskError(
                f"{place}: `command` cannot be split: {error}", 'write a list: ["claude", "-p", "fix"]'
            ) from None
    if isinstance(command, list) and all(isinstance(one, str) for one in command):
        return tuple(command)
    raise TaskError(f"{place}: `command` is no command", 'write "claude -p fix" or ["claude", "-p", "fix"]')


def _text(place: str, record: Mapping[str, Any], name: str) -> str:
    value = record.get(name) or ""
    if not isinstance(value, str):
        raise TaskError(f"{place}: `{name}` is {value!r}", "write a string")
    return value


def _names(place: str, record: Mapping[str, Any]) -> tuple[str, ...]:
    after = record.get("after") or []
    after = [after] if isinstance(after, str) else after
    if not isinstance(after, list | tuple) or not all(isinstance(one, str | int) for one in after):
        raise TaskError(f"{place}: `after` is {after!r}", 'write ids: ["job-1", "job-2"]')
    return tuple(f"{one}" for one in after)


def _number(place: str, record: Mapping[str, Any]) -> int:
    value = record.get("priority", 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise TaskError(f"{place}: `priority` is {value!r}", "write a whole number; higher starts first")
    return value


def _deadline(place: str, record: Mapping[str, Any]) -> float | None:
    value = record.get("deadline")
    if value is None:
        return None
    after_s = seconds(value) if isinstance(value, str) else None
    if after_s is None:
        raise TaskError(f"{place}: `deadline` is {value!r}", 'write the time from the begin of the run, such as "6h"')
    return after_s


def _tokens(place: str, record: Mapping[str, Any]) -> int | None:
    value = record.get("token_budget")
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise TaskError(
            f"{place}: `token_budget` is {value!r}", "write the tokens that its calls may take, such as 50000"
        )
    return value


def _budget(place: str, record: Mapping[str, Any]) -> int | None:
    value = record.get("budget")
    if value is None:
        return None
    match = _MONEY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise TaskError(f"{place}: `budget` is {value!r}", 'write the money that its calls may cost, such as "$2"')
    return round(float(match[1]) * 1_000_000)
