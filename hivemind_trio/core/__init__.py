"""The scheduler: events in, commands out. Nothing here waits, reads a clock or touches the world."""

from ._breaker import Circuit as Circuit
from ._call import Call as Call
from ._call import CallId as CallId
from ._grant import Waiting as Waiting
from ._jobs import REMAINING as REMAINING
from ._messages import Adapted as Adapted
from ._messages import AnswerBegan as AnswerBegan
from ._messages import AttemptEnded as AttemptEnded
from ._messages import CallArrived as CallArrived
from ._messages import CallCancelled as CallCancelled
from ._messages import Command as Command
from ._messages import Draining as Draining
from ._messages import Event as Event
from ._messages import Grant as Grant
from ._messages import Permit as Permit
from ._messages import PolicyLoaded as PolicyLoaded
from ._messages import Refuse as Refuse
from ._messages import Settle as Settle
from ._messages import TimePassed as TimePassed
from ._outcome import HEALTHY as HEALTHY
from ._outcome import Ended as Ended
from ._parts import ALL_PARTS as ALL_PARTS
from ._parts import Parts as Parts
from ._scheduler import Scheduler as Scheduler
from ._snapshot import PoolSnapshot as PoolSnapshot
from ._snapshot import Snapshot as Snapshot
