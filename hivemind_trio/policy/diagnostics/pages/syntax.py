"""Pages of syntax errors and of files: HM001 to HM012."""

from __future__ import annotations

from typing import Final

from .page import Page

PAGES: Final = (
    Page(
        "HM001",
        "character that is not in the language",
        "Operators are the words `and`, `or` and `not`. Text is in double quotes. Settings take no `:` and no `=`. "
        "A comment begins with `#`. A spelling of another language is read as the spelling of this one, so it hides "
        "no other problem.",
        wrong="provider anthropic { concurrency: 4 }",
        right="provider anthropic { concurrency 4 }",
    ),
    Page(
        "HM002",
        "missing quote",
        "A quoted text ends on the line that it begins on. The help adds the quote before the brackets that are open.",
        wrong='provider openai { serves ["gpt-*] }',
        right='provider openai { serves ["gpt-*"] }',
    ),
    Page(
        "HM003",
        "syntax error",
        "The note lists what the parser expected. The parser skips the statement and continues with the next one, "
        "so one run reports every such place, and every problem that the skipped text does not cause.",
        wrong="provider anthropic { concurrency = 4 }",
        right="provider anthropic { concurrency 4 }",
    ),
    Page(
        "HM004",
        "unclosed bracket",
        "The second place is the opening bracket. A brace or a new declaration ends every open bracket, so a "
        "missing `]` affects one setting and not the whole file.",
        wrong='provider openai { serves ["gpt-*", "o3*" }',
        right='provider openai { serves ["gpt-*", "o3*"] }',
    ),
    Page(
        "HM005",
        "unmatched closing bracket",
        "No bracket or brace is open here. Usually there is one `}` too many.",
        wrong="provider anthropic { concurrency 4 } }",
        right="provider anthropic { concurrency 4 }",
    ),
    Page(
        "HM006",
        "unknown language version",
        "`hmp 1` is the first version, and the version of a file without the line. A later version is declared so "
        "that an old proxy rejects the file instead of misreading it.",
        wrong="hmp 2\nprovider anthropic { }",
        right="hmp 1\nprovider anthropic { }",
    ),
    Page(
        "HM007",
        "file that cannot be read",
        "The file does not exist, is not UTF-8, contains NUL, is larger than 4 MiB, or nests deeper than 64 levels, "
        "includes and `let`s counted. A `let` expands to 10 000 words at most. `check` exits with status 2 if there "
        "is no text at all.",
    ),
    Page(
        "HM008",
        "include that matches no file",
        "Paths are relative to the file that includes. A pattern that matches nothing is usually a typing error.",
        wrong='include "comon/*.hmp"\nprovider anthropic { }',
    ),
    Page(
        "HM009",
        "circular include",
        "The note shows the cycle. Move the shared declarations into a third file.",
    ),
    Page(
        "HM010",
        "unknown escape sequence",
        'The escape sequences of a quoted text are `\\"`, `\\\\`, `\\n` and `\\t`.',
        wrong='rule no { deny "C:\\users" }\nprovider anthropic { }',
        right='rule no { deny "C:\\\\users" }\nprovider anthropic { }',
    ),
    Page(
        "HM011",
        "include outside of the policy's folder, or of no policy",
        "A policy includes files of its own folder and below. A proxy or a CI job reads policies that others wrote, "
        "and a diagnostic quotes lines, so an include of any file would disclose it. `hivemind-trio --allow-include "
        "FOLDER` before the command allows one more folder. Nothing is quoted of a file without a declaration.",
        wrong='include "../common/models.hmp"\nprovider anthropic { }',
    ),
    Page(
        "HM012",
        "file of another format",
        "The file is YAML, JSON or TOML. The help has the providers of a configuration of LiteLLM: its models, keys, "
        "limits and retries. `hivemind-trio serve --print-policy` writes a policy from the environment.",
        wrong="model_list:\n  - model_name: gpt-5\n    litellm_params:\n      model: openai/gpt-5\n"
        "      api_key: os.environ/OPENAI_API_KEY",
        right="provider openai { key env(OPENAI_API_KEY) }",
    ),
)
