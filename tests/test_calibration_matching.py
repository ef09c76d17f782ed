"""Matched sharpness: slopes at zero, mean entropies, and what cannot be reached."""

import json
import math
from pathlib import Path

import pytest
import torch

from stau_rl.calibration import match_sharpness, mean_entropy
from stau_rl.heads import HEADS, Argmax, Escort, SigmoidNorm, Softmax, SoftplusNorm, STau

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden_heads.json").read_text(encoding="utf-8"))


def double(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def rows(*shape: int, seed: int = 0, scale: float = 2.0) -> torch.Tensor:
    return scale * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_slope_golden():
    beta = match_sharpness(STau(5.0, eps=0.0), "softmax").beta
    assert beta == pytest.approx(5 * GOLDEN["slope_at_zero_eps0"], rel=1e-12)
    tau = match_sharpness(Softmax(3.6), "s_tau(eps=0)").tau
    assert tau == pytest.approx(3.6 / GOLDEN["slope_at_zero_eps0"], rel=1e-12)


SMOOTH = [HEADS[name]() for name in HEADS if HEADS[name].smooth_at_zero]
SHARP = [HEADS[name]() for name in HEADS if HEADS[name].sharpness]


@pytest.mark.parametrize("reference", [*SMOOTH, STau(7.0, 0.1)], ids=str)
@pytest.mark.parametrize("family", [head for head in SMOOTH if head.sharpness], ids=str)
def test_every_smooth_pair_matches_in_slope(reference, family):
    lowest = STau(1.0).slope_at_zero()
    if isinstance(family, STau) and reference.slope_at_zero() < lowest * (1 - 1e-12):
        with pytest.raises(ValueError, match=r"no s_tau has the slope .* tau must be finite and >= 1"):
            match_sharpness(reference, family)
        return
    if isinstance(reference, SoftplusNorm) and isinstance(family, STau):
        family = STau(2.0, eps=0.0)  # tau = 1 exactly; with eps > 0 it would have to lie above 1 by 1e-8
    matched = match_sharpness(reference, family)
    assert type(matched) is type(family)
    assert matched.slope_at_zero() == pytest.approx(reference.slope_at_zero(), rel=1e-12)


def test_matching_keeps_the_other_parameters():
    assert match_sharpness(Softmax(2.0), STau(3.0, eps=0.25)).eps == 0.25
    assert match_sharpness(STau(4.0), Softmax(0.0)).beta > 0
    assert match_sharpness(Softmax(2.0), STau(3.0, 0.25), "entropy", rows(4, 5)).eps == 0.25


@pytest.mark.parametrize("reference", [*SMOOTH, Escort(3.0), STau(6.0), Softmax(4.0)], ids=str)
@pytest.mark.parametrize("family", SHARP, ids=str)
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_every_pair_matches_in_entropy_or_says_what_is_reachable(reference, family, offset):
    scores = rows(6, 7, seed=11) + offset
    mask = torch.rand(6, 7, generator=torch.Generator().manual_seed(1)) < 0.8
    target = mean_entropy(reference, scores, mask=mask)
    low = 1.0 if isinstance(family, STau) else 1e-12
    highest = mean_entropy(type(family)(low), scores, mask=mask)
    if target > highest * (1 + 1e-12):
        with pytest.raises(ValueError, match=rf"tau from 1 to .* reaches {highest:g} to"):
            match_sharpness(reference, family, "entropy", scores, mask)
        return
    matched = match_sharpness(reference, family, "entropy", scores, mask)
    assert type(matched) is type(family)
    assert mean_entropy(matched, scores, mask=mask) == pytest.approx(target, rel=1e-11)


def test_entropy_matching_recovers_a_known_parameter():
    scores = rows(8, 5, seed=3)
    for head in (Softmax(0.37), Softmax(12.5), STau(1.0), STau(8.25), Escort(0.3), Escort(5.0)):
        found = match_sharpness(head, type(head)(3.0), "entropy", scores)
        assert getattr(found, head.sharpness) == pytest.approx(getattr(head, head.sharpness), rel=1e-10)


def test_entropy_matching_along_another_axis():
    scores = rows(5, 8, seed=3)
    across = match_sharpness(STau(4.0), "softmax", "entropy", scores, dim=0)
    assert across.beta == pytest.approx(match_sharpness(STau(4.0), "softmax", "entropy", scores.T).beta, rel=1e-12)


def test_a_match_that_any_parameter_makes_returns_the_family():
    family = Softmax(7.0)
    assert match_sharpness(STau(3.0), family, "entropy", torch.ones(3, 4)) is family


def test_an_entropy_out_of_reach_names_the_range():
    """Two scores tied at the top keep softmax at log 2 or more, however sharp; escort prefers the -3."""
    with pytest.raises(
        ValueError, match=r"no softmax has the mean entropy .* beta from 1e-12 to 1e\+12 reaches .* to 0\.693147"
    ):
        match_sharpness(Escort(9.0), "softmax", "entropy", double([[1.0, 1.0, -3.0]]))


def test_mean_entropy():
    """Uniform over n gives log n; one-hot 0; masked entries and fully masked rows do not count."""
    scores = torch.zeros(3, 4)
    mask = torch.tensor([[True] * 4, [True, True, False, False], [False] * 4])
    expected = (math.log(4) + math.log(2)) / 2
    assert mean_entropy(Softmax(), scores, mask=mask) == pytest.approx(expected, rel=1e-15)
    assert mean_entropy(Softmax(), scores.masked_fill(~mask, math.nan), mask=mask) == pytest.approx(expected, rel=1e-15)
    assert mean_entropy(Argmax(), torch.tensor([[0.0, 1.0]])) == 0.0
    assert mean_entropy(Softmax(), torch.zeros(2, 3), dim=0) == pytest.approx(math.log(2), rel=1e-15)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reference": Escort(2.0)}, "escort is not smooth at score 0"),
        ({"family": "escort"}, "escort is not smooth at score 0"),
        ({"family": "argmax"}, "argmax has no sharpness parameter"),
        ({"family": SigmoidNorm()}, "sigmoid_norm has no sharpness parameter"),
        ({"family": "sotfmax"}, "did you mean 'softmax'"),
        ({"on": "temperature"}, "on must be 'slope' or 'entropy', got 'temperature'"),
        ({"on": "entropy"}, "on='entropy' needs scores"),
        ({"scores": torch.zeros(3)}, "scores and mask belong to on='entropy'"),
        ({"mask": torch.ones(3, dtype=torch.bool)}, "scores and mask belong to on='entropy'"),
        ({"reference": Softmax(0.5), "family": "s_tau"}, "no s_tau has the slope 0.5 of softmax.beta=0.5. at score 0"),
        ({"on": "entropy", "scores": torch.tensor([math.nan])}, "scores must not be NaN"),
        ({"on": "entropy", "scores": torch.zeros(0, 3)}, "scores must have a row with an unmasked entry"),
        (
            {"on": "entropy", "scores": torch.zeros(2), "mask": torch.zeros(2, dtype=torch.bool)},
            "scores must have a row with an unmasked entry",
        ),
        ({"reference": Escort(2.0), "on": "entropy", "scores": torch.tensor([-math.inf, 0.0])}, "NaN or infinite"),
    ],
)
def test_match_sharpness_names_what_it_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        match_sharpness(**{"reference": STau(5.0), "family": "softmax", **arguments})


@pytest.mark.parametrize("name", [name for name in HEADS if HEADS[name].mass_kind != "simplex"])
def test_weights_that_need_not_sum_to_one_have_no_entropy(name):
    with pytest.raises(ValueError, match="need not sum to 1, so they have no entropy"):
        match_sharpness(HEADS[name](), "softmax", "entropy", rows(2, 3))
    with pytest.raises(ValueError, match="is not smooth at score 0"):
        match_sharpness(HEADS[name](), "softmax")
