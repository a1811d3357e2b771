"""What providers' bytes mean: paths, bodies, and the shape of a refusal, one dialect each. Pure and total."""

from ._credentials import CREDENTIAL_HEADERS as CREDENTIAL_HEADERS
from ._credentials import credential_header as credential_header
from ._errors import error_event as error_event
from ._errors import refusal_body as refusal_body
from ._keepalive import KeepAlive as KeepAlive
from ._keepalive import keep_alive as keep_alive
from ._paths import Endpoint as Endpoint
from ._paths import apis_of as apis_of
from ._paths import base_url_hint as base_url_hint
from ._paths import endpoint as endpoint
from ._paths import is_admin as is_admin
from ._paths import is_root as is_root
from ._prefix import prompt_prefix as prompt_prefix
from ._ratelimits import read_ratelimits as read_ratelimits
from ._ratelimits import used_up as used_up
from ._recognise import Recognised as Recognised
from ._recognise import recognise as recognise
from ._rewrite import with_model as with_model
from ._signals import Signal as Signal
from ._signals import read_signal as read_signal
from ._stream_errors import StreamError as StreamError
from ._usage import Meter as Meter
