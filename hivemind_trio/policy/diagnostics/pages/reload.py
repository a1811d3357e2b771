"""Pages of what a reload cannot keep: HM701 to HM703."""

from __future__ import annotations

from typing import Final

from .page import Page

PAGES: Final = (
    Page(
        "HM701",
        "state that a reload resets",
        "Reported by `diff`, and by `serve` when it reloads. Counters and learned values are identified by kind and "
        "name, counters by their window too, and this change gives them another identity. A budget with another "
        "window or measure begins at 0. Change the amount instead, or change it when the window ends.",
    ),
    Page(
        "HM702",
        "change that needs a restart",
        "A running proxy keeps its sockets. It takes up nothing of the new policy until it is restarted.",
    ),
    Page(
        "HM703",
        "renamed declaration",
        "Reported by `diff`, and by `serve` when it reloads: a declaration is gone, and a very similar one is new. "
        "If it was renamed, add `was OLD` behind the new name: then a reload keeps what was spent, what was learned "
        "of the provider, and which calls hold slots. Without it the new declaration begins at nothing. A `was` may "
        "stay after the reload.",
    ),
)
