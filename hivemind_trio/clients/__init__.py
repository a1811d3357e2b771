"""Clients that call models: where each keeps its base URL, and how that is set and restored."""

from .client import CLIENTS as CLIENTS
from .client import EVERY_CLIENT as EVERY_CLIENT
from .client import Client as Client
from .client import ConfigFile as ConfigFile
from .config_text import ConfigFormat as ConfigFormat
from .config_text import NotEditable as NotEditable
from .config_text import edited as edited
from .written import SetupFailed as SetupFailed
from .written import config_path as config_path
from .written import undo as undo
from .written import write as write
