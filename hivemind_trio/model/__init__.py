"""The nouns: what is called, by whom, and why it was treated as it was. Values only."""

from .decision import Decider as Decider
from .decision import Decision as Decision
from .decision import Verdict as Verdict
from .moment import Moment as Moment
from .outcome import Outcome as Outcome
from .plan import NO_PLAN as NO_PLAN
from .plan import PlanReading as PlanReading
from .plan import PlanSpan as PlanSpan
from .plan import PlanStanding as PlanStanding
from .plan import PlanUse as PlanUse
from .plan import PlanWindow as PlanWindow
from .quota_reading import Dimension as Dimension
from .quota_reading import QuotaReading as QuotaReading
from .reason import REJECTIONS as REJECTIONS
from .reason import WAITS as WAITS
from .reason import Reason as Reason
from .reason import rejection_text as rejection_text
from .reason import wait_text as wait_text
from .recorded_call import RecordedAttempt as RecordedAttempt
from .recorded_call import RecordedCall as RecordedCall
from .recorded_call import RecordedWindow as RecordedWindow
from .request import Api as Api
from .request import Request as Request
from .secret import SecretRef as SecretRef
from .secret import SecretSource as SecretSource
from .usage import Usage as Usage
