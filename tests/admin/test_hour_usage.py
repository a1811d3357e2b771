"""Usage of the last hour: sums that are those of the calls that are not older."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.admin import HourUsage
from hivemind_trio.admin.history.hour_usage import KEYS_MAX, MINUTE_NS, MINUTES, OTHER
from hivemind_trio.model import Reason, Usage
from hivemind_trio.policy import Program
from hivemind_trio.proxy import CallRecord
from tests.support.policies import compiled

PROGRAM: Final[Program] = compiled(
    'hmp 1\nprovider sim { api generic; base "http://127.0.0.1:9" }\n'
    'model "m" { price input $1/Mtok output $2/Mtok }\nteam red { weight 2 }\nagent ci { team red }\n'
)


def record(
    agent: str, *, job: str = "", waited_ms: int = 0, tokens: int = 0, status: int = 200, team: str | None = None
) -> CallRecord:
    return CallRecord(
        id="x", agent=agent, team=team, caller="1.2.3.4", job=job, status=status, rejected=False, reason=Reason.NONE,
        attempts=1, model="m", provider="sim", waited_ms=waited_ms, usage=Usage(input=tokens, cache_read=3, output=1),
    )  # fmt: skip


@given(
    st.lists(
        st.tuples(st.integers(0, 40 * MINUTE_NS), st.sampled_from(["ci", "unknown"]), st.integers(0, 9)), max_size=40
    )
)
def test_the_sums_are_those_of_the_last_sixty_minutes(calls: list[tuple[int, str, int]]) -> None:
    hour, now_ns, known = HourUsage(), 0, []
    for pause_ns, agent, tokens in calls:
        now_ns += pause_ns
        hour.over(record(agent, job=f"{tokens % 2}", tokens=tokens), now_ns, PROGRAM)
        known.append((now_ns, agent, tokens))

        expected: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        for at_ns, whose, count in known:
            if at_ns // MINUTE_NS > now_ns // MINUTE_NS - MINUTES:
                name = whose if whose == "ci" else "1.2.3.4"
                expected[name, f"{count % 2}"][0] += 1
                expected[name, f"{count % 2}"][1] += count + 3
        assert {(key.agent, key.session): [one.calls, one.tokens_in] for key, one in hour.sums.items()} == expected


def test_money_tokens_and_teams_are_those_of_the_policy() -> None:
    hour = HourUsage()
    hour.over(record("ci", tokens=1_000_000), 0, PROGRAM)
    ((key, one),) = hour.sums.items()

    assert (key.team, key.agent) == ("red", "ci")
    assert (one.tokens_in, one.cached, one.tokens_out) == (1_000_003, 3, 1)
    assert one.cost == PROGRAM.price("m", "sim").cost_of(Usage(input=1_000_000, cache_read=3, output=1))  # type: ignore[union-attr]


@given(st.lists(st.integers(0, 10_000_000), min_size=1, max_size=50), st.sampled_from([0.5, 0.95, 1.0]))
def test_a_percentile_is_at_most_a_tenth_too_high(waits_ms: list[int], part: float) -> None:
    hour = HourUsage()
    for waited_ms in waits_ms:
        hour.over(record("ci", waited_ms=waited_ms), 0, PROGRAM)
    (one,) = hour.sums.values()
    found = one.wait_s(part)
    exact = min(wait for wait in waits_ms if sum(other <= wait for other in waits_ms) >= part * len(waits_ms)) / 1_000

    assert found is not None
    assert exact * 0.99 <= found <= exact * 1.12 + 0.001


def test_callers_without_end_are_counted_as_others() -> None:
    hour = HourUsage()
    for number in range(KEYS_MAX + 50):
        hour.over(record("ci", job=f"{number}"), 0, PROGRAM)

    assert len(hour.sums) == KEYS_MAX + 1
    assert sum(one.calls for one in hour.sums.values()) == KEYS_MAX + 50
    assert [one.calls for key, one in hour.sums.items() if key.agent == OTHER] == [50]


def test_a_call_counts_for_the_team_that_was_decided() -> None:
    hour = HourUsage()
    for team in ("red", "blue", None):
        hour.over(record("ci", team=team), 0, PROGRAM)

    assert {key.team: one.calls for key, one in hour.sums.items()} == {"red": 2, "blue": 1}
