"""This machine as a policy sees it: its files, its environment, its secrets."""
