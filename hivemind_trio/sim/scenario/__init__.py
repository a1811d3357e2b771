"""Scenarios: values, their text form, populations and replays of a journal."""
