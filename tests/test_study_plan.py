"""Plans of studies: sweeps leave one axis, what cannot be swept is said, and no point compares a family with itself."""

from dataclasses import replace

import numpy as np
import pytest

from stau_rl.regret.run import run_regret
from stau_rl.study.family import Family
from stau_rl.study.plan import SWEEPS, plan_study, sweep_points, try_sweep
from stau_rl.study.rescale import rescale
from stau_rl.study.setting import Setting

SOFTMAX, S_TAU = "centred_ucb(c=0.25) | softmax(beta=1.5)", "centred_ucb(c=0.25) | s_tau(tau=5.5)"
SETTING = Setting(
    sweep="base",
    value="three arms",
    arms="gaussian(k=3)",
    families=(SOFTMAX, S_TAU),
    horizon=60,
    instances=200,
    tuning_instances=100,
    pilot_instances=16,
    seed=11,
    low=0.75,
    high=200.0,
    coarse=6,
    fine=3,
)


def test_every_sweep_leaves_its_axis_and_nothing_else() -> None:
    base = plan_study((SOFTMAX, S_TAU), ["gaussian(k=10)"], 1000, 100, 3, sweeps=()).settings[0]
    for sweep in SWEEPS:
        points = sweep_points(base, sweep)
        assert len(points) >= 2, sweep
        for point in points:
            changed = {"c": "families", "offset": "families", "centring": "families", "k": "arms", "horizon": "horizon"}
            kept = {"scale": ["horizon"]}.get(
                sweep, [name for name in ("arms", "families", "horizon") if name != changed.get(sweep)]
            )
            assert all(getattr(point, name) == getattr(base, name) for name in kept), sweep
    assert [p.families[1] for p in sweep_points(base, "offset", (-8.0,))] == [
        "centred_ucb(c=0.25, offset=-8) | s_tau(tau=5.5)"
    ]
    assert sweep_points(replace(base, families=("thompson", "random")), "c") == []
    assert sweep_points(replace(base, arms="bernoulli(k=10)"), "scale") == []


def test_rescaling_rewards_and_bonus_rescales_the_regret_of_softmax() -> None:
    """softmax(beta / r) on rewards and bonus times r is softmax(beta) with r times the regret."""
    setting = rescale(SETTING, 10.0)
    assert (setting.arms, setting.families[0]) == (
        "gaussian(k=3, scale=10, sigma=10)",
        "centred_ucb(c=2.5) | softmax(beta=1.5)",
    )
    plain = run_regret("gaussian(k=3)", [SOFTMAX], 60, 64, seed=1)
    scaled = run_regret(setting.arms, [setting.families[0].replace("1.5", "0.15")], 60, 64, seed=1)
    same = np.isclose(scaled.regret[0, -1], 10 * plain.regret[0, -1], rtol=1e-9)
    assert same.mean() >= 0.9


def test_the_sweep_point_that_is_the_base_is_played_once() -> None:
    settings = plan_study((SOFTMAX, S_TAU), ["bernoulli(k=10)"], 1000, 100, 3, sweeps=("c", "k")).settings
    assert len({replace(setting, sweep="", value="").identity for setting in settings}) == len(settings) == 1 + 3 + 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"families": (SOFTMAX,)}, "two or more"),
        ({"families": (SOFTMAX, SOFTMAX)}, "two or more"),
        ({"families": (SOFTMAX, "ucb | softmux")}, "softmux"),
        ({"sweeps": ("d",)}, "unknown sweep 'd'"),
        ({"size": "huge"}, "unknown size"),
        ({"seed": -1}, "seed"),
        ({"arms": []}, "arms must name at least one, got none"),
        ({"arms": "bernoulli(k=3)"}, r"arms must be a list of texts, got 'bernoulli\(k=3\)'"),
        ({"sweeps": "c"}, "sweeps must be a list of texts, got 'c'"),
        ({"sweeps": [3]}, "sweeps must be texts, got 3"),
        ({"families": "thompson"}, "families must be a list of texts"),
        ({"horizon": 1}, "horizon"),
    ],
)
def test_errors_name_the_argument(changes: dict, message: str) -> None:
    given = {"families": (SOFTMAX, S_TAU), "arms": ["bernoulli(k=3)"], "horizon": 10, "instances": 10, "seed": 0}
    with pytest.raises(ValueError, match=message):
        plan_study(**(given | changes))


def _plan(families, arms=("gaussian(k=4)",), **rest):
    return plan_study(families, arms, 50, 20, 0, **rest)


def test_a_sweep_asked_for_by_name_is_played_or_refused_with_its_reason() -> None:
    mean = ("mean | softmax", "mean | s_tau(tau=5)")
    with pytest.raises(ValueError, match=r"'c' cannot be played: .*score 'mean' has no argument 'c'"):
        _plan(mean, sweeps=["c"])
    with pytest.raises(ValueError, match=r"'scale' cannot be played: .*only Gaussian arms"):
        _plan((SOFTMAX, S_TAU), ["bernoulli(k=3)"], sweeps=["scale"])
    # One of two kinds of arms is enough, and the other is a note.
    both = _plan((SOFTMAX, S_TAU), ["bernoulli(k=3)", "gaussian(k=3)"], sweeps=["scale"])
    assert sum(setting.sweep == "scale" for setting in both.settings) == 4
    assert both.notes == ["bernoulli(k=3): sweep scale: only Gaussian arms can be rescaled, got bernoulli(k=3)"]
    # By default nothing is refused, and everything left out has a note.
    free = _plan(mean)
    assert {note.split(": ")[1] for note in free.notes} == {"sweep c", "sweep offset", "sweep centring"}
    assert {setting.sweep for setting in free.settings} == {"base", "k", "horizon", "scale"}


def test_a_point_that_would_make_two_families_one_is_left_out() -> None:
    families = ("centred_ucb(c=0.25) | softmax", "ucb(c=0.25) | softmax")
    plan = _plan(families)
    assert not [setting for setting in plan.settings if setting.sweep == "centring"]
    assert any("sweep centring: it would make two families one" in note for note in plan.notes)
    for setting in plan.settings:
        assert len({Family(text).raw for text in setting.families}) == 2
    with pytest.raises(ValueError, match="two families one"):
        _plan(families, sweeps=["centring"])
    widths = ("centred_ucb(c=0.25) | softmax", "centred_ucb(c=1) | softmax")
    assert try_sweep(_plan(widths, sweeps=()).settings[0], "c")[0] == []


def test_rescaled_families_carry_the_scale_of_the_rewards() -> None:
    base = replace(
        SETTING,
        families=("centred_ucb(c=0.5) | softmax(beta={x})", "ucb1", "thompson", "eps_greedy", "boltzmann_gumbel"),
    )
    scaled = rescale(base, 100.0)
    assert scaled.families == (
        "centred_ucb(c=50) | softmax(beta={x})",
        "ucb(c=100) | argmax",
        "thompson(prior_sd=100)",
        "eps_greedy",
        "boltzmann_gumbel(c=100)",
    )
    for text in scaled.families[1:]:
        plain = run_regret(base.arms, [dict(zip(scaled.families, base.families, strict=True))[text]], 60, 64, seed=1)
        large = run_regret(scaled.arms, [text], 60, 64, seed=1)
        same = np.isclose(large.regret[0, -1], 100 * plain.regret[0, -1], rtol=1e-6)
        assert same.mean() >= 0.9, text
    own = replace(base, ranges=(None, None, None, (0.01, 1.0)))
    assert [own.reach(text) for text in own.families[2:4]] == [(base.low, base.high), (0.01, 1.0)]
    assert own.identity != base.identity
    with pytest.raises(ValueError, match="how a family's own range carries the scale"):
        rescale(own, 100.0)
    found, reasons = try_sweep(replace(base, families=(SOFTMAX, "gradient_bandit")), "scale")
    assert found == []
    assert "how gradient_bandit" in reasons[0]
    assert "scale of rewards is not known" in reasons[0]


def test_templates_have_one_spelling() -> None:
    spelled = _plan(("ucb|softmax( beta = {x} )", "ucb | s_tau(tau={x}*2)"), sweeps=()).settings[0]
    assert spelled.families == ("ucb | softmax(beta={x})", "ucb | s_tau(tau={x} * 2)")
    with pytest.raises(ValueError, match="families must be two or more that differ"):
        _plan(("ucb | softmax(beta={x})", "ucb|softmax(beta = {x})"))


def test_rounds_of_tuning_grow_as_members_fall() -> None:
    assert replace(SETTING, tuning_instances=64, instances=1024).rounds == ((9, 256), (3, 1024))
    assert replace(SETTING, tuning_instances=64, instances=16).rounds == ((9, 64), (3, 64))
