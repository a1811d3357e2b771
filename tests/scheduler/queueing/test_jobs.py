"""What a lane's `objective` makes of the order of jobs."""

from __future__ import annotations

import attrs
import pytest

from hivemind_trio.model import Outcome, Request, Usage
from hivemind_trio.policy import Objective, Program
from hivemind_trio.scheduler import AttemptResult
from hivemind_trio.scheduler.queueing.job_priority import JOBS_MAX, JobOrdering
from tests.scheduler.driver import Driver
from tests.support.programs import agent, lane, program, provider, team, wish

SECOND_NS = 1_000_000_000
CI = (True, "ci")
LITTLE = Usage(input=10, output=10)


def served(tokens: int) -> AttemptResult:
    return AttemptResult(outcome=Outcome.SUCCEEDED, status=200, committed=True, usage=Usage(input=tokens, output=0))


def policy(objective: Objective | None, of_provider: Objective = Objective.FAIR) -> Program:
    return program(
        providers=[provider("p", limit=1, objective=of_provider)],
        lanes=[lane(objective=objective)],
        agents=[agent("a", team="red"), agent("b", team="red"), agent("c")],
        teams=[team("red")],
    )


def order(driver: Driver, running: int) -> list[int]:
    """End what is in flight until nothing is; in which order the others went."""
    went = []
    now = [running]
    while now:
        now = driver.end(now[0])
        went += now
    return went


def with_history(objective: Objective) -> Driver:
    """The job `long` has been served twice, `short` once, `new` never."""
    driver = Driver(policy(objective))
    for job, tokens in (("long", 90_000), ("long", 90_000), ("short", 30_000)):
        driver.end(driver.call(job=job), served(tokens))
    return driver


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (Objective.FAIR, ["new", "short", "long"]),
        (Objective.MEAN_COMPLETION, ["long", "short", "new"]),
        (Objective.MAKESPAN, ["new", "short", "long"]),
        (Objective.LATENCY, ["short", "long", "new"]),
    ],
)
def test_jobs_of_one_agent_go_by_what_they_have_had(objective: Objective, expected: list[str]) -> None:
    driver = with_history(objective)
    running = driver.call("other")
    calls = {driver.call(job=job): job for job in ("short", "long", "new")}

    assert [calls[call] for call in order(driver, running)] == expected


@pytest.mark.parametrize("by_lane", [True, False], ids=["lane", "provider"])
def test_but_for_fairness_a_team_s_jobs_are_compared_whosever_they_are(by_lane: bool) -> None:
    makespan = Objective.MAKESPAN
    driver = Driver(policy(makespan if by_lane else None, Objective.FAIR if by_lane else makespan))
    running = driver.call("other")
    calls = {}
    for name, left in (("a", 5), ("b", 2), ("b", 9), ("a", 7), ("b", 8)):
        calls[driver.ask(attrs.evolve(wish(agent=name), headers={"x-hivemind-remaining": str(left)}))] = left

    assert [calls[call] for call in order(driver, running)] == [9, 8, 7, 5, 2]


def test_but_for_fairness_agents_without_a_team_are_compared_with_each_other() -> None:
    driver = Driver(policy(Objective.MAKESPAN))
    running = driver.call("other")
    calls = {}
    for name, left in (("one", 5), ("two", 2), ("two", 9), ("one", 7), ("three", 8)):
        headers = {"x-hivemind-remaining": str(left)}
        calls[driver.ask(attrs.evolve(wish(), headers=headers), name)] = left
    driver.now_ns += SECOND_NS

    assert [calls[call] for call in order(driver, running)] == [9, 8, 7, 5, 2]


def test_fairness_is_the_lane_s_own_where_the_provider_has_another_objective() -> None:
    driver = Driver(policy(Objective.FAIR, Objective.MAKESPAN))
    running = driver.call("other")
    calls = {driver.call(agent=name): name for name in ("a", "a", "a", "b")}
    driver.now_ns += SECOND_NS

    went = []
    now = [running]
    while now:
        driver.now_ns += SECOND_NS
        now = driver.end(now[0])
        went += [calls[each] for each in now]
    assert went == ["a", "b", "a", "a"]


def test_teams_take_turns_whatever_the_objective() -> None:
    driver = Driver(policy(Objective.MAKESPAN))
    running = [driver.call("other")]
    calls = {}
    for name, left in (("a", 9), ("a", 8), ("b", 7), ("c", 1), ("c", 2)):
        calls[driver.ask(attrs.evolve(wish(agent=name), headers={"x-hivemind-remaining": str(left)}))] = left

    went = []
    while running:
        running = driver.end(running[0])
        went += [calls[each] for each in running]
        driver.now_ns += SECOND_NS

    assert went == [9, 2, 8, 1, 7]


def test_the_call_that_is_thought_to_take_least_goes_first() -> None:
    driver = Driver(policy(Objective.LATENCY))
    running = driver.call("other")
    sizes = [(40_000, 10), (100, 4_000), (100, 10), (3_000, 10)]
    calls = {
        driver.ask(attrs.evolve(wish(agent="a"), tokens_in=read, tokens_max_out=written)): (read, written)
        for read, written in sizes
    }

    assert [calls[call] for call in order(driver, running)] == [(100, 10), (3_000, 10), (100, 4_000), (40_000, 10)]


def key(
    jobs: JobOrdering, objective: Objective, job: str = "j", now_ns: int = 0, request: Request | None = None
) -> int:
    return jobs.key(objective, CI, job, request or wish(), lambda _: LITTLE, now_ns)


@pytest.mark.parametrize(
    ("tokens", "level"), [(0, 0), (24_999, 0), (25_000, 1), (99_999, 1), (100_000, 2), (399_999, 2), (400_000, 3)]
)
def test_a_job_sinks_as_it_is_served(tokens: int, level: int) -> None:
    jobs = JobOrdering()
    jobs.on_ended(CI, "j", tokens // 2, 0)
    jobs.on_ended(CI, "j", tokens - tokens // 2, SECOND_NS)

    assert key(jobs, Objective.FAIR, now_ns=2 * SECOND_NS) == level


def test_after_two_minutes_a_job_is_as_good_as_new() -> None:
    jobs = JobOrdering()
    jobs.on_ended(CI, "j", 500_000, 130 * SECOND_NS)
    assert key(jobs, Objective.FAIR, now_ns=249 * SECOND_NS) == 3
    assert key(jobs, Objective.FAIR, now_ns=250 * SECOND_NS) == 0

    jobs.on_ended(CI, "j", 30_000, 260 * SECOND_NS)
    assert key(jobs, Objective.FAIR, now_ns=261 * SECOND_NS) == 1


@pytest.mark.parametrize("said", ["", "-1", "1e9", "many", "9" * 40, "\u0663", " 5"])
def test_a_remaining_that_is_no_number_counts_as_unsaid(said: str) -> None:
    jobs = JobOrdering()
    odd = attrs.evolve(wish(), headers={"x-hivemind-remaining": said})

    assert key(jobs, Objective.MAKESPAN, request=odd) == key(jobs, Objective.MAKESPAN)


def test_jobs_of_the_same_name_are_those_of_their_agent() -> None:
    jobs = JobOrdering()
    jobs.on_ended((False, "ci"), "j", 500_000, 0)

    assert key(jobs, Objective.FAIR) == 0


def test_only_so_many_jobs_are_remembered_and_those_seen_last() -> None:
    jobs = JobOrdering()
    for number in range(JOBS_MAX):
        jobs.on_ended(CI, f"{number}", 30_000, 0)
    jobs.on_ended(CI, "0", 1, 0)
    jobs.on_ended(CI, "new", 30_000, 0)

    assert len(jobs) == JOBS_MAX
    assert key(jobs, Objective.FAIR, "0") == 1
    assert key(jobs, Objective.FAIR, "1") == 0
