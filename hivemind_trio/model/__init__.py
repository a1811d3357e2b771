"""The nouns: what is called, by whom, and why it was treated as it was. Values only."""

from ._outcome import Outcome as Outcome
from ._reading import Dimension as Dimension
from ._reading import Reading as Reading
from ._reason import Reason as Reason
from ._recorded import RecordedAttempt as RecordedAttempt
from ._recorded import RecordedCall as RecordedCall
from ._request import ANTHROPIC_PATHS as ANTHROPIC_PATHS
from ._request import OPENAI_PATHS as OPENAI_PATHS
from ._request import PROBE_PATHS as PROBE_PATHS
from ._request import SHARED_PATHS as SHARED_PATHS
from ._request import V1_PATHS as V1_PATHS
from ._request import Api as Api
from ._request import Request as Request
from ._secret import SecretRef as SecretRef
from ._secret import SecretSource as SecretSource
from ._treatment import Decider as Decider
from ._treatment import Treatment as Treatment
from ._treatment import Verdict as Verdict
from ._usage import Usage as Usage
