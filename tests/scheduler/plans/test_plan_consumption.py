"""Consumption of a plan, learned from readings in whole percents: the share that a call takes, and what is not read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model.plan import WHOLE
from hivemind_trio.scheduler.plans.plan_consumption import STEP, ConsumptionLearner


class Account:
    """A window of so many units of weight, told in whole percents, and its learner."""

    def __init__(self, size: float) -> None:
        self.size = size
        self.taken = 0.0
        self.learner = ConsumptionLearner()

    @property
    def used(self) -> int:
        return min(WHOLE, round(self.taken / self.size * WHOLE))

    def call(self, weight: float) -> None:
        self.learner.on_granted(weight)
        self.taken += weight
        self.learner.on_ended(weight, weight)
        self.read()

    def other(self, weight: float) -> None:
        """Somebody else uses the account; the next answer tells."""
        self.taken += weight
        self.read()

    def read(self, *, anew: bool = False) -> None:
        self.learner.on_read(self.used // STEP * STEP, anew=anew)


@given(
    size=st.floats(1e4, 1e8),
    began=st.integers(0, 400_000),
    calls=st.lists(st.floats(0.0005, 0.004), min_size=150, max_size=200),
)
def test_the_share_of_a_call_is_found_to_a_few_percent(size: float, began: int, calls: list[float]) -> None:
    account = Account(size)
    account.taken = size * began / WHOLE
    account.read()
    for part in calls:
        if account.used < WHOLE - 5_000:
            account.call(part * size)
    found = account.learner.learned
    if account.used - began > 15 * STEP:
        assert found is not None
        assert abs(found * size / WHOLE - 1) < 0.1


@given(st.lists(st.floats(0.0005, 0.03), min_size=1, max_size=60))
def test_the_estimate_is_never_further_from_the_truth_than_a_step_and_its_error(calls: list[float]) -> None:
    account = Account(1e6)
    account.read()
    for part in calls:
        if account.used < WHOLE - 30_000:
            account.call(part * 1e6)
        read = account.used // STEP * STEP
        assert read <= read + account.learner.unread() < read + STEP
        assert abs(read + account.learner.unread() - account.used) <= STEP


def test_nothing_is_believed_before_two_whole_steps() -> None:
    account = Account(100.0)
    account.taken = 0.5
    account.read()
    for _ in range(2):
        account.call(1.0)
    before = account.learner.learned
    assert before is None, "the first step began anywhere, and one is too few"
    account.call(1.0)
    assert account.learner.learned == STEP
    account.learner.on_granted(2.0)
    assert account.learner.unread() == 2 * STEP, "calls in flight count"
    account.learner.on_ended(2.0, 0.3)
    assert account.learner.unread() == round(0.3 * STEP)


def test_a_window_that_begins_anew_is_no_step() -> None:
    account = Account(100.0)
    for _ in range(5):
        account.call(1.0)
    account.taken = 0.2
    account.read(anew=True)
    account.call(30.0)  # from 0.2 to 30.2: it began somewhere within a step
    assert account.learner.learned == STEP
    account.taken = 0.0
    account.read()  # less than before, whatever its reset says
    account.call(50.0)
    assert account.learner.learned == STEP


def test_what_others_use_hardly_counts() -> None:
    account = Account(100.0)
    for _ in range(30):
        account.call(0.5)
        account.call(0.5)
        account.other(1.0)
    found = account.learner.learned
    assert found is not None
    assert STEP <= found < 1.4 * STEP
