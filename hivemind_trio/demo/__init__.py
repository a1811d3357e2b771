"""The simulated provider behind a socket, and the demonstration that uses it."""

from ._client import live as live
from ._dialects import DIALECTS as DIALECTS
from ._dialects import Asked as Asked
from ._provider import INSTANT as INSTANT
from ._provider import SimulatedProvider as SimulatedProvider
from ._reply import Reply as Reply
from ._reply import Seen as Seen
from ._run import run as run
