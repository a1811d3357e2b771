"""Sessions of clients: how large, how long, how costly and how old each is.

Agents call turn by turn, and each turn sends the whole conversation again. What a session has come to is known from
its answers alone, so nothing is read of a prompt.
"""

from __future__ import annotations
