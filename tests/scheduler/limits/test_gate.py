"""Gate of one limits group: how long a refusal closes it, and the probes that find out whether that is true."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from hivemind_trio.scheduler.limits.learned_rate import JITTER
from hivemind_trio.scheduler.limits.refusal_gate import (
    ALLOW_MAX,
    BELIEVED_AFTER,
    ENDS_MAX,
    LIES_MAX_NS,
    LONG_NS,
    OBEYED_NS,
    PROBE_EVERY_NS,
    PROBE_LONG_EVERY_NS,
    PROBE_NS,
    PROBED_ALLOW,
    SOON_NS,
    TEST_MAX_NS,
    TURNED_ALLOW,
    TURNED_NS,
    RefusalGate,
)
from hivemind_trio.scheduler.protocol.call import CallId
from tests.support.programs import SECOND_NS

FAR = 10_000 * SECOND_NS


class Story:
    """A gate with one call at a time, and a forecast of its mirror."""

    def __init__(self) -> None:
        self.gate = RefusalGate()
        self.now_ns = 0
        self.mirror_ns = 0
        """Time until which the mirror says that there is no room."""
        self._next = 0

    @property
    def regular_ns(self) -> int:
        """When a call goes that is no probe."""
        return max(self.gate.opens_ns(self.now_ns), self.mirror_ns, self.now_ns)

    @property
    def opens_ns(self) -> int:
        """When any call goes."""
        return min(self.regular_ns, self.gate.probe_ns(self.regular_ns, self.now_ns))

    def grant(self) -> CallId:
        """A call goes as soon as it may."""
        while self.opens_ns > self.now_ns:
            self.now_ns = self.opens_ns
        call_id = CallId(self._next)
        self._next += 1
        self.gate.on_granted(call_id, probe=self.regular_ns > self.now_ns, now_ns=self.now_ns)
        return call_id

    def refuse(self, said_s: float = 0) -> int:
        """It is refused at once. Return when it was granted."""
        call_id = self.grant()
        self.gate.on_refused(call_id, int(said_s * SECOND_NS), self.now_ns, self.now_ns)
        self.gate.on_ended(call_id, self.now_ns)
        return self.now_ns

    def accept(self) -> bool:
        """It is answered at once. Return True if the mirror is to be dropped."""
        call_id = self.grant()
        dropped = self.gate.on_good(call_id, self.now_ns, self.now_ns)
        self.gate.on_ended(call_id, self.now_ns)
        return dropped


# ---- only a refusal closes ----


def test_an_unrefused_gate_is_open() -> None:
    story = Story()

    for _ in range(100):
        story.grant()

    assert story.now_ns == 0


@given(said_s=st.integers(1, OBEYED_NS // SECOND_NS), accepted=st.integers(8, 100))
def test_a_retry_after_up_to_20_s_is_obeyed_to_the_second(said_s: int, accepted: int) -> None:
    story = Story()
    for _ in range(accepted):
        story.accept()
        story.now_ns += SECOND_NS // 10
    refused_ns = story.refuse(said_s)

    call_id = story.grant()

    assert story.now_ns == refused_ns + said_s * SECOND_NS
    assert not story.gate.is_probe(call_id)


def test_a_short_retry_after_is_obeyed_though_nothing_was_accepted_before() -> None:
    story = Story()
    story.refuse(1)

    story.grant()

    assert story.now_ns == SECOND_NS


def test_a_word_that_is_over_lets_one_call_go_and_not_one_after_another() -> None:
    story = Story()
    story.refuse(1)
    story.mirror_ns = FAR

    granted_ns = []
    for _ in range(4):  # each fails for another reason, say at a cap on concurrency
        story.gate.on_ended(story.grant(), story.now_ns)
        granted_ns.append(story.now_ns)

    pauses = [later - earlier for earlier, later in pairwise(granted_ns)]
    assert granted_ns[0] == SECOND_NS
    assert min(pauses) >= PROBE_NS[0]


def test_refusals_of_one_batch_close_it_once_and_not_for_longer_each_time() -> None:
    story = Story()

    for _ in range(5):
        before_ns = story.now_ns
        story.refuse(3)
        assert story.opens_ns <= story.now_ns + SOON_NS
        assert story.now_ns - before_ns <= SOON_NS, "the wait is never doubled"


def test_a_later_shorter_word_does_not_cut_it_short() -> None:
    gate = RefusalGate()
    for number in range(3):
        gate.on_granted(CallId(number), probe=False, now_ns=0)
    for number, said_s in enumerate((15, 1, 0)):
        gate.on_refused(CallId(number), said_s * SECOND_NS, 0, 0)

    assert gate.opens_ns(0) == 15 * SECOND_NS


# ---- no standstill ----


def test_a_longer_one_is_probed_every_5_s() -> None:
    story = Story()
    story.refuse(60)

    times = [story.refuse(60 - story.now_ns // SECOND_NS) for _ in range(3)]

    assert times == [PROBE_EVERY_NS, 2 * PROBE_EVERY_NS, 3 * PROBE_EVERY_NS]


def test_one_of_more_than_ten_minutes_is_probed_every_five() -> None:
    story = Story()
    story.refuse(3_600)

    times = [story.refuse(3_600 - story.now_ns // SECOND_NS) for _ in range(3)]

    assert times == [PROBE_LONG_EVERY_NS, 2 * PROBE_LONG_EVERY_NS, 3 * PROBE_LONG_EVERY_NS]


def test_where_only_a_forecast_says_no_probes_go_within_2_3_4_and_then_5_s() -> None:
    story = Story()
    story.mirror_ns = FAR

    times = [0, *(story.refuse() for _ in range(6))]

    longest = [*PROBE_NS, PROBE_NS[-1], PROBE_NS[-1]]
    for most_ns, (before, after) in zip(longest, pairwise(times), strict=True):
        assert (1 - JITTER) * most_ns <= after - before <= most_ns


@given(st.floats(0.05, 5.0), st.floats(0.0, 1.0))
@example(4.0, 0.45)  # the mean delay
def test_probes_do_not_all_meet_the_same_moment_of_a_beat(period_s: float, phase: float) -> None:
    """A provider that has room in half of each period, whatever its period: it is found within a minute."""
    story = Story()
    story.mirror_ns = FAR

    def has_room() -> bool:
        return (story.now_ns / SECOND_NS / period_s + phase) % 1.0 < 0.5

    while story.now_ns < 60 * SECOND_NS:
        call_id = story.grant()
        if has_room():
            return
        story.gate.on_refused(call_id, 0, story.now_ns, story.now_ns)
        story.gate.on_ended(call_id, story.now_ns)
    raise AssertionError(f"no probe met a moment with room, of a period of {period_s} s")


def test_a_probe_goes_while_calls_wait_and_none_is_in_flight() -> None:
    story = Story()
    story.mirror_ns = FAR
    call_id = story.grant()
    assert story.gate.is_probe(call_id)
    assert story.opens_ns == FAR, "one at a time"

    story.now_ns += 60 * SECOND_NS
    story.gate.on_ended(call_id, story.now_ns)

    assert story.opens_ns == story.now_ns + PROBE_NS[0]


def test_a_forecast_of_room_within_5_s_is_waited_for() -> None:
    story = Story()
    story.mirror_ns = SOON_NS

    assert not story.gate.is_probe(story.grant())
    assert story.now_ns == SOON_NS


@given(
    steps=st.lists(
        st.tuples(st.booleans(), st.sampled_from([0, 0.3, 1, 5, 20, 21, 60, 599, 1_000, 90_000]), st.integers(0, 200)),
        max_size=40,
    )
)
def test_the_next_call_is_never_further_off_than_the_longest_pause_of_probes(
    steps: list[tuple[bool, float, int]],
) -> None:
    """No standstill: with nothing in flight the gate and any forecast hold a call for 20 s at most.

    Where the provider's own word is more than ten minutes away it is five minutes.
    """
    story = Story()
    word_ns = 0
    for good, said_s, forecast_s in steps:
        story.mirror_ns = story.now_ns + forecast_s * SECOND_NS
        before_ns = story.now_ns
        if good:
            story.accept()
        else:
            story.refuse(said_s)
        waited_ns = story.now_ns - before_ns
        long = word_ns - before_ns > LONG_NS
        assert waited_ns <= (PROBE_LONG_EVERY_NS if long else OBEYED_NS)
        if not good:
            word_ns = max(word_ns, story.now_ns + int(said_s * SECOND_NS))


# ---- a wrong model is dropped ----


def test_two_probes_in_a_row_drop_the_mirror() -> None:
    story = Story()
    story.mirror_ns = FAR

    assert not story.accept()
    story.now_ns += SECOND_NS
    assert story.accept()


def test_one_refusal_between_two_probes_keeps_it() -> None:
    story = Story()
    story.mirror_ns = FAR

    assert not story.accept()
    story.refuse()
    assert not story.accept()


def test_success_of_a_call_that_is_no_probe_drops_nothing() -> None:
    story = Story()

    assert not any(story.accept() for _ in range(10))


def test_a_lie_counts_for_a_second() -> None:
    story = Story()
    story.refuse(60)
    story.accept()
    assert story.gate.lies

    story.refuse(60)

    assert story.gate.until_ns == story.now_ns + LIES_MAX_NS


def test_a_word_that_was_over_when_the_call_went_is_no_lie() -> None:
    story = Story()
    story.refuse(10)
    story.accept()

    assert not story.gate.lies


def test_after_a_probe_few_go_and_more_with_each_success() -> None:
    story = Story()
    story.mirror_ns = FAR
    story.accept()
    gate, now_ns = story.gate, story.now_ns

    inflight = 0
    while gate.opens_ns(now_ns) == now_ns:
        gate.on_granted(CallId(1_000 + inflight), probe=False, now_ns=now_ns)
        inflight += 1
    assert inflight == PROBED_ALLOW + 1

    # Each success lets two go: in its place, and one more.
    gate.on_good(CallId(1_000), now_ns, now_ns)
    gate.on_ended(CallId(1_000), now_ns)
    for number in range(2):
        assert gate.opens_ns(now_ns) == now_ns
        gate.on_granted(CallId(2_000 + number), probe=False, now_ns=now_ns)
    assert gate.opens_ns(now_ns) > now_ns

    for _ in range(ALLOW_MAX):
        gate.on_good(CallId(9_999), now_ns, now_ns)
    assert gate.allow is None


def test_a_window_that_has_turned_forgets_the_rate() -> None:
    story = Story()
    story.refuse(TURNED_NS // SECOND_NS)
    assert story.gate.rate.per_s is not None

    story.grant()

    assert story.gate.allow == TURNED_ALLOW


def test_a_short_hold_forgets_no_rate() -> None:
    story = Story()
    for _ in range(40):
        story.accept()
        story.now_ns += SECOND_NS // 10
    story.refuse(TURNED_NS / SECOND_NS - 1)
    story.accept()

    assert story.gate.rate.per_s is not None


def test_a_provider_that_refuses_three_probes_in_a_row_is_believed_again() -> None:
    story = Story()
    story.refuse(60)
    story.accept()
    assert story.gate.lies

    for _ in range(10 * BELIEVED_AFTER):
        story.refuse(60)

    assert not story.gate.lies


def test_calls_that_go_before_the_named_time_test_it_one_at_a_time_once_one_was_refused() -> None:
    story = Story()
    story.refuse(60)
    story.accept()
    assert story.gate.lies
    story.refuse(60)
    story.refuse(60)
    assert story.gate.misses == 1

    call_id = story.grant()

    assert not story.gate.is_probe(call_id)
    story.now_ns += 10 * SECOND_NS
    assert story.opens_ns > story.now_ns, "one at a time"
    story.gate.on_ended(call_id, story.now_ns)
    assert story.opens_ns == story.now_ns


def test_refusals_of_calls_that_went_together_are_one_test() -> None:
    story = Story()
    story.refuse(60)
    story.accept()
    story.refuse(60)
    story.gate.allow = None
    now_ns = story.now_ns + 2 * LIES_MAX_NS
    for number in range(4):
        story.gate.on_granted(CallId(100 + number), probe=False, now_ns=now_ns)

    for number in range(4):
        story.gate.on_refused(CallId(100 + number), 60 * SECOND_NS, now_ns, now_ns + number)

    assert story.gate.misses == 1
    assert story.gate.lies


def test_a_wait_of_several_refused_calls_is_no_window_that_has_turned() -> None:
    """The hold counts from the latest refusal: to forget the rate after each would let four go every two seconds."""
    story = Story()
    for _ in range(20):
        story.accept()
    story.refuse(1)
    began_ns = story.now_ns
    while story.now_ns < began_ns + 4 * TURNED_NS:
        call_id = story.grant()
        assert story.gate.rate.per_s is not None
        assert story.gate.allow is None
        story.gate.on_refused(call_id, SECOND_NS, story.now_ns, story.now_ns)
        story.gate.on_ended(call_id, story.now_ns)


def test_two_probes_in_a_row_make_the_learned_rate_double() -> None:
    story = Story()
    for _ in range(20):
        story.accept()
        story.now_ns += SECOND_NS // 10
    story.refuse()
    story.mirror_ns = FAR
    before = story.gate.rate.per_s
    assert before is not None

    for _ in range(2):
        story.accept()
    story.mirror_ns = 0
    for _ in range(2):
        story.accept()

    assert story.gate.rate.per_s is not None
    assert story.gate.rate.per_s >= 4 * before


# ---- the end of a call in flight ----


class Hold:
    """A gate with calls in flight that a refusal of another has closed."""

    def __init__(self, inflight: int, *, said_s: int = 20, ends_return: bool = True) -> None:
        self.gate = RefusalGate()
        self.now_ns = 0
        self._next = inflight + 1
        for number in range(inflight + 1):
            self.gate.on_granted(CallId(number), probe=False, now_ns=0)
        for number in range(1, inflight + 1):
            self.gate.on_good(CallId(number), 0, 0)
        self.gate.on_refused(CallId(0), said_s * SECOND_NS, 0, 0, ends_return=ends_return)
        self.gate.on_ended(CallId(0), 0)

    @property
    def is_open(self) -> bool:
        return self.gate.opens_ns(self.now_ns) <= self.now_ns

    def end(self, number: int, *, served: bool = True) -> None:
        """A call ends that was granted at the start."""
        self.now_ns += SECOND_NS // 100
        self.gate.on_ended(CallId(number), self.now_ns, served_from_ns=0 if served else None)

    def grant(self) -> CallId:
        call_id = CallId(self._next)
        self._next += 1
        self.gate.on_granted(call_id, probe=False, now_ns=self.now_ns)
        return call_id

    def accept(self) -> CallId:
        """A call goes, and its answer begins."""
        call_id = self.grant()
        self.gate.on_good(call_id, self.now_ns, self.now_ns)
        return call_id

    def refuse(self, said_s: int = 20) -> None:
        call_id = self.grant()
        self.gate.on_refused(call_id, said_s * SECOND_NS, self.now_ns, self.now_ns)
        self.gate.on_ended(call_id, self.now_ns)


@given(inflight=st.integers(1, 20), ended=st.data())
def test_each_end_of_a_call_that_was_in_flight_at_a_refusal_lets_one_go(inflight: int, ended: st.DataObject) -> None:
    hold = Hold(inflight)
    ends = ended.draw(st.integers(1, inflight))
    for number in range(1, ends + 1):
        hold.end(number)

    for _ in range(ends):
        assert hold.is_open
        hold.accept()

    assert not hold.is_open


def test_the_end_of_a_call_that_went_so_lets_another_go() -> None:
    hold = Hold(1)
    hold.end(1)
    call_id, began_ns = hold.accept(), hold.now_ns
    assert not hold.is_open

    hold.now_ns += SECOND_NS
    hold.gate.on_ended(call_id, hold.now_ns, served_from_ns=began_ns)

    assert hold.is_open


def test_the_end_of_a_call_that_took_no_time_lets_none_go() -> None:
    hold = Hold(1)

    hold.gate.on_ended(CallId(1), hold.now_ns, served_from_ns=hold.now_ns)

    assert not hold.is_open


def test_the_end_of_a_call_that_was_not_served_lets_none_go() -> None:
    hold = Hold(2)

    hold.end(1, served=False)

    assert not hold.is_open


def test_the_end_of_a_call_that_went_after_the_refusal_says_nothing_of_it() -> None:
    hold = Hold(0, said_s=1)
    hold.now_ns = 3 * SECOND_NS  # the hold is over, and the learned rate spaces calls
    call_id, began_ns = hold.accept(), hold.now_ns

    hold.gate.on_ended(call_id, hold.now_ns, served_from_ns=began_ns)

    assert not hold.is_open


def test_a_window_of_requests_gives_nothing_back() -> None:
    hold = Hold(2, ends_return=False)

    hold.end(1)

    assert not hold.is_open


def ends_until_open(hold: Hold, ends: Iterator[int]) -> int:
    """Calls end until another may go; how many were passed over."""
    for passed, number in enumerate(ends):
        hold.end(number)
        if hold.is_open:
            return passed
    raise AssertionError("no end lets a call go")


def test_where_calls_that_go_so_are_refused_ever_more_ends_are_passed_over() -> None:
    hold, ends, passed = Hold(300), iter(range(1, 301)), []
    for _ in range(8):
        passed.append(ends_until_open(hold, ends))
        hold.refuse()

    assert passed == [0, 1, 3, 7, 15, 31, 63, ENDS_MAX]


def test_one_that_is_accepted_by_chance_does_not_prove_that_ends_help() -> None:
    hold, ends = Hold(100), iter(range(1, 101))
    for _ in range(4):
        ends_until_open(hold, ends)
        hold.refuse()
    ends_until_open(hold, ends)
    hold.accept()
    ends_until_open(hold, ends)
    hold.refuse()

    assert ends_until_open(hold, ends) == 15


def test_a_refusal_of_one_that_went_so_moves_neither_the_hold_nor_the_rate() -> None:
    hold = Hold(1)
    until_ns, rate = hold.gate.until_ns, hold.gate.rate.per_s
    hold.end(1)

    hold.refuse(60)

    assert (hold.gate.until_ns, hold.gate.rate.per_s) == (until_ns, rate)


def test_a_word_is_doubted_once_a_call_that_went_so_was_accepted() -> None:
    hold = Hold(2, said_s=60)
    hold.end(1)
    hold.end(2)
    assert hold.gate.probe_ns(FAR, hold.now_ns) == hold.now_ns + PROBE_EVERY_NS
    hold.gate.on_ended(hold.accept(), hold.now_ns)  # it broke, so its end lets none go

    assert hold.gate.probe_ns(FAR, hold.now_ns) == hold.now_ns + PROBE_NS[0]

    hold.refuse(60)
    assert hold.gate.probe_ns(FAR, hold.now_ns) == hold.now_ns + PROBE_EVERY_NS, "the next one was refused"


def test_a_doubted_word_is_probed_once_and_obeyed_if_that_is_refused() -> None:
    hold = Hold(1, said_s=60)
    hold.end(1)
    hold.gate.on_ended(hold.accept(), hold.now_ns)
    hold.now_ns += PROBE_NS[0]

    hold.gate.on_granted(CallId(99), probe=True, now_ns=hold.now_ns)
    hold.gate.on_refused(CallId(99), 58 * SECOND_NS, hold.now_ns, hold.now_ns)
    hold.gate.on_ended(CallId(99), hold.now_ns)

    assert hold.gate.probe_ns(FAR, hold.now_ns) == hold.now_ns + PROBE_EVERY_NS


def test_ends_are_old_news_once_the_gate_was_open() -> None:
    hold = Hold(3, said_s=1)
    for number in (1, 2, 3):
        hold.end(number)
    hold.now_ns = 3 * SECOND_NS  # the hold is over, and the learned rate spaces calls
    hold.accept()

    assert not hold.is_open


def doubted(said_s: int = 60) -> Hold:
    """Return a gate of which one of three calls in flight has ended, and the one in its place was accepted."""
    hold = Hold(3, said_s=said_s)
    hold.end(1)
    hold.accept()
    return hold


def test_a_doubted_word_is_tested_though_others_are_in_flight() -> None:
    hold = doubted()

    assert hold.gate.opens_ns(hold.now_ns) == PROBE_NS[0]


def test_it_is_tested_by_one_at_a_time_though_an_older_call_is_accepted_meanwhile() -> None:
    hold = doubted()
    hold.gate.on_good(CallId(2), 0, hold.now_ns)  # granted before the refusal
    hold.now_ns = hold.gate.opens_ns(hold.now_ns)

    test = hold.grant()

    assert hold.gate.opens_ns(hold.now_ns) > hold.now_ns, "until it is answered"
    hold.gate.on_good(test, hold.now_ns, hold.now_ns)
    assert hold.gate.until_ns == 0


def test_a_word_that_nothing_has_put_in_doubt_is_not_tested_while_others_are_in_flight() -> None:
    hold = Hold(3, said_s=60)

    assert hold.gate.opens_ns(hold.now_ns) == 60 * SECOND_NS


def test_an_accepted_test_ends_a_hold() -> None:
    hold = doubted()
    hold.now_ns = hold.gate.opens_ns(hold.now_ns)

    hold.accept()

    assert hold.gate.lies
    assert hold.gate.until_ns == 0
    assert hold.gate.opens_ns(hold.now_ns) == hold.gate.rate.opens_ns, "from now on the learned rate alone spaces calls"


def test_one_test_is_in_flight_at_a_time() -> None:
    hold = doubted()
    hold.now_ns = hold.gate.opens_ns(hold.now_ns)
    hold.grant()

    assert hold.gate.opens_ns(hold.now_ns) == 60 * SECOND_NS


def test_a_test_that_was_granted_before_the_latest_refusal_ends_no_hold() -> None:
    hold = doubted()
    granted_ns = hold.now_ns = hold.gate.opens_ns(hold.now_ns)
    tested = hold.grant()
    hold.now_ns += SECOND_NS
    hold.gate.on_refused(CallId(2), 60 * SECOND_NS, 0, hold.now_ns)

    hold.gate.on_good(tested, granted_ns, hold.now_ns)

    assert hold.gate.until_ns == hold.now_ns + 60 * SECOND_NS


def test_tests_that_are_refused_become_rare() -> None:
    """A word stays true though calls are accepted meanwhile, if ended calls give back what was set aside."""
    hold, gaps = Hold(40, said_s=1_000), []
    for number in range(1, 9):
        hold.end(number)
        hold.accept()
        began_ns, hold.now_ns = hold.gate.until_ns - 1_000 * SECOND_NS, hold.gate.opens_ns(hold.now_ns)
        gaps.append((hold.now_ns - began_ns) // SECOND_NS)
        hold.refuse(1_000)

    assert gaps == [2, 4, 8, 16, 32, 64, 64, 64]
    assert TEST_MAX_NS == 64 * SECOND_NS
