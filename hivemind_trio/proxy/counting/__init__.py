"""Counts of prompts before calls are scheduled."""
