"""Data structures: indexed heap, sliding window and latency histogram."""
