"""Speeds of streams by the number in flight, and what the limiter makes of them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.model import Outcome
from hivemind_trio.policy import AimdSettings
from hivemind_trio.scheduler.health.aimd import Aimd
from hivemind_trio.scheduler.health.fewer_probe import LASTS_NS, SILENT_NS
from hivemind_trio.scheduler.health.stream_speed import BRIEF_NS, GAP_NS, KEPT_NS, STREAMS_MAX, StreamSpeed
from hivemind_trio.scheduler.protocol.call import CallId
from tests.support.programs import SECOND_NS

HALF_NS = SECOND_NS // 2
LENGTH = 400


class Reports:
    """Streams that tell twice a second what they have received."""

    def __init__(self) -> None:
        self.speeds, self.now_ns, self.area = StreamSpeed(), 0, 0.0
        self.ids: list[CallId] = []

    def stream(self, level: int, per_s: Callable[[CallId], float], reports: int = 8) -> Reports:
        """Let as many calls stream as the level has, the oldest of them those from before, each at its own speed."""
        for one in self.ids[level:]:
            self.speeds.ended(one)
        begin = [CallId(self.now_ns + number) for number in range(level - len(self.ids))]
        self.ids = [*self.ids[:level], *begin]
        for one in begin:
            self.speeds.begun(one, self.area, self.now_ns)
        for _ in range(reports):
            self.passes(level)
            self.speeds.add({one: max(1, int(per_s(one) / 2)) for one in self.ids}, self.area, self.now_ns)
        return self

    def passes(self, level: int) -> None:
        self.now_ns, self.area = self.now_ns + HALF_NS, self.area + level * HALF_NS

    def better(self, level: float) -> float | None:
        return self.speeds.better(level, self.now_ns)


def at(per_s: float) -> Callable[[CallId], float]:
    return lambda _: per_s


def test_a_level_whose_streams_receive_plainly_more_in_all_is_better() -> None:
    reports = Reports().stream(8, at(100)).stream(4, at(400))

    assert reports.better(8) == pytest.approx(4)


def test_streams_that_share_one_capacity_are_no_reason_for_fewer() -> None:
    reports = Reports().stream(8, at(100)).stream(4, at(200)).stream(2, at(400))

    assert reports.better(8) is None


def test_of_several_levels_the_best_is_said() -> None:
    reports = Reports().stream(8, at(100)).stream(4, at(400)).stream(2, at(500))

    assert reports.better(8) == pytest.approx(4)


def test_a_level_above_is_not_asked_for() -> None:
    reports = Reports().stream(8, at(1000)).stream(4, at(100))

    assert reports.better(4) is None


def test_one_report_says_nothing() -> None:
    reports = Reports().stream(8, at(100)).stream(4, at(400), reports=1)

    assert reports.better(8) is None


def test_old_reports_say_nothing() -> None:
    reports = Reports().stream(8, at(100)).stream(4, at(400))
    reports.now_ns += KEPT_NS
    reports.stream(8, at(100))

    assert reports.better(8) is None


def test_other_streams_say_nothing_of_fewer() -> None:
    # The fewer may be of another model, or of another time.
    reports = Reports().stream(8, at(100)).stream(0, at(1)).stream(4, at(800))

    assert reports.better(8) is None


def test_fast_streams_and_slow_ones_are_compared_each_with_itself() -> None:
    # The slow ones end first, so that the usual speed is higher with fewer.
    reports = Reports().stream(4, at(800))

    def speed(one: CallId) -> float:
        return 800 if one in reports.ids[:4] else 50

    assert reports.stream(8, speed).stream(4, speed).better(8) is None


@pytest.mark.parametrize("wait_ns", [BRIEF_NS - 1, GAP_NS + 1])
def test_a_time_that_is_too_short_or_too_long_is_no_measure(wait_ns: int) -> None:
    speeds = StreamSpeed()
    speeds.begun(CallId(1), 0, 0)

    assert speeds.add({CallId(1): 100}, wait_ns, wait_ns) is None


def test_a_stream_that_is_silent_for_a_while_is_measured_by_all_of_that_time() -> None:
    # A crowded server may send each stream a piece a second: reports between them are of some streams only.
    reports = Reports().stream(4, at(100)).stream(8, at(1), reports=0)
    for number in range(16):
        reports.passes(8)
        reports.speeds.add(dict.fromkeys(reports.ids[number % 2 :: 2], 12), reports.area, reports.now_ns)

    assert reports.better(8) == pytest.approx(4)


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.floats(0, 0.5), st.floats(0, 0.05), st.floats(0, 1))
def test_where_more_at_once_are_served_no_less_fewer_are_hardly_ever_better(
    seed: int, between: float, within: float, power: float
) -> None:
    # Between a server that slows nobody down and one that is used up by the first; calls and moments differ.
    random, said = Random(seed), 0
    for _ in range(5):
        reports = Reports()
        calls: dict[CallId, float] = {}
        for level in (8, 6, 4, 3, 2, 4, 6, 8):
            moment = random.lognormvariate(0, within)

            def speed(
                one: CallId, whole: float = 10_000 * moment / level**power, calls: dict[CallId, float] = calls
            ) -> float:
                usual = calls.setdefault(one, random.lognormvariate(0, between))
                return whole * usual * random.lognormvariate(0, 0.2)

            reports.stream(level, speed)
        said += reports.better(8) is not None

    assert said <= 1


# ---- in the limiter ----


class Server:
    """Agents that ask again at once, and a server whose streams are slower the more there are, from the first byte."""

    def __init__(
        self,
        agents: int,
        slowdown: Callable[[int], float],
        *,
        tells: bool = True,
        seed: int = 0,
        begins_at_once: bool = False,
    ) -> None:
        self.limiter = Aimd(AimdSettings(low=2, start=8), 64)
        self.slowdown, self.tells, self.random = slowdown, tells, Random(seed)
        self.begins_at_once = begins_at_once
        """First content takes the same time however many there are."""
        self.now_ns = self.calls = self.served = 0
        self.waiting = agents
        self.left: dict[int, float] = {}
        """Work left of each call; beyond `LENGTH` it reads the prompt."""
        self.granted: dict[int, int] = {}
        self.limits: list[int] = []

    def run(self, until_s: float) -> Server:
        received: dict[CallId, int] = {}
        while self.now_ns < until_s * SECOND_NS:
            self._grant()
            self.now_ns += SECOND_NS // 10
            speed = 100 / self.slowdown(len(self.left))
            for call in list(self.left):
                reads = self.left[call] > LENGTH
                self.left[call] -= 30.0 if reads and self.begins_at_once else speed / 10
                if reads and self.left[call] <= LENGTH:
                    self.limiter.on_good(
                        CallId(call), self.now_ns, inflight=len(self.left), limit_is_binding=self.waiting > 0
                    )
                elif not reads:
                    received[CallId(call)] = received.get(CallId(call), 0) + max(1, round(10 * speed))
                if self.left[call] <= 0:
                    received.pop(CallId(call), None)
                    self._end(call)
            if self.tells and self.now_ns % HALF_NS == 0 and received:
                inflight = len(self.left)
                self.limiter.on_received(received, self.now_ns, inflight=inflight)
                received = {}
            if not self.limits or self.limits[-1] != self.limiter.limit:
                self.limits.append(self.limiter.limit)
        return self

    def _grant(self) -> None:
        while self.waiting and len(self.left) < self.limiter.limit:
            self.calls, self.waiting = self.calls + 1, self.waiting - 1
            self.left[self.calls], self.granted[self.calls] = LENGTH + self.random.uniform(50, 150), self.now_ns
            self.limiter.on_granted(CallId(self.calls), len(self.left), self.now_ns)

    def _end(self, call: int) -> None:
        inflight = len(self.left)
        del self.left[call]
        self.served += 1
        self.limiter.on_ended(
            CallId(call),
            Outcome.SUCCEEDED,
            granted_ns=self.granted[call],
            now_ns=self.now_ns,
            inflight=inflight,
            limit_is_binding=self.waiting > 0,
        )
        self.waiting += 1


def crowded(knee: int) -> Callable[[int], float]:
    """Streams slow down by the square of how many there are beyond a number."""
    return lambda count: max(1.0, (count / knee) ** 2)


@pytest.mark.parametrize(("agents", "knee"), [(6, 2), (8, 3), (30, 3), (30, 5)])
def test_a_fleet_finds_the_number_that_a_server_serves_best(agents: int, knee: int) -> None:
    told = Server(agents, crowded(knee)).run(120)

    assert abs(told.limiter.limit - knee) <= 2
    untold = Server(agents, crowded(knee), tells=False).run(120)
    assert told.served > untold.served * (1.5 if agents < 10 else 0.9)  # a larger fleet's growth has told it at once


@pytest.mark.parametrize(("agents", "knee"), [(12, 3), (12, 4), (16, 4)])
def test_a_server_that_begins_all_at_once_is_probed_as_well(agents: int, knee: int) -> None:
    # First content comes as soon with more at once, so the limit has doubled: it says nothing of what follows.
    told = Server(agents, crowded(knee), begins_at_once=True).run(240)

    assert told.served > 1.5 * Server(agents, crowded(knee), begins_at_once=True, tells=False).run(240).served


@pytest.mark.parametrize("slowdown", [lambda _: 1.0, lambda count: float(count)], ids=["flat", "shared"])
def test_where_fewer_are_served_no_more_the_probe_costs_little(slowdown: Callable[[int], float]) -> None:
    told = Server(6, slowdown).run(300)

    assert 4 in told.limits
    assert told.served >= 0.95 * Server(6, slowdown, tells=False).run(300).served


def served_flatly(seed: int, *, tells: bool, until_s: int) -> int:
    """Let 16 agents with tools ask a flat provider whose streams are slow at first, and 20 times as fast later."""
    limiter, random = Aimd(AimdSettings(low=2, start=16), 64), Random(seed)
    asks = [random.uniform(0, 15) for _ in range(16)]
    served = calls = waiting = 0
    live: dict[CallId, tuple[float, float, float, float]] = {}
    received: dict[CallId, int] = {}
    for tenth in range(10 * until_s):
        now_s, now_ns = tenth / 10, tenth * SECOND_NS // 10
        waiting += sum(at_s <= now_s for at_s in asks)
        asks = [at_s for at_s in asks if at_s > now_s]
        while waiting and len(live) < limiter.limit:
            waiting, calls = waiting - 1, calls + 1
            begins_s, speeds_s = now_s + 1, now_s + 1 + random.uniform(5, 25)
            live[CallId(calls)] = now_s, begins_s, speeds_s, speeds_s + random.uniform(5, 20)
            limiter.on_granted(CallId(calls), len(live), now_ns)
        for call, (granted_s, begins_s, speeds_s, ends_s) in list(live.items()):
            if begins_s <= now_s < begins_s + 0.1:
                limiter.on_good(call, now_ns, inflight=len(live), limit_is_binding=waiting > 0)
            elif begins_s < now_s < ends_s:
                received[call] = received.get(call, 0) + (5 if now_s < speeds_s else 100)
            elif now_s >= ends_s:
                inflight, served = len(live), served + 1
                del live[call]
                received.pop(call, None)
                granted_ns = int(granted_s * SECOND_NS)
                limiter.on_ended(
                    call,
                    Outcome.SUCCEEDED,
                    granted_ns=granted_ns,
                    now_ns=now_ns,
                    inflight=inflight,
                    limit_is_binding=waiting > 0,
                    tokens=300,
                )
                asks.append(now_s + random.expovariate(1 / 15))
        if tells and tenth % 5 == 0 and received:
            limiter.on_received(received, now_ns, inflight=len(live))
            received = {}
    return served


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_streams_that_are_fast_late_in_an_answer_do_not_keep_the_limit_low(seed: int) -> None:
    # The late part is seen with fewer in flight more often: whole answers show that fewer finish less.
    assert served_flatly(seed, tells=True, until_s=1800) >= 0.93 * served_flatly(seed, tells=False, until_s=1800)


def probing() -> Aimd:
    """A limiter of 64 that has begun to probe fewer than the eight long streams that it serves."""
    limiter = Aimd(AimdSettings(low=2, start=64), 64)
    ids = [CallId(number) for number in range(8)]
    for one in ids:
        limiter.on_granted(one, one + 1, 0)
        limiter.on_good(one, 0, inflight=8, limit_is_binding=False)
    for number in range(1, 23):
        limiter.on_received(dict.fromkeys(ids, 100), number * HALF_NS, inflight=8)
    assert limiter.limit == 6
    return limiter


def test_a_probe_ends_though_no_answer_ends_and_streams_go_on() -> None:
    limiter = probing()
    for number in range(23, 23 + 2 * LASTS_NS // SECOND_NS + 1):
        limiter.on_received(dict.fromkeys(map(CallId, range(8)), 100), number * HALF_NS, inflight=8)

    assert limiter.limit == 64


def test_a_probe_ends_by_time_alone() -> None:
    limiter = probing()
    ends_ns = limiter.probe_ends_ns
    assert ends_ns is not None

    assert not limiter.on_time(ends_ns - 1)
    assert limiter.on_time(ends_ns)
    assert limiter.limit == 64


def test_an_outage_during_a_probe_leaves_the_limit_from_before_it() -> None:
    limiter = probing()
    assert limiter.uncut(12 * SECOND_NS) == 64

    limiter.restart(6, 12 * SECOND_NS)
    for number in range(64):
        limiter.on_granted(CallId(100 + number), 1, 13 * SECOND_NS)
        limiter.on_ended(
            CallId(100 + number), Outcome.SUCCEEDED, granted_ns=13 * SECOND_NS, now_ns=14 * SECOND_NS, inflight=1
        )
    assert limiter.limit == 64


def test_an_attempt_that_is_over_is_no_stream_any_more() -> None:
    speeds = StreamSpeed()
    for number in range(STREAMS_MAX + 1):
        speeds.begun(CallId(number), 0, 0)
    assert speeds.add({CallId(STREAMS_MAX): 100}, HALF_NS, HALF_NS) is None

    speeds.ended(CallId(0))
    speeds.begun(CallId(STREAMS_MAX), 0, 0)

    assert speeds.add({CallId(STREAMS_MAX): 100}, HALF_NS, HALF_NS) is not None


def test_a_probe_ends_when_no_stream_tells_any_more() -> None:
    server = Server(6, crowded(2))
    while server.limiter.limit == 8:
        server.run(server.now_ns / SECOND_NS + 0.1)
    assert server.limiter.limit == 4

    server.tells = False
    server.run((server.now_ns + SILENT_NS) / SECOND_NS + 30)
    assert server.limiter.limit >= 8
