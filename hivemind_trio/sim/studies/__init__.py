"""Studies: runs over several seeds, comparison of policies, plots and SVG."""
