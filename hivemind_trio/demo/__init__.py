"""The simulated provider behind a socket, and the demonstration that uses it."""

from .client import live as live
from .command import run as run
from .provider import INSTANT as INSTANT
from .provider import SimulatedProvider as SimulatedProvider
from .reply import ScriptedReply as ScriptedReply
from .reply import Seen as Seen
from .wire_dialects import ANSWER_FORMATS as ANSWER_FORMATS
from .wire_dialects import ParsedRequest as ParsedRequest
