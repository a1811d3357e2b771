"""The `simulate` command: scenarios, tables, time line, verdict and JSON."""
