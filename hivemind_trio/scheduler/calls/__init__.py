"""Calls in the scheduler: placement, waiting calls, running calls and kept positions."""
