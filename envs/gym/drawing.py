"""Pictures of environments as arrays of pixels, for `render_mode="rgb_array"`."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

RENDERS: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 4}
"""What an environment's metadata says of them."""
Picture = NDArray[np.uint8]
HEIGHT, WIDTH, GAP = 120, 240, 8
GROUND, PLAIN, BEST, CHOSEN = (255, 255, 255), (190, 196, 204), (0, 114, 178), (230, 159, 0)


def check_render_mode(mode: str | None) -> str | None:
    """The render mode, if it is one of ours; else a ValueError."""
    if mode is not None and mode not in RENDERS["render_modes"]:
        raise ValueError(f"render_mode must be None or 'rgb_array', which is all that is drawn here, got {mode!r}")
    return mode


def check_begun(begun: bool, what: str) -> None:
    """Raise Gymnasium's ResetNeeded unless an episode is under way.

    Args:
        begun: it is.
        what: what was asked for, such as `step`.
    """
    if not begun:
        raise ResetNeeded(f"{what} needs an episode that is under way; call reset first")


def may_draw(mode: str | None, begun: bool) -> bool:
    """Whether there is something to draw; says so where no render mode was given, as Gymnasium's own environments do.

    Raises:
        ResetNeeded: no episode has begun.
    """
    check_begun(begun, "render")
    if mode is None:
        gymnasium.logger.warn("render was called without a render mode; make the environment with 'rgb_array'")
    return mode is not None


def bars(heights: NDArray[np.float64], best: int, chosen: int | None) -> Picture:
    """A bar per arm, as high as its mean stands between the least and the largest; uint8 [height, width, 3].

    Args:
        heights: means [K].
        best: the best arm, drawn in blue.
        chosen: the arm pulled last, with an orange foot, if there is one.
    """
    span = float(np.ptp(heights)) or 1.0
    tops = GAP + np.rint((heights - heights.min()) / span * (HEIGHT - 3 * GAP)).astype(int)
    wide = max(2, WIDTH // heights.size)
    picture = np.full((HEIGHT, wide * heights.size, 3), GROUND, dtype=np.uint8)
    for k, top in enumerate(tops):
        column = slice(k * wide, (k + 1) * wide - (wide > 2))
        picture[HEIGHT - GAP - top : HEIGHT - GAP, column] = BEST if k == best else PLAIN
        if k == chosen:
            picture[HEIGHT - GAP :, column] = CHOSEN
    return picture


def cells(tokens: NDArray[np.int64], kinds: int, query: int) -> Picture:
    """A grey cell per place, darker for a larger token, and an orange mark under the query; uint8 [height, width, 3].

    Args:
        tokens: token numbers [n].
        kinds: how many tokens there are.
        query: the place of the query.
    """
    wide = max(2, WIDTH // tokens.size)
    shades = (240 - 200 * (tokens / max(1, kinds - 1))).astype(np.uint8)
    picture = np.full((2 * GAP + GAP, wide * tokens.size, 3), GROUND, dtype=np.uint8)
    picture[: 2 * GAP] = np.repeat(shades, wide)[None, :, None]
    picture[2 * GAP :, query * wide : (query + 1) * wide] = CHOSEN
    return picture
