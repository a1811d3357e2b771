"""Commands about a policy file: check, fmt, explain, diff and test."""
