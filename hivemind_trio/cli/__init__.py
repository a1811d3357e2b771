"""The command line. Each command imports what it needs when it runs."""

from ._main import run as run
