"""Says where a module or a command has gone, for a release: the error of an old name holds the new one."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

# Old names that users had reason to type -> what to type now.
MODULES = {
    "plugin_source": "stau_rl.plugin.load",
    "modules": "stau_rl.nn.head_module",
    "head_categorical": "stau_rl.nn.categorical",
    "remedies": "stau_rl.nn.remedies",
    "schedule": "stau_rl.spec.schedule",
    "result": "stau_rl.regret.result",
    "score_analysis": "stau_rl.calibration.score_analysis",
    "kernels.triton_device": "stau_rl.kernels.gpu.device",
    "kernels.numba_lanes": "stau_rl.kernels.cpu.lanes",
    "kernels.numba_math": "stau_rl.kernels.cpu.math",
    "kernels.fused_head": "stau_rl.kernels.gpu.fused_head",
    "agents.ppo": "stau_rl.agents.policy_gradient.ppo",
    "agents.a2c": "stau_rl.agents.policy_gradient.a2c",
    "agents.reinforce": "stau_rl.agents.policy_gradient.reinforce",
}
COMMANDS = {
    "claim": "python -m stau_rl.pages.claim",
    "attention_page": "python -m stau_rl.pages.attention",
    "rl_page": "python -m stau_rl.pages.rl",
    "speed_page": "python -m stau_rl.pages.speed",
    "readme": "python -m stau_rl.pages.tables",
    "tau_star_study": "python -m stau_rl.pages.tau_star",
    "coverage": "python -m stau_rl.checks.coverage",
    "conformance": "python -m stau_rl.checks.conformance",
    "fused_head_speed": "python -m stau_rl.speed.fused_head",
    "rl_speed": "python -m stau_rl.speed.agents",
    "jax_sweep": "python -m stau_rl.speed.jax_sweep",
    "plateau.__main__": "python -m stau_rl plateau",
    "probe.__main__": "python -m stau_rl probe",
    "speed.__main__": "python -m stau_rl speed",
    "rl_study.__main__": "python -m stau_rl rl-study",
}


class _Moved:
    """The last finder: asked only for what no other finds, and finds nothing itself."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None, or an error with the new name of an old one."""
        short = name.removeprefix("stau_rl.")
        if name != short and (now := COMMANDS.get(short) or MODULES.get(short)):
            raise ModuleNotFoundError(f"{name.removesuffix('.__main__')} is now {now}", name=name)
        return None


def say_where() -> None:
    """From now on, importing or running an old name says the new one."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.append(_Moved())
