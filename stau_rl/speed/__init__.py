"""Engines, fused heads and agents timed beside their peers, after a check that they are right."""
