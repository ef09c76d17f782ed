"""Attention with any normaliser: heads as text, key smoothing, small models of many heads at once."""
