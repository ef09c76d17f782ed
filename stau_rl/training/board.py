"""The learning curve of a run for TensorBoard, written while the run is played."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

BOARD = "tensorboard"
EVENTS = "events.out.tfevents.*"
MISSING = f'{BOARD} is not installed; pip install -e ".[{BOARD}]" -c constraints.txt, or leave --{BOARD} out'


def require_board() -> None:
    """Raise a ValueError that says what to install where TensorBoard is missing."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise ValueError(MISSING) from None


class Board:
    """Writes the points of a learning curve into a folder; use it in a `with` block.

    The folder has one file of events: points that were played before are written anew, and what an earlier process left
    there goes.

    Args:
        folder: of the run.
        points: of the curve that were played before.
    """

    def __init__(self, folder: Path, points: Iterable[Mapping[str, float]]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        for earlier in folder.glob(EVENTS):
            earlier.unlink()
        self._writer: Any = SummaryWriter(str(folder))
        for point in points:
            self.add(point)

    def add(self, point: Mapping[str, float]) -> None:
        """Write every number of a point that there is, against its step."""
        for name, value in point.items():
            if name != "step" and not math.isnan(value):
                self._writer.add_scalar(name, value, int(point["step"]))
        self._writer.flush()

    def __enter__(self) -> "Board":
        """Nothing to do; the file is open."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._writer.close()
