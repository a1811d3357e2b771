"""Semantic difference of two policies: settings, rates and decisions about calls."""
