"""Lints: reachability, contradictions between settings, rate arithmetic, sizes and timing."""
