"""Indices against their definitions: numpy and SciPy on the rewards themselves, a root finder for every bound."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import optimize, special, stats

import numba_oracle as oracle
from stau_rl.agents.bandit import SCORES, Index, KlUcb, Pipe, parse_policy
from stau_rl.agents.bandit.kl_ucb import bernoulli_upper_bound
from stau_rl.heads import Argmax, Softmax
from stau_rl.kernels import torch_loop
from stau_rl.kernels.contract import ArmTable, EngineError
from stau_rl.kernels.cpu import loop as numba_loop
from stau_rl.kernels.cpu.indices import kl_bernoulli
from stau_rl.kernels.engines import choose_engine
from stau_rl.kernels.philox import ACTION_REWARD
from stau_rl.spec.grammar import SpecError
from stau_rl.study.plan import rescale
from stau_rl.study.setting import Setting

HORIZON = 70
Plain = Callable[[list[NDArray[np.float64]], int, bool], NDArray[np.float64]]
SIGMA = oracle.ARMS["gaussian"].sigma


def kl(p: float, q: float, binary: bool, sigma: float) -> float:
    """Divergence of Bernoulli laws, or of Gaussian ones of one deviation."""
    if not binary:
        return (p - q) ** 2 / (2 * sigma**2)
    return float(special.rel_entr(p, q) + special.rel_entr(1 - p, 1 - q))


def upper(mean: float, level: float, binary: bool, sigma: float) -> float:
    """The largest q whose divergence from the mean is at most `level`, by Brent's method."""
    if level <= 0 or (binary and mean == 1):
        return mean
    high = 1 - 1e-15 if binary else mean + 100
    if kl(mean, high, binary, sigma) <= level:
        return high
    return float(optimize.brentq(lambda q: kl(mean, q, binary, sigma) - level, mean, high, xtol=1e-15))


def each(function: Callable[[NDArray[np.float64], int, bool], float]) -> Plain:
    return lambda rewards, t, binary: np.array([function(own, t, binary) for own in rewards])


def tuned(own: NDArray[np.float64], t: int, binary: bool) -> float:
    bound = own.var() / 1.5**2 + math.sqrt(2 * math.log(t) / own.size)
    return float(own.mean()) + 1.5 * math.sqrt(math.log(t) / own.size * min(0.25, bound))


def ucb_v(own: NDArray[np.float64], t: int, binary: bool) -> float:
    explored = 2.0 * math.log(t)
    return float(own.mean() + np.sqrt(2 * own.var() * explored / own.size) + 3 * 0.5 * explored / own.size)


def moss(level: float, c: float) -> Callable[..., float]:
    return lambda own, t, binary: float(own.mean() + c * math.sqrt(max(math.log(level / (4 * own.size)), 0) / own.size))


def quantile(own: NDArray[np.float64], t: int, binary: bool) -> float:
    q = 1 - 1 / (t + 1)
    if binary:
        return float(stats.beta.ppf(q, 1 + own.sum(), 1 + own.size - own.sum()))
    return float(stats.norm.ppf(q, own.mean(), SIGMA / math.sqrt(own.size)))


def imed(rewards: list[NDArray[np.float64]], t: int, binary: bool) -> NDArray[np.float64]:
    best = max(own.mean() for own in rewards)
    with np.errstate(divide="ignore"):
        return -np.array(
            [
                own.size * (0.0 if own.mean() == best else kl(float(own.mean()), best, binary, SIGMA))
                + math.log(own.size)
                for own in rewards
            ]
        )


PLAIN: dict[str, Plain] = {
    "ucb1_tuned(c=1.5)": each(tuned),
    "ucb_v(zeta=2, c=0.25, b=2)": each(ucb_v),
    "moss(c=0.7)": each(moss(HORIZON, 0.7)),
    "moss_anytime(alpha=1)": lambda rewards, t, binary: each(moss(t, 1.0))(rewards, t, binary),
    "kl_ucb(c=3)": each(
        lambda own, t, binary: upper(
            float(own.mean()), (math.log(t) + 3 * math.log(max(math.log(t), 1))) / own.size, binary, SIGMA
        )
    ),
    "kl_ucb_plus": each(
        lambda own, t, binary: upper(float(own.mean()), max(math.log(t / own.size), 0) / own.size, binary, SIGMA)
    ),
    "imed": imed,
    "bayes_ucb": each(quantile),
}


def plain_history(index: Plain, arms: ArmTable, seed: int, j: int) -> list[int]:
    """The arms that one instance pulls, from lists of its rewards; a tie is what differs by 1e-9."""
    rewards: list[list[float]] = [[] for _ in range(arms.arms)]
    means, pulled = arms.means[:, j % arms.means.shape[1]], []
    for t in range(HORIZON):
        pair = oracle.words(seed, np.array([j]), t >> 1, ACTION_REWARD)[2 * (t & 1) :, 0] >> 8
        arm = t
        if t >= arms.arms:
            values = index([np.array(own) for own in rewards], t, arms.binary)
            tied = np.flatnonzero(values >= values.max() - 1e-9)
            arm = int(tied[int(pair[0]) * tied.size >> 24])
        pulled.append(arm)
        if arms.kind == "bernoulli":
            rewards[arm].append(float(int(pair[1]) < math.ceil(means[arm] * 2.0**24)))
        else:
            rewards[arm].append(float(means[arm] + arms.sigma * stats.norm.ppf((int(pair[1]) + 0.5) * 2.0**-24)))
    return pulled


def both(policy: Any, arms: ArmTable, horizon: int = HORIZON) -> list[Any]:
    options = {"seed": 4, "first_instance": 0, "horizon": horizon, "checkpoints": np.array([horizon]), "record": True}
    return [engine.simulate(policy, arms, **options) for engine in (torch_loop, numba_loop)]


@pytest.mark.parametrize("kind", ["bernoulli", "gaussian"])
@pytest.mark.parametrize("text", PLAIN)
def test_the_history_is_that_of_the_definition(text: str, kind: str) -> None:
    arms, policy = oracle.ARMS[kind], parse_policy(text)
    # MOSS on 0/1 rewards is left to the checks of conformance: a loop of its own takes seconds to compile.
    compiled = policy.score.compiled(arms, HORIZON) is not None and (kind, policy.score.name[:4]) != (
        "bernoulli",
        "moss",
    )
    reference, *others = both(policy, arms) if compiled else [_reference(policy, arms)]
    for j in range(2):
        assert reference.actions[:, j].tolist() == plain_history(PLAIN[text], arms, 4, j), j
    for other in others:
        assert (other.actions == reference.actions).all()


def _reference(policy: Any, arms: ArmTable) -> Any:
    options = {"seed": 4, "first_instance": 0, "horizon": HORIZON, "checkpoints": np.array([HORIZON]), "record": True}
    return torch_loop.simulate(policy, arms, **options)


def test_what_has_no_compiled_form_says_so_and_auto_takes_torch() -> None:
    for text, kind in (("bayes_ucb", "bernoulli"), ("ucb_v", "gaussian"), ("ucb1_tuned", "table")):
        policy = parse_policy(text)
        with pytest.raises(EngineError, match=rf"the numba engine has no {text} on these rewards; engine='torch'"):
            choose_engine(policy, oracle.ARMS[kind], 10, "numba", "cpu")
        assert choose_engine(policy, oracle.ARMS[kind], 10, device="cpu").engine.name == "torch"
    policy = parse_policy("kl_ucb | softmax(beta=3)")
    with pytest.raises(EngineError, match="the numba engine maximises kl_ucb, it has no head 'softmax' for it"):
        choose_engine(policy, oracle.ARMS["bernoulli"], 10, "numba", "cpu")
    block = _reference(policy, oracle.ARMS["bernoulli"])
    assert block.pulls.sum(0).tolist() == [HORIZON] * 16


def test_an_index_alone_is_its_argmax() -> None:
    assert parse_policy("moss") == parse_policy("moss | argmax") == Pipe(SCORES["moss"](), Argmax())
    assert str(parse_policy("kl_ucb(c=3) | argmax")) == "kl_ucb(c=3)"
    assert str(Pipe(KlUcb(), Softmax())) == "kl_ucb | softmax(beta=1)"


def test_bounds_are_where_the_divergence_is_the_level() -> None:
    means = np.repeat([0.0, 1e-9, 1e-4, 0.03, 0.2, 0.5, 0.7, 0.97, 1 - 1e-4, 1 - 1e-9, 1.0], 40)
    counts = np.tile(np.round(np.geomspace(1, 1e7, 40)), 11)
    level = math.log(1e4) / counts
    slow = bernoulli_upper_bound(torch.as_tensor(means), torch.as_tensor(level)).numpy()
    inner = (means > 0) & (slow < 1 - 1e-12)
    found = stats.entropy([means, 1 - means], [slow, 1 - slow])
    np.testing.assert_allclose(found[inner], level[inner], rtol=1e-6)
    np.testing.assert_allclose(slow[means == 0], -np.expm1(-level[means == 0]), rtol=0, atol=1e-15)
    assert (slow[means == 1] == 1).all()
    # Halley's iteration of the compiled engines, on lanes of one number.
    from stau_rl.kernels.cpu.lanes import load, store

    fast = np.empty_like(means)
    _halley()(means, 1 / np.sqrt(counts), np.log(1e4), fast, load, store)
    np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-13)


def _halley() -> Callable[..., None]:
    import numba

    from stau_rl.kernels.cpu.lanes import WIDTH, load, store

    @numba.njit
    def run(mean: Any, root: Any, width: float, out: Any) -> None:
        lane, spread, found = np.empty(WIDTH), np.empty(WIDTH), np.empty(WIDTH)
        for i in range(mean.size):
            lane[:], spread[:] = mean[i], root[i]
            value = kl_bernoulli(load(lane, 0), load(spread, 0), load(lane, 0), width, 0.0)
            store(found, 0, value)
            out[i] = found[0]

    return lambda mean, root, width, out, *_: run(mean, root, width, out)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("moss(c=0)", "moss: c must be finite and > 0, got 0"),
        ("moss_anytime(alpha=-1)", "moss_anytime: alpha must be finite and >= 0, got -1"),
        ("kl_ucb(c=-1)", "kl_ucb: c must be finite and >= 0, got -1"),
        ("imed(sigma=0)", r"imed: sigma must lie in \[1e-100, 1e100\], got 0"),
        ("ucb_v(zeta=nan)", "ucb_v: zeta must be finite and > 0, got nan"),
    ],
)
def test_bad_parameters_are_named(text: str, message: str) -> None:
    with pytest.raises((ValueError, SpecError), match=message):
        parse_policy(text)


def test_rewards_of_any_size_are_played_alike() -> None:
    """Gaussian arms times 1e6 and 1e-6, parameters with them: the same pulls."""
    arms = oracle.ARMS["gaussian"]
    for name in (name for name, score in SCORES.items() if issubclass(score, Index)):
        score: Any = SCORES[name]()
        histories = []
        for scale in (1.0, 1e6, 1e-6):
            table = oracle.gaussian(arms.means * scale, 8, arms.sigma * scale)
            histories.append(_reference(Pipe(score.scaled(scale), Argmax()), table).actions)
        assert (histories[0] == histories[1]).mean() > 0.999, name
        assert (histories[0] == histories[2]).mean() > 0.999, name


def test_a_study_rescales_them() -> None:
    base = Setting(
        *("base", "x", "gaussian(k=3)", ("moss", "kl_ucb(sigma=2)", "kl_ucb | softmax(beta={x})")),
        **{"horizon": 60, "instances": 9, "tuning_instances": 9, "pilot_instances": 9, "seed": 1},
        **{"low": 1.0, "high": 9.0, "coarse": 2, "fine": 2},
    )
    assert rescale(base, 10.0).families == ("moss(c=10)", "kl_ucb(sigma=20)", "kl_ucb | softmax(beta={x})")
