"""Pages of what a reload cannot keep: HM701 to HM703."""

from __future__ import annotations

from typing import Final

from .page import Page

PAGES: Final = (
    Page(
        "HM701",
        "state that a reload would reset",
        "`diff`, and `serve` when it takes up a new policy, say so: what was counted or learned is known by its kind "
        "and name, a count by its window too, and this change gives it another identity. A budget of another window "
        "or measure begins at 0. Change the amount instead, or do it when the window turns.",
    ),
    Page(
        "HM702",
        "a change that needs a restart",
        "A running proxy keeps its sockets. Nothing of the new policy is taken up until it is restarted.",
    ),
    Page(
        "HM703",
        "a name that changed",
        "`diff`, and `serve` when it takes up a new policy, say so: something is gone, and something very like it is "
        "new. If it is the same under another name, say so with `was OLD` behind the new name: then a reload keeps "
        "what was spent of it, what was learned of the provider, and who holds which slots. Without it the one ends "
        "and the other begins at nothing. A `was` that has done its work does nothing any more, and may stay.",
    ),
)
