"""Specs as text and as frozen objects: the grammar, the registries, schedules of the step."""
