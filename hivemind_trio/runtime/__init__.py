"""The Trio engine: runs the scheduler's decisions in nurseries and capacity limiters."""

from ._engine import Engine as Engine
from ._reload import Reloader as Reloader
from ._ticket import Rejected as Rejected
from ._ticket import Ticket as Ticket
