"""Tasks of a run, from arguments, JSON and lines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.jobs.task import Task, TaskError, check_order, from_arguments, from_text, seconds


def test_an_argument_takes_the_place_of_braces_and_is_the_prompt() -> None:
    [one, two] = from_arguments(("claude", "-p", "fix the tests in {}", "--verbose"), (("a", "b"),))
    assert one.argv == ("claude", "-p", "fix the tests in a", "--verbose")
    assert two.argv[2] == "fix the tests in b"
    assert one.prompt == two.prompt == 2
    assert [one.id, two.id] == ["job-1", "job-2"]


def test_a_command_without_braces_gets_its_arguments_at_the_end() -> None:
    [task] = from_arguments(("mytool", "--fast"), (("a",),))
    assert task.argv == ("mytool", "--fast", "a")
    assert task.prompt == 2


def test_several_groups_are_combined() -> None:
    tasks = from_arguments(("x", "{1} on {2}"), (("a", "b"), ("c", "d")))
    assert [task.argv[1] for task in tasks] == ["a on c", "a on d", "b on c", "b on d"]


def test_lines_that_are_no_json_are_prompts() -> None:
    tasks = from_text("fix a\n\n  fix b \n", ("claude", "-p", "{}"), (), "in")
    assert [task.argv[2] for task in tasks] == ["fix a", "fix b"]


def test_braces_in_a_plain_line_stay() -> None:
    [task] = from_text("replace {x} by {y}", ("claude", "-p", "{}"), (), "in")
    assert task.argv == ("claude", "-p", "replace {x} by {y}")


def test_json_lines_fill_names_and_settings() -> None:
    record = {"id": "a", "title": "T", "number": 3, "cwd": "pkg", "after": [], "priority": 5, "deadline": "90m"}
    [task] = from_text(json.dumps(record | {"budget": "$1.50", "model": "m"}), ("c", "#{number}: {title}"), (), "in")
    assert task == Task(
        id="a",
        argv=("c", "#3: T"),
        prompt=1,
        cwd="pkg",
        priority=5,
        deadline_s=5_400.0,
        budget_microusd=1_500_000,
        model="m",
    )


def test_a_json_array_is_a_list_of_tasks() -> None:
    tasks = from_text('[{"prompt": "a"}, {"prompt": "b"}]', (), ("claude", "-p", "{prompt}"), "in")
    assert [task.argv for task in tasks] == [("claude", "-p", "a"), ("claude", "-p", "b")]


def test_a_task_may_have_a_command_of_its_own_with_braces_in_it() -> None:
    [task] = from_text('{"command": ["awk", "{print $1}"]}', (), (), "in")
    assert task.argv == ("awk", "{print $1}")
    assert task.prompt is None


@pytest.mark.parametrize(
    ("text", "says", "helps"),
    [
        ("", "in: no task", "prompt"),
        ('{"prompt": "a"}\n{"prompt"', "in:2: no JSON object", ""),
        ('[{"prompt": "a"},', "in: the JSON array is malformed", ""),
        ('{"id": "a b"}', "in:1: id `a b`", "letters"),
        ('{"id": "a", "title": ""}\n{"id": "a", "title": ""}', "two tasks have the id `a`", "of its own"),
        ('{"id": "a", "title": "", "after": ["b"]}', "`a` comes after `b`, which is no task", "the tasks are a"),
        (
            '{"id": "a", "title": "", "after": ["b"]}\n{"id": "b", "title": "", "after": "a"}',
            "wait for each other: ",
            "remove one",
        ),
        ('{"number": 1}', "the command uses `{title}`; the task has `number`", ""),
        ('{"title": "x", "priority": "high"}', "`priority` is 'high'", "whole number"),
        ('{"title": "x", "deadline": "soon"}', "`deadline` is 'soon'", '"6h"'),
        ('{"title": "x", "budget": "2 EUR"}', "`budget` is '2 EUR'", '"$2"'),
        ('{"title": "x", "cwd": 3}', "`cwd` is 3", "string"),
        ('{"title": "x", "command": 3}', "`command` is no command", "claude"),
        ("[3]", "a task is an object or a string", "prompt"),
    ],
)
def test_an_error_says_where_and_what_to_write(text: str, says: str, helps: str) -> None:
    with pytest.raises(TaskError) as caught:
        from_text(text, ("c", "{title}"), (), "in")
    assert says in str(caught.value)
    assert helps in caught.value.help


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20))
def test_an_order_is_refused_exactly_if_it_has_a_circle(edges: list[tuple[int, int]]) -> None:
    after = {n: tuple(sorted({b for a, b in edges if a == n})) for n in range(8)}

    def reaches_itself(start: int) -> bool:
        seen: set[int] = set()
        stack = list(after[start])
        while stack:
            one = stack.pop()
            if one == start:
                return True
            if one not in seen:
                seen.add(one)
                stack += after[one]
        return False

    tasks = [Task(id=f"{n}", argv=("x",), after=tuple(f"{one}" for one in after[n])) for n in range(8)]
    if any(map(reaches_itself, range(8))):
        with pytest.raises(TaskError):
            check_order(tasks)
    else:
        check_order(tasks)


def test_durations() -> None:
    assert seconds("90s") == 90.0
    assert seconds("1.5h") == 5_400.0
    assert seconds("250ms") == 0.25
    assert seconds("soon") is None
