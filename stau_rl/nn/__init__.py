"""Heads as torch modules and distributions, and the remedies for a learned sharpness."""
