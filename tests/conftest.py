"""Shared fixtures and the visible skip of GPU tests."""

import os
import sys
from collections.abc import Iterator

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


@pytest.fixture(autouse=True)
def _forget_plugins() -> Iterator[None]:
    """Unregister the plug-in heads that a test leaves behind: tests that list the registry run in the same process."""
    before = _plugins()
    yield
    for name in _plugins() - before:
        sys.modules["stau_rl.plugin.plugin_head"].forget(name)


def _plugins() -> set[str]:
    """Names of the plug-in heads, where plug-ins are loaded at all."""
    plugin = sys.modules.get("stau_rl.plugin.plugin_head")
    if plugin is None:
        return set()
    return {name for name, head in plugin.HEADS.items() if issubclass(head, plugin.PluginHead)}
