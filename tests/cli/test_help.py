"""`hivemind-trio help`: every document is a topic, and every topic is a document."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import hivemind_trio
from hivemind_trio.cli.help import TOPICS
from hivemind_trio.cli.main import main

DOCS = Path(hivemind_trio.__file__).parent / "docs"


def test_every_document_is_a_topic() -> None:
    assert {path.stem for path in DOCS.glob("*.md")} == set(TOPICS)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_shows_its_document(topic: str) -> None:
    shown = CliRunner().invoke(main, ["help", topic])

    assert shown.exit_code == 0
    assert shown.stdout.strip() == (DOCS / f"{topic}.md").read_text(encoding="utf-8").strip()


def test_without_a_topic_they_are_listed() -> None:
    shown = CliRunner().invoke(main, ["help"]).stdout

    assert all(topic in shown for topic in TOPICS)


def test_a_command_shows_its_options() -> None:
    shown = CliRunner().invoke(main, ["help", "check"])

    assert shown.exit_code == 0
    assert shown.stdout == CliRunner().invoke(main, ["check", "--help"]).stdout


def test_an_unknown_topic_is_wrong_usage_and_names_the_nearest() -> None:
    shown = CliRunner().invoke(main, ["help", "life-of-call"])

    assert shown.exit_code == 2
    assert "`life-of-a-call`" in shown.stderr
