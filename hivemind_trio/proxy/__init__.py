"""The agents' door: one exchange at a time, as raw ASGI."""

from .access_record import CallRecord as CallRecord
from .app import Door as Door
from .error_responses import overload_body as overload_body
from .exchange import Exchange as Exchange
from .own_priorities import OwnPriorities as OwnPriorities
from .own_priorities import Whose as Whose
from .own_priorities import shown as shown
from .own_priorities import whose as whose
from .request.asker import Asker as Asker
from .request.guard import refused_head as refused_head
