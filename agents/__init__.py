"""Whoever decides: bandit policies, policy-gradient agents, attention heads."""
