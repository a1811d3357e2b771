"""Benchmarks: each file opens with its question and its budget. See README.md."""
