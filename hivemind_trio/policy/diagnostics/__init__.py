"""Diagnostics: collection, documentation pages, rendering and machine formats."""
