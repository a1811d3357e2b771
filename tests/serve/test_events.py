"""Events of the log: the code, the table of `docs/operating.md` and the lines that are written agree.

`python -m tests.serve.test_events` writes the table anew.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, Final, get_args

import attrs
import pytest

import hivemind_trio
from hivemind_trio.policy import MemoryFiles, check
from hivemind_trio.policy.comparison.decisions import decisions
from hivemind_trio.serve.events import EVENTS, DecisionChanged, LogEvent, Notice, field_names
from tests.support.log_lines import unregistered

PACKAGE: Final = Path(hivemind_trio.__file__).parent
DOCUMENT: Final = PACKAGE / "docs/operating.md"
BEGIN, END = "<!-- events:begin -->\n", "<!-- events:end -->"


def meaning(event: type[LogEvent]) -> str:
    return " ".join((event.__doc__ or "").split())


def table() -> str:
    lines = ["| event | level | fields | meaning |", "|---|---|---|---|"]
    for event in EVENTS:
        fields = ", ".join(f"`{name}{'?' if optional else ''}`" for name, optional in field_names(event).items())
        lines.append(f"| `{event.name}` | {event.level} | {fields} | {meaning(event)} |")
    return "\n".join(lines) + "\n"


def rewritten(text: str) -> str:
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


def constructed() -> set[str]:
    """Return the names of all classes that `serve` calls."""
    found = set()
    for path in (PACKAGE / "serve").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name | ast.Attribute) and path.name != "events.py":
                found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return found


def test_the_table_of_the_document_is_that_of_the_code() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")

    assert text == rewritten(text), "python -m tests.serve.test_events writes it anew"


def test_names_are_in_snake_case_and_unique() -> None:
    names = [event.name for event in EVENTS]

    assert len(set(names)) == len(names)
    assert not [name for name in names if not re.fullmatch(r"[a-z]+(_[a-z]+)*", name)]


def test_every_class_of_the_module_is_an_event_and_every_event_is_written_somewhere() -> None:
    tree = ast.parse((PACKAGE / "serve/events.py").read_text(encoding="utf-8"))
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}

    assert classes == {event.__name__ for event in EVENTS}
    assert classes <= constructed()
    assert set(get_args(Notice)) <= set(EVENTS)


def test_nothing_but_the_event_log_writes_to_a_logger() -> None:
    calls = []
    written = {"debug", "info", "warning", "error", "exception", "critical", "msg"}
    for path in (PACKAGE / "serve").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(attr=method)) if method in written:
                    calls.append(f"{path.name}:{node.lineno}")

    assert calls == []


def test_every_setting_of_a_decision_is_a_field() -> None:
    policy = 'provider openai { }\nbudget b { requests 9/day }\nrule r { tag a; warn "w" }\n'
    checked = check("p.hmp", MemoryFiles({"p.hmp": policy}))
    settings = {
        f"{setting.partition(' ')[0]}s" if " " in setting else setting.replace("-", "_")
        for setting in decisions(checked)
    }  # a call has one of these, or several

    assert settings <= {one.name for one in attrs.fields(DecisionChanged)}


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ({"event": "circuit_closed", "level": "info", "provider": "p", "outcome": "succeeded", "limit": 8}, ""),
        ({"event": "circuit_closed", "level": "info", "provider": "p", "limit": 8}, ""),
        ({"event": "provider is back", "level": "info"}, "no event"),
        ({"event": "circuit_closed", "level": "error", "provider": "p", "limit": 8}, "level"),
        ({"event": "circuit_closed", "level": "info", "limit": 8}, "without provider"),
        ({"event": "circuit_closed", "level": "info", "provider": "p", "limit": 8, "because": "x"}, "with because"),
    ],
)
def test_a_line_that_is_no_registered_event_is_seen(line: dict[str, Any], wrong: str) -> None:
    found = unregistered(line)

    assert found.startswith(wrong)
    assert bool(found) is bool(wrong)


if __name__ == "__main__":
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
