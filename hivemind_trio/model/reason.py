"""Reasons: stable public codes of waits and rejections, with status, finality and words of each rejection."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, final

import attrs


class Reason(StrEnum):
    """Public code in `x-hivemind-reason`, error bodies, the log and the journal; a code is never reused."""

    NONE = "none"
    """No wait."""

    # waits
    PROVIDER_CONCURRENCY = "provider-concurrency"
    LIMITS_CONCURRENCY = "limits-concurrency"
    LANE_MAX = "lane-max"
    LANE_RESERVE = "lane-reserve"
    AGENT_CONCURRENCY = "agent-concurrency"
    AGENT_LIMIT = "agent-limit"
    MODEL_RESIDENT = "model-resident"
    LIMITS = "limits"
    GROWTH = "growth"
    BUDGET = "budget"
    """A wait or a rejection."""
    STORE_WRITE = "store-write"
    BREAKER_OPEN = "breaker-open"
    """A wait or a rejection."""
    PROVIDER_QUOTA = "provider-quota"
    PROMPT_CACHE = "prompt-cache"
    RETRY = "retry"
    HELD = "held"
    """A rule holds it (`hold`): a wait, or a rejection where its client does not wait so long."""
    PAUSED = "paused"
    """An operator has paused its provider, lane or agent."""
    TURN = "turn"

    # rejections
    STORE_UNAVAILABLE = "store-unavailable"
    QUEUE_FULL = "queue-full"
    SHED_OLDEST = "shed-oldest"
    DEADLINE = "deadline"
    PLAN_RESERVE = "plan-reserve"
    PLAN_PACE = "plan-pace"
    PLAN_USED_UP = "plan-used-up"
    PROVIDER_SPENT = "provider-spent"
    CLIENT_PATIENCE = "client-patience"
    """Rejected on arrival, by the expected wait."""
    HELD_TOO_LONG = "held-too-long"
    """Rejected after a wait, shortly before its client's timeout."""
    OVER_LIMITS = "over-limits"
    JOURNAL_BEHIND = "journal-behind"
    """Only in journals of version 0.1: the journal holds no call up any more."""
    DENIED = "denied"
    CANCELLED = "cancelled"
    """By an operator."""
    UNKNOWN_AGENT = "unknown-agent"
    NO_PROVIDER = "no-provider"
    BODY_TOO_LARGE = "body-too-large"
    BAD_REQUEST = "bad-request"
    HEADER_TOO_LARGE = "header-too-large"
    METHOD_REJECTED = "method-rejected"
    """TRACE shows headers to its sender, and CONNECT asks for a tunnel."""
    UPGRADE_REJECTED = "upgrade-rejected"
    FOREIGN_HOST = "foreign-host"
    """DNS rebinding: a web page may have made a name point here."""
    FOREIGN_ORIGIN = "foreign-origin"
    PROXY_OVERLOADED = "proxy-overloaded"
    DRAINING = "draining"
    INTERNAL_ERROR = "internal-error"
    """A mistake of the proxy, which ends one call."""
    UPSTREAM_UNREACHABLE = "upstream-unreachable"
    UPSTREAM_TIMEOUT = "upstream-timeout"
    UPSTREAM_BROKE = "upstream-broke"
    UPSTREAM_REFUSED = "upstream-refused"
    """The provider answered with an error after the agent got a 200 and keep-alive events."""


@final
@attrs.frozen
class Rejection:
    """Status, finality and words of the rejections with one reason."""

    status: int
    is_final: bool
    """True if SDKs are told not to retry: a retry soon would be rejected again."""
    words: Mapping[str, str]
    """Case -> condition and what to do, with names of values in braces. The only or usual case is `""`."""


_RETRY, _FINAL = False, True


def _row(status: int, is_final: bool, words: str = "", **cases: str) -> Rejection:
    return Rejection(status, is_final, {**({"": words} if words else {}), **cases})


REJECTIONS: Final[Mapping[Reason, Rejection]] = {
    Reason.QUEUE_FULL: _row(
        429,
        _RETRY,
        agent="queue full: {waiting} waiting for agent `{name}` (limit {limit})",
        provider="queue full: {waiting} waiting for provider `{name}` (limit {limit})",
        lane="queue full: {waiting} waiting in lane `{name}` (limit {limit})",
        server="queue full: {waiting} waiting in all lanes (`server {{ max-waiting {limit} }}`)",
    ),
    Reason.SHED_OLDEST: _row(
        429, _RETRY, "{full}; this call had waited longest and was dropped (`overflow shed-oldest`)"
    ),
    Reason.DEADLINE: _row(429, _RETRY, "deadline exceeded: the call waited {waited} in the queue because {wait}"),
    Reason.CLIENT_PATIENCE: _row(
        429,
        _RETRY,
        "the call would wait about {wait} in the queue, and its client can be held for {longest}, because {why}",
        plan="the call would wait up to {wait}, and its client can be held for {longest}, because {why}",
    ),
    Reason.HELD: _row(429, _FINAL, "held by the policy: {message}; the call can start in {wait}"),
    Reason.PLAN_RESERVE: _row(
        429,
        _FINAL,
        "the rest of the plan of the call's account at provider `{provider}` is reserved for other lanes than "
        "`{lane}`; the call can start in {wait}",
    ),
    Reason.PLAN_PACE: _row(
        429,
        _FINAL,
        "calls of lane `{lane}` have used more of the plan of their account at provider `{provider}` than has elapsed; "
        "the call can start in {wait}",
    ),
    Reason.HELD_TOO_LONG: _row(
        429,
        _RETRY,
        "the call waited {waited} in the queue without being sent, the longest that its client allows",
        because="the call waited {waited} in the queue, the longest that its client allows, because {wait}",
    ),
    Reason.BUDGET: _row(429, _FINAL, "{message} ({allowance}); it resets in {resets}"),
    Reason.STORE_UNAVAILABLE: _row(
        503,
        _RETRY,
        "the budget of this call cannot be written to disk, or drawn from the store of several nodes; "
        "calls without a budget are served",
    ),
    Reason.PROVIDER_SPENT: _row(
        429,
        _FINAL,
        "provider `{provider}` reports that the account's credit or plan quota is exhausted; check its billing",
        resets="provider `{provider}` reports that the account's credit or plan quota is exhausted; "
        "it resets in {resets}",
    ),
    Reason.OVER_LIMITS: _row(
        413,
        _FINAL,
        "the call needs about {amount:,}, more than the rate limit of {limit} of provider `{provider}`; "
        "shorten the request, or raise `limits` in the policy",
        agent="the call needs about {amount:,}, more than the limit of {limit} of agent `{agent}`; "
        "shorten the request, or raise `limits` of the agent in the policy",
    ),
    Reason.DENIED: _row(
        403,
        _FINAL,
        "denied by the policy",
        rule="denied by the policy: {message}",
        key="provider `{provider}` has no `key`, and an agent's token is not sent upstream; add `key env(NAME)` to it",
        admin="`{path}` administers the provider's account and is not forwarded; to allow it, "
        'add `rule admin when path ~ "*/organization*" {{ allow }}` to the policy',
        model="the policy replaces the model by `{model}`, but the request names no model",
    ),
    Reason.CANCELLED: _row(403, _FINAL, "cancelled by an operator"),
    Reason.UNKNOWN_AGENT: _row(
        401, _FINAL, "unknown agent: this policy only accepts declared agents; use an agent's token as the API key"
    ),
    Reason.NO_PROVIDER: _row(
        404,
        _FINAL,
        empty="the policy has no provider",
        path="unknown API path `{path}`",
        base="unknown API path `{path}`; {hint}",
        key="unknown API path `{path}`: the provider's key is used for it only in place of a credential, and the "
        "request has none; send one, or add `rule open when path == {quoted} {{ allow }}` to the policy",
        dialect="no provider in the policy speaks the API `{api}` of the path `{path}`",
        model="no provider in the policy serves model `{model}`",
        default="no provider in the policy serves the path `{path}`",
    ),
    Reason.BODY_TOO_LARGE: _row(
        413,
        _FINAL,
        "the request body is larger than {limit:,} bytes (`server {{ max-body }}`); shorten it, or raise the limit",
        members="the request body has too many members: {detail}",
    ),
    Reason.BAD_REQUEST: _row(
        400,
        _FINAL,
        "the request cannot be forwarded: {detail}",
        forwarded="`X-Forwarded-For` and `Forwarded` name different callers, and one of them may be the caller's own "
        "word; have the proxy in front remove the one that it does not set",
        host="the value of `Host` is not a name or an address with a port",
        http="the request is not valid HTTP",
        name="the agent's name after `/@` may have letters, digits and `. _ ~ -`, at most 64: `/@build-1/v1/messages`",
        proxy="the request target is not a path, and this is no forward proxy; request a path, such as `/v1/messages`",
    ),
    Reason.HEADER_TOO_LARGE: _row(431, _FINAL, "the request's head is too large (`server {{ max-header }}`)"),
    Reason.METHOD_REJECTED: _row(
        405,
        _FINAL,
        "method {method} is not forwarded",
        health="`{path}` of the proxy takes GET and HEAD, not {method}",
    ),
    Reason.UPGRADE_REJECTED: _row(
        426, _FINAL, "WebSockets are not supported; use HTTP (Codex falls back to HTTP by itself)"
    ),
    Reason.FOREIGN_HOST: _row(
        421,
        _FINAL,
        "`Host: {name}` is not a name of this proxy; call it by its IP address, or add the name to the policy: "
        '`server {{ hosts ["{name}"] }}`',
    ),
    Reason.FOREIGN_ORIGIN: _row(403, _FINAL, "requests of web pages are not served (`{header}: {value}`)"),
    Reason.PROXY_OVERLOADED: _row(
        503,
        _RETRY,
        "the proxy is overloaded: its CPU cannot serve more calls",
        memory="the proxy is overloaded: the request bodies of its calls take {limit:,} MiB, all that they may",
    ),
    Reason.DRAINING: _row(
        503,
        _RETRY,
        "the proxy is shutting down and accepts no new calls",
        cut="the proxy has shut down before the call was over (`server {{ drain }}`)",
    ),
    Reason.INTERNAL_ERROR: _row(
        500, _RETRY, "the proxy has made a mistake and cannot send this call; its log has the error (`attempt_crashed`)"
    ),
    Reason.BREAKER_OPEN: _row(503, _RETRY, "circuit breaker open: provider `{provider}` has failed repeatedly"),
    Reason.UPSTREAM_UNREACHABLE: _row(
        503,
        _RETRY,
        "provider `{provider}` is unreachable",
        cause="provider `{provider}` is unreachable ({cause})",
    ),
    Reason.UPSTREAM_TIMEOUT: _row(504, _RETRY, "provider `{provider}` did not answer in time (`timeout {kind}`)"),
    Reason.UPSTREAM_BROKE: _row(
        502,
        _RETRY,
        "provider `{provider}` broke off its response before any content ({kind})",
        late="the provider's response broke off ({kind})",
    ),
    Reason.UPSTREAM_REFUSED: _row(502, _RETRY, "the provider answered {status}, and not with a stream"),
}
"""Reason -> its rejections. Never 529: it counts towards Claude Code's overload fallback."""

WAITS: Final[Mapping[Reason, str]] = {
    Reason.PROVIDER_CONCURRENCY: "provider `{provider}` was at its concurrency limit of {limit}",
    Reason.LIMITS_CONCURRENCY: "models `{models}` of provider `{provider}` were at their concurrency limit of {limit}",
    Reason.LANE_MAX: "lane `{lane}` was at its limit of {limit} calls in flight at provider `{provider}`",
    Reason.LANE_RESERVE: "the free slots of provider `{provider}` were reserved for other lanes than `{lane}`",
    Reason.AGENT_CONCURRENCY: "agent `{agent}` was at its concurrency limit of {limit}",
    Reason.AGENT_LIMIT: "agent `{agent}` had started as much as its `limits` allow",
    Reason.MODEL_RESIDENT: "provider `{provider}` had other models loaded",
    Reason.LIMITS: "the rate limits of provider `{provider}` for models `{models}` were used up",
    Reason.GROWTH: "provider `{provider}` had refused calls for their rate, so dispatch was slowed down",
    Reason.BUDGET: "a budget was used up, or reserved by calls in flight",
    Reason.STORE_WRITE: "its budget was being written to disk, or drawn from the store of several nodes",
    Reason.BREAKER_OPEN: "the circuit breaker of provider `{provider}` was open",
    Reason.PROVIDER_QUOTA: "provider `{provider}` had reported that a quota was used up",
    Reason.PLAN_RESERVE: "the rest of the plan of its account at provider `{provider}` was reserved for other lanes "
    "than `{lane}`",
    Reason.PLAN_PACE: "calls of lane `{lane}` had used more of the plan of their account at provider `{provider}` than "
    "had elapsed",
    Reason.PLAN_USED_UP: "the plan of its account at provider `{provider}` was used up (`overage deny`)",
    Reason.PROMPT_CACHE: "another call was filling the prompt cache for both",
    Reason.RETRY: "attempts at provider `{provider}` had failed and the next retry was not due",
    Reason.HELD: "rule `{rule}` held it",
    Reason.PAUSED: "an operator had paused provider `{provider}`, lane `{lane}` or the agent",
    Reason.TURN: "other calls were dispatched first",
}
"""Reason -> why a call waited, with names of values in braces."""


def rejection_text(reason: Reason, case: str = "", **values: object) -> str:
    """Return the words of a rejection."""
    return REJECTIONS[reason].words[case].format_map(values)


def wait_text(reason: Reason, **values: object) -> str:
    """Return why a call waited."""
    return WAITS[reason].format_map(values)
