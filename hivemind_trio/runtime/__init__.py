"""The Trio engine: runs the scheduler's decisions in nurseries and capacity limiters."""

from .engine import Engine as Engine
from .lease_keeper import LeaseKeeper as LeaseKeeper
from .lease_keeper import LeaseStore as LeaseStore
from .lease_keeper import LeaseWait as LeaseWait
from .lease_keeper import LeaseWatch as LeaseWatch
from .lease_keeper import keeping_leases as keeping_leases
from .lease_keeper import renamed_leases as renamed_leases
from .reload import Reloader as Reloader
from .scheduler_copies import SchedulerCopies as SchedulerCopies
from .ticket import Rejected as Rejected
from .ticket import Ticket as Ticket
from .window_calendar import Calendar as Calendar
