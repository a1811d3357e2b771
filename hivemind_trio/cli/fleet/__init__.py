"""Commands around a fleet: its clients, its jobs and what it shares."""
