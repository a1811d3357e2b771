"""Inbound HTTP: our sockets, and Hypercorn's Trio worker made safe and lean.

An app is raw ASGI 3; in its scope it finds two extensions, `hivemind.on_disconnect` and `hivemind.abort`, which
`Listener` describes.
"""

from .asgi import App as App
from .asgi import Message as Message
from .asgi import Receive as Receive
from .asgi import Scope as Scope
from .asgi import Send as Send
from .bounds import Bounds as Bounds
from .listener import Listener as Listener
from .listener_fault import ListenerFault as ListenerFault
from .overload import LoopLag as LoopLag
from .sockets import ConnectionSource as ConnectionSource
from .sockets import bind as bind
from .sockets import inherited as inherited
