"""Records of calls that are over: counts since the start, and the last of them."""

from .call_metrics import CallMetrics as CallMetrics
from .call_metrics import Distribution as Distribution
from .tally import EndedCall as EndedCall
from .tally import Tally as Tally
from .tally import Unreached as Unreached
