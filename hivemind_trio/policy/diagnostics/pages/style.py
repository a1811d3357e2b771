"""Pages of style and of `# hmp: allow` comments: HM901 to HM904."""

from __future__ import annotations

from typing import Final

from .page import Page, not_reported

PAGES: Final = (
    not_reported("HM901", "not formatted; `hivemind-trio fmt --check` looks for it"),
    not_reported("HM902", "deprecated"),
    Page(
        "HM903",
        "condition that can be shorter",
        "A flag is a condition by itself.",
        wrong="rule r when stream == true { priority 2 }\nprovider anthropic { }",
        right="rule r when stream { priority 2 }\nprovider anthropic { }",
    ),
    Page(
        "HM904",
        "unused `# hmp: allow` comment",
        "The diagnostic that it allows is not reported here. Errors cannot be allowed.",
        wrong="# hmp: allow HM308 kept for later\nprovider anthropic { }",
        right="# kept for later\nprovider anthropic { }",
    ),
)
