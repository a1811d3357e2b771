"""Simulated evaluation: scenarios, policies, ablation, and figures of other papers."""
