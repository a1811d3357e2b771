"""The Trio engine: runs the scheduler's decisions in nurseries and capacity limiters."""

from .engine import Engine as Engine
from .reload import Reloader as Reloader
from .scheduler_copies import SchedulerCopies as SchedulerCopies
from .ticket import Rejected as Rejected
from .ticket import Ticket as Ticket
from .window_calendar import Calendar as Calendar
