"""The virtual world: providers and agents as pure machines. Nothing here waits, reads a clock or touches the world.

    program = check("team.hmp", DiskFiles()).program
    scenario = parse_scenario(text, name="storm")
    figures = World(program, scenario, seed=7).run()
    figures.dead, figures.lanes["batch"].p95, figures.over_bound

A `World` is one run: the same `scheduler.Scheduler` as in the proxy, in virtual time, with simulated providers below
it and clients that behave as the SDKs do above it; with `way=Way.DIRECT` the same agents without us. The same program,
scenario and seed give the same figures. A scenario is a value (`Scenario` of `Fleet`s and `UpstreamSpec`s) and can be
built in code as well as read from text; `Figures` has what a policy's `expect` may ask, by load, lane and provider.
`study` runs a scenario over several seeds both ways; `METRICS`, `estimate` and `difference` say what came of it, and
what another policy changes, with intervals over the seeds (`side_by_side` runs two, `shifts` goes through the
numbers); `misfits` are what a scenario names and a policy does not have; `plot` draws limit, queue and what is in
flight, and `svg` writes that down. `advise` runs a scenario with one limit of the policy lifted at a time.

`Provider`, `AgentJob` and `lower_bound` are of use without a world: the demo puts the same provider behind a socket.
"""

from .agents.agent import Agent as Agent
from .agents.agent import AgentJob as AgentJob
from .agents.agent import Turn as Turn
from .agents.client import CLIENTS as CLIENTS
from .agents.client import ClientBehaviour as ClientBehaviour
from .agents.client import ClientReply as ClientReply
from .agents.fleet import Amount as Amount
from .agents.fleet import Arrivals as Arrivals
from .agents.fleet import Fleet as Fleet
from .bound.lower_bound import Bound as Bound
from .bound.lower_bound import lower_bound as lower_bound
from .bound.work import Work as Work
from .bound.work import bound_of as bound_of
from .forecast.calibration import Calibration as Calibration
from .forecast.calibration import JudgedStart as JudgedStart
from .forecast.calibration import StartEstimate as StartEstimate
from .forecast.future import AgentCourse as AgentCourse
from .forecast.future import ExpectedAgent as ExpectedAgent
from .forecast.future import Future as Future
from .forecast.habits import USUAL_NS as USUAL_NS
from .forecast.habits import FirstCall as FirstCall
from .forecast.habits import Habits as Habits
from .forecast.spells import SeenAttempt as SeenAttempt
from .forecast.spells import group_of as group_of
from .forecast.spells import has_failed as has_failed
from .forecast.starts import Starts as Starts
from .forecast.starts import foresee as foresee
from .provider.latency_and_faults import Ask as Ask
from .provider.latency_and_faults import Service as Service
from .provider.latency_and_faults import Taken as Taken
from .provider.plan_windows import EVERY_NS as EVERY_NS
from .provider.plan_windows import PlanLimit as PlanLimit
from .provider.profile import Acceleration as Acceleration
from .provider.profile import NamedError as NamedError
from .provider.profile import Neighbour as Neighbour
from .provider.profile import Shape as Shape
from .provider.profile import Storm as Storm
from .provider.profile import Traits as Traits
from .provider.profile import Wave as Wave
from .provider.profile import Weather as Weather
from .provider.provider import Accepted as Accepted
from .provider.provider import Answer as Answer
from .provider.provider import Dropped as Dropped
from .provider.provider import Provider as Provider
from .provider.provider import Refused as Refused
from .provider.provider import Trouble as Trouble
from .provider.token_bucket import Counting as Counting
from .provider.token_bucket import Metered as Metered
from .provider.token_bucket import ProviderBucket as ProviderBucket
from .provider.token_bucket import Quota as Quota
from .provider.token_bucket import Reading as Reading
from .results.figures import Figures as Figures
from .results.figures import Load as Load
from .results.figures import PlanFigures as PlanFigures
from .results.figures import Spread as Spread
from .results.figures import Way as Way
from .results.time_series import Level as Level
from .results.time_series import Sample as Sample
from .run.invariants import Broken as Broken
from .run.nodes import NodesSpec as NodesSpec
from .run.nodes import TimeSpan as TimeSpan
from .run.overhead_model import Effort as Effort
from .run.overhead_model import Efforts as Efforts
from .run.world import Told as Told
from .run.world import World as World
from .scenario.compatibility import misfits as misfits
from .scenario.compatibility import settled as settled
from .scenario.compatibility import strangers as strangers
from .scenario.limits_met import REFUSED as REFUSED
from .scenario.population import SimulatedCaller as SimulatedCaller
from .scenario.population import populate as populate
from .scenario.population import providers as providers
from .scenario.quantities import ScenarioValueError as ScenarioValueError
from .scenario.scenario import Scenario as Scenario
from .scenario.scenario import UpstreamSpec as UpstreamSpec
from .scenario.scenario_file import parse_scenario as parse_scenario
from .scenario.toml_table import Problem as Problem
from .scenario.toml_table import ScenarioError as ScenarioError
from .scenario.trace_replay import recorded_fleets as recorded_fleets
from .studies.advice import Advice as Advice
from .studies.advice import AdviceStudy as AdviceStudy
from .studies.advice import LaneChange as LaneChange
from .studies.advice import LaneWait as LaneWait
from .studies.advice import OutOfTime as OutOfTime
from .studies.advice import advise as advise
from .studies.advice import lifts as lifts
from .studies.comparison import Shift as Shift
from .studies.comparison import same_truth as same_truth
from .studies.comparison import shifts as shifts
from .studies.comparison import side_by_side as side_by_side
from .studies.plot import plot as plot
from .studies.study import METRICS as METRICS
from .studies.study import Estimate as Estimate
from .studies.study import Metric as Metric
from .studies.study import Pair as Pair
from .studies.study import difference as difference
from .studies.study import estimate as estimate
from .studies.study import study as study
from .studies.svg import Area as Area
from .studies.svg import Drawing as Drawing
from .studies.svg import Ink as Ink
from .studies.svg import Polyline as Polyline
from .studies.svg import Text as Text
from .studies.svg import svg as svg
