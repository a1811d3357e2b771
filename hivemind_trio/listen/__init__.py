"""Inbound HTTP: our sockets, and Hypercorn's Trio worker made safe and lean.

An app is raw ASGI 3; in its scope it finds two extensions, `hivemind.on_disconnect` and `hivemind.abort`, which
`Listener` describes.
"""

from ._asgi import App as App
from ._asgi import Message as Message
from ._asgi import Receive as Receive
from ._asgi import Scope as Scope
from ._asgi import Send as Send
from ._bounds import Bounds as Bounds
from ._listener import Listener as Listener
from ._sockets import bind as bind
