"""The compiled program: immutable values that the scheduler and the proxy read."""
