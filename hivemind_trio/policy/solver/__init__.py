"""Finite-domain satisfiability solver over calls: partitions, box covers and witnesses."""
