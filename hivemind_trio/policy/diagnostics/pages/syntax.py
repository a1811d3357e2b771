"""Pages of syntax errors and of files: HM001 to HM011."""

from __future__ import annotations

from typing import Final

from .page import Page

PAGES: Final = (
    Page(
        "HM001",
        "a character that is not in the language",
        "Operators are the words `and`, `or`, `not`; text stands in double quotes; settings take no `:` and no "
        "`=`; a comment begins with `#`. A spelling of another language is read as what it stands for, so it hides no "
        "other problem.",
        wrong="provider anthropic { concurrency: 4 }",
        right="provider anthropic { concurrency 4 }",
    ),
    Page(
        "HM002",
        "a text that does not end",
        "A quoted text ends on the line it begins on. The help closes it before the brackets that are open.",
        wrong='provider openai { serves ["gpt-*] }',
        right='provider openai { serves ["gpt-*"] }',
    ),
    Page(
        "HM003",
        "something else was expected here",
        "The parser says what could have stood here. It leaves out the statement and goes on with the next: one run "
        "shows every such place, and every other problem that the left-out text cannot explain.",
        wrong="provider anthropic { concurrency = 4 }",
        right="provider anthropic { concurrency 4 }",
    ),
    Page(
        "HM004",
        "a bracket that is never closed",
        "The second place is where it was opened. A brace or a new declaration ends every open bracket, so that a "
        "missing `]` spoils one setting and not the file.",
        wrong='provider openai { serves ["gpt-*", "o3*" }',
        right='provider openai { serves ["gpt-*", "o3*"] }',
    ),
    Page(
        "HM005",
        "a bracket without its beginning",
        "A closing bracket or brace that nothing opened: usually one `}` too many.",
        wrong="provider anthropic { concurrency 4 } }",
        right="provider anthropic { concurrency 4 }",
    ),
    Page(
        "HM006",
        "an unknown language version",
        "`hmp 1` is the first version, and what a file without the line means for ever. A later one is written so "
        "that an old proxy refuses it instead of misreading it.",
        wrong="hmp 2\nprovider anthropic { }",
        right="hmp 1\nprovider anthropic { }",
    ),
    Page(
        "HM007",
        "a file that cannot be read",
        "It is not there, not UTF-8, holds NUL, is larger than 4 MiB, or nests "
        "deeper than 64, its includes and `let`s counted; a `let` stands for 10 000 words at most. Where there is no "
        "text at all, `check` ends with status 2.",
    ),
    Page(
        "HM008",
        "an include that matches nothing",
        "Paths are relative to the file that includes. A pattern that matches nothing is more often a typing "
        "error than a wish.",
        wrong='include "comon/*.hmp"\nprovider anthropic { }',
    ),
    Page(
        "HM009",
        "files that include each other",
        "The note shows the circle. Move what both need into a third file.",
    ),
    Page(
        "HM010",
        "an unknown escape",
        'In a quoted text there are `\\"`, `\\\\`, `\\n` and `\\t`.',
        wrong='rule no { deny "C:\\users" }\nprovider anthropic { }',
        right='rule no { deny "C:\\\\users" }\nprovider anthropic { }',
    ),
    Page(
        "HM011",
        "an include outside the policy's folder, or of no policy",
        "A policy includes files of its own folder and below. A proxy or a CI job reads policies that others wrote, "
        "and a diagnostic quotes lines: an include of any file would show it. `hivemind-trio --allow-include FOLDER` "
        "before the command allows one more folder. Of a file without a declaration nothing is quoted.",
        wrong='include "../common/models.hmp"\nprovider anthropic { }',
    ),
)
