"""Forecasts in copies of the live scheduler: conduct of callers, turns, and the starts of calls that wait."""
