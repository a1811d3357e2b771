"""Plan headers of providers, literal, and what is read in them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import PlanReading, PlanSpan, PlanStanding, PlanUse, PlanWindow
from hivemind_trio.model.plan import WHOLE
from hivemind_trio.proxy.plan_header import plan_header
from hivemind_trio.wire import read_plan

S = 1_000_000_000
HOUR = 3_600 * S
DAY = 24 * HOUR
DATE = {"date": "Mon, 23 Nov 2026 15:00:00 GMT"}
AT_S = 1_795_446_000
"""The same, since 1970."""

ANTHROPIC = "anthropic-ratelimit-unified"

FIVE_HOURS = PlanWindow(name="5h", used=420_000, window_ns=5 * HOUR, resets_ns=9_000 * S)

CASES: dict[str, tuple[dict[str, str], PlanReading | None]] = {
    # The names are those in Claude Code 2.1.197.
    "anthropic: windows of five hours and of a week, and of the week for one family of models": (
        {
            f"{ANTHROPIC}-status": "allowed_warning",
            f"{ANTHROPIC}-reset": str(AT_S + 9_000),
            f"{ANTHROPIC}-representative-claim": "seven_day_opus",
            f"{ANTHROPIC}-5h-utilization": "0.42",
            f"{ANTHROPIC}-5h-reset": str(AT_S + 9_000),
            f"{ANTHROPIC}-5h-status": "allowed",
            f"{ANTHROPIC}-7d-utilization": "0.61",
            f"{ANTHROPIC}-7d-reset": str(AT_S + 3 * 86_400),
            f"{ANTHROPIC}-7d_opus-utilization": "0.9",
            f"{ANTHROPIC}-7d_opus-surpassed-threshold": "0.75",
            f"{ANTHROPIC}-overage-status": "allowed",
            f"{ANTHROPIC}-overage-in-use": "false",
        },
        PlanReading(
            windows=(
                FIVE_HOURS,
                PlanWindow(name="7d", used=610_000, window_ns=7 * DAY, resets_ns=3 * DAY),
                PlanWindow(name="7d_opus", used=900_000, window_ns=7 * DAY, models="opus"),
            )
        ),
    ),
    "anthropic: what is paid beyond the week is a window of every model": (
        {f"{ANTHROPIC}-7d_oi-utilization": "0.5", f"{ANTHROPIC}-overage-in-use": "true"},
        PlanReading(windows=(PlanWindow(name="7d_oi", used=500_000, window_ns=7 * DAY),), overage=True),
    ),
    "anthropic: a window that rejects is used up, whatever its share": (
        {f"{ANTHROPIC}-5h-status": "rejected", f"{ANTHROPIC}-5h-utilization": "0.98"},
        PlanReading(windows=(PlanWindow(name="5h", used=WHOLE, window_ns=5 * HOUR),)),
    ),
    "anthropic: a key's answers have no plan": ({f"{ANTHROPIC}-status": "allowed", "retry-after": "3"}, None),
    # codex-rs, `codex-api/src/rate_limits.rs`
    "codex: two windows that name their length, and a family of limits of one model": (
        {
            "x-codex-primary-used-percent": "42.0",
            "x-codex-primary-window-minutes": "300",
            "x-codex-primary-reset-at": str(AT_S + 9_000),
            "x-codex-secondary-used-percent": "7",
            "x-codex-secondary-window-minutes": "43200",
            "x-codex-secondary-reset-after-seconds": "60",
            "x-codex-bengalfox-primary-used-percent": "3",
            "x-codex-bengalfox-limit-name": "GPT-5-Sonic",
            "x-codex-other-primary-used-percent": "99",
            "x-codex-credits-has-credits": "true",
        },
        PlanReading(
            windows=(
                PlanWindow(name="primary", used=420_000, window_ns=5 * HOUR, resets_ns=9_000 * S),
                PlanWindow(name="secondary", used=70_000, window_ns=30 * DAY, resets_ns=60 * S),
                PlanWindow(name="primary_bengalfox", used=30_000, window_ns=5 * HOUR, models="gpt-5-sonic"),
            )
        ),
    ),
    "codex: credits are in use once a window is full": (
        {"x-codex-primary-used-percent": "100", "x-codex-credits-has-credits": "True"},
        PlanReading(windows=(PlanWindow(name="primary", used=WHOLE, window_ns=5 * HOUR),), overage=True),
    ),
    "nonsense": (
        {f"{ANTHROPIC}-5h-utilization": "NaN", "x-codex-primary-used-percent": "-1", "x-codex-primary-reset-at": "x"},
        None,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_plans(case: str) -> None:
    headers, reading = CASES[case]

    assert read_plan(headers | DATE) == reading


def test_a_reset_is_relative_to_the_date_of_the_answer_and_unknown_without_one() -> None:
    headers = {f"{ANTHROPIC}-5h-utilization": "0.42", f"{ANTHROPIC}-5h-reset": str(AT_S + 9_000)}

    assert read_plan(headers | DATE) == PlanReading(windows=(FIVE_HOURS,))
    assert read_plan(headers) == PlanReading(windows=(PlanWindow(name="5h", used=420_000, window_ns=5 * HOUR),))


NAMES = st.sampled_from(
    [
        f"{ANTHROPIC}-{window}-{part}"
        for window in ("5h", "7d", "99d", "7d_opus", "overage")
        for part in ("utilization", "reset", "status")
    ]
    + [
        f"x-codex-{window}-{part}"
        for window in ("primary", "secondary", "x-primary")
        for part in ("used-percent", "window-minutes", "reset-at", "limit-name", "reset-after-seconds")
    ]
)
TEXTS = st.sampled_from(["0.42", "1.0", "100", "1e9", "", "rejected", "99999999999999", "0", "true"]) | st.text()


@given(st.dictionaries(NAMES | st.text(max_size=20), TEXTS))
def test_whatever_the_headers_shares_are_shares_and_times_are_to_come(headers: dict[str, str]) -> None:
    reading = read_plan(headers | DATE)

    assert reading is None or reading.windows
    for window in reading.windows if reading is not None else ():
        assert 0 <= window.used <= WHOLE
        assert window.window_ns > 0
        assert window.resets_ns is None or 0 <= window.resets_ns <= 400 * DAY


def test_the_header_names_share_and_reset_of_each_span() -> None:
    now = datetime(2026, 11, 23, 19, 0, tzinfo=UTC)
    standing = PlanStanding(
        uses=(
            PlanUse(span=PlanSpan.SESSION, used=939_999, resets_ns=3 * HOUR + 780 * S),
            PlanUse(span=PlanSpan.WEEK, used=610_000, resets_ns=4 * DAY),
            PlanUse(span=PlanSpan.MONTH, used=0, resets_ns=None),
        ),
        overage=True,
    )

    assert plan_header(standing, now) == [
        (b"x-hivemind-plan", b"session 93% resets 22:13Z; week 61% resets 2026-11-27T19:00Z; month 0%; overage")
    ]
    assert plan_header(PlanStanding(), now) == []
