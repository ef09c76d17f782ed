"""Heads in reinforcement learning: heads x tasks x seeds, each head tuned on an equal grid."""
