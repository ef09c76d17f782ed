"""Shared fixtures and the visible skip of GPU tests."""

import os

import pytest

# Tests run side by side in worker processes; one thread of tensor operations each keeps them from crowding out.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")


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
