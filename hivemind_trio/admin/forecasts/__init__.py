"""Forecasts in copies of the live scheduler, and advice by simulation of the last hour."""
