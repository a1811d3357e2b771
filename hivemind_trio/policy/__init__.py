"""The policy language: text in, compiled program out. Pure; the files come from a `Files` that it is handed."""

from ._check import Checked as Checked
from ._check import SecretState as SecretState
from ._check import check as check
from ._check import check_secrets as check_secrets
from ._closure import Closure as Closure
from ._closure import read_closure as read_closure
from ._diagnostic import Diagnostic as Diagnostic
from ._diagnostic import Label as Label
from ._diagnostic import Severity as Severity
from ._diagnostic import Source as Source
from ._files import Files as Files
from ._files import MemoryFiles as MemoryFiles
from ._program import DEFAULT_LANE as DEFAULT_LANE
from ._program import NO_TEAM as NO_TEAM
from ._program import UNKNOWN_AGENT as UNKNOWN_AGENT
from ._program import Agent as Agent
from ._program import Group as Group
from ._program import Lane as Lane
from ._program import ModelPrice as ModelPrice
from ._program import Pending as Pending
from ._program import Program as Program
from ._program import Provider as Provider
from ._program import Server as Server
from ._program import Share as Share
from ._program import Team as Team
from ._program import Timeouts as Timeouts
