"""Bandit policies; one file each."""
