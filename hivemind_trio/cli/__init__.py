"""The command line. Each command imports what it needs when it runs."""

from .main import run as run
