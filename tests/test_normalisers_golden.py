"""Sparse maps and normalisers of partial mass against exact values, in float64 and float32."""

import json
import math
from pathlib import Path

import pytest
import torch

from stau_rl.heads import (
    Entmax,
    Entmax15,
    Head,
    LearnedSink,
    Lssar,
    PowerNorm,
    Reweight,
    SoftmaxOffByOne,
    Softpick,
    SoftplusNorm,
    Sparsemax,
)

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden_normalisers.json").read_text(encoding="utf-8"))
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
MAPS = {
    "softmax_off_by_one_n1": SoftmaxOffByOne(1.0),
    "learned_sink_b1.5": LearnedSink(1.5),
    "softpick": Softpick(),
    "sparsemax": Sparsemax(),
    "entmax15": Entmax15(),
}


def exact(values: list[float]) -> torch.Tensor:
    return torch.tensor([float(value) for value in values], dtype=torch.float64)


def assert_weights(got: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype, size: float) -> None:
    """Off by at most the factor exp(4 eps max(1, size)), size the largest |log f|."""
    tolerance = math.expm1(4 * torch.finfo(dtype).eps * max(1.0, size))
    assert bool(((got.double() - expected).abs() <= tolerance * expected + torch.finfo(dtype).tiny).all()), (
        got,
        expected,
    )


@DTYPES
@pytest.mark.parametrize("column", MAPS)
def test_maps(dtype: torch.dtype, column: str) -> None:
    for row in GOLDEN["maps"]:
        scores, expected = exact(row["scores"]), exact(row[column])
        if column in ("sparsemax", "entmax15") and dtype == torch.float32:
            # A sparse weight is a difference from the threshold: absolute, at the size of the scores.
            got = MAPS[column].weights(scores.float()).double()
            tolerance = 4 * torch.finfo(dtype).eps * max(1.0, float(scores.abs().max()))
            assert bool(((got - expected).abs() <= tolerance).all()), (got, expected)
        else:
            assert_weights(MAPS[column].weights(scores.to(dtype)), expected, dtype, float(scores.abs().max()))


@DTYPES
@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_entmax_at_the_alphas_with_a_closed_form(dtype: torch.dtype, alpha: float) -> None:
    column = {1.5: "entmax15", 2.0: "sparsemax"}[alpha]
    for row in GOLDEN["maps"]:
        scores, expected = exact(row["scores"]), exact(row[column])
        got = Entmax(alpha).weights(scores.to(dtype)).double()
        assert bool(((got - expected).abs() <= 4 * torch.finfo(dtype).eps * max(1.0, scores.abs().max())).all())


@DTYPES
@pytest.mark.parametrize("row", GOLDEN["power_norm"], ids=lambda row: f"{row['gate']} {row['scores']}")
def test_power_norm(dtype: torch.dtype, row: dict) -> None:
    scores = exact(row["scores"]).to(dtype).requires_grad_()
    threshold = torch.tensor(float(row["threshold"]), dtype=dtype, requires_grad=True)
    head = PowerNorm(float(row["p"]), gate=row["gate"]).bind(threshold=threshold)
    weights, mass = head.weights_and_mass(scores)
    excess = (exact(row["scores"]) - row["threshold"]).clamp(min=1e-30)
    size = row["p"] * float(excess[excess > 1e-30].log().abs().max()) if bool((excess > 1e-30).any()) else 1.0
    if dtype == torch.float32:
        # A float32 score is off by eps / 2 |s|, and x = s - threshold by that.
        alive = excess > 1e-30
        size += row["p"] * float((exact(row["scores"]).abs() / excess)[alive].max() if bool(alive.any()) else 0.0)
    assert_weights(weights, exact(row["weights"]), dtype, size)
    assert_weights(mass, exact([row["mass"]])[0], dtype, size)
    (exact(row["loss_coefficients"]).to(dtype) * weights).sum().backward()
    tolerance = 4 * torch.finfo(dtype).eps * max(1.0, size)
    largest = max(1e-30, float(exact(row["grad_scores"]).abs().max()))
    assert scores.grad is not None
    assert threshold.grad is not None
    assert float((scores.grad.double() - exact(row["grad_scores"])).abs().max()) <= tolerance * largest
    assert abs(float(threshold.grad) - row["grad_threshold"]) <= tolerance * largest


@DTYPES
@pytest.mark.parametrize("row", GOLDEN["lssar"], ids=lambda row: f"n={row['n_keys']} p={row['p']}")
@pytest.mark.parametrize("form", ["lssar", "reweight"])
def test_lssar(dtype: torch.dtype, row: dict, form: str) -> None:
    n, p = row["n_keys"], float(row["p"])
    cosines = exact(row["cosines_head"] + [row["cosine_rest"]] * (n - len(row["cosines_head"])))
    # Keys under a mask are no keys of the row: the padded row is the row.
    padded = torch.cat([cosines, exact([math.nan] * 3)]).to(dtype)
    mask = torch.arange(n + 3) < n
    scores = math.log(row["head_dim"]) * math.log(n) * padded
    head: Head = Lssar(p) if form == "lssar" else Reweight(SoftplusNorm(), p)
    shown = len(row["lssa_head"])
    first = SoftplusNorm().weights(scores, mask=mask)[:shown]
    size = math.log(row["head_dim"]) * math.log(n) + math.log(n)
    assert_weights(first, exact(row["lssa_head"]), dtype, size)
    weights, mass = head.weights_and_mass(scores, mask=mask)
    assert_weights(weights[:shown], exact(row["lssar_head"]), dtype, 4 * p * size)
    assert_weights(mass, exact([row["lssar_sum"]])[0], dtype, 4.0)
    assert weights[n:].tolist() == [0.0] * 3
