"""Reward processes of the bandit benchmark; one file each."""
