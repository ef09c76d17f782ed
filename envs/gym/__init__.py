"""Gymnasium environments, single and vector; their ids are registered without importing their classes."""
