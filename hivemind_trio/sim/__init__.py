"""The virtual world: providers and agents as pure machines. Nothing here waits, reads a clock or touches the world."""

from ._agent import Agent as Agent
from ._agent import Job as Job
from ._agent import Turn as Turn
from ._bound import Bound as Bound
from ._bound import lower_bound as lower_bound
from ._bucket import Bucket as Bucket
from ._bucket import Dimension as Dimension
from ._bucket import Quota as Quota
from ._bucket import Reading as Reading
from ._provider import Accepted as Accepted
from ._provider import Answer as Answer
from ._provider import Dropped as Dropped
from ._provider import Provider as Provider
from ._provider import Refused as Refused
from ._provider import Trouble as Trouble
from ._service import Ask as Ask
from ._service import Service as Service
from ._traits import Traits as Traits
