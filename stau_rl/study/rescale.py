"""A setting whose rewards are multiplied by a factor, as is all of a policy that carries their scale."""

from dataclasses import replace

from stau_rl.agents.bandit import BoltzmannGumbel, EpsGreedy, Greedy, Index, Pipe, Random, Thompson, Ucb, Ucb1
from stau_rl.envs.arms import Arms, GaussianArms, parse_arms
from stau_rl.heads import Argmax
from stau_rl.spec.grammar import SpecError
from stau_rl.spec.schedule import Schedule
from stau_rl.study.family import Family, change_score
from stau_rl.study.setting import Setting


def rescale(setting: Setting, scale: float) -> Setting:
    """The setting with all rewards multiplied by `scale`, and with them the bonus and the range of inverse slopes."""
    arms = parse_arms(setting.arms)
    if setting.ranges:
        raise SpecError("how a family's own range carries the scale of rewards is not known")
    if setting.grids:
        raise SpecError("how a grid set by hand carries the scale of rewards is not known")
    if not isinstance(arms, GaussianArms):
        raise SpecError(f"only Gaussian arms can be rescaled, got {setting.arms}")
    if arms.means is None:
        scaled: Arms = replace(arms, loc=arms.loc * scale, scale=arms.scale * scale, sigma=arms.sigma * scale)
    else:
        scaled = replace(arms, means=tuple(scale * mean for mean in arms.means), sigma=arms.sigma * scale)
    families = tuple(_rescaled(text, scale) for text in setting.families)
    references = tuple(_rescaled(text, scale) for text in setting.references)
    low, high = setting.low / max(scale, 1.0), setting.high / min(scale, 1.0)
    return replace(setting, arms=str(scaled), families=families, references=references, low=low, high=high)


def _rescaled(text: str, scale: float) -> str:
    """The family that plays rewards times `scale` as this one plays rewards: its bonus carries the scale.

    A head keeps its parameter, which is what the sweep is about.
    """
    family = Family(text).raw
    if isinstance(family, Pipe) and isinstance(family.score, Index):
        score = str(family.score.scaled(scale))
        return f"{score} | {text.partition('|')[2].strip()}" if "|" in text else score
    if "|" in text:
        bonus: float | Schedule = getattr(Family(text).raw.score, "c", 0.0)
        larger = bonus.times(scale) if isinstance(bonus, Schedule) else float(bonus) * scale
        return change_score(text, c=larger) if bonus else text
    policy = family
    if isinstance(policy, Ucb1):
        return str(Pipe(Ucb(c=float(f"{scale:g}")), Argmax()))
    if isinstance(policy, (Random, Greedy, EpsGreedy)):
        return text
    if isinstance(policy, BoltzmannGumbel):
        return str(replace(policy, c=policy.c * scale))
    if isinstance(policy, Thompson):
        sigma = None if policy.sigma is None else policy.sigma * scale
        return str(replace(policy, prior_mean=policy.prior_mean * scale, prior_sd=policy.prior_sd * scale, sigma=sigma))
    raise SpecError(f"how {text} carries the scale of rewards is not known here")
