"""The story of a call that is over, from the journal of the running proxy."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

import attrs
import trio

from hivemind_trio.model import shown_credential
from hivemind_trio.store import CallStory, JournalError, PlanRow, TurnStory, questioned, story_named

from .operated import Operated
from .problems import OperationFailed, ProblemKind
from .show import OneCall
from .views import StoryView

ADVICE: Final = {
    "provider-concurrency": "raise `concurrency` of provider `{provider}`, if it accepts more calls at once",
    "limits-concurrency": "raise `limits {{ concurrency }}` of provider `{provider}` for this model",
    "lane-max": "raise `max` of lane `{lane}`",
    "lane-reserve": "lower the `reserve` of other lanes, or move the call to the lane that has it",
    "agent-concurrency": "raise `concurrency` of agent `{agent}`",
    "agent-limit": "raise `limits` of agent `{agent}`",
    "model-resident": "raise `resident` of provider `{provider}`, or let agents share a model",
    "plan-reserve": "a lane that `plan {{ reserve }}` of provider `{declared}` names, or a smaller reserve",
    "plan-pace": "a lane that `plan {{ pace }}` of provider `{declared}` does not name",
    "plan-used-up": "`overage allow` in `plan` of provider `{declared}`: such calls are paid beyond the plan",
    "limits": "raise `limits` of provider `{provider}`, if its account allows more",
    "growth": "declare the `limits` of provider `{provider}`: it refused calls for their rate, which is then learned",
    "budget": "raise the budget ({budgets}), or take the call out of it",
    "store-unavailable": "make room on the disk of the state",
    "breaker-open": "add `fallback` to provider `{declared}`, so that calls go elsewhere while it is down",
    "provider-quota": "a larger quota at provider `{provider}`, or a second provider with `fallback`",
    "prompt-cache": "nothing: another call was filling the prompt cache, which saves both money and time",
    "retry": "add `fallback` to provider `{declared}`, so that a retry goes elsewhere",
    "paused": "nothing in the policy: an operator had paused it (`hivemind-trio resume`)",
    "turn": "a higher `priority`, or a higher `weight` of its team or lane",
    "queue-full": "raise `queue`, or `concurrency` of provider `{provider}`",
    "deadline": "raise `deadline` of lane `{lane}`, or `concurrency` of provider `{provider}`",
}
"""Reason -> what in the policy would have made the wait shorter."""

AT_ONCE: Final = frozenset(
    {
        *("provider-concurrency", "limits-concurrency", "limits", "retry", "queue-full", "deadline"),
        *("client-patience", "held-too-long"),
    }
)
"""Reasons for which more at once, or a larger limit, is no advice where the provider refuses what it has."""

REFUSED: Final = {
    "quota": "`limits` of provider `{provider}` as its account has them, a second account, `fallback` or fewer agents: "
    "it refused {met} for their rate ({status}), and with more `concurrency` it refuses more",
    "concurrency": "a second account at provider `{provider}`, `fallback` or fewer agents: it refused {met} because "
    "there were too many at once ({status}), whatever `concurrency` the policy has",
    "overloaded": "`fallback` of provider `{provider}`: it was overloaded and refused {met} ({status}), and with more "
    "`concurrency` it refuses more",
    "terminal": "a second account at provider `{provider}`, more credit or a larger plan, or `fallback`: it refused "
    "{met} because its credit or plan was used up ({status})",
}
"""Outcome of refused attempts -> what would have made the wait shorter."""

OUTCOMES: Final = {"burst": "quota", "too-fast": "quota"} | {outcome: outcome for outcome in REFUSED}
"""Outcome of a refused attempt -> the one whose advice holds for it."""

REFUSED_SHARE: Final = 0.05
"""Share of the attempts of all calls, refused, from which on the provider itself is the limit."""


WAITED_NS: Final = 100_000_000
"""Shorter waits are not worth advice."""
MINUTE_NS: Final = 60 * 10**9
FEW_S: Final = 10
"""Less is told with a decimal."""


async def story(proxy: Operated, one: OneCall) -> StoryView:
    """Return the story of a call that is over: its waits, its attempts, and what would have made it faster."""
    path = proxy.facts.journal
    if path is None:
        raise OperationFailed(ProblemKind.NO_SUCH_RESOURCE, "there is no journal: the policy has `journal off`")
    try:
        found = await trio.to_thread.run_sync(partial(questioned, path, lambda database: story_named(database, one.id)))
    except JournalError as error:
        raise OperationFailed(ProblemKind.NO_SUCH_RESOURCE, str(error)) from None
    if found is None:
        raise OperationFailed(
            ProblemKind.NO_SUCH_RESOURCE, f"the journal has no call `{one.id}`; rows are written within seconds"
        )
    return StoryView(id=one.id, story=story_object(found))


def story_object(told: CallStory) -> dict[str, Any]:
    """Return a story as JSON has it; times that end in `_ns` are in nanoseconds."""
    shown = attrs.asdict(told, filter=lambda field, _: field.name != "plan")
    for one, attempt in zip(shown["attempts"], told.attempts, strict=True):
        if attempt.turn is not None:
            one["turn"]["text"] = turn_text(attempt.turn, attempt.provider)
    return {"format_version": 1, **shown, "plan": plan_objects(told.plan), "faster": advice(told) or None}


def advice(story: CallStory) -> str:
    """Return what would have made the call faster; empty: it hardly waited, or nothing is known."""
    longest = max(story.attempts, key=lambda attempt: attempt.waited_ns, default=None)
    reason, waited_ns = story.refused or story.reason, story.waited_ns
    if longest is not None and story.refused is None:
        reason, waited_ns = longest.reason, longest.waited_ns
    if by_provider := _of_refusals(story, reason, waited_ns):
        return by_provider
    if story.refused is None and waited_ns < WAITED_NS:
        return ""
    words = ADVICE.get(reason, "").format(
        provider=longest.provider if longest is not None else "",
        declared=longest.provider.partition(".")[0] if longest is not None else "",  # without its account
        lane=story.lane,
        agent=story.agent,
        budgets=", ".join(longest.budgets) if longest is not None and longest.budgets else "see `explain`",
    )
    return words.replace("provider ``", "its provider")  # a call that was never sent has none in the journal


def _of_refusals(story: CallStory, reason: str, waited_ns: int) -> str:
    """Return what would have helped where the provider refused attempts; empty: that was not the reason."""
    met, last = story.refusals, story.attempts[-1] if story.attempts else None
    if met is None:
        return ""
    is_own = any(one.outcome in OUTCOMES for one in story.attempts)
    failed = last is not None and last.outcome in OUTCOMES
    waited = reason in AT_ONCE and (story.refused is not None or waited_ns >= WAITED_NS)
    if not (failed or waited) or not (is_own or met.refused >= REFUSED_SHARE * met.attempts):
        return ""
    return REFUSED[OUTCOMES[met.outcome]].format(
        provider=met.provider,
        met=f"{met.refused:,} of {met.attempts:,} attempts",
        status=met.status or "no status",
    )


def turn_text(turn: TurnStory, provider: str) -> str:
    """Return what those who went first had had, and who waited, in words."""
    first, they = (f"{turn.others} others went", "and they {} on average")
    if turn.others == 1:
        first, they = "another one went", "and that one {}"
    who = f"{'team' if turn.is_team else 'agent'} `{turn.caller}`"
    had, others = (_slot_seconds(ns) for ns in (turn.had_ns, turn.others_ns))
    span = f"the {turn.span_ns // MINUTE_NS} minutes before"
    return f"{first} first: {who} had had {had} slot-seconds of provider `{provider}` in {span}, {they.format(others)}"


def _slot_seconds(time_ns: int) -> str:
    value = time_ns / 1e9
    return f"{value:,.0f}" if value >= FEW_S else f"{value:.1f}"


def plan_objects(rows: Sequence[PlanRow]) -> list[dict[str, Any]]:
    """Return the windows as JSON has them."""
    return [
        {
            "provider": row.provider,
            "account": shown_credential(row.account) or None,
            "window": row.window,
            "span": row.span,
            "models": row.models or None,
            "used": row.used,
            "read_at": _moment(row.read_wall_ns),
            "resets_at": None if row.resets_wall_ns is None else _moment(row.resets_wall_ns),
            "overage": row.overage,
        }
        for row in rows
    ]


def _moment(wall_ns: int) -> str:
    return datetime.fromtimestamp(wall_ns / 1e9).astimezone().isoformat(timespec="seconds")
