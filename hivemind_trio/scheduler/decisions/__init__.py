"""Decisions of the scheduler: admission, routing, dispatch, grant, completion, feedback, requeue and rejection."""
