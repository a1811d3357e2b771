"""The virtual world: providers and agents as pure machines. Nothing here waits, reads a clock or touches the world."""

from ._agent import Agent as Agent
from ._agent import Job as Job
from ._agent import Turn as Turn
from ._bound import Bound as Bound
from ._bound import lower_bound as lower_bound
from ._provider import Accepted as Accepted
from ._provider import Answer as Answer
from ._provider import Ask as Ask
from ._provider import Provider as Provider
from ._provider import Refused as Refused
from ._provider import Service as Service
from ._provider import Traits as Traits
