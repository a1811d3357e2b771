"""Estimates of starts, held against what came."""
