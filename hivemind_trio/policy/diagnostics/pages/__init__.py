"""Documentation pages of diagnostic codes, one file for each family."""
