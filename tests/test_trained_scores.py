"""tau* and trained scores: the committed rows, words that turn with them, a piece made anew, and each step by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from stau_rl.agents.attention.attention_model import AttentionModels
from stau_rl.envs.tasks import parse_task
from stau_rl.heads import Softmax, STau
from stau_rl.pages import trained_scores
from stau_rl.pages.attention_data import TAUS
from stau_rl.pages.paths import RESULTS
from stau_rl.pages.tau_models import GROUPS, PER_HEAD, SHARED, SOFTMAX, Group, capture, items, measure, swapped, train
from stau_rl.pages.tau_rows import CLOSED, GRID, LEAST_KL, ONE_BEST, TRUE, curve_rows, divergences, group_rows
from stau_rl.pages.trained_claims import LOOKS, TrainedScores, agreement, agreement_verdict, at_loss, difference, within
from stau_rl.pages.trained_scores import CURVES, HEADS, SWAPS
from stau_rl.pages.trained_tables import trained_appendix
from stau_rl.pages.trained_text import trained_section
from stau_rl.probe.train import Recipe

SMALL = Group(
    "main", "mqar(places=8, pairs=2, tokens=12)", 2, 8, 0, Recipe(6, 8, 1e-2, 2), (SOFTMAX, SHARED), (3, 4), 3
)


@pytest.fixture(scope="module")
def data() -> TrainedScores:
    return TrainedScores.load()


@pytest.fixture(scope="module")
def taus() -> pd.DataFrame:
    return pd.read_csv(RESULTS / TAUS)


def test_the_rows_are_small_and_say_where_they_come_from(data: TrainedScores) -> None:
    for name, rows in ((HEADS, data.heads), (SWAPS, data.swaps), (CURVES, data.curves)):
        assert (RESULTS / name).stat().st_size < 1_000_000
        assert rows["commit"].str.fullmatch("[0-9a-f]{40}").all()
        assert rows["versions"].str.contains("torch=").all()
        assert set(rows["group"]) == {group.name for group in GROUPS}
    for group in GROUPS:
        own = data.heads[(data.heads["group"] == group.name) & (data.heads["shift"] == 0)]
        assert len(own) == len(group.names) * group.layers * 4


def test_the_grid_meets_newton(data: TrainedScores) -> None:
    """The divergence is convex, so its least point on the grid is beside that of Newton's method."""
    own = data.heads[data.heads["tau_newton"] < GRID[-2]].dropna(subset=["tau_newton"])
    assert len(own) > 0.9 * len(data.heads)
    assert (np.log2(own["tau_grid"] / own["tau_newton"]).abs() <= 1 / 8 + 1e-6).all()
    assert (own["kl_newton"] <= own["kl_grid"] * (1 + 1e-5) + 1e-9).all()
    assert (own["kl_newton"] <= own["kl_closed"] * (1 + 1e-5) + 1e-9).all()


def test_a_piece_made_anew_is_that_of_the_committed_rows(data: TrainedScores) -> None:
    """The first measurement of two models of `main`, after its first steps."""
    seeds = (0, 5)
    group = replace(GROUPS[0], heads=(SOFTMAX, PER_HEAD), seeds=seeds)
    models = group.models()
    found: list[dict[str, object]] = []

    class Enough(Exception):
        pass

    def watch(step: int) -> None:
        found.extend(curve_rows(group, models, step))
        raise Enough

    with pytest.raises(Enough):
        train(models, group, watch)
    fresh = pd.DataFrame(found)
    kept = data.curves[(data.curves["group"] == "main") & (data.curves["step"] == group.every)]
    names = ["head_rule", "seed", "layer"]
    both = fresh.merge(kept, on=names, suffixes=("", "_kept"), validate="one_to_one")
    assert len(both) == 8
    for name in ("loss", "entropy", "top10_mass", "top1_mass"):
        np.testing.assert_allclose(both[name], both[f"{name}_kept"], rtol=2e-3)
    # Another processor rounds other last digits, and a weight or an answer may cross its line.
    np.testing.assert_allclose(both["below_1e3"], both["below_1e3_kept"], atol=2e-3)
    np.testing.assert_allclose(both["accuracy"], both["accuracy_kept"], atol=5e-3)


def test_the_verdict_on_the_correlation_turns_with_the_rows(data: TrainedScores, taus: pd.DataFrame) -> None:
    heads = data.heads.copy()
    noise = np.random.default_rng(0).normal(size=len(heads))
    heads["tau_grid"] = 3 * heads["tau_closed"] + 0.01 * noise
    same = replace(data, heads=heads)
    found = agreement(same.learned())
    assert found.slope.value == pytest.approx(3, rel=0.01)
    assert found.factor == pytest.approx(3, rel=0.01)
    assert agreement_verdict(found) == "reproduced"
    text = trained_section(same, taus)
    assert "r = 0.97: reproduced.**" in text
    assert "too small all the same, by a factor of 3.0" in text
    heads["tau_grid"] = heads["tau_closed"] + 0.3 * noise
    weaker = replace(data, heads=heads)
    assert agreement_verdict(agreement(weaker.learned())) == "not reproduced (weaker)"
    text = trained_section(weaker, taus)
    assert "r = 0.97: not reproduced (weaker).**" in text
    assert "the two agree in size" in text
    heads["tau_grid"] = 10 + noise
    none = replace(data, heads=heads)
    assert agreement_verdict(agreement(none.learned())) == "not reproduced"
    assert "r = 0.97: not reproduced.**" in trained_section(none, taus)
    few = none.learned()[lambda rows: rows["group"] == "main"][lambda rows: rows["seed"] < 5]
    assert agreement_verdict(agreement(few)) == "not testable here"


def test_the_window_is_of_the_same_rows(data: TrainedScores) -> None:
    inside = within(data.learned())
    assert inside["tau_closed"].between(1.30, 1.51).all()
    assert 0 < len(inside) < len(data.learned())


def with_accuracy(data: TrainedScores, choice: str, accuracy: float) -> TrainedScores:
    swaps = data.swaps.copy()
    swaps.loc[swaps["choice"] == choice, "accuracy"] = accuracy
    return replace(data, swaps=swaps)


@pytest.mark.parametrize(
    ("own", "one", "said"),
    [
        (0.99, 0.2, "a tau per head does not: reproduced.**"),
        (0.99, 0.99, "not reproduced, one tau keeps them as well.**"),
        (0.99, 0.8, "in part, one tau loses answers and does not collapse.**"),
        (0.5, 0.2, "not testable here, a tau per head does not keep the answers either.**"),
    ],
)
def test_the_verdict_on_one_tau_turns_with_the_rows(
    data: TrainedScores, taus: pd.DataFrame, own: float, one: float, said: str
) -> None:
    changed = with_accuracy(with_accuracy(data, LEAST_KL, own), ONE_BEST, one)
    changed = with_accuracy(changed, TRUE, 1.0)
    assert said in trained_section(changed, taus)


def test_weights_at_equal_loss_by_hand(data: TrainedScores, taus: pd.DataFrame) -> None:
    """Half-way between losses 0.4 and 0.1 in their logarithm lies 0.2; entropies 2 and 1 meet in 1.5."""
    like = data.curves.iloc[0].to_dict()
    rows = [
        {**like, "group": "main", "head_rule": rule, "seed": seed, "step": step, "layer": layer, "loss": loss}
        | dict.fromkeys(LOOKS, look + layer - 0.5 + (rule == PER_HEAD) * seed / 10)
        for rule in (SOFTMAX, PER_HEAD)
        for seed in (1, 2, 3)
        for step, loss, look in ((20, 0.4, 2.0), (40, 0.1, 1.0), (60, 0.3, 9.0))
        for layer in (0, 1)
    ]
    changed = replace(data, curves=pd.DataFrame(rows))
    pairs = at_loss(changed, 0.2)
    np.testing.assert_allclose(pairs["entropy", SOFTMAX], 1.5, rtol=1e-12)
    np.testing.assert_allclose(pairs["entropy", PER_HEAD], [1.6, 1.7, 1.8], rtol=1e-12)
    assert difference(pairs, "entropy").mean == pytest.approx(0.2, rel=1e-12)
    assert at_loss(changed, 0.05).empty
    # A loss that the first measurement is below is not reached along the way.
    assert at_loss(changed, 0.5).empty


def test_the_sentence_on_sparsity_turns_with_the_rows(data: TrainedScores, taus: pd.DataFrame) -> None:
    curves = data.curves.copy()
    softmax = curves["head_rule"] == SOFTMAX
    curves["below_1e6"] = np.where(softmax, 0.1, 0.4)
    curves["top10_mass"] = np.where(softmax, 0.9, 0.5)
    text = trained_section(replace(data, curves=curves), taus)
    assert "sparser than those of softmax, with less mass on the ten largest.**" in text
    assert "below 1e-6 +0.300 [+0.300, +0.300]" in text
    assert "ten largest -0.400 [-0.400, -0.400]" in text
    curves["below_1e6"] = 0.2 + 0.01 * softmax * (-1.0) ** curves["seed"]
    curves["top10_mass"] = np.where(softmax, 0.5, 0.9)
    text = trained_section(replace(data, curves=curves), taus)
    assert "no sparser than those of softmax, with more mass on the ten largest.**" in text


def test_the_section_and_the_tables_name_every_group_and_choice(data: TrainedScores, taus: pd.DataFrame) -> None:
    text, more = trained_section(data, taus), trained_appendix(data)
    assert all(f"`{group.name}`" in text for group in GROUPS)
    assert "tau = 15 everywhere" in more
    assert "nan" not in text + more


def models_of(group: Group) -> AttentionModels:
    models = group.models()
    train(models, group, lambda step: None)
    return models


def test_the_divergence_is_that_of_the_weights() -> None:
    """Against KL from the weights of the two heads, row by row; one row has a single key."""
    scores = 3 * torch.randn(2, 3, 2, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.ones(5, 6, dtype=torch.bool).tril(0)
    found = divergences(scores, mask, torch.tensor([1.0, 2.5, 40.0]))
    p = Softmax().weights(scores, mask=mask)
    for number, tau in enumerate((1.0, 2.5, 40.0)):
        q = STau(tau).weights(scores, mask=mask)
        kl = torch.where(p > 0, p * (p / q).log(), 0.0).sum(-1).mean((1, 3))
        torch.testing.assert_close(found[..., number], kl, rtol=1e-9, atol=1e-12)


def test_a_swap_changes_the_head_alone() -> None:
    group = replace(SMALL, heads=(SOFTMAX,))
    models, task = models_of(group), parse_task(group.task)
    swaps = torch.tensor([[[1.0, 2.0, 3.0, 4.0]], [[5.0, 6.0, 7.0, 8.0]]])
    other = swapped(models, [1], swaps)
    (before, _), after = capture(models, task, 4), capture(other, task, 4)
    # The first layer sees the same scores, the second what the first makes of them.
    torch.testing.assert_close(after[0].scores[0], before.scores[1])
    for layer, own in zip(after, swaps, strict=True):
        for head, tau in enumerate(own[0].tolist()):
            expected = STau(tau).weights(layer.scores[:, :, head], mask=layer.mask[:, :, 0])
            torch.testing.assert_close(layer.weights[:, :, head], expected)
    assert measure(other, task, 16).loss.item() != measure(models, task, 16).loss[1].item()


def test_one_tau_stays_one_and_moves() -> None:
    models = models_of(SMALL)
    for layer in models.learned():
        taus = layer["tau"][2:]
        torch.testing.assert_close(taus, taus[:, :1].expand(2, 4), rtol=1e-6, atol=0)
        assert (taus - 2).abs().min() > 1e-3
    first, second = (layer["tau"][2:, 0] for layer in models.learned())
    torch.testing.assert_close(first, second, rtol=1e-6, atol=0)


def test_one_tau_has_the_gradient_of_one_number() -> None:
    """Its first step, against the difference quotient of the loss along all heads at once: Adam goes by the sign."""
    group = replace(SMALL, heads=(SHARED,), seeds=(3,), recipe=Recipe(1, 8, 1e-2, 0), every=1)
    models, task = group.models(), parse_task(group.task)
    taus = [part for name, part in models.named_parameters() if name.endswith("learned.tau")]
    seen: list[torch.Tensor] = []

    class Watched(torch.optim.Adam):
        def step(self, closure: None = None) -> None:  # type: ignore[override]
            seen.extend(part.grad.clone() for part in taus if part.grad is not None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim, "Adam", Watched)
        train(models, group, lambda step: None)

    def loss(change: float) -> float:
        with torch.no_grad():
            for part in taus:
                part.add_(change)
            batch = items(models, task, 0, 8)
            logits, _ = models(batch.tokens, batch.query)
            value = torch.nn.functional.cross_entropy(logits.flatten(0, 2).double(), batch.target.flatten())
            for part in taus:
                part.sub_(change)
        return float(value)

    expected = (loss(0.05) - loss(-0.05)) / 0.1
    for grad in seen:
        np.testing.assert_allclose(grad.numpy(), expected, rtol=0.02)


def test_a_folder_goes_on_and_is_published(tmp_path, monkeypatch, capsys) -> None:
    made: list[str] = []

    def counted(group: Group) -> pd.DataFrame:
        made.append(group.name)
        return group_rows(group)

    monkeypatch.setattr(trained_scores, "GROUPS", (SMALL,))
    monkeypatch.setattr(trained_scores, "group_rows", counted)
    (tmp_path / "results").mkdir()
    call = [str(tmp_path / "run"), "--results", str(tmp_path / "results")]
    trained_scores.main(call)
    first = [(tmp_path / "results" / name).read_bytes() for name in (HEADS, SWAPS, CURVES)]
    trained_scores.main([*call, "--resume"])
    assert made == ["main"]
    assert [(tmp_path / "results" / name).read_bytes() for name in (HEADS, SWAPS, CURVES)] == first
    rows = TrainedScores.load(tmp_path / "results")
    # Two layers of four heads, two models of softmax at three shifts and two of s^tau at one.
    assert len(rows.heads) == 2 * 4 * (2 * 3 + 2)
    assert set(rows.swaps["choice"]) >= {TRUE, CLOSED, LEAST_KL, ONE_BEST}
    with pytest.raises(SystemExit):
        trained_scores.main(call)
    assert "pass --resume to go on" in capsys.readouterr().err
