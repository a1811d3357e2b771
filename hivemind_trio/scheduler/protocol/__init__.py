"""Values that cross the scheduler's face: events, commands, calls and snapshots."""
