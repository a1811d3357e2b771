"""The agents' door: one exchange at a time, as raw ASGI."""
