"""Fair queueing: wait queues, lanes, agents, job priority, drain rate and cache affinity."""
