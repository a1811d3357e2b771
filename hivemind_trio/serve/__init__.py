"""Puts the house together: policy, engine, doors, signals, reload."""
