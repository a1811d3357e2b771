"""Forecasts: a copy of a live scheduler decides about the calls that are expected next."""
