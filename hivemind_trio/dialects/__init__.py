"""Dialects: one file and one record for each API of providers. Data and pure functions."""

from .credentials import CREDENTIAL_HEADERS as CREDENTIAL_HEADERS
from .credentials import CREDENTIAL_PARAMETERS as CREDENTIAL_PARAMETERS
from .credentials import credential_header as credential_header
from .dialect import Dialect as Dialect
from .dialect import EndpointPattern as EndpointPattern
from .dialect import KeepAlive as KeepAlive
from .events import ErrorBody as ErrorBody
from .events import dump as dump
from .events import error_fields as error_fields
from .limits import PlanHeaders as PlanHeaders
from .limits import PlanPart as PlanPart
from .limits import QuotaHeaders as QuotaHeaders
from .registry import DIALECTS as DIALECTS
from .registry import IN_ORDER as IN_ORDER
from .registry import KNOWN_BASES as KNOWN_BASES
from .registry import KNOWN_NAMES as KNOWN_NAMES
from .registry import KNOWN_PATHS as KNOWN_PATHS
from .registry import PROBE_PATHS as PROBE_PATHS
from .registry import SHARED_PATHS as SHARED_PATHS
from .registry import V1_PATHS as V1_PATHS
from .registry import dialect_of as dialect_of
from .registry import speakers as speakers
from .simulated import SimulatedRefusal as SimulatedRefusal
from .streams import EventKind as EventKind
from .streams import StreamFormat as StreamFormat
from .usage import TokenCounts as TokenCounts
