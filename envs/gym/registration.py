"""The ids of the environments, told to Gymnasium; classes are named, not imported, so this needs no torch.

`import stau_rl` does it: at once where Gymnasium is loaded already, else as soon as it is.
"""

from stau_rl.envs.gym.task_registration import register_tasks

NAMESPACE = "stau_rl"
KINDS = ("Bernoulli", "Gaussian", "Contextual", "Empirical")
IDS = tuple(f"{NAMESPACE}/{kind}Bandit-v0" for kind in KINDS)


def register_environments() -> None:
    """Register every id that is not registered yet: the bandits, and the tasks of recall."""
    # Importing Gymnasium may register everything, this included.
    import gymnasium

    register_tasks()
    for name, kind in zip(IDS, KINDS, strict=True):
        if name not in gymnasium.registry:
            gymnasium.register(
                name,
                entry_point=f"stau_rl.envs.gym.bandits:{kind}BanditEnv",
                vector_entry_point=f"stau_rl.envs.gym.bandit_vectors:{kind}BanditVectorEnv",
            )
