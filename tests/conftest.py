"""Shared fixtures and the visible skip of GPU tests."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip GPU tests, with a reason, where no CUDA device is present."""
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu:
        return
    import torch

    if torch.cuda.is_available():
        return
    for item in gpu:
        item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
