"""Decisions of the scheduler: admission, dispatch, grant, completion, feedback, requeue and rejection."""
