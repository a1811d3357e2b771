"""Records of calls: counts since the start, the last hour, the last that ended, and the last estimates."""

from .advice import AdviceKeeper as AdviceKeeper
from .advice import DatedAdvice as DatedAdvice
from .call_metrics import CallMetrics as CallMetrics
from .call_metrics import Distribution as Distribution
from .conduct import Conduct as Conduct
from .hour_usage import HourUsage as HourUsage
from .hour_usage import UsageKey as UsageKey
from .hour_usage import UsageSum as UsageSum
from .provider_history import AttemptSum as AttemptSum
from .provider_history import CircuitTurn as CircuitTurn
from .provider_history import ProviderHistory as ProviderHistory
from .provider_silence import ProviderSilence as ProviderSilence
from .provider_silence import Silences as Silences
from .starts import DatedStarts as DatedStarts
from .starts import StartsKeeper as StartsKeeper
from .tally import EndedCall as EndedCall
from .tally import Tally as Tally
from .tally import Unreached as Unreached
from .time_series import SeriesPoint as SeriesPoint
from .time_series import TimeSeries as TimeSeries
