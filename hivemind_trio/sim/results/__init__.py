"""Results of a run: recorder, tallies, figures and time series."""
