"""Families of policies compared fairly: raw, equally sharp, tuned, and swept."""
