"""Operators' operations: what can be asked of a running proxy, and changed, as plain functions with types."""

from .agents import leases as leases
from .agents.asking import AskingAgent as AskingAgent
from .agents.table import AGENT_OPERATIONS as AGENT_OPERATIONS
from .forecasts.starts import Foresight as Foresight
from .forecasts.starts import keep_calibrated as keep_calibrated
from .history import CallMetrics as CallMetrics
from .history import Conduct as Conduct
from .history import Distribution as Distribution
from .history import HourUsage as HourUsage
from .history import StartsKeeper as StartsKeeper
from .history import Tally as Tally
from .history import TimeSeries as TimeSeries
from .operated import Facts as Facts
from .operated import Operated as Operated
from .operations import OPERATIONS as OPERATIONS
from .operations import Ask as Ask
from .operations import Operation as Operation
from .operations import asking as asking
from .policy_keeper import PolicyKeeper as PolicyKeeper
from .policy_keeper import ReloadResult as ReloadResult
from .problems import OperationFailed as OperationFailed
from .problems import ProblemKind as ProblemKind
from .story import advice as advice
from .story import plan_objects as plan_objects
from .story import story_object as story_object
