"""Colours, dashes and markers: a head looks alike in every figure, to the colour-blind and in grey too."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import seaborn
from matplotlib.colors import to_hex, to_rgb
from matplotlib.lines import Line2D

Ground = Literal["light", "dark"]
GROUNDS: tuple[Ground, ...] = ("light", "dark")

PAPER: dict[Ground, str] = {"light": "#ffffff", "dark": "#1e2129"}
INK: dict[Ground, str] = {"light": "#262626", "dark": "#e6e6e6"}
GRID: dict[Ground, str] = {"light": "#e2e2e2", "dark": "#3a3f4b"}

SOLID, DASHED, DOTTED, SHORT = "-", (0, (4.0, 1.3)), (0, (1.2, 1.2)), (0, (2.2, 2.2))
DASH_DOT, DASH_DOT_DOT = (0, (4.0, 1.3, 1.2, 1.3)), (0, (7.0, 1.3, 1.2, 1.3, 1.2, 1.3))

# Made to be told apart under the common colour-vision deficiencies.
_SCHEME = seaborn.color_palette("colorblind").as_hex()
_NUMBERS = {"blue": 0, "vermilion": 3, "green": 2, "orange": 1, "pink": 4, "sky": 9, "tan": 5, "grey": 7}
HUES: dict[str, str] = {name: _SCHEME[number] for name, number in _NUMBERS.items()}
# Hues of equal lightness have different dashes, so that a grey print tells them apart.
_DASHES: dict[str, Any] = {
    "blue": SOLID,
    "vermilion": DASHED,
    "green": DOTTED,
    "orange": DASH_DOT,
    "pink": SOLID,
    "sky": DASHED,
    "tan": SHORT,
    "grey": DASH_DOT_DOT,
}
_MARKERS = dict(zip(HUES, "os^DvPX*", strict=True))

FAMILIES: dict[str, str] = {
    "softmax": "blue",
    "s_tau": "vermilion",
    "escort": "orange",
    "argmax": "green",
    "power_norm": "green",
    "thompson": "pink",
    "random": "grey",
    "ssmax": "sky",
    "lssa": "pink",
    "lssar": "tan",
    "reweight_softmax": "grey",
}
"""The hue of a head or policy, wherever it is drawn; others take the hues that a figure leaves free, in order."""

# Plain index policies take the best arm of their scores.
_ALIASES = {"sm": "softmax", "pn": "power_norm", "ucb1": "argmax", "kl_ucb": "argmax"}
# Shares of ink (above 0) or paper (below 0) in the colours of further members of a family.
_SHADES = (0.0, 0.45, -0.35, 0.25, -0.2, 0.6, -0.5, 0.35, -0.1, 0.1)


@dataclass(frozen=True, slots=True)
class Look:
    """How one line is drawn."""

    colour: str
    dash: Any
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """Arguments of `Axes.plot`."""
        return {"color": self.colour, "linestyle": self.dash}

    def key(self, *, marker: bool = False) -> Line2D:
        """A line for a legend, dashed as the look says also where the drawn one takes turns with others."""
        return Line2D([], [], marker=self.marker if marker else "", markersize=5, **self.line)


def family_of(name: str) -> str:
    """The head that a policy, method or normaliser decides with: `softmax` of `centred_ucb | softmax(beta=1)`."""
    found = re.match(r"\w+", name.rsplit("|", 1)[-1].strip())
    word = found.group().split("_fir")[0] if found else name
    return _ALIASES.get(word, word)


def looks(names: Sequence[str], ground: Ground = "light") -> list[Look]:
    """A look for every name of a figure; each is another colour or shade.

    Args:
        names: policies, methods or normalisers; give all of them, whichever are drawn.
        ground: what they are drawn on.
    """
    hues: dict[str, str] = {}
    keys = [family if (family := family_of(name)) in FAMILIES else name for name in names]
    for key in keys:
        if FAMILIES.get(key) not in (None, *hues.values()):
            hues[key] = FAMILIES[key]
    for key in keys:
        if key not in hues:
            free = [hue for hue in HUES if hue not in hues.values()]
            hues[key] = free[0] if free else list(HUES)[len(hues) % len(HUES)]
    found, members = [], dict.fromkeys(HUES, 0)
    for key in keys:
        hue = hues[key]
        shade, dashes = _SHADES[members[hue] % len(_SHADES)], list(_DASHES.values())
        dash = dashes[(list(HUES).index(hue) + members[hue]) % len(dashes)]
        members[hue] += 1
        found.append(Look(on(shaded(HUES[hue], shade, ground), ground), dash, _MARKERS[hue]))
    return found


def shaded(colour: str, share: float, ground: Ground) -> str:
    """A colour with a share of ink, or of paper where the share is below 0."""
    other = np.array(to_rgb((INK if share > 0 else PAPER)[ground]))
    red, green, blue = (1 - abs(share)) * np.array(to_rgb(colour)) + abs(share) * other
    return to_hex((red, green, blue))


def on(colour: str, ground: Ground, contrast: float = 2.0) -> str:
    """The colour with as much ink as it needs for a contrast with the ground; text needs 4.5, a line 2."""
    for share in np.linspace(0.0, 1.0, 21):
        mixed = shaded(colour, float(share), ground)
        if contrast_of(mixed, PAPER[ground]) >= contrast:
            return mixed
    return INK[ground]


def contrast_of(first: str, second: str) -> float:
    """Contrast ratio of two colours, from 1 to 21 (WCAG 2)."""
    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    """Relative luminance of a colour in sRGB, from 0 (black) to 1 (white)."""
    values = np.array(to_rgb(colour))
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
