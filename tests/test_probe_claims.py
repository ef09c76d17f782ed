"""Parts of the probe that ask what authors claim: which settings they are, and what a run of them would cost."""

import pytest
import torch

from stau_rl.agents.attention.attention_model import AttentionModels, ModelSettings
from stau_rl.agents.attention.attention_spec import parse_attention
from stau_rl.agents.attention.key_smoothing import convolve_keys, half_gaussian_taps, smooth_keys
from stau_rl.envs.tasks import parse_task
from stau_rl.pages.paths import RESULTS
from stau_rl.probe.choose import choose
from stau_rl.probe.claims_plan import PARTS, RATES, SHARES, claims
from stau_rl.probe.cost import cost, costs, estimate
from stau_rl.probe.folder import read_probe
from stau_rl.probe.model import Shape
from stau_rl.probe.plan import Setting
from stau_rl.probe.run import run_settings
from stau_rl.probe.train import Recipe


def test_no_part_uses_seeds_of_the_committed_plan_or_of_another() -> None:
    used = {*read_probe(RESULTS / "attention_rows.csv").query("seed < 1000")["seed"]}
    for part in PARTS:
        mine = {seed for setting in claims(part) for seed in setting.seeds}
        assert not mine & used
        used |= mine


def test_a_part_is_chosen_by_name_and_a_piece_by_its_beginning() -> None:
    assert sum(len(setting.normalisers) for setting in choose(tasks="gates")) == 4 * 4 * 2 + 4 * 2
    assert [setting.part for setting in choose(tasks="gates, hill")] == ["gates, hill"]
    piece = choose(tasks="mqar grid, 64 places 4 pairs, 2 layers", seeds=2)
    assert {setting.recipe.rate for setting in piece} == {*RATES}
    assert piece[0].seeds == (4000, 4001)
    assert not claims("mqar grid, 64 places 4")
    with pytest.raises(ValueError, match="seeds must be from 1"):
        claims("gates", 0)


def test_shares_are_trained_apart_and_tested_alike() -> None:
    found = claims("silence share")
    assert [parse_task(setting.task).unanswerable for setting in found] == [*SHARES]
    assert {str(setting.tested) for setting in found} == {"silence"}
    with pytest.raises(ValueError, match="other tokens, places or keys to attend to"):
        Setting("x", "recall", ("softmax",), (0,), test="silence")
    tiny = Setting(
        "x", "silence(unanswerable=0)", ("sm_fir",), (0,), Shape(8), Recipe(1, 4, warm_up=1), 32, test="silence"
    )
    rows = run_settings([tiny], device="cpu").rows
    assert rows["tested"].tolist() == ["silence"]
    assert rows["mass_unanswerable"].notna().all()


def test_rivals_grow_with_the_length_and_never_carry_the_key() -> None:
    task = parse_task("passkey_rivals(places=16, keys=5, values=7, noise=3, spacing=4)")
    for factor, pairs in ((1, 4), (4, 16)):
        longer = task.longer(factor)
        batch = longer.items(3, torch.arange(200))
        tokens, key = batch.tokens[:, :-1], batch.tokens[:, -1:]
        assert longer.vocabulary == task.vocabulary
        assert (key < 5).all()
        assert ((tokens < 5).sum(-1) == pairs).all()
        assert (((tokens >= 5) & (tokens < 12)).sum(-1) == pairs).all()
        # The key stands once, in front of the slot, and the slot holds the answer.
        assert ((tokens == key).sum(-1) == 1).all()
        assert (tokens.gather(-1, batch.slot - 1) == key).all()
        assert (tokens.gather(-1, batch.slot) == batch.target).all()
    with pytest.raises(ValueError, match="places must be even"):
        parse_task("passkey_rivals(places=33)")


def test_the_norm_of_the_filter_is_what_it_says() -> None:
    taps = half_gaussian_taps(7, 2.0, "l2")
    assert float(taps.square().sum()) == pytest.approx(1.0, abs=1e-15)
    torch.testing.assert_close(taps / taps.sum(), half_gaussian_taps(), rtol=1e-14, atol=0)
    with pytest.raises(ValueError, match="norm must be one of l1, l2"):
        half_gaussian_taps(7, 2.0, "l3")


def test_a_convolution_of_equal_channels_is_smoothing_and_has_its_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(2, 6, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    taps = torch.randn(4, dtype=torch.float64, generator=generator)
    torch.testing.assert_close(convolve_keys(keys, taps[:, None].expand(4, 3)), smooth_keys(keys, taps))
    each = torch.randn(4, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(convolve_keys, (keys, each))


def test_the_learned_convolution_starts_as_softmax_and_learns() -> None:
    settings = ModelSettings(vocabulary=11, length=9, dim=8, heads=2)
    specs = [parse_attention("softmax"), parse_attention("softmax_conv")]
    models = AttentionModels(settings, specs, [0, 0])
    logits, _ = models(torch.arange(9)[None])
    torch.testing.assert_close(logits[0], logits[1])
    logits[1].square().sum().backward()
    (_, (group, _)) = models.groups(0)
    assert group.conv is not None
    assert tuple(group.conv.shape) == (1, 2, 4, 4)
    assert group.conv.grad is not None
    assert (group.conv.grad != 0).all()
    with pytest.raises(ValueError, match="smoothed or convolved"):
        parse_attention("sm_fir(conv_taps=4)")


def test_cost_grows_with_steps_and_seeds_and_sees_the_kernels_of_a_second_shape() -> None:
    one = Setting("x", "silence", ("sm_fir",), (0,), Shape(8), Recipe(10, 4, warm_up=1), 4)
    twice = Setting("x", "silence", ("sm_fir",), (0,), Shape(8), Recipe(20, 4, warm_up=1), 4)
    assert 1.9 < cost(twice).launching / cost(one).launching < 2.0
    alike = Setting("x", "silence", ("pn_fir_tau", "pn_fir_tau(p=4)"), (0,), Shape(8), one.recipe, 4)
    apart = Setting("x", "silence", ("pn_fir_tau", "pn_fir_tau_hill"), (0,), Shape(8), one.recipe, 4)
    assert cost(apart).kernels > 1.3 * cost(alike).kernels
    assert len(costs([one], "cpu")) == 1
    assert "about" in estimate([one], 2)


def test_no_process_at_all_has_no_cost() -> None:
    with pytest.raises(ValueError, match="processes must be at least 1, got 0"):
        estimate([], 0)
