"""Registers the environments with Gymnasium without importing it: `import stau_rl` stays light.

`gymnasium.make("stau_rl:stau_rl/BernoulliBandit-v0")` imports `stau_rl` and then looks the id up. Gymnasium is loaded
then, but `stau_rl` may have been imported before it; so where Gymnasium is not loaded yet, its import is waited for.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

GYMNASIUM = "gymnasium"


def register_when_loaded() -> None:
    """Register the environments now if Gymnasium is loaded, else right after it has been."""
    if sys.modules.get(GYMNASIUM) is not None:
        _register()
    elif not any(isinstance(finder, _Waiting) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Waiting())


def _register() -> None:
    from stau_rl.envs.gym.registration import register_environments

    register_environments()


class _Waiting:
    """A finder that finds nothing by itself: it lets the others find Gymnasium and acts when that has run."""

    def __init__(self) -> None:
        self._asking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of Gymnasium, whose loader registers the environments afterwards; None for any other module."""
        if name != GYMNASIUM or self._asking:
            return None
        self._asking = True
        try:
            spec = find_spec(name)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            run = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                # Asking where Gymnasium is may come first, so this waits until it has really been loaded.
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                _register()

            loader.exec_module = exec_module
        return spec
