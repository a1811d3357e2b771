"""One provider in words and tables, for `hivemind-trio status PROVIDER`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from hivemind_trio.cli.table import table

from .words import counted, moment, per, span

TURNS_SHOWN: Final = 12
"""Changes of a circuit, the newest, as on its page."""
KINDS: Final = {
    "learn": "any kind, as yet",
    "bucket": "token bucket",
    "fixed": "fixed window",
    "sliding": "sliding window",
}
"""Kind of a window -> words."""


def provider_text(found: dict[str, Any], now: datetime) -> str:
    """Return everything that is known of one provider, or of each of its accounts."""
    if found["accounts"]:
        return "\n".join([_head(found["provider"], now), *(provider_text(one, now) for one in found["accounts"])])
    blocks = (
        _head(found["provider"], now),
        _limits(found, now),
        _gates(found["gates"], now),
        _beliefs(found, now),
        _models(found["models"]),
        _circuit(found["circuit"]),
    )
    return "\n".join(block for block in blocks if block)


def _head(provider: dict[str, Any], now: datetime) -> str:
    from hivemind_trio.policy import visible

    probe = (
        f", the next call may try it {moment(provider['probe_at'], now)}" if provider["probe_at"] is not None else ""
    )
    name = ", ".join([provider["name"], *provider["shared_by"]])
    return (
        f"{visible(name)}  circuit {provider['circuit']}{probe}  "
        f"{provider['waiting']:,} waiting, {provider['inflight']:,} of {provider['limit']:,} in flight\n"
    )


def _limits(found: dict[str, Any], now: datetime) -> str:
    provider = found["provider"]
    kept = {_key(gate, bucket): bucket for gate in found["gates"] for bucket in gate["limits"]}
    known = "learned" if provider["learned"] else "as declared"
    rows = [
        ["in flight", f"{provider['inflight']:,}", f"{provider['limit']:,}", "", "", known, "", ""],
        *(_rate_limit(one, kept.get(_key(one, one))) for one in provider["limits"]),
        *(_plan(one, now) for one in provider["plans"]),
    ]
    head = ["limit", "used", "of", "by others", "window", "how known", "kept as", "resets"]
    return table(head, rows, right={1, 2, 3}, least=["by others", "kept as", "how known"])


def _plan(plan: dict[str, Any], now: datetime) -> list[str]:
    name = f"plan, {plan['span']}" + (f" ({plan['models']})" if plan["models"] else "")
    known = f"account {plan['account']}" if plan["account"] else "the key"
    return [name, f"{plan['used']:.0%}", "100%", "", plan["window"], known, "", moment(plan["resets_at"], now)]


def _key(of: dict[str, Any], limit: dict[str, Any]) -> tuple[Any, ...]:
    return of["group"], of["model"], limit["measure"], limit["window_s"]


def _rate_limit(limit: dict[str, Any], kept: dict[str, Any] | None) -> list[str]:
    return [
        limit["measure"] + (f" of {name}" if (name := limit["model"] or limit["group"]) else ""),
        f"{limit['used']:,}",
        f"{limit['limit']:,}",
        f"{kept['foreign']:,}" if kept is not None else "",
        per(limit["window_s"]),
        "as declared" if limit["declared"] else "told by headers",
        KINDS.get(kept["kind"], kept["kind"]) if kept is not None else "",
        "",
    ]


def _gates(gates: list[dict[str, Any]], now: datetime) -> str:
    """Return what refusals have taught."""
    rows = [
        [
            one["model"] or one["group"] or "all",
            f"{one['inflight']:,}",
            f"{one['allowed']:,}" if one["allowed"] is not None else "",
            f"{one['rate_per_s']:,}" if one["rate_per_s"] is not None else "",
            moment(one["holds_until_at"], now),
            "believed" if one["believed"] else "not believed",
            f"{one['probes_refused']:,}",
            f"{span(one['evidence_age_s'])} ago" if one["evidence_age_s"] is not None else "",
        ]
        for one in gates
    ]
    head = ["refusals of", "in flight", "at most", "per second", "held until", "its word", "probes refused", "evidence"]
    least = ["evidence", "probes refused", "its word"]
    return table(head, rows, right={1, 2, 3, 6}, least=least) if rows else "It has refused no call for its rate.\n"


def _beliefs(found: dict[str, Any], now: datetime) -> str:
    """Return what is believed of the number of calls at once; empty: nothing."""
    belief = found["concurrency"]
    return "".join(f"{line}\n" for line in _believed(belief, now)) if belief is not None else ""


def _believed(belief: dict[str, Any], now: datetime) -> Iterator[str]:
    if belief["accepts"]:
        by = (
            f", which is believed until {moment(belief['accepts_until_at'], now)}" if belief["accepts_until_at"] else ""
        )
        yield f"It seems to accept {counted(belief['accepts'], 'call')} at once{by}."
    if belief["stays_until_at"]:
        yield f"More at once did not raise throughput: the limit may grow {moment(belief['stays_until_at'], now)}."


def _models(models: list[dict[str, Any]]) -> str:
    rows = [
        [
            one["model"],
            *(
                f"{one[name]:,}"
                for name in ("inflight", "attempts", "refused", "failed", "tokens_in", "cached", "tokens_out")
            ),
            span(one["first_byte_s"]),
        ]
        for one in models
    ]
    head = [
        "model, last hour",
        "in flight",
        "attempts",
        "refused",
        "failed",
        "tokens in",
        "cached",
        "out",
        "first byte",
    ]
    least = ["cached", "in flight", "first byte", "out", "tokens in"]
    if not rows:
        return "No attempt has ended in the last hour.\n"
    return table(head, rows, right=set(range(1, 9)), least=least)


def _circuit(turns: list[dict[str, Any]]) -> str:
    """Return changes of the circuit, the newest first."""
    if not turns:
        return "Its circuit has been closed all the time.\n"
    rows = [
        [
            datetime.fromisoformat(one["at"]).astimezone().strftime("%d %b %H:%M:%S"),
            one["circuit"],
            one["because"] or "its pause is over",
            one.get("worker") or "",
        ]
        for one in turns[: -TURNS_SHOWN - 1 : -1]
    ]
    more = f"{counted(len(turns) - len(rows), 'earlier change')}: --json\n" if len(turns) > len(rows) else ""
    return table(["circuit since", "state", "because", "process"], rows) + more
