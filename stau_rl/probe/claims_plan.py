"""Settings that ask of attention heads what their authors say of them; each part is chosen by name alone.

| part | question | seeds |
| --- | --- | --- |
| `gates` | does silence depend on the gate, the start of the threshold and the norm of the filter? | 40, from 1000 |
| `calibrated` | does the calibrated start hold on seeds that its quantile was not chosen on? | 60, from 2000 |
| `silence share` | is silence taught? shares of unanswerable training rows, all tested at one half | 8, from 3000 |
| `mqar grid` | which heads recall many pairs over many places? a learning-rate grid each | 16, from 4000 |
| `lssar` | does re-weighting keep recall on longer items, at p = 15 and p = 3? | 8, from 5000 |

No setting of the other plans uses these seeds. A part's name may go on after a comma, and every beginning of it that
ends before a comma chooses all that begins so: `mqar grid, 64 places 4 pairs` is a piece of `mqar grid`.
"""

from stau_rl.probe.model import Shape
from stau_rl.probe.plan import ALL_FIR, FACTORS, MOST_SEEDS, Setting
from stau_rl.probe.train import Recipe

GATES, THRESHOLDS, NORMS = ("clamp", "hill", "sink", "none"), (-1.0, -0.5, -0.25, 0.0), ("l1", "l2")
CALIBRATED = ("pn_fir_tau_hill_calibrated", "pn_fir_tau_calibrated", "pn_fir_tau_sink_calibrated")
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
RATES = (1e-2, 3e-3, 3e-2, 1e-3)
"""The most likely best first, so that a run that is stopped has told most."""
MQAR = ("softmax", "softmax_conv", "sm_fir", "s_tau", "entmax15", "pn_fir_tau", "lssar_p3")
MQAR_STEPS = 1000
MQAR_TOKENS = 2048
"""Places per training step and model: longer items make smaller batches."""
MQAR_ITEMS = ((64, 16), (64, 4), (128, 16), (256, 64), (128, 4), (256, 16), (512, 64), (256, 4), (512, 16), (512, 4))
"""Places and pairs, the cheapest that may tell the heads apart first."""
INNER = ("softmax", "sigmoid_norm", "relu_norm")
"""In place of the softplus that LSSAR has."""
_ABLATED = tuple(f"attention(head=reweight(inner={inner}, p=15), scores=cosine)" for inner in INNER)
LSSAR = ("softmax", "ssmax", "s_tau", "lssa", "lssar_p3", "lssar", *_ABLATED)
LSSAR_FIR = tuple(
    name if name.startswith("sm_") else f"{name[:-1]}, fir_taps=7)" if "(" in name else f"{name}(fir_taps=7)"
    for name in ("sm_fir", *LSSAR[1:])
)
_FIRST = {"gates": 1000, "calibrated": 2000, "silence share": 3000, "mqar grid": 4000, "lssar": 5000}
_SEEDS = {"gates": 40, "calibrated": 60, "silence share": 8, "mqar grid": 16, "lssar": 8}
PARTS = tuple(_FIRST)


def claims(part: str, seeds: int | None = None) -> list[Setting]:
    """The settings of one part, or of a piece of it, in the order in which they tell most for their time.

    Args:
        part: one of `PARTS`, or the beginning of a longer name, up to a comma.
        seeds: how many, in place of the part's own number.

    Returns:
        The settings; none where there is no such part.

    Raises:
        ValueError: there are no seeds or more than 10 000.
    """
    name = part.split(",")[0]
    if name not in _FIRST:
        return []
    count = _SEEDS[name] if seeds is None else seeds
    if not 1 <= count <= MOST_SEEDS:
        raise ValueError(f"seeds must be from 1 to {MOST_SEEDS}, got {count}")
    numbers = tuple(range(_FIRST[name], _FIRST[name] + count))
    made = {
        "gates": _gates,
        "calibrated": _calibrated,
        "silence share": _shares,
        "mqar grid": _mqar,
        "lssar": _lssar,
    }[name](numbers)
    return [setting for setting in made if f"{setting.part},".startswith(f"{part},")]


def _gates(seeds: tuple[int, ...]) -> list[Setting]:
    learned = [
        Setting(
            f"gates, {gate}",
            "silence",
            tuple(
                f"pn_fir_tau(gate={gate}, threshold={start:g}, fir_norm={norm})"
                for norm in NORMS
                for start in THRESHOLDS
            ),
            seeds,
        )
        for gate in GATES
    ]
    fixed = tuple(f"pn_fir(gate={gate}, fir_norm={norm})" for gate in GATES for norm in NORMS)
    return [*learned, Setting("gates, fixed", "silence", fixed, seeds)]


def _calibrated(seeds: tuple[int, ...]) -> list[Setting]:
    return [Setting("calibrated", "silence", CALIBRATED, seeds)]


def _shares(seeds: tuple[int, ...]) -> list[Setting]:
    # One half last: it is also trained by other parts.
    return [
        Setting("silence share", f"silence(unanswerable={share:g})", ALL_FIR, seeds, test="silence") for share in SHARES
    ]


def _mqar(seeds: tuple[int, ...]) -> list[Setting]:
    return [
        Setting(
            f"mqar grid, {places} places {pairs} pairs, {layers} layers, rate {rate:g}",
            f"mqar(places={places}, pairs={pairs})",
            MQAR,
            seeds,
            Shape(layers=layers, heads=4),
            Recipe(MQAR_STEPS, max(1, MQAR_TOKENS // places), rate),
            512,
        )
        for layers in (2, 4)
        for places, pairs in MQAR_ITEMS
        for rate in RATES
    ]


def _lssar(seeds: tuple[int, ...]) -> list[Setting]:
    rotary, nope = Shape(positions="rotary"), Shape(positions="none")
    return [
        Setting("lssar, smoothed keys", "passkey_rivals", LSSAR_FIR, seeds, nope, items=512, factors=FACTORS),
        Setting("lssar, rotary", "passkey_rivals", LSSAR_FIR, seeds, rotary, items=512, factors=FACTORS),
        Setting("lssar, one value", "passkey", LSSAR, seeds, nope, items=512, factors=FACTORS),
    ]
