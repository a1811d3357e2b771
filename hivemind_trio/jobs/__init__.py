"""Jobs of `hivemind-trio run`: commands of agents, started when their calls have room, resumed after limits."""

from .command import RunOptions as RunOptions
from .command import groups_of as groups_of
from .command import main as main
from .overview import RunOverview as RunOverview
from .overview import overview as overview
from .overview import overviews as overviews
from .run_file import RunFileError as RunFileError
from .run_file import RunSettings as RunSettings
from .submitted.desk import ServeJobs as ServeJobs
from .submitted.desk import open_jobs as open_jobs
from .task import seconds as seconds
