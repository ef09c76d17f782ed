"""Attention heads trained and asked for recall, silence and length."""
