"""Decisions of the scheduler: grant, completion, feedback, requeue and rejection."""
