"""The virtual world: providers and agents as pure machines. Nothing here waits, reads a clock or touches the world.

    program = check("team.hmp", DiskFiles()).program
    scenario = parse_scenario(text, name="storm")
    figures = World(program, scenario, seed=7).run()
    figures.dead, figures.lanes["batch"].p95, figures.over_bound

A `World` is one run: the same `core.Scheduler` as in the proxy, in virtual time, with simulated providers below it and
clients that behave as the SDKs do above it; with `way=Way.DIRECT` the same agents without us. The same program,
scenario and seed give the same figures. A scenario is a value (`Scenario` of `Fleet`s and `Upstream`s) and can be built
in code as well as read from text; `Figures` has what a policy's `expect` may ask, by load, lane and provider.
`study` runs a scenario over several seeds both ways; `METRICS`, `estimate` and `difference` say what came of it, and
what another policy changes, with intervals over the seeds (`side_by_side` runs two, `shifts` goes through the numbers);
`misfits` are what a scenario names and a policy does not have; `plot` draws limit, queue and what is in flight, and
`svg` writes that down.

`Provider`, `Job` and `lower_bound` are of use without a world: the demo puts the same provider behind a socket.
"""

from ._agent import Agent as Agent
from ._agent import Job as Job
from ._agent import Turn as Turn
from ._audit import Broken as Broken
from ._bound import Bound as Bound
from ._bound import lower_bound as lower_bound
from ._bucket import Bucket as Bucket
from ._bucket import Counting as Counting
from ._bucket import Dimension as Dimension
from ._bucket import Quota as Quota
from ._bucket import Reading as Reading
from ._client import CLIENTS as CLIENTS
from ._client import Client as Client
from ._client import Reply as Reply
from ._drawing import Area as Area
from ._drawing import Drawing as Drawing
from ._drawing import Ink as Ink
from ._drawing import Line as Line
from ._drawing import Text as Text
from ._drawing import svg as svg
from ._figures import Figures as Figures
from ._figures import Load as Load
from ._figures import Spread as Spread
from ._figures import Way as Way
from ._fit import misfits as misfits
from ._fit import settled as settled
from ._fit import strangers as strangers
from ._fleet import Amount as Amount
from ._fleet import Arrivals as Arrivals
from ._fleet import Fleet as Fleet
from ._plot import plot as plot
from ._population import Living as Living
from ._population import populate as populate
from ._population import providers as providers
from ._provider import Accepted as Accepted
from ._provider import Answer as Answer
from ._provider import Dropped as Dropped
from ._provider import Provider as Provider
from ._provider import Refused as Refused
from ._provider import Trouble as Trouble
from ._quantities import Wrong as Wrong
from ._recorded import recorded_fleets as recorded_fleets
from ._road import Effort as Effort
from ._road import Efforts as Efforts
from ._scenario import Scenario as Scenario
from ._scenario import Upstream as Upstream
from ._scenario_text import parse_scenario as parse_scenario
from ._series import Level as Level
from ._series import Sample as Sample
from ._service import Ask as Ask
from ._service import Service as Service
from ._service import Taken as Taken
from ._shifts import Shift as Shift
from ._shifts import same_truth as same_truth
from ._shifts import shifts as shifts
from ._shifts import side_by_side as side_by_side
from ._study import METRICS as METRICS
from ._study import Estimate as Estimate
from ._study import Metric as Metric
from ._study import Pair as Pair
from ._study import difference as difference
from ._study import estimate as estimate
from ._study import study as study
from ._toml import Problem as Problem
from ._toml import ScenarioError as ScenarioError
from ._traits import Acceleration as Acceleration
from ._traits import Neighbour as Neighbour
from ._traits import Shape as Shape
from ._traits import Storm as Storm
from ._traits import Traits as Traits
from ._traits import Wave as Wave
from ._traits import Weather as Weather
from ._work import Work as Work
from ._work import bound_of as bound_of
from ._world import Told as Told
from ._world import World as World
