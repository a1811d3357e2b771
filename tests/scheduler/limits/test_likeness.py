"""Which kind of window answers look like: figures as each kind gives them, a second apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hivemind_trio.model import Dimension, QuotaReading
from hivemind_trio.policy import RateLimitSettings, Window
from hivemind_trio.scheduler.limits.rate_limiter import RateLimiter
from hivemind_trio.scheduler.limits.window_inference import SAMPLES, WindowClassifier

S = 1_000_000_000
MINUTE = 60 * S
Says = Callable[[int], tuple[int, float, int]]
"""After so many seconds: what is left of 1,000, seconds to the reset, what we had taken."""


def heard(says: Says, answers: int = 32, every_ns: int = S) -> WindowClassifier:
    likeness = WindowClassifier()
    for number in range(answers):
        remaining, resets_s, seen = says(number)
        reading = QuotaReading(
            dimension=Dimension.REQUESTS, limit=1_000, remaining=remaining, resets_ns=round(resets_s * S) or None
        )
        likeness.on_headers(reading, MINUTE, seen, number * every_ns)
    return likeness


def swings(second: int) -> int:
    """Work that comes and goes."""
    return 600 + 30 * abs(second % 16 - 8)


SHOWN: dict[str, tuple[Says, Window]] = {
    "a bucket": (lambda second: (swings(second), (1_000 - swings(second)) * 0.06, 0), Window.BUCKET),
    "less deep": (lambda second: (swings(second) - 500, (900 - swings(second)) * 0.06, 0), Window.BUCKET),
    "never touched": (lambda _: (1_000, 0, 0), Window.LEARN),
    "a constant load": (lambda _: (500, 30, 500), Window.LEARN),
    "a bucket that is full again at once": (lambda second: (970 - second % 5, 2 + second % 2, 950), Window.BUCKET),
    "a bucket that others use": (lambda second: (50 - second % 5, 57 + second % 2, 0), Window.LEARN),
    "deeper than its limit": (lambda second: (swings(second), 60 - (swings(second) - 700) * 0.06, 0), Window.LEARN),
    "a fixed window, over its turn": (lambda second: (swings(second), (75 - second) % 60 + 0.01, 0), Window.FIXED),
    "a sliding one": (lambda second: (swings(second), 60 - second % 7, 1_000 - swings(second)), Window.SLIDING),
    "no kind": (lambda second: (swings(second), second * 37 % 59 + 1, second * 311 % 1_000), Window.LEARN),
    "two that explain it": (
        lambda second: (1_000 - 10 * second, second * 0.6 + 0.01, 10 * second),
        Window.LEARN,
    ),
}


@pytest.mark.parametrize(("says", "kind"), SHOWN.values(), ids=SHOWN)
def test_a_kind_is_believed_that_explains_what_is_said_and_alone_does(says: Says, kind: Window) -> None:
    assert heard(says).kind is kind


def test_few_answers_show_nothing() -> None:
    says = SHOWN["a bucket"][0]

    assert heard(says, SAMPLES - 1).kind is Window.LEARN
    assert heard(says, SAMPLES).kind is Window.BUCKET


def test_answers_that_come_at_once_show_nothing() -> None:
    assert heard(SHOWN["a bucket"][0], 60, S // 100).kind is Window.LEARN


def test_the_depth_of_a_bucket_shows() -> None:
    assert heard(SHOWN["less deep"][0]).depth == pytest.approx(0.4)
    assert heard(SHOWN["a sliding one"][0]).depth == 1


def test_before_it_shows_no_more_goes_at_once_than_was_ever_left() -> None:
    bucket = RateLimiter(
        RateLimitSettings(dimension=Dimension.REQUESTS, amount=1_000, window_ns=MINUTE), declared=False
    )
    bucket.on_headers(QuotaReading(dimension=Dimension.REQUESTS, limit=1_000, remaining=10, resets_ns=1), 0, 0, 0, 0)

    at_once = 0
    while bucket.fits_ns(1, S) == S:
        bucket.take(1, S)
        at_once += 1

    assert at_once == 10


def test_what_was_not_taken_of_a_fixed_window_is_given_back() -> None:
    bucket = RateLimiter(
        RateLimitSettings(
            dimension=Dimension.REQUESTS, amount=100, window_ns=MINUTE, window=Window.FIXED, headroom=0.02
        )
    )
    bucket.on_headers(
        QuotaReading(dimension=Dimension.REQUESTS, limit=100, remaining=90, resets_ns=40 * S + 1), 0, 0, 0, 0
    )
    bucket.take(88, 0)
    assert bucket.fits_ns(1, S) > S

    bucket.settle(88, 8, 0, S)

    assert bucket.fits_ns(80, S) == S
    assert bucket.fits_ns(81, S) > S
