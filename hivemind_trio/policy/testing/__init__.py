"""Policy tests: typing of test blocks, proofs over all calls, and outcomes."""
